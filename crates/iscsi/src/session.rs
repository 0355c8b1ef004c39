//! What the connections of one session share: the order of commands.

use wire::iscsi::serial_distance;

/// Task management functions that await earlier commands, and commands that
/// never came but count as received: more of either are not remembered.
const PLUGGED_MAX: usize = 64;

/// Where a numbered request stands in the order of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmdSnOrder {
    /// It is next, and is taken.
    Now,
    /// It was taken before, or it is beyond MaxCmdSN: not to be noticed
    /// (RFC 7143, section 4.2.2.1).
    Ignored,
    /// Others must come before it, on other connections.
    Early,
    /// Others must come before it, but there is no other connection.
    Gap,
}

/// The sequencing of one session (RFC 7143, section 4.2.2.1): CmdSN runs through
/// all of its connections, which live on one core and share this.
///
/// MaxCmdSN stays the queue depth ahead of what is answered: a command moves it
/// on when it ends.
#[derive(Debug)]
pub struct Session {
    exp_cmd_sn: u32,
    /// The request ExpCmdSN has come, but for its data.
    is_arriving: bool,
    max_cmd_sn: u32,
    queue_depth: u16,
    /// Answers to come that do not move MaxCmdSN, because the depth shrank.
    debt: u32,
    is_discovery: bool,
    /// CIDs of the connections in the full feature phase.
    connections: Vec<u16>,
    /// Connections that stand before a CmdSN whose turn has not come.
    waiting: Vec<(u32, u16)>,
    /// CmdSNs ahead that count as received.
    plugged: Vec<u32>,
}

impl Session {
    /// A session whose first command will have `cmd_sn` and that takes
    /// `queue_depth` commands at a time, at least 1. A discovery session takes
    /// no SCSI commands.
    pub fn new(cmd_sn: u32, queue_depth: u16, is_discovery: bool) -> Session {
        assert!(queue_depth > 0, "a session takes commands");
        Session {
            exp_cmd_sn: cmd_sn,
            is_arriving: false,
            max_cmd_sn: cmd_sn.wrapping_add(u32::from(queue_depth) - 1),
            queue_depth,
            debt: 0,
            is_discovery,
            connections: Vec::new(),
            waiting: Vec::new(),
            plugged: Vec::new(),
        }
    }

