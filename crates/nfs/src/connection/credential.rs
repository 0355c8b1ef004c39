//! Credentials of calls (RFC 5531, sections 8 and 9, appendix A).

use std::sync::Arc;

use auth::user::User;
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_AUTH_GSS_KRB5, RPC_AUTH_GSS_KRB5I, RPC_AUTH_GSS_KRB5P, auth_stat,
    authsys_parms, call_body, rpc_gss_service_t,
};
use wire::xdr::{Decode, Reader};

use crate::server::ProvenNumber;

/// Further groups that AUTH_SYS carries at most (RFC 5531, appendix A).
const SYS_GIDS_MAX: usize = 16;

/// A flavor of authentication that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// AUTH_NONE: no user.
    #[default]
    None,
    /// AUTH_SYS: the user that the client names.
    Sys,
    /// RPCSEC_GSS by Kerberos 5: the user that has proved to be it.
    Krb5,
    /// The same; arguments and results have a checksum.
    Krb5i,
    /// The same; arguments and results are encrypted.
    Krb5p,
}

impl Flavor {
    /// Whether a user proves to be it by RPCSEC_GSS.
    #[inline]
    pub fn is_gss(self) -> bool {
        self.service().is_some()
    }

    /// How RPCSEC_GSS protects arguments and results.
    #[inline]
    pub fn service(self) -> Option<rpc_gss_service_t> {
        match self {
            Flavor::None | Flavor::Sys => None,
            Flavor::Krb5 => Some(rpc_gss_service_t::rpc_gss_svc_none),
            Flavor::Krb5i => Some(rpc_gss_service_t::rpc_gss_svc_integrity),
            Flavor::Krb5p => Some(rpc_gss_service_t::rpc_gss_svc_privacy),
        }
    }

    /// Whether arguments and results cannot be changed on their way.
    #[inline]
    pub fn has_integrity(self) -> bool {
        matches!(self, Flavor::Krb5i | Flavor::Krb5p)
    }

    /// Its number where one names mechanism and service too (RFC 2623, section 4.2).
    pub fn number(self) -> u32 {
        match self {
            Flavor::None => AUTH_NONE,
            Flavor::Sys => AUTH_SYS,
            Flavor::Krb5 => RPC_AUTH_GSS_KRB5,
            Flavor::Krb5i => RPC_AUTH_GSS_KRB5I,
            Flavor::Krb5p => RPC_AUTH_GSS_KRB5P,
        }
    }
}

/// The user of a call, as the call names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credential {
    /// How it is said.
    pub flavor: Flavor,
    /// User; 0 with [`Flavor::None`] and of [`Credential::is_unknown`], where it means
    /// nothing.
    pub uid: u32,
    /// Group; likewise.
    pub gid: u32,
    /// With RPCSEC_GSS the principal, by [its number](crate::server::proven_number); else 0.
    pub principal: ProvenNumber,
    /// With RPCSEC_GSS: the principal is no user here.
    pub is_unknown: bool,
    gids: Gids,
}

/// Further groups of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gids {
    /// So many of these, as AUTH_SYS carries them: without memory of their own.
    Said([u32; SYS_GIDS_MAX], u8),
    Shared(Arc<[u32]>),
}

impl Default for Gids {
    fn default() -> Gids {
        Gids::Said([0; SYS_GIDS_MAX], 0)
    }
}

impl FromIterator<u32> for Gids {
    fn from_iter<I: IntoIterator<Item = u32>>(gids: I) -> Gids {
        let (mut said, mut len) = ([0; SYS_GIDS_MAX], 0);
        let mut gids = gids.into_iter();
        for (place, gid) in said.iter_mut().zip(&mut gids) {
            *place = gid;
            len += 1;
        }
        match gids.next() {
            None => Gids::Said(said, len),
            Some(next) => Gids::Shared(said.into_iter().chain([next]).chain(gids).collect()),
        }
    }
}

impl Credential {
    /// AUTH_SYS with these ids.
    pub fn sys(uid: u32, gid: u32, gids: impl IntoIterator<Item = u32>) -> Credential {
        Credential {
            flavor: Flavor::Sys,
            uid,
            gid,
            gids: gids.into_iter().collect(),
            ..Credential::default()
        }
    }

    /// RPCSEC_GSS by a principal which is this user here.
    pub(crate) fn gss(principal: ProvenNumber, user: Option<&User>) -> Credential {
        let (uid, gid) = user.map_or((0, 0), |user| (user.uid, user.gid));
        let gids = user.into_iter().flat_map(|user| user.gids.iter().copied());
        Credential {
            flavor: Flavor::Krb5,
            principal,
            is_unknown: user.is_none(),
            ..Credential::sys(uid, gid, gids)
        }
    }

    /// Further groups.
    #[inline]
    pub fn gids(&self) -> &[u32] {
        match &self.gids {
            Gids::Said(gids, len) => &gids[..usize::from(*len)],
            Gids::Shared(gids) => gids,
        }
    }

    /// Its further groups are these instead.
    pub(super) fn set_gids(&mut self, gids: Arc<[u32]>) {
        self.gids = Gids::Shared(gids);
    }

    /// The credential of a call, or why it is none.
    pub(super) fn of(call: &call_body<'_>) -> Result<Credential, auth_stat> {
        let credential = match call.cred.flavor {
            AUTH_NONE => Credential::default(),
            AUTH_SYS => {
                let mut from = Reader::new(call.cred.body.0);
                let sys = authsys_parms::decode(&mut from).map_err(|_| auth_stat::AUTH_BADCRED)?;
                Credential::sys(sys.uid, sys.gid, sys.gids.iter())
            }
            _ => return Err(auth_stat::AUTH_BADCRED),
        };
        match call.verf.flavor == AUTH_NONE && call.verf.body.0.is_empty() {
            true => Ok(credential),
            false => Err(auth_stat::AUTH_BADVERF),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_groups_count_however_many_there_are() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let gids: Vec<u32> = (5..5 + len).collect();
            assert_eq!(Credential::sys(1, 2, gids.iter().copied()).gids(), gids);
            let (uid, gid) = (1, 2);
            let gids = gids.into_boxed_slice();
            let user = User { uid, gid, gids };
            assert_eq!(*Credential::gss(7, Some(&user)).gids(), *user.gids);
        }
    }
}
