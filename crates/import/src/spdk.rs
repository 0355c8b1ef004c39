//! The JSON of SPDK's `save_config`: calls of its JSON-RPC in order, by subsystem.
//!
//! `{"subsystems": [{"subsystem": "bdev", "config": [{"method": ..., "params": {...}}]}]}`.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use server::check;

use crate::model::{
    AnaModel, Backing, InitiatorModel, LoginPair, LunModel, NamespaceModel, Notes, Spoken,
    SubsystemModel, TargetModel, VolumeModel,
};
use crate::nvmetcli::see_all;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{Known, SourceKey, number};
use crate::volumes::KnownVolumes;
use crate::{Import, json, note, other_transport};

mod hosts;

const KNOWN: &[Known] = &[
    ("tgt_name", Default, "weft is one target"),
    ("adrfam", Default, "the address says it"),
    (
        "max_namespaces",
        Default,
        "weft sets no bound for one subsystem",
    ),
    ("ana_reporting", Default, "weft has ANA for every subsystem"),
    ("cpumask", Default, "see `cpus` of [policy]"),
    ("private", Lost, "weft names all portals of a target"),
    ("timeout", Default, "weft has its own"),
    (
        "ptpl_file",
        Lost,
        "what reservations were held has to be taken anew",
    ),
    ("no_metadata", Default, "weft keeps no metadata"),
    ("hide_metadata", Default, "weft keeps no metadata"),
    ("md_size", Lost, "weft keeps no metadata"),
    ("dif_type", Lost, "weft keeps no protection information"),
    (
        "dif_is_head_of_md",
        Lost,
        "weft keeps no protection information",
    ),
    (
        "physical_block_size",
        Default,
        "weft says what suits the volume",
    ),
    (
        "optimal_io_boundary",
        Default,
        "weft says what suits the volume",
    ),
    (
        "fallocate",
        Default,
        "weft punches holes where the file system can",
    ),
    ("sock_impl", Default, "weft has its own sockets"),
    (
        "passthrough",
        Lost,
        "weft has volumes, and hands no controller through",
    ),
];

/// Methods that weft has no use for, by how they begin.
const UNUSED: &[(&str, &str)] = &[
    ("accel_", "weft computes digests itself"),
    ("bdev_set_options", "weft has no such pools"),
    ("bdev_wait_for_examine", "weft examines nothing"),
    (
        "bdev_nvme_set_options",
        "weft serves no local NVMe device by itself",
    ),
    (
        "bdev_nvme_set_hotplug",
        "weft serves no local NVMe device by itself",
    ),
    ("bdev_iscsi_set_options", "weft uses no remote disk"),
    ("bdev_raid_set_options", "weft has no RAID"),
    ("dpdk_", "weft needs no DPDK"),
    ("framework_", "weft has its own threads: see [policy]"),
    ("iobuf_", "see `memory_max` of [policy]"),
    (
        "keyring_linux_set_options",
        "`keyring:` before its description names a key of the kernel's",
    ),
    ("log_", "see WEFT_LOG"),
    ("notify_", "weft has its own log"),
    ("nvmf_set_config", "weft has its own scheduling"),
    ("nvmf_set_max_subsystems", "weft sets no bound"),
    ("nvmf_set_crdt", "weft has its own"),
    ("scheduler_", "weft has its own threads: see [policy]"),
    ("sock_", "weft has its own sockets"),
    ("thread_", "weft has its own threads: see [policy]"),
    ("trace_", "weft has its own log"),
    ("vmd_", "weft drives no hardware"),
];

const STATES: &[(&str, &str)] = &[
    ("optimized", "optimized"),
    ("non_optimized", "non-optimized"),
    ("inaccessible", "inaccessible"),
];

/// What calls have made so far.
#[derive(Default)]
pub(crate) struct Spdk {
    volumes: KnownVolumes,
    /// The volume of each block device; `None`: it is left out, and that is told.
    pub bdevs: HashMap<String, Option<String>>,
    logins: HashMap<u64, Vec<LoginPair>>,
    portals: HashMap<u64, Vec<SocketAddr>>,
    initiators: HashMap<u64, (Vec<String>, Vec<String>)>,
    node_base: Option<String>,
    /// There are block devices of which the file does not say what they are called: drivers and
    /// metadata make them.
    pub finds_more: bool,
    /// Of a subsystem: its number, and an nsid, a volume or a host that it has.
    taken: HashSet<(usize, String)>,
    /// The files with keys, by their names.
    key_files: HashMap<String, String>,
    /// The highest nsid of each subsystem.
    last_nsid: HashMap<usize, u32>,
}

