//! One queue of a controller: a connection that takes commands.

use std::io;
use std::net::SocketAddr;

use auth::psk::{Psk, TlsPsk};
use link::CommandMemory as Memory;
use machine::{Machine, Tag};
use nvmf::dhchap::DhchapKeys;
use nvmf::dhchap::host::Authentication;
use nvmf::host::{Completion, Data, HostOp, HostRole};
use reactor::{Driver, Token, must_fill_random};
use wire::nvme::authentication::Concatenation;
use wire::nvme::fabrics::{CONNECT_DATA_BYTES, ConnectData, NQN_BYTES};
use wire::nvme::{ConnectCommand, Sqe, Status};
use zerocopy::IntoBytes;

use crate::qpair::{HostQpair, QueueSettings};
use crate::transport::{HostProtocol, TOKENS_PER_CONNECTION, Transport};
use crate::{Error, OfferedPsk};

/// A queue uses as many tokens, from the one that it was opened with.
pub const TOKENS_PER_QUEUE: Token = TOKENS_PER_CONNECTION;

/// What a queue is to be.
#[derive(Clone)]
pub struct QueueParams {
    /// Its transport, and what to agree on there.
    pub settings: QueueSettings,
    /// The Connect command: queue identifier, size (0's based), attributes.
    pub connect: ConnectCommand,
    /// Host, subsystem and controller of the Connect.
    pub connect_data: ConnectData,
    /// Bytes of in-capsule data that the controller takes on this queue.
    pub in_capsule_max: u32,
    /// The host's key for TLS, which is spoken then.
    pub psk: Option<OfferedPsk>,
    /// The secrets to authenticate with where the controller wants that.
    pub dhchap: Option<DhchapKeys>,
}

impl QueueParams {
    /// The key of the host and the subsystem that the Connect names.
    fn tls_psk(&self) -> Option<TlsPsk> {
        let text = |field: &[u8; NQN_BYTES]| {
            let end = field
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        let data = &self.connect_data;
        let (hostnqn, subnqn) = (text(&data.hostnqn), text(&data.subnqn));
        Some(self.psk.as_ref()?.tls_psk(&hostnqn, &subnqn))
    }
}

/// What became of a queue or of one of its commands.
#[derive(Debug)]
pub enum Event {
    /// Connect, and authentication where there is one, succeeded: commands may be submitted. Carries the result of the
    /// Connect: the controller's ID in bits 15:0.
    Live(u64),
    /// A command came back; its memory is the caller's again.
    Completed(Tag, Completion),
    /// The connection is lost, and with it every command in flight. Their
    /// memory must stay until [`Queue::is_closed`].
    Down(Error),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum QueuePhase {
    /// ICReq or an MPA Request was sent.
    Handshake,
    /// Connect was sent.
    Connecting(Tag),
    /// A message of authentication was sent, or asked for.
    Authenticating(Tag),
    Live,
}

/// What the transport is told of NVMe.
pub(crate) struct Nvme;

impl HostProtocol for Nvme {
    type Machine = HostQpair;
    type TransportPhase = QueuePhase;
    type Error = Error;

    const FIRST: QueuePhase = QueuePhase::Handshake;
    const TELLS_WHY: bool = true;
    const CLOSED: Error = Error::Closed;
}

/// One queue of a controller on one connection.
pub struct Queue {
    pub(crate) transport: Transport<Nvme>,
    pub(crate) params: QueueParams,
    pub(crate) authentication: Option<Authentication>,
    /// The key for TLS that its authentication is to make.
    pub(crate) concatenation: Option<Concatenation>,
    generated_psk: Option<Psk>,
    /// What Connect was answered.
    pub(crate) connected: u64,
}

impl Queue {
    /// Starts to connect. Completions carry tokens `base` to
    /// `base + TOKENS_PER_QUEUE - 1`: hand them to [`Queue::on_completion`].
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub fn open<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        params: QueueParams,
        base: Token,
    ) -> io::Result<Queue> {
        let mut seed = [0; 8];
        must_fill_random(&mut seed);
        let machine = HostQpair::new(
            params.settings,
            &params.connect,
            params.connect_data.cntlid.get(),
            u64::from_ne_bytes(seed),
            driver.now(),
        );
        let transport = Transport::open(driver, to, machine, params.tls_psk(), base)?;
        Ok(Queue {
            transport,
            params,
            authentication: None,
            concatenation: None,
            generated_psk: None,
            connected: 0,
        })
    }

    /// Has a key for TLS made by its authentication (secure channel concatenation: Base 2.1,
    /// section 8.3.4.5.9): see [`Queue::generated_psk`]. Call it before the queue is live; a
    /// controller that wants no authentication is of no use then.
    pub fn concatenate(&mut self, kind: Concatenation) {
        self.concatenation = Some(kind);
    }

    /// The key that was made, once the queue is live.
    #[must_use]
    pub fn generated_psk(&self) -> Option<&Psk> {
        self.generated_psk.as_ref()
    }

    /// Names this in its Connect, whoever the key is of that it speaks TLS by. Call it before
    /// the queue is live. A host has no use for it: a test that the controller minds has.
    pub fn connect_as(&mut self, connect_data: ConnectData) {
        self.params.connect_data = connect_data;
    }

    /// Whether commands may be submitted.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.transport.is_in(QueuePhase::Live)
    }

