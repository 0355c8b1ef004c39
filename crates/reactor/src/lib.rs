//! One reactor a core: drivers, sockets, files, timers, mail.
//!
//! A [`Driver`] takes operations and gives [`Completion`]s; io_uring where the
//! kernel lets us, epoll where it does not, with the same results. [`run`] is
//! the loop around it: it spins while that pays off, then sleeps in the kernel.
#![allow(unsafe_code)]

mod any;
mod batch;
mod bell;
mod blocking;
mod cpu;
mod descriptors;
mod epoll;
mod mailbox;
#[cfg(all(test, shuttle))]
mod models;
mod object;
mod priority;
mod random;
mod receive;
mod run;
mod shares;
mod socket_options;
mod spin;
mod sync;
mod sys;
mod timers;
mod trim;
mod types;
mod uring;
mod waker;

pub use any::{AnyDriver, Choice, open};
pub use batch::{Batch, BatchPiece, HeldMemory};
pub use bell::{Bell, Ticket};
pub use blocking::Blocking;
pub use cpu::{affinity, available_cpus, parse_cpus, pin_to_cpu, unpin};
pub use descriptors::{BoundListener, ConnectedSocket, DiskFile, InheritedSockets};
pub use epoll::EpollDriver;
pub use mailbox::{Mailbox, Receiver, mailbox};
pub use object::{
    ExtentPlace, FileExtent, clone_range, extents, is_realtime, object_name, unshared_bytes,
};
pub use priority::lower_thread_priority;
pub use random::{fill_random, must_fill_random};
pub use run::{Handler, LoopTimes, RunConfig, RunStats, loop_times, run};
pub use shares::{Disk, DiskShares};
pub use socket_options::SocketOptions;
pub use spin::{Decision, Spin};
pub use sys::{Nanos, end_at_closed_pipe, raise_descriptor_limit, tcp_socket, unpace_loopback};
pub use trim::Trimmer;
pub use types::{
    Completion, Counters, Driver, DriverConfig, FallocateMode, FileIo, Received, SocketId, Token,
    Wait,
};
pub use uring::{ProbeError, UringDriver, probe};
pub use waker::{Sleeper, Waker};
