//! Clients of NFS servers: arguments that several commands have.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use host::nfs::{
    Client, ClientError, NfsAddress, Params, RdmaClientSettings, RpcGss, RpcRefused, RpcTls,
    SecurityFlavor,
};
use kerberos::Initiator;
use reactor::Driver;
use wire::nfs4::nfsstat4;
use wire::rpc::{auth_stat, rejected_reply, rpc_gss_service_t};

/// How calls are secured, as `sec=` of mount(8) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NfsSecurity {
    /// The user of this process says so itself
    Sys,
    /// A ticket of Kerberos proves the user
    Krb5,
    /// And that nothing was changed on the way
    Krb5i,
    /// And all is encrypted
    Krb5p,
}

/// Arguments of what speaks NFS. Files are PEM.
#[derive(Args, Clone, Debug, Default)]
pub struct NfsClientArgs {
    /// Speak TLS with NFS servers, whose certificates this authority (CA) has signed, or one of
    /// several
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// A certificate to show, which names this client
    #[arg(long, value_name = "FILE", requires_all = ["ca", "key"])]
    pub certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// How calls to NFS servers are secured: by Kerberos with the tickets that `kinit` has left
    /// for this user, for the service nfs of the host that the URL names [default: sys]
    #[arg(long, value_enum, value_name = "FLAVOR")]
    pub sec: Option<NfsSecurity>,
}

impl NfsClientArgs {
    /// What a client of the server at this address is to be; reads the files, and the tickets.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn params(&self, address: &NfsAddress) -> Result<Params, String> {
        if address.is_rdma && self.ca.is_some() {
            return Err(
                "NFS by RDMA has no TLS: say nfs:// with --ca, or nfs+rdma:// without".into(),
            );
        }
        Ok(Params {
            tls: self.tls(&address.host)?,
            gss: self.gss(&address.host)?,
            rdma: address.is_rdma.then(RdmaClientSettings::default),
            ..Params::new().map_err(|error| error.to_string())?
        })
    }

    /// Whether any of them is given: the others need `ca`.
    pub(crate) fn is_said(&self) -> bool {
        self.ca.is_some() || self.sec.is_some()
    }

    fn tls(&self, server: &str) -> Result<Option<RpcTls>, String> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let shown = self.certificate.as_deref().zip(self.key.as_deref());
        RpcTls::read(server, ca, shown).map(Some)
    }

    /// Why there is no client, in words for the user.
    pub(crate) fn no_client(&self, address: &NfsAddress, error: &ClientError) -> String {
        let too_weak = rejected_reply::AUTH_ERROR(auth_stat::AUTH_TOOWEAK);
        let remedy = match (error, error.status()) {
            (ClientError::Closed, _) if address.is_rdma => {
                "it may not speak RDMA on this port: say nfs://, or a port where it does"
            }
            (ClientError::Refused(RpcRefused::Denied(why)), _) if *why == too_weak => {
                match self.sec {
                    None | Some(NfsSecurity::Sys) => {
                        "say --sec krb5, krb5i or krb5p, with a ticket by `kinit`"
                    }
                    Some(_) => "it takes another --sec: krb5p, krb5i, krb5 or sys",
                }
            }
            (_, Some(nfsstat4::NFS4ERR_ACCESS)) => {
                "no export of the server is for this machine: its `clients` are to have the address \
                 of it, or a name of a certificate that --ca, --certificate and --key show"
            }
            (_, Some(nfsstat4::NFS4ERR_WRONGSEC)) => WANTS_TLS,
            _ => return error.to_string(),
        };
        format!("{error}: {remedy}")
    }

    fn gss(&self, server: &str) -> Result<Option<RpcGss>, String> {
        let service = match self.sec {
            None | Some(NfsSecurity::Sys) => return Ok(None),
            Some(NfsSecurity::Krb5) => rpc_gss_service_t::rpc_gss_svc_none,
            Some(NfsSecurity::Krb5i) => rpc_gss_service_t::rpc_gss_svc_integrity,
            Some(NfsSecurity::Krb5p) => rpc_gss_service_t::rpc_gss_svc_privacy,
        };
        let initiator = Initiator::of_user(&format!("nfs@{server}"));
        let initiator = initiator.map_err(|error| format!("Kerberos: {error}"))?;
        Ok(Some(RpcGss {
            initiator: Arc::new(initiator),
            service,
        }))
    }
}

/// The transport is not secured as it is to be (RFC 9289, section 5.1).
const WANTS_TLS: &str = "it may want TLS: say --ca, perhaps --certificate and --key";

/// What a place takes that the server does not show to calls as they are, in words for the user.
pub(crate) fn takes<D: Driver>(client: &mut Client<D>, path: &[String]) -> Option<String> {
    let flavors = client.security_of(path).unwrap_or_default();
    let names: Vec<String> = flavors.iter().map(ToString::to_string).collect();
    match flavors.contains(&client.flavor()) {
        true => Some("TLS, or a certificate".to_owned()),
        false => Some(names.join(", ")).filter(|names| !names.is_empty()),
    }
}

/// Why a path is not found, in words for the user: where its export wants calls to be secured
/// otherwise, how; where another server has it, that.
pub(crate) fn no_path<D: Driver>(
    client: &mut Client<D>,
    path: &[String],
    error: &ClientError,
) -> String {
    let place = path.join("/");
    match error.status() {
        Some(nfsstat4::NFS4ERR_WRONGSEC) => {}
        Some(nfsstat4::NFS4ERR_MOVED) => {
            return format!("{error}: /{place} is a referral: name the server that has the files");
        }
        _ => return error.to_string(),
    }
    let flavors = client.security_of(path).unwrap_or_default();
    let names: Vec<String> = flavors.iter().map(ToString::to_string).collect();
    match flavors.first() {
        None => error.to_string(),
        Some(_) if flavors.contains(&client.flavor()) => format!("{error}: /{place}: {WANTS_TLS}"),
        Some(SecurityFlavor::Gss(_)) => format!(
            "{error}: /{place} takes {}: say --sec {}, with a ticket by `kinit`",
            names.join(", "),
            names[0]
        ),
        Some(_) => format!("{error}: /{place} takes {}", names.join(", ")),
    }
}
