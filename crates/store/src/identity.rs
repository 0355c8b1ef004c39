//! The identity of a volume, by which a host knows it again.
//!
//! The UUID is the root: NGUID and serial follow from it. It is, in this order,
//!
//! 1. what the configuration says;
//! 2. for a file, what stands in its extended attribute [`ATTRIBUTE`], together
//!    with which file that is of: a file that weft makes is given a random one,
//!    one that it finds without any is given one that follows from the file. So
//!    the identity stays when the file is renamed, and a copy that took the
//!    attribute with it is known for what it is and gets its own;
//! 3. for a block device, derived from its world wide name, if it has one: so
//!    machines that share the disk tell hosts that it is the same;
//! 4. for memory, what stands in its state file, which names the very file that it
//!    was written to: a copy of that gets its own;
//! 5. derived (RFC 9562, version 5) from this machine, the kind and the name.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use rustix::fs::{Mode, OFlags, XattrFlags, fgetxattr, fsetxattr, fstatvfs, major, minor};
use rustix::io::Errno;
use tracing::{info, warn};
use uuid::Uuid;

use crate::spec::{ATTRIBUTE, Spec};

/// Chosen once at random; every derived identity hangs on it.
const NAMESPACE: Uuid = Uuid::from_u128(0x3a6b_91f2_5c0e_4d17_9e84_b7d2_60fc_a835);

/// Derived from the machine, the kind of volume and its name.
pub(crate) fn derive(kind: &str, name: &str) -> Uuid {
    derive_on(machine_id(), kind, name)
}

/// The UUID of a volume in memory that nothing else identifies. It follows from
/// the machine, the host's name, the path of the configuration as it was given, and
/// the folder that this is in for the process. Links on the way may lead elsewhere
/// later: the last folder before them counts. So hosts know the volume again after
/// a restart, and processes that see other folders there serve other volumes.
pub fn of_memory(configuration: &Path, kind: &str, name: &str) -> Uuid {
    let has_no_link = |folder: &&Path| folder.canonicalize().is_ok_and(|way| way == **folder);
    let folder = configuration.ancestors().skip(1).find(has_no_link);
    let folder = folder.and_then(|folder| object_at(folder).ok());
    let path = configuration.display();
    let place = format!("{}\n{path}\n{folder:?}", host_name());
    Uuid::new_v5(&derive(kind, name), place.as_bytes())
}

/// The UUID of a volume whose file is `object` and a copy of that of `original`.
/// Always the same, so that it stays where it cannot be kept.
pub(crate) fn of_copy(original: Uuid, object: &str) -> Uuid {
    Uuid::new_v5(&original, format!("copy\n{object}").as_bytes())
}

/// The UUID of a volume that is made of others: of no other volumes, on any machine, is one
/// with it made.
pub(crate) fn of_parts(kind: &str, name: &str, parts: &[Uuid]) -> Uuid {
    let mut text = format!("parts\n{kind}\n{name}");
    for part in parts {
        text += &format!("\n{part}");
    }
    Uuid::new_v5(&NAMESPACE, text.as_bytes())
}

/// Text that is the same after a restart, and another on every other machine.
pub fn of_machine(what: &str) -> String {
    let mut text = derive("machine", what).simple().to_string();
    text.truncate(12);
    text
}

/// Follows from the name of a device that no other device has.
pub(crate) fn of_device(id: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("block\n{id}").as_bytes())
}

fn derive_on(machine: &str, kind: &str, name: &str) -> Uuid {
    // A machine's id is one line and a kind one word: the parts cannot run
    // into each other.
    Uuid::new_v5(&NAMESPACE, format!("{machine}\n{kind}\n{name}").as_bytes())
}

/// machine-id(5), or the host's name where there is none (a container).
fn machine_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
            if let Ok(text) = fs::read_to_string(path)
                && Uuid::try_parse(text.trim()).is_ok()
            {
                return text.trim().to_owned();
            }
        }
        let host = host_name();
        warn!(
            host,
            "no /etc/machine-id: identities of volumes follow from the host's name; \
             give each volume a uuid in the configuration to keep them"
        );
        host
    })
}

