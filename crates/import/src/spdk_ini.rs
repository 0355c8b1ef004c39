//! The INI of SPDK before release 20.07: each line becomes the call that replaced it.
//!
//! `[Section]`, then lines of a key and words, which may stand in quotation marks; a backslash
//! at the end of a line goes on in the next. Sections with a number stand for one object each.

use crate::Import;
use crate::nvmetcli::see_all;
use crate::report::Place;
use crate::report::Weight::{Access, Default};
use crate::spdk::Spdk;
use crate::tree::{SourceKey, number, size};
use crate::words::{logical_lines, words};

/// Sections that weft has no use for.
const UNUSED: &[(&str, &str)] = &[
    ("Global", "weft has its own threads and log: see [policy]"),
    ("Rpc", "weft has no JSON-RPC"),
    ("Bdev", "weft has no such pools"),
    ("Ioat", "weft uses no DMA engine"),
    ("Nvmf", "limits of SPDK: weft has its own, see [nvme]"),
    ("Transport", "NVMe/TCP, with weft's own limits: see [nvme]"),
    ("VMD", "weft drives no hardware"),
];

/// Sections of drivers, which name block devices themselves.
const DRIVERS: &[&str] = &[
    "Nvme",
    "Split",
    "Pmem",
    "Rbd",
    "VirtioUser",
    "VirtioPci",
    "iSCSI_Initiator",
];

pub(crate) fn read(import: &mut Import, text: &str) {
    let sections = sections(import, text);
    let mut spdk = Spdk::default();
    // What is named stands before what names it, whatever the file's order is.
    for pass in [volumes, groups, objects] {
        for section in &sections {
            pass(&mut spdk, import, section);
        }
    }
    let mut all = SourceKey::default();
    all.keys = sections;
    all.tell_rest(&[], &mut import.report);
}

fn sections(import: &mut Import, text: &str) -> Vec<SourceKey> {
    let mut sections: Vec<SourceKey> = Vec::new();
    for (line, text) in logical_lines(text) {
        let place = Place { file: 0, line };
        if let Some(name) = text.trim().strip_prefix('[') {
            match name.strip_suffix(']') {
                Some(name) => sections.push(SourceKey::new(name, place)),
                None => import.report.mistake(place, "a section begins like [Nvmf]"),
            }
            continue;
        }
        let found = match words(&text) {
            Ok(words) => words,
            Err(why) => {
                import.report.mistake(place, why);
                continue;
            }
        };
        let Some((name, rest)) = found.split_first() else {
            continue;
        };
        let Some(section) = sections.last_mut() else {
            let text = "a line stands before the first [Section]: this is no INI of SPDK";
            return mistaken(import, place, text);
        };
        let mut key = SourceKey::new(name, place);
        key.words = rest.to_vec();
        section.keys.push(key);
    }
    sections
}

fn mistaken(import: &mut Import, place: Place, text: &str) -> Vec<SourceKey> {
    import.report.mistake(place, text);
    Vec::new()
}

/// The number at the end of a section's name.
fn numbered(section: &SourceKey, start: &str) -> Option<u64> {
    number(section.name.strip_prefix(start)?)
}

/// A call with its parameters.
fn call(at: &SourceKey, method: &str, params: &[(&str, &str)]) -> SourceKey {
    let mut list = table("params", at, params);
    list.keys.retain(|key| key.word().is_some());
    let mut name = table("method", at, &[]);
    name.words.push(method.to_owned());
    let mut call = table("", at, &[]);
    call.keys = vec![name, list];
    call
}

fn table(name: &str, at: &SourceKey, keys: &[(&str, &str)]) -> SourceKey {
    let mut table = SourceKey::new(name, at.place);
    for (name, word) in keys {
        let mut key = SourceKey::new(name, at.place);
        key.words.push((*word).to_owned());
        table.keys.push(key);
    }
    table
}

