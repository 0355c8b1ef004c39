//! Where the socket is, and whose.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use server::AdminSocket;

/// Of root's weft, and so of the machine's.
const OF_ROOT: &str = "/run/weft/admin.sock";

/// Where the socket is unless a configuration says: of a service in its `RUNTIME_DIRECTORY`, of root under
/// `/run`, of others in `XDG_RUNTIME_DIR`.
///
/// # Errors
/// Why there is no such place, and what to do.
pub fn usual_path() -> Result<PathBuf, String> {
    // The first, where the unit names several (systemd.exec(5)).
    let of_service = std::env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    if let Some(folder) = of_service.split(':').next().filter(|name| !name.is_empty()) {
        return Ok(Path::new(folder).join("admin.sock"));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(OF_ROOT));
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => Ok(Path::new(&folder).join("weft/admin.sock")),
        _ => Err("XDG_RUNTIME_DIR is not set".to_owned()),
    }
}

/// Where commands look for the socket: where the user's own weft has it or, if it has none, where
/// the machine's has.
///
/// # Errors
/// Why there is no such place, and what to do.
pub fn asked_path() -> Result<PathBuf, String> {
    let (own, of_root) = (usual_path(), PathBuf::from(OF_ROOT));
    let is_there = own.as_ref().is_ok_and(|path| path.exists());
    match !is_there && of_root.exists() {
        true => Ok(of_root),
        false => own,
    }
}

/// A socket that this process has. Dropping it removes it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    pub(crate) listener: UnixListener,
    /// Locked: no other process takes the path meanwhile. `None`: the service manager has it,
    /// and keeps the socket.
    lock: Option<File>,
}

/// A socket as long as it is served: the thread that serves it removes it too, where it fails.
pub(crate) type TakenPlace = Arc<Mutex<Option<Place>>>;

impl Place {
    /// Takes the socket that a configuration names; `None`: it wants none. One that a
    /// process left that was killed is replaced. `listening`: what the service manager hands
    /// over, this socket or nothing.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn take(
        socket: &AdminSocket,
        listening: Vec<UnixListener>,
    ) -> Result<Option<Place>, String> {
        let path = match socket {
            AdminSocket::Off => None,
            AdminSocket::At(path) => Some(path.clone()),
            AdminSocket::Usual => Some(usual_path()?),
        };
        let mut inherited = None;
        for listener in listening {
            let address = listener.local_addr().ok();
            let at = address.as_ref().and_then(|address| address.as_pathname());
            if at.is_none() || at != path.as_deref() {
                let at = at.unwrap_or(Path::new("an address without a path"));
                return Err(format!(
                    "the service manager hands over a socket at {}, which the configuration does \
                     not name",
                    at.display()
                ));
            }
            inherited = Some(listener);
        }
        let Some(path) = path else {
            return Ok(None);
        };
        if let Some(listener) = inherited {
            let set = listener.set_nonblocking(true);
            set.map_err(|error| format!("{}: {error}", path.display()))?;
            let lock = None;
            return Ok(Some(Place {
                path,
                listener,
                lock,
            }));
        }
        let taken = match socket {
            AdminSocket::Usual => make_folder(&path).and_then(|()| Place::bind(&path)),
            _ => Place::bind(&path),
        };
        match taken {
            Ok(place) => Ok(Some(place)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets users of this machine connect, or only the one that weft runs as. Who may ask is
    /// looked at then. What the service manager made has the mode that its unit says.
    pub(crate) fn set_open(&self, is_open: bool) -> io::Result<()> {
        if self.lock.is_none() {
            return Ok(());
        }
        let mode = if is_open { 0o666 } else { 0o600 };
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }

    fn bind(path: &Path) -> io::Result<Place> {
        let taken = || io::Error::new(ErrorKind::AddrInUse, "another process has it");
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        let lock = options.open(lock)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => taken(),
            TryLockError::Error(error) => error,
        })?;
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                let why = "something else than a socket is there";
                return Err(io::Error::new(ErrorKind::AlreadyExists, why));
            }
            // Of a program that takes no such lock.
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(taken()),
            Ok(_) => fs::remove_file(path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        let place = Place {
            path: path.to_owned(),
            listener,
            lock: Some(lock),
        };
        // Whoever came before is known by its user all the same.
        place.set_open(false)?;
        place.listener.set_nonblocking(true)?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The folder of the usual path.
fn make_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    // The socket has its own mode: members of a group reach it here.
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(path: &Path) -> Result<Option<Place>, String> {
        Place::take(&AdminSocket::At(path.to_owned()), Vec::new())
    }

    #[test]
    fn socket_is_taken_once_and_a_stale_one_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        let place = take(&path).expect("free").expect("wanted");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let why = take(&path).expect_err("taken");
        assert!(why.contains("another process has it"), "{why}");
        drop(place);
        assert!(!path.exists());
        // What a process leaves that was killed.
        drop(UnixListener::bind(&path).expect("free"));
        assert!(take(&path).expect("stale").is_some());
    }

    #[test]
    fn path_with_something_else_than_a_stale_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        fs::write(&path, "data").expect("room");
        let why = take(&path).expect_err("a file");
        assert!(why.contains("something else than a socket"), "{why}");
        assert_eq!(fs::read(&path).expect("there"), b"data");
        fs::remove_file(&path).expect("there");
        let other = UnixListener::bind(&path).expect("free");
        let why = take(&path).expect_err("of another program");
        assert!(why.contains("another process has it"), "{why}");
        drop(other);
        assert!(
            Place::take(&AdminSocket::Off, Vec::new())
                .expect("nothing")
                .is_none()
        );
    }
}
