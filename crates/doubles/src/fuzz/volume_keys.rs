//! The keys of an encrypted volume: whatever is done to both copies of its header, no other data
//! key comes out of them.

use auth::Secret;
use crypt::{
    COPIES_BYTES, Copies, DATA_KEY_BYTES, DataKey, HEADER_BYTES, HeaderTerms, KeyHeader,
    WrappingKey,
};

use super::records;

/// Sums the copy again after the change.
const SUMS: u8 = 1 << 0;
/// Of the second copy.
const SECOND: u8 = 1 << 1;

/// Each record says where in a copy it changes bytes, in two bytes, and to what.
pub fn volume_keys(input: &[u8]) {
    // No Argon2id: a guess of a passphrase takes its time.
    let owner = WrappingKey::Key(Secret::new([7; 32]));
    let key = DataKey::new(std::array::from_fn::<u8, DATA_KEY_BYTES, _>(|at| at as u8));
    let key = key.expect("its halves differ");
    let by = owner.derive_new([0; 16]);
    let sealed = |generation| {
        let terms = HeaderTerms {
            generation,
            volume: [1; 16],
            block_bytes: 4096,
        };
        KeyHeader::seal(terms, &key, &by, [generation as u8; 12]).render()
    };
    let mut copies = [sealed(1), sealed(2)].concat();
    for (mode, record) in records(input) {
        let second = usize::from(mode & SECOND != 0) * HEADER_BYTES;
        let copy = &mut copies[second..second + HEADER_BYTES];
        if let Some((&[low, high], bytes)) = record.split_first_chunk::<2>() {
            let at = usize::from(u16::from_le_bytes([low, high])) % HEADER_BYTES;
            let len = bytes.len().min(HEADER_BYTES - at);
            copy[at..at + len].copy_from_slice(&bytes[..len]);
        }
        if mode & SUMS != 0 {
            let (said, sum) = copy.split_at_mut(HEADER_BYTES - 4);
            sum.copy_from_slice(&mem::crc32c_bytes(said, 0).to_le_bytes());
        }
    }
    assert_eq!(copies.len(), COPIES_BYTES);
    if let Ok(found) = Copies::parse(&copies) {
        let again = KeyHeader::parse(&found.header.render());
        assert!(again.as_ref() == Ok(&found.header));
        let opened = found.header.derive(&owner);
        if let Ok(opened) = opened.and_then(|by| found.header.open(&by)) {
            assert!(opened == key, "another data key");
        }
    }
    // As it lies there, too.
    let _: Result<_, _> = Copies::parse(input);
}
