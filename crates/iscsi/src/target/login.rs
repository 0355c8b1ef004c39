//! The Login Phase: one request, one answer (RFC 7143, sections 6.3, 11.12).

use machine::{Nanos, Tail};
use wire::iscsi::{Bhs, LoginRequest, LoginResponse, LoginStatus, Stage, flags, opcode};
use zerocopy::IntoBytes;

use super::control::Control;
use super::receive::Frame;
use super::{
    Connection, ConnectionPhase, ConnectionRole, FatalError, Hold, TargetOp, TargetSettings,
};
use crate::carrier::Carrier;
use crate::login::{LOGIN_TEXT_MAX, LoginAnswer, LoginStep, OTHER_LOGIN};

/// What is known of a login.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// The request that was taken last.
    request: LoginRequest,
    /// There was one.
    has_begun: bool,
    /// What came so far of a step's text.
    text: Vec<u8>,
}

/// A connection that is to be answered by another core than the one that it
/// came to: see [`Connection::detach`].
#[derive(Debug)]
pub struct Detached {
    settings: TargetSettings,
    login: Login,
    stat_sn: u32,
    deadline: Option<Nanos>,
    carrier: Carrier,
}

impl Connection {
    /// Takes a connection that owes the answer to [`TargetOp::Login`] away from this
    /// core. What is left here has ended.
    ///
    /// # Panics
    /// If it owes none, or an earlier answer has not left.
    pub fn detach(&mut self) -> Detached {
        assert!(
            self.phase == ConnectionPhase::Login
                && self.hold == Hold::Answer
                && self.ready.is_empty(),
            "no login is to be answered"
        );
        let detached = Detached {
            settings: self.settings,
            login: std::mem::take(&mut self.login),
            stat_sn: self.stat_sn,
            deadline: self.deadline,
            carrier: self.carrier,
        };
        self.end();
        detached
    }

    /// Goes on with a connection on another core; it still owes the answer.
    pub fn resume(detached: Detached) -> Connection {
        let Detached {
            settings,
            login,
            stat_sn,
            deadline,
            carrier,
        } = detached;
        let mut connection = Connection::with(settings, login, stat_sn, deadline);
        connection.carrier = carrier;
        connection.hold = Hold::Answer;
        connection
    }

    /// A PDU of the Login Phase, which must be a Login Request.
    #[cold]
    pub(super) fn login_request(&mut self, bhs: &Bhs, frame: &Frame) -> Result<usize, FatalError> {
        let opcode = bhs.opcode();
        if opcode != opcode::LOGIN_REQUEST {
            if !self.login.has_begun {
                return Err(FatalError::NoLogin { opcode });
            }
            let error = FatalError::NoLogin { opcode };
            self.refuse_login(LoginStatus::InvalidDuringLogin, error);
            return Ok(frame.used);
        }
        let request: LoginRequest = *bhs.cast();
        let before = std::mem::replace(&mut self.login.request, request);
        if !std::mem::replace(&mut self.login.has_begun, true) {
            self.stat_sn = request.exp_stat_sn.get();
        } else if (before.isid, before.tsih, before.itt, before.cid)
            != (request.isid, request.tsih, request.itt, request.cid)
        {
            self.login.request = before;
            let error = FatalError::Login { what: OTHER_LOGIN };
            self.refuse_login(LoginStatus::InitiatorError, error);
            return Ok(frame.used);
        }
        match frame.data_len {
            0 => self.login_piece(&[]),
            len => self.inbound.begin_text(len, Tail::padded(len, false)),
        }
        Ok(frame.used)
    }

    /// The text of a Login Request is here.
    pub(super) fn login_piece(&mut self, text: &[u8]) {
        let login = &mut self.login;
        if login.text.len() + text.len() > LOGIN_TEXT_MAX {
            let what = "the keys of one login step are longer than 16384 bytes: they are too many";
            return self.refuse_login(LoginStatus::OutOfResources, FatalError::Login { what });
        }
        login.text.extend_from_slice(text);
        let goes_on = login.request.flags & flags::CONTINUE != 0;
        if goes_on && login.request.flags & flags::TRANSIT == 0 {
            let answer = LoginAnswer::new(&login.request, LoginStatus::Success);
            return self.push_login(&answer.response, Vec::new());
        }
        self.hold = Hold::Answer;
        self.ops.push_back(TargetOp::Login);
    }

    /// The step of [`TargetOp::Login`].
    pub fn take_login(&mut self) -> LoginStep {
        LoginStep {
            request: self.login.request,
            text: std::mem::take(&mut self.login.text),
            carrier: self.carrier,
        }
    }

    /// The last answer of the login will be that it succeeded: call it before
    /// [`Connection::login_answer`].
    pub fn attach(&mut self, role: ConnectionRole) {
        if self.phase != ConnectionPhase::Login {
            return;
        }
        let ConnectionRole {
            session,
            negotiated,
            cid,
            nop_interval,
            nop_timeout,
        } = role;
        session.borrow_mut().join(cid);
        self.is_discovery = session.borrow().is_discovery();
        self.is_attached = true;
        self.session = session;
        self.keys_to_be = negotiated;
        self.cid = cid;
        self.keep_alive.interval = nop_interval;
        self.keep_alive.timeout = nop_timeout;
    }

    /// The answer to [`TargetOp::Login`].
    pub fn login_answer(&mut self, answer: LoginAnswer) {
        if self.phase != ConnectionPhase::Login {
            return;
        }
        assert_eq!(self.hold, Hold::Answer, "no login is to be answered");
        self.hold = Hold::None;
        self.was_held = true;
        let LoginAnswer { response, text } = answer;
        let is_refused = response.status_class != 0;
        self.push_login(&response, text);
        if is_refused {
            return self.close_after_login();
        }
        let to_full_feature = flags::TRANSIT | Stage::FullFeature as u8;
        if response.flags & (flags::TRANSIT | flags::NSG_MASK) == to_full_feature {
            assert!(self.is_attached, "a login succeeds with a session");
            self.begin();
        }
    }

    /// The full feature phase begins.
    fn begin(&mut self) {
        self.phase = ConnectionPhase::FullFeature;
        self.keys = self.keys_to_be;
        self.header_digest = self.keys.header_digest;
        self.data_digest = self.keys.data_digest;
        self.keeps = self.keys.error_recovery_level > 0;
        self.keep_alive.heard = true;
        // What time it is only the next look tells.
        self.deadline = (self.keep_alive.interval > 0).then_some(0);
    }

    /// Ends a login that broke the rules.
    fn refuse_login(&mut self, status: LoginStatus, error: FatalError) {
        self.ops.push_back(TargetOp::Fatal(error));
        let answer = LoginAnswer::new(&self.login.request, status);
        self.push_login(&answer.response, Vec::new());
        self.close_after_login();
    }

    fn close_after_login(&mut self) {
        if let Some(last) = self.controls.back_mut() {
            last.is_last = true;
        }
        self.leave_session();
        self.phase = ConnectionPhase::Closing;
    }

    fn push_login(&mut self, response: &LoginResponse, text: Vec<u8>) {
        let without_session = (!self.is_attached).then(|| self.login.request.cmd_sn.get());
        self.push(Control {
            login: Some(without_session),
            ..Control::new(response.as_bytes(), text)
        });
    }
}
