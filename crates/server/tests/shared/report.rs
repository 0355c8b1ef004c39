//! What a target has done, asked of all its reactors.

use std::time::Instant;

use server::{Report, Running};

use crate::running::PATIENCE;

/// What a target has done, all of its reactors.
pub fn report(running: &Running) -> Report {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let report = running.report();
        if report.silent == 0 {
            return report;
        }
        assert!(Instant::now() < give_up, "a reactor says nothing");
    }
}
