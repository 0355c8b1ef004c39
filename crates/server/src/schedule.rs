//! Snapshots that are made by themselves, and go by themselves.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use store::Volume;
use store::snapshot::{self, SnapshotError};

use crate::config::SnapshotSchedule;
use crate::shared::Shared;

/// How often it is looked whether one is due.
const LOOK_EVERY: Duration = Duration::from_secs(20);

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
const WEEK_S: u64 = 7 * DAY_S;
/// 1970 began on a Thursday, and weeks begin on Mondays.
const WEEK_OFFSET_S: u64 = 3 * DAY_S;

impl SnapshotSchedule {
    /// Seconds of a period, how far its first one had come in 1970, and how many periods
    /// keep their first snapshot.
    fn periods(&self) -> impl Iterator<Item = (u64, u64, u32)> {
        let all = [
            (HOUR_S, 0, self.hourly),
            (DAY_S, 0, self.daily),
            (WEEK_S, WEEK_OFFSET_S, self.weekly),
        ];
        all.into_iter().filter(|(_, _, count)| *count > 0)
    }

    /// Whether a snapshot is to be made now, the last being of `last_s`.
    fn is_due(&self, last_s: Option<u64>, now_s: u64) -> bool {
        let mut periods = self.periods();
        periods.any(|(len, offset, _)| {
            let period = |at: u64| (at + offset) / len;
            last_s.is_none_or(|last| period(last) < period(now_s))
        })
    }

    /// Those of the snapshots, made at these times, that stay: the first of each of the last
    /// periods that have one.
    fn stay(&self, taken_s: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut stay = BTreeSet::new();
        for (len, offset, count) in self.periods() {
            let mut last = None;
            let firsts = taken_s.iter().copied().filter(|at| {
                let period = Some((at + offset) / len);
                period != std::mem::replace(&mut last, period)
            });
            let firsts: Vec<u64> = firsts.collect();
            stay.extend(firsts.into_iter().rev().take(count as usize));
        }
        stay
    }

    /// What a snapshot of it is called that is made at a time.
    fn snapshot_name(&self, at_s: u64) -> String {
        format!("{}-{}", self.name, stamp(at_s))
    }

    /// When a snapshot of that name was made, seconds since 1970; `None` where it is not one of
    /// its own.
    fn made_s(&self, name: &str) -> Option<u64> {
        let stamp = name.strip_prefix(&*self.name)?.strip_prefix('-')?;
        let at_s = time_of(stamp)?;
        (self.snapshot_name(at_s) == name).then_some(at_s)
    }
}

/// A time of UTC as `20260105T080000Z`.
fn stamp(at_s: u64) -> String {
    let (day, second) = (at_s / DAY_S, at_s % DAY_S);
    // Years that begin on 1 March, in eras of 400, have their odd day at the end.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / HOUR_S, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The time of a stamp; any time of a text that is none.
fn time_of(stamp: &str) -> Option<u64> {
    let number = |digits: Range<usize>| stamp.get(digits)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year.checked_sub(1)?, month + 9),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let day = days.checked_sub(719_469)?;
    Some(day * DAY_S + hour * HOUR_S + minute * 60 + second)
}

/// Makes what is due, for as long as the target is there.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let thread = thread::Builder::new().name("weft-schedules".into());
    thread.spawn(move || keep_making(&shared)).map(drop)
}

fn keep_making(shared: &Weak<Shared>) {
    let mut looks: HashMap<String, Look> = HashMap::new();
    while let Some(shared) = shared.upgrade() {
        if shared.engine.is_stopping() {
            break;
        }
        let schedules = shared.state().snapshot_schedules.clone();
        looks.retain(|name, _| schedules.iter().any(|schedule| schedule.name == *name));
        for schedule in schedules {
            let look = looks.entry(schedule.name.clone()).or_default();
            look.go_on(schedule, &shared);
        }
        drop(shared);
        thread::park_timeout(LOOK_EVERY);
    }
}

