//! Figures as the papers of storage and NIC vendors have them, measured on this
//! machine.

pub mod measured;
pub mod statistics;
