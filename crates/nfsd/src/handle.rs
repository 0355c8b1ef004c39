//! File handles: what they are made of. Whether one leads anywhere, and for
//! which client, [`crate::pseudo::View::find`] says.
//!
//! A handle is good for as long as its object: it names the export by its path
//! and the object by numbers that are never given out again, so it survives
//! restarts of the server wherever the file system does.
//!
//! The number of an object is a count, which is easy to guess. So a handle of an
//! object ends with a MAC under the key of its file system: a client has only the
//! handles that the server gave out, each after the checks on the way to it.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use store::fs::{FileId, HandleKey};

/// What a file handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// A directory of the pseudo file system. It has no MAC: its number is a hash
    /// of its path, and a client finds there only what leads to its exports.
    Pseudo(FileId),
    /// An object of an export.
    File {
        /// [`crate::exports::Export::id`].
        export: u32,
        /// [`store::fs::Info::instance`] of its file system.
        instance: u64,
        /// Which object.
        file: FileId,
        /// [`mac`] over all bytes before.
        mac: u64,
    },
}

/// Layout of the bytes, raised when they change.
const VERSION: u8 = 2;
const PSEUDO: u8 = 1;
const FILE: u8 = 2;
/// Where the MAC begins.
const MAC_AT: usize = 24;

/// SipHash-2-4 of the bytes before the MAC.
#[inline]
fn mac(key: HandleKey, bytes: &[u8; Handle::BYTES]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(&bytes[..MAC_AT]);
    hasher.finish()
}

impl Handle {
    /// Bytes of every handle, below the 64 of NFSv3 and the 128 of NFSv4.
    pub const BYTES: usize = 32;

    /// The handle of an object.
    #[inline]
    pub fn file(export: u32, instance: u64, file: FileId, key: HandleKey) -> Handle {
        let unsigned = Handle::File {
            export,
            instance,
            file,
            mac: 0,
        };
        let mac = mac(key, &unsigned.encode());
        Handle::File {
            export,
            instance,
            file,
            mac,
        }
    }

    /// Whether the handle was made with this key.
    #[inline]
    pub fn is_authentic(&self, key: HandleKey) -> bool {
        match *self {
            Handle::Pseudo(_) => true,
            // Two words are compared in one step, however many bytes agree.
            Handle::File { mac: told, .. } => told == mac(key, &self.encode()),
        }
    }

    /// Its bytes: version, kind, two zeros, the export, the instance, the
    /// object, the MAC; all little endian.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (kind, export, instance, file, mac) = match *self {
            Handle::Pseudo(file) => (PSEUDO, 0, 0, file, 0),
            Handle::File {
                export,
                instance,
                file,
                mac,
            } => (FILE, export, instance, file, mac),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = kind;
        bytes[4..8].copy_from_slice(&export.to_le_bytes());
        bytes[8..16].copy_from_slice(&instance.to_le_bytes());
        bytes[16..MAC_AT].copy_from_slice(&file.0.to_le_bytes());
        bytes[MAC_AT..].copy_from_slice(&mac.to_le_bytes());
        bytes
    }

    /// The handle that these bytes are, authentic or not; `None` if no handle of weft
    /// looks so (NFS4ERR_BADHANDLE, NFS3ERR_BADHANDLE).
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Handle> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let [VERSION, kind, 0, 0, ..] = *bytes else {
            return None;
        };
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("in bounds"));
        let export = u32::from_le_bytes(*bytes[4..].first_chunk().expect("in bounds"));
        let (instance, file, mac) = (word(8), FileId(word(16)), word(MAC_AT));
        match kind {
            PSEUDO if (export, instance, mac) == (0, 0, 0) => Some(Handle::Pseudo(file)),
            FILE => Some(Handle::File {
                export,
                instance,
                file,
                mac,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: HandleKey = HandleKey([7; 16]);

    #[test]
    fn handle_bytes_keep_their_layout() {
        let handle = Handle::File {
            export: 0x0403_0201,
            instance: 0x0c0b_0a09_0807_0605,
            file: FileId(0x1413_1211_100f_0e0d),
            mac: 0x1c1b_1a19_1817_1615,
        };
        let mut expected = vec![2, 2, 0, 0];
        expected.extend(1..=28);
        assert_eq!(handle.encode().to_vec(), expected);
    }

    #[test]
    fn bytes_that_were_never_a_handle_are_none() {
        let good = Handle::Pseudo(FileId(7)).encode();
        assert_eq!(Handle::decode(&good), Some(Handle::Pseudo(FileId(7))));
        // Version, kind, zeros, an export, an instance, a MAC.
        for at in [0, 1, 2, 3, 4, 8, 24] {
            let mut bad = good;
            bad[at] = 9;
            assert_eq!(Handle::decode(&bad), None, "byte {at}");
        }
        for len in (0..64).filter(|&len| len != Handle::BYTES) {
            let bytes = [&good[..], &[0; 64]].concat();
            assert_eq!(Handle::decode(&bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn handle_with_any_other_bit_is_not_authentic() {
        let good = Handle::file(3, 5, FileId(7), KEY);
        assert!(good.is_authentic(KEY));
        assert!(!good.is_authentic(HandleKey([8; 16])), "another key");
        let bytes = good.encode();
        for bit in 0..Handle::BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let other = Handle::decode(&bytes);
            let is_taken = other.is_some_and(|other| other.is_authentic(KEY));
            assert!(!is_taken, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn decoded_bytes_encode_to_the_same_bytes(mut bytes: [u8; 32], kind in 0u8..4, honest: bool) {
            if honest {
                (bytes[0], bytes[1], bytes[2], bytes[3]) = (2, kind, 0, 0);
            }
            if let Some(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(handle.encode(), bytes);
            }
        }

        #[test]
        fn encoded_handles_decode_to_the_same_handle(export: u32, instance: u64, file: u64, pseudo: bool) {
            let file = FileId(file);
            let handle = match pseudo {
                true => Handle::Pseudo(file),
                false => Handle::file(export, instance, file, KEY),
            };
            prop_assert_eq!(Handle::decode(&handle.encode()), Some(handle));
            prop_assert!(handle.is_authentic(KEY));
        }
    }
}
