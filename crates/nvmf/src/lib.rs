//! NVMe over Fabrics as sans-IO machines, controller and host side.
//!
//! What a host sends first, and what the controller's machine makes of it
//! (`examples/by_hand.rs` goes on to a Read):
//!
//! ```
//! use machine::{Machine, Tag, Tail, Transmit};
//! use nvmf::tcp::{controller, host};
//!
//! /// What goes over the wire.
//! #[derive(Default)]
//! struct Wire(Vec<u8>);
//!
//! impl Transmit for Wire {
//!     fn has_room(&self) -> bool {
//!         true
//!     }
//!     fn header_room(&self) -> usize {
//!         4096
//!     }
//!     fn header(&mut self, bytes: &[u8]) {
//!         self.0.extend_from_slice(bytes);
//!     }
//!     fn payload(&mut self, _: Tag, _: u32, _: u32, _: Tail) {
//!         unreachable!("ICReq and ICResp have no data");
//!     }
//!     fn release(&mut self, _: Tag) {}
//! }
//!
//! let mut host = host::Qpair::new(host::Settings::default());
//! let mut controller = controller::Qpair::new(controller::Settings::default(), 0);
//! let (mut request, mut response) = (Wire::default(), Wire::default());
//! host.poll_transmit(&mut request);
//! assert!(controller.poll_step(0, &request.0, &mut 0).is_none(), "nothing to execute yet");
//! controller.poll_transmit(&mut response);
//! let step = host.poll_step(0, &response.0, &mut 0);
//! assert_eq!(step, Some(machine::Step::Op(host::Op::Ready)), "Connect may be submitted");
//! ```
#![forbid(unsafe_code)]

pub mod accepted;
mod admin;
pub mod command;
mod controller;
pub mod dhchap;
mod discovery;
mod feature;
pub mod host;
mod identify;
mod item;
mod lba_status;
mod log;
mod nqn;
pub mod queue;
pub mod rdma;
mod registry;
mod request;
pub mod reservation;
mod sanitize;
mod sanitize_status;
mod subsystem;
pub mod support;
pub mod tcp;
pub mod transport;

pub use controller::{Activity, Controller, ErrorNote};
pub use lba_status::{LbaStatus, LbaStatusKind};
pub use wire::nvme::discovery::DISCOVERY_NQN;

pub use nqn::{NqnError, check_host_nqn, check_subsystem_nqn};
pub use registry::{
    AuthenticationRefusal, Connected, ControllerChange, ControllerId, GeneratedKey, Refusal,
    Registry, RegistryConfig, Via, connect_names,
};
pub use request::{AdminOutcome, Env, IoCounters, Reply};
pub use subsystem::{
    ANA_GROUPS_MAX, Advertise, AnaGroup, Arrival, CNTLID_MAX, HostTerms, Limits, ListenerSpec,
    NSID_MAX, Namespace, Referral, Subsystem, WriteProtect,
};
