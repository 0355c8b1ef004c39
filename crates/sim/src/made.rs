//! What a volume is made of, where it lies in files on simulated disks.

/// How a volume lies in its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is its file.
    File,
    /// So many slices of its file, one behind the other.
    Slices(u64),
    /// Chunks of a block of so many files in turn.
    Stripe(u64),
    /// So many files that hold the same.
    Mirror(u64),
    /// Its file, later.
    Delayed,
}

impl Made {
    /// Files that it takes.
    pub fn files(self) -> u64 {
        match self {
            Made::File | Made::Slices(_) | Made::Delayed => 1,
            Made::Stripe(legs) | Made::Mirror(legs) => legs,
        }
    }

    /// Blocks of each file, of a volume of so many, which a stripe has in whole rows.
    pub fn file_blocks(self, blocks: u64) -> u64 {
        match self {
            Made::Stripe(legs) => blocks.div_ceil(legs),
            _ => blocks,
        }
    }

    /// Blocks of the volume, where each file has so many.
    pub fn blocks(self, file_blocks: u64) -> u64 {
        match self {
            Made::Stripe(legs) => file_blocks * legs,
            _ => file_blocks,
        }
    }
}
