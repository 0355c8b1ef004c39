//! One connection that takes COMPOUNDs.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ::nfs::client::{
    CallData, ClientConnection as Calls, ClientOp, Compound, RdmaClientSettings, RpcAnswer,
    RpcClientSettings, Slot, Template,
};
use link::CommandMemory as Memory;
use machine::{Machine, Tag};
use reactor::{Driver, Token, must_fill_random};
use tls::{CertificateHandshake, ClientConfig, Identity, rpc_client_side};

use super::gss::ContextMaker;
use super::{ClientError, RpcGss};
use crate::transport::{HostProtocol, Transport};

/// What became of a connection or of one of its calls.
#[derive(Debug)]
pub enum CallEvent {
    /// A call was answered; its memory is the caller's again. The answer is
    /// [`ServerConnection::answer`] until the next event.
    Answered(Tag),
    /// The server calls: see [`ServerConnection::callback`] before the next event, then
    /// say [`ServerConnection::answer_callback`] with this xid.
    CallBack(u32),
    /// The connection is lost. Calls without an answer are sent again by
    /// [`ServerConnection::reopen`]; their memory must stay until then, or until
    /// [`ServerConnection::is_closed`].
    Down(ClientError),
}

/// What the transport is told of NFS: there is nothing to agree on before calls.
struct Nfs;

impl HostProtocol for Nfs {
    type Machine = Calls;
    type TransportPhase = ();
    type Error = ClientError;

    const FIRST: () = ();
    const TELLS_WHY: bool = true;
    const CLOSED: ClientError = ClientError::Closed;
}

/// What a client of RPC-with-TLS (RFC 9289) believes in and shows.
#[derive(Clone, Debug)]
pub struct RpcTls {
    /// Of [`tls::rpc_client_side`].
    pub side: Arc<ClientConfig>,
    /// The name or address that the server's certificate is to be for.
    pub name: String,
}

impl RpcTls {
    /// With a server of this name, whose certificate an authority in the file `ca` has signed;
    /// `shown`: files of a certificate and its key.
    ///
    /// # Errors
    /// What of the files cannot be used.
    pub fn read(name: &str, ca: &Path, shown: Option<(&Path, &Path)>) -> Result<RpcTls, String> {
        let shown =
            shown.map(|(certificate, key)| Identity::read(certificate, &key.to_owned().into()));
        Ok(RpcTls {
            side: rpc_client_side(ca, shown.transpose()?)?,
            name: name.to_owned(),
        })
    }
}

/// One connection to a server.
pub struct ServerConnection {
    transport: Transport<Nfs>,
    /// Asked for before anything else.
    tls: Option<RpcTls>,
    /// Messages go by RPC-over-RDMA.
    rdma: Option<RdmaClientSettings>,
    /// What makes the security context, where calls go in one.
    contexts: Option<Box<ContextMaker>>,
}

