//! Operational keys, as the target answers them (RFC 7143, sections 6.2 and 13).

use crate::carrier::Carrier;
use crate::config::{DigestPolicy, PortalGroup, SessionLimits, Target};
use crate::login::LoginRefused;
use crate::negotiated::{LENGTH_MAX, LENGTH_MIN, Negotiated};
use crate::nexus::SessionKind;
use crate::text::Key;
use crate::text::{self, IRRELEVANT, NONE, NOT_UNDERSTOOD, REJECT};
use wire::iscsi::LoginStatus;

/// The digest that there is.
const CRC32C: &str = "CRC32C";
/// What is answered to TaskReporting: no promise beyond RFC 3720.
const TASK_REPORTING: &str = "RFC3720";
/// iSCSIProtocolLevel of RFC 7143 without the features of RFC 7144.
const PROTOCOL_LEVEL: u64 = 1;

/// A value of [`Negotiated`] that is a number or a boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    MaxConnections,
    InitialR2t,
    ImmediateData,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2t,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    ProtocolLevel,
}

/// Which of two values it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The smaller one; of booleans AND.
    Least,
    /// The larger one; of booleans OR.
    Greatest,
}

/// How a key is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    HeaderDigest,
    DataDigest,
    /// A number of this range.
    Number(Field, Choice, u64, u64),
    Boolean(Field, Choice),
    /// Declares what its sender takes; is not answered.
    MaxRecvDataSegmentLength,
    TaskReporting,
    /// A marker, which this standard has no more: `No` (section 13.25).
    Marker,
    /// The interval of a marker: `Reject`.
    MarkerInterval,
    /// `Yes` by RDMA, else `No`; the keys below are irrelevant then.
    RdmaExtensions,
    /// Most data of a PDU but Data-In and Data-Out: what one of both ends takes.
    RecvDataSegmentLength(Receiver),
    /// A number of its sender, 0 or at least 2; is not answered.
    DeclaredNumber,
    /// A boolean of its sender; is not answered.
    DeclaredFlag(Option<DeclaredFlag>),
}

/// The end that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    Initiator,
    Target,
}

/// A flag that is declared, and that something depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeclaredFlag {
    SolicitedOnly,
}

/// A key of the operational stage.
struct KeyRow {
    name: &'static str,
    /// Section of RFC 7143, or of RFC 7145 behind that number.
    section: &'static str,
    rule: Rule,
    /// Of the session, hence of its leading connection alone (LO).
    leading_only: bool,
    /// Means something in a discovery session.
    in_discovery: bool,
}

const fn row(
    (name, section): (&'static str, &'static str),
    rule: Rule,
    leading_only: bool,
    in_discovery: bool,
) -> KeyRow {
    KeyRow {
        name,
        section,
        rule,
        leading_only,
        in_discovery,
    }
}

const fn length(field: Field) -> Rule {
    Rule::Number(field, Choice::Least, LENGTH_MIN as u64, LENGTH_MAX as u64)
}

/// A key of iSER, which is declared.
const fn declared_of_iser(name: &'static str, section: &'static str, rule: Rule) -> KeyRow {
    row((name, section), rule, true, false)
}

