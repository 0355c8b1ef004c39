//! The iSCSI targets of a file.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use auth::{Algorithm, Network};
use iscsi::{Auth, DigestPolicy, InitiatorAcl, PortalGroup, Redirect, SessionLimits, Target};
use nvmf::AnaGroup;
use server::check::{self, iscsi_bounds};
use server::{Ana, IscsiTargetSpec, ListenerSpec, LunSpec, Protocol, SubsystemSpec};

use crate::by_name::ByName;
use crate::listener::host_and_port;
use crate::nvme::{ANA_STATES, known_volume, listener, number, volume};
use crate::policy::{Number, Rule, count, pick, size};
use crate::schema::{
    DISCOVERY, DISCOVERY_CHAP, DISCOVERY_MUTUAL, INITIATOR, INITIATOR_CHAP, INITIATOR_MUTUAL, LUN,
    PORTAL_GROUP, SCHEMA, TARGET, TARGET_ANA, TARGET_CHAP, TARGET_MUTUAL,
};
use crate::secret::Secrets;
use crate::source::{At, Section, Sink, hint};
use crate::volume::Volumes;

/// iSCSI's own port (RFC 7143, section 13).
const PORT: u16 = 3260;

/// What the file says of iSCSI.
pub(crate) struct Iscsi {
    pub targets: Vec<IscsiTargetSpec>,
    pub discovery: Auth,
    /// Of one command.
    pub io_bytes_max: u32,
}

/// As common tools send without asking.
const IO_BYTES_MAX: Number = size("io_bytes_max", 64 << 10, 8 << 20, Rule::Multiple(4096));

/// What targets of a file are checked against.
pub(crate) struct Rest<'r> {
    pub volumes: &'r Volumes,
    pub listeners: &'r [ListenerSpec],
    pub subsystems: ByName<&'r SubsystemSpec>,
}

pub(crate) fn read(
    sink: &mut Sink,
    iscsi: Option<&Section>,
    secrets: &mut Secrets,
    rest: &Rest,
) -> Iscsi {
    let io_bytes_max = server::Limits::default().scsi_io_bytes_max;
    let Some(iscsi) = iscsi else {
        return Iscsi {
            targets: Vec::new(),
            discovery: Auth::default(),
            io_bytes_max,
        };
    };
    let io_bytes_max = IO_BYTES_MAX.read(sink, Some(iscsi), io_bytes_max);
    let groups = portal_groups(sink, iscsi, rest.listeners);
    let general = Terms::read(sink, iscsi, &Terms::default());
    let discovery = discovery(sink, iscsi, secrets, &general);
    let mut targets: Vec<IscsiTargetSpec> = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for section in iscsi.tables(sink, SCHEMA, "target", TARGET) {
        let Some(spec) = target(sink, &section, &general, secrets, (rest, &groups)) else {
            continue;
        };
        let line = sink.line(&section.span);
        if let Some(first) = lines.insert(spec.target.name.clone(), line) {
            let name = &spec.target.name;
            let there = format!("a target {name} is there already, ");
            sink.add_with_line(&section.span_of("name"), (&there, first, ""));
        }
        targets.push(spec);
    }
    secrets.compare(sink);
    Iscsi {
        targets,
        discovery,
        io_bytes_max,
    }
}

/// What may be said for all targets and for one.
#[derive(Clone, Default)]
struct Terms {
    limits: SessionLimits,
    header_digest: DigestPolicy,
    data_digest: DigestPolicy,
    algorithms: Vec<Algorithm>,
    space_warning_bytes: Option<u64>,
}

const QUEUE_DEPTH: Number = within("queue_depth", iscsi_bounds::QUEUE_DEPTH);
const MAX_RECV: Number = length("max_recv_data_segment_bytes");
const FIRST_BURST: Number = length("first_burst_bytes");
const MAX_BURST: Number = length("max_burst_bytes");
const R2TS_MAX: Number = within("r2ts_max", iscsi_bounds::R2TS_MAX);
const ERROR_RECOVERY_LEVEL: Number =
    within("error_recovery_level", iscsi_bounds::ERROR_RECOVERY_LEVEL);
