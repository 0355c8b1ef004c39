//! targets.conf(5) of tgt: `<target NAME>` with directives, and LUNs as `backing-store PATH` or
//! `<backing-store PATH>` with directives of their own.
//!
//! tgt-admin numbers targets in the order of their names, and units in that of their paths, those
//! of `backing-store` before those of `direct-store`; LUN 0 is tgt's controller. What names a unit
//! to initiators follows from both numbers. What a target says of units holds for all of them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use server::check;

use crate::Import;
use crate::ganesha::beside;
use crate::model::{Backing, InitiatorModel, LoginPair, LunModel, Notes, TargetModel, VolumeModel};
use crate::note;
use crate::nvmetcli::see_all;
use crate::report::Place;
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::{self, Known, SourceKey, flag};
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
    let numbers = numbers(&top);
    for target in top.all("target") {
        let number = target.word().and_then(|name| numbers.get(name));
        let number = number.copied().unwrap_or_default();
        read_target(import, (target, number), &mut volumes, &mut logins);
    }
    if import
        .model
        .volumes
        .iter()
        .any(|v| v.notes.get("naa") == Some(BY_NUMBERS))
    {
        let why = "by the numbers that tgt-admin gives targets and units of this file when tgtd \
                   starts: compare `naa` and `serial` with `sg_inq -p 0x83` and `-p 0x80` where \
                   tgtadm made them, or a path was not there";
        import.report.add(Place::default(), "naa", Default, why);
    }
    top.tell_rest(KNOWN, &mut import.report);
}

/// The number of each target that tgt-admin makes.
fn numbers(top: &SourceKey) -> HashMap<&str, u64> {
    let mut targets: Vec<&SourceKey> = top.all("target").collect();
    targets.sort_by_key(|target| target.word());
    let mut number: u64 = 0;
    let mut numbers = HashMap::new();
    for target in targets {
        let said = target.text("controller_tid").and_then(tree::number);
        number = said.unwrap_or(number.saturating_add(1));
        numbers.insert(target.word().unwrap_or_default(), number);
    }
    numbers
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
        key.words = match bytes_max(&key.name) {
            Some(bytes_max) => vec![value(text, bytes_max)],
            None => rest.to_vec(),
        };
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
    (key, number): (&SourceKey, u64),
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
    for (unit, lun) in units(import, key) {
        read_unit(import, &mut target, (key, unit), (number, lun), volumes);
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

/// The units of a target with their numbers: one that has none gets the first that is free.
fn units<'k>(import: &mut Import, key: &'k SourceKey) -> Vec<(&'k SourceKey, u64)> {
    let mut units: Vec<&SourceKey> = Vec::new();
    for kind in ["backing-store", "direct-store"] {
        let from = units.len();
        units.extend(key.all(kind));
        units[from..].sort_by_key(|unit| unit.word());
    }
    let mut said: Vec<Option<u64>> = Vec::new();
    for unit in &units {
        let lun = of_unit((key, unit), "lun");
        let number = lun.and_then(SourceKey::word).and_then(tree::number);
        if let (Some(lun), None) = (lun, number) {
            let text = "`lun` is no number: write 1 or more, or leave it out";
            import.report.mistake(lun.place, text);
        }
        said.push(number);
    }
    let taken: HashSet<u64> = said.iter().copied().flatten().collect();
    let mut free = (1..).filter(|number| !taken.contains(number));
    let luns = said.into_iter().map(|said| said.or_else(|| free.next()));
    let luns: Vec<u64> = luns.map(Option::unwrap_or_default).collect();
    units.into_iter().zip(luns).collect()
}

fn read_unit(
    import: &mut Import,
    target: &mut TargetModel,
    (key, unit): (&SourceKey, &SourceKey),
    (number, lun): (u64, u64),
    volumes: &mut KnownVolumes,
) {
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
    let Some(volume) = volume_of(import, (key, unit), (number, lun), path) else {
        return;
    };
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
    let lun_said = of("lun");
    notes.set(
        "lun",
        lun_said.map_or_else(
            || "in the order of paths, as tgt-admin does".to_owned(),
            note,
        ),
    );
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

/// The volume of a unit; `None` if weft has none like it.
fn volume_of(
    import: &mut Import,
    (key, unit): (&SourceKey, &SourceKey),
    (number, lun): (u64, u64),
    path: &str,
) -> Option<VolumeModel> {
    let of = |name: &str| of_unit((key, unit), name);
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
            import.report.add(key.place, "block-size", Access, why);
            return None;
        }
    }
    if unit.name == "direct-store" {
        let why = "the unit showed what the device says of itself: set `serial`, `vendor`, \
                   `product` and `revision` as `sg_inq` shows them";
        import.report.add(unit.place, "direct-store", Lost, why);
    } else {
        volume.identify("vendor", "IET", "default of tgt".to_owned());
        volume.identify("product", "VIRTUAL-DISK", "default of tgt".to_owned());
        volume.identify("revision", "0001", "default of tgt".to_owned());
        let serial = format!("beaf{number}{lun}");
        volume.identify("serial", serial, BY_NUMBERS.to_owned());
    }
    identify((key, unit), (number, lun), &mut volume);
    Some(volume)
}

/// What the numbers of target and unit say, for want of a directive.
const BY_NUMBERS: &str = "of the numbers that tgt-admin gives target and unit";

/// What names a unit to initiators: tgt's directive, weft's key, and how many bytes tgt takes.
const NAMES: &[(&str, &str, usize)] = &[
    ("scsi_sn", "serial", 36),
    ("vendor_id", "vendor", 8),
    ("product_id", "product", 16),
    ("product_rev", "revision", 4),
    (SCSI_ID, "naa", 36),
];

const SCSI_ID: &str = "scsi_id";

/// How much of a directive tgt takes whose value is all of its line.
fn bytes_max(directive: &str) -> Option<usize> {
    let known = NAMES.iter().find(|(theirs, ..)| *theirs == directive);
    known.map(|(.., bytes_max)| *bytes_max)
}

/// The value of a directive that may hold blanks, as long as tgt takes it.
fn value(line: &str, bytes_max: usize) -> String {
    let line = line.split('#').next().unwrap_or_default().trim();
    let value = line
        .split_once(char::is_whitespace)
        .map_or("", |(_, value)| value)
        .trim();
    let unquoted = ['"', '\'']
        .iter()
        .find_map(|mark| value.strip_prefix(*mark)?.strip_suffix(*mark));
    unquoted.unwrap_or(value).chars().take(bytes_max).collect()
}

/// What the file says that initiators know the unit by.
fn identify(keys: (&SourceKey, &SourceKey), (number, lun): (u64, u64), volume: &mut VolumeModel) {
    let id = format!("IET     {number:04x}{lun:04x}");
    volume.identify("naa", naa(&id), BY_NUMBERS.to_owned());
    for (theirs, ours, _) in NAMES {
        let said = of_unit(keys, theirs);
        let Some((said, word)) = said.and_then(|said| Some((said, said.word()?))) else {
            continue;
        };
        match *theirs {
            SCSI_ID => volume.identify(ours, naa(word), note(said)),
            _ => volume.identify(ours, word, note(said)),
        }
    }
}

/// The NAA designator that tgt makes of `scsi_id`: each character is a digit, 0 if it is none.
fn naa(id: &str) -> String {
    let digits = id.chars().map(|c| c.to_digit(16));
    let value = digits.fold(0u128, |value, digit| {
        value << 4 | u128::from(digit.unwrap_or_default())
    });
    format!("6{:031x}", value & (u128::MAX >> 4))
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
