//! What NFSv4.0, 4.1 and 4.2 say a server does, operation by operation and
//! refusal by refusal, tried against weft's: once without sockets, once over
//! TCP. `WEFT_NFS_SERVER=ADDRESS:PORT/PATH` tries another server instead.

#![forbid(unsafe_code)]

mod attributes;
mod client;
mod data;
mod documents;
mod locks;
mod machine;
mod names;
mod opens;
mod sessions;
mod socket;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use client::{Seen, Server};
use world::{Case, MINORS};

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
    ("extended attributes", &[2], attributes::extended),
    ("reads and writes", &MINORS, data::reads_and_writes),
    ("holes", &[2], data::holes),
    ("copies", &[2], data::copies),
    ("locks freed", &SESSIONS, locks::frees),
];

/// Everything, with each of the versions.
fn all(server: &Server) {
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
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
}

#[test]
fn without_sockets() {
    let exports = vec![("/", machine::memory("all"), machine::rule())];
    let server = machine::server(nfsd::Settings::default(), exports, Vec::new());
    all(&machine::tried(&server, &[]));
}

/// Another server, where one is named.
#[test]
fn elsewhere() {
    let Ok(named) = std::env::var("WEFT_NFS_SERVER") else {
        return;
    };
    let (address, path) = named.split_once('/').unwrap_or((&named, ""));
    let address = address.parse().expect("ADDRESS:PORT");
    let seen: Seen = Rc::new(RefCell::new(BTreeSet::new()));
    all(&Server {
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
