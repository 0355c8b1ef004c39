//! The whole target over real sockets, on both drivers.

mod abort;
mod authentication;
mod both;
mod commands;
mod common;
mod concatenation;
mod connection_policies;
mod copies;
#[path = "../shared/disks.rs"]
mod disks;
mod drain;
mod encrypted;
mod fences;
mod fused;
mod gate;
mod hello_storm;
mod hostile;
mod identity;
mod initiator;
mod lifecycle;
#[path = "../shared/rate_limits.rs"]
mod limited;
mod limits;
mod live;
mod memory;
mod panics;
mod parts;
mod protocols;
mod rate_limits;
mod rdma;
mod rdma_host;
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/running.rs"]
mod running;
mod scsi;
mod storm;
mod turns;
