//! The keys that a ClientHello offers, and the one of them that is known (RFC 8446, sections
//! 4.1.2 and 4.2.11). The library that makes handshakes is told of that one alone: identities
//! of version 0 tell nothing of their key, and some hosts derive theirs in an old way.

use auth::Secret;
use auth::psk::{PskHash, PskIdentity, TlsPsk};

use crate::handshake::HandshakeError;
use crate::psk_handshake::KnownPsks;
use crate::records::HEADER_BYTES;

/// Bytes of a ClientHello, at most.
const HELLO_BYTES_MAX: usize = 16 << 10;
/// Bytes of the records that it comes in, at most.
const RECORDS_BYTES_MAX: usize = 20 << 10;
/// Identities of it that are looked at: a host has a key or two, of a version or two.
const IDENTITIES_MAX: usize = 4;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const TLS_1_3: u16 = 0x0304;
const PSK_DHE_KE: u8 = 1;
mod extension {
    pub const SUPPORTED_GROUPS: u16 = 10;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const SUPPORTED_VERSIONS: u16 = 43;
    pub const PSK_KEY_EXCHANGE_MODES: u16 = 45;
}

/// Those that weft takes of the groups for key exchange: P-256, P-384, P-521 and x25519 (RFC 8446,
/// section 4.2.7).
const GROUPS: [u16; 4] = [0x17, 0x18, 0x19, 0x1d];

/// The message that the records in `bytes` begin with; `None`: not all of it is there.
pub(crate) fn client_hello(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, HandshakeError> {
    let mut message = Vec::new();
    // Where not all of it is there.
    let more = match bytes.len() <= RECORDS_BYTES_MAX {
        true => None,
        false => Some(HandshakeError::Malformed),
    };
    loop {
        if let Some([kind, len @ ..]) = message.first_chunk::<4>() {
            let len = u32::from_be_bytes([0, len[0], len[1], len[2]]) as usize;
            if *kind != CLIENT_HELLO || len > HELLO_BYTES_MAX {
                return Err(HandshakeError::Malformed);
            }
            if message.len() >= 4 + len {
                message.truncate(4 + len);
                return Ok(Some(message));
            }
        }
        let Some([kind, major, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return more.map_or(Ok(None), Err);
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != HANDSHAKE || *major != 3 || len == 0 || len > 1 << 14 {
            return Err(HandshakeError::Malformed);
        }
        let Some(fragment) = bytes.get(HEADER_BYTES..HEADER_BYTES + len) else {
            return more.map_or(Ok(None), Err);
        };
        message.extend_from_slice(fragment);
        bytes = &bytes[HEADER_BYTES + len..];
    }
}

/// Bytes that are read from their start.
#[derive(Clone, Copy)]
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// What stands behind a length of one byte.
    fn short(&mut self) -> Option<HelloReader<'a>> {
        let len = self.u8()?;
        self.bytes(len.into()).map(HelloReader)
    }

    /// What stands behind a length of two bytes.
    fn long(&mut self) -> Option<HelloReader<'a>> {
        let len = self.u16()?;
        self.bytes(len.into()).map(HelloReader)
    }
}

/// What of a ClientHello concerns keys.
pub(crate) struct Offer<'a> {
    speaks_tls_1_3: bool,
    suites: &'a [u8],
    /// One of [`GROUPS`] is there.
    has_group: bool,
    /// Keys with a key exchange: those without have no forward secrecy.
    exchanges_keys: bool,
    /// The list of identities, and the list of their binders.
    keys: Option<(HelloReader<'a>, HelloReader<'a>)>,
    /// The message up to the binders.
    pub truncated: &'a [u8],
}

