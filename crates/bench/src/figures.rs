//! Figures as the papers of storage and NIC vendors have them, measured on this
//! machine.

pub mod catalogue;
pub mod command;
pub mod journal;
pub mod limit;
pub mod load;
pub mod measured;
pub mod plan;
pub mod progress;
pub mod provenance;
pub mod report;
pub mod run;
pub mod sides;
pub mod statistics;