fn volumes(spdk: &mut Spdk, import: &mut Import, section: &SourceKey) {
    match section.name.as_str() {
        "Malloc" => {
            section.see();
            let of = |name: &str| section.text(name).and_then(number);
            let count = of("NumberOfLuns").unwrap_or(0);
            let block = of("BlockSize").unwrap_or(512);
            let mib = of("LunSizeInMB").unwrap_or(64);
            if count > 1024 || block == 0 {
                let text = "`NumberOfLuns` is 1024 at most, and `BlockSize` not 0";
                return import.report.mistake(section.place, text);
            }
            let blocks = (mib.saturating_mul(1 << 20) / block).to_string();
            for nth in 0..count {
                let (name, block) = (format!("Malloc{nth}"), block.to_string());
                let params = [
                    ("name", &*name),
                    ("num_blocks", &*blocks),
                    ("block_size", &*block),
                ];
                spdk.call(import, &call(section, "bdev_malloc_create", &params));
            }
        }
        "Null" => {
            for dev in section.see().all("Dev") {
                let [name, mib, block @ ..] = &dev.words[..] else {
                    let text = "write `Dev NAME MEGABYTES BLOCK_SIZE`";
                    import.report.mistake(dev.place, text);
                    continue;
                };
                let block = block.first().map_or("512", String::as_str);
                let bytes = size(&format!("{mib}M")).unwrap_or(0);
                let blocks = bytes / number(block).unwrap_or(512).max(1);
                let blocks = blocks.to_string();
                let params = [
                    ("name", &**name),
                    ("num_blocks", &*blocks),
                    ("block_size", block),
                ];
                spdk.call(import, &call(dev, "bdev_null_create", &params));
            }
        }
        "AIO" => {
            for aio in section.see().all("AIO") {
                let [path, name, block @ ..] = &aio.words[..] else {
                    import
                        .report
                        .mistake(aio.place, "write `AIO PATH NAME [BLOCK_SIZE]`");
                    continue;
                };
                let block = block.first().map_or("", String::as_str);
                let params = [
                    ("name", &**name),
                    ("filename", &**path),
                    ("block_size", block),
                ];
                spdk.call(import, &call(aio, "bdev_aio_create", &params));
            }
        }
        name => {
            if let Some((_, why)) = UNUSED.iter().find(|(unused, _)| *unused == name) {
                see_all(section);
                import.report.add(section.place, name, Default, *why);
            }
            spdk.finds_more |= DRIVERS.contains(&name);
        }
    }
}

fn groups(spdk: &mut Spdk, import: &mut Import, section: &SourceKey) {
    if section.name == "iSCSI" {
        let base = section.text("NodeBase").unwrap_or_default();
        let auth = section.text("AuthFile").unwrap_or_default();
        let params = [("node_base", base), ("auth_file", auth)];
        spdk.call(import, &call(section, "iscsi_set_options", &params));
        see_all(section);
    } else if let Some(tag) = numbered(section, "PortalGroup") {
        let mut call = call(
            section,
            "iscsi_create_portal_group",
            &[("tag", &tag.to_string())],
        );
        let mut list = table("portals", section.see(), &[]);
        for portal in section.all("Portal") {
            let address = portal.words.get(1).map_or("", String::as_str);
            let address = address.split('@').next().unwrap_or_default();
            let (host, port) = host_and_port(address, "3260");
            list.keys
                .push(table("", portal, &[("host", host), ("port", port)]));
        }
        call.keys[1].keys.push(list);
        spdk.call(import, &call);
    } else if let Some(tag) = numbered(section, "InitiatorGroup") {
        let words = |name: &str| -> Vec<String> {
            let keys = section.all(name);
            keys.flat_map(|key| key.words.iter().cloned()).collect()
        };
        let (names, masks) = (words("InitiatorName"), words("Netmask"));
        let tag_word = tag.to_string();
        let mut call = call(
            section.see(),
            "iscsi_create_initiator_group",
            &[("tag", &tag_word)],
        );
        for (name, words) in [("initiators", names), ("netmasks", masks)] {
            let mut key = table(name, section, &[]);
            key.words = words;
            call.keys[1].keys.push(key);
        }
        spdk.call(import, &call);
    }
}

/// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
fn host_and_port<'a>(text: &'a str, default: &'a str) -> (&'a str, &'a str) {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, default),
    }
}

