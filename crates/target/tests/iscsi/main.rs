//! iSCSI sessions over real sockets, on both drivers.

mod client;
mod common;
#[path = "../target/gate.rs"]
mod gate;
mod hostile;
mod live;
mod login;
mod memory;
mod order;
mod reads;
mod sessions;
mod space;
mod tasks;
