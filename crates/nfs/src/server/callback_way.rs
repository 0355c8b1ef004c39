//! How a client with sessions wants to be called (RFC 8881, sections 2.10.8.2, 18.33, 18.36).

use std::sync::Arc;

use wire::nfs4::{callback_sec_parms4, nfsstat4};
use wire::rpc::rpc_gss_service_t;

/// Bytes of the handle in a credential of RPCSEC_GSS: of 400 (RFC 5531, section 8.2) five words
/// are for what else it has.
const HANDLE_BYTES_MAX: usize = 380;

/// Says of this server's handle of a context whether there is one that the client may name.
pub type KnownContext<'a> = &'a dyn Fn(&[u8]) -> bool;

/// A flavor, and as whom the client is called by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackWay {
    /// By AUTH_NONE.
    None,
    /// By AUTH_SYS as this user and group, of no machine.
    Sys(u32, u32),
    /// By RPCSEC_GSS, in a context that the client has made with this server.
    Gss(Arc<CallbackHandles>),
}

/// `gss_cb_handles4`.
#[derive(Debug, PartialEq, Eq)]
pub struct CallbackHandles {
    /// The service of all calls.
    pub service: rpc_gss_service_t,
    /// As this server calls the context.
    pub here: Box<[u8]>,
    /// As the client calls it.
    pub there: Box<[u8]>,
}

impl CallbackWay {
    /// The first that the client names, if it names one.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_NOENT`] where one of its contexts is not known;
    /// [`nfsstat4::NFS4ERR_INVAL`] where no call could be made so.
    pub fn first<'a>(
        ways: impl Iterator<Item = callback_sec_parms4<'a>>,
        is_known: KnownContext<'_>,
    ) -> Result<Option<CallbackWay>, nfsstat4> {
        let mut first = None;
        for way in ways {
            let way = match way {
                callback_sec_parms4::case_0 => CallbackWay::None,
                callback_sec_parms4::case_1(sys) => CallbackWay::Sys(sys.uid, sys.gid),
                callback_sec_parms4::case_6(gss) => {
                    let (here, there) =
                        (gss.gcbp_handle_from_server.0, gss.gcbp_handle_from_client.0);
                    let service = service(gss.gcbp_service);
                    let service = service.filter(|_| there.len() <= HANDLE_BYTES_MAX);
                    let service = service.ok_or(nfsstat4::NFS4ERR_INVAL)?;
                    if !is_known(here) {
                        return Err(nfsstat4::NFS4ERR_NOENT);
                    }
                    CallbackWay::Gss(Arc::new(CallbackHandles {
                        service,
                        here: here.into(),
                        there: there.into(),
                    }))
                }
            };
            first.get_or_insert(way);
        }
        Ok(first)
    }
}

fn service(number: u32) -> Option<rpc_gss_service_t> {
    [
        rpc_gss_service_t::rpc_gss_svc_none,
        rpc_gss_service_t::rpc_gss_svc_integrity,
        rpc_gss_service_t::rpc_gss_svc_privacy,
    ]
    .into_iter()
    .find(|service| *service as u32 == number)
}
