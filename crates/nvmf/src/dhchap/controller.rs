//! The controller's end.

use std::mem;

use auth::HostDhchap;
use auth::dhchap::{
    DhchapGroup, DhchapHash, DhchapKey, DhchapKeyPair, DhchapResponse, DhchapSide, DhchapTerms,
    generated_psk,
};
use auth::psk::Psk;
use faults::Fault;
use wire::nvme::Status;
use wire::nvme::authentication::{
    ChallengeMessage, Concatenation, FailureExplanation, FailureMessage, Negotiate,
    ProtocolDescriptor, ReplyMessage, Success1, auth_id, auth_type,
};
use zerocopy::IntoBytes;

use super::{DhchapChoice, DhchapKeys, FillRandom, challenge, kind_of, sequence_number, split};

/// What a queue takes of secure channel concatenation (Base 2.1, section 8.3.4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcatenationTerms {
    /// Nothing: it is an I/O queue, or its transport has no TLS.
    None,
    /// The host may ask for this.
    Allowed(Concatenation),
    /// The host has to: it may use the subsystem by TLS alone.
    Required(Concatenation),
}

/// What a transaction is about.
#[derive(Clone, Debug)]
struct Transaction {
    t_id: u16,
    concatenation: Option<Concatenation>,
    hash: DhchapHash,
    group: DhchapGroup,
    keys: DhchapKeys,
}

/// What the controller has computed of a reply that is right.
#[derive(Debug)]
struct Proof {
    transaction: Transaction,
    /// The secret that the host knows.
    secret: DhchapKey,
    /// The controller's response, if the host wants one.
    response: Option<DhchapResponse>,
    /// The key for TLS, if the host wants one.
    psk: Option<Psk>,
}

/// What the host was asked.
#[derive(Debug)]
struct OpenChallenge {
    transaction: Transaction,
    seqnum: u32,
    challenge: Vec<u8>,
    pair: Option<DhchapKeyPair>,
}

#[derive(Debug)]
enum ControllerStep {
    /// AUTH_Negotiate must come.
    Idle,
    /// The host asks for the challenge next.
    Negotiated(Transaction),
    /// Work is being done; the T_ID of it.
    Working(u16),
    /// The host answers.
    Challenged(OpenChallenge),
    /// The host asks for DH-HMAC-CHAP_Success1 next.
    Verified(Proof),
    /// The host says whether it is content with that.
    Answered(Proof),
    /// The host asks for AUTH_Failure1 next.
    Failed(u16, FailureExplanation),
}

/// What becomes of an Authentication Send or Receive.
#[derive(Debug)]
pub enum Answer {
    /// Complete it so.
    Status(Status),
    /// Complete an Authentication Receive with this message.
    Message(Vec<u8>),
    /// Do this, give it to [`Authentication::worked`], and complete the command with what
    /// that says.
    Work(Work),
}

impl Answer {
    /// In place of an answer that tells the host of success: it has proven to know its secret,
    /// and is refused all the same.
    #[must_use]
    pub fn refused(self) -> Answer {
        match self {
            Answer::Message(message) => {
                let t_id = kind_of(&message).map_or(0, |(_, t_id)| t_id);
                let failed = FailureExplanation::Failed;
                let message = FailureMessage::new(auth_id::FAILURE1, t_id, failed);
                Answer::Message(message.as_bytes().to_vec())
            }
            // Behind DH-HMAC-CHAP_Success2 the host asks for no message.
            _ => Answer::Status(Status::AUTHENTICATION_REQUIRED.dnr()),
        }
    }
}

/// What changed for the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its host has proven to know a secret.
    Authenticated {
        /// This one of those that were the host's when it began.
        secret: DhchapKey,
        /// By this hash.
        hash: DhchapHash,
        /// In this group.
        group: DhchapGroup,
        /// The controller has proven to know its own.
        is_mutual: bool,
        /// The key for TLS that both have now, where the host has asked for one.
        psk: Option<Psk>,
    },
    /// It has not, or is not content.
    Failed {
        /// Why, for an administrator: the host is told less.
        why: String,
        /// Both sides have another secret.
        is_secret: bool,
    },
}

