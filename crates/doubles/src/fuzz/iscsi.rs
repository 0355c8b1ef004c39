//! Login text, and PDU headers.

use std::sync::Arc;

use auth::{Algorithm, Secret, binary};
use iscsi::text;
use iscsi::{
    AfterLogin, Auth, Carrier, Credentials, DigestPolicy, LENGTH_MAX, LENGTH_MIN, LOGIN_ANSWER_MAX,
    LOGIN_TEXT_MAX, LoginOutcome, LoginState, LoginStep, Negotiated, PortalGroup, Registry,
    RegistryConfig, SessionId, SessionLimits, Target, Via,
};
use random::Random;
use wire::iscsi::{
    AHS_LEN_MAX, AsyncMessage, BHS_LEN, Bhs, DataIn, DataOut, LoginRequest, LoginResponse,
    LoginStatus, LogoutRequest, LogoutResponse, NopIn, NopOut, R2t, Reject, ScsiCommand,
    ScsiResponse, SnackRequest, TaskManagementRequest, TaskManagementResponse, TextRequest,
    TextResponse, additional_headers, padded,
};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const NAMES: &[u8] = b"InitiatorName=iqn.2026-01.org.example:a\0";
const OPEN: &[u8] = b"TargetName=iqn.2026-01.io.weft:open\0";
const GUARDED: &[u8] = b"TargetName=iqn.2026-01.io.weft:guarded\0";

/// What a record's mode says, from the lowest bit.
mod mode {
    /// The initiator's name stands before the text.
    pub const NAMED: u8 = 1 << 0;
    /// The name of the open target as well.
    pub const OPEN: u8 = 1 << 1;
    /// The name of the guarded target as well.
    pub const GUARDED: u8 = 1 << 2;
    /// The right answer to the last challenge stands behind the text.
    pub const PROVED: u8 = 1 << 3;
    /// It comes on the second connection, not on the first.
    pub const SECOND: u8 = 1 << 4;
    /// The connection closes before and is another one from now on.
    pub const CLOSED: u8 = 1 << 5;
    /// It names the session that came last.
    pub const JOINING: u8 = 1 << 6;
    /// It comes by RDMA.
    pub const RDMA: u8 = 1 << 7;
}

/// A connection and what it knows.
struct FuzzConnection {
    connection: u64,
    state: LoginState,
    session: Option<SessionId>,
    /// The text of the last answer.
    heard: Vec<u8>,
    tsih: u16,
}

/// A registry and two connections to it.
struct World {
    registry: Registry,
    lines: [FuzzConnection; 2],
    /// The name of the connection that came last.
    connection: u64,
    /// The session that came last.
    tsih: u16,
    random: Random,
}

/// Two connections of one initiator against a registry. An input is records: a
/// mode, the flags of a Login Request, a length (16 bits, little endian) and so
/// many bytes of text. After its login a connection's records are Text Requests.
pub fn login_text(input: &[u8]) {
    let mut world = World {
        registry: registry(),
        lines: [1, 2].map(line),
        connection: 2,
        tsih: 0,
        random: Random::new(1),
    };
    let mut records = input;
    while let Some((&[mode, flags, low, high], rest)) = records.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let (bytes, rest) = rest.split_at(len.min(rest.len()).min(LOGIN_TEXT_MAX / 2));
        records = rest;
        world.record(mode, flags, bytes);
    }
}

