//! Authentication Send and Receive, and the messages of DH-HMAC-CHAP that they carry (NVM
//! Express Base Specification 2.0, sections 6.1, 6.2 and 8.13.5).

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Sqe, fabrics_sqe, fctype};

/// SECP: NVMe over Fabrics in-band authentication.
pub const SECP: u8 = 0xe9;
/// SPSP0 and SPSP1.
pub const SPSP: u8 = 0x01;
/// Connect's answer, dword 0: authentication is required (AUTHREQ, ATR).
pub const ATR: u32 = 1 << 17;
/// Connect's answer, dword 0: authentication and a secure channel are (AUTHREQ, ASCR).
pub const ASCR: u32 = 1 << 18;

/// AUTH_Type.
pub mod auth_type {
    /// Messages of all protocols.
    pub const COMMON: u8 = 0x00;
    /// Those of DH-HMAC-CHAP.
    pub const DHCHAP: u8 = 0x01;
}

/// AUTH_ID.
pub mod auth_id {
    /// AUTH_Negotiate, a common message.
    pub const NEGOTIATE: u8 = 0x00;
    /// DH-HMAC-CHAP_Challenge.
    pub const CHALLENGE: u8 = 0x01;
    /// DH-HMAC-CHAP_Reply.
    pub const REPLY: u8 = 0x02;
    /// DH-HMAC-CHAP_Success1.
    pub const SUCCESS1: u8 = 0x03;
    /// DH-HMAC-CHAP_Success2.
    pub const SUCCESS2: u8 = 0x04;
    /// AUTH_Failure2, a common message: the host's.
    pub const FAILURE2: u8 = 0xf0;
    /// AUTH_Failure1, a common message: the controller's.
    pub const FAILURE1: u8 = 0xf1;
}

/// Secure Channel Concatenation: the key for TLS that an authentication makes besides (SC_C of
/// AUTH_Negotiate: Base 2.1, section 8.3.4.4.1). None is made where SC_C is 0, NOSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Concatenation {
    /// The first key, on an Admin Queue without TLS.
    NewTlsPsk = 0x02,
    /// Another one, on an Admin Queue with TLS.
    ReplaceTlsPsk = 0x03,
}

/// Reason Code of both failures: authentication failure, the only one.
pub const AUTHENTICATION_FAILURE: u8 = 0x01;

/// Reason Code Explanation of both failures (figure 439).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureExplanation {
    /// Authentication failed.
    Failed = 0x01,
    /// Authentication protocol not usable.
    ProtocolNotUsable = 0x02,
    /// Secure channel concatenation mismatch.
    ConcatenationMismatch = 0x03,
    /// Hash function not usable.
    HashNotUsable = 0x04,
    /// DH group not usable.
    GroupNotUsable = 0x05,
    /// Incorrect payload.
    IncorrectPayload = 0x06,
    /// Incorrect protocol message.
    IncorrectMessage = 0x07,
}

impl FailureExplanation {
    /// Each of them, with its name.
    pub const ALL: [(FailureExplanation, &str); 7] = [
        (FailureExplanation::Failed, "authentication failed"),
        (
            FailureExplanation::ProtocolNotUsable,
            "authentication protocol not usable",
        ),
        (
            FailureExplanation::ConcatenationMismatch,
            "secure channel concatenation mismatch",
        ),
        (
            FailureExplanation::HashNotUsable,
            "hash function not usable",
        ),
        (FailureExplanation::GroupNotUsable, "DH group not usable"),
        (FailureExplanation::IncorrectPayload, "incorrect payload"),
        (
            FailureExplanation::IncorrectMessage,
            "incorrect protocol message",
        ),
    ];

    /// What a code says, in words.
    pub fn name(code: u8) -> &'static str {
        let known = Self::ALL.iter().find(|(known, _)| *known as u8 == code);
        known.map_or("an unknown reason", |(_, name)| name)
    }
}

/// Authentication Send or Authentication Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationCommand {
    /// SECP.
    pub secp: u8,
    /// SPSP0 and SPSP1.
    pub spsp: [u8; 2],
    /// Bytes of the message (TL), or that there is room for (AL).
    pub len: u32,
}

impl AuthenticationCommand {
    /// One with a message of `len` bytes, or room for it.
    pub fn new(len: u32) -> Self {
        AuthenticationCommand {
            secp: SECP,
            spsp: [SPSP; 2],
            len,
        }
    }