const CONNECTIONS_MAX: Number = within("session_connections_max", iscsi_bounds::CONNECTIONS_MAX);
const SESSIONS_MAX: Number = within("sessions_max", iscsi_bounds::SESSIONS_MAX);
const SESSIONS_OF_INITIATOR_MAX: Number =
    within("sessions_of_initiator_max", iscsi_bounds::SESSIONS_MAX);
const NOP_IN_INTERVAL: Number = within("nop_in_interval_ms", iscsi_bounds::NOP_IN_INTERVAL_MS);
/// A threshold counts in MiB, with 32 bits.
const SPACE_WARNING: Number = size(
    "space_warning",
    1 << 20,
    u32::MAX as u64 * (1 << 20),
    Rule::Any,
);
const PORTAL_GROUP_TAG: Number = count("tag", 1, 65_535);

const fn within(key: &'static str, range: RangeInclusive<u64>) -> Number {
    count(key, *range.start(), *range.end())
}

const fn length(key: &'static str) -> Number {
    let range = iscsi_bounds::LENGTH;
    size(key, *range.start(), *range.end(), Rule::Any)
}

impl Terms {
    /// Those of a section, where it says nothing as `general` has them.
    fn read(sink: &mut Sink, section: &Section, general: &Terms) -> Terms {
        let from = Some(section);
        let known = general.limits;
        let limits = SessionLimits {
            queue_depth: QUEUE_DEPTH.read(sink, from, known.queue_depth),
            max_recv_data_segment_bytes: MAX_RECV.read(
                sink,
                from,
                known.max_recv_data_segment_bytes,
            ),
            first_burst_bytes: FIRST_BURST.read(sink, from, known.first_burst_bytes),
            max_burst_bytes: MAX_BURST.read(sink, from, known.max_burst_bytes),
            r2ts_max: R2TS_MAX.read(sink, from, known.r2ts_max),
            initial_r2t: section
                .flag(sink, "initial_r2t")
                .unwrap_or(known.initial_r2t),
            immediate_data: (section.flag(sink, "immediate_data")).unwrap_or(known.immediate_data),
            error_recovery_level: ERROR_RECOVERY_LEVEL.read(sink, from, known.error_recovery_level),
            connections_max: CONNECTIONS_MAX.read(sink, from, known.connections_max),
            sessions_max: SESSIONS_MAX.read(sink, from, known.sessions_max),
            sessions_of_initiator_max: SESSIONS_OF_INITIATOR_MAX.read(
                sink,
                from,
                known.sessions_of_initiator_max,
            ),
            nop_in_interval_ms: NOP_IN_INTERVAL.read(sink, from, known.nop_in_interval_ms),
            target_cold_reset: (section.flag(sink, "target_cold_reset"))
                .unwrap_or(known.target_cold_reset),
            ..known
        };
        let mut said = ["max_burst_bytes", "first_burst_bytes"].into_iter();
        if limits.first_burst_bytes > limits.max_burst_bytes
            && let Some(key) = said.find(|key| section.has(key))
        {
            let text = format!(
                "`first_burst_bytes` ({}) is more than `max_burst_bytes` ({})",
                FIRST_BURST.show(limits.first_burst_bytes.into()),
                MAX_BURST.show(limits.max_burst_bytes.into())
            );
            sink.add(&section.span_of(key), text);
        }
        let mut digest = |key, known| pick(sink, from, key, DIGESTS).unwrap_or(known);
        Terms {
            limits,
            header_digest: digest("header_digest", general.header_digest),
            data_digest: digest("data_digest", general.data_digest),
            algorithms: algorithms(sink, section).unwrap_or_else(|| general.algorithms.clone()),
            space_warning_bytes: (SPACE_WARNING.find(sink, from)).or(general.space_warning_bytes),
        }
    }
}

const DIGESTS: &[(&str, DigestPolicy)] = &[
    ("none", DigestPolicy::None),
    ("allowed", DigestPolicy::Allowed),
    ("required", DigestPolicy::Required),
];

/// CHAP_A (RFC 7143, section 12.1.3).
const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("sha3-256", Algorithm::Sha3_256),
    ("sha256", Algorithm::Sha256),
    ("sha1", Algorithm::Sha1),
    ("md5", Algorithm::Md5),
];

