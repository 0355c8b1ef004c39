//! RPC-with-TLS to a server of NFS: arguments of several commands.

use std::path::PathBuf;

use clap::Args;
use host::nfs::RpcTls;

/// Arguments of what speaks NFS over TLS. Files are PEM.
#[derive(Args, Clone, Debug, Default)]
pub struct NfsTlsArgs {
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
}

impl NfsTlsArgs {
    /// How the server of this name is spoken with; reads the files. `None`: in the clear.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn with_server(&self, name: &str) -> Result<Option<RpcTls>, String> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let shown = self.certificate.as_deref().zip(self.key.as_deref());
        RpcTls::read(name, ca, shown).map(Some)
    }
}
