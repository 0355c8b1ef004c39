//! targets.conf(5) of tgt: `<target NAME>` with directives, and LUNs as `backing-store PATH` or
//! `<backing-store PATH>` with directives of their own.
//!
//! LUN 0 is tgt's controller; units count from 1 on, those of `backing-store` before those of
//! `direct-store`. What a target says of units holds for all of them.

use std::collections::HashMap;
use std::net::IpAddr;

use server::check;

use crate::Import;
use crate::ganesha::beside;
use crate::model::{Backing, InitiatorModel, LoginPair, LunModel, Notes, TargetModel, VolumeModel};
use crate::note;
use crate::nvmetcli::see_all;
use crate::report::Place;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{Known, SourceKey, flag, number};
use crate::volumes::KnownVolumes;
use crate::words::{logical_lines, words};

/// Files that include each other, at a time.
const INCLUDES_MAX: usize = 16;

const KNOWN: &[Known] = &[
    ("default-driver", Default, "iSCSI over TCP"),
    ("driver", Default, "iSCSI over TCP"),
    (
        "ignore-errors",
        Default,
        "weft starts with all or says why not: see `start` of [policy]",
    ),
    ("control-port", Default, "weft has no such port"),
    ("controller_tid", Default, "weft numbers nothing by it"),
    ("isns", Lost, "weft tells no iSNS server"),
    ("isnsserverip", Lost, "weft tells no iSNS server"),
    ("isnsserverport", Lost, "weft tells no iSNS server"),
    (
        "isnsaccesscontrol",
        Access,
        "weft asks no iSNS server who may see what",
    ),
    (
        "write-cache",
        Default,
        "weft says that it has a cache, and flushes when asked",
    ),
    (
        "scsi_id",
        Lost,
        "weft's T10 designator is of vendor and serial number",
    ),
    (
        "sense_format",
        Default,
        "weft has fixed and descriptor format",
    ),
    ("removable", Lost, "weft's disks stay"),
    ("online", Default, "weft's disks are online"),
    ("mode_page", Lost, "weft has its own mode pages"),
    ("path", Lost, "weft has no media to change"),
    ("device-type", Lost, "weft has disks alone"),
    (
        "bs-type",
        Default,
        "weft has its own way to files and devices",
    ),
    (
        "bsopts",
        Default,
        "weft has its own way to files and devices",
    ),
    (
        "bsoflags",
        Default,
        "weft has its own way to files and devices",
    ),
    (
        "allow-in-use",
        Default,
        "weft takes no device that something else uses",
    ),
    ("params", Lost, "weft knows no parameters of tgtadm"),
    ("lbppbe", Lost, "weft says what suits the volume"),
    ("la_lba", Lost, "weft says what suits the volume"),
    (
        "optimal_xfer_gran",
        Default,
        "weft says what suits the volume",
    ),
    (
        "optimal_xfer_len",
        Default,
        "weft says what suits the volume",
    ),
    ("thin-provisioning", Default, "weft's volumes are thin"),
    ("rpm", Lost, "weft says that it is no disk that turns"),
];

pub(crate) fn read(import: &mut Import, text: &str) {
    let mut around = vec![import.report.files[0].clone()];
    let mut top = SourceKey::default();
    read_file(import, text, 0, &mut around, &mut top);
    let mut volumes = KnownVolumes::default();
    let mut logins: HashMap<String, String> = HashMap::new();
    for key in top.all("incomingdiscoveryuser") {
        if let [user, secret, ..] = &key.words[..]
            && let Some(found) = import.logins(key, (user, secret), None)
        {
            import.model.discovery = found;
        }
    }
    for target in top.all("target") {
        read_target(import, target, &mut volumes, &mut logins);
    }
    top.tell_rest(KNOWN, &mut import.report);
}