/// RFC 7143, sections 13.1 to 13.25; RFC 7144, section 7.1.1; RFC 7145, section 6.
/// MaxBurstLength stands before FirstBurstLength, which must not exceed it, and
/// TaggedBufferForSolicitedDataOnly before ImmediateData, which depends on it.
const ROWS: [KeyRow; 27] = [
    row(
        ("RDMAExtensions", "RFC 7145, 6.3"),
        Rule::RdmaExtensions,
        true,
        false,
    ),
    declared_of_iser(
        "TaggedBufferForSolicitedDataOnly",
        "RFC 7145, 6.9",
        Rule::DeclaredFlag(Some(DeclaredFlag::SolicitedOnly)),
    ),
    declared_of_iser(
        "iSERHelloRequired",
        "RFC 7145, 6.10",
        Rule::DeclaredFlag(None),
    ),
    declared_of_iser(
        "MaxOutstandingUnexpectedPDUs",
        "RFC 7145, 6.7",
        Rule::DeclaredNumber,
    ),
    declared_of_iser("MaxAHSLength", "RFC 7145, 6.8", Rule::DeclaredNumber),
    row(("HeaderDigest", "13.1"), Rule::HeaderDigest, false, true),
    row(("DataDigest", "13.1"), Rule::DataDigest, false, true),
    row(
        ("MaxRecvDataSegmentLength", "13.12"),
        Rule::MaxRecvDataSegmentLength,
        false,
        true,
    ),
    row(
        ("TargetRecvDataSegmentLength", "RFC 7145, 6.4"),
        Rule::RecvDataSegmentLength(Receiver::Target),
        false,
        false,
    ),
    row(
        ("InitiatorRecvDataSegmentLength", "RFC 7145, 6.5"),
        Rule::RecvDataSegmentLength(Receiver::Initiator),
        false,
        false,
    ),
    row(
        ("MaxConnections", "13.2"),
        Rule::Number(Field::MaxConnections, Choice::Least, 1, 65_535),
        true,
        false,
    ),
    row(
        ("InitialR2T", "13.10"),
        Rule::Boolean(Field::InitialR2t, Choice::Greatest),
        true,
        false,
    ),
    row(
        ("ImmediateData", "13.11"),
        Rule::Boolean(Field::ImmediateData, Choice::Least),
        true,
        false,
    ),
    row(
        ("MaxBurstLength", "13.13"),
        length(Field::MaxBurstLength),
        true,
        false,
    ),
    row(
        ("FirstBurstLength", "13.14"),
        length(Field::FirstBurstLength),
        true,
        false,
    ),
    row(
        ("DefaultTime2Wait", "13.15"),
        Rule::Number(Field::DefaultTime2Wait, Choice::Greatest, 0, 3600),
        true,
        true,
    ),
    row(
        ("DefaultTime2Retain", "13.16"),
        Rule::Number(Field::DefaultTime2Retain, Choice::Least, 0, 3600),
        true,
        true,
    ),
    row(
        ("MaxOutstandingR2T", "13.17"),
        Rule::Number(Field::MaxOutstandingR2t, Choice::Least, 1, 65_535),
        true,
        false,
    ),
    row(
        ("DataPDUInOrder", "13.18"),
        Rule::Boolean(Field::DataPduInOrder, Choice::Greatest),
        true,
        false,
    ),
    row(
        ("DataSequenceInOrder", "13.19"),
        Rule::Boolean(Field::DataSequenceInOrder, Choice::Greatest),
        true,
        false,
    ),
    row(
        ("ErrorRecoveryLevel", "13.20"),
        Rule::Number(Field::ErrorRecoveryLevel, Choice::Least, 0, 2),
        true,
        true,
    ),
    row(("TaskReporting", "13.23"), Rule::TaskReporting, true, false),
    row(
        ("iSCSIProtocolLevel", "13.24"),
        Rule::Number(Field::ProtocolLevel, Choice::Least, 0, 31),
        true,
        false,
    ),
    row(("IFMarker", "13.25"), Rule::Marker, false, true),
    row(("OFMarker", "13.25"), Rule::Marker, false, true),
    row(("IFMarkInt", "13.25"), Rule::MarkerInterval, false, true),
    row(("OFMarkInt", "13.25"), Rule::MarkerInterval, false, true),
];

/// Whether there is such a key.
pub(crate) fn is_operational(key: &str) -> bool {
    ROWS.iter().any(|row| row.name == key)
}

/// The operational keys, as [`support`](crate::support) tells of them.
pub(crate) fn listed() -> impl Iterator<Item = Key> {
    ROWS.iter().map(|row| Key {
        name: row.name,
        section: row.section,
        leading_only: row.leading_only,
        in_discovery: row.in_discovery,
        is_security: false,
        how: row.rule.how(),
    })
}