impl World {
    fn record(&mut self, mode: u8, flags: u8, bytes: &[u8]) {
        let at = usize::from(mode & mode::SECOND != 0);
        if mode & mode::CLOSED != 0 {
            self.registry.closed(self.lines[at].connection);
            self.renew(at);
        }
        let line = &mut self.lines[at];
        let via = via(line.connection);
        if let Some(session) = line.session {
            let outcome = self.registry.text(session, &via, bytes);
            assert!(text::parse(&outcome.text).is_some() || outcome.text.len() > LOGIN_ANSWER_MAX);
            return;
        }
        if mode & mode::JOINING != 0 && line.heard.is_empty() {
            line.tsih = self.tsih;
        }
        let mut request = LoginRequest::new();
        request.flags = flags;
        request.cid = U16::new(at as u16);
        request.tsih = U16::new(line.tsih);
        request.itt = U32::new(7);
        let step = LoginStep {
            request,
            text: whole_text(mode, bytes, &line.heard),
            carrier: match mode & mode::RDMA {
                0 => Carrier::Tcp,
                _ => Carrier::Rdma { has_crc: at == 0 },
            },
        };
        let random = &mut self.random;
        let mut fill = |bytes: &mut [u8]| bytes.fill_with(|| random.below(256) as u8);
        let outcome = self.registry.login(&mut line.state, &step, &via, &mut fill);
        self.take(at, outcome);
    }

    /// What came of a login step must be one of the things that can.
    fn take(&mut self, at: usize, outcome: LoginOutcome) {
        let status = outcome.answer.status();
        let is_refused = matches!(outcome.then, AfterLogin::Close(_));
        assert_eq!(status == LoginStatus::Success, !is_refused);
        assert!(outcome.answer.text.len() <= LOGIN_ANSWER_MAX);
        assert!(text::parse(&outcome.answer.text).is_some());
        let line = &mut self.lines[at];
        line.heard = outcome.answer.text;
        match outcome.then {
            AfterLogin::Continue => {}
            AfterLogin::Close(_) => self.renew(at),
            AfterLogin::FullFeature(joined) => {
                check(&joined.negotiated);
                self.tsih = joined.tsih;
                line.session = Some(joined.session);
                let session = self.registry.session(joined.session).expect("joined");
                assert_eq!(session.connections[&joined.cid].connection, line.connection);
            }
        }
        for closing in outcome.change.closing {
            self.registry.closed(closing);
            if let Some(at) = self
                .lines
                .iter()
                .position(|line| line.connection == closing)
            {
                self.renew(at);
            }
        }
        assert!(self.registry.sessions().count() <= self.lines.len());
    }

    /// Another connection takes the place of one that has ended.
    fn renew(&mut self, at: usize) {
        self.connection += 1;
        self.lines[at] = line(self.connection);
    }
}

fn line(connection: u64) -> FuzzConnection {
    FuzzConnection {
        connection,
        state: LoginState::new(),
        session: None,
        heard: Vec::new(),
        tsih: 0,
    }
}

fn via(connection: u64) -> Via {
    Via {
        connection,
        listener: 1,
        local: ([192, 0, 2, 1], 3260).into(),
        peer: ([192, 0, 2, 2], 40_000).into(),
    }
}

/// The secret of [`mode::PROVED`].
fn secret() -> Secret {
    Secret::new(*b"no secret at all")
}

fn registry() -> Registry {
    let target = |name: &str| Target {
        portal_groups: vec![PortalGroup {
            tag: 1,
            portals: vec![1],
            ..PortalGroup::default()
        }],
        ..Target::new(format!("iqn.2026-01.io.weft:{name}"))
    };
    let credentials = |secret| {
        Some(Credentials {
            user: "a".to_owned(),
            secret,
        })
    };
    let guarded = Target {
        auth: Auth {
            chap: credentials(secret()),
            mutual: credentials(Secret::new(*b"none either, really")),
            algorithms: Algorithm::ALL.to_vec(),
        },
        header_digest: DigestPolicy::Required,
        limits: SessionLimits {
            connections_max: 2,
            ..SessionLimits::default()
        },
        ..target("guarded")
    };
    Registry::new(RegistryConfig {
        targets: [target("open"), guarded].map(Arc::new).to_vec(),
        ..RegistryConfig::default()
    })
}

