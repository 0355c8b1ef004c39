//! The subsystems of a file.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::HostPsk;
use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey};
use nvmf::command::AnaState;
use nvmf::dhchap::{DhchapChoice, DhchapKeys};
use nvmf::{AnaGroup, HostTerms, check_host_nqn, check_subsystem_nqn};
use server::{Config, ListenerSpec, NamespaceSpec, Protocol, SubsystemSpec, check};
use uuid::Uuid;

use crate::policy::pick;
use crate::schema::{ANA, HOST, NAMESPACE, SCHEMA, SUBSYSTEM};
use crate::secret::Secrets;
use crate::source::{At, Section, Sink, hint};
use crate::targets::networks;
use crate::volume::Volumes;

/// MN of Identify Controller where the file gives none.
pub(crate) const MODEL_DEFAULT: &str = "weft";

/// SN of Identify Controller where the file gives none: it follows from the
/// NQN, so it is the same after a restart.
pub(crate) fn serial_of(nqn: &str) -> String {
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, nqn.as_bytes());
    let mut serial = uuid.simple().to_string().to_uppercase();
    serial.truncate(check::SERIAL_BYTES);
    serial
}

pub(crate) fn subsystems(
    sink: &mut Sink,
    nvme: Option<&Section>,
    secrets: &Secrets,
    rest: (&Volumes, &[ListenerSpec]),
) -> Vec<SubsystemSpec> {
    let mut subsystems = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    let sections = nvme.map(|nvme| nvme.tables(sink, SCHEMA, "subsystem", SUBSYSTEM));
    for section in sections.iter().flatten() {
        let Some(subsystem) = subsystem(sink, section, secrets, rest) else {
            continue;
        };
        let line = sink.line(&section.span);
        if let Some(first) = lines.insert(subsystem.nqn.clone(), line) {
            let nqn = &subsystem.nqn;
            let there = format!("a subsystem {nqn} is there already, ");
            sink.add_with_line(&section.span_of("nqn"), (&there, first, ""));
        }
        subsystems.push(subsystem);
    }
    subsystems
}

fn subsystem(
    sink: &mut Sink,
    section: &Section,
    secrets: &Secrets,
    (volumes, listeners): (&Volumes, &[ListenerSpec]),
) -> Option<SubsystemSpec> {
    section.missing(sink, "nqn", "nqn = \"nqn.2026-01.io.weft:disk0\"");
    let nqn = section.text(sink, "nqn").map(|nqn| {
        if let Err(why) = check_subsystem_nqn(nqn.value) {
            sink.add(&nqn.span, why.to_string());
        }
        nqn.value.to_owned()
    });
    let named = nqn.as_deref().unwrap_or("SUBNQN");
    let (hosts, terms) = hosts(sink, section, secrets, named);
    let dhchap = dhchap_choice(sink, section);
    let serial = fixed_text(sink, section, "serial", check::SERIAL_BYTES);
    let model = fixed_text(sink, section, "model", check::MODEL_BYTES);
    let cntlids = cntlids(sink, section);
    let reached = reached(sink, section, listeners);
    let namespaces = namespaces(sink, section, volumes);
    let ana_groups = ana_groups(sink, section, &namespaces, listeners);
    let nqn = nqn?;
    Some(SubsystemSpec {
        serial: serial.unwrap_or_else(|| serial_of(&nqn)),
        model: model.unwrap_or_else(|| MODEL_DEFAULT.to_owned()),
        nqn,
        hosts,
        terms,
        dhchap,
        listeners: reached,
        namespaces,
        ana_groups,
        cntlids,
    })
}

