//! Calls to hosts of NFSv3, by datagrams: that a lock is theirs now (NLMPROC4_GRANTED), and that
//! this server has started again (SM_NOTIFY). Each asks the host's port mapper first. The same
//! thread calls clients of NFSv4.0 ([`crate::client_calls`]).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nfsd::callback::ClientCall;
use nfsd::nlm::{HostCall, HostNotice, NlmGrant};
use reactor::must_fill_random;
use wire::nlm4::{NLM_PROG, NLM4_VERS, nlm4_proc, nlm4_res, nlm4_stats};
use wire::nsm::{SM_PROG, SM_VERS, sm_proc, stat_chge};
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, accept_stat, accepted_body, authsys_parms, call_body,
    msg_type, opaque_auth, reply_body,
};
use wire::rpcbind::{
    IPPROTO_UDP, PMAP_PORT, PMAP_PROG, PMAP_VERS, RPCBVERS_3, pmap, pmap_proc, rpcb, rpcb_proc,
    uaddr,
};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use crate::client_calls::{ClientAnswer, ClientCaller};
use crate::{OwnMail, Service};

/// How long a first answer is waited for; each time twice as long.
const PATIENCE: Duration = Duration::from_millis(1000);
/// A call is made so often at most: half a minute in all, after which a host that waits for a lock
/// asks again of its own accord.
const TRIES_MAX: u32 = 5;
/// How often it is looked for answers while some are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Calls to hosts of NFSv3 under way at a time; the others wait.
const CALLS_MAX: usize = 256;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 2048;

/// What hands calls to the thread that makes them.
pub(crate) type HostCalls = Sender<OutgoingCall>;

/// A call that is to be made.
pub(crate) enum OutgoingCall {
    /// To a host of NFSv3.
    Host(HostCall),
    /// To a client of NFSv4.0.
    Client(ClientCall),
}

/// Makes calls to hosts in a thread of its own, as long as the server runs.
///
/// # Errors
/// There is no thread.
pub fn start(service: &Arc<Service>) -> io::Result<()> {
    start_at(service, PMAP_PORT as u16)
}

fn start_at(service: &Arc<Service>, portmap_port: u16) -> io::Result<()> {
    let (calls, to_make) = channel();
    service.set_host_calls(calls);
    let weak = Arc::downgrade(service);
    let thread = thread::Builder::new().name("weft-hosts".into());
    let run = move || {
        let mut caller = HostCaller {
            portmap_port,
            sockets: HashMap::new(),
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            clients: ClientCaller::default(),
            told: Vec::new(),
        };
        // The server is held only while it is told something: its end waits for no host.
        while caller.take_new(&to_make) {
            let mut told = caller.send_due();
            told.extend(caller.receive());
            let answers = std::mem::take(&mut caller.told);
            if told.is_empty() && answers.is_empty() {
                continue;
            }
            let Some(service) = weak.upgrade() else {
                return;
            };
            for (grant, stat) in told {
                service.send(0, OwnMail::Granted(Box::new(grant), stat));
            }
            for (id, answer) in answers {
                service.send(0, OwnMail::Called(id, answer));
            }
        }
    };
    thread.spawn(run).map(drop)
}

/// What a host has said to a lock; `None` where it says nothing.
type HostAnswer = (NlmGrant, Option<nlm4_stats>);

/// A call under way.
struct UnderWay {
    call: HostCall,
    /// The program's address once the port mapper has said it.
    to: Option<SocketAddr>,
    xid: u32,
    tries: u32,
    due: Instant,
}

struct HostCaller {
    portmap_port: u16,
    /// By our address: a host takes such calls from the address that it knows.
    sockets: HashMap<IpAddr, UdpSocket>,
    /// Calls to hosts for which there is no room yet.
    waiting: VecDeque<HostCall>,
    under_way: Vec<UnderWay>,
    clients: ClientCaller,
    /// What clients have answered that the server is to be told.
    told: Vec<ClientAnswer>,
}

