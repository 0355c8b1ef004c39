//! The space below thin volumes: what is told when little of it is left.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::shared::Shared;

/// How often the space is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks at the space below all volumes, for as long as the target is there.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let thread = thread::Builder::new().name("weft-space".into());
    thread.spawn(move || keep_looking(&shared)).map(drop)
}

fn keep_looking(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        if shared.engine.is_stopping() {
            break;
        }
        look(&shared);
        drop(shared);
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Tells what the last look has found, and begins the next one, for which nothing waits here.
fn look(shared: &Shared) {
    for volume in shared.volumes() {
        if let Some(level) = volume.base().pass_level() {
            tracing::warn!(
                event = "space-low",
                volume = volume.info().name,
                "more than {level} % of what the volume lies in is taken: free space there or \
                 enlarge it, before writes of new data fail"
            );
            shared.nvme.space_is_low(&volume);
        }
        shared.engine.look_at_space(&volume);
    }
}
