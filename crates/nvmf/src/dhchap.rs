//! In-band authentication by DH-HMAC-CHAP (Base 2.0, section 8.13.5) as pure state: both
//! sides of one queue, from message to message. What takes long to compute is handed out as
//! work, to be done anywhere.

pub mod controller;
pub mod host;

use auth::HostDhchap;
use auth::dhchap::{DhchapGroup, DhchapHash, DhchapKey};
use wire::nvme::authentication::MessageHeader;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The secrets that a host and a subsystem have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhchapKeys {
    /// The host proves to know one of them: the first, if it is weft.
    pub host: Vec<HostDhchap>,
    /// The controller proves to know it, if it has one.
    pub controller: Option<DhchapKey>,
}

/// The hashes and groups that a side takes, the preferred ones first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhchapChoice {
    /// Hashes.
    pub hashes: Vec<DhchapHash>,
    /// Groups.
    pub groups: Vec<DhchapGroup>,
}

impl Default for DhchapChoice {
    /// All of them, the strongest first.
    fn default() -> Self {
        DhchapChoice {
            hashes: DhchapHash::ALL.to_vec(),
            groups: DhchapGroup::ALL.to_vec(),
        }
    }
}

/// Fills in unpredictable bytes.
pub type FillRandom<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A sequence number: any but 0, which stands for none.
fn sequence_number(random: FillRandom<'_>) -> u32 {
    let mut bytes = [0; 4];
    random(&mut bytes);
    u32::from_le_bytes(bytes).max(1)
}

/// A challenge of the length of a digest.
fn challenge(hash: DhchapHash, random: FillRandom<'_>) -> Vec<u8> {
    let mut challenge = vec![0; hash.len()];
    random(&mut challenge);
    challenge
}

/// The fixed part of a message, and what follows it.
fn split<T>(message: &[u8]) -> Option<(&T, &[u8])>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(message).ok()
}

/// AUTH_Type, AUTH_ID and T_ID.
fn kind_of(message: &[u8]) -> Option<((u8, u8), u16)> {
    let (header, _) = split::<MessageHeader>(message)?;
    Some(((header.auth_type, header.auth_id), header.t_id.get()))
}
