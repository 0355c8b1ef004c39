//! RQUOTA, as generated from a description in `crates/wire/xdr/rquota`. Names are those of Sun's
//! `rquota.x`.

described!("rquota");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Reader};

    #[test]
    fn questions_and_answers_lie_as_sun_has_them() {
        let asked = ext_getquota_args {
            gqa_pathp: Opaque(b"/f"),
            gqa_type: RQUOTA_GRPQUOTA,
            gqa_id: 50,
        };
        let mut bytes = Vec::new();
        asked.encode(&mut bytes);
        assert_eq!(
            bytes,
            [0, 0, 0, 2, b'/', b'f', 0, 0, 0, 0, 0, 1, 0, 0, 0, 50]
        );
        assert_eq!(
            ext_getquota_args::decode(&mut Reader::new(&bytes)),
            Ok(asked)
        );
        bytes.clear();
        getquota_rslt::Q_EPERM.encode(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 3]);
    }
}
