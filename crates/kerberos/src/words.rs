//! What the library refuses, in words that say what to do.

use std::fmt;

use nix::errno::Errno;

/// A call that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The major status (RFC 2744, section 3.9.1).
    pub major: u32,
    /// The minor status: of Kerberos, as the library's tables have it.
    pub minor: u32,
    /// What the library says, then what to do about it, if that is known.
    said: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.said.as_str() {
            "" => f.write_str("the library gives no reason"),
            said => f.write_str(said),
        }
    }
}

/// The context is good no more, or was never there (RFC 2744, section 3.9.1).
const NO_CONTEXT: u32 = 8;
const CONTEXT_EXPIRED: u32 = 12;

/// A call fails for a reason of its own (RFC 2744, section 3.9.1).
const FAILURE: u32 = 13 << 16;

impl Failure {
    /// The user database does not tell which user a client is.
    pub(crate) fn of_users(client: &str, errno: Errno) -> Failure {
        Failure {
            major: FAILURE,
            minor: 0,
            said: format!(
                "the user database of this machine cannot be asked who {client} is: {}",
                errno.desc()
            ),
        }
    }

    /// Whether no message of this context can be right any more.
    pub(crate) fn is_of_context(&self) -> bool {
        let routine_error = self.major >> 16 & 0xff;
        routine_error == NO_CONTEXT || routine_error == CONTEXT_EXPIRED
    }
}

/// Puts one together of what the library says of both statuses.
pub(crate) fn failure(major: u32, minor: u32, say: impl Fn(u32, bool) -> String) -> Failure {
    let of_minor = match minor {
        0 => String::new(),
        minor => say(minor, true),
    };
    let mut said = match of_minor.trim() {
        // The library has no words for the minor status.
        "" | "Success" => say(major, false),
        text => text.to_owned(),
    };
    if let Some((name, _, advice)) = find(minor) {
        said = format!("{said} ({name}): {advice}");
    }
    Failure { major, minor, said }
}

/// Where the numbers of RFC 4120, section 7.5.9, begin among minor statuses.
const PROTOCOL: i32 = -1_765_328_384;

/// Name, number, what it means for the one who runs the server or the client. Up to 127 the
/// numbers are those of RFC 4120; above they are the library's own.
const ADVICE: &[(&str, i32, &str)] = &[
    (
        "KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN",
        6,
        "the KDC does not know this client: `addprinc` makes it",
    ),
    (
        "KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN",
        7,
        "the KDC does not know this service: `addprinc -randkey nfs/HOST` makes it, and HOST is \
         the name that the client mounts by",
    ),
    (
        "KRB5KDC_ERR_ETYPE_NOSUPP",
        14,
        "client, service and KDC have no kind of encryption in common: `ktadd` makes keys of the \
         kinds that the KDC has today",
    ),
    (
        "KRB5KRB_AP_ERR_BAD_INTEGRITY",
        31,
        "the key in the keytab is not the one that the KDC has: `ktadd` there, and copy the \
         keytab here",
    ),
    (
        "KRB5KRB_AP_ERR_TKT_EXPIRED",
        32,
        "the client needs a new ticket, by `kinit`, or its clock is slow",
    ),
    (
        "KRB5KRB_AP_ERR_TKT_NYV",
        33,
        "the ticket is of a time to come: set the clocks of client, server and KDC",
    ),
    (
        "KRB5KRB_AP_ERR_NOT_US",
        35,
        "the keytab has no key of the service that the client asked for: `klist -k` shows what it \
         has, `ktadd nfs/HOST` adds to it, and HOST is the name that the client mounts by",
    ),
    (
        "KRB5KRB_AP_ERR_SKEW",
        37,
        "the clocks of client and server differ by more than Kerberos takes, 5 minutes: set both \
         by NTP",
    ),
    (
        "KRB5KRB_AP_ERR_MODIFIED",
        41,
        "the key in the keytab is not the one that the KDC has: `ktadd` there, and copy the \
         keytab here",
    ),
    (
        "KRB5KRB_AP_ERR_ILL_CR_TKT",
        43,
        "the way between the realms of client and server is not one that the server trusts: \
         [capaths] of krb5.conf",
    ),
    (
        "KRB5KRB_AP_ERR_BADKEYVER",
        44,
        "the keytab has a key of another version: after `ktadd` at the KDC the new keytab belongs \
         here, and a client with an older ticket needs a new one, by `kinit`",
    ),
    (
        "KRB5KRB_AP_ERR_NOKEY",
        45,
        "the keytab has no key of the service that the client asked for: `klist -k` shows what it \
         has, `ktadd nfs/HOST` adds to it, and HOST is the name that the client mounts by",
    ),
    (
        "KRB5_REALM_UNKNOWN",
        154,
        "krb5.conf says of no KDC of this realm: [realms]",
    ),
    (
        "KRB5_KDC_UNREACH",
        156,
        "no KDC of the realm answers: krb5.conf says where they are, [realms]",
    ),
    (
        "KRB5_PROG_ETYPE_NOSUPP",
        150,
        "this kind of encryption is not allowed here: `permitted_enctypes` of krb5.conf, or \
         `ktadd` with keys of a newer kind",
    ),
    (
        "KRB5_KT_NOTFOUND",
        181,
        "`klist -k` shows what keys the keytab has, `ktadd nfs/HOST` adds to it",
    ),
    (
        "KRB5_BAD_ENCTYPE",
        188,
        "`ktadd` makes keys of the kinds that the KDC has today",
    ),
    (
        "KRB5_FCC_NOFILE",
        195,
        "`kinit` gets tickets; where a keytab is to serve instead, `klist -k` shows whose keys it \
         has",
    ),
    (
        "KRB5_CONFIG_NODEFREALM",
        224,
        "`default_realm` of krb5.conf names it, [libdefaults]",
    ),
];

fn find(minor: u32) -> Option<&'static (&'static str, i32, &'static str)> {
    let number = minor.cast_signed().checked_sub(PROTOCOL)?;
    ADVICE.iter().find(|(_, known, _)| *known == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(minor: i32) -> String {
        let say = |_: u32, is_minor| match is_minor {
            true if minor == 13 => String::from("Success"),
            true => String::from("of the minor"),
            false => String::from("of the major"),
        };
        failure(13 << 16, minor.cast_unsigned(), say).to_string()
    }

    #[test]
    fn failure_with_a_known_number_says_its_name_and_the_remedy() {
        let text = said(PROTOCOL + 37);
        assert!(
            text.starts_with("of the minor (KRB5KRB_AP_ERR_SKEW): "),
            "{text}"
        );
        assert!(text.contains("NTP"), "{text}");
    }

    #[test]
    fn failure_with_no_minor_status_or_an_unknown_one_says_what_the_library_says() {
        assert_eq!(said(0), "of the major");
        assert_eq!(said(12), "of the minor");
        assert_eq!(said(13), "of the major");
        assert_eq!(
            Failure::default().to_string(),
            "the library gives no reason"
        );
    }

    #[test]
    fn failure_is_of_the_context_where_that_expired_or_is_gone() {
        for (routine_error, expected) in [(6, false), (8, true), (12, true), (13, false)] {
            let major = routine_error << 16 | 4;
            let failure = Failure {
                major,
                ..Failure::default()
            };
            assert_eq!(failure.is_of_context(), expected, "{routine_error}");
        }
    }
}
