//! The Login Phase (RFC 7143, section 6.3): one request after another, each
//! answered by [`Registry::login`](crate::Registry::login).

use std::borrow::Cow;
use std::sync::Arc;

use wire::iscsi::{LoginRequest, LoginResponse, LoginStatus, Stage, VERSION, flags};
use zerocopy::big_endian::U16;

use crate::carrier::Carrier;
use crate::config::Target;
use crate::keys::{self, Negotiation};
use crate::name::NAME_LEN_MAX;
use crate::nexus::{InitiatorPort, SessionId, SessionKind};
use crate::security::{Security, is_security};
use crate::text::Key;
use crate::text::{self, REJECT};

/// The most bytes of text in the requests of one login step, joined: 16 KiB.
/// At least 8192 must be taken (RFC 7143, section 6.2).
pub const LOGIN_TEXT_MAX: usize = 16 << 10;
/// The most bytes of text in a Login Response: what every initiator takes in
/// one PDU (RFC 7143, section 13.12).
pub const LOGIN_ANSWER_MAX: usize = 8192;
/// The most steps of a login: more than any that comes to an end.
const STEPS_MAX: u8 = 32;

/// A Login Request with the whole text of its step: what came with the C bit
/// is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginStep {
    /// The header of the last PDU of the step (the one without the C bit).
    pub request: LoginRequest,
    /// Text, at most [`LOGIN_TEXT_MAX`] bytes.
    pub text: Vec<u8>,
    /// What carries the connection.
    pub carrier: Carrier,
}

/// A Login Response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginAnswer {
    /// The header but for StatSN, ExpCmdSN, MaxCmdSN and DataSegmentLength, which
    /// are the connection's to set. After a Status-Class other than 0 the
    /// connection closes.
    pub response: LoginResponse,
    /// Text, at most [`LOGIN_ANSWER_MAX`] bytes: it fits into one PDU, whatever
    /// the initiator declared.
    pub text: Vec<u8>,
}

impl LoginAnswer {
    /// The response of `status` to `request`, which stays in its stage.
    pub fn new(request: &LoginRequest, status: LoginStatus) -> Self {
        let mut response = LoginResponse::new();
        response.flags = request.flags & flags::CSG_MASK;
        response.version_max = VERSION;
        response.version_active = VERSION;
        response.isid = request.isid;
        response.tsih = request.tsih;
        response.itt = request.itt;
        response.status_class = status.class();
        response.status_detail = status.detail();
        LoginAnswer {
            response,
            text: Vec::new(),
        }
    }

    /// Its status.
    ///
    /// # Panics
    /// If the header was changed to one that there is not.
    pub fn status(&self) -> LoginStatus {
        let (class, detail) = (self.response.status_class, self.response.status_detail);
        LoginStatus::from_bytes(class, detail).expect("made of a status")
    }
}

/// Why a request that follows is refused which is not of the login under way.
pub(crate) const OTHER_LOGIN: &str = "ISID, TSIH, CID or Initiator Task Tag changes in the middle of the login: all requests of one \
     login have the same";

/// A login that cannot go on: the status and, of a redirection, where to.
#[derive(Debug)]
pub(crate) struct LoginRefused {
    pub status: LoginStatus,
    pub text: Vec<u8>,
    /// For the log of the target: one status stands for many reasons.
    pub reason: Cow<'static, str>,
}

impl LoginRefused {
    /// For a reason that the status does not tell.
    pub fn because(status: LoginStatus, reason: impl Into<Cow<'static, str>>) -> Self {
        LoginRefused {
            reason: reason.into(),
            ..status.into()
        }
    }

