//! What a file system consists of.

use std::fmt;
use std::io;

use super::{Acl, Label, QuotaRoom};

/// An object of a file system, for all time: no other object of it ever has
/// the same. It is what a file handle carries and the `fileid` attribute shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// What kind of object (RFC 5661, section 3.2.1, `nfs_ftype4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    Block,
    /// A character device.
    Character,
}

/// Numbers of a device (`specdata4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `specdata1`.
    pub major: u32,
    /// `specdata2`.
    pub minor: u32,
}

/// Time since 1970, as `nfstime4`: `nanos` counts upwards from `seconds`, also
/// before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// Permission bits and the three above them.
pub const MODE_MASK: u32 = 0o7777;
/// Runs as its owner.
pub const SET_UID: u32 = 0o4000;
/// Runs as its group; of a directory: what is made in it is of its group.
pub const SET_GID: u32 = 0o2000;
/// Of a directory: only owners may remove or rename its entries.
pub const STICKY: u32 = 0o1000;

/// Attributes of an object, all of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Which object.
    pub file: FileId,
    /// What kind of object.
    pub kind: ObjectKind,
    /// Of [`MODE_MASK`].
    pub mode: u32,
    /// Whose permission bits say less than this.
    pub acl: Option<Acl>,
    /// Its security label.
    pub label: Option<Label>,
    /// Names that it has; of a directory 2 and one for each directory in it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device.
    pub device: Device,
    /// Bytes of a file, of a symbolic link's text; of a directory its entries'.
    pub size: u64,
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Last read: kept coarsely, like Linux's `relatime`.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
    /// Grows with every change of the object, also where the clock does not.
    pub change: u64,
}

/// A time that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// [`Caller::now`].
    Server,
    /// The client's own.
    Client(Time),
    /// That of a client with a delegation, but no time to come. The owner's is taken as it is,
    /// another's where it is later than what there is (RFC 9754, section 5).
    Delegated(Time),
    /// One that was taken so of a client with a delegation, for another that looks at the file.
    Taken(Time),
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Of [`MODE_MASK`]; other bits are no mode and refused.
    pub mode: Option<u32>,
    /// Bits that the mode of what is made loses, unless its directory hands a list on (RFC
    /// 8275).
    pub umask: u32,
    /// What says more than the permission bits, which it changes.
    pub acl: Option<Acl>,
    /// Its security label, which its owner says.
    pub label: Option<Label>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of the content.
    pub modified: Option<SetTime>,
}

/// What an operation comes from. Where operations wait for something that there
/// is little of, hosts take turns, and so do the connections of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asker {
    /// A machine; 0 is the server itself.
    pub host: u64,
    /// A connection of that machine.
    pub connection: u64,
}

/// On whose behalf an operation runs, and when. Squashing has been done; uid 0
/// is the superuser.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub gids: &'a [u32],
    /// The time of day.
    pub now: Time,
    /// What the caller may do with the file was checked when it was opened:
    /// its content is read and written without looking at the mode again.
    pub is_open: bool,
    /// Whose turn it takes where it must wait.
    pub from: Asker,
}

/// The change attribute of a directory around an operation (`change_info4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeInfo {
    /// Right before.
    pub before: u64,
    /// Right after.
    pub after: u64,
    /// Nothing else changed the directory in between.
    pub is_atomic: bool,
}

/// The secret that authenticates the file handles of one file system. Only the
/// server knows it: `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HandleKey(pub [u8; 16]);

impl HandleKey {
    /// A key that no other file system has.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn random() -> io::Result<HandleKey> {
        let mut key = [0; 16];
        reactor::fill_random(&mut key)?;
        Ok(HandleKey(key))
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// What a file system is; never changes while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name in the configuration.
    pub name: String,
    /// `mem` or `dir`.
    pub kind: &'static str,
    /// The same for the same content, also after a restart; different for any
    /// other. File handles carry it beside the [`FileId`].
    pub instance: u64,
    /// Authenticates file handles; lasts as long as `instance`.
    pub handle_key: HandleKey,
    /// [`super::FileSystem::verifier`] as it was when it was opened.
    pub verifier: u64,
    /// Bytes of a file at most.
    pub file_bytes_max: u64,
    /// Names of a file at most.
    pub links_max: u32,
    /// CLONE takes ranges in units of this.
    pub clone_block_bytes: u32,
    /// Files and directories have extended attributes.
    pub has_xattrs: bool,
    /// All but symbolic links may have access control lists.
    pub has_acls: bool,
    /// All objects may have security labels.
    pub has_labels: bool,
    /// Every change is refused, whoever makes it.
    pub is_read_only: bool,
}

/// Room in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that are not used.
    pub bytes_free: u64,
    /// Objects in all.
    pub files: u64,
    /// Objects that may still be made.
    pub files_free: u64,
    /// Bytes that the caller may still use, below the object in question.
    pub bytes_avail: u64,
    /// What the object's owner may still allocate to it.
    pub quota: QuotaRoom,
}

/// What a local program has done to a file that is watched (the greater counts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalChange {
    /// It has opened it, perhaps to read what a client has not written back yet.
    Opened,
    /// It has changed its content, attributes or name.
    Changed,
}

/// Tells that there are local changes, where there were none before.
pub type TellLocalChanges = Box<dyn Fn() + Send + Sync>;

/// Keeps a file watched until it is dropped.
pub type Watched = Box<dyn fmt::Debug + Send + Sync>;
