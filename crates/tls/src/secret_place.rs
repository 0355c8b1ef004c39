//! Where a secret lies that the configuration names: in a file, among the credentials that the
//! service manager hands over, or in a keyring of the kernel.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use auth::{FileAccess, Secret};
use linux_keyutils::{KeyError, KeyRing, KeyRingIdentifier};

/// What stands before the name of a credential (systemd.exec(5), `LoadCredential=`).
const CREDENTIAL: &str = "credential:";
/// What stands before the description of a key of type `user` (keyrings(7)).
const KEYRING: &str = "keyring:";
/// Where a secret may lie, for people.
pub const SECRET_PLACE: &str =
    "the path of a file, credential: and a name, or keyring: and a description";
/// Bytes of a key of type `user`, at most (keyrings(7)).
const KEYRING_BYTES_MAX: usize = 32_767;
/// What a kernel without keyrings says.
const ENOSYS: i32 = 38;
/// Names the folder of the credentials.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Where a secret lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretPlace {
    /// In a file that is its owner's alone, or root's and read by its group.
    File(PathBuf),
    /// In the credential of a name.
    Credential(String),
    /// In the key of a description.
    Keyring(String),
}

impl SecretPlace {
    /// As the configuration says it; paths are relative to `folder`.
    ///
    /// # Errors
    /// What is wrong with a name.
    pub fn parse(text: &str, folder: &Path) -> Result<SecretPlace, String> {
        if let Some(name) = text.strip_prefix(CREDENTIAL) {
            let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
            return match is_name {
                true => Ok(SecretPlace::Credential(name.to_owned())),
                false => Err(format!(
                    "\"{name}\" is no name of a credential; write {CREDENTIAL} and the name that \
                     LoadCredential= gives it"
                )),
            };
        }
        match text.strip_prefix(KEYRING) {
            Some("") => Err(format!(
                "it names no key; write {KEYRING} and the description of a key of type user"
            )),
            Some(description) => Ok(SecretPlace::Keyring(description.to_owned())),
            None => Ok(SecretPlace::File(folder.join(text))),
        }
    }

    /// Its first `most` bytes. `made` says how a secret comes to be in FILE.
    ///
    /// # Errors
    /// Why it cannot be read, and what to do, without any of it.
    pub fn read(&self, most: usize, made: &str) -> Result<Secret, String> {
        match self {
            SecretPlace::File(path) => {
                read_private(path, most).map_err(|unread| unread.told(path, made))
            }
            SecretPlace::Credential(name) => {
                let path = credential_path(name)?;
                read_private(&path, most).map_err(|unread| match unread {
                    Unread::Error(error) if error.kind() == io::ErrorKind::NotFound => format!(
                        "weft has no credential {name}; write LoadCredential={name}:FILE into its \
                         unit, and restart it: {made}"
                    ),
                    unread => unread.told(&path, made),
                })
            }
            SecretPlace::Keyring(description) => {
                key_of(description, most).map_err(|error| told_of_key(description, error, made))
            }
        }
    }
}

impl SecretPlace {
    /// The file that it is, where it is one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn file(&self) -> Result<PathBuf, String> {
        match self {
            SecretPlace::File(path) => Ok(path.clone()),
            SecretPlace::Credential(name) => credential_path(name),
            SecretPlace::Keyring(_) => Err(format!(
                "a file is needed, not a key of the kernel; name a path, or {CREDENTIAL} and a name"
            )),
        }
    }
}

impl From<PathBuf> for SecretPlace {
    fn from(path: PathBuf) -> SecretPlace {
        SecretPlace::File(path)
    }
}

/// What a key of the kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyNow {
    /// It can be read.
    Read(Secret),
    /// It was revoked or has expired (keyrings(7)).
    Withdrawn,
    /// It is not there, or cannot be read.
    Unreadable,
}

impl SecretPlace {
    /// What the key is that it names; places that are none are not looked at.
    pub fn key_now(&self) -> KeyNow {
        let SecretPlace::Keyring(description) = self else {
            return KeyNow::Unreadable;
        };
        match key_of(description, KEYRING_BYTES_MAX) {
            Ok(secret) => KeyNow::Read(secret),
            Err(KeyError::KeyRevoked | KeyError::KeyExpired) => KeyNow::Withdrawn,
            Err(_) => KeyNow::Unreadable,
        }
    }
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretPlace::File(path) => path.display().fmt(f),
            SecretPlace::Credential(name) => write!(f, "{CREDENTIAL}{name}"),
            SecretPlace::Keyring(description) => write!(f, "{KEYRING}{description}"),
        }
    }
}

/// Whether a text names something else than a path.
#[must_use]
pub fn is_no_path(text: &str) -> bool {
    text.starts_with(CREDENTIAL) || text.starts_with(KEYRING)
}

fn credential_path(name: &str) -> Result<PathBuf, String> {
    let folder = env::var_os(CREDENTIALS_DIRECTORY).ok_or_else(|| {
        format!(
            "weft has no credential {name}: systemd gives it to the service alone \
             (${CREDENTIALS_DIRECTORY} is not set); start weft by its unit, with \
             LoadCredential={name}:FILE in it, or check as `systemd-run --pipe -p \
             LoadCredential={name}:FILE weft check -c ...`"
        )
    })?;
    Ok(Path::new(&folder).join(name))
}

/// Why a file with a secret is not read.
enum Unread {
    Error(io::Error),
    /// It is a folder, a pipe, a socket or a device.
    NoFile,
    /// Others may read or write it: so, and what to do.
    Open(String),
}