pub(crate) fn read(import: &mut Import, text: &str) {
    let tree = match json::read(text, 0) {
        Ok(tree) => tree,
        Err((place, why)) => return import.report.mistake(place, why),
    };
    tree.see();
    if tree.key("subsystems").is_none() {
        let text = "there is no `subsystems`: this is no file of SPDK's `save_config`";
        return import.report.mistake(tree.place, text);
    }
    let mut spdk = Spdk::default();
    for subsystem in tree.items("subsystems") {
        let _ = subsystem.key("subsystem");
        for call in subsystem.items("config") {
            spdk.call(import, call);
        }
    }
    tree.tell_rest(KNOWN, &mut import.report);
}

impl Spdk {
    pub fn call(&mut self, import: &mut Import, call: &SourceKey) {
        let empty = SourceKey::default();
        let (Some(method), params) = (call.key("method"), call.key("params")) else {
            let text = "a call has no `method`";
            return import.report.mistake(call.place, text);
        };
        let params = params.unwrap_or(&empty);
        match method.word().unwrap_or_default() {
            "bdev_malloc_create" => self.memory(import, params, Backing::Ram),
            "bdev_null_create" => self.memory(import, params, Backing::Null),
            "bdev_aio_create" | "bdev_uring_create" => self.file(import, params),
            "nvmf_create_transport" => transport(import, params),
            "nvmf_create_subsystem" => self.subsystem(import, params),
            "nvmf_subsystem_allow_any_host" => allow_any(import, params),
            "keyring_file_add_key" => self.key_file(import, params),
            "nvmf_subsystem_add_host" => self.host(import, params),
            "nvmf_subsystem_add_ns" => self.namespace(import, params),
            "nvmf_ns_add_host" => namespace_host(import, params),
            "nvmf_subsystem_add_listener" => listener(import, params),
            "nvmf_subsystem_listener_set_ana_state" => ana_state(import, params),
            "nvmf_discovery_add_referral" => referral(import, params),
            "iscsi_set_options" => self.options(import, params),
            "iscsi_set_discovery_auth" => discovery(import, params),
            "iscsi_create_auth_group" => self.auth_group(import, params),
            "iscsi_create_portal_group" => self.portal_group(import, params),
            "iscsi_create_initiator_group" => self.initiator_group(import, params),
            "iscsi_create_target_node" => self.target(import, params),
            other => {
                see_all(params);
                let unused = UNUSED.iter().find(|(start, _)| other.starts_with(start));
                match unused {
                    Some((_, why)) => import.report.add(method.place, other, Default, *why),
                    None => self.unknown(import, method, params),
                }
            }
        }
    }

    /// A call that weft cannot follow; a block device that it makes is left out.
    fn unknown(&mut self, import: &mut Import, method: &SourceKey, params: &SourceKey) {
        let word = method.word().unwrap_or_default();
        self.finds_more |= word.starts_with("bdev_");
        if word.starts_with("bdev_")
            && let Some(name) = params.text("name").or_else(|| params.text("lvol_name"))
        {
            self.bdevs.insert(name.to_owned(), None);
        }
        let why = "weft cannot follow this call: what it makes is left out";
        import.report.add(method.place, word, Access, why);
    }

    fn memory(&mut self, import: &mut Import, params: &SourceKey, backing: Backing) {
        let count = params.text("num_blocks").and_then(number);
        let (Some(name), Some(count)) = (params.key("name"), count) else {
            let text = "a block device in memory needs `name`, `num_blocks` and `block_size`";
            return import.report.mistake(params.place, text);
        };
        let mut volume = VolumeModel::new("", backing);
        let Some(block) = block_bytes(import, params, &mut volume) else {
            let name = name.word().unwrap_or_default();
            self.bdevs.insert(name.to_owned(), None);
            return see_all(params);
        };
        volume.size_bytes = count.checked_mul(block.into());
        volume.notes.set("size", "`num_blocks` and `block_size`");
        if let Backing::Null = volume.backing {
            volume.notes.set("kind", "reads of weft's yield zeros");
        }
        self.add(import, params, name, volume);
    }