impl Rule {
    /// What it is called in few words.
    fn how(self) -> &'static str {
        match self {
            Rule::HeaderDigest | Rule::DataDigest | Rule::TaskReporting => "list",
            Rule::Number(_, Choice::Least, ..) => "min",
            Rule::Number(_, Choice::Greatest, ..) => "max",
            Rule::Boolean(_, Choice::Least) => "AND",
            Rule::Boolean(_, Choice::Greatest) => "OR",
            Rule::MaxRecvDataSegmentLength | Rule::DeclaredNumber | Rule::DeclaredFlag(_) => {
                "declared"
            }
            Rule::Marker => "No",
            Rule::MarkerInterval => "Reject",
            Rule::RdmaExtensions => "AND",
            Rule::RecvDataSegmentLength(_) => "min",
        }
    }
}

/// The answer to an unknown key, `None` if nothing is to be
/// said: it was an answer itself.
pub(crate) fn unknown(value: &str) -> Option<&'static str> {
    let is_answer = [NOT_UNDERSTOOD, IRRELEVANT, REJECT].contains(&value);
    (!is_answer).then_some(NOT_UNDERSTOOD)
}

/// MaxRecvDataSegmentLength as a peer declares it, `None` if it cannot be. More
/// than there can be is taken for all of it.
pub(crate) fn declared_length(value: &str) -> Option<u32> {
    let length = text::number(value)?.min(u64::from(LENGTH_MAX)) as u32;
    (length >= LENGTH_MIN).then_some(length)
}

/// Nothing can come of a negotiation: which key, its value, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NegotiationFailed(pub String);

impl NegotiationFailed {
    fn new(key: &str, value: &str, remedy: &str) -> NegotiationFailed {
        NegotiationFailed(format!(
            "{key} is {}: {remedy}",
            text::quoted(value.as_bytes())
        ))
    }
}

/// The negotiation of one connection's operational keys.
#[derive(Clone, Debug)]
pub(crate) struct Negotiation {
    kind: SessionKind,
    is_leading: bool,
    limits: SessionLimits,
    header_digest: DigestPolicy,
    data_digest: DigestPolicy,
    carrier: Carrier,
    agreed: Negotiated,
    /// Keys that came, by the bit of their row.
    came: u32,
    /// Keys that we sent and that are not answered yet.
    offered: u32,
    /// Our MaxRecvDataSegmentLength was told.
    has_declared: bool,
}

impl Negotiation {
    /// The negotiation of the leading connection of a session with `target`,
    /// or of a discovery session (`None`); what its portal group says of digests
    /// goes before what the target says.
    pub fn leading(target: Option<(&Target, &PortalGroup)>) -> Self {
        let kind = match target {
            Some(_) => SessionKind::Normal,
            None => SessionKind::Discovery,
        };
        let none = (&Target::new(""), &PortalGroup::default());
        let (target, group) = target.unwrap_or(none);
        let limits = target.limits;
        let agreed = Negotiated {
            max_recv_data_segment_length: limits.max_recv_data_segment_bytes,
            ..Negotiated::default()
        };
        Negotiation {
            kind,
            is_leading: true,
            limits,
            header_digest: group.header_digest.unwrap_or(target.header_digest),
            data_digest: group.data_digest.unwrap_or(target.data_digest),
            carrier: Carrier::Tcp,
            agreed,
            came: 0,
            offered: 0,
            has_declared: false,
        }
    }

    /// The negotiation of a further connection of a session with `target` whose
    /// keys are `agreed`.
    pub fn joining(target: (&Target, &PortalGroup), agreed: &Negotiated) -> Self {
        let own = Negotiation::leading(Some(target));
        let of_connection = own.agreed;
        Negotiation {
            is_leading: false,
            agreed: Negotiated {
                header_digest: of_connection.header_digest,
                data_digest: of_connection.data_digest,
                max_recv_data_segment_length: of_connection.max_recv_data_segment_length,
                max_send_data_segment_length: of_connection.max_send_data_segment_length,
                ..*agreed
            },
            ..own
        }
    }

