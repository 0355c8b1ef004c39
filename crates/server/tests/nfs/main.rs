//! NFS over real sockets, on both drivers.

mod common;
#[path = "../shared/content.rs"]
mod content;
mod files;
mod hostile;
mod live;
mod memory;
mod raw;
#[path = "../shared/report.rs"]
mod report;
mod restart;
#[path = "../shared/running.rs"]
mod running;
mod sessions;
mod stopping;
