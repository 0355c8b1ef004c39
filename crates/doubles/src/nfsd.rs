//! A server without sockets: connections are bytes that are put in and taken
//! out. A mistake of its user, or
//! of the server, panics.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use auth::user::Accounts;
use link::{CommandMemory, Link, Stream, StreamTokens};
use machine::{Nanos, Tag, work};
use mem::Pool;
use nfs::connection::{Connection, RpcServerFatalError, ServerOp};
use nfsd::client_names::NameService;
use nfsd::offload::{CopyWork, WorkAround};
use nfsd::xprtsec::ShownCertificate;
use nfsd::{Around, Elsewhere, Execution, Exports, Nfsd, Peer, Step, prepare};
use reactor::{Completion, Driver, Token, Wait};
use store::fs::{FileSystem, Task, Time};
use wire::rpc::RecordMark;

use crate::gss::answer_init;
use crate::nfs::taken_answer;
use crate::queues::{NO_SOCKETS, Queues};

/// What a call waits for.
enum Waits {
    Task(Arc<dyn FileSystem>, Task),
    Memory,
}

/// One connection.
struct Conn {
    link: Link<Connection>,
    peer: Peer,
    /// By tag.
    executions: Vec<Execution>,
    waits: Vec<(Tag, Waits)>,
    /// An operation that found no memory.
    starved: Option<ServerOp>,
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
    /// Calls to the client that are not answered: their xids, and what the
    /// server calls them.
    callbacks: Vec<(u32, u64)>,
    is_gone: bool,
    fatal: Option<RpcServerFatalError>,
}

/// What happens while a server keeps something.
pub type Meanwhile = Box<dyn FnMut(&Nfsd)>;

/// A server of NFS and its connections.
pub struct NfsdDouble {
    /// What it is.
    pub nfsd: Nfsd,
    /// What was to be kept where a crash cannot reach it, in order.
    pub records: Vec<nfs::server::Record>,
    /// What others do meanwhile, each time that something was kept.
    pub after_save: Option<Meanwhile>,
    /// The users and groups of its machine.
    pub accounts: Option<Box<dyn Accounts>>,
    /// The name service of its machine.
    pub names: Option<Box<dyn NameService>>,
    /// The time of day; [`NfsdDouble::advance`] moves both clocks.
    pub time: Time,
    /// What is done without a pause may cost so many units ([`machine::work`]).
    pub turn_units_max: u64,
    /// The most that it has cost.
    pub dearest_turn: u64,
    /// Work without a call does not go on.
    pub rests: bool,
    /// Clients can be answered.
    pub is_connected: bool,
    driver: Queues,
    conns: Vec<Conn>,
    /// Work without a call, with what it waits for.
    work: Vec<Option<(CopyWork, Task)>>,
    done: Vec<Completion>,
    connection: nfs::connection::RpcServerSettings,
    rdma: Option<nfs::connection::RdmaSettings>,
}

/// A token names a connection and a call of it, or work without a call.
fn token(conn: usize, tag: Tag) -> Token {
    (conn as u64) << 16 | u64::from(tag)
}

const WORK: Token = 1 << 63;

impl NfsdDouble {
    /// `nfsd` with no connection yet, and buffers of `memory_max` bytes.
    pub fn new(nfsd: Nfsd, memory_max: u64) -> NfsdDouble {
        let pool = Pool::new(mem::Budget::new(memory_max)).expect("there is address space");
        let io_bytes_max = nfsd.settings.io_bytes_max;
        NfsdDouble {
            nfsd,
            records: Vec::new(),
            after_save: None,
            accounts: None,
            names: None,
            time: Time {
                seconds: 1_000_000,
                nanos: 0,
            },
            turn_units_max: u64::MAX,
            dearest_turn: 0,
            rests: false,
            is_connected: true,
            driver: Queues::new(pool),
            conns: Vec::new(),
            work: Vec::new(),
            done: Vec::new(),
            connection: nfs::connection::RpcServerSettings::with_io(io_bytes_max),
            rdma: None,
        }
    }