impl ServerConnection {
    /// Starts to connect. Completions carry tokens `base` to
    /// `base + TOKENS_PER_CONNECTION - 1`: hand them to
    /// [`ServerConnection::on_completion`].
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub fn open<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        settings: RpcClientSettings,
        base: Token,
    ) -> io::Result<ServerConnection> {
        ServerConnection::over(driver, to, Calls::new(settings), base)
    }

    /// Nothing goes but in TLS: a connection to a server that has none, or another certificate,
    /// goes down. Before the first completion.
    pub fn ask_for_tls(&mut self, tls: RpcTls) {
        self.transport.link.machine.ask_for_tls();
        self.tls = Some(tls);
    }

    /// Messages go by RPC-over-RDMA on iWARP: a connection to a server that does not speak it
    /// goes down. Before the first completion; not with TLS.
    pub fn use_rdma<D: Driver>(&mut self, driver: &D, settings: RdmaClientSettings) {
        let mut seed = [0; 8];
        must_fill_random(&mut seed);
        let seed = u64::from_ne_bytes(seed);
        let machine = &mut self.transport.link.machine;
        machine.use_rdma(settings, seed, driver.now());
        self.rdma = Some(settings);
    }

    /// Calls go by RPCSEC_GSS, each connection in a context of its own. Before the first call.
    pub fn secure(&mut self, gss: RpcGss) {
        self.transport.link.machine.secure(gss.service);
        self.contexts = Some(Box::new(ContextMaker::new(gss)));
    }

    fn over<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        machine: Calls,
        base: Token,
    ) -> io::Result<ServerConnection> {
        let transport = Transport::open(driver, to, machine, None, base)?;
        Ok(ServerConnection {
            transport,
            tls: None,
            rdma: None,
            contexts: None,
        })
    }

    /// Connects again after [`ServerConnection::is_closed`]: calls without an answer
    /// are sent again as they were.
    ///
    /// # Errors
    /// Where the driver can make no socket; the calls are lost then.
    pub fn reopen<D: Driver>(
        mut self,
        driver: &mut D,
        to: SocketAddr,
    ) -> io::Result<ServerConnection> {
        assert!(self.is_closed(), "the driver still has its memory");
        let tags = self.transport.link.machine.tags_max() as Tag;
        let memory: Vec<Memory> = (0..tags)
            .map(|tag| self.transport.link.take_data(tag))
            .collect();
        let base = self.transport.base();
        let mut machine = self.transport.link.machine;
        machine.restart();
        let mut again = ServerConnection::over(driver, to, machine, base)?;
        again.tls = self.tls;
        again.contexts = self.contexts;
        if let Some(settings) = self.rdma {
            again.use_rdma(driver, settings);
        }
        for (tag, memory) in (0..tags).zip(memory) {
            again.transport.link.set_data(tag, memory);
        }
        Ok(again)
    }

    /// Whether calls go as soon as they are made: TCP is connected, a server by RDMA has accepted,
    /// and there is a security context where they need one.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.transport.is_in(()) && self.transport.link.machine.takes_calls()
    }

    /// Whether the driver is done with the connection and all its memory.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.transport.is_closed()
    }

    /// How many calls would be taken now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> u16 {
        self.transport.link.machine.room()
    }

    /// The answer to the call that the last event told of.
    #[inline]
    #[must_use]
    pub fn answer(&self) -> RpcAnswer<'_> {
        self.transport.link.machine.answer()
    }

    /// The arguments of the CB_COMPOUND that the last event told of.
    #[must_use]
    pub fn callback(&self) -> &[u8] {
        self.transport.link.machine.callback()
    }

    /// Answers a callback with the results that `results` appends.
    pub fn answer_callback(&mut self, xid: u32, results: impl FnOnce(&mut Vec<u8>)) {
        self.transport.link.machine.answer_callback(xid, results);
    }

    /// Takes a COMPOUND; it leaves with a [`ServerConnection::flush`]. `memory` is what
    /// `data` describes. `None`: as many as may be are under way.
    pub fn compound(
        &mut self,
        minor: u32,
        data: CallData,
        memory: impl FnOnce(Tag) -> Memory,
        write: impl FnOnce(&mut Compound<'_>),
    ) -> Option<Tag> {
        let tag = self.transport.link.machine.compound(minor, data, write)?;
        self.set_memory(tag, memory(tag));
        Some(tag)
    }

    /// Takes a NULL, as [`ServerConnection::compound`].
    pub fn null(&mut self) -> Option<Tag> {
        self.transport.link.machine.null()
    }

    /// A COMPOUND that is to be sent over and over.
    #[must_use]
    pub fn template(
        &self,
        minor: u32,
        data: CallData,
        write: impl FnOnce(&mut Compound<'_>),
    ) -> Template {
        self.transport.link.machine.template(minor, data, write)
    }

    /// Takes a COMPOUND made of a template of this connection, as
    /// [`ServerConnection::compound`].
    #[inline]
    pub fn from_template(
        &mut self,
        template: &Template,
        slot: Slot,
        offset: u64,
        memory: impl FnOnce(Tag) -> Memory,
    ) -> Option<Tag> {
        let tag = self
            .transport
            .link
            .machine
            .from_template(template, slot, offset)?;
        self.set_memory(tag, memory(tag));
        Some(tag)
    }

    #[inline]
    fn set_memory(&mut self, tag: Tag, memory: Memory) {
        let machine = &mut self.transport.link.machine;
        if machine.protects_data() && memory.has_bytes() {
            machine.put_data(tag, |into| memory.get(0, into));
        }
        self.transport.link.set_data(tag, memory);
    }

    /// Takes the memory of an answered call back.
    pub fn take_memory(&mut self, tag: Tag) -> Memory {
        self.transport.link.take_data(tag)
    }

    /// Sends what was submitted, with one call, unless a send is under way.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        if self.contexts.is_some() {
            self.prepare(driver);
        }
        self.transport.flush(driver);
    }

    /// Sees to it that what is to be sent has a context.
    #[cold]
    fn prepare<D: Driver>(&mut self, driver: &mut D) {
        let Some(contexts) = self.contexts.as_mut().filter(|_| self.transport.is_open()) else {
            return;
        };
        let machine = &mut self.transport.link.machine;
        let prepared = machine.prepare().map_err(|error| {
            ClientError::Unusable(format!("no call can be protected (RPCSEC_GSS): {error}"))
        });
        if let Err(error) = prepared.and_then(|()| contexts.begin(machine)) {
            self.transport.fail(driver, error);
        }
    }

    /// Ends the connection; [`ServerConnection::is_closed`] tells when nothing of it
    /// is left.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        self.transport.close(driver);
    }

    /// Takes a completion with one of this connection's tokens. Call
    /// [`ServerConnection::next_event`] until it yields nothing, then
    /// [`ServerConnection::flush`].
    #[inline]
    pub fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: reactor::Completion) {
        self.transport.on_completion(driver, completion);
    }

    /// What happened, until `None`; then the next receive is under way.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<CallEvent> {
        if let Some(error) = self.transport.take_down() {
            return Some(CallEvent::Down(error));
        }
        let op = loop {
            match self.transport.next_op(driver)? {
                ClientOp::StartTls => {
                    if let Err(error) = self.begin_tls(driver) {
                        self.transport.close(driver);
                        return Some(CallEvent::Down(error));
                    }
                }
                ClientOp::TokenAnswered => {
                    let contexts = self.contexts.as_mut().expect("it is secured");
                    if let Err(error) = contexts.on_answer(&mut self.transport.link.machine) {
                        self.transport.close(driver);
                        return Some(CallEvent::Down(error));
                    }
                }
                op => break op,
            }
        };
        Some(match op {
            ClientOp::StartTls | ClientOp::TokenAnswered => unreachable!("seen to above"),
            ClientOp::Answered { tag } => {
                if self.transport.link.machine.protects_data() {
                    self.place_data(tag);
                }
                CallEvent::Answered(tag)
            }
            ClientOp::CallBack { xid } => CallEvent::CallBack(xid),
            ClientOp::Fatal(error) => {
                self.end(driver);
                CallEvent::Down(ClientError::Protocol(error))
            }
        })
    }

    /// Ends the connection; by RDMA the server is told why first.
    #[cold]
    fn end<D: Driver>(&mut self, driver: &mut D) {
        match self.rdma {
            None => self.transport.close(driver),
            Some(_) => {
                self.transport.end(driver, ClientError::Closed);
                self.transport.take_down();
            }
        }
    }

    /// Data that came protected goes to the memory of its call.
    fn place_data(&mut self, tag: Tag) {
        let memory = self.transport.link.take_data(tag);
        if memory.has_bytes() {
            memory.put(0, self.transport.link.machine.protected_data());
        }
        self.transport.link.set_data(tag, memory);
    }

    /// The server has agreed to TLS.
    #[cold]
    fn begin_tls<D: Driver>(&mut self, driver: &mut D) -> Result<(), ClientError> {
        let tls = self.tls.as_ref().expect("it was asked for");
        let handshake = CertificateHandshake::client(tls.side.clone(), &tls.name);
        let handshake = handshake.map_err(|error| ClientError::Unusable(error.to_string()))?;
        self.transport.begin_tls(handshake, driver);
        self.transport.link.machine.tls_begun();
        Ok(())
    }
}