    fn file(&mut self, import: &mut Import, params: &SourceKey) {
        let (Some(name), Some(path)) = (params.key("name"), params.key("filename")) else {
            let text = "a block device of a file needs `name` and `filename`";
            return import.report.mistake(params.place, text);
        };
        let backing = Backing::of_path(path.word().unwrap_or_default());
        let mut volume = VolumeModel::new("", backing);
        if block_bytes(import, params, &mut volume).is_none() {
            let name = name.word().unwrap_or_default();
            self.bdevs.insert(name.to_owned(), None);
            return see_all(params);
        }
        volume.notes.set("path", note(path));
        volume.read_only = params.flag("readonly") == Some(true);
        self.add(import, params, name, volume);
    }

    fn add(
        &mut self,
        import: &mut Import,
        params: &SourceKey,
        name: &SourceKey,
        mut volume: VolumeModel,
    ) {
        let word = name.word().unwrap_or_default();
        if word.is_empty() || self.bdevs.contains_key(word) {
            let text = format!("a block device {word:?} is there already: give it its own name");
            return import.report.mistake(name.place, text);
        }
        word.clone_into(&mut volume.name);
        volume.notes.set("name", note(name));
        if let Some(uuid) = params.key("uuid")
            && let Some(word) = uuid.word()
        {
            volume.identify("uuid", word.to_ascii_lowercase(), note(uuid));
        }
        let volume = self.volumes.add(import, name, volume);
        self.bdevs.insert(word.to_owned(), Some(volume));
    }

    /// The volume of a block device, unless it is left out.
    pub fn volume(&mut self, import: &mut Import, bdev: &SourceKey) -> Option<String> {
        let name = bdev.word().unwrap_or_default();
        match self.bdevs.get(name) {
            Some(Some(volume)) => Some(volume.clone()),
            Some(None) => {
                let why = format!("the block device {name} is left out, and so is this");
                import.report.add(bdev.place, &bdev.name, Access, why);
                None
            }
            None if self.finds_more => {
                let why = format!(
                    "{name} is found by a driver or by metadata, which weft does not look for: \
                     it is left out"
                );
                import.report.add(bdev.place, &bdev.name, Access, why);
                None
            }
            None => {
                let text =
                    format!("there is no block device {name:?}: make it before, or take this out");
                import.report.mistake(bdev.place, text);
                None
            }
        }
    }

    fn subsystem(&mut self, import: &mut Import, params: &SourceKey) {
        let Some(nqn) = params.key("nqn") else {
            return import
                .report
                .mistake(params.place, "a subsystem has no `nqn`");
        };
        let name = nqn.word().unwrap_or_default();
        if name == "nqn.2014-08.org.nvmexpress.discovery" {
            return see_all(params);
        }
        if !import.fits(nqn, nvmf::check_subsystem_nqn(name)) {
            return see_all(params);
        }
        let number_of = import.model.subsystems.len();
        if import.named.insert(name.to_owned(), number_of).is_some() {
            let text = format!("a subsystem {name} is there already");
            return import.report.mistake(nqn.place, text);
        }
        let mut subsystem = SubsystemModel {
            nqn: name.to_owned(),
            hosts: Some(Vec::new()),
            listeners: Some(Vec::new()),
            ..SubsystemModel::default()
        };
        subsystem.notes.set("nqn", note(nqn));
        subsystem.notes.set("hosts", "`nvmf_subsystem_add_host`");
        subsystem
            .notes
            .set("listeners", "`nvmf_subsystem_add_listener`");
        if params.flag("allow_any_host") == Some(true) {
            subsystem.hosts = None;
            subsystem.notes.set("allow_any_host", "`allow_any_host`");
        }
        controller_names(import, params, &mut subsystem);
        import.model.subsystems.push(subsystem);
    }

