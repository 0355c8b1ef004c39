//! Files of the keys of a host, for TLS or DH-HMAC-CHAP: a key a line, and until when it is good.

use std::time::{Duration, UNIX_EPOCH};

use zeroize::Zeroizing;

use crate::Secret;
use crate::dhchap::DhchapKey;
use crate::psk::Psk;

/// Bytes of a file, at most.
pub const KEY_FILE_BYTES_MAX: usize = 4096;
/// Bytes of a line that is written, at most.
const LINE_BYTES_MAX: usize = 160;
/// Keys that one host may have at a time.
const KEYS_MAX: usize = 8;

/// A key of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey<K> {
    /// The key.
    pub key: K,
    /// When it is good for no connection any more, since the start of 1970.
    pub until: Option<Duration>,
}

/// A key of a host for TLS.
pub type HostPsk = HostKey<Psk>;

/// A secret of a host for DH-HMAC-CHAP.
pub type HostDhchap = HostKey<DhchapKey>;

impl<K> From<K> for HostKey<K> {
    /// For good.
    fn from(key: K) -> Self {
        HostKey { key, until: None }
    }
}

/// What is a word of text in a file of keys.
pub trait KeyText: Sized {
    /// The key of a text.
    ///
    /// # Errors
    /// What of it is wrong, without it.
    fn of_text(text: &str) -> Result<Self, String>;

    /// As it is written: whoever sees it has it.
    fn text(&self) -> String;
}

impl KeyText for Psk {
    fn of_text(text: &str) -> Result<Psk, String> {
        Psk::parse(text).map_err(|why| why.to_string())
    }

    fn text(&self) -> String {
        self.interchange()
    }
}

impl KeyText for DhchapKey {
    fn of_text(text: &str) -> Result<DhchapKey, String> {
        DhchapKey::parse(text).map_err(|why| why.to_string())
    }

    fn text(&self) -> String {
        self.interchange()
    }
}

impl<K> HostKey<K> {
    /// Takes it back, with whatever time it had.
    pub fn withdraw(&mut self) {
        self.until = Some(Duration::ZERO);
    }

    /// Whether it was taken back: no key that is made has expired before 1970.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.until == Some(Duration::ZERO)
    }
}

/// The keys of a file of at most [`KEY_FILE_BYTES_MAX`] bytes.
///
/// # Errors
/// What is wrong with it, without a key.
pub fn parse_keys<K: KeyText>(bytes: &[u8]) -> Result<Vec<HostKey<K>>, String> {
    if bytes.len() > KEY_FILE_BYTES_MAX {
        return Err(format!(
            "it is longer than {KEY_FILE_BYTES_MAX} bytes: a key is a line"
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
    let mut keys = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        keys.push(key(text).map_err(|why| format!("line {line}: {why}"))?);
    }
    match keys.len() {
        0 => Err("it has no key: `weft key new` makes one".to_owned()),
        1..=KEYS_MAX => Ok(keys),
        count => Err(format!(
            "it has {count} keys, and a host has {KEYS_MAX} at most"
        )),
    }
}

/// A line: `NVMeTLSkey-1:...:` or `DHHC-1:...:`, and perhaps `until` with a time.
fn key<K: KeyText>(line: &str) -> Result<HostKey<K>, String> {
    let mut words = line.split_whitespace();
    let key = K::of_text(words.next().unwrap_or_default())?;
    let until = match (words.next(), words.next(), words.next()) {
        (None, ..) => None,
        (Some("until"), Some(time), None) => Some(time_of(time)?),
        _ => return Err("behind a key stands `until` and a time, or nothing".to_owned()),
    };
    Ok(HostKey { key, until })
}

fn time_of(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_rfc3339(text).ok();
    let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.ok_or_else(|| format!("\"{text}\" is no time: write 2026-12-24T18:00:00Z"))
}

/// The text of a file of keys.
#[must_use]
pub fn key_lines<K: KeyText>(keys: &[HostKey<K>]) -> Secret {
    // Of the whole size at once: what grows leaves copies behind.
    let mut text = Vec::with_capacity(keys.len() * LINE_BYTES_MAX);
    for HostKey { key, until } in keys {
        text.extend_from_slice(Zeroizing::new(key.text()).as_bytes());
        if let Some(until) = *until {
            let until = humantime::format_rfc3339_seconds(UNIX_EPOCH + until);
            text.extend_from_slice(format!(" until {until}").as_bytes());
        }
        text.push(b'\n');
    }
    Secret::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhchap::DhchapHash;
    use crate::psk::PskHash;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = |byte, until| HostPsk {
            key: Psk::new(PskHash::Sha384, |bytes| bytes.fill(byte)),
            until,
        };
        let until = Duration::from_secs(1_800_000_000);
        let keys = vec![key(1, None), key(2, Some(until))];
        let written = key_lines(&keys);
        let text = str::from_utf8(written.bytes()).unwrap();
        assert!(written.len() <= keys.len() * LINE_BYTES_MAX);
        let read = |text: &str| parse_keys::<Psk>(text.as_bytes());
        assert_eq!(read(&format!("# rotated\n\n{text}")), Ok(keys));
        for (text, why) in [
            ("", "it has no key"),
            ("# nothing", "it has no key"),
            ("a secret", "line 1: it is no TLS key"),
            (
                &text.replace("until", "from"),
                "line 2: behind a key stands `until`",
            ),
            (
                &text.replace("2027-", "in "),
                "line 2: behind a key stands `until`",
            ),
            (&text.replace("2027-", ""), "is no time"),
            (&text.repeat(9), "it has 18 keys"),
            (&"#".repeat(5000), "it is longer than 4096"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(why), "{told}");
            assert!(!told.contains("AQEBAQ"), "no key is shown: {told}");
        }
        let line = text.lines().next().unwrap();
        let count =
            |lines: usize| read(&format!("{line}\r\n").repeat(lines)).map(|keys| keys.len());
        assert_eq!(count(8), Ok(8));
        assert!(count(9).unwrap_err().contains("it has 9 keys"));
        assert!(parse_keys::<Psk>(b"\xff").unwrap_err().contains("no text"));
    }

    #[test]
    fn secrets_of_every_length_are_read_as_they_are_written() {
        let until = Some(Duration::from_secs(1_800_000_000));
        let key = |hash| DhchapKey::new(hash, &mut |bytes| bytes.fill(7));
        let keys: Vec<_> = DhchapHash::ALL
            .map(|hash| HostDhchap {
                key: key(hash),
                until,
            })
            .into();
        let written = key_lines(&keys);
        assert!(written.len() <= keys.len() * LINE_BYTES_MAX);
        assert_eq!(parse_keys(written.bytes()), Ok(keys));
        let told = parse_keys::<Psk>(written.bytes()).unwrap_err();
        assert!(told.contains("line 1: it is no TLS key"), "{told}");
    }
}
