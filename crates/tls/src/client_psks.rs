//! Pre-shared keys of clients that have a name and no more, in a file as GnuTLS has them
//! (psktool(1)): a line `NAME:KEY` each, the key in hexadecimal digits, or `#HEXNAME:KEY` with the
//! name in such digits, too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use auth::Secret;
use auth::psk::{Derivation, PskHash, TlsPsk};

use crate::handshake::HandshakeError;
use crate::psk_handshake::KnownPsks;
use crate::renewed::{Renewed, Renewing, place_stamp};
use crate::secret_place::SecretPlace;

/// Bytes of a file, at most.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a key, at least: one that can be guessed is found from a handshake that was seen.
const KEY_BYTES_MIN: usize = 16;
/// Bytes of a key, at most.
const KEY_BYTES_MAX: usize = 64;
/// Bytes of a name, at most.
pub const PSK_NAME_BYTES_MAX: usize = 128;
/// What makes such a file.
const MADE: &str = "`psktool --username NAME --keysize 32 --pskfile FILE` makes one (gnutls-bin)";

/// The keys of clients, by name.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientPsks(BTreeMap<String, Secret>);

impl fmt::Debug for ClientPsks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl ClientPsks {
    /// Those of a place.
    ///
    /// # Errors
    /// What of it cannot be used, without any key.
    pub fn read(place: &SecretPlace) -> Result<ClientPsks, String> {
        let secret = place.read(FILE_BYTES_MAX + 1, MADE)?;
        if secret.bytes().len() > FILE_BYTES_MAX {
            return Err(format!("{place} has more than {FILE_BYTES_MAX} bytes"));
        }
        ClientPsks::parse(secret.bytes()).map_err(|why| format!("{place}: {why}"))
    }

    /// Whether a client of that name has a key.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn parse(text: &[u8]) -> Result<ClientPsks, String> {
        let mut keys = BTreeMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let (name, key) = psk_of_line(line).map_err(|why| format!("line {number}: {why}"))?;
            if keys.insert(name.clone(), key).is_some() {
                return Err(format!("line {number}: \"{name}\" has a key already"));
            }
        }
        match keys.is_empty() {
            true => Err(format!("it has no key: {MADE}")),
            false => Ok(ClientPsks(keys)),
        }
    }
}

/// Whether a name is one that a line may have: what it says is shown.
#[must_use]
pub fn is_psk_name(name: &str) -> bool {
    let is_short = (1..=PSK_NAME_BYTES_MAX).contains(&name.len());
    is_short && !name.contains(':') && !name.chars().any(|one| one.is_control() || one == ' ')
}

fn psk_of_line(line: &[u8]) -> Result<(String, Secret), String> {
    let colon = line.iter().position(|byte| *byte == b':');
    let Some(colon) = colon else {
        return Err("it is not NAME:KEY".to_owned());
    };
    let (name, key) = (&line[..colon], &line[colon + 1..]);
    let name = match name.strip_prefix(b"#") {
        Some(digits) => bytes_of(digits).ok_or("its name is no hexadecimal digits behind the #")?,
        None => name.to_vec(),
    };
    let name = String::from_utf8(name)
        .ok()
        .filter(|name| is_psk_name(name));
    let name = name.ok_or_else(|| {
        format!(
            "its name has a space, a colon or no UTF-8, or is not of 1 to {PSK_NAME_BYTES_MAX} bytes"
        )
    })?;
    let key = bytes_of(key).map(Secret::new);
    let is_long = |key: &Secret| (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.bytes().len());
    let key = key.filter(is_long).ok_or_else(|| {
        format!(
            "its key is not {} to {} hexadecimal digits",
            2 * KEY_BYTES_MIN,
            2 * KEY_BYTES_MAX
        )
    })?;
    Ok((name, key))
}

/// The bytes that pairs of digits say.
fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = vec![0; digits.len() / 2];
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        match (nibble(pair[0]), nibble(pair[1])) {
            (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
            _ => {
                drop(Secret::new(bytes));
                return None;
            }
        }
    }
    Some(bytes)
}

impl KnownPsks for ClientPsks {
    /// The hash is SHA-256, as of every key that is set with no word of its hash (RFC 8446, section
    /// 4.2.11).
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
        let known = self.0.get(identity).map(|secret| TlsPsk {
            identity: identity.to_owned(),
            secret: secret.clone(),
            hash: PskHash::Sha256,
            derivation: Derivation::Standard,
        });
        known.into_iter().collect()
    }

    fn has_any(&self) -> bool {
        true
    }

    fn in_words(&self, error: HandshakeError) -> HandshakeError {
        match error {
            HandshakeError::NoPsk => HandshakeError::NoPskOfClient,
            HandshakeError::UnknownIdentity(name) => HandshakeError::UnknownName(name),
            other => other,
        }
    }
}

