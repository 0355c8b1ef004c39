//! NVMe Qualified Names (NVM Express Base Specification 2.0, section 4.5).

use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::NQN_BYTES_MAX;

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why a text is not an NQN that weft takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// Nothing there.
    #[error("an NQN cannot be empty")]
    Empty,
    /// More bytes than an NQN may have.
    #[error("an NQN has at most {NQN_BYTES_MAX} bytes, this one {0}")]
    TooLong(usize),
    /// A space or control character at this byte.
    #[error("byte {0} is a space or a control character")]
    BadCharacter(usize),
    /// It does not start with `nqn.`.
    #[error("an NQN starts with \"nqn.\"")]
    NoPrefix,
    /// `nqn.` is not followed by a date `yyyy-mm` and a dot.
    #[error(
        "\"nqn.\" is followed by a year and month and a dot, as in nqn.2024-01.org.example:disk"
    )]
    BadDate,
    /// No domain name after the date.
    #[error("the date is followed by a reversed domain name, as in nqn.2024-01.org.example:disk")]
    NoDomain,
    /// The part after `uuid:` is not a UUID.
    #[error("\"uuid:\" is followed by a UUID, as in f81d4fae-7dec-11d0-a765-00a0c91e6bf6")]
    BadUuid,
    /// The well-known discovery NQN, which no NVM subsystem may have.
    #[error("the discovery NQN is served by itself and cannot be a subsystem's")]
    Discovery,
}

/// Checks the NQN of a host.
pub fn check_host_nqn(nqn: &str) -> Result<(), NqnError> {
    check(nqn)
}

/// Checks the NQN of an NVM subsystem.
pub fn check_subsystem_nqn(nqn: &str) -> Result<(), NqnError> {
    if nqn == DISCOVERY_NQN {
        return Err(NqnError::Discovery);
    }
    check(nqn)
}

fn check(nqn: &str) -> Result<(), NqnError> {
    if nqn.is_empty() {
        return Err(NqnError::Empty);
    }
    if nqn.len() > NQN_BYTES_MAX {
        return Err(NqnError::TooLong(nqn.len()));
    }
    if let Some(at) = nqn.find(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(NqnError::BadCharacter(at));
    }
    if let Some(uuid) = nqn.strip_prefix(UUID_PREFIX) {
        return if is_uuid(uuid) {
            Ok(())
        } else {
            Err(NqnError::BadUuid)
        };
    }
    let rest = nqn.strip_prefix("nqn.").ok_or(NqnError::NoPrefix)?;
    let domain = after_date(rest).ok_or(NqnError::BadDate)?;
    // Reversed labels; a colon begins what the naming authority says itself.
    let domain = domain.split(':').next().unwrap_or_default();
    if domain.split('.').any(str::is_empty) {
        return Err(NqnError::NoDomain);
    }
    Ok(())
}

/// What follows `yyyy-mm.`.
fn after_date(text: &str) -> Option<&str> {
    let (date, rest) = text.split_once('.')?;
    let (year, month) = date.split_once('-')?;
    let digits = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_digit());
    let valid =
        digits(year, 4) && digits(month, 2) && (1..=12).contains(&month.parse().unwrap_or(0u8));
    valid.then_some(rest)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_or_refused_with_their_fault() {
        let long = format!("nqn.2024-01.org.example:{}", "x".repeat(200));
        let table: &[(&str, Result<(), NqnError>)] = &[
            ("nqn.2024-01.org.example:disk", Ok(())),
            ("nqn.2024-01.org.example", Ok(())),
            (
                "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
                Ok(()),
            ),
            (
                "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765",
                Err(NqnError::BadUuid),
            ),
            (
                "nqn.2014-08.org.nvmexpress:uuid:g81d4fae-7dec-11d0-a765-00a0c91e6bf6",
                Err(NqnError::BadUuid),
            ),
            (
                "nqn.2014-08.org.nvmexpress.discovery",
                Err(NqnError::Discovery),
            ),
            ("", Err(NqnError::Empty)),
            (&long, Err(NqnError::TooLong(224))),
            ("iqn.2024-01.org.example:disk", Err(NqnError::NoPrefix)),
            ("nqn.24-01.org.example:disk", Err(NqnError::BadDate)),
            ("nqn.2024-13.org.example:disk", Err(NqnError::BadDate)),
            ("nqn.org.example:disk", Err(NqnError::BadDate)),
            ("nqn.2024-01.", Err(NqnError::NoDomain)),
            ("nqn.2024-01.:disk", Err(NqnError::NoDomain)),
            ("nqn.2024-01.org..example:disk", Err(NqnError::NoDomain)),
            ("nqn.2024-01.org.:disk", Err(NqnError::NoDomain)),
            ("nqn.2024-01.org.example", Ok(())),
            (
                "nqn.2024-01.org.example:a b",
                Err(NqnError::BadCharacter(25)),
            ),
            (
                "nqn.2024-01.org.example:a\n",
                Err(NqnError::BadCharacter(25)),
            ),
        ];
        for (nqn, expected) in table {
            assert_eq!(check_subsystem_nqn(nqn), *expected, "{nqn}");
        }
        assert_eq!(check_host_nqn(DISCOVERY_NQN), Ok(()));
        assert_eq!(check_subsystem_nqn(&long[..NQN_BYTES_MAX]), Ok(()));
    }
}
