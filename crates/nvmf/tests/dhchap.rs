//! DH-HMAC-CHAP: the host's and the controller's end against each other, and the
//! controller's against hosts that break the rules.
#![allow(missing_docs)]

use std::time::Duration;

use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey, DhchapKeyPair, DhchapSide, DhchapTerms};
use auth::psk::{Psk, PskHash};
use auth::{HostDhchap, Secret};
use nvmf::dhchap::controller::{Answer, Authentication, ConcatenationTerms, Outcome};
use nvmf::dhchap::host::{self, Next};
use nvmf::dhchap::{DhchapChoice, DhchapKeys};
use proptest::prelude::*;
use random::Random;
use wire::nvme::Status;
use wire::nvme::authentication::{
    ChallengeMessage, Concatenation, FailureExplanation, FailureMessage, MessageHeader, Negotiate,
    ProtocolDescriptor, Success1, Success2, auth_id,
};
use zerocopy::IntoBytes;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";
const T_ID: u16 = 0x1234;

fn key(hash: DhchapHash, seed: u64) -> DhchapKey {
    let mut random = Random::new(seed);
    DhchapKey::new(hash, &mut |bytes| fill(&mut random, bytes))
}

fn fill(random: &mut Random, bytes: &mut [u8]) {
    bytes
        .iter_mut()
        .for_each(|byte| *byte = random.below(256) as u8);
}

fn keys(controller: Option<u64>) -> DhchapKeys {
    DhchapKeys {
        host: vec![key(DhchapHash::Sha256, 1).into()],
        controller: controller.map(|seed| key(DhchapHash::Sha512, seed)),
    }
}

fn only(hash: DhchapHash, group: DhchapGroup) -> DhchapChoice {
    DhchapChoice {
        hashes: vec![hash],
        groups: vec![group],
    }
}

fn quick() -> DhchapChoice {
    only(DhchapHash::Sha256, DhchapGroup::Null)
}

/// A controller's end, whose work is done at once.
struct Controller {
    machine: Authentication,
    keys: DhchapKeys,
    choice: DhchapChoice,
    random: Random,
    outcomes: Vec<Outcome>,
}

impl Controller {
    fn new(keys: DhchapKeys, choice: DhchapChoice) -> Self {
        Controller {
            machine: Authentication::new(HOST, SUBSYSTEM, ConcatenationTerms::None),
            keys,
            choice,
            random: Random::new(7),
            outcomes: Vec::new(),
        }
    }

    /// The same, of a queue that takes `terms` of secure channel concatenation.
    fn concatenating(keys: DhchapKeys, choice: DhchapChoice, terms: ConcatenationTerms) -> Self {
        Controller {
            machine: Authentication::new(HOST, SUBSYSTEM, terms),
            ..Controller::new(keys, choice)
        }
    }