    fn namespace(&mut self, import: &mut Import, params: &SourceKey) {
        let Some(namespace) = params.key("namespace") else {
            return import
                .report
                .mistake(params.place, "there is no `namespace`");
        };
        let Some(bdev) = namespace.key("bdev_name") else {
            return import
                .report
                .mistake(namespace.place, "a namespace has no `bdev_name`");
        };
        let Some(at) = subsystem_of(import, params) else {
            return see_all(params);
        };
        let Some(volume) = self.volume(import, bdev) else {
            return see_all(params);
        };
        let last = self.last_nsid.entry(at).or_default();
        let free = last.saturating_add(1);
        let said = namespace.text("nsid").and_then(number);
        let nsid = match check::nsid(said.filter(|nsid| *nsid > 0).unwrap_or(free.into())) {
            Ok(nsid) => nsid,
            Err(why) => return import.report.mistake(namespace.place, why),
        };
        *last = nsid.max(*last);
        let mut take = |what: String| self.taken.insert((at, what));
        if !take(format!("nsid {nsid}")) || !take(format!("volume {volume}")) {
            let text = format!("nsid {nsid} or {volume} is a namespace of the subsystem already");
            return import.report.mistake(namespace.place, text);
        }
        identify(import, namespace, &volume);
        let group = namespace.text("anagrpid").and_then(number);
        let mut notes = Notes::default();
        notes.set("nsid", format!("`nsid`, line {}", namespace.place.line));
        notes.set("volume", note(bdev));
        notes.set("ana_group", "`anagrpid`");
        let is_hidden = namespace.flag("no_auto_visible") == Some(true);
        notes.set("hosts", "`nvmf_ns_add_host`");
        let ana_group = match group.map(check::ana_group) {
            None => 1,
            Some(Ok(group)) => group,
            Some(Err(why)) => return import.report.mistake(namespace.place, why),
        };
        import.model.subsystems[at].namespaces.push(NamespaceModel {
            nsid,
            volume,
            ana_group,
            hosts: is_hidden.then(Vec::new),
            notes,
        });
    }

    fn options(&mut self, import: &mut Import, params: &SourceKey) {
        self.node_base = params.text("node_base").map(str::to_owned);
        discovery(import, params);
        if let Some(file) = params.key("auth_file").filter(|file| file.word().is_some()) {
            let why = "secrets stand in a file of their own, which is not read: add them";
            import.report.add(file.place, "auth_file", Access, why);
        }
        see_all(params);
        let why = "limits of SPDK: weft has its own, see [iscsi]";
        import
            .report
            .add(params.place, "iscsi_set_options", Default, why);
    }

    fn auth_group(&mut self, import: &mut Import, params: &SourceKey) {
        let tag = params.text("tag").and_then(number).unwrap_or(0);
        let mut list = Vec::new();
        for secret in params.items("secrets") {
            let chap = secret.text("user").zip(secret.text("secret"));
            let mutual = secret.text("muser").zip(secret.text("msecret"));
            let logins = chap.and_then(|chap| import.logins(secret, chap, mutual));
            list.extend(logins);
        }
        self.logins.insert(tag, list);
    }

    fn portal_group(&mut self, import: &mut Import, params: &SourceKey) {
        let tag = params.text("tag").and_then(number).unwrap_or(0);
        let mut portals = Vec::new();
        for portal in params.items("portals") {
            let host = portal.text("host").unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = portal.text("port").unwrap_or("3260").parse::<u16>();
            let (Ok(ip), Ok(port @ 1..)) = (host.parse(), port) else {
                let text = format!("{host:?} is no IP address with a port");
                import.report.mistake(portal.place, text);
                continue;
            };
            let address = SocketAddr::new(ip, port);
            import.listen(portal, address, Spoken::Iscsi);
            portals.push(address);
        }
        self.portals.insert(tag, portals);
    }

    fn initiator_group(&mut self, import: &mut Import, params: &SourceKey) {
        let tag = params.text("tag").and_then(number).unwrap_or(0);
        let words = |name: &str| params.key(name).map_or(Vec::new(), |key| key.words.clone());
        let (names, masks) = (words("initiators"), words("netmasks"));
        let group = initiators_of(import, params, &names, &masks);
        self.initiators.insert(tag, group);
    }

    fn target(&mut self, import: &mut Import, params: &SourceKey) {
        let Some(name) = params.key("name") else {
            return import
                .report
                .mistake(params.place, "a target has no `name`");
        };
        let word = name.word().unwrap_or_default();
        let starts = ["iqn.", "eui.", "naa."];
        let whole = match starts.iter().any(|start| word.starts_with(start)) {
            true => word.to_owned(),
            false => {
                let base = self.node_base.as_deref().unwrap_or("iqn.2016-06.io.spdk");
                format!("{base}:{word}")
            }
        };
        let Some(mut target) = import.target(name, &whole) else {
            return see_all(params);
        };
        if let Some(alias) = params.key("alias_name") {
            import.alias(alias, &mut target);
        }
        if let Some(depth) = params.key("queue_depth") {
            import.term(depth, &mut target, "64");
        }
        for (theirs, ours) in [
            ("header_digest", "header_digest"),
            ("data_digest", "data_digest"),
        ] {
            if params.flag(theirs) == Some(true) {
                target.terms.insert(ours, "\"required\"".to_owned());
                target.notes.set(ours, format!("`{theirs}`"));
            }
        }
        for lun in params.items("luns") {
            let Some(bdev) = lun.key("bdev_name") else {
                import.report.mistake(lun.place, "a LUN has no `bdev_name`");
                continue;
            };
            let id = lun.text("lun_id").and_then(number);
            let id = id.unwrap_or(target.luns.len() as u64);
            self.lun(import, &mut target, bdev, id);
        }
        let demands = params.flag("require_chap") == Some(true);
        let group = params.text("chap_group").and_then(number).unwrap_or(0);
        let logins = match params.flag("disable_chap") == Some(true) || group == 0 && !demands {
            true => Some(LoginPair::default()),
            false => self.login_of(import, params, group),
        };
        let maps: Vec<(u64, u64, SourceKey)> = params
            .items("pg_ig_maps")
            .map(|map| {
                let tag = |name: &str| map.text(name).and_then(number).unwrap_or(0);
                (tag("pg_tag"), tag("ig_tag"), map.clone())
            })
            .collect();
        self.map(import, &mut target, &maps, logins);
        import.model.targets.push(target);
    }

