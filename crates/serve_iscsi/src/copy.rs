//! EXTENDED COPY: blocks from one logical unit to another, of whichever target
//! of ours (SPC-4, section 5.17).

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use engine::OnVolumes as _;
use engine::steps::{IoStep, StepIo, StepPlan, Steps};
use faults::Fault;
use iscsi::SessionInfo;
use machine::Tag;
use mem::{Buf, BufRange};
use reactor::Driver;
use scsi::copy::{Bytes, CopyEnd, Cscd, LIST_BYTES_MAX, List, Segment, aborted};
use scsi::reservation::initiator_port;
use scsi::{Sense, SenseBytes, asc};
use store::reservation::{Access, Grant, Registrant, ScsiNexus};
use store::{Error, ReferenceCopy, Volume, Watch};

use super::served::{Lun, ServedTarget};
use super::{CommandAnswer, IscsiConnection};

/// Copies of a nexus that are under way or remembered.
pub(super) type RunningCopies = Rc<RefCell<scsi::copy::NexusCopies>>;

/// Data goes in pieces of this, through one buffer a copy.
pub(super) const PIECE_BYTES: u32 = 512 << 10;

/// A logical unit that takes part.
#[derive(Clone)]
pub(super) struct Party {
    pub volume: Arc<dyn Volume>,
    pub unit: Arc<scsi::Unit>,
    /// The nexus by which the initiator reaches it.
    registrant: Registrant,
}

impl Party {
    /// A logical unit that a nexus sees.
    pub(super) fn new(lun: &Lun, registrant: Registrant) -> Party {
        Party {
            volume: lun.volume.clone(),
            unit: lun.unit.clone(),
            registrant,
        }
    }

    /// The logical units that a nexus sees.
    fn all(served: &ServedTarget, registrant: &Registrant) -> Vec<Party> {
        let luns = served.view.luns.iter();
        let places = luns.filter_map(|lun| served.at(served.place_of(*lun)?));
        places
            .map(|lun| Party::new(lun, registrant.clone()))
            .collect()
    }

    /// The first of these ways to a unit that lets reads and writes pass; else the first.
    pub(super) fn best<'p>(ways: impl Iterator<Item = &'p Party>) -> Option<&'p Party> {
        ways.min_by_key(|party| !party.unit.state.is_active())
    }

    /// What reservations let its initiator do now.
    pub(super) fn access(&self) -> Access {
        let reservations = self.volume.reservations();
        reservations.access(&self.registrant, &mut Grant::default())
    }

    fn is(&self, other: &Party) -> bool {
        Arc::ptr_eq(&self.volume, &other.volume)
    }
}