/// What takes up to tens of milliseconds.
#[derive(Debug)]
pub struct Work(WorkKind);

#[derive(Debug)]
enum WorkKind {
    /// A key pair for a challenge.
    Pair(Transaction),
    /// The host's response is looked at.
    Verify(Box<Verification>),
}

#[derive(Debug)]
struct Verification {
    asked: OpenChallenge,
    hostnqn: String,
    subnqn: String,
    response: Vec<u8>,
    value: Vec<u8>,
    /// The host's challenge.
    challenge: Option<Vec<u8>>,
    /// Its sequence number; 0: it is for a key alone, and not to be answered.
    seqnum: u32,
}

/// What came of a [`Work`].
#[derive(Debug)]
pub struct Worked(WorkedKind);

#[derive(Debug)]
enum WorkedKind {
    Pair(OpenChallenge),
    Verified(Proof),
    Failed(u16, Mistake),
}

/// What is wrong: for the host, and for an administrator.
type Mistake = (FailureExplanation, String);

fn mistake<T>(explanation: FailureExplanation, why: impl Into<String>) -> Result<T, Mistake> {
    Err((explanation, why.into()))
}

impl Work {
    /// Whether it takes long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let group = match &self.0 {
            WorkKind::Pair(transaction) => transaction.group,
            WorkKind::Verify(verification) => verification.asked.transaction.group,
        };
        group != DhchapGroup::Null
    }

    /// Does it.
    #[must_use]
    pub fn run(self, random: FillRandom<'_>) -> Worked {
        Worked(match self.0 {
            WorkKind::Pair(transaction) => WorkedKind::Pair(OpenChallenge {
                pair: DhchapKeyPair::new(transaction.group, random),
                seqnum: sequence_number(random),
                challenge: challenge(transaction.hash, random),
                transaction,
            }),
            WorkKind::Verify(verification) => {
                let t_id = verification.asked.transaction.t_id;
                match verification.verify() {
                    Ok(proof) => WorkedKind::Verified(proof),
                    Err(mistake) => WorkedKind::Failed(t_id, mistake),
                }
            }
        })
    }
}

impl Verification {
    fn verify(self) -> Result<Proof, Mistake> {
        let Transaction {
            t_id,
            concatenation,
            hash,
            keys,
            ..
        } = &self.asked.transaction;
        let session_key = match &self.asked.pair {
            None => None,
            Some(pair) => match pair.agree(&self.value) {
                Some(shared) => Some(hash.session_key(&shared)),
                None => {
                    let why = "its Diffie-Hellman value is none of the group";
                    return mistake(FailureExplanation::IncorrectPayload, why);
                }
            },
        };
        let terms = DhchapTerms {
            hash: *hash,
            session_key: session_key.as_ref(),
            t_id: *t_id,
            sc_c: concatenation.map_or(0, |kind| kind as u8),
            hostnqn: &self.hostnqn,
            subnqn: &self.subnqn,
        };
        let (challenge, seqnum) = (&self.asked.challenge, self.asked.seqnum);
        let is_proven = |known: &&HostDhchap| {
            let wanted = terms.response(DhchapSide::Host, &known.key, challenge, seqnum);
            wanted.matches(&self.response) || faults::is(Fault::AnyResponse)
        };
        let Some(proven) = keys.host.iter().find(is_proven) else {
            let why = match keys.host.iter().all(|known| known.key.is_withdrawn()) {
                true => {
                    "the host's secret was taken back: its key was revoked or has expired; put \
                     another in its place, and give it to the host (`--dhchap-secret`)"
                }
                false => "the host's secret (`--dhchap-secret`) is not the one configured for it",
            };
            return mistake(FailureExplanation::Failed, why);
        };
        let mut proof = Proof {
            transaction: self.asked.transaction.clone(),
            secret: proven.key.clone(),
            response: None,
            psk: None,
        };
        let Some(theirs) = &self.challenge else {
            return Ok(proof);
        };
        if let (Some(_), Some(session_key)) = (concatenation, &session_key) {
            proof.psk = generated_psk(*hash, session_key, challenge, theirs);
        }
        if self.seqnum != 0 {
            let Some(own) = &keys.controller else {
                let why = "the host wants weft to prove itself (`--dhchap-ctrl-secret`), and no \
                           `dhchap_ctrl_secret_file` is configured for it";
                return mistake(FailureExplanation::Failed, why);
            };
            let response = terms.response(DhchapSide::Controller, own, theirs, self.seqnum);
            proof.response = Some(response);
        }
        Ok(proof)
    }
}

