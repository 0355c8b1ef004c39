//! Text: `key=value` pairs, each ended by a zero byte (RFC 7143, section 6.1).

/// The most bytes of a key (section 6.1).
pub const KEY_LEN_MAX: usize = 63;
/// The most bytes of a value whose key says nothing else (section 6.1).
pub const VALUE_LEN_MAX: usize = 255;
/// The most pairs in one text: more than there are keys, each answered in less
/// than 80 bytes if it is not understood.
pub const PAIRS_MAX: usize = 96;

/// The answer to a key that is not known.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// The answer to a key that means nothing here.
pub const IRRELEVANT: &str = "Irrelevant";
/// The answer to a value that cannot be taken.
pub const REJECT: &str = "Reject";
/// Nothing: of digests and authentication methods.
pub const NONE: &str = "None";

/// The pairs of a text in their order. `None` if it is no text: not UTF-8, no
/// `=`, a key that is none, or too many pairs. The zero byte behind the last
/// pair may be missing.
pub fn parse(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let parsed: Option<Vec<_>> = pairs(text).take(PAIRS_MAX + 1).collect();
    parsed.filter(|parsed| parsed.len() <= PAIRS_MAX)
}

/// The pairs of a text of however many, such as the answer to SendTargets; `None`
/// in the place of one that is none.
pub fn pairs(text: &[u8]) -> impl Iterator<Item = Option<(&str, &str)>> {
    let pairs = text.split(|byte| *byte == 0);
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        is_key(key).then_some((key, value))
    })
}

/// The most characters of a text that [`quoted`] shows.
const QUOTED_MAX: usize = 64;

/// What a peer has sent, for the log: in backquotes, and no longer than is read.
pub fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("`{}...`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Why [`parse`] takes no text.
pub fn fault(text: &[u8]) -> String {
    let mut all = text.split(|byte| *byte == 0);
    let Some(pair) = all.find(|pair| pairs(pair).any(|pair| pair.is_none())) else {
        return format!("its text has more than {PAIRS_MAX} keys");
    };
    // Without the value, which may be that of CHAP.
    let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    format!(
        "its text has {}, which begins no `key=value` of UTF-8 with a key of at most \
         {KEY_LEN_MAX} letters",
        quoted(key)
    )
}

fn is_key(key: &str) -> bool {
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_/#".contains(&byte);
    !key.is_empty() && key.len() <= KEY_LEN_MAX && key.bytes().all(is_label)
}

/// Appends a pair.
pub fn push(text: &mut Vec<u8>, key: &str, value: &str) {
    for part in [key, "=", value, "\0"] {
        text.extend_from_slice(part.as_bytes());
    }
}

/// A numerical value: a decimal or a hex constant of at most 64 bits. Not more
/// than that is ever needed.
pub fn number(value: &str) -> Option<u64> {
    let (digits, radix) = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` would take a sign.
    let is_digits = digits.chars().all(|digit| digit.is_digit(radix));
    (is_digits && digits.len() <= 20)
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
}

/// A boolean value: `Yes` or `No`.
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// What [`boolean`] takes.
pub fn yes_or_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// A key of text negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Section of RFC 7143.
    pub section: &'static str,
    /// Of the session, hence negotiated on its leading connection alone.
    pub leading_only: bool,
    /// Means something in a discovery session.
    pub in_discovery: bool,
    /// Belongs to the SecurityNegotiation stage.
    pub is_security: bool,
    /// What comes of the two values: `min`, `max`, `AND`, `OR`, `list` (the
    /// first of the initiator's that the target takes), `declared` (not
    /// answered), or the answer that is always given.
    pub how: &'static str,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_read_in_their_order() {
        let text = b"InitiatorName=iqn.1999-07.com.example:a\0X-org.example=a=b\0\0Empty=\0";
        let pairs = [
            ("InitiatorName", "iqn.1999-07.com.example:a"),
            ("X-org.example", "a=b"),
            ("Empty", ""),
        ];
        assert_eq!(parse(text).as_deref(), Some(&pairs[..]));
        assert_eq!(
            parse(b"A=1").as_deref(),
            Some(&[("A", "1")][..]),
            "no zero at the end"
        );
        assert_eq!(parse(b"").as_deref(), Some(&[][..]));
    }

    #[test]
    fn text_with_a_malformed_pair_is_refused() {
        for text in [
            &b"NoValue\0"[..],
            b"=1\0",
            b"a b=1\0",
            b"A=\xff\0",
            b"\xc3\xa9=1\0",
            b"A=1\0B\0",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let long = |len: usize| format!("{}=1\0", "k".repeat(len));
        assert!(parse(long(KEY_LEN_MAX).as_bytes()).is_some());
        assert!(parse(long(KEY_LEN_MAX + 1).as_bytes()).is_none());
        assert!(parse("A=1\0".repeat(PAIRS_MAX).as_bytes()).is_some());
        assert!(parse("A=1\0".repeat(PAIRS_MAX + 1).as_bytes()).is_none());
    }

    #[test]
    fn fault_of_a_text_quotes_its_first_pair_that_is_none() {
        assert!(fault(b"A=1\0NoValue\0\xff=1").contains("`NoValue`"));
        assert!(fault(&[b'k'; 1000]).contains(&format!("`{}...`", "k".repeat(QUOTED_MAX))));
        let fault_of_value = fault(b"CHAP_R=0xab\xff\0");
        assert!(fault_of_value.contains("`CHAP_R`"), "{fault_of_value}");
        assert!(!fault_of_value.contains("0xab"), "values may be secret");
        assert!(fault("A=1\0".repeat(PAIRS_MAX + 1).as_bytes()).contains("96 keys"));
    }

    #[test]
    fn numbers_and_booleans_are_parsed_as_the_standard_writes_them() {
        let table = [
            ("0", Some(0)),
            ("8192", Some(8192)),
            ("0x2000", Some(8192)),
            ("0XfF", Some(255)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("+1", None),
            ("-1", None),
            ("0x", None),
            ("0x+1", None),
            ("", None),
            ("1k", None),
        ];
        for (value, expected) in table {
            assert_eq!(number(value), expected, "{value}");
        }
        let booleans = ["Yes", "No", "yes", "", "1"].map(boolean);
        assert_eq!(booleans, [Some(true), Some(false), None, None, None]);
    }

    proptest! {
        #[test]
        fn pairs_that_are_written_are_read_back(
            pairs in proptest::collection::vec(("[A-Za-z0-9.@_+-]{1,63}", "[^\0]{0,40}"), 0..20),
        ) {
            let mut text = Vec::new();
            for (key, value) in &pairs {
                push(&mut text, key, value);
            }
            let read = parse(&text).expect("text");
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(pairs) = parse(&bytes) {
                prop_assert!(pairs.len() <= PAIRS_MAX);
                for (key, value) in pairs {
                    prop_assert!(key.len() <= KEY_LEN_MAX && !value.contains('\0'));
                }
            }
        }
    }
}