/// The hosts that may connect, and what those with a table of their own are held to. No
/// list: every host may connect.
fn hosts(
    sink: &mut Sink,
    section: &Section,
    secrets: &Secrets,
    subnqn: &str,
) -> (Option<Vec<String>>, Vec<HostTerms>) {
    let any = section.flag(sink, "allow_any_host").unwrap_or(false);
    match (any, section.has("hosts") || section.has("host")) {
        (true, _) if section.has("hosts") => {
            let text = "`allow_any_host = true` and `hosts` contradict each other";
            sink.add(&section.span_of("hosts"), text);
        }
        (false, false) => {
            let text = "no host could connect: give `hosts = [\"nqn...\"]` (`cat /etc/nvme/hostnqn` \
                        on the host) or `allow_any_host = true`";
            sink.add(&section.span, text);
        }
        _ => {}
    }
    let mut hosts = host_list(sink, section).unwrap_or_default();
    let mut terms: Vec<HostTerms> = Vec::new();
    for section in section.tables(sink, SCHEMA, "host", HOST) {
        let Some(of_host) = terms_of_host(sink, &section, secrets, subnqn) else {
            continue;
        };
        if hosts.contains(&of_host.nqn) || terms.iter().any(|known| known.nqn == of_host.nqn) {
            let text = format!("{} is there already in this subsystem", of_host.nqn);
            sink.add(&section.span_of("nqn"), text);
        }
        terms.push(of_host);
    }
    hosts.extend(terms.iter().map(|terms| terms.nqn.clone()));
    let psks = secrets.psks(sink, section, ("HOSTNQN", subnqn));
    if !any && section.has("psk_file") {
        let text = "`psk_file` of a subsystem is the key of hosts that no table names, and there are \
                    none without `allow_any_host = true`: give each host its own in \
                    [[nvme.subsystem.host]]";
        sink.add(&section.span_of("psk_file"), text);
    }
    match psks.is_empty() {
        // A table that holds a host to nothing is as its name in the list.
        true => terms.retain(|terms| *terms != HostTerms::new(&*terms.nqn)),
        false => terms.push(HostTerms {
            psks,
            ..HostTerms::new(HostTerms::ANY_HOST)
        }),
    }
    ((!any).then_some(hosts), terms)
}

/// What a host with a table of its own is held to.
fn terms_of_host(
    sink: &mut Sink,
    section: &Section,
    secrets: &Secrets,
    subnqn: &str,
) -> Option<HostTerms> {
    section.missing(sink, "nqn", "nqn = \"nqn.2014-08.org.nvmexpress:uuid:...\"");
    let nqn = section.text(sink, "nqn");
    if let Some(nqn) = &nqn
        && let Err(why) = check_host_nqn(nqn.value)
    {
        sink.add(&nqn.span, why.to_string());
    }
    let named = nqn.as_ref().map_or("HOSTNQN", |nqn| nqn.value);
    Some(HostTerms {
        psks: secrets.psks(sink, section, (named, subnqn)),
        networks: networks(sink, section).unwrap_or_default(),
        dhchap: dhchap_keys(sink, section, secrets, (named, subnqn)),
        ..HostTerms::new(nqn?.value)
    })
}

/// Whom terms hold to something.
pub(crate) fn host_name(terms: &HostTerms) -> String {
    match &*terms.nqn {
        HostTerms::ANY_HOST => "hosts without a table".to_owned(),
        nqn => format!("host {nqn}"),
    }
}

/// Which hosts have keys for TLS, or secrets of DH-HMAC-CHAP, that have all expired or were all
/// revoked: they are refused.
pub(crate) fn expired_notes(config: &Config) -> impl Iterator<Item = String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let is_over = move |until: Option<Duration>| until.is_some_and(|until| until <= now);
    let all = config.subsystems.iter().flat_map(|subsystem| {
        let terms = subsystem.terms.iter();
        terms.map(|terms| (&*subsystem.nqn, terms))
    });
    let expired = all.clone().filter(move |(_, terms)| {
        terms.needs_tls() && terms.psks.iter().all(|key| is_over(key.until))
    });
    let expired = expired.map(|(subnqn, terms)| {
        let why = match terms.psks.iter().all(HostPsk::is_withdrawn) {
            true => {
                "was revoked in its keyring, or has expired there: `keyctl padd` puts another in \
                     its place"
            }
            false => "has expired: `weft key check` says when, `weft key rotate` makes another",
        };
        format!(
            "subsystem {subnqn}: every key of {} {why}",
            host_name(terms)
        )
    });
    let has_no_secret = move |terms: &HostTerms| {
        let secrets = terms.dhchap.as_ref().map(|keys| keys.host.iter());
        secrets.is_some_and(|mut secrets| secrets.all(|key| is_over(key.until)))
    };
    let without_secret = all.filter(move |(_, terms)| has_no_secret(terms));
    expired.chain(without_secret.map(|(subnqn, terms)| {
        format!(
            "subsystem {subnqn}: every secret of {} has expired: `weft key check` says when, \
             `weft key rotate` makes another",
            host_name(terms)
        )
    }))
}

