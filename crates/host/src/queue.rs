//! One queue of a controller: a connection that takes commands.

use std::io;
use std::net::SocketAddr;

use link::{Data as Memory, Link};
use machine::{Machine, Tag};
use nvmf::tcp::host::{Completion, Data, Op, Qpair, Role, Settings};
use reactor::{Driver, Token};
use wire::nvme::fabrics::{CONNECT_DATA_BYTES, ConnectData};
use wire::nvme::{ConnectCommand, Sqe, Status};
use zerocopy::IntoBytes;

use crate::Error;

/// A queue uses as many tokens, from the one that it was opened with.
pub const TOKENS_PER_QUEUE: Token = 4;

/// Tokens of a queue, counted from its first.
mod token {
    pub(super) const CONNECT: u64 = 0;
    pub(super) const RECV: u64 = 1;
    pub(super) const SEND: u64 = 2;
    pub(super) const CLOSE: u64 = 3;
}

/// What a queue is to be.
#[derive(Clone)]
pub struct QueueParams {
    /// What to agree on in ICReq.
    pub settings: Settings,
    /// The Connect command: queue identifier, size (0's based), attributes.
    pub connect: ConnectCommand,
    /// Host, subsystem and controller of the Connect.
    pub connect_data: ConnectData,
    /// Bytes of in-capsule data that the controller takes on this queue.
    pub in_capsule_max: u32,
}

/// What became of a queue or of one of its commands.
#[derive(Debug)]
pub enum Event {
    /// Connect succeeded: commands may be submitted. Carries the result of the
    /// Connect: the controller's ID in bits 15:0.
    Live(u64),
    /// A command came back; its memory is the caller's again.
    Completed(Tag, Completion),
    /// The connection is lost, and with it every command in flight. Their
    /// memory must stay until [`Queue::is_closed`].
    Down(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// TCP connects.
    Opening,
    /// ICReq was sent.
    Handshake,
    /// Connect was sent.
    Connecting(Tag),
    Live,
    /// Terminated; closes when the last batch was sent.
    Ending,
    /// Waits for the driver to be done with the socket.
    Closing,
    Closed,
}

/// One queue of a controller on one TCP connection.
pub struct Queue {
    link: Link<Qpair>,
    params: QueueParams,
    state: State,
    base: Token,
    down: Option<Error>,
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
        let socket = driver.connect(to, base + token::CONNECT)?;
        let machine = Qpair::new(params.settings);
        Ok(Queue {
            link: Link::new(machine, socket, base + token::RECV, base + token::SEND),
            params,
            state: State::Opening,
            base,
            down: None,
        })
    }

    /// Whether commands may be submitted.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether the driver is done with the connection and all its memory.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Tags are below this.
    #[must_use]
    pub fn tags_max(&self) -> usize {
        self.link.machine.tags_max()
    }