    pub fn lun(
        &mut self,
        import: &mut Import,
        target: &mut TargetModel,
        bdev: &SourceKey,
        id: u64,
    ) {
        let Some(volume) = self.volume(import, bdev) else {
            return;
        };
        let lun = match check::lun(id) {
            Ok(lun) => lun,
            Err(why) => return import.report.mistake(bdev.place, why),
        };
        let is_same = |known: &LunModel| known.lun == lun || known.volume == volume;
        if target.luns.iter().any(is_same) {
            let text = format!("LUN {lun} or {volume} is in the target already");
            return import.report.mistake(bdev.place, text);
        }
        scsi_identity(import, bdev, &volume);
        let mut notes = Notes::default();
        notes.set("lun", "`lun_id`");
        notes.set("volume", note(bdev));
        target.luns.push(LunModel {
            lun,
            volume,
            ana_group: 1,
            read_only: false,
            notes,
        });
    }

    /// The login of a group: weft has one for each initiator.
    fn login_of(
        &mut self,
        import: &mut Import,
        params: &SourceKey,
        group: u64,
    ) -> Option<LoginPair> {
        let list = self.logins.get(&group).map_or(&[][..], Vec::as_slice);
        match list {
            [one] => Some(one.clone()),
            _ => {
                let why = format!(
                    "group {group} has {} secrets that weft could take, and weft takes one for \
                     all of a target, or one for each initiator by name: nobody is let in",
                    list.len()
                );
                import.report.add(params.place, "chap_group", Access, why);
                None
            }
        }
    }

    /// Who is let in, and where; without a login nobody is.
    pub fn map(
        &mut self,
        import: &mut Import,
        target: &mut TargetModel,
        maps: &[(u64, u64, SourceKey)],
        logins: Option<LoginPair>,
    ) {
        let mut portals: Vec<SocketAddr> = Vec::new();
        let mut groups: HashSet<u64> = HashSet::new();
        for (portal_group, initiator_group, at) in maps {
            match self.portals.get(portal_group) {
                Some(found) => portals.extend(found),
                None => {
                    let text = format!("there is no portal group {portal_group}: make it before");
                    import.report.mistake(at.place, text);
                }
            }
            let Some((names, networks)) = self.initiators.get(initiator_group) else {
                let text = format!("there is no initiator group {initiator_group}: make it before");
                import.report.mistake(at.place, text);
                continue;
            };
            if groups.insert(*initiator_group) && logins.is_some() {
                let_in(target, names, networks);
            }
        }
        if maps.iter().any(|(tag, ..)| *tag != maps[0].0) && groups.len() > 1 {
            let why = "initiators that were let in by one portal group are let in by all of them";
            let place = maps[0].2.place;
            import.report.add(place, "pg_ig_maps", Access, why);
            target.initiators.clear();
            target.any_initiator = false;
        }
        portals.sort();
        portals.dedup();
        target.portals = Some(portals);
        target.logins = logins.unwrap_or_default();
        target
            .notes
            .set("initiators", "the source lets nobody in whom weft could");
        target
            .notes
            .set("allow_any_initiator", "an initiator group for ANY");
    }
}

