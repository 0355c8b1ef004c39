//! Lines of the log as entries of the journal, each a datagram at its socket
//! (systemd, "Native Journal Protocol").

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use admin::LogFields;
use serde_json::Value;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use uuid::Uuid;

/// Where the journal takes entries.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The space of names of events (RFC 9562, section 5.5).
const EVENTS: Uuid = Uuid::from_u128(0x3f6c_1f0e_8a57_4d0b_9c1e_5b7d_2a94_e610);

/// What brings lines of the log there.
pub struct JournalLayer(UnixDatagram);

impl JournalLayer {
    /// # Errors
    /// The journal does not listen.
    pub fn new() -> io::Result<JournalLayer> {
        let socket = UnixDatagram::unbound()?;
        // It throws an empty one away.
        socket.send_to(&[], JOURNAL)?;
        Ok(JournalLayer(socket))
    }
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let entry = entry_of(event.metadata(), &LogFields::of(event));
        // A log that cannot be written is no reason to serve no longer.
        let _ = self.0.send_to(entry.as_bytes(), JOURNAL);
    }
}

/// The priority of a line (sd-daemon(3)).
pub fn priority_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// What an event is known by, whatever its words (systemd.journal-fields(7)).
fn message_id(event: &str) -> String {
    Uuid::new_v5(&EVENTS, event.as_bytes()).simple().to_string()
}

/// A line for each field; no value of [`LogFields`] has an end of line.
fn entry_of(metadata: &Metadata<'_>, fields: &LogFields) -> String {
    let mut entry = String::new();
    let mut add = |key: &str, value: &str| {
        let _ = writeln!(entry, "{key}={value}");
    };
    add("PRIORITY", &priority_of(*metadata.level()).to_string());
    add("SYSLOG_IDENTIFIER", "weft");
    add("TARGET", metadata.target());
    if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
        let name = Path::new(file).file_name().unwrap_or_default();
        add("CODE_FILE", &name.to_string_lossy());
        add("CODE_LINE", &line.to_string());
    }
    if !fields.event.is_empty() {
        add("EVENT", &fields.event);
        add("MESSAGE_ID", &message_id(&fields.event));
    }
    add("MESSAGE", &fields.text);
    for (key, value) in &fields.details {
        let key = key.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let key = key.trim_start_matches('_').to_ascii_uppercase();
        match value {
            Value::String(text) => add(&key, text),
            value => add(&key, &value.to_string()),
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/operate.md");

    /// The events of the document, and what it says of their identifiers.
    fn documented() -> Vec<(&'static str, &'static str)> {
        let rows = DOCUMENT.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
            let (event, _, id) = (cells.next()?, cells.next()?, cells.next()?);
            let id = id.strip_prefix('`')?.strip_suffix('`')?;
            (id.len() == 32).then_some((event.strip_suffix('`')?, id))
        });
        rows.collect()
    }

    #[test]
    fn event_has_the_message_id_that_the_document_says() {
        let all = documented();
        assert!(all.len() > 20, "{all:?}");
        for (event, id) in all {
            assert_eq!(message_id(event), id, "{event}");
        }
    }

    #[test]
    fn event_of_every_room_is_in_the_document() {
        let known: BTreeSet<_> = documented().into_iter().map(|(event, _)| event).collect();
        let rooms = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let mut folders: Vec<_> = fs::read_dir(rooms).expect("rooms").flatten().collect();
        let mut found = BTreeSet::new();
        while let Some(entry) = folders.pop() {
            let path = entry.path();
            if path.is_dir() {
                folders.extend(fs::read_dir(path).expect("a folder").flatten());
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            let named = text.split("event = \"").skip(1);
            let is_source = path.extension().is_some_and(|name| name == "rs");
            if is_source && text.contains("tracing::") {
                found.extend(named.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
        let missing: Vec<_> = found
            .iter()
            .filter(|event| !known.contains(&***event))
            .collect();
        assert!(found.len() > 10 && missing.is_empty(), "{missing:?}");
    }
}
