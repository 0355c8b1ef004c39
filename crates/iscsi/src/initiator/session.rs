//! What the connections of one session share.

use std::cell::Cell;
use std::rc::Rc;

use wire::iscsi::serial_distance;

use crate::Negotiated;

/// One session: its name and its command numbering. Clones are the same one.
#[derive(Clone, Debug)]
pub struct InitiatorSession(Rc<Numbering>);

#[derive(Debug)]
struct Numbering {
    isid: [u8; 6],
    tsih: Cell<u16>,
    /// Of the next command.
    cmd_sn: Cell<u32>,
    exp_cmd_sn: Cell<u32>,
    max_cmd_sn: Cell<u32>,
    agreed: Cell<Negotiated>,
}

impl InitiatorSession {
    /// A session that is to be made: `isid` tells it from others of this
    /// initiator (section 11.12.5), `cmd_sn` is the first CmdSN.
    pub fn new(isid: [u8; 6], cmd_sn: u32) -> InitiatorSession {
        InitiatorSession(Rc::new(Numbering {
            isid,
            tsih: Cell::new(0),
            cmd_sn: Cell::new(cmd_sn),
            exp_cmd_sn: Cell::new(cmd_sn),
            max_cmd_sn: Cell::new(cmd_sn),
            agreed: Cell::default(),
        }))
    }

    /// Initiator part of the session identifier.
    pub fn isid(&self) -> [u8; 6] {
        self.0.isid
    }

    /// Target Session Identifying Handle; 0 before the leading connection has
    /// logged in.
    pub fn tsih(&self) -> u16 {
        self.0.tsih.get()
    }

    pub(super) fn set_tsih(&self, tsih: u16) {
        self.0.tsih.set(tsih);
    }

    /// What the leading login agreed on.
    pub fn agreed(&self) -> Negotiated {
        self.0.agreed.get()
    }

    pub(super) fn set_agreed(&self, agreed: Negotiated) {
        self.0.agreed.set(agreed);
    }

    /// CmdSN of the next command that is not immediate.
    #[inline]
    pub fn cmd_sn(&self) -> u32 {
        self.0.cmd_sn.get()
    }

    /// Commands that the target takes beyond those sent (section 4.2.2.1).
    #[inline]
    pub fn window(&self) -> u32 {
        let room = serial_distance(self.0.cmd_sn.get(), self.0.max_cmd_sn.get());
        (room.saturating_add(1)).max(0) as u32
    }

    /// Takes the next CmdSN, if the window has one.
    #[inline]
    pub(super) fn take_cmd_sn(&self) -> Option<u32> {
        let cmd_sn = self.0.cmd_sn.get();
        (self.window() > 0).then(|| {
            self.0.cmd_sn.set(cmd_sn.wrapping_add(1));
            cmd_sn
        })
    }

    /// Whether the target has taken the command `cmd_sn`.
    pub(super) fn is_taken(&self, cmd_sn: u32) -> bool {
        serial_distance(cmd_sn, self.0.exp_cmd_sn.get()) > 0
    }

    /// ExpCmdSN and MaxCmdSN of a PDU; they only grow, and a pair that makes no
    /// sense is ignored (section 4.2.2.1).
    #[inline]
    pub(super) fn update(&self, exp_cmd_sn: u32, max_cmd_sn: u32) {
        if serial_distance(exp_cmd_sn, max_cmd_sn) < -1 {
            return;
        }
        if serial_distance(self.0.exp_cmd_sn.get(), exp_cmd_sn) > 0 {
            self.0.exp_cmd_sn.set(exp_cmd_sn);
        }
        if serial_distance(self.0.max_cmd_sn.get(), max_cmd_sn) > 0 {
            self.0.max_cmd_sn.set(max_cmd_sn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_moves_on_and_never_back() {
        let session = InitiatorSession::new([0; 6], 0xffff_fffe);
        assert_eq!(session.window(), 1, "the login's own");
        session.update(0xffff_fffe, 1);
        assert_eq!(session.window(), 4);
        let taken: Vec<_> = std::iter::from_fn(|| session.take_cmd_sn()).collect();
        assert_eq!(taken, [0xffff_fffe, 0xffff_ffff, 0, 1]);
        assert_eq!(session.window(), 0);
        session.update(0xffff_ffff, 0);
        assert_eq!(session.window(), 0, "an old PDU");
        session.update(5, 2);
        assert_eq!(session.window(), 0, "a pair that makes no sense");
        assert!(!session.is_taken(0));
        session.update(1, 0);
        assert_eq!(session.window(), 0, "closed: MaxCmdSN is ExpCmdSN - 1");
        assert!(session.is_taken(0) && !session.is_taken(1));
        session.update(2, 4);
        assert_eq!(session.window(), 3);
    }
}
