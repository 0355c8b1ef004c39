//! Pre-shared keys of NVMe/TCP with TLS: how they are written, and the TLS PSKs and
//! identities that follow from them (NVMe TCP Transport 1.1, section 3.6.1.3 to 3.6.1.5).

use std::fmt;

use sha2::{Digest as _, Sha256, Sha384};

use crate::Secret;
use crate::binary::base64;
use crate::hash::hmac;
use crate::interchange::{self, InterchangeError};

/// What an interchange key begins with.
const INTERCHANGE: &str = "NVMeTLSkey-1";

/// The hash of a key and of the cipher suite that it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PskHash {
    /// SHA-256, with TLS_AES_128_GCM_SHA256.
    Sha256,
    /// SHA-384, with TLS_AES_256_GCM_SHA384.
    Sha384,
}

impl PskHash {
    /// Both, the stronger first, as hosts prefer them.
    pub const ALL: [PskHash; 2] = [PskHash::Sha384, PskHash::Sha256];

    /// Bytes of a digest, and of a key.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            PskHash::Sha256 => 32,
            PskHash::Sha384 => 48,
        }
    }

    /// As identities and interchange keys say it.
    const fn code(self) -> &'static str {
        match self {
            PskHash::Sha256 => "01",
            PskHash::Sha384 => "02",
        }
    }

    /// The HMAC of `parts`, one behind the other.
    #[must_use]
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            PskHash::Sha256 => hmac::<Sha256>(key, parts),
            PskHash::Sha384 => hmac::<Sha384>(key, parts),
        }
    }

    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PskHash::Sha256 => "SHA-256",
            PskHash::Sha384 => "SHA-384",
        }
    }

    /// The cipher suite that it is the hash of, as TLS calls it.
    #[must_use]
    pub fn cipher_suite(self) -> &'static str {
        match self {
            PskHash::Sha256 => "TLS_AES_128_GCM_SHA256",
            PskHash::Sha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// The digest of `bytes`.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            PskHash::Sha256 => Sha256::digest(bytes).to_vec(),
            PskHash::Sha384 => Sha384::digest(bytes).to_vec(),
        }
    }

    /// HKDF-Extract with a salt of zeros (RFC 5869, section 2.2).
    #[must_use]
    pub fn extract(self, key: &[u8]) -> Secret {
        Secret::new(self.hmac(&[], &[key]))
    }

    /// HKDF-Expand-Label of `len` bytes, of a digest's length at most (RFC 8446, section 7.1).
    #[must_use]
    pub fn expand_label(self, prk: &Secret, label: &str, context: &[u8], len: usize) -> Secret {
        assert!(len <= self.digest_bytes(), "one block of output");
        let label_len = [(TLS13.len() + label.len()) as u8];
        let context_len = [context.len() as u8];
        let mut bytes = self.hmac(
            prk.bytes(),
            &[
                &(len as u16).to_be_bytes(),
                &label_len,
                TLS13.as_bytes(),
                label.as_bytes(),
                &context_len,
                context,
                &[1],
            ],
        );
        bytes.truncate(len);
        Secret::new(bytes)
    }
}

/// What every label of TLS 1.3 begins with.
const TLS13: &str = "tls13 ";

/// How keys follow from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// As the standard says.
    Standard,
    /// As libnvme up to 1.13 does: labels and contexts without their lengths, and the length
    /// of the output little endian.
    Old,
}

impl Derivation {
    fn expand(self, hash: PskHash, key: &Secret, label: &str, context: &[u8]) -> Secret {
        let prk = hash.extract(key.bytes());
        match self {
            Derivation::Standard => hash.expand_label(&prk, label, context, hash.digest_bytes()),
            Derivation::Old => Secret::new(hash.hmac(
                prk.bytes(),
                &[
                    &(hash.digest_bytes() as u16).to_le_bytes(),
                    TLS13.as_bytes(),
                    label.as_bytes(),
                    context,
                    &[1],
                ],
            )),
        }
    }
}

/// Which derivations hosts may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PskCompat {
    /// Both.
    #[default]
    Auto,
    /// That of the standard alone.
    Off,
}

impl PskCompat {
    /// Whether a host may derive its key so.
    #[must_use]
    pub fn takes(self, derivation: Derivation) -> bool {
        self == PskCompat::Auto || derivation == Derivation::Standard
    }
}

