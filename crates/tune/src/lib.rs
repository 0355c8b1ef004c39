//! What of the machine makes storage over a network slow, and how to change
//! it: looks at CPUs, the network, limits and sysctls, says what each setting
//! would bring and which no longer matter, and applies a profile that can be
//! undone.
//!
//! Everything is read and written below a root directory, `/` but in tests.
#![forbid(unsafe_code)]

mod command;
mod cpus;
mod machine;
mod obsolete;
mod plan;
mod report;
mod setting;
#[cfg(test)]
mod testing;

pub use command::{TuneArgs, run};
pub use cpus::CpuSet;
pub use machine::{Machine, Nic};
pub use plan::{Plan, SettingChange, Undone, apply, undo};
pub use setting::{Finding, Profile, findings};
