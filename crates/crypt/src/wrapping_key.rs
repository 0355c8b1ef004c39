//! The key of a volume's owner, by which its data key is wrapped: 32 bytes, or what follows
//! from a passphrase.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use auth::Secret;
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Bytes of a passphrase, at least and at most.
const PASSPHRASE_BYTES: std::ops::RangeInclusive<usize> = 8..=1024;

/// What is wrong with the key or the passphrase of a volume's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// Not 64 hexadecimal digits.
    #[error(
        "a key is 64 hexadecimal digits in one line, and nothing else (`openssl rand -hex 32`)"
    )]
    NotAKey,
    /// Too short or too long.
    #[error(
        "a passphrase is one line of {} to {} bytes",
        PASSPHRASE_BYTES.start(), PASSPHRASE_BYTES.end()
    )]
    NotAPassphrase,
}

/// The key does not open what it should: it is another, or the header was changed by someone
/// who has not got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKey;

/// What the owner of a volume has. Nothing shows it, and it is wiped.
#[derive(Clone, PartialEq, Eq)]
pub enum WrappingKey {
    /// A key of 32 bytes.
    Key(Secret),
    /// A passphrase.
    Passphrase(Secret),
}

impl WrappingKey {
    /// The key that the content of a file says.
    ///
    /// # Errors
    /// What it should be.
    pub fn of_key_file(content: &Secret) -> Result<WrappingKey, KeyProblem> {
        let line = line_of(content.bytes());
        let digits: &[u8; 2 * KEY_BYTES] = line.try_into().map_err(|_| KeyProblem::NotAKey)?;
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(KeyProblem::NotAKey);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Ok(WrappingKey::Key(Secret::new(key.to_vec())))
    }

    /// The passphrase that the content of a file says.
    ///
    /// # Errors
    /// What it should be.
    pub fn of_passphrase_file(content: &Secret) -> Result<WrappingKey, KeyProblem> {
        let line = line_of(content.bytes());
        if !PASSPHRASE_BYTES.contains(&line.len()) || line.contains(&b'\n') {
            return Err(KeyProblem::NotAPassphrase);
        }
        Ok(WrappingKey::Passphrase(Secret::new(line)))
    }

    /// The bytes of a file that are read to know whether it has one.
    pub const CONTENT_BYTES_MAX: usize = *PASSPHRASE_BYTES.end() + 3;

    /// What wraps, for a header that is new: `salt` is random.
    #[must_use]
    pub fn derive_new(&self, salt: [u8; SALT_BYTES]) -> DerivedKey {
        let derivation = match self {
            WrappingKey::Key(_) => Derivation::None,
            WrappingKey::Passphrase(_) => Derivation::Argon2id { cost: COST, salt },
        };
        self.derive(derivation)
            .expect("it is the derivation of such a key")
    }

    /// What wraps by a derivation; none where that is for the other kind of key.
    #[must_use]
    pub(crate) fn derive(&self, derivation: Derivation) -> Option<DerivedKey> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        match (self, derivation) {
            (WrappingKey::Key(secret), Derivation::None) => key.copy_from_slice(secret.bytes()),
            (WrappingKey::Passphrase(secret), Derivation::Argon2id { cost, salt }) => {
                let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost.params()?);
                let derived = argon2.hash_password_into(secret.bytes(), &salt, &mut *key);
                derived.ok()?;
            }
            _ => return None,
        }
        Some(DerivedKey { derivation, key })
    }
}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WrappingKey::Key(_) => "Key(..)",
            WrappingKey::Passphrase(_) => "Passphrase(..)",
        })
    }
}

/// Without the end of its line.
fn line_of(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Bytes of the salt of a passphrase.
pub(crate) const SALT_BYTES: usize = 16;

/// How what wraps follows from what the owner has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Derivation {
    /// It is that.
    None,
    /// By Argon2id (RFC 9106).
    Argon2id { cost: Cost, salt: [u8; SALT_BYTES] },
}

/// What a guess of a passphrase costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

