//! The Network Lock Manager, version 4 (RFC 1813, appendix II), as generated from a description
//! in `crates/wire/xdr/nlm4`. Names are the standard's.

described!("nlm4");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Reader};

    #[test]
    fn lock_arguments_lie_as_the_standard_has_them() {
        let args = nlm4_lockargs {
            cookie: Opaque(&[1, 2, 3, 4]),
            block: true,
            exclusive: false,
            alock: nlm4_lock {
                caller_name: Opaque(b"host"),
                fh: Opaque(&[9]),
                oh: Opaque(b"7@h"),
                svid: 7,
                l_offset: 1 << 32,
                l_len: 2,
            },
            reclaim: true,
            state: 5,
        };
        let mut bytes = Vec::new();
        args.encode(&mut bytes);
        let words: Vec<u32> = bytes
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        let expected = [
            4,
            0x0102_0304,
            1,
            0,
            4,
            0x686f_7374,
            1,
            0x0900_0000,
            3,
            0x3740_6800,
            7,
            1,
            0,
            0,
            2,
            1,
            5,
        ];
        assert_eq!(words, expected);
        assert_eq!(nlm4_lockargs::decode(&mut Reader::new(&bytes)), Ok(args));
    }

    #[test]
    fn denied_test_names_the_holder() {
        let holder = nlm4_holder {
            exclusive: true,
            svid: 3,
            oh: Opaque(&[]),
            l_offset: 4,
            l_len: 0,
        };
        let res = nlm4_testres {
            cookie: Opaque(&[]),
            test_stat: nlm4_testrply::NLM4_DENIED(holder),
        };
        let mut bytes = Vec::new();
        res.encode(&mut bytes);
        let expected: Vec<u8> = [0u32, 1, 1, 3, 0, 0, 4, 0, 0]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        assert_eq!(bytes, expected);
    }
}
