//! The name of an iSCSI initiator, and how it proves that: arguments of several
//! commands.

use std::path::{Path, PathBuf};

use clap::Args;
use host::iscsi::{Algorithm, Chap, Initiator, Secret};

use crate::private_file::read_private;

/// Arguments of what speaks iSCSI.
#[derive(Args, Clone, Debug, Default)]
pub struct ChapArgs {
    /// iSCSI name of this initiator [default: a new one]
    #[arg(long, value_name = "IQN", value_parser = parse_initiator)]
    pub initiator: Option<String>,
    /// CHAP name of this initiator
    #[arg(long, value_name = "NAME", requires = "chap_secret_file")]
    pub chap_user: Option<String>,
    /// File with the secret that this initiator proves to know
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub chap_secret_file: Option<PathBuf>,
    /// File with the secret that the target must prove to know
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub mutual_secret_file: Option<PathBuf>,
    /// How secrets are proven, the preferred way first: sha3-256, sha256, and
    /// where a target knows nothing better sha1 or md5
    #[arg(long, value_name = "LIST", requires = "chap_user", value_delimiter = ',', value_parser = parse_algorithm, default_value = "sha3-256,sha256")]
    pub chap_algorithms: Vec<Algorithm>,
}

fn parse_initiator(text: &str) -> Result<String, String> {
    host::iscsi::check_initiator_name(text).map_err(|error| error.to_string())
}

fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::from_name(text)
        .ok_or_else(|| format!("`{text}` is no CHAP algorithm: they are {}", known()))
}

impl ChapArgs {
    /// The name of this initiator, and the number of this process in its ISIDs.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn identity(&self) -> Result<Initiator, String> {
        Initiator::new(self.initiator.as_deref()).map_err(|error| error.to_string())
    }

    /// How it proves that; reads the files.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn chap(&self) -> Result<Option<Chap>, String> {
        let (Some(name), Some(file)) = (&self.chap_user, &self.chap_secret_file) else {
            return Ok(None);
        };
        let mutual = self.mutual_secret_file.as_deref().map(secret);
        Ok(Some(Chap {
            name: name.clone(),
            secret: secret(file)?,
            algorithms: self.chap_algorithms.clone(),
            mutual: mutual.transpose()?,
        }))
    }
}

/// The secret in a file for secrets, without the end of its line.
fn secret(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let read = read_private(path, Secret::LEN_MAX + 3)?;
    let bytes = read.bytes();
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.len() {
        0 => Err(format!("{shown} holds no secret")),
        len if len > Secret::LEN_MAX => Err(format!(
            "{shown} holds more than a secret: that has at most {} bytes",
            Secret::LEN_MAX
        )),
        _ => Ok(Secret::new(line)),
    }
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
        args: ChapArgs,
    }

    fn parse(line: &str) -> Result<ChapArgs, clap::Error> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn secrets_come_from_private_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let write = |bytes: &[u8], mode| {
            fs::write(&path, bytes).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        let file = path.display();
        let line = format!("--chap-user alice --chap-secret-file {file}");
        let args = parse(&line).expect("parses");
        assert!(args.chap().expect_err("no file").contains("cannot be read"));
        write(b"correct horse\r\n", 0o644);
        let error = args.chap().expect_err("open to all");
        assert!(error.contains("chmod 600"), "{error}");
        write(b"correct horse\r\n", 0o600);
        let chap = args.chap().expect("a secret").expect("CHAP");
        assert_eq!(chap.name, "alice");
        assert_eq!(chap.secret, Secret::new(*b"correct horse"));
        assert_eq!(chap.algorithms, [Algorithm::Sha3_256, Algorithm::Sha256]);
        assert!(chap.mutual.is_none());
        write(b"\n", 0o600);
        assert!(args.chap().is_err(), "empty");
        write(&[b'a'; 256], 0o600);
        assert!(args.chap().is_err(), "too long");
        write(b"correct horse", 0o600);
        let line = format!("{line} --mutual-secret-file {file} --chap-algorithms md5,sha1");
        let chap = parse(&line)
            .expect("parses")
            .chap()
            .expect("both")
            .expect("CHAP");
        assert!(chap.mutual.is_some());
        assert_eq!(chap.algorithms, [Algorithm::Md5, Algorithm::Sha1]);
    }

    #[test]
    fn chap_arguments_without_their_other_half_are_refused() {
        for line in [
            "--chap-user alice",
            "--chap-secret-file f",
            "--mutual-secret-file f",
            "--chap-user a --chap-secret-file f --chap-algorithms crc32",
            "--initiator disks",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("").expect("nothing").chap().expect("none").is_none());
        let named = parse("--initiator iqn.2026-01.io.weft:a").expect("parses");
        assert_eq!(
            named.identity().expect("random").name,
            "iqn.2026-01.io.weft:a"
        );
    }
}