impl Unread {
    fn told(self, path: &Path, made: &str) -> String {
        let shown = path.display();
        match self {
            Unread::Error(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => made.replace("FILE", &shown.to_string()),
                    io::ErrorKind::PermissionDenied => {
                        "`chown` it to the user that weft runs as, and its folder too".to_owned()
                    }
                    _ => "name a file that can be read".to_owned(),
                };
                format!("{shown} cannot be read: {error}; {remedy}")
            }
            Unread::NoFile => format!("{shown} is no file; name one"),
            Unread::Open(why) => why,
        }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Unread::Error(error)
    }
}

/// The first `most` bytes of a file that other users may not read.
fn read_private(path: &Path, most: usize) -> Result<Secret, Unread> {
    // Looked at before it is opened: opening a pipe would block.
    if !fs::metadata(path)?.is_file() {
        return Err(Unread::NoFile);
    }
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    let access = FileAccess {
        owner: about.uid(),
        mode: about.mode(),
    };
    let private = access.check_private(&path.display().to_string());
    private.map_err(Unread::Open)?;
    // Of the whole size at once: what grows leaves copies behind.
    let mut bytes = vec![0; most];
    let mut len = 0;
    loop {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                drop(Secret::new(bytes));
                return Err(error.into());
            }
        }
    }
    Ok(Secret::first(bytes, len))
}

/// The first `most` bytes of a key that the process may find: in its session keyring, or that of
/// its user (request_key(2)).
fn key_of(description: &str, most: usize) -> Result<Secret, KeyError> {
    let session = KeyRing::from_special_id(KeyRingIdentifier::Session, false)?;
    let of_user = || KeyRing::from_special_id(KeyRingIdentifier::User, false)?.search(description);
    let key = session
        .search(description)
        .or_else(|first| match of_user() {
            Err(KeyError::KeyDoesNotExist) => Err(first),
            found => found,
        })?;
    // The kernel gives nothing of what is longer than it is asked for (keyctl_read(3)).
    let mut bytes = vec![0; KEYRING_BYTES_MAX];
    let read = key.read(&mut bytes);
    let len = *read.as_ref().unwrap_or(&0);
    let secret = Secret::first(bytes, len.min(most));
    read.map(|_| secret)
}

fn told_of_key(description: &str, error: KeyError, made: &str) -> String {
    let why = match error {
        KeyError::KeyDoesNotExist => "no keyring of weft has it",
        KeyError::KeyExpired => "it has expired",
        KeyError::KeyRevoked => "it was revoked",
        KeyError::AccessDenied | KeyError::PermissionDenied => {
            "weft may not read it, or its container keeps keyrings from it"
        }
        KeyError::OperationNotSupported | KeyError::Unknown(ENOSYS) => {
            "this kernel has no keyrings"
        }
        _ => "the kernel does not give it",
    };
    format!(
        "the key \"{description}\" of type user cannot be read: {why}; as the user that weft runs \
         as, `keyctl padd user {description} @u < FILE`: {made}"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MADE: &str = "`make` makes one";

    fn told(place: &SecretPlace) -> String {
        place.read(100, MADE).expect_err("unreadable")
    }

    #[test]
    fn secret_lies_in_a_file_unless_another_place_is_named() {
        let folder = Path::new("/etc/weft");
        let parse = |text: &str| SecretPlace::parse(text, folder);
        let file = |path: &str| Ok(SecretPlace::File(path.into()));
        assert_eq!(parse("a.psk"), file("/etc/weft/a.psk"));
        assert_eq!(parse("/a.psk"), file("/a.psk"));
        assert_eq!(parse("./keyring:a"), file("/etc/weft/./keyring:a"));
        let credential = Ok(SecretPlace::Credential("a.psk".to_owned()));
        assert_eq!(parse("credential:a.psk"), credential);
        let key = Ok(SecretPlace::Keyring("weft:a".to_owned()));
        assert_eq!(parse("keyring:weft:a"), key);
        for wrong in ["credential:", "credential:..", "credential:a/b", "keyring:"] {
            let why = parse(wrong).expect_err(wrong);
            assert!(why.contains("; write "), "{why}");
        }
        assert!(is_no_path("keyring:a") && is_no_path("credential:a") && !is_no_path("a"));
    }

    #[test]
    fn file_that_is_not_read_is_told_with_its_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.psk");
        let place = SecretPlace::File(path.clone());
        assert!(
            told(&place).ends_with(&format!("; {MADE}")),
            "{}",
            told(&place)
        );
        fs::write(&path, "a secret").expect("written");
        for (mode, is_good) in [(0o600, true), (0o400, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            match place.read(100, MADE) {
                Ok(secret) => {
                    assert!(is_good, "{mode:o}");
                    assert_eq!(secret.bytes(), b"a secret");
                }
                Err(why) => {
                    assert!(!is_good && why.ends_with("; `chmod 600` it"), "{why}");
                }
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        let first = place.read(3, MADE).expect("readable");
        assert_eq!(first.bytes(), b"a s");
        let of_folder = SecretPlace::File(folder.path().to_owned());
        assert!(told(&of_folder).ends_with("is no file; name one"));
    }

    #[test]
    fn place_that_is_no_file_is_told_where_one_is_needed() {
        let path = PathBuf::from("/a.keytab");
        assert_eq!(SecretPlace::from(path.clone()).file(), Ok(path));
        let why = SecretPlace::Keyring("a".to_owned()).file();
        let why = why.expect_err("no file");
        assert!(why.contains("; name a path, or credential: "), "{why}");
    }

    #[test]
    fn key_that_no_keyring_has_is_told_with_its_remedy() {
        let place = SecretPlace::Keyring("weft test: no such key".to_owned());
        let told = told(&place);
        assert!(
            told.contains("keyctl padd user") && told.contains(MADE),
            "{told}"
        );
    }
}
