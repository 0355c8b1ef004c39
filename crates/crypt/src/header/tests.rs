use auth::Secret;
use proptest::prelude::*;

use super::*;

const TERMS: HeaderTerms = HeaderTerms {
    generation: 7,
    volume: *b"sixteen bytes ok",
    block_bytes: 4096,
};

fn data_key(seed: u8) -> DataKey {
    DataKey::new(std::array::from_fn(|at| at as u8 ^ seed)).expect("two halves")
}

fn owner(byte: u8) -> DerivedKey {
    WrappingKey::Key(Secret::new([byte; 32])).derive_new([0; SALT_BYTES])
}

fn header(generation: u64) -> KeyHeader {
    let terms = HeaderTerms {
        generation,
        ..TERMS
    };
    KeyHeader::seal(terms, &data_key(1), &owner(1), [9; NONCE_BYTES])
}

fn copies(first: &KeyHeader, second: &KeyHeader) -> Vec<u8> {
    [first.render(), second.render()].concat()
}

/// Computed with another implementation of AES-256-GCM.
#[test]
fn data_key_is_wrapped_by_gcm_over_all_that_the_header_says() {
    let bytes = header(7).render();
    let hex: String = bytes[WRAPPED..WRAPPED + WRAPPED_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "c50f24cccb3401c7765c4145a3d18a1988d76de8218b23f02e402b53f34be0e34a65dafa85d1421e552c012371e99e653cdfbe13cb0098ee6dca472db70dd91539377b1053cd0572e97a9f53b4aa7830"
    );
}

#[test]
fn key_opens_what_it_has_wrapped_and_no_other_does() {
    let header = header(7);
    assert_eq!(header.open(&owner(1)), Ok(data_key(1)));
    assert_eq!(header.open(&owner(2)), Err(WrongKey));
    let passphrase = WrappingKey::Passphrase(Secret::new(*b"correct horse"));
    assert!(header.derive(&passphrase).is_err());
    assert_eq!(KeyHeader::parse(&header.render()), Ok(header));
}

#[test]
fn passphrase_opens_by_the_salt_of_the_header() {
    let phrase = WrappingKey::Passphrase(Secret::new(*b"correct horse"));
    let by = phrase.derive_new([3; SALT_BYTES]);
    let sealed = KeyHeader::seal(TERMS, &data_key(2), &by, [9; NONCE_BYTES]);
    let found = KeyHeader::parse(&sealed.render()).expect("whole");
    let again = found.derive(&phrase).expect("the same kind of key");
    assert_eq!(found.open(&again), Ok(data_key(2)));
    let other = WrappingKey::Passphrase(Secret::new(*b"correct hors3"));
    let other = found.derive(&other).expect("the same kind of key");
    assert_eq!(found.open(&other), Err(WrongKey));
}

#[test]
fn newest_copy_that_is_whole_counts() {
    let (old, new) = (header(1), header(2));
    let whole = |header: &KeyHeader, place, are_alike| {
        Ok(Copies {
            header: header.clone(),
            place,
            are_alike,
        })
    };
    assert_eq!(Copies::parse(&copies(&old, &old)), whole(&old, 0, true));
    assert_eq!(Copies::parse(&copies(&old, &new)), whole(&new, 1, false));
    assert_eq!(Copies::parse(&copies(&new, &old)), whole(&new, 0, false));
    let mut torn = copies(&old, &new);
    torn[HEADER_BYTES + 100] ^= 1;
    assert_eq!(Copies::parse(&torn), whole(&old, 0, false));
    torn[100] ^= 1;
    assert_eq!(Copies::parse(&torn), Err(HeaderProblem::Damaged));
    let cut = &copies(&old, &new)[..HEADER_BYTES + 17];
    assert_eq!(Copies::parse(cut), whole(&old, 0, false));
    let mut torn = copies(&new, &old);
    torn[100] ^= 1;
    assert_eq!(Copies::parse(&torn), whole(&old, 1, false));
    assert_eq!(Copies::parse(&[]), Err(HeaderProblem::Damaged));
}

/// Bytes with the checksum that they should have.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = sum_of(&bytes[..SUM]);
    bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn header_of_a_later_version_is_refused_beside_any_other() {
    let mut later = header(2).render().to_vec();
    later[8] = 2;
    let later = summed(later);
    let both = [header(1).render().to_vec(), later.clone()].concat();
    assert_eq!(Copies::parse(&both), Err(HeaderProblem::Version(2)));
    let damaged = [vec![0; HEADER_BYTES], later].concat();
    assert_eq!(Copies::parse(&damaged), Err(HeaderProblem::Version(2)));
}

/// Every bit, with and without a checksum that fits: no other key is ever found.
#[test]
fn header_with_another_bit_gives_no_key() {
    let header = header(7);
    let bytes = header.render();
    for bit in 0..8 * HEADER_BYTES {
        let mut other = bytes.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(KeyHeader::parse(&other).is_err(), "bit {bit}");
        if bit / 8 >= SUM {
            continue;
        }
        if let Ok(found) = KeyHeader::parse(&summed(other)) {
            assert_eq!(found.open(&owner(1)), Err(WrongKey), "bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_a_header_or_none(
        changes in prop::collection::vec((0..180usize, any::<u8>()), 0..12),
    ) {
        let mut bytes = header(7).render().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let bytes = summed(bytes);
        if let Ok(found) = KeyHeader::parse(&bytes) {
            prop_assert_eq!(&found.render()[..], &bytes[..]);
        }
    }
}
