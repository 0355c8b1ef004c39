use std::net::IpAddr;
use std::sync::OnceLock;

use store::fs::{FileSystem, Memory};

use super::*;
use crate::exports::Clients;
use crate::xprtsec::XprtsecModes;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// File systems by instance, used again by all tests.
fn fs(instance: u64) -> Arc<Memory> {
    static ALL: OnceLock<Vec<Arc<Memory>>> = OnceLock::new();
    let new = |instance| Memory::new("m", 1 << 20, instance, Time::default()).unwrap();
    let all = ALL.get_or_init(|| (0..10).map(|instance| Arc::new(new(instance))).collect());
    all[instance as usize].clone()
}

fn export(path: &str, instance: u64, clients: Clients) -> Export {
    let fs = fs(instance);
    let rule = Rule {
        clients,
        ..Rule::default()
    };
    Export::new(path, fs, vec![rule]).unwrap()
}

fn only(net: &str) -> Clients {
    Clients::nets(vec![net.parse().unwrap()])
}

fn live(exports: Vec<Export>) -> Live {
    let since = Time {
        seconds: 5,
        nanos: 6,
    };
    Live::new(Exports::new(exports, since).unwrap())
}

/// A tree with exports for all clients, for one net, and for one address.
fn tree() -> Live {
    live(vec![
        export("/pub", 1, Clients::Any),
        export("/a/one/x", 2, only("10.0.0.0/8")),
        export("/a/one/y", 3, Clients::Any),
        export("/a/two/z", 4, only("10.0.0.0/8")),
        export("/b", 5, only("192.0.2.1")),
    ])
}

#[test]
fn client_is_barred_where_no_export_takes_its_connection() {
    use crate::xprtsec::Xprtsec::{Mtls, None as Clear, Tls};
    let wants = |path: &str, instance, ways: &[Xprtsec]| {
        let rule = Rule {
            xprtsec: XprtsecModes::new(ways),
            clients: only("10.0.0.0/8"),
            ..Rule::default()
        };
        Export::new(path, fs(instance), vec![rule]).unwrap()
    };
    let both = || vec![wants("/a", 1, &[Mtls]), wants("/b", 2, &[Tls, Mtls])];
    let here = ConnectedClient::from(address("10.0.0.1"));
    let in_tls = ConnectedClient {
        xprtsec: Tls,
        ..here.clone()
    };
    let barred = |exports, client: &ConnectedClient| {
        let view = View::new(&live(exports), client.clone());
        view.bar().map(|(path, reason)| (path.to_owned(), reason))
    };
    // Of several it is the one that it lacks least for.
    let reason = Reason::Xprtsec {
        has: Clear,
        takes: XprtsecModes::new(&[Tls, Mtls]),
    };
    assert_eq!(barred(both(), &here), Some(("/b".to_owned(), reason)));
    // By RDMA too, which has no TLS.
    assert!(reason.to_string().ends_with("`-o proto=tcp,xprtsec=tls`"));
    let clear = Reason::Xprtsec {
        has: Tls,
        takes: XprtsecModes::new(&[Clear]),
    };
    assert!(clear.to_string().ends_with("`-o xprtsec=none`"));
    assert_eq!(barred(both(), &in_tls), None);
    let elsewhere = ConnectedClient::from(address("192.0.2.1"));
    let unnamed = |path: &str| Some((path.to_owned(), Reason::AllExports));
    assert_eq!(barred(both(), &elsewhere), unnamed("/"));
    let one = vec![wants("/a", 1, &[Clear])];
    assert_eq!(barred(one, &elsewhere), unnamed("/a"));
    assert_eq!(barred(Vec::new(), &here), unnamed("/"));
}

