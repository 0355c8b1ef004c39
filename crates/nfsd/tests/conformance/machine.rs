//! The server without sockets, and connections to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use doubles::gss::GssClient;
use nfs::gss::major;
use nfs::server::RecordedClient;
use nfsd::exports::{Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::client::unique;
use testkit::nfs::compound::{ServerUnderTest, Transport};
use wire::nfs4::NFS4_PROGRAM;
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, RecordMark, accepted_reply, authsys_parms, call_body,
    msg_type, opaque_auth, reply_body, rpc_gss_service_t,
};
use wire::xdr::{Decode, Encode, Opaque, Reader};

use crate::rdma::RdmaConnection;

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
    let known = known.into_iter().map(|owner| RecordedClient {
        owner,
        principal: None,
    });
    let nfsd = Nfsd::new(settings, 1, known, exports(listed), 0);
    let mut server = doubles::nfsd::NfsdDouble::new(nfsd, 64 << 20);
    server.time = TIME;
    Rc::new(RefCell::new(server))
}

/// A connection on which users prove by RPCSEC_GSS who they are, of which cases know
/// nothing.
struct GssConnection {
    plain: Box<dyn Transport>,
    service: rpc_gss_service_t,
    /// By the credential that a case writes.
    clients: BTreeMap<Vec<u8>, GssClient>,
    /// Calls that are not answered: the credential and the number, by xid.
    calls: BTreeMap<Vec<u8>, (Vec<u8>, u32)>,
}

impl GssConnection {
    /// The call that a case means, if it is one by AUTH_SYS that can be read.
    fn changed(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        let from = &mut Reader::new(record);
        let xid = u32::decode(from).ok()?;
        let is_call = msg_type::decode(from).ok()? == msg_type::CALL;
        let call = call_body::decode(from).ok().filter(|_| is_call)?;
        let of = (xid, call.prog, call.vers, call.proc);
        let is_sys = call.cred.flavor == AUTH_SYS && call.verf.flavor == AUTH_NONE;
        let says = (call.rpcvers, is_sys, call.prog == NFS4_PROGRAM);
        if says != (RPC_VERSION, true, true) {
            return None;
        }
        let (credential, args) = (call.cred.body.0.to_vec(), from.rest());
        let said = authsys_parms::decode(&mut Reader::new(&credential)).ok()?;
        if !self.clients.contains_key(&credential) {
            let gids = said.gids.iter().map(|gid| format!(":{gid}"));
            let name = format!("user{}:{}{}", said.uid, said.gid, gids.collect::<String>());
            let mut client = GssClient::new(&name, u64::from(u32::MAX));
            self.plain.send(&client.init(0));
            let answer = self.plain.poll().expect("an answer");
            assert_eq!(client.take_init(&answer), (major::COMPLETE, 0));
            self.clients.insert(credential.clone(), client);
        }
        let client = self.clients.get_mut(&credential).expect("it is there");
        let number = client.number;
        let record = client.call(of, args, self.service);
        (self.calls).insert(record[..4].to_vec(), (credential, number));
        Some(record)
    }
}

impl Transport for GssConnection {
    fn send(&mut self, record: &[u8]) {
        match self.changed(record) {
            Some(changed) => self.plain.send(&changed),
            None => self.plain.send(record),
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.poll()
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        let record = self.plain.poll()?;
        let Some((credential, number)) = self.calls.remove(&record[..4]) else {
            return Some(record);
        };
        let client = self.clients.get_mut(&credential).expect("it called");
        let Ok((status, results)) = client.open(&record, number, self.service) else {
            return Some(record);
        };
        let mut plain = record[..8].to_vec();
        let none = opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        };
        reply_body::MSG_ACCEPTED(accepted_reply {
            verf: none,
            body: status,
        })
        .encode(&mut plain);
        plain.extend(results);
        Some(plain)
    }
}

/// The same, with users that prove who they are.
pub fn tried_by_gss(
    server: &Rc<RefCell<doubles::nfsd::NfsdDouble>>,
    base: &[&str],
    service: rpc_gss_service_t,
) -> ServerUnderTest {
    server.borrow().nfsd.set_gss(true);
    let connects = server.clone();
    ServerUnderTest {
        connect: Rc::new(move || {
            Box::new(GssConnection {
                plain: connection(&connects),
                service,
                clients: BTreeMap::new(),
                calls: BTreeMap::new(),
            })
        }),
        ..tried(server, base)
    }
}

/// A connection, by RDMA where the server takes that.
fn connection(server: &Rc<RefCell<doubles::nfsd::NfsdDouble>>) -> Box<dyn Transport> {
    let address: SocketAddr = "127.0.0.1:700".parse().expect("an address");
    let number = server.borrow_mut().connect(address);
    if server.borrow().takes_rdma() {
        return Box::new(RdmaConnection::new(server, number));
    }
    Box::new(Connection {
        server: server.clone(),
        number,
        sent: VecDeque::new(),
    })
}

/// What the cases want of a server.
pub fn tried(server: &Rc<RefCell<doubles::nfsd::NfsdDouble>>, base: &[&str]) -> ServerUnderTest {
    let (connects, advances) = (server.clone(), server.clone());
    ServerUnderTest {
        connect: Rc::new(move || connection(&connects)),
        advance: Some(Rc::new(move |by| advances.borrow_mut().advance(by))),
        seen: Rc::default(),
        base: base.iter().map(|name| (*name).to_owned()).collect(),
    }
}
