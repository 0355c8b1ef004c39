//! Figures as the papers of storage and NIC vendors have them, measured on this
//! machine.

pub mod catalogue;
pub mod load;
pub mod measured;
pub mod sides;
pub mod statistics;
