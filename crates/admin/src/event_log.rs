//! What has happened, as the log tells it: a line of the log that has a field `event` is an
//! event. The last ones stay, numbered from 1 on, for whoever asks.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use api::EventLine;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::counters::now;
use crate::shown::shown;

/// Events that stay.
pub(crate) const KEPT_MAX: usize = 4096;
/// Those who may follow at a time: others need connections too.
pub(crate) const FOLLOWERS_MAX: usize = 32;
/// What stays of a text: a peer may have chosen it.
const TEXT_BYTES_MAX: usize = 1024;
/// The field of a log line that names its event.
const NAME: &str = "event";

/// The last events of this process.
#[derive(Debug)]
pub struct EventLog {
    /// Tells this process from those before and after it.
    boot: String,
    kept_max: usize,
    kept: Mutex<Kept>,
    /// The number of the last one, for those who wait.
    last: watch::Sender<u64>,
    /// Places of those who follow.
    pub(crate) followers: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    events: VecDeque<Arc<Value>>,
}

/// What a reader gets at a time.
pub(crate) struct Batch {
    /// Events that it has missed, before these.
    pub lost: u64,
    /// With their numbers.
    pub events: Vec<(u64, Arc<Value>)>,
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog::keeping(KEPT_MAX)
    }
}

impl EventLog {
    /// One that keeps so many.
    pub(crate) fn keeping(kept_max: usize) -> EventLog {
        let started = UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
        EventLog {
            boot: format!("{started:x}"),
            kept_max,
            kept: Mutex::default(),
            last: watch::Sender::new(0),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
        }
    }

    /// What brings events of the log here.
    #[must_use]
    pub fn layer<S>(self: &Arc<Self>) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let names_event = |metadata: &Metadata<'_>| metadata.fields().field(NAME).is_some();
        EventLayer(self.clone()).with_filter(filter_fn(names_event))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// The number of the last event; 0 before the first.
    pub(crate) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// At most so many events behind the one of the number `since`.
    pub(crate) fn after(&self, since: u64, max: usize) -> Batch {
        let kept = self.kept();
        let first = kept.last + 1 - kept.events.len() as u64;
        let from = (since + 1).max(first);
        let events = kept.events.iter().skip((from - first) as usize).take(max);
        Batch {
            lost: from - (since + 1),
            events: (from..).zip(events.cloned()).collect(),
        }
    }

    /// All that are kept, as lines of a table.
    pub(crate) fn lines(&self) -> Vec<EventLine> {
        let kept = self.kept();
        let line = |event: &Arc<Value>| {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let details = event["details"].as_object().into_iter().flatten();
            let details = details.map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                value => format!("{name}={value}"),
            });
            EventLine {
                id: event["id"].as_u64().unwrap_or_default(),
                time: text("time"),
                level: text("level"),
                event: text("event"),
                text: text("text"),
                details: details.collect::<Vec<_>>().join(" "),
            }
        };
        kept.events.iter().map(line).collect()
    }

    fn add(&self, event: &str, level: &str, text: &str, details: Map<String, Value>) {
        let mut kept = self.kept();
        kept.last += 1;
        let value = json!({
            "id": kept.last,
            "boot": self.boot,
            "time": now(),
            "level": level,
            "event": event,
            "text": text,
            "details": details,
        });
        if kept.events.len() == self.kept_max {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::new(value));
        self.last.send_replace(kept.last);
    }
}

struct EventLayer(Arc<EventLog>);

impl<S: Subscriber> Layer<S> for EventLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let fields = LogFields::of(event);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        self.0
            .add(&fields.event, &level, &fields.text, fields.details);
    }
}

/// What a line of the log says.
#[derive(Debug, Default)]
pub struct LogFields {
    /// The event that it is, if it is one.
    pub event: String,
    /// In words.
    pub text: String,
    /// All else, by name.
    pub details: Map<String, Value>,
}

impl LogFields {
    /// Of a line. A text of a peer is bounded, and without what commands a terminal.
    #[must_use]
    pub fn of(event: &Event<'_>) -> LogFields {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        fields
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.details.insert(field.name().to_owned(), value);
    }
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, text: &str) {
        let text = cut(shown(text.as_bytes()));
        match field.name() {
            NAME => self.event = text,
            "message" => self.text = text,
            _ => self.add(field, text.into()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }

    fn record_u64(&mut self, field: &Field, number: u64) {
        self.add(field, number.into());
    }

    fn record_i64(&mut self, field: &Field, number: i64) {
        self.add(field, number.into());
    }

    fn record_bool(&mut self, field: &Field, is_so: bool) {
        self.add(field, is_so.into());
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let mut ends = (0..=TEXT_BYTES_MAX).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn noted(log: &Arc<EventLog>, deed: impl FnOnce()) -> Vec<Value> {
        let since = log.last();
        let subscriber = tracing_subscriber::registry().with(log.layer());
        tracing::subscriber::with_default(subscriber, deed);
        let batch = log.after(since, usize::MAX);
        batch
            .events
            .iter()
            .map(|(_, event)| (**event).clone())
            .collect()
    }

    #[test]
    fn line_of_the_log_with_an_event_is_one_and_others_are_not() {
        let log = Arc::new(EventLog::default());
        let peer = "10.0.0.1:9";
        let events = noted(&log, || {
            tracing::info!("a line");
            let reason = "it says \u{1b}[31m";
            tracing::warn!(event = "refused", %peer, host = None::<&str>, reason, count = 3_u64,
                is_last = true, "connection {}", "refused");
        });
        assert_eq!(events.len(), 1, "{events:#?}");
        let event = &events[0];
        let told = ["id", "level", "event", "text"].map(|key| event[key].clone());
        let expected: [Value; 4] = [
            1.into(),
            "warn".into(),
            "refused".into(),
            "connection refused".into(),
        ];
        assert_eq!(told, expected);
        assert_eq!(
            event["details"],
            json!({ "peer": peer, "reason": "it says \\u{1b}[31m", "count": 3, "is_last": true })
        );
    }

    #[test]
    fn long_text_of_a_peer_is_cut_between_characters() {
        let log = Arc::new(EventLog::default());
        let long = "é".repeat(TEXT_BYTES_MAX);
        let events = noted(&log, || {
            tracing::info!(event = "connected", host = long, "came")
        });
        let host = events[0]["details"]["host"].as_str().expect("text");
        assert!(host.len() <= TEXT_BYTES_MAX + 3 && host.ends_with('…'));
    }

    #[test]
    fn reader_that_is_late_is_told_how_many_it_has_lost() {
        let log = Arc::new(EventLog::keeping(4));
        noted(&log, || {
            (0..10_u64).for_each(|n| tracing::info!(event = "connected", n, "came"));
        });
        let batch = log.after(0, 2);
        let numbers: Vec<_> = batch.events.iter().map(|(number, _)| *number).collect();
        assert_eq!((batch.lost, numbers), (6, vec![7, 8]));
        let batch = log.after(8, 10);
        assert_eq!((batch.lost, batch.events.len()), (0, 2));
        let batch = log.after(10, 10);
        assert_eq!((batch.lost, batch.events.len(), log.last()), (0, 0, 10));
    }
}