    /// Reads the command's own fields.
    pub fn decode(sqe: &Sqe) -> Self {
        let [_, spsp0, spsp1, secp] = sqe.cdw10.get().to_le_bytes();
        AuthenticationCommand {
            secp,
            spsp: [spsp0, spsp1],
            len: sqe.cdw11.get(),
        }
    }

    /// The entry of the Authentication Send; SGL and CID are the transport's to fill in.
    pub fn encode_send(&self) -> Sqe {
        self.encode(fctype::AUTHENTICATION_SEND)
    }

    /// The entry of the Authentication Receive.
    pub fn encode_receive(&self) -> Sqe {
        self.encode(fctype::AUTHENTICATION_RECEIVE)
    }

    fn encode(&self, fctype: u8) -> Sqe {
        let [spsp0, spsp1] = self.spsp;
        Sqe {
            cdw10: U32::new(u32::from_le_bytes([0, spsp0, spsp1, self.secp])),
            cdw11: U32::new(self.len),
            ..fabrics_sqe(fctype)
        }
    }
}

/// What every message begins with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MessageHeader {
    /// AUTH_Type.
    pub auth_type: u8,
    /// AUTH_ID.
    pub auth_id: u8,
    reserved2: [u8; 2],
    /// Transaction Identifier.
    pub t_id: U16,
}

impl MessageHeader {
    /// Of a common message.
    pub fn common(auth_id: u8, t_id: u16) -> Self {
        MessageHeader {
            auth_type: auth_type::COMMON,
            auth_id,
            reserved2: [0; 2],
            t_id: U16::new(t_id),
        }
    }

    /// Of a message of DH-HMAC-CHAP.
    pub fn dhchap(auth_id: u8, t_id: u16) -> Self {
        MessageHeader {
            auth_type: auth_type::DHCHAP,
            ..MessageHeader::common(auth_id, t_id)
        }
    }
}

/// AUTH_Negotiate; the descriptors of protocols follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Negotiate {
    /// Header.
    pub header: MessageHeader,
    /// Secure Channel Concatenation.
    pub sc_c: u8,
    /// Number of protocol descriptors.
    pub napd: u8,
}

/// Identifiers of hashes, and of groups, in a descriptor.
pub const IDS_MAX: usize = 30;

/// A protocol descriptor of AUTH_Negotiate, of DH-HMAC-CHAP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ProtocolDescriptor {
    /// Authentication Protocol Identifier.
    pub authid: u8,
    reserved1: u8,
    /// How many hashes.
    pub halen: u8,
    /// How many groups.
    pub dhlen: u8,
    /// HashIDs.
    pub hashes: [u8; IDS_MAX],
    /// DHgIDs.
    pub groups: [u8; IDS_MAX],
}

impl ProtocolDescriptor {
    /// AUTHID of DH-HMAC-CHAP.
    pub const DHCHAP: u8 = 0x01;

    /// Of DH-HMAC-CHAP; what is more than there is room for is left out.
    pub fn new(hashes: &[u8], groups: &[u8]) -> Self {
        let list = |from: &[u8]| {
            let (mut ids, len) = ([0; IDS_MAX], from.len().min(IDS_MAX));
            ids[..len].copy_from_slice(&from[..len]);
            (ids, len as u8)
        };
        let ((hashes, halen), (groups, dhlen)) = (list(hashes), list(groups));
        ProtocolDescriptor {
            authid: ProtocolDescriptor::DHCHAP,
            reserved1: 0,
            halen,
            dhlen,
            hashes,
            groups,
        }
    }
}

/// DH-HMAC-CHAP_Challenge; the challenge and the DH value follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ChallengeMessage {
    /// Header.
    pub header: MessageHeader,
    /// Bytes of a digest.
    pub hl: u8,
    reserved7: u8,
    /// HashID.
    pub hashid: u8,
    /// DHgID.
    pub dhgid: u8,
    /// Bytes of the DH value.
    pub dhvlen: U16,
    /// SEQNUM.
    pub seqnum: U32,
}

impl ChallengeMessage {
    /// A message of the hash and group of these numbers and lengths.
    pub fn new(t_id: u16, (hashid, hl): (u8, u8), (dhgid, dhvlen): (u8, u16), seqnum: u32) -> Self {
        ChallengeMessage {
            header: MessageHeader::dhchap(auth_id::CHALLENGE, t_id),
            hl,
            reserved7: 0,
            hashid,
            dhgid,
            dhvlen: U16::new(dhvlen),
            seqnum: U32::new(seqnum),
        }
    }
}

