//! Reservations through the real target, as several hosts see them.
#![allow(missing_docs)]

mod commands;
mod fabric;
mod notices;
mod outstanding;
