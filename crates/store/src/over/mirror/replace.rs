//! Other legs for a mirror that serves.

use std::sync::{Arc, PoisonError};

use super::absent::is_absent;
use super::record::{LegRecord, MirrorRecord};
use super::regions::Regions;
use super::{Leg, Legs, Mirror, open};
use crate::locks::Claim;
use crate::problem::Problem;
use crate::{ResizeError, Volume};

/// Why the legs of a mirror were not changed. They are what they were.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// A volume cannot be a leg.
    #[error("{0}")]
    Leg(Problem),
    /// A volume is smaller than the mirror.
    #[error(
        "the volume \"{leg}\" has {leg_bytes} bytes, the mirror {size_bytes}: a leg is as large or \
         larger"
    )]
    LegSize {
        /// Its name.
        leg: String,
        /// What it has.
        leg_bytes: u64,
        /// What the mirror has.
        size_bytes: u64,
    },
    /// What only a leg has that is to go.
    #[error(
        "the legs that stay lack {missing_bytes} bytes of the mirror: wait until they are copied \
         ('weft status' tells), then take the other leg away"
    )]
    Lacks {
        /// In whole regions.
        missing_bytes: u64,
    },
    /// I/O does not end.
    #[error("{0}")]
    Busy(ResizeError),
    /// The log could not be written.
    #[error("the log of the mirror was not written: {0}")]
    Log(#[from] std::io::Error),
}

impl Mirror {
    /// Makes these its legs, in this order. All is copied to those that it has not had; the
    /// others stay what they are. Blocks: not for a reactor at work.
    pub fn set_legs(&self, volumes: Vec<Arc<dyn Volume>>) -> Result<(), ReplaceError> {
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.legs();
        self.check_legs(&old, &volumes)?;
        let all = volumes.iter().map(|volume| self.leg_of(&old, volume));
        let all = all
            .collect::<Result<Vec<_>, _>>()
            .map_err(ReplaceError::Leg)?;
        let new = Arc::new(Legs {
            all,
            bits: old.bits,
        });
        let range = Claim::new(0, u64::MAX, true);
        if !self.locks.acquire_within(range, self.patience) {
            return Err(ReplaceError::Busy(ResizeError::Busy));
        }
        // Nothing is under way but flushes.
        let changed = self
            .log
            .change(|record| with_legs(record, &old, &new), Some(new.clone()));
        self.locks.release(&range);
        changed
    }

    /// A volume was opened that may have the name of a leg which was not there: then it is that
    /// leg, as far as it is the same volume. Blocks likewise.
    pub fn take_back(&self, volume: &Arc<dyn Volume>) -> Result<(), ReplaceError> {
        let name = &volume.info().name;
        let mut legs = self.volumes();
        let mut all = legs.iter_mut();
        let Some(leg) = all.find(|leg| is_absent(&***leg) && leg.info().name == *name) else {
            return Ok(());
        };
        *leg = volume.clone();
        self.set_legs(legs)
    }

    fn check_legs(&self, old: &Legs, volumes: &[Arc<dyn Volume>]) -> Result<(), ReplaceError> {
        let (info, size_bytes) = (&self.base.info, self.size_bytes());
        let is_twice = |(at, volume): &(usize, &Arc<dyn Volume>)| {
            volumes[..*at]
                .iter()
                .any(|other| Arc::ptr_eq(other, volume))
        };
        if let Some((_, volume)) = volumes.iter().enumerate().find(is_twice) {
            return Err(ReplaceError::Leg(Problem::PartTaken {
                part: volume.info().name.clone(),
                owner: info.name.clone(),
            }));
        }
        let kind = crate::spec::Kind::mirror(&[]).row();
        if !kind.parts.contains(&volumes.len()) {
            return Err(ReplaceError::Leg(Problem::PartCount {
                kind: kind.name,
                has: volumes.len(),
                least: *kind.parts.start(),
                most: *kind.parts.end(),
            }));
        }
        for volume in volumes {
            let (leg, leg_bytes) = (volume.info(), volume.size_bytes());
            let problem = if !info.block_bytes.is_multiple_of(leg.block_bytes) {
                Problem::PartBlock {
                    part: leg.name.clone(),
                    part_block_bytes: leg.block_bytes,
                    block_bytes: info.block_bytes,
                }
            } else if volume.base().refuses_writes() && !info.read_only {
                Problem::PartReadOnly(leg.name.clone())
            } else if !old.bits.has_room(volume.base().leg_bits) {
                Problem::TooDeep
            } else if leg_bytes < size_bytes {
                return Err(ReplaceError::LegSize {
                    leg: leg.name.clone(),
                    leg_bytes,
                    size_bytes,
                });
            } else {
                continue;
            };
            return Err(ReplaceError::Leg(problem));
        }
        Ok(())
    }

    /// The leg that it has, or a new one.
    fn leg_of(&self, old: &Legs, volume: &Arc<dyn Volume>) -> Result<Arc<Leg>, Problem> {
        let mut legs = old.all.iter();
        match legs.find(|leg| Arc::ptr_eq(leg.part.volume(), volume)) {
            Some(leg) => Ok(leg.clone()),
            None => open::leg(&self.base.info.name, volume.clone()),
        }
    }
}

/// The record with other legs, where those have all that the mirror holds.
fn with_legs(record: &MirrorRecord, old: &Legs, new: &Legs) -> Result<MirrorRecord, ReplaceError> {
    let leg = |volume: &Arc<dyn Volume>| {
        let uuid = volume.info().uuid;
        let new = || LegRecord {
            volume: uuid,
            generation: 0,
            is_out: false,
            missing: Regions::all(record.dirty.count()),
        };
        let is_same = old.volumes().any(|leg| Arc::ptr_eq(leg, volume));
        let is_known = |leg: &&LegRecord| {
            let has_kept = || {
                volume.base().outlasts_process
                    && !open::is_older(&**volume, record.mirror, leg.generation)
            };
            leg.volume == uuid && (is_same || has_kept())
        };
        let known = record.legs.iter().find(is_known);
        known.cloned().unwrap_or_else(new)
    };
    let changed = MirrorRecord {
        generation: record.generation + 1,
        legs: new.volumes().map(leg).collect(),
        ..record.clone()
    };
    match changed.lost() {
        0 => Ok(changed),
        lost => Err(ReplaceError::Lacks {
            missing_bytes: lost * changed.region_bytes,
        }),
    }
}