/// Adds the keys of a file to a block.
fn read_file(
    import: &mut Import,
    text: &str,
    file: u16,
    around: &mut Vec<String>,
    top: &mut SourceKey,
) {
    // The blocks that are open; the first is the file's.
    let mut open: Vec<SourceKey> = Vec::new();
    for (line, text) in logical_lines(text) {
        let place = Place { file, line };
        let text = text.trim();
        if let Some(name) = text.strip_prefix("</") {
            let name = name.trim_end_matches('>').trim().to_ascii_lowercase();
            match open.pop() {
                Some(key) if key.name == name => open.last_mut().unwrap_or(top).keys.push(key),
                _ => import
                    .report
                    .mistake(place, format!("</{name}> closes nothing")),
            }
            continue;
        }
        let block = text.strip_prefix('<');
        let inner = block.map(|block| block.split('#').next().unwrap_or_default().trim());
        let inner = inner.map(|block| block.strip_suffix('>').unwrap_or(block));
        let found = match words(inner.unwrap_or(text)) {
            Ok(words) => words,
            Err(why) => {
                import.report.mistake(place, why);
                continue;
            }
        };
        let Some((name, rest)) = found.split_first() else {
            continue;
        };
        let mut key = SourceKey::new(&name.to_ascii_lowercase(), place);
        key.words = rest.to_vec();
        if block.is_some() {
            if open.len() == 2 {
                let text = "blocks are nested more than two deep: a target holds units alone";
                return import.report.mistake(place, text);
            }
            open.push(key);
        } else if key.name == "include" && open.is_empty() {
            for path in &key.words {
                include(import, place, path, around, top);
            }
        } else {
            open.last_mut().unwrap_or(top).keys.push(key);
        }
    }
    if let Some(key) = open.pop() {
        let text = format!("<{}> is not closed: write </{}>", key.name, key.name);
        import.report.mistake(key.place, text);
    }
}

fn include(
    import: &mut Import,
    place: Place,
    path: &str,
    around: &mut Vec<String>,
    top: &mut SourceKey,
) {
    let path = beside(around.last().map_or("", String::as_str), path);
    let (folder, pattern) = path.rsplit_once('/').unwrap_or((".", &path));
    let mut paths = vec![path.clone()];
    if pattern.contains(['*', '?']) {
        // A folder that is not there includes nothing, as in tgt-admin.
        let names = import.files.list(folder).unwrap_or_default();
        let fits = names.iter().filter(|name| matches(pattern, name));
        paths = fits.map(|name| format!("{folder}/{name}")).collect();
        if paths.is_empty() {
            let why = format!("no file fits {path}");
            import.report.add(place, "include", Lost, why);
        }
    }
    for path in paths {
        if around.contains(&path) || around.len() > INCLUDES_MAX {
            let text =
                format!("{path} includes itself, or includes go more than {INCLUDES_MAX} deep");
            import.report.mistake(place, text);
            continue;
        }
        let text = match import.files.read(&path) {
            Ok(text) => text,
            Err(error) => {
                import
                    .report
                    .mistake(place, format!("{path} cannot be read: {error}"));
                continue;
            }
        };
        if let Some(file) = import.enter(&path, &text) {
            around.push(path);
            read_file(import, &text, file, around, top);
            around.pop();
        }
    }
}

/// Whether a name fits a pattern of `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last `*` stands, and what it takes so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, n) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

fn read_target(
    import: &mut Import,
    key: &SourceKey,
    volumes: &mut KnownVolumes,
    logins: &mut HashMap<String, String>,
) {
    let driver = key.text("driver").unwrap_or("iscsi").to_ascii_lowercase();
    if driver != "iscsi" {
        see_all(key);
        let why = format!("weft serves iSCSI over TCP, not {driver:?}: the target is left out");
        return import.report.add(key.place, "driver", Access, why);
    }
    let Some(mut target) = import.target(key, key.word().unwrap_or_default()) else {
        return see_all(key);
    };
    // tgtd listens on every address.
    let address = ([0, 0, 0, 0], 3260).into();
    import.listen(key, address, crate::Spoken::Iscsi);
    target.portals = Some(vec![address]);
    let mut lun: u64 = 1;
    for kind in ["backing-store", "direct-store"] {
        for unit in key.all(kind) {
            read_unit(import, &mut target, (key, unit), volumes, &mut lun);
        }
    }
    read_rights(import, key, &mut target, logins);
    import.model.targets.push(target);
}

