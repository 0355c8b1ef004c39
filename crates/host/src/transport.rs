//! What the connections of all protocols have in common: a machine on a stream,
//! from the start of the connect until the driver is done with both.

use std::io;
use std::net::SocketAddr;

use auth::psk::TlsPsk;
use link::{Link, Stream, StreamTokens};
use machine::Machine;
use reactor::{Completion, Driver, Token};
use tls::Handshake;
use tls::psk_handshake::PskHandshake;

/// A connection uses as many tokens, from the one that it was opened with.
pub const TOKENS_PER_CONNECTION: Token = 4;

/// What is known of a peer that closes the connection in place of an answer: some send no alert.
const LEFT_HANDSHAKE: &str =
    "TLS: the connection was closed amid the handshake, without a reason: see the other side's log";

/// Tokens of a connection, counted from its first.
mod token {
    pub(super) const CONNECT: u64 = 0;
    pub(super) const RECV: u64 = 1;
    pub(super) const SEND: u64 = 2;
    pub(super) const CLOSE: u64 = 3;
}

/// What a protocol adds.
pub(crate) trait HostProtocol {
    type Machine: Machine;
    /// How far a connection has come once TCP is connected.
    type TransportPhase: Copy + PartialEq;
    /// What can go wrong.
    type Error: From<io::Error>;

    /// Where it begins.
    const FIRST: Self::TransportPhase;
    /// Whether the peer is told why before a connection ends:
    /// [`Transport::end`].
    const TELLS_WHY: bool = false;
    /// The peer closed the connection.
    const CLOSED: Self::Error;
}

#[derive(Clone, Copy, PartialEq)]
enum TransportState<P> {
    /// TCP connects.
    Opening,
    Open(P),
    /// Closes when the last batch was sent.
    Ending,
    /// Waits for the driver to be done with the socket.
    Closing,
    Closed,
}

/// One connection.
pub(crate) struct Transport<P: HostProtocol> {
    pub(crate) link: Link<P::Machine>,
    state: TransportState<P::TransportPhase>,
    /// TCP was connected, whatever came then.
    was_open: bool,
    base: Token,
    down: Option<P::Error>,
    /// Why it goes down once the peer has been told so.
    ending: Option<P::Error>,
}

