//! `weft top`: what hosts do with a target now, on a terminal or as JSON.
//!
//! It looks at a [`LookSource`] again and again ([`look`]), takes the differences of what was
//! counted ([`rows`]), and draws them ([`screen`]). Nothing here knows where the answers come
//! from.
#![forbid(unsafe_code)]

mod app;
mod lines;
mod look;
mod rows;
mod run;
mod screen;
mod sheet;
#[cfg(test)]
mod tests;
mod waits;

pub use lines::print;
pub use look::{Evicts, LookSource};
pub use run::run;
