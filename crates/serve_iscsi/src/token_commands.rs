//! Copies by ROD tokens: POPULATE TOKEN, WRITE USING TOKEN and RECEIVE ROD TOKEN INFORMATION
//! (SBC-4, sections 4.28, 5.12, 5.25 and 5.59).
//!
//! A token holds for every initiator that is logged in to the logical unit it was made of, by
//! whichever target. Data goes as that of EXTENDED COPY does, with the rights of the initiator
//! that uses the token.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use engine::OnVolumes as _;
use engine::steps::{IoStep, StepPlan, Steps};
use machine::Tag;
use reactor::Driver;
use scsi::copy::Bytes;
use scsi::opcode::third_party_copy_out as action;
use scsi::token::{NexusOperations, Populate, WriteUsing, total};
use scsi::unmap::Range;
use scsi::{Command, Sense, SenseBytes, asc};
use store::reservation::Registrant;
use store::{Error, Volume};

use super::copy::{Copy, CopyOutcome, PIECE_BYTES, Party, ReadySegment};
use super::rod_tokens::NamedRanges;
use super::task::LIST_BYTES_MAX;
use super::{CommandAnswer, IscsiConnection};

/// Operations of a nexus that are under way or remembered.
pub(super) type RunningOperations = Rc<RefCell<NexusOperations>>;