/// The authentication of one queue's host, any number of times.
#[derive(Debug)]
pub struct Authentication {
    hostnqn: String,
    subnqn: String,
    concatenation: ConcatenationTerms,
    step: ControllerStep,
    outcome: Option<Outcome>,
}

impl Authentication {
    /// Of a queue that `hostnqn` has connected to `subnqn`.
    #[must_use]
    pub fn new(hostnqn: &str, subnqn: &str, concatenation: ConcatenationTerms) -> Self {
        Authentication {
            hostnqn: hostnqn.to_owned(),
            subnqn: subnqn.to_owned(),
            concatenation,
            step: ControllerStep::Idle,
            outcome: None,
        }
    }

    /// Whether the host is to make a key for TLS, without which it is not admitted.
    #[must_use]
    pub fn needs_key(&self) -> bool {
        matches!(self.concatenation, ConcatenationTerms::Required(_))
    }

    /// What changed since it was asked last.
    pub fn take_outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// A message of an Authentication Send, whose length is the command's. `keys` are the
    /// host's as of now.
    pub fn send(&mut self, message: &[u8], keys: &DhchapKeys, choice: &DhchapChoice) -> Answer {
        if let ControllerStep::Working(_) = self.step {
            return Answer::Status(Status::COMMAND_SEQUENCE.dnr());
        }
        let mut t_id = self.t_id();
        let step = mem::replace(&mut self.step, ControllerStep::Idle);
        match self.take(step, message, keys, choice, &mut t_id) {
            Ok(answer) => answer,
            Err(mistake) => {
                self.fail(t_id, mistake);
                Answer::Status(Status::SUCCESS)
            }
        }
    }

    fn take(
        &mut self,
        step: ControllerStep,
        message: &[u8],
        keys: &DhchapKeys,
        choice: &DhchapChoice,
        t_id: &mut u16,
    ) -> Result<Answer, Mistake> {
        use auth_type::{COMMON, DHCHAP};
        let Some((kind, theirs)) = kind_of(message) else {
            return mistake(
                FailureExplanation::IncorrectPayload,
                "a message is too short",
            );
        };
        if kind == (COMMON, auth_id::NEGOTIATE) {
            *t_id = theirs;
            let transaction = self.negotiate(message, keys, choice)?;
            self.step = ControllerStep::Negotiated(transaction);
            return Ok(Answer::Status(Status::SUCCESS));
        }
        let is_next = matches!(
            (&step, kind),
            (ControllerStep::Challenged(_), (DHCHAP, auth_id::REPLY))
                | (ControllerStep::Answered(_), (DHCHAP, auth_id::SUCCESS2))
                | (
                    ControllerStep::Challenged(_) | ControllerStep::Answered(_),
                    (COMMON, auth_id::FAILURE2)
                )
        );
        if !is_next {
            let why = format!("message {:02x}h of type {:02x}h is not due", kind.1, kind.0);
            return mistake(FailureExplanation::IncorrectMessage, why);
        }
        if theirs != *t_id {
            let why = "a message is of another transaction";
            return mistake(FailureExplanation::IncorrectPayload, why);
        }
        if kind == (COMMON, auth_id::FAILURE2) {
            self.refused_by_host(message)?;
            return Ok(Answer::Status(Status::SUCCESS));
        }
        match step {
            ControllerStep::Challenged(asked) => {
                let verification = self.reply(asked, message)?;
                self.step = ControllerStep::Working(theirs);
                let work = WorkKind::Verify(Box::new(verification));
                Ok(Answer::Work(Work(work)))
            }
            ControllerStep::Answered(proof) => {
                self.succeed(proof);
                Ok(Answer::Status(Status::SUCCESS))
            }
            _ => unreachable!("a message is due in these steps"),
        }
    }

