//! How a mirror is opened: what its log and its legs say of each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mem::Region;
use tracing::warn;
use uuid::Uuid;

use super::absent::{absent_legs, is_absent, with_absent};
use super::copies::TwoCopies;
use super::log::{Log, LogMedium};
use super::record::{LegRecord, MirrorRecord};
use super::regions::Regions;
use super::upkeep::{SCRATCH_BYTES, Upkeep};
use super::{LEGS_MAX, Leg, Legs, Mirror};
use crate::locks::Locks;
use crate::over::{LegBits, PartInfo, Shape, shape};
use crate::parts::{VolumePart, WHOLE};
use crate::problem::{Problem, no_memory};
use crate::spec::Settings;
use crate::state::{LegOf, mirror_log};
use crate::{Base, Extent, Info, Medium, Spec, State, Volume};

/// How long a change of size or legs waits for I/O.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a mirror of these would be. Nothing is made; blocks.
pub(crate) fn examine(spec: &Spec, parts: &[PartInfo]) -> Result<Shape, Problem> {
    let Some(path) = mirror_log(spec) else {
        return shape(spec, parts);
    };
    let loaded = TwoCopies::look(&path).map_err(cannot_read(&path))?;
    let record = loaded.map(|bytes| parse(&path, &bytes)).transpose()?;
    let there: Vec<&Info> = parts.iter().map(|part| part.info).collect();
    let absent = absent_legs(spec, &there, record.as_ref());
    let absent = absent.iter().map(PartInfo::of);
    let parts: Vec<PartInfo> = parts.iter().copied().chain(absent).collect();
    known_shape(spec, record.as_ref(), &parts)
}

/// Opens a mirror of these, whose log lies beside its state file. Blocks.
pub(crate) fn open(spec: &Spec, below: Vec<Arc<dyn Volume>>) -> Result<Mirror, Problem> {
    let lasts = below.iter().any(|leg| leg.base().outlasts_process);
    let medium = match mirror_log(spec) {
        Some(path) => Some(LogMedium {
            medium: Box::new(TwoCopies::open(&path)?),
            is_instant: false,
        }),
        None if lasts && !spec.read_only => return Err(Problem::NoLog),
        None => None,
    };
    let state = |uuid| State::in_file(spec, uuid, None, None);
    open_on(spec, below, medium, state)
}

/// The same with a state and a log that are kept elsewhere, and written at once.
pub(crate) fn open_with(
    spec: &Spec,
    below: Vec<Arc<dyn Volume>>,
    state: State,
    medium: Box<dyn Medium>,
) -> Result<Mirror, Problem> {
    let is_instant = true;
    let medium = LogMedium { medium, is_instant };
    open_on(spec, below, Some(medium), |_| Ok(state))
}

fn open_on(
    spec: &Spec,
    below: Vec<Arc<dyn Volume>>,
    medium: Option<LogMedium>,
    state: impl FnOnce(Uuid) -> Result<State, Problem>,
) -> Result<Mirror, Problem> {
    let loaded = match &medium {
        Some(LogMedium { medium, .. }) => {
            let path = medium.path();
            let loaded = medium.load().map_err(cannot_read(path))?;
            loaded.map(|bytes| parse(path, &bytes)).transpose()?
        }
        None => None,
    };
    let below = with_absent(spec, below, loaded.as_ref());
    let infos: Vec<PartInfo> = below.iter().map(PartInfo::of).collect();
    let shape = known_shape(spec, loaded.as_ref(), &infos)?;
    let (uuid, size_bytes) = (shape.info.uuid, shape.size_bytes);
    let (record, as_good) = match &loaded {
        None => (first(uuid, size_bytes, &below), BTreeMap::new()),
        Some(old) => {
            let path = medium.as_ref().map(|medium| medium.medium.path());
            taken_up(old, size_bytes, &below, path.unwrap_or(Path::new("")))?
        }
    };
    let bits = LegBits::with(&below, LEGS_MAX)?;
    let all = below.iter().map(|volume| leg(&spec.name, volume.clone()));
    let all = all.collect::<Result<_, Problem>>()?;
    let outlasts = below.iter().all(|leg| leg.base().outlasts_process);
    let base = Base::over(shape.info, size_bytes, bits.total, outlasts);
    let is_instant = medium.as_ref().is_some_and(|medium| medium.is_instant);
    let is_changed = loaded.as_ref() != Some(&record);
    let legs = Arc::new(Legs { all, bits });
    let log = Log::new(&spec.name, (record, as_good), legs, medium);
    if !spec.read_only {
        renew(&log, is_changed).map_err(|source| Problem::System {
            action: "write the log of the mirror",
            path: mirror_log(spec),
            source,
        })?;
    }
    let resync_rate = match spec.kind.settings {
        Settings::Mirror { resync_rate } => resync_rate,
        _ => unreachable!("the settings of another kind"),
    };
    Ok(Mirror {
        base: base.with_state(state(uuid)?),
        locks: Locks::new(),
        log,
        turn: AtomicU32::new(0),
        resync_rate: AtomicU64::new(resync_rate),
        resynced_bytes: AtomicU64::new(0),
        repaired_bytes: AtomicU64::new(0),
        upkeep: Mutex::new(Upkeep::new(is_instant)),
        scratch: Region::anonymous(SCRATCH_BYTES).map_err(no_memory)?,
        writes_begun: AtomicU64::new(0),
        writes_ended: AtomicU64::new(0),
        flushed_at: AtomicU64::new(0),
        patience: if is_instant { Duration::ZERO } else { PATIENCE },
        changing: Mutex::default(),
    })
}

