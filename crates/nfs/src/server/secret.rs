//! What makes identifiers unforeseeable: a client cannot name a client, a session or a
//! state of which it was not given the identifier.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Rounds of the permutation.
const ROUNDS: u64 = 4;

/// Known to the server alone, and another one with each start.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a number is for: the same number looks different for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Client,
    Session,
    /// What SETCLIENTID_CONFIRM is to say.
    Confirm,
    /// States of this client.
    State(u64),
    /// Handles of security contexts.
    Context,
}

impl Secret {
    /// Bits that cannot be told from random ones without the secret.
    pub(super) fn bits(self, what: For, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        let (kind, of) = match what {
            For::Client => (0, 0),
            For::Session => (1, 0),
            For::Confirm => (2, 0),
            For::State(client) => (3, client),
            For::Context => (4, 0),
        };
        for word in [kind, of, number] {
            hasher.write_u64(word);
        }
        hasher.finish()
    }

    /// What cannot be guessed of the handle of the security context of this number.
    pub(crate) fn of_context(self, number: u64) -> u64 {
        self.bits(For::Context, number)
    }

    fn round(self, what: For, round: u64, half: u32) -> u32 {
        self.bits(what, round << 32 | u64::from(half)) as u32 & 0xffff
    }

    /// Another number for each number.
    pub(super) fn permute(self, what: For, number: u32) -> u32 {
        let (mut left, mut right) = (number >> 16, number & 0xffff);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(what, round, right));
        }
        left << 16 | right
    }

    /// A number with its lowest `kept` bits as they are, and nothing to be seen of
    /// the others.
    pub(super) fn mark(self, what: For, number: u32, kept: u32) -> u32 {
        let low = number & ((1 << kept) - 1);
        (self.bits(what, number.into()) as u32) << kept | low
    }

    /// The number that [`Secret::permute`] has made this of.
    pub(super) fn gather(self, what: For, scattered: u32) -> u32 {
        let (mut left, mut right) = (scattered >> 16, scattered & 0xffff);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(what, round, left), left);
        }
        left << 16 | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scattered_numbers_are_gathered_again(secret: [u8; 16], number: u32, client: u64) {
            let secret = Secret(secret);
            for what in [For::Client, For::State(client)] {
                let scattered = secret.permute(what, number);
                prop_assert_eq!(secret.gather(what, scattered), number);
            }
        }
    }

    /// Alike, they would let some known numbers give others away.
    #[test]
    fn rounds_of_a_scatter_differ() {
        let secret = Secret([1; 16]);
        let round = |round| (0..100).map(move |half| secret.round(For::Client, round, half));
        for (one, other) in [(0, 1), (1, 2), (2, 3), (0, 2)] {
            let same = round(one).zip(round(other)).filter(|(a, b)| a == b).count();
            assert!(same < 3, "rounds {one} and {other}: {same} of 100 alike");
        }
    }

    #[test]
    fn numbers_look_different_with_another_secret_and_for_something_else() {
        let (one, other) = (Secret([1; 16]), Secret([2; 16]));
        let all = |secret: Secret, what| -> Vec<u32> {
            (1..100)
                .map(|number| secret.permute(what, number))
                .collect()
        };
        let first = all(one, For::Client);
        for others in [all(other, For::Client), all(one, For::State(1))] {
            let same = first.iter().zip(&others).filter(|(a, b)| a == b).count();
            assert_eq!(same, 0);
        }
        let near = |pair: &[u32]| pair[0].abs_diff(pair[1]) < 1 << 16;
        assert!(!first.windows(2).any(near), "one tells nothing of the next");
        assert_eq!(format!("{one:?}"), "Secret(..)");
        let marked: Vec<u32> = (1..100).map(|n| one.mark(For::State(1), n, 12)).collect();
        assert!(
            marked
                .iter()
                .zip(1..)
                .all(|(marked, n)| marked & 0xfff == n)
        );
        assert!(!marked.windows(2).any(near));
    }
}
