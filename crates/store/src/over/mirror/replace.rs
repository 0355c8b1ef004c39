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
         ('weft get volume' tells), then take the other leg away"
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
    Log(std::io::Error),
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
        let changed = self.put_legs(&volumes, new);
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
            } else if leg.read_only && !info.read_only {
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

    /// Nothing is under way but flushes.
    fn put_legs(&self, volumes: &[Arc<dyn Volume>], new: Arc<Legs>) -> Result<(), ReplaceError> {
        let record = with_legs(&self.log.state().record, volumes);
        let lost = record.lost();
        if lost > 0 {
            let missing_bytes = lost * record.region_bytes;
            return Err(ReplaceError::Lacks { missing_bytes });
        }
        let changed = self.log.change(|_| record, Some(volumes.to_vec()));
        changed.map_err(ReplaceError::Log)?;
        *self.legs.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

/// The record with these legs.
fn with_legs(old: &MirrorRecord, volumes: &[Arc<dyn Volume>]) -> MirrorRecord {
    let leg = |volume: &Arc<dyn Volume>| {
        let uuid = volume.info().uuid;
        let mut known = old.legs.iter();
        let new = || LegRecord {
            volume: uuid,
            generation: 0,
            is_out: false,
            missing: Regions::all(old.dirty.count()),
        };
        let known = known.find(|leg| {
            leg.volume == uuid && !open::is_older(&**volume, old.mirror, leg.generation)
        });
        known.cloned().unwrap_or_else(new)
    };
    MirrorRecord {
        generation: old.generation + 1,
        legs: volumes.iter().map(leg).collect(),
        ..old.clone()
    }
}