    /// The connection is carried by RDMA (RFC 7145, section 6). There are no digests, and no
    /// unsolicited data but that of commands. A digest that the target requires is there if
    /// CRCs of MPA are. Those that join a session are by RDMA if its first connection is.
    pub fn set_carrier(&mut self, carrier: Carrier) -> Result<(), LoginRefused> {
        if !self.is_leading && self.agreed.rdma_extensions != carrier.is_rdma() {
            return Err(LoginRefused::because(
                LoginStatus::CannotIncludeInSession,
                "the connections of a session are all by TCP or all by RDMA, as its first is",
            ));
        }
        let Carrier::Rdma { has_crc } = carrier else {
            return Ok(());
        };
        let both = [self.header_digest, self.data_digest];
        if both.contains(&DigestPolicy::Required) && !has_crc {
            return Err(LoginRefused::error(
                "the target requires digests, and its connection by RDMA has no CRCs of MPA: turn \
                 them on in the initiator, or set `mpa_crc`",
            ));
        }
        self.carrier = carrier;
        self.header_digest = DigestPolicy::None;
        self.data_digest = DigestPolicy::None;
        self.limits.error_recovery_level = 0;
        self.limits.initial_r2t = true;
        self.agreed.rdma_extensions = true;
        if self.kind == SessionKind::Normal {
            self.agreed.max_recv_data_segment_length =
                Negotiated::default().max_recv_data_segment_length;
        }
        Ok(())
    }

    /// Takes the operational keys of a request and answers them; keys that are
    /// none are left alone. The keys of a row that stands earlier are taken
    /// earlier, the answers stand as the questions do.
    pub fn receive(
        &mut self,
        pairs: &[(&str, &str)],
        out: &mut Vec<u8>,
    ) -> Result<(), NegotiationFailed> {
        let mut answers: Vec<(usize, &str, String)> = Vec::new();
        for (bit, row) in ROWS.iter().enumerate() {
            let came = pairs
                .iter()
                .enumerate()
                .filter(|(_, pair)| pair.0 == row.name);
            for (at, (key, value)) in came {
                let mask = 1 << bit;
                if self.offered & mask != 0 {
                    self.offered &= !mask;
                    self.take_answer(row, value)?;
                } else if self.came & mask != 0 {
                    // A key is negotiated once in a login (section 6.2).
                    return Err(NegotiationFailed::new(
                        key,
                        value,
                        "it came before, and comes once",
                    ));
                } else if let Some(answer) = self.answer(row, value)? {
                    answers.push((at, key, answer));
                }
                self.came |= mask;
            }
        }
        answers.sort_by_key(|(at, ..)| *at);
        for (_, key, answer) in answers {
            text::push(out, key, &answer);
        }
        Ok(())
    }

    /// Says what the target has to say of its own, once, and asks for what it
    /// insists on.
    pub fn declare(&mut self, out: &mut Vec<u8>) {
        // What limits PDUs by RDMA is negotiated.
        let is_declared = self.kind == SessionKind::Discovery || !self.carrier.is_rdma();
        if !std::mem::replace(&mut self.has_declared, true) && is_declared {
            let length = self.agreed.max_recv_data_segment_length.to_string();
            text::push(out, "MaxRecvDataSegmentLength", &length);
        }
        for (bit, row) in ROWS.iter().enumerate() {
            let mask = 1 << bit;
            let policy = match row.rule {
                Rule::HeaderDigest => self.header_digest,
                Rule::DataDigest => self.data_digest,
                _ => continue,
            };
            if policy == DigestPolicy::Required && (self.came | self.offered) & mask == 0 {
                text::push(out, row.name, CRC32C);
                self.offered |= mask;
            }
        }
    }

    /// Whether something that we asked for is not answered.
    pub fn is_open(&self) -> bool {
        self.offered != 0
    }

    /// Whether what we insist on was agreed on.
    pub fn is_acceptable(&self) -> bool {
        let holds = |policy, is_on| policy != DigestPolicy::Required || is_on;
        holds(self.header_digest, self.agreed.header_digest)
            && holds(self.data_digest, self.agreed.data_digest)
    }

    /// What was agreed on.
    pub fn agreed(&self) -> Negotiated {
        let mut agreed = self.agreed;
        agreed.first_burst_length = agreed.first_burst_length.min(agreed.max_burst_length);
        agreed
    }

