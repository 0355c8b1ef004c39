//! How calls may be secured (RFC 8881, section 2.6): what a server says of a place that it does
//! not show to a call as it is.

use std::fmt;

use reactor::Driver;
use wire::nfs4::{
    LOOKUP4args, SECINFO_NO_NAME4args, SECINFO4args, SECINFO4resok, nfs_argop4, nfs_opnum4,
    nfsstat4, secinfo_style4, secinfo4,
};
use wire::rpc::{AUTH_NONE, AUTH_SYS, RPCSEC_GSS, rpc_gss_service_t};
use wire::xdr::{Decode, Opaque, Reader};

use super::client::Manner;
use super::{Client, ClientError};

/// A way in which calls may be secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityFlavor {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys,
    /// RPCSEC_GSS with this service.
    Gss(rpc_gss_service_t),
    /// Another, by its number.
    Other(u32),
}

impl fmt::Display for SecurityFlavor {
    /// As `sec=` of mount(8) has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SecurityFlavor::None => "none",
            SecurityFlavor::Sys => "sys",
            SecurityFlavor::Gss(rpc_gss_service_t::rpc_gss_svc_none) => "krb5",
            SecurityFlavor::Gss(rpc_gss_service_t::rpc_gss_svc_integrity) => "krb5i",
            SecurityFlavor::Gss(rpc_gss_service_t::rpc_gss_svc_privacy) => "krb5p",
            SecurityFlavor::Other(number) => return write!(f, "flavor {number}"),
        })
    }
}

impl SecurityFlavor {
    fn of(found: &secinfo4<'_>) -> SecurityFlavor {
        match found {
            secinfo4::case_6(gss) => {
                let service = gss.service.to_be_bytes();
                match rpc_gss_service_t::decode(&mut Reader::new(&service)) {
                    Ok(service) => SecurityFlavor::Gss(service),
                    Err(_) => SecurityFlavor::Other(RPCSEC_GSS),
                }
            }
            secinfo4::default(AUTH_NONE) => SecurityFlavor::None,
            secinfo4::default(AUTH_SYS) => SecurityFlavor::Sys,
            secinfo4::default(number) => SecurityFlavor::Other(*number),
        }
    }
}

impl<D: Driver> Client<D> {
    /// How this client's calls are secured.
    pub fn flavor(&self) -> SecurityFlavor {
        let gss = self.params.gss.as_ref();
        gss.map_or(SecurityFlavor::Sys, |gss| SecurityFlavor::Gss(gss.service))
    }

    /// What the first place on a path takes that ends a call with NFS4ERR_WRONGSEC, in the order
    /// of the server: nothing if none does.
    ///
    /// # Errors
    /// Where the server refuses even to say.
    pub fn security_of(&mut self, path: &[String]) -> Result<Vec<SecurityFlavor>, ClientError> {
        for depth in 0..=path.len() {
            match self.lookup(path[..depth].iter().map(String::as_str)) {
                Err(error) if error.status() == Some(nfsstat4::NFS4ERR_WRONGSEC) => {
                    return self.ask_security(&path[..depth]);
                }
                found => found.map(drop)?,
            }
        }
        Ok(Vec::new())
    }

    /// SECINFO (RFC 8881, section 18.29), of the root SECINFO_NO_NAME (section 18.45).
    fn ask_security(&mut self, path: &[String]) -> Result<Vec<SecurityFlavor>, ClientError> {
        let (op, number, above) = match path.split_last() {
            None => (
                nfs_argop4::OP_SECINFO_NO_NAME(SECINFO_NO_NAME4args {
                    style: secinfo_style4::SECINFO_STYLE4_CURRENT_FH,
                }),
                nfs_opnum4::OP_SECINFO_NO_NAME,
                path,
            ),
            Some((name, above)) => (
                nfs_argop4::OP_SECINFO(SECINFO4args {
                    name: Opaque(name.as_bytes()),
                }),
                nfs_opnum4::OP_SECINFO,
                above,
            ),
        };
        self.call(
            Manner::PLAIN,
            |_, compound| {
                compound.op(&nfs_argop4::OP_PUTROOTFH);
                for name in above {
                    let objname = Opaque(name.as_bytes());
                    compound.op(&nfs_argop4::OP_LOOKUP(LOOKUP4args { objname }));
                }
                compound.op(&op);
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTROOTFH)?;
                for _ in above {
                    results.done(nfs_opnum4::OP_LOOKUP)?;
                }
                let all: SECINFO4resok<'_> = results.take(number)?;
                Ok(all.iter().map(|found| SecurityFlavor::of(&found)).collect())
            },
        )
    }
}
