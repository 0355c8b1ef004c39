//! What cannot be tested here.

use std::io::{self, Write};

/// Says that a test could not run here, past the capture of its output.
pub fn skipped(why: &str) {
    let line = format!("SKIPPED: {why}\n");
    io::stderr().write_all(line.as_bytes()).unwrap();
}
