//! What protects arguments and results in a context (RFC 2203, sections 5.3.2 and 5.3.3.3): the
//! same on both sides.

use std::ops::Range;

use auth::gss::{GssContext, GssError};
use faults::Fault;
use wire::rpc::rpc_gss_service_t;
use wire::xdr::{Decode, Encode, Reader, XdrError, pad};

/// Bytes that stand before what is protected: its length, the sequence number.
pub(crate) const AHEAD_BYTES: usize = 8;

/// Protects what stands behind [`AHEAD_BYTES`] bytes at `at`, which end `bytes`, for the call of
/// this number.
pub(crate) fn protect(
    context: &mut dyn GssContext,
    (service, number): (rpc_gss_service_t, u32),
    bytes: &mut Vec<u8>,
    at: usize,
) -> Result<(), GssError> {
    let data_at = at + size_of::<u32>();
    bytes[data_at..data_at + size_of::<u32>()].copy_from_slice(&number.to_be_bytes());
    let mut token = Vec::new();
    match service {
        rpc_gss_service_t::rpc_gss_svc_none => unreachable!("it protects nothing"),
        rpc_gss_service_t::rpc_gss_svc_integrity => {
            let len = (bytes.len() - data_at) as u32;
            bytes[at..data_at].copy_from_slice(&len.to_be_bytes());
            context.mic(&bytes[data_at..], &mut token)?;
        }
        rpc_gss_service_t::rpc_gss_svc_privacy => {
            context.wrap(&bytes[data_at..], &mut token)?;
            bytes.truncate(at);
        }
    }
    // Either may be longer than an opaque of the credential.
    (token.len() as u32).encode(bytes);
    bytes.extend_from_slice(&token);
    bytes.extend_from_slice(&[0; 3][..pad(token.len())]);
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
