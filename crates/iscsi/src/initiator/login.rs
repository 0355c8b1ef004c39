//! Logging in: which keys go out, and what the answers come to (RFC 7143,
//! chapters 6, 12 and 13).

use auth::{Algorithm, Challenge, Secret, binary, chap};
use wire::iscsi::Stage;

use super::{Digest, InitiatorFatalError, InitiatorSettings, SessionType};
use crate::{LENGTH_MAX, LENGTH_MIN, Negotiated, text};

/// Random bytes that a login takes: an identifier and a challenge.
pub const RANDOM_LEN: usize = 1 + chap::CHALLENGE_LEN;
/// Requests until a login must have come to its end.
const ROUNDS_MAX: u8 = 16;

/// What the initiator proves with CHAP, and what the target has to prove.
#[derive(Clone, Debug)]
pub struct Chap {
    /// CHAP_N of the initiator.
    pub name: String,
    /// What the initiator proves to know.
    pub secret: Secret,
    /// CHAP_A offered, in this order.
    pub algorithms: Vec<Algorithm>,
    /// What the target must prove to know; `None`: nothing.
    pub mutual: Option<Secret>,
}

impl Chap {
    /// One-way, with the algorithms that nothing speaks against.
    pub fn new(name: &str, secret: Secret) -> Chap {
        Chap {
            name: name.to_owned(),
            secret,
            algorithms: Algorithm::STRONG.to_vec(),
            mutual: None,
        }
    }
}

/// One Login Request.
#[derive(Debug)]
pub(super) struct LoginText {
    pub(super) stage: Stage,
    /// The stage to go to, if this one is done.
    pub(super) next: Option<Stage>,
    pub(super) text: Vec<u8>,
}

/// What follows on a Login Response.
pub(super) enum LoginNext {
    Send(LoginText),
    Done(Negotiated),
}

#[derive(Debug)]
enum Proof {
    /// AuthMethod was offered.
    Offered,
    /// CHAP_A was offered.
    Algorithm,
    /// CHAP_R was sent, with a challenge for the target if that has to prove
    /// something.
    Sent(Option<Challenge>),
    /// There is nothing left to prove.
    Done,
}

#[derive(Debug)]
pub(super) struct Login {
    settings: InitiatorSettings,
    /// Joins a session that is there.
    is_joining: bool,
    stage: Stage,
    /// Where the last request wanted to go.
    asked: Option<Stage>,
    proof: Proof,
    /// Identifier and challenge for the target.
    random: [u8; RANDOM_LEN],
    rounds: u8,
    agreed: Negotiated,
    /// Keys of the target's that were not understood, to be told.
    unknown: Vec<String>,
}

impl Login {
    /// Of a session of its own, or of one that is there and has `agreed`.
    pub(super) fn new(
        settings: InitiatorSettings,
        agreed: Option<Negotiated>,
        random: [u8; RANDOM_LEN],
    ) -> Login {
        let stage = match settings.chap {
            Some(_) => Stage::Security,
            None => Stage::Operational,
        };
        // What the target says nothing about stays as the standard has it, but
        // not beyond the offer.
        let standard = Negotiated::default();
        let offered = Negotiated {
            first_burst_length: standard.first_burst_length.min(settings.first_burst),
            max_burst_length: standard.max_burst_length.min(settings.max_burst),
            immediate_data: settings.immediate_data,
            ..standard
        };
        Login {
            settings,
            is_joining: agreed.is_some(),
            stage,
            asked: None,
            proof: Proof::Offered,
            random,
            rounds: 0,
            agreed: agreed.unwrap_or(offered),
            unknown: Vec::new(),
        }
    }

