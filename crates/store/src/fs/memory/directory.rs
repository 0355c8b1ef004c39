//! The entries of a directory.
//!
//! Ordered by cookie, which says where a listing goes on, and by the hash of
//! the name, to find one. Both are trees: a hash table would have to be built
//! anew when it has grown, while all operations wait.

use std::collections::{BTreeMap, BTreeSet};

use faults::Fault;
use machine::work;

use crate::fs::FileId;

/// Cookies below are reserved (RFC 5661, section 18.23.3).
pub(super) const COOKIE_MIN: u64 = 3;
/// What an entry counts for beside its name.
const ENTRY_BYTES: u64 = 112;

pub(super) struct NameEntry {
    pub(super) file: FileId,
    pub(super) name: Box<[u8]>,
}

pub(super) struct Directory {
    /// Where it lies; of the root itself.
    pub(super) parent: FileId,
    entries: BTreeMap<u64, NameEntry>,
    /// Hash of the name, and cookie.
    names: BTreeSet<(u64, u64)>,
    next_cookie: u64,
}

/// What an entry of this name counts for.
pub(super) fn entry_bytes(name: &[u8]) -> u64 {
    ENTRY_BYTES + name.len() as u64
}

impl Directory {
    pub(super) fn new(parent: FileId) -> Box<Directory> {
        Box::new(Directory {
            parent,
            entries: BTreeMap::new(),
            names: BTreeSet::new(),
            next_cookie: COOKIE_MIN,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, hash: u64, name: &[u8]) -> Option<(u64, &NameEntry)> {
        if faults::is(Fault::SearchNames) {
            let mut all = self.entries.iter().inspect(|_| work::spend(1));
            let found = all.find(|(_, entry)| *entry.name == *name);
            return found.map(|(&cookie, entry)| (cookie, entry));
        }
        let same = self.names.range((hash, 0)..=(hash, u64::MAX));
        same.map(|&(_, cookie)| (cookie, &self.entries[&cookie]))
            .find(|(_, entry)| *entry.name == *name)
    }

    pub(super) fn get(&self, hash: u64, name: &[u8]) -> Option<FileId> {
        self.find(hash, name).map(|(_, entry)| entry.file)
    }

    /// Adds an entry, whose name there must not be yet, behind all others.
    pub(super) fn insert(&mut self, hash: u64, name: &[u8], file: FileId) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let name = name.into();
        self.entries.insert(cookie, NameEntry { file, name });
        self.names.insert((hash, cookie));
    }

    /// Lets an entry, which must be there, be another object's.
    pub(super) fn replace(&mut self, hash: u64, name: &[u8], file: FileId) {
        let (cookie, _) = self.find(hash, name).expect("the name is there");
        let entry = self.entries.get_mut(&cookie);
        entry.expect("just found").file = file;
    }

    /// Takes an entry, which must be there, away.
    pub(super) fn remove(&mut self, hash: u64, name: &[u8]) {
        let (cookie, _) = self.find(hash, name).expect("the name is there");
        self.entries.remove(&cookie);
        self.names.remove(&(hash, cookie));
    }

    /// Entries behind a cookie.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &NameEntry)> {
        let behind = self.entries.range(cookie.saturating_add(1)..);
        behind.map(|(&cookie, entry)| (cookie, entry))
    }

    /// Whether a cookie, or any above it, was ever given out.
    pub(super) fn was_given_out(&self, cookie: u64) -> bool {
        cookie == 0 || (COOKIE_MIN..self.next_cookie).contains(&cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with the same hash are different names.
    #[test]
    fn names_are_told_apart_also_where_hashes_are_not() {
        let mut dir = Directory::new(FileId(1));
        for (file, name) in [(10, b"a"), (11, b"b"), (12, b"c")] {
            dir.insert(7, name, FileId(file));
        }
        assert_eq!(dir.get(7, b"b"), Some(FileId(11)));
        assert_eq!(dir.get(7, b"d"), None);
        assert_eq!(dir.get(8, b"b"), None);
        dir.remove(7, b"b");
        assert_eq!(dir.get(7, b"b"), None);
        assert_eq!(dir.get(7, b"c"), Some(FileId(12)));
        dir.replace(7, b"c", FileId(13));
        let left: Vec<_> = dir.after(0).map(|(cookie, e)| (cookie, e.file)).collect();
        assert_eq!(left, [(3, FileId(10)), (5, FileId(13))]);
        dir.insert(7, b"b", FileId(14));
        assert_eq!(dir.after(5).map(|(c, _)| c).collect::<Vec<_>>(), [6]);
    }
}