fn algorithms(sink: &mut Sink, section: &Section) -> Option<Vec<Algorithm>> {
    let list = section.texts(sink, "chap_algorithms")?;
    if list.is_empty() {
        let text = "`chap_algorithms` is empty: leave it out for the strong ones";
        sink.add(&section.span_of("chap_algorithms"), text);
    }
    let mut found = Vec::new();
    for At { value, span } in list {
        let names = || ALGORITHMS.iter().map(|(name, _)| *name);
        match ALGORITHMS.iter().find(|(name, _)| *name == value) {
            Some((_, algorithm)) => found.push(*algorithm),
            None => {
                let known: Vec<_> = names().collect();
                let text = format!(
                    "`chap_algorithms` holds \"{}\", not \"{value}\"{}",
                    known.join("\", \""),
                    hint(value, names())
                );
                sink.add(&span, text);
            }
        }
    }
    Some(found)
}

/// Portal groups that the file makes; none: every portal is in one.
fn portal_groups(sink: &mut Sink, iscsi: &Section, listeners: &[ListenerSpec]) -> Vec<PortalGroup> {
    let mut groups: Vec<PortalGroup> = Vec::new();
    for section in iscsi.tables(sink, SCHEMA, "portal_group", PORTAL_GROUP) {
        section.missing(sink, "tag", "tag = 1");
        section.missing(sink, "listeners", "listeners = [\"192.0.2.1:3260\"]");
        let tag = PORTAL_GROUP_TAG.find(sink, Some(&section));
        let mut portals: Vec<u16> = Vec::new();
        for text in section.texts(sink, "listeners").unwrap_or_default() {
            let Some(number) = portal(sink, &text, listeners) else {
                continue;
            };
            let taken = groups.iter().find(|group| group.portals.contains(&number));
            let why = match taken {
                Some(other) => format!("{} is in portal group {} already", text.value, other.tag),
                None if portals.contains(&number) => {
                    format!("{} is in the list already", text.value)
                }
                None => {
                    portals.push(number);
                    continue;
                }
            };
            sink.add(&text.span, why);
        }
        let mut digest = |key| pick(sink, Some(&section), key, DIGESTS);
        let (header_digest, data_digest) = (digest("header_digest"), digest("data_digest"));
        let Some(tag) = tag.map(|tag| tag as u16) else {
            continue;
        };
        let is_iscsi = |number: &u16| listeners[usize::from(*number)].protocol == Protocol::Iscsi;
        if !portals.is_empty() && !portals.iter().any(is_iscsi) {
            let text = "no initiator could log in: name an iSCSI listener too";
            sink.add(&section.span_of("listeners"), text);
        }
        if groups.iter().any(|group| group.tag == tag) {
            let text = format!("a portal group with tag {tag} is there already");
            sink.add(&section.span_of("tag"), text);
        }
        groups.push(PortalGroup {
            tag,
            portals,
            header_digest,
            data_digest,
        });
    }
    groups
}

/// The number of the listener on an address: an iSCSI portal, or where NVMe hosts
/// come in whose paths have the same states.
fn portal(sink: &mut Sink, text: &At<&str>, listeners: &[ListenerSpec]) -> Option<u16> {
    let number = listener(sink, text, listeners)?;
    let protocol = listeners[usize::from(number)].protocol;
    if protocol == Protocol::Nfs {
        let why = format!("the listener {} speaks NFS, which has no paths", text.value);
        sink.add(&text.span, why);
        return None;
    }
    Some(number)
}

fn discovery(sink: &mut Sink, iscsi: &Section, secrets: &mut Secrets, general: &Terms) -> Auth {
    let Some(section) = iscsi.table(sink, SCHEMA, "discovery", DISCOVERY) else {
        return Auth::default();
    };
    let titles = (DISCOVERY_CHAP, DISCOVERY_MUTUAL);
    auth(sink, &section, titles, secrets, None, &general.algorithms)
}

