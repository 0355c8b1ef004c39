//! The host's end.

use auth::dhchap::{
    DhchapGroup, DhchapHash, DhchapKeyPair, DhchapResponse, DhchapSide, DhchapTerms, generated_psk,
};
use auth::psk::Psk;
use faults::Fault;
use wire::nvme::authentication::{
    ChallengeMessage, Concatenation, FailureExplanation, FailureMessage, MessageHeader, Negotiate,
    ProtocolDescriptor, ReplyMessage, Success1, Success2, auth_id, auth_type,
};
use zerocopy::IntoBytes;

use super::{DhchapChoice, DhchapKeys, FillRandom, challenge, kind_of, sequence_number, split};

/// Room for the longest message of a controller: of the longest hash and the largest group.
pub const RECEIVE_BYTES: u32 = 4096;

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Authentication Send of this message.
    Send(Vec<u8>),
    /// Authentication Receive.
    Receive,
    /// Nothing: both sides are content.
    Authenticated,
    /// Nothing: one of them is not, and why.
    Failed(String),
}

#[derive(Debug)]
enum HostStep {
    Negotiate,
    /// The challenge comes next.
    Negotiated,
    /// The reply goes next; what the controller must answer, one of these, if anything.
    Replying(Vec<DhchapResponse>),
    /// DH-HMAC-CHAP_Success1 comes next.
    Replied(Vec<DhchapResponse>),
    /// DH-HMAC-CHAP_Success2 was sent.
    Accepting,
    /// AUTH_Failure2 was sent.
    Refusing(String),
    Over,
}

/// One transaction, by one queue of a host.
#[derive(Debug)]
pub struct Authentication {
    keys: DhchapKeys,
    choice: DhchapChoice,
    hostnqn: String,
    subnqn: String,
    t_id: u16,
    concatenation: Option<Concatenation>,
    hash: Option<DhchapHash>,
    psk: Option<Psk>,
    step: HostStep,
}

