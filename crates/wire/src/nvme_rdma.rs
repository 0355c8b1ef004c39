//! NVMe/RDMA: private data of connections and keyed descriptors (NVM Express RDMA Transport
//! Specification 1.0; Base 2.0, section 4.1.2.1).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::nvme::Sgl;

structure! {
    /// Private data of the host's request.
    CmRequest, 32, {
        /// Format: 0.
        recfmt: U16 = 0,
        /// Queue identifier.
        qid: U16 = 2,
        /// HRQSIZE: receives of the host, a count.
        hrqsize: U16 = 4,
        /// HSQSIZE: sends of the host, 0's based.
        hsqsize: U16 = 6,
        /// Controller identifier, of I/O queues.
        cntlid: U16 = 8,
        /// Reserved.
        reserved10: [u8; 22] = 10,
    }
}

structure! {
    /// Private data of a controller that accepts.
    CmAccept, 32, {
        /// Format: 0.
        recfmt: U16 = 0,
        /// CRQSIZE: receives of the controller, a count.
        crqsize: U16 = 2,
        /// Reserved.
        reserved4: [u8; 28] = 4,
    }
}

structure! {
    /// Private data of a controller that rejects.
    CmReject, 4, {
        /// Format: 0.
        recfmt: U16 = 0,
        /// One of [`cm_status`].
        sts: U16 = 2,
    }
}

structure! {
    /// A Keyed SGL Data Block descriptor: memory of the host under an STag.
    KeyedSgl, 16, {
        /// Tagged Offset of the first byte.
        address: U64 = 0,
        /// Bytes: 24 bits.
        length: [u8; 3] = 8,
        /// The STag.
        key: U32 = 11,
        /// [`KeyedSgl::PLAIN`] or [`KeyedSgl::INVALIDATE`].
        id: u8 = 15,
    }
}

impl KeyedSgl {
    /// Keyed Data Block descriptor with subtype Address.
    pub const PLAIN: u8 = 0x40;
    /// The same, whose STag the response invalidates.
    pub const INVALIDATE: u8 = 0x4f;

    /// A descriptor of the low 24 bits of `len` bytes.
    pub fn new(id: u8, key: u32, address: u64, len: u32) -> KeyedSgl {
        let [low, middle, high, _] = len.to_le_bytes();
        KeyedSgl {
            address: address.into(),
            length: [low, middle, high],
            key: key.into(),
            id,
        }
    }

    /// `sgl`, if it is keyed.
    pub fn of(sgl: &Sgl) -> Option<KeyedSgl> {
        let keyed: KeyedSgl = zerocopy::transmute!(*sgl);
        matches!(keyed.id, KeyedSgl::PLAIN | KeyedSgl::INVALIDATE).then_some(keyed)
    }

    /// Bytes.
    pub fn len(&self) -> u32 {
        let [low, middle, high] = self.length;
        u32::from_le_bytes([low, middle, high, 0])
    }

    /// Whether it stands for no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<KeyedSgl> for Sgl {
    fn from(keyed: KeyedSgl) -> Sgl {
        zerocopy::transmute!(keyed)
    }
}

/// STS of a rejection.
pub mod cm_status {
    /// Invalid Private Data Length.
    pub const INVALID_LENGTH: u16 = 1;
    /// Invalid RECFMT.
    pub const INVALID_RECFMT: u16 = 2;
    /// Invalid QID.
    pub const INVALID_QID: u16 = 3;
    /// Invalid HSQSIZE.
    pub const INVALID_HSQSIZE: u16 = 4;
    /// Invalid HRQSIZE.
    pub const INVALID_HRQSIZE: u16 = 5;
    /// No Resources.
    pub const NO_RESOURCES: u16 = 6;
    /// Invalid IRD.
    pub const INVALID_IRD: u16 = 7;
    /// Invalid ORD.
    pub const INVALID_ORD: u16 = 8;
    /// Invalid CNTLID.
    pub const INVALID_CNTLID: u16 = 9;

    /// What a status is called; `None`: it is reserved.
    pub fn name(sts: u16) -> Option<&'static str> {
        Some(match sts {
            INVALID_LENGTH => "Invalid Private Data Length",
            INVALID_RECFMT => "Invalid RECFMT",
            INVALID_QID => "Invalid QID",
            INVALID_HSQSIZE => "Invalid HSQSIZE",
            INVALID_HRQSIZE => "Invalid HRQSIZE",
            NO_RESOURCES => "No Resources",
            INVALID_IRD => "Invalid IRD",
            INVALID_ORD => "Invalid ORD",
            INVALID_CNTLID => "Invalid CNTLID",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_descriptor_lies_where_a_plain_one_does() {
        let keyed = KeyedSgl::new(KeyedSgl::INVALIDATE, 0x0102_0304, 0x1122, 0x0a0b0c);
        let sgl = Sgl::from(keyed);
        let bytes = [
            0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x0c, 0x0b, 0x0a, 4, 3, 2, 1, 0x4f,
        ];
        assert_eq!(sgl.as_bytes(), bytes);
        assert_eq!(KeyedSgl::of(&sgl), Some(keyed));
        assert_eq!(keyed.len(), 0x0a0b0c);
        assert_eq!(KeyedSgl::of(&Sgl::new(Sgl::TRANSPORT, 1)), None);
    }
}
