//! `weft key`: the keys by which NVMe hosts speak TLS, and the secrets by which they authenticate.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Derivation, Psk, PskHash};
use auth::{
    HostDhchap, HostKey, HostPsk, KEY_FILE_BYTES_MAX, KeyText, Secret, key_lines, parse_keys,
};
use clap::{Args, Subcommand, ValueEnum};
use control::ClientStep;
use nvmf::{check_host_nqn, check_subsystem_nqn};
use wire::nvme::discovery::DISCOVERY_NQN;

use crate::FAILURE;

#[derive(Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make a key for TLS, or a secret of DH-HMAC-CHAP, in a file that only you may read, and
    /// print what each side does with it
    New {
        /// The file, which must not be there yet
        file: PathBuf,
        #[command(flatten)]
        pair: Pair,
        /// A secret of DH-HMAC-CHAP, by which the host authenticates, instead of a key for TLS
        #[arg(long)]
        dhchap: bool,
        /// Of the key and its cipher suite, or of the secret; hosts with tlshd before 1.1 need
        /// sha256, and sha512 is for secrets alone
        #[arg(long, value_enum, default_value_t = HashName::Sha384)]
        hash: HashName,
    },
    /// Say what the keys or secrets of a file are, and by which identities a host says keys
    Check {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        pair: Pair,
    },
    /// Put a new key or secret into a file, before those that are there: they are good for a while
    /// yet, so that hosts take the new one one by one
    Rotate {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        pair: Pair,
        /// How long the keys that are there stay good, as in 90s, 12h or 7d
        #[arg(long, default_value = "1d", value_parser = grace)]
        grace: Duration,
    },
}

/// Whom a key is for.
#[derive(Args)]
struct Pair {
    /// NQN of the host: `cat /etc/nvme/hostnqn` there
    #[arg(long, value_name = "NQN", value_parser = host_nqn)]
    host: String,
    /// NQN of the subsystem
    #[arg(long, value_name = "NQN", value_parser = subsystem_nqn)]
    subsystem: String,
}

/// Longer than this no key is to be good.
const GRACE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

fn grace(text: &str) -> Result<Duration, String> {
    let grace = humantime::parse_duration(text).map_err(|why| why.to_string())?;
    match grace <= GRACE_MAX {
        true => Ok(grace),
        false => Err("it is longer than a year".to_owned()),
    }
}

fn host_nqn(text: &str) -> Result<String, String> {
    check_host_nqn(text).map_err(|why| why.to_string())?;
    Ok(text.to_owned())
}

fn subsystem_nqn(text: &str) -> Result<String, String> {
    if text == DISCOVERY_NQN {
        return Ok(text.to_owned());
    }
    check_subsystem_nqn(text).map_err(|why| why.to_string())?;
    Ok(text.to_owned())
}

#[derive(Clone, Copy, ValueEnum)]
enum HashName {
    Sha256,
    Sha384,
    Sha512,
}

/// What a file has.
enum KeyFile {
    Tls(Vec<HostPsk>),
    Dhchap(Vec<HostDhchap>),
}

/// Makes, checks or replaces keys.
pub fn run(arguments: &KeyArgs) -> io::Result<ExitCode> {
    let told = match &arguments.command {
        KeyCommand::New {
            file,
            pair,
            dhchap,
            hash,
        } => make(file, pair, *dhchap, *hash),
        KeyCommand::Check { file, pair } => check(file, pair),
        KeyCommand::Rotate { file, pair, grace } => rotate(file, pair, *grace),
    };
    match told {
        Ok(text) => {
            io::stdout().write_all(text.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            writeln!(io::stderr(), "error: {why}")?;
            Ok(ExitCode::from(FAILURE))
        }
    }
}

/// What `make` makes of random bytes.
fn of_random<K>(make: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> K) -> Result<K, String> {
    let mut filled = Ok(());
    let key = make(&mut |bytes| filled = reactor::fill_random(bytes));
    filled.map_err(|error| format!("the system has no random bytes: {error}"))?;
    Ok(key)
}

fn new_psk(hash: PskHash) -> Result<Psk, String> {
    of_random(|random| Psk::new(hash, random))
}

fn new_secret(hash: DhchapHash) -> Result<DhchapKey, String> {
    of_random(|random| DhchapKey::new(hash, random))
}

fn make(path: &Path, pair: &Pair, is_dhchap: bool, hash: HashName) -> Result<String, String> {
    let text = match (is_dhchap, hash) {
        (false, HashName::Sha256) => key_lines(&[new_psk(PskHash::Sha256)?.into()]),
        (false, HashName::Sha384) => key_lines(&[new_psk(PskHash::Sha384)?.into()]),
        (false, HashName::Sha512) => {
            return Err("keys for TLS have SHA-256 or SHA-384: `--hash sha384`".to_owned());
        }
        (true, HashName::Sha256) => key_lines(&[new_secret(DhchapHash::Sha256)?.into()]),
        (true, HashName::Sha384) => key_lines(&[new_secret(DhchapHash::Sha384)?.into()]),
        (true, HashName::Sha512) => key_lines(&[new_secret(DhchapHash::Sha512)?.into()]),
    };
    let shown = path.display();
    let file = write_new(path, &text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{shown} is there already: give another name, or remove it if no host has it")
        }
        _ => format!("{shown} cannot be made: {error}"),
    })?;
    give_to_owner_of_folder(&file, path)?;
    let path = &fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let shown = path.display();
    let (what, name, other) = match is_dhchap {
        true => (
            "secret",
            "dhchap_secret_file",
            "    # or, for weft to prove itself by it: dhchap_ctrl_secret_file\n",
        ),
        false => ("key", "psk_file", ""),
    };
    Ok(format!(
        "{shown} has the {what}: copy it to the host in a way that nobody reads, and nowhere \
         else.\n\n\
         Here, in the [[nvme.subsystem]] nqn = \"{}\":\n\n\
         \x20   [[nvme.subsystem.host]]\n\
         \x20   nqn = \"{}\"\n\
         \x20   {name} = {}\n{other}\n{}",
        pair.subsystem,
        pair.host,
        toml::Value::from(shown.to_string()),
        on_the_host(path, pair, is_dhchap)
    ))
}