/// What is wrong: for the controller, and for people.
type Mistake = (FailureExplanation, &'static str);

impl Authentication {
    /// Of a queue that `hostnqn` has connected to `subnqn`.
    #[must_use]
    pub fn new(
        (keys, choice): (DhchapKeys, DhchapChoice),
        (hostnqn, subnqn): (&str, &str),
        t_id: u16,
    ) -> Self {
        Authentication {
            keys,
            choice,
            hostnqn: hostnqn.to_owned(),
            subnqn: subnqn.to_owned(),
            t_id,
            concatenation: None,
            hash: None,
            psk: None,
            step: HostStep::Negotiate,
        }
    }

    /// The same, with a key for TLS made besides: see [`Authentication::psk`].
    #[must_use]
    pub fn concatenating(mut self, kind: Concatenation) -> Self {
        self.concatenation = Some(kind);
        // No cipher suite has SHA-512, and without a group there is no session key.
        self.choice.hashes.retain(|hash| hash.is_of_tls());
        self.choice
            .groups
            .retain(|group| *group != DhchapGroup::Null);
        self
    }

    /// The key for TLS that was made, once both sides are content.
    #[must_use]
    pub fn psk(&self) -> Option<&Psk> {
        self.psk.as_ref()
    }

    fn sc_c(&self) -> u8 {
        self.concatenation.map_or(0, |kind| kind as u8)
    }

    /// What is done first.
    pub fn begin(&mut self) -> Next {
        let descriptor = ProtocolDescriptor::new(
            &self
                .choice
                .hashes
                .iter()
                .map(|hash| *hash as u8)
                .collect::<Vec<_>>(),
            &self
                .choice
                .groups
                .iter()
                .map(|group| *group as u8)
                .collect::<Vec<_>>(),
        );
        let head = Negotiate {
            header: MessageHeader::common(auth_id::NEGOTIATE, self.t_id),
            sc_c: self.sc_c(),
            napd: 1,
        };
        Next::Send([head.as_bytes(), descriptor.as_bytes()].concat())
    }

    /// Whether a message of the controller comes next.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        matches!(self.step, HostStep::Negotiated | HostStep::Replied(_))
    }

    /// The message was taken.
    pub fn sent(&mut self) -> Next {
        match std::mem::replace(&mut self.step, HostStep::Over) {
            HostStep::Negotiate => {
                self.step = HostStep::Negotiated;
                Next::Receive
            }
            HostStep::Replying(wanted) => {
                self.step = HostStep::Replied(wanted);
                Next::Receive
            }
            HostStep::Accepting => Next::Authenticated,
            HostStep::Refusing(why) => Next::Failed(why),
            HostStep::Negotiated | HostStep::Replied(_) | HostStep::Over => {
                unreachable!("nothing was to be sent")
            }
        }
    }

    /// A message came. It takes up to tens of milliseconds to answer a challenge.
    pub fn received(&mut self, message: &[u8], random: FillRandom<'_>) -> Next {
        let step = std::mem::replace(&mut self.step, HostStep::Over);
        if let Some(why) = self.refused(message) {
            return Next::Failed(why);
        }
        let taken = match step {
            HostStep::Negotiated => self.challenged(message, random),
            HostStep::Replied(wanted) => self.accepted(message, wanted),
            _ => unreachable!("nothing was to be received"),
        };
        taken.unwrap_or_else(|(explanation, why)| {
            self.step = HostStep::Refusing(why.to_owned());
            let failure = FailureMessage::new(auth_id::FAILURE2, self.t_id, explanation);
            Next::Send(failure.as_bytes().to_vec())
        })
    }

    /// Why the controller refuses, if the message says so.
    fn refused(&self, message: &[u8]) -> Option<String> {
        let (failure, _) = split::<FailureMessage>(message)?;
        let MessageHeader {
            auth_type, auth_id, ..
        } = failure.header;
        if (auth_type, auth_id) != (auth_type::COMMON, auth_id::FAILURE1) {
            return None;
        }
        let said = FailureExplanation::name(failure.explanation);
        Some(format!("the controller refuses the host: {said}"))
    }

    fn expect<'m, T>(&self, message: &'m [u8], id: u8) -> Result<(&'m T, &'m [u8]), Mistake>
    where
        T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
    {
        match kind_of(message) {
            Some(((auth_type::DHCHAP, got), t_id)) if got == id && t_id == self.t_id => {}
            _ => {
                return Err((
                    FailureExplanation::IncorrectMessage,
                    "another message was due",
                ));
            }
        }
        split(message).ok_or(TOO_SHORT)
    }

    /// DH-HMAC-CHAP_Challenge (section 8.13.5.4.2).
    fn challenged(&mut self, message: &[u8], random: FillRandom<'_>) -> Result<Next, Mistake> {
        let (head, rest) = self.expect::<ChallengeMessage>(message, auth_id::CHALLENGE)?;
        let hash = DhchapHash::from_number(head.hashid)
            .filter(|hash| self.choice.hashes.contains(hash) && hash.len() == head.hl.into());
        let hash = hash.ok_or((
            FailureExplanation::HashNotUsable,
            "the controller chose a hash that it was not offered",
        ))?;
        let group =
            DhchapGroup::from_number(head.dhgid).filter(|group| self.choice.groups.contains(group));
        let group = group.ok_or((
            FailureExplanation::GroupNotUsable,
            "the controller chose a group that it was not offered",
        ))?;
        let dhvlen = group.value_len();
        if usize::from(head.dhvlen.get()) != dhvlen || rest.len() < hash.len() + dhvlen {
            return Err(TOO_SHORT);
        }
        let (c1, rest) = rest.split_at(hash.len());
        let pair = DhchapKeyPair::new(group, random);
        let session_key = match &pair {
            None => None,
            Some(pair) => {
                let shared = pair.agree(&rest[..dhvlen]).ok_or((
                    FailureExplanation::IncorrectPayload,
                    "the controller's Diffie-Hellman value is none of the group",
                ))?;
                Some(hash.session_key(&shared))
            }
        };
        let terms = DhchapTerms {
            hash,
            session_key: session_key.as_ref(),
            t_id: self.t_id,
            sc_c: self.sc_c(),
            hostnqn: &self.hostnqn,
            subnqn: &self.subnqn,
        };
        let seqnum = head.seqnum.get();
        let own = &self.keys.host.first().expect("a host has a secret").key;
        let response = terms.response(DhchapSide::Host, own, c1, seqnum);
        let (mut c2, mut seqnum, mut wanted) = (vec![0; hash.len()], 0, Vec::new());
        let has_challenge = self.keys.controller.is_some() || self.concatenation.is_some();
        if has_challenge {
            c2 = challenge(hash, random);
        }
        if let Some(own) = &self.keys.controller {
            seqnum = sequence_number(random);
            // Linux's controller computes its response with an SC_C of 0. What the host has
            // asked for is protected by its own response.
            wanted = [terms.sc_c, 0]
                .map(|sc_c| {
                    let terms = DhchapTerms { sc_c, ..terms };
                    terms.response(DhchapSide::Controller, own, &c2, seqnum)
                })
                .into();
        }
        if let (Some(_), Some(session_key)) = (self.concatenation, &session_key) {
            self.psk = generated_psk(hash, session_key, c1, &c2);
        }
        let value = pair.as_ref().map_or(&[][..], DhchapKeyPair::public);
        let (hl, dhvlen) = (hash.len() as u8, dhvlen as u16);
        let head = ReplyMessage::new(self.t_id, hl, has_challenge, dhvlen, seqnum);
        let reply = [head.as_bytes(), response.bytes(), &c2, value].concat();
        self.hash = Some(hash);
        self.step = HostStep::Replying(wanted);
        Ok(Next::Send(reply))
    }

    /// DH-HMAC-CHAP_Success1 (section 8.13.5.4.4).
    fn accepted(&mut self, message: &[u8], wanted: Vec<DhchapResponse>) -> Result<Next, Mistake> {
        let (head, rest) = self.expect::<Success1>(message, auth_id::SUCCESS1)?;
        let hl = self.hash.map_or(0, DhchapHash::len);
        if usize::from(head.hl) != hl {
            return Err(TOO_SHORT);
        }
        if wanted.is_empty() {
            return Ok(Next::Authenticated);
        }
        let response = rest.get(..hl).filter(|_| head.rvalid == 1);
        let is_wanted = |response| {
            wanted.iter().any(|wanted| wanted.matches(response))
                || faults::is(Fault::AnyControllerResponse)
        };
        if !response.is_some_and(is_wanted) {
            return Err((
                FailureExplanation::Failed,
                "the controller does not know its secret: it is another subsystem, or the \
                 secret of the controller is not the one that it has",
            ));
        }
        self.step = HostStep::Accepting;
        Ok(Next::Send(Success2::new(self.t_id).as_bytes().to_vec()))
    }
}

const TOO_SHORT: Mistake = (
    FailureExplanation::IncorrectPayload,
    "a message of the controller has wrong lengths",
);