/// The secrets that a host authenticates with, if it must.
fn dhchap_keys(
    sink: &mut Sink,
    section: &Section,
    secrets: &Secrets,
    (nqn, subnqn): (&str, &str),
) -> Option<DhchapKeys> {
    const HOST_KEYS: (&str, &str) = ("dhchap_secret", "dhchap_secret_file");
    const CONTROLLER_KEYS: (&str, &str) = ("dhchap_ctrl_secret", "dhchap_ctrl_secret_file");
    let has = |(itself, in_file)| section.has(itself) || section.has(in_file);
    let host = secrets.dhchap_keys(sink, section, HOST_KEYS, nqn);
    let controller = secrets.dhchap_key(sink, section, CONTROLLER_KEYS, subnqn);
    let span = || match section.has(CONTROLLER_KEYS.0) {
        true => section.span_of(CONTROLLER_KEYS.0),
        false => section.span_of(CONTROLLER_KEYS.1),
    };
    if has(CONTROLLER_KEYS) && !has(HOST_KEYS) {
        let text = "weft proves itself to a host that does so too: give `dhchap_secret_file`";
        sink.add(&span(), text);
    }
    let is_known = |key: &DhchapKey| host.iter().flatten().any(|known| known.key == *key);
    if controller.as_ref().is_some_and(is_known) {
        let text = "the host proves itself by the same secret: weft needs one of its own";
        sink.add(&span(), text);
    }
    Some(DhchapKeys {
        host: host?,
        controller,
    })
}

/// How hosts authenticate that must.
fn dhchap_choice(sink: &mut Sink, section: &Section) -> DhchapChoice {
    let all = DhchapChoice::default();
    let hashes = choice(
        sink,
        section,
        "dhchap_hashes",
        &all.hashes,
        DhchapHash::name,
    );
    let groups = choice(
        sink,
        section,
        "dhchap_groups",
        &all.groups,
        DhchapGroup::name,
    );
    DhchapChoice { hashes, groups }
}

