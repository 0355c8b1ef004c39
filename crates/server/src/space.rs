//! The space below thin volumes: what is told when little of it is left.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use store::Volume;

/// How often the space is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks at the space below all volumes, for as long as the target is there (`volumes` are
/// `None` then). NVMe hosts are told by their service.
pub(crate) fn start(
    nvme: &Arc<serve_nvme::Service>,
    volumes: impl Fn() -> Option<Vec<Arc<dyn Volume>>> + Send + 'static,
) -> std::io::Result<()> {
    let nvme = Arc::downgrade(nvme);
    let thread = thread::Builder::new().name("weft-space".into());
    thread.spawn(move || keep_looking(&nvme, volumes)).map(drop)
}

fn keep_looking(
    nvme: &Weak<serve_nvme::Service>,
    volumes: impl Fn() -> Option<Vec<Arc<dyn Volume>>>,
) {
    while let Some((nvme, volumes)) = nvme.upgrade().zip(volumes()) {
        if nvme.shared.is_stopping() {
            break;
        }
        look(&nvme, &volumes);
        drop((nvme, volumes));
        thread::park_timeout(LOOK_EVERY);
    }
}

/// Tells what the last look has found, and begins the next one, for which nothing waits here.
fn look(nvme: &serve_nvme::Service, volumes: &[Arc<dyn Volume>]) {
    for volume in volumes {
        if let Some(level) = volume.base().pass_level() {
            tracing::warn!(
                event = "space-low",
                volume = volume.info().name,
                "more than {level} % of what the volume lies in is taken: free space there or \
                 enlarge it, before writes of new data fail"
            );
            nvme.space_is_low(volume);
        }
        nvme.shared.look_at_space(volume);
    }
}
