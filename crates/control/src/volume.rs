//! `[[volume]]`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use server::check;
use store::{
    BLOCK_SIZES, DELAY_KEYS, Direct, KINDS, Kind, KindRow, Latency, Problem, RESYNC_RATE_DEFAULT,
    SCRUB_RATE_DEFAULT, SIZE_MAX_BYTES, Settings, Spec,
};
use uuid::Uuid;

use crate::by_name::ByName;
use crate::names::{TakenNames, names};
use crate::schema::{DIRECT_AUTO, SCHEMA, VOLUME};
use crate::secret::Secrets;
use crate::source::{FlagOr, Section, Sink, choice, file};
use crate::value::format_size;

/// A logical block where the file says nothing.
pub(crate) const BLOCK_BYTES_DEFAULT: u32 = 4096;

mod encryption;
mod parts;
mod remote;

/// Bytes of a stripe's chunk where the file says nothing.
const CHUNK_BYTES_DEFAULT: u32 = 64 << 10;

/// Volumes, and how a later section finds them.
pub(crate) struct Volumes {
    /// Those that others are made of stand before these.
    pub list: Vec<Spec>,
    /// Names, of broken ones too, so that one mistake is told once; with the volume that each
    /// is part of.
    pub names: ByName<Option<String>>,
}

pub(crate) fn volumes(
    sink: &mut Sink,
    file: &Section,
    folder: &Path,
    secrets: &Secrets,
) -> Volumes {
    let (mut list, mut names) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut paths: HashMap<PathBuf, usize> = HashMap::new();
    let mut taken = TakenNames::default();
    let mut made = Vec::new();
    for section in file.tables(sink, SCHEMA, "volume", VOLUME) {
        let name = volume_name(sink, &section);
        if let Some(name) = &name {
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(name.clone(), line) {
                let there = format!("a volume \"{name}\" is there already, ");
                sink.add_with_line(&section.span_of("name"), (&there, first, ""));
                continue;
            }
        }
        let volume = volume(sink, &section, (folder, secrets), name.as_deref());
        let line = sink.line(&section.span);
        let files = volume.iter().flat_map(check::files);
        let shared = files.filter_map(|(key, path)| {
            let first = paths.insert(path.clone(), line)?;
            Some((key, path, first))
        });
        if let Some((key, path, first)) = shared.min_by_key(|(.., first)| *first) {
            let there = format!(" lies in {} already", path.display());
            sink.add_with_line(&section.span_of(key), ("the volume ", first, &there));
        }
        if let Some(volume) = &volume {
            taken.add(sink, &section, volume);
            made.extend(parts::MadeVolume::new(&section, volume));
        }
        names.extend(name);
        list.extend(volume);
    }
    if !file.has("volume") && !file.has("file_system") {
        let text = "there is no [[volume]] and no [[file_system]]: nothing to serve";
        sink.add(&(0..0), text);
    }
    let owners = parts::owners(sink, &made, &names);
    let owned = |name: String| {
        let owner = owners.get(name.as_str()).map(|owner| (*owner).to_owned());
        (name, owner)
    };
    Volumes {
        names: ByName::new(names.iter().cloned().map(owned)),
        list: parts::in_order(sink, list, &made),
    }
}

fn volume_name(sink: &mut Sink, section: &Section) -> Option<String> {
    section.missing(sink, "name", "name = \"disk0\"");
    let name = section.text(sink, "name")?;
    if let Err(why) = check::volume_name(name.value) {
        sink.add(&name.span, why);
        return None;
    }
    Some(name.value.to_owned())
}