    /// What comes next before it is live.
    pub(crate) fn waits_for(&self) -> &'static str {
        let Some(phase) = self.transport.phase() else {
            return "TCP connection";
        };
        let is_in_tls = self.transport.link.stream.is_in_handshake();
        match (phase, self.params.settings) {
            (QueuePhase::Handshake, _) if is_in_tls => "end of the TLS handshake",
            (QueuePhase::Handshake, QueueSettings::Tcp(_)) => {
                "answer to ICReq (does its port speak NVMe/TCP in the clear?)"
            }
            (QueuePhase::Handshake, QueueSettings::Rdma(_)) => "answer to the MPA Request",
            (QueuePhase::Connecting(_) | QueuePhase::Live, _) => "answer to Connect",
            (QueuePhase::Authenticating(_), _) => "next message of the authentication",
        }
    }

    /// Whether the peer has ended the handshake of TLS, or left it.
    pub(crate) fn has_failed_in_handshake(&self) -> bool {
        self.transport.has_failed_in_handshake()
    }

    /// Whether the driver is done with the connection and all its memory.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.transport.is_closed()
    }

    /// Tags are below this.
    #[must_use]
    pub fn tags_max(&self) -> usize {
        self.transport.link.machine.tags_max()
    }

    /// How many commands [`Queue::submit`] would take now. The two of a fused
    /// pair must be submitted one behind the other: see that there are two.
    #[must_use]
    pub fn room(&self) -> u16 {
        match self.is_live() {
            true => self.transport.link.machine.room(),
            false => 0,
        }
    }

    /// Puts a command on the queue; it leaves with the next [`Queue::flush`].
    /// `memory` is what `data` describes. `None`: the queue is full or not live.
    #[inline]
    pub fn submit(
        &mut self,
        sqe: &Sqe,
        data: Data,
        memory: impl FnOnce(Tag) -> Memory,
    ) -> Option<Tag> {
        if !self.is_live() {
            return None;
        }
        let tag = self.transport.link.machine.submit(sqe, data)?;
        self.transport.link.set_data(tag, memory(tag));
        Some(tag)
    }

    /// Takes the memory of a completed command back.
    pub fn take_memory(&mut self, tag: Tag) -> Memory {
        self.transport.link.take_data(tag)
    }

    /// Sends what was submitted, with one call, unless a send is under way.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        self.transport.flush(driver);
    }

    /// Ends the connection; [`Queue::is_closed`] tells when nothing of it is left.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        self.transport.close(driver);
    }

    /// Takes a completion with one of this queue's tokens. Call
    /// [`Queue::next_event`] until it yields nothing, then [`Queue::flush`].
    #[inline]
    pub fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: reactor::Completion) {
        self.transport.on_completion(driver, completion);
    }

    /// What happened, until `None`; then the next receive is under way.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<Event> {
        loop {
            if let Some(error) = self.transport.take_down() {
                return Some(Event::Down(self.amid_authentication(error)));
            }
            match self.transport.next_op(driver)? {
                HostOp::Completed { tag, cqe } => {
                    if self.transport.is_in(QueuePhase::Connecting(tag)) {
                        match self.on_connect_completed(driver, tag, &cqe) {
                            Some(event) => return Some(event),
                            None => continue,
                        }
                    }
                    if self.transport.is_in(QueuePhase::Authenticating(tag)) {
                        match self.on_authentication_completed(driver, tag, &cqe) {
                            Some(event) => return Some(event),
                            None => continue,
                        }
                    }
                    return Some(Event::Completed(tag, cqe));
                }
                HostOp::Ready => self.send_connect(driver),
                HostOp::Fatal(error) => self.transport.end(driver, error),
            }
        }
    }

    fn send_connect<D: Driver>(&mut self, driver: &mut D) {
        let Some(buf) = driver.pool().get(CONNECT_DATA_BYTES as u32) else {
            return self.transport.fail(driver, Error::NoMemory);
        };
        mem::copy_in(buf.range(), self.params.connect_data.as_bytes());
        let sqe = self.params.connect.encode();
        let data = Data::Out(CONNECT_DATA_BYTES as u32);
        let tag = self.transport.link.machine.submit(&sqe, data);
        let tag = tag.expect("a queue has room for its Connect");
        self.transport.link.set_data(tag, Memory::owned(buf));
        self.transport.enter(QueuePhase::Connecting(tag));
        self.transport.link.flush(driver);
    }

    fn on_connect_completed<D: Driver>(
        &mut self,
        driver: &mut D,
        tag: Tag,
        completion: &Completion,
    ) -> Option<Event> {
        drop(self.transport.link.take_data(tag));
        if completion.status.code() != Status::SUCCESS {
            let status = completion.status;
            self.transport.fail(
                driver,
                Error::Refused {
                    command: "Connect",
                    status,
                },
            );
            return None;
        }
        self.transport.link.machine.attach(HostRole {
            entries: self.params.connect.sqsize.saturating_add(1),
            in_capsule_max: self.params.in_capsule_max,
            flow_control_disabled: self.params.connect.cattr
                & ConnectCommand::DISABLE_SQ_FLOW_CONTROL
                != 0,
        });
        self.connected = completion.result;
        match self.authentication() {
            Err(error) => {
                self.transport.fail(driver, error);
                None
            }
            Ok(None) => Some(self.live()),
            Ok(Some(authentication)) => {
                let next = self.authentication.insert(authentication).begin();
                self.authenticate(driver, next)
            }
        }
    }

    pub(crate) fn live(&mut self) -> Event {
        let authentication = self.authentication.take();
        self.generated_psk = authentication.and_then(|made| made.psk().cloned());
        self.transport.enter(QueuePhase::Live);
        Event::Live(self.connected)
    }
}