fn address(call: &HostCall) -> IpAddr {
    match call {
        HostCall::Granted(grant) => grant.address,
        HostCall::Notify(notice) => notice.address,
    }
}

/// Ours, by which the host has come.
fn local(call: &HostCall) -> IpAddr {
    let any: IpAddr = match address(call) {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match call {
        HostCall::Granted(grant) => grant.local.map_or(any, |local| local.to_canonical()),
        HostCall::Notify(_) => any,
    }
}

pub(crate) fn new_xid() -> u32 {
    let mut xid = [0; 4];
    must_fill_random(&mut xid);
    u32::from_ne_bytes(xid)
}

impl UnderWay {
    fn new(call: HostCall) -> UnderWay {
        UnderWay {
            call,
            to: None,
            xid: new_xid(),
            tries: 0,
            due: Instant::now(),
        }
    }

    /// The call that is to be made next: to the port mapper, then to the program.
    fn datagram(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.xid.encode(&mut bytes);
        msg_type::CALL.encode(&mut bytes);
        let mut args = Vec::new();
        let program = match (&self.call, self.to) {
            (HostCall::Granted(grant), Some(_)) => {
                grant.encode(&mut args);
                (NLM_PROG, NLM4_VERS, nlm4_proc::NLMPROC4_GRANTED as u32)
            }
            (HostCall::Notify(notice), Some(_)) => {
                encode_notice(notice, &mut args);
                (SM_PROG, SM_VERS, sm_proc::SM_NOTIFY as u32)
            }
            (call, None) => encode_question(call, &mut args),
        };
        header(program, &mut bytes);
        bytes.extend(args);
        bytes
    }

    /// The port that a port mapper has told.
    fn told_port(&self, results: &[u8]) -> Option<u16> {
        let from = &mut Reader::new(results);
        match address(&self.call) {
            IpAddr::V4(_) => u16::try_from(u32::decode(from).ok()?).ok(),
            IpAddr::V6(_) => {
                let told = uaddr::decode(from).ok()?;
                let text = str::from_utf8(told.0).ok()?;
                let (rest, low) = text.rsplit_once('.')?;
                let (_, high) = rest.rsplit_once('.')?;
                Some(u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]))
            }
        }
    }
}

/// What is asked of the port mapper: version 2 knows addresses of IPv4 alone.
fn encode_question(call: &HostCall, args: &mut Vec<u8>) -> (u32, u32, u32) {
    let (prog, vers) = match call {
        HostCall::Granted(_) => (NLM_PROG, NLM4_VERS),
        HostCall::Notify(_) => (SM_PROG, SM_VERS),
    };
    match address(call) {
        IpAddr::V4(_) => {
            pmap {
                prog,
                vers,
                prot: IPPROTO_UDP,
                port: 0,
            }
            .encode(args);
            (PMAP_PROG, PMAP_VERS, pmap_proc::PMAPPROC_GETPORT as u32)
        }
        IpAddr::V6(_) => {
            rpcb {
                r_prog: prog,
                r_vers: vers,
                r_netid: Opaque(b"udp6"),
                r_addr: Opaque(b""),
                r_owner: Opaque(b""),
            }
            .encode(args);
            (PMAP_PROG, RPCBVERS_3, rpcb_proc::RPCBPROC_GETADDR as u32)
        }
    }
}

fn encode_notice(notice: &HostNotice, args: &mut Vec<u8>) {
    let name = store::identity::host_name();
    stat_chge {
        mon_name: Opaque(name.as_bytes()),
        state: notice.state,
    }
    .encode(args);
}

/// The header of a call as root, which some hosts want.
pub(crate) fn header((prog, vers, proc): (u32, u32, u32), to: &mut Vec<u8>) {
    let mut sys = Vec::new();
    authsys_parms {
        stamp: 0,
        machinename: Opaque(b"weft"),
        uid: 0,
        gid: 0,
        gids: List::Of(&[]),
    }
    .encode(&mut sys);
    call_body {
        rpcvers: RPC_VERSION,
        prog,
        vers,
        proc,
        cred: opaque_auth {
            flavor: AUTH_SYS,
            body: Opaque(&sys),
        },
        verf: opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        },
    }
    .encode(to);
}

