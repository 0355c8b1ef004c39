//! ONC RPC version 2 (RFC 5531): the headers of calls and answers, and the
//! record marks that divide a TCP stream into them (section 11). Credentials of RPCSEC_GSS
//! (RFC 2203).

described!("rpc");

use crate::iwarp::MPA_REQUEST_KEY;

/// A fragment of a record: how long it is, and whether it is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// The record ends with this fragment.
    pub is_last: bool,
    /// Bytes of the fragment, the mark not counted; below 2^31.
    pub len: u32,
}

impl RecordMark {
    /// Bytes of a mark.
    pub const LEN: usize = 4;

    /// Reads a mark.
    #[inline]
    #[must_use]
    pub fn decode(bytes: [u8; Self::LEN]) -> RecordMark {
        let word = u32::from_be_bytes(bytes);
        RecordMark {
            is_last: word >> 31 == 1,
            len: word & 0x7fff_ffff,
        }
    }

    /// Whether the client has sent a Request of MPA instead (RFC 5044, section 7.1.1).
    #[must_use]
    pub fn is_mpa_request(self) -> bool {
        self.encode() == MPA_REQUEST_KEY[..Self::LEN]
    }

    /// Writes it.
    #[inline]
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        debug_assert!(self.len >> 31 == 0);
        (u32::from(self.is_last) << 31 | self.len).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Decode, Encode, Opaque, Reader, XdrError};

    #[test]
    fn a_record_mark_that_is_encoded_is_decoded() {
        let mark = RecordMark {
            is_last: true,
            len: 0x0102,
        };
        assert_eq!(mark.encode(), [0x80, 0, 1, 2]);
        assert_eq!(RecordMark::decode(mark.encode()), mark);
    }

    #[test]
    fn a_call_lies_as_the_standard_has_it() {
        let none = opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        };
        let call = call_body {
            rpcvers: RPC_VERSION,
            prog: 100_003,
            vers: 4,
            proc: 1,
            cred: opaque_auth {
                flavor: AUTH_SYS,
                body: Opaque(&[1, 2, 3]),
            },
            verf: none,
        };
        let mut bytes = Vec::new();
        call.encode(&mut bytes);
        let words: Vec<u32> = bytes
            .chunks(4)
            .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
            .collect();
        assert_eq!(words, [2, 100_003, 4, 1, 1, 3, 0x0102_0300, 0, 0]);
        assert_eq!(call_body::decode(&mut Reader::new(&bytes)), Ok(call));
        let cut = call_body::decode(&mut Reader::new(&bytes[..34]));
        assert_eq!(cut, Err(XdrError::Short));
    }

    #[test]
    fn a_gss_credential_lies_as_the_standard_has_it() {
        fn decode(bytes: &[u8]) -> Result<rpc_gss_cred_vers_1_t<'_>, XdrError> {
            rpc_gss_cred_vers_1_t::decode(&mut Reader::new(bytes))
        }
        let credential = rpc_gss_cred_vers_1_t {
            gss_proc: rpc_gss_proc_t::RPCSEC_GSS_DESTROY,
            seq_num: 0x0102_0304,
            service: rpc_gss_service_t::rpc_gss_svc_privacy,
            handle: Opaque(&[9, 8, 7, 6, 5]),
        };
        let mut bytes = Vec::new();
        RPCSEC_GSS_VERS_1.encode(&mut bytes);
        credential.encode(&mut bytes);
        let expected = [
            0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 0, 0, 0, 3, 0, 0, 0, 5, 9, 8, 7, 6, 5, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(decode(&bytes[4..]), Ok(credential));
        assert_eq!(decode(&bytes[4..27]), Err(XdrError::Short));
        for (at, value) in [(7, 4), (15, 0), (15, 4), (19, 129)] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            let error = decode(&bytes[4..]).expect_err("no value of the standard");
            assert_ne!(error, XdrError::Short, "{value} at {at}");
        }
    }

    #[test]
    fn results_of_making_a_gss_context_lie_as_the_standard_has_them() {
        let token = rpc_gss_init_arg {
            gss_token: Opaque(&[1, 2]),
        };
        let results = rpc_gss_init_res {
            handle: Opaque(&[3]),
            gss_major: 1,
            gss_minor: 0x0a0b,
            seq_window: 128,
            gss_token: Opaque(&[]),
        };
        let mut bytes = Vec::new();
        token.encode(&mut bytes);
        results.encode(&mut bytes);
        let words: Vec<u32> = bytes
            .chunks(4)
            .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
            .collect();
        let expected = [2, 0x0102_0000, 1, 0x0300_0000, 1, 0x0a0b, 128, 0];
        assert_eq!(words, expected);
        let from = &mut Reader::new(&bytes);
        assert_eq!(rpc_gss_init_arg::decode(from), Ok(token));
        assert_eq!(rpc_gss_init_res::decode(from), Ok(results));
    }

    #[test]
    fn refused_calls_have_their_reason_in_the_answer() {
        let answers = [
            (
                reply_body::MSG_DENIED(rejected_reply::AUTH_ERROR(auth_stat::AUTH_TOOWEAK)),
                vec![1, 1, 5],
            ),
            (
                reply_body::MSG_ACCEPTED(accepted_reply {
                    verf: opaque_auth {
                        flavor: AUTH_NONE,
                        body: Opaque(&[]),
                    },
                    body: accepted_body::default(accept_stat::GARBAGE_ARGS),
                }),
                vec![0, 0, 0, 4],
            ),
        ];
        for (answer, words) in answers {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            let expected: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            assert_eq!(bytes, expected);
            assert_eq!(reply_body::decode(&mut Reader::new(&bytes)), Ok(answer));
        }
    }
}
