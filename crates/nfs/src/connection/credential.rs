//! Credentials of calls (RFC 5531, sections 8 and 9, appendix A).

use wire::rpc::{AUTH_NONE, AUTH_SYS, auth_stat, authsys_parms, call_body};
use wire::xdr::{Decode, Reader};

/// Further groups that AUTH_SYS carries at most.
const GIDS_MAX: usize = 16;

/// A flavor of authentication that is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// AUTH_NONE: no user.
    #[default]
    None,
    /// AUTH_SYS: the user that the client names.
    Sys,
}

/// The user of a call, as the call names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credential {
    /// How it is said.
    pub flavor: Flavor,
    /// User; 0 with [`Flavor::None`], where it means nothing.
    pub uid: u32,
    /// Group; likewise.
    pub gid: u32,
    gids: [u32; GIDS_MAX],
    gids_len: u8,
}

impl Credential {
    /// AUTH_SYS with these ids; of `gids` the first 16.
    pub fn sys(uid: u32, gid: u32, gids: impl IntoIterator<Item = u32>) -> Credential {
        let mut credential = Credential {
            flavor: Flavor::Sys,
            uid,
            gid,
            ..Credential::default()
        };
        for gid in gids.into_iter().take(GIDS_MAX) {
            credential.gids[usize::from(credential.gids_len)] = gid;
            credential.gids_len += 1;
        }
        credential
    }

    /// Further groups.
    #[inline]
    pub fn gids(&self) -> &[u32] {
        &self.gids[..usize::from(self.gids_len)]
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
