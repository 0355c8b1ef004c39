//! iSCSI sessions over real sockets, on both drivers.

mod client;
mod common;
#[path = "../shared/content.rs"]
mod content;
#[path = "../shared/disks.rs"]
mod disks;
#[path = "../nvme/gate.rs"]
mod gate;
mod hostile;
#[path = "../shared/rate_limits.rs"]
mod limited;
mod live;
mod login;
mod memory;
mod order;
mod rate_limits;
mod rdma;
mod reads;
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/running.rs"]
mod running;
mod sessions;
mod space;
mod tasks;
