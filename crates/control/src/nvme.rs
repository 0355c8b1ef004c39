//! The subsystems of a file.

use std::collections::HashMap;

use nvmf::{NSID_MAX, check_host_nqn, check_subsystem_nqn};
use target::{NamespaceSpec, SubsystemSpec};
use uuid::Uuid;

use crate::parse::{NAMESPACE, SCHEMA, SUBSYSTEM, Volumes};
use crate::source::{At, Section, Sink, hint};

/// MN of Identify Controller where the file gives none.
pub(crate) const MODEL_DEFAULT: &str = "weft";

/// Bytes of SN and MN in Identify Controller.
const SERIAL_BYTES: usize = 20;
const MODEL_BYTES: usize = 40;

/// SN of Identify Controller where the file gives none: it follows from the
/// NQN, so it is the same after a restart.
pub(crate) fn serial_of(nqn: &str) -> String {
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, nqn.as_bytes());
    let mut serial = uuid.simple().to_string().to_uppercase();
    serial.truncate(SERIAL_BYTES);
    serial
}

pub(crate) fn subsystems(
    sink: &mut Sink,
    nvme: Option<&Section>,
    volumes: &Volumes,
) -> Vec<SubsystemSpec> {
    let mut subsystems = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    let sections = nvme.map(|nvme| nvme.tables(sink, SCHEMA, "subsystem", SUBSYSTEM));
    for section in sections.iter().flatten() {
        let Some(subsystem) = subsystem(sink, section, volumes) else {
            continue;
        };
        let line = sink.line(&section.span);
        if let Some(first) = lines.insert(subsystem.nqn.clone(), line) {
            let nqn = &subsystem.nqn;
            let text = format!("a subsystem {nqn} is there already, in line {first}");
            sink.add(&section.span_of("nqn"), text);
        }
        subsystems.push(subsystem);
    }
    if !nvme.is_some_and(|nvme| nvme.has("subsystem")) {
        let text = format!("there is no {SUBSYSTEM}: nothing to connect to");
        sink.add(&nvme.map_or(0..0, |nvme| nvme.span.clone()), text);
    }
    subsystems
}

fn subsystem(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Option<SubsystemSpec> {
    section.missing(sink, "nqn", "nqn = \"nqn.2026-01.io.weft:disk0\"");
    let nqn = section.text(sink, "nqn").map(|nqn| {
        if let Err(why) = check_subsystem_nqn(nqn.value) {
            sink.add(&nqn.span, why.to_string());
        }
        nqn.value.to_owned()
    });
    let hosts = hosts(sink, section);
    let serial = fixed_text(sink, section, "serial", SERIAL_BYTES);
    let model = fixed_text(sink, section, "model", MODEL_BYTES);
    let namespaces = namespaces(sink, section, volumes);
    let nqn = nqn?;
    Some(SubsystemSpec {
        serial: serial.unwrap_or_else(|| serial_of(&nqn)),
        model: model.unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
        nqn,
        hosts,
        namespaces,
    })
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
        if let Err(why) = check_host_nqn(value) {
            sink.add(&span, why.to_string());
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

fn namespaces(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Vec<NamespaceSpec> {
    let mut namespaces: Vec<NamespaceSpec> = Vec::new();
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
        if let Some(volume) = &volume
            && namespaces.iter().any(|other| other.volume == *volume)
        {
            let text = format!("volume \"{volume}\" is there already in this subsystem");
            sink.add(&section.span_of("volume"), text);
        }
        if let (Some(nsid), Some(volume)) = (nsid, volume) {
            namespaces.push(NamespaceSpec { nsid, volume });
        }
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);
    namespaces
}

fn nsid(sink: &mut Sink, section: &Section) -> Option<u32> {
    let nsid = section.number(sink, "nsid", false)?;
    if (1..=u64::from(NSID_MAX)).contains(&nsid.value) {
        return Some(nsid.value as u32);
    }
    let text = format!("an nsid is from 1 to {NSID_MAX}, not {}", nsid.value);
    sink.add(&nsid.span, text);
    None
}

fn volume(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Option<String> {
    let name = section.text(sink, "volume")?;
    if volumes.names.iter().any(|known| known == name.value) {
        return Some(name.value.to_owned());
    }
    let hint = hint(name.value, volumes.names.iter().map(String::as_str));
    let text = format!("there is no volume \"{}\"{hint}", name.value);
    sink.add(&name.span, text);
    None
}