/// Serial and model number, and the identifiers that controllers get.
fn controller_names(import: &mut Import, params: &SourceKey, subsystem: &mut SubsystemModel) {
    let texts = [
        (
            "serial_number",
            "serial",
            check::SERIAL_BYTES,
            &mut subsystem.serial,
        ),
        (
            "model_number",
            "model",
            check::MODEL_BYTES,
            &mut subsystem.model,
        ),
    ];
    for (theirs, ours, bytes_max, place) in texts {
        let Some(key) = params.key(theirs) else {
            continue;
        };
        let Some(text) = key.word() else { continue };
        match check::fixed_text(theirs, text, bytes_max) {
            Ok(()) => *place = Some(text.to_owned()),
            Err(why) => import.report.add(key.place, theirs, Lost, why),
        }
        subsystem.notes.set(ours, note(key));
    }
    if subsystem.model.is_none() {
        subsystem.model = Some("SPDK bdev Controller".to_owned());
        subsystem.notes.set("model", "default of SPDK");
    }
    let end = |name: &str| params.text(name).and_then(|text| text.parse::<u16>().ok());
    if let Some((first, last)) = end("min_cntlid").zip(end("max_cntlid"))
        && check::cntlids(&(first..=last)).is_ok()
        && (first, last) != (1, 65_519)
    {
        subsystem.cntlids = Some((first, last));
        subsystem
            .notes
            .set("cntlids", "`min_cntlid` and `max_cntlid`");
    }
}

fn let_in(target: &mut TargetModel, names: &[String], networks: &[String]) {
    for name in names {
        if name == "ANY" {
            if !target.any_initiator {
                target.networks.extend_from_slice(networks);
            } else if networks.is_empty() {
                target.networks.clear();
            } else if !target.networks.is_empty() {
                target.networks.extend_from_slice(networks);
            }
            target.any_initiator = true;
            continue;
        }
        let is_same = |known: &InitiatorModel| known.name.as_ref() == Some(name);
        if target.initiators.iter().any(is_same) {
            continue;
        }
        let mut initiator = InitiatorModel {
            name: Some(name.clone()),
            networks: networks.to_vec(),
            ..InitiatorModel::default()
        };
        initiator.notes.set("name", "an initiator group");
        initiator.notes.set("networks", "its netmasks");
        target.initiators.push(initiator);
    }
}

/// Names and networks of an initiator group: names that weft could not compare are left out,
/// and a group with exceptions lets nobody in.
pub(crate) fn initiators_of(
    import: &mut Import,
    at: &SourceKey,
    names: &[String],
    masks: &[String],
) -> (Vec<String>, Vec<String>) {
    let mut found: Vec<String> = Vec::new();
    if let Some(name) = names.iter().find(|name| name.starts_with('!')) {
        let why = format!("{name}: weft has no exceptions: nobody of this group is let in");
        import.report.add(at.place, "initiators", Access, why);
        return (found, Vec::new());
    }
    for name in names {
        match name.as_str() {
            "ANY" | "ALL" => found.push("ANY".to_owned()),
            name => found.extend(import.initiator(at, name)),
        }
    }
    let mut networks: Vec<String> = Vec::new();
    for mask in masks {
        let network = mask.replace(['[', ']'], "");
        let address = network.split('/').next().unwrap_or_default();
        match mask.as_str() {
            "ANY" | "ALL" => return (found, Vec::new()),
            _ if address.parse::<std::net::IpAddr>().is_ok() => networks.push(network),
            _ => {
                let text = format!("{mask:?} is no network: write 192.0.2.0/24");
                import.report.mistake(at.place, text);
            }
        }
    }
    if networks.is_empty() {
        let why = "a group without a network: nobody of it is let in";
        import.report.add(at.place, "netmasks", Access, why);
        found.clear();
    }
    (found, networks)
}

fn block_bytes(import: &mut Import, params: &SourceKey, volume: &mut VolumeModel) -> Option<u32> {
    let key = params.key("block_size");
    let bytes = match key.and_then(SourceKey::word) {
        Some("512") => 512,
        Some("4096") => 4096,
        None | Some("0") => {
            let why = "the blocks are as large as the device's, which stands nowhere: 512 is \
                       written, see `blockdev --getss`";
            import.report.add(params.place, "block_size", Lost, why);
            volume
                .notes
                .set("block_bytes", "default: see `blockdev --getss`");
            return Some(512);
        }
        Some(other) => {
            let why = format!("weft has blocks of 512 and 4096 bytes, not {other}: it is left out");
            import.report.add(params.place, "block_size", Access, why);
            return None;
        }
    };
    volume.block_bytes = bytes;
    volume
        .notes
        .set("block_bytes", key.map(note).unwrap_or_default());
    Some(bytes)
}