    /// ExpCmdSN.
    #[inline]
    pub fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn
    }

    /// MaxCmdSN.
    #[inline]
    pub fn max_cmd_sn(&self) -> u32 {
        self.max_cmd_sn
    }

    /// Commands that it takes at a time.
    pub fn queue_depth(&self) -> u16 {
        self.queue_depth
    }

    /// Whether it is a discovery session.
    #[inline]
    pub fn is_discovery(&self) -> bool {
        self.is_discovery
    }

    /// CIDs of its connections.
    pub fn connections(&self) -> &[u16] {
        &self.connections
    }

    /// Takes another number of commands at a time from now on. MaxCmdSN never
    /// goes back: with fewer, it stands still until enough have ended.
    pub fn set_queue_depth(&mut self, queue_depth: u16) {
        assert!(queue_depth > 0, "a session takes commands");
        let (old, new) = (u32::from(self.queue_depth), u32::from(queue_depth));
        self.queue_depth = queue_depth;
        if new < old {
            self.debt += old - new;
            return;
        }
        let paid = self.debt.min(new - old);
        self.debt -= paid;
        self.max_cmd_sn = self.max_cmd_sn.wrapping_add(new - old - paid);
    }

    /// A connection whose next request has its turn now: let its machine look
    /// at what it has. Call it until it yields nothing whenever a machine of
    /// the session was run.
    pub fn next_due(&mut self) -> Option<u16> {
        let is_due = |(cmd_sn, _): &(u32, u16)| serial_distance(*cmd_sn, self.exp_cmd_sn) >= 0;
        let at = self.waiting.iter().position(is_due)?;
        Some(self.waiting.swap_remove(at).1)
    }

    pub(crate) fn join(&mut self, cid: u16) {
        self.connections.push(cid);
    }

    pub(crate) fn leave(&mut self, cid: u16) {
        self.connections.retain(|connection| *connection != cid);
        self.waiting.retain(|(_, waiting)| *waiting != cid);
    }

    /// Takes the request `cmd_sn`, which is not immediate, if it is its turn. Where
    /// `waits`, its data decides whether it counts as received: [`Session::confirm`]
    /// or [`Session::give_back`] says so, and no other is taken before.
    #[inline]
    pub(crate) fn take(&mut self, cmd_sn: u32, waits: bool) -> CmdSnOrder {
        let is_open = serial_distance(cmd_sn, self.max_cmd_sn) >= 0;
        if cmd_sn == self.exp_cmd_sn && is_open {
            if self.is_arriving {
                // The same one on another connection.
                return CmdSnOrder::Ignored;
            }
            match waits {
                true => self.is_arriving = true,
                false => self.advance(),
            }
            return CmdSnOrder::Now;
        }
        if !is_open || serial_distance(self.exp_cmd_sn, cmd_sn) < 0 || self.is_plugged(cmd_sn) {
            return CmdSnOrder::Ignored;
        }
        match self.connections.len() {
            0 | 1 => CmdSnOrder::Gap,
            _ => CmdSnOrder::Early,
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        if !self.plugged.is_empty() {
            self.skip_plugged();
        }
    }

    /// The data of the request that is arriving is intact.
    #[inline]
    pub(crate) fn confirm(&mut self) {
        debug_assert!(self.is_arriving);
        self.is_arriving = false;
        self.advance();
    }

    /// The request that was taken last is rejected, or its data is not intact: it was
    /// never received (section 7.3). What is plugged right behind it stays so.
    #[cold]
    pub(crate) fn give_back(&mut self, cmd_sn: u32) {
        if std::mem::take(&mut self.is_arriving) {
            return;
        }
        let behind = cmd_sn.wrapping_add(1);
        let passed = serial_distance(behind, self.exp_cmd_sn);
        debug_assert!(passed >= 0, "it was taken");
        self.plugged
            .extend((0..passed).map(|n| behind.wrapping_add(n as u32)));
        self.exp_cmd_sn = cmd_sn;
    }

    /// Whether all requests before `cmd_sn` were taken. One that is beyond the
    /// window is taken for a mistake and waits for nothing.
    #[inline]
    pub(crate) fn has_all_before(&self, cmd_sn: u32) -> bool {
        let ahead = serial_distance(self.exp_cmd_sn, cmd_sn);
        ahead <= 0 || ahead > serial_distance(self.exp_cmd_sn, self.max_cmd_sn) + 1
    }

    /// `cid` waits until all before `cmd_sn` were taken.
    pub(crate) fn wait(&mut self, cmd_sn: u32, cid: u16) {
        if !self.waiting.contains(&(cmd_sn, cid)) && self.waiting.len() < PLUGGED_MAX {
            self.waiting.push((cmd_sn, cid));
        }
    }

    /// The request `cmd_sn` counts as received, although it never came: its
    /// task was aborted (section 11.6.1). False if it is outside the window, or
    /// coming.
    pub(crate) fn plug_gap(&mut self, cmd_sn: u32) -> bool {
        let is_inside = serial_distance(self.exp_cmd_sn, cmd_sn) >= 0
            && serial_distance(cmd_sn, self.max_cmd_sn) >= 0;
        let is_coming = self.is_arriving && cmd_sn == self.exp_cmd_sn;
        if !is_inside || is_coming || self.plugged.len() >= PLUGGED_MAX {
            return false;
        }
        if !self.is_plugged(cmd_sn) {
            self.plugged.push(cmd_sn);
            self.ended();
        }
        self.skip_plugged();
        true
    }

    fn is_plugged(&self, cmd_sn: u32) -> bool {
        self.plugged.contains(&cmd_sn)
    }

    #[cold]
    fn skip_plugged(&mut self) {
        while let Some(at) = self.plugged.iter().position(|sn| *sn == self.exp_cmd_sn) {
            self.plugged.swap_remove(at);
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        }
    }

    /// A request that was taken has ended: there is room for one more.
    #[inline]
    pub(crate) fn ended(&mut self) {
        match self.debt {
            0 => self.max_cmd_sn = self.max_cmd_sn.wrapping_add(1),
            _ => self.debt -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(cmd_sn: u32) -> Session {
        let mut session = Session::new(cmd_sn, 4, false);
        session.join(0);
        session
    }

    #[test]
    fn the_window_moves_with_answers_and_wraps() {
        let mut session = session(u32::MAX - 1);
        assert_eq!(
            (session.exp_cmd_sn(), session.max_cmd_sn()),
            (u32::MAX - 1, 1)
        );
        for cmd_sn in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert_eq!(session.take(cmd_sn, false), CmdSnOrder::Now);
        }
        // Closed: the next one is beyond MaxCmdSN, an old one is old.
        assert_eq!(session.take(2, false), CmdSnOrder::Ignored);
        assert_eq!(session.take(1, false), CmdSnOrder::Ignored);
        session.ended();
        assert_eq!(session.take(2, false), CmdSnOrder::Now);
    }

    #[test]
    fn the_queue_depth_changes_without_the_window_going_back() {
        let mut session = session(0);
        session.set_queue_depth(2);
        assert_eq!(session.max_cmd_sn(), 3);
        session.ended();
        session.set_queue_depth(3);
        assert_eq!(session.max_cmd_sn(), 3);
        session.ended();
        assert_eq!(session.max_cmd_sn(), 4);
        session.set_queue_depth(8);
        assert_eq!(session.max_cmd_sn(), 9);
    }

    #[test]
    fn request_that_is_given_back_leaves_its_gap_before_those_that_are_plugged() {
        let mut session = session(5);
        assert!(session.plug_gap(6) && session.plug_gap(7));
        for has_digest in [false, true] {
            assert_eq!(session.take(5, has_digest), CmdSnOrder::Now);
            session.give_back(5);
            assert_eq!(session.exp_cmd_sn(), 5);
        }
        assert_eq!(session.take(7, false), CmdSnOrder::Ignored);
        assert_eq!(session.take(5, false), CmdSnOrder::Now);
        assert_eq!(session.exp_cmd_sn(), 8);
    }

    #[test]
    fn a_connection_with_an_early_cmd_sn_waits_for_the_others() {
        let mut session = session(5);
        assert_eq!(session.take(6, false), CmdSnOrder::Gap);
        session.join(1);
        assert_eq!(session.take(6, false), CmdSnOrder::Early);
        session.wait(6, 1);
        session.wait(6, 1);
        assert_eq!(session.next_due(), None);
        assert_eq!(session.take(5, false), CmdSnOrder::Now);
        assert_eq!((session.next_due(), session.next_due()), (Some(1), None));
        session.wait(8, 1);
        session.leave(1);
        assert_eq!(session.take(6, false), CmdSnOrder::Now);
        assert_eq!(session.take(7, false), CmdSnOrder::Now);
        assert_eq!(session.next_due(), None);
    }

    #[test]
    fn an_aborted_command_that_never_came_is_passed_over() {
        let mut session = session(5);
        session.join(1);
        assert!(session.has_all_before(5) && !session.has_all_before(6));
        assert!(session.has_all_before(10), "beyond the window");
        assert!(session.plug_gap(6) && !session.plug_gap(40) && !session.plug_gap(4));
        assert_eq!(session.take(6, false), CmdSnOrder::Ignored);
        assert_eq!(session.take(5, false), CmdSnOrder::Now);
        assert_eq!((session.exp_cmd_sn(), session.max_cmd_sn()), (7, 9));
        assert!(session.plug_gap(7));
        assert_eq!(session.exp_cmd_sn(), 8);
    }
}
