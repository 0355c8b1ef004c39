//! NFS over real sockets, on both drivers.

mod common;
mod files;
mod hostile;
mod live;
mod memory;
mod raw;
mod restart;
mod sessions;
mod stopping;
