//! Files that are there whole or not at all, however a process ends.
//!
//! Each step of it that may fail, or be the last of the process, is counted in tests.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A file with these bytes, on the disk when this returns. `like`: the file whose mode and
/// owner it has; else it is its owner's alone.
pub(crate) fn write(path: &Path, bytes: &[u8], like: Option<&Path>) -> io::Result<()> {
    step()?;
    // What is left of a process that was killed has perhaps another owner.
    remove(path)?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    step()?;
    file.write_all(rest)?;
    if let Some(like) = like {
        step()?;
        let like = fs::metadata(like)?;
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(PermissionsExt::from_mode(like.mode() & 0o7777))?;
    }
    step()?;
    file.sync_all()
}

/// Adds bytes to a file, on the disk when this returns; all of them or none. Makes the file.
pub(crate) fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    step()?;
    let mut options = OpenOptions::new();
    let mut file = open_own(options.append(true).create(true).mode(0o600), path)?;
    let before = file.metadata()?.len();
    let mut add = || {
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(first)?;
        step()?;
        file.write_all(rest)?;
        step()?;
        file.sync_all()?;
        match before {
            0 => sync_folder(path.parent().unwrap_or(Path::new("/"))),
            _ => Ok(()),
        }
    };
    let added = add();
    if added.is_err() {
        let _ = file.set_len(before);
    }
    added
}

/// The bytes of a file that weft alone writes.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file, and nothing in its place that leads elsewhere, or that would be waited for.
fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let wrong = |what: &str| {
        let why = format!("it is {what} in the place of a file: move it away");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.custom_flags(flags.bits() as i32).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => wrong("a symbolic link"),
        // A pipe that is not read.
        Some(Errno::NXIO) => wrong("a pipe or a socket"),
        _ => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(wrong("a folder, a pipe or a device")),
    }
}

/// Gives a file its name, in the place of what has it.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    step()?;
    fs::rename(from, to)
}

/// The names of a folder are on the disk when this returns.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    step()?;
    File::open(path)?.sync_all()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The same path with something behind its last name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(not(test))]
fn step() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use faults::step;

#[cfg(test)]
pub(crate) mod faults {
    use std::cell::Cell;
    use std::io;

    /// What becomes of a step.
    #[derive(Clone, Copy)]
    pub(crate) enum Fault {
        /// It fails, and all that follow as many as were asked for.
        Error(i32),
        /// The process is killed in it.
        Kill,
    }

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
        static FAULT: Cell<Option<(usize, Fault, usize)>> = const { Cell::new(None) };
    }

    /// Counts from zero, and has `count` steps from number `at` on fail.
    pub(crate) fn plant(at: usize, fault: Fault, count: usize) {
        STEPS.set(0);
        FAULT.set(Some((at, fault, count)));
    }

    /// No step fails any more; how many there were since `plant`.
    pub(crate) fn heal() -> usize {
        FAULT.set(None);
        STEPS.replace(0)
    }

    pub(crate) fn step() -> io::Result<()> {
        let at = STEPS.replace(STEPS.get() + 1);
        match FAULT.get() {
            Some((first, fault, count)) if (first..first.saturating_add(count)).contains(&at) => {
                match fault {
                    Fault::Error(number) => Err(io::Error::from_raw_os_error(number)),
                    Fault::Kill => {
                        let own = rustix::process::getpid();
                        let kill = rustix::process::Signal::KILL;
                        let _ = rustix::process::kill_process(own, kill);
                        unreachable!("it is killed")
                    }
                }
            }
            _ => Ok(()),
        }
    }
}
