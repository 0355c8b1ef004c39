//! A client of a server, with a session and a driver of its own: one COMPOUND
//! at a time, waiting for each answer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::nfs::client::{
    Auth, Backchannel, CallData, Channels, Compound, RdmaClientSettings, Results,
    RpcClientSettings, Sequenced, Slots, Wrong, create_session,
};
use link::CommandMemory as Memory;
use machine::{Nanos, Tag};
use reactor::{Driver, Token, Wait};
use wire::nfs4::{
    BIND_CONN_TO_SESSION4args, BIND_CONN_TO_SESSION4resok, CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    CREATE_SESSION4resok, SEQUENCE4resok, channel_dir_from_client4, nfs_argop4, nfs_cb_argop4,
    nfs_opnum4, nfsstat4, stateid4,
};

use super::files::Opens;
use super::{
    CallEvent, ClientError, ClientIdentity, Handle, RpcGss, RpcTls, ServerConnection,
    TOKENS_PER_CONNECTION,
};
use crate::Payload;

/// How long a call may take on a connection that stands.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts: to connect, or of a call that is to come later.
const PAUSE: Duration = Duration::from_millis(50);
/// The program of callbacks: any of the transient ones (RFC 5531, section 8.3).
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
/// Callbacks at a time.
const CALLBACK_SLOTS: u32 = 8;
/// Operations of a COMPOUND.
const OPS_MAX: u32 = 32;
/// What a READ or WRITE has beside its data, at most.
const HEADERS_MAX: u32 = 4096;
/// Bytes of an answer that the server is asked to keep.
const CACHED_BYTES_MAX: u32 = 4096;

/// What a client is to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// Minor version: 1 or 2.
    pub minor: u32,
    /// The user that calls.
    pub auth: Auth,
    /// What the client is called.
    pub identity: ClientIdentity,
    /// Connections of its session, at least 1.
    pub connections: usize,
    /// Slots of its session.
    pub slots: u32,
    /// Bytes of one READ or WRITE.
    pub io_bytes_max: u32,
    /// Nothing goes but in TLS; `None`: all goes in the clear.
    pub tls: Option<RpcTls>,
    /// Calls go by RPCSEC_GSS; `None`: as `auth` says.
    pub gss: Option<RpcGss>,
    /// Messages go by RPC-over-RDMA, which has no TLS; `None`: by records on TCP.
    pub rdma: Option<RdmaClientSettings>,
    /// How long a lost connection, a server that starts again or one that asks
    /// for patience is waited for; without any, what is lost is lost.
    pub patience: Duration,
}

impl Params {
    /// NFSv4.2 for the user of this process, over one connection.
    ///
    /// # Errors
    /// Where the system has no random bytes, or no `/proc`.
    pub fn new() -> std::io::Result<Params> {
        let (uid, gid) = super::user()?;
        Ok(Params {
            minor: 2,
            auth: Auth::sys(uid, gid, &[]),
            identity: ClientIdentity::new()?,
            connections: 1,
            slots: 8,
            io_bytes_max: 1 << 20,
            tls: None,
            gss: None,
            rdma: None,
            patience: Duration::ZERO,
        })
    }

    /// What a connection of this client's may do.
    #[must_use]
    pub fn settings(&self, calls_max: u16) -> RpcClientSettings {
        RpcClientSettings {
            calls_max,
            // A whole READ comes so where its data has no memory.
            answer_bytes_max: self.io_bytes_max + HEADERS_MAX,
            callback_program: CALLBACK_PROGRAM,
            auth: self.auth.clone(),
        }
    }

    /// Starts to connect, as [`ServerConnection::open`].
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub fn connection<D: Driver>(
        &self,
        driver: &mut D,
        to: SocketAddr,
        settings: RpcClientSettings,
        base: Token,
    ) -> io::Result<ServerConnection> {
        let mut connection = ServerConnection::open(driver, to, settings, base)?;
        if let Some(tls) = &self.tls {
            connection.ask_for_tls(tls.clone());
        }
        if let Some(gss) = &self.gss {
            connection.secure(gss.clone());
        }
        if let Some(settings) = self.rdma {
            connection.use_rdma(driver, settings);
        }
        Ok(connection)
    }

    fn channels(&self, slots: u32, callback_slots: u32) -> Channels {
        Channels {
            slots,
            message_bytes_max: self.io_bytes_max + HEADERS_MAX,
            cached_bytes_max: CACHED_BYTES_MAX,
            ops_max: OPS_MAX,
            callback_slots,
            callback_program: CALLBACK_PROGRAM,
        }
    }
}

