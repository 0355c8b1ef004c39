//! The controller side without a transport: what a host gets to see.

mod admin;
mod authentication;
mod bench;
mod changes;
mod connect;
mod discovery;
mod features;
mod generated_keys;
mod identify;
mod lifecycle;
mod logs;
mod reservations;
mod views;