/// How this machine calls itself.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// What tells a file from its copies, in 16 hexadecimal digits: a digest of what
/// its file system calls itself, the inode, and when that was born. A copy has
/// another inode, or lies on another file system. The device's number is no part
/// of it: it may be another after each start of the machine.
fn object(file: &File) -> io::Result<String> {
    let found = file.metadata()?;
    let born = found.created().ok();
    let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let below = fstatvfs(file).map_or(0, |below| below.f_fsid);
    let below = own_name(below, found.dev());
    let inode = found.ino();
    // Where the file system keeps no such time the rest has to do.
    let text = format!("{below:?}\n{inode}\n{born:?}");
    Ok(digest(&text))
}

/// Likewise of what a path names, which need not be readable.
fn object_at(path: &Path) -> io::Result<String> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    object(&rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// What tells a state file from its copies, on other machines too.
pub(crate) fn of_state_file(file: &File) -> io::Result<String> {
    let text = format!("{}\n{}", machine_id(), object(file)?);
    Ok(digest(&text))
}

fn digest(text: &str) -> String {
    let uuid = Uuid::new_v5(&NAMESPACE, text.as_bytes());
    let mut digest = uuid.simple().to_string();
    digest.truncate(OBJECT_DIGITS);
    digest
}

/// Ends the record of a file whose volume has a state file. The record may need a
/// block of its own on ext4 then, as the state file does.
const STATE_WORD: &str = " state";

/// Few, so that what a file keeps has room in the inode of ext4.
const OBJECT_DIGITS: usize = 16;

/// What a file system calls itself, if it is a name of its own.
fn own_name(below: u64, device: u64) -> Option<u64> {
    (below != numbered(device)).then_some(below)
}

/// As some file systems (XFS) put the number of their device in the place of a
/// name of their own: the number in the kernel's encoding.
fn numbered(device: u64) -> u64 {
    let (major, minor) = (major(device), minor(device));
    u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

/// Whether weft made a file, or found it there: a file that it made may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Made,
    Found,
}

/// What a file keeps: `<uuid> <object> <origin>`, with the word `state` behind it
/// if the volume has a state file. Earlier versions kept the UUID alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    uuid: Uuid,
    object: Option<String>,
    origin: Origin,
    has_state: bool,
}

impl Record {
    fn parse(text: &str) -> Option<Record> {
        let (text, has_state) = match text.strip_suffix(STATE_WORD) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let words: Vec<&str> = text.split(' ').collect();
        let uuid = Uuid::try_parse(words[0]).ok()?;
        let (object, origin) = match words[1..] {
            // They gave a random one to what they had made, and to nothing else.
            [] if uuid.get_version_num() == 4 => (None, Origin::Made),
            [] => (None, Origin::Found),
            [object, "made"] => (Some(object.to_owned()), Origin::Made),
            [object, "found"] => (Some(object.to_owned()), Origin::Found),
            _ => return None,
        };
        let is_digest = |object: &String| {
            object.len() == OBJECT_DIGITS && object.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let record = Record {
            uuid,
            object,
            origin,
            has_state,
        };
        record
            .object
            .as_ref()
            .is_none_or(is_digest)
            .then_some(record)
    }

    fn text(&self) -> String {
        let Some(object) = &self.object else {
            return self.uuid.to_string();
        };
        let origin = match self.origin {
            Origin::Made => "made",
            Origin::Found => "found",
        };
        let state = if self.has_state { STATE_WORD } else { "" };
        format!("{} {object} {origin}{state}", self.uuid)
    }
}

/// What identifies a file as a volume, and how far that is certain.
pub(crate) struct FileIdentity {
    pub(crate) uuid: Uuid,
    /// The volume that the file is a copy of.
    pub(crate) copied_from: Option<Uuid>,
    /// A volume was in it before.
    pub(crate) is_known: bool,
    /// weft made it.
    pub(crate) is_made: bool,
    /// Its file system has attributes to keep that in.
    pub(crate) can_keep: bool,
    /// What the file is to keep; nothing where it cannot.
    record: Option<Record>,
    /// The file keeps that already.
    is_kept: bool,
}

impl FileIdentity {
    /// Of a file that was made just now: it keeps a random one if it can.
    /// Otherwise its UUID is the one that it will have when it is found.
    pub(crate) fn made(
        file: &File,
        spec: &Spec,
        in_state: Option<Uuid>,
    ) -> io::Result<FileIdentity> {
        let record = Record {
            uuid: random_uuid()?,
            object: Some(object(file)?),
            origin: Origin::Made,
            has_state: false,
        };
        let found = FileIdentity::found(file, spec, in_state)?;
        let made = match write_record(file, &record.text()) {
            Ok(()) => FileIdentity {
                uuid: record.uuid,
                record: Some(record),
                is_kept: true,
                ..found
            },
            Err(_) => found,
        };
        Ok(FileIdentity {
            is_known: true,
            ..made
        })
    }

