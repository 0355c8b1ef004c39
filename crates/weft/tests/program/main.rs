//! The binary from outside.

mod commands;
mod found;
mod printing;
mod serving;
mod told;
