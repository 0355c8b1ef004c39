//! Several paths to one namespace: a queue on each of several controllers of
//! one subsystem, used as one.
//!
//! [`Multipath`] takes commands as a [`Queue`] does and sends each on the path
//! that its [`Policy`] picks. A command that a path failed is sent again on
//! another: one without an answer only when its connection is really gone, so
//! that it is never on its way twice. Which paths there are, and what their
//! ANA states are, a [`Keeper`](crate::Keeper) tells by [`PathChange`]s.

mod path;
mod select;

use std::collections::VecDeque;

use machine::{Nanos, Tag};
use mem::BufRange;
use nvmf::host::{Completion, Data};
use reactor::{Driver, Token};
use wire::nvme::{Sqe, Status, io};

use crate::{Error, Event, PathChange, TOKENS_PER_QUEUE};

use path::{NONE, Path};
pub use path::{PathParams, PathReport, PathState};
pub use select::Policy;

/// How often a command is sent again that a live, accessible path failed.
const RETRIES_MAX: u8 = 5;
/// Commands that may be executed a second time when it is not known whether
/// they were: what they leave behind is the same.
const REPEATABLE: &[u8] = &[
    io::FLUSH,
    io::WRITE,
    io::READ,
    io::COMPARE,
    io::WRITE_ZEROES,
    io::DATASET_MANAGEMENT,
    io::VERIFY,
];

/// One command, on whatever path.
#[derive(Clone, Copy)]
struct PathRequest {
    sqe: Sqe,
    data: Data,
    memory: Option<BufRange>,
    /// How often a path failed it that was there.
    retries: u8,
    /// The path that failed it last.
    avoid: u16,
    /// It has taken too long: it fails when its connection is gone.
    is_late: bool,
    /// When a connection was lost last on which it had no answer.
    lost_at: Option<Nanos>,
}

impl PathRequest {
    /// One that is over, and was on no path.
    fn none() -> PathRequest {
        PathRequest {
            sqe: Sqe::new(io::FLUSH),
            data: Data::None,
            memory: None,
            retries: 0,
            avoid: NONE,
            is_late: false,
            lost_at: None,
        }
    }
}

/// Queues on several paths to one namespace.
pub struct Multipath {
    paths: Vec<Path>,
    policy: Policy,
    /// The path that took the last command.
    last: usize,
    base: Token,
    requests: Vec<PathRequest>,
    free: Vec<Tag>,
    /// Requests that no path takes now, in the order in which they go.
    waiting: VecDeque<Tag>,
    /// Requests that failed here, to be told.
    failed: VecDeque<Tag>,
    /// The path whose queue may have something to say.
    hot: Option<usize>,
    fast_io_fail: Option<Nanos>,
    /// Since when no path takes commands.
    pathless_since: Option<Nanos>,
    /// No path takes commands, for so long that they fail at once.
    is_failing: bool,
}

impl Multipath {
    /// Over `paths`, for `requests_max` commands at a time; none of the paths
    /// is there before a [`PathChange`] says so. Completions carry tokens from
    /// `base` on, [`TOKENS_PER_QUEUE`] for each path. Commands fail while no
    /// path takes them for `fast_io_fail` (`None`: they wait).
    #[must_use]
    pub fn new(
        policy: Policy,
        paths: &[PathParams],
        requests_max: u16,
        fast_io_fail: Option<Nanos>,
        base: Token,
    ) -> Self {
        assert!(!paths.is_empty() && requests_max > 0);
        let tokens = (base..).step_by(TOKENS_PER_QUEUE as usize);
        let paths = paths.iter().zip(tokens);
        Multipath {
            paths: paths
                .map(|(params, base)| Path::new(params.clone(), base))
                .collect(),
            policy,
            last: 0,
            base,
            requests: vec![PathRequest::none(); usize::from(requests_max)],
            free: (0..requests_max).rev().collect(),
            waiting: VecDeque::with_capacity(usize::from(requests_max)),
            failed: VecDeque::with_capacity(usize::from(requests_max)),
            hot: None,
            fast_io_fail,
            pathless_since: None,
            is_failing: false,
        }
    }

