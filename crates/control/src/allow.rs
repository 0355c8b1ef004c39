//! What of a configuration would let a peer in that was refused.

use std::net::IpAddr;

use iscsi::{InitiatorAcl, Target, check_initiator_name};
use nvmf::check_host_nqn;
use serde_json::{Map, json};
use server::nfs::{ClientName, Clients, ConnectedClient, ExportSpec, Net, Rule, Xprtsec};
use server::{LastRefusal, NbdClientName, Remedy, Served, SubsystemSpec};
use toml::Value;

use crate::certificates::is_alternative_name;
use crate::document::{Edit, ObjectPath};

/// A list that is longer is not told whole.
const LISTED_MAX: usize = 32;

/// What would let a peer in.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowed {
    /// The lines of TOML, with a comment that says where they belong; where a secret decides,
    /// a comment alone, that names its key.
    pub lines: String,
    /// The same as a change of one object, where it is one.
    pub edit: Option<Edit>,
}

/// What would let the peer in. `None`: nothing would, or what is served lets the peer in by
/// now.
#[must_use]
pub fn allow(refused: &LastRefusal, served: &Served) -> Option<Allowed> {
    let target = refused.target.as_deref();
    let host = refused.host.as_deref();
    match refused.remedy {
        Remedy::None => None,
        Remedy::Protection { has_tls } => {
            protection_of_export(target?, refused.address?, has_tls, served)
        }
        Remedy::Secret => Some(Allowed {
            lines: secret(target, host, served),
            edit: None,
        }),
        Remedy::ListPeer => {
            let (target, host) = (target?, host.unwrap_or_default());
            let of_nvme = || host_of_subsystem(target, host, refused.address?, served);
            let of_iscsi = || initiator_of_target(target, host, refused.address?, served);
            let of_nfs = || client_of_export(target, host, refused.address?, served);
            let of_nbd = || client_of_nbd_export(target, host, refused.address?, served);
            of_nvme().or_else(of_iscsi).or_else(of_nfs).or_else(of_nbd)
        }
    }
}

/// What would let a client have an NBD export.
fn client_of_nbd_export(name: &str, shown: &str, from: IpAddr, served: &Served) -> Option<Allowed> {
    let export = served
        .nbd_exports
        .iter()
        .find(|export| export.name == name)?;
    let clients = export.clients.as_ref()?;
    if clients.iter().any(|name| name.has_address(from)) {
        return None;
    }
    let listed: Vec<String> = clients.iter().map(ToString::to_string).collect();
    let is_network = |name: &NbdClientName| matches!(name, NbdClientName::Network(_));
    let wants_tls = !clients.is_empty() && !clients.iter().any(is_network);
    if shown.is_empty() && wants_tls {
        return Some(Allowed {
            lines: format!(
                "# connect by nbds:// with a certificate, or a key, that `clients` of\n\
                 # [[nbd_export]] name = {} names: its address would let it in without TLS",
                quoted(name)
            ),
            edit: None,
        });
    }
    let one = match shown {
        "" => from.to_string(),
        shown => shown.to_owned(),
    };
    if listed.contains(&one) {
        return None;
    }
    let lines = format!(
        "# in [[nbd_export]] name = {}:\n{}",
        quoted(name),
        with_one_more("clients", &listed, &one)
    );
    let named = [listed, vec![one]].concat();
    let fields = Map::from_iter([("clients".to_owned(), json!(named))]);
    let object = ObjectPath::new("nbd_export", &[name]);
    let edit = (named.len() <= LISTED_MAX).then_some(Edit::Set { object, fields });
    Some(Allowed { lines, edit })
}

