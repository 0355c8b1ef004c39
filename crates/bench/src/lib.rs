//! `weft bench`: figures as the papers of storage and NIC vendors have them, measured
//! on this machine, and their report; `weft ceiling`: what bare sockets give, which the
//! figures are compared with.
#![forbid(unsafe_code)]

pub mod agent;
pub mod catalogue;
pub mod ceiling;
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