/// Root makes keys for the user whose folder it is: weft as a service runs as another user. Its
/// name is not gone by, since that user may have put another file there meanwhile.
fn give_to_owner_of_folder(file: &File, path: &Path) -> Result<(), String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let given = fs::metadata(folder.unwrap_or(Path::new("."))).and_then(|folder| {
        let own = file.metadata()?.uid();
        match own == 0 && folder.uid() != 0 {
            true => fchown(file, Some(folder.uid()), Some(folder.gid())),
            false => Ok(()),
        }
    });
    given.map_err(|error| format!("{} cannot be given away: {error}", path.display()))
}

/// What a Linux host does with its copy of a key or secret.
fn on_the_host(path: &Path, pair: &Pair, is_dhchap: bool) -> String {
    let Pair { host, subsystem } = pair;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let file = shell_quoted(&file);
    let (what, steps, connect) = match is_dhchap {
        true => (
            "secret",
            control::dhchap_secret_steps(host, subsystem, &file),
            "nvme connect --config host.conf".to_owned(),
        ),
        false => (
            "key",
            control::tls_key_steps(host, subsystem, &file),
            format!(
                "nvme connect -t tcp -a ADDRESS -s 4420 -q {host} \\\n        \
                 -n {subsystem} --tls"
            ),
        ),
    };
    let mut text = format!("On the host, with its copy of the {what} in {file}.\n");
    for ClientStep { title, lines } in steps {
        text += &format!("\n{title}:\n\n");
        for line in lines {
            text += &format!("    {line}\n");
        }
    }
    text += &format!("\nThen it connects:\n\n    {connect}\n");
    text
}

fn check(path: &Path, pair: &Pair) -> Result<String, String> {
    let (keys, mut text) = (read(path)?, of_group(path)?);
    match keys {
        KeyFile::Tls(keys) => {
            for (number, HostKey { key, until }) in (1..).zip(keys) {
                let (hash, suite) = (key.hash().name(), key.hash().cipher_suite());
                text += &format!("key {number}: {hash}, {suite}, {}\n", state(until));
                text += &identities(&key, pair);
            }
        }
        KeyFile::Dhchap(secrets) => {
            for (number, HostKey { key, until }) in (1..).zip(secrets) {
                let hash = key
                    .hash()
                    .map_or_else(|| "as it is".to_owned(), |hash| hash.to_string());
                text += &format!("secret {number}: {hash}, {}\n", state(until));
            }
        }
    }
    Ok(text)
}

/// Whether a key is good.
fn state(until: Option<Duration>) -> String {
    let Some(until) = until else {
        return "good".to_owned();
    };
    let is_over = UNIX_EPOCH + until <= SystemTime::now();
    let until = humantime::format_rfc3339_seconds(UNIX_EPOCH + until);
    let word = if is_over { "expired" } else { "good until" };
    format!("{word} {until}")
}

/// How a host says a key for TLS.
fn identities(key: &Psk, Pair { host, subsystem }: &Pair) -> String {
    let of_version_1 = |derivation| key.tls_psk(host, subsystem, derivation).identity;
    let of_version_0 = key.tls_psk_version_0(host, subsystem, Derivation::Standard);
    format!(
        "  identity:\n    {}\n  identity, as libnvme up to 1.13 makes it:\n    {}\n  \
         identity of version 0:\n    {}\n",
        of_version_1(Derivation::Standard),
        of_version_1(Derivation::Old),
        of_version_0.identity
    )
}