    /// What is answered to a key that came.
    fn answer(&mut self, row: &KeyRow, value: &str) -> Result<Option<String>, NegotiationFailed> {
        let fixed = |answer: &str| Ok(Some(answer.to_owned()));
        if self.kind == SessionKind::Discovery && !row.in_discovery {
            return fixed(IRRELEVANT);
        }
        if row.leading_only && !self.is_leading {
            return fixed(REJECT);
        }
        match row.rule {
            Rule::HeaderDigest => {
                let (answer, is_on) = digest(row.name, self.header_digest, value)?;
                self.agreed.header_digest = is_on;
                fixed(answer)
            }
            Rule::DataDigest => {
                let (answer, is_on) = digest(row.name, self.data_digest, value)?;
                self.agreed.data_digest = is_on;
                fixed(answer)
            }
            Rule::Number(field, choice, min, max) => {
                match text::number(value).filter(|number| (min..=max).contains(number)) {
                    Some(number) => fixed(&self.choose(field, choice, number).to_string()),
                    None => fixed(REJECT),
                }
            }
            Rule::Boolean(field, choice) => match text::boolean(value) {
                Some(flag) => {
                    let chosen = self.choose(field, choice, u64::from(flag));
                    fixed(text::yes_or_no(chosen != 0))
                }
                None => fixed(REJECT),
            },
            Rule::MaxRecvDataSegmentLength => {
                let length = declared_length(value);
                let length = length
                    .ok_or_else(|| NegotiationFailed::new(row.name, value, "512 is the least"))?;
                // By RDMA it is of discovery, where Linux has receives of what every
                // initiator takes.
                let max = match self.carrier.is_rdma() {
                    true => Negotiated::default().max_send_data_segment_length,
                    false => LENGTH_MAX,
                };
                self.agreed.max_send_data_segment_length = length.min(max);
                Ok(None)
            }
            Rule::TaskReporting => {
                let is_offered = value.split(',').any(|item| item == TASK_REPORTING);
                fixed(if is_offered { TASK_REPORTING } else { REJECT })
            }
            Rule::Marker => fixed(text::yes_or_no(false)),
            Rule::MarkerInterval => fixed(REJECT),
            Rule::RdmaExtensions
            | Rule::RecvDataSegmentLength(_)
            | Rule::DeclaredNumber
            | Rule::DeclaredFlag(_) => self.answer_of_iser(row, value),
        }
    }

    /// What is answered to a key of iSER (RFC 7145, section 6).
    fn answer_of_iser(
        &mut self,
        row: &KeyRow,
        value: &str,
    ) -> Result<Option<String>, NegotiationFailed> {
        let is_rdma = self.carrier.is_rdma();
        let answer = match row.rule {
            Rule::RdmaExtensions => match text::boolean(value) {
                None => REJECT,
                Some(false) if is_rdma => {
                    let remedy = "the connection is by RDMA, where it is `Yes`";
                    return Err(NegotiationFailed::new(row.name, value, remedy));
                }
                Some(flag) => text::yes_or_no(flag && is_rdma),
            },
            _ if !is_rdma => IRRELEVANT,
            Rule::RecvDataSegmentLength(receiver) => match declared_length(value) {
                None => REJECT,
                Some(length) => {
                    let length = self.agree_on_length(receiver, length);
                    return Ok(Some(length.to_string()));
                }
            },
            Rule::DeclaredNumber => match text::number(value) {
                None | Some(1) => REJECT,
                Some(_) => return Ok(None),
            },
            _ => match (text::boolean(value), row.rule) {
                (None, _) => REJECT,
                (Some(flag), Rule::DeclaredFlag(Some(DeclaredFlag::SolicitedOnly))) => {
                    self.agreed.solicited_only = Some(flag);
                    return Ok(None);
                }
                _ => return Ok(None),
            },
        };
        Ok(Some(answer.to_owned()))
    }

    /// Most data that `receiver` takes in a PDU: the smaller of its and of what the initiator
    /// says.
    fn agree_on_length(&mut self, receiver: Receiver, length: u32) -> u32 {
        match receiver {
            Receiver::Initiator => {
                self.agreed.max_send_data_segment_length = length;
                length
            }
            Receiver::Target => {
                let length = length.min(self.limits.max_recv_data_segment_bytes);
                self.agreed.max_recv_data_segment_length = length;
                length
            }
        }
    }

