use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use store::fs::Memory;

use super::*;
use crate::pseudo::View;
use crate::reason::Reason;
use crate::xprtsec::Xprtsec;

fn fs() -> Arc<dyn FileSystem> {
    static FS: OnceLock<Arc<Memory>> = OnceLock::new();
    let new = || Arc::new(Memory::new("m", 1 << 20, 1, Time::default()).unwrap());
    FS.get_or_init(new).clone()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn exports(paths: &[&str]) -> Result<Exports, ExportsError> {
    let export = |path: &&str| Export::new(path, fs(), vec![Rule::default()]);
    let all: Result<_, _> = paths.iter().map(export).collect();
    Exports::new(all?, Time::default())
}

#[test]
fn nets_hold_the_addresses_that_begin_alike() {
    let cases = [
        ("10.1.0.0/16", "10.1.255.255", true),
        ("10.1.0.0/16", "10.2.0.0", false),
        ("10.1.2.3/16", "10.1.9.9", true),
        ("192.0.2.128/25", "192.0.2.127", false),
        ("192.0.2.128/25", "192.0.2.128", true),
        ("192.0.2.7", "192.0.2.7", true),
        ("192.0.2.7", "192.0.2.6", false),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "192.0.2.1", false),
        ("fd00::/8", "fdff::9", true),
        ("fd00::/8", "fe00::9", false),
        ("2001:db8::1/127", "2001:db8::", true),
        // An IPv4 client on a socket of IPv6, and a net that is written so.
        ("10.0.0.0/8", "::ffff:10.9.8.7", true),
        ("10.0.0.0/8", "::ffff:11.9.8.7", false),
        ("::ffff:10.0.0.0/104", "10.9.8.7", true),
        ("::ffff:10.0.0.0/104", "11.9.8.7", false),
        ("::ffff:192.0.2.7", "192.0.2.7", true),
        // One that holds more than those.
        ("::ffff:10.0.0.0/8", "::1", true),
        ("::ffff:10.0.0.0/8", "10.9.8.7", false),
    ];
    for (net, client, expected) in cases {
        let net: Net = net.parse().unwrap();
        assert_eq!(net.contains(address(client)), expected, "{client} in {net}");
    }
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "::/129",
        "10.0.0.0/",
        "a/8",
        "10.0.0.0/-1",
    ] {
        assert_eq!(text.parse::<Net>(), Err(NotANet), "{text}");
    }
    for text in ["10.0.0.0/8", "192.0.2.7", "fd00::/8", "::1"] {
        assert_eq!(text.parse::<Net>().unwrap().to_string(), text);
    }
    assert_eq!(Net::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 33), None);
    assert!(Net::host(IpAddr::V6(Ipv6Addr::LOCALHOST)).contains(address("::1")));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let nets = |text: &str| Clients::nets(vec![text.parse().unwrap()]);
    let rule = |clients, anon_uid| Rule {
        clients,
        anon_uid,
        ..Rule::default()
    };
    let rules = vec![
        rule(nets("10.0.0.1"), 1),
        rule(nets("10.0.0.0/24"), 2),
        rule(Clients::nets(Vec::new()), 3),
    ];
    let export = Export::new("/a", fs(), rules).unwrap();
    let uid = |client: &str| export.rule(address(client)).map(|rule| rule.anon_uid);
    assert_eq!(uid("10.0.0.1"), Some(1));
    assert_eq!(uid("::ffff:10.0.0.2"), Some(2));
    assert_eq!(uid("10.0.1.2"), None);
    let export = Export::new("/a", fs(), vec![rule(Clients::Any, 4)]).unwrap();
    assert_eq!(export.rule(address("2001:db8::1")).unwrap().anon_uid, 4);
}

#[test]
fn squashed_users_and_groups_become_the_anonymous_ones() {
    let rule = |squash| Rule {
        squash,
        anon_uid: 77,
        anon_gid: 78,
        ..Rule::default()
    };
    let root = || Credential::sys(0, 0, [0, 5]);
    let user = || Credential::sys(1000, 100, [0, 5]);
    let anonymous = || Credential::sys(77, 78, []);
    let of = |uid, gid, also| Credential::sys(uid, gid, [also]);
    let cases = [
        (Squash::None, root(), root()),
        (Squash::None, user(), user()),
        (Squash::Root, root(), Credential::sys(77, 78, [78, 5])),
        (Squash::Root, user(), Credential::sys(1000, 100, [78, 5])),
        (Squash::Root, of(0, 100, 5), of(77, 100, 5)),
        (Squash::Root, of(1000, 0, 5), of(1000, 78, 5)),
        (Squash::Root, of(1000, 100, 0), of(1000, 100, 78)),
        (Squash::All, root(), anonymous()),
        (Squash::All, user(), anonymous()),
    ];
    for (squash, said, expected) in cases {
        let acts = rule(squash).acting_credential(&said).unwrap_or(said);
        assert_eq!(acts, expected, "{squash:?}");
    }
    // A user without user 0 or group 0 keeps its credential.
    assert_eq!(
        rule(Squash::Root).acting_credential(&of(1000, 100, 5)),
        None
    );
    // A call with AUTH_NONE is anonymous, not user 0.
    for squash in [Squash::None, Squash::Root, Squash::All] {
        assert_eq!(
            rule(squash).acting_credential(&Credential::default()),
            Some(anonymous())
        );
    }
    assert!(Rule::default().takes(Flavor::Sys) && !Rule::default().takes(Flavor::None));
}