/// The keys of clients as they were when they were last good.
#[derive(Debug)]
pub struct RenewedPsks {
    place: SecretPlace,
    now: Renewing<Arc<ClientPsks>>,
}

impl RenewedPsks {
    /// Of a place that must be good at the start.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub fn read(place: &SecretPlace) -> Result<RenewedPsks, String> {
        let stamps = vec![place_stamp(place)];
        let read = ClientPsks::read(place).map(Arc::new)?;
        Ok(RenewedPsks {
            place: place.clone(),
            now: Renewing::new(read, stamps),
        })
    }

    /// For the next connection.
    pub fn psks(&self) -> Arc<ClientPsks> {
        self.now.get()
    }
}

impl Renewed for RenewedPsks {
    fn wrong(&self) -> Option<String> {
        self.now.wrong()
    }

    fn look(&self) -> Option<Result<(), String>> {
        let stamps = vec![place_stamp(&self.place)];
        let read = || ClientPsks::read(&self.place).map(Arc::new);
        self.now.look(stamps, read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0F";

    #[test]
    fn lines_of_gnutls_are_names_and_keys() {
        let text = format!("alice:{KEY}\n\n#626f62:{KEY}{KEY}\r\n");
        let psks = ClientPsks::parse(text.as_bytes()).expect("two keys");
        let key: Vec<u8> = (0..16).collect();
        let found = psks.psks_of("alice");
        assert_eq!(found[0].secret.bytes(), key);
        assert_eq!(found[0].hash, PskHash::Sha256);
        assert_eq!(psks.psks_of("bob")[0].secret.bytes().len(), 32);
        assert!(psks.psks_of("carol").is_empty() && !psks.has("carol"));
        assert_eq!(format!("{psks:?}"), "{\"alice\", \"bob\"}");
    }

    #[test]
    fn file_that_changes_holds_from_the_next_look_on_unless_it_is_wrong() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("clients.psk");
        let chmod = |path: &std::path::Path, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("ours");
        };
        let write = |text: &str, mode| {
            // Another file, as an inode of its own shows.
            let new = folder.path().join("new");
            std::fs::write(&new, text).expect("room");
            chmod(&new, mode);
            std::fs::rename(&new, &path).expect("ours");
        };
        write(&format!("alice:{KEY}\n"), 0o600);
        let renewed = RenewedPsks::read(&path.clone().into()).expect("a key");
        assert_eq!(renewed.look(), None);
        write(&format!("alice:{KEY}\nbob:{KEY}\n"), 0o600);
        assert_eq!(renewed.look(), Some(Ok(())));
        assert!(renewed.psks().has("bob"));
        write("alice", 0o600);
        assert!(renewed.look().is_some_and(|read| read.is_err()));
        assert!(renewed.psks().has("bob") && renewed.wrong().is_some());
        assert_eq!(renewed.look(), None);
        // Others may read it, then they may not.
        write(&format!("alice:{KEY}\n"), 0o644);
        assert!(renewed.look().is_some_and(|read| read.is_err()));
        chmod(&path, 0o600);
        assert_eq!(renewed.look(), Some(Ok(())));
        assert!(!renewed.psks().has("bob"));
    }

    #[test]
    fn lines_that_are_none_are_told_by_their_number_without_a_key() {
        for (text, why) in [
            ("", "it has no key"),
            ("alice", "line 1: it is not NAME:KEY"),
            (":KEY", "line 1: its name"),
            ("a b:KEY", "line 1: its name"),
            ("#6:KEY", "line 1: its name is no hexadecimal digits"),
            (
                "alice:KEY\nalice:KEY",
                "line 2: \"alice\" has a key already",
            ),
            ("alice:KEY0", "its key is not 32 to 128"),
            ("alice:0011", "its key is not 32 to 128"),
            ("alice:KEYxy", "its key is not 32 to 128"),
        ] {
            let text = text.replace("KEY", KEY);
            let told = ClientPsks::parse(text.as_bytes()).expect_err(&text);
            assert!(told.contains(why), "{text}: {told}");
            assert!(!told.contains("0001"), "{told}");
        }
    }
}