    /// The answer to what we asked for: digests alone, which we insist on.
    fn take_answer(&mut self, row: &KeyRow, value: &str) -> Result<(), NegotiationFailed> {
        if value != CRC32C {
            return Err(without_digest(row.name, value));
        }
        match row.rule {
            Rule::HeaderDigest => self.agreed.header_digest = true,
            _ => self.agreed.data_digest = true,
        }
        Ok(())
    }

    /// What comes of the peer's value and ours, which is agreed on thereby.
    fn choose(&mut self, field: Field, choice: Choice, theirs: u64) -> u64 {
        let ours = self.own(field);
        let chosen = match choice {
            Choice::Least => ours.min(theirs),
            Choice::Greatest => ours.max(theirs),
        };
        self.set(field, chosen);
        chosen
    }

    /// What the target would have.
    fn own(&self, field: Field) -> u64 {
        let limits = &self.limits;
        match field {
            Field::MaxConnections => limits.connections_max.into(),
            Field::InitialR2t => limits.initial_r2t.into(),
            // Where the memory of a write begins must be known to read the rest of it.
            Field::ImmediateData => {
                let is_known = self.agreed.solicited_only.is_some() || !self.carrier.is_rdma();
                (limits.immediate_data && is_known).into()
            }
            Field::MaxBurstLength => limits.max_burst_bytes.into(),
            // At most MaxBurstLength, as negotiated or by default.
            Field::FirstBurstLength => limits
                .first_burst_bytes
                .min(self.agreed.max_burst_length)
                .into(),
            Field::DefaultTime2Wait => limits.time2wait_s.into(),
            Field::DefaultTime2Retain => limits.time2retain_s.into(),
            Field::MaxOutstandingR2t => limits.r2ts_max.into(),
            Field::DataPduInOrder | Field::DataSequenceInOrder => 1,
            Field::ErrorRecoveryLevel => limits.error_recovery_level.into(),
            Field::ProtocolLevel => PROTOCOL_LEVEL,
        }
    }

    fn set(&mut self, field: Field, value: u64) {
        let agreed = &mut self.agreed;
        let narrow = || u16::try_from(value).expect("the range of the row");
        match field {
            Field::MaxConnections => agreed.max_connections = narrow(),
            Field::InitialR2t => agreed.initial_r2t = value != 0,
            Field::ImmediateData => agreed.immediate_data = value != 0,
            Field::MaxBurstLength => agreed.max_burst_length = value as u32,
            Field::FirstBurstLength => agreed.first_burst_length = value as u32,
            Field::DefaultTime2Wait => agreed.default_time2wait = narrow(),
            Field::DefaultTime2Retain => agreed.default_time2retain = narrow(),
            Field::MaxOutstandingR2t => agreed.max_outstanding_r2t = narrow(),
            Field::DataPduInOrder => agreed.data_pdu_in_order = value != 0,
            Field::DataSequenceInOrder => agreed.data_sequence_in_order = value != 0,
            Field::ErrorRecoveryLevel => agreed.error_recovery_level = value as u8,
            // Nothing that is used depends on it.
            Field::ProtocolLevel => {}
        }
    }
}

/// The answer to a list of digests, and whether it is CRC32C: the first one
/// that we have and may use (section 6.2.1).
fn digest(
    key: &str,
    policy: DigestPolicy,
    list: &str,
) -> Result<(&'static str, bool), NegotiationFailed> {
    for item in list.split(',') {
        match (item, policy) {
            (CRC32C, DigestPolicy::Allowed | DigestPolicy::Required) => return Ok((CRC32C, true)),
            (NONE, DigestPolicy::Allowed | DigestPolicy::None) => return Ok((NONE, false)),
            _ => {}
        }
    }
    match policy {
        DigestPolicy::Required => Err(without_digest(key, list)),
        DigestPolicy::None | DigestPolicy::Allowed => Ok((REJECT, false)),
    }
}

/// The peer does without a digest that the target requires.
fn without_digest(key: &str, value: &str) -> NegotiationFailed {
    let remedy = "the target requires CRC32C: turn that on in the initiator, or allow others by \
                  `header_digest` and `data_digest`";
    NegotiationFailed::new(key, value, remedy)
}

#[cfg(test)]
mod tests;
