//! The SCSI device server as pure state: SAM-5, SPC-4 and SBC-3, without a
//! transport and without a volume.
//!
//! A command takes this way:
//!
//! 1. [`Nexus::intercept`] first: a pending unit attention ends most commands
//!    before they begin. (A reservation conflict goes before it: SAM-5, section
//!    5.3.3.)
//! 2. [`decode`] turns the CDB into a typed [`Command`] and refuses what the
//!    standard says must be refused: reserved bits, ranges, write protection,
//!    asymmetric access states. One table answers that and REPORT SUPPORTED
//!    OPERATION CODES alike.
//! 3. [`respond`] makes the data of everything that a [`Unit`] alone can answer.
//!    Parameter lists that the initiator sends go to [`mode::select`],
//!    [`unmap::parse`], [`groups::parse_set`]. [`Command::Io`] is the volume's.
//! 4. A [`Sense`] says what went wrong; [`Sense::encode`] writes it in the format
//!    that the Control mode page asks for.
#![forbid(unsafe_code)]

mod block;
mod cdb;
mod command;
pub mod copy;
mod decode;
pub mod groups;
mod inquiry;
mod log;
pub mod lun;
pub mod mode;
mod nexus;
mod opcodes;
mod primary;
pub mod provisioning;
pub mod reservation;
mod respond;
mod sense;
pub mod support;
mod table;
#[cfg(test)]
mod testing;
mod third_party_copy;
pub mod token;
mod unit;
pub mod unmap;

pub use command::{Check, Command, IoKind, ModeSelect, ModeSense, ReservationAccess, ScsiIo};
pub use decode::{decode, decode_elsewhere};
pub use nexus::{ATTENTIONS_MAX, Nexus};
pub use respond::respond;
pub use sense::{Attention, Sense, Specific};
pub use table::name;
pub use unit::{
    AccessState, Addressed, Modes, PRODUCT, Port, PortGroup, TargetView, Unit, UnitIdentity, VENDOR,
};
pub use wire::scsi::{SENSE_MAX, SenseBytes, asc, key, opcode, status};
