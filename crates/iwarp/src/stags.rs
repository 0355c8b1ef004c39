//! Memory that the peer may name: STags and what stands behind them (RFC 5040, section 2.2;
//! RFC 5042).

use machine::Tag;
use wire::iwarp::TerminateCode;

/// Registrations of one stream at a time: as many as there are tags.
const REGIONS_MAX: usize = 1 << 16;

/// Regions that are on average this large are worth a receive for each FPDU.
const LARGE_REGION: u64 = 32 * 1024;

/// What the peer may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Read it by RDMA Read.
    pub read: bool,
    /// Write it by RDMA Write.
    pub write: bool,
}

impl RemoteAccess {
    /// Nothing: only Read Responses that were asked for go there.
    pub(crate) const NONE: RemoteAccess = RemoteAccess {
        read: false,
        write: false,
    };
    /// RDMA Read alone.
    pub const READ: RemoteAccess = RemoteAccess {
        read: true,
        ..RemoteAccess::NONE
    };
    /// RDMA Write alone.
    pub const WRITE: RemoteAccess = RemoteAccess {
        write: true,
        ..RemoteAccess::NONE
    };
}

/// Memory under an STag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredMemory {
    /// The command whose data it is part of.
    pub tag: Tag,
    /// First byte, counted from the start of the command's data.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// What the peer may do with it.
    pub access: RemoteAccess,
}

/// Why the peer may not do with an STag what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Stag,
    Access,
    Bounds,
    Wrap,
}

impl Denied {
    /// As DDP says it of a tagged segment (RFC 5041, section 7.2), which knows no access
    /// rights: these are RDMAP's.
    pub(crate) const fn of_sink(self) -> TerminateCode {
        match self {
            Denied::Stag => TerminateCode::SINK_STAG,
            Denied::Access => TerminateCode::ACCESS_RIGHTS,
            Denied::Bounds => TerminateCode::SINK_BOUNDS,
            Denied::Wrap => TerminateCode::SINK_WRAP,
        }
    }

    /// As RDMAP says it of a Read Request (RFC 5040, section 4.8).
    pub(crate) const fn of_source(self) -> TerminateCode {
        match self {
            Denied::Stag => TerminateCode::SOURCE_STAG,
            Denied::Access => TerminateCode::ACCESS_RIGHTS,
            Denied::Bounds => TerminateCode::SOURCE_BOUNDS,
            Denied::Wrap => TerminateCode::SOURCE_WRAP,
        }
    }
}

#[derive(Debug)]
struct StagSlot {
    /// The STag of its last registration.
    stag: u32,
    memory: Option<RegisteredMemory>,
    /// Bytes that the peer wrote there.
    written: u64,
    /// The memory itself, where it is bytes of this stream's end: up to the last that the peer
    /// wrote.
    bytes: Option<Vec<u8>>,
}

impl StagSlot {
    /// Bytes that the peer may write straight into memory and has not.
    #[inline]
    fn unwritten(&self) -> u64 {
        let is_direct = |memory: &RegisteredMemory| memory.access.write && self.bytes.is_none();
        let memory = self.memory.filter(is_direct);
        memory.map_or(0, |memory| {
            u64::from(memory.len).saturating_sub(self.written)
        })
    }
}

/// The registrations of one stream. Its peer alone can name them: an STag of another stream
/// is an invalid one here.
///
/// An STag is a slot (16 bits) and a number from the seed (8 bits), which are its index, and
/// a key (8 bits) that counts the registrations of the slot. One that was invalidated is not
/// soon valid again.
#[derive(Debug)]
pub(crate) struct Stags {
    slots: Vec<StagSlot>,
    free: Vec<u16>,
    seed: u64,
    /// Regions with bytes that the peer may write and has not, and how many.
    unwritten: u64,
    unwritten_bytes: u64,
}

impl Stags {
    pub(crate) fn new(seed: u64) -> Stags {
        Stags {
            slots: Vec::new(),
            free: Vec::new(),
            seed,
            unwritten: 0,
            unwritten_bytes: 0,
        }
    }

    /// Registrations.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Registers memory; `None`: there are [`REGIONS_MAX`] already.
    pub(crate) fn register(&mut self, memory: RegisteredMemory) -> Option<u32> {
        self.register_with(memory, None)
    }

