//! The end of what is on an encrypted volume: its data key is destroyed.

use std::sync::Arc;

use store::{EraseError, Io, Volume};

use crate::post::{AfterMail, ShardMail};
use crate::refusals::{Refusal, RefusalKind};
use crate::{About, Shared};

impl Shared {
    /// Destroys the data key of an encrypted volume for a host of this name, after all I/O on it
    /// that has begun, gives the space of its blocks back, so that they read as zeros, and says
    /// how that went: here, on a reactor or by the blocking worker.
    pub fn erase(
        self: &Arc<Self>,
        volume: &Arc<dyn Volume>,
        host: Option<String>,
        then: AfterMail<Result<(), EraseError>>,
    ) {
        let (shared, volume) = (self.clone(), volume.clone());
        let about = About::state(&volume);
        self.blocking(about, move || {
            let encryption = volume.encryption().ok_or(EraseError::Locked);
            let name = volume.info().name.clone();
            if let Err(error) = encryption.and_then(store::Encryption::erase) {
                let reason = format_args!("its data was not erased: {error}");
                shared.refusals.note(Refusal {
                    volume: Some(&name),
                    host: host.as_deref(),
                    ..Refusal::new(RefusalKind::CHANGE, &reason)
                });
                if volume.is_locked() {
                    shared.hearing().for_each(|hears| hears.locked());
                }
                return then(Err(error));
            }
            tracing::warn!(
                event = "erased",
                volume = name,
                host,
                "a host has erased the volume"
            );
            let all = Io::Deallocate {
                offset: 0,
                len: volume.size_bytes(),
            };
            // What cannot be given back is noise from now on.
            let done = Box::new(move |_| then(Ok(())));
            shared.send(0, ShardMail::Run(volume, all, done));
        });
    }
}