/// A directive of a unit, else of its target.
fn of_unit<'k>(
    (target, unit): (&'k SourceKey, &'k SourceKey),
    name: &str,
) -> Option<&'k SourceKey> {
    unit.key(name).or_else(|| target.key(name))
}

fn read_unit(
    import: &mut Import,
    target: &mut TargetModel,
    (key, unit): (&SourceKey, &SourceKey),
    volumes: &mut KnownVolumes,
    next: &mut u64,
) {
    let said = unit.text("lun").and_then(number);
    let lun = said.unwrap_or(*next);
    *next = (*next).max(lun.saturating_add(1));
    let Some(path) = unit.word() else {
        return import
            .report
            .mistake(unit.place, "a unit has no path: name a file or a device");
    };
    let of = |name: &str| of_unit((key, unit), name);
    let kind = of("device-type")
        .and_then(SourceKey::word)
        .unwrap_or("disk");
    let store = of("bs-type").and_then(SourceKey::word).unwrap_or("rdwr");
    if kind != "disk" || !matches!(store, "rdwr" | "aio" | "null" | "sg") {
        see_all(unit);
        let why = format!("weft has disks of files and devices, not {kind} of {store}: left out");
        return import.report.add(unit.place, "device-type", Access, why);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut volume = VolumeModel::new(name, Backing::of_path(path));
    volume.notes.set("path", note(unit));
    volume.notes.set("name", "made from the path");
    volume.notes.set("block_bytes", "default of tgt");
    match of("block-size").map(|key| (key, key.word())) {
        None | Some((_, Some("512"))) => {}
        Some((key, Some("4096"))) => {
            volume.block_bytes = 4096;
            volume.notes.set("block_bytes", note(key));
        }
        Some((key, _)) => {
            let why = "weft has blocks of 512 and 4096 bytes: the unit is left out";
            return import.report.add(key.place, "block-size", Access, why);
        }
    }
    if unit.name == "direct-store" {
        let why = "the unit showed what the device says of itself: set `serial`, `vendor`, \
                   `product` and `revision` as `sg_inq` shows them";
        import.report.add(unit.place, "direct-store", Lost, why);
    } else {
        identify(import, (key, unit), &mut volume);
    }
    let volume = volumes.add(import, unit, volume);
    let lun = match check::lun(lun) {
        Ok(lun) => lun,
        Err(why) => return import.report.mistake(unit.place, why),
    };
    let is_same = |known: &LunModel| known.lun == lun || known.volume == volume;
    if target.luns.iter().any(is_same) {
        let text = format!("LUN {lun} or {path} is in the target already");
        return import.report.mistake(unit.place, text);
    }
    let mut notes = Notes::default();
    notes.set("lun", "units of tgt count from 1 on");
    notes.set("volume", note(unit));
    let read_only = of("readonly").and_then(SourceKey::word).and_then(flag) == Some(true);
    target.luns.push(LunModel {
        lun,
        volume,
        ana_group: 1,
        read_only,
        notes,
    });
}

/// What initiators know the unit by, as far as the file says it.
fn identify(import: &mut Import, (key, unit): (&SourceKey, &SourceKey), volume: &mut VolumeModel) {
    let names = [
        ("scsi_sn", "serial"),
        ("vendor_id", "vendor"),
        ("product_id", "product"),
        ("product_rev", "revision"),
    ];
    let defaults = [
        ("vendor", "IET"),
        ("product", "VIRTUAL-DISK"),
        ("revision", "0001"),
    ];
    for (ours, value) in defaults {
        volume.identify(ours, value, "default of tgt".to_owned());
    }
    for (theirs, ours) in names {
        let Some(said) = of_unit((key, unit), theirs) else {
            continue;
        };
        if let Some(word) = said.word() {
            volume.identify(ours, word, note(said));
        }
    }
    let why = "tgt makes the NAA designator of the numbers that target and unit have while it runs: \
               set `naa`, and `serial` if there is none, as `sg_inq -p 0x83` shows them, or \
               initiators see a new disk";
    import.report.add(unit.place, "naa", Lost, why);
}

/// Who is let in: by address, by name, by secret, and all of those that are there must fit.
fn read_rights(
    import: &mut Import,
    key: &SourceKey,
    target: &mut TargetModel,
    logins: &mut HashMap<String, String>,
) {
    let mut networks: Vec<String> = Vec::new();
    let (mut has_all, mut has_address) = (false, false);
    for address in key.all("initiator-address") {
        has_address = true;
        for word in &address.words {
            let ip = word.split('/').next().unwrap_or_default();
            match (word.as_str(), ip.parse::<IpAddr>()) {
                ("ALL", _) => has_all = true,
                (_, Ok(_)) => networks.push(word.clone()),
                _ => {
                    let text = format!("{word:?} is no address: write 192.0.2.0/24, or ALL");
                    import.report.mistake(address.place, text);
                }
            }
        }
    }
    if has_all || !has_address {
        networks.clear();
    }
    let mut names: Vec<(String, &SourceKey)> = Vec::new();
    let mut has_name = false;
    for name in key.all("initiator-name") {
        has_name = true;
        for word in &name.words {
            names.extend(import.initiator(name, word).map(|word| (word, name)));
        }
    }
    let Some(found) = read_logins(import, key, logins) else {
        target
            .notes
            .set("initiators", "the source lets nobody in whom weft could");
        return;
    };
    target.logins = found;
    // tgt lets in whose name or whose address is named.
    if has_name && !names.is_empty() && has_address && !has_all {
        let why = "tgt lets in whose name or whose address is named: here both have to fit";
        import
            .report
            .add(key.place, "initiator-address", Access, why);
    }
    for (name, at) in names {
        let is_same = |known: &InitiatorModel| known.name.as_ref() == Some(&name);
        if target.initiators.iter().any(is_same) {
            continue;
        }
        let mut initiator = InitiatorModel {
            name: Some(name),
            networks: networks.clone(),
            ..InitiatorModel::default()
        };
        initiator.notes.set("name", note(at));
        initiator.notes.set("networks", "`initiator-address`");
        target.initiators.push(initiator);
    }
    if !has_name {
        target.any_initiator = true;
        target.networks = networks;
        target
            .notes
            .set("allow_any_initiator", "default of tgt: no `initiator-name`");
        target.notes.set("networks", "`initiator-address`");
    }
    target
        .notes
        .set("initiators", "the source lets nobody in whom weft could");
}

/// What initiators prove; `None` if there is nothing that weft could take, and nobody is let in.
fn read_logins(
    import: &mut Import,
    key: &SourceKey,
    known: &mut HashMap<String, String>,
) -> Option<LoginPair> {
    let mut pairs = |name: &'static str| {
        let keys = key.all(name);
        let mut list: Vec<(&SourceKey, &str, String)> = Vec::new();
        for key in keys {
            let Some(user) = key.word() else { continue };
            // An account is made once, and named by its user after that.
            match key.words.get(1) {
                Some(secret) => {
                    known.insert(user.to_owned(), secret.clone());
                    list.push((key, user, secret.clone()));
                }
                None => list.extend(known.get(user).map(|secret| (key, user, secret.clone()))),
            }
        }
        list
    };
    let (incoming, outgoing) = (pairs("incominguser"), pairs("outgoinguser"));
    if let [_, second, ..] = &incoming[..] {
        let why = "weft takes one secret for all of a target: the first; give the others tables of \
                   their own, [[iscsi.target.initiator]]";
        import
            .report
            .add(second.0.place, "incominguser", Access, why);
    }
    let mutual = outgoing
        .first()
        .map(|(_, user, secret)| (*user, secret.as_str()));
    match incoming.first() {
        None if key.key("incominguser").is_some() => {
            let why = "a user without a secret: nobody is let in";
            import.report.add(key.place, "incominguser", Access, why);
            None
        }
        None => Some(LoginPair::default()),
        Some((at, user, secret)) => import.logins(at, (user, secret), mutual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, fits) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf~", false),
            ("a?c*", "abcd", true),
            ("a?c*", "ac", false),
            ("*", "", true),
            ("**a*b", "xxaxxb", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