impl<P: HostProtocol> Transport<P> {
    /// Starts to connect, and to speak TLS by a key if there is one. Completions carry tokens `base` to
    /// `base + TOKENS_PER_CONNECTION - 1`.
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub(crate) fn open<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        machine: P::Machine,
        psk: Option<TlsPsk>,
        base: Token,
    ) -> io::Result<Self> {
        let socket = driver.connect(to, base + token::CONNECT)?;
        let tokens = StreamTokens {
            receive: base + token::RECV,
            send: base + token::SEND,
            close: base + token::CLOSE,
        };
        let mut stream = Stream::new(socket, tokens);
        if let Some(psk) = psk {
            stream.begin_handshake(PskHandshake::client(psk));
        }
        Ok(Transport {
            link: Link::new(machine, stream),
            state: TransportState::Opening,
            was_open: false,
            base,
            down: None,
            ending: None,
        })
    }

    /// The first token.
    pub(crate) fn base(&self) -> Token {
        self.base
    }

    /// Whether TCP is connected and nothing has gone wrong.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, TransportState::Open(_))
    }

    /// Whether a connection that has failed did so amid the handshake of TLS.
    pub(crate) fn has_failed_in_handshake(&self) -> bool {
        self.was_open && !self.is_open() && self.link.stream.is_in_handshake()
    }

    /// How far the protocol has come, if TCP is connected and nothing has gone wrong.
    pub(crate) fn phase(&self) -> Option<P::TransportPhase> {
        match self.state {
            TransportState::Open(phase) => Some(phase),
            _ => None,
        }
    }

    /// Whether the connection is open and the protocol in `phase`.
    #[inline]
    pub(crate) fn is_in(&self, phase: P::TransportPhase) -> bool {
        self.state == TransportState::Open(phase)
    }

    /// The protocol has come as far as `phase`.
    #[inline]
    pub(crate) fn enter(&mut self, phase: P::TransportPhase) {
        self.state = TransportState::Open(phase);
    }

    /// Whether the driver is done with the connection and all its memory.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, TransportState::Closed)
    }

    /// Sends what is ready, with one call, unless a send is under way.
    #[inline]
    pub(crate) fn flush<D: Driver>(&mut self, driver: &mut D) {
        if self.is_open() {
            self.link.flush(driver);
        }
    }

    /// Ends the connection; [`Transport::is_closed`] tells when nothing of it is
    /// left.
    pub(crate) fn close<D: Driver>(&mut self, driver: &mut D) {
        if !matches!(self.state, TransportState::Closing | TransportState::Closed) {
            self.state = TransportState::Closing;
            self.down = self.ending.take().or(self.down.take());
            self.link.stream.say_end(driver);
            self.link.stream.close(driver);
        }
    }

    /// Ends the connection behind what is still to be sent.
    pub(crate) fn end<D: Driver>(&mut self, driver: &mut D, error: P::Error) {
        const { assert!(P::TELLS_WHY) };
        self.down = Some(error);
        self.state = TransportState::Ending;
        self.send_last(driver);
    }

    /// Sends what is left, behind what is under way; then it closes.
    #[cold]
    fn send_last<D: Driver>(&mut self, driver: &mut D) {
        self.link.flush_now(driver);
        if !self.link.stream.is_sending() {
            self.close(driver);
        }
    }

    /// The connection is of no more use.
    pub(crate) fn fail<D: Driver>(&mut self, driver: &mut D, error: P::Error) {
        if !matches!(
            self.state,
            TransportState::Ending | TransportState::Closing | TransportState::Closed
        ) {
            self.down = Some(error);
        }
        self.close(driver);
    }

    /// Why it went down, once.
    #[inline]
    pub(crate) fn take_down(&mut self) -> Option<P::Error> {
        self.down.take()
    }

    /// Begins a handshake of TLS between what was said in the clear and what follows.
    #[cold]
    pub(crate) fn begin_tls<D: Driver>(&mut self, handshake: impl Into<Handshake>, driver: &mut D) {
        self.link.stream.begin_handshake(handshake);
        self.link.flush(driver);
    }

    /// Makes the steps of a handshake, if there is one: a host has nothing else to do meanwhile.
    #[inline]
    fn go_on_with_handshake<D: Driver>(&mut self, driver: &mut D) {
        if !self.is_open() {
            // What came of it came too late.
            return;
        }
        while let Some(work) = self.link.stream.take_handshake() {
            if let Some(left) = self.link.stream.on_handshake(work.step(), driver) {
                self.link.on_received(left);
            }
            self.link.flush(driver);
            self.link.receive(driver);
        }
        if let Some(problem) = self.link.stream.take_problem() {
            let problem = format!("TLS: {problem}");
            self.ending = Some(io::Error::other(problem).into());
            self.state = TransportState::Ending;
            self.send_last(driver);
        }
    }

    /// Takes a completion with one of its tokens.
    #[inline]
    pub(crate) fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: Completion) {
        use Completion as C;
        match completion {
            C::Received {
                result: Ok(received),
                ..
            } => {
                if self.link.on_received(received) {
                    let error = match self.link.stream.is_in_handshake() {
                        true => io::Error::other(LEFT_HANDSHAKE).into(),
                        false => P::CLOSED,
                    };
                    self.fail(driver, error);
                }
                self.go_on_with_handshake(driver);
            }
            C::Sent { result: Ok(()), .. } => {
                self.link.on_sent();
                if matches!(self.state, TransportState::Ending) {
                    self.send_last(driver);
                }
            }
            C::Connected { result: Ok(()), .. } => {
                if matches!(self.state, TransportState::Opening) {
                    self.was_open = true;
                    self.enter(P::FIRST);
                    self.link.receive(driver);
                    self.link.flush(driver);
                }
            }
            C::Closed { .. } => self.state = TransportState::Closed,
            C::Received {
                result: Err(error), ..
            }
            | C::Sent {
                result: Err(error), ..
            }
            | C::Connected {
                result: Err(error), ..
            } => self.fail(driver, error.into()),
            C::Accepted { .. } | C::File { .. } => {
                unreachable!("a connection starts no such operation")
            }
        }
    }

    /// The next operation of the machine, until `None`; then the next receive is
    /// under way.
    #[inline]
    pub(crate) fn next_op<D: Driver>(
        &mut self,
        driver: &mut D,
    ) -> Option<<P::Machine as Machine>::Op> {
        if !self.is_open() {
            return None;
        }
        let op = self.link.next_op(driver.now());
        if op.is_none() && self.link.stream.peer_has_ended() {
            self.fail(driver, P::CLOSED);
        } else if op.is_none() {
            self.link.receive(driver);
        }
        op
    }
}