/// Every path that can be walked to.
fn walk(view: &View) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![(view.root(), String::new())];
    while let Some((place, path)) = left.pop() {
        let PseudoPlace::Pseudo(dir) = place else {
            found.push(path);
            continue;
        };
        let mut last = 0;
        for (cookie, name, below) in view.list(dir, 0).unwrap() {
            assert!(cookie > last && cookie > 2, "cookies ascend");
            last = cookie;
            assert_eq!(view.lookup(dir, name.as_bytes()), Some(below));
            assert_eq!(view.parent(below), Some(place));
            let rest: Vec<_> = view.list(dir, cookie).unwrap().collect();
            let all: Vec<_> = view.list(dir, 0).unwrap().collect();
            let at = all.iter().position(|entry| entry.0 == cookie).unwrap();
            assert_eq!(rest, all[at + 1..]);
            left.push((below, format!("{path}/{name}")));
        }
        found.push(path + "/");
    }
    found.sort();
    found
}

#[test]
fn a_client_sees_only_directories_that_lead_to_its_exports() {
    let live = tree();
    let stranger = View::new(&live, address("203.0.113.9"));
    assert_eq!(walk(&stranger), ["/", "/a/", "/a/one/", "/a/one/y", "/pub"]);
    let friend = View::new(&live, address("::ffff:10.1.1.1"));
    let all = [
        "/", "/a/", "/a/one/", "/a/one/x", "/a/one/y", "/a/two/", "/a/two/z", "/pub",
    ];
    assert_eq!(walk(&friend), all);
    let PseudoPlace::Pseudo(root) = stranger.root() else {
        panic!("a pseudo root");
    };
    assert_eq!(stranger.attr(root).unwrap().links, 4);
    assert_eq!(stranger.attr(root).unwrap().change, 5_000_000_006);
    assert_eq!(stranger.parent(stranger.root()), None);
    assert_eq!(stranger.lookup(root, b"b"), None);
    // A client does not learn whether there is an export that it may not see.
    let Some(PseudoPlace::Pseudo(a)) = friend.lookup(root, b"a") else {
        panic!("a directory");
    };
    let Some(PseudoPlace::Pseudo(two)) = friend.lookup(a, b"two") else {
        panic!("a directory");
    };
    assert_eq!(stranger.lookup(a, b"two"), None);
    assert_eq!(stranger.attr(two), None);
    assert!(stranger.list(two, 0).is_none());
}

#[test]
fn one_export_may_be_the_root() {
    let live = live(vec![export("/", 9, only("10.0.0.0/8"))]);
    let friend = View::new(&live, address("10.0.0.1"));
    let PseudoPlace::File { export, file } = friend.root() else {
        panic!("the export");
    };
    let granted = friend.granted(export).unwrap();
    assert_eq!(file, granted.fs.root());
    assert_eq!(friend.parent(friend.root()), None);
    // A client that may not use it has a root, and nothing in it.
    let stranger = View::new(&live, address("11.0.0.1"));
    assert_eq!(walk(&stranger), ["/"]);
    assert!(stranger.granted(export).is_none());
    let nothing = View::new(&Live::default(), address("11.0.0.1"));
    assert_eq!(walk(&nothing), ["/"]);
}

#[test]
fn handles_are_found_only_by_clients_of_their_export() {
    let live = tree();
    let friend = View::new(&live, address("10.1.1.1"));
    let stranger = View::new(&live, address("203.0.113.9"));
    let bytes = |place| friend.handle(place).unwrap().encode();
    let id = |path: &str| {
        let exports = friend.exports();
        exports.iter().find(|e| e.path() == path).unwrap().id()
    };
    let file = FileId(12);
    let place = |path: &str| PseudoPlace::File {
        export: id(path),
        file,
    };
    for path in ["/pub", "/a/one/x"] {
        assert_eq!(friend.find(&bytes(place(path))), Ok(place(path)));
    }
    assert_eq!(stranger.find(&bytes(place("/pub"))), Ok(place("/pub")));
    // Of an export that is not theirs, of another life of it, of none.
    assert_eq!(stranger.find(&bytes(place("/a/one/x"))), Err(Lost::Stale));
    let key = fs(1).info().handle_key;
    let other = |export, instance| Handle::file(export, instance, file, key).encode();
    assert_eq!(friend.find(&other(id("/pub"), 77)), Err(Lost::Stale));
    assert_eq!(friend.find(&other(id("/pub"), 1)), Ok(place("/pub")));
    assert_eq!(friend.find(&other(3, 1)), Err(Lost::Stale));
    assert_eq!(friend.find(&[]), Err(Lost::BadHandle));
    assert_eq!(friend.find(&[1; 32]), Err(Lost::BadHandle));
    // Directories above exports.
    let PseudoPlace::Pseudo(root) = friend.root() else {
        panic!("a pseudo root");
    };
    let a = friend.lookup(root, b"a").unwrap();
    assert_eq!(friend.find(&bytes(a)), Ok(a));
    assert_eq!(friend.find(&bytes(friend.root())), Ok(friend.root()));
    let nowhere = Handle::Pseudo(FileId(99)).encode();
    assert_eq!(friend.find(&nowhere), Err(Lost::Stale));
}