    /// The same; `bytes`: the memory is these bytes of this stream's end, and such as the peer
    /// writes.
    #[inline]
    pub(crate) fn register_with(
        &mut self,
        memory: RegisteredMemory,
        bytes: Option<Vec<u8>>,
    ) -> Option<u32> {
        let end = memory.to.checked_add(memory.len.into());
        assert!(end.is_some(), "a region whose Tagged Offsets wrap");
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() == REGIONS_MAX => return None,
            None => {
                let key = self.next_random();
                self.slots.push(StagSlot {
                    stag: key.into(),
                    memory: None,
                    written: 0,
                    bytes: None,
                });
                (self.slots.len() - 1) as u16
            }
        };
        let salt = self.next_random();
        let entry = &mut self.slots[usize::from(slot)];
        let key = (entry.stag as u8).wrapping_add(1);
        *entry = StagSlot {
            stag: u32::from(slot) << 16 | u32::from(salt) << 8 | u32::from(key),
            memory: Some(memory),
            written: 0,
            bytes,
        };
        let (stag, unwritten) = (entry.stag, entry.unwritten());
        self.count_unwritten(0, unwritten);
        Some(stag)
    }

    /// The memory of `stag`, where it is bytes of this stream's end.
    pub(crate) fn bytes(&self, stag: u32) -> Option<&[u8]> {
        self.slot(stag)?.bytes.as_deref()
    }

    /// The same, also of an STag that was removed, until its slot is registered again.
    pub(crate) fn bytes_mut(&mut self, stag: u32) -> Option<&mut Vec<u8>> {
        let slot = self.slots.get_mut((stag >> 16) as usize);
        slot.filter(|slot| slot.stag == stag)?.bytes.as_mut()
    }

    /// A slot had `before` unwritten bytes, and has `after` now.
    #[inline]
    fn count_unwritten(&mut self, before: u64, after: u64) {
        self.unwritten_bytes = self.unwritten_bytes + after - before;
        self.unwritten = self.unwritten + u64::from(after > 0) - u64::from(before > 0);
    }

    /// Whether the RDMA Writes to come are large.
    #[inline]
    pub(crate) fn awaits_large_writes(&self) -> bool {
        self.unwritten > 0 && self.unwritten_bytes >= self.unwritten * LARGE_REGION
    }

    /// The memory of `stag` is no longer there for the peer; `None`: it was not.
    pub(crate) fn remove(&mut self, stag: u32) -> Option<RegisteredMemory> {
        self.remove_if(stag, |_| true)
    }

    /// The same where the memory is such as `is_meant` says.
    #[inline]
    pub(crate) fn remove_if(
        &mut self,
        stag: u32,
        is_meant: impl FnOnce(&RegisteredMemory) -> bool,
    ) -> Option<RegisteredMemory> {
        let slot = self.slots.get_mut((stag >> 16) as usize);
        let slot = slot.filter(|slot| slot.stag == stag)?;
        let before = slot.unwritten();
        let memory = slot.memory.take_if(|memory| is_meant(memory))?;
        self.free.push((stag >> 16) as u16);
        self.count_unwritten(before, 0);
        Some(memory)
    }

    #[inline]
    pub(crate) fn find(&self, stag: u32) -> Option<&RegisteredMemory> {
        self.slot(stag)?.memory.as_ref()
    }

    /// The slot whose last registration is `stag`.
    #[inline]
    fn slot(&self, stag: u32) -> Option<&StagSlot> {
        let slot = self.slots.get((stag >> 16) as usize)?;
        (slot.stag == stag).then_some(slot)
    }

    /// The peer has written `len` bytes to the memory of `stag`, if there is any.
    #[inline]
    pub(crate) fn note_written(&mut self, stag: u32, len: u32) {
        let slot = self.slots.get_mut((stag >> 16) as usize);
        if let Some(slot) = slot.filter(|slot| slot.stag == stag) {
            let before = slot.unwritten();
            slot.written += u64::from(len);
            let after = slot.unwritten();
            self.count_unwritten(before, after);
        }
    }

    /// Bytes that the peer wrote to the memory of `stag`, the last of its slot.
    #[inline]
    pub(crate) fn written(&self, stag: u32) -> u64 {
        self.slot(stag).map_or(0, |slot| slot.written)
    }

    /// The tag of `len` bytes, at least 1, at Tagged Offset `to` and where they begin in its
    /// data, if the peer may do with them what `wanted` says.
    #[inline]
    pub(crate) fn check(
        &self,
        stag: u32,
        to: u64,
        len: u32,
        wanted: RemoteAccess,
    ) -> Result<(Tag, u32), Denied> {
        let memory = self.find(stag).ok_or(Denied::Stag)?;
        let has = memory.access;
        if wanted.read && !has.read || wanted.write && !has.write {
            return Err(Denied::Access);
        }
        let end = to.checked_add(len.into()).ok_or(Denied::Wrap)?;
        if to < memory.to || end > memory.to + u64::from(memory.len) {
            return Err(Denied::Bounds);
        }
        Ok((memory.tag, memory.offset + (to - memory.to) as u32))
    }

    /// The next number that follows from the seed.
    fn next_random(&mut self) -> u8 {
        self.seed = self
            .seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        (self.seed >> 56) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(access: RemoteAccess) -> RegisteredMemory {
        RegisteredMemory {
            tag: 5,
            offset: 100,
            len: 50,
            to: 0x1_0000_0000,
            access,
        }
    }

    #[test]
    fn every_byte_outside_of_a_region_is_denied() {
        let mut stags = Stags::new(1);
        let region = memory(RemoteAccess::WRITE);
        let stag = stags.register(region).expect("room");
        let check = |to, len| stags.check(stag, to, len, RemoteAccess::WRITE);
        assert_eq!(check(region.to, 50), Ok((5, 100)));
        assert_eq!(check(region.to + 49, 1), Ok((5, 149)));
        for (to, len) in [(region.to - 1, 1), (region.to + 49, 2), (region.to, 51)] {
            assert_eq!(check(to, len), Err(Denied::Bounds));
        }
        assert_eq!(check(region.to + 50, 1), Err(Denied::Bounds));
        assert_eq!(check(0, 1), Err(Denied::Bounds));
        assert_eq!(check(u64::MAX, 1), Err(Denied::Wrap));
        assert_eq!(check(u64::MAX - 3, u32::MAX), Err(Denied::Wrap));
        let read = stags.check(stag, region.to, 1, RemoteAccess::READ);
        assert_eq!(read, Err(Denied::Access));
    }

    #[test]
    fn stag_that_was_removed_is_denied_for_the_next_255_registrations_of_its_slot() {
        let mut stags = Stags::new(7);
        let first = stags.register(memory(RemoteAccess::READ)).expect("room");
        for _ in 0..255 {
            let stag = stags.register(memory(RemoteAccess::READ)).expect("room");
            assert!(stags.remove(stag).is_some());
            assert_eq!(stags.remove(stag), None, "it was removed");
        }
        assert!(stags.remove(first).is_some());
        for _ in 0..255 {
            let stag = stags.register(memory(RemoteAccess::READ)).expect("room");
            assert_eq!(stag >> 16, first >> 16, "the slot is the same");
            assert_eq!(stags.find(first), None);
            let checked = stags.check(first, 0x1_0000_0000, 1, RemoteAccess::READ);
            assert_eq!(checked, Err(Denied::Stag));
            stags.remove(stag);
        }
    }

    #[test]
    fn bytes_written_are_told_until_the_slot_is_registered_again() {
        let mut stags = Stags::new(7);
        let first = stags.register(memory(RemoteAccess::WRITE)).expect("room");
        stags.note_written(first, 20);
        stags.note_written(first, 5);
        stags.note_written(first ^ 1, 5);
        assert!(stags.remove(first).is_some());
        assert_eq!((stags.written(first), stags.written(first ^ 1)), (25, 0));
        let second = stags.register(memory(RemoteAccess::WRITE)).expect("room");
        assert_eq!((stags.written(first), stags.written(second)), (0, 0));
    }

    #[test]
    fn stags_are_distinct_and_full_is_no_panic() {
        let mut stags = Stags::new(3);
        let all: std::collections::BTreeSet<_> = (0..REGIONS_MAX)
            .map(|_| stags.register(memory(RemoteAccess::NONE)).expect("room"))
            .collect();
        assert_eq!((all.len(), stags.len()), (REGIONS_MAX, REGIONS_MAX));
        assert_eq!(stags.register(memory(RemoteAccess::NONE)), None);
    }
}
