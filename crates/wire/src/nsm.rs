//! The Network Status Monitor (X/Open XNFS, chapter 11), as generated from a description in
//! `crates/wire/xdr/nsm`. Names are the standard's.

described!("nsm");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Reader};

    #[test]
    fn notices_of_a_start_lie_as_the_standard_has_them() {
        let notice = stat_chge {
            mon_name: Opaque(b"ab"),
            state: 7,
        };
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 2, b'a', b'b', 0, 0, 0, 0, 0, 7]);
        assert_eq!(stat_chge::decode(&mut Reader::new(&bytes)), Ok(notice));
    }
}
