//! Time, events and what the actors of a run share.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use random::Random;
use reactor::Nanos;

use crate::disk::Disk;
use crate::net::Net;
use crate::posix::Posix;

/// A driver of this world, by its number.
pub type DriverId = usize;

/// Microseconds and seconds of simulated time.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const S: Nanos = 1_000_000_000;

/// Lines of a trace that are kept.
const TRACE_LINES_MAX: usize = 1 << 20;

/// The script of what may block.
pub const BLOCKING_WORK: u32 = 0;

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub enum WorldEvent {
    /// A driver has something for its user.
    Turn(DriverId),
    /// An end of a connection may take more of what is to be sent.
    Pump(usize, usize),
    /// Something arrives at an end of a connection.
    Arrive(usize, usize),
    /// A receive of an end of a connection may complete.
    Recv(usize, usize),
    /// A connection is made or refused.
    Connect(usize),
    /// A closed end is let go of.
    Closed(usize, usize),
    /// The next step of a file operation.
    File(u64),
    /// The time of a completion has come that was asked for.
    Timer(u64),
    /// The end of an operation on a file of a simulated `dir`.
    Posix(u64),
    /// Of the run itself: faults, changes, hosts that return.
    Script(u32),
}

struct Scheduled {
    at: Nanos,
    sequence: u64,
    event: WorldEvent,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest is the greatest, so that it is on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Everything below the drivers.
pub struct World {
    /// The time.
    pub now: Nanos,
    /// Where all chance comes from.
    pub random: Random,
    /// Connections.
    pub net: Net,
    /// Files.
    pub disk: Disk,
    /// Files of a `dir`, where there is one.
    pub posix: Option<Posix>,
    heap: BinaryHeap<Scheduled>,
    sequence: u64,
    trace: Option<VecDeque<String>>,
    /// A digest of everything that happened, to compare two runs.
    digest: u64,
}

/// A world as its actors hold it.
pub type SharedWorld = Rc<RefCell<World>>;

impl World {
    /// A world in which nothing has happened.
    pub fn new(random: Random, net: Net, disk: Disk, traces: bool) -> SharedWorld {
        Rc::new(RefCell::new(World {
            now: S,
            random,
            net,
            disk,
            posix: None,
            heap: BinaryHeap::new(),
            sequence: 0,
            trace: traces.then(VecDeque::new),
            digest: 0,
        }))
    }

    /// Lets `event` happen after `delay`.
    pub fn after(&mut self, delay: Nanos, event: WorldEvent) {
        self.at(self.now + delay, event);
    }

    /// Lets `event` happen at a time that is not past.
    pub fn at(&mut self, at: Nanos, event: WorldEvent) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Scheduled {
            at: at.max(self.now),
            sequence,
            event,
        });
    }

    /// The next event, if one comes by `until`; it is that time then.
    pub fn next(&mut self, until: Nanos) -> Option<WorldEvent> {
        if self.heap.peek().is_none_or(|next| next.at > until) {
            self.now = until;
            return None;
        }
        let next = self.heap.pop()?;
        self.now = next.at;
        self.digest = random::mix(self.digest ^ next.at);
        Some(next.event)
    }

    /// A digest of when everything happened.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Notes what happens, for the text of a failure.
    pub fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let us = (self.now - S) as f64 / US as f64;
            trace.push_back(format!("{us:>12.3} us  {}", line()));
            if trace.len() > TRACE_LINES_MAX {
                trace.pop_front();
            }
        }
    }

    /// The last lines.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let trace = self.trace.iter().flatten();
        let skip = self
            .trace
            .as_ref()
            .map_or(0, |t| t.len().saturating_sub(count));
        trace.skip(skip).cloned().collect()
    }

    /// Lets one event of the network or the disk happen; others are the run's.
    pub fn run_event(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Pump(connection, end) => self.pump(connection, end),
            WorldEvent::Arrive(connection, end) => self.deliver_due(connection, end),
            WorldEvent::Recv(connection, end) => self.receive(connection, end),
            WorldEvent::Connect(attempt) => self.connect_ends(attempt),
            WorldEvent::Closed(connection, end) => self.end_closed(connection, end),
            WorldEvent::File(op) => self.file_step(op),
            WorldEvent::Timer(number) => self.timer_ends(number),
            WorldEvent::Posix(op) => self.posix_ends(op),
            WorldEvent::Turn(_) | WorldEvent::Script(_) => unreachable!("the run's own event"),
        }
    }
}
