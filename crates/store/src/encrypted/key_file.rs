//! The keys of an encrypted volume, wrapped, as they lie beside its data: a file with two copies
//! of a header.
//!
//! A new header is written over one copy and then over the other, each on the disk before the
//! next, in place: nothing of the old one is left in the file. The copy that counts is the last:
//! a crash at any point leaves the old one or the new one, also where a change before has failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crypt::{COPIES_BYTES, Copies, HEADER_BYTES, HeaderProblem, KeyHeader};
use rustix::fs::{Advice, fadvise};

use crate::problem::Problem;
use crate::regular::is_there;
use crate::spec::{Spec, with_suffix};
use crate::state::{self, keys_path};

/// What comes after the path of the file with the keys while they are made.
const NEW: &str = ".new";

/// What helps where the keys are not what they should be.
pub(super) const BRING_BACK: &str = "bring it back from a backup";

/// Where the keys of a volume lie: a file, or what a test or the simulator has in its place.
pub trait KeyMedium: Send + Sync {
    /// What lies there; `None` if there are no keys. Blocks.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Puts keys there where none are: after a crash all of `bytes` or no keys. Blocks.
    fn create(&self, bytes: &[u8]) -> io::Result<()>;

    /// Writes `bytes` over what lies from `offset` on; on the disk when it returns. A crash
    /// leaves any part of them. Blocks.
    fn write_over(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// How it is called in messages.
    fn path(&self) -> &Path;
}

/// Where the keys of a volume lie; `None` where they end with the process.
pub(super) fn beside(spec: &Spec) -> Result<Option<Box<dyn KeyMedium>>, Problem> {
    if spec.kind.is_memory() {
        return Ok(None);
    }
    let path = keys_path(spec).ok_or(Problem::NoPlaceForKeys)?;
    Ok(Some(Box::new(KeysBeside { path })))
}

/// Refuses to serve a volume as it is whose keys lie beside it: hosts would find ciphertext, and
/// write over it.
pub(crate) fn expect_none(spec: &Spec) -> Result<(), Problem> {
    match keys_path(spec) {
        Some(path) if !spec.kind.is_memory() && (path.exists() || path.is_symlink()) => {
            Err(Problem::Encrypted(path))
        }
        _ => Ok(()),
    }
}

/// A file in a file system.
struct KeysBeside {
    path: PathBuf,
}

impl KeysBeside {
    fn temporary(&self) -> PathBuf {
        with_suffix(&self.path, NEW)
    }
}

impl KeyMedium for KeysBeside {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        if !is_there(&self.path, BRING_BACK)? {
            return Ok(None);
        }
        let file = File::open(&self.path)?;
        // What is on the disk, not what is still on the way there.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        let mut bytes = Vec::new();
        file.take(COPIES_BYTES as u64).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn create(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = File::open(state::folder(&self.path))?;
        let temporary = self.temporary();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        folder.sync_all()
    }

    fn write_over(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(bytes, offset)?;
        file.sync_all()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The header of a volume and where it lies.
pub struct KeyFile {
    medium: Option<Box<dyn KeyMedium>>,
    header: Option<KeyHeader>,
}

impl KeyFile {
    /// What lies there; a copy that a crash has spoilt or left behind is mended if `mends`.
    /// Blocks.
    pub(super) fn load(
        medium: Option<Box<dyn KeyMedium>>,
        mends: bool,
    ) -> Result<KeyFile, Problem> {
        let mut file = KeyFile {
            medium,
            header: None,
        };
        file.reload(mends)?;
        Ok(file)
    }

    /// Reads it again. Blocks.
    pub(super) fn reload(&mut self, mends: bool) -> Result<(), Problem> {
        let Some(medium) = &self.medium else {
            return Ok(());
        };
        let path = || medium.path().to_owned();
        let system = |action| {
            move |source| Problem::System {
                action,
                path: Some(path()),
                source,
            }
        };
        self.header = None;
        let Some(bytes) = medium.load().map_err(system("read the keys"))? else {
            return Ok(());
        };
        let copies = Copies::parse(&bytes).map_err(|why| Problem::Keys {
            path: path(),
            why: match why {
                HeaderProblem::Version(_) => format!("{why}: start one that does"),
                HeaderProblem::Damaged | HeaderProblem::Impossible => {
                    format!("{why}: {BRING_BACK}")
                }
            },
        })?;
        if mends && !copies.are_alike {
            let written = write_both(&**medium, &copies.header);
            written.map_err(system("write the keys"))?;
        }
        self.header = Some(copies.header);
        Ok(())
    }

    /// The header that counts.
    pub(super) fn header(&self) -> Option<&KeyHeader> {
        self.header.as_ref()
    }

    /// How it is called in messages.
    pub(super) fn path(&self) -> PathBuf {
        let path = self.medium.as_ref().map(|medium| medium.path().to_owned());
        path.unwrap_or_default()
    }

    /// Puts a header in the place of what is there: all of it is on the disk when it returns,
    /// and nothing of the old one. After an error, either is there. Blocks.
    pub(super) fn put(&mut self, header: KeyHeader) -> io::Result<()> {
        if let Some(medium) = &self.medium {
            match self.header {
                Some(_) => write_both(&**medium, &header)?,
                None => medium.create(&[header.render(); 2].concat())?,
            }
        }
        self.header = Some(header);
        Ok(())
    }
}

/// Writes a header over both copies, and looks whether it is there. The one that counts is
/// written over last: the other may be what an error or a crash has left of one.
fn write_both(medium: &dyn KeyMedium, header: &KeyHeader) -> io::Result<()> {
    let copy = header.render();
    let there = medium.load()?.unwrap_or_default();
    let counts = Copies::parse(&there).map_or(0, |copies| copies.place);
    for place in [1 - counts, counts] {
        let offset = place * HEADER_BYTES;
        if there.get(offset..offset + HEADER_BYTES) != Some(&copy) {
            medium.write_over(offset as u64, &copy)?;
        }
    }
    match medium.load()? {
        Some(found) if found == [copy; 2].concat() => Ok(()),
        _ => Err(io::Error::other("other bytes are there than were written")),
    }
}
