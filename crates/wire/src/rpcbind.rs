//! The port mapper (RFC 1833, versions 2 to 4), as generated from a description in
//! `crates/wire/xdr/rpcbind`. Names are the standard's.

described!("rpcbind");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Reader};

    #[test]
    fn mappings_lie_as_the_standard_has_them() {
        let asked = pmap {
            prog: 100_003,
            vers: 3,
            prot: IPPROTO_TCP,
            port: 0,
        };
        let mut bytes = Vec::new();
        asked.encode(&mut bytes);
        let expected = [0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 0];
        assert_eq!(bytes, expected);
        assert_eq!(pmap::decode(&mut Reader::new(&bytes)), Ok(asked));
    }

    #[test]
    fn addresses_are_texts_with_their_lengths() {
        let asked = rpcb {
            r_prog: 1,
            r_vers: 2,
            r_netid: Opaque(b"tcp"),
            r_addr: Opaque(b""),
            r_owner: Opaque(b"me"),
        };
        let mut bytes = Vec::new();
        asked.encode(&mut bytes);
        let expected = [
            0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, b't', b'c', b'p', 0, 0, 0, 0, 0, 0, 0, 0, 2, b'm',
            b'e', 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(rpcb::decode(&mut Reader::new(&bytes)), Ok(asked));
    }
}
