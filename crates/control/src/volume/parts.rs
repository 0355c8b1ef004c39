//! Volumes that are made of others: each part is there and is part of one volume alone.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use store::{LEG_BITS, Settings, Spec};

use crate::source::{Section, Sink, hint};

/// A volume that is made of others, as the file has it.
pub(super) struct MadeVolume {
    name: String,
    /// The names of its parts,
    of: Vec<String>,
    /// and where they stand.
    span: Range<usize>,
    /// What of each it takes, bytes.
    takes: Range<u64>,
}

impl MadeVolume {
    /// `None`: it is made of no others.
    pub fn new(section: &Section, spec: &Spec) -> Option<MadeVolume> {
        let takes = match spec.kind.settings() {
            Settings::Slice { offset_bytes } => match spec.size_bytes {
                0 => offset_bytes..u64::MAX,
                size_bytes => offset_bytes..offset_bytes.saturating_add(size_bytes),
            },
            _ => 0..u64::MAX,
        };
        (!spec.kind.of().is_empty()).then(|| MadeVolume {
            name: spec.name.clone(),
            of: spec.kind.of().to_vec(),
            span: section.span_of("of"),
            takes,
        })
    }
}

/// The volume that each part is part of; tells of parts that are not there, or are others'
/// already.
pub(super) fn owners<'m>(
    sink: &mut Sink,
    made: &'m [MadeVolume],
    names: &[String],
) -> HashMap<&'m str, &'m str> {
    let known: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut taken: HashMap<&str, Vec<(&str, &Range<u64>)>> = HashMap::new();
    for volume in made {
        for part in &volume.of {
            if !known.contains(part.as_str()) {
                let hint = hint(part, names.iter().map(String::as_str));
                sink.add(&volume.span, format!("there is no volume \"{part}\"{hint}"));
                continue;
            }
            let ranges = taken.entry(part).or_default();
            let meets = |other: &Range<u64>| {
                other.start < volume.takes.end && volume.takes.start < other.end
            };
            match ranges.iter().find(|(_, other)| meets(other)) {
                Some((owner, _)) => {
                    let text = format!(
                        "the volume \"{part}\", or what \"{}\" takes of it, is part of \"{owner}\" \
                         already",
                        volume.name
                    );
                    sink.add(&volume.span, text);
                }
                None => ranges.push((&volume.name, &volume.takes)),
            }
        }
    }
    let first = taken
        .into_iter()
        .filter_map(|(part, of)| Some((part, of.first()?.0)));
    first.collect()
}

/// The same volumes, those that others are made of before these, else in the order of the
/// file; tells of those that are made of themselves.
pub(super) fn in_order(sink: &mut Sink, list: Vec<Spec>, made: &[MadeVolume]) -> Vec<Spec> {
    let mut left = list;
    let mut placed = Vec::with_capacity(left.len());
    // A level for the volumes that are made of no others.
    for _ in 0..=LEG_BITS {
        let waiting: HashSet<String> = left.iter().map(|spec| spec.name.clone()).collect();
        let waits = |spec: &Spec| spec.kind.of().iter().any(|part| waiting.contains(part));
        let (later, ready): (Vec<Spec>, Vec<Spec>) = left.into_iter().partition(waits);
        placed.extend(ready);
        left = later;
    }
    for volume in made {
        if left.iter().any(|spec| spec.name == volume.name) {
            let text = format!(
                "the volume \"{}\" is made of itself, or of volumes that lie more than {LEG_BITS} \
                 deep",
                volume.name
            );
            sink.add(&volume.span, text);
        }
    }
    placed
}
