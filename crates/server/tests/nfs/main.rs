//! NFS over real sockets, on both drivers.

mod arguments;
mod closing;
mod common;
#[path = "../shared/content.rs"]
mod content;
#[path = "../shared/disks.rs"]
mod disks;
mod files;
mod hostile;
mod large_calls;
#[path = "../shared/rate_limits.rs"]
mod limited;
mod live;
mod memory;
mod name_service;
mod rate_limits;
mod raw;
mod referrals;
#[path = "../shared/report.rs"]
mod report;
mod restart;
#[path = "../shared/running.rs"]
mod running;
mod sessions;
mod side_programs;
mod stopping;
mod tls;

#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;
