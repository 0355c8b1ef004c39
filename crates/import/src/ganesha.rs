//! ganesha.conf: `EXPORT { }` with `CLIENT { }` and `FSAL { }`, `EXPORT_DEFAULTS { }`, and the
//! parameters of the server. A right that a client's block does not name is that of the export,
//! then that of the defaults, then Ganesha's own.

use std::net::{IpAddr, SocketAddr};

use crate::Import;
use crate::blocks::{self, BlockStyle};
use crate::clients::{AskedClient, Client, ExportTerms, left_out_flavor};
use crate::model::{ExportModel, Notes, Spoken};
use crate::nvmetcli::see_all;
use crate::report::Place;
use crate::report::Weight::{self, Access, Default, Lost};
use crate::tree::{Known, SourceKey};

/// Files that include each other, at a time.
const INCLUDES_MAX: usize = 16;

const KNOWN: &[Known] = &[
    ("transports", Default, "TCP"),
    (
        "filesystem_id",
        Default,
        "weft makes file handles itself: clients mount anew",
    ),
    (
        "manage_gids",
        Access,
        "weft takes the groups that the client sends",
    ),
    (
        "nfs_commit",
        Default,
        "weft answers what is stable when it is stable",
    ),
    ("delegations", Default, "weft gives delegations"),
    ("tag", Lost, "weft has one path for an export"),
    ("maxread", Default, "see `max_io_bytes` of [nfs]"),
    ("maxwrite", Default, "see `max_io_bytes` of [nfs]"),
    ("prefread", Default, "see `max_io_bytes` of [nfs]"),
    ("prefwrite", Default, "see `max_io_bytes` of [nfs]"),
    ("prefreaddir", Default, "weft has its own"),
    ("maxoffsetwrite", Lost, "weft sets no bound"),
    ("maxoffsetread", Lost, "weft sets no bound"),
    ("disablereaddirplus", Default, "weft has READDIRPLUS"),
    ("usecookieverifier", Default, "weft has its own"),
    ("disable_acl", Default, "see `acl` of [[file_system]]"),
    (
        "security_label",
        Lost,
        "write `security_label` of [[export]] yourself: a directory keeps no labels",
    ),
    ("attr_expiration_time", Default, "weft caches no attributes"),
    (
        "trust_readdir_negative_cache",
        Default,
        "weft caches no names",
    ),
];

/// Blocks that weft has no use for.
const BLOCKS: &[(&str, Weight, &str)] = &[
    ("log", Default, "see WEFT_LOG"),
    ("cacheinode", Default, "the kernel caches"),
    ("mdcache", Default, "the kernel caches"),
    ("vfs", Default, "weft has its own way to directories"),
    ("xfs", Default, "weft has its own way to directories"),
    ("ceph", Lost, "weft serves directories"),
    ("rgw", Lost, "weft serves directories"),
    ("gpfs", Lost, "weft serves directories"),
    ("proxy", Lost, "weft serves directories"),
    ("9p", Lost, "weft serves NFS"),
    (
        "nfs_krb5",
        Lost,
        "[nfs.kerberos] says by which keytab users prove who they are",
    ),
    ("nfs_ip_name", Default, "weft looks names up when it starts"),
    (
        "pseudofs",
        Lost,
        "what lies above exports is read-only and shows what a client may use",
    ),
    (
        "rados_kv",
        Lost,
        "what clients hold is kept in `state` of [nfs]",
    ),
    ("directory_services", Default, "users are numbers"),
];

pub(crate) fn read(import: &mut Import, text: &str) {
    let mut around = vec![import.report.files[0].clone()];
    let mut top = SourceKey::default();
    top.keys = read_file(import, text, 0, &mut around);
    let none = SourceKey::default();
    let defaults = top.key("export_defaults").unwrap_or(&none);
    for export in top.all("export") {
        read_export(import, export, defaults);
    }
    for name in ["nfsv4", "nfs_core_param"] {
        for block in top.all(name) {
            read_server(import, block);
        }
    }
    for key in &top.keys {
        if let Some((name, weight, why)) = BLOCKS.iter().find(|(name, ..)| *name == key.name) {
            see_all(key);
            import.report.add(key.place, name, *weight, *why);
        }
    }
    top.tell_rest(KNOWN, &mut import.report);
}

