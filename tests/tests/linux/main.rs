//! An unmodified Linux kernel in a guest: as the host, as a host whose target
//! is changed under it, and as the target. One program, so that the guests,
//! which wait more than they compute, run side by side.

#![forbid(unsafe_code)]

mod host;
mod iscsi;
mod live;
mod peer;