    /// AUTH_Negotiate (section 8.13.4.1): the first of ours that the host has too.
    fn negotiate(
        &self,
        message: &[u8],
        keys: &DhchapKeys,
        choice: &DhchapChoice,
    ) -> Result<Transaction, Mistake> {
        let Some((negotiate, rest)) = split::<Negotiate>(message) else {
            return mistake(
                FailureExplanation::IncorrectPayload,
                "a message is too short",
            );
        };
        let concatenation = concatenation(negotiate.sc_c, self.concatenation)?;
        let descriptor = descriptor(negotiate, rest)?;
        let hashes = descriptor.hashes.get(..descriptor.halen.into());
        let groups = descriptor.groups.get(..descriptor.dhlen.into());
        let (Some(hashes), Some(groups)) = (hashes, groups) else {
            let why = "the host names more hashes or groups than there is room for";
            return mistake(FailureExplanation::IncorrectPayload, why);
        };
        let mut own = choice.hashes.iter();
        let is_usable = |hash: &DhchapHash| concatenation.is_none() || hash.is_of_tls();
        let hash = own.find(|own| hashes.contains(&(**own as u8)) && is_usable(own));
        let Some(hash) = hash else {
            let why = match concatenation {
                None => "the host takes none of the subsystem's `dhchap_hashes`",
                Some(_) => {
                    "TLS behind authentication (`--concat`) needs sha256 or sha384, and the host \
                     and the subsystem's `dhchap_hashes` have neither in common"
                }
            };
            return mistake(FailureExplanation::HashNotUsable, why);
        };
        let mut own = choice.groups.iter();
        let mut common = own.by_ref().filter(|own| groups.contains(&(**own as u8)));
        let Some(first) = common.next() else {
            let why = "the host takes none of the subsystem's `dhchap_groups`";
            return mistake(FailureExplanation::GroupNotUsable, why);
        };
        let is_usable =
            |group: &&DhchapGroup| concatenation.is_none() || **group != DhchapGroup::Null;
        let Some(group) = Some(first).into_iter().chain(common).find(is_usable) else {
            let why = "TLS behind authentication (`--concat`) needs a group, and the host and the \
                       subsystem's `dhchap_groups` have none but null in common";
            return mistake(FailureExplanation::ConcatenationMismatch, why);
        };
        Ok(Transaction {
            t_id: negotiate.header.t_id.get(),
            concatenation,
            hash: *hash,
            group: *group,
            keys: keys.clone(),
        })
    }

    /// DH-HMAC-CHAP_Reply (section 8.13.5.4.3).
    fn reply(&self, asked: OpenChallenge, message: &[u8]) -> Result<Verification, Mistake> {
        let incorrect = |what: &str| {
            let why = format!("the host's reply has {what}");
            mistake(FailureExplanation::IncorrectPayload, why)
        };
        let Some((reply, rest)) = split::<ReplyMessage>(message) else {
            return incorrect("too few bytes");
        };
        let (hl, dhvlen) = (
            asked.transaction.hash.len(),
            asked.transaction.group.value_len(),
        );
        if usize::from(reply.hl) != hl {
            return incorrect("the length of another hash");
        }
        if usize::from(reply.dhvlen.get()) != dhvlen {
            return incorrect("the length of another group");
        }
        let seqnum = reply.seqnum.get();
        let has_challenge = match reply.cvalid {
            0 => false,
            1 => true,
            _ => return incorrect("a CVALID that is neither 0 nor 1"),
        };
        let makes_key = asked.transaction.concatenation.is_some();
        if has_challenge && seqnum == 0 && !makes_key {
            return incorrect("a challenge with sequence number 0");
        }
        if makes_key && !has_challenge {
            return incorrect("no challenge, of which a key for TLS is made");
        }
        if rest.len() < 2 * hl + dhvlen {
            return incorrect("too few bytes");
        }
        let (response, rest) = rest.split_at(hl);
        let (theirs, rest) = rest.split_at(hl);
        if has_challenge && theirs == asked.challenge {
            return incorrect("the challenge that it was sent");
        }
        Ok(Verification {
            hostnqn: self.hostnqn.clone(),
            subnqn: self.subnqn.clone(),
            response: response.to_vec(),
            value: rest[..dhvlen].to_vec(),
            challenge: has_challenge.then(|| theirs.to_vec()),
            seqnum,
            asked,
        })
    }