    /// The identity of a file if it were made in `folder`: a random one if it could
    /// keep that.
    pub(crate) fn to_be_made(spec: &Spec, folder: &Path) -> io::Result<Uuid> {
        let kept = File::open(folder).and_then(|folder| stored(&folder));
        match (spec.uuid, kept) {
            (Some(uuid), _) => Ok(uuid),
            (None, Ok(Stored::Nowhere)) => Ok(derive("file", &spec.name)),
            (None, _) => random_uuid(),
        }
    }

    /// Of a file whose attribute cannot be parsed, where the configuration gives
    /// the UUID: the attribute does not count and stays as it is.
    pub(crate) fn unparsed(uuid: Uuid) -> FileIdentity {
        FileIdentity {
            uuid,
            copied_from: None,
            is_known: true,
            is_made: false,
            can_keep: true,
            record: None,
            is_kept: true,
        }
    }

    /// Of a file that was there, whose state file is that of the volume
    /// `in_state`; nothing is written yet.
    pub(crate) fn found(
        file: &File,
        spec: &Spec,
        in_state: Option<Uuid>,
    ) -> io::Result<FileIdentity> {
        let object = object(file)?;
        match stored(file)? {
            Stored::Record(record) => Ok(FileIdentity::recorded(record, &object, spec)),
            Stored::Nothing => FileIdentity::unrecorded(file, Some(&object), spec, in_state),
            Stored::Nowhere => FileIdentity::unrecorded(file, None, spec, in_state),
        }
    }

    /// Of a file that keeps `record` and is `object`.
    fn recorded(record: Record, object: &str, spec: &Spec) -> FileIdentity {
        let Record {
            uuid,
            object: named,
            origin,
            has_state,
        } = record;
        let is_bound = named.as_deref() == Some(object);
        // One that is configured to be the original has taken its place.
        let is_copy = named.is_some() && !is_bound && spec.uuid != Some(uuid);
        let own = match is_copy {
            true => of_copy(uuid, object),
            false => uuid,
        };
        FileIdentity {
            uuid: own,
            copied_from: is_copy.then_some(uuid),
            is_known: true,
            is_made: origin == Origin::Made,
            can_keep: true,
            record: Some(Record {
                uuid: own,
                object: Some(object.to_owned()),
                origin,
                // The state file is the original's.
                has_state: has_state && !is_copy,
            }),
            is_kept: is_bound,
        }
    }