impl IscsiConnection {
    /// EXTENDED COPY(LID1); false while memory is short.
    pub(super) fn extended_copy<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        list_len: u32,
        driver: &mut D,
    ) -> bool {
        if list_len == 0 {
            self.complete_good(tag);
            return true;
        }
        let list = self.list(tag, list_len, LIST_BYTES_MAX);
        let read = match list_len > LIST_BYTES_MAX {
            true => Err(Sense::list_length()),
            false => List::parse(&list),
        };
        let list = match read {
            Ok(list) => list,
            Err(sense) => {
                self.check(tag, &sense);
                return true;
            }
        };
        let (segments, fault) = self.segments(place, &list);
        let largest = segments.iter().map(|segment| segment.bytes.len).max();
        let piece = largest.unwrap_or(0).clamp(1, PIECE_BYTES.into()) as u32;
        let Some(buf) = self.core.pool.get(piece) else {
            return false;
        };
        let copies = self.copies();
        if let Err(sense) = copies.borrow_mut().begin(&list) {
            self.check(tag, &sense);
            return true;
        }
        let held = CopyRecord {
            copies,
            id: list.id,
            descriptor_sense: self.place(place).unit.modes.descriptor_sense,
            has_ended: false,
        };
        let steps = Copy::steps(place, segments, fault, (Box::new(held), None), buf);
        self.go_on(tag, None, steps, driver);
        true
    }

    /// RECEIVE COPY RESULTS; false while memory is short.
    pub(super) fn receive_copy_results(
        &mut self,
        tag: Tag,
        (action, list_id, allocation_len): (u8, u8, u32),
    ) -> bool {
        let copies = self.copies();
        // What is told once must not be lost for want of memory.
        let mut after = copies.borrow().clone();
        match after.results(action, list_id, allocation_len) {
            Ok(bytes) => {
                let is_sent = self.send_bytes(tag, &bytes);
                if is_sent {
                    copies.replace(after);
                }
                is_sent
            }
            Err(sense) => {
                self.check(tag, &sense);
                true
            }
        }
    }

    /// What the segments copy, up to the first that cannot be; and why that
    /// cannot.
    fn segments(&mut self, place: u32, list: &List) -> (Vec<ReadySegment>, Option<Sense>) {
        let parties = match list.cscds.is_empty() {
            true => Vec::new(),
            false => self.parties(),
        };
        let cscds = list.cscds.iter().map(|cscd| party(cscd, &parties));
        let cscds: Vec<Result<Party, u16>> = cscds.collect();
        let lun = self.place(place);
        let here = Party::new(lun, self.registrant());
        let mut ready = Vec::with_capacity(list.segments.len());
        for (number, segment) in list.segments.iter().enumerate() {
            let found = |place| match place {
                CopyEnd::Here => Ok(here.clone()),
                CopyEnd::Cscd(index) => cscds[index].clone(),
                CopyEnd::Unknown => Err(asc::UNREACHABLE_COPY_TARGET),
            };
            let (source, destination) = (found(segment.source), found(segment.destination));
            let both = source.and_then(|source| Ok((source, destination?)));
            let made = both.and_then(|(source, destination)| {
                ReadySegment::new(number, segment, source, destination)
            });
            match made {
                Ok(segment) => ready.push(segment),
                Err(code) => return (ready, Some(aborted(number, code))),
            }
        }
        (ready, None)
    }

    /// The logical units that the initiator is logged in to, by whichever
    /// session; those of this one first. A name is easily borrowed: of other
    /// targets those units alone that it could log in to from here with what it
    /// has proved here.
    pub(super) fn parties(&self) -> Vec<Party> {
        let own = self.session();
        let mut parties = Party::all(own.served(), own.registrant());
        let others: Vec<(Registrant, Option<Vec<u16>>)> = {
            let registry = self.service.registry();
            let me = registry.session(own.id);
            let others = registry.sessions().filter(|session| session.id != own.id);
            let its = others.filter_map(|session| {
                let luns = reached(me?, session, self.core.via.peer.ip())?;
                Some((registrant(session)?, luns))
            });
            its.collect()
        };
        let places = self.service.places();
        for (registrant, luns) in others {
            if let Registrant::ScsiNexus(nexus) = &registrant {
                let mask = luns.map(Arc::from);
                let served = places.served(&nexus.target, nexus.port, mask);
                parties.extend(Party::all(&served, &registrant));
            }
        }
        parties
    }
}

/// The units of another session of the same initiator that `own`, which came
/// from `address`, could have logged in to as well; the inner `None` is all.
fn reached(own: &SessionInfo, other: &SessionInfo, address: IpAddr) -> Option<Option<Vec<u16>>> {
    let target = other.target.as_ref()?;
    let name = &own.initiator.name;
    let entry = target.entry_of(name, address, other.portal_group_tag)?;
    let wanted = &target.auth_of(entry).chap;
    let is_its = !other.has_ended
        && other.initiator.name == *name
        && entry.luns == other.luns
        && (wanted.is_none() || *wanted == own.proved);
    is_its.then(|| other.luns.clone())
}

/// The nexus of a session; of a discovery session there is none.
fn registrant(session: &SessionInfo) -> Option<Registrant> {
    Some(Registrant::ScsiNexus(ScsiNexus {
        initiator: initiator_port(&session.initiator.name, session.initiator.isid),
        target: session.target.as_ref()?.name.clone(),
        port: session.portal_group_tag,
    }))
}

/// The unit that a descriptor names, or why it cannot be used.
fn party(cscd: &Cscd, parties: &[Party]) -> Result<Party, u16> {
    if let Some(code) = cscd.fault() {
        return Err(code);
    }
    let named = parties.iter();
    let named = named.filter(|party| cscd.names(&party.unit.identity));
    let party = Party::best(named).ok_or(asc::COPY_TARGET_DEVICE_NOT_REACHABLE)?;
    // A descriptor with another block length describes another device.
    match cscd.block_bytes {
        0 => Ok(party.clone()),
        bytes if bytes == party.unit.block_bytes => Ok(party.clone()),
        _ => Err(asc::INCORRECT_COPY_TARGET_DEVICE_TYPE),
    }
}

/// A segment that can be copied, as far as can be told before.
pub(super) struct ReadySegment {
    pub number: usize,
    pub source: Party,
    pub destination: Party,
    pub bytes: Bytes,
}

