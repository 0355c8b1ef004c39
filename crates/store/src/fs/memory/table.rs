//! Objects by their [`FileId`], each under a lock of its own.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::node::Node;
use crate::fs::{Error, FileId};

/// Slots of a segment.
const SEGMENT: usize = 4096;
/// Names of slots are below this.
const SLOTS_MAX: u64 = 1 << 31;
/// No slot has this name, so that no object is number 0.
const FIRST: u32 = 1;

/// A place for an object; its name and how often it was used before make a
/// [`FileId`]: `uses << 32 | slot`. In a cache line of its own, since reactors
/// lock neighbours at the same time.
#[repr(align(64))]
#[derive(Default)]
struct ObjectSlot(RwLock<ObjectPlace>);

#[derive(Default)]
struct ObjectPlace {
    uses: u32,
    node: Option<Box<Node>>,
}

/// All objects of a file system. Slots never move, and grow in number with the
/// objects.
pub(super) struct ObjectTable {
    segments: Box<[OnceLock<Box<[ObjectSlot]>>]>,
    free: Mutex<Free>,
}

struct Free {
    /// Slots from here on were never used.
    next: u32,
    used: Vec<u32>,
}

/// Locks two objects cannot take in a wrong order, see [`ObjectTable::lock`].
pub(super) const LOCKS_MAX: usize = 4;

/// An object that does not change meanwhile.
pub(super) struct Reading<'a>(RwLockReadGuard<'a, ObjectPlace>);

/// An object that no other operation looks at meanwhile.
pub(super) struct Writing<'a> {
    place: RwLockWriteGuard<'a, ObjectPlace>,
    file: FileId,
}

impl Deref for Reading<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        self.0.node.as_ref().expect("checked when it was locked")
    }
}

impl Deref for Writing<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        let node = self.place.node.as_ref();
        node.expect("checked when it was locked")
    }
}

impl DerefMut for Writing<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Node {
        let node = self.place.node.as_mut();
        node.expect("checked when it was locked")
    }
}

impl ObjectPlace {
    #[inline]
    fn check(&self, file: FileId) -> Result<(), Error> {
        match self.node.is_some() && self.uses == uses_of(file) {
            true => Ok(()),
            false => Err(Error::Stale),
        }
    }
}

#[inline]
fn slot_of(file: FileId) -> u32 {
    file.0 as u32
}

#[inline]
fn uses_of(file: FileId) -> u32 {
    (file.0 >> 32) as u32
}

impl ObjectTable {
    /// For so many objects at most.
    pub(super) fn new(objects_max: u64) -> ObjectTable {
        let slots = objects_max.min(SLOTS_MAX) as usize + FIRST as usize;
        let segments = slots.div_ceil(SEGMENT);
        ObjectTable {
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(Free {
                next: FIRST,
                used: Vec::new(),
            }),
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().expect("nothing panics under this lock")
    }

    #[inline]
    fn slot(&self, file: FileId) -> Result<&ObjectSlot, Error> {
        let slot = slot_of(file) as usize;
        let segment = self.segments.get(slot / SEGMENT).and_then(OnceLock::get);
        segment.map_or(Err(Error::Stale), |slots| Ok(&slots[slot % SEGMENT]))
    }

    /// An object to look at.
    #[inline]
    pub(super) fn read(&self, file: FileId) -> Result<Reading<'_>, Error> {
        let place = self.slot(file)?.0.read();
        let place = place.expect("nothing panics under this lock");
        place.check(file)?;
        Ok(Reading(place))
    }

    /// An object to change.
    #[inline]
    pub(super) fn write(&self, file: FileId) -> Result<Writing<'_>, Error> {
        let place = self.slot(file)?.0.write();
        let place = place.expect("nothing panics under this lock");
        place.check(file)?;
        Ok(Writing { place, file })
    }

    /// Several objects to change, at most [`LOCKS_MAX`], the same one as often
    /// as you like. Every operation that holds one lock and wants another takes
    /// them here, in the order of slots, so that none wait in a circle.
    pub(super) fn lock(&self, files: &[FileId]) -> Result<Locked<'_>, Error> {
        let mut sorted = [FileId(u64::MAX); LOCKS_MAX];
        sorted[..files.len()].copy_from_slice(files);
        let sorted = &mut sorted[..files.len()];
        sorted.sort_unstable_by_key(|&file| (slot_of(file), uses_of(file)));
        let mut locked = Locked([const { None }; LOCKS_MAX]);
        let mut last = None;
        for (at, &file) in sorted.iter().enumerate() {
            if last == Some(file) {
                continue;
            }
            // Two uses of one slot: not both can be there.
            if last.is_some_and(|last| slot_of(last) == slot_of(file)) {
                return Err(Error::Stale);
            }
            locked.0[at] = Some(self.write(file)?);
            last = Some(file);
        }
        Ok(locked)
    }

    /// Puts a new object into a slot; the object is told which.
    pub(super) fn insert(&self, mut node: Box<Node>) -> Result<FileId, Error> {
        let slot = {
            let mut free = self.free();
            match free.used.pop() {
                Some(slot) => slot,
                None if (free.next as usize) < self.segments.len() * SEGMENT => {
                    free.next += 1;
                    free.next - 1
                }
                None => return Err(Error::NoSpc),
            }
        };
        let make = || (0..SEGMENT).map(|_| ObjectSlot::default()).collect();
        let slots = self.segments[slot as usize / SEGMENT].get_or_init(make);
        let place = slots[slot as usize % SEGMENT].0.write();
        let mut place = place.expect("nothing panics under this lock");
        let file = FileId(u64::from(place.uses) << 32 | u64::from(slot));
        node.attr.file = file;
        place.node = Some(node);
        Ok(file)
    }

    /// Takes an object out; its number is never used again.
    pub(super) fn remove(&self, mut writing: Writing<'_>) -> Box<Node> {
        let (node, uses) = (writing.place.node.take(), writing.place.uses);
        writing.place.uses = uses.wrapping_add(1);
        let slot = slot_of(writing.file);
        drop(writing);
        // A slot whose numbers are used up stays empty.
        if uses < u32::MAX {
            self.free().used.push(slot);
        }
        node.expect("checked when it was locked")
    }

    /// Takes every object out, at the end.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Box<Node>> {
        let slots = self.segments.iter_mut().filter_map(OnceLock::get_mut);
        slots.flatten().filter_map(|slot| {
            let place = slot.0.get_mut();
            place.expect("nothing panics under this lock").node.take()
        })
    }
}

/// Objects that are locked together.
pub(super) struct Locked<'a>([Option<Writing<'a>>; LOCKS_MAX]);

impl<'a> Locked<'a> {
    /// One of them. Panics if it is none.
    #[inline]
    pub(super) fn get(&mut self, file: FileId) -> &mut Node {
        let mut locked = self.0.iter_mut().flatten();
        let found = locked.find(|writing| writing.file == file);
        found.expect("it was locked with the others")
    }

    /// Its lock alone, the others staying. Panics if it is none of them.
    pub(super) fn take(&mut self, file: FileId) -> Writing<'a> {
        let mut locked = self.0.iter_mut();
        let found = locked.find(|slot| slot.as_ref().is_some_and(|w| w.file == file));
        let found = found.and_then(Option::take);
        found.expect("it was locked with the others")
    }
}
