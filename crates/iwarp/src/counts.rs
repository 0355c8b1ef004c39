//! What the streams of a reactor have moved.

use std::cell::Cell;
use std::rc::Rc;

use crate::QpCounts;

/// Of all streams of a reactor that there are or were.
#[derive(Clone, Debug, Default)]
pub struct StreamCounts(Rc<Cell<QpCounts>>);

impl StreamCounts {
    /// What they have moved so far.
    pub fn get(&self) -> QpCounts {
        self.0.get()
    }

    /// Counts a stream from now on, which has moved `before` on another reactor.
    pub fn stream(&self, before: QpCounts) -> CountedStream {
        CountedStream {
            own: QpCounts { reads: 0, ..before },
            all: self.clone(),
        }
    }
}

/// A stream that is counted. When it is dropped, none of its reads is under way.
#[derive(Debug)]
pub struct CountedStream {
    /// What of it was counted.
    own: QpCounts,
    all: StreamCounts,
}

impl CountedStream {
    /// Counts what has moved since the last time, of a stream that has moved `now` in all.
    pub fn note(&mut self, now: QpCounts) {
        let before = std::mem::replace(&mut self.own, now);
        let all = self.all.get();
        self.all.0.set(QpCounts {
            fpdus_received: all.fpdus_received + now.fpdus_received - before.fpdus_received,
            fpdus_sent: all.fpdus_sent + now.fpdus_sent - before.fpdus_sent,
            reads: all.reads + now.reads - before.reads,
        });
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.note(QpCounts {
            reads: 0,
            ..self.own
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(fpdus_received: u64, fpdus_sent: u64, reads: u64) -> QpCounts {
        QpCounts {
            fpdus_received,
            fpdus_sent,
            reads,
        }
    }

    #[test]
    fn stream_is_counted_where_it_is() {
        let (here, there) = (StreamCounts::default(), StreamCounts::default());
        let mut other = here.stream(QpCounts::default());
        other.note(counts(1, 2, 3));
        let mut stream = here.stream(QpCounts::default());
        stream.note(counts(10, 20, 2));
        assert_eq!(here.get(), counts(11, 22, 5));
        drop(stream);
        assert_eq!(here.get(), counts(11, 22, 3));
        let mut stream = there.stream(counts(10, 20, 2));
        stream.note(counts(12, 20, 1));
        assert_eq!(there.get(), counts(2, 0, 1));
        assert_eq!(here.get(), counts(11, 22, 3));
    }
}
