//! The controller side without a transport: what a host gets to see.

mod admin;
mod bench;
mod connect;
mod discovery;
mod lifecycle;
