//! Any host against the controller's end of DH-HMAC-CHAP, and any controller against the
//! host's: none of them gets in.
//!
//! An input is a byte of configuration (bit 0: the controller has a secret; bits 2:1: what the
//! queue takes of secure channel concatenation, which needs a group), then records: a mode, a length (16 bits, little
//! endian) and so many bytes. A record is a message as it is, a message that begins as the
//! one that is due, a whole AUTH_Negotiate, or an Authentication Receive.

use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey};
use nvmf::dhchap::controller::{Answer, Authentication, ConcatenationTerms, Outcome};
use nvmf::dhchap::host::{self, Next};
use nvmf::dhchap::{DhchapChoice, DhchapKeys};
use wire::nvme::authentication::Concatenation;

const HOST: &str = "nqn.2026-01.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";
/// Bytes of the message of records that ask for one.
const RECEIVE: u32 = 4096;

/// The body of the target.
pub fn dhchap(input: &[u8]) {
    let Some((&config, mut records)) = input.split_first() else {
        return;
    };
    let key = |seed| DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(seed));
    let keys = DhchapKeys {
        host: vec![key(1).into()],
        controller: (config & 1 != 0).then(|| key(2)),
    };
    let (terms, kind) = match config >> 1 & 3 {
        0 => (ConcatenationTerms::None, None),
        1 => allowed(Concatenation::NewTlsPsk),
        2 => allowed(Concatenation::ReplaceTlsPsk),
        _ => {
            let kind = Concatenation::NewTlsPsk;
            (ConcatenationTerms::Required(kind), Some(kind))
        }
    };
    let mut groups = vec![DhchapGroup::Null];
    groups.extend(kind.map(|_| DhchapGroup::Ffdhe2048));
    let choice = DhchapChoice {
        groups,
        ..DhchapChoice::default()
    };
    let mut controller = Authentication::new(HOST, SUBSYSTEM, terms);
    let mut of_host = Some(begin(&keys, &choice, kind));
    while let Some((&[mode, low, high], rest)) = records.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        records = rest;
        let answer = match mode % 4 {
            0 => controller.send(bytes, &keys, &choice),
            1 => controller.send(&[&[1, 2, 0, 0, 7, 0], bytes].concat(), &keys, &choice),
            2 => controller.send(&negotiate(bytes, kind), &keys, &choice),
            _ => controller.receive(RECEIVE.min(len as u32 * 64)),
        };
        if let Answer::Work(work) = answer {
            let worked = work.run(&mut |bytes| bytes.fill(config));
            controller.worked(worked);
        }
        let outcome = controller.take_outcome();
        assert!(!matches!(outcome, Some(Outcome::Authenticated { .. })));
        of_host = of_host.and_then(|end| answered(end, keys.controller.is_some(), mode, bytes));
    }
}

fn allowed(kind: Concatenation) -> (ConcatenationTerms, Option<Concatenation>) {
    (ConcatenationTerms::Allowed(kind), Some(kind))
}

/// AUTH_Negotiate as a host sends it, with some bytes changed.
fn negotiate(bytes: &[u8], kind: Option<Concatenation>) -> Vec<u8> {
    let mut message = vec![0; 72];
    message[4] = 7;
    message[7] = 1;
    message[8..15].copy_from_slice(&[1, 0, 3, 1, 1, 2, 3]);
    if let Some(kind) = kind {
        // The groups are those of 2048 bits and NULL.
        (message[6], message[11], message[42]) = (kind as u8, 2, 1);
    }
    for pair in bytes.as_chunks::<2>().0 {
        message[usize::from(pair[0]) % 72] ^= pair[1];
    }
    message
}

/// A host that waits for a challenge.
fn begin(
    keys: &DhchapKeys,
    choice: &DhchapChoice,
    kind: Option<Concatenation>,
) -> host::Authentication {
    let own = (keys.clone(), choice.clone());
    let mut end = host::Authentication::new(own, (HOST, SUBSYSTEM), 7);
    if let Some(kind) = kind {
        end = end.concatenating(kind);
    }
    end.begin();
    end.sent();
    end
}

/// What the host makes of a message; `None`: it is done.
fn answered(
    mut end: host::Authentication,
    is_mutual: bool,
    mode: u8,
    bytes: &[u8],
) -> Option<host::Authentication> {
    let message = match mode & 4 {
        0 => bytes.to_vec(),
        _ => [&[1, 1, 0, 0, 7, 0], bytes].concat(),
    };
    match end.received(&message, &mut |bytes| bytes.fill(mode)) {
        Next::Send(_) => (end.sent() == Next::Receive).then_some(end),
        Next::Authenticated => {
            assert!(!is_mutual, "a controller without the secret is believed");
            None
        }
        Next::Receive | Next::Failed(_) => None,
    }
}