/// Begins a generation. Where nothing else has changed a log that cannot be written now is that
/// of a mirror that can be read.
fn renew(log: &Arc<Log>, is_changed: bool) -> std::io::Result<()> {
    let renewed = log.renew();
    match &renewed {
        Err(error) if !is_changed => {
            warn!(%error, "the log of a mirror cannot be written: its writes fail until it can be");
            Ok(())
        }
        _ => renewed,
    }
}

/// One of its legs, which is nothing else meanwhile.
pub(super) fn leg(mirror: &str, volume: Arc<dyn Volume>) -> Result<Arc<Leg>, Problem> {
    let part = VolumePart::take(volume.clone(), mirror, WHOLE, false)?;
    if let Some(scrub) = volume.scrub() {
        scrub.add_mirror();
    }
    Ok(Arc::new(Leg {
        losses: AtomicU64::new(volume.losses()),
        part,
        reads: AtomicU32::new(0),
        is_told: AtomicBool::new(false),
        is_repair_told: AtomicBool::new(false),
    }))
}

/// What a mirror is that has the identity that its log knows. It becomes smaller where that is
/// configured, and not because a leg did.
fn known_shape(
    spec: &Spec,
    record: Option<&MirrorRecord>,
    parts: &[PartInfo],
) -> Result<Shape, Problem> {
    let Some(record) = record else {
        return shape(spec, parts);
    };
    let mut spec = spec.clone();
    spec.uuid = spec.uuid.or(Some(record.mirror));
    let known = shape(&spec, parts)?;
    let smallest = parts.iter().min_by_key(|part| part.size_bytes);
    match smallest {
        Some(leg) if spec.size_bytes == 0 && known.size_bytes < record.size_bytes => {
            Err(Problem::LegShrunk {
                leg: leg.info.name.clone(),
                leg_bytes: leg.size_bytes,
                size_bytes: record.size_bytes,
            })
        }
        _ => Ok(known),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<MirrorRecord, Problem> {
    MirrorRecord::of_bytes(bytes).ok_or_else(|| Problem::MirrorLog {
        path: path.to_owned(),
        why: "is damaged",
    })
}

fn cannot_read(path: &Path) -> impl Fn(std::io::Error) -> Problem {
    |source| Problem::System {
        action: "read the log of the mirror",
        path: Some(path.to_owned()),
        source,
    }
}

/// Whether nothing was ever written to a range of a volume, for certain: what [`Volume::is_blank`]
/// takes for blank may hold what is left of another use.
pub(super) fn is_unwritten(volume: &dyn Volume, from: u64, to: u64) -> bool {
    let mut found = Vec::new();
    let asked = volume.extents(from, to - from, 1, &mut found);
    let all = Extent {
        offset: from,
        len: to - from,
        allocated: false,
    };
    to == from || asked.is_ok() && found == [all]
}

/// The generation of the mirror that a leg remembers.
fn generation_of(mirror: Uuid, leg: &dyn Volume) -> Option<u64> {
    let leg = leg.state().leg_of()?;
    (leg.mirror == mirror).then_some(leg.generation)
}

/// Whether a leg remembers less than this generation, where it could: it is a copy from a backup,
/// or was not there when others went on.
pub(super) fn is_older(leg: &dyn Volume, mirror: Uuid, least: u64) -> bool {
    let own = generation_of(mirror, leg);
    leg.state().can_persist() && own.unwrap_or(0) < least
}

/// The record of a mirror that has none: it holds what the first leg does, or, where legs were a
/// mirror before, the one that was in it last.
fn first(mirror: Uuid, size_bytes: u64, below: &[Arc<dyn Volume>]) -> MirrorRecord {
    let uuids: Vec<Uuid> = below.iter().map(|leg| leg.info().uuid).collect();
    let mut record = MirrorRecord::new(mirror, size_bytes, &uuids);
    let were: Vec<Option<LegOf>> = below.iter().map(|leg| leg.state().leg_of()).collect();
    let generations = were.iter().flatten().map(|leg| leg.generation);
    record.generation = 1 + generations.max().unwrap_or(0);
    if below.iter().all(|leg| is_unwritten(&**leg, 0, size_bytes)) {
        return record;
    }
    // The first of those that had all, and of them of those that were in it last.
    let had = |leg: &usize| were[*leg].map(|leg| (!leg.is_behind, leg.generation));
    let source = (0..were.len()).rev().max_by_key(had).unwrap_or(0);
    let count = record.dirty.count();
    for (leg, record) in record.legs.iter_mut().enumerate() {
        if leg != source {
            record.missing = Regions::all(count);
        }
    }
    record
}

/// The record as it is from now on, of these legs, and where several are as good as the one that
/// decides what a crash has left.
fn taken_up(
    old: &MirrorRecord,
    size_bytes: u64,
    below: &[Arc<dyn Volume>],
    path: &Path,
) -> Result<(MirrorRecord, BTreeMap<usize, u8>), Problem> {
    let mut record = old.clone();
    let own = below.iter().map(|leg| generation_of(old.mirror, &**leg));
    let own: Vec<Option<u64>> = own.collect();
    let newest = own.iter().flatten().max().copied().unwrap_or(0);
    // It was written before its legs.
    if newest > old.generation {
        return Err(Problem::MirrorLog {
            path: path.to_owned(),
            why: "is older than what its legs say",
        });
    }
    let legs = below.iter().zip(&own);
    let legs: Vec<(bool, LegRecord)> = legs
        .map(|(volume, own)| taken_leg(old, volume, *own))
        .collect();
    let is_known = legs.iter().any(|(is_known, _)| *is_known);
    record.legs = legs.into_iter().map(|(_, leg)| leg).collect();
    if !is_known {
        if below.iter().any(|leg| leg.base().outlasts_process) {
            return Err(Problem::NoKnownLeg(path.to_owned()));
        }
        // All of them are memory, which holds zeros again.
        let uuids: Vec<Uuid> = below.iter().map(|leg| leg.info().uuid).collect();
        let record = MirrorRecord {
            generation: old.generation + 1,
            ..MirrorRecord::new(old.mirror, size_bytes, &uuids)
        };
        return Ok((record, BTreeMap::new()));
    }
    let members = |legs: &[LegRecord]| -> Vec<(Uuid, bool)> {
        legs.iter().map(|leg| (leg.volume, leg.is_out)).collect()
    };
    if members(&record.legs) != members(&old.legs) {
        record.generation = old.generation + 1;
    }
    for leg in 0..record.legs.len() {
        if record.legs[leg].is_out {
            record.leave_out(leg);
        }
    }
    let clean = Regions::none(old.dirty.count());
    let dirty = std::mem::replace(&mut record.dirty, clean);
    let mut as_good = record.had_by_several(&dirty);
    record.settle(&dirty);
    record.resize(size_bytes, false);
    let count = record.dirty.count();
    let is_same = record.region_bytes == old.region_bytes;
    as_good.retain(|region, _| is_same && *region < count);
    Ok((record, as_good))
}

/// A leg as it is from now on, and whether the record knows what it holds.
fn taken_leg(old: &MirrorRecord, volume: &Arc<dyn Volume>, own: Option<u64>) -> (bool, LegRecord) {
    let uuid = volume.info().uuid;
    let mut known = old.legs.iter();
    let known = known.find(|leg| leg.volume == uuid);
    if let Some(known) = known.filter(|_| is_absent(&**volume)) {
        let is_out = true;
        let missing = known.missing.clone();
        return (
            false,
            LegRecord {
                is_out,
                missing,
                ..*known
            },
        );
    }
    let least = known.map_or(0, |leg| leg.generation);
    let is_older = is_older(&**volume, old.mirror, least);
    let has_known = known.filter(|_| !is_older && volume.base().outlasts_process);
    if known.is_some() && has_known.is_none() {
        warn!(
            leg = volume.info().name,
            "a leg of a mirror is not what it was when it was in it last: all is copied to it"
        );
    }
    let all = || Regions::all(old.dirty.count());
    let leg = LegRecord {
        volume: uuid,
        generation: own.unwrap_or(0),
        is_out: false,
        missing: has_known.map_or_else(all, |leg| leg.missing.clone()),
    };
    (has_known.is_some(), leg)
}
