//! Attributes by one table (RFC 7530 and RFC 8881, section 5; RFC 7862, section
//! 12.2; RFC 8276, section 8; RFC 9754): which there are, since when, how their values
//! are written, and which may be set.

use auth::user::AccountKind;
use wire::nfs4::{
    self, bitmap4, fattr4, mode4, nfs_ftype4, nfsace4, nfsstat4, nfstime4, sec_label4, settime4,
};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

/// Words of a bitmap that attributes are in.
const WORDS: usize = 3;
/// Bits of a mode.
const MODE_MASK: u32 = 0o7777;

/// Values of the attributes of one object, and of the file system it is in.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The object.
    pub object: Object,
    /// Its file handle.
    pub handle: &'a [u8],
    /// Its file system.
    pub system: System,
    /// Room in that; only looked at where [`AskedAttributes::needs_room`] says so.
    pub room: FreeSpace,
    /// The owner's name, `user@domain`; without one the number is told.
    pub owner: Option<&'a str>,
    /// That of the group.
    pub group: Option<&'a str>,
    /// The value of `acl`; only looked at where [`AskedAttributes::needs_acl`] says so.
    pub acl: &'a [u8],
    /// The security label; an object without one has not the attribute.
    pub label: Option<sec_label4<'a>>,
    /// The value of `fs_locations`; only looked at where [`AskedAttributes::needs_locations`] says
    /// so.
    pub locations: &'a [u8],
    /// The value of `fs_locations_info`; only looked at where
    /// [`AskedAttributes::needs_locations_info`] says so.
    pub locations_info: &'a [u8],
    /// Why READDIR tells no more of it (RFC 8881, section 11.4.2).
    pub rdattr_error: nfsstat4,
}

/// One object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// What it is.
    pub kind: nfs_ftype4,
    /// Grows with every change.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes that it takes.
    pub used_bytes: u64,
    /// Unique in its file system.
    pub fileid: u64,
    /// The same of what a file system covers, where this is its root.
    pub mounted_on_fileid: u64,
    /// Permission bits.
    pub mode: mode4,
    /// Names that it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device: major and minor number.
    pub device: (u32, u32),
    /// Last read.
    pub accessed: nfstime4,
    /// When it was made.
    pub created: nfstime4,
    /// Last change of anything.
    pub changed: nfstime4,
    /// Last change of the content.
    pub modified: nfstime4,
}

/// A file system, and what is the same of all.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// `fsid4`.
    pub fsid: (u64, u64),
    /// `lease_time`.
    pub lease_s: u32,
    /// Bytes of a file at most.
    pub file_bytes_max: u64,
    /// Names of a file at most.
    pub links_max: u32,
    /// Bytes of a name at most.
    pub name_bytes_max: u32,
    /// Bytes of one READ or WRITE at most.
    pub io_bytes_max: u64,
    /// CLONE takes ranges in units of this; 0 where there is none.
    pub clone_block_bytes: u32,
    /// Whether there are extended attributes.
    pub has_xattrs: bool,
    /// Whether there are access control lists.
    pub has_acls: bool,
    /// Whether there are security labels.
    pub has_labels: bool,
    /// Whether there are quotas.
    pub has_quotas: bool,
    /// It is elsewhere: little is told of it (RFC 8881, section 11.4).
    pub is_absent: bool,
}

/// Room in a file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeSpace {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes that are not used.
    pub bytes_free: u64,
    /// Objects in all.
    pub files: u64,
    /// Objects that may still be made.
    pub files_free: u64,
    /// Bytes that the user may still use.
    pub bytes_avail: u64,
    /// Bytes that may still be allocated to the object.
    pub quota_avail_hard: u64,
    /// Of them, those without a warning.
    pub quota_avail_soft: u64,
    /// Bytes of all objects that these are taken off for.
    pub quota_used: u64,
}

/// Bytes of an owner or group at most.
pub const OWNER_BYTES_MAX: usize = 1024;

