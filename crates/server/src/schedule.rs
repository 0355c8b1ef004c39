//! Snapshots that are made by themselves, and go by themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::thread;
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

    /// Whether a snapshot is one of its own.
    fn is_own(&self, name: &str) -> bool {
        let stamp = name
            .strip_prefix(&*self.name)
            .and_then(|rest| rest.strip_prefix('-'));
        stamp.is_some_and(|stamp| {
            let is_like = |(at, c): (usize, char)| match at {
                8 => c == 'T',
                15 => c == 'Z',
                _ => c.is_ascii_digit(),
            };
            stamp.len() == 16 && stamp.chars().enumerate().all(is_like)
        })
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

/// Makes what is due, for as long as the target is there.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let thread = thread::Builder::new().name("weft-snapshots".into());
    thread.spawn(move || keep_making(&shared)).map(drop)
}

fn keep_making(shared: &Weak<Shared>) {
    let mut told = HashMap::new();
    while let Some(shared) = shared.upgrade() {
        if shared.engine.is_stopping() {
            break;
        }
        let schedules = shared.state().snapshot_schedules.clone();
        for schedule in &schedules {
            let made = make_due(&shared, schedule, SystemTime::now());
            tell(schedule, made, &mut told);
        }
        drop(shared);
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Tells why there is no snapshot, once until there is one or the reason is another.
fn tell(schedule: &SnapshotSchedule, made: Result<(), String>, told: &mut HashMap<String, String>) {
    match made {
        Ok(()) => drop(told.remove(&schedule.name)),
        Err(why) if told.get(&schedule.name) == Some(&why) => {}
        Err(why) => {
            tracing::error!(
                event = "snapshot-failed",
                schedule = schedule.name,
                "no snapshot by its schedule: {why}"
            );
            told.insert(schedule.name.clone(), why);
        }
    }
}

/// Makes a snapshot of all volumes of a schedule if it is time, and takes away those that have
/// had theirs.
fn make_due(shared: &Shared, schedule: &SnapshotSchedule, now: SystemTime) -> Result<(), String> {
    let volumes = schedule.volumes.iter().map(|name| {
        let found = shared.state().volume(name).cloned();
        found.ok_or_else(|| format!("there is no volume \"{name}\""))
    });
    let volumes: Vec<Arc<dyn Volume>> = volumes.collect::<Result<_, _>>()?;
    let told = |error: SnapshotError| error.to_string();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut last_s = None;
    for volume in &volumes {
        last_s = last_s.max(own(schedule, &**volume)?.last().copied());
    }
    if schedule.is_due(last_s, now.as_secs()) {
        let name = schedule.snapshot_name(now.as_secs());
        snapshot::create(&volumes, &name, now.as_millis() as u64).map_err(told)?;
        let of = schedule.volumes.join(", ");
        tracing::info!(
            event = "snapshot",
            by = "schedule",
            "snapshot {name} of {of} is made"
        );
    }
    for volume in &volumes {
        let taken = own(schedule, &**volume)?;
        let stay = schedule.stay(&taken);
        for at_s in taken.difference(&stay) {
            let name = schedule.snapshot_name(*at_s);
            snapshot::remove(&**volume, &name).map_err(told)?;
            let of = &volume.info().name;
            tracing::info!(
                event = "snapshot",
                by = "schedule",
                "snapshot {name} of {of} is removed"
            );
        }
    }
    Ok(())
}

/// When the snapshots of a volume were made that are a schedule's, seconds since 1970. One
/// that was renamed is so no more, and stays.
fn own(schedule: &SnapshotSchedule, volume: &dyn Volume) -> Result<BTreeSet<u64>, String> {
    let all = snapshot::list(volume).map_err(|error| error.to_string())?;
    let own = all.iter().filter(|one| {
        let at_s = one.taken_unix_ms / 1000;
        schedule.is_own(&one.name) && one.name == schedule.snapshot_name(at_s)
    });
    Ok(own.map(|one| one.taken_unix_ms / 1000).collect())
}

#[cfg(test)]
mod tests {
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
        assert!(db.is_own("db-19700101T000000Z"));
        for other in [
            "db",
            "db-1",
            "db-x-19700101T000000Z",
            "d-19700101T000000Z",
            "db-19700101000000ZZ",
        ] {
            assert!(!db.is_own(other), "{other}");
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
}
