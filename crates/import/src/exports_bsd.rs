//! exports(5) of the BSDs: directories, options with a dash, hosts.
//!
//! `-maproot` and `-mapall` say as whom root and all act; `-network` and `-mask` name a network
//! instead of hosts; a line without hosts is for everybody who has none. `V4:` names the root of
//! NFSv4's tree.

use std::net::{IpAddr, Ipv4Addr};

use crate::Import;
use crate::clients::{AskedClient, Client, ExportTerms, left_out_flavor, mask_bits};
use crate::exports::{ByPath, export_lines, in_order};
use crate::model::{ExportModel, Notes};
use crate::report::Weight::{Access, Default, Lost};
use crate::tree::SourceKey;

/// Whom the lines of a directory name.
type Asked = Vec<AskedClient>;

pub(crate) fn read(import: &mut Import, text: &str) {
    let mut exports: ByPath<(SourceKey, Asked)> = ByPath::new();
    for (at, words) in export_lines(import, text) {
        if words[0] == "V4:" {
            v4_root(import, &at, &words[1..]);
            continue;
        }
        let paths = words
            .iter()
            .take_while(|word| word.starts_with('/'))
            .count();
        if paths == 0 {
            let text = "a line begins with a path, as /srv/files, or with V4:";
            import.report.mistake(at.place, text);
            continue;
        }
        let (clients, terms) = read_line(import, &at, &words[paths..]);
        for path in &words[..paths] {
            let (_, known) = exports.entry(path, || (at.clone(), Vec::new()));
            known.extend(clients.iter().map(|client| AskedClient {
                client: client.clone(),
                terms: terms.clone(),
                note: format!("line {}", at.place.line),
            }));
        }
    }
    for (path, (at, rules)) in exports.all(import) {
        let mut notes = Notes::default();
        notes.set("path", format!("line {}", at.place.line));
        let rules = import.rules(&at, in_order(rules));
        let export = ExportModel {
            folder: path.clone(),
            rules,
            path,
            notes,
        };
        import.export(&at, export);
    }
}

fn v4_root(import: &mut Import, at: &SourceKey, words: &[String]) {
    let root = words.first().map_or("/", String::as_str);
    let root = root.trim_end_matches('/');
    if !root.is_empty() {
        let why = format!(
            "{root} was the root of NFSv4: clients that mounted HOST:/x mount HOST:{root}/x now, \
             as those of NFSv3 do"
        );
        import.report.add(at.place, "V4:", Lost, why);
    }
    let told = words
        .iter()
        .skip(1)
        .filter(|word| !word.starts_with("-sec=sys"));
    if told.count() > 0 {
        let why = "what holds for NFSv4's tree as a whole is not carried over: see each export";
        import.report.add(at.place, "V4:", Access, why);
    }
}

/// Whom a line is for, and what they may; `None`: nothing, which is told.
fn read_line(
    import: &mut Import,
    at: &SourceKey,
    words: &[String],
) -> (Vec<Client>, Option<ExportTerms>) {
    let mut terms = ExportTerms {
        read_only: false,
        squash: "root",
        anon_uid: 65_534,
        anon_gid: 65_533,
        security: vec!["sys"],
        xprtsec: Vec::new(),
        secure: false,
    };
    let mut clients: Vec<Client> = Vec::new();
    let (mut network, mut mask): (Option<String>, Option<String>) = (None, None);
    let (mut names_somebody, mut is_open) = (false, true);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some(option) = word.strip_prefix('-') else {
            names_somebody = true;
            // Without a mark, a name is a host's or a netgroup's: the resolver decides.
            clients.extend(import.client(at, word));
            continue;
        };
        let (name, given) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let mut value = || match given {
            Some(value) => value.to_owned(),
            None => rest.next().cloned().unwrap_or_default(),
        };
        let mut key = at.clone();
        key.name = format!("-{name}");
        match name {
            "ro" | "o" => terms.read_only = true,
            "network" => (network, names_somebody) = (Some(value()), true),
            "mask" => mask = Some(value()),
            "maproot" | "r" => map(import, &key, &value(), "root", &mut terms),
            "mapall" => map(import, &key, &value(), "all", &mut terms),
            "sec" => security(import, &key, &value(), &mut terms),
            "alldirs" | "quiet" | "noresvmnt" => {}
            "index" => {
                let _ = value();
                (import.report).add(at.place, &key.name, Lost, "weft has no WebNFS");
            }
            "tls" => encrypted(import, &key, &["tls", "mtls"], &mut terms),
            "tlscert" => encrypted(import, &key, &["mtls"], &mut terms),
            "webnfs" | "public" | "tlscertuser" => {
                let why = "weft has neither WebNFS nor users of certificates: a client that had \
                           to use it is not let in";
                import.report.add(at.place, &key.name, Access, why);
                is_open = false;
            }
            _ => {
                let why = "weft does not know this option: see in exports(5) whether it keeps \
                           anybody out";
                import.report.add(at.place, &key.name, Access, why);
            }
        }
    }
    if let Some(network) = network {
        clients.extend(net(import, at, &network, mask.as_deref()));
    }
    if !names_somebody {
        clients.push(Client::Any);
    }
    if terms.security.is_empty() {
        let why = "nothing is left that can be taken over: who needs it is not let in";
        import.report.add(at.place, "-sec", Access, why);
        is_open = false;
    }
    (clients, is_open.then_some(terms))
}

