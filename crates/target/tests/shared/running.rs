//! Targets of every protocol, on each driver.

use std::time::Duration;

use reactor::Choice;
use target::{Report, Running};

/// Long enough for a loaded machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The drivers that the machine lets us have.
pub fn backends() -> Vec<Choice> {
    let mut backends = vec![Choice::Epoll];
    match reactor::probe() {
        Ok(()) => backends.push(Choice::Uring),
        Err(why) => eprintln!("SKIPPED on io_uring: {why}"),
    }
    backends
}

/// Ends a target; it must end.
pub fn stop(mut running: Running) -> Report {
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    report.expect("the target did not stop")
}
