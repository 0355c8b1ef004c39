//! Both ends of a connection in one process.

use std::time::Duration;

use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver};
use server::Running;

/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an initiator runs on.
pub fn driver() -> EpollDriver {
    let pool = Pool::new(Budget::new(32 << 20)).expect("memory");
    EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
}

/// Ends a target; it must end.
pub fn stop(running: Running) {
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    report.expect("the target did not stop");
}
