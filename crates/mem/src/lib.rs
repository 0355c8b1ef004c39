//! Memory of the data path: regions, handles into them, pools and checksums.
//!
//! Payload is named by [`BufRange`], a checked `Copy` handle. The memory it
//! names may be written by the kernel, a peer or another core at any time, so
//! it is never lent as `&[u8]`: the functions of this crate move it through
//! raw pointers. Only [`Stage`], which has one owner, shows its bytes.
#![allow(unsafe_code)]

pub mod blocks;
mod budget;
pub mod counters;
mod crc;
mod heap;
mod loan;
mod moves;
mod pool;
mod raw;
mod region;
mod share;
pub mod sync;
mod table;

pub use budget::{Budget, CHUNK_BYTES, POOL_BYTES_MIN};
pub use crc::crc32c_bytes;
pub use heap::give_back_heap;
pub use loan::{LOAN_PIECES_MAX, Lender, Loan, Parts};
pub use moves::{
    copy, copy_in, copy_in_crc, copy_out, copy_out_as_kernel, crc32c, equal, first_difference,
    is_zero, or, zero,
};
pub use pool::{BUF_BYTES_MAX, Buf, Pool, Reserved, STAGE_BYTES, Stage};
pub use region::{BufRange, COLD_BYTES_MIN, Region, RegionId};
pub use share::Share;
pub use table::AtomicTable;