/// The results in an answer, if the call has succeeded.
fn results(answer: &[u8]) -> Option<&[u8]> {
    let from = &mut Reader::new(answer.get(8..)?);
    let reply_body::MSG_ACCEPTED(accepted) = reply_body::decode(from).ok()? else {
        return None;
    };
    let is_done = accepted.body == accepted_body::default(accept_stat::SUCCESS);
    is_done.then(|| from.rest())
}

impl HostCaller {
    /// Takes calls that are to be made; false when none will come.
    fn take_new(&mut self, to_make: &Receiver<OutgoingCall>) -> bool {
        if self.is_idle() {
            match to_make.recv() {
                Ok(call) => self.begin(call),
                Err(_) => return false,
            }
        }
        loop {
            match to_make.try_recv() {
                Ok(call) => self.begin(call),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        let room = CALLS_MAX.saturating_sub(self.under_way.len());
        let next = self.waiting.drain(..room.min(self.waiting.len()));
        self.under_way.extend(next.map(UnderWay::new));
        true
    }

    /// Whether nothing happens until there is a new call.
    fn is_idle(&self) -> bool {
        let has_none = self.waiting.is_empty() && self.under_way.is_empty();
        has_none && self.clients.is_idle() && self.told.is_empty()
    }

    fn begin(&mut self, call: OutgoingCall) {
        match call {
            OutgoingCall::Host(call) => self.waiting.push_back(call),
            OutgoingCall::Client(call) => self.told.extend(self.clients.begin(call)),
        }
    }

    /// Makes the calls whose time has come; of those that were made often enough, the locks.
    fn send_due(&mut self) -> Vec<HostAnswer> {
        let now = Instant::now();
        for call in self.under_way.iter_mut().filter(|call| call.due <= now) {
            call.due = now + PATIENCE * 2_u32.pow(call.tries);
            call.tries += 1;
            let at = local(&call.call);
            let socket = match self.sockets.get(&at) {
                Some(socket) => socket,
                None => match open(at) {
                    Ok(socket) => self.sockets.entry(at).or_insert(socket),
                    Err(error) => {
                        tracing::warn!(%at, %error, "NFS: hosts of NFSv3 cannot be called");
                        continue;
                    }
                },
            };
            let portmap = SocketAddr::new(address(&call.call), self.portmap_port);
            let to = call.to.unwrap_or(portmap);
            // What is lost is sent again.
            let _ = socket.send_to(&call.datagram(), to);
        }
        self.give_up()
    }

    /// What was called often enough.
    fn give_up(&mut self) -> Vec<HostAnswer> {
        let all = self.under_way.extract_if(.., |call| call.tries > TRIES_MAX);
        let mut silent = Vec::new();
        for UnderWay { call, .. } in all {
            let address = address(&call);
            let what = match call {
                HostCall::Granted(grant) => {
                    silent.push((grant, None));
                    "that a lock is its own now"
                }
                HostCall::Notify(_) => "that this server has started again",
            };
            tracing::warn!(
                %address,
                "NFSv3 host does not answer to be told {what}: its port mapper and its lock manager \
                 or status monitor are to be reachable by UDP"
            );
        }
        silent
    }

    /// Takes answers: what hosts have said to locks that are theirs.
    fn receive(&mut self) -> Vec<HostAnswer> {
        self.told.extend(self.clients.go_on());
        if !self.under_way.is_empty() || !self.clients.is_idle() {
            self.clients.wait(LOOK_EVERY);
        }
        self.told.extend(self.clients.go_on());
        let mut told = Vec::new();
        let mut buf = [0; ANSWER_BYTES_MAX];
        for socket in self.sockets.values() {
            while let Ok((len, from)) = socket.recv_from(&mut buf) {
                let answer = &buf[..len];
                let Some(xid) = u32::decode(&mut Reader::new(answer)).ok() else {
                    continue;
                };
                let mut calls = self.under_way.iter();
                let is_its = |call: &UnderWay| {
                    call.xid == xid && address(&call.call) == from.ip().to_canonical()
                };
                if let Some(at) = calls.position(is_its) {
                    told.extend(go_on(&mut self.under_way, at, answer));
                }
            }
        }
        told
    }
}

/// A call is answered: the next is made, or it is over.
fn go_on(under_way: &mut Vec<UnderWay>, at: usize, answer: &[u8]) -> Option<HostAnswer> {
    let results = results(answer)?;
    let call = &mut under_way[at];
    if call.to.is_none() {
        // Without the program there, it may start yet.
        let port = call.told_port(results).filter(|port| *port != 0)?;
        call.to = Some(SocketAddr::new(address(&call.call), port));
        (call.xid, call.tries, call.due) = (new_xid(), 0, Instant::now());
        return None;
    }
    let UnderWay { call, tries, .. } = under_way.swap_remove(at);
    match call {
        HostCall::Granted(grant) => {
            let res = nlm4_res::decode(&mut Reader::new(results)).ok()?;
            // A host that has taken the lock by the first call, whose answer was lost, knows
            // nothing of it at the second.
            Some((grant, (tries == 1).then_some(res.stat)))
        }
        HostCall::Notify(_) => None,
    }
}

/// A socket of our own on an address.
fn open(at: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(at, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::tests::service;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let patience = Duration::from_secs(20);
        socket.set_read_timeout(Some(patience)).expect("a time");
        socket
    }

    /// The next call: the words of its identifier, program, version and procedure, its
    /// arguments, and where it comes from.
    fn called(socket: &UdpSocket) -> (u32, [u32; 3], Vec<u8>, SocketAddr) {
        let mut buf = [0; 1024];
        let (len, from) = socket.recv_from(&mut buf).expect("a call");
        let reader = &mut Reader::new(&buf[..len]);
        let xid = u32::decode(reader).expect("an identifier");
        assert_eq!(msg_type::decode(reader), Ok(msg_type::CALL));
        let call = call_body::decode(reader).expect("a header");
        let args = reader.rest().to_vec();
        (xid, [call.prog, call.vers, call.proc], args, from)
    }

    fn answer(socket: &UdpSocket, (xid, to): (u32, SocketAddr), results: &[u32]) {
        let header = [xid, 1, 0, 0, 0, 0];
        let all = header.iter().chain(results);
        let bytes: Vec<u8> = all.flat_map(|word| word.to_be_bytes()).collect();
        socket.send_to(&bytes, to).expect("sent");
    }

    #[test]
    fn hosts_are_told_of_a_start_where_their_port_mappers_say() {
        let (portmap, monitor) = (socket(), socket());
        let service = service();
        let port = portmap.local_addr().expect("bound").port();
        start_at(&service, port).expect("a thread");
        let address = Ipv4Addr::LOCALHOST.into();
        let notice = HostNotice { address, state: 9 };
        service.call_hosts([OutgoingCall::Host(HostCall::Notify(notice))].into_iter());
        // The first is lost, and answers of others mean nothing.
        called(&portmap);
        let (xid, program, args, from) = called(&portmap);
        assert_eq!(program, [PMAP_PROG, 2, 3]);
        let asked = pmap::decode(&mut Reader::new(&args)).expect("what is asked");
        assert_eq!(
            (asked.prog, asked.vers, asked.prot),
            (SM_PROG, 1, IPPROTO_UDP)
        );
        answer(&portmap, (xid ^ 1, from), &[1]);
        let port = monitor.local_addr().expect("bound").port();
        answer(&portmap, (xid, from), &[port.into()]);
        let (xid, program, args, from) = called(&monitor);
        assert_eq!(program, [SM_PROG, 1, 6]);
        let told = stat_chge::decode(&mut Reader::new(&args)).expect("a notice");
        let name = store::identity::host_name();
        assert_eq!((told.mon_name.0, told.state), (name.as_bytes(), 9));
        answer(&monitor, (xid, from), &[]);
    }
}
