//! One slot of the table: 128 bytes with a checksum, so that a slot that a
//! crash of the machine has torn is none.

use crc_fast::{CrcAlgorithm, checksum};

use super::ObjectIdentity;
use crate::fs::HandleKey;

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 128;
/// Bytes of a name that lie in the slot itself.
const INLINE_BYTES: usize = 40;
/// Bytes of a name that lie in each further slot.
pub(super) const TAIL_BYTES: usize = 112;
const NAME_AT: usize = SLOT_BYTES - INLINE_BYTES;
const TAIL_AT: usize = SLOT_BYTES - TAIL_BYTES;

const OBJECT: u8 = 1;
const ALIAS: u8 = 2;
const TAIL: u8 = 3;

const HAS_VERIFIER: u8 = 1;
const HAS_OWNER: u8 = 2;
const IS_LOST: u8 = 4;

/// What a slot holds besides the rest of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::fs::dir) struct Record {
    /// A further name of an object, not the object.
    pub(super) is_alias: bool,
    pub(in crate::fs::dir) identity: ObjectIdentity,
    /// The directory that it lies in.
    pub(in crate::fs::dir) dir: u64,
    /// How it is called there; empty if it has no name that is known.
    pub(in crate::fs::dir) name: Vec<u8>,
    /// The slot of the next further name; 0 for none.
    pub(super) next: u64,
    /// The slot with more of the name; 0 for none.
    pub(super) tail: u64,
    /// Of an exclusive create.
    pub(in crate::fs::dir) verifier: Option<[u8; 8]>,
    /// Of an object that the file system below records no owner with.
    pub(in crate::fs::dir) owner: Option<(u32, u32)>,
    /// It was looked for and not found; a lookup may still meet it.
    pub(in crate::fs::dir) is_lost: bool,
    /// The `ctime` below when it was last looked at, in nanoseconds.
    pub(in crate::fs::dir) ctime: u64,
    /// Its change attribute then.
    pub(in crate::fs::dir) change: u64,
}

/// What bytes of a slot turn out to be.
pub(super) enum SlotBytes {
    Free,
    /// The name is complete but for what its tail holds.
    Record(Box<Record>, usize),
    Tail {
        next: u64,
        bytes: [u8; TAIL_BYTES],
    },
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn sum(bytes: &[u8; SLOT_BYTES]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, &bytes[4..]) as u32
}

fn seal(mut bytes: [u8; SLOT_BYTES]) -> [u8; SLOT_BYTES] {
    let sum = sum(&bytes);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Record {
    /// Of an object that was seen to lie there.
    pub(in crate::fs::dir) fn new(identity: ObjectIdentity, dir: u64, name: &[u8]) -> Record {
        Record {
            identity,
            dir,
            name: name.to_vec(),
            ..Record::default()
        }
    }

    /// Bytes of the name that need further slots.
    pub(super) fn rest(&self) -> &[u8] {
        &self.name[self.name.len().min(INLINE_BYTES)..]
    }

    pub(super) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[4] = if self.is_alias { ALIAS } else { OBJECT };
        bytes[5] = u8::try_from(self.name.len()).expect("names are checked");
        bytes[6] = u8::from(self.verifier.is_some()) * HAS_VERIFIER
            + u8::from(self.owner.is_some()) * HAS_OWNER
            + u8::from(self.is_lost) * IS_LOST;
        let words = [
            self.identity.ino,
            self.identity.born as u64,
            self.identity.name,
            self.dir,
            self.next,
            self.tail,
            self.ctime,
            self.change,
            self.verifier.map_or(0, u64::from_le_bytes),
        ];
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let (uid, gid) = self.owner.unwrap_or_default();
        bytes[80..84].copy_from_slice(&uid.to_le_bytes());
        bytes[84..88].copy_from_slice(&gid.to_le_bytes());
        let inline = self.name.len().min(INLINE_BYTES);
        bytes[NAME_AT..NAME_AT + inline].copy_from_slice(&self.name[..inline]);
        seal(bytes)
    }
}

/// A slot with more of a name.
pub(super) fn tail(rest: &[u8], next: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[4] = TAIL;
    bytes[8..16].copy_from_slice(&next.to_le_bytes());
    let len = rest.len().min(TAIL_BYTES);
    bytes[TAIL_AT..TAIL_AT + len].copy_from_slice(&rest[..len]);
    seal(bytes)
}

/// What is damaged is as good as free.
pub(super) fn decode(bytes: &[u8; SLOT_BYTES]) -> SlotBytes {
    if half(bytes, 0) != sum(bytes) {
        return SlotBytes::Free;
    }
    let (state, name_len, flags) = (bytes[4], usize::from(bytes[5]), bytes[6]);
    if state == TAIL {
        let mut rest = [0; TAIL_BYTES];
        rest.copy_from_slice(&bytes[TAIL_AT..]);
        return SlotBytes::Tail {
            next: word(bytes, 8),
            bytes: rest,
        };
    }
    if state != OBJECT && state != ALIAS {
        return SlotBytes::Free;
    }
    let inline = name_len.min(INLINE_BYTES);
    let has = |flag| flags & flag != 0;
    let record = Record {
        is_alias: state == ALIAS,
        identity: ObjectIdentity {
            ino: word(bytes, 8),
            born: word(bytes, 16) as i64,
            name: word(bytes, 24),
        },
        dir: word(bytes, 32),
        name: bytes[NAME_AT..NAME_AT + inline].to_vec(),
        next: word(bytes, 40),
        tail: word(bytes, 48),
        ctime: word(bytes, 56),
        change: word(bytes, 64),
        verifier: has(HAS_VERIFIER).then(|| word(bytes, 72).to_le_bytes()),
        owner: has(HAS_OWNER).then(|| (half(bytes, 80), half(bytes, 84))),
        is_lost: has(IS_LOST),
    };
    SlotBytes::Record(Box::new(record), name_len)
}