    /// AUTH_Failure2: the host ends the transaction.
    fn refused_by_host(&mut self, message: &[u8]) -> Result<(), Mistake> {
        let Some((failure, _)) = split::<FailureMessage>(message) else {
            return mistake(
                FailureExplanation::IncorrectPayload,
                "a message is too short",
            );
        };
        let why = match failure.explanation {
            code if code == FailureExplanation::Failed as u8 => {
                "the host refuses weft: its `--dhchap-ctrl-secret` is not the one configured for \
                 it (`dhchap_ctrl_secret_file`)"
                    .to_owned()
            }
            code => format!("the host refuses weft: {}", FailureExplanation::name(code)),
        };
        self.outcome = Some(Outcome::Failed {
            why,
            is_secret: failure.explanation == FailureExplanation::Failed as u8,
        });
        Ok(())
    }

    /// An Authentication Receive with room for `len` bytes.
    pub fn receive(&mut self, len: u32) -> Answer {
        let len = len as usize;
        let message = match &self.step {
            ControllerStep::Idle
            | ControllerStep::Working(_)
            | ControllerStep::Challenged(_)
            | ControllerStep::Answered(_) => {
                return Answer::Status(Status::COMMAND_SEQUENCE.dnr());
            }
            ControllerStep::Negotiated(transaction) => {
                let (hash, group) = (transaction.hash, transaction.group);
                if len < size_of::<ChallengeMessage>() + hash.len() + group.value_len() {
                    return Answer::Status(Status::INVALID_FIELD.dnr());
                }
                let work = Work(WorkKind::Pair(transaction.clone()));
                self.step = ControllerStep::Working(transaction.t_id);
                return Answer::Work(work);
            }
            ControllerStep::Verified(proof) => {
                let Transaction { t_id, hash, .. } = proof.transaction;
                let head = Success1::new(t_id, hash.len() as u8, proof.response.is_some());
                let response = proof
                    .response
                    .as_ref()
                    .map_or(&[][..], DhchapResponse::bytes);
                [head.as_bytes(), response].concat()
            }
            ControllerStep::Failed(t_id, explanation) => {
                let message = FailureMessage::new(auth_id::FAILURE1, *t_id, *explanation);
                message.as_bytes().to_vec()
            }
        };
        if len < message.len() {
            return Answer::Status(Status::INVALID_FIELD.dnr());
        }
        if let ControllerStep::Verified(proof) = mem::replace(&mut self.step, ControllerStep::Idle)
        {
            match proof.response {
                Some(_) => self.step = ControllerStep::Answered(proof),
                None => self.succeed(proof),
            }
        }
        Answer::Message(message)
    }

    /// The work of an [`Answer::Work`] is done: what completes its command.
    pub fn worked(&mut self, worked: Worked) -> Answer {
        match worked.0 {
            WorkedKind::Pair(asked) => {
                let message = challenge_message(&asked);
                self.step = ControllerStep::Challenged(asked);
                Answer::Message(message)
            }
            WorkedKind::Verified(proof) => {
                self.step = ControllerStep::Verified(proof);
                Answer::Status(Status::SUCCESS)
            }
            WorkedKind::Failed(t_id, mistake) => {
                self.fail(t_id, mistake);
                Answer::Status(Status::SUCCESS)
            }
        }
    }

    fn succeed(&mut self, proof: Proof) {
        self.outcome = Some(Outcome::Authenticated {
            secret: proof.secret,
            hash: proof.transaction.hash,
            group: proof.transaction.group,
            is_mutual: proof.response.is_some(),
            psk: proof.psk,
        });
    }

