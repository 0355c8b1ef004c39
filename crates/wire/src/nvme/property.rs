//! Controller properties (NVM Express Base Specification 2.0, section 3.1.3).

/// Offsets of the properties that a fabrics controller has, in bytes.
pub mod offset {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// Version 2.0.0.
pub const VS_2_0: u32 = 0x0002_0000;

/// Controller Capabilities (figure 36), built from what weft varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// Capabilities of a controller of the NVM Command Set with queues of up
    /// to `entries` entries, ready or disabled within `timeout_ms`.
    pub fn new(entries: u16, timeout_ms: u32) -> Self {
        let mqes = u64::from(entries.max(2) - 1);
        let timeout = u64::from((timeout_ms / 500).min(255));
        Cap(mqes | 1 << 16 | timeout << 24 | 1 << 37 | 1 << 59)
    }

    /// Maximum Queue Entries Supported, 0's based.
    pub fn mqes(self) -> u16 {
        self.0 as u16
    }

    /// Timeout in units of 500 ms.
    pub fn to(self) -> u8 {
        (self.0 >> 24) as u8
    }
}

/// Controller Configuration (figure 46).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

impl Cc {
    /// Enable.
    pub fn en(self) -> bool {
        self.0 & 1 != 0
    }

    /// I/O Command Set Selected: 0 is the NVM Command Set.
    pub fn css(self) -> u8 {
        (self.0 >> 4 & 7) as u8
    }

    /// Memory Page Size, a power of two of 4 KiB.
    pub fn mps(self) -> u8 {
        (self.0 >> 7 & 15) as u8
    }

    /// Arbitration Mechanism Selected: 0 is round robin.
    pub fn ams(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// Shutdown Notification: 0 none, 1 normal, 2 abrupt.
    pub fn shn(self) -> u8 {
        (self.0 >> 14 & 3) as u8
    }

    /// I/O Submission Queue Entry Size, a power of two: 6.
    pub fn iosqes(self) -> u8 {
        (self.0 >> 16 & 15) as u8
    }

    /// I/O Completion Queue Entry Size, a power of two: 4.
    pub fn iocqes(self) -> u8 {
        (self.0 >> 20 & 15) as u8
    }
}

/// Bits of the Controller Status (figure 47).
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1 << 0;
    /// Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown Status: processing.
    pub const SHST_OCCURRING: u32 = 1 << 2;
    /// Shutdown Status: complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
    /// Both bits of the Shutdown Status.
    pub const SHST_MASK: u32 = 3 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cap_bits_lie_where_figure_36_says() {
        let cap = Cap::new(128, 15_000);
        assert_eq!(cap.mqes(), 127);
        assert_eq!(cap.to(), 30);
        assert_eq!(cap.0 >> 16 & 1, 1, "CQR");
        assert_eq!(cap.0 >> 37 & 0xff, 1, "CSS: NVM only");
        assert_eq!(cap.0 >> 59 & 3, 1, "CRMS: with media");
    }

    #[test]
    fn cc_fields_of_a_linux_host() {
        let cc = Cc(0x0046_0001);
        assert!(cc.en());
        assert_eq!((cc.css(), cc.mps(), cc.ams(), cc.shn()), (0, 0, 0, 0));
        assert_eq!((cc.iosqes(), cc.iocqes()), (6, 4));
        assert_eq!(Cc(0x0046_4001).shn(), 1);
    }
}