/// Some of `all`, in the order of the file; all of them where it names none.
fn choice<T: Copy + PartialEq>(
    sink: &mut Sink,
    section: &Section,
    key: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Vec<T> {
    let Some(texts) = section.texts(sink, key) else {
        return all.to_vec();
    };
    if texts.is_empty() {
        let text = format!("`{key}` is empty: leave it out for all of them");
        sink.add(&section.span_of(key), text);
    }
    let mut chosen = Vec::new();
    for At { value, span } in texts {
        match all.iter().find(|known| name(**known) == value) {
            Some(known) if chosen.contains(known) => {
                sink.add(&span, format!("{value} is in the list already"));
            }
            Some(known) => chosen.push(*known),
            None => {
                let known = || all.iter().map(|known| name(*known));
                let names: Vec<_> = known().map(|name| format!("\"{name}\"")).collect();
                let (names, hint) = (names.join(", "), hint(value, known()));
                sink.add(
                    &span,
                    format!("`{key}` holds {names}, not \"{value}\"{hint}"),
                );
            }
        }
    }
    chosen
}

/// The host NQNs of `hosts`, if that is there.
fn host_list(sink: &mut Sink, section: &Section) -> Option<Vec<String>> {
    let mut hosts: Vec<String> = Vec::new();
    for At { value, span } in section.texts(sink, "hosts")? {
        if let Err(why) = check_host_nqn(value) {
            sink.add(&span, why.to_string());
        } else if hosts.iter().any(|host| host == value) {
            sink.add(&span, format!("{value} is in the list already"));
        }
        hosts.push(value.to_owned());
    }
    Some(hosts)
}

/// Numbers of the listeners where a subsystem is reached; `None`: all.
fn reached(sink: &mut Sink, section: &Section, listeners: &[ListenerSpec]) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for text in section.texts(sink, "listeners")? {
        let Some(number) = listener(sink, &text, listeners) else {
            continue;
        };
        let spec = &listeners[usize::from(number)];
        if spec.discovery_only {
            let why = format!("the listener {} is `discovery_only`", text.value);
            sink.add(&text.span, why);
        } else if spec.protocol != Protocol::NvmeTcp {
            let other = spec.spoken();
            let why = format!("the listener {} speaks {other}, not NVMe/TCP", text.value);
            sink.add(&text.span, why);
        } else if numbers.contains(&number) {
            sink.add(&text.span, format!("{} is in the list already", text.value));
        }
        numbers.push(number);
    }
    Some(numbers)
}

/// The number of the listener on an address.
pub(crate) fn listener(
    sink: &mut Sink,
    text: &At<&str>,
    listeners: &[ListenerSpec],
) -> Option<u16> {
    let known = || listeners.iter().map(|spec| spec.address.to_string());
    let address: Option<SocketAddr> = text.value.parse().ok();
    let found = (0..)
        .zip(listeners)
        .find(|(_, spec)| Some(spec.address) == address);
    if found.is_none() {
        let names: Vec<String> = known().collect();
        let hint = hint(text.value, names.iter().map(String::as_str));
        let why = format!(
            "there is no [[listener]] with the address \"{}\"{hint}",
            text.value
        );
        sink.add(&text.span, why);
    }
    found.map(|(number, _)| number)
}

/// ANA groups whose state is not "optimized" everywhere.
fn ana_groups(
    sink: &mut Sink,
    section: &Section,
    namespaces: &[NamespaceSpec],
    listeners: &[ListenerSpec],
) -> Vec<AnaGroup> {
    let mut groups: Vec<AnaGroup> = Vec::new();
    let mut seen: Vec<(u32, Option<u16>)> = Vec::new();
    for section in section.tables(sink, SCHEMA, "ana", ANA) {
        section.missing(sink, "group", "group = 1");
        section.missing(sink, "state", "state = \"non-optimized\"");
        let state = pick(sink, Some(&section), "state", ANA_STATES);
        let group = number(sink, &section, "group", check::ana_group);
        let text = section.text(sink, "listener");
        let on = text
            .as_ref()
            .and_then(|text| listener(sink, text, listeners));
        let (Some(id), Some(state)) = (group, state) else {
            continue;
        };
        if !namespaces.iter().any(|namespace| namespace.ana_group == id) {
            let text = format!("no namespace of the subsystem has `ana_group = {id}`");
            sink.add(&section.span_of("group"), text);
        }
        if text.is_some() && on.is_none() {
            continue;
        }
        if seen.contains(&(id, on)) {
            let text = format!("the state of group {id} is said already");
            sink.add(&section.span_of("group"), text);
        }
        seen.push((id, on));
        let group = AnaGroup::find_or_add(&mut groups, id);
        match on {
            Some(number) => group.on.push((number, state)),
            None => group.state = state,
        }
    }
    groups
}

/// As the configuration says it.
#[must_use]
pub fn ana_state_name(state: AnaState) -> &'static str {
    let named = ANA_STATES.iter().find(|(_, known)| *known == state);
    named.map_or("in a state without a name", |(name, _)| name)
}

