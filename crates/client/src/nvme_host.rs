//! The name of an NVMe host and its key for TLS: arguments of several commands.

use std::path::{Path, PathBuf};

use auth::dhchap::DhchapKey;
use auth::psk::Psk;
use auth::{KEY_FILE_BYTES_MAX, KeyText, parse_keys};
use clap::Args;
use host::{DhchapKeys, HostIdentity};

use crate::private_file::read_private;

/// Arguments of what speaks NVMe.
#[derive(Args, Clone, Debug, Default)]
pub struct NvmeHostArgs {
    /// Host NQN [default: a new one]
    #[arg(short = 'q', long)]
    pub hostnqn: Option<String>,
    /// File with the key by which TLS is spoken, as `weft key new` makes it; the first in it
    #[arg(long, value_name = "FILE", requires = "hostnqn")]
    pub psk_file: Option<PathBuf>,
    /// File with the DH-HMAC-CHAP secret of this host, as `weft key new --dhchap` or
    /// `nvme gen-dhchap-key` makes it; the first in it
    #[arg(long, value_name = "FILE", requires = "hostnqn")]
    pub dhchap_secret_file: Option<PathBuf>,
    /// File with the secret that the controller must prove to know
    #[arg(long, value_name = "FILE", requires = "dhchap_secret_file")]
    pub dhchap_ctrl_secret_file: Option<PathBuf>,
}

impl NvmeHostArgs {
    /// Who this host is; reads the files.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn identity(&self) -> Result<HostIdentity, String> {
        let psk = first_key(self.psk_file.as_deref())?;
        let controller = first_key(self.dhchap_ctrl_secret_file.as_deref())?;
        let host = first_key(self.dhchap_secret_file.as_deref())?;
        let dhchap = host.map(|host: DhchapKey| DhchapKeys {
            host: vec![host.into()],
            controller,
        });
        let host = HostIdentity::new(self.hostnqn.as_deref()).map_err(|e| e.to_string())?;
        Ok(HostIdentity {
            psk: psk.map(|psk: Psk| psk.into()),
            dhchap,
            ..host
        })
    }
}

/// The first key of a file, if one is named.
fn first_key<K: KeyText>(path: Option<&Path>) -> Result<Option<K>, String> {
    let Some(path) = path else {
        return Ok(None);
    };
    let bytes = read_private(path, KEY_FILE_BYTES_MAX + 1)?;
    let keys = parse_keys(bytes.bytes()).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(keys.into_iter().next().map(|first| first.key))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NvmeHostArgs,
    }

    fn parse(line: &str) -> Result<NvmeHostArgs, clap::Error> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn secrets_of_a_host_come_from_private_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let write = |text: &str, mode| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        let file = path.display();
        let line =
            format!("--hostnqn nqn.x --dhchap-secret-file {file} --dhchap-ctrl-secret-file {file}");
        let args = parse(&line).expect("parses");
        let key = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        write(key, 0o644);
        assert!(
            args.identity()
                .expect_err("open to all")
                .contains("chmod 600")
        );
        write("DHHC-1:00:AAAA:\n", 0o600);
        assert!(args.identity().expect_err("no key").contains("length"));
        write(&format!("{key}\n"), 0o600);
        let keys = args.identity().expect("keys").dhchap.expect("given");
        let [host] = &keys.host[..] else {
            panic!("it has one secret: {keys:?}");
        };
        assert_eq!(host.key.interchange(), key);
        assert_eq!(keys.controller.as_ref(), Some(&host.key));
    }

    #[test]
    fn secrets_without_their_other_half_are_refused() {
        for line in [
            "--dhchap-secret-file f",
            "--hostnqn nqn.x --dhchap-ctrl-secret-file f",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let none = parse("").expect("nothing").identity();
        assert!(none.expect("a host").dhchap.is_none());
    }
}