fn whole_text(mode: u8, bytes: &[u8], heard: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let parts = [
        (mode::NAMED, NAMES),
        (mode::OPEN, OPEN),
        (mode::GUARDED, GUARDED),
    ];
    for (bit, part) in parts {
        if mode & bit != 0 {
            whole.extend_from_slice(part);
        }
    }
    whole.extend_from_slice(bytes);
    if mode & mode::PROVED != 0
        && let Some(response) = response(heard)
    {
        text::push(&mut whole, "CHAP_N", "a");
        text::push(&mut whole, "CHAP_R", &response);
    }
    whole
}

/// The answer to the challenge in `heard`.
fn response(heard: &[u8]) -> Option<String> {
    let pairs = text::parse(heard)?;
    let value = |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
    let algorithm = Algorithm::from_number(value("CHAP_A")?.parse().ok()?)?;
    let id = value("CHAP_I")?.parse().ok()?;
    let challenge = binary::parse(value("CHAP_C")?, 64)?;
    let response = algorithm.respond(id, &secret(), &challenge);
    Some(binary::hex(response.bytes()))
}

fn check(agreed: &Negotiated) {
    let lengths = [
        agreed.max_recv_data_segment_length,
        agreed.max_send_data_segment_length,
        agreed.max_burst_length,
        agreed.first_burst_length,
    ];
    assert!(
        lengths
            .iter()
            .all(|length| (LENGTH_MIN..=LENGTH_MAX).contains(length))
    );
    assert!(agreed.first_burst_length <= agreed.max_burst_length);
    assert!(agreed.max_connections > 0 && agreed.max_outstanding_r2t > 0);
    assert!(agreed.error_recovery_level <= 1);
    assert!(agreed.data_pdu_in_order && agreed.data_sequence_in_order);
}

/// A PDU at the start of any bytes: every structure takes every header, and
/// the Additional Header Segments are walked to their end or to an error.
pub fn pdu(input: &[u8]) {
    let Ok((bhs, behind)) = Bhs::ref_from_prefix(input) else {
        assert!(input.len() < BHS_LEN);
        return;
    };
    assert_eq!(bhs.as_bytes(), &input[..BHS_LEN]);
    assert_eq!(bhs.opcode(), input[0] & 0x3f);
    assert_eq!(bhs.is_immediate(), input[0] & 0x40 != 0);
    let data_len = bhs.data_segment_length.get();
    assert_eq!(data_len.to_be_bytes()[1..], input[5..8]);
    assert!(padded(data_len) - data_len < 4 && padded(data_len).is_multiple_of(4));
    let casts = [
        same::<ScsiCommand>,
        same::<ScsiResponse>,
        same::<TaskManagementRequest>,
        same::<TaskManagementResponse>,
        same::<DataOut>,
        same::<DataIn>,
        same::<R2t>,
        same::<AsyncMessage>,
        same::<TextRequest>,
        same::<TextResponse>,
        same::<LoginRequest>,
        same::<LoginResponse>,
        same::<LogoutRequest>,
        same::<LogoutResponse>,
        same::<SnackRequest>,
        same::<Reject>,
        same::<NopOut>,
        same::<NopIn>,
    ];
    assert!(casts.iter().all(|is_same| is_same(bhs)));
    let ahs_len = bhs.ahs_len();
    assert!(ahs_len <= AHS_LEN_MAX);
    let ahs = &behind[..ahs_len.min(behind.len())];
    let mut walked = 0;
    let mut is_over = false;
    for segment in additional_headers(ahs) {
        assert!(!is_over, "an error is the last");
        match segment {
            Ok((kind, content)) => {
                assert!(kind < 64);
                walked += (3 + content.len()).next_multiple_of(4);
            }
            Err(_) => is_over = true,
        }
    }
    assert!(is_over || walked >= ahs.len() && walked < ahs.len() + 4);
}

/// Whether the header is the same bytes as that PDU.
fn same<T>(bhs: &Bhs) -> bool
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    bhs.cast::<T>().as_bytes() == bhs.as_bytes()
}
