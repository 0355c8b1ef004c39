//! State of clients as time passes, as servers start again and as connections
//! are lost, through operations and without sockets.
#![forbid(unsafe_code)]

mod copies;
mod delegated_times;
mod delegations;
mod delegations0;
mod holds;
mod hostile;
mod leases;
mod locks;
mod nlm;
mod open_xor_delegation;
mod quotas;
mod recovery;
mod retention;
mod seqids;
mod times;
mod turns;
mod version0;
mod version3;
mod world;
mod write_delegations;

/// Counts what clients cost.
#[global_allocator]
static ALLOCATOR: mem::counters::CountingAllocator = mem::counters::CountingAllocator;
