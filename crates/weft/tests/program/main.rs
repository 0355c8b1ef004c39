//! The binary from outside.

mod admin;
mod commands;
mod connected;
mod console;
mod drain;
mod events;
mod found;
mod generations;
mod import;
mod logs;
mod manual;
mod metrics;
mod objects;
mod one_line;
mod operate;
mod packaging;
mod printing;
mod refused;
mod reload;
mod service;
mod serving;
mod support;
mod tcp;
mod told;
mod top;
mod watching;
