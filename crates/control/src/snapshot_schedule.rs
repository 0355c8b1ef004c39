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
        if !KEYS.iter().any(|key| section.has(key)) {
            let text = format!(
                "{SNAPSHOT_SCHEDULE} makes nothing: set `hourly`, `daily` or `weekly` to how many \
                 are to stay"
            );
            sink.add(&section.span, text);
        }
        let [hourly, daily, weekly] = KEYS.map(|key| count(sink, &section, key));
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

fn count(sink: &mut Sink, section: &Section, key: &str) -> u32 {
    let Some(count) = section.number(sink, key, false) else {
        return 0;
    };
    if count.value > u64::from(SnapshotSchedule::COUNT_MAX) {
        let text = format!("`{key}` is {} at most", SnapshotSchedule::COUNT_MAX);
        sink.add(&count.span, text);
        return 0;
    }
    count.value as u32
}

/// Volumes that are there; also those that others are made of, which have the snapshots of these.
fn known_volumes(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Vec<String> {
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
        } else {
            all.push(name.value.to_owned());
        }
    }
    all
}
