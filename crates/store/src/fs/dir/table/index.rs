//! Where the record of an inode number is: a hash table in a file, of which
//! nothing is kept in memory but what the kernel caches. It says nothing that
//! the records do not say, and is made anew from them after a crash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Entries that are read at once.
const WINDOW: usize = 64;
/// Entries of an empty index.
const ENTRIES_MIN: u64 = 1024;
/// Bits of an entry that are a slot's number; those above are of the hash.
const SLOT_BITS: u32 = 48;
const EMPTY: u64 = 0;
/// Was taken away; what was put behind it is still found.
const GONE: u64 = (1 << SLOT_BITS) - 1;

/// Entries for so many records.
pub(super) fn entries_for(records: u64) -> u64 {
    (records * 2).next_power_of_two().max(ENTRIES_MIN)
}

fn hash(ino: u64) -> u64 {
    let mut z = ino.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn entry(ino: u64, slot: u64) -> u64 {
    (hash(ino) >> SLOT_BITS) << SLOT_BITS | slot
}

fn is_of(entry: u64, ino: u64) -> bool {
    entry != EMPTY && entry != GONE && entry >> SLOT_BITS == hash(ino) >> SLOT_BITS
}

pub(super) struct Index {
    file: File,
    /// A power of two.
    pub(super) entries: u64,
    /// Not empty.
    pub(super) used: u64,
}

/// Takes entries one by one, with the place of each, until it has found what it
/// looks for.
type Visit<'a> = &'a mut dyn FnMut(u64, u64) -> io::Result<bool>;

impl Index {
    pub(super) fn new(file: File, entries: u64, used: u64) -> Index {
        Index {
            file,
            entries,
            used,
        }
    }

    /// Made in memory and written in one go, to a file that replaces the old
    /// one when it is complete.
    pub(super) fn build(file: File, entries: u64, all: &[(u64, u64)]) -> io::Result<Index> {
        let mut table = vec![EMPTY; entries as usize];
        for &(ino, slot) in all {
            let mut at = hash(ino) & (entries - 1);
            while table[at as usize] != EMPTY {
                at = (at + 1) & (entries - 1);
            }
            table[at as usize] = entry(ino, slot);
        }
        let mut bytes = Vec::with_capacity(1 << 16);
        for (i, window) in table.chunks(1 << 13).enumerate() {
            bytes.clear();
            bytes.extend(window.iter().flat_map(|entry| entry.to_le_bytes()));
            file.write_all_at(&bytes, (i as u64) << 16)?;
        }
        Ok(Index::new(file, entries, all.len() as u64))
    }

    /// Visits the entries from where those of `ino` begin, up to and with the
    /// first empty one.
    fn walk(&self, ino: u64, visit: Visit<'_>) -> io::Result<()> {
        let mut at = hash(ino) & (self.entries - 1);
        let mut left = self.entries;
        let mut bytes = [0; WINDOW * 8];
        while left > 0 {
            let count = (self.entries - at).min(WINDOW as u64).min(left);
            let window = &mut bytes[..count as usize * 8];
            self.file.read_exact_at(window, at * 8)?;
            for (i, entry) in window.chunks_exact(8).enumerate() {
                let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                if visit(at + i as u64, entry)? || entry == EMPTY {
                    return Ok(());
                }
            }
            at = (at + count) & (self.entries - 1);
            left -= count;
        }
        Ok(())
    }

    /// Slots whose records may be of `ino`, until `visit` says that it is
    /// enough.
    pub(super) fn find(
        &self,
        ino: u64,
        visit: &mut dyn FnMut(u64) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.walk(ino, &mut |_, entry| {
            Ok(is_of(entry, ino) && visit(entry & GONE)?)
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.used * 10 >= self.entries * 7
    }

    /// There is room: the caller has asked [`Index::is_full`].
    pub(super) fn insert(&mut self, ino: u64, slot: u64) -> io::Result<()> {
        let mut free = None;
        self.walk(ino, &mut |at, entry| {
            let is_free = entry == EMPTY || entry == GONE;
            free = is_free.then_some((at, entry));
            Ok(is_free)
        })?;
        let (at, was) = free.ok_or(io::ErrorKind::StorageFull)?;
        self.file
            .write_all_at(&entry(ino, slot).to_le_bytes(), at * 8)?;
        self.used += u64::from(was == EMPTY);
        Ok(())
    }

    pub(super) fn remove(&mut self, ino: u64, slot: u64) -> io::Result<()> {
        let (wanted, mut found) = (entry(ino, slot), None);
        self.walk(ino, &mut |at, entry| {
            found = (entry == wanted).then_some(at);
            Ok(found.is_some())
        })?;
        match found {
            Some(at) => self.file.write_all_at(&GONE.to_le_bytes(), at * 8),
            None => Ok(()),
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn found(index: &Index, ino: u64) -> Vec<u64> {
        let mut slots = Vec::new();
        let visit = &mut |slot| {
            slots.push(slot);
            Ok(false)
        };
        index.find(ino, visit).unwrap();
        slots
    }

    /// Against a map, through removals, and around the end of the file.
    #[test]
    fn index_finds_what_a_map_finds_through_removals() {
        let all: Vec<(u64, u64)> = (0..500).map(|i| (i % 100, i + 1)).collect();
        let file = tempfile::tempfile().unwrap();
        let mut index = Index::build(file, ENTRIES_MIN, &all).unwrap();
        let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (ino, slot) in all {
            expected.entry(ino).or_default().push(slot);
        }
        for round in 0..4000_u64 {
            let ino = round * 7 % 100;
            let slots = expected.entry(ino).or_default();
            if !slots.is_empty() && round % 3 != 0 {
                index.remove(ino, slots.swap_remove(0)).unwrap();
            }
            if !index.is_full() {
                index.insert(ino, round + 1000).unwrap();
                slots.push(round + 1000);
            }
            let mut now = found(&index, ino);
            now.retain(|slot| slots.contains(slot));
            now.sort_unstable();
            slots.sort_unstable();
            assert_eq!(&now, slots, "round {round}");
        }
        assert!(index.used <= index.entries);
        assert!(found(&index, 12_345).len() < 3, "the hash tells them apart");
    }
}