/// That the group of the file may read it, if it may: so weft reads a file of root's.
fn of_group(path: &Path) -> Result<String, String> {
    let shown = path.display().to_string();
    let about = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    let mode = about.mode() & 0o777;
    Ok(match mode & 0o070 {
        0 => String::new(),
        _ => format!(
            "mode {mode:04o}: its group may read the key; if that is not meant, `chmod 600 {}`\n",
            shell_quoted(&shown)
        ),
    })
}

/// As a shell takes it for one word.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The lines of a file with a new key before those that it has, which are good until a time.
fn rotated<K: KeyText>(
    keys: Vec<HostKey<K>>,
    new: K,
    (now, until): (Duration, Duration),
) -> Result<Secret, String> {
    let kept = keys
        .into_iter()
        .filter(|key| key.until.is_none_or(|until| now < until));
    let kept = kept.map(|HostKey { key, until: known }| HostKey {
        key,
        until: Some(known.map_or(until, |known| known.min(until))),
    });
    let keys: Vec<_> = [new.into()].into_iter().chain(kept).collect();
    let text = key_lines(&keys);
    parse_keys::<K>(text.bytes())?;
    Ok(text)
}

fn rotate(path: &Path, pair: &Pair, grace: Duration) -> Result<String, String> {
    let keys = read(path)?;
    let cannot = |error| format!("{} cannot be replaced: {error}", path.display());
    // What a link leads to is replaced, not the link.
    let target = fs::canonicalize(path).map_err(cannot)?;
    let about = fs::metadata(&target).map_err(cannot)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| "the clock is before 1970")?;
    let until = now.saturating_add(grace);
    let is_dhchap = matches!(keys, KeyFile::Dhchap(_));
    let text = match keys {
        KeyFile::Tls(keys) => {
            let new = new_psk(keys[0].key.hash())?;
            rotated(keys, new, (now, until))
        }
        KeyFile::Dhchap(keys) => {
            let new = new_secret(keys[0].key.hash().unwrap_or(DhchapHash::Sha384))?;
            rotated(keys, new, (now, until))
        }
    };
    let text = text.map_err(|why| {
        let shown = path.display();
        format!("{shown} with one key more: {why}; take out the lines of keys that no host has")
    })?;
    // Whole or not at all, with the owner and the mode that it had.
    let mut beside = target.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let file = write_new(beside, &text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "{} is left of a rotation that did not come to its end, or of one under way: no host \
             has its key, so remove it, and rotate again; {} is as it was before",
            beside.display(),
            path.display()
        ),
        _ => format!("{} cannot be made: {error}", beside.display()),
    })?;
    let replaced = fchown(&file, Some(about.uid()), Some(about.gid()))
        .and_then(|()| file.set_permissions(about.permissions()))
        .and_then(|()| fs::rename(beside, &target));
    replaced.map_err(|error| {
        let _ = fs::remove_file(beside);
        cannot(error)
    })?;
    let until = humantime::format_rfc3339_seconds(UNIX_EPOCH + until);
    let shown = path.display();
    Ok(format!(
        "{shown} has a new {}; those before it are good until {until}. No host is \
         disconnected.\n\nHere: `weft apply` with the configuration, or `systemctl reload weft`, \
         takes the file.\n\n{}",
        if is_dhchap { "secret" } else { "key" },
        on_the_host(path, pair, is_dhchap)
    ))
}

fn read(path: &Path) -> Result<KeyFile, String> {
    let cannot = |error| format!("{} cannot be read: {error}", path.display());
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(format!("{} is no file", path.display()));
    }
    let file = File::open(path).map_err(cannot)?;
    control::access_of(&file.metadata().map_err(cannot)?)
        .check_private(&path.display().to_string())
        .map_err(|why| format!("{why}, and make another key if others had it"))?;
    // Of the whole size at once: what grows leaves copies behind.
    let most = KEY_FILE_BYTES_MAX + 1;
    let mut bytes = Vec::with_capacity(most + 1);
    let read = file.take(most as u64).read_to_end(&mut bytes);
    let bytes = Secret::new(bytes);
    read.map_err(cannot)?;
    let mut lines = bytes.bytes().split(|byte| *byte == b'\n');
    let is_dhchap = lines.any(|line| line.trim_ascii_start().starts_with(b"DHHC-1:"));
    let keys = match is_dhchap {
        true => parse_keys(bytes.bytes()).map(KeyFile::Dhchap),
        false => parse_keys(bytes.bytes()).map(KeyFile::Tls),
    };
    keys.map_err(|why| format!("{}: {why}", path.display()))
}

/// Writes a file that is not there yet, for its owner alone.
fn write_new(path: &Path, text: &Secret) -> io::Result<File> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = made?;
    file.write_all(text.bytes())?;
    file.sync_all()?;
    Ok(file)
}
