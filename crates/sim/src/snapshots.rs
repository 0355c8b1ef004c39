//! Where snapshots of simulated volumes lie. What one holds is what reads of the file see
//! when it is taken: the run looks at that, in which no time passes meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use store::Range;
use store::snapshot::{SnapshotData, SnapshotMedium};

#[derive(Default)]
struct Kept {
    /// Names and records.
    snapshots: BTreeMap<String, String>,
    /// Those that were taken and are not kept.
    taken: Vec<String>,
}

/// The snapshots of one volume; every change is durable.
#[derive(Clone, Default)]
pub struct SimSnapshots(Arc<Mutex<Kept>>);

impl SimSnapshots {
    fn with<T>(&self, deed: impl FnOnce(&mut Kept) -> T) -> T {
        deed(&mut self.0.lock().expect("one thread"))
    }
}

impl SnapshotMedium for SimSnapshots {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.with(|kept| kept.snapshots.keys().cloned().collect()))
    }

    fn record(&self, name: &str) -> io::Result<Vec<u8>> {
        let record = self.with(|kept| kept.snapshots.get(name).cloned());
        Ok(record.unwrap_or_default().into_bytes())
    }

    fn data(&self, _: &str) -> io::Result<SnapshotData> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn prepare(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn take(&self, name: &str) -> io::Result<()> {
        self.with(|kept| kept.taken.push(name.to_owned()));
        Ok(())
    }

    fn keep(&self, name: &str, record: &str) -> io::Result<()> {
        self.with(|kept| {
            let at = kept.taken.iter().position(|taken| taken == name);
            kept.taken.swap_remove(at.expect("it was taken"));
            kept.snapshots.insert(name.to_owned(), record.to_owned());
        });
        Ok(())
    }

    fn discard(&self, name: &str) {
        self.with(|kept| {
            kept.taken.retain(|taken| taken != name);
            kept.snapshots.remove(name);
        });
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|kept| kept.snapshots.remove(name));
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn clone_to(&self, _: &str, _: &Path, _: &[Range]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn pending(&self) -> io::Result<Option<String>> {
        Ok(None)
    }

    fn set_pending(&self, _: Option<&str>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn restore(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn clean(&self) {}
}