/// A key that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PskError {
    /// Not `NVMeTLSkey-1:HH:...:`.
    #[error("it is no TLS key: one reads NVMeTLSkey-1:01:...: (`weft key new` makes one)")]
    Form,
    /// Not as long as its hash wants it.
    #[error("its length is none of a TLS key: 32 bytes for SHA-256, 48 for SHA-384")]
    Length,
    /// The CRC-32 behind it is another.
    #[error("its checksum is wrong: a character was lost or changed")]
    Checksum,
}

impl From<InterchangeError> for PskError {
    fn from(error: InterchangeError) -> Self {
        match error {
            InterchangeError::Form => PskError::Form,
            InterchangeError::Length => PskError::Length,
            InterchangeError::Checksum => PskError::Checksum,
        }
    }
}

/// A key as both sides have it: configured, or what DH-HMAC-CHAP has made.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    key: Secret,
    hash: PskHash,
    kind: PskKind,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PskKind {
    /// The retained key is made of it and the host's NQN.
    Configured,
    /// It is the retained key (hash 00 of the interchange).
    Retained,
    /// It is of DH-HMAC-CHAP (Base 2.1, section 8.3.4.5.9).
    Generated,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psk({:?}, {:?})", self.kind, self.hash)
    }
}

impl Psk {
    /// A configured key of random bytes.
    #[must_use]
    pub fn new(hash: PskHash, random: impl FnOnce(&mut [u8])) -> Psk {
        let mut key = vec![0; hash.digest_bytes()];
        random(&mut key);
        Psk {
            key: Secret::new(key),
            hash,
            kind: PskKind::Configured,
        }
    }

    /// The key that DH-HMAC-CHAP has made. `None` if its length is that of no hash.
    #[must_use]
    pub fn generated(key: Secret) -> Option<Psk> {
        let hash = hash_of_len(key.len())?;
        let kind = PskKind::Generated;
        Some(Psk { key, hash, kind })
    }

    /// Of an interchange key: `NVMeTLSkey-1:HH:base64 of key and CRC-32:`.
    ///
    /// # Errors
    /// What of it is wrong.
    pub fn parse(text: &str) -> Result<Psk, PskError> {
        let key_bytes_max = PskHash::Sha384.digest_bytes();
        let (code, key) = interchange::parse(INTERCHANGE, text, key_bytes_max)?;
        let hash = hash_of_len(key.len()).ok_or(PskError::Length)?;
        let kind = match code {
            "00" => PskKind::Retained,
            _ if code == hash.code() => PskKind::Configured,
            "01" | "02" => return Err(PskError::Length),
            _ => return Err(PskError::Form),
        };
        Ok(Psk { key, hash, kind })
    }

    /// As both sides are told it: whoever sees it has it.
    #[must_use]
    pub fn interchange(&self) -> String {
        let code = match self.kind {
            PskKind::Configured => self.hash.code(),
            PskKind::Retained | PskKind::Generated => "00",
        };
        interchange::text(INTERCHANGE, code, &self.key)
    }

    /// Its hash.
    #[must_use]
    pub fn hash(&self) -> PskHash {
        self.hash
    }

    /// The TLS PSK of a host and a subsystem, of identity version 1.
    #[must_use]
    pub fn tls_psk(&self, hostnqn: &str, subnqn: &str, derivation: Derivation) -> TlsPsk {
        let (hash, code) = (self.hash, self.hash.code());
        let (retained, kind) = self.retained(hostnqn, derivation);
        let digest = hash.hmac(
            retained.bytes(),
            &[
                hostnqn.as_bytes(),
                b" ",
                subnqn.as_bytes(),
                b" NVMe-over-Fabrics",
            ],
        );
        let context = format!("{code} {}", base64(&digest));
        TlsPsk {
            secret: derivation.expand(hash, &retained, TLS_PSK_LABEL, context.as_bytes()),
            identity: format!("NVMe1{kind}{code} {hostnqn} {subnqn} {}", base64(&digest)),
            hash,
            derivation,
        }
    }

    /// The same of identity version 0, which tells nothing of the key.
    #[must_use]
    pub fn tls_psk_version_0(&self, hostnqn: &str, subnqn: &str, derivation: Derivation) -> TlsPsk {
        let (hash, code) = (self.hash, self.hash.code());
        let (retained, kind) = self.retained(hostnqn, derivation);
        let identity = format!("NVMe0{kind}{code} {hostnqn} {subnqn}");
        TlsPsk {
            secret: derivation.expand(hash, &retained, TLS_PSK_LABEL, identity.as_bytes()),
            identity,
            hash,
            derivation,
        }
    }