    fn fail(&mut self, t_id: u16, (explanation, why): Mistake) {
        self.step = ControllerStep::Failed(t_id, explanation);
        self.outcome = Some(Outcome::Failed {
            why,
            is_secret: explanation == FailureExplanation::Failed,
        });
    }

    /// Of the transaction, 0 where there is none.
    fn t_id(&self) -> u16 {
        match &self.step {
            ControllerStep::Idle => 0,
            ControllerStep::Negotiated(transaction) => transaction.t_id,
            ControllerStep::Verified(proof) | ControllerStep::Answered(proof) => {
                proof.transaction.t_id
            }
            ControllerStep::Challenged(asked) => asked.transaction.t_id,
            ControllerStep::Working(t_id) | ControllerStep::Failed(t_id, _) => *t_id,
        }
    }
}

/// What of secure channel concatenation SC_C asks for, on a queue that takes `terms` of it.
fn concatenation(sc_c: u8, terms: ConcatenationTerms) -> Result<Option<Concatenation>, Mistake> {
    use Concatenation::{NewTlsPsk, ReplaceTlsPsk};
    let refused = |why| mistake(FailureExplanation::ConcatenationMismatch, why);
    let kind = match terms {
        ConcatenationTerms::None if sc_c == 0 => return Ok(None),
        ConcatenationTerms::Allowed(_) if sc_c == 0 => return Ok(None),
        ConcatenationTerms::None => {
            return refused(
                "the host wants a key for TLS, which an Admin Queue by TCP alone makes",
            );
        }
        ConcatenationTerms::Required(_) if sc_c == 0 => {
            return refused(
                "the host may connect by TLS alone, and asks for no key: connect with --concat, or \
                 with --tls and a key of its own",
            );
        }
        ConcatenationTerms::Allowed(kind) | ConcatenationTerms::Required(kind) => kind,
    };
    match kind {
        _ if sc_c == kind as u8 => Ok(Some(kind)),
        ReplaceTlsPsk if sc_c == NewTlsPsk as u8 => {
            refused("the host wants its first key for TLS (NEWTLSPSK) on a connection with TLS")
        }
        NewTlsPsk if sc_c == ReplaceTlsPsk as u8 => refused(
            "the host wants another key for TLS (REPLACETLSPSK) on a connection without TLS",
        ),
        _ => refused("the host wants a secure channel of a kind that is not known"),
    }
}

/// The protocol descriptor of DH-HMAC-CHAP behind the head of AUTH_Negotiate.
fn descriptor<'a>(
    negotiate: &Negotiate,
    descriptors: &'a [u8],
) -> Result<&'a ProtocolDescriptor, Mistake> {
    let count = usize::from(negotiate.napd);
    let descriptors = descriptors
        .as_chunks::<{ size_of::<ProtocolDescriptor>() }>()
        .0;
    let Some(descriptors) = descriptors.get(..count).filter(|some| !some.is_empty()) else {
        let why = "the host names fewer protocols than it says";
        return mistake(FailureExplanation::IncorrectPayload, why);
    };
    let mut read = descriptors.iter().filter_map(|bytes| split(bytes));
    let found = read.find(|(descriptor, _): &(&ProtocolDescriptor, _)| {
        descriptor.authid == ProtocolDescriptor::DHCHAP
    });
    let Some((descriptor, _)) = found else {
        let why = "the host does not name DH-HMAC-CHAP";
        return mistake(FailureExplanation::ProtocolNotUsable, why);
    };
    Ok(descriptor)
}

fn challenge_message(asked: &OpenChallenge) -> Vec<u8> {
    let Transaction {
        t_id, hash, group, ..
    } = asked.transaction;
    let value = asked.pair.as_ref().map_or(&[][..], DhchapKeyPair::public);
    let head = ChallengeMessage::new(
        t_id,
        (hash as u8, hash.len() as u8),
        (group as u8, value.len() as u16),
        asked.seqnum,
    );
    [head.as_bytes(), &asked.challenge, value].concat()
}
