use mem::Region;
use proptest::prelude::*;

use super::*;

fn xts(seed: u8) -> Xts {
    let bytes = std::array::from_fn(|at| (at as u8).wrapping_mul(7) ^ seed);
    Xts::new(DataKey::new(bytes).expect("two halves"))
}

fn bytes_of(range: BufRange) -> Vec<u8> {
    let mut bytes = vec![0; range.len() as usize];
    mem::copy_out(range, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computed with another implementation: the first and the last 16 bytes of blocks, and the
/// CRC32C of all.
#[test]
fn blocks_are_those_of_aes_256_xts_with_their_numbers_as_tweaks() {
    let vectors = [
        (
            512,
            0x0,
            "daee047e6628a8edc249d15f97dc5ae1",
            "c98a526211e4ae06dff9a693d1c914a8",
            0x1a500834,
        ),
        (
            512,
            0xff,
            "5d65ff3408a395515410bdaa53bb518c",
            "e22fa37f8919bf666e8e16fa879dc7bf",
            0x738679f5,
        ),
        (
            4096,
            0x123456789a,
            "36886153dc510b80e33fef0cd59285c2",
            "f1f069a461e3706c191afaf79ce11ba4",
            0x59267d52,
        ),
        (
            4096,
            0x3ffffffffe,
            "a87ae1c48065ced98798cebf1463ddda",
            "27c44f30de366dfc1b7396628b04881f",
            0xe2d8e104,
        ),
        (
            512,
            0x8000000000000000,
            "a70e56253101ad80e68a2fa91b2a773e",
            "46abdd2737e58bf7c068cf96e442946c",
            0x689ab23a,
        ),
    ];
    let region = Region::anonymous(1 << 16).unwrap();
    for (block_bytes, first, begin, end, crc) in vectors {
        let (from, to) = (region.range(0, 8192), region.range(8192, 8192));
        let plain: Vec<u8> = (0..8192)
            .map(|at: u32| (at * 31 + at / 251) as u8)
            .collect();
        mem::copy_in(from, &plain);
        xts(5).encrypt(from, to, block_bytes, first);
        let found = bytes_of(to);
        assert_eq!(bytes_of(from), plain, "what was given stays");
        assert_eq!((&*hex(&found[..16]), &*hex(&found[8176..])), (begin, end));
        assert_eq!(mem::crc32c(to, 0), crc, "{block_bytes} from {first}");
        xts(5).decrypt(to, block_bytes, first);
        assert_eq!(bytes_of(to), plain);
    }
}

#[test]
fn block_that_was_never_written_reads_as_zeros() {
    let region = Region::anonymous(1 << 16).unwrap();
    let (all, zeros) = (region.range(0, 3 * 512), vec![0; 512]);
    let key = xts(1);
    mem::copy_in(all, &[3; 3 * 512]);
    key.encrypt(all, all, 512, 100);
    mem::zero(all.slice(512, 512));
    key.decrypt(all, 512, 100);
    assert_eq!(
        bytes_of(all),
        [vec![3; 512], zeros.clone(), vec![3; 512]].concat()
    );
    // Zeros that are written are enciphered as all else.
    mem::zero(all);
    key.encrypt(all, all, 512, 0);
    for at in 0..3 {
        assert_ne!(bytes_of(all.slice(at * 512, 512)), zeros);
    }
    key.decrypt(all, 512, 0);
    assert!(mem::is_zero(all));
}

/// The power has failed in the first write of a block.
#[test]
fn sector_that_was_never_written_reads_as_zeros_beside_others() {
    let region = Region::anonymous(1 << 16).unwrap();
    let block = region.range(0, 4096);
    let key = xts(1);
    mem::copy_in(block, &[3; 4096]);
    key.encrypt(block, block, 4096, 100);
    let (first, last) = (block.slice(0, 512), block.slice(3584, 512));
    mem::zero(first);
    mem::zero(last);
    key.decrypt(block, 4096, 100);
    assert!(mem::is_zero(first) && mem::is_zero(last));
    assert_eq!(bytes_of(block.slice(512, 3072)), vec![3; 3072]);
}

#[test]
fn key_with_two_like_halves_is_refused() {
    assert!(DataKey::new([7; DATA_KEY_BYTES]).is_none());
    let mut bytes = [7; DATA_KEY_BYTES];
    bytes[63] = 8;
    let key = DataKey::new(bytes).expect("two halves");
    assert_eq!(format!("{key:?}"), "DataKey(..)");
}

#[test]
fn threads_share_a_key() {
    let key = xts(9);
    let region = Region::anonymous(1 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (key, region) = (&key, &region);
            scope.spawn(move || {
                let data = region.range(u64::from(thread) << 16, 4096);
                for number in 0..200 {
                    mem::copy_in(data, &[thread; 4096]);
                    key.encrypt(data, data, 4096, number);
                    assert_ne!(bytes_of(data), vec![thread; 4096]);
                    key.decrypt(data, 4096, number);
                    assert_eq!(bytes_of(data), vec![thread; 4096]);
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn blocks_that_are_enciphered_one_by_one_are_deciphered_together(
        first in any::<u64>().prop_map(|first| first >> 1),
        blocks in 1..9u32,
        is_small in any::<bool>(),
        seed in any::<u8>(),
    ) {
        let block_bytes = if is_small { 512 } else { 4096 };
        let len = blocks * block_bytes;
        let region = Region::anonymous(1 << 17).unwrap();
        let (from, to) = (region.range(0, len), region.range(1 << 16, len));
        let plain: Vec<u8> = (0..len).map(|at| (at / 13) as u8 ^ seed).collect();
        mem::copy_in(from, &plain);
        let key = xts(seed);
        for block in 0..blocks {
            let at = block * block_bytes;
            let (from, to) = (from.slice(at, block_bytes), to.slice(at, block_bytes));
            key.encrypt(from, to, block_bytes, first + u64::from(block));
        }
        prop_assert_ne!(bytes_of(to), plain.clone());
        key.decrypt(to, block_bytes, first);
        prop_assert_eq!(bytes_of(to), plain);
    }
}