/// The keys of a file, with those that it includes in their places.
fn read_file(
    import: &mut Import,
    text: &str,
    file: u16,
    around: &mut Vec<String>,
) -> Vec<SourceKey> {
    let mut keys: Vec<SourceKey> = Vec::new();
    let mut plain = String::new();
    let mut included: Vec<SourceKey> = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(text.lines()) {
        let word = text.trim();
        let place = Place { file, line };
        if let Some(path) = word.strip_prefix("%include") {
            let path = path.trim().trim_matches('"');
            if is_inside {
                let text = "%include inside of a block: include whole blocks";
                import.report.mistake(place, text);
            }
            included.extend(include(import, place, path, around));
        } else if word.starts_with("%url") {
            let why = "weft reads no configuration from elsewhere: fetch it, and include it";
            import.report.mistake(place, why);
        } else {
            let opens = text.split('#').next().unwrap_or_default();
            let depth = |c: char| opens.matches(c).count();
            is_inside = (is_inside || depth('{') > 0) && depth('}') < depth('{').max(1)
                || depth('{') > depth('}');
            plain.push_str(text);
        }
        plain.push('\n');
    }
    match blocks::read(BlockStyle::Ganesha, &plain, file) {
        Ok(found) => keys.extend(found),
        Err((place, why)) => import.report.mistake(place, why),
    }
    keys.extend(included);
    keys
}

fn include(
    import: &mut Import,
    place: Place,
    path: &str,
    around: &mut Vec<String>,
) -> Vec<SourceKey> {
    let path = beside(around.last().map_or("", String::as_str), path);
    if around.contains(&path) || around.len() > INCLUDES_MAX {
        let text = format!("{path} includes itself, or includes go more than {INCLUDES_MAX} deep");
        import.report.mistake(place, text);
        return Vec::new();
    }
    let text = match import.files.read(&path) {
        Ok(text) => text,
        Err(error) => {
            import
                .report
                .mistake(place, format!("{path} cannot be read: {error}"));
            return Vec::new();
        }
    };
    let Some(file) = import.enter(&path, &text) else {
        return Vec::new();
    };
    around.push(path);
    let keys = read_file(import, &text, file, around);
    around.pop();
    keys
}

/// A path that is named in a file.
pub(crate) fn beside(file: &str, path: &str) -> String {
    match file.rsplit_once('/') {
        Some((folder, _)) if !path.starts_with('/') => format!("{folder}/{path}"),
        _ => path.to_owned(),
    }
}

fn read_server(import: &mut Import, block: &SourceKey) {
    for (name, place) in [("lease_lifetime", 0), ("grace_period", 1)] {
        let Some(key) = block.key(name) else { continue };
        let seconds = key.word().and_then(|word| word.parse::<u64>().ok());
        let Some(seconds) = seconds.filter(|seconds| (1..=3600).contains(seconds)) else {
            let why = "weft takes 1 to 3600 seconds, and has 90";
            import.report.add(key.place, name, Lost, why);
            continue;
        };
        let found = match place {
            0 => &mut import.model.lease_ms,
            _ => &mut import.model.grace_ms,
        };
        *found = Some(seconds * 1000);
    }
    // No less than a lease.
    if let (Some(lease), Some(grace)) = (import.model.lease_ms, import.model.grace_ms)
        && grace < lease
    {
        let why = "a grace period is no shorter than a lease: it is as long";
        import.report.add(block.place, "grace_period", Lost, why);
        import.model.grace_ms = Some(lease);
    }
    if import.model.grace_ms.is_none() {
        import.model.grace_ms = import.model.lease_ms.filter(|lease| *lease > 90_000);
    }
    if import.model.lease_ms.is_none() {
        import.model.lease_ms = import.model.grace_ms.filter(|grace| *grace < 90_000);
    }
    let port = block
        .text("nfs_port")
        .and_then(|port| port.parse::<u16>().ok());
    let address = block.key("bind_addr");
    if port.is_some() || address.is_some() {
        let ip = address.and_then(SourceKey::word).unwrap_or("0.0.0.0");
        let port = port.filter(|port| *port > 0).unwrap_or(2049);
        match ip.parse::<IpAddr>() {
            Ok(ip) => import.listen(
                address.unwrap_or(block),
                SocketAddr::new(ip, port),
                Spoken::Nfs,
            ),
            Err(_) => import
                .report
                .mistake(block.place, format!("{ip:?} is no address")),
        }
    }
    let rest: Vec<&SourceKey> = block.keys.iter().collect();
    for key in rest {
        see_all(key);
    }
    let why = "parameters of Ganesha: weft has its own, see [nfs] and [policy]";
    import.report.add(block.place, &block.name, Default, why);
}

/// What a block says of rights, in the order of who is asked first.
struct Asked<'k>(Vec<&'k SourceKey>);

impl Asked<'_> {
    fn find(&self, name: &str) -> Option<&SourceKey> {
        self.0.iter().find_map(|block| block.key(name))
    }

    fn text(&self, name: &str) -> Option<String> {
        let word = self.find(name)?.word()?;
        Some(word.to_ascii_lowercase())
    }
}

