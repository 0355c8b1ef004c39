//! What NFSv4.0, 4.1 and 4.2 say a server does, operation by operation and
//! refusal by refusal, tried against weft's: once without sockets, once over
//! TCP. `WEFT_NFS_SERVER=ADDRESS:PORT/PATH` tries another server instead.

#![forbid(unsafe_code)]

mod acls;
mod attributes;
mod data;
mod documents;
mod labels;
mod locks;
mod machine;
mod names;
mod opens;
mod rdma;
mod recovery;
mod referrals;
mod rpc;
mod sessions;
mod v3;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use testkit::nfs::client::{Case, MINORS};
use testkit::nfs::compound::{SeenResults, ServerUnderTest};
use testkit::nfs::socket;

type Try = fn(&mut Case);

/// Minor versions with sessions.
const SESSIONS: [u32; 2] = [1, 2];

/// What is tried with a folder of its own, in each minor version.
const CASES: &[(&str, &[u32], Try)] = &[
    ("handles", &MINORS, names::handles),
    ("names", &MINORS, names::names),
    ("bad names", &MINORS, names::bad_names),
    ("readdir", &MINORS, names::readdir),
    ("permissions", &MINORS, names::permissions),
    ("EXCHANGE_ID", &SESSIONS, sessions::exchange_ids),
    ("channels", &SESSIONS, sessions::channels),
    ("places", &SESSIONS, sessions::places),
    ("slots", &SESSIONS, sessions::slots),
    ("trunks", &SESSIONS, sessions::trunks),
    ("RECLAIM_COMPLETE", &SESSIONS, sessions::completes),
    ("SETCLIENTID", &[0], sessions::without_sessions),
    ("creates", &MINORS, opens::creates),
    ("shares", &MINORS, opens::shares),
    ("upgrades", &MINORS, opens::upgrades),
    ("state ids", &MINORS, opens::stateids),
    ("seqids", &[0], opens::seqids),
    ("claims", &MINORS, opens::claims),
    ("unlinked", &MINORS, opens::unlinked),
    ("delegations", &SESSIONS, opens::delegations),
    ("ranges", &MINORS, locks::ranges),
    ("modes of locks", &MINORS, locks::modes),
    ("owners of locks", &[0], locks::owners),
    ("attributes", &MINORS, attributes::told),
    ("access control lists", &MINORS, acls::lists),
    ("extended attributes", &[2], attributes::extended),
    ("reads and writes", &MINORS, data::reads_and_writes),
    ("holes", &[2], data::holes),
    ("copies", &[2], data::copies),
    ("locks freed", &SESSIONS, locks::frees),
];