    /// Clients of connections from now on may come by RDMA.
    pub fn set_rdma(&mut self, settings: nfs::connection::RdmaSettings) {
        self.rdma = Some(settings);
    }

    /// Whether they may.
    pub fn takes_rdma(&self) -> bool {
        self.rdma.is_some()
    }

    /// Connections from now on have these.
    pub fn set_connection(&mut self, settings: nfs::connection::RpcServerSettings) {
        self.connection = settings;
    }

    /// Does a part of the work in a turn of its own.
    fn in_turn<T>(&mut self, part: impl FnOnce(&mut NfsdDouble) -> T) -> T {
        let (mut units, max) = (0, self.turn_units_max);
        let value = work::take_turn(&mut units, max, || part(self));
        self.dearest_turn = self.dearest_turn.max(units);
        value
    }

    /// The monotonic clock.
    pub fn now(&self) -> Nanos {
        self.driver.now
    }

    /// A connection from there: its number.
    pub fn connect(&mut self, address: SocketAddr) -> usize {
        let at = self.conns.len();
        let socket = self.driver.add();
        let contexts = self.nfsd.contexts.clone();
        let machine = Connection::new(self.connection, self.driver.now).with_contexts(contexts);
        let machine = match self.rdma {
            Some(settings) => machine.with_rdma(settings, at as u64),
            None => machine,
        };
        self.conns.push(Conn {
            link: Link::new(machine, Stream::new(socket, StreamTokens::default())),
            peer: Peer::new(&self.nfsd, at as u64 + 1, address),
            executions: Vec::new(),
            waits: Vec::new(),
            starved: None,
            incoming: VecDeque::new(),
            outgoing: Vec::new(),
            callbacks: Vec::new(),
            is_gone: false,
            fatal: None,
        });
        at
    }