    /// How many commands [`Queue::submit`] would take now. The two of a fused
    /// pair must be submitted one behind the other: see that there are two.
    #[must_use]
    pub fn room(&self) -> u16 {
        match self.state {
            State::Live => self.link.machine.room(),
            _ => 0,
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
        if self.state != State::Live {
            return None;
        }
        let tag = self.link.machine.submit(sqe, data)?;
        self.link.set_data(tag, memory(tag));
        Some(tag)
    }

    /// Takes the memory of a completed command back.
    pub fn take_memory(&mut self, tag: Tag) -> Memory {
        self.link.take_data(tag)
    }

    /// Sends what was submitted, with one call, unless a send is under way.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        if !matches!(self.state, State::Opening | State::Closing | State::Closed) {
            self.link.flush(driver);
        }
    }

    /// Ends the connection; [`Queue::is_closed`] tells when nothing of it is left.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        if !matches!(self.state, State::Closing | State::Closed) {
            self.state = State::Closing;
            driver.close(self.link.socket(), self.base + token::CLOSE);
        }
    }

    /// Takes a completion with one of this queue's tokens. Call
    /// [`Queue::next_event`] until it yields nothing, then [`Queue::flush`].
    #[inline]
    pub fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: reactor::Completion) {
        use reactor::Completion as C;
        match completion {
            C::Received {
                result: Ok(received),
                ..
            } => {
                let eof = received.eof;
                self.link.on_received(received);
                if eof {
                    self.fail(driver, Error::Closed);
                }
            }
            C::Sent { result: Ok(()), .. } => {
                self.link.on_sent();
                if self.state == State::Ending {
                    self.close(driver);
                }
            }
            C::Connected { result: Ok(()), .. } => {
                if self.state == State::Opening {
                    self.state = State::Handshake;
                    self.link.receive(driver);
                    self.link.flush(driver);
                }
            }
            C::Closed { .. } => self.state = State::Closed,
            C::Received {
                result: Err(error), ..
            }
            | C::Sent {
                result: Err(error), ..
            }
            | C::Connected {
                result: Err(error), ..
            } => self.fail(driver, Error::Socket(error)),
            C::Accepted { .. } | C::File { .. } => unreachable!("a queue starts no such operation"),
        }
    }

    /// What happened, until `None`; then the next receive is under way.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<Event> {
        loop {
            if let Some(error) = self.down.take() {
                return Some(Event::Down(error));
            }
            if matches!(
                self.state,
                State::Opening | State::Ending | State::Closing | State::Closed
            ) {
                return None;
            }
            match self.link.next_op() {
                Some(Op::Completed { tag, cqe }) => {
                    if self.state == State::Connecting(tag) {
                        match self.on_connect_completed(driver, tag, &cqe) {
                            Some(event) => return Some(event),
                            None => continue,
                        }
                    }
                    return Some(Event::Completed(tag, cqe));
                }
                Some(Op::Ready) => self.send_connect(driver),
                Some(Op::Fatal(error)) => {
                    self.down = Some(Error::Protocol(error));
                    self.state = State::Ending;
                    self.link.flush(driver);
                    if !self.link.is_sending() {
                        self.close(driver);
                    }
                }
                None => {
                    self.link.receive(driver);
                    return None;
                }
            }
        }
    }

    fn fail<D: Driver>(&mut self, driver: &mut D, error: Error) {
        if !matches!(self.state, State::Ending | State::Closing | State::Closed) {
            self.down = Some(error);
        }
        self.close(driver);
    }

    fn send_connect<D: Driver>(&mut self, driver: &mut D) {
        let Some(buf) = driver.pool().get(CONNECT_DATA_BYTES as u32) else {
            return self.fail(driver, Error::NoMemory);
        };
        mem::copy_in(buf.range(), self.params.connect_data.as_bytes());
        let sqe = self.params.connect.encode();
        let data = Data::Out(CONNECT_DATA_BYTES as u32);
        let tag = self.link.machine.submit(&sqe, data);
        let tag = tag.expect("a queue has room for its Connect");
        self.link.set_data(tag, Memory::owned(buf));
        self.state = State::Connecting(tag);
        self.link.flush(driver);
    }

    fn on_connect_completed<D: Driver>(
        &mut self,
        driver: &mut D,
        tag: Tag,
        completion: &Completion,
    ) -> Option<Event> {
        drop(self.link.take_data(tag));
        if completion.status.code() != Status::SUCCESS {
            let status = completion.status;
            self.fail(
                driver,
                Error::Refused {
                    command: "Connect",
                    status,
                },
            );
            return None;
        }
        self.state = State::Live;
        self.link.machine.attach(Role {
            entries: self.params.connect.sqsize.saturating_add(1),
            in_capsule_max: self.params.in_capsule_max,
            flow_control_disabled: self.params.connect.cattr
                & ConnectCommand::DISABLE_SQ_FLOW_CONTROL
                != 0,
        });
        Some(Event::Live(completion.result))
    }
}