    /// An initiator that breaks the rules: what it sent, and what to do.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        LoginRefused::because(LoginStatus::InitiatorError, reason)
    }

    /// One that leaves out what it must say.
    pub fn missing(reason: &'static str) -> Self {
        LoginRefused::because(LoginStatus::MissingParameter, reason)
    }

    /// An initiator that has not authenticated itself.
    pub fn authentication(reason: impl Into<Cow<'static, str>>) -> Self {
        LoginRefused {
            reason: reason.into(),
            ..LoginStatus::AuthenticationFailure.into()
        }
    }

    /// One that proves nothing to a target which wants CHAP.
    pub fn without_chap() -> Self {
        LoginRefused::authentication("it offers no CHAP: give it the target's CHAP user and secret")
    }
}

impl From<LoginStatus> for LoginRefused {
    fn from(status: LoginStatus) -> Self {
        LoginRefused {
            status,
            text: Vec::new(),
            reason: status.to_string().into(),
        }
    }
}

/// The Login Phase of one connection: starts empty, goes with it to every
/// [`Registry::login`](crate::Registry::login).
#[derive(Debug, Default)]
pub struct LoginState {
    steps: u8,
    /// What the first request that had them gave as names.
    initiator: Option<String>,
    target: Option<String>,
    pub(crate) begun: Option<LoginBegun>,
}

impl LoginState {
    /// A login of which nothing came yet.
    pub fn new() -> Self {
        LoginState::default()
    }

    /// The InitiatorName as sent, for the log: it is neither proved nor checked.
    pub fn initiator(&self) -> Option<&str> {
        self.initiator.as_deref()
    }

    /// The target that is wanted, for the log; `None` in discovery sessions.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// Remembers the names for the log, no longer than names are.
    pub(crate) fn note(&mut self, identity: &LoginIdentity<'_>) {
        let is_short = |name: &&str| name.len() <= NAME_LEN_MAX;
        if self.initiator.is_none() {
            self.initiator = identity.initiator.filter(is_short).map(str::to_owned);
            self.target = identity.target.filter(is_short).map(str::to_owned);
        }
    }

    /// Counts a step of a login that must come to an end.
    pub(crate) fn count(&mut self) -> Result<(), LoginRefused> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let reason = format!("its login takes more than {STEPS_MAX} requests");
            return Err(LoginRefused::error(reason));
        }
        Ok(())
    }
}

/// What the first request of a login said, and how far it came.
#[derive(Debug)]
pub(crate) struct LoginBegun {
    /// The header of the first request: it says which session and connection
    /// this is, and those that follow must not say otherwise.
    pub request: LoginRequest,
    pub stage: Stage,
    pub initiator: InitiatorPort,
    pub alias: Option<String>,
    pub kind: SessionKind,
    pub target: Option<Arc<Target>>,
    pub portal_group_tag: u16,
    pub luns: Option<Vec<u16>>,
    /// The session that the connection is to join.
    pub joining: Option<SessionId>,
    pub security: Security,
    pub negotiation: Negotiation,
    /// TargetPortalGroupTag and TargetAlias were told.
    pub has_introduced: bool,
}

/// What a request asks for, its flags checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stages {
    pub current: Stage,
    /// The T bit and NSG.
    pub next: Option<Stage>,
}

impl Stages {
    /// The stages of a request (RFC 7143, sections 11.12.1 to 11.12.3).
    pub fn of(request: &LoginRequest) -> Result<Self, LoginRefused> {
        let bits = request.flags;
        let wrong = || {
            let (current, next) = (
                (bits & flags::CSG_MASK) >> flags::CSG_SHIFT,
                bits & flags::NSG_MASK,
            );
            LoginRefused::error(format!(
                "its Login Request has the flags {bits:#04x}: stage {current} (CSG) does not lead to \
                 stage {next} (NSG), or T and C are both set"
            ))
        };
        let current = Stage::from_value((bits & flags::CSG_MASK) >> flags::CSG_SHIFT);
        let current = current.filter(|stage| *stage != Stage::FullFeature);
        let current = current.ok_or_else(wrong)?;
        if bits & flags::TRANSIT == 0 {
            return Ok(Stages {
                current,
                next: None,
            });
        }
        let next = Stage::from_value(bits & flags::NSG_MASK).filter(|next| *next > current);
        if next.is_none() || bits & flags::CONTINUE != 0 {
            return Err(wrong());
        }
        Ok(Stages { current, next })
    }
}

