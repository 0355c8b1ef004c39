//! One object.

use super::content::Content;
use super::directory::Directory;
use crate::fs::quota::Charged;
use crate::fs::{Attr, Caller, Error, ObjectKind, Time, access};

/// What an object counts for beside its content.
pub(super) const NODE_BYTES: u64 = 512;
/// Bytes of an extended attribute's value at most, as Linux has it.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Bytes of all extended attributes of an object together at most.
pub const XATTRS_BYTES_MAX: usize = 256 << 10;
/// What an extended attribute counts for beside name and value.
const XATTR_BYTES: u64 = 96;
/// What an access control list counts for beside its entries.
const ACL_BYTES: u64 = 32;
/// What a security label counts for beside its data.
const LABEL_BYTES: u64 = 64;
/// Once more than this has passed a read is noted, though nothing changed.
const READ_NOTED_SECONDS: i64 = 24 * 3600;

const _: () = assert!(size_of::<Node>() + 64 <= NODE_BYTES as usize);

/// One object.
pub(super) struct Node {
    pub(super) attr: Attr,
    /// What counts for its quotas, see [`Node::charge`], counts there.
    pub(super) charged: Charged,
    pub(super) body: Body,
    /// How often it is open.
    pub(super) opens: u32,
    /// Of the exclusive creation that made it.
    pub(super) verifier: Option<[u8; 8]>,
    pub(super) xattrs: Vec<Xattr>,
    /// Cookies of extended attributes below this were given out.
    pub(super) next_cookie: u64,
    pub(super) freeze: Freeze,
}

/// What clones that are under way keep others from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Freeze {
    /// So many take from it: its content may not be changed.
    pub(super) sources: u32,
    /// One makes its content: that may not be looked at either.
    pub(super) is_target: bool,
}

pub(super) enum Body {
    File(Content),
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    /// Nothing but attributes.
    Special,
}

pub(super) struct Xattr {
    pub(super) cookie: u64,
    pub(super) name: Box<[u8]>,
    pub(super) value: Box<[u8]>,
}

impl Xattr {
    /// What it counts for.
    pub(super) fn bytes(&self) -> u64 {
        xattr_bytes(&self.name, &self.value)
    }
}

pub(super) fn xattr_bytes(name: &[u8], value: &[u8]) -> u64 {
    XATTR_BYTES + name.len() as u64 + value.len() as u64
}

/// What an access control list and a security label count for.
pub(super) fn said_bytes(attr: &Attr) -> u64 {
    let (acl, label) = (attr.acl.as_ref(), attr.label.as_ref());
    let acl = acl.map_or(0, |acl| ACL_BYTES + acl.bytes());
    acl + label.map_or(0, |label| LABEL_BYTES + label.data().len() as u64)
}

impl Node {
    /// Without a number yet.
    pub(super) fn new(attr: Attr, charged: Charged, body: Body) -> Box<Node> {
        Box::new(Node {
            attr,
            charged,
            body,
            opens: 0,
            verifier: None,
            xattrs: Vec::new(),
            next_cookie: 1,
            freeze: Freeze::default(),
        })
    }

    /// What it counts for, but for content in frames and entries.
    pub(super) fn bytes(&self) -> u64 {
        let body = match &self.body {
            Body::Symlink(text) => text.len() as u64,
            Body::File(_) | Body::Directory(_) | Body::Special => 0,
        };
        NODE_BYTES + body + self.described_bytes()
    }

    /// What extended attributes, access control list and security label count for.
    fn described_bytes(&self) -> u64 {
        let xattrs = self.xattrs.iter().map(Xattr::bytes).sum::<u64>();
        xattrs + said_bytes(&self.attr)
    }

    /// Bytes that count for its quotas: what a client is told that it takes, and what
    /// describes it.
    pub(super) fn charge(&self) -> u64 {
        self.attr.used_bytes + self.described_bytes()
    }

    /// Something about it has changed.
    #[inline]
    pub(super) fn touch(&mut self, now: Time) {
        self.attr.changed = now;
        self.attr.change += 1;
    }

    /// Its content has changed.
    #[inline]
    pub(super) fn touch_content(&mut self, now: Time) {
        self.attr.modified = now;
        self.touch(now);
    }

    /// Whether a read now is to be noted: it is the first after a change, or
    /// after a day (so that reads do not turn into writes).
    #[inline]
    pub(super) fn notes_read(&self, now: Time) -> bool {
        let attr = &self.attr;
        attr.accessed <= attr.modified
            || attr.accessed <= attr.changed
            || now.seconds.saturating_sub(attr.accessed.seconds) > READ_NOTED_SECONDS
    }

    pub(super) fn directory(&self) -> Result<&Directory, Error> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            Body::Symlink(_) => Err(Error::Symlink),
            Body::File(_) | Body::Special => Err(Error::NotDir),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory, Error> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            Body::Symlink(_) => Err(Error::Symlink),
            Body::File(_) | Body::Special => Err(Error::NotDir),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attr.kind == ObjectKind::Directory
    }

    /// A regular file's content, to be read.
    #[inline]
    pub(super) fn content(&self) -> Result<&Content, Error> {
        match &self.body {
            Body::File(_) if self.freeze.is_target => Err(Error::Delay),
            Body::File(content) => Ok(content),
            _ => Err(self.no_file()),
        }
    }

    /// Content that lies beside the attributes.
    pub(super) fn inline(&self) -> Option<&[u8]> {
        match &self.body {
            Body::File(Content::Inline(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether the content may be changed now.
    #[inline]
    pub(super) fn check_changes(&self) -> Result<(), Error> {
        match self.freeze == Freeze::default() {
            true => self.content().map(|_| ()),
            false => Err(Error::Delay),
        }
    }

    #[inline]
    pub(super) fn check_read(&self, caller: &Caller<'_>) -> Result<&Content, Error> {
        let content = self.content()?;
        access::check_read(&self.attr, caller)?;
        Ok(content)
    }

    #[inline]
    pub(super) fn check_write(&self, caller: &Caller<'_>, from: u64) -> Result<(), Error> {
        self.check_changes()?;
        access::check_write(&self.attr, caller, from, self.attr.size)
    }

    /// Why it has no content.
    pub(super) fn no_file(&self) -> Error {
        match self.attr.kind {
            ObjectKind::Directory => Error::IsDir,
            ObjectKind::Symlink => Error::Symlink,
            _ => Error::WrongType,
        }
    }
}