impl<'a> Offer<'a> {
    pub fn read(message: &'a [u8]) -> Option<Offer<'a>> {
        let mut hello = HelloReader(&message[4..]);
        hello.bytes(2 + 32)?;
        hello.short()?;
        let suites = hello.long()?.0;
        hello.short()?;
        let mut offer = Offer {
            speaks_tls_1_3: false,
            suites,
            has_group: false,
            exchanges_keys: false,
            keys: None,
            truncated: message,
        };
        if hello.0.is_empty() {
            return Some(offer);
        }
        let mut extensions = hello.long()?;
        if !hello.0.is_empty() {
            return None;
        }
        while !extensions.0.is_empty() {
            let (kind, mut body) = (extensions.u16()?, extensions.long()?);
            match kind {
                extension::SUPPORTED_VERSIONS => {
                    let mut versions = body.short()?;
                    while let Some(version) = versions.u16() {
                        offer.speaks_tls_1_3 |= version == TLS_1_3;
                    }
                }
                extension::SUPPORTED_GROUPS => {
                    let mut groups = body.long()?;
                    while let Some(group) = groups.u16() {
                        offer.has_group |= GROUPS.contains(&group);
                    }
                }
                extension::PSK_KEY_EXCHANGE_MODES => {
                    offer.exchanges_keys = body.short()?.0.contains(&PSK_DHE_KE);
                }
                extension::PRE_SHARED_KEY => {
                    let identities = body.long()?;
                    offer.truncated = &message[..message.len() - body.0.len()];
                    offer.keys = Some((identities, body.long()?));
                    // It is the last: the binders cover all before them.
                    if !extensions.0.is_empty() || !body.0.is_empty() {
                        return None;
                    }
                }
                _ => {}
            }
        }
        Some(offer)
    }

    /// Whether it offers pre-shared keys, known or not.
    pub fn offers_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// A key, if the cipher suite that goes with it is offered (RFC 8446, appendix B.4), and a
    /// group.
    fn usable(&self, psk: TlsPsk) -> Result<TlsPsk, HandshakeError> {
        let suite = match psk.hash {
            PskHash::Sha256 => [0x13, 0x01],
            PskHash::Sha384 => [0x13, 0x02],
        };
        match self.suites.chunks(2).any(|offered| offered == suite) {
            true if self.has_group => Ok(psk),
            true => Err(HandshakeError::Failed(
                "it offers none of the groups x25519, P-256, P-384 and P-521".to_owned(),
            )),
            false => Err(HandshakeError::Failed(format!(
                "it does not offer {}, the cipher suite of its key",
                psk.hash.cipher_suite()
            ))),
        }
    }
}

/// The key that a ClientHello offers and proves to have.
pub(crate) fn chosen_psk(message: &[u8], known: &dyn KnownPsks) -> Result<TlsPsk, HandshakeError> {
    let offer = Offer::read(message).ok_or(HandshakeError::Malformed)?;
    if !offer.speaks_tls_1_3 {
        return Err(HandshakeError::Version);
    }
    let (mut identities, mut binders) = offer.keys.ok_or(HandshakeError::NoPsk)?;
    if !offer.exchanges_keys {
        return Err(HandshakeError::NoKeyExchange);
    }
    let mut error = None;
    let mut tried: Vec<&[u8]> = Vec::new();
    for _ in 0..IDENTITIES_MAX {
        if identities.0.is_empty() {
            break;
        }
        let offered = identities.long().zip(identities.bytes(4));
        let (identity, _) = offered.ok_or(HandshakeError::Malformed)?;
        let binder = binders.short().ok_or(HandshakeError::Malformed)?;
        if tried.contains(&identity.0) {
            continue;
        }
        tried.push(identity.0);
        let identity = String::from_utf8_lossy(identity.0);
        let psks = known.psks_of(&identity);
        let proves = |psk: &TlsPsk| proves_key(psk, offer.truncated, binder.0);
        let wrong = match (psks.is_empty(), PskIdentity::parse(&identity)) {
            (true, _) if known.has_expired(&identity) => {
                HandshakeError::Expired(identity.clone().into_owned())
            }
            (true, _) => HandshakeError::UnknownIdentity(identity.clone().into_owned()),
            (false, Some(named)) if binder.0.len() != named.hash.digest_bytes() => {
                HandshakeError::OtherBinder(identity.clone().into_owned())
            }
            _ => HandshakeError::WrongKey(identity.clone().into_owned()),
        };
        let proven = psks.into_iter().find(proves);
        let is_taken = |psk: &TlsPsk| known.compat().takes(psk.derivation);
        let wrong = match proven {
            Some(psk) if is_taken(&psk) => return offer.usable(psk),
            Some(_) => HandshakeError::OldDerivation(identity.into_owned()),
            None => wrong,
        };
        error.get_or_insert(wrong);
    }
    Err(error.unwrap_or(HandshakeError::NoPsk))
}

/// Whether a binder is made with a key (RFC 8446, section 4.2.11.2).
fn proves_key(psk: &TlsPsk, truncated: &[u8], binder: &[u8]) -> bool {
    Secret::new(binder_of(psk, truncated)) == Secret::new(binder)
}

/// The binder of a key.
pub(crate) fn binder_of(psk: &TlsPsk, truncated: &[u8]) -> Vec<u8> {
    let hash: PskHash = psk.hash;
    let early = hash.extract(psk.secret.bytes());
    let key = hash.expand_label(&early, "ext binder", &hash.digest(&[]), hash.digest_bytes());
    finished_of(hash, &key, truncated)
}

/// What proves to have a key, over messages (RFC 8446, section 4.4.4).
pub(crate) fn finished_of(hash: PskHash, key: &Secret, messages: &[u8]) -> Vec<u8> {
    let finished = hash.expand_label(key, "finished", &[], hash.digest_bytes());
    hash.hmac(finished.bytes(), &[&hash.digest(messages)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_hello_that_comes_in_tiny_records_without_end_is_refused() {
        // A ClientHello of 16,000 bytes, in records of one.
        let message = [CLIENT_HELLO, 0, 0x3e, 0x80];
        let begins = message.map(|byte| [HANDSHAKE, 3, 1, 0, 1, byte]).concat();
        let mut bytes = begins;
        while bytes.len() <= RECORDS_BYTES_MAX {
            assert!(matches!(client_hello(&bytes), Ok(None)));
            bytes.extend([HANDSHAKE, 3, 1, 0, 1, 0]);
        }
        let refused = client_hello(&bytes);
        assert!(matches!(refused, Err(HandshakeError::Malformed)));
    }
}
