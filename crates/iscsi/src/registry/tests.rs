mod changes;
mod chap;
mod discovery;
mod fuzz;
mod login;
mod sessions;

use wire::iscsi::{LoginRequest, LoginStatus, Stage, flags};
use zerocopy::big_endian::{U16, U32};

use super::*;
use crate::config::{InitiatorAcl, PortalGroup};
use crate::login::{LoginState, LoginStep};

const INITIATOR: &str = "iqn.2026-01.org.example:host";
const TARGET: &str = "iqn.2026-01.io.weft:disks";
const ISID: [u8; 6] = [0x80, 1, 2, 3, 0, 1];

/// A target reached through listeners 1 and 2 as portal group 1 and through 3
/// as portal group 2.
fn target() -> Target {
    let group = |tag, portals: &[u16]| PortalGroup {
        tag,
        portals: portals.to_vec(),
        ..PortalGroup::default()
    };
    Target {
        portal_groups: vec![group(1, &[1, 2]), group(2, &[3])],
        ..Target::new(TARGET)
    }
}

fn portal(number: u16, address: &str) -> Portal {
    Portal {
        number,
        address: address.parse().expect("an address"),
        advertise: None,
    }
}

fn registry(targets: Vec<Target>) -> Registry {
    Registry::new(RegistryConfig {
        targets: targets.into_iter().map(Arc::new).collect(),
        discovery: Auth::default(),
        portals: vec![
            portal(1, "192.0.2.1:3260"),
            portal(2, "192.0.2.2:3261"),
            portal(3, "[2001:db8::3]:3260"),
        ],
    })
}

fn via(connection: u64, listener: u16) -> Via {
    Via {
        connection,
        listener,
        local: "192.0.2.1:3260".parse().expect("an address"),
        peer: "198.51.100.7:40000".parse().expect("an address"),
    }
}

/// Predictable bytes: 11h, 12h, ...
fn counting() -> impl FnMut(&mut [u8]) {
    let mut next = 0x11u8;
    move |bytes: &mut [u8]| {
        for byte in bytes {
            *byte = next;
            next = next.wrapping_add(1);
        }
    }
}

/// Text of pairs written with a bar between them.
fn text_of(pairs: &str) -> Vec<u8> {
    let mut text = pairs.replace('|', "\0").into_bytes();
    if !text.is_empty() {
        text.push(0);
    }
    text
}

fn bars(text: &[u8]) -> String {
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    text.trim_end_matches('\0').replace('\0', "|")
}

/// One connection that logs in.
struct Initiator {
    request: LoginRequest,
    state: LoginState,
    via: Via,
}

impl Initiator {
    fn new(connection: u64) -> Self {
        let mut request = LoginRequest::new();
        request.isid = ISID;
        request.itt = U32::new(0x0bad_cafe);
        request.cmd_sn = U32::new(77);
        Initiator {
            request,
            state: LoginState::new(),
            via: via(connection, 1),
        }
    }

    fn on(self, listener: u16) -> Self {
        let via = Via {
            listener,
            ..self.via
        };
        Initiator { via, ..self }
    }

    fn with(mut self, tsih: u16, cid: u16) -> Self {
        self.request.tsih = U16::new(tsih);
        self.request.cid = U16::new(cid);
        self
    }

    /// Sends `pairs` in a stage, to go to the next one or to stay.
    fn send(
        &mut self,
        registry: &mut Registry,
        stages: (Stage, Option<Stage>),
        pairs: &str,
    ) -> LoginOutcome {
        self.request.flags = (stages.0 as u8) << flags::CSG_SHIFT;
        if let Some(next) = stages.1 {
            self.request.flags |= flags::TRANSIT | next as u8;
        }
        let step = LoginStep {
            request: self.request,
            text: text_of(pairs),
            carrier: crate::Carrier::Tcp,
        };
        registry.login(&mut self.state, &step, &self.via, &mut counting())
    }

    /// A login of one step that should succeed, with these keys besides the
    /// names.
    fn log_in(&mut self, registry: &mut Registry, pairs: &str) -> (Joined, SessionChange) {
        let pairs = format!("InitiatorName={INITIATOR}|TargetName={TARGET}|{pairs}");
        let outcome = self.send(registry, TO_FULL_FEATURE, &pairs);
        finished(outcome)
    }
}

const SECURITY: (Stage, Option<Stage>) = (Stage::Security, None);
const TO_OPERATIONAL: (Stage, Option<Stage>) = (Stage::Security, Some(Stage::Operational));
const OPERATIONAL: (Stage, Option<Stage>) = (Stage::Operational, None);
const TO_FULL_FEATURE: (Stage, Option<Stage>) = (Stage::Operational, Some(Stage::FullFeature));

fn finished(outcome: LoginOutcome) -> (Joined, SessionChange) {
    match outcome.then {
        AfterLogin::FullFeature(joined) => (*joined, outcome.change),
        then => panic!(
            "{then:?} {:?} {}",
            outcome.answer.status(),
            bars(&outcome.answer.text)
        ),
    }
}

/// A login that succeeded and replaces no session.
fn alone(outcome: LoginOutcome) -> Joined {
    let (joined, change) = finished(outcome);
    assert_eq!(change, SessionChange::default());
    joined
}

/// Why a login was refused, for the log.
fn reason(outcome: &LoginOutcome) -> &str {
    match &outcome.then {
        AfterLogin::Close(reason) => reason,
        then => panic!("{then:?}"),
    }
}

/// The status of a login that was refused.
fn refused(outcome: &LoginOutcome) -> LoginStatus {
    assert!(matches!(outcome.then, AfterLogin::Close(_)), "{outcome:?}");
    assert!(outcome.change.closing.is_empty());
    let status = outcome.answer.status();
    assert_ne!(status, LoginStatus::Success);
    if let AfterLogin::Close(reason) = &outcome.then {
        use LoginStatus::{CannotIncludeInSession, NoSession, TooManyConnections};
        // The status names neither which session it is about nor what helps.
        let is_of_session = [CannotIncludeInSession, NoSession, TooManyConnections];
        let is_bare = *reason == status.to_string();
        assert!(!is_bare || !is_of_session.contains(&status), "{reason}");
    }
    status
}