/// A look whether a snapshot of a schedule is due. Each has a thread, so that a disk that hangs
/// holds up no other schedule.
#[derive(Default)]
struct Look {
    thread: Option<JoinHandle<BTreeSet<String>>>,
    /// What was undone at the end of the one before.
    undone: BTreeSet<String>,
}

impl Look {
    /// Looks again if the last look has ended.
    fn go_on(&mut self, schedule: SnapshotSchedule, shared: &Shared) {
        if self.thread.as_ref().is_some_and(|last| !last.is_finished()) {
            return;
        }
        if let Some(Ok(undone)) = self.thread.take().map(JoinHandle::join) {
            self.undone = undone;
        }
        let volumes = schedule.volumes.iter().map(|name| {
            let found = shared.state().volume(name).cloned();
            found.ok_or_else(|| format!("volume \"{name}\" is not served"))
        });
        let volumes: Result<Vec<Arc<dyn Volume>>, String> = volumes.collect();
        let told = self.undone.clone();
        let thread = thread::Builder::new().name("weft-snapshots".into());
        let thread = thread.spawn(move || {
            let undone = match volumes {
                Ok(volumes) => run_schedule(&schedule, &volumes, SystemTime::now()),
                Err(why) => vec![Undone::none_made(why)],
            };
            tell(&schedule, undone, &told)
        });
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::error!(%error, "no thread looks for snapshots that are due"),
        }
    }
}

/// What of a schedule could not be done. The same is told once.
#[derive(Debug, PartialEq, Eq)]
struct Undone {
    what: String,
    why: String,
}

impl Undone {
    fn none_made(why: String) -> Undone {
        let what = "no snapshot is made by its schedule".to_owned();
        Undone { what, why }
    }
}

/// Tells what is undone that was not undone before; all that is.
fn tell(
    schedule: &SnapshotSchedule,
    undone: Vec<Undone>,
    told: &BTreeSet<String>,
) -> BTreeSet<String> {
    for Undone { what, why } in undone.iter().filter(|one| !told.contains(&one.what)) {
        tracing::error!(
            event = "snapshot-failed",
            schedule = schedule.name,
            "{what}: {why}"
        );
    }
    undone.into_iter().map(|one| one.what).collect()
}

/// Makes a snapshot of all volumes of a schedule if it is time, and takes away those that have
/// had theirs.
fn run_schedule(
    schedule: &SnapshotSchedule,
    volumes: &[Arc<dyn Volume>],
    now: SystemTime,
) -> Vec<Undone> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut undone = Vec::new();
    if let Err(why) = make_due(schedule, volumes, now) {
        undone.push(Undone::none_made(why.to_string()));
    }
    for volume in volumes {
        let of = &volume.info().name;
        let Ok(made) = made_by(schedule, &**volume, now.as_secs()) else {
            continue;
        };
        for at_s in made.difference(&schedule.stay(&made)) {
            let name = schedule.snapshot_name(*at_s);
            match snapshot::remove(&**volume, &name) {
                Ok(()) => tracing::info!(
                    event = "snapshot",
                    by = "schedule",
                    "snapshot {name} of {of} is removed"
                ),
                Err(why) => undone.push(Undone {
                    what: format!("snapshot {name} of {of} stays"),
                    why: why.to_string(),
                }),
            }
        }
    }
    undone
}

fn make_due(
    schedule: &SnapshotSchedule,
    volumes: &[Arc<dyn Volume>],
    now: Duration,
) -> Result<(), SnapshotError> {
    let last = |volume: &Arc<dyn Volume>| {
        let made = made_by(schedule, &**volume, now.as_secs())?;
        Ok(made.last().copied())
    };
    let last_s: Vec<Option<u64>> = volumes.iter().map(last).collect::<Result<_, _>>()?;
    // That of the volume which has had none for the longest.
    let last_s = last_s.into_iter().min().flatten();
    if schedule.is_due(last_s, now.as_secs()) {
        let name = schedule.snapshot_name(now.as_secs());
        snapshot::create(volumes, &name, now.as_millis() as u64)?;
        let of = schedule.volumes.join(", ");
        tracing::info!(
            event = "snapshot",
            by = "schedule",
            "snapshot {name} of {of} is made"
        );
    }
    Ok(())
}

