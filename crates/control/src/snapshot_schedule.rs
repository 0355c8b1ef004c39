//! `[[snapshot_schedule]]`: snapshots that are made by themselves.

use std::collections::HashMap;

use server::{SnapshotSchedule, check};

use crate::schema::{SCHEMA, SNAPSHOT_SCHEDULE};
use crate::source::{Section, Sink};
use crate::volume::Volumes;

/// How long one stays, and of how many of each.
const KEYS: [&str; 3] = ["hourly", "daily", "weekly"];

pub(crate) fn snapshot_schedules(
    sink: &mut Sink,
    file: &Section,
    volumes: &Volumes,
) -> Vec<SnapshotSchedule> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut schedules = Vec::new();
    for section in file.tables(sink, SCHEMA, "snapshot_schedule", SNAPSHOT_SCHEDULE) {
        section.missing(sink, "name", "name = \"auto\"");
        section.missing(sink, "volumes", "volumes = [\"disk0\"]");
        let name = section.text(sink, "name");
        if let Some(name) = &name {
            if let Err(why) = check::snapshot_schedule_name(name.value) {
                sink.add(&name.span, why);
            }
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(name.value.to_owned(), line) {
                let there = format!("a schedule \"{}\" is there already, ", name.value);
                sink.add_with_line(&name.span, (&there, first, ""));
            }
        }
        let counts = KEYS.map(|key| count(sink, &section, key));
        if counts == [Some(0); 3] {
            let text = format!(
                "{SNAPSHOT_SCHEDULE} makes nothing: set `hourly`, `daily` or `weekly` to how many \
                 are to stay"
            );
            sink.add(&section.span, text);
        }
        let [hourly, daily, weekly] = counts.map(Option::unwrap_or_default);
        schedules.push(SnapshotSchedule {
            name: name.map(|name| name.value.to_owned()).unwrap_or_default(),
            volumes: known_volumes(sink, &section, volumes),
            hourly,
            daily,
            weekly,
        });
    }
    schedules
}

/// How many are to stay, 0 where the file does not say; nothing of a mistake.
fn count(sink: &mut Sink, section: &Section, key: &str) -> Option<u32> {
    if !section.has(key) {
        return Some(0);
    }
    let count = section.number(sink, key, false)?;
    if count.value > u64::from(SnapshotSchedule::COUNT_MAX) {
        let text = format!("`{key}` is {} at most", SnapshotSchedule::COUNT_MAX);
        sink.add(&count.span, text);
        return None;
    }
    Some(count.value as u32)
}

/// Volumes that can have snapshots; also those that others are made of, which have the snapshots
/// of these.
fn known_volumes(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Vec<String> {
    let possible = |name: &str| {
        let spec = volumes.list.iter().find(|spec| spec.name == name)?;
        Some(store::snapshot::expect_possible(spec))
    };
    let mut all = Vec::new();
    let named = section.texts(sink, "volumes").unwrap_or_default();
    if named.is_empty() && section.has("volumes") {
        let text = "`volumes` names no volume: name those that are to have snapshots";
        sink.add(&section.span_of("volumes"), text);
    }
    for name in named {
        if volumes.names.find(name.value).is_none() {
            let hint = volumes.names.hint(name.value);
            let text = format!("there is no volume \"{}\"{hint}", name.value);
            sink.add(&name.span, text);
        } else if all.iter().any(|known| known == name.value) {
            sink.add(&name.span, format!("{} is in the list already", name.value));
        } else if let Some(Err(why)) = possible(name.value) {
            sink.add(&name.span, why.to_string());
        } else {
            all.push(name.value.to_owned());
        }
    }
    all
}
