//! The data key of an encrypted volume: locked, at work, wrapped anew, destroyed.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use crypt::{DATA_KEY_BYTES, DataKey, DerivedKey, HeaderTerms, KeyHeader, WrappingKey, Xts};
use reactor::must_fill_random;

use super::key_file::{BRING_BACK, KeyFile, KeyMedium};
use crate::encryption_settings::EncryptionSettings;
use crate::locks::{Claim, Locks};
use crate::problem::Problem;
use crate::watch::Watches;
use crate::{Base, Error, Info};

/// How long the end of the data key waits for I/O that is under way.
const ERASE_PATIENCE: Duration = Duration::from_secs(10);

/// The encryption of a volume.
pub struct Encryption {
    volume: VolumeTerms,
    locks: Arc<Locks>,
    watches: Arc<Watches>,
    data: RwLock<Option<Arc<Xts>>>,
    kept: Mutex<Kept>,
}

/// What of a volume its header must say.
struct VolumeTerms {
    uuid: [u8; 16],
    block_bytes: u32,
    is_read_only: bool,
}

/// What is kept of the keys.
struct Kept {
    file: KeyFile,
    /// What the data key is wrapped by, while it is known.
    by: Option<DerivedKey>,
    /// There were never any: the volume is new.
    is_new: bool,
}

/// Why a data key was not destroyed.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// The volume is locked: there is nothing that a new data key could be wrapped by.
    #[error("the volume is locked: give it its key first")]
    Locked,
    /// I/O that is under way does not end. Nothing has changed.
    #[error("I/O that began before does not end: what is below the volume hangs")]
    Busy,
    /// The keys could not be written. The volume is locked: the old data key is gone, or
    /// still there.
    #[error(
        "the keys could not be overwritten, and the volume is locked: {0}; see to the disk that they \
         lie on, and reload the configuration"
    )]
    Unwritten(io::Error),
}

/// What a header and the owner's key make.
struct Opened {
    data: DataKey,
    by: DerivedKey,
    /// It was wrapped by the former key.
    is_former: bool,
}

impl Encryption {
    /// Takes the keys of a volume from where they lie, or makes them for one that `is_new`.
    /// Without the owner's key it is locked. Blocks.
    pub(super) fn open(
        base: &Base,
        settings: &EncryptionSettings,
        medium: Option<Box<dyn KeyMedium>>,
        is_new: impl Fn() -> Result<bool, Problem>,
        locks: &Arc<Locks>,
    ) -> Result<Encryption, Problem> {
        let (info, ends_with_process) = (base.info(), medium.is_none());
        let file = KeyFile::load(medium, !info.read_only)?;
        let volume = VolumeTerms::of(info);
        match file.header() {
            Some(header) => volume.check(header, &file)?,
            None if ends_with_process => {}
            None if info.read_only || !is_new()? => return Err(Problem::KeysMissing(file.path())),
            None => {}
        }
        let encryption = Encryption {
            volume,
            locks: Arc::clone(locks),
            watches: base.watches(),
            data: RwLock::new(None),
            kept: Mutex::new(Kept {
                is_new: file.header().is_none(),
                file,
                by: None,
            }),
        };
        encryption.follow(settings)?;
        if let Some(why) = settings.unread()
            && encryption.is_locked()
        {
            tracing::error!(
                volume = info.name,
                why,
                "the volume is locked, and hosts are told that it is not ready: give it its key and \
                 reload the configuration"
            );
        }
        Ok(encryption)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics under this lock")
    }

    /// Whether there is no key to read or write anything by.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.data().is_err()
    }

    /// The data key that is at work.
    #[inline]
    pub(super) fn data(&self) -> Result<Arc<Xts>, Error> {
        let data = self.data.read().expect("nothing panics under this lock");
        data.clone().ok_or(Error::Locked)
    }

    fn set_data(&self, data: Option<DataKey>) {
        let data = data.map(|data| Arc::new(Xts::new(data)));
        *self.data.write().expect("nothing panics under this lock") = data;
    }

    /// Goes by other settings from now on: unlocks a locked volume, and wraps by their key what
    /// is wrapped by their former one. A key that cannot be read changes nothing, and a former one
    /// that cannot leaves what it alone would unlock locked. Blocks.
    ///
    /// # Errors
    /// The key is that of another volume, or the keys could not be written: nothing has changed
    /// but, after the latter, by which of the two the data key is wrapped.
    pub fn follow(&self, settings: &EncryptionSettings) -> Result<(), Problem> {
        let Ok(key) = &settings.key else {
            return Ok(());
        };
        let mut kept = self.kept();
        if self.is_locked() {
            // It may have been brought back meanwhile.
            kept.file.reload(!self.volume.is_read_only)?;
        }
        kept.is_new &= kept.file.header().is_none();
        if kept.is_new {
            let (data, by) = (new_data_key(), key.derive_new(random()));
            return self.take_new(&mut kept, data, by, 1);
        }
        let missing = || Problem::KeysMissing(kept.file.path());
        let header = kept.file.header().ok_or_else(missing)?;
        self.volume.check(header, &kept.file)?;
        let opened = match open_header(header, key, settings.former.as_ref()) {
            Some(opened) => opened,
            // The key before may be the one.
            None if matches!(settings.former, Some(Err(_))) => return Ok(()),
            None => return Err(Problem::WrongKey(kept.file.path())),
        };
        if opened.is_former && !self.volume.is_read_only {
            let generation = header.terms.generation + 1;
            return self.take_new(&mut kept, opened.data, key.derive_new(random()), generation);
        }
        kept.by = Some(opened.by);
        if self.is_locked() {
            self.set_data(Some(opened.data));
        }
        Ok(())
    }

    /// Wraps a data key, writes it, and goes by it.
    fn take_new(
        &self,
        kept: &mut Kept,
        data: DataKey,
        by: DerivedKey,
        generation: u64,
    ) -> Result<(), Problem> {
        let header = self.volume.seal(generation, &data, &by);
        let path = kept.file.path();
        kept.file.put(header).map_err(|source| Problem::System {
            action: "write the keys",
            path: Some(path),
            source,
        })?;
        (kept.by, kept.is_new) = (Some(by), false);
        if self.is_locked() {
            self.set_data(Some(data));
        }
        Ok(())
    }

    /// Destroys the data key: nothing that was written can be read any more, by whatever keys.
    /// When it returns, both copies of the wrapped key were overwritten on the disk by those of
    /// another, which what is written from now on is enciphered by. Waits for I/O that is under
    /// way; blocks.
    ///
    /// # Errors
    /// Why not.
    pub fn erase(&self) -> Result<(), EraseError> {
        let mut kept = self.kept();
        let by = kept.by.clone().ok_or(EraseError::Locked)?;
        let all = Claim::new(0, u64::MAX, true);
        if !self.locks.acquire_within(all, ERASE_PATIENCE) {
            return Err(EraseError::Busy);
        }
        let generation = kept
            .file
            .header()
            .map_or(0, |header| header.terms.generation)
            + 1;
        let data = new_data_key();
        // What is read from now on is other data, for those that began to look before it is over, too.
        self.watches.changes(0, u64::MAX);
        let put = kept.file.put(self.volume.seal(generation, &data, &by));
        self.set_data(put.is_ok().then_some(data));
        self.watches.changes(0, u64::MAX);
        if put.is_err() {
            // Which key is there is known again when it is read again.
            kept.by = None;
        }
        self.locks.release(&all);
        put.map_err(EraseError::Unwritten)
    }
}