/// RFC 9106, section 4: the second recommended option.
const COST: Cost = Cost {
    memory_kib: 64 << 10,
    passes: 3,
    lanes: 4,
};

/// No header makes a start take more: 1 GiB, and a minute or so.
const COST_MAX: Cost = Cost {
    memory_kib: 1 << 20,
    passes: 16,
    lanes: 16,
};

impl Cost {
    /// Whether a start may take it.
    pub(crate) fn is_bearable(self) -> bool {
        self.params().is_some()
            && self.memory_kib <= COST_MAX.memory_kib
            && self.passes <= COST_MAX.passes
            && self.lanes <= COST_MAX.lanes
    }

    fn params(self) -> Option<Params> {
        Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY_BYTES)).ok()
    }
}

/// What a data key is wrapped by.
#[derive(Clone)]
pub struct DerivedKey {
    pub(crate) derivation: Derivation,
    key: Zeroizing<[u8; KEY_BYTES]>,
}

impl DerivedKey {
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }
}

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes())
    }

    #[test]
    fn key_is_64_digits_in_a_line() {
        let digits = "00112233445566778899aAbBcCdDeEfF".repeat(2);
        let of = |text: &str| WrappingKey::of_key_file(&secret(text));
        let bytes: Vec<u8> = (0..32).map(|at| (at % 16) * 0x11).collect();
        let key = Ok(WrappingKey::Key(Secret::new(bytes)));
        for end in ["", "\n", "\r\n"] {
            assert_eq!(of(&format!("{digits}{end}")), key);
        }
        let wrong = [
            "",
            &digits[1..],
            &format!("{digits}0"),
            &format!("{digits}\n\n"),
        ];
        for wrong in wrong.into_iter().chain([&*digits.replace('1', "g")]) {
            assert_eq!(of(wrong), Err(KeyProblem::NotAKey), "{wrong:?}");
        }
        assert_eq!(format!("{key:?}"), "Ok(Key(..))");
    }

    #[test]
    fn passphrase_is_one_line_that_is_long_enough() {
        let of = |text: &str| WrappingKey::of_passphrase_file(&secret(text));
        let phrase = Ok(WrappingKey::Passphrase(secret("correct horse")));
        assert_eq!(of("correct horse\n"), phrase);
        let wrong = ["", "short\n", "two lines\nare none\n", &"x".repeat(1025)];
        for wrong in wrong {
            assert_eq!(of(wrong), Err(KeyProblem::NotAPassphrase), "{wrong:?}");
        }
    }

    /// Computed with another implementation of RFC 9106.
    #[test]
    fn key_of_a_passphrase_follows_from_it_its_salt_and_cost() {
        let key = WrappingKey::Passphrase(secret("correct horse"));
        let cost = Cost {
            memory_kib: 64,
            passes: 2,
            lanes: 2,
        };
        let salt = *b"sixteen bytes ok";
        let derived = key.derive(Derivation::Argon2id { cost, salt });
        let derived = derived.expect("a cost that is possible");
        assert_eq!(hex(derived.bytes()), ARGON2ID);
        let other = WrappingKey::Key(Secret::new([7; 32]));
        assert!(other.derive(derived.derivation).is_none());
        assert!(key.derive(Derivation::None).is_none());
    }

    const ARGON2ID: &str = "6322cf6d5b2c389b9559b3a5675f201d92b4f8ae81cbab82a94b54d08dd017fc";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn cost_of_a_header_is_bounded() {
        assert!(COST.is_bearable() && COST_MAX.is_bearable());
        let cost = |memory_kib, passes, lanes| Cost {
            memory_kib,
            passes,
            lanes,
        };
        for wrong in [
            cost(0, 1, 1),
            cost(8, 0, 1),
            cost(8, 1, 0),
            cost(8, 1, 2),
            cost((1 << 20) + 1, 1, 1),
            cost(8, 17, 1),
            cost(1 << 10, 1, 17),
            cost(u32::MAX, u32::MAX, u32::MAX),
        ] {
            assert!(!wrong.is_bearable(), "{wrong:?}");
        }
    }
}
