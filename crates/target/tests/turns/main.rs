//! Turns: what one connection asks for costs others no more than its share, counted in
//! units ([`machine::work`]), over real sockets.

#[path = "../../../nfsd/tests/conformance/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../target/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "../shared/disks.rs"]
#[allow(dead_code)]
mod disks;
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/running.rs"]
mod running;
#[path = "../../../nfsd/tests/conformance/socket.rs"]
mod socket;
mod storm;
#[path = "../../../nfsd/tests/conformance/world.rs"]
#[allow(dead_code)]
mod world;
