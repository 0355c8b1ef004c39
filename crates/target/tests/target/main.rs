//! The whole target over real sockets, on both drivers.

mod abort;
mod both;
#[path = "../../../nfsd/tests/conformance/client.rs"]
#[allow(dead_code)]
mod client;
mod commands;
mod common;
mod copies;
#[path = "../shared/disks.rs"]
mod disks;
mod fences;
mod fused;
mod gate;
mod hostile;
mod identity;
mod initiator;
mod lifecycle;
mod limits;
mod live;
mod memory;
mod panics;
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/running.rs"]
mod running;
mod scsi;
#[path = "../../../nfsd/tests/conformance/socket.rs"]
mod socket;
mod storm;
#[path = "../../../nfsd/tests/conformance/world.rs"]
#[allow(dead_code)]
mod world;