/// How it is called, and what tries it.
type Once = (&'static str, fn(&ServerUnderTest));

/// What is tried once.
const ONCE: &[Once] = &[
    ("RPC", rpc::refusals),
    ("broken records", rpc::broken),
    ("MOUNT", v3::mounts),
    ("names of version 3", v3::names),
    ("content in version 3", v3::content),
];

/// Everything, with each of the versions.
fn all(server: &ServerUnderTest) {
    let mut wrong = Vec::new();
    let only = std::env::var("WEFT_NFS_CASE").ok();
    for (name, minors, case) in CASES {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        for minor in *minors {
            let tried = std::panic::AssertUnwindSafe(|| {
                case(&mut Case::new(server, *minor));
            });
            if std::panic::catch_unwind(tried).is_err() {
                wrong.push(format!("{name} in 4.{minor}"));
            }
        }
    }
    for (name, case) in ONCE {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let tried = std::panic::AssertUnwindSafe(|| case(server));
        if std::panic::catch_unwind(tried).is_err() {
            wrong.push((*name).to_owned());
        }
    }
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
}

#[test]
fn without_sockets() {
    let exports = vec![("/", machine::memory("all"), machine::rule())];
    let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
    let server = machine::tried(&server, &[]);
    all(&server);
    if std::env::var_os("WEFT_NFS_CASE").is_none() {
        documents::all_was_tried(&server);
    }
}

/// The same by users that prove who they are, whatever RPCSEC_GSS protects of their calls.
#[test]
fn without_sockets_by_gss() {
    use nfs::connection::Flavor;
    for flavor in [Flavor::Krb5, Flavor::Krb5i, Flavor::Krb5p] {
        let rule = nfsd::exports::Rule {
            // What is wrong with headers is tried without.
            flavors: vec![flavor, Flavor::Sys],
            ..machine::rule()
        };
        let exports = vec![("/", machine::memory("all"), rule)];
        let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
        let service = flavor.service().expect("it has one");
        all(&machine::tried_by_gss(&server, &[], service));
        assert!(!server.borrow().nfsd.contexts.is_empty());
    }
}

/// The same by RDMA; and by users that prove who they are, whose calls and answers are in
/// chunks as soon as they are protected and long.
#[test]
fn without_sockets_by_rdma() {
    use nfs::connection::{Flavor, RdmaSettings};
    for flavor in [Flavor::Sys, Flavor::Krb5, Flavor::Krb5p] {
        let rule = nfsd::exports::Rule {
            flavors: vec![flavor, Flavor::Sys],
            ..machine::rule()
        };
        let exports = vec![("/", machine::memory("all"), rule)];
        let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
        server.borrow_mut().set_rdma(RdmaSettings::default());
        all(&match flavor.service() {
            None => machine::tried(&server, &[]),
            Some(service) => machine::tried_by_gss(&server, &[], service),
        });
        let [data, calls, results, answers] = rdma::take_used();
        let is_readable = flavor != Flavor::Krb5p;
        assert_eq!((data > 0, results > 0), (is_readable, is_readable));
        assert!(calls > 0 && answers > 0);
    }
}

/// A target that runs here, with RDMA as `rdma` says.
fn target(rdma: server::RdmaSpec) -> (server::Running, std::net::SocketAddr) {
    use server::nfs::{
        Clients, ExportSpec, Exported, FileSystemKind, FileSystemSpec, Rule, Squash,
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let rule = Rule {
        clients: Clients::Any,
        squash: Squash::None,
        ..Rule::default()
    };
    let config = server::Config {
        file_systems: vec![FileSystemSpec {
            name: "files".into(),
            kind: FileSystemKind::Mem {
                size_bytes: 256 << 20,
            },
        }],
        exports: vec![ExportSpec {
            path: "/some/where".into(),
            what: Exported::FileSystem("files".into()),
            rules: vec![rule],
        }],
        listeners: vec![server::ListenerSpec {
            rdma,
            ..server::ListenerSpec::nfs(address)
        }],
        ..server::Config::default()
    };
    (server::start(config).expect("a target"), address)
}

/// The same over TCP, by a target that runs here.
#[test]
fn over_tcp() {
    let (running, address) = target(server::RdmaSpec::default());
    all(&ServerUnderTest {
        connect: Rc::new(move || socket::connect(address)),
        advance: None,
        seen: SeenResults::default(),
        base: vec!["some".into(), "where".into()],
    });
    running.stop();
}

/// The same by RDMA, on the port of those that come without.
#[test]
fn over_rdma() {
    let (running, address) = target(server::RdmaSpec {
        transports: server::Transports::Both,
        ..server::RdmaSpec::default()
    });
    all(&ServerUnderTest {
        connect: Rc::new(move || Box::new(rdma::RdmaConnection::connect(address))),
        advance: None,
        seen: SeenResults::default(),
        base: vec!["some".into(), "where".into()],
    });
    running.stop();
}

/// Another server, where one is named.
#[test]
fn elsewhere() {
    let Ok(named) = std::env::var("WEFT_NFS_SERVER") else {
        return;
    };
    let (address, path) = named.split_once('/').unwrap_or((&named, ""));
    let address = address.parse().expect("ADDRESS:PORT");
    let seen: SeenResults = Rc::new(RefCell::new(BTreeSet::new()));
    all(&ServerUnderTest {
        connect: Rc::new(move || socket::connect(address)),
        advance: None,
        seen,
        base: path
            .split('/')
            .filter(|name| !name.is_empty())
            .map(String::from)
            .collect(),
    });
}