    fn retained(&self, hostnqn: &str, derivation: Derivation) -> (Secret, char) {
        match self.kind {
            PskKind::Configured => {
                let hostnqn = hostnqn.as_bytes();
                let retained = derivation.expand(self.hash, &self.key, "HostNQN", hostnqn);
                (retained, 'R')
            }
            PskKind::Retained => (self.key.clone(), 'R'),
            PskKind::Generated => (self.key.clone(), 'G'),
        }
    }
}

const TLS_PSK_LABEL: &str = "nvme-tls-psk";

fn hash_of_len(len: usize) -> Option<PskHash> {
    PskHash::ALL
        .into_iter()
        .find(|hash| hash.digest_bytes() == len)
}

/// What a handshake is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPsk {
    /// What the client says in the clear.
    pub identity: String,
    /// The key.
    pub secret: Secret,
    /// Of the cipher suite.
    pub hash: PskHash,
    /// How it was made.
    pub derivation: Derivation,
}

/// Bytes of an NQN, at most (Base 2.0, section 4.5).
const NQN_BYTES_MAX: usize = 223;

/// Whom an identity names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PskIdentity<'a> {
    /// 0 or 1.
    pub version: u8,
    /// DH-HMAC-CHAP has made the key.
    pub is_generated: bool,
    /// Of the cipher suite.
    pub hash: PskHash,
    /// NQN of the host.
    pub hostnqn: &'a str,
    /// NQN of the subsystem.
    pub subnqn: &'a str,
}

impl<'a> PskIdentity<'a> {
    /// The NQNs of a host and a subsystem that stand in an identity, whatever else of it is
    /// wrong.
    #[must_use]
    pub fn named_in(text: &'a str) -> Option<(&'a str, &'a str)> {
        let mut names = text.split(' ').skip(1);
        let is_nqn = |name: &&str| (1..=NQN_BYTES_MAX).contains(&name.len());
        Some((names.next().filter(is_nqn)?, names.next().filter(is_nqn)?))
    }

