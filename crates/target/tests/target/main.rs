//! The whole target over real sockets, on both drivers.

mod common;
mod lifecycle;
mod limits;
mod live;
