//! One connection of a session that takes commands.

use std::io;
use std::net::SocketAddr;

use ::iscsi::initiator::{
    Async, CarriedConnection, Command, Completion, ExpectedData, InitiatorOp, InitiatorSession,
    InitiatorSettings, RANDOM_LEN,
};
use link::CommandMemory as Memory;
use machine::Tag;
use reactor::{Driver, Token};
use wire::iscsi::{LogoutReason, TaskFunction};

use super::address::login_random;
use super::{Initiator, SessionError};
use crate::transport::{HostProtocol, Transport};

/// What a connection is to be.
#[derive(Clone, Debug)]
pub struct Params {
    /// What to agree on in the login.
    pub settings: InitiatorSettings,
    /// ISID of the session.
    pub isid: [u8; 6],
    /// Connection ID.
    pub cid: u16,
    /// CmdSN of the session's first command.
    pub cmd_sn: u32,
    /// Unpredictable bytes.
    pub random: [u8; RANDOM_LEN],
}

impl Params {
    /// Session `number` of `initiator`, as `settings` say.
    ///
    /// # Errors
    /// Where the system has no random bytes.
    pub fn new(
        settings: InitiatorSettings,
        initiator: &Initiator,
        number: u16,
    ) -> io::Result<Params> {
        Ok(Params {
            settings,
            isid: initiator.isid(number),
            cid: 0,
            cmd_sn: 1,
            random: login_random()?,
        })
    }
}

/// What became of a connection or of one of its commands.
#[derive(Debug)]
pub enum SessionEvent {
    /// Logged in: commands may be submitted.
    Live,
    /// A command came back; its memory is the caller's again. Its sense data is
    /// [`SessionConnection::sense`] until the next event.
    Completed(Tag, Completion),
    /// A task management function was answered (RFC 7143, section 11.6.1).
    TaskManaged(Tag, u8),
    /// A text request was answered: see [`SessionConnection::text_answer`].
    Text(Tag),
    /// A NOP-Out was answered.
    Pong(Tag),
    /// A logout was answered (RFC 7143, section 11.15.1).
    LoggedOut(Tag, u8),
    /// The target has something to say.
    Async(Async),
    /// The target rejected a request that is no command.
    Rejected(Tag, u8),
    /// The connection is lost, and with it every command in flight. Their
    /// memory must stay until [`SessionConnection::is_closed`].
    Down(SessionError),
}

#[derive(Clone, Copy, PartialEq)]
enum LoginPhase {
    /// Login Requests go back and forth.
    Login,
    Live,
}

/// What the transport is told of iSCSI.
struct Iscsi;

impl HostProtocol for Iscsi {
    type Machine = CarriedConnection;
    type TransportPhase = LoginPhase;
    type Error = SessionError;

    const FIRST: LoginPhase = LoginPhase::Login;
    const CLOSED: SessionError = SessionError::Closed;
}

/// One connection of an iSCSI session.
pub struct SessionConnection {
    transport: Transport<Iscsi>,
}