/// What is proved, where nothing is said as in `general`.
fn auth(
    sink: &mut Sink,
    section: &Section,
    (chap, mutual): (&'static str, &'static str),
    secrets: &mut Secrets,
    general: Option<&Auth>,
    algorithms: &[Algorithm],
) -> Auth {
    let chap = secrets.credentials(sink, section, "chap", chap);
    let mutual = secrets.credentials(sink, section, "mutual_chap", mutual);
    let has_chap = section.has("chap") || general.is_some_and(|auth| auth.chap.is_some());
    if section.has("mutual_chap") && !has_chap {
        let text = "`mutual_chap` is of use only to an initiator that proves itself: give `chap` \
                    too";
        sink.add(&section.span_of("mutual_chap"), text);
    }
    Auth {
        chap: chap.or_else(|| general.and_then(|auth| auth.chap.clone())),
        mutual: mutual.or_else(|| general.and_then(|auth| auth.mutual.clone())),
        algorithms: algorithms.to_vec(),
    }
}

fn target(
    sink: &mut Sink,
    section: &Section,
    general: &Terms,
    secrets: &mut Secrets,
    (rest, groups): (&Rest, &[PortalGroup]),
) -> Option<IscsiTargetSpec> {
    section.missing(sink, "name", "name = \"iqn.2026-01.io.weft:disk0\"");
    let name = section.text(sink, "name").and_then(|name| {
        let checked = iscsi::check_target_name(name.value);
        checked
            .map_err(|why| sink.add(&name.span, why.to_string()))
            .ok()
    });
    let alias = section.text(sink, "alias");
    if let Some(alias) = &alias
        && let Err(why) = check::alias(alias.value)
    {
        sink.add(&alias.span, why);
    }
    let terms = Terms::read(sink, section, general);
    let titles = (TARGET_CHAP, TARGET_MUTUAL);
    let auth = auth(sink, section, titles, secrets, None, &terms.algorithms);
    let portal_groups = reached(sink, section, groups);
    let shared = subsystem(sink, section, rest);
    let luns = luns(sink, section, rest, shared);
    let acl = acl(sink, section, secrets, &auth, (&luns, &portal_groups));
    let ana = ana(sink, section, shared, &luns, rest, &portal_groups);
    let redirect = redirect(sink, section);
    let target = Target {
        name: name?,
        alias: alias.map(|alias| alias.value.to_owned()),
        portal_groups,
        acl,
        auth,
        limits: terms.limits,
        header_digest: terms.header_digest,
        data_digest: terms.data_digest,
        redirect,
    };
    Some(IscsiTargetSpec {
        target,
        luns,
        ana,
        space_warning_bytes: terms.space_warning_bytes,
    })
}

/// The portal groups where a target is reached; empty: one of every portal.
fn reached(sink: &mut Sink, section: &Section, known: &[PortalGroup]) -> Vec<PortalGroup> {
    let Some(tags) = section.numbers(sink, "portal_groups") else {
        return known.to_vec();
    };
    if tags.is_empty() {
        let text = "`portal_groups` is empty: no initiator could reach the target";
        sink.add(&section.span_of("portal_groups"), text);
    }
    let mut groups: Vec<PortalGroup> = Vec::new();
    for At { value, span } in tags {
        match known.iter().find(|group| u64::from(group.tag) == value) {
            None => sink.add(
                &span,
                format!("there is no {PORTAL_GROUP} with tag = {value}"),
            ),
            Some(group) if groups.contains(group) => {
                sink.add(&span, format!("{value} is in the list already"));
            }
            Some(group) => groups.push(group.clone()),
        }
    }
    groups
}

/// The subsystem whose ANA groups the target shares.
fn subsystem<'r>(sink: &mut Sink, section: &Section, rest: &Rest<'r>) -> Option<&'r SubsystemSpec> {
    let nqn = section.text(sink, "subsystem")?;
    let found = rest.subsystems.find(nqn.value).copied();
    if found.is_none() {
        let hint = rest.subsystems.hint(nqn.value);
        sink.add(
            &nqn.span,
            format!("there is no subsystem \"{}\"{hint}", nqn.value),
        );
    }
    found
}

