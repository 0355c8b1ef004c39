//! What measures: the load generator behind `weft perf`, the bare-TCP ceiling
//! that its figures are compared with, and what both print.
//!
//! Each command is an argument struct and a `run`: [`perf`], [`discover`],
//! [`ceiling`].
#![forbid(unsafe_code)]

pub mod ceiling;
pub mod chap;
pub mod clock;
pub mod discover;
pub mod figures;
pub mod latency;
pub mod perf;
pub mod random;
pub mod units;
