//! The name of an NVMe host and its key for TLS: arguments of several commands.

use std::path::{Path, PathBuf};

use auth::psk::Psk;
use auth::{KEY_FILE_BYTES_MAX, parse_keys};
use clap::Args;
use host::{DhchapKey, DhchapKeys, HostIdentity};

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
    /// File with the DH-HMAC-CHAP secret of this host, as `nvme gen-dhchap-key` writes it
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
        let psk = self.psk_file.as_deref().map(psk).transpose()?;
        let read = |path: &Option<PathBuf>| path.as_deref().map(secret).transpose();
        let controller = read(&self.dhchap_ctrl_secret_file)?;
        let host = read(&self.dhchap_secret_file)?;
        let dhchap = host.map(|host| DhchapKeys {
            host: vec![host.into()],
            controller,
        });
        let host = HostIdentity::new(self.hostnqn.as_deref()).map_err(|e| e.to_string())?;
        Ok(HostIdentity {
            psk: psk.flatten().map(Into::into),
            dhchap,
            ..host
        })
    }
}

/// The first key of a file.
fn psk(path: &Path) -> Result<Option<Psk>, String> {
    let bytes = read_private(path, KEY_FILE_BYTES_MAX + 1)?;
    let keys = parse_keys(bytes.bytes()).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(keys.into_iter().next().map(|key| key.psk))
}

/// The secret in a file.
fn secret(path: &Path) -> Result<DhchapKey, String> {
    let bytes = read_private(path, SECRET_BYTES_MAX)?;
    let text = str::from_utf8(bytes.bytes()).unwrap_or_default();
    DhchapKey::parse(text.trim_end()).map_err(|why| format!("{}: {why}", path.display()))
}

/// More than any secret of DH-HMAC-CHAP has as text.
const SECRET_BYTES_MAX: usize = 255;

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