/// A network with its mask; without one it is that of the network's class.
fn net(import: &mut Import, at: &SourceKey, network: &str, mask: Option<&str>) -> Option<Client> {
    if network.contains('/') {
        return import.client(at, network);
    }
    let bits = match (network.parse::<IpAddr>(), mask.map(str::parse::<Ipv4Addr>)) {
        (Ok(IpAddr::V4(_)), Some(Ok(mask))) => mask_bits(mask),
        (Ok(IpAddr::V4(ip)), None) => match ip.octets()[0] {
            0..128 => Some(8),
            128..192 => Some(16),
            _ => Some(24),
        },
        _ => None,
    };
    if mask.is_none() {
        let why = "without `-mask` it is the network of the address's old class";
        import.report.add(at.place, "-network", Default, why);
    }
    match bits {
        Some(bits) => import.client(at, &format!("{network}/{bits}")),
        None => {
            let text =
                format!("-network {network}: write -network 192.0.2.0/24, or an address and -mask");
            import.report.mistake(at.place, text);
            None
        }
    }
}

/// `user` or `user:group:...` for root, or for all.
fn map(
    import: &mut Import,
    key: &SourceKey,
    value: &str,
    who: &'static str,
    terms: &mut ExportTerms,
) {
    let mut parts = value.split(':');
    let user = parts.next().unwrap_or_default();
    let group = parts.next().filter(|group| !group.is_empty());
    let uid = import.id(key, user);
    if parts.next().is_some() {
        let why = "weft gives the anonymous user one group: the others are lost";
        import.report.add(key.place, &key.name, Lost, why);
    }
    if uid == Some(0) && who == "root" {
        terms.squash = "none";
        return;
    }
    terms.squash = who;
    terms.anon_uid = uid.unwrap_or(terms.anon_uid);
    let gid = match (group, uid) {
        (Some(group), _) => import.id(key, group),
        (None, Some(0)) => Some(0),
        (None, _) => {
            let why = format!("the groups of {user} stand on the other machine: set `anon_gid`");
            import.report.add(key.place, &key.name, Lost, why);
            None
        }
    };
    terms.anon_gid = gid.unwrap_or(terms.anon_gid);
}

/// Clients are let in over TLS alone.
fn encrypted(
    import: &mut Import,
    key: &SourceKey,
    xprtsec: &[&'static str],
    terms: &mut ExportTerms,
) {
    terms.xprtsec = xprtsec.to_vec();
    let why = "no client is let in before [nfs.tls] names rpc.tlsservd's certificate";
    import.report.add(key.place, &key.name, Access, why);
}

fn security(import: &mut Import, key: &SourceKey, value: &str, terms: &mut ExportTerms) {
    terms.security.clear();
    for flavor in value.split(':') {
        match flavor {
            "sys" if !terms.security.contains(&"sys") => terms.security.push("sys"),
            "sys" => {}
            other => {
                let why = left_out_flavor(other);
                import.report.add(key.place, &key.name, Access, why);
            }
        }
    }
}
