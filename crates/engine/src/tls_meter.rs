//! What is counted of TLS at each listener.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use link::TlsBytes;
use machine::locked;

/// What a connection has encrypted is told in parts of at least so many bytes, and at its end.
const PART_BYTES: u64 = 1 << 20;

/// What is counted of TLS at one listener.
#[derive(Debug, Default)]
pub struct TlsMeter {
    /// Handshakes that have made a connection.
    handshakes: AtomicU64,
    /// Those that have made none, by why.
    failures: Mutex<BTreeMap<&'static str, u64>>,
    /// Connections that are encrypted now.
    open: AtomicU64,
    /// What was in records that came.
    opened_bytes: AtomicU64,
    /// What was in those that were sent.
    sealed_bytes: AtomicU64,
}

/// What a [`TlsMeter`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsCounts {
    /// Handshakes that have made a connection.
    pub handshakes: u64,
    /// Those that have made none, by one of [`link::StreamProblem::REASONS`]; the others are 0.
    pub failures: BTreeMap<&'static str, u64>,
    /// Connections that are encrypted now.
    pub open: u64,
    /// Bytes of plaintext in records that came and in those that were sent: of each open
    /// connection up to 1 MiB is not counted yet.
    pub bytes: TlsBytes,
}

impl TlsMeter {
    /// A handshake has made no connection.
    pub(crate) fn failed(&self, reason: &'static str) {
        *locked(&self.failures).entry(reason).or_default() += 1;
    }

    /// What was counted.
    pub fn counts(&self) -> TlsCounts {
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        TlsCounts {
            handshakes: read(&self.handshakes),
            failures: locked(&self.failures).clone(),
            open: read(&self.open),
            bytes: TlsBytes {
                opened: read(&self.opened_bytes),
                sealed: read(&self.sealed_bytes),
            },
        }
    }
}

/// A connection that is encrypted, until it is dropped.
pub(crate) struct MeteredTls {
    meter: Arc<TlsMeter>,
    /// What was told of it.
    told: TlsBytes,
}

impl MeteredTls {
    /// A handshake has made it.
    pub fn new(meter: Arc<TlsMeter>) -> MeteredTls {
        meter.handshakes.fetch_add(1, Ordering::Relaxed);
        meter.open.fetch_add(1, Ordering::Relaxed);
        MeteredTls {
            meter,
            told: TlsBytes::default(),
        }
    }

    /// It has come so far: tells of it if that is worth it.
    #[inline]
    pub fn note(&mut self, now: TlsBytes) {
        let untold = now.opened + now.sealed - self.told.opened - self.told.sealed;
        if untold >= PART_BYTES {
            self.tell(now);
        }
    }

    /// It has come so far.
    #[cold]
    pub fn tell(&mut self, now: TlsBytes) {
        let TlsBytes { opened, sealed } = std::mem::replace(&mut self.told, now);
        let add = |to: &AtomicU64, bytes| to.fetch_add(bytes, Ordering::Relaxed);
        add(&self.meter.opened_bytes, now.opened - opened);
        add(&self.meter.sealed_bytes, now.sealed - sealed);
    }
}

impl Drop for MeteredTls {
    fn drop(&mut self) {
        self.meter.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// By the number of the listener.
#[derive(Default)]
pub(crate) struct TlsMeters(Mutex<BTreeMap<u16, Arc<TlsMeter>>>);

impl TlsMeters {
    pub fn of(&self, listener: u16) -> Arc<TlsMeter> {
        locked(&self.0).entry(listener).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_parts_and_at_the_end() {
        let meters = TlsMeters::default();
        let meter = meters.of(3);
        let mut one = MeteredTls::new(meters.of(3));
        let at = |opened, sealed| TlsBytes { opened, sealed };
        one.note(at(1000, PART_BYTES - 1001));
        assert_eq!(meter.counts().bytes, TlsBytes::default());
        one.note(at(1000, PART_BYTES - 1000));
        assert_eq!(meter.counts().bytes, at(1000, PART_BYTES - 1000));
        one.tell(at(1500, PART_BYTES));
        assert_eq!(meter.counts().bytes, at(1500, PART_BYTES));
        assert_eq!((meter.counts().handshakes, meter.counts().open), (1, 1));
        drop(one);
        assert_eq!((meter.counts().handshakes, meter.counts().open), (1, 0));
        assert_eq!(meters.of(4).counts(), TlsCounts::default());
    }

    #[test]
    fn failures_are_counted_by_reason() {
        let meter = TlsMeter::default();
        meter.failed("wrong-key");
        meter.failed("wrong-key");
        meter.failed("no-tls");
        let wanted = BTreeMap::from([("wrong-key", 2), ("no-tls", 1)]);
        assert_eq!(meter.counts().failures, wanted);
    }
}
