//! saveconfig.json(5) of targetcli and rtslib: what the kernel's SCSI target (LIO) serves.
//!
//! `storage_objects` (`plugin`, `name`, `dev`, `size`, `wwn`, `attributes`, `alua_tpgs`);
//! `targets` (`fabric`, `wwn`, `tpgs` with `attributes`, `parameters`, `portals`, `luns`,
//! `node_acls`); `fabric_modules` with what discovery demands.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use server::check;

use crate::model::{
    AnaModel, Backing, InitiatorModel, LoginPair, LunModel, Notes, Spoken, TargetModel, VolumeModel,
};
use crate::nvmetcli::see_all;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{Known, SourceKey, number};
use crate::volumes::KnownVolumes;
use crate::{Import, json, note};

const KNOWN: &[Known] = &[
    ("fabric", Default, "iSCSI"),
    (
        "alias",
        Default,
        "a name inside configfs, which no initiator sees",
    ),
    (
        "write_back",
        Default,
        "weft flushes when initiators ask, and says that it has a cache",
    ),
    ("aio", Default, "weft has its own way to a file"),
    ("buffered_mode", Default, "weft has its own way to a file"),
    ("block_size", Default, "`block_bytes`"),
    ("hw_block_size", Default, "the device says it"),
    ("hw_max_sectors", Default, "see `io_bytes_max` of [iscsi]"),
    ("hw_queue_depth", Default, "see `queue_depth` of [iscsi]"),
    ("optimal_sectors", Default, "weft says what suits it"),
    ("queue_depth", Default, "see `queue_depth` of [iscsi]"),
    (
        "max_unmap_block_desc_count",
        Default,
        "weft has its own limit",
    ),
    ("max_unmap_lba_count", Default, "weft has its own limit"),
    ("max_write_same_len", Default, "weft has its own limit"),
    (
        "unmap_granularity",
        Default,
        "weft says what suits the volume",
    ),
    (
        "unmap_granularity_alignment",
        Default,
        "weft says what suits the volume",
    ),
    (
        "unmap_zeroes_data",
        Default,
        "weft says what holds for the volume",
    ),
    ("emulate_3pc", Default, "weft has EXTENDED COPY"),
    ("emulate_caw", Default, "weft has COMPARE AND WRITE"),
    ("emulate_dpo", Default, "weft takes DPO"),
    ("emulate_fua_read", Default, "weft has FUA"),
    ("emulate_fua_write", Default, "weft has FUA"),
    ("emulate_model_alias", Default, "`product`"),
    (
        "emulate_pr",
        Default,
        "weft has persistent reservations; what is held has to be taken anew",
    ),
    (
        "emulate_rest_reord",
        Default,
        "weft orders commands as their attributes say",
    ),
    (
        "emulate_rsoc",
        Default,
        "weft has REPORT SUPPORTED OPERATION CODES",
    ),
    ("emulate_tas", Default, "weft aborts with TASK ABORTED"),
    ("emulate_tpu", Default, "weft has UNMAP"),
    ("emulate_tpws", Default, "weft has WRITE SAME with UNMAP"),
    ("emulate_ua_intlck_ctrl", Default, "weft has its own"),
    (
        "emulate_write_cache",
        Default,
        "weft says that it has a cache",
    ),
    (
        "enforce_pr_isids",
        Default,
        "weft tells initiator ports apart by ISID",
    ),
    (
        "force_pr_aptpl",
        Lost,
        "weft keeps reservations over a restart if the initiator asks",
    ),
    ("alua_support", Default, "weft has ALUA"),
    ("pgr_support", Default, "weft has persistent reservations"),
    (
        "cmd_completion_affinity",
        Default,
        "of the kernel's threads",
    ),
    ("complete_type", Default, "of the kernel's threads"),
    ("submit_type", Default, "of the kernel's threads"),
    (
        "is_nonrot",
        Default,
        "weft says that it is no disk that turns",
    ),
    (
        "pi_prot_format",
        Lost,
        "weft keeps no protection information",
    ),
    ("pi_prot_type", Lost, "weft keeps no protection information"),
    (
        "pi_prot_verify",
        Lost,
        "weft keeps no protection information",
    ),
    (
        "fabric_prot_type",
        Lost,
        "weft keeps no protection information",
    ),
    ("t10_pi", Lost, "weft keeps no protection information"),
    ("company_id", Lost, "weft takes the identity as a whole"),
    (
        "cache_dynamic_acls",
        Default,
        "weft keeps nothing of initiators that have left",
    ),
    (
        "demo_mode_discovery",
        Default,
        "weft tells initiators only of targets that let them in",
    ),
    (
        "prod_mode_write_protect",
        Lost,
        "see the LUNs of each initiator",
    ),
    ("default_erl", Default, "`error_recovery_level`"),
    ("login_timeout", Default, "weft has its own"),
    ("netif_timeout", Default, "weft has its own"),
    (
        "login_keys_workaround",
        Default,
        "weft takes the keys in any order",
    ),
    (
        "tpg_enabled_sendtargets",
        Default,
        "weft names targets where they are reached",
    ),
    (
        "AuthMethod",
        Default,
        "weft demands CHAP where a secret is given",
    ),
    ("DataPDUInOrder", Default, "weft keeps the order"),
    ("DataSequenceInOrder", Default, "weft keeps the order"),
    ("DefaultTime2Retain", Default, "weft has its own"),
    ("DefaultTime2Wait", Default, "weft has its own"),
    ("IFMarkInt", Default, "RFC 7143 has no markers"),
    ("IFMarker", Default, "RFC 7143 has no markers"),
    ("OFMarkInt", Default, "RFC 7143 has no markers"),
    ("OFMarker", Default, "RFC 7143 has no markers"),
    (
        "MaxXmitDataSegmentLength",
        Default,
        "the initiator says what it takes",
    ),
    ("dataout_timeout", Default, "weft has its own"),
    ("dataout_timeout_retries", Default, "weft has its own"),
    (
        "nopin_response_timeout",
        Default,
        "see `nop_in_interval_ms` of [iscsi]",
    ),
    (
        "nopin_timeout",
        Default,
        "see `nop_in_interval_ms` of [iscsi]",
    ),
    (
        "random_datain_pdu_offsets",
        Default,
        "for tests of initiators",
    ),
    (
        "random_datain_seq_offsets",
        Default,
        "for tests of initiators",
    ),
    ("random_r2t_offsets", Default, "for tests of initiators"),
    ("tcq_depth", Default, "see `queue_depth`"),
    ("tag", Default, "weft numbers portal groups itself"),
    ("iser", Default, "iSCSI over TCP"),
    ("offload", Default, "weft uses no offload of a card"),
    ("alua_access_type", Default, "weft says what holds"),
    ("alua_access_status", Default, "weft says what holds"),
    (
        "alua_support_active_nonoptimized",
        Default,
        "weft knows the state",
    ),
    (
        "alua_support_active_optimized",
        Default,
        "weft knows the state",
    ),
    ("alua_support_offline", Default, "weft has no such state"),
    ("alua_support_standby", Default, "weft has no such state"),
    (
        "alua_support_transitioning",
        Default,
        "weft knows the state",
    ),
    ("alua_support_unavailable", Default, "weft knows the state"),
    (
        "alua_write_metadata",
        Default,
        "weft's states stand in its document",
    ),
    (
        "implicit_trans_secs",
        Default,
        "weft changes states at once",
    ),
    ("nonop_delay_msecs", Default, "weft delays nothing"),
    ("preferred", Lost, "weft has no preferred group"),
    ("trans_delay_msecs", Default, "weft changes states at once"),
];

