//! Blocks that name their write.
//!
//! Every sector names the write it belongs to and its place, and the rest of
//! its bytes follows from both, so that any byte out of place shows.

use random::mix;

/// What survives or is lost as one when the power fails, bytes.
pub const SECTOR_BYTES: usize = 512;

const MAGIC: u64 = 0x7765_6674_2d73_696d;

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sector {
    /// Nothing but zeros.
    Zero,
    /// What this write put there.
    Of(u32),
    /// Bytes that no single write put there.
    Garbage,
}

fn word(value: u32, sector: u64, index: usize) -> u64 {
    match index {
        0 => MAGIC,
        1 => u64::from(value),
        2 => sector,
        _ => mix(u64::from(value) << 32 ^ sector << 7 ^ index as u64),
    }
}

/// Fills `bytes`, whole sectors from number `first` of the volume, with the
/// content of write `value`.
pub fn fill(value: u32, first: u64, bytes: &mut [u8]) {
    for (n, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        for (index, out) in sector.chunks_exact_mut(8).enumerate() {
            let word = word(value, first + n as u64, index);
            out.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// What `bytes`, sector `number` of the volume, hold.
pub fn read(number: u64, bytes: &[u8]) -> Sector {
    let mut words = bytes.chunks_exact(8).map(|b| {
        let b: [u8; 8] = b.try_into().expect("eight bytes");
        u64::from_le_bytes(b)
    });
    match (words.next(), words.next()) {
        (Some(0), Some(0)) => match words.all(|word| word == 0) {
            true => Sector::Zero,
            false => Sector::Garbage,
        },
        (Some(MAGIC), Some(value)) if value <= u64::from(u32::MAX) => {
            let value = value as u32;
            let fits = words
                .enumerate()
                .all(|(i, found)| found == word(value, number, i + 2));
            if fits {
                Sector::Of(value)
            } else {
                Sector::Garbage
            }
        }
        _ => Sector::Garbage,
    }
}

/// How many bits of a sector are other than write `value` left them, or than zeros.
pub fn wrong_bits(value: u32, number: u64, bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(8).enumerate();
    let wrong = words.map(|(index, found)| {
        let found = u64::from_le_bytes(found.try_into().expect("eight bytes"));
        let word = if value == 0 {
            0
        } else {
            word(value, number, index)
        };
        (found ^ word).count_ones()
    });
    wrong.sum()
}

/// What is wrong with a sector that is garbage, for the text of a failure.
pub fn describe(number: u64, bytes: &[u8]) -> String {
    let words: Vec<u64> = (bytes.chunks_exact(8))
        .map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")))
        .collect();
    let (value, sector) = (words[1], words[2]);
    if words[0] != MAGIC {
        return format!("sector {number} begins with {:x?}", &words[..4]);
    }
    let fits = |&(i, found): &(usize, u64)| found == word(value as u32, sector, i);
    let wrong = words.iter().copied().enumerate().find(|pair| !fits(pair));
    format!("sector {number} says write {value} sector {sector}; first wrong word: {wrong:x?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_out_of_place_shows() {
        let mut bytes = [0; 2 * SECTOR_BYTES];
        assert_eq!(read(9, &bytes[..SECTOR_BYTES]), Sector::Zero);
        fill(7, 9, &mut bytes);
        assert_eq!(read(9, &bytes[..SECTOR_BYTES]), Sector::Of(7));
        assert_eq!(read(10, &bytes[SECTOR_BYTES..]), Sector::Of(7));
        assert_eq!(read(10, &bytes[..SECTOR_BYTES]), Sector::Garbage);
        for at in 0..SECTOR_BYTES {
            let mut other = bytes;
            other[at] ^= 1;
            assert_ne!(read(9, &other[..SECTOR_BYTES]), Sector::Of(7), "byte {at}");
            assert_eq!(wrong_bits(7, 9, &other[..SECTOR_BYTES]), 1, "byte {at}");
        }
        bytes[..256].fill(0);
        assert_eq!(read(9, &bytes[..SECTOR_BYTES]), Sector::Garbage);
    }
}
