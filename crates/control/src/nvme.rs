//! The `[nvme]` part of a file: limits and subsystems.

use std::collections::HashMap;

use crate::parse::{NAMESPACE, SCHEMA, SUBSYSTEM, Volumes};
use crate::policy::{Limits, parse_limits};
use crate::source::{At, Section, Sink, hint};
use crate::value::{DISCOVERY_NQN, check_nqn};
use crate::{Namespace, Subsystem};

/// Highest nsid, so that a subsystem's table of namespaces stays small (NN of
/// Identify Controller, NVM Express Base 2.1, 5.1.13.2.1).
const NSID_MAX: u64 = 4096;

/// Bytes of SN and MN in Identify Controller.
const SERIAL_BYTES: usize = 20;
const MODEL_BYTES: usize = 40;

pub(crate) fn parse(
    sink: &mut Sink,
    nvme: Option<&Section>,
    volumes: &Volumes,
) -> (Limits, Vec<Subsystem>) {
    let limits = parse_limits(sink, nvme);
    let mut subsystems = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    let sections = nvme.map(|nvme| nvme.tables(sink, SCHEMA, "subsystem", SUBSYSTEM));
    for section in sections.iter().flatten() {
        if let Some(subsystem) = subsystem(sink, section, volumes) {
            let line = sink.line(&section.span);
            if let Some(first) = lines.insert(subsystem.nqn.clone(), line) {
                let nqn = &subsystem.nqn;
                let text = format!("a subsystem {nqn} is there already, in line {first}");
                sink.add(&section.span_of("nqn"), text);
            }
            subsystems.push(subsystem);
        }
    }
    if !nvme.is_some_and(|nvme| nvme.has("subsystem")) {
        let text = format!("there is no {SUBSYSTEM}: nothing to connect to");
        sink.add(&nvme.map_or(0..0, |nvme| nvme.span.clone()), text);
    }
    (limits, subsystems)
}

fn subsystem(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Option<Subsystem> {
    section.missing(sink, "nqn", "nqn = \"nqn.2026-01.io.weft:disk0\"");
    let nqn = nqn(sink, section);
    let hosts = hosts(sink, section);
    let serial = fixed_text(sink, section, "serial", SERIAL_BYTES);
    let model = fixed_text(sink, section, "model", MODEL_BYTES);
    let namespaces = namespaces(sink, section, volumes);
    Some(Subsystem {
        nqn: nqn?,
        hosts,
        serial,
        model,
        namespaces,
    })
}

fn nqn(sink: &mut Sink, section: &Section) -> Option<String> {
    let nqn = section.text(sink, "nqn")?;
    if nqn.value == DISCOVERY_NQN {
        let text = "this is the discovery subsystem's own name; every listener has it already";
        sink.add(&nqn.span, text);
    } else if let Err(why) = check_nqn(nqn.value) {
        sink.add(&nqn.span, why);
    }
    Some(nqn.value.to_owned())
}

/// `None`: every host may connect.
fn hosts(sink: &mut Sink, section: &Section) -> Option<Vec<String>> {
    let any = section.flag(sink, "allow_any_host").unwrap_or(false);
    match (any, section.has("hosts")) {
        (true, true) => {
            let text = "`allow_any_host = true` and `hosts` contradict each other";
            sink.add(&section.span_of("hosts"), text);
        }
        (false, false) => {
            let text = "nobody could connect: give `hosts = [\"nqn...\"]` (`cat /etc/nvme/hostnqn` \
                        on the host) or `allow_any_host = true`";
            sink.add(&section.span, text);
        }
        _ => {}
    }
    let mut hosts: Vec<String> = Vec::new();
    for At { value, span } in section.texts(sink, "hosts").unwrap_or_default() {
        if let Err(why) = check_nqn(value) {
            sink.add(&span, why);
        } else if hosts.iter().any(|host| host == value) {
            sink.add(&span, format!("{value} is in the list already"));
        }
        hosts.push(value.to_owned());
    }
    (!any).then_some(hosts)
}

/// A text that stands in a field of fixed width, padded with spaces.
fn fixed_text(sink: &mut Sink, section: &Section, key: &str, bytes_max: usize) -> Option<String> {
    let text = section.text(sink, key)?;
    let is_ascii = text.value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if text.value.trim().is_empty() || text.value.len() > bytes_max || !is_ascii {
        let why = format!("`{key}` is 1 to {bytes_max} printable ASCII characters");
        sink.add(&text.span, why);
    }
    Some(text.value.to_owned())
}

fn namespaces(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Vec<Namespace> {
    let mut namespaces: Vec<Namespace> = Vec::new();
    let sections = section.tables(sink, SCHEMA, "namespace", NAMESPACE);
    if sections.is_empty() && !section.has("namespace") {
        let text = format!("the subsystem has no {NAMESPACE}");
        sink.add(&section.span, text);
    }
    for section in &sections {
        section.missing(sink, "nsid", "nsid = 1");
        section.missing(sink, "volume", "volume = \"disk0\"");
        let nsid = nsid(sink, section);
        let volume = volume(sink, section, volumes);
        if let Some(nsid) = nsid
            && namespaces.iter().any(|other| other.nsid == nsid)
        {
            let text = format!("nsid {nsid} is there already in this subsystem");
            sink.add(&section.span_of("nsid"), text);
        }
        if let Some(volume) = volume
            && namespaces.iter().any(|other| other.volume == volume)
        {
            let name = &volumes.list[volume].name;
            let text = format!("volume \"{name}\" is there already in this subsystem");
            sink.add(&section.span_of("volume"), text);
        }
        if let (Some(nsid), Some(volume)) = (nsid, volume) {
            namespaces.push(Namespace { nsid, volume });
        }
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);
    namespaces
}

fn nsid(sink: &mut Sink, section: &Section) -> Option<u32> {
    let nsid = section.number(sink, "nsid", false)?;
    if (1..=NSID_MAX).contains(&nsid.value) {
        return Some(nsid.value as u32);
    }
    let text = format!("an nsid is from 1 to {NSID_MAX}, not {}", nsid.value);
    sink.add(&nsid.span, text);
    None
}

fn volume(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Option<usize> {
    let name = section.text(sink, "volume")?;
    let Some(index) = volumes.by_name.get(name.value) else {
        let hint = hint(name.value, volumes.by_name.keys().map(String::as_str));
        let text = format!("there is no volume \"{}\"{hint}", name.value);
        sink.add(&name.span, text);
        return None;
    };
    *index
}
