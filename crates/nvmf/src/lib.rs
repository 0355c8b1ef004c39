//! NVMe over Fabrics as sans-IO machines, controller and host side.
#![forbid(unsafe_code)]

mod admin;
pub mod command;
mod controller;
mod discovery;
mod feature;
mod identify;
mod log;
mod nqn;
mod registry;
mod subsystem;
pub mod tcp;

pub use admin::{Env, IoCounters, Outcome, Reply};
pub use controller::{Activity, Controller, ErrorNote};
pub use nqn::{NqnError, check_host_nqn, check_subsystem_nqn};
pub use registry::{Connected, ControllerId, Refusal, Registry, RegistryConfig, Via};
pub use subsystem::{CNTLID_MAX, Limits, NSID_MAX, Namespace, Subsystem};