/// What hosts know the namespace by, which is the volume's here.
fn identify(import: &mut Import, namespace: &SourceKey, volume: &str) {
    let Some(at) = import.volume_named.get(volume) else {
        return;
    };
    let known = &mut import.model.volumes[*at];
    for name in ["uuid", "nguid", "eui64"] {
        let Some(key) = namespace.key(name) else {
            continue;
        };
        let Some(word) = key.word() else { continue };
        let value = word.to_ascii_lowercase();
        let is_zero = value.chars().all(|c| matches!(c, '0' | '-'));
        if !is_zero {
            known.identify(name, value, note(key));
        }
    }
}

/// What INQUIRY of SPDK says: the serial number is the block device's name, and the NAA
/// designator follows from its first 16 characters, two to a byte, as Intel's.
pub(crate) fn scsi_identity(import: &mut Import, bdev: &SourceKey, volume: &str) {
    let Some(at) = import.volume_named.get(volume) else {
        return;
    };
    let known = &mut import.model.volumes[*at];
    let name = bdev.word().unwrap_or_default();
    let mut bytes = [0u8; 8];
    for (nth, c) in name.bytes().take(16).enumerate() {
        let lower = c.to_ascii_lowercase();
        let value = char::from(lower)
            .to_digit(16)
            .map_or(lower, |digit| digit as u8);
        match nth % 2 {
            0 => bytes[nth / 2] = value,
            _ => bytes[nth / 2] |= value << 4,
        }
    }
    let naa = u64::from_le_bytes(bytes) & 0x0fff_0000_00ff_ffff | 0x2000_0003_4700_0000;
    let said = || "as SPDK makes it of the name of the block device".to_owned();
    known.identify("naa", format!("{naa:016x}"), said());
    known.identify("serial", name, said());
    known.identify("vendor", "INTEL", "what SPDK says".to_owned());
    known.identify("revision", "0001", "what SPDK says".to_owned());
    let product = match &known.backing {
        Backing::Ram => "Malloc disk",
        Backing::Null => "Null disk",
        Backing::File(_) | Backing::Block(_) => "AIO disk",
    };
    known.identify("product", product, "what SPDK says of it".to_owned());
}

fn transport(import: &mut Import, params: &SourceKey) {
    let kind = params
        .text("trtype")
        .unwrap_or_default()
        .to_ascii_lowercase();
    see_all(params);
    match kind.as_str() {
        "tcp" => {
            let why = "limits of SPDK: weft has its own, see [nvme]";
            import
                .report
                .add(params.place, "nvmf_create_transport", Default, why);
        }
        other => {
            let why = other_transport(other);
            import.report.add(params.place, "trtype", Lost, why);
        }
    }
}

/// The place of the subsystem that a call names. One that is left out is told already.
fn subsystem_of(import: &mut Import, params: &SourceKey) -> Option<usize> {
    let nqn = params.key("nqn");
    let name = nqn.and_then(SourceKey::word).unwrap_or_default();
    let found = import.named.get(name).copied();
    if found.is_none() && nvmf::check_subsystem_nqn(name).is_ok() {
        let place = nqn.map_or(params.place, |nqn| nqn.place);
        let text = format!("there is no subsystem {name:?}: make it before");
        import.report.mistake(place, text);
    }
    found
}

fn allow_any(import: &mut Import, params: &SourceKey) {
    let is_off = params.flag("disable").unwrap_or(false);
    if let Some(at) = subsystem_of(import, params) {
        let hosts = &mut import.model.subsystems[at].hosts;
        match is_off {
            true => *hosts = Some(hosts.take().unwrap_or_default()),
            false => *hosts = None,
        }
    }
}

fn namespace_host(import: &mut Import, params: &SourceKey) {
    let nsid = params.text("nsid").and_then(number);
    let host = params.text("host").unwrap_or_default();
    let Some(at) = subsystem_of(import, params) else {
        return see_all(params);
    };
    if !import.fits(params, nvmf::check_host_nqn(host)) {
        return;
    }
    let namespaces = &mut import.model.subsystems[at].namespaces;
    let found = namespaces
        .iter_mut()
        .find(|known| Some(known.nsid.into()) == nsid);
    let Some(namespace) = found else {
        let text = "there is no namespace of this `nsid`: make it before";
        return import.report.mistake(params.place, text);
    };
    if let Some(hosts) = &mut namespace.hosts {
        hosts.push(host.to_owned());
    }
}

