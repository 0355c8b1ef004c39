//! Bytes as text: the hex and base64 constants of RFC 7143, section 6.1, and base64 alone
//! (RFC 4648, section 4).

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const HEX: &[u8; 16] = b"0123456789abcdef";

/// `bytes` as a hex constant: `0x...`.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("0x");
    for byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of a hex (`0x...`) or base64 (`0b...`) constant, at most `len_max`
/// of them. `None` if it is neither or longer.
pub fn parse(text: &str, len_max: usize) -> Option<Vec<u8>> {
    let (kind, digits) = text.split_at_checked(2)?;
    match kind {
        "0x" | "0X" => parse_hex(digits.as_bytes(), len_max),
        "0b" | "0B" => parse_base64(digits.as_bytes(), len_max),
        _ => None,
    }
}

fn parse_hex(digits: &[u8], len_max: usize) -> Option<Vec<u8>> {
    if digits.is_empty() || digits.len().div_ceil(2) > len_max {
        return None;
    }
    // A leading zero may be missing: the constant is a number.
    let (odd, pairs) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    for digit in odd {
        bytes.push(hex_value(*digit)?);
    }
    for pair in pairs.chunks_exact(2) {
        bytes.push(hex_value(pair[0])? << 4 | hex_value(pair[1])?);
    }
    Some(bytes)
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// `bytes` in base64, with padding.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for at in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

/// The bytes of base64, at most `len_max` of them; `None` if it is none or longer.
pub fn parse_base64(digits: &[u8], len_max: usize) -> Option<Vec<u8>> {
    let trailing = digits
        .iter()
        .rev()
        .take_while(|digit| **digit == b'=')
        .count();
    let (digits, padding) = digits.split_at(digits.len() - trailing);
    // Padding is there to make groups of 4, or left out.
    let wanted = (4 - digits.len() % 4) % 4;
    if digits.is_empty() || wanted == 3 || (!padding.is_empty() && padding.len() != wanted) {
        return None;
    }
    if digits.len() * 3 / 4 > len_max {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            let value = BASE64.iter().position(|known| known == digit)?;
            bits = bits << 6 | value as u32;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn constants_are_read_in_both_alphabets() {
        let table: &[(&str, Option<&[u8]>)] = &[
            ("0x00ff", Some(&[0, 0xff])),
            ("0XAbc", Some(&[0x0a, 0xbc])),
            ("0x", None),
            ("0x0g", None),
            ("0x+f", None),
            ("00ff", None),
            ("", None),
            ("0", None),
            ("é", None),
            ("0bTQ==", Some(b"M")),
            ("0bTQ", Some(b"M")),
            ("0BTWE=", Some(b"Ma")),
            ("0bTWFu", Some(b"Man")),
            ("0bTWFuTQ==", Some(b"ManM")),
            ("0bT", None),
            ("0bTQ=", None),
            ("0bTQ===", None),
            ("0b====", None),
            ("0b", None),
            ("0bT!==", None),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text, 16).as_deref(), *bytes, "{text}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(parse(&hex(&[7; 16]), 16).is_some());
        assert!(parse(&hex(&[7; 17]), 16).is_none());
        assert!(parse("0bAAAA", 3).is_some());
        assert!(parse("0bAAAA", 2).is_none());
    }

    proptest! {
        #[test]
        fn hex_that_is_written_is_read(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            prop_assert_eq!(parse(&hex(&bytes), 64), Some(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Some(bytes) = parse(&text, 16) {
                prop_assert!(bytes.len() <= 16);
            }
        }
    }
}