/// The number of an owner or group by its name, `user@domain`; NFS4ERR_BADOWNER where there is
/// none.
pub type ReadOwner<'o> = dyn Fn(AccountKind, &[u8]) -> Result<u32, nfsstat4> + 'o;

/// Of a server that knows no names.
pub const NO_NAMES: &ReadOwner<'static> = &|_, _| Err(nfsstat4::NFS4ERR_BADOWNER);

type Write = fn(&Values<'_>, u32, &mut Vec<u8>);

/// What may be done with an attribute.
#[derive(Clone, Copy)]
enum AttributeUse {
    Get(Write),
    GetSet(Write),
    Set,
}

/// An attribute: its number, the minor version that has it first, its use.
struct AttributeRow(u32, u32, AttributeUse);

use AttributeUse::{Get, GetSet, Set as SetOnly};

/// All that there are, in the order of their numbers.
const TABLE: &[AttributeRow] = &[
    AttributeRow(
        nfs4::FATTR4_SUPPORTED_ATTRS,
        0,
        Get(|v, minor, to| write_bitmap(there(SUPPORTED[minor as usize], &v.system), to)),
    ),
    AttributeRow(
        nfs4::FATTR4_TYPE,
        0,
        Get(|v, _, to| v.object.kind.encode(to)),
    ),
    // FH4_PERSISTENT: file handles never expire.
    AttributeRow(
        nfs4::FATTR4_FH_EXPIRE_TYPE,
        0,
        Get(|_, _, to| 0u32.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_CHANGE,
        0,
        Get(|v, _, to| v.object.change.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_SIZE,
        0,
        GetSet(|v, _, to| v.object.size.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_LINK_SUPPORT,
        0,
        Get(|_, _, to| true.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_SYMLINK_SUPPORT,
        0,
        Get(|_, _, to| true.encode(to)),
    ),
    AttributeRow(nfs4::FATTR4_NAMED_ATTR, 0, Get(|_, _, to| false.encode(to))),
    AttributeRow(
        nfs4::FATTR4_FSID,
        0,
        Get(|v, _, to| {
            v.system.fsid.0.encode(to);
            v.system.fsid.1.encode(to);
        }),
    ),
    AttributeRow(
        nfs4::FATTR4_UNIQUE_HANDLES,
        0,
        Get(|_, _, to| true.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_LEASE_TIME,
        0,
        Get(|v, _, to| v.system.lease_s.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_RDATTR_ERROR,
        0,
        Get(|v, _, to| v.rdattr_error.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_ACL,
        0,
        GetSet(|v, _, to| to.extend_from_slice(v.acl)),
    ),
    AttributeRow(
        nfs4::FATTR4_ACLSUPPORT,
        0,
        Get(|v, _, to| {
            let kinds = nfs4::ACL4_SUPPORT_ALLOW_ACL | nfs4::ACL4_SUPPORT_DENY_ACL;
            (if v.system.has_acls { kinds } else { 0 }).encode(to);
        }),
    ),
    AttributeRow(nfs4::FATTR4_CANSETTIME, 0, Get(|_, _, to| true.encode(to))),
    AttributeRow(
        nfs4::FATTR4_CASE_INSENSITIVE,
        0,
        Get(|_, _, to| false.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_CASE_PRESERVING,
        0,
        Get(|_, _, to| true.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_CHOWN_RESTRICTED,
        0,
        Get(|_, _, to| true.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FILEHANDLE,
        0,
        Get(|v, _, to| Opaque::<128>(v.handle).encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FILEID,
        0,
        Get(|v, _, to| v.object.fileid.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FILES_AVAIL,
        0,
        Get(|v, _, to| v.room.files_free.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FILES_FREE,
        0,
        Get(|v, _, to| v.room.files_free.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FILES_TOTAL,
        0,
        Get(|v, _, to| v.room.files.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FS_LOCATIONS,
        0,
        Get(|v, _, to| to.extend_from_slice(v.locations)),
    ),
    AttributeRow(nfs4::FATTR4_HOMOGENEOUS, 0, Get(|_, _, to| true.encode(to))),
    AttributeRow(
        nfs4::FATTR4_MAXFILESIZE,
        0,
        Get(|v, _, to| v.system.file_bytes_max.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_MAXLINK,
        0,
        Get(|v, _, to| v.system.links_max.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_MAXNAME,
        0,
        Get(|v, _, to| v.system.name_bytes_max.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_MAXREAD,
        0,
        Get(|v, _, to| v.system.io_bytes_max.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_MAXWRITE,
        0,
        Get(|v, _, to| v.system.io_bytes_max.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_MODE,
        0,
        GetSet(|v, _, to| v.object.mode.encode(to)),
    ),
    AttributeRow(nfs4::FATTR4_NO_TRUNC, 0, Get(|_, _, to| true.encode(to))),
    AttributeRow(
        nfs4::FATTR4_NUMLINKS,
        0,
        Get(|v, _, to| v.object.links.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_OWNER,
        0,
        GetSet(|v, _, to| write_owner(v.owner, v.object.uid, to)),
    ),
    AttributeRow(
        nfs4::FATTR4_OWNER_GROUP,
        0,
        GetSet(|v, _, to| write_owner(v.group, v.object.gid, to)),
    ),
    AttributeRow(
        nfs4::FATTR4_QUOTA_AVAIL_HARD,
        0,
        Get(|v, _, to| v.room.quota_avail_hard.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_QUOTA_AVAIL_SOFT,
        0,
        Get(|v, _, to| v.room.quota_avail_soft.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_QUOTA_USED,
        0,
        Get(|v, _, to| v.room.quota_used.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_RAWDEV,
        0,
        Get(|v, _, to| {
            v.object.device.0.encode(to);
            v.object.device.1.encode(to);
        }),
    ),
    AttributeRow(
        nfs4::FATTR4_SPACE_AVAIL,
        0,
        Get(|v, _, to| v.room.bytes_avail.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_SPACE_FREE,
        0,
        Get(|v, _, to| v.room.bytes_free.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_SPACE_TOTAL,
        0,
        Get(|v, _, to| v.room.bytes.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_SPACE_USED,
        0,
        Get(|v, _, to| v.object.used_bytes.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_TIME_ACCESS,
        0,
        Get(|v, _, to| v.object.accessed.encode(to)),
    ),
    AttributeRow(nfs4::FATTR4_TIME_ACCESS_SET, 0, SetOnly),
    AttributeRow(
        nfs4::FATTR4_TIME_CREATE,
        0,
        Get(|v, _, to| v.object.created.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_TIME_DELTA,
        0,
        Get(|_, _, to| {
            nfstime4 {
                seconds: 0,
                nseconds: 1,
            }
            .encode(to)
        }),
    ),
    AttributeRow(
        nfs4::FATTR4_TIME_METADATA,
        0,
        Get(|v, _, to| v.object.changed.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_TIME_MODIFY,
        0,
        Get(|v, _, to| v.object.modified.encode(to)),
    ),
    AttributeRow(nfs4::FATTR4_TIME_MODIFY_SET, 0, SetOnly),
    AttributeRow(
        nfs4::FATTR4_MOUNTED_ON_FILEID,
        0,
        Get(|v, _, to| v.object.mounted_on_fileid.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_FS_LOCATIONS_INFO,
        1,
        Get(|v, _, to| to.extend_from_slice(v.locations_info)),
    ),
    AttributeRow(
        nfs4::FATTR4_SUPPATTR_EXCLCREAT,
        1,
        Get(|v, minor, to| write_bitmap(there(settable(minor, true), &v.system), to)),
    ),
    AttributeRow(
        nfs4::FATTR4_CLONE_BLKSIZE,
        2,
        Get(|v, _, to| v.system.clone_block_bytes.encode(to)),
    ),
    AttributeRow(
        nfs4::FATTR4_CHANGE_ATTR_TYPE,
        2,
        Get(|_, _, to| {
            nfs4::change_attr_type4::NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR.encode(to);
        }),
    ),
    AttributeRow(
        nfs4::FATTR4_SEC_LABEL,
        2,
        GetSet(|v, _, to| {
            if let Some(label) = &v.label {
                label.encode(to);
            }
        }),
    ),
    AttributeRow(nfs4::FATTR4_MODE_UMASK, 2, SetOnly),
    AttributeRow(
        nfs4::FATTR4_XATTR_SUPPORT,
        2,
        Get(|v, _, to| v.system.has_xattrs.encode(to)),
    ),
    AttributeRow(nfs4::FATTR4_TIME_DELEG_ACCESS, 2, SetOnly),
    AttributeRow(nfs4::FATTR4_TIME_DELEG_MODIFY, 2, SetOnly),
    AttributeRow(
        nfs4::FATTR4_OPEN_ARGUMENTS,
        2,
        Get(|_, _, to| write_open_arguments(to)),
    ),
];

/// What OPEN understands, by kinds: share access, share deny, wants, claims, ways to create
/// (RFC 9754).
const OPEN_ARGUMENTS: [&[u32]; 5] = [
    &[
        nfs4::OPEN_ARGS_SHARE_ACCESS_READ,
        nfs4::OPEN_ARGS_SHARE_ACCESS_WRITE,
        nfs4::OPEN_ARGS_SHARE_ACCESS_BOTH,
    ],
    &[
        nfs4::OPEN_ARGS_SHARE_DENY_NONE,
        nfs4::OPEN_ARGS_SHARE_DENY_READ,
        nfs4::OPEN_ARGS_SHARE_DENY_WRITE,
        nfs4::OPEN_ARGS_SHARE_DENY_BOTH,
    ],
    &[
        nfs4::OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG,
        nfs4::OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG,
        nfs4::OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS,
        nfs4::OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    ],
    &[
        nfs4::OPEN_ARGS_OPEN_CLAIM_NULL,
        nfs4::OPEN_ARGS_OPEN_CLAIM_PREVIOUS,
        nfs4::OPEN_ARGS_OPEN_CLAIM_DELEGATE_CUR,
        nfs4::OPEN_ARGS_OPEN_CLAIM_FH,
        nfs4::OPEN_ARGS_OPEN_CLAIM_DELEG_CUR_FH,
    ],
    &[
        nfs4::OPEN_ARGS_CREATEMODE_UNCHECKED4,
        nfs4::OPEN_ARGS_CREATE_MODE_GUARDED,
        nfs4::OPEN_ARGS_CREATEMODE_EXCLUSIVE4,
        nfs4::OPEN_ARGS_CREATE_MODE_EXCLUSIVE4_1,
    ],
];

fn write_open_arguments(to: &mut Vec<u8>) {
    for numbers in OPEN_ARGUMENTS {
        let bits = numbers.iter().fold(0, |bits, number| bits | 1 << number);
        write_bitmap([bits, 0, 0], to);
    }
}

type Bits = [u32; WORDS];

/// By minor version, those that there are.
const SUPPORTED: [Bits; 3] = [bits(0), bits(1), bits(2)];

const fn bits(minor: u32) -> Bits {
    let mut bits = [0; WORDS];
    let mut at = 0;
    while at < TABLE.len() {
        let AttributeRow(number, since, _) = TABLE[at];
        if since <= minor {
            bits[number as usize / 32] |= 1 << (number % 32);
        }
        at += 1;
    }
    bits
}

/// Those that can only be set.
const SET_ONLY: Bits = {
    let mut bits = [0; WORDS];
    let mut at = 0;
    while at < TABLE.len() {
        if let SetOnly = TABLE[at].2 {
            bits[TABLE[at].0 as usize / 32] |= 1 << (TABLE[at].0 % 32);
        }
        at += 1;
    }
    bits
};

/// Where in the table an attribute is; of those that there are not, anywhere.
const ROW_OF: [u8; WORDS * 32] = {
    let mut rows = [0; WORDS * 32];
    let mut at = 0;
    while at < TABLE.len() {
        rows[TABLE[at].0 as usize] = at as u8;
        at += 1;
    }
    rows
};

/// Those that may be set of an object, or with `is_new` of one that is being made, which is not
/// delegated yet.
fn settable(minor: u32, is_new: bool) -> Bits {
    let mut bits = [0; WORDS];
    for AttributeRow(number, since, usage) in TABLE {
        let is_there = *since <= minor && !(is_new && DELEGATED.contains(number));
        if is_there && !matches!(usage, Get(_)) {
            bits[*number as usize / 32] |= 1 << (number % 32);
        }
    }
    bits
}

/// Those that the client with a delegation sets (RFC 9754, section 5).
const DELEGATED: [u32; 2] = [
    nfs4::FATTR4_TIME_DELEG_ACCESS,
    nfs4::FATTR4_TIME_DELEG_MODIFY,
];

/// Those of quotas.
const QUOTAS: [u32; 3] = [
    nfs4::FATTR4_QUOTA_AVAIL_HARD,
    nfs4::FATTR4_QUOTA_AVAIL_SOFT,
    nfs4::FATTR4_QUOTA_USED,
];

/// Those that an absent file system has (RFC 8881, section 11.4.1; RFC 7530, section 8.3.1).
const ABSENT: Bits = {
    let mut bits = [0; WORDS];
    let all = [
        nfs4::FATTR4_FSID,
        nfs4::FATTR4_RDATTR_ERROR,
        nfs4::FATTR4_FS_LOCATIONS,
        nfs4::FATTR4_MOUNTED_ON_FILEID,
        nfs4::FATTR4_FS_LOCATIONS_INFO,
    ];
    let mut at = 0;
    while at < all.len() {
        bits[all[at] as usize / 32] |= 1 << (all[at] % 32);
        at += 1;
    }
    bits
};

/// Those that a file system has.
fn there(mut bits: Bits, system: &System) -> Bits {
    if system.is_absent {
        let words = bits.iter_mut().zip(ABSENT);
        words.for_each(|(word, absent)| *word &= absent);
    }
    if !system.has_acls {
        bits[0] &= !(1 << nfs4::FATTR4_ACL);
    }
    if !system.has_labels {
        take_out(&mut bits, nfs4::FATTR4_SEC_LABEL);
    }
    if !system.has_quotas {
        QUOTAS
            .iter()
            .for_each(|&number| take_out(&mut bits, number));
    }
    bits
}

fn take_out(bits: &mut Bits, number: u32) {
    bits[number as usize / 32] &= !(1 << (number % 32));
}

#[inline]
fn has(bits: &Bits, number: u32) -> bool {
    bits[number as usize / 32] >> (number % 32) & 1 == 1
}

/// Without words that hold nothing at the end.
fn write_bitmap(bits: Bits, to: &mut Vec<u8>) {
    let len = bits
        .iter()
        .rposition(|&word| word != 0)
        .map_or(0, |at| at + 1);
    List::<u32, WORDS>::Of(&bits[..len]).encode(to);
}

/// An owner or group by its name, or else its number (RFC 8881, section 5.9).
pub fn write_owner(name: Option<&str>, id: u32, to: &mut Vec<u8>) {
    if let Some(name) = name {
        return Opaque::<{ OWNER_BYTES_MAX }>(name.as_bytes()).encode(to);
    }

    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = id;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    Opaque::<10>(&digits[at..]).encode(to);
}

/// By digits, only as they would be written, without leading zeros; else by its name.
///
/// # Errors
/// [`nfsstat4::NFS4ERR_INVAL`] for no text, else those of `owners`.
pub fn read_owner(text: &[u8], kind: AccountKind, owners: &ReadOwner<'_>) -> Result<u32, nfsstat4> {
    if text.is_empty() {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    let is_number =
        matches!(text, [b'0'] | [b'1'..=b'9', ..]) && text.iter().all(u8::is_ascii_digit);
    let name = text;
    let text = std::str::from_utf8(text).ok().filter(|_| is_number);
    match text.map(str::parse) {
        Some(Ok(id)) => Ok(id),
        Some(Err(_)) => Err(nfsstat4::NFS4ERR_BADOWNER),
        None => owners(kind, name),
    }
}

/// Attributes that a client asks for, those of them that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedAttributes {
    bits: Bits,
    minor: u32,
}

impl AskedAttributes {
    /// What GETATTR and READDIR of a minor version (at most 2) ask for.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_INVAL`] for what can only be set.
    pub fn new(asked: &bitmap4<'_>, minor: u32) -> Result<AskedAttributes, nfsstat4> {
        let mut bits = [0; WORDS];
        bits.iter_mut()
            .zip(asked.iter())
            .for_each(|(to, word)| *to = word);
        for (word, supported) in bits.iter_mut().zip(SUPPORTED[minor as usize]) {
            *word &= supported;
        }
        let mut words = bits.iter().zip(SET_ONLY);
        match words.any(|(word, set_only)| word & set_only != 0) {
            true => Err(nfsstat4::NFS4ERR_INVAL),
            false => Ok(AskedAttributes { bits, minor }),
        }
    }

    /// Whether a value is about [`FreeSpace`].
    pub fn needs_room(&self) -> bool {
        let rooms = [
            nfs4::FATTR4_FILES_AVAIL,
            nfs4::FATTR4_FILES_FREE,
            nfs4::FATTR4_FILES_TOTAL,
            nfs4::FATTR4_SPACE_AVAIL,
            nfs4::FATTR4_SPACE_FREE,
            nfs4::FATTR4_SPACE_TOTAL,
        ];
        let mut rooms = rooms.iter().chain(&QUOTAS);
        rooms.any(|&number| has(&self.bits, number))
    }

    /// Whether a value changes with the content of a file.
    pub fn needs_content(&self) -> bool {
        let values = [
            nfs4::FATTR4_CHANGE,
            nfs4::FATTR4_SIZE,
            nfs4::FATTR4_SPACE_USED,
            nfs4::FATTR4_TIME_ACCESS,
            nfs4::FATTR4_TIME_METADATA,
            nfs4::FATTR4_TIME_MODIFY,
        ];
        values.iter().any(|&number| has(&self.bits, number))
    }

    /// Whether a value is an owner or a group.
    pub fn needs_owners(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_OWNER) || has(&self.bits, nfs4::FATTR4_OWNER_GROUP)
    }

    /// Whether a value is an access control list.
    pub fn needs_acl(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_ACL)
    }

    /// Whether a value is a security label.
    pub fn needs_label(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_SEC_LABEL)
    }

    /// Whether a value is where the file system is.
    pub fn needs_locations(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_FS_LOCATIONS)
    }

    /// Whether a value is what is told of where the file system is in versions with sessions.
    pub fn needs_locations_info(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_FS_LOCATIONS_INFO)
    }

    /// Whether the client wants to know of a file system that it may be elsewhere: else what
    /// is asked of one is NFS4ERR_MOVED.
    pub fn knows_of_absence(&self) -> bool {
        self.needs_locations() || self.needs_locations_info()
    }

    /// Whether a value is about the object beyond what names it, so that the object
    /// must be looked at.
    pub fn needs_object(&self) -> bool {
        let names = [
            nfs4::FATTR4_FILEID,
            nfs4::FATTR4_MOUNTED_ON_FILEID,
            nfs4::FATTR4_FILEHANDLE,
            nfs4::FATTR4_RDATTR_ERROR,
            nfs4::FATTR4_FSID,
        ];
        let rest = names.iter().fold(self.bits, |mut bits, number| {
            bits[*number as usize / 32] &= !(1 << (number % 32));
            bits
        });
        rest != [0; WORDS]
    }

    /// Appends a `fattr4` that only says why there are no values
    /// (`rdattr_error`).
    pub fn write_error(&self, status: nfsstat4, to: &mut Vec<u8>) {
        let mut bits = [0; WORDS];
        bits[0] = 1 << nfs4::FATTR4_RDATTR_ERROR;
        write_bitmap(bits, to);
        4u32.encode(to);
        status.encode(to);
    }

    /// Whether READDIR is to go on over entries whose attributes cannot be had.
    pub fn has_rdattr_error(&self) -> bool {
        has(&self.bits, nfs4::FATTR4_RDATTR_ERROR)
    }

    /// Appends a `fattr4` with the values asked for.
    pub fn write(&self, values: &Values<'_>, to: &mut Vec<u8>) {
        let mut bits = there(self.bits, &values.system);
        if values.label.is_none() {
            take_out(&mut bits, nfs4::FATTR4_SEC_LABEL);
        }
        write_bitmap(bits, to);
        let at = to.len();
        0u32.encode(to);
        for (at, word) in bits.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                if let Get(write) | GetSet(write) = &TABLE[usize::from(ROW_OF[at * 32 + bit])].2 {
                    write(values, self.minor, to);
                }
            }
        }
        let len = (to.len() - at - 4) as u32;
        to[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

/// VERIFY: whether the attributes are what a client takes them for.
///
/// # Errors
/// [`nfsstat4::NFS4ERR_ATTRNOTSUPP`] for one that there is not,
/// [`nfsstat4::NFS4ERR_INVAL`] for one that cannot be compared, [`nfsstat4::NFS4ERR_MOVED`] for
/// one that an absent file system has not (RFC 8881, section 11.4.1).
pub fn verify(wanted: &fattr4<'_>, minor: u32, values: &Values<'_>) -> Result<bool, nfsstat4> {
    check_supported(&wanted.attrmask, minor)?;
    let asked = AskedAttributes::new(&wanted.attrmask, minor)?;
    if asked.has_rdattr_error() {
        return Err(nfsstat4::NFS4ERR_INVAL);
    }
    if there(asked.bits, &values.system) != asked.bits {
        return Err(match values.system.is_absent {
            true => nfsstat4::NFS4ERR_MOVED,
            false => nfsstat4::NFS4ERR_ATTRNOTSUPP,
        });
    }
    if asked.needs_label() && values.label.is_none() {
        return Ok(false);
    }
    let mut is = Vec::new();
    asked.write(values, &mut is);
    let is = fattr4::decode(&mut Reader::new(&is)).expect("it was just written");
    Ok(is.attr_vals == wanted.attr_vals)
}

fn check_supported(mask: &bitmap4<'_>, minor: u32) -> Result<(), nfsstat4> {
    let supported = SUPPORTED[minor as usize]
        .into_iter()
        .chain(std::iter::repeat(0));
    let mut words = mask.iter().zip(supported);
    match words.all(|(word, supported)| word & !supported == 0) {
        true => Ok(()),
        false => Err(nfsstat4::NFS4ERR_ATTRNOTSUPP),
    }
}

/// The entries of an access control list.
pub type Aces<'a> = List<'a, nfsace4<'a>, { nfs4::ACES_MAX as usize }>;

/// Attributes to be set; `None` where one is to stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes<'a> {
    /// Bytes of a file.
    pub size: Option<u64>,
    /// Permission bits.
    pub mode: Option<mode4>,
    /// Bits that the mode of what is made loses, unless its directory hands a list on (RFC
    /// 8275).
    pub umask: mode4,
    /// The access control list.
    pub acl: Option<Aces<'a>>,
    /// The security label.
    pub label: Option<sec_label4<'a>>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub accessed: Option<settime4>,
    /// Last change of the content.
    pub modified: Option<settime4>,
    /// Last read, as the client with a delegation says.
    pub delegated_accessed: Option<nfstime4>,
    /// Last change of the content, as it says.
    pub delegated_modified: Option<nfstime4>,
}

impl<'a> SetAttributes<'a> {
    /// What a `fattr4` asks to be set. With `is_new`, of an object that is
    /// being made: only then there is a umask (RFC 8275). `owners` knows names.
    ///
    /// # Errors
    /// [`nfsstat4::NFS4ERR_ATTRNOTSUPP`] for one that there is not,
    /// [`nfsstat4::NFS4ERR_INVAL`] for one that cannot be set, or not so,
    /// [`nfsstat4::NFS4ERR_BADOWNER`], [`nfsstat4::NFS4ERR_BADXDR`].
    pub fn read(
        wanted: &fattr4<'a>,
        minor: u32,
        is_new: bool,
        owners: &ReadOwner<'_>,
    ) -> Result<SetAttributes<'a>, nfsstat4> {
        check_supported(&wanted.attrmask, minor)?;
        let mut bits = [0; WORDS];
        let words = wanted.attrmask.iter();
        bits.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        if bits
            .iter()
            .zip(settable(minor, is_new))
            .any(|(word, settable)| word & !settable != 0)
        {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let has_both = has(&bits, nfs4::FATTR4_MODE) && has(&bits, nfs4::FATTR4_MODE_UMASK);
        if has_both || has(&bits, nfs4::FATTR4_MODE_UMASK) && !is_new {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        let mut set = SetAttributes::default();
        let mut from = Reader::new(wanted.attr_vals.0);
        for AttributeRow(number, ..) in TABLE.iter().filter(|row| has(&bits, row.0)) {
            set.read_one(*number, &mut from, owners)?;
        }
        if !from.rest().is_empty() {
            return Err(nfsstat4::NFS4ERR_BADXDR);
        }
        let is_twice = set.accessed.is_some() && set.delegated_accessed.is_some()
            || set.modified.is_some() && set.delegated_modified.is_some();
        match is_twice {
            true => Err(nfsstat4::NFS4ERR_INVAL),
            false => Ok(set),
        }
    }

    fn read_one(
        &mut self,
        number: u32,
        from: &mut Reader<'a>,
        owners: &ReadOwner<'_>,
    ) -> Result<(), nfsstat4> {
        let mut owner = |kind| read_owner(value::<Text<'_>>(from)?.0, kind, owners);
        match number {
            nfs4::FATTR4_OWNER => self.uid = Some(owner(AccountKind::User)?),
            nfs4::FATTR4_OWNER_GROUP => self.gid = Some(owner(AccountKind::Group)?),
            nfs4::FATTR4_ACL => self.acl = Some(value(from)?),
            nfs4::FATTR4_SEC_LABEL => self.label = Some(value(from)?),
            nfs4::FATTR4_SIZE => self.size = Some(value(from)?),
            nfs4::FATTR4_MODE => self.mode = Some(value(from)?),
            nfs4::FATTR4_TIME_ACCESS_SET => self.accessed = Some(time(from)?),
            nfs4::FATTR4_TIME_MODIFY_SET => self.modified = Some(time(from)?),
            nfs4::FATTR4_TIME_DELEG_ACCESS => self.delegated_accessed = Some(nfstime(from)?),
            nfs4::FATTR4_TIME_DELEG_MODIFY => self.delegated_modified = Some(nfstime(from)?),
            nfs4::FATTR4_MODE_UMASK => {
                self.mode = Some(value(from)?);
                self.umask = value(from)?;
            }
            _ => unreachable!("only what may be set"),
        }
        match (self.mode.unwrap_or(0) | self.umask) & !MODE_MASK != 0 {
            true => Err(nfsstat4::NFS4ERR_INVAL),
            false => Ok(()),
        }
    }
}

type Text<'a> = Opaque<'a, { OWNER_BYTES_MAX }>;

fn value<'a, T: Decode<'a>>(from: &mut Reader<'a>) -> Result<T, nfsstat4> {
    T::decode(from).map_err(|_| nfsstat4::NFS4ERR_BADXDR)
}

fn time(from: &mut Reader<'_>) -> Result<settime4, nfsstat4> {
    let time = value(from)?;
    if let settime4::SET_TO_CLIENT_TIME4(time) = &time {
        check_time(time)?;
    }
    Ok(time)
}

fn nfstime(from: &mut Reader<'_>) -> Result<nfstime4, nfsstat4> {
    let time = value(from)?;
    check_time(&time)?;
    Ok(time)
}

fn check_time(time: &nfstime4) -> Result<(), nfsstat4> {
    match time.nseconds < 1_000_000_000 {
        true => Ok(()),
        false => Err(nfsstat4::NFS4ERR_INVAL),
    }
}

#[cfg(test)]
mod tests;