/// One of a client's connections.
struct ClientLane {
    /// There but for the moment in which another takes its place.
    connection: Option<ServerConnection>,
    /// Callbacks do not come over it yet.
    needs_bind: bool,
    /// It is lost: when it is made again.
    retry_at: Option<Nanos>,
    /// It is lost, and no other is made.
    is_over: bool,
}

impl ClientLane {
    fn connection(&mut self) -> &mut ServerConnection {
        self.connection.as_mut().expect("it is put back at once")
    }
}

/// A delegation that the server wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recall {
    pub stateid: stateid4,
    pub handle: Handle,
}

/// What became of one attempt at a call.
pub(super) enum Attempt<T> {
    Done(T),
    /// It was not executed, and may be later.
    Again(ClientError),
    /// The session is gone.
    Gone,
}

/// How a COMPOUND behaves.
pub(super) struct Manner<'a> {
    pub data: Payload<'a>,
    /// Whether it must not be executed twice: its answer is kept by the server.
    pub is_once: bool,
}

impl Manner<'_> {
    pub(super) const PLAIN: Manner<'static> = Manner {
        data: Payload::None,
        is_once: false,
    };
    pub(super) const ONCE: Manner<'static> = Manner {
        data: Payload::None,
        is_once: true,
    };
}

/// A client whose calls are waited for, one at a time.
pub struct Client<D> {
    pub(super) driver: D,
    to: SocketAddr,
    pub(super) params: Params,
    lanes: Vec<ClientLane>,
    /// The lane that takes the next call.
    turn: usize,
    pub(super) clientid: u64,
    /// `csa_sequence` of the next CREATE_SESSION.
    pub(super) sequence: u32,
    pub(super) slots: Option<Slots>,
    pub(super) backchannel: Option<Backchannel>,
    pub(super) opens: Opens,
    recalls: Vec<Recall>,
    out: Vec<reactor::Completion>,
}

impl<D: Driver> Client<D> {
    /// Connects, introduces itself and makes a session.
    ///
    /// # Errors
    /// Where the connection fails or the server refuses.
    pub fn connect(
        mut driver: D,
        to: SocketAddr,
        params: Params,
    ) -> Result<Client<D>, ClientError> {
        let count = params.connections.max(1);
        let mut lanes = Vec::with_capacity(count);
        for number in 0..count {
            let base = number as Token * TOKENS_PER_CONNECTION;
            let settings = params.settings(params.slots.min(1 << 15) as u16);
            lanes.push(ClientLane {
                connection: Some(params.connection(&mut driver, to, settings, base)?),
                // CREATE_SESSION binds the first.
                needs_bind: number > 0,
                retry_at: None,
                is_over: false,
            });
        }
        let mut client = Client {
            driver,
            to,
            params,
            lanes,
            turn: 0,
            clientid: 0,
            sequence: 0,
            slots: None,
            backchannel: None,
            opens: Opens::default(),
            recalls: Vec::new(),
            out: Vec::new(),
        };
        client.establish_session()?;
        client.reclaim_complete()?;
        Ok(client)
    }