    fn settle(&mut self, answer: Answer) -> Result<Vec<u8>, Status> {
        let answer = match answer {
            Answer::Work(work) => {
                // Nothing of another transaction gets in between.
                let busy = Status::COMMAND_SEQUENCE.dnr();
                let sent = self.machine.send(&[0; 72], &self.keys, &self.choice);
                assert!(matches!(sent, Answer::Status(status) if status == busy));
                let received = self.machine.receive(4096);
                assert!(matches!(received, Answer::Status(status) if status == busy));
                let worked = work.run(&mut |bytes| fill(&mut self.random, bytes));
                self.machine.worked(worked)
            }
            answer => answer,
        };
        self.outcomes.extend(self.machine.take_outcome());
        match answer {
            Answer::Status(status) if status.is_success() => Ok(Vec::new()),
            Answer::Status(status) => Err(status),
            Answer::Message(message) => Ok(message),
            Answer::Work(_) => panic!("work makes no work"),
        }
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Status> {
        let answer = self.machine.send(message, &self.keys, &self.choice);
        self.settle(answer).map(drop)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Status> {
        let answer = self.machine.receive(4096);
        self.settle(answer)
    }

    /// The explanation of AUTH_Failure1, which comes next.
    fn failure(&mut self, t_id: u16) -> u8 {
        let message = self.receive().expect("a message");
        let (expected, at) = (message.len() == 8, message[7]);
        assert!(expected && message[..6] == [0, 0xf1, 0, 0, t_id as u8, (t_id >> 8) as u8]);
        assert_eq!(message[6], 1, "authentication failure");
        assert!(matches!(self.outcomes.last(), Some(Outcome::Failed { .. })));
        at
    }

    /// A host with `keys` goes through all of it.
    fn meet(&mut self, keys: DhchapKeys, choice: DhchapChoice) -> Next {
        let mut end = host::Authentication::new((keys, choice), (HOST, SUBSYSTEM), T_ID);
        self.meet_host(&mut end)
    }

    /// The same with a key for TLS, and the one that the host has then.
    fn meet_and_make_key(
        &mut self,
        keys: DhchapKeys,
        choice: DhchapChoice,
        kind: Concatenation,
    ) -> (Next, Option<Psk>) {
        let end = host::Authentication::new((keys, choice), (HOST, SUBSYSTEM), T_ID);
        let mut end = end.concatenating(kind);
        let next = self.meet_host(&mut end);
        (next, end.psk().cloned())
    }

    fn meet_host(&mut self, end: &mut host::Authentication) -> Next {
        let mut random = Random::new(9);
        let mut next = end.begin();
        loop {
            next = match next {
                Next::Send(message) => {
                    self.send(&message).expect("taken");
                    end.sent()
                }
                Next::Receive => {
                    let mut message = self.receive().expect("a message");
                    message.resize(host::RECEIVE_BYTES as usize, 0);
                    end.received(&message, &mut |bytes| fill(&mut random, bytes))
                }
                end => return end,
            }
        }
    }
}

#[test]
fn every_hash_and_group_authenticates_one_way_and_both_ways() {
    for hash in DhchapHash::ALL {
        for group in DhchapGroup::ALL {
            for is_mutual in [false, true] {
                let keys = keys(is_mutual.then_some(2));
                let mut controller = Controller::new(keys.clone(), DhchapChoice::default());
                let met = controller.meet(keys.clone(), only(hash, group));
                assert_eq!(met, Next::Authenticated, "{hash} {group} {is_mutual}");
                let wanted = Outcome::Authenticated {
                    secret: keys.host[0].key.clone(),
                    hash,
                    group,
                    is_mutual,
                    psk: None,
                };
                assert_eq!(controller.outcomes, [wanted]);
            }
        }
    }
}

#[test]
fn controller_takes_the_first_of_its_own_that_the_host_has() {
    let choice = DhchapChoice {
        hashes: vec![DhchapHash::Sha384, DhchapHash::Sha512],
        groups: vec![DhchapGroup::Null, DhchapGroup::Ffdhe2048],
    };
    let mut controller = Controller::new(keys(None), choice);
    controller.meet(keys(None), DhchapChoice::default());
    let chosen = (DhchapHash::Sha384, DhchapGroup::Null);
    let is_chosen = |outcome: &Outcome| matches!(outcome, Outcome::Authenticated { hash, group, .. } if (*hash, *group) == chosen);
    assert!(controller.outcomes.iter().all(is_chosen) && controller.outcomes.len() == 1);
}

#[test]
fn both_ends_make_the_same_key_for_tls_by_every_hash_and_group_that_may() {
    use Concatenation::{NewTlsPsk, ReplaceTlsPsk};
    let groups = DhchapGroup::ALL
        .into_iter()
        .filter(|group| *group != DhchapGroup::Null);
    for (group, kind) in groups.zip([NewTlsPsk, ReplaceTlsPsk].into_iter().cycle()) {
        for (hash, of_key) in [
            (DhchapHash::Sha256, PskHash::Sha256),
            (DhchapHash::Sha384, PskHash::Sha384),
        ] {
            for is_mutual in [false, true] {
                let keys = keys(is_mutual.then_some(2));
                let terms = ConcatenationTerms::Required(kind);
                let choice = DhchapChoice::default();
                let mut controller = Controller::concatenating(keys.clone(), choice, terms);
                let choice = only(hash, group);
                let (met, psk) = controller.meet_and_make_key(keys.clone(), choice, kind);
                assert_eq!(met, Next::Authenticated, "{hash} {group} {is_mutual}");
                assert_eq!(psk.as_ref().map(Psk::hash), Some(of_key));
                let wanted = Outcome::Authenticated {
                    secret: keys.host[0].key.clone(),
                    hash,
                    group,
                    is_mutual,
                    psk,
                };
                assert_eq!(controller.outcomes, [wanted]);
            }
        }
    }
}

#[test]
fn key_for_tls_is_made_by_the_strongest_hash_and_group_that_may() {
    let kind = Concatenation::NewTlsPsk;
    let choice = DhchapChoice {
        groups: vec![DhchapGroup::Null, DhchapGroup::Ffdhe2048],
        ..DhchapChoice::default()
    };
    let terms = ConcatenationTerms::Allowed(kind);
    let mut controller = Controller::concatenating(keys(None), choice, terms);
    let all = DhchapChoice::default();
    let (met, psk) = controller.meet_and_make_key(keys(None), all.clone(), kind);
    assert_eq!(met, Next::Authenticated);
    assert_eq!(psk.as_ref().map(Psk::hash), Some(PskHash::Sha384));
    // One that asks for none gets none, by what it prefers.
    assert_eq!(controller.meet(keys(None), all), Next::Authenticated);
    let none = Outcome::Authenticated {
        secret: key(DhchapHash::Sha256, 1),
        hash: DhchapHash::Sha512,
        group: DhchapGroup::Null,
        is_mutual: false,
        psk: None,
    };
    assert_eq!(controller.outcomes[1..], [none]);
}

#[test]
fn secure_channel_that_is_not_for_the_queue_is_a_mismatch() {
    use Concatenation::{NewTlsPsk, ReplaceTlsPsk};
    use ConcatenationTerms::{Allowed, None, Required};
    use FailureExplanation::{ConcatenationMismatch, HashNotUsable};
    let (new, replace) = (NewTlsPsk as u8, ReplaceTlsPsk as u8);
    let of = |hashes: &[u8], groups: &[u8]| ProtocolDescriptor::new(hashes, groups);
    let usual = of(&[1], &[1]);
    for (terms, sc_c, descriptor, explanation) in [
        (None, new, usual, ConcatenationMismatch),
        (None, replace, usual, ConcatenationMismatch),
        (Allowed(NewTlsPsk), replace, usual, ConcatenationMismatch),
        (Allowed(ReplaceTlsPsk), new, usual, ConcatenationMismatch),
        // Obsolete, and never there.
        (Allowed(NewTlsPsk), 1, usual, ConcatenationMismatch),
        (Allowed(NewTlsPsk), 4, usual, ConcatenationMismatch),
        (Required(NewTlsPsk), 0, usual, ConcatenationMismatch),
        (
            Allowed(NewTlsPsk),
            new,
            of(&[1], &[0]),
            ConcatenationMismatch,
        ),
        // No cipher suite of TLS has SHA-512.
        (Allowed(NewTlsPsk), new, of(&[3], &[1]), HashNotUsable),
    ] {
        let choice = DhchapChoice {
            groups: vec![DhchapGroup::Null, DhchapGroup::Ffdhe2048],
            ..DhchapChoice::default()
        };
        let mut controller = Controller::concatenating(keys(Option::None), choice, terms);
        controller
            .send(&negotiate(sc_c, &[descriptor], 1))
            .expect("told later");
        let told = controller.failure(T_ID);
        assert_eq!(told, explanation as u8, "{terms:?}, SC_C {sc_c}");
    }
}

/// SC_C is among what both sides prove: one that is changed on its way is found.
#[test]
fn secure_channel_that_is_asked_for_or_dropped_on_the_way_authenticates_no_host() {
    let kind = Concatenation::NewTlsPsk;
    let choice = only(DhchapHash::Sha256, DhchapGroup::Ffdhe2048);
    for concatenates in [false, true] {
        let terms = ConcatenationTerms::Allowed(kind);
        let mut controller = Controller::concatenating(keys(None), choice.clone(), terms);
        let own = (keys(None), choice.clone());
        let mut end = host::Authentication::new(own, (HOST, SUBSYSTEM), T_ID);
        if concatenates {
            end = end.concatenating(kind);
        }
        let Next::Send(mut message) = end.begin() else {
            panic!("Negotiate goes first");
        };
        message[6] ^= kind as u8;
        controller.send(&message).expect("taken");
        end.sent();
        let challenge = controller.receive().expect("a challenge");
        let mut random = Random::new(3);
        let Next::Send(mut reply) = end.received(&challenge, &mut |b| fill(&mut random, b)) else {
            panic!("a reply goes next");
        };
        // As the controller wants it by now: CVALID and SEQNUM.
        (reply[8], reply[12]) = match concatenates {
            false => (1, 0),
            true => (0, 0),
        };
        controller.send(&reply).expect("told later");
        assert_eq!(controller.failure(T_ID), FailureExplanation::Failed as u8);
    }
}

#[test]
fn key_for_tls_without_a_challenge_of_the_host_is_refused() {
    let kind = Concatenation::NewTlsPsk;
    let choice = only(DhchapHash::Sha256, DhchapGroup::Ffdhe2048);
    let terms = ConcatenationTerms::Allowed(kind);
    let mut controller = Controller::concatenating(keys(None), choice.clone(), terms);
    let own = (keys(None), choice);
    let end = host::Authentication::new(own, (HOST, SUBSYSTEM), T_ID);
    let mut end = end.concatenating(kind);
    let Next::Send(message) = end.begin() else {
        panic!("Negotiate goes first");
    };
    controller.send(&message).expect("taken");
    end.sent();
    let challenge = controller.receive().expect("a challenge");
    let Next::Send(mut reply) = end.received(&challenge, &mut |bytes| bytes.fill(7)) else {
        panic!("a reply goes next");
    };
    reply[8] = 0;
    controller.send(&reply).expect("told later");
    let code = FailureExplanation::IncorrectPayload as u8;
    assert_eq!(controller.failure(T_ID), code);
}

/// As Linux's controller responds to a host that wants a key and it to prove itself.
#[test]
fn host_takes_a_response_of_a_controller_that_leaves_sc_c_out() {
    let kind = Concatenation::NewTlsPsk;
    let (hash, group) = (DhchapHash::Sha256, DhchapGroup::Ffdhe2048);
    let own = keys(Some(2));
    for (sc_c, is_taken) in [(0, true), (kind as u8, true), (3, false)] {
        let identity = (own.clone(), only(hash, group));
        let end = host::Authentication::new(identity, (HOST, SUBSYSTEM), T_ID);
        let mut end = end.concatenating(kind);
        end.begin();
        end.sent();
        let mut random = Random::new(5);
        let mut random = |bytes: &mut [u8]| fill(&mut random, bytes);
        let pair = DhchapKeyPair::new(group, &mut random).expect("a group");
        let head = ChallengeMessage::new(T_ID, (1, 32), (1, 256), 9);
        let challenge = [head.as_bytes(), &[5; 32], pair.public()].concat();
        let Next::Send(reply) = end.received(&challenge, &mut random) else {
            panic!("a reply goes next");
        };
        end.sent();
        let shared = pair.agree(&reply[16 + 64..]).expect("a value of the group");
        let terms = DhchapTerms {
            hash,
            session_key: Some(&hash.session_key(&shared)),
            t_id: T_ID,
            sc_c,
            hostnqn: HOST,
            subnqn: SUBSYSTEM,
        };
        let seqnum = u32::from_le_bytes(reply[12..16].try_into().expect("4 bytes"));
        let controllers = own.controller.as_ref().expect("it has one");
        let response = terms.response(DhchapSide::Controller, controllers, &reply[48..80], seqnum);
        let head = Success1::new(T_ID, 32, true);
        end.received(&[head.as_bytes(), response.bytes()].concat(), &mut random);
        let is_content = end.sent() == Next::Authenticated;
        assert_eq!(is_content, is_taken, "{sc_c}");
    }
}

#[test]
fn host_authenticates_again_with_other_secrets() {
    let mut controller = Controller::new(keys(Some(2)), quick());
    for seed in 2..5 {
        controller.keys = keys(Some(seed));
        assert_eq!(
            controller.meet(keys(Some(seed)), quick()),
            Next::Authenticated
        );
    }
    assert_eq!(controller.outcomes.len(), 3);
}

/// The machine takes an old one too: the registry knows what time it is.
#[test]
fn host_may_know_any_of_its_secrets_and_the_one_that_it_knows_is_told() {
    let of = |seed| key(DhchapHash::Sha256, seed);
    let until = Some(Duration::from_secs(1));
    let both = DhchapKeys {
        host: vec![of(1).into(), HostDhchap { key: of(2), until }],
        ..keys(Some(9))
    };
    for (seed, is_known) in [(1, true), (2, true), (3, false)] {
        let mut controller = Controller::new(both.clone(), quick());
        let own = DhchapKeys {
            host: vec![of(seed).into()],
            ..keys(Some(9))
        };
        let met = controller.meet(own, quick());
        assert_eq!(met == Next::Authenticated, is_known, "{met:?}");
        let told = match controller.outcomes.pop() {
            Some(Outcome::Authenticated { secret, .. }) => Some(secret),
            _ => None,
        };
        assert_eq!(told, is_known.then(|| of(seed)));
    }
}

/// What an administrator is told, where a secret is another's.
#[test]
fn wrong_secrets_are_told_apart_to_the_administrator_alone() {
    let other = |controller| DhchapKeys {
        host: vec![key(DhchapHash::Sha256, 77).into()],
        ..keys(controller)
    };
    let cases = [
        (
            keys(None),
            other(None),
            "`--dhchap-secret`",
            "controller refuses the host",
        ),
        (
            DhchapKeys {
                host: vec![DhchapKey::withdrawn(Secret::withdrawn([7; 32])).into()],
                controller: None,
            },
            keys(None),
            "was taken back: its key was revoked",
            "controller refuses the host",
        ),
        (
            keys(None),
            keys(Some(2)),
            "no `dhchap_ctrl_secret_file`",
            "controller refuses the host",
        ),
        (
            keys(Some(2)),
            keys(Some(3)),
            "its `--dhchap-ctrl-secret`",
            "does not know its secret",
        ),
    ];
    for (own, of_host, told, seen) in cases {
        let mut controller = Controller::new(own, quick());
        match controller.meet(of_host, quick()) {
            Next::Failed(why) => assert!(why.contains(seen), "{why}"),
            next => panic!("{next:?}"),
        }
        match &controller.outcomes[..] {
            [Outcome::Failed { why, is_secret }] => {
                assert!(why.contains(told) && *is_secret, "{why}");
            }
            outcomes => panic!("{outcomes:?}"),
        }
    }
}

fn negotiate(sc_c: u8, descriptors: &[ProtocolDescriptor], napd: u8) -> Vec<u8> {
    let header = MessageHeader::common(auth_id::NEGOTIATE, T_ID);
    let head = Negotiate { header, sc_c, napd };
    [head.as_bytes(), descriptors.as_bytes()].concat()
}

#[test]
fn negotiate_is_refused_with_the_code_of_what_is_wrong() {
    use FailureExplanation as F;
    let plain = ProtocolDescriptor::new(&[1], &[0]);
    let edited = |edit: fn(&mut ProtocolDescriptor)| {
        let mut descriptor = plain;
        edit(&mut descriptor);
        descriptor
    };
    let other = edited(|d| d.authid = 2);
    let hash = ProtocolDescriptor::new(&[2, 3, 0, 9], &[0]);
    let group = ProtocolDescriptor::new(&[1], &[1, 2, 9]);
    for (message, explanation) in [
        (negotiate(1, &[plain], 1), F::ConcatenationMismatch),
        (negotiate(0, &[plain], 0), F::IncorrectPayload),
        (negotiate(0, &[plain], 2), F::IncorrectPayload),
        (negotiate(0, &[], 1), F::IncorrectPayload),
        (
            negotiate(0, &[plain], 1)[..71].to_vec(),
            F::IncorrectPayload,
        ),
        (negotiate(0, &[plain], 1)[..7].to_vec(), F::IncorrectPayload),
        (negotiate(0, &[other], 1), F::ProtocolNotUsable),
        (
            negotiate(0, &[edited(|d| d.halen = 31)], 1),
            F::IncorrectPayload,
        ),
        (
            negotiate(0, &[edited(|d| d.dhlen = 31)], 1),
            F::IncorrectPayload,
        ),
        (
            negotiate(0, &[edited(|d| d.halen = 0)], 1),
            F::HashNotUsable,
        ),
        (negotiate(0, &[hash], 1), F::HashNotUsable),
        (
            negotiate(0, &[edited(|d| d.dhlen = 0)], 1),
            F::GroupNotUsable,
        ),
        (negotiate(0, &[group], 1), F::GroupNotUsable),
    ] {
        let mut controller = Controller::new(keys(None), quick());
        controller.send(&message).expect("told later");
        assert_eq!(controller.failure(T_ID), explanation as u8, "{message:?}");
        // It may begin anew.
        let second = negotiate(0, &[other, plain], 2);
        controller.send(&second).expect("taken");
        assert_eq!(
            controller.receive().expect("a challenge")[1],
            auth_id::CHALLENGE
        );
    }
}

/// A controller that has sent its challenge, and a reply that is right but for the response.
fn challenged(is_mutual: bool) -> (Controller, Vec<u8>) {
    let keys = keys(is_mutual.then_some(2));
    let mut controller = Controller::new(keys.clone(), quick());
    let mut end = host::Authentication::new((keys, quick()), (HOST, SUBSYSTEM), T_ID);
    let Next::Send(message) = end.begin() else {
        panic!("Negotiate goes first");
    };
    controller.send(&message).expect("taken");
    end.sent();
    let challenge = controller.receive().expect("a challenge");
    let mut random = Random::new(3);
    match end.received(&challenge, &mut |bytes| fill(&mut random, bytes)) {
        Next::Send(reply) => (controller, reply),
        next => panic!("{next:?}"),
    }
}

#[test]
fn reply_is_refused_with_the_code_of_what_is_wrong() {
    use FailureExplanation as F;
    type Damage = fn(&mut Vec<u8>);
    let cases: &[(&str, bool, Damage, F)] = &[
        (
            "another transaction",
            false,
            |m| m[4] ^= 1,
            F::IncorrectPayload,
        ),
        ("another type", false, |m| m[0] = 2, F::IncorrectMessage),
        ("another message", false, |m| m[1] = 4, F::IncorrectMessage),
        (
            "length of another hash",
            false,
            |m| m[6] = 48,
            F::IncorrectPayload,
        ),
        ("no hash", false, |m| m[6] = 0, F::IncorrectPayload),
        ("CVALID of 2", false, |m| m[8] = 2, F::IncorrectPayload),
        (
            "a value without a group",
            false,
            |m| m[10] = 4,
            F::IncorrectPayload,
        ),
        ("too short", false, |m| m.truncate(79), F::IncorrectPayload),
        ("head alone", false, |m| m.truncate(16), F::IncorrectPayload),
        (
            "less than a head",
            false,
            |m| m.truncate(15),
            F::IncorrectPayload,
        ),
        (
            "less than a header",
            false,
            |m| m.truncate(5),
            F::IncorrectPayload,
        ),
        ("nothing", false, |m| m.clear(), F::IncorrectPayload),
        (
            "challenge without sequence number",
            true,
            |m| m[12..16].fill(0),
            F::IncorrectPayload,
        ),
        ("another response", false, |m| m[16] ^= 1, F::Failed),
        (
            "another response, both ways",
            true,
            |m| m[47] ^= 0x80,
            F::Failed,
        ),
    ];
    for (what, is_mutual, damage, explanation) in cases {
        let (mut controller, mut reply) = challenged(*is_mutual);
        damage(&mut reply);
        controller.send(&reply).expect("told later");
        assert_eq!(controller.failure(T_ID), *explanation as u8, "{what}");
        assert!(controller.receive().is_err(), "told once");
        assert!(
            controller
                .outcomes
                .iter()
                .all(|o| matches!(o, Outcome::Failed { .. })),
            "{what}"
        );
    }
}

/// Each bit of a reply matters, or stands in what is reserved.
#[test]
fn reply_with_any_bit_of_its_response_changed_authenticates_no_host() {
    for bit in 0..32 * 8 {
        let (mut controller, mut reply) = challenged(false);
        reply[16 + bit / 8] ^= 1 << (bit % 8);
        controller.send(&reply).expect("told later");
        assert_eq!(controller.failure(T_ID), FailureExplanation::Failed as u8);
    }
    let (mut controller, reply) = challenged(false);
    controller.send(&reply).expect("taken");
    assert_eq!(
        controller.receive().expect("a message")[1],
        auth_id::SUCCESS1
    );
}

#[test]
fn own_challenge_sent_back_is_refused() {
    let keys = keys(Some(2));
    let mut controller = Controller::new(keys, quick());
    let descriptor = ProtocolDescriptor::new(&[1], &[0]);
    controller
        .send(&negotiate(0, &[descriptor], 1))
        .expect("taken");
    let challenge = controller.receive().expect("a challenge");
    let mut reply = vec![1, 2, 0, 0, 0x34, 0x12, 32, 0, 1, 0, 0, 0, 1, 0, 0, 0];
    reply.extend([0; 32]);
    reply.extend(&challenge[16..48]);
    controller.send(&reply).expect("told later");
    assert_eq!(
        controller.failure(T_ID),
        FailureExplanation::IncorrectPayload as u8
    );
}

#[test]
fn messages_out_of_turn_are_refused_and_authenticate_no_host() {
    let success = Success2::new(T_ID).as_bytes().to_vec();
    let failure = FailureMessage::new(auth_id::FAILURE2, T_ID, FailureExplanation::Failed);
    let (_, reply) = challenged(false);
    for message in [success, failure.as_bytes().to_vec(), reply] {
        let mut controller = Controller::new(keys(None), quick());
        assert_eq!(controller.receive(), Err(Status::COMMAND_SEQUENCE.dnr()));
        controller.send(&message).expect("told later");
        let code = controller.failure(0);
        assert_eq!(code, FailureExplanation::IncorrectMessage as u8);
    }
    // A reply that is verified is not asked for twice.
    let (mut controller, reply) = challenged(true);
    controller.send(&reply).expect("taken");
    controller.send(&reply).expect("told later");
    assert_eq!(
        controller.failure(T_ID),
        FailureExplanation::IncorrectMessage as u8
    );
}

#[test]
fn host_that_says_success2_under_another_transaction_is_not_authenticated() {
    let (mut controller, reply) = challenged(true);
    controller.send(&reply).expect("taken");
    controller.receive().expect("DH-HMAC-CHAP_Success1");
    assert_eq!(controller.outcomes, []);
    controller
        .send(Success2::new(T_ID + 1).as_bytes())
        .expect("told later");
    assert_eq!(
        controller.failure(T_ID),
        FailureExplanation::IncorrectPayload as u8
    );
}

#[test]
fn receive_without_room_for_its_message_is_refused_and_may_be_repeated() {
    let field = Status::INVALID_FIELD.dnr();
    let descriptor = ProtocolDescriptor::new(&[1], &[1]);
    let choice = only(DhchapHash::Sha256, DhchapGroup::Ffdhe2048);
    let mut controller = Controller::new(keys(None), choice);
    controller
        .send(&negotiate(0, &[descriptor], 1))
        .expect("taken");
    let refused = controller.machine.receive(16 + 32 + 255);
    assert!(matches!(refused, Answer::Status(status) if status == field));
    let message = controller.receive().expect("a challenge");
    assert_eq!(message.len(), 16 + 32 + 256);
    controller.send(&[]).expect("told later");
    let refused = controller.machine.receive(7);
    assert!(matches!(refused, Answer::Status(status) if status == field));
    controller.failure(T_ID);
}

/// What a controller may say to a host that no host should believe.
#[test]
fn host_refuses_what_it_did_not_offer_and_other_transactions() {
    use FailureExplanation as F;
    let challenge = |edit: fn(&mut Vec<u8>)| {
        let mut message = vec![1, 1, 0, 0, 0x34, 0x12, 32, 0, 1, 0, 0, 0, 9, 0, 0, 0];
        message.extend([5; 32]);
        edit(&mut message);
        message.resize(4096, 0);
        message
    };
    type Edit = fn(&mut Vec<u8>);
    let cases: &[(Edit, F)] = &[
        (|m| m[8] = 2, F::HashNotUsable),
        (|m| m[8] = 0, F::HashNotUsable),
        (|m| m[6] = 48, F::HashNotUsable),
        (|m| m[9] = 1, F::GroupNotUsable),
        (|m| m[9] = 200, F::GroupNotUsable),
        (|m| m[10] = 1, F::IncorrectPayload),
        (|m| m[4] = 0, F::IncorrectMessage),
        (|m| m[1] = 3, F::IncorrectMessage),
        (|m| m[0] = 0, F::IncorrectMessage),
    ];
    for (edit, explanation) in cases {
        let mut end = host::Authentication::new((keys(None), quick()), (HOST, SUBSYSTEM), T_ID);
        end.begin();
        assert_eq!(end.sent(), Next::Receive);
        let next = end.received(&challenge(*edit), &mut |_| ());
        let Next::Send(message) = next else {
            panic!("{next:?}");
        };
        let wanted = FailureMessage::new(auth_id::FAILURE2, T_ID, *explanation);
        assert_eq!(message, wanted.as_bytes());
        assert!(matches!(end.sent(), Next::Failed(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever comes in whatever order, no host gets in without the secret.
    #[test]
    fn any_messages_in_any_order_authenticate_no_host(
        messages in proptest::collection::vec(
            (0u8..3, prop_oneof![0u8..5, 0xf0u8..0xf2], 0u16..2,
             proptest::collection::vec(any::<u8>(), 0..120), any::<bool>()),
            1..12,
        )
    ) {
        let mut controller = Controller::new(keys(Some(2)), quick());
        let plain = ProtocolDescriptor::new(&[1], &[0]);
        for (kind, id, t_id, body, begins) in messages {
            let message = match begins {
                true => negotiate(0, &[plain], 1),
                false => [&[kind, id, 0, 0, t_id as u8, 0][..], &body].concat(),
            };
            let _ = controller.send(&message);
            let _ = controller.receive();
        }
        let is_authenticated = |o: &Outcome| matches!(o, Outcome::Authenticated { .. });
        prop_assert!(!controller.outcomes.iter().any(is_authenticated));
    }

    /// A host takes any bytes of a controller without believing them.
    #[test]
    fn any_message_of_a_controller_is_refused_by_the_host(
        message in proptest::collection::vec(any::<u8>(), 0..200),
        is_typed in any::<bool>(),
    ) {
        let keys = keys(Some(2));
        let mut end = host::Authentication::new((keys, quick()), (HOST, SUBSYSTEM), T_ID);
        end.begin();
        end.sent();
        let head = [1, 1, 0, 0, 0x34, 0x12, 32, 0, 1, 0, 0, 0];
        let typed = [&head[..], &message].concat();
        let message = if is_typed { &typed } else { &message };
        if let Next::Send(_) = end.received(message, &mut |_| ())
            && end.sent() == Next::Receive
        {
            let next = end.received(message, &mut |_| ());
            prop_assert!(!matches!(next, Next::Authenticated));
        }
    }
}
