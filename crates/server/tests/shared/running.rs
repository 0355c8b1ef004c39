//! Targets of every protocol.

use std::time::Duration;

use server::{Report, Running};

/// Long enough for a loaded machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ends a target; it must end.
pub fn stop(running: Running) -> Report {
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    report.expect("the target did not stop")
}