    /// NULL: whether the server is there.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn null(&mut self) -> Result<(), ClientError> {
        let tag = self.lanes[0]
            .connection()
            .null()
            .ok_or(ClientError::Closed)?;
        self.wait(0, tag, "answer to NULL")?;
        self.lanes[0].connection().answer().body()?;
        Ok(())
    }

    /// Makes one more session of this client's, for connections of others: its
    /// slots. No callbacks come over it. The lease is that of the client.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn more_slots(&mut self, slots: u32) -> Result<Slots, ClientError> {
        let channels = self.params.channels(slots, 0);
        Ok(self.make_session(&channels)?.0)
    }

    /// The session of this client; with it callbacks come.
    pub(super) fn make_own_session(&mut self) -> Result<(), ClientError> {
        let channels = self.params.channels(self.params.slots, CALLBACK_SLOTS);
        let (slots, flags) = self.make_session(&channels)?;
        let has_callbacks = flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0;
        let backchannel = Backchannel::new(slots.session(), CALLBACK_SLOTS);
        self.backchannel = has_callbacks.then_some(backchannel);
        self.slots = Some(slots);
        for (lane, number) in self.lanes.iter_mut().zip(0..) {
            lane.needs_bind = number > 0 && has_callbacks;
        }
        Ok(())
    }

    /// CREATE_SESSION: slots, and flags as agreed.
    fn make_session(&mut self, channels: &Channels) -> Result<(Slots, u32), ClientError> {
        let args = create_session(self.clientid, self.sequence, channels);
        let made = self.call_without_session(&nfs_argop4::OP_CREATE_SESSION(args), |results| {
            let made: CREATE_SESSION4resok<'_> = results.take(nfs_opnum4::OP_CREATE_SESSION)?;
            Ok((Slots::new(&made), made.csr_flags))
        })?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(made)
    }

    /// An operation that stands alone, outside of a session.
    pub(super) fn call_without_session<T>(
        &mut self,
        op: &nfs_argop4<'_>,
        mut read: impl FnMut(&mut Results<'_>) -> Result<T, Wrong>,
    ) -> Result<T, ClientError> {
        let end = self.patience_end()?;
        loop {
            let minor = self.params.minor;
            let connection = self.lanes[0].connection();
            let tag = connection.compound(
                minor,
                CallData::None,
                |_| Memory::default(),
                |compound| {
                    compound.op(op);
                },
            );
            self.wait(0, tag.ok_or(ClientError::Closed)?, "answer to a call")?;
            let mut results = self.lanes[0].connection().answer().results()?;
            match read(&mut results) {
                Ok(done) => return Ok(done),
                Err(wrong) if is_later(&wrong) && self.driver.now() < end => self.idle(PAUSE)?,
                Err(wrong) => return Err(wrong.into()),
            }
        }
    }

    /// Until when a call that begins now is tried again.
    fn patience_end(&mut self) -> Result<Nanos, ClientError> {
        // The driver's time is that of its last turn, which may be long ago.
        self.turn_driver(0)?;
        Ok(self.driver.now() + self.params.patience.as_nanos() as Nanos)
    }

    /// A COMPOUND of what `write` writes behind SEQUENCE, and what `read` makes of
    /// its results behind that; again where the server asks for patience, and
    /// after a recovery where it has started again.
    pub(super) fn call<T>(
        &mut self,
        mut manner: Manner<'_>,
        write: impl Fn(&Opens, &mut Compound<'_>),
        mut read: impl FnMut(&mut Results<'_>) -> Result<T, Wrong>,
    ) -> Result<T, ClientError> {
        let end = self.patience_end()?;
        let done = loop {
            match self.attempt(&mut manner, &write, &mut read)? {
                Attempt::Done(done) => break done,
                Attempt::Again(error) if self.driver.now() >= end => return Err(error),
                Attempt::Again(_) => self.idle(PAUSE)?,
                Attempt::Gone if self.driver.now() >= end => {
                    return Err(ClientError::Unusable("the session is gone".into()));
                }
                Attempt::Gone => self.recover()?,
            }
        };
        self.bind()?;
        self.return_delegations()?;
        Ok(done)
    }

    /// The same, once.
    pub(super) fn attempt<T>(
        &mut self,
        manner: &mut Manner<'_>,
        write: &impl Fn(&Opens, &mut Compound<'_>),
        read: &mut impl FnMut(&mut Results<'_>) -> Result<T, Wrong>,
    ) -> Result<Attempt<T>, ClientError> {
        self.bind()?;
        let lane = self.turn;
        self.turn = (lane + 1) % self.lanes.len();
        let (data, memory) = self.memory(&manner.data)?;
        let slots = self.slots.as_mut().ok_or(ClientError::Closed)?;
        let slot = slots.take().ok_or(ClientError::Closed)?;
        let sequence = nfs_argop4::OP_SEQUENCE(slots.sequence(slot, manner.is_once));
        let (opens, minor) = (&self.opens, self.params.minor);
        let connection = self.lanes[lane].connection();
        let tag = connection.compound(
            minor,
            data,
            |_| memory,
            |compound| {
                compound.op(&sequence);
                write(opens, compound);
            },
        );
        let tag = tag.ok_or(ClientError::Closed)?;
        self.wait(lane, tag, "answer to a call")?;
        let connection = self.lanes[lane].connection();
        let memory = connection.take_memory(tag);
        let answer = connection.answer();
        let mut results = answer.results()?;
        let sequence = results.take::<SEQUENCE4resok>(nfs_opnum4::OP_SEQUENCE);
        let slots = self.slots.as_mut().ok_or(ClientError::Closed)?;
        match (slots.ended(slot, sequence.as_ref()), sequence) {
            (Sequenced::Executed, _) => {}
            (Sequenced::Gone, _) => return Ok(Attempt::Gone),
            (Sequenced::Again, Err(wrong)) => return Ok(Attempt::Again(wrong.into())),
            // What may be executed twice is.
            (Sequenced::Forgotten, Err(wrong)) if !manner.is_once => {
                return Ok(Attempt::Again(wrong.into()));
            }
            (_, Err(wrong)) => return Err(wrong.into()),
            (_, Ok(_)) => unreachable!("a success is executed"),
        }
        match read(&mut results) {
            Ok(done) => {
                manner.data.take(&memory, answer.data_len as usize);
                Ok(Attempt::Done(done))
            }
            Err(wrong) if is_later(&wrong) => Ok(Attempt::Again(wrong.into())),
            Err(wrong) => Err(wrong.into()),
        }
    }

    /// Memory for the data of a call.
    fn memory(&self, data: &Payload<'_>) -> Result<(CallData, Memory), ClientError> {
        let len = match data {
            Payload::None | Payload::In([]) | Payload::Out([]) => {
                return Ok((CallData::None, Memory::default()));
            }
            Payload::In(into) => CallData::In(into.len() as u32),
            Payload::Out(bytes) => CallData::Out(bytes.len() as u32),
        };
        let memory = data
            .memory(self.driver.pool())
            .ok_or(ClientError::NoMemory)?;
        Ok((len, memory))
    }

    /// BIND_CONN_TO_SESSION (RFC 8881, section 18.34) where a connection is new:
    /// then callbacks come over it too.
    fn bind(&mut self) -> Result<(), ClientError> {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].needs_bind {
                continue;
            }
            let Some(slots) = &self.slots else { continue };
            let op = nfs_argop4::OP_BIND_CONN_TO_SESSION(BIND_CONN_TO_SESSION4args {
                bctsa_sessid: slots.session(),
                bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
                bctsa_use_conn_in_rdma_mode: false,
            });
            let minor = self.params.minor;
            let connection = self.lanes[lane].connection();
            let tag = connection.compound(
                minor,
                CallData::None,
                |_| Memory::default(),
                |compound| {
                    compound.op(&op);
                },
            );
            self.wait(
                lane,
                tag.ok_or(ClientError::Closed)?,
                "answer to BIND_CONN_TO_SESSION",
            )?;
            let mut results = self.lanes[lane].connection().answer().results()?;
            let number = nfs_opnum4::OP_BIND_CONN_TO_SESSION;
            match results.take::<BIND_CONN_TO_SESSION4resok>(number) {
                Ok(_) => {}
                // The next call will see it, and what there is to be done.
                Err(wrong) if wrong.status() == Some(nfsstat4::NFS4ERR_BADSESSION) => {}
                Err(wrong) => return Err(wrong.into()),
            }
            self.lanes[lane].needs_bind = false;
        }
        Ok(())
    }

    /// Takes what the server asks, for so long.
    ///
    /// # Errors
    /// Where a connection is lost, and no other is made.
    pub fn idle(&mut self, pause: Duration) -> Result<(), ClientError> {
        let end = self.driver.now() + pause.as_nanos() as Nanos;
        let mut has_lost = false;
        while self.driver.now() < end {
            self.events(None, &mut has_lost)?;
            self.turn_driver(end)?;
        }
        Ok(())
    }

    /// The same, and returns delegations that were recalled; how many.
    ///
    /// # Errors
    /// As [`Client::idle`], or the server refuses.
    pub fn serve(&mut self, pause: Duration) -> Result<usize, ClientError> {
        self.bind()?;
        self.idle(pause)?;
        let count = self.recalls.len();
        self.return_delegations()?;
        Ok(count)
    }

    pub(super) fn take_recall(&mut self) -> Option<Recall> {
        self.recalls.pop()
    }

    /// Waits for the answer to `tag` on `lane`; it can be read until the next
    /// event.
    fn wait(&mut self, lane: usize, tag: Tag, what: &'static str) -> Result<(), ClientError> {
        if self.lanes[lane].is_over {
            return Err(ClientError::Closed);
        }
        let timeout = CALL_TIMEOUT.as_nanos() as Nanos;
        let mut deadline = self.driver.now() + timeout;
        let mut has_lost = false;
        loop {
            let had_lost = has_lost;
            if self.events(Some((lane, tag)), &mut has_lost)? {
                return Ok(());
            }
            let now = self.driver.now();
            if has_lost && !had_lost {
                deadline = now + self.params.patience.as_nanos() as Nanos + timeout;
            }
            if now >= deadline {
                return Err(ClientError::TimedOut { waiting_for: what });
            }
            self.turn_driver(deadline)?;
        }
    }

    /// Takes what happened on all lanes; whether that was the answer to
    /// `awaited`. Lost connections are made again.
    fn events(
        &mut self,
        awaited: Option<(usize, Tag)>,
        has_lost: &mut bool,
    ) -> Result<bool, ClientError> {
        for lane in 0..self.lanes.len() {
            while let Some(event) = self.lanes[lane].connection().next_event(&mut self.driver) {
                match event {
                    CallEvent::Answered(tag) if awaited == Some((lane, tag)) => return Ok(true),
                    CallEvent::Answered(_) => {}
                    CallEvent::CallBack(xid) => self.on_callback(lane, xid),
                    CallEvent::Down(error) if self.params.patience.is_zero() => {
                        self.lanes[lane].is_over = true;
                        return Err(error);
                    }
                    CallEvent::Down(_) => {
                        *has_lost = true;
                        let pause = PAUSE.as_nanos() as Nanos;
                        self.lanes[lane].retry_at = Some(self.driver.now() + pause);
                    }
                }
            }
            self.reopen(lane)?;
        }
        Ok(false)
    }

    /// Connects a lost lane again, when it is time.
    fn reopen(&mut self, lane: usize) -> Result<(), ClientError> {
        let now = self.driver.now();
        let lane = &mut self.lanes[lane];
        let is_due = lane.retry_at.is_some_and(|at| now >= at);
        if !is_due || !lane.connection().is_closed() {
            return Ok(());
        }
        let connection = lane.connection.take().expect("it is put back at once");
        lane.connection = Some(connection.reopen(&mut self.driver, self.to)?);
        lane.retry_at = None;
        lane.needs_bind = self.backchannel.is_some();
        Ok(())
    }

    /// CB_COMPOUND.
    fn on_callback(&mut self, lane: usize, xid: u32) {
        let connection = self.lanes[lane].connection.as_mut();
        let connection = connection.expect("it is put back at once");
        let mut results = Vec::new();
        let recalls = &mut self.recalls;
        if let Some(backchannel) = &mut self.backchannel {
            let args = connection.callback();
            backchannel.answer(args, &mut results, |op, _| match op {
                nfs_cb_argop4::OP_CB_RECALL(args) => {
                    recalls.push(Recall {
                        stateid: args.stateid,
                        handle: Handle::new(args.fh.0),
                    });
                    nfsstat4::NFS4_OK
                }
                // All that the server may say it wants, without any being done.
                nfs_cb_argop4::OP_CB_RECALL_SLOT(_)
                | nfs_cb_argop4::OP_CB_NOTIFY_LOCK(_)
                | nfs_cb_argop4::OP_CB_OFFLOAD(_) => nfsstat4::NFS4_OK,
                _ => nfsstat4::NFS4ERR_NOTSUPP,
            });
        }
        connection.answer_callback(xid, |to| to.extend_from_slice(&results));
    }

    fn turn_driver(&mut self, deadline: Nanos) -> Result<(), ClientError> {
        let retry = self.lanes.iter().filter_map(|lane| lane.retry_at).min();
        let until = retry.map_or(deadline, |retry| retry.min(deadline));
        for lane in &mut self.lanes {
            lane.connection().flush(&mut self.driver);
        }
        self.driver.poll(Wait::Until(until), &mut self.out)?;
        for completion in self.out.drain(..) {
            let lane = (completion.token() / TOKENS_PER_CONNECTION) as usize;
            let connection = self.lanes[lane].connection();
            connection.on_completion(&mut self.driver, completion);
        }
        Ok(())
    }

    /// Closes every connection and waits for their end.
    pub(super) fn close(&mut self) -> Result<(), ClientError> {
        let deadline = self.driver.now() + CALL_TIMEOUT.as_nanos() as Nanos;
        for lane in &mut self.lanes {
            lane.connection().close(&mut self.driver);
        }
        let is_closed = |lane: &mut ClientLane| lane.connection().is_closed();
        while !self.lanes.iter_mut().all(is_closed) && self.driver.now() < deadline {
            self.turn_driver(deadline)?;
        }
        Ok(())
    }

    /// Ends every connection at once, as a fault would: what comes next makes
    /// them again, where there is patience.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn cut_connections(&mut self) -> Result<(), ClientError> {
        self.close()?;
        let now = self.driver.now();
        self.lanes
            .iter_mut()
            .for_each(|lane| lane.retry_at = Some(now));
        Ok(())
    }
}

/// Whether an operation may be tried later.
fn is_later(wrong: &Wrong) -> bool {
    matches!(
        wrong.status(),
        Some(nfsstat4::NFS4ERR_DELAY | nfsstat4::NFS4ERR_GRACE)
    )
}
