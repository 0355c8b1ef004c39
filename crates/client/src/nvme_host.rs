//! The name of an NVMe host and its key for TLS: arguments of several commands.

use std::path::PathBuf;

use auth::{KEY_FILE_BYTES_MAX, parse_keys};
use clap::Args;
use host::HostIdentity;

use crate::private_file::read_private;

/// Arguments of what speaks NVMe/TCP.
#[derive(Args, Clone, Debug, Default)]
pub struct NvmeHostArgs {
    /// Host NQN [default: a new one]
    #[arg(short = 'q', long)]
    pub hostnqn: Option<String>,
    /// File with the key by which TLS is spoken, as `weft key new` makes it; the first in it
    #[arg(long, value_name = "FILE", requires = "hostnqn")]
    pub psk_file: Option<PathBuf>,
}

impl NvmeHostArgs {
    /// Who this host is; reads the file.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn identity(&self) -> Result<HostIdentity, String> {
        let host = HostIdentity::new(self.hostnqn.as_deref()).map_err(|e| e.to_string())?;
        let Some(path) = &self.psk_file else {
            return Ok(host);
        };
        let bytes = read_private(path, KEY_FILE_BYTES_MAX + 1)?;
        let keys = parse_keys(&bytes).map_err(|why| format!("{}: {why}", path.display()))?;
        let psk = keys.into_iter().next().map(|key| key.psk);
        Ok(HostIdentity { psk, ..host })
    }
}