/// The keys that name both ends and the type of the session; they may come again
/// with the same values.
pub(crate) struct LoginIdentity<'a> {
    pub initiator: Option<&'a str>,
    pub alias: Option<&'a str>,
    pub target: Option<&'a str>,
    pub session_type: Option<&'a str>,
}

impl<'a> LoginIdentity<'a> {
    pub fn of(pairs: &[(&'a str, &'a str)]) -> Self {
        let value = |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        LoginIdentity {
            initiator: value("InitiatorName"),
            alias: value("InitiatorAlias"),
            target: value("TargetName"),
            session_type: value("SessionType"),
        }
    }

    /// What the session is for (RFC 7143, section 13.21).
    pub fn kind(&self) -> Result<SessionKind, LoginRefused> {
        match self.session_type {
            None | Some("Normal") => Ok(SessionKind::Normal),
            Some("Discovery") => Ok(SessionKind::Discovery),
            Some(other) => Err(LoginRefused {
                reason: format!(
                    "SessionType is {}: there are `Normal` and `Discovery`",
                    text::quoted(other.as_bytes())
                )
                .into(),
                ..LoginStatus::SessionTypeNotSupported.into()
            }),
        }
    }
}

/// Keys that say something and are not answered, with their sections and
/// whether they are of the leading connection alone.
const DECLARED: [(&str, &str, bool); 5] = [
    ("TargetName", "13.4", false),
    ("InitiatorName", "13.5", false),
    ("InitiatorAlias", "13.7", false),
    ("SessionType", "13.21", true),
    // What the initiator runs on, which makes no difference.
    ("X#NodeArchitecture", "13.26", true),
];

/// Keys that are the target's to send, or come after the login.
const NOT_NOW: [(&str, &str); 4] = [
    ("SendTargets", "13.3"),
    ("TargetAlias", "13.6"),
    ("TargetAddress", "13.8"),
    ("TargetPortalGroupTag", "13.9"),
];

/// The keys of identity and discovery, as [`support`](crate::support) tells of
/// them.
pub(crate) fn listed() -> impl Iterator<Item = Key> {
    let key = |name, section, leading_only| Key {
        name,
        section,
        leading_only,
        in_discovery: name != "TargetPortalGroupTag",
        is_security: false,
        how: "declared",
    };
    let others = NOT_NOW
        .into_iter()
        .map(move |(name, section)| key(name, section, false));
    let declared = DECLARED.into_iter();
    declared
        .map(move |(name, section, leading_only)| key(name, section, leading_only))
        .chain(others)
}

impl LoginBegun {
    /// Whether `request` is of the same login.
    pub fn check_header(&self, request: &LoginRequest) -> Result<(), LoginRefused> {
        let of = |request: &LoginRequest| (request.isid, request.tsih, request.cid, request.itt);
        if of(request) != of(&self.request) {
            return Err(LoginRefused::error(OTHER_LOGIN));
        }
        Ok(())
    }

    /// Whether keys that come again say what they said.
    pub fn check_identity(&self, identity: &LoginIdentity<'_>) -> Result<(), LoginRefused> {
        let target = self.target.as_ref().map(|target| target.name.as_str());
        let initiator = Some(self.initiator.name.as_str());
        let names = [
            ("InitiatorName", identity.initiator, initiator),
            ("TargetName", identity.target, target),
        ];
        let other = names.into_iter().find_map(|(key, came, known)| {
            let came =
                came.filter(|came| known.is_some_and(|known| crate::normalize(came) != known));
            Some((key, came?))
        });
        let is_other_kind = identity.session_type.is_some() && identity.kind()? != self.kind;
        let kind = identity.session_type.filter(|_| is_other_kind);
        match other.or(kind.map(|kind| ("SessionType", kind))) {
            None => Ok(()),
            Some((key, value)) => Err(LoginRefused::error(format!(
                "{key} becomes {} in the middle of the login: it keeps its first value",
                text::quoted(value.as_bytes())
            ))),
        }
    }