fn objects(spdk: &mut Spdk, import: &mut Import, section: &SourceKey) {
    if numbered(section, "Subsystem").is_some() {
        subsystem(spdk, import, section.see());
    } else if let Some(tag) = numbered(section, "TargetNode") {
        target(spdk, import, section.see(), tag);
    }
}

fn subsystem(spdk: &mut Spdk, import: &mut Import, section: &SourceKey) {
    let nqn = section.text("NQN").unwrap_or_default();
    let text = |name: &str| section.text(name).unwrap_or_default();
    let (serial, model, any) = (text("SN"), text("MN"), text("AllowAnyHost"));
    let params = [
        ("nqn", nqn),
        ("serial_number", serial),
        ("model_number", model),
        ("allow_any_host", any),
    ];
    spdk.call(import, &call(section, "nvmf_create_subsystem", &params));
    for name in ["Core", "Mode", "MaxNamespaces"] {
        let _ = section.key(name);
    }
    for host in section.all("Host") {
        let word = host.word().unwrap_or_default();
        let params = [("nqn", nqn), ("host", word)];
        spdk.call(import, &call(host, "nvmf_subsystem_add_host", &params));
    }
    for namespace in section.all("Namespace") {
        let mut call = call(namespace, "nvmf_subsystem_add_ns", &[("nqn", nqn)]);
        let word = |nth: usize| namespace.words.get(nth).map_or("", String::as_str);
        let mut inner = table(
            "namespace",
            namespace,
            &[("bdev_name", word(0)), ("nsid", word(1))],
        );
        inner.keys.retain(|key| key.word().is_some());
        call.keys[1].keys.push(inner);
        spdk.call(import, &call);
    }
    for listen in section.all("Listen") {
        let kind = listen.words.first().map_or("", String::as_str);
        let address = listen.words.get(1).map_or("", String::as_str);
        let (host, port) = host_and_port(address, "4420");
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut call = call(listen, "nvmf_subsystem_add_listener", &[("nqn", nqn)]);
        let address = [("trtype", kind), ("traddr", host), ("trsvcid", port)];
        call.keys[1]
            .keys
            .push(table("listen_address", listen, &address));
        spdk.call(import, &call);
    }
}

fn target(spdk: &mut Spdk, import: &mut Import, section: &SourceKey, tag: u64) {
    let text = |name: &str| section.text(name).unwrap_or_default();
    let default = tag.to_string();
    let name = match text("TargetName") {
        "" => &default,
        name => name,
    };
    let params = [
        ("name", name),
        ("alias_name", text("TargetAlias")),
        ("queue_depth", text("QueueDepth")),
    ];
    let mut made = call(section, "iscsi_create_target_node", &params);
    let mut luns = table("luns", section, &[]);
    for key in &section.keys {
        if let Some(id) = key.name.strip_prefix("LUN") {
            let bdev = key.see().word().unwrap_or_default();
            luns.keys
                .push(table("", key, &[("bdev_name", bdev), ("lun_id", id)]));
        }
    }
    let mut maps = table("pg_ig_maps", section, &[]);
    for mapping in section.all("Mapping") {
        let word = |nth: usize, start: &str| {
            let word = mapping.words.get(nth).map_or("", String::as_str);
            word.strip_prefix(start).unwrap_or(word).to_owned()
        };
        let (portals, initiators) = (word(0, "PortalGroup"), word(1, "InitiatorGroup"));
        maps.keys.push(table(
            "",
            mapping,
            &[("pg_tag", &portals), ("ig_tag", &initiators)],
        ));
    }
    made.keys[1].keys.extend([luns, maps]);
    let method = section.key("AuthMethod");
    let demands = method.and_then(SourceKey::word).unwrap_or("None");
    if demands.to_ascii_uppercase().contains("CHAP") || demands == "Mutual" {
        let why = "the target demands a secret of `AuthFile`, which is not read: nobody is let in";
        import.report.add(section.place, "AuthMethod", Access, why);
        made.keys[1]
            .keys
            .extend(table("", section, &[("require_chap", "true")]).keys);
    }
    for name in ["AuthGroup", "UseDigest"] {
        let _ = section.key(name);
    }
    spdk.call(import, &made);
}
