//! The deterministic world: targets and hosts, the real ones, over a simulated
//! network, disk and clock, all of it from one seed, and a checker that knows
//! what every block may hold.
#![forbid(unsafe_code)]

mod access;
mod actor;
mod announced;
mod changes;
pub mod checker;
pub mod content;
mod credentials;
mod disk;
mod documents;
mod driver;
mod host;
mod initiator;
mod limits;
mod made;
mod nbd_client;
mod nbd_words;
mod net;
mod nfs;
mod outcome;
mod plan;
mod pools;
mod posix;
mod records;
mod reserve;
mod run;
mod scsi;
#[cfg(test)]
mod shares;
mod snapshots;
mod target;
mod work;
mod world;

pub use made::Made;
pub use net::StreamCut;
pub use outcome::{Failure, NfsOutcome, RunOutcome};
pub use plan::{DhchapPlan, Lies, LimitPlan, NbdForm, NbdPlan, NfsRdmaPlan, PanicPlan, Plan};
pub use run::{run, run_plan};
