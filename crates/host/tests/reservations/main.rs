//! Reservations through the real target, as several hosts see them.
#![allow(missing_docs)]

mod at_once;
mod commands;
#[path = "../shared/ends.rs"]
mod ends;
mod fabric;
mod notices;
mod outstanding;
