//! iSCSI sessions over real sockets, on both drivers.

mod client;
mod common;
#[path = "../target/gate.rs"]
mod gate;
mod login;
mod reads;
mod sessions;
mod tasks;