    /// Of a file that keeps nothing, and is `object` if it could keep something.
    fn unrecorded(
        file: &File,
        object: Option<&str>,
        spec: &Spec,
        in_state: Option<Uuid>,
    ) -> io::Result<FileIdentity> {
        let by_name = derive("file", &spec.name);
        let uuid = match object {
            // Earlier versions took the name where nothing could be kept.
            Some(object) if in_state != Some(by_name) => derive("object", object),
            _ => by_name,
        };
        // What the file cannot say, its state file says, or the configuration.
        let is_known =
            in_state == Some(spec.uuid.unwrap_or(uuid)) || object.is_none() && spec.uuid.is_some();
        // An empty one was made by a process that ended before it wrote more.
        let is_made = is_known || file.metadata()?.len() == 0;
        let origin = match is_made {
            true => Origin::Made,
            false => Origin::Found,
        };
        Ok(FileIdentity {
            uuid,
            copied_from: None,
            is_known,
            is_made,
            can_keep: object.is_some(),
            record: object.map(|object| Record {
                uuid,
                object: Some(object.to_owned()),
                origin,
                has_state: false,
            }),
            is_kept: false,
        })
    }

    /// What the file would keep without its state file, if it says that there is
    /// one.
    pub(crate) fn without_state(&self) -> Option<String> {
        let record = self.record.as_ref().filter(|record| record.has_state)?;
        let plain = Record {
            has_state: false,
            ..record.clone()
        };
        Some(plain.text())
    }

    /// The file is to say that there is a state file.
    pub(crate) fn add_state(&mut self) {
        if let Some(record) = self.record.as_mut().filter(|record| !record.has_state) {
            record.has_state = true;
            self.is_kept = false;
        }
    }

    /// What is to be done before the first state file is written; nothing where
    /// the file can keep nothing.
    pub(crate) fn state_mark(&self, file: &File, path: &Path) -> io::Result<Option<StateMark>> {
        let Some(record) = &self.record else {
            return Ok(None);
        };
        let marked = Record {
            has_state: true,
            ..record.clone()
        };
        // Opened anew, so that its sync does not take the report of lost writes
        // from the descriptor of the volume.
        Ok(Some(StateMark {
            file: File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?,
            path: path.to_owned(),
            text: marked.text(),
        }))
    }

    /// Lets the file keep what it is to keep, which is durable after its next
    /// sync. Where it cannot, everything stays as it is, and so does the UUID.
    pub(crate) fn keep_in_file(&self, file: &File, path: &Path) {
        let Some(record) = self.record.as_ref().filter(|_| !self.is_kept) else {
            return;
        };
        let (path, uuid) = (path.display(), self.uuid);
        match write_record(file, &record.text()) {
            Err(error) => warn!(%path, %uuid, %error, "the file cannot keep its identity"),
            Ok(()) if self.is_known && self.copied_from.is_none() => info!(
                %path,
                %uuid,
                "the identity of the file is bound to it from now on: a copy gets its own"
            ),
            Ok(()) => {}
        }
    }

    /// Warns an operator who relied on the copy to be what it was copied from.
    pub(crate) fn tell_copy(&self, path: &Path) {
        if let Some(copied_from) = self.copied_from {
            warn!(
                path = %path.display(),
                uuid = %self.uuid,
                %copied_from,
                "the file is a copy of another volume and has an identity of its own: if it \
                 takes the place of that volume, set uuid = \"{copied_from}\" for it"
            );
        }
    }
}

/// Lets the file of a volume say that the volume has a state file.
pub(crate) struct StateMark {
    file: File,
    path: PathBuf,
    text: String,
}

impl StateMark {
    /// Durable when it returns. Where the file system takes no attributes any
    /// more, the state file counts all the same. Blocks.
    pub(crate) fn set(&self) {
        let kept = write_record(&self.file, &self.text).and_then(|()| self.file.sync_all());
        if let Err(error) = kept {
            warn!(
                path = %self.path.display(),
                %error,
                "the file cannot keep that it has a state file: if the two are parted, the volume \
                 is served without its reservations and its write protection"
            );
        }
    }
}

fn write_record(file: &File, text: &str) -> io::Result<()> {
    fault::at_attributes(true)?;
    Ok(fsetxattr(
        file,
        ATTRIBUTE,
        text.as_bytes(),
        XattrFlags::empty(),
    )?)
}

/// What the attribute of a file says.
enum Stored {
    /// The file system has no such attributes.
    Nowhere,
    Nothing,
    Record(Record),
}

/// What a file keeps. What is there and not understood is an error: to take
/// another identity quietly would make it a new disk to every host.
fn stored(file: &File) -> io::Result<Stored> {
    let wrong = |what: &str| {
        let why = format!(
            "its attribute {ATTRIBUTE} {what}: put back what was there, or remove it \
             ('setfattr -x {ATTRIBUTE}') for an identity of its own"
        );
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let mut text = [0; 128];
    let read = fault::at_attributes(false).and_then(|()| fgetxattr(file, ATTRIBUTE, &mut text));
    let len = match read {
        Ok(len) => len,
        Err(Errno::NODATA) => return Ok(Stored::Nothing),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Stored::Nowhere),
        Err(Errno::RANGE) => return Err(wrong("is longer than any that weft writes")),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&text[..len]);
    let record = Record::parse(&text).ok_or_else(|| wrong(&format!("is no UUID but '{text}'")))?;
    Ok(Stored::Record(record))
}

/// Makes attributes fail, for tests.
pub(crate) mod fault {
    use rustix::io::Errno;