impl IscsiConnection {
    /// Commands of copies by tokens, and all that a unit answers alone; false while memory is
    /// short.
    pub(super) fn execute_rod_command<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        command: &Command,
        driver: &mut D,
    ) -> bool {
        match *command {
            Command::PopulateToken { list_id, list_len } => {
                self.populate_token(tag, place, (list_id, list_len), driver)
            }
            Command::WriteUsingToken { list_id, list_len } => {
                self.write_using_token(tag, place, (list_id, list_len), driver)
            }
            Command::ReceiveRodTokenInformation {
                list_id,
                allocation_len,
            } => self.receive_rod_token_information(tag, (list_id, allocation_len)),
            _ => self.respond(tag, place, command),
        }
    }

    /// POPULATE TOKEN.
    fn populate_token<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        (list_id, list_len): (u32, u32),
        driver: &D,
    ) -> bool {
        let made = self.make_token(tag, place, (list_id, list_len), driver);
        match made {
            Ok(()) => self.complete_good(tag),
            Err(sense) => self.check(tag, &sense),
        }
        true
    }

    fn make_token<D: Driver>(
        &self,
        tag: Tag,
        place: u32,
        (list_id, list_len): (u32, u32),
        driver: &D,
    ) -> Result<(), Sense> {
        if list_len == 0 {
            return Ok(());
        }
        let lun = self.place(place);
        let Populate { timeout_s, ranges } =
            Populate::parse(&self.list(tag, list_len, LIST_BYTES_MAX), &lun.unit)?;
        // What another machine does to its blocks is not seen here.
        if lun.volume.remote().is_some() {
            return Err(Sense::illegal(asc::INVALID_TOKEN_OPERATION));
        }
        let blocks = total(&ranges) / u64::from(lun.unit.block_bytes);
        let operations = self.session().operations.clone();
        let mut operations = operations.borrow_mut();
        operations.begin(list_id, action::POPULATE_TOKEN, false, blocks)?;
        let owner = (owner(&self.registrant()), timeout_s);
        let tokens = &self.service.rod_tokens;
        let token = tokens.make(&lun.volume, ranges, owner, driver.now());
        match token {
            Ok(token) => {
                operations.advance(list_id, blocks);
                operations.end(list_id, Some(token));
                Ok(())
            }
            Err(sense) => {
                operations.forget(list_id);
                Err(sense)
            }
        }
    }

    /// RECEIVE ROD TOKEN INFORMATION; false while memory is short.
    fn receive_rod_token_information(
        &mut self,
        tag: Tag,
        (list_id, allocation_len): (u32, u32),
    ) -> bool {
        let operations = self.session().operations.clone();
        let told = operations.borrow().information(list_id, allocation_len);
        match told {
            Ok(bytes) => self.send_bytes(tag, &bytes),
            Err(sense) => {
                self.check(tag, &sense);
                true
            }
        }
    }

    /// WRITE USING TOKEN; false while memory is short.
    fn write_using_token<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        (list_id, list_len): (u32, u32),
        driver: &mut D,
    ) -> bool {
        if list_len == 0 {
            self.complete_good(tag);
            return true;
        }
        match self.steps_of_token(tag, place, (list_id, list_len), driver) {
            Ok(Some(steps)) => self.go_on(tag, None, steps, driver),
            Ok(None) => return false,
            Err(sense) => self.check(tag, &sense),
        }
        true
    }

    /// What WRITE USING TOKEN does; `None` while memory is short.
    fn steps_of_token<D: Driver>(
        &mut self,
        tag: Tag,
        place: u32,
        (list_id, list_len): (u32, u32),
        driver: &D,
    ) -> Result<Option<Box<Steps<CommandAnswer>>>, Sense> {
        let lun = self.place(place);
        let asked = WriteUsing::parse(&self.list(tag, list_len, LIST_BYTES_MAX), &lun.unit)?;
        let here = Party::new(lun, self.registrant());
        let block = u64::from(here.unit.block_bytes);
        let mut outcome = TokenOutcome {
            operations: self.session().operations.clone(),
            id: list_id,
            block,
            is_immediate: asked.is_immediate,
            descriptor_sense: here.unit.modes.descriptor_sense,
            has_ended: true,
        };
        let blocks = total(&asked.ranges) / block;
        if asked.is_of_zeros() {
            outcome.begin(blocks)?;
            let ranges = asked.ranges.into_iter().rev().collect();
            let zeros = ZeroRanges {
                place,
                here,
                left: ranges,
                bytes: 0,
                begun: 0,
                outcome: Box::new(outcome),
                is_refused: false,
            };
            return Ok(Some(Steps::planned(Box::new(zeros), None)));
        }
        let named = self.service.rod_tokens.named(&asked.token, driver.now())?;
        if asked.offset >= total(&named.ranges) {
            return Err(Sense::in_list(8, None));
        }
        let parties = self.parties();
        let ways = parties.iter();
        let ways = ways.filter(|party| Arc::ptr_eq(&party.volume, &named.volume));
        // To others it is as if there were none.
        let source = Party::best(ways).ok_or(Sense::illegal(asc::TOKEN_UNKNOWN))?;
        let mut segments = segments(&named, &asked, source, &here)?;
        // A READ would be refused there, too.
        let fault = match source.unit.state.is_active() {
            true => None,
            false => {
                segments.clear();
                Some(scsi::copy::aborted(0, asc::THIRD_PARTY_DEVICE_FAILURE))
            }
        };
        let Some(buf) = self.core.pool.get(PIECE_BYTES) else {
            return Ok(None);
        };
        outcome.begin(blocks)?;
        if asked.deletes {
            self.service.rod_tokens.remove(&asked.token);
        }
        let outcome = Box::new(outcome);
        Ok(Some(Copy::steps(
            place,
            segments,
            fault,
            (outcome, Some(named.watch)),
            buf,
        )))
    }
}