fn luns(
    sink: &mut Sink,
    section: &Section,
    rest: &Rest,
    shared: Option<&SubsystemSpec>,
) -> Vec<LunSpec> {
    let mut luns: Vec<LunSpec> = Vec::new();
    let (mut numbers, mut volumes) = (HashSet::new(), HashSet::new());
    // A namespace of the same volume says which group it is in.
    let group_of = |volume: &str| {
        let namespaces = shared.into_iter().flat_map(|shared| &shared.namespaces);
        let mut same = namespaces.filter(|namespace| namespace.volume == volume);
        same.next().map(|namespace| namespace.ana_group)
    };
    let sections = section.tables(sink, SCHEMA, "lun", LUN);
    // In short: from LUN 0 on, in order.
    for (lun, name) in (0..).zip(section.texts(sink, "volumes").unwrap_or_default()) {
        let Some(volume) = known_volume(sink, &name, rest.volumes) else {
            continue;
        };
        numbers.insert(lun as u32);
        if !volumes.insert(volume.clone()) {
            sink.add(&name.span, format!("\"{volume}\" is in the list already"));
        } else if let Err(why) = check::lun(lun) {
            sink.add(&name.span, why);
            break;
        }
        let ana_group = group_of(&volume).unwrap_or(1);
        luns.push(LunSpec {
            lun: lun as u16,
            volume,
            ana_group,
        });
    }
    for section in &sections {
        section.missing(sink, "lun", "lun = 0");
        section.missing(sink, "volume", "volume = \"disk0\"");
        let lun = number(sink, section, "lun", |lun| check::lun(lun).map(u32::from));
        let ana_group = number(sink, section, "ana_group", check::ana_group);
        let volume = volume(sink, section, rest.volumes);
        if let Some(lun) = lun
            && numbers.contains(&lun)
        {
            let text = format!("LUN {lun} is there already in this target");
            sink.add(&section.span_of("lun"), text);
        }
        let (Some(lun), Some(volume)) = (lun, volume) else {
            continue;
        };
        numbers.insert(lun);
        if !volumes.insert(volume.clone()) {
            let text = format!("volume \"{volume}\" is there already in this target");
            sink.add(&section.span_of("volume"), text);
        }
        let same = group_of(&volume);
        if let (Some(group), Some(same)) = (ana_group, same)
            && group != same
        {
            let text = format!(
                "the namespace of volume \"{volume}\" is in ANA group {same}: leave `ana_group` out"
            );
            sink.add(&section.span_of("ana_group"), text);
        }
        luns.push(LunSpec {
            lun: lun as u16,
            volume,
            ana_group: ana_group.or(same).unwrap_or(1),
        });
    }
    luns.sort_by_key(|lun| lun.lun);
    luns
}

/// The initiators that may use a target: those with a table of their own before
/// the list, and that before any other.
fn acl(
    sink: &mut Sink,
    section: &Section,
    secrets: &mut Secrets,
    general: &Auth,
    rest: (&[LunSpec], &[PortalGroup]),
) -> Vec<InitiatorAcl> {
    let any = section.flag(sink, "allow_any_initiator").unwrap_or(false);
    let networks = networks(sink, section).unwrap_or_default();
    let own = section.tables(sink, SCHEMA, "initiator", INITIATOR);
    if any && section.has("initiators") {
        let text = "`allow_any_initiator = true` and `initiators` contradict each other";
        sink.add(&section.span_of("initiators"), text);
    } else if !any && !section.has("initiators") && !section.has("initiator") {
        let text = "no host could connect: give `initiators = [\"iqn...\"]` (`cat \
                    /etc/iscsi/initiatorname.iscsi` on the initiator) or `allow_any_initiator = true`";
        sink.add(&section.span, text);
    }
    let mut acl: Vec<InitiatorAcl> = Vec::new();
    for section in &own {
        let entry = initiator(sink, section, secrets, general, rest, &networks);
        let is_named = entry.name.is_some();
        let is_same = |known: &InitiatorAcl| known.name == entry.name && known.meets(&entry);
        if is_named && acl.iter().any(is_same) {
            let text = "the initiator is there already in this target";
            sink.add(&section.span_of("name"), text);
        }
        acl.push(entry);
    }
    for text in section.texts(sink, "initiators").unwrap_or_default() {
        let name = initiator_name(sink, &text);
        let is_same = |known: &InitiatorAcl| known.name == name && known.portal_groups.is_empty();
        if name.is_some() && acl.iter().any(is_same) {
            let why = format!("{} is there already in this target", text.value);
            sink.add(&text.span, why);
        }
        acl.extend(name.map(|name| InitiatorAcl {
            name: Some(name),
            networks: networks.clone(),
            ..InitiatorAcl::default()
        }));
    }
    acl.extend(any.then(|| InitiatorAcl {
        networks,
        ..InitiatorAcl::default()
    }));
    acl
}

