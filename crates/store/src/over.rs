//! Volumes that are made of others: slices, concatenations, stripes.
//!
//! What such a volume promises it keeps by itself: where its data lies on several volumes,
//! each I/O locks its range here, so that one that is done in pieces is one step to every
//! other. What it is made of serves nothing else meanwhile ([`crate::parts`]).

use std::sync::Arc;

use uuid::Uuid;

use crate::problem::Problem;
use crate::spec::Settings;
use crate::{BLOCK_SIZES, Info, LEG_BITS, SIZE_MAX_BYTES, Spec, State, Volume, identity};
use map::Map;

pub(crate) use composite::Composite;
pub(crate) use delay::delayed;
pub(crate) use mirror::MirrorTask;
pub(crate) use task::CompositeTask;

mod composite;
mod delay;
mod map;
pub(crate) mod mirror;
mod task;

/// Volumes that one may be made of.
pub(crate) const PARTS_MAX: usize = 32;

/// A volume that another one is, or is to be, made of.
#[derive(Clone, Copy)]
pub(crate) struct PartInfo<'i> {
    pub info: &'i Info,
    pub size_bytes: u64,
    /// It is read only, or hosts have write-protected it for good.
    pub refuses_writes: bool,
}

impl PartInfo<'_> {
    /// Of an open one.
    pub(crate) fn of(volume: &Arc<dyn Volume>) -> PartInfo<'_> {
        PartInfo {
            info: volume.info(),
            size_bytes: volume.size_bytes(),
            refuses_writes: volume.base().refuses_writes(),
        }
    }
}

/// What a volume is to be that is made of others.
pub(crate) struct Shape {
    pub map: Map,
    pub size_bytes: u64,
    pub info: Info,
    /// Whether its parts must keep their sizes.
    pub keeps_sizes: bool,
}

/// What a description makes of these volumes.
pub(crate) fn shape(spec: &Spec, parts: &[PartInfo]) -> Result<Shape, Problem> {
    check_parts(spec, parts)?;
    let block_bytes = u64::from(spec.block_bytes);
    let sizes: Vec<u64> = parts.iter().map(|part| part.size_bytes).collect();
    let in_blocks = |key, bytes: u64| match bytes.is_multiple_of(block_bytes) {
        true => Ok(bytes),
        false => Err(Problem::NotInBlocks {
            key,
            bytes,
            block_bytes,
        }),
    };
    let map = match spec.kind.settings {
        Settings::Slice { offset_bytes } => Map::Slice {
            offset: in_blocks("offset_bytes", offset_bytes)?,
        },
        Settings::Stripe { chunk_bytes } if chunk_bytes > 0 => Map::Stripe {
            chunk: in_blocks("chunk_bytes", chunk_bytes.into())?,
            legs: parts.len() as u64,
        },
        Settings::Stripe { .. } => return Err(Problem::NoChunk),
        Settings::Delay { .. } => Map::Slice { offset: 0 },
        Settings::Mirror { .. } => Map::Mirror,
        Settings::None => Map::Concat {
            ends: ends(&sizes, block_bytes),
        },
    };
    let has_bytes = map.capacity(&sizes).min(SIZE_MAX_BYTES) / block_bytes * block_bytes;
    let keeps_sizes = matches!(map, Map::Concat { .. });
    let is_other = match spec.size_bytes {
        0 => has_bytes == 0,
        // Whoever has enlarged one of them would find all behind it elsewhere.
        size_bytes if keeps_sizes => size_bytes != has_bytes,
        size_bytes => size_bytes > has_bytes,
    };
    if is_other {
        return Err(Problem::PartsSize {
            size_bytes: spec.size_bytes,
            has_bytes,
        });
    }
    Ok(Shape {
        size_bytes: if spec.size_bytes == 0 {
            has_bytes
        } else {
            spec.size_bytes
        },
        info: info(spec, parts, &map),
        map,
        keeps_sizes,
    })
}

/// Where each ends on the whole. What is no whole block at an end is left out.
fn ends(sizes: &[u64], block_bytes: u64) -> Vec<u64> {
    let ends = sizes.iter().scan(0, |end, size_bytes| {
        *end += size_bytes / block_bytes * block_bytes;
        Some(*end)
    });
    ends.collect()
}