    /// The first request.
    pub(super) fn first(&mut self) -> LoginText {
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &self.settings.initiator);
        match &self.settings.session_type {
            SessionType::Discovery => text::push(&mut text, "SessionType", "Discovery"),
            SessionType::Normal { target } => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", target);
            }
        }
        let Some(chap) = &self.settings.chap else {
            self.operational(&mut text);
            return self.request(Some(Stage::FullFeature), text);
        };
        let methods = if chap.mutual.is_some() {
            "CHAP"
        } else {
            "CHAP,None"
        };
        text::push(&mut text, "AuthMethod", methods);
        self.request(None, text)
    }

    fn request(&mut self, next: Option<Stage>, text: Vec<u8>) -> LoginText {
        self.asked = next;
        LoginText {
            stage: self.stage,
            next,
            text,
        }
    }

    /// Whether data is to be moved by RDMA, which a discovery session has none of.
    fn is_by_rdma(&self) -> bool {
        self.settings.rdma.is_some() && self.settings.session_type != SessionType::Discovery
    }

    /// The keys of the operational stage.
    fn operational(&self, text: &mut Vec<u8>) {
        let s = &self.settings;
        let digest = |digest| match digest {
            Digest::Never => "None",
            Digest::Preferred => "CRC32C,None",
            Digest::Required => "CRC32C",
        };
        text::push(text, "HeaderDigest", digest(s.header_digest));
        text::push(text, "DataDigest", digest(s.data_digest));
        let recv_max = s.max_recv_data_segment.to_string();
        match self.is_by_rdma() {
            true => {
                text::push(text, "InitiatorRecvDataSegmentLength", &recv_max);
                let send_max = s.first_burst.to_string();
                text::push(text, "TargetRecvDataSegmentLength", &send_max);
            }
            false => text::push(text, "MaxRecvDataSegmentLength", &recv_max),
        }
        if self.is_joining {
            return;
        }
        if self.is_by_rdma() {
            text::push(text, "RDMAExtensions", "Yes");
            text::push(text, "TaggedBufferForSolicitedDataOnly", "No");
        }
        text::push(text, "ErrorRecoveryLevel", "0");
        text::push(text, "DefaultTime2Wait", "2");
        text::push(text, "DefaultTime2Retain", "0");
        if s.session_type == SessionType::Discovery {
            return;
        }
        text::push(text, "MaxConnections", &s.max_connections.to_string());
        let initial_r2t = s.initial_r2t || self.is_by_rdma();
        text::push(text, "InitialR2T", text::yes_or_no(initial_r2t));
        text::push(text, "ImmediateData", text::yes_or_no(s.immediate_data));
        text::push(text, "MaxBurstLength", &s.max_burst.to_string());
        let first_burst = s.first_burst.min(s.max_burst);
        text::push(text, "FirstBurstLength", &first_burst.to_string());
        text::push(
            text,
            "MaxOutstandingR2T",
            &s.max_outstanding_r2t.to_string(),
        );
        text::push(text, "DataPDUInOrder", "Yes");
        text::push(text, "DataSequenceInOrder", "Yes");
    }

    /// The target's text goes on: the request that asks for the rest.
    pub(super) fn request_rest(&mut self) -> Result<LoginText, InitiatorFatalError> {
        self.count()?;
        Ok(self.request(None, Vec::new()))
    }

    fn count(&mut self) -> Result<(), InitiatorFatalError> {
        self.rounds += 1;
        match self.rounds > ROUNDS_MAX {
            true => Err(protocol("the login comes to no end")),
            false => Ok(()),
        }
    }

    /// Takes a successful Login Response: its CSG, where the target goes with
    /// it, and the whole text.
    pub(super) fn answer(
        &mut self,
        stage: u8,
        transit: Option<u8>,
        answer: &[u8],
    ) -> Result<LoginNext, InitiatorFatalError> {
        self.count()?;
        if stage != self.stage as u8 {
            return Err(protocol("it is of another stage"));
        }
        if transit.is_some() && transit != self.asked.map(|next| next as u8) {
            return Err(protocol("it goes to a stage that was not asked for"));
        }
        let transit = transit.and(self.asked);
        let keys = text::parse(answer).ok_or(protocol("text that is no key=value"))?;
        match self.stage {
            Stage::Security => self.security(transit, &keys),
            Stage::Operational | Stage::FullFeature => self.operational_answer(transit, &keys),
        }
    }

    fn security(
        &mut self,
        transit: Option<Stage>,
        keys: &[(&str, &str)],
    ) -> Result<LoginNext, InitiatorFatalError> {
        let value = |key| keys.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let mut text = Vec::new();
        match std::mem::replace(&mut self.proof, Proof::Done) {
            Proof::Offered => match value("AuthMethod") {
                Some("CHAP") => self.offer_algorithms(&mut text)?,
                Some("None") if self.chap().mutual.is_none() => {}
                _ => return Err(InitiatorFatalError::Negotiation { key: "AuthMethod" }),
            },
            Proof::Algorithm => self.prove(keys, &mut text)?,
            Proof::Sent(challenge) => self.check(challenge, value("CHAP_N"), value("CHAP_R"))?,
            Proof::Done => {}
        }
        match transit {
            Some(next) if matches!(self.proof, Proof::Done) => {
                self.stage = next;
                if next == Stage::FullFeature {
                    return Ok(LoginNext::Done(self.agreed));
                }
                self.operational(&mut text);
                Ok(LoginNext::Send(
                    self.request(Some(Stage::FullFeature), text),
                ))
            }
            Some(_) => Err(protocol("it leaves the stage before all is proven")),
            None => {
                // The last thing to send says that the stage can end.
                let can_end = !matches!(self.proof, Proof::Algorithm);
                let next = can_end.then_some(Stage::Operational);
                Ok(LoginNext::Send(self.request(next, text)))
            }
        }
    }

    fn chap(&self) -> &Chap {
        let chap = self.settings.chap.as_ref();
        chap.expect("the security stage is entered with CHAP alone")
    }

    fn offer_algorithms(&mut self, text: &mut Vec<u8>) -> Result<(), InitiatorFatalError> {
        let numbers = self.chap().algorithms.iter();
        let numbers: Vec<String> = numbers.map(|a| (*a as u8).to_string()).collect();
        text::push(text, "CHAP_A", &numbers.join(","));
        self.proof = Proof::Algorithm;
        Ok(())
    }

    /// Answers the target's challenge, and challenges the target.
    fn prove(
        &mut self,
        keys: &[(&str, &str)],
        text: &mut Vec<u8>,
    ) -> Result<(), InitiatorFatalError> {
        let value = |key| keys.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let number = value("CHAP_A").and_then(|number| number.parse().ok());
        let algorithm = number.and_then(Algorithm::from_number);
        let algorithm = algorithm.filter(|algorithm| self.chap().algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or(InitiatorFatalError::Negotiation { key: "CHAP_A" })?;
        let id: Option<u8> = value("CHAP_I").and_then(|id| id.parse().ok());
        let id = id.ok_or(InitiatorFatalError::Negotiation { key: "CHAP_I" })?;
        let bytes = value("CHAP_C").and_then(|c| binary::parse(c, chap::CHALLENGE_LEN_MAX));
        let bytes = bytes.ok_or(InitiatorFatalError::Negotiation { key: "CHAP_C" })?;
        let chap = self.chap();
        let response = algorithm.respond(id, &chap.secret, &bytes);
        text::push(text, "CHAP_N", &chap.name);
        text::push(text, "CHAP_R", &binary::hex(response.bytes()));
        let challenge = chap.mutual.as_ref().map(|_| Challenge {
            algorithm,
            id: self.random[0],
            bytes: self.random[1..]
                .try_into()
                .expect("all behind the identifier"),
        });
        if let Some(challenge) = &challenge {
            text::push(text, "CHAP_I", &challenge.id.to_string());
            text::push(text, "CHAP_C", &binary::hex(&challenge.bytes));
        }
        self.proof = Proof::Sent(challenge);
        Ok(())
    }

    /// Whether the target has proved what it had to.
    fn check(
        &self,
        challenge: Option<Challenge>,
        name: Option<&str>,
        response: Option<&str>,
    ) -> Result<(), InitiatorFatalError> {
        let (Some(challenge), Some(secret)) = (challenge, &self.chap().mutual) else {
            return Ok(());
        };
        let response = response.and_then(|r| binary::parse(r, chap::CHALLENGE_LEN_MAX));
        let Some(response) = response.filter(|_| name.is_some()) else {
            return Err(InitiatorFatalError::Authentication(
                "the target proves nothing",
            ));
        };
        match challenge.is_answered_by(&response, secret) {
            true => Ok(()),
            false => Err(InitiatorFatalError::Authentication(
                "the target does not know the secret",
            )),
        }
    }

    fn operational_answer(
        &mut self,
        transit: Option<Stage>,
        keys: &[(&str, &str)],
    ) -> Result<LoginNext, InitiatorFatalError> {
        for (key, value) in keys {
            self.take(key, value)?;
        }
        match transit {
            Some(Stage::FullFeature) if self.unknown.is_empty() => self.finish(),
            Some(Stage::FullFeature) => Err(protocol("it ends the login with questions open")),
            _ => {
                let mut text = Vec::new();
                for key in self.unknown.drain(..) {
                    text::push(&mut text, &key, text::NOT_UNDERSTOOD);
                }
                Ok(LoginNext::Send(
                    self.request(Some(Stage::FullFeature), text),
                ))
            }
        }
    }

    fn finish(&mut self) -> Result<LoginNext, InitiatorFatalError> {
        let s = &self.settings;
        for (key, wanted, has) in [
            ("HeaderDigest", s.header_digest, self.agreed.header_digest),
            ("DataDigest", s.data_digest, self.agreed.data_digest),
        ] {
            if wanted == Digest::Required && !has || wanted == Digest::Never && has {
                return Err(InitiatorFatalError::Negotiation { key });
            }
        }
        self.agreed.first_burst_length = self
            .agreed
            .first_burst_length
            .min(self.agreed.max_burst_length);
        self.agreed.max_recv_data_segment_length = s.max_recv_data_segment;
        if self.is_by_rdma() && !self.agreed.rdma_extensions {
            let key = "RDMAExtensions";
            return Err(InitiatorFatalError::Negotiation { key });
        }
        Ok(LoginNext::Done(self.agreed))
    }

    /// Takes what the target says to one key. What it may not say is an error:
    /// the answer to an offer is within the offer.
    fn take(&mut self, key: &str, value: &str) -> Result<(), InitiatorFatalError> {
        let is_by_rdma = self.is_by_rdma();
        let (s, agreed) = (&self.settings, &mut self.agreed);
        let digest = |name| match value {
            "CRC32C" => Ok(true),
            "None" => Ok(false),
            _ => Err(InitiatorFatalError::Negotiation { key: name }),
        };
        let number = |name, min, max| number(name, value, min, max);
        if [text::NOT_UNDERSTOOD, text::IRRELEVANT, text::REJECT].contains(&value) {
            return Ok(());
        }
        match key {
            "HeaderDigest" => agreed.header_digest = digest("HeaderDigest")?,
            "DataDigest" => agreed.data_digest = digest("DataDigest")?,
            "MaxRecvDataSegmentLength" => {
                agreed.max_send_data_segment_length =
                    number("MaxRecvDataSegmentLength", LENGTH_MIN, LENGTH_MAX)?;
            }
            "TargetPortalGroupTag" | "TargetAlias" | "TargetAddress" => {}
            "MaxBurstLength" => {
                agreed.max_burst_length = number("MaxBurstLength", LENGTH_MIN, s.max_burst)?;
            }
            "FirstBurstLength" => {
                agreed.first_burst_length = number("FirstBurstLength", LENGTH_MIN, s.first_burst)?;
            }
            "MaxOutstandingR2T" => {
                let max = u32::from(s.max_outstanding_r2t);
                agreed.max_outstanding_r2t = number("MaxOutstandingR2T", 1, max)? as u16;
            }
            "MaxConnections" => {
                let max = u32::from(s.max_connections);
                agreed.max_connections = number("MaxConnections", 1, max)? as u16;
            }
            "ErrorRecoveryLevel" => {
                agreed.error_recovery_level = number("ErrorRecoveryLevel", 0, 0)? as u8;
            }
            "InitialR2T" if value == "Yes" || !s.initial_r2t && !is_by_rdma && value == "No" => {
                agreed.initial_r2t = value == "Yes";
            }
            "InitialR2T" => return Err(InitiatorFatalError::Negotiation { key: "InitialR2T" }),
            "ImmediateData" if value == "No" || s.immediate_data && value == "Yes" => {
                agreed.immediate_data = value == "Yes";
            }
            "ImmediateData" => {
                return Err(InitiatorFatalError::Negotiation {
                    key: "ImmediateData",
                });
            }
            "DefaultTime2Wait" => {
                agreed.default_time2wait = number("DefaultTime2Wait", 2, 3600)? as u16;
            }
            "DefaultTime2Retain" => {
                agreed.default_time2retain = number("DefaultTime2Retain", 0, 0)? as u16;
            }
            "DataPDUInOrder" | "DataSequenceInOrder" | "IFMarker" | "OFMarker" => {}
            _ if is_by_rdma => return self.take_of_rdma(key, value),
            _ => self.unknown.push(key.to_owned()),
        }
        Ok(())
    }

    /// The same of a key that there is by RDMA alone.
    fn take_of_rdma(&mut self, key: &str, value: &str) -> Result<(), InitiatorFatalError> {
        let (s, agreed) = (&self.settings, &mut self.agreed);
        match key {
            "RDMAExtensions" if value == "Yes" => agreed.rdma_extensions = true,
            "InitiatorRecvDataSegmentLength" => {
                let name = "InitiatorRecvDataSegmentLength";
                number(name, value, LENGTH_MIN, s.max_recv_data_segment)?;
            }
            "TargetRecvDataSegmentLength" => {
                let name = "TargetRecvDataSegmentLength";
                let length = number(name, value, LENGTH_MIN, s.first_burst)?;
                agreed.max_send_data_segment_length = length;
            }
            "MaxOutstandingUnexpectedPDUs" | "MaxAHSLength" => {}
            _ => self.unknown.push(key.to_owned()),
        }
        Ok(())
    }
}

/// The number that is the value of `key`, from `min` to `max`.
fn number(key: &'static str, value: &str, min: u32, max: u32) -> Result<u32, InitiatorFatalError> {
    let number = text::number(value).and_then(|n| u32::try_from(n).ok());
    let number = number.filter(|n| (min..=max).contains(n));
    number.ok_or(InitiatorFatalError::Negotiation { key })
}

fn protocol(what: &'static str) -> InitiatorFatalError {
    InitiatorFatalError::Protocol {
        opcode: wire::iscsi::opcode::LOGIN_RESPONSE,
        what,
    }
}
