//! What protects arguments and results in a context (RFC 2203, sections 5.3.2 and 5.3.3.3): the
//! same on both sides.

use std::ops::Range;

use auth::gss::{GssContext, GssError};
use faults::Fault;
use wire::rpc::rpc_gss_service_t;
use wire::xdr::{Decode, Encode, Reader, XdrError, pad};

/// Bytes of a length, or of a sequence number.
const WORD_BYTES: usize = size_of::<u32>();

/// What protection adds behind a message, at most: a buffer with as much room is not moved for it.
pub(crate) const BEHIND_BYTES: usize = 128;

/// Bytes that stand before what is protected: its length, what a token begins with, the sequence
/// number.
pub(crate) fn ahead(context: &dyn GssContext, service: rpc_gss_service_t) -> usize {
    match service {
        rpc_gss_service_t::rpc_gss_svc_none => 0,
        rpc_gss_service_t::rpc_gss_svc_integrity => 2 * WORD_BYTES,
        rpc_gss_service_t::rpc_gss_svc_privacy => 2 * WORD_BYTES + context.wrap_ahead(),
    }
}

/// Protects what stands behind [`ahead`] bytes at `at`, which end `bytes`, for the call of this
/// number: where it lies.
pub(crate) fn protect(
    context: &mut dyn GssContext,
    (service, number): (rpc_gss_service_t, u32),
    bytes: &mut Vec<u8>,
    at: usize,
) -> Result<(), GssError> {
    let ahead = ahead(context, service);
    let (token_at, data_at) = (at + WORD_BYTES, at + ahead - WORD_BYTES);
    bytes[data_at..data_at + WORD_BYTES].copy_from_slice(&number.to_be_bytes());
    if service == rpc_gss_service_t::rpc_gss_svc_privacy {
        context.wrap(bytes, token_at..data_at)?;
    }
    // Either may be longer than an opaque of the credential.
    let len = bytes.len() - token_at;
    bytes[at..token_at].copy_from_slice(&(len as u32).to_be_bytes());
    bytes.extend_from_slice(&[0; 3][..pad(len)]);
    if service == rpc_gss_service_t::rpc_gss_svc_integrity {
        let mut mic = Vec::new();
        context.mic(&bytes[data_at..data_at + len], &mut mic)?;
        (mic.len() as u32).encode(bytes);
        bytes.extend_from_slice(&mic);
        bytes.extend_from_slice(&[0; 3][..pad(mic.len())]);
    }
    Ok(())
}

/// Where in `body` the message lies that the other side has protected for the call of this
/// number; `None` if that is not what it is.
pub(crate) fn open(
    context: &mut dyn GssContext,
    (service, number): (rpc_gss_service_t, u32),
    body: &mut [u8],
) -> Option<Range<usize>> {
    let range = match service {
        rpc_gss_service_t::rpc_gss_svc_none => return Some(0..body.len()),
        rpc_gss_service_t::rpc_gss_svc_integrity => {
            let from = &mut Reader::new(body);
            let (data, mic) = (opaque(from).ok()?, opaque(from).ok()?);
            from.rest().is_empty().then_some(())?;
            match context.verify_mic(data, mic) {
                Err(_) if faults::is(Fault::AnyArguments) => {}
                checked => checked.ok()?,
            }
            let at = size_of::<u32>();
            at..at + data.len()
        }
        rpc_gss_service_t::rpc_gss_svc_privacy => {
            let from = &mut Reader::new(body);
            let len = opaque(from).ok()?.len();
            from.rest().is_empty().then_some(())?;
            let at = size_of::<u32>();
            let found = context.unwrap(&mut body[at..at + len]).ok()?;
            at + found.start..at + found.end
        }
    };
    let from = &mut Reader::new(&body[range.clone()]);
    let found = u32::decode(from).ok()?;
    (found == number).then(|| range.start + from.position()..range.end)
}

/// An opaque of any length, whose padding is zeros.
fn opaque<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], XdrError> {
    let len = from.len(from.rest().len())?;
    let bytes = from.take(len)?;
    match from.take(pad(len))?.iter().all(|&byte| byte == 0) {
        true => Ok(bytes),
        false => Err(XdrError::Value { what: "padding" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that its tokens have before and behind a message.
    const AROUND: usize = 28;

    /// Notes where messages lie that it protects; its tokens are these and zeros.
    #[derive(Default)]
    struct Noting {
        messages: Vec<(usize, usize)>,
    }

    impl GssContext for Noting {
        fn mic(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), GssError> {
            self.messages.push((message.as_ptr().addr(), message.len()));
            out.resize(out.len() + AROUND, 0);
            Ok(())
        }

        fn verify_mic(&mut self, _: &[u8], _: &[u8]) -> Result<(), GssError> {
            Ok(())
        }

        fn wrap_ahead(&self) -> usize {
            AROUND
        }

        fn wrap(&mut self, bytes: &mut Vec<u8>, room: Range<usize>) -> Result<(), GssError> {
            assert_eq!(room.len(), AROUND);
            let message = &bytes[room.end..];
            self.messages.push((message.as_ptr().addr(), message.len()));
            bytes.resize(bytes.len() + AROUND, 0);
            Ok(())
        }

        fn unwrap(&mut self, token: &mut [u8]) -> Result<Range<usize>, GssError> {
            Ok(AROUND..token.len() - AROUND)
        }

        fn client_name(&self) -> &str {
            ""
        }

        fn expires_at_s(&self) -> u64 {
            0
        }
    }

    #[test]
    fn message_of_any_length_is_protected_where_it_lies() {
        let services = [
            rpc_gss_service_t::rpc_gss_svc_integrity,
            rpc_gss_service_t::rpc_gss_svc_privacy,
        ];
        for (service, len) in services
            .into_iter()
            .flat_map(|s| [0, 1, 6, 1 << 20].map(|l| (s, l)))
        {
            let mut context = Noting::default();
            let before = 12;
            let ahead = ahead(&context, service);
            let mut bytes = Vec::with_capacity(before + ahead + len + BEHIND_BYTES);
            bytes.resize(before + ahead, 0);
            bytes.resize(before + ahead + len, 7);
            let lies = bytes[before + ahead - WORD_BYTES..].as_ptr().addr();
            let protected = protect(&mut context, (service, 9), &mut bytes, before);
            assert_eq!(protected, Ok(()));
            assert_eq!(context.messages, [(lies, WORD_BYTES + len)]);
            assert_eq!(bytes.len() % 4, 0);
            let content = &bytes[before + ahead..][..len];
            assert_eq!(content.as_ptr().addr(), lies + WORD_BYTES, "not moved");
            assert!(content.iter().all(|&byte| byte == 7));
            let range = open(&mut context, (service, 9), &mut bytes[before..]);
            assert_eq!(range, Some(ahead..ahead + len), "{service:?}, {len}");
        }
    }
}