/// One object more, in the one that is called `parent`.
fn one_more(kind: &str, parent: &str, name: &str, fields: serde_json::Value) -> Option<Edit> {
    let fields = match fields {
        serde_json::Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let object = ObjectPath::new(kind, &[parent, name]);
    Some(Edit::Add { object, fields })
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A key with the list that it has, and one more.
fn with_one_more(key: &str, listed: &[String], one: &str) -> String {
    let one = quoted(one);
    if listed.len() > LISTED_MAX {
        return format!("# one more line of `{key}`:\n{one},");
    }
    let lines = listed.iter().map(|known| quoted(known)).chain([one]);
    let lines: Vec<String> = lines.map(|line| format!("    {line},\n")).collect();
    format!("{key} = [\n{}]", lines.concat())
}

fn host_of_subsystem(nqn: &str, host: &str, address: IpAddr, served: &Served) -> Option<Allowed> {
    let mut all = served.subsystems.iter();
    let subsystem = all.find(|subsystem| subsystem.nqn == nqn)?;
    let mut terms = subsystem.terms.iter().filter(|terms| terms.nqn == host);
    if let Some(terms) = terms.find(|terms| !terms.has_address(address)) {
        let mut networks: Vec<_> = terms.networks.iter().map(ToString::to_string).collect();
        let address = address.to_string();
        let line = with_one_more("networks", &networks, &address);
        networks.push(address);
        let object = ObjectPath::new("subsystem/host", &[nqn, host]);
        let fields = Map::from_iter([("networks".to_owned(), json!(networks))]);
        return Some(Allowed {
            lines: format!(
                "# in [[nvme.subsystem.host]] nqn = {}:\n{line}",
                quoted(host)
            ),
            edit: Some(Edit::Set { object, fields }),
        });
    }
    let hosts = subsystem.hosts.as_ref()?;
    if hosts.iter().any(|known| known == host) || check_host_nqn(host).is_err() {
        return None;
    }
    let line = with_one_more("hosts", hosts, host);
    Some(Allowed {
        edit: one_more("subsystem/host", nqn, host, json!({})),
        lines: format!("# in [[nvme.subsystem]] nqn = {}:\n{line}", quoted(nqn)),
    })
}

fn target_of<'a>(name: &str, served: &'a Served) -> Option<&'a Target> {
    let name = iscsi::normalize(name);
    let mut all = served.targets.iter().map(|spec| &spec.target);
    all.find(|target| target.name == name)
}

fn initiator_of_target(
    name: &str,
    initiator: &str,
    asks: IpAddr,
    served: &Served,
) -> Option<Allowed> {
    let target = target_of(name, served)?;
    let initiator = check_initiator_name(initiator).ok()?;
    let lets_in = |tag| target.entry_of(&initiator, asks, tag).is_some();
    if target.portal_groups.iter().all(|group| lets_in(group.tag)) {
        return None;
    }
    let named = |entry: &&InitiatorAcl| entry.name.as_ref() == Some(&initiator);
    let named: Vec<_> = target.acl.iter().filter(named).collect();
    let (name, address) = (quoted(&target.name), asks.to_string());
    if let Some(entry) = named.first() {
        let is_from_here = entry.networks.iter().any(|network| network.has(asks));
        if entry.networks.is_empty() || is_from_here {
            return Some(Allowed {
                lines: format!(
                    "# one more tag in `portal_groups` of the [[iscsi.target.initiator]] that \
                     names it, in [[iscsi.target]] name = {name}"
                ),
                edit: None,
            });
        }
        let mut networks: Vec<_> = entry.networks.iter().map(ToString::to_string).collect();
        let line = with_one_more("networks", &networks, &address);
        networks.push(address);
        let object = ObjectPath::new("target/initiator", &[&target.name, &initiator]);
        let fields = Map::from_iter([("networks".to_owned(), json!(networks))]);
        return Some(Allowed {
            lines: format!(
                "# in the [[iscsi.target.initiator]] that names it; if none does, in \
                 [[iscsi.target]] name = {name}:\n{line}"
            ),
            // Of several the text alone says which it is.
            edit: (named.len() == 1).then_some(Edit::Set { object, fields }),
        });
    }
    let (networks, fields) = match target.acl.iter().any(|entry| !entry.networks.is_empty()) {
        true => {
            let line = format!("\nnetworks = [{}]", quoted(&address));
            (line, json!({ "networks": [address] }))
        }
        false => (String::new(), json!({})),
    };
    let edit = one_more("target/initiator", &target.name, &initiator, fields);
    let initiator = quoted(&initiator);
    Some(Allowed {
        lines: format!(
            "# at the end of [[iscsi.target]] name = {name}:\n\
             [[iscsi.target.initiator]]\nname = {initiator}{networks}"
        ),
        edit,
    })
}

