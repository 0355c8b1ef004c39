//! The server without sockets, and connections to it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use nfsd::exports::{Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::client::unique;
use testkit::nfs::compound::{ServerUnderTest, Transport};
use wire::rpc::RecordMark;

/// The time of day at the beginning.
const TIME: Time = Time {
    seconds: 1_000_000,
    nanos: 0,
};

struct Connection {
    server: Rc<RefCell<doubles::nfsd::NfsdDouble>>,
    number: usize,
    sent: VecDeque<u8>,
}

impl Transport for Connection {
    fn send(&mut self, record: &[u8]) {
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        let bytes = [&mark.encode()[..], record].concat();
        self.server.borrow_mut().receive(self.number, &bytes);
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.poll()
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        let sent = self.server.borrow_mut().sent(self.number);
        self.sent.extend(sent);
        let mark: Vec<u8> = self.sent.iter().take(RecordMark::LEN).copied().collect();
        let mark = RecordMark::decode(mark.try_into().ok()?);
        assert!(mark.is_last, "answers are not fragmented");
        self.sent.drain(..RecordMark::LEN);
        Some(self.sent.drain(..mark.len as usize).collect())
    }
}

/// A file system in memory.
pub fn memory(name: &str) -> Arc<dyn FileSystem> {
    Arc::new(Memory::new(name, 256 << 20, unique(), TIME).expect("memory"))
}

/// A rule under which users may do what their identity lets them.
pub fn rule() -> Rule {
    Rule {
        squash: Squash::None,
        ..Rule::default()
    }
}

/// Paths, file systems, and rules.
pub type Listed<'a> = Vec<(&'a str, Arc<dyn FileSystem>, Rule)>;

pub fn exports(listed: Listed<'_>) -> Exports {
    let exports = listed.into_iter();
    let exports = exports.map(|(path, fs, rule)| Export::new(path, fs, vec![rule]));
    let exports = exports.map(|export| export.expect("an export")).collect();
    Exports::new(exports, TIME).expect("exports")
}

/// A server of these exports, which knows `known` clients from before.
pub fn server(
    settings: NfsdSettings,
    listed: Listed<'_>,
    known: Vec<Box<[u8]>>,
) -> Rc<RefCell<doubles::nfsd::NfsdDouble>> {
    let nfsd = Nfsd::new(settings, 1, known, exports(listed), 0);
    let mut server = doubles::nfsd::NfsdDouble::new(nfsd, 64 << 20);
    server.time = TIME;
    Rc::new(RefCell::new(server))
}

/// What the cases want of a server.
pub fn tried(server: &Rc<RefCell<doubles::nfsd::NfsdDouble>>, base: &[&str]) -> ServerUnderTest {
    let (connects, advances) = (server.clone(), server.clone());
    ServerUnderTest {
        connect: Rc::new(move || {
            let address: SocketAddr = "127.0.0.1:700".parse().expect("an address");
            let number = connects.borrow_mut().connect(address);
            Box::new(Connection {
                server: connects.clone(),
                number,
                sent: VecDeque::new(),
            })
        }),
        advance: Some(Rc::new(move |by| advances.borrow_mut().advance(by))),
        seen: Rc::default(),
        base: base.iter().map(|name| (*name).to_owned()).collect(),
    }
}