/// The first slot: what the table belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fs::dir) struct Header {
    /// Of the file system, for all time.
    pub(in crate::fs::dir) instance: u64,
    /// [`crate::fs::Info::handle_key`], or [`NO_KEY`].
    pub(in crate::fs::dir) handle_key: HandleKey,
    /// The file that the table was written to: in a copy of that, this says so.
    /// All 0 in a table of an earlier version.
    pub(super) file: ObjectIdentity,
    /// Its uppermost directory.
    pub(in crate::fs::dir) root: ObjectIdentity,
    /// Owners are recorded, not real ([`super::super::Owners`]).
    pub(in crate::fs::dir) is_recorded: bool,
    /// The user that weft ran as when the table was made.
    pub(in crate::fs::dir) uid: u32,
    /// No slot from here on was ever used.
    pub(super) next: u64,
    /// Entries of the index.
    pub(super) entries: u64,
    /// Those of them that are not empty.
    pub(super) used: u64,
    /// Nothing has happened since the table was closed.
    pub(super) is_clean: bool,
}

const MAGIC: &[u8; 8] = b"weftdir1";
/// Of a header that no key was written to yet.
pub(super) const NO_KEY: HandleKey = HandleKey([0; 16]);
/// Where the header has the key of file handles.
const KEY_AT: usize = 88;
/// Where it has the identity of its file, to the end of the slot.
const FILE_AT: usize = 104;

impl Header {
    /// Of a table that is to be made.
    pub(in crate::fs::dir) fn new(
        instance: u64,
        root: ObjectIdentity,
        is_recorded: bool,
        uid: u32,
    ) -> Header {
        Header {
            instance,
            handle_key: NO_KEY,
            file: ObjectIdentity::default(),
            root,
            is_recorded,
            uid,
            next: 0,
            entries: 0,
            used: 0,
            is_clean: false,
        }
    }

    pub(super) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let words = [
            u64::from_le_bytes(*MAGIC),
            self.instance,
            self.root.ino,
            self.root.born as u64,
            self.root.name,
            u64::from(self.is_recorded) | u64::from(self.is_clean) << 1,
            self.uid.into(),
            self.next,
            self.entries,
            self.used,
        ];
        for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes[KEY_AT..KEY_AT + 16].copy_from_slice(&self.handle_key.0);
        let file = [self.file.ino, self.file.born as u64, self.file.name];
        for (to, word) in bytes[FILE_AT..].chunks_exact_mut(8).zip(file) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        seal(bytes)
    }

    pub(super) fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Header> {
        if half(bytes, 0) != sum(bytes) || bytes[8..16] != *MAGIC {
            return None;
        }
        let flags = word(bytes, 48);
        Some(Header {
            instance: word(bytes, 16),
            handle_key: HandleKey(*bytes[KEY_AT..].first_chunk().expect("in bounds")),
            file: ObjectIdentity {
                ino: word(bytes, FILE_AT),
                born: word(bytes, FILE_AT + 8) as i64,
                name: word(bytes, FILE_AT + 16),
            },
            root: ObjectIdentity {
                ino: word(bytes, 24),
                born: word(bytes, 32) as i64,
                name: word(bytes, 40),
            },
            is_recorded: flags & 1 != 0,
            is_clean: flags & 2 != 0,
            uid: word(bytes, 56) as u32,
            next: word(bytes, 64),
            entries: word(bytes, 72),
            used: word(bytes, 80),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            is_alias: false,
            identity: ObjectIdentity {
                ino: 1,
                born: -2,
                name: 3,
            },
            dir: 4,
            name: b"name".to_vec(),
            next: 5,
            tail: 6,
            verifier: Some(*b"verifier"),
            owner: Some((7, 8)),
            is_lost: true,
            ctime: 9,
            change: 10,
        }
    }

    #[test]
    fn records_come_back_and_damage_is_seen() {
        let record = record();
        let bytes = record.encode();
        let SlotBytes::Record(again, 4) = decode(&bytes) else {
            panic!("a record with a name of four bytes");
        };
        assert_eq!(*again, record);
        for bit in 0..SLOT_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&bytes), SlotBytes::Free), "bit {bit}");
        }
        assert!(matches!(decode(&[0; SLOT_BYTES]), SlotBytes::Free));
    }

    #[test]
    fn headers_come_back_and_damage_is_seen() {
        let header = Header {
            instance: 1,
            handle_key: HandleKey([9; 16]),
            file: ObjectIdentity {
                ino: 6,
                born: -7,
                name: 8,
            },
            root: record().identity,
            is_recorded: true,
            uid: 2,
            next: 3,
            entries: 4,
            used: 5,
            is_clean: true,
        };
        let mut bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        bytes[100] ^= 1;
        assert_eq!(Header::decode(&bytes), None);
    }
}