    /// `None`: it is none of NVMe.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<PskIdentity<'a>> {
        let mut words = text.split(' ');
        let (form, hostnqn, subnqn) = (words.next()?, words.next()?, words.next()?);
        let digest = words.next();
        let (version, kind) = form.strip_prefix("NVMe")?.split_at_checked(1)?;
        let version = match (version, digest) {
            ("0", None) => 0,
            ("1", Some(_)) => 1,
            _ => return None,
        };
        let (kind, code) = kind.split_at_checked(1)?;
        let is_generated = match kind {
            "R" => false,
            "G" => true,
            _ => return None,
        };
        let hash = PskHash::ALL.into_iter().find(|hash| hash.code() == code)?;
        let is_whole = words.next().is_none() && !hostnqn.is_empty() && !subnqn.is_empty();
        is_whole.then_some(PskIdentity {
            version,
            is_generated,
            hash,
            hostnqn,
            subnqn,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";

    fn counting(hash: PskHash) -> Psk {
        Psk::new(hash, |bytes| {
            (0..).zip(bytes).for_each(|(n, byte)| *byte = n);
        })
    }

    #[test]
    fn interchange_key_is_read_as_it_is_written() {
        for hash in PskHash::ALL {
            let psk = counting(hash);
            assert_eq!(Psk::parse(&psk.interchange()), Ok(psk));
        }
        let retained = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        let psk = Psk::parse(retained).unwrap();
        assert_eq!(psk.interchange(), retained);
        assert_eq!(psk.kind, PskKind::Retained);
    }

    #[test]
    fn damaged_interchange_key_is_refused() {
        let key = counting(PskHash::Sha256).interchange();
        for (text, why) in [
            (key.replace(":01:", ":02:"), PskError::Length),
            (key.replace(":01:", ":03:"), PskError::Form),
            (key.replace("AAEC", "AAED"), PskError::Checksum),
            (key.replace("AAEC", "AA=C"), PskError::Form),
            (key.trim_end_matches(':').to_owned(), PskError::Form),
            (format!("{key}:"), PskError::Form),
            (key.replace("NVMeTLSkey", "DHHC"), PskError::Form),
            ("NVMeTLSkey-1:01:AAAAAA==:".to_owned(), PskError::Length),
            ("NVMeTLSkey-1:01:AAAAAAA=:".to_owned(), PskError::Checksum),
            ("NVMeTLSkey-1:01:AAAA:".to_owned(), PskError::Length),
            (String::new(), PskError::Form),
        ] {
            assert_eq!(Psk::parse(&text), Err(why), "{text}");
        }
    }

    #[test]
    fn identity_names_its_host_and_subsystem() {
        for hash in PskHash::ALL {
            let psk = counting(hash);
            let of_generated = Psk::generated(psk.key.clone()).unwrap();
            for (psk, is_generated) in [(&psk, false), (&of_generated, true)] {
                let one = psk.tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
                let none = psk.tls_psk_version_0(HOST, SUBSYSTEM, Derivation::Standard);
                for (version, psk) in [(1, one), (0, none)] {
                    let named = PskIdentity::parse(&psk.identity).unwrap();
                    let wanted = PskIdentity {
                        version,
                        is_generated,
                        hash,
                        hostnqn: HOST,
                        subnqn: SUBSYSTEM,
                    };
                    assert_eq!(named, wanted);
                    assert_eq!(psk.secret.len(), hash.digest_bytes());
                }
            }
        }
        for text in [
            "",
            "NVMe1R01 a b",
            "NVMe0R01 a b c",
            "NVMe1R01 a b c d",
            "NVMe2R01 a b c",
            "NVMe1X01 a b c",
            "NVMe1R03 a b c",
            "NVMe0R01  b",
            "NVMe",
        ] {
            assert_eq!(PskIdentity::parse(text), None, "{text}");
        }
    }

    /// Digest of the identity, key of version 1 and key of version 0, for a key that counts
    /// from 0: computed apart, with the HMAC of Python.
    const KNOWN: [(PskHash, Derivation, &str, &str, &str); 4] = [
        (
            PskHash::Sha256,
            Derivation::Standard,
            "mJXZJLl3sR/v0nSx2kgjWGyDTOaA2I/zwile2Wb4MVY=",
            "36dc9e9dfca7ccd17b11f6069a51aca16673e9546b91aad1eb9c5ae3fd3f665d",
            "b7be4d3d5f1a62629af39d315cd8e3fceac29a082e40925bfd1502e53ebf81a2",
        ),
        (
            PskHash::Sha256,
            Derivation::Old,
            "Co4NMOU3lQr1yyfga3x6z8ggklfFx7UlHEWThdj2oxU=",
            "9539174fa201e58df3f6cfd8085a5394a93c970154aa3950f305a4117da16aa5",
            "6bb43b521b56b449049e96cec7fd5b9f218af9634ee08f7215cb3ce80602e80f",
        ),
        (
            PskHash::Sha384,
            Derivation::Standard,
            "5vqQLL4ZoroxzEbTmlQfL/uHxqtxr8HBQ0nNiBRsB4NClm9oVRK071bHpRPKOGME",
            "3b965f3abb769af92d86fc666e431f616cb7886c153ab9e044893193fffa57e188ae7482f365734a4c5cc9490fafb70c",
            "6a646da5890ffea2396a6af8207e3871c9de0bd03590f7490aa2a29cc17134a772c345dab474b77f01f94ebe35545890",
        ),
        (
            PskHash::Sha384,
            Derivation::Old,
            "F5vM3Vq8sDlaFRodIjhdASRUtZM7exFXEtHzYXdM7MQTRrDh7BxVQy6teSkLbKGb",
            "6e34605640ad68576e10a2001e1ed3e1dc85a96b18b77006a9c80f0acdfac4d04471c68b32252f24cd41e93aee090cfe",
            "c7a0cafbcd49a1fece660e74df8590eda6775f1577dd5a63a81e58081698464f010b82662f337c311a28c4790c28497c",
        ),
    ];

    #[test]
    fn tls_psks_are_those_that_were_computed_apart() {
        let hex = |secret: &Secret| crate::binary::hex(secret.bytes())[2..].to_owned();
        for (hash, derivation, digest, one, none) in KNOWN {
            let psk = counting(hash);
            let made = psk.tls_psk(HOST, SUBSYSTEM, derivation);
            let wanted = format!("NVMe1R{} {HOST} {SUBSYSTEM} {digest}", hash.code());
            assert_eq!((made.identity, hex(&made.secret)), (wanted, one.to_owned()));
            let made = psk.tls_psk_version_0(HOST, SUBSYSTEM, derivation);
            let wanted = format!("NVMe0R{} {HOST} {SUBSYSTEM}", hash.code());
            assert_eq!(
                (made.identity, hex(&made.secret)),
                (wanted, none.to_owned())
            );
        }
    }
}