    #[cfg(test)]
    thread_local! {
        /// What each access answers from now on; `NOSPC` and the like only those
        /// that write.
        pub(crate) static ANSWER: std::cell::Cell<Option<Errno>> = const { std::cell::Cell::new(None) };
    }

    #[cfg(test)]
    pub(super) fn at_attributes(is_write: bool) -> Result<(), Errno> {
        match ANSWER.get() {
            Some(errno) if is_write || errno == Errno::OPNOTSUPP => Err(errno),
            _ => Ok(()),
        }
    }

    #[cfg(not(test))]
    pub(super) fn at_attributes(_: bool) -> Result<(), Errno> {
        Ok(())
    }
}

/// Version 4, from the kernel.
pub(crate) fn random_uuid() -> io::Result<Uuid> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Uuid::try_parse(text.trim()).map_err(io::Error::other)
}

/// 128 bits with an EUI-64 at their end whose OUI says "locally administered"
/// and "individual", since weft has no OUI of its own.
pub(crate) fn nguid(uuid: Uuid) -> [u8; 16] {
    let mut nguid = Uuid::new_v5(&uuid, b"nguid").into_bytes();
    nguid[8] = nguid[8] & 0xfc | 0x02;
    nguid
}

/// SCSI's NAA designator: locally assigned (NAA 3h), since weft has no company
/// identifier. The rest is a digest of the UUID, the first half of the NGUID that
/// follows from it.
pub(crate) fn naa(uuid: Uuid) -> [u8; 8] {
    let mut naa = [0; 8];
    naa.copy_from_slice(&nguid(uuid)[..8]);
    naa[0] = naa[0] & 0x0f | 0x30;
    naa
}