#[test]
fn a_view_shows_changed_exports_after_a_refresh() {
    let live = tree();
    let mut view = View::new(&live, address("203.0.113.9"));
    view.refresh(&live);
    assert_eq!(walk(&view).len(), 5);
    let other = live.generation();
    live.swap(Exports::new(vec![export("/c", 6, Clients::Any)], Time::default()).unwrap());
    assert_ne!(live.generation(), other);
    assert_eq!(walk(&view).len(), 5);
    view.refresh(&live);
    assert_eq!(walk(&view), ["/", "/c"]);
}

#[test]
fn a_path_finds_its_export_and_the_rest_of_the_path() {
    let live = tree();
    let view = View::new(&live, address("203.0.113.9"));
    let at = |path: &str| {
        let (granted, rest) = view.export_at(path)?;
        Some((
            granted.export.path().to_owned(),
            rest.collect::<Vec<_>>().join("|"),
        ))
    };
    let found = |export: &str, rest: &str| Some((export.to_owned(), rest.to_owned()));
    assert_eq!(at("/pub"), found("/pub", ""));
    assert_eq!(at("/pub/"), found("/pub", ""));
    assert_eq!(at("/a/one/y/d/e"), found("/a/one/y", "d|e"));
    for path in ["/", "/a", "/a/one", "/public", "/a/one/x", "", "pub", "/b"] {
        assert_eq!(at(path), None, "{path}");
    }
    let root = self::live(vec![export("/", 9, Clients::Any)]);
    let view = View::new(&root, address("203.0.113.9"));
    let (granted, rest) = view.export_at("/x//y").unwrap();
    assert_eq!(granted.export.path(), "/");
    assert_eq!(rest.collect::<Vec<_>>(), ["x", "y"]);
}

proptest::proptest! {
    /// Whatever is exported to which client, each finds exactly its own exports.
    #[test]
    fn a_client_finds_exactly_the_exports_that_name_it(
        paths in proptest::collection::btree_map("(/[ab]{1,2}){1,3}", 0u8..4, 0..8),
    ) {
        let clients = |mask: u8| {
            let nets = (0..2).filter(|bit| mask >> bit & 1 == 1);
            Clients::nets(nets.map(|bit| format!("10.0.0.{bit}").parse().unwrap()))
        };
        let exports = paths.iter().map(|(path, &mask)| export(path, 1, clients(mask)));
        let Ok(exports) = Exports::new(exports.collect(), Time::default()) else {
            return Ok(());
        };
        let live = Live::new(exports);
        for bit in 0..2 {
            let view = View::new(&live, address(&format!("10.0.0.{bit}")));
            let own = paths.iter().filter(|(_, mask)| **mask >> bit & 1 == 1);
            let own: Vec<&str> = own.map(|(path, _)| path.as_str()).collect();
            let walked = walk(&view);
            let (ways, leaves): (Vec<&str>, Vec<&str>) =
                walked.iter().map(String::as_str).partition(|path| path.ends_with('/'));
            proptest::prop_assert_eq!(&leaves, &own);
            // Every directory leads on.
            for way in ways.into_iter().filter(|way| *way != "/") {
                proptest::prop_assert!(own.iter().any(|path| path.starts_with(way)));
            }
        }
    }
}