    /// A connection is in TLS from now on; its client has shown a certificate with these names.
    pub fn secure(&mut self, conn: usize, names: &[&str]) {
        let shown = ShownCertificate {
            owner: names.first().unwrap_or(&"CN=client").to_string(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        self.conns[conn].peer.secure(&self.nfsd, Some(shown));
    }

    /// What the server has of a connection.
    pub fn peer(&self, conn: usize) -> &Peer {
        &self.conns[conn].peer
    }

    /// Bytes arrive on a connection; all that follows from them is done.
    pub fn receive(&mut self, conn: usize, bytes: &[u8]) {
        self.conns[conn].incoming.extend(bytes);
        self.settle();
    }

    /// What was sent on a connection since it was asked last.
    pub fn sent(&mut self, conn: usize) -> Vec<u8> {
        std::mem::take(&mut self.conns[conn].outgoing)
    }

    /// The same, appended: with this nothing is allocated that the server does
    /// not allocate.
    pub fn sent_to(&mut self, conn: usize, to: &mut Vec<u8>) {
        to.append(&mut self.conns[conn].outgoing);
    }

    /// Why a connection has ended, if it has.
    pub fn fatal(&self, conn: usize) -> Option<RpcServerFatalError> {
        self.conns[conn].fatal
    }

    /// The machine of a connection.
    pub fn machine(&mut self, conn: usize) -> &mut Connection {
        &mut self.conns[conn].link.machine
    }

    /// One call, a record without its mark: its answer, likewise. Panics if
    /// there is none, or something else besides.
    pub fn call(&mut self, conn: usize, record: &[u8]) -> Vec<u8> {
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        self.receive(conn, &[&mark.encode()[..], record].concat());
        let mut sent: VecDeque<u8> = self.sent(conn).into();
        let mut records = testkit::nfs::call::cut(&mut sent);
        assert_eq!(records.len(), 1, "one call, one answer");
        records.remove(0)
    }

    /// Where buffers come from: what is taken here, calls do not find.
    pub fn pool(&self) -> &Pool {
        self.driver.pool()
    }

    /// Whatever waits for memory is refused it.
    pub fn refuse_memory(&mut self) {
        for conn in 0..self.conns.len() {
            let c = &mut self.conns[conn];
            if let Some(ServerOp::Prepare { tag, .. }) = c.starved {
                c.starved = None;
                c.link.machine.refuse(tag);
            }
            let mut starved = Vec::new();
            c.waits.retain(|(tag, waits)| match waits {
                Waits::Memory => {
                    starved.push(*tag);
                    false
                }
                Waits::Task(..) => true,
            });
            for tag in starved {
                self.execute(conn, tag, Execution::refuse);
            }
        }
        self.settle();
    }

    /// Time passes.
    pub fn advance(&mut self, by: Nanos) {
        self.driver.now += by;
        let nanos = u64::from(self.time.nanos) + by;
        self.time.seconds += (nanos / 1_000_000_000) as i64;
        self.time.nanos = (nanos % 1_000_000_000) as u32;
        self.in_turn(|server| server.nfsd.on_tick(server.driver.now));
        for c in &mut self.conns {
            c.peer.on_tick(&c.link.machine);
        }
        self.save();
        self.settle();
    }

    /// Other exports from now on, for every connection.
    pub fn set_exports(&mut self, exports: Exports) {
        self.in_turn(|server| server.nfsd.set_exports(exports));
        for c in &mut self.conns {
            c.peer.on_exports(&self.nfsd);
        }
    }

    /// The administrator takes a client away. Whether there was one.
    pub fn evict(&mut self, client: u64) -> bool {
        let was_there = self.in_turn(|server| server.nfsd.evict(client));
        self.settle();
        was_there
    }

    /// A connection is gone: what waits for memory is given up, what else it has
    /// under way goes on.
    pub fn disconnect(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        c.is_gone = true;
        self.nfsd.disconnected(&c.peer);
        let is_memory = |(_, waits): &mut (Tag, Waits)| matches!(waits, Waits::Memory);
        for (tag, _) in c.waits.extract_if(.., is_memory) {
            c.executions[usize::from(tag)].abandon();
        }
        for (_, id) in std::mem::take(&mut c.callbacks) {
            self.nfsd.answered(id, None, self.driver.now);
        }
        self.settle();
    }

    /// Goes on until nothing moves any more.
    fn settle(&mut self) {
        loop {
            let mut moved = self.call_back() | self.begin_work();
            for conn in 0..self.conns.len() {
                moved |= self.turn(conn);
            }
            let mut done = std::mem::take(&mut self.done);
            let polled = self.driver.poll(Wait::Now, &mut done);
            polled.expect("it is no kernel's");
            for completion in done.drain(..) {
                let Completion::File { token, result } = completion else {
                    unreachable!("{NO_SOCKETS}");
                };
                self.resume(token, result);
                moved = true;
            }
            self.done = done;
            if !moved {
                return;
            }
        }
    }

    /// Makes the calls that the server has for its clients.
    fn call_back(&mut self) -> bool {
        let callbacks = self.nfsd.take_callbacks();
        let moved = !callbacks.is_empty();
        for callback in callbacks {
            let mut conns = self.conns.iter_mut();
            let to = conns.find(|c| c.peer.id == callback.connection && !c.is_gone);
            let called = to.and_then(|c| {
                let machine = &mut c.link.machine;
                let xid = machine.call_back(callback.procedure(), |to| callback.encode(to))?;
                c.callbacks.push((xid, callback.id));
                Some(xid)
            });
            if called.is_none() {
                self.nfsd.answered(callback.id, None, self.driver.now);
            }
        }
        moved
    }

    fn begin_work(&mut self) -> bool {
        let mut moved = false;
        while !self.rests
            && let Some(mut work) = self.nfsd.take_work()
        {
            moved = true;
            let at = self.work.len();
            let begun = self.in_turn(|server| work.begin(&mut server.around_work(at)));
            self.work.push(begun.map(|task| (work, task)));
        }
        moved
    }

    fn around_work(&mut self, at: usize) -> WorkAround<'_> {
        WorkAround {
            nfsd: &self.nfsd,
            now: self.driver.now,
            files: &mut self.driver,
            token: WORK | at as u64,
            time: self.time,
        }
    }

    fn resume(&mut self, token: Token, result: io::Result<u32>) {
        if token & WORK != 0 {
            let at = (token & !WORK) as usize;
            let (mut work, task) = self.work[at].take().expect("it waits");
            let task = self.in_turn(|server| {
                let around = &mut server.around_work(at);
                work.resume(task, result, around)
            });
            self.work[at] = task.map(|task| (work, task));
            return;
        }
        let (conn, tag) = ((token >> 16) as usize, token as Tag);
        let waits = &mut self.conns[conn].waits;
        let at = waits.iter().position(|(of, _)| *of == tag);
        let (_, Waits::Task(fs, task)) = waits.remove(at.expect("it waits")) else {
            panic!("it waits for memory");
        };
        self.execute(conn, tag, |execution, around| {
            execution.resume(&fs, task, result, around)
        });
    }

    /// One turn of a connection: whether anything happened.
    fn turn(&mut self, conn: usize) -> bool {
        let mut moved = self.retry(conn);
        let driver = &mut self.driver;
        let c = &mut self.conns[conn];
        c.link.flush(driver);
        if driver.sent(conn, &mut c.outgoing) {
            c.link.on_sent();
            moved = true;
        }
        if c.starved.is_none() {
            self.take_ops(conn);
        }
        moved | self.fill(conn)
    }

    /// What waited for memory tries again.
    fn retry(&mut self, conn: usize) -> bool {
        let c = &mut self.conns[conn];
        let mut moved = false;
        if let Some(op) = c.starved.take() {
            moved |= self.take(conn, op);
        }
        let waits = &mut self.conns[conn].waits;
        let is_memory = |(_, waits): &(Tag, Waits)| matches!(waits, Waits::Memory);
        if let Some(at) = waits.iter().position(is_memory) {
            let (tag, _) = waits.remove(at);
            let before = self.conns[conn].waits.len();
            self.execute(conn, tag, Execution::go_on);
            moved |= self.conns[conn].waits.len() == before;
        }
        moved
    }

    /// Makes the next receive, as far as bytes are there.
    fn fill(&mut self, conn: usize) -> bool {
        let c = &mut self.conns[conn];
        if !self.driver.is_receiving(conn) && c.starved.is_none() {
            c.link.receive(&mut self.driver);
        }
        if c.incoming.is_empty() || c.is_gone {
            return false;
        }
        let Some(received) = self.driver.receive(conn, &mut c.incoming) else {
            return false;
        };
        c.link.on_received(received);
        self.take_ops(conn);
        true
    }

    fn take_ops(&mut self, conn: usize) {
        while self.conns[conn].starved.is_none()
            && let Some(op) = self.conns[conn].link.next_op(self.driver.now)
        {
            self.take(conn, op);
        }
    }

    /// Does what the machine asks for; false: there was no memory.
    fn take(&mut self, conn: usize, op: ServerOp) -> bool {
        match op {
            ServerOp::Prepare {
                call,
                tag,
                offset,
                len,
                staged,
            } => {
                let is_there = self.around(conn, tag, |around| {
                    prepare(around, call, tag, offset, len, staged)
                });
                if !is_there {
                    self.conns[conn].starved = Some(op);
                }
                return is_there;
            }
            ServerOp::PrepareArgs { tag, bytes, .. } => {
                let c = &mut self.conns[conn];
                let Some(reserved) = self.driver.pool().reserve(bytes.into()) else {
                    c.starved = Some(op);
                    return false;
                };
                c.link.set_data(tag, CommandMemory::reserved(reserved));
                c.link.machine.prepared(tag);
            }
            ServerOp::Place {
                tag,
                offset,
                at,
                len,
            } => {
                let link = &self.conns[conn].link;
                link.put(tag, offset, link.machine.unwrapped(at, len));
            }
            ServerOp::Init { tag } => self.init(conn, tag),
            ServerOp::Call { tag } => {
                self.execute(conn, tag, |execution, around| execution.begin(tag, around))
            }
            ServerOp::Answer { tag, xid } => {
                let c = &mut self.conns[conn];
                let at = c.callbacks.iter().position(|(of, _)| *of == xid);
                let (_, id) = c.callbacks.remove(at.expect("it was called"));
                let answer = taken_answer(&mut c.link.machine, tag);
                self.in_turn(|server| {
                    let now = server.driver.now;
                    server.nfsd.answered(id, Some(&answer), now);
                });
            }
            ServerOp::StartTls => unreachable!("it is not offered"),
            ServerOp::Fatal(error) => self.conns[conn].fatal = Some(error),
        }
        true
    }

    /// Takes a token that makes a context of RPCSEC_GSS.
    fn init(&mut self, conn: usize, tag: Tag) {
        let machine = &mut self.conns[conn].link.machine;
        let contexts = self.nfsd.has_gss().then_some(&*self.nfsd.contexts);
        answer_init(machine, tag, contexts, (conn as u64, self.driver.now));
    }

    fn around<T>(&mut self, conn: usize, tag: Tag, with: impl FnOnce(&mut Around<'_>) -> T) -> T {
        let pool = self.driver.pool().clone();
        self.in_turn(|server| {
            let c = &mut server.conns[conn];
            let now = server.driver.now;
            with(&mut Around {
                nfsd: &server.nfsd,
                peer: &mut c.peer,
                link: &mut c.link,
                files: &mut server.driver,
                pool: &pool,
                limits: None,
                is_connected: server.is_connected,
                token: token(conn, tag),
                now,
                time: server.time,
            })
        })
    }

    /// What is to be kept is kept.
    fn save(&mut self) {
        let (records, number) = self.nfsd.server.take_records();
        self.records.extend(records);
        self.nfsd.server.saved(number);
        if let Some(others) = &mut self.after_save {
            others(&self.nfsd);
        }
    }

    fn execute(
        &mut self,
        conn: usize,
        tag: Tag,
        go: impl FnOnce(&mut Execution, &mut Around<'_>) -> Step,
    ) {
        let executions = &mut self.conns[conn].executions;
        if executions.len() <= usize::from(tag) {
            executions.resize_with(usize::from(tag) + 1, Execution::default);
        }
        let mut execution = std::mem::take(&mut executions[usize::from(tag)]);
        let mut step = self.around(conn, tag, |around| go(&mut execution, around));
        while let Step::Elsewhere(_) | Step::Turn = step {
            self.save();
            let now = self.driver.now;
            let asked = (now, &(|| now) as &dyn Fn() -> Nanos);
            if let Step::Elsewhere(Elsewhere::Names(address)) = step {
                let names = self.names.as_deref().expect("a name service");
                self.nfsd.look_up_names(address, names, asked);
            }
            if let Step::Elsewhere(Elsewhere::Groups(uid)) = step {
                let accounts = self.accounts.as_deref().expect("a database of users");
                self.nfsd.groups.look_up(uid, accounts, asked);
            }
            step = self.around(conn, tag, |around| execution.go_on(around));
        }
        let c = &mut self.conns[conn];
        c.executions[usize::from(tag)] = execution;
        match step {
            Step::Sent => {}
            Step::Pending(fs, task) => c.waits.push((tag, Waits::Task(fs, task))),
            Step::NoMemory if c.is_gone => c.executions[usize::from(tag)].abandon(),
            Step::NoMemory => c.waits.push((tag, Waits::Memory)),
            Step::HeldBack(_) => unreachable!("there are no limits"),
            Step::Elsewhere(_) | Step::Turn => unreachable!("it went on"),
        }
    }
}
