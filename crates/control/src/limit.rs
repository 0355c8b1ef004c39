//! `[[limit]]`: how much hosts may read and write in a second.

use std::collections::HashMap;
use std::net::IpAddr;

use nvmf::check_host_nqn;
use server::nfs::ExportSpec;
use server::{ListenerSpec, RateLimit, Rates, check};

use crate::format_size;
use crate::nvme::{known_volume, listener};
use crate::schema::{LIMIT, SCHEMA};
use crate::source::{At, Section, Sink, hint};
use crate::volume::Volumes;

/// What limits may be about.
pub(crate) struct Nameable<'k> {
    pub volumes: &'k Volumes,
    pub exports: &'k [ExportSpec],
    pub listeners: &'k [ListenerSpec],
}

pub(crate) fn rate_limits(sink: &mut Sink, file: &Section, known: &Nameable) -> Vec<RateLimit> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut limits = Vec::new();
    for section in file.tables(sink, SCHEMA, "limit", LIMIT) {
        section.missing(sink, "name", "name = \"database\"");
        let name = section.text(sink, "name");
        if let Some(name) = &name {
            if let Err(why) = check::limit_name(name.value) {
                sink.add(&name.span, why);
            }
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(name.value.to_owned(), line) {
                let there = format!("a limit \"{}\" is there already, ", name.value);
                sink.add_with_line(&name.span, (&there, first, ""));
            }
        }
        let limit = RateLimit {
            name: name.map(|name| name.value.to_owned()).unwrap_or_default(),
            volumes: named(sink, &section, "volumes", |sink, name| {
                known_volume(sink, name, known.volumes)
            }),
            exports: named(sink, &section, "exports", |sink, path| {
                known_export(sink, path, known.exports)
            }),
            hosts: named(sink, &section, "hosts", host),
            listeners: named(sink, &section, "listeners", |sink, address| {
                listener(sink, address, known.listeners)
            }),
            rates: rates(sink, &section),
        };
        limits.push(limit);
    }
    limits
}

/// What the texts of a list mean, each of which is there once. An empty list would be one that
/// is about all.
fn named<T: PartialEq>(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    mean: impl Fn(&mut Sink, &At<&str>) -> Option<T>,
) -> Vec<T> {
    let mut all = Vec::new();
    let Some(texts) = section.texts(sink, key) else {
        return all;
    };
    if texts.is_empty() {
        let text =
            format!("`{key}` is empty: name some, or leave it out, and the limit is about all");
        sink.add(&section.span_of(key), text);
    }
    for text in texts {
        let Some(one) = mean(sink, &text) else {
            continue;
        };
        if all.contains(&one) {
            sink.add(&text.span, format!("{} is in the list already", text.value));
        }
        all.push(one);
    }
    all
}

fn known_export(sink: &mut Sink, path: &At<&str>, exports: &[ExportSpec]) -> Option<String> {
    let mut known = exports.iter();
    if let Some(export) = known.find(|export| export.path == path.value) {
        if export.what.file_system().is_none() {
            let text = format!(
                "{} is a referral, whose files are on other servers: limit them there",
                path.value
            );
            sink.add(&path.span, text);
        }
        return Some(path.value.to_owned());
    }
    let hint = hint(path.value, exports.iter().map(|export| &*export.path));
    let text = format!(
        "there is no [[export]] with the path \"{}\"{hint}",
        path.value
    );
    sink.add(&path.span, text);
    None
}

/// What a host is told from others by.
fn host(sink: &mut Sink, name: &At<&str>) -> Option<String> {
    let why = match name.value {
        text if text.starts_with("nqn.") => check_host_nqn(text).map_err(|why| why.to_string()),
        text if text.parse::<IpAddr>().is_ok() => Ok(()),
        text => match iscsi::check_initiator_name(text) {
            Ok(name) => return Some(name),
            Err(_) => Err(format!(
                "\"{text}\" is no host: write the NQN of an NVMe host, the name of an iSCSI \
                 initiator, or the address of an NFS client"
            )),
        },
    };
    match why {
        Ok(()) => Some(name.value.to_owned()),
        Err(why) => {
            sink.add(&name.span, why);
            None
        }
    }
}

/// The keys that say how much.
const RATES: [&str; 8] = [
    "iops",
    "read_iops",
    "write_iops",
    "bytes",
    "read_bytes",
    "write_bytes",
    "floor_iops",
    "floor_bytes",
];

fn rates(sink: &mut Sink, section: &Section) -> Rates {
    if !RATES.iter().any(|key| section.has(key)) {
        let all = RATES.map(|key| format!("`{key}`")).join(", ");
        sink.add(
            &section.span,
            format!("{LIMIT} limits nothing: it has none of {all}"),
        );
    }
    let iops = |sink: &mut Sink, key| rate(sink, section, key, (Rates::IOPS_MAX, false));
    let bytes = |sink: &mut Sink, key| rate(sink, section, key, (Rates::BYTES_MAX, true));
    let rates = Rates {
        iops: iops(sink, "iops"),
        read_iops: iops(sink, "read_iops"),
        write_iops: iops(sink, "write_iops"),
        bytes: bytes(sink, "bytes"),
        read_bytes: bytes(sink, "read_bytes"),
        write_bytes: bytes(sink, "write_bytes"),
        burst_s: burst_s(sink, section),
        floor_iops: iops(sink, "floor_iops"),
        floor_bytes: bytes(sink, "floor_bytes"),
    };
    let pairs = [
        ("floor_iops", rates.floor_iops, "iops", rates.iops),
        ("floor_bytes", rates.floor_bytes, "bytes", rates.bytes),
    ];
    for (floor, least, key, most) in pairs {
        if let (Some(least), Some(most)) = (least, most)
            && least > most
        {
            let text = format!("`{floor}` ({least}) is more than `{key}` ({most}) lets go");
            sink.add(&section.span_of(floor), text);
        }
    }
    rates
}

fn rate(sink: &mut Sink, section: &Section, key: &str, (max, sized): (u64, bool)) -> Option<u64> {
    let rate = section.number(sink, key, sized)?;
    if (1..=max).contains(&rate.value) {
        return Some(rate.value);
    }
    let most = match sized {
        true => format_size(max),
        false => max.to_string(),
    };
    let text = match rate.value {
        0 => format!("`{key}` is 1 at least: leave it out where there is no limit"),
        _ => format!("`{key}` is {most} at most: leave it out where there is no limit"),
    };
    sink.add(&rate.span, text);
    None
}

fn burst_s(sink: &mut Sink, section: &Section) -> u32 {
    let Some(burst_s) = section.number(sink, "burst_s", false) else {
        return 0;
    };
    match u32::try_from(burst_s.value)
        .ok()
        .filter(|s| *s <= Rates::BURST_S_MAX)
    {
        Some(burst_s) => burst_s,
        None => {
            let text = format!("`burst_s` is from 0 to {} seconds", Rates::BURST_S_MAX);
            sink.add(&burst_s.span, text);
            0
        }
    }
}