/// `name` is that of the certificate that the client has shown; without one it is empty.
fn client_of_export(path: &str, name: &str, from: IpAddr, served: &Served) -> Option<Allowed> {
    let parts = |path: &str| -> Vec<String> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let asked = parts(path);
    let known = ConnectedClient {
        names: [name.to_owned()].into(),
        ..ConnectedClient::from(from)
    };
    let lets_in = |export: &ExportSpec| {
        let mut rules = export.rules.iter();
        rules.any(|rule| rule.clients.contains(&known))
    };
    let within = served.exports.iter();
    let within = within.filter(|export| asked.starts_with(&parts(&export.path)));
    let Some(export) = within.max_by_key(|export| export.path.len()) else {
        let lets_none_in = path == "/" && !served.exports.iter().any(lets_in);
        return lets_none_in.then(|| client_of_some_export(name, from, served));
    };
    if lets_in(export) {
        return None;
    }
    let client = match name {
        "" if wants_certificate(export) => {
            return Some(Allowed {
                lines: format!(
                    "# mount with `-o xprtsec=mtls` and a certificate that `clients` of\n\
                     # [[export]] path = {} names: its address would not help",
                    quoted(&export.path)
                ),
                edit: None,
            });
        }
        name => client_entry(name, from),
    };
    let edit = one_more(
        "export/client",
        &export.path,
        &client,
        json!({ "clients": [client] }),
    );
    let (path, client) = (quoted(&export.path), quoted(&client));
    Some(Allowed {
        lines: format!(
            "# at the end of [[export]] path = {path}:\n[[export.client]]\nclients = [{client}]"
        ),
        edit,
    })
}

/// What `clients` of an export would name a client by.
fn client_entry(name: &str, from: IpAddr) -> String {
    match is_alternative_name(name) {
        true => name.to_owned(),
        false => Net::host(from).to_string(),
    }
}

/// A client that no export lets in has not said yet which it wants.
fn client_of_some_export(name: &str, from: IpAddr, served: &Served) -> Allowed {
    let lines = match name.is_empty() && served.exports.iter().all(wants_certificate) {
        true => {
            "# mount with `-o xprtsec=mtls` and a certificate that `clients` of the [[export]] \
                 names:\n# its address would not help"
                .to_owned()
        }
        false => format!(
            "# at the end of the [[export]] that it is to mount:\n[[export.client]]\nclients = [{}]",
            quoted(&client_entry(name, from))
        ),
    };
    Allowed { lines, edit: None }
}

/// Whether clients of an export have to show a certificate: it names them by nothing else, or takes
/// no connection without one.
fn wants_certificate(export: &ExportSpec) -> bool {
    let by_certificate = |rule: &Rule| match &rule.clients {
        Clients::Any => false,
        Clients::Named(names) => {
            let mut names = names.iter();
            names.all(|name| matches!(name, ClientName::Certificate(_)))
        }
    };
    // One more client has the terms of what stands last.
    let takes_others = |rule: &Rule| rule.xprtsec.named().any(|way| way != Xprtsec::Mtls);
    export.rules.iter().all(by_certificate) || !export.rules.last().is_some_and(takes_others)
}

/// What of an export would take connections that are protected less.
fn protection_of_export(
    path: &str,
    address: IpAddr,
    has_tls: bool,
    served: &Served,
) -> Option<Allowed> {
    let export = served.exports.iter().find(|export| export.path == path)?;
    let client = ConnectedClient::from(address);
    let has = match has_tls {
        true => Xprtsec::Tls,
        false => Xprtsec::None,
    };
    let mut rules = export.rules.iter();
    let rule = rules.find(|rule| rule.clients.contains(&client))?;
    if rule.xprtsec.take(has) {
        return None;
    }
    let ways = Xprtsec::ALL.into_iter();
    let ways = ways.filter(|way| *way == has || rule.xprtsec.named().any(|named| named == *way));
    let ways: Vec<String> = ways.map(|way| quoted(way.word())).collect();
    Some(Allowed {
        lines: format!(
            "# in [[export]] path = {}, or in the [[export.client]] of it that names the client:\n\
             xprtsec = [{}]",
            quoted(path),
            ways.join(", ")
        ),
        edit: None,
    })
}

