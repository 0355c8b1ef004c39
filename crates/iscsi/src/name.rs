//! iSCSI names (RFC 7143, section 4.2.7): `iqn.`, `eui.` and `naa.`.

/// Bytes of an iSCSI name at most (RFC 7143, section 4.2.7.1).
pub const NAME_LEN_MAX: usize = 223;

/// Why a text is no iSCSI name, and what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It does not start with the designator of a format.
    #[error("an iSCSI name starts with \"iqn.\", \"eui.\" or \"naa.\"")]
    Format,
    /// Empty, or longer than [`NAME_LEN_MAX`] bytes.
    #[error("an iSCSI name has 1 to {NAME_LEN_MAX} bytes")]
    Length,
    /// A character that no name has.
    #[error("an iSCSI name has letters, digits, `-`, `.` and `:`, and no {0:?}")]
    Character(char),
    /// `iqn.` without a month and a domain.
    #[error(
        "after \"iqn.\" come a year and month in which you had the domain, and the domain \
         backwards: iqn.2026-01.org.example:disks"
    )]
    Iqn,
    /// `eui.` without sixteen hexadecimal digits.
    #[error("after \"eui.\" come 16 hexadecimal digits")]
    Eui,
    /// `naa.` without sixteen or thirty-two hexadecimal digits.
    #[error("after \"naa.\" come 16 or 32 hexadecimal digits")]
    Naa,
}

/// A name as it is compared: in lower case (RFC 3722, of which ASCII needs no
/// more).
pub fn normalize(name: &str) -> String {
    name.to_lowercase()
}

/// The name of a target, normalized.
///
/// # Errors
/// What it should be.
pub fn check_target_name(name: &str) -> Result<String, NameError> {
    check(name, |c| c.is_ascii_alphanumeric() || "-.:".contains(c))
}

/// The name of an initiator, normalized. Taken as initiators really have them:
/// the underscore, which RFC 3722 forbids, and letters beyond ASCII are in use.
///
/// # Errors
/// What it should be.
pub fn check_initiator_name(name: &str) -> Result<String, NameError> {
    check(name, |c| c.is_alphanumeric() || "-.:_".contains(c))
}

fn check(name: &str, is_allowed: impl Fn(char) -> bool) -> Result<String, NameError> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(NameError::Length);
    }
    if let Some(c) = name.chars().find(|c| !is_allowed(*c)) {
        return Err(NameError::Character(c));
    }
    let name = normalize(name);
    let (format, rest) = name.split_once('.').ok_or(NameError::Format)?;
    let is_hex = rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    match format {
        "iqn" if !is_iqn(rest) => Err(NameError::Iqn),
        "eui" if rest.len() != 16 || !is_hex => Err(NameError::Eui),
        "naa" if !matches!(rest.len(), 16 | 32) || !is_hex => Err(NameError::Naa),
        "iqn" | "eui" | "naa" => Ok(name),
        _ => Err(NameError::Format),
    }
}

/// `yyyy-mm.domain`, with anything behind it (RFC 7143, section 4.2.7.4).
fn is_iqn(rest: &str) -> bool {
    let Some((date, domain)) = rest.split_once('.') else {
        return false;
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = match date.split_once('-') {
        Some((year, month)) => {
            (year.len(), month.len()) == (4, 2)
                && is_number(year)
                && month
                    .parse()
                    .is_ok_and(|month: u8| (1..=12).contains(&month))
        }
        None => false,
    };
    is_date && domain.starts_with(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_format_are_taken_in_lower_case() {
        for (name, normalized) in [
            ("iqn.2026-01.io.weft:default", "iqn.2026-01.io.weft:default"),
            (
                "iqn.1993-08.org.Debian:01:AbC",
                "iqn.1993-08.org.debian:01:abc",
            ),
            ("IQN.2001-04.com", "iqn.2001-04.com"),
            ("eui.02004567A425678D", "eui.02004567a425678d"),
            ("naa.52004567BA64678D", "naa.52004567ba64678d"),
            (
                "naa.62004567BA64678D0123456789ABCDEF",
                "naa.62004567ba64678d0123456789abcdef",
            ),
        ] {
            assert_eq!(check_target_name(name).as_deref(), Ok(normalized));
            assert_eq!(check_initiator_name(name).as_deref(), Ok(normalized));
        }
        assert_eq!(
            check_target_name(&long(NAME_LEN_MAX)),
            Ok(long(NAME_LEN_MAX))
        );
    }

    fn long(len: usize) -> String {
        format!("{:a<len$}", "iqn.2026-01.a:")
    }

    #[test]
    fn other_texts_are_refused_with_what_is_wrong() {
        for (name, why) in [
            ("", NameError::Length),
            (&long(NAME_LEN_MAX + 1), NameError::Length),
            ("disk", NameError::Format),
            ("nqn.2026-01.io.weft:a", NameError::Format),
            ("iqn", NameError::Format),
            ("iqn.", NameError::Iqn),
            ("iqn.2026-01", NameError::Iqn),
            ("iqn.2026-13.io.weft", NameError::Iqn),
            ("iqn.2026-00.io.weft", NameError::Iqn),
            ("iqn.26-01.io.weft", NameError::Iqn),
            ("iqn.2026-1.io.weft", NameError::Iqn),
            ("iqn.2026-01.:a", NameError::Iqn),
            ("eui.02004567A425678", NameError::Eui),
            ("eui.02004567A425678G", NameError::Eui),
            ("naa.52004567BA64678D0", NameError::Naa),
            ("iqn.2026-01.io.weft:a b", NameError::Character(' ')),
            ("iqn.2026-01.io.weft:a\u{0}", NameError::Character('\u{0}')),
            ("iqn.2026-01.io.weft:a,b", NameError::Character(',')),
        ] {
            assert_eq!(check_target_name(name), Err(why), "{name:?}");
            assert_eq!(check_initiator_name(name), Err(why), "{name:?}");
        }
    }

    #[test]
    fn initiators_have_names_that_targets_should_not() {
        for name in [
            "iqn.1998-01.com.vmware:host_1",
            "iqn.1991-05.com.microsoft:büro",
        ] {
            assert!(check_target_name(name).is_err());
            assert_eq!(check_initiator_name(name).as_deref(), Ok(name));
        }
    }
}