impl ReadySegment {
    /// Refused with an additional sense code.
    fn new(
        number: usize,
        segment: &Segment,
        source: Party,
        destination: Party,
    ) -> Result<ReadySegment, u16> {
        let blocks = |party: &Party| party.unit.block_bytes;
        let bytes = segment.bytes(blocks(&source), blocks(&destination))?;
        let fits = |party: &Party, at: u64| at + bytes.len <= party.volume.size_bytes();
        if !fits(&source, bytes.source) || !fits(&destination, bytes.destination) {
            return Err(asc::NO_ADDITIONAL_SENSE_INFORMATION);
        }
        // Asymmetric access states refuse a READ there, too (SPC-4).
        let is_passive = |party: &Party| !party.unit.state.is_active();
        let is_refused = is_passive(&source) || is_passive(&destination);
        if is_refused || destination.unit.is_write_protected() {
            return Err(asc::THIRD_PARTY_DEVICE_FAILURE);
        }
        Ok(ReadySegment {
            number,
            source,
            destination,
            bytes,
        })
    }

    /// Whether it must begin at the end, since what it writes first is what it
    /// reads last.
    fn goes_backwards(&self) -> bool {
        let Bytes {
            source,
            destination,
            len,
        } = self.bytes;
        self.source.is(&self.destination) && destination > source && destination - source < len
    }

    /// Whether reservations let the initiator copy now.
    fn is_allowed(&self) -> bool {
        let may_write = self.destination.access().write || faults::is(Fault::CopyUnasked);
        self.source.access().read && may_write
    }
}

/// What RECEIVE COPY RESULTS tells of a copy. One that is dropped before it ends was
/// aborted.
struct CopyRecord {
    copies: RunningCopies,
    id: Option<u8>,
    descriptor_sense: bool,
    has_ended: bool,
}

/// Where it is told how a copy stands and ends.
pub(super) trait CopyOutcome {
    /// So many segments, and bytes of all, are copied.
    fn advance(&mut self, segments: usize, bytes: u64);

    /// It has ended; what its command is answered with, if not with success.
    fn end(&mut self, failure: Option<Sense>) -> Option<CommandAnswer>;
}

/// The answer to a command whose copy has failed in a segment.
pub(super) fn failed(outcome: &mut dyn CopyOutcome, segment: usize, error: Error) -> CommandAnswer {
    let code = match error {
        Error::OutOfRange => asc::NO_ADDITIONAL_SENSE_INFORMATION,
        _ => asc::THIRD_PARTY_DEVICE_FAILURE,
    };
    let answer = outcome.end(Some(aborted(segment, code)));
    answer.unwrap_or(CommandAnswer::Good(Vec::new()))
}

impl CopyOutcome for CopyRecord {
    fn advance(&mut self, segments: usize, bytes: u64) {
        (self.copies.borrow_mut()).advance(self.id, segments as u16, bytes);
    }

    fn end(&mut self, failure: Option<Sense>) -> Option<CommandAnswer> {
        let encoded = failure.map(|sense| {
            let mut bytes = SenseBytes::EMPTY;
            sense.encode(self.descriptor_sense, &mut bytes);
            bytes
        });
        self.copies.borrow_mut().end(self.id, encoded);
        self.has_ended = true;
        failure.map(CommandAnswer::Check)
    }
}

impl Drop for CopyRecord {
    fn drop(&mut self) {
        if !self.has_ended {
            self.copies.borrow_mut().forget(self.id);
        }
    }
}

/// A copy under way: a segment is taken by reference, or every piece of it is read, then
/// written.
pub(super) struct Copy {
    /// The logical unit that the command was sent to, for the error log.
    place: u32,
    /// Those that are left, the next one last.
    left: Vec<ReadySegment>,
    /// Bytes of the next one that are copied.
    done: u64,
    /// The piece that was read and is to be written.
    read: Option<u32>,
    /// The whole of the next one, to be taken by reference.
    share: Option<Arc<ReferenceCopy>>,
    /// That cannot be done of it.
    is_unshared: bool,
    /// Why it does not go on behind the last of them.
    fault: Option<Sense>,
    buf: BufRange,
    segments: usize,
    bytes: u64,
    outcome: Box<dyn CopyOutcome>,
    /// It ends when this changes.
    unchanged: Option<Arc<Watch>>,
}

impl Copy {
    pub(super) fn steps(
        place: u32,
        mut segments: Vec<ReadySegment>,
        fault: Option<Sense>,
        (outcome, unchanged): (Box<dyn CopyOutcome>, Option<Arc<Watch>>),
        buf: Buf,
    ) -> Box<Steps<CommandAnswer>> {
        if faults::is(Fault::ShortCopy) {
            segments.truncate(1);
        }
        segments.reverse();
        let copy = Copy {
            place,
            left: segments,
            done: 0,
            read: None,
            share: None,
            is_unshared: false,
            fault,
            buf: buf.range(),
            segments: 0,
            bytes: 0,
            outcome,
            unchanged,
        };
        Steps::planned(Box::new(copy), Some(buf))
    }