    /// Whether every path is there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.paths.iter().all(Path::is_live)
    }

    /// Whether commands fail at once, because no path takes them.
    #[inline]
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Whether every path was given up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.paths.iter().all(|p| p.state() == PathState::GivenUp)
    }

    /// Whether the driver is done with every connection and all memory.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.paths.iter().all(|path| path.queue.is_none())
    }

    /// What became of each path so far.
    pub fn reports(&self) -> impl Iterator<Item = PathReport> {
        self.paths.iter().map(Path::report)
    }

    /// Takes a command that may be executed twice (not a reservation, not one
    /// of a fused pair); it leaves with the next [`Multipath::flush`], or waits
    /// for a path. `memory` is what `data` describes and outlives the command.
    /// `None`: there are as many as there may be.
    #[inline]
    pub fn submit(
        &mut self,
        sqe: &Sqe,
        data: Data,
        memory: impl FnOnce(Tag) -> BufRange,
    ) -> Option<Tag> {
        debug_assert!(REPEATABLE.contains(&sqe.opcode) && sqe.flags & Sqe::FUSE_MASK == 0);
        let tag = self.free.pop()?;
        let memory = match data {
            Data::None => None,
            Data::In(_) | Data::Out(_) => Some(memory(tag)),
        };
        self.requests[usize::from(tag)] = PathRequest {
            sqe: *sqe,
            data,
            memory,
            ..PathRequest::none()
        };
        self.send(tag);
        Some(tag)
    }

    /// Puts a request on the path that the policy picks, or lets it wait.
    #[inline]
    fn send(&mut self, tag: Tag) {
        let request = &self.requests[usize::from(tag)];
        let picked = select::pick(self.policy, &self.paths, self.last, request.avoid);
        if let Some(at) = picked
            && self.paths[at].submit(tag, request)
        {
            self.last = at;
        } else if self.is_failing {
            self.failed.push_back(tag);
        } else {
            self.waiting.push_back(tag);
        }
    }

    /// Sends what was submitted on every path.
    #[inline]
    pub fn flush<D: Driver>(&mut self, driver: &mut D) {
        for path in &mut self.paths {
            if let Some(queue) = &mut path.queue {
                queue.flush(driver);
            }
        }
    }

    /// Takes a completion with one of the tokens. Call
    /// [`Multipath::next_completed`] until it yields nothing, then
    /// [`Multipath::flush`].
    #[inline]
    pub fn on_completion<D: Driver>(
        &mut self,
        driver: &mut D,
        token: Token,
        completion: reactor::Completion,
    ) {
        let at = ((token - self.base) / TOKENS_PER_QUEUE) as usize;
        if let Some(queue) = &mut self.paths[at].queue {
            queue.on_completion(driver, completion);
            self.hot = Some(at);
        }
    }

    /// The next command that came to its end, until `None`. Host Pathing Error
    /// is one that no path could take.
    #[inline]
    pub fn next_completed<D: Driver>(&mut self, driver: &mut D) -> Option<(Tag, Completion)> {
        loop {
            if let Some(tag) = self.failed.pop_front() {
                self.free.push(tag);
                return Some((tag, NO_PATH));
            }
            let at = self.hot?;
            let Some(queue) = &mut self.paths[at].queue else {
                self.hot = None;
                continue;
            };
            match queue.next_event(driver) {
                Some(Event::Completed(qtag, completion)) => {
                    let tag = self.paths[at].take(qtag);
                    if completion.status.is_success() || !self.try_again(at, tag, &completion) {
                        self.free.push(tag);
                        return Some((tag, completion));
                    }
                }
                Some(Event::Live(_)) => self.on_path_changed(driver.now()),
                Some(Event::Down(error)) => {
                    self.paths[at].lose(driver, Some(error));
                    self.on_path_changed(driver.now());
                }
                None => {
                    self.hot = None;
                    if self.paths[at].is_gone() {
                        self.fail_over(driver, at);
                    } else if !self.waiting.is_empty() {
                        self.on_path_changed(driver.now());
                    }
                }
            }
        }
    }

    /// When a connection was lost last on which this command had no answer: of one that
    /// [`Multipath::next_completed`] has just told of.
    #[must_use]
    pub fn lost_at(&self, tag: Tag) -> Option<Nanos> {
        self.requests[usize::from(tag)].lost_at
    }

    /// Fails the commands that are late: at once where one waits for a path; else when the
    /// connection is gone that it is on, which is ended now. Call [`Multipath::next_completed`]
    /// afterwards.
    pub fn fail_late<D: Driver>(&mut self, driver: &mut D, is_late: impl Fn(Tag) -> bool) {
        let requests = &mut self.requests;
        let mut is_late = |tag: Tag| {
            let request = &mut requests[usize::from(tag)];
            request.is_late |= is_late(tag);
            request.is_late
        };
        let (late, waiting): (VecDeque<Tag>, VecDeque<Tag>) =
            self.waiting.drain(..).partition(|tag| is_late(*tag));
        self.waiting.extend(waiting);
        self.failed.extend(late);
        for path in &mut self.paths {
            if path.carries(&mut is_late) {
                let waiting_for = "answer to an I/O command";
                path.lose(driver, Some(Error::TimedOut { waiting_for }));
            }
        }
    }

    /// Whether a command that failed goes on, on this path or another.
    #[cold]
    fn try_again(&mut self, at: usize, tag: Tag, completion: &Completion) -> bool {
        let status = completion.status;
        let request = &mut self.requests[usize::from(tag)];
        let is_state = match status.code() {
            // The state is what the log says, but no longer what was read of it.
            Status::ANA_INACCESSIBLE | Status::ANA_PERSISTENT_LOSS | Status::ANA_TRANSITION => true,
            Status::ABORTED_SQ_DELETION | Status::TRANSIENT_TRANSPORT => false,
            code if code.sct() == 3 => false,
            _ => return false,
        };
        if status.is_dnr() {
            return false;
        }
        if is_state {
            self.paths[at].stop_until_log_is_read();
        } else if request.retries == RETRIES_MAX {
            return false;
        } else {
            request.retries += 1;
        }
        request.avoid = at as u16;
        self.paths[at].failovers += 1;
        self.waiting.push_back(tag);
        true
    }

    /// The connection of a path is gone: what was on it goes elsewhere.
    #[cold]
    fn fail_over<D: Driver>(&mut self, driver: &mut D, at: usize) {
        let (path, now) = (&mut self.paths[at], driver.now());
        for tag in path.drain() {
            let request = &mut self.requests[usize::from(tag)];
            (request.avoid, request.lost_at) = (at as u16, Some(now));
            match request.is_late {
                true => self.failed.push_back(tag),
                false => self.waiting.push_back(tag),
            }
        }
        path.reopen(driver);
        self.on_path_changed(driver.now());
    }

    /// Sends what waited, as far as paths take it.
    #[inline]
    fn send_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let tag = self.waiting.pop_front().expect("counted");
            self.send(tag);
        }
    }

    /// A path came, went or changed its state.
    fn on_path_changed(&mut self, now: Nanos) {
        let is_usable = self.paths.iter().any(|path| path.access().is_some());
        match is_usable {
            true => (self.pathless_since, self.is_failing) = (None, false),
            false => {
                self.pathless_since.get_or_insert(now);
            }
        }
        if self.is_given_up() {
            self.fail_all();
        }
        self.send_waiting();
    }

    /// Nothing waits any longer, and nothing will while there is no path.
    fn fail_all(&mut self) {
        self.is_failing = true;
        self.failed.append(&mut self.waiting);
    }

    /// Takes what a keeper tells of path `at`. Call
    /// [`Multipath::next_completed`] and [`Multipath::flush`] afterwards.
    pub fn on_change<D: Driver>(&mut self, driver: &mut D, at: usize, change: PathChange) {
        self.paths[at].on_change(driver, change);
        self.on_path_changed(driver.now());
    }

    /// When [`Multipath::on_deadline`] wants to be called next.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let since = self.pathless_since.filter(|_| !self.is_failing)?;
        Some(since + self.fast_io_fail?)
    }

    /// Time has passed. Call [`Multipath::next_completed`] afterwards.
    pub fn on_deadline(&mut self, now: Nanos) {
        if self.deadline().is_some_and(|at| now >= at) {
            self.fail_all();
        }
    }

    /// Ends every connection, and with it every command;
    /// [`Multipath::is_closed`] tells when nothing is left of them.
    pub fn close<D: Driver>(&mut self, driver: &mut D) {
        for path in &mut self.paths {
            path.end(driver);
        }
    }
}

/// What a command is answered that no path could take.
const NO_PATH: Completion = Completion {
    status: Status::HOST_PATHING_ERROR,
    result: 0,
    sqhd: 0xffff,
    data_len: 0,
};