/// Name of the initiator of a nexus, whichever of its ports it is.
fn owner(registrant: &Registrant) -> String {
    match registrant {
        Registrant::ScsiNexus(nexus) => {
            let name = nexus.initiator.split(",i,").next();
            name.unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}

/// Where the data lies that a token names from an offset on, and where it goes: in whole blocks
/// of the destination, as many as there are. Refused where these are no whole blocks of the
/// source: a volume may read and write whole blocks alone.
fn segments(
    named: &NamedRanges,
    asked: &WriteUsing,
    source: &Party,
    here: &Party,
) -> Result<Vec<ReadySegment>, Sense> {
    let block = u64::from(here.unit.block_bytes);
    let mut from = VecDeque::from(named.ranges.clone());
    let mut skip = asked.offset;
    let mut available = (total(&named.ranges) - asked.offset) / block * block;
    let mut segments = Vec::new();
    for to in &asked.ranges {
        let mut to = *to;
        to.len = to.len.min(available);
        available -= to.len;
        while to.len > 0 {
            let first = from.front_mut().expect("there is as much");
            if skip >= first.len {
                skip -= first.len;
                from.pop_front();
                continue;
            }
            let len = to.len.min(first.len - skip);
            let is_whole = |party: &Party, at: u64| {
                let block = u64::from(party.unit.block_bytes);
                at.is_multiple_of(block) && len.is_multiple_of(block)
            };
            if !is_whole(source, first.offset + skip) || !is_whole(here, to.offset) {
                return Err(Sense::illegal(asc::INVALID_TOKEN_OPERATION));
            }
            segments.push(ReadySegment {
                number: segments.len(),
                source: source.clone(),
                destination: here.clone(),
                bytes: Bytes {
                    source: first.offset + skip,
                    destination: to.offset,
                    len,
                },
            });
            skip += len;
            (to.offset, to.len) = (to.offset + len, to.len - len);
        }
    }
    Ok(segments)
}

/// What RECEIVE ROD TOKEN INFORMATION tells of a WRITE USING TOKEN. One that is dropped before
/// it ends was aborted.
struct TokenOutcome {
    operations: RunningOperations,
    id: u32,
    /// Bytes of a block.
    block: u64,
    is_immediate: bool,
    descriptor_sense: bool,
    has_ended: bool,
}

impl TokenOutcome {
    fn begin(&mut self, blocks: u64) -> Result<(), Sense> {
        let mut operations = self.operations.borrow_mut();
        let begun = operations.begin(
            self.id,
            action::WRITE_USING_TOKEN,
            self.is_immediate,
            blocks,
        );
        // Until then what is remembered is of another.
        self.has_ended = begun.is_err();
        begun
    }
}

impl CopyOutcome for TokenOutcome {
    fn advance(&mut self, _: usize, bytes: u64) {
        let mut operations = self.operations.borrow_mut();
        operations.advance(self.id, bytes / self.block);
    }

    fn end(&mut self, failure: Option<Sense>) -> Option<CommandAnswer> {
        self.has_ended = true;
        let mut operations = self.operations.borrow_mut();
        let Some(sense) = failure else {
            operations.end(self.id, None);
            return None;
        };
        let mut bytes = SenseBytes::EMPTY;
        sense.encode(self.descriptor_sense, &mut bytes);
        operations.fail(self.id, bytes);
        (!self.is_immediate).then_some(CommandAnswer::Check(sense))
    }
}

impl Drop for TokenOutcome {
    fn drop(&mut self) {
        if !self.has_ended {
            self.operations.borrow_mut().forget(self.id);
        }
    }
}

/// WRITE USING TOKEN of zeros.
struct ZeroRanges {
    place: u32,
    here: Party,
    /// The next one last.
    left: Vec<Range>,
    /// Bytes that are done, and those that were begun last.
    bytes: u64,
    begun: u64,
    outcome: Box<dyn CopyOutcome>,
    is_refused: bool,
}

impl StepPlan<CommandAnswer> for ZeroRanges {
    fn next(&mut self) -> Option<IoStep> {
        self.bytes += std::mem::take(&mut self.begun);
        self.outcome.advance(0, self.bytes);
        let Range { offset, len } = *self.left.last()?;
        self.is_refused = !self.here.access().write;
        if self.is_refused {
            return None;
        }
        self.left.pop();
        self.begun = len;
        let zero = store::Io::Zero {
            offset,
            len,
            deallocate: self.here.unit.thin,
            durable: self.here.unit.writes_through(),
        };
        Some(IoStep {
            unit: self.place,
            volume: self.here.volume.clone(),
            io: zero.into(),
        })
    }

    fn touches(&self, volume: &Arc<dyn Volume>) -> bool {
        !self.left.is_empty() && Arc::ptr_eq(&self.here.volume, volume)
    }

    fn failed(&mut self, error: Error) -> Option<CommandAnswer> {
        Some(super::copy::failed(&mut *self.outcome, 0, error))
    }

    fn verdict(&mut self) -> Option<CommandAnswer> {
        let code = asc::THIRD_PARTY_DEVICE_FAILURE;
        let failure = self.is_refused.then(|| scsi::copy::aborted(0, code));
        self.outcome.end(failure)
    }
}
