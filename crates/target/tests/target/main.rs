//! The whole target over real sockets, on both drivers.

mod abort;
mod both;
mod commands;
mod common;
mod copies;
mod fences;
mod fused;
mod gate;
mod hostile;
mod initiator;
mod lifecycle;
mod limits;
mod live;
mod memory;
mod scsi;