/// Parameters, with the kernel's defaults: what differs was somebody's wish.
const PARAMETERS: &[(&str, &str)] = &[
    ("FirstBurstLength", "65536"),
    ("MaxBurstLength", "262144"),
    ("MaxRecvDataSegmentLength", "8192"),
    ("MaxOutstandingR2T", "1"),
    ("MaxConnections", "1"),
    ("ErrorRecoveryLevel", "0"),
    ("InitialR2T", "Yes"),
    ("ImmediateData", "Yes"),
    ("HeaderDigest", "CRC32C,None"),
    ("DataDigest", "CRC32C,None"),
];

/// ALUA states by their number (SPC-4, section 5.15.2.4.1), and ours.
const STATES: &[(&str, &str)] = &[
    ("0", "optimized"),
    ("1", "non-optimized"),
    ("2", "inaccessible"),
    ("3", "inaccessible"),
    ("14", "inaccessible"),
    ("15", "change"),
];

/// A storage object that is served, and the states of its target port groups.
struct StorageObject {
    volume: String,
    /// By name: its number, and its state.
    groups: HashMap<String, (u32, &'static str)>,
}

type StorageObjects = HashMap<String, Option<StorageObject>>;

pub(crate) fn read(import: &mut Import, text: &str) {
    let tree = match json::read(text, 0) {
        Ok(tree) => tree,
        Err((place, why)) => return import.report.mistake(place, why),
    };
    tree.see();
    if tree.key("storage_objects").is_none() {
        let text = "there is no `storage_objects`: this is no file of targetcli";
        return import.report.mistake(tree.place, text);
    }
    let mut volumes = KnownVolumes::default();
    let mut objects = StorageObjects::new();
    for key in tree.items("storage_objects") {
        read_storage_object(import, key, &mut volumes, &mut objects);
    }
    for target in tree.items("targets") {
        read_target(import, target, &objects);
    }
    for module in tree.items("fabric_modules") {
        read_discovery(import, module);
    }
    tree.tell_rest(KNOWN, &mut import.report);
}

fn read_storage_object(
    import: &mut Import,
    key: &SourceKey,
    volumes: &mut KnownVolumes,
    objects: &mut StorageObjects,
) {
    let (Some(plugin), Some(name)) = (key.text("plugin"), key.text("name")) else {
        let text = "a storage object needs `plugin` and `name`";
        return import.report.mistake(key.place, text);
    };
    let path = format!("/backstores/{plugin}/{name}");
    if objects.contains_key(&path) {
        let text = format!("a storage object {path} is there already: give each its own name");
        return import.report.mistake(key.place, text);
    }
    let wish = read_backing(import, key, plugin, name);
    let Some(mut volume) = wish else {
        see_all(key);
        objects.insert(path, None);
        return;
    };
    volume
        .notes
        .set("name", format!("`name`, line {}", key.place.line));
    read_identity(import, key, name, plugin, &mut volume);
    let volume = volumes.add(import, key, volume);
    let groups = read_groups(import, key);
    objects.insert(path, Some(StorageObject { volume, groups }));
}

fn read_backing(
    import: &mut Import,
    key: &SourceKey,
    plugin: &str,
    name: &str,
) -> Option<VolumeModel> {
    let dev = key.key("dev");
    let path = dev.and_then(SourceKey::word);
    let size = key.key("size");
    let bytes = size.and_then(SourceKey::word).and_then(number);
    let backing = match (plugin, path) {
        ("block" | "fileio", Some(path)) => Backing::of_path(path),
        ("block" | "fileio", None) => {
            let text = format!("{name} has no `dev`: name its device or file");
            import.report.mistake(key.place, text);
            return None;
        }
        ("ramdisk", _) if key.flag("nullio") == Some(true) => Backing::Null,
        ("ramdisk", _) => Backing::Ram,
        _ => {
            let why = format!(
                "{name} is of the kind {plugin:?}, which weft cannot serve: it and its LUNs are \
                 left out"
            );
            import.report.add(key.place, "plugin", Access, why);
            return None;
        }
    };
    let mut volume = VolumeModel::new(name, backing);
    if let Some(dev) = dev {
        volume.notes.set("path", note(dev));
    }
    if let Some(size) = size
        && !matches!(volume.backing, Backing::Block(_))
    {
        volume.size_bytes = bytes;
        volume.notes.set("size", note(size));
    }
    let is_memory = matches!(volume.backing, Backing::Ram | Backing::Null);
    if is_memory && volume.size_bytes.is_none_or(|bytes| bytes == 0) {
        let text = format!("{name} has no `size`: say how many bytes it has");
        import.report.mistake(key.place, text);
    }
    volume.read_only = key.flag("readonly") == Some(true);
    let attributes = key.key("attributes");
    let block = attributes.and_then(|attributes| attributes.key("block_size"));
    match block.and_then(SourceKey::word) {
        None | Some("512") => volume.block_bytes = 512,
        Some("4096") => volume.block_bytes = 4096,
        Some(other) => {
            let why = format!("weft has blocks of 512 and 4096 bytes, not {other}: it is left out");
            import.report.add(key.place, "block_size", Access, why);
            return None;
        }
    }
    let said = match block {
        Some(block) => note(block),
        None => "default of the kernel".to_owned(),
    };
    volume.notes.set("block_bytes", said);
    Some(volume)
}

/// What INQUIRY of LIO says: the NAA designator is 6001405h and the first 25 hexadecimal
/// digits of the serial number, which is `wwn`.
fn read_identity(
    import: &mut Import,
    key: &SourceKey,
    name: &str,
    plugin: &str,
    volume: &mut VolumeModel,
) {
    let Some(wwn) = key.key("wwn").filter(|wwn| wwn.word().is_some()) else {
        let why = format!("{name} has no `wwn`: initiators see a new disk");
        return import.report.add(key.place, "wwn", Lost, why);
    };
    let serial = wwn.word().unwrap_or_default();
    let digits: String = serial
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(25)
        .collect();
    let naa = format!("6001405{digits:0<25}").to_ascii_lowercase();
    volume.identify("naa", naa, format!("as LIO makes it of {}", note(wwn)));
    volume.identify("serial", serial, note(wwn));
    volume.identify("vendor", "LIO-ORG", "what LIO says".to_owned());
    let attributes = key.key("attributes");
    let has_alias = attributes.and_then(|attributes| attributes.flag("emulate_model_alias"));
    let product: String = match (has_alias, plugin) {
        (Some(true), _) => name.chars().take(check::PRODUCT_BYTES).collect(),
        (_, "block") => "IBLOCK".to_owned(),
        (_, "fileio") => "FILEIO".to_owned(),
        _ => "RAMDISK-MCP".to_owned(),
    };
    volume.identify("product", product, "what LIO says of it".to_owned());
    volume.identify("revision", "4.0", "what LIO says".to_owned());
}

/// Target port groups: LIO's default one is group 1 here, the others follow it.
fn read_groups(import: &mut Import, key: &SourceKey) -> HashMap<String, (u32, &'static str)> {
    let mut groups = HashMap::new();
    for group in key.items("alua_tpgs") {
        let name = group.text("name").unwrap_or_default();
        let id = group
            .text("tg_pt_gp_id")
            .and_then(|id| id.parse::<u32>().ok());
        let word = group.text("alua_access_state").unwrap_or("0");
        let state = STATES.iter().find(|(known, _)| *known == word);
        let (Some(id), Some((_, state))) = (id, state) else {
            let text = "a group of `alua_tpgs` needs a `tg_pt_gp_id` and a known state";
            import.report.mistake(group.place, text);
            continue;
        };
        if matches!(word, "2" | "14") {
            let why = "weft has neither standby nor offline: the paths are inaccessible";
            import
                .report
                .add(group.place, "alua_access_state", Lost, why);
        }
        match check::ana_group(u64::from(id) + 1) {
            Ok(number) => {
                groups.insert(name.to_owned(), (number, *state));
            }
            Err(why) => import.report.mistake(group.place, why),
        }
    }
    groups
}

fn read_discovery(import: &mut Import, module: &SourceKey) {
    let is_on = module.flag("discovery_enable_auth").unwrap_or(true);
    if module.text("name") != Some("iscsi") || !is_on {
        return see_all(module);
    }
    let prefix = ["discovery_", ""];
    let found = prefix
        .iter()
        .find_map(|prefix| read_logins(import, module, prefix));
    match found {
        Some(Some(logins)) => import.model.discovery = logins,
        _ => {
            let why = "discovery demanded CHAP, and weft has no secret for it: it demands nothing";
            import
                .report
                .add(module.place, "discovery_enable_auth", Access, why);
        }
    }
}

/// The credentials under keys with a prefix: none, or those that weft could not take.
fn read_logins(import: &mut Import, key: &SourceKey, prefix: &str) -> Option<Option<LoginPair>> {
    let text = |name: &str| {
        let key = key.key(&format!("{prefix}{name}"))?;
        key.word()
    };
    let chap = text("userid").zip(text("password"));
    let mutual = text("mutual_userid").zip(text("mutual_password"));
    Some(import.logins(key, chap?, mutual))
}

fn read_target(import: &mut Import, key: &SourceKey, objects: &StorageObjects) {
    let (Some(name), fabric) = (key.key("wwn"), key.text("fabric").unwrap_or_default()) else {
        return import
            .report
            .mistake(key.place, "a target has no `wwn`: give it its name");
    };
    if fabric != "iscsi" {
        see_all(key);
        let why = format!("weft serves iSCSI, not {fabric:?}: the target is left out");
        return import.report.add(name.place, "fabric", Access, why);
    }
    let Some(mut target) = import.target(name, name.word().unwrap_or_default()) else {
        return see_all(key);
    };
    // Its keys are told one by one.
    let _ = key.key("parameters");
    let mut groups = key.items("tpgs");
    let mut is_first = true;
    for group in groups.by_ref() {
        if group.flag("enable") == Some(false) {
            see_all(group);
            let why = "a portal group that is not enabled: it is left out";
            import.report.add(group.place, "enable", Lost, why);
        } else if is_first {
            is_first = false;
            read_group(import, group, &mut target, objects);
        } else {
            see_all(group);
            let why = "weft has one set of LUNs and rights for a target: a second portal group \
                       is left out";
            import.report.add(group.place, "tpgs", Access, why);
        }
    }
    import.model.targets.push(target);
}

fn read_group(
    import: &mut Import,
    group: &SourceKey,
    target: &mut TargetModel,
    objects: &StorageObjects,
) {
    read_portals(import, group, target);
    if let Some(parameters) = group.key("parameters") {
        for (name, default) in PARAMETERS {
            if let Some(key) = parameters.key(name) {
                import.term(key, target, default);
            }
        }
        if let Some(alias) = parameters.key("TargetAlias")
            && alias.word() != Some("LIO Target")
        {
            import.alias(alias, target);
        }
    }
    let attributes = group.key("attributes");
    if let Some(depth) = attributes.and_then(|found| found.key("default_cmdsn_depth")) {
        import.term(depth, target, "64");
    }
    read_luns(import, group, target, objects);
    let flag = |name: &str, default: bool| {
        let found = attributes.and_then(|attributes| attributes.flag(name));
        found.unwrap_or(default)
    };
    let demands_chap = flag("authentication", true);
    let lets_all_in = flag("generate_node_acls", false);
    target.any_reads_only = flag("demo_mode_write_protect", true);
    let general = read_logins(import, group, "chap_").or_else(|| read_logins(import, group, ""));
    read_initiators(import, group, target, demands_chap);
    if lets_all_in {
        match (demands_chap, general) {
            (false, _) => target.any_initiator = true,
            (true, Some(Some(logins))) => {
                target.any_initiator = true;
                target.logins = logins;
                if target
                    .initiators
                    .iter()
                    .any(|one| one.logins.chap.is_none())
                {
                    let why = "some ACLs demand no CHAP: weft demands of them what it demands of \
                               everybody";
                    import
                        .report
                        .add(group.place, "authentication", Access, why);
                }
            }
            (true, _) => {
                let why = "everybody is let in who proves a secret, but there is none that weft \
                           could take: only initiators with a name are let in";
                import
                    .report
                    .add(group.place, "generate_node_acls", Access, why);
            }
        }
        target
            .notes
            .set("allow_any_initiator", "`generate_node_acls`");
    }
    target
        .notes
        .set("initiators", "the source lets nobody in whom weft could");
}

fn read_portals(import: &mut Import, group: &SourceKey, target: &mut TargetModel) {
    let mut portals: Vec<SocketAddr> = Vec::new();
    for portal in group.items("portals") {
        let ip = portal.text("ip_address").unwrap_or_default();
        let ip = ip.trim_start_matches('[').trim_end_matches(']');
        let port = portal.text("port").unwrap_or("3260").parse::<u16>();
        if portal.flag("iser") == Some(true) {
            see_all(portal);
            let why = "weft serves iSCSI over TCP, not over RDMA: the portal is left out";
            import.report.add(portal.place, "iser", Access, why);
            continue;
        }
        match (ip.parse(), port) {
            (Ok(ip), Ok(port)) if port > 0 => {
                let address = SocketAddr::new(ip, port);
                import.listen(portal, address, Spoken::Iscsi);
                portals.push(address);
            }
            _ => import.report.mistake(
                portal.place,
                "a portal needs `ip_address` and `port`, an IP address and a number to 65535",
            ),
        }
    }
    target.portals = Some(portals);
}

fn read_luns(
    import: &mut Import,
    group: &SourceKey,
    target: &mut TargetModel,
    objects: &StorageObjects,
) {
    let mut seen: HashSet<u16> = HashSet::new();
    let mut volumes: HashSet<&str> = HashSet::new();
    for key in group.items("luns") {
        let index = key.text("index").and_then(number);
        let index = index.and_then(|index| check::lun(index).ok());
        let Some(object) = key.key("storage_object") else {
            import
                .report
                .mistake(key.place, "a LUN has no `storage_object`");
            continue;
        };
        let path = object.word().unwrap_or_default();
        let Some(lun) = index.filter(|lun| seen.insert(*lun)) else {
            let text = format!(
                "a LUN needs an `index` of its own: a number from 0 to {}",
                check::LUN_MAX
            );
            import.report.mistake(key.place, text);
            continue;
        };
        let Some(known) = objects.get(path) else {
            let text = format!(
                "{path} is not in `storage_objects`: add it, or take the LUN out of the target"
            );
            import.report.mistake(object.place, text);
            continue;
        };
        // What weft cannot serve is told already.
        let Some(known) = known else { continue };
        if !volumes.insert(&known.volume) {
            let why = format!("{path} is a LUN of this target already: it is one only once");
            import
                .report
                .add(object.place, "storage_object", Access, why);
            continue;
        }
        let name = key.text("alua_tg_pt_gp_name").unwrap_or_default();
        let found = known.groups.get(name).copied();
        if found.is_none() && !matches!(name, "" | "default_tg_pt_gp") {
            let text = format!("{name} is not in `alua_tpgs` of {path}: add it, or name another");
            import.report.mistake(key.place, text);
        }
        let (ana_group, state) = found.unwrap_or((1, "optimized"));
        let mut notes = Notes::default();
        notes.set("lun", format!("`index`, line {}", key.place.line));
        notes.set("volume", note(object));
        notes.set("ana_group", format!("target port group {name:?}"));
        let is_told = target.ana.iter().any(|known| known.group == ana_group);
        if state != "optimized" && !is_told {
            target.ana.push(AnaModel {
                group: ana_group,
                at: None,
                state,
                note: notes.clone(),
            });
        }
        target.luns.push(LunModel {
            lun,
            volume: known.volume.clone(),
            ana_group,
            read_only: false,
            notes,
        });
    }
}

fn read_initiators(
    import: &mut Import,
    group: &SourceKey,
    target: &mut TargetModel,
    demands_chap: bool,
) {
    let luns: HashSet<u16> = target.luns.iter().map(|lun| lun.lun).collect();
    let mut seen: HashSet<String> = HashSet::new();
    for acl in group.items("node_acls") {
        let Some(name) = acl.key("node_wwn") else {
            import
                .report
                .mistake(acl.place, "an ACL has no `node_wwn`: give it its initiator");
            continue;
        };
        let Some(found) = import.initiator(name, name.word().unwrap_or_default()) else {
            see_all(acl);
            continue;
        };
        if !seen.insert(found.clone()) {
            let text = format!("{found} has an ACL in this target already");
            import.report.mistake(name.place, text);
            continue;
        }
        let mut initiator = InitiatorModel {
            name: Some(found),
            ..InitiatorModel::default()
        };
        initiator.notes.set("name", note(name));
        initiator.notes.set("luns", "`mapped_luns`");
        // Its keys are told one by one. What an ACL says of CHAP goes before the group's; -1 is
        // the group's.
        let attributes = acl.key("attributes");
        let demands = attributes.and_then(|found| found.flag("authentication"));
        let logins = read_logins(import, acl, "chap_").or_else(|| read_logins(import, acl, ""));
        match (demands.unwrap_or(demands_chap), logins) {
            (true, Some(Some(logins))) => initiator.logins = logins,
            (true, _) => {
                see_all(acl);
                let why = "CHAP is demanded, and the initiator has no secret that weft could \
                           take: it is left out";
                import.report.add(acl.place, "node_acls", Access, why);
                continue;
            }
            (false, Some(_)) => {
                let why = "no CHAP is demanded: the secret is not used";
                import.report.add(acl.place, "chap_password", Default, why);
            }
            (false, None) => {}
        }
        read_mapped(import, acl, &luns, &mut initiator);
        target.initiators.push(initiator);
    }
}

fn read_mapped(
    import: &mut Import,
    acl: &SourceKey,
    luns: &HashSet<u16>,
    initiator: &mut InitiatorModel,
) {
    let mut sees: Vec<u16> = Vec::new();
    for mapped in acl.items("mapped_luns") {
        let number_of = |name: &str| {
            let word = mapped.text(name).and_then(number)?;
            u16::try_from(word).ok()
        };
        let (Some(index), Some(lun)) = (number_of("index"), number_of("tpg_lun")) else {
            let text = "a mapped LUN needs `index` and `tpg_lun`, numbers";
            import.report.mistake(mapped.place, text);
            continue;
        };
        if !luns.contains(&lun) {
            let why = format!("the target has no LUN {lun} that weft could serve");
            import.report.add(mapped.place, "tpg_lun", Access, why);
            continue;
        }
        if index != lun {
            let why = format!(
                "the initiator saw it as LUN {index}: weft has one number for all, {lun}; by-id \
                 names stay, by-path names change"
            );
            import.report.add(mapped.place, "index", Lost, why);
        }
        if mapped.flag("write_protect") == Some(true) {
            initiator.reads_only.push(lun);
        }
        sees.push(lun);
    }
    sees.sort_unstable();
    sees.dedup();
    initiator.luns = Some(sees);
}