    /// Segments that are copied are left behind; whether the next one may be.
    fn take_next_segment(&mut self) -> bool {
        while let Some(segment) = self.left.last() {
            if self.done < segment.bytes.len {
                break;
            }
            self.left.pop();
            self.done = 0;
            self.is_unshared = false;
            self.segments += 1;
        }
        self.outcome.advance(self.segments, self.bytes);
        let Some(segment) = self.left.last() else {
            return false;
        };
        if !segment.is_allowed() {
            self.fault = Some(aborted(segment.number, asc::THIRD_PARTY_DEVICE_FAILURE));
            self.left.clear();
            return false;
        }
        true
    }
}

impl Copy {
    /// Whether anything is left to be copied.
    fn has_more(&self) -> bool {
        let left = self
            .left
            .iter()
            .map(|segment| segment.bytes.len)
            .sum::<u64>();
        self.read.is_some() || left > self.done
    }

    /// The step that takes the next segment by reference; `None` where it is to be copied.
    fn share(&mut self) -> Option<IoStep> {
        if self.is_unshared || faults::is(Fault::OneVolume) {
            return None;
        }
        self.is_unshared = true;
        let segment = self.left.last()?;
        let Bytes {
            source,
            destination,
            len,
        } = segment.bytes;
        let (from, to) = (&segment.source, &segment.destination);
        let durable = to.unit.writes_through();
        let (from, to) = ((&from.volume, source), (&to.volume, destination));
        let share = ReferenceCopy::new(from, to, len, durable, self.unchanged.as_ref())?;
        self.share = Some(share.clone());
        Some(IoStep {
            unit: self.place,
            volume: to.0.clone(),
            io: StepIo::ReferenceCopy(share),
        })
    }
}

impl StepPlan<CommandAnswer> for Copy {
    fn next(&mut self) -> Option<IoStep> {
        if self.share.take().is_some_and(|share| share.is_done()) {
            let segment = self.left.last().expect("it was taken");
            self.done = segment.bytes.len;
            self.bytes += segment.bytes.len;
        }
        // What was read last may be of after the change.
        if self
            .unchanged
            .as_ref()
            .is_some_and(|watch| watch.has_changed())
            && self.has_more()
        {
            self.fault = Some(Sense::illegal(asc::TOKEN_REVOKED));
            self.outcome.advance(self.segments, self.bytes);
            self.left.clear();
            return None;
        }
        if let Some(len) = self.read.take() {
            let segment = self.left.last().expect("it was read from");
            let at = segment.bytes.destination + at_in(segment, self.done, len);
            self.done += u64::from(len);
            self.bytes += u64::from(len);
            return Some(IoStep {
                unit: self.place,
                volume: segment.destination.volume.clone(),
                io: StepIo::Plain(store::Io::Write {
                    offset: at,
                    buf: self.buf.slice(0, len),
                    durable: segment.destination.unit.writes_through(),
                }),
            });
        }
        if !self.take_next_segment() {
            return None;
        }
        if let Some(step) = self.share() {
            return Some(step);
        }
        let segment = self.left.last().expect("there is a next one");
        let left = segment.bytes.len - self.done;
        let len = left.min(self.buf.len().into()) as u32;
        self.read = Some(len);
        let source = match faults::is(Fault::OneVolume) {
            true => &segment.destination,
            false => &segment.source,
        };
        Some(IoStep {
            unit: self.place,
            volume: source.volume.clone(),
            io: StepIo::Plain(store::Io::Read {
                offset: segment.bytes.source + at_in(segment, self.done, len),
                buf: self.buf.slice(0, len),
            }),
        })
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        let is_it = |party: &Party| Arc::ptr_eq(&party.volume, volume);
        (self.left.iter()).any(|segment| is_it(&segment.source) || is_it(&segment.destination))
    }

    fn failed(&mut self, error: Error) -> Option<CommandAnswer> {
        let number = self.left.last().map_or(0, |segment| segment.number);
        Some(failed(&mut *self.outcome, number, error))
    }

    fn verdict(&mut self) -> Option<CommandAnswer> {
        self.outcome.end(self.fault)
    }
}

/// Where a piece of `len` bytes lies in a segment of which `done` are copied.
fn at_in(segment: &ReadySegment, done: u64, len: u32) -> u64 {
    match segment.goes_backwards() {
        true => segment.bytes.len - done - u64::from(len),
        false => done,
    }
}