    /// Answers the keys of one request and says where the login goes: the next
    /// stage, or `None` if it stays.
    pub fn step(
        &mut self,
        stages: Stages,
        pairs: &[(&str, &str)],
        random: &mut dyn FnMut(&mut [u8]),
        out: &mut Vec<u8>,
    ) -> Result<Option<Stage>, LoginRefused> {
        if stages.current != self.stage {
            return Err(LoginRefused::error(format!(
                "its Login Request is of stage {} (CSG) where {} is under way",
                stages.current as u8, self.stage as u8
            )));
        }
        self.declare_target(out);
        let in_security = self.stage == Stage::Security;
        if in_security {
            self.security.receive(pairs, random, out)?;
        } else if let Some((key, _)) = pairs.iter().find(|(key, _)| is_security(key)) {
            return Err(LoginRefused::error(format!(
                "{key} comes after the security stage: it belongs there"
            )));
        }
        let negotiated = self.negotiation.receive(pairs, out);
        negotiated.map_err(|failed| LoginRefused::error(failed.0))?;
        answer_others(pairs, out);
        if !in_security {
            self.negotiation.declare(out);
        }
        if out.len() > LOGIN_ANSWER_MAX {
            return Err(LoginRefused::error(format!(
                "the answer to its keys is longer than {LOGIN_ANSWER_MAX} bytes: it sends too many \
                 in one request"
            )));
        }
        let Some(next) = stages.next else {
            return Ok(None);
        };
        if in_security && !self.security.is_proved() {
            // An initiator that leaves the stage before CHAP began never begins it.
            return match self.security.is_open() {
                true => Ok(None),
                false => Err(LoginRefused::without_chap()),
            };
        }
        if self.negotiation.is_open() {
            return Ok(None);
        }
        self.stage = next;
        Ok(Some(next))
    }

    /// What the first response of a connection says of the target (RFC 7143,
    /// section 13.9).
    fn declare_target(&mut self, out: &mut Vec<u8>) {
        let Some(target) = &self.target else {
            return;
        };
        if std::mem::replace(&mut self.has_introduced, true) {
            return;
        }
        if let Some(alias) = &target.alias {
            text::push(out, "TargetAlias", alias);
        }
        let tag = self.portal_group_tag.to_string();
        text::push(out, "TargetPortalGroupTag", &tag);
    }
}

/// Answers the keys that are neither of identity nor of a stage.
fn answer_others(pairs: &[(&str, &str)], out: &mut Vec<u8>) {
    for (key, value) in pairs {
        let is_declared = DECLARED.iter().any(|declared| declared.0 == *key);
        if is_declared || is_security(key) || keys::is_operational(key) {
            continue;
        }
        if NOT_NOW.iter().any(|other| other.0 == *key) {
            text::push(out, key, REJECT);
        } else if let Some(answer) = keys::unknown(value) {
            text::push(out, key, answer);
        }
    }
}

/// The response that goes to `next`, or stays where `request` is.
pub(crate) fn proceed(
    request: &LoginRequest,
    next: Option<Stage>,
    tsih: Option<u16>,
    text: Vec<u8>,
) -> LoginAnswer {
    let mut answer = LoginAnswer::new(request, LoginStatus::Success);
    if let Some(next) = next {
        answer.response.flags |= flags::TRANSIT | next as u8;
    }
    if let Some(tsih) = tsih {
        answer.response.tsih = U16::new(tsih);
    }
    answer.text = text;
    answer
}