/// Where the secret stands that a peer has not proved to know; never the secret.
fn secret(target: Option<&str>, initiator: Option<&str>, served: &Served) -> String {
    let is_target = |subsystem: &&SubsystemSpec| Some(&*subsystem.nqn) == target;
    if let Some(subsystem) = served.subsystems.iter().find(is_target) {
        let (host, nqn) = (
            quoted(initiator.unwrap_or_default()),
            quoted(&subsystem.nqn),
        );
        return format!(
            "# the secrets are `dhchap_secret_file` (`--dhchap-secret` of the host) and\n\
             # `dhchap_ctrl_secret_file` (`--dhchap-ctrl-secret`) in [[nvme.subsystem.host]]\n\
             # nqn = {host}, of [[nvme.subsystem]] nqn = {nqn}"
        );
    }
    let Some(target) = target.and_then(|name| target_of(name, served)) else {
        return "# the secret is that of `chap` in [iscsi.discovery]: its `secret` or `secret_file`"
            .to_owned();
    };
    let initiator = initiator.and_then(|name| check_initiator_name(name).ok());
    let has_own = |entry: &&InitiatorAcl| entry.name == initiator && entry.auth.is_some();
    let table = match target.acl.iter().any(|entry| has_own(&entry)) {
        true => "the [[iscsi.target.initiator]] that names it, of ",
        false => "",
    };
    let name = quoted(&target.name);
    format!(
        "# the secret is that of `chap` (its `secret` or `secret_file`) in\n\
         # {table}[[iscsi.target]] name = {name}"
    )
}

#[cfg(test)]
mod tests {
    use nvmf::HostTerms;
    use server::IscsiTargetSpec;
    use server::nfs::XprtsecModes;

    use super::*;

    const NQN: &str = "nqn.2026-01.io.weft:a";
    const IQN: &str = "iqn.2026-01.io.weft:a";

    fn served(hosts: Vec<String>, acl: Vec<InitiatorAcl>) -> Served {
        let target = Target {
            acl,
            portal_groups: vec![iscsi::PortalGroup::default()],
            ..Target::new(IQN)
        };
        Served {
            listeners: Vec::new(),
            volumes: Vec::new(),
            subsystems: vec![SubsystemSpec {
                nqn: NQN.to_owned(),
                hosts: Some(hosts),
                ..SubsystemSpec::default()
            }],
            targets: vec![IscsiTargetSpec {
                target,
                ..IscsiTargetSpec::new("")
            }],
            file_systems: Vec::new(),
            exports: Vec::new(),
            nbd_exports: Vec::new(),
        }
    }

    fn refused(host: &str, target: &str) -> LastRefusal {
        LastRefusal {
            first_unix_s: 0,
            last_unix_s: 0,
            count: 1,
            kind: server::RefusalKind("refused"),
            address: Some([192, 0, 2, 7].into()),
            host: Some(host.to_owned()),
            target: Some(target.to_owned()),
            reason: String::new(),
            remedy: Remedy::ListPeer,
        }
    }

    fn exported(names: &[&str], xprtsec: &[Xprtsec]) -> Served {
        let names = names.iter().map(|name| match name.parse() {
            Ok(net) => ClientName::Net(net),
            Err(_) => ClientName::Certificate((*name).to_owned()),
        });
        let rule = Rule {
            clients: Clients::Named(names.collect()),
            xprtsec: XprtsecModes::new(xprtsec),
            ..Rule::default()
        };
        Served {
            nbd_exports: Vec::new(),
            exports: vec![ExportSpec {
                path: "/homes".to_owned(),
                what: server::nfs::Exported::FileSystem("homes".to_owned()),
                rules: vec![rule],
            }],
            ..served(Vec::new(), Vec::new())
        }
    }

    #[test]
    fn client_without_tls_is_not_let_in_by_its_address_where_certificates_or_keys_are_named() {
        let export = server::NbdExportSpec {
            name: "disk".to_owned(),
            volume: "disk".to_owned(),
            description: String::new(),
            is_read_only: false,
            clients: None,
        };
        let told = |client: NbdClientName, shown: &str| {
            let clients = Some(vec![client]);
            let nbd_exports = vec![server::NbdExportSpec {
                clients,
                ..export.clone()
            }];
            let served = Served {
                nbd_exports,
                ..served(Vec::new(), Vec::new())
            };
            let mut refused = refused(shown, "disk");
            refused.host = refused.host.filter(|name| !name.is_empty());
            allow(&refused, &served).expect("lines")
        };
        for client in [
            NbdClientName::Certificate("DNS:vm1".to_owned()),
            NbdClientName::Key("PSK:vm1".to_owned()),
        ] {
            let allowed = told(client.clone(), "");
            assert!(allowed.lines.contains("connect by nbds://"), "{allowed:?}");
            assert_eq!(allowed.edit, None);
            let allowed = told(client.clone(), "PSK:vm2");
            for name in [&*client.to_string(), "PSK:vm2"] {
                assert!(allowed.lines.contains(&quoted(name)), "{allowed:?}");
            }
        }
        let network = "198.51.100.0/24".parse().expect("a network");
        let allowed = told(NbdClientName::Network(network), "");
        assert!(allowed.edit.is_some(), "{allowed:?}");
    }

