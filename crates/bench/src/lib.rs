//! What measures: the load generator behind `weft perf`, the bare-TCP ceiling
//! that its figures are compared with, and what both print.
#![forbid(unsafe_code)]

pub mod ceiling;
pub mod clock;
pub mod latency;
pub mod random;
pub mod units;