/// As the words of the ANA log page (Base 2.0, section 8.1.3).
pub(crate) const ANA_STATES: &[(&str, AnaState)] = &[
    ("optimized", AnaState::Optimized),
    ("non-optimized", AnaState::NonOptimized),
    ("inaccessible", AnaState::Inaccessible),
    ("persistent-loss", AnaState::PersistentLoss),
    ("change", AnaState::Change),
];

/// A text that stands in a field of fixed width, padded with spaces.
fn fixed_text(sink: &mut Sink, section: &Section, key: &str, bytes_max: usize) -> Option<String> {
    let text = section.text(sink, key)?;
    if let Err(why) = check::fixed_text(key, text.value, bytes_max) {
        sink.add(&text.span, why);
    }
    Some(text.value.to_owned())
}

/// Controller identifiers as "first-last".
fn cntlids(sink: &mut Sink, section: &Section) -> Option<RangeInclusive<u16>> {
    let text = section.text(sink, "cntlids")?;
    let ends = text.value.split_once('-');
    let range = ends.and_then(|(first, last)| {
        let first = first.trim().parse().ok()?;
        Some(first..=last.trim().parse().ok()?)
    });
    let why = match &range {
        Some(range) => check::cntlids(range).err(),
        None => Some(format!(
            "\"{}\" is no range of controller identifiers: write \"1-1000\"",
            text.value
        )),
    };
    if let Some(why) = why {
        sink.add(&text.span, why);
    }
    range
}

fn namespaces(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Vec<NamespaceSpec> {
    let mut namespaces: Vec<NamespaceSpec> = Vec::new();
    let sections = section.tables(sink, SCHEMA, "namespace", NAMESPACE);
    // In short: from nsid 1 on, in order.
    for (nsid, name) in (1..).zip(section.texts(sink, "volumes").unwrap_or_default()) {
        let Some(volume) = known_volume(sink, &name, volumes) else {
            continue;
        };
        if namespaces.iter().any(|other| other.volume == volume) {
            sink.add(&name.span, format!("\"{volume}\" is in the list already"));
        } else if let Err(why) = check::nsid(nsid) {
            sink.add(&name.span, why);
            break;
        }
        namespaces.push(NamespaceSpec {
            nsid: nsid as u32,
            volume,
            ..NamespaceSpec::default()
        });
    }
    for section in &sections {
        section.missing(sink, "nsid", "nsid = 1");
        section.missing(sink, "volume", "volume = \"disk0\"");
        let nsid = number(sink, section, "nsid", check::nsid);
        let ana_group = number(sink, section, "ana_group", check::ana_group);
        let hosts = host_list(sink, section);
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
            namespaces.push(NamespaceSpec {
                nsid,
                volume,
                ana_group: ana_group.unwrap_or(1),
                hosts,
            });
        }
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);
    namespaces
}

/// A number that `check` knows the bounds of.
pub(crate) fn number(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    check: impl Fn(u64) -> Result<u32, String>,
) -> Option<u32> {
    let number = section.number(sink, key, false)?;
    match check(number.value) {
        Ok(number) => Some(number),
        Err(why) => {
            sink.add(&number.span, why);
            None
        }
    }
}

pub(crate) fn volume(sink: &mut Sink, section: &Section, volumes: &Volumes) -> Option<String> {
    let name = section.text(sink, "volume")?;
    known_volume(sink, &name, volumes)
}

/// The name of a volume that the file has, and that hosts may be served.
pub(crate) fn known_volume(sink: &mut Sink, name: &At<&str>, volumes: &Volumes) -> Option<String> {
    let text = match volumes.names.find(name.value) {
        Some(None) => return Some(name.value.to_owned()),
        Some(Some(owner)) => format!(
            "the volume \"{}\" is part of \"{owner}\", and hosts are served that one alone",
            name.value
        ),
        None => {
            let hint = volumes.names.hint(name.value);
            format!("there is no volume \"{}\"{hint}", name.value)
        }
    };
    sink.add(&name.span, text);
    None
}