/// The folder that paths are relative to, and the secrets that were read.
type Around<'a, 'o> = (&'a Path, &'a Secrets<'o>);

fn volume(sink: &mut Sink, section: &Section, around: Around, name: Option<&str>) -> Option<Spec> {
    let (folder, _) = around;
    let block_bytes = match section.number(sink, "block_bytes", true) {
        Some(block) => {
            let known = BLOCK_SIZES
                .into_iter()
                .find(|size| u64::from(*size) == block.value);
            if known.is_none() {
                let [a, b] = BLOCK_SIZES;
                let text = format!("`block_bytes` is {a} or {b}, not {}", block.value);
                sink.add(&block.span, text);
            }
            known
        }
        // Those that are there.
        None if is_any(section, |kind| kind.has_own_blocks) => Some(0),
        None => Some(BLOCK_BYTES_DEFAULT),
    };
    let kind = volume_kind(sink, section, around, block_bytes);
    let has_own_size = is_any(section, |kind| kind.has_own_size);
    if !has_own_size {
        section.missing(sink, "size", "size = \"1GiB\"");
    }
    let size = section.number(sink, "size", true);
    if let (Some(size), Some(block)) = (&size, block_bytes.map(|block| block.max(1))) {
        let block = u64::from(block);
        if size.value == 0 || size.value > SIZE_MAX_BYTES {
            let max = format_size(SIZE_MAX_BYTES);
            let text = format!("a volume's size is from one block to {max}");
            sink.add(&size.span, text);
        } else if !size.value.is_multiple_of(block) {
            let (below, value) = (size.value / block * block, size.value);
            let above = below + block;
            let text = format!(
                "`size` ({value} bytes) is no multiple of `block_bytes` ({block}); \
                 the nearest are {below} and {above}"
            );
            sink.add(&size.span, text);
        }
    }
    let uuid = section.text(sink, "uuid").and_then(|text| {
        let uuid = Uuid::try_parse(text.value)
            .ok()
            .filter(|uuid| !uuid.is_nil());
        if uuid.is_none() {
            let why = "is no UUID; for example: f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
            sink.add(&text.span, format!("\"{}\" {why}", text.value));
        }
        uuid
    });
    Some(Spec {
        name: name?.to_owned(),
        kind: kind?,
        size_bytes: match size {
            Some(size) => size.value,
            // All that there is below.
            None if has_own_size && !section.has("size") => 0,
            None => return None,
        },
        block_bytes: block_bytes?,
        adopt: section.flag(sink, "adopt").unwrap_or(false),
        direct: direct(sink, section),
        preallocate: section.flag(sink, "preallocate").unwrap_or(false),
        uuid,
        names: names(sink, section),
        state: file(sink, section, "state", folder),
        read_only: section.flag(sink, "read_only").unwrap_or(false),
        checksum: section.flag(sink, "checksum").unwrap_or(false),
        scrub_rate: scrub_rate(sink, section)?,
        encryption: encryption::settings(sink, section, folder)?,
    })
}

/// Whether a section says a kind of which `is_so`.
fn is_any(section: &Section, is_so: fn(&KindRow) -> bool) -> bool {
    let mut kinds = KINDS.iter().filter(|kind| is_so(kind));
    kinds.any(|kind| section.says("kind", kind.name))
}

/// How fast a scrub is, which only what has checksums has.
fn scrub_rate(sink: &mut Sink, section: &Section) -> Option<u64> {
    if section.has("scrub_rate") && section.flag(sink, "checksum") != Some(true) {
        let text =
            "`scrub_rate` is of a volume with `checksum = true`; of a mirror each leg has one";
        sink.add(&section.span_of("scrub_rate"), text);
    }
    match section.number(sink, "scrub_rate", true) {
        Some(rate) => Some(rate.value),
        None => (!section.has("scrub_rate")).then_some(SCRUB_RATE_DEFAULT),
    }
}

/// Whether data goes past the page cache.
fn direct(sink: &mut Sink, section: &Section) -> Direct {
    match section.flag_or(sink, "direct", DIRECT_AUTO) {
        Some(FlagOr::Word) => Direct::Auto,
        Some(FlagOr::Flag(true)) => Direct::Always,
        Some(FlagOr::Flag(false)) | None => Direct::Never,
    }
}

fn volume_kind(
    sink: &mut Sink,
    section: &Section,
    (folder, secrets): Around,
    block_bytes: Option<u32>,
) -> Option<Kind> {
    section.missing(sink, "kind", "kind = \"ram\"");
    let words: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let kind = &KINDS[choice(sink, section, "kind", &words)?];
    only_of_its_kind(sink, section, kind);
    if *kind.parts.end() > 0 {
        let of = volumes_below(sink, section, kind);
        let settings = settings(sink, section, kind, block_bytes);
        return Some(kind.over(of?, settings?));
    }
    if kind.name == "remote" {
        return remote::kind(sink, section, secrets);
    }
    let Some(example) = kind.path else {
        return Some(kind.at(None));
    };
    section.missing(sink, "path", &format!("path = \"{example}\""));
    Some(kind.at(Some(file(sink, section, "path", folder)?)))
}

/// Refuses keys that other kinds have alone.
fn only_of_its_kind(sink: &mut Sink, section: &Section, kind: &KindRow) {
    let has = |row: &KindRow, key: &str| match key {
        "path" => row.path.is_some(),
        "of" => *row.parts.end() > 0,
        _ => row.own_keys.contains(&key),
    };
    let own_keys = KINDS.iter().flat_map(|row| row.own_keys);
    for key in ["path", "of"].into_iter().chain(own_keys.copied()) {
        if !section.has(key) || has(kind, key) {
            continue;
        }
        let others = KINDS.iter().filter(|row| has(row, key));
        let others: Vec<&str> = others.map(|row| row.name).collect();
        let text = format!(
            "a \"{}\" volume has no `{key}`; leave it out, or set `kind` to \"{}\"",
            kind.name,
            others.join("\", \"")
        );
        sink.add(&section.span_of(key), text);
    }
}

/// The names of the volumes that it is made of.
fn volumes_below(sink: &mut Sink, section: &Section, kind: &KindRow) -> Option<Vec<String>> {
    section.missing(sink, "of", "of = [\"disk0\"]");
    let of = section.texts(sink, "of")?;
    if !kind.parts.contains(&of.len()) {
        let problem = Problem::PartCount {
            kind: kind.name,
            has: of.len(),
            least: *kind.parts.start(),
            most: *kind.parts.end(),
        };
        sink.add(&section.span_of("of"), problem.to_string());
        return None;
    }
    Some(of.iter().map(|name| name.value.to_owned()).collect())
}

/// What it has besides, as its kind has.
fn settings(
    sink: &mut Sink,
    section: &Section,
    kind: &KindRow,
    block_bytes: Option<u32>,
) -> Option<Settings> {
    let mut in_blocks = |key, default: u32| {
        let Some(bytes) = section.number(sink, key, true) else {
            return (!section.has(key)).then_some(default.into());
        };
        let block_bytes = u64::from(block_bytes?);
        if !bytes.value.is_multiple_of(block_bytes) {
            let bytes_of = bytes.value;
            let problem = Problem::NotInBlocks {
                key,
                bytes: bytes_of,
                block_bytes,
            };
            sink.add(&bytes.span, problem.to_string());
            return None;
        }
        Some(bytes.value)
    };
    match kind.name {
        "slice" => Some(Settings::Slice {
            offset_bytes: in_blocks("offset_bytes", 0)?,
        }),
        "stripe" => {
            let bytes = in_blocks("chunk_bytes", CHUNK_BYTES_DEFAULT)?;
            let chunk_bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
            if chunk_bytes.is_none() {
                let text = "`chunk_bytes` is from one block to less than 4GiB";
                sink.add(&section.span_of("chunk_bytes"), text);
            }
            chunk_bytes.map(|chunk_bytes| Settings::Stripe { chunk_bytes })
        }
        "mirror" => Some(Settings::Mirror {
            resync_rate: match section.number(sink, "resync_rate", true) {
                Some(rate) => rate.value,
                None if section.has("resync_rate") => return None,
                None => RESYNC_RATE_DEFAULT,
            },
        }),
        "delay" => Some(Settings::Delay {
            read: latency(sink, section, &DELAY_KEYS[..3])?,
            write: latency(sink, section, &DELAY_KEYS[3..])?,
        }),
        _ => Some(Settings::None),
    }
}

/// How long I/Os take at least, by these keys: the shortest, the mean, the tail.
fn latency(sink: &mut Sink, section: &Section, keys: &[&str]) -> Option<Latency> {
    let mut us = |key| match section.number(sink, key, false) {
        Some(us) => {
            let fits = u32::try_from(us.value).ok();
            if fits.is_none() {
                sink.add(&us.span, format!("`{key}` is less than 2^32"));
            }
            fits.map(Some)
        }
        None => (!section.has(key)).then_some(None),
    };
    let (fixed, mean, tail) = (us(keys[0])?, us(keys[1])?, us(keys[2])?);
    let fixed_us = fixed.unwrap_or(0);
    let mean_us = mean.unwrap_or(fixed_us);
    if mean_us < fixed_us {
        let (fixed, mean) = (keys[0], keys[1]);
        let text = format!("`{mean}` is less than `{fixed}`, which every I/O takes");
        sink.add(&section.span_of(mean), text);
        return None;
    }
    Some(Latency {
        fixed_us,
        mean_us,
        tail_us: tail.unwrap_or(0),
    })
}