impl VolumeTerms {
    fn of(info: &Info) -> VolumeTerms {
        VolumeTerms {
            uuid: info.uuid.into_bytes(),
            block_bytes: info.block_bytes,
            is_read_only: info.read_only,
        }
    }

    /// Refuses keys that are of another volume: what they decipher would be noise.
    fn check(&self, header: &KeyHeader, file: &KeyFile) -> Result<(), Problem> {
        let HeaderTerms {
            volume,
            block_bytes,
            ..
        } = header.terms;
        let other = |why| Problem::Keys {
            path: file.path(),
            why,
        };
        if volume != self.uuid {
            let uuid = uuid::Uuid::from_bytes(volume);
            return Err(other(format!(
                "belongs to the volume with UUID {uuid}, this one has {}: if it is that volume, \
                 set uuid = \"{uuid}\"; else {BRING_BACK}",
                uuid::Uuid::from_bytes(self.uuid)
            )));
        }
        match block_bytes == self.block_bytes {
            true => Ok(()),
            false => Err(other(format!(
                "is of a volume with blocks of {block_bytes} bytes, and this one has blocks of {}: \
                 set block_bytes to {block_bytes}; else {BRING_BACK}",
                self.block_bytes
            ))),
        }
    }

    fn seal(&self, generation: u64, data: &DataKey, by: &DerivedKey) -> KeyHeader {
        let terms = HeaderTerms {
            generation,
            volume: self.uuid,
            block_bytes: self.block_bytes,
        };
        KeyHeader::seal(terms, data, by, random())
    }
}

/// Looks at the keys of a volume: what may surprise.
pub(super) fn examine(
    info: &Info,
    settings: &EncryptionSettings,
    medium: Option<Box<dyn KeyMedium>>,
    has_data: bool,
) -> Result<Option<String>, Problem> {
    let ends_with_process = medium.is_none();
    let file = KeyFile::load(medium, false)?;
    if file.header().is_none() && !ends_with_process && (info.read_only || has_data) {
        return Err(Problem::KeysMissing(file.path()));
    }
    if let Some(header) = file.header() {
        VolumeTerms::of(info).check(header, &file)?;
        if let Ok(key) = &settings.key {
            match open_header(header, key, settings.former.as_ref()) {
                Some(_) => return Ok(None),
                None if matches!(settings.former, Some(Err(_))) => {}
                None => return Err(Problem::WrongKey(file.path())),
            }
        }
    }
    let why = match file.header() {
        Some(_) => settings.unread(),
        None => settings.key.as_ref().err(),
    };
    Ok(why.map(|why| format!("volume \"{}\" starts locked: {why}", info.name)))
}

/// Opens a header by a key, or by the former one.
fn open_header(
    header: &KeyHeader,
    key: &WrappingKey,
    former: Option<&Result<WrappingKey, String>>,
) -> Option<Opened> {
    let by = |key: &WrappingKey, is_former| {
        let by = header.derive(key).ok()?;
        let data = header.open(&by).ok()?;
        Some(Opened {
            data,
            by,
            is_former,
        })
    };
    let former = former.and_then(|former| former.as_ref().ok());
    by(key, false).or_else(|| by(former?, true))
}

fn new_data_key() -> DataKey {
    let mut bytes = zeroize::Zeroizing::new([0; DATA_KEY_BYTES]);
    loop {
        must_fill_random(&mut *bytes);
        if let Some(key) = DataKey::new(*bytes) {
            return key;
        }
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    must_fill_random(&mut bytes);
    bytes
}