fn check_parts(spec: &Spec, parts: &[PartInfo]) -> Result<(), Problem> {
    let (kind, block_bytes) = (spec.kind.row(), spec.block_bytes);
    if !kind.parts.contains(&parts.len()) {
        return Err(Problem::PartCount {
            kind: kind.name,
            has: parts.len(),
            least: *kind.parts.start(),
            most: *kind.parts.end(),
        });
    }
    for part in parts {
        let name = &part.info.name;
        if !block_bytes.is_multiple_of(part.info.block_bytes) {
            return Err(Problem::PartBlock {
                part: name.clone(),
                part_block_bytes: part.info.block_bytes,
                block_bytes,
            });
        }
        if part.refuses_writes && !spec.read_only {
            return Err(Problem::PartReadOnly(name.clone()));
        }
    }
    debug_assert!(BLOCK_SIZES.contains(&block_bytes), "it was checked");
    Ok(())
}

/// Follows from what it is made of: what lies in memory of two processes is two volumes.
fn uuid(spec: &Spec, parts: &[PartInfo]) -> Uuid {
    let of: Vec<Uuid> = parts.iter().map(|part| part.info.uuid).collect();
    let derived = || identity::of_parts(spec.kind.name(), &spec.name, &of);
    spec.uuid.unwrap_or_else(derived)
}

fn info(spec: &Spec, parts: &[PartInfo], map: &Map) -> Info {
    let infos = || parts.iter().map(|part| part.info);
    let volatile_cache = infos().any(|part| part.volatile_cache);
    let info = spec.info(uuid(spec, parts), volatile_cache);
    let least = |of: fn(&Info) -> u32| infos().map(of).min().unwrap_or(0);
    Info {
        is_thin: infos().all(|part| part.is_thin),
        atomic_bytes: match map {
            Map::Slice { .. } => least(|part| part.atomic_bytes),
            _ => info.atomic_bytes,
        },
        atomic_power_fail_bytes: match volatile_cache {
            // A block lies within one of them, and what is true of a block there is here.
            true => info.atomic_power_fail_bytes,
            // Nothing outlives a power failure.
            false => least(|part| part.atomic_power_fail_bytes),
        },
        ..info
    }
}

/// Opens a volume that is made of these, which has a state file where one is configured.
pub(crate) fn open(spec: &Spec, below: Vec<Arc<dyn Volume>>) -> Result<Composite, Problem> {
    let shape = shape(spec, &infos(&below))?;
    let state = State::in_file(spec, shape.info.uuid, None, None)?;
    Composite::open(spec, shape, below, state)
}

/// The same with another state.
pub(crate) fn open_with(
    spec: &Spec,
    below: Vec<Arc<dyn Volume>>,
    state: State,
) -> Result<Composite, Problem> {
    let shape = shape(spec, &infos(&below))?;
    Composite::open(spec, shape, below, state)
}

fn infos(volumes: &[Arc<dyn Volume>]) -> Vec<PartInfo<'_>> {
    volumes.iter().map(PartInfo::of).collect()
}

/// The bits of a token by which a volume tells those apart that it is made of: above
/// those that they need themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LegBits {
    shift: u32,
    /// All bits of the volume, and below.
    pub total: u32,
}

impl LegBits {
    /// Of a volume that is made of these.
    pub(crate) fn over(below: &[Arc<dyn Volume>]) -> Result<LegBits, Problem> {
        LegBits::with(below, below.len())
    }

    /// The same of one that may be made of so many.
    fn with(below: &[Arc<dyn Volume>], count: usize) -> Result<LegBits, Problem> {
        let needed = below.iter().map(|volume| volume.base().leg_bits);
        let shift = needed.max().unwrap_or(0);
        // One at least, so that levels are bounded as well.
        let total = shift + count.next_power_of_two().trailing_zeros().max(1);
        match total <= LEG_BITS {
            true => Ok(LegBits { shift, total }),
            false => Err(Problem::TooDeep),
        }
    }

    /// Whether a volume that needs so many bits by itself may be one of those.
    fn has_room(self, leg_bits: u32) -> bool {
        leg_bits <= self.shift
    }

    /// The token of an I/O, of one whose completion has come.
    #[inline]
    pub(crate) fn whole(self, token: reactor::Token) -> reactor::Token {
        token >> self.total << self.total
    }

    /// The token of what an I/O with the token `whole` does on a leg.
    #[inline]
    pub(crate) fn on_leg(self, whole: reactor::Token, leg: usize) -> reactor::Token {
        whole | (leg as reactor::Token) << self.shift
    }

    /// The leg that something has completed on.
    #[inline]
    pub(crate) fn leg(self, token: reactor::Token) -> usize {
        ((token - self.whole(token)) >> self.shift) as usize
    }
}
