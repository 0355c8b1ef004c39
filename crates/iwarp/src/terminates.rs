//! How many streams have ended by which Terminate.

use std::collections::BTreeMap;
use std::sync::Mutex;

use machine::locked;

use crate::QpError;

/// The side that has sent a Terminate (`weft` or `peer`), what it says, how often.
pub type TerminateCount = (&'static str, &'static str, u64);

/// Terminates of all streams of a protocol. There are as many lines as standards have codes,
/// for each side, and one for all others.
#[derive(Debug, Default)]
pub struct TerminateCounts(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

impl TerminateCounts {
    /// A stream has ended.
    pub fn note(&self, why: &QpError) {
        let (sender, code) = match why {
            QpError::Sent(code) => ("weft", code),
            QpError::Received(code) => ("peer", code),
            QpError::Mpa(_) => return,
        };
        let error = code.name().unwrap_or("reserved");
        *locked(&self.0).entry((sender, error)).or_default() += 1;
    }

    /// Those that there were.
    pub fn list(&self) -> Vec<TerminateCount> {
        let all = locked(&self.0);
        let all = all.iter();
        all.map(|((sender, error), times)| (*sender, *error, *times))
            .collect()
    }
}