/// DH-HMAC-CHAP_Reply; the response, the host's challenge and the DH value follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReplyMessage {
    /// Header.
    pub header: MessageHeader,
    /// Bytes of a digest.
    pub hl: u8,
    reserved7: u8,
    /// The host's challenge is valid: 0 or 1.
    pub cvalid: u8,
    reserved9: u8,
    /// Bytes of the DH value.
    pub dhvlen: U16,
    /// SEQNUM.
    pub seqnum: U32,
}

impl ReplyMessage {
    /// A message with digests and a DH value of these lengths.
    pub fn new(t_id: u16, hl: u8, has_challenge: bool, dhvlen: u16, seqnum: u32) -> Self {
        ReplyMessage {
            header: MessageHeader::dhchap(auth_id::REPLY, t_id),
            hl,
            reserved7: 0,
            cvalid: has_challenge.into(),
            reserved9: 0,
            dhvlen: U16::new(dhvlen),
            seqnum: U32::new(seqnum),
        }
    }
}

/// DH-HMAC-CHAP_Success1; the response follows where it is valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Success1 {
    /// Header.
    pub header: MessageHeader,
    /// Bytes of a digest.
    pub hl: u8,
    reserved7: u8,
    /// The controller's response is valid: 0 or 1.
    pub rvalid: u8,
    reserved9: [u8; 7],
}

impl Success1 {
    /// A message with or without a response.
    pub fn new(t_id: u16, hl: u8, has_response: bool) -> Self {
        Success1 {
            header: MessageHeader::dhchap(auth_id::SUCCESS1, t_id),
            hl,
            reserved7: 0,
            rvalid: has_response.into(),
            reserved9: [0; 7],
        }
    }
}

/// DH-HMAC-CHAP_Success2.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Success2 {
    /// Header.
    pub header: MessageHeader,
    reserved6: [u8; 10],
}

impl Success2 {
    /// A message.
    pub fn new(t_id: u16) -> Self {
        Success2 {
            header: MessageHeader::dhchap(auth_id::SUCCESS2, t_id),
            reserved6: [0; 10],
        }
    }
}

/// AUTH_Failure1 and AUTH_Failure2.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FailureMessage {
    /// Header.
    pub header: MessageHeader,
    /// Reason Code.
    pub reason: u8,
    /// Reason Code Explanation.
    pub explanation: u8,
}

impl FailureMessage {
    /// A message of this AUTH_ID.
    pub fn new(auth_id: u8, t_id: u16, explanation: FailureExplanation) -> Self {
        FailureMessage {
            header: MessageHeader::common(auth_id, t_id),
            reason: AUTHENTICATION_FAILURE,
            explanation: explanation as u8,
        }
    }
}

const _: () = {
    assert!(size_of::<MessageHeader>() == 6 && offset_of!(MessageHeader, t_id) == 4);
    assert!(size_of::<Negotiate>() == 8 && size_of::<ProtocolDescriptor>() == 64);
    assert!(offset_of!(ProtocolDescriptor, groups) == 34);
    assert!(size_of::<ChallengeMessage>() == 16 && offset_of!(ChallengeMessage, seqnum) == 12);
    assert!(offset_of!(ChallengeMessage, dhvlen) == 10);
    assert!(size_of::<ReplyMessage>() == 16 && offset_of!(ReplyMessage, dhvlen) == 10);
    assert!(size_of::<Success1>() == 16 && offset_of!(Success1, rvalid) == 8);
    assert!(size_of::<Success2>() == 16 && size_of::<FailureMessage>() == 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authentication_commands_have_their_fields_where_the_standard_has_them() {
        let command = AuthenticationCommand::new(0x0102_0304);
        for (sqe, kind) in [(command.encode_send(), 5), (command.encode_receive(), 6)] {
            let bytes = sqe.as_bytes();
            assert_eq!((bytes[0], bytes[4]), (0x7f, kind));
            assert_eq!(bytes[40..48], [0, 1, 1, 0xe9, 4, 3, 2, 1]);
            assert_eq!(AuthenticationCommand::decode(&sqe), command);
        }
    }
}