/// An initiator with a table of its own.
fn initiator(
    sink: &mut Sink,
    section: &Section,
    secrets: &mut Secrets,
    general: &Auth,
    (luns, reached): (&[LunSpec], &[PortalGroup]),
    elsewhere: &[Network],
) -> InitiatorAcl {
    let name = section.text(sink, "name");
    let name = name.and_then(|name| initiator_name(sink, &name));
    let networks = networks(sink, section);
    let portal_groups = holds_at(sink, section, reached);
    let is_any_host = networks.as_ref().is_none_or(Vec::is_empty) && !section.has("portal_groups");
    if !section.has("name") && is_any_host {
        let text = format!(
            "{INITIATOR} needs `name`, or `networks` or `portal_groups` for all that come from \
             there or by them"
        );
        sink.add(&section.span, text);
    }
    let titles = (INITIATOR_CHAP, INITIATOR_MUTUAL);
    let has_own = section.has("chap") || section.has("mutual_chap");
    let auth = auth(
        sink,
        section,
        titles,
        secrets,
        Some(general),
        &general.algorithms,
    );
    InitiatorAcl {
        name,
        networks: networks.unwrap_or_else(|| elsewhere.to_vec()),
        portal_groups,
        auth: has_own.then_some(auth),
        luns: mask(sink, section, luns),
    }
}

/// The tags of the portal groups where an entry holds; empty: all.
fn holds_at(sink: &mut Sink, section: &Section, reached: &[PortalGroup]) -> Vec<u16> {
    let Some(tags) = section.numbers(sink, "portal_groups") else {
        return Vec::new();
    };
    if tags.is_empty() {
        let text = "`portal_groups` is empty: no initiator could log in";
        sink.add(&section.span_of("portal_groups"), text);
    }
    let mut found = Vec::new();
    for At { value, span } in tags {
        // Without portal groups of the file's own there is one, with tag 1.
        let is_reached = match reached {
            [] => value == 1,
            groups => groups.iter().any(|group| u64::from(group.tag) == value),
        };
        let why = match is_reached {
            false => format!("the target is not reached by a portal group {value}"),
            true if found.contains(&(value as u16)) => format!("{value} is in the list already"),
            true => {
                found.push(value as u16);
                continue;
            }
        };
        sink.add(&span, why);
    }
    found
}

fn initiator_name(sink: &mut Sink, name: &At<&str>) -> Option<String> {
    match iscsi::check_initiator_name(name.value) {
        Ok(name) => Some(name),
        Err(why) => {
            sink.add(&name.span, why.to_string());
            None
        }
    }
}

/// The networks of `networks`, if that is there.
pub(crate) fn networks(sink: &mut Sink, section: &Section) -> Option<Vec<Network>> {
    let mut networks = Vec::new();
    for text in section.texts(sink, "networks")? {
        match text.value.parse() {
            Ok(network) => networks.push(network),
            Err(auth::NetworkError) => {
                let why = format!("\"{}\": {}", text.value, auth::NetworkError);
                sink.add(&text.span, why);
            }
        }
    }
    Some(networks)
}

/// The logical units that an initiator sees; `None`: all.
fn mask(sink: &mut Sink, section: &Section, luns: &[LunSpec]) -> Option<Vec<u16>> {
    let mut mask: Vec<u16> = Vec::new();
    for At { value, span } in section.numbers(sink, "luns")? {
        let known = luns.iter().find(|known| u64::from(known.lun) == value);
        match known {
            None => sink.add(&span, format!("the target has no LUN {value}")),
            Some(known) if mask.contains(&known.lun) => {
                sink.add(&span, format!("{value} is in the list already"));
            }
            Some(known) => mask.push(known.lun),
        }
    }
    Some(mask)
}