/// The first 20 hexadecimal digits of the UUID.
pub(crate) fn serial(uuid: Uuid) -> String {
    let mut text = uuid.simple().to_string();
    text.truncate(20);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Spec};

    #[test]
    fn memory_of_one_name_differs_by_configuration_and_is_the_same_again() {
        let (a, b) = (Path::new("/etc/a.toml"), Path::new("/etc/b.toml"));
        let first = of_memory(a, "ram", "x");
        assert_eq!(of_memory(a, "ram", "x"), first);
        for other in [
            of_memory(b, "ram", "x"),
            of_memory(a, "null", "x"),
            of_memory(a, "ram", "y"),
        ] {
            assert_ne!(other, first);
        }
        assert_eq!(of_machine("a"), of_machine("a"));
        assert_ne!(of_machine("a"), of_machine("b"));
        assert_eq!(of_machine("a").len(), 12);
    }

    #[test]
    fn memory_of_one_path_differs_by_the_folder_that_is_there() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().canonicalize().unwrap().join("etc");
        let at_folder = || of_memory(&folder.join("weft.toml"), "ram", "x");
        fs::create_dir(&folder).unwrap();
        let first = at_folder();
        assert_eq!(at_folder(), first);
        fs::rename(&folder, base.path().join("moved")).unwrap();
        fs::create_dir(&folder).unwrap();
        assert_ne!(at_folder(), first);
    }

    const RANDOM: Uuid = Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef);
    const OBJECT: &str = "0123456789abcdef";

    fn spec(uuid: Option<Uuid>) -> Spec {
        let ram = Spec::new("disk", Kind::RAM, 4096, 512);
        Spec { uuid, ..ram }
    }

    #[test]
    fn record_of_an_earlier_version_is_of_a_made_file_only_where_its_uuid_is_random() {
        let derived = derive("file", "disk");
        for (uuid, origin) in [(RANDOM, Origin::Made), (derived, Origin::Found)] {
            let record = Record::parse(&uuid.to_string()).unwrap();
            assert_eq!(record.uuid, uuid);
            assert_eq!((record.object, record.origin), (None, origin));
        }
        for object in ["", "0123", "0123456789abcdex", "0123456789abcdef0"] {
            let text = format!("{RANDOM} {object} made");
            assert!(Record::parse(&text).is_none(), "{text}");
        }
    }

    #[test]
    fn file_whose_record_names_another_object_is_a_copy_unless_configured_otherwise() {
        let recorded = |named: Option<&str>, origin, uuid| {
            let record = Record {
                uuid: RANDOM,
                object: named.map(str::to_owned),
                origin,
                has_state: true,
            };
            FileIdentity::recorded(record, OBJECT, &spec(uuid))
        };
        let other = Some("fedcba9876543210");
        for origin in [Origin::Made, Origin::Found] {
            for (named, uuid, is_copy, is_bound) in [
                (Some(OBJECT), None, false, true),
                (None, None, false, false),
                (other, None, true, false),
                (other, Some(Uuid::nil()), true, false),
                (other, Some(RANDOM), false, false),
            ] {
                let found = recorded(named, origin, uuid);
                assert_eq!(found.uuid != RANDOM, is_copy, "{named:?} {uuid:?}");
                assert_eq!(found.copied_from, is_copy.then_some(RANDOM));
                let record = Record {
                    uuid: found.uuid,
                    object: Some(OBJECT.to_owned()),
                    origin,
                    has_state: !is_copy,
                };
                assert_eq!(found.record, Some(record), "{named:?}");
                assert_eq!(found.is_kept, is_bound, "{named:?}");
                assert_eq!(found.without_state().is_none(), is_copy);
                assert_eq!(found.is_made, origin == Origin::Made);
                assert!(found.is_known && found.can_keep);
            }
        }
    }

    #[test]
    fn file_that_keeps_nothing_is_known_by_its_state_file_or_the_configuration() {
        let file = tempfile::tempfile().unwrap();
        let (by_name, by_object) = (derive("file", "disk"), derive("object", OBJECT));
        let identity = |object, uuid, in_state| {
            let found = FileIdentity::unrecorded(&file, object, &spec(uuid), in_state).unwrap();
            (found.uuid, found.is_known, found.is_made)
        };
        let empty = identity(Some(OBJECT), None, None);
        assert_eq!(empty, (by_object, false, true), "weft made it");
        file.set_len(4096).unwrap();
        let (here, given) = (Some(OBJECT), Some(RANDOM));
        for (object, uuid, in_state, expected, is_known) in [
            (here, None, None, by_object, false),
            (here, None, Some(by_object), by_object, true),
            (here, None, Some(by_name), by_name, true),
            (here, None, given, by_object, false),
            (here, given, None, by_object, false),
            (here, given, given, by_object, true),
            (None, None, None, by_name, false),
            (None, None, Some(by_name), by_name, true),
            (None, given, None, by_name, true),
        ] {
            let found = identity(object, uuid, in_state);
            let expected = (expected, is_known, is_known);
            assert_eq!(found, expected, "{object:?} {uuid:?} {in_state:?}");
        }
    }

    #[test]
    fn record_of_a_file_is_read_as_it_was_written_and_fits_an_inode() {
        let uuid = Uuid::from_u128(0x1234);
        let file = tempfile::tempfile().unwrap();
        let object = object(&file).unwrap();
        for origin in [Origin::Made, Origin::Found] {
            for has_state in [false, true] {
                let record = Record {
                    uuid,
                    object: Some(object.clone()),
                    origin,
                    has_state,
                };
                let text = record.text();
                assert!(has_state || text.len() <= 60, "{text}");
                assert_eq!(Record::parse(&text), Some(record), "{text}");
            }
        }
        let other = tempfile::tempfile().unwrap();
        assert_ne!(super::object(&other).unwrap(), object);
        assert_eq!(super::object(&file).unwrap(), object);
    }

    #[test]
    fn device_number_in_the_place_of_a_name_is_recognised() {
        assert_eq!(numbered(rustix::fs::makedev(8, 17)), 0x0811);
        let device = rustix::fs::makedev(259, 0x345);
        assert_eq!(numbered(device), 0x0031_0345);
        assert_eq!(own_name(0x0031_0345, device), None);
        assert_eq!(own_name(0x0031_0346, device), Some(0x0031_0346));
    }

    /// Pinned: a change here would make every volume a new disk to its hosts.
    #[test]
    fn derived_identity_never_changes() {
        let uuid = derive_on("0123456789abcdef0123456789abcdef", "ram", "disk0");
        assert_eq!(uuid.to_string(), "8a2f1ab9-fb97-5a34-8df3-18c00abc4010");
        assert_eq!(serial(uuid), "8a2f1ab9fb975a348df3");
        assert_eq!(
            Uuid::from_bytes(nguid(uuid)).simple().to_string(),
            "3065392ecc3a5cfe8ad661fe2eeec61e"
        );
        assert_eq!(
            of_device("naa.5000c500a1b2c3d4").to_string(),
            "642d1f27-caac-5a2d-a4b2-5bba7b7dd21d"
        );
    }

    #[test]
    fn machine_kind_and_name_all_matter() {
        let base = derive_on("a", "ram", "x");
        assert_ne!(base, derive_on("b", "ram", "x"));
        assert_ne!(base, derive_on("a", "null", "x"));
        assert_ne!(base, derive_on("a", "ram", "y"));
        assert_eq!(base.get_version_num(), 5);
    }

    #[test]
    fn nguid_is_locally_administered_and_serial_fits() {
        for n in 0..64 {
            let uuid = derive_on("m", "ram", &n.to_string());
            assert_eq!(nguid(uuid)[8] & 0x03, 0x02);
            assert_eq!(naa(uuid)[0] >> 4, 3);
            assert_eq!(naa(uuid)[1..], nguid(uuid)[1..8]);
            assert_eq!(serial(uuid).len(), 20);
            assert!(serial(uuid).bytes().all(|b| b.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn the_machine_has_a_name() {
        let said = |path| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        assert_eq!(host_name(), said("/proc/sys/kernel/hostname"));
        let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(said);
        let id = ids.into_iter().find(|id| Uuid::try_parse(id).is_ok());
        assert_eq!(machine_id(), id.unwrap_or_else(host_name));
        assert!(!machine_id().is_empty());
        assert!(!machine_id().contains('\n'));
    }

    /// An earlier version derived it from the name: other processes have the same.
    #[test]
    fn state_file_says_the_uuid_of_a_volume_in_memory_unless_it_follows_from_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let by_name = derive("ram", "disk");
        for (uuid, expected) in [(RANDOM, Some(RANDOM)), (by_name, None)] {
            let spec = Spec {
                state: Some(folder.path().join(uuid.to_string())),
                ..spec(None)
            };
            assert_eq!(crate::uuid_by_state(&spec), None);
            let state = crate::State::in_file(&spec, uuid, None, None).unwrap();
            state.protect_permanently().unwrap();
            assert_eq!(crate::uuid_by_state(&spec), expected);
        }
    }
}