/// What a block gives; `None`: nothing, to anybody.
fn terms(import: &mut Import, asked: &Asked) -> Option<ExportTerms> {
    let place = asked.0[0].place;
    let access = asked.text("access_type").unwrap_or("none".to_owned());
    let read_only = match access.as_str() {
        "rw" => false,
        "ro" => true,
        "none" => return None,
        other => {
            let why = format!("weft has no access {other:?}: they are not let in");
            import.report.add(place, "access_type", Access, why);
            return None;
        }
    };
    let squash = asked.text("squash").unwrap_or("root_squash".to_owned());
    let squash = match squash.as_str() {
        "root" | "root_squash" | "rootsquash" => "root",
        "rootid" | "root_id_squash" | "rootidsquash" => {
            let why = "weft squashes root's groups too";
            import.report.add(place, "squash", Lost, why);
            "root"
        }
        "no_root_squash" | "none" | "noidsquash" => "none",
        _ => "all",
    };
    let security = asked.find("sectype");
    let mut flavors: Vec<&'static str> = Vec::new();
    for word in security.map_or(&["none".to_owned(), "sys".to_owned()][..], |key| &key.words) {
        match word.to_ascii_lowercase().as_str() {
            "sys" => flavors.push("sys"),
            "none" => flavors.push("none"),
            other => {
                let why = left_out_flavor(other);
                import.report.add(place, "sectype", Access, why);
            }
        }
    }
    flavors.sort_unstable_by(|a, b| b.cmp(a));
    flavors.dedup();
    if flavors.is_empty() {
        let why = "nothing is left that can be taken over: who needs it is not let in";
        import.report.add(place, "sectype", Access, why);
        return None;
    }
    let mut id = |name: &str| {
        let key = asked.find(name)?;
        import.id(key, key.word()?)
    };
    Some(ExportTerms {
        read_only,
        squash,
        anon_uid: id("anonymous_uid").unwrap_or(65_534),
        anon_gid: id("anonymous_gid").unwrap_or(65_534),
        security: flavors,
        xprtsec: Vec::new(),
        secure: (asked.text("privilegedport"))
            .is_some_and(|word| matches!(word.as_str(), "true" | "yes" | "1")),
    })
}

fn read_export(import: &mut Import, export: &SourceKey, defaults: &SourceKey) {
    let Some(path) = export.key("path") else {
        return import.report.mistake(export.place, "an EXPORT has no Path");
    };
    let folder = path.word().unwrap_or_default().to_owned();
    let kind = export.key("fsal").and_then(|fsal| {
        see_all(fsal);
        fsal.text("name")
    });
    let kind = kind.unwrap_or("VFS").to_ascii_lowercase();
    if !matches!(kind.as_str(), "vfs" | "xfs" | "lustre") {
        see_all(export);
        let why = format!("weft serves directories, not {kind:?}: the export is left out");
        return import.report.add(path.place, "fsal", Access, why);
    }
    let _ = export.key("export_id");
    let asked = Asked(vec![export, defaults]);
    let protocols = asked
        .find("protocols")
        .map_or(Vec::new(), |key| key.words.clone());
    let is_for =
        |version: char| protocols.is_empty() || protocols.iter().any(|p| p.contains(version));
    let pseudo = export.key("pseudo");
    let mut shown = folder.clone();
    if let Some(pseudo) = pseudo.and_then(SourceKey::word)
        && is_for('4')
    {
        pseudo.clone_into(&mut shown);
        if is_for('3') && pseudo != folder {
            let why = format!(
                "clients of NFSv3 mounted {folder}, those of NFSv4 {pseudo}: weft has one path, \
                 the latter"
            );
            import.report.add(path.place, "path", Lost, why);
        }
    }
    if !(is_for('3') && is_for('4')) {
        let why = "weft serves every version of NFS";
        import.report.add(export.place, "protocols", Lost, why);
    }
    let own = export.all("client").count() > 0;
    let from = if own { export } else { defaults };
    let mut clients: Vec<AskedClient> = Vec::new();
    for client in from.all("client") {
        read_client(import, client, (export, defaults), &mut clients);
    }
    let terms = terms(import, &asked);
    clients.push(AskedClient {
        client: Client::Any,
        terms,
        note: "rights of the EXPORT, for all others".to_owned(),
    });
    let rules = import.rules(path, clients);
    let mut notes = Notes::default();
    notes.set(
        "path",
        format!("`Pseudo` or `Path`, line {}", path.place.line),
    );
    let export_model = ExportModel {
        path: shown,
        folder,
        rules,
        notes,
    };
    import.export(path, export_model);
}

/// Adds whom a CLIENT block names.
fn read_client(
    import: &mut Import,
    client: &SourceKey,
    (export, defaults): (&SourceKey, &SourceKey),
    clients: &mut Vec<AskedClient>,
) {
    let asked = Asked(vec![client, export, defaults]);
    let terms = terms(import, &asked);
    let note = format!("CLIENT, line {}", client.place.line);
    for list in client.all("clients") {
        for word in &list.words {
            let found = import.client(list, word);
            clients.extend(found.map(|client| AskedClient {
                client,
                terms: terms.clone(),
                note: note.clone(),
            }));
        }
    }
}