/// The address of a call, if it is one for TCP.
fn tcp_address(import: &mut Import, at: &SourceKey) -> Option<SocketAddr> {
    let kind = at.text("trtype").unwrap_or_default().to_ascii_lowercase();
    let (ip, port) = (at.text("traddr").unwrap_or_default(), at.text("trsvcid"));
    if kind != "tcp" {
        import
            .report
            .add(at.place, "trtype", Access, other_transport(&kind));
        return None;
    }
    let port = port.unwrap_or("4420").parse::<u16>();
    let (Ok(ip), Ok(port @ 1..)) = (ip.parse(), port) else {
        let text = format!("{ip:?} with its `trsvcid` is no IP address with a port");
        import.report.mistake(at.place, text);
        return None;
    };
    Some(SocketAddr::new(ip, port))
}

fn listener(import: &mut Import, params: &SourceKey) {
    if params.flag("secure_channel") == Some(true) {
        let why = "a host with a key (`psk_file`) connects by TLS alone, others in the clear: give \
                   each host one";
        import
            .report
            .add(params.place, "secure_channel", Access, why);
    }
    let Some(at) = params.key("listen_address") else {
        return import
            .report
            .mistake(params.place, "there is no `listen_address`");
    };
    let is_discovery = params.text("nqn") == Some("nqn.2014-08.org.nvmexpress.discovery");
    let Some(address) = tcp_address(import, at) else {
        return see_all(params);
    };
    if is_discovery {
        return import.listen_for(at, address, Spoken::NvmeTcp, true);
    }
    let Some(subsystem) = subsystem_of(import, params) else {
        return see_all(params);
    };
    import.listen(at, address, Spoken::NvmeTcp);
    let state = params.text("ana_state").and_then(state_of);
    let subsystem = &mut import.model.subsystems[subsystem];
    if let Some(listeners) = &mut subsystem.listeners
        && !listeners.contains(&address)
    {
        listeners.push(address);
        listeners.sort();
    }
    if let Some(state) = state.filter(|state| *state != "optimized") {
        set_state(subsystem, None, address, state);
    }
}

fn state_of(word: &str) -> Option<&'static str> {
    let found = STATES.iter().find(|(theirs, _)| *theirs == word);
    found.map(|(_, ours)| *ours)
}

/// Sets the state of one group there, or of every group that a namespace is in.
fn set_state(
    subsystem: &mut SubsystemModel,
    group: Option<u32>,
    address: SocketAddr,
    state: &'static str,
) {
    let used: HashSet<u32> = subsystem
        .namespaces
        .iter()
        .map(|namespace| namespace.ana_group)
        .collect();
    let mut groups: Vec<u32> = match group {
        Some(group) => used.into_iter().filter(|used| *used == group).collect(),
        None => used.into_iter().collect(),
    };
    groups.sort_unstable();
    for group in groups {
        let is_same =
            |known: &AnaModel<SocketAddr>| known.group == group && known.at == Some(address);
        subsystem.ana.retain(|known| !is_same(known));
        if state != "optimized" {
            let mut found = Notes::default();
            found.set("state", "`ana_state`");
            subsystem.ana.push(AnaModel {
                group,
                at: Some(address),
                state,
                note: found,
            });
        }
    }
}

fn ana_state(import: &mut Import, params: &SourceKey) {
    let state = params.text("ana_state").and_then(state_of);
    let group = params.text("anagrpid").and_then(|group| group.parse().ok());
    let address = params.key("listen_address");
    let address = address.and_then(|address| tcp_address(import, address));
    let subsystem = subsystem_of(import, params);
    match (state, address, subsystem) {
        (Some(state), Some(address), Some(at)) => {
            set_state(&mut import.model.subsystems[at], group, address, state);
        }
        (None, ..) => import.report.mistake(
            params.place,
            "`ana_state` is optimized, non_optimized or inaccessible",
        ),
        _ => see_all(params),
    }
}

fn referral(import: &mut Import, params: &SourceKey) {
    let Some(at) = params.key("address") else {
        return import.report.mistake(params.place, "there is no `address`");
    };
    if let Some(address) = tcp_address(import, at) {
        import.model.referrals.push(address.to_string());
        import.model.referrals.dedup();
    }
    see_all(params);
}

fn discovery(import: &mut Import, params: &SourceKey) {
    if params.flag("require_chap") == Some(true) {
        let why = "discovery demanded a secret of a group: it demands nothing here; see \
                   [iscsi.discovery]";
        import.report.add(params.place, "require_chap", Access, why);
    }
}