impl SessionConnection {
    /// Starts to connect the leading connection of a session of its own.
    /// Completions carry tokens `base` to `base + TOKENS_PER_CONNECTION - 1`:
    /// hand them to [`SessionConnection::on_completion`].
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub fn open<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        params: Params,
        base: Token,
    ) -> io::Result<SessionConnection> {
        let session = InitiatorSession::new(params.isid, params.cmd_sn);
        SessionConnection::open_in(driver, to, params, session, base)
    }

    /// Starts to connect one more connection of a session that is there (or
    /// the leading one of a session that is not yet).
    ///
    /// # Errors
    /// Where the driver can make no socket.
    pub fn open_in<D: Driver>(
        driver: &mut D,
        to: SocketAddr,
        params: Params,
        session: InitiatorSession,
        base: Token,
    ) -> io::Result<SessionConnection> {
        let Params {
            settings,
            cid,
            random,
            ..
        } = params;
        let machine = CarriedConnection::new(settings, session, cid, random, driver.now());
        let transport = Transport::open(driver, to, machine, None, base)?;
        Ok(SessionConnection { transport })
    }

    /// Whether commands may be submitted.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.transport.is_in(LoginPhase::Live)
    }

    /// Whether the driver is done with the connection and all its memory.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.transport.is_closed()
    }

    /// The session that it belongs to.
    #[must_use]
    pub fn session(&self) -> &InitiatorSession {
        self.transport.link.machine.session()
    }

    /// What the login agreed on.
    #[must_use]
    pub fn agreed(&self) -> &::iscsi::Negotiated {
        self.transport.link.machine.agreed()
    }

    /// How many commands [`SessionConnection::submit`] would take now.
    #[must_use]
    pub fn room(&self) -> u16 {
        match self.is_live() {
            true => self.transport.link.machine.room(),
            false => 0,
        }
    }

    /// The sense data of the command that the last event ended.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        self.transport.link.machine.sense()
    }

    /// The text of the last answer to a text request.
    #[must_use]
    pub fn text_answer(&self) -> &[u8] {
        self.transport.link.machine.text_answer()
    }

    /// Takes a command; it leaves with a [`SessionConnection::flush`], as soon as the
    /// target's command window has room for it. `memory` is what `data`
    /// describes. `None`: the queue depth is reached, or the connection is not
    /// live.
    #[inline]
    pub fn submit(
        &mut self,
        command: &Command,
        data: ExpectedData,
        memory: impl FnOnce(Tag) -> Memory,
    ) -> Option<Tag> {
        if !self.is_live() {
            return None;
        }
        let tag = self.transport.link.machine.submit(command, data)?;
        self.transport.link.set_data(tag, memory(tag));
        Some(tag)
    }

    /// Takes the memory of a completed command back.
    pub fn take_memory(&mut self, tag: Tag) -> Memory {
        self.transport.link.take_data(tag)
    }

    /// Sends a task management function; `referenced` is the command that it
    /// means. `None`: no room, or not live.
    pub fn task_management(
        &mut self,
        function: TaskFunction,
        lun: [u8; 8],
        referenced: Option<Tag>,
    ) -> Option<Tag> {
        let machine = &mut self.transport.link.machine;
        machine.task_management(function, lun, referenced)
    }

    /// Takes a command back that has not left because the command window is
    /// closed. `false`: it has.
    pub fn withdraw(&mut self, tag: Tag) -> bool {
        self.transport.link.machine.withdraw(tag)
    }

    /// Sends a text request. `None`: no room, or not live.
    pub fn text(&mut self, text: &[u8]) -> Option<Tag> {
        self.transport.link.machine.text(text)
    }

    /// Sends a NOP-Out that wants an answer. `None`: no room, or not live.
    pub fn ping(&mut self) -> Option<Tag> {
        self.transport.link.machine.ping()
    }

    /// Asks the target to close the session. `None`: no room, or not live.
    pub fn logout(&mut self) -> Option<Tag> {
        self.transport
            .link
            .machine
            .logout(LogoutReason::CloseSession, 0)
    }

    /// Sends what was submitted, with one call, unless a send is under way. Of a
    /// session with several connections flush all: what one receives may open
    /// the command window of another.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        if self.transport.is_open() {
            self.transport.link.machine.release_waiting();
            self.transport.link.flush(driver);
        }
    }

    /// Ends the connection; [`SessionConnection::is_closed`] tells when nothing of it
    /// is left.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        self.transport.close(driver);
    }

    /// Takes a completion with one of this connection's tokens. Call
    /// [`SessionConnection::next_event`] until it yields nothing, then
    /// [`SessionConnection::flush`].
    #[inline]
    pub fn on_completion<D: Driver>(&mut self, driver: &mut D, completion: reactor::Completion) {
        self.transport.on_completion(driver, completion);
    }

    /// What happened, until `None`; then the next receive is under way.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<SessionEvent> {
        if let Some(error) = self.transport.take_down() {
            return Some(SessionEvent::Down(error));
        }
        let op = self.transport.next_op(driver)?;
        Some(match op {
            InitiatorOp::Completed { tag, completion } => SessionEvent::Completed(tag, completion),
            InitiatorOp::Ready => {
                self.transport.enter(LoginPhase::Live);
                SessionEvent::Live
            }
            InitiatorOp::TaskManaged { tag, response } => SessionEvent::TaskManaged(tag, response),
            InitiatorOp::Text { tag } => SessionEvent::Text(tag),
            InitiatorOp::Pong { tag } => SessionEvent::Pong(tag),
            InitiatorOp::LoggedOut { tag, response } => SessionEvent::LoggedOut(tag, response),
            InitiatorOp::Async(event) => SessionEvent::Async(event),
            InitiatorOp::Rejected { tag, reason } => SessionEvent::Rejected(tag, reason),
            InitiatorOp::Fatal(error) => {
                let address = self.transport.link.machine.target_address();
                let error = match address {
                    Some(address) => SessionError::Redirected(address.to_owned()),
                    None => SessionError::Protocol(error),
                };
                self.transport.close(driver);
                SessionEvent::Down(error)
            }
        })
    }
}
