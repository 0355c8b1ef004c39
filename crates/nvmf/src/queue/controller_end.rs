//! What a driver says of commands, to the controller's end of any transport.

use std::sync::Arc;

use machine::{Machine, Nanos, Tag};

use super::{AbortOutcome, Done, Queue, Role};
use crate::command::Geometry;

/// The controller's end of a queue pair, whatever transport carries it: its [`Queue`], and
/// what a driver says of the commands in it.
pub trait ControllerEnd: Machine {
    /// Its commands.
    fn queue(&self) -> &Queue;

    /// The same, for what every transport does alike.
    fn queue_mut(&mut self) -> &mut Queue;

    /// Memory for `tag` is there.
    fn prepared(&mut self, tag: Tag);

    /// Moves no more data of commands that were given up.
    fn stop_withdrawn(&mut self);

    /// Connect will succeed: call it before completing Connect.
    fn attach(&mut self, role: Role) {
        self.queue_mut().attach(role);
    }

    /// The host has authenticated: its commands are executed from now on.
    fn authenticated(&mut self) {
        self.queue_mut().set_authenticated(true);
    }

    /// It has failed to, at `now`: no command of it is executed any more, and soon the
    /// connection ends.
    fn authentication_failed(&mut self, now: Nanos) {
        self.queue_mut().authentication_failed(now);
    }

    /// The command of `tag` ended: after [`Op::Execute`](super::Op) or `ExecuteFused`, or instead
    /// of [`ControllerEnd::prepared`].
    #[inline]
    fn complete(&mut self, tag: Tag, done: Done) {
        self.queue_mut().complete(tag, done);
        self.stop_withdrawn();
    }

    /// The namespaces of the queue changed: commands from now on may name these. A namespace
    /// keeps its index while it exists. Commands whose data is still arriving are checked
    /// again.
    fn set_namespaces(&mut self, namespaces: Arc<[Geometry]>) {
        self.queue_mut().set_namespaces(namespaces);
        self.stop_withdrawn();
    }

    /// Ends the command `cid`, if it is not answered already (Base 2.0, section 5.1).
    fn abort(&mut self, cid: u16) -> AbortOutcome {
        let outcome = self.queue_mut().abort(cid);
        self.stop_withdrawn();
        outcome
    }
}
