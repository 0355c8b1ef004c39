//! Ports for what tests start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port of 127.0.0.1 that no other test of this process is given, below those that the kernel
/// gives to sockets by itself: no connection takes it before it is used. Panics where none is free.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 40) as u16 * 250;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = (0..250).map(|_| first + GIVEN.fetch_add(1, Ordering::Relaxed) % 250);
    ports.find(is_free).expect("a port")
}