#[test]
fn exports_are_sorted_and_nested_or_malformed_paths_are_refused() {
    let all = exports(&["/a", "/a.b", "/b/c/d", "/b/c/e", "/ab"]).unwrap();
    let paths: Vec<&str> = all.iter().map(Export::path).collect();
    assert_eq!(paths, ["/a", "/a.b", "/ab", "/b/c/d", "/b/c/e"]);
    for export in all.iter() {
        assert_eq!(all.get(export.id()).unwrap().path(), export.path());
    }
    assert!(all.get(0).is_none());
    let nested = |outer: &str, inner: &str| ExportsError::Nested(outer.into(), inner.into());
    let cases = [
        (vec!["/a", "/b", "/a"], ExportsError::Twice("/a".into())),
        (vec!["/a/b", "/a"], nested("/a", "/a/b")),
        (vec!["/a", "/a/b"], nested("/a", "/a/b")),
        // What sorts between them as a text does not hide it.
        (vec!["/a/b", "/a.b", "/a"], nested("/a", "/a/b")),
        (vec!["/x", "/"], nested("/", "/x")),
    ];
    for (paths, expected) in cases {
        assert_eq!(exports(&paths).unwrap_err(), expected);
    }
    assert!(exports(&["/"]).is_ok() && exports(&[]).is_ok());
    let long = format!("/{}", "x".repeat(256));
    for path in [
        "", "a", "/a/", "//", "/a//b", "/a/../b", "/.", &long, "/a\0",
    ] {
        assert_eq!(
            exports(&[path]).unwrap_err(),
            ExportsError::Path(path.into())
        );
    }
}

/// File handles of yesterday carry these.
#[test]
fn ids_are_the_same_for_all_time() {
    let all = exports(&["/srv/data"]).unwrap();
    let export = all.iter().next().unwrap();
    assert_eq!(export.junction(), id_of_path("/srv/data"));
    assert_eq!(
        (export.id(), export.junction()),
        (0xdc1a_3595, 0x3d44_6ac1_e15e_5f54)
    );
    assert_eq!(id_of_path("/"), 0x2f63_a24c_8601_89fc);
}

/// Whichever of the two is named first.
#[test]
fn nested_exports_are_refused_in_either_order() {
    let nested = Some(ExportsError::Nested("/a".into(), "/a/b".into()));
    assert_eq!(clash("/a", "/a/b"), nested);
    assert_eq!(clash("/a/b", "/a"), nested);
    assert_eq!(clash("/a", "/ab"), None);
}

#[test]
fn more_rules_or_exports_than_the_most_are_refused() {
    let rules = |count| Export::new("/a", fs(), vec![Rule::default(); count]).is_ok();
    assert!(rules(RULES_MAX) && !rules(RULES_MAX + 1));
    assert!(!rules(RULES_MAX + 2));
    let many = |count: usize| {
        let paths: Vec<String> = (0..count).map(|at| format!("/{at}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        exports(&paths).is_ok()
    };
    assert!(many(EXPORTS_MAX) && !many(EXPORTS_MAX + 1));
    assert!(!many(EXPORTS_MAX + 2));
}

#[test]
fn secure_export_is_not_for_clients_from_ports_from_1024_on() {
    let rule = Rule {
        secure: true,
        ..Rule::default()
    };
    let of = |path, rules| Export::new(path, fs(), rules).unwrap();
    let exports = vec![
        of("/secure", vec![rule]),
        of("/open", vec![Rule::default()]),
    ];
    let live = Live::new(Exports::new(exports, Time::default()).unwrap());
    for (port, reason) in [(1, None), (1023, None), (1024, Some(Reason::Port))] {
        let from = std::net::SocketAddr::new(address("192.0.2.1"), port);
        let view = View::new(&live, from);
        let [secure, open] = [1, 0].map(|at| view.all_granted().nth(at).unwrap());
        assert_eq!(secure.export.path(), "/secure");
        assert_eq!(secure.lacks(Flavor::Sys, Xprtsec::None), reason, "{port}");
        assert_eq!(open.lacks(Flavor::Sys, Xprtsec::None), None);
    }
}
