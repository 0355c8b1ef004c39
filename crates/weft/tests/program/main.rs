//! The binary from outside.

mod admin;
mod commands;
mod found;
mod import;
mod printing;
mod refused;
mod reload;
mod serving;
mod told;
