//! What the I/Os of a job go over: one queue, or one on each of several paths.

use std::net::SocketAddr;

use host::{
    Completion, Data, Event, Memory, Multipath, PathChange, PathParams, PathReport, Policy, Queue,
    QueueParams,
};
use machine::{Nanos, Tag};
use mem::BufRange;
use reactor::{Driver, Token};
use wire::nvme::Sqe;

/// What a line is to be.
#[derive(Clone)]
pub enum LinePlan {
    /// One queue; where it is lost the load ends.
    Queue(SocketAddr, Box<QueueParams>),
    /// A queue on each path, as they come and go.
    Paths {
        /// Which path takes an I/O.
        policy: Policy,
        /// How long I/Os wait where there is no path; `None`: for ever.
        fast_io_fail: Option<Nanos>,
        /// The paths.
        paths: Vec<PathParams>,
    },
}

impl LinePlan {
    /// How many connections it has at a time.
    pub fn connections(&self) -> usize {
        match self {
            LinePlan::Queue(..) => 1,
            LinePlan::Paths { paths, .. } => paths.len(),
        }
    }
}

/// What happened on a line.
pub enum LineEvent {
    /// An I/O came to its end.
    Completed(Tag, Completion),
    /// No I/O will: why, in words.
    Down(String),
}

/// What the I/Os of a job go over.
#[derive(Default)]
pub enum Line {
    /// Nothing yet.
    #[default]
    None,
    /// One queue.
    Queue(Box<Queue>),
    /// A queue on each path.
    Paths(Box<Multipath>),
    /// Every path was given up, and that was told.
    Severed(Box<Multipath>),
}

impl Line {
    /// Starts to connect, or to wait for paths.
    ///
    /// # Errors
    /// Where there can be no socket.
    pub fn open<D: Driver>(
        driver: &mut D,
        plan: &LinePlan,
        iodepth: u16,
        base: Token,
    ) -> std::io::Result<Line> {
        Ok(match plan {
            LinePlan::Queue(to, params) => Line::Queue(Box::new(Queue::open(
                driver,
                *to,
                (**params).clone(),
                base,
            )?)),
            LinePlan::Paths {
                policy,
                fast_io_fail,
                paths,
            } => {
                let paths = Multipath::new(*policy, paths, iodepth, *fast_io_fail, base);
                Line::Paths(Box::new(paths))
            }
        })
    }

    /// Whether every connection is made.
    pub fn is_live(&self) -> bool {
        match self {
            Line::None => true,
            Line::Queue(queue) => queue.is_live(),
            Line::Paths(paths) | Line::Severed(paths) => paths.is_whole(),
        }
    }

    /// Whether I/Os would fail at once, for want of a path.
    #[inline]
    pub fn is_failing(&self) -> bool {
        match self {
            Line::None | Line::Queue(_) => false,
            Line::Paths(paths) | Line::Severed(paths) => paths.is_failing(),
        }
    }

    /// Whether the driver is done with it and with all memory.
    pub fn is_closed(&self) -> bool {
        match self {
            Line::None => true,
            Line::Queue(queue) => queue.is_closed(),
            Line::Paths(paths) | Line::Severed(paths) => paths.is_closed(),
        }
    }

    /// What became of each path, if there are several.
    pub fn paths(&self) -> Vec<PathReport> {
        match self {
            Line::None | Line::Queue(_) => Vec::new(),
            Line::Paths(paths) | Line::Severed(paths) => paths.reports().collect(),
        }
    }

    /// Submits an I/O with the memory of its tag. `None`: there is no room.
    #[inline]
    pub fn submit(
        &mut self,
        sqe: &Sqe,
        data: Data,
        memory: impl FnOnce(Tag) -> BufRange,
    ) -> Option<Tag> {
        match self {
            Line::None | Line::Severed(_) => None,
            Line::Queue(queue) => queue.submit(sqe, data, |tag| Memory::lent(memory(tag))),
            Line::Paths(paths) => paths.submit(sqe, data, memory),
        }
    }

    /// Sends what was submitted.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        match self {
            Line::None => {}
            Line::Queue(queue) => queue.flush(driver),
            Line::Paths(paths) | Line::Severed(paths) => paths.flush(driver),
        }
    }

    /// Takes a completion with one of its tokens. Call [`Line::next_event`]
    /// until it yields nothing.
    #[inline]
    pub fn on_completion<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        completion: reactor::Completion,
    ) {
        match self {
            Line::None => {}
            Line::Queue(queue) => queue.on_completion(driver, completion),
            Line::Paths(paths) | Line::Severed(paths) => {
                paths.on_completion(driver, token, completion);
            }
        }
    }

    /// Takes what is told of one of its paths, as [`Line::on_completion`] does.
    pub fn on_path<D: Driver>(&mut self, driver: &mut D, path: u16, change: PathChange) {
        if let Line::Paths(paths) = self {
            paths.on_change(driver, path.into(), change);
        }
    }

    /// When [`Line::on_deadline`] wants to be called next.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        match self {
            Line::Paths(paths) => paths.deadline(),
            _ => None,
        }
    }

    /// Time has passed; as [`Line::on_completion`].
    pub fn on_deadline(&mut self, now: Nanos) {
        if let Line::Paths(paths) = self {
            paths.on_deadline(now);
        }
    }

    /// What happened, until `None`.
    #[inline]
    pub fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<LineEvent> {
        match self {
            Line::None => None,
            Line::Queue(queue) => loop {
                match queue.next_event(driver)? {
                    Event::Completed(tag, completion) => {
                        return Some(LineEvent::Completed(tag, completion));
                    }
                    Event::Live(_) => {}
                    Event::Down(error) => return Some(LineEvent::Down(error.to_string())),
                }
            },
            Line::Paths(paths) | Line::Severed(paths) => {
                if let Some((tag, completion)) = paths.next_completed(driver) {
                    return Some(LineEvent::Completed(tag, completion));
                }
                self.sever()
            }
        }
    }

    /// Tells once that every path was given up.
    fn sever(&mut self) -> Option<LineEvent> {
        if !matches!(self, Line::Paths(paths) if paths.is_given_up()) {
            return None;
        }
        if let Line::Paths(paths) = std::mem::take(self) {
            *self = Line::Severed(paths);
        }
        Some(LineEvent::Down("every path was given up".into()))
    }

    /// Ends it, and with it every I/O under way.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        match self {
            Line::None => {}
            Line::Queue(queue) => queue.close(driver),
            Line::Paths(paths) | Line::Severed(paths) => paths.close(driver),
        }
    }
}