    #[test]
    fn client_of_an_export_has_told_by_what_it_would_be_let_in() {
        const DNS: &str = "DNS:web1.example.org";
        let told = |name: &str, served: &Served| {
            let mut refused = refused(name, "/homes/alice");
            refused.host = refused.host.filter(|name| !name.is_empty());
            allow(&refused, served)
        };
        // Without a certificate no address helps.
        for served in [
            exported(&[DNS], &Xprtsec::ALL),
            exported(&["198.51.100.0/24"], &[Xprtsec::Mtls]),
        ] {
            let allowed = told("", &served).expect("a comment");
            assert!(
                allowed
                    .lines
                    .contains("`-o xprtsec=mtls` and a certificate")
            );
            assert!(allowed.lines.contains("\"/homes\""), "{}", allowed.lines);
            assert!(allowed.lines.lines().all(|line| line.starts_with('#')));
            assert_eq!(allowed.edit, None);
        }
        let edit = |client: &str| {
            let fields = json!({ "clients": [client] });
            one_more("export/client", "/homes", client, fields)
        };
        // A name in its certificate does, and is less than its address.
        for served in [
            exported(&[DNS], &Xprtsec::ALL),
            exported(&["198.51.100.0/24"], &[Xprtsec::Mtls]),
        ] {
            let name = "DNS:web2.example.org";
            let allowed = told(name, &served).expect("lines");
            assert!(
                allowed
                    .lines
                    .ends_with("clients = [\"DNS:web2.example.org\"]")
            );
            assert_eq!(allowed.edit, edit(name));
        }
        let both = exported(&[DNS, "198.51.100.0/24"], &Xprtsec::ALL);
        assert_eq!(told(DNS, &both), None, "it is named");
        let nameless = told("", &both).expect("lines");
        assert_eq!(nameless.edit, edit("192.0.2.7"));
    }

    #[test]
    fn client_that_no_export_lets_in_has_its_entry_of_clients_told() {
        const DNS: &str = "DNS:web1.example.org";
        let net = exported(&["198.51.100.0/24"], &Xprtsec::ALL);
        let told = |served: &Served, name| allow(&refused(name, "/"), served);
        for (name, entry) in [("", "192.0.2.7"), (DNS, DNS)] {
            let allowed = told(&net, name).expect("lines");
            let (comment, lines) = allowed.lines.split_once('\n').expect("a comment");
            assert!(comment.contains("that it is to mount"), "{comment}");
            assert_eq!(lines, format!("[[export.client]]\nclients = [\"{entry}\"]"));
            assert_eq!(allowed.edit, None);
        }
        let by_certificate = told(&exported(&[DNS], &Xprtsec::ALL), "").expect("a comment");
        let mut lines = by_certificate.lines.lines();
        assert!(lines.all(|line| line.starts_with('#')));
        assert_eq!(told(&exported(&["192.0.2.0/24"], &Xprtsec::ALL), ""), None);
    }

    #[test]
    fn list_of_hosts_that_is_long_is_not_told_whole() {
        let hosts = |count| (0..count).map(|n| format!("nqn.2026-01.io.weft:h{n}"));
        let allow = |count| {
            let served = served(hosts(count).collect(), Vec::new());
            let allowed = allow(&refused("nqn.2026-01.io.weft:new", NQN), &served);
            allowed.expect("lines").lines
        };
        let whole = allow(LISTED_MAX);
        assert_eq!(whole.lines().count(), LISTED_MAX + 4, "{whole}");
        assert!(whole.ends_with("    \"nqn.2026-01.io.weft:new\",\n]"));
        let one = allow(LISTED_MAX + 1);
        assert!(one.ends_with("# one more line of `hosts`:\n\"nqn.2026-01.io.weft:new\","));
    }