/// When the snapshots of a volume were made that are a schedule's, seconds since 1970. Those of a
/// time to come, when the clock was wrong, count for nothing and stay.
fn made_by(
    schedule: &SnapshotSchedule,
    volume: &dyn Volume,
    now_s: u64,
) -> Result<BTreeSet<u64>, SnapshotError> {
    let names = snapshot::names(volume)?.into_iter();
    let made = names.filter_map(|name| schedule.made_s(&name));
    Ok(made.filter(|at_s| *at_s <= now_s).collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use needs::needs;
    use store::{Kind, Spec};
    use testkit::Mounted;

    use super::*;

    fn schedule(hourly: u32, daily: u32, weekly: u32) -> SnapshotSchedule {
        SnapshotSchedule {
            name: "db".to_owned(),
            volumes: vec!["a".to_owned()],
            hourly,
            daily,
            weekly,
        }
    }

    #[test]
    fn times_are_written_as_dates_of_utc() {
        for (at_s, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_767_600_000, "20260105T080000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(stamp(at_s), text);
        }
        let db = schedule(1, 0, 0);
        assert_eq!(db.snapshot_name(0), "db-19700101T000000Z");
        for at_s in (0..200 * 366).map(|day| day * DAY_S + day % DAY_S) {
            assert_eq!(db.made_s(&db.snapshot_name(at_s)), Some(at_s));
        }
        for other in [
            "db",
            "db-1",
            "db-x-19700101T000000Z",
            "d-19700101T000000Z",
            "db-19700101000000ZZ",
            "db-19701301T000000Z",
            "db-20250229T000000Z",
            "db-00000101T000000Z",
            "db-+9700101T000000Z",
            "db-1970010\u{e9}T00000Z",
        ] {
            assert_eq!(db.made_s(other), None, "{other}");
        }
    }

    #[test]
    fn one_is_due_when_a_period_begins() {
        let hourly = schedule(24, 7, 4);
        assert!(hourly.is_due(None, 5));
        assert!(!hourly.is_due(Some(HOUR_S), 2 * HOUR_S - 1));
        assert!(hourly.is_due(Some(2 * HOUR_S - 1), 2 * HOUR_S));
        let weekly = schedule(0, 0, 1);
        // 1970-01-05 was a Monday.
        assert!(!weekly.is_due(Some(0), 4 * DAY_S - 1));
        assert!(weekly.is_due(Some(4 * DAY_S - 1), 4 * DAY_S));
        assert!(!schedule(0, 0, 0).is_due(None, 5));
    }

    /// Half a year of hours, each looked at as it comes.
    #[test]
    fn as_many_stay_of_each_period_as_are_asked_for() {
        let db = schedule(24, 7, 4);
        let mut taken = BTreeSet::new();
        let (first, mut last) = (1_767_600_000, None);
        for hour in 0..24 * 180 {
            let now = first + hour * HOUR_S + 7;
            assert!(db.is_due(last, now));
            taken.insert(now);
            last = Some(now);
            taken = db.stay(&taken);
            assert!(taken.contains(&now), "the last one stays");
        }
        let last = last.expect("some");
        let within = |s: u64| taken.iter().filter(|at| last - **at < s).count();
        assert_eq!(within(24 * HOUR_S), 24);
        // Of seven days the first, of which today's is among the hours; of four weeks likewise.
        assert_eq!(taken.len(), 24 + 6 + 3);
        assert!(last - taken.first().expect("some") < 4 * WEEK_S);
    }

    /// Two volumes on a file system that can share blocks.
    struct Volumes {
        place: PathBuf,
        all: Vec<Arc<dyn Volume>>,
        // Last: files on it are closed first.
        _mounted: Mounted,
        _folder: tempfile::TempDir,
    }

    /// A Monday.
    const BEGIN_S: u64 = 1_767_600_000;

    impl Volumes {
        fn new() -> Volumes {
            let folder = tempfile::tempdir().unwrap();
            let mounted = Mounted::made_by("mkfs.xfs", folder.path());
            let place = mounted.path().to_owned();
            let all = ["a", "b"].map(|name| {
                let kind = Kind::file(place.join(name));
                store::open(&Spec::new(name, kind, 1 << 20, 512)).unwrap()
            });
            Volumes {
                place,
                all: all.into(),
                _mounted: mounted,
                _folder: folder,
            }
        }

        /// What of a schedule is undone so many hours after the begin.
        fn run_schedule(&self, schedule: &SnapshotSchedule, hour: u64) -> Vec<String> {
            let at = UNIX_EPOCH + Duration::from_secs(BEGIN_S + hour * HOUR_S);
            let undone = run_schedule(schedule, &self.all, at).into_iter();
            undone.map(|undone| undone.what).collect()
        }

        /// The hours after the begin of which there are snapshots.
        fn hours(&self, volume: usize) -> Vec<u64> {
            let mut names = snapshot::names(&*self.all[volume]).unwrap();
            names.sort();
            let times = names.iter().map(|name| {
                let made_s = schedule(1, 0, 0).made_s(name).unwrap();
                (made_s - BEGIN_S) / HOUR_S
            });
            times.collect()
        }
    }

    #[needs(loop_device, mount, program("mkfs.xfs"))]
    #[test]
    fn snapshots_come_and_go_with_the_hours() {
        let (volumes, db) = (Volumes::new(), schedule(3, 0, 0));
        for hour in [0, 1, 2, 3, 3, 7, 7] {
            assert_eq!(volumes.run_schedule(&db, hour), [""; 0]);
        }
        assert_eq!([volumes.hours(0), volumes.hours(1)], [[2, 3, 7]; 2]);
        // A volume that has none has one at once.
        for name in snapshot::names(&*volumes.all[1]).unwrap() {
            snapshot::remove(&*volumes.all[1], &name).unwrap();
        }
        assert_eq!(volumes.run_schedule(&db, 8), [""; 0]);
        assert_eq!(volumes.hours(1), [8]);
    }

    #[needs(loop_device, mount, program("mkfs.xfs"))]
    #[test]
    fn clock_that_was_wrong_for_a_while_ends_no_schedule() {
        let (volumes, db) = (Volumes::new(), schedule(2, 0, 0));
        for hour in [10, 11, 90_000, 12, 13, 0, 1, 14] {
            assert_eq!(volumes.run_schedule(&db, hour), [""; 0]);
        }
        assert_eq!(volumes.hours(0), [13, 14, 90_000]);
    }

    #[needs(loop_device, mount, program("mkfs.xfs"))]
    #[test]
    fn snapshot_that_is_served_stays_alone() {
        let (volumes, db) = (Volumes::new(), schedule(1, 0, 0));
        volumes.run_schedule(&db, 0);
        let name = db.snapshot_name(BEGIN_S);
        let path = volumes.place.join("a.snapshots").join(&name);
        let shown = Spec::new("shown", Kind::snapshot(path), 0, 512);
        let shown = store::open(&shown).unwrap();
        for hour in 1..4 {
            let undone = volumes.run_schedule(&db, hour);
            assert_eq!(undone, [format!("snapshot {name} of a stays")]);
        }
        assert_eq!(volumes.hours(0), [0, 3]);
        assert_eq!(volumes.hours(1), [3]);
        drop(shown);
    }

    #[test]
    fn snapshot_that_cannot_be_made_is_told_once() {
        let ram = Spec::new("r", Kind::RAM, 1 << 20, 512);
        let volumes = [store::open(&ram).unwrap()];
        let (db, mut told) = (schedule(1, 0, 0), BTreeSet::new());
        for at_s in [BEGIN_S, BEGIN_S + 20] {
            let undone = run_schedule(&db, &volumes, UNIX_EPOCH + Duration::from_secs(at_s));
            assert_eq!(undone[0].what, "no snapshot is made by its schedule");
            assert!(undone[0].why.contains("has no snapshots"), "{undone:?}");
            told = tell(&db, undone, &told);
            assert_eq!(told.len(), 1);
        }
    }
}
