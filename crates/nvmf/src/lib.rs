//! NVMe over Fabrics as sans-IO machines, controller and host side.
#![forbid(unsafe_code)]

mod admin;
pub mod command;
mod controller;
mod discovery;
mod feature;
mod identify;
mod item;
mod lba_status;
mod log;
mod nqn;
mod registry;
mod request;
pub mod reservation;
mod subsystem;
pub mod support;
pub mod tcp;

pub use controller::{Activity, Controller, ErrorNote};
pub use lba_status::{LbaStatus, LbaStatusKind};
pub use nqn::{NqnError, check_host_nqn, check_subsystem_nqn};
pub use registry::{
    Change, Connected, ControllerId, Refusal, Registry, RegistryConfig, Via, connect_names,
};
pub use request::{Env, IoCounters, Outcome, Reply};
pub use subsystem::{
    ANA_GROUPS_MAX, Advertise, AnaGroup, CNTLID_MAX, Limits, ListenerSpec, NSID_MAX, Namespace,
    Referral, Subsystem, WriteProtect,
};
