//! The requests with which a client introduces itself (RFC 8881, section 2.4).

use wire::nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4args, EXCHANGE_ID4args,
    callback_sec_parms4, channel_attrs4, client_owner4, clientid4, sequenceid4, state_protect4_a,
    verifier4,
};
use wire::xdr::{List, Opaque};

/// What a client asks for of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Requests in flight: `ca_maxrequests`.
    pub slots: u32,
    /// Bytes of a request and of an answer.
    pub message_bytes_max: u32,
    /// Bytes of an answer that the server keeps.
    pub cached_bytes_max: u32,
    /// Operations of a COMPOUND.
    pub ops_max: u32,
    /// Callbacks in flight; 0: this connection carries none.
    pub callback_slots: u32,
    /// The program that they are for.
    pub callback_program: u32,
}

/// Bytes of a callback and of the answer to it: no less than one page, which
/// servers expect.
const CALLBACK_BYTES_MAX: u32 = 4096;
/// Operations of a CB_COMPOUND.
const CALLBACK_OPS_MAX: u32 = 8;

/// EXCHANGE_ID of a client called `id`, which `verifier` tells from itself before
/// a restart.
#[must_use]
pub fn exchange_id(verifier: verifier4, id: &[u8]) -> EXCHANGE_ID4args<'_> {
    EXCHANGE_ID4args {
        eia_clientowner: client_owner4 {
            co_verifier: verifier,
            co_ownerid: Opaque(id),
        },
        eia_flags: 0,
        eia_state_protect: state_protect4_a::SP4_NONE,
        eia_client_impl_id: List::Of(&[]),
    }
}

/// CREATE_SESSION of a client; callbacks come without authentication.
#[must_use]
pub fn create_session(
    clientid: clientid4,
    sequence: sequenceid4,
    channels: &Channels,
) -> CREATE_SESSION4args<'static> {
    let attrs = |slots, bytes, cached, ops| channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: bytes,
        ca_maxresponsesize: bytes,
        ca_maxresponsesize_cached: cached,
        ca_maxoperations: ops,
        ca_maxrequests: slots,
        ca_rdma_ird: List::Of(&[]),
    };
    let has_callbacks = channels.callback_slots > 0;
    CREATE_SESSION4args {
        csa_clientid: clientid,
        csa_sequence: sequence,
        csa_flags: match has_callbacks {
            true => CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            false => 0,
        },
        csa_fore_chan_attrs: attrs(
            channels.slots,
            channels.message_bytes_max,
            channels.cached_bytes_max,
            channels.ops_max,
        ),
        csa_back_chan_attrs: attrs(
            channels.callback_slots.max(1),
            CALLBACK_BYTES_MAX,
            0,
            CALLBACK_OPS_MAX,
        ),
        csa_cb_program: channels.callback_program,
        csa_sec_parms: List::Of(&[callback_sec_parms4::case_0]),
    }
}