/// The ANA groups of a target: its own, or a subsystem's.
fn ana(
    sink: &mut Sink,
    section: &Section,
    shared: Option<&SubsystemSpec>,
    luns: &[LunSpec],
    rest: &Rest,
    reached: &[PortalGroup],
) -> Ana {
    let sections = section.tables(sink, SCHEMA, "ana", TARGET_ANA);
    if let Some(shared) = shared {
        if section.has("ana") {
            let text = format!(
                "the target shares the ANA groups of {}: say their states there",
                shared.nqn
            );
            sink.add(&section.span_of("ana"), text);
        }
        let default = server::default_portal_group((0..).zip(rest.listeners));
        let groups = match reached {
            [] => &[default][..],
            groups => groups,
        };
        for group in groups {
            if let Some(why) = uneven(shared, group, rest.listeners) {
                sink.add(&section.span_of("subsystem"), why);
            }
        }
        return Ana::Subsystem(shared.nqn.clone());
    }
    let mut groups: Vec<AnaGroup> = Vec::new();
    let mut seen: Vec<(u32, Option<u64>)> = Vec::new();
    for section in sections {
        section.missing(sink, "group", "group = 1");
        section.missing(sink, "state", "state = \"non-optimized\"");
        let state = pick(sink, Some(&section), "state", ANA_STATES);
        let group = number(sink, &section, "group", check::ana_group);
        let tag = section.number(sink, "portal_group", false);
        let on = tag.as_ref().map(|tag| {
            let found = reached
                .iter()
                .find(|group| u64::from(group.tag) == tag.value);
            if found.is_none() {
                let text = format!("the target is not reached by a portal group {}", tag.value);
                sink.add(&tag.span, text);
            }
            found.map_or(&[][..], |group| &group.portals)
        });
        let (Some(id), Some(state)) = (group, state) else {
            continue;
        };
        if !luns.iter().any(|lun| lun.ana_group == id) {
            let text = format!("no LUN of the target has `ana_group = {id}`");
            sink.add(&section.span_of("group"), text);
        }
        let place = (id, tag.map(|tag| tag.value));
        if seen.contains(&place) {
            let text = format!("the state of group {id} is said already");
            sink.add(&section.span_of("group"), text);
        }
        seen.push(place);
        let group = AnaGroup::find_or_add(&mut groups, id);
        match on {
            Some(portals) => group
                .on
                .extend(portals.iter().map(|number| (*number, state))),
            None => group.state = state,
        }
    }
    Ana::Own(groups)
}

/// A portal group is one target port group: a subsystem's ANA group cannot be in
/// two states there.
fn uneven(
    shared: &SubsystemSpec,
    group: &PortalGroup,
    listeners: &[ListenerSpec],
) -> Option<String> {
    let (first, others) = group.portals.split_first()?;
    let address = |number: u16| listeners[usize::from(number)].address;
    let pairs = shared.ana_groups.iter();
    let mut pairs = pairs.flat_map(|ana| others.iter().map(move |other| (ana, other)));
    let (ana, other) = pairs.find(|(ana, other)| ana.state_on(*first) != ana.state_on(**other))?;
    Some(format!(
        "ANA group {} of {} has one state on {} and another on {}, which are both in portal group \
         {}: put them into groups of their own",
        ana.id,
        shared.nqn,
        address(*first),
        address(*other),
        group.tag
    ))
}

/// Where logins are sent instead.
fn redirect(sink: &mut Sink, section: &Section) -> Option<Redirect> {
    let permanent = section.flag(sink, "redirect_permanent");
    let Some(text) = section.text(sink, "redirect") else {
        if permanent.is_some() && !section.has("redirect") {
            let why = "`redirect_permanent` needs `redirect`: where to";
            sink.add(&section.span_of("redirect_permanent"), why);
        }
        return None;
    };
    match host_and_port(text.value) {
        Ok((host, port)) => Some(Redirect {
            host,
            port: port.unwrap_or(PORT),
            permanent: permanent.unwrap_or(false),
        }),
        Err(why) => {
            sink.add(&text.span, why);
            None
        }
    }
}
