//! What tests of several crates share. It uses nothing above `wire` and `machine`, so
//! that the unit tests of every protocol may use it.
#![forbid(unsafe_code)]

pub mod nfs;
