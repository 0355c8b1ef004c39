//! The principal that makes the record of a client, and alone may change it (RFC 8881, section
//! 2.4.3).

use std::cmp::Ordering;
use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::connection::{Credential, Flavor};

/// What a client has proved to be, as a number: the same after each start, and no two names can
/// be found that share one.
pub type ProvenNumber = u128;

/// The number of a principal of Kerberos, or of a name in a certificate: the begin of its SHA-256.
pub fn proven_number(name: &str) -> ProvenNumber {
    let digest = Sha256::digest(name.as_bytes());
    let (begin, _) = digest.split_first_chunk().expect("it has 32 bytes");
    ProvenNumber::from_be_bytes(*begin)
}

/// The principal that made a client's record: only it may change that (RFC 8881,
/// section 2.4.3). Two are the same whatever service of RPCSEC_GSS they use. A machine with a
/// certificate (RFC 9289, section 4.2) has no principal in common with one that shows another, or
/// none: AUTH_SYS lets each name any user.
#[derive(Clone, Copy, Debug)]
pub struct Principal {
    kind: PrincipalKind,
    pub(super) certificate: Option<ProvenNumber>,
    /// Whether what it says cannot be changed on its way.
    pub(super) has_integrity: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PrincipalKind {
    Nothing,
    User(u32),
    Gss(ProvenNumber),
}

impl Principal {
    /// Of a call on a connection whose client has shown a certificate of this number
    /// ([`proven_number`] of what it is called), or none.
    pub fn new(credential: &Credential, certificate: Option<ProvenNumber>) -> Principal {
        Principal {
            kind: match credential.flavor {
                Flavor::None => PrincipalKind::Nothing,
                Flavor::Sys => PrincipalKind::User(credential.uid),
                Flavor::Krb5 | Flavor::Krb5i | Flavor::Krb5p => {
                    PrincipalKind::Gss(credential.principal)
                }
            },
            certificate,
            has_integrity: credential.flavor.has_integrity(),
        }
    }

    fn parts(&self) -> (PrincipalKind, Option<ProvenNumber>) {
        (self.kind, self.certificate)
    }

    /// What its [`Display`](fmt::Display) has written; `None` of any other text.
    pub fn parse(text: &str) -> Option<Principal> {
        let proven = |digits: &str| ProvenNumber::from_str_radix(digits, 16).ok();
        let words: Vec<&str> = text.split(' ').collect();
        let (kind, rest) = match &words[..] {
            ["none", rest @ ..] => (PrincipalKind::Nothing, rest),
            ["uid", uid, rest @ ..] => (PrincipalKind::User(uid.parse().ok()?), rest),
            ["krb5", name, rest @ ..] => (PrincipalKind::Gss(proven(name)?), rest),
            _ => return None,
        };
        let certificate = match rest {
            [] => None,
            ["certificate", name] => Some(proven(name)?),
            _ => return None,
        };
        Some(Principal {
            kind,
            certificate,
            has_integrity: false,
        })
    }
}

/// As records of clients have it: `none`, `uid 0` or `krb5` and a number, then `certificate` and
/// a number where it has shown one.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PrincipalKind::Nothing => f.write_str("none")?,
            PrincipalKind::User(uid) => write!(f, "uid {uid}")?,
            PrincipalKind::Gss(name) => write!(f, "krb5 {name:032x}")?,
        }
        match self.certificate {
            Some(name) => write!(f, " certificate {name:032x}"),
            None => Ok(()),
        }
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Principal) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Principal {}

impl PartialOrd for Principal {
    fn partial_cmp(&self, other: &Principal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Principal {
    fn cmp(&self, other: &Principal) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_read_as_they_are_written() {
        let mut gss = Credential::sys(0, 0, []);
        (gss.flavor, gss.principal) = (Flavor::Krb5i, proven_number("host/one@TEST"));
        let credentials = [Credential::default(), Credential::sys(7, 8, []), gss];
        for credential in &credentials {
            for certificate in [None, Some(proven_number("DNS:a.example.org"))] {
                let principal = Principal::new(credential, certificate);
                let text = principal.to_string();
                assert_eq!(Principal::parse(&text), Some(principal), "{text}");
                let longer = format!("{text} more");
                assert_eq!(Principal::parse(&longer), None, "{longer}");
            }
        }
        for text in ["", "uid", "uid x", "krb5 ", "none certificate", "none "] {
            assert_eq!(Principal::parse(text), None, "{text}");
        }
    }

    /// Records on disks have these.
    #[test]
    fn number_of_a_name_is_the_same_in_each_version() {
        // `printf host/one@TEST | sha256sum`
        let text = format!("{:032x}", proven_number("host/one@TEST"));
        assert_eq!(text, "beca30677465470f027134b77bef4f30");
    }
}