    #[test]
    fn name_that_no_configuration_takes_has_no_remedy() {
        let served = served(Vec::new(), Vec::new());
        for host in ["", "formless", "nqn.2026-01.io.weft:a\"]\nx = 1"] {
            assert_eq!(allow(&refused(host, NQN), &served), None, "{host}");
        }
        let other = "nqn.2026-01.io.weft:b";
        assert_eq!(allow(&refused(NQN, other), &served), None);
    }

    #[test]
    fn host_that_has_not_proved_its_secret_has_the_place_of_it_told() {
        let served = served(Vec::new(), Vec::new());
        let one = LastRefusal {
            remedy: Remedy::Secret,
            ..refused("nqn.2026-01.io.weft:h", NQN)
        };
        let told = allow(&one, &served).expect("lines");
        for word in ["dhchap_secret_file", "nqn.2026-01.io.weft:h", NQN] {
            assert!(told.lines.contains(word), "{}", told.lines);
        }
        assert_eq!(told.edit, None);
        assert!(told.lines.lines().all(|line| line.starts_with('#')));
    }

    #[test]
    fn host_that_comes_from_elsewhere_has_its_networks_told() {
        let mut served = served(vec!["nqn.2026-01.io.weft:h".to_owned()], Vec::new());
        served.subsystems[0].terms = vec![HostTerms {
            networks: vec!["198.51.100.0/24".parse().expect("a network")],
            ..HostTerms::new("nqn.2026-01.io.weft:h")
        }];
        let told = allow(&refused("nqn.2026-01.io.weft:h", NQN), &served).expect("lines");
        let lines = "networks = [\n    \"198.51.100.0/24\",\n    \"192.0.2.7\",\n]";
        assert!(told.lines.ends_with(lines), "{}", told.lines);
        let object = ObjectPath::new("subsystem/host", &[NQN, "nqn.2026-01.io.weft:h"]);
        let networks = json!(["198.51.100.0/24", "192.0.2.7"]);
        let fields = Map::from_iter([("networks".to_owned(), networks)]);
        assert_eq!(told.edit, Some(Edit::Set { object, fields }));
    }

    #[test]
    fn initiator_that_is_named_and_comes_from_elsewhere_has_its_networks_told() {
        let known = InitiatorAcl {
            name: Some("iqn.2026-01.io.weft:i".to_owned()),
            networks: vec!["198.51.100.0/24".parse().expect("a network")],
            ..InitiatorAcl::default()
        };
        let served = served(Vec::new(), vec![known]);
        let told = allow(&refused("iqn.2026-01.io.weft:I", IQN), &served).expect("lines");
        let object = ObjectPath::new("target/initiator", &[IQN, "iqn.2026-01.io.weft:i"]);
        let networks = json!(["198.51.100.0/24", "192.0.2.7"]);
        let fields = Map::from_iter([("networks".to_owned(), networks)]);
        assert_eq!(told.edit, Some(Edit::Set { object, fields }));
        let told = told.lines;
        let lines = "networks = [\n    \"198.51.100.0/24\",\n    \"192.0.2.7\",\n]";
        assert!(told.ends_with(lines), "{told}");
        let elsewhere = InitiatorAcl {
            name: Some("iqn.2026-01.io.weft:i".to_owned()),
            portal_groups: vec![7],
            ..InitiatorAcl::default()
        };
        let by_group = allow(
            &refused("iqn.2026-01.io.weft:i", IQN),
            &self::served(Vec::new(), vec![elsewhere]),
        );
        let by_group = by_group.expect("a line");
        assert!(by_group.edit.is_none() && by_group.lines.contains("`portal_groups`"));
        let told = allow(&refused("iqn.2026-01.io.weft:j", IQN), &served).expect("lines");
        let object = ObjectPath::new("target/initiator", &[IQN, "iqn.2026-01.io.weft:j"]);
        let mut fields = Map::new();
        fields.insert("networks".to_owned(), json!(["192.0.2.7"]));
        assert_eq!(told.edit, Some(Edit::Add { object, fields }));
        let told = told.lines;
        let lines = "name = \"iqn.2026-01.io.weft:j\"\nnetworks = [\"192.0.2.7\"]";
        assert!(told.ends_with(lines), "{told}");
    }
}
