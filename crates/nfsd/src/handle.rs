//! File handles: what they are made of. Whether one leads anywhere, and for
//! whom, [`crate::pseudo::View::find`] says.
//!
//! A handle is good for as long as its object: it names the export by its path
//! and the object by numbers that are never given out again, so it survives
//! restarts of the server wherever the file system does.

use store::fs::FileId;

/// What a file handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// A directory of the pseudo file system.
    Pseudo(FileId),
    /// An object of an export.
    File {
        /// [`crate::exports::Export::id`].
        export: u32,
        /// [`store::fs::Info::instance`] of its file system.
        instance: u64,
        /// Which object.
        file: FileId,
    },
}

/// Layout of the bytes, raised when they change.
const VERSION: u8 = 1;
const PSEUDO: u8 = 1;
const FILE: u8 = 2;

impl Handle {
    /// Bytes of every handle, below the 64 of NFSv3 and the 128 of NFSv4.
    pub const BYTES: usize = 24;

    /// Its bytes: version, kind, two zeros, the export, the instance, the
    /// object; all little endian.
    #[inline]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (kind, export, instance, file) = match *self {
            Handle::Pseudo(file) => (PSEUDO, 0, 0, file),
            Handle::File {
                export,
                instance,
                file,
            } => (FILE, export, instance, file),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = kind;
        bytes[4..8].copy_from_slice(&export.to_le_bytes());
        bytes[8..16].copy_from_slice(&instance.to_le_bytes());
        bytes[16..].copy_from_slice(&file.0.to_le_bytes());
        bytes
    }

    /// The handle that these bytes are; `None` if none of ours ever was
    /// (NFS4ERR_BADHANDLE, NFS3ERR_BADHANDLE).
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Handle> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let [VERSION, kind, 0, 0, ..] = *bytes else {
            return None;
        };
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("in bounds"));
        let export = u32::from_le_bytes(*bytes[4..].first_chunk().expect("in bounds"));
        let (instance, file) = (word(8), FileId(word(16)));
        match kind {
            PSEUDO if export == 0 && instance == 0 => Some(Handle::Pseudo(file)),
            FILE => Some(Handle::File {
                export,
                instance,
                file,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn handles_lie_as_they_did_before() {
        let handle = Handle::File {
            export: 0x0403_0201,
            instance: 0x0c0b_0a09_0807_0605,
            file: FileId(0x1413_1211_100f_0e0d),
        };
        let mut expected = vec![1, 2, 0, 0];
        expected.extend(1..=20);
        assert_eq!(handle.encode().to_vec(), expected);
    }

    #[test]
    fn what_was_never_a_handle_is_none() {
        let good = Handle::Pseudo(FileId(7)).encode();
        assert_eq!(Handle::decode(&good), Some(Handle::Pseudo(FileId(7))));
        // Version, kind, zeros, an export, an instance.
        for at in [0, 1, 2, 3, 4, 8] {
            let mut bad = good;
            bad[at] = 9;
            assert_eq!(Handle::decode(&bad), None, "byte {at}");
        }
        for len in (0..64).filter(|&len| len != Handle::BYTES) {
            let bytes = [&good[..], &[0; 64]].concat();
            assert_eq!(Handle::decode(&bytes[..len]), None, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_the_same_handle_again(mut bytes: [u8; 24], kind in 0u8..4, honest: bool) {
            if honest {
                (bytes[0], bytes[1], bytes[2], bytes[3]) = (1, kind, 0, 0);
            }
            if let Some(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(handle.encode(), bytes);
            }
        }

        #[test]
        fn handles_come_back(export: u32, instance: u64, file: u64, pseudo: bool) {
            let file = FileId(file);
            let handle = match pseudo {
                true => Handle::Pseudo(file),
                false => Handle::File { export, instance, file },
            };
            prop_assert_eq!(Handle::decode(&handle.encode()), Some(handle));
        }
    }
}
