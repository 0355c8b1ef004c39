//! The log on standard error, or in the journal, as `WEFT_LOG_FORMAT` says. `text`, for people:
//! with color on a terminal; where standard error is the journal, with the priority of each
//! line in place of time and level. `json`, for programs: an object a line. `journal`: lines with
//! fields of the journal.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};

use admin::{EventLog, LogFields};
use serde_json::{Value, json};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::journal::{JournalLayer, priority_of};

/// What the log is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    Text,
    Json,
    Journal,
}

impl LogFormat {
    /// As the environment names it.
    fn of(named: Option<&OsStr>) -> Result<LogFormat, String> {
        let Some(named) = named.filter(|named| !named.is_empty()) else {
            return Ok(LogFormat::Text);
        };
        match named.to_str() {
            Some("text") => Ok(LogFormat::Text),
            Some("json") => Ok(LogFormat::Json),
            Some("journal") => Ok(LogFormat::Journal),
            _ => Err(format!(
                "WEFT_LOG_FORMAT is {named:?}: it is text, json or journal"
            )),
        }
    }
}

fn log_format() -> Result<LogFormat, String> {
    LogFormat::of(std::env::var_os("WEFT_LOG_FORMAT").as_deref())
}

/// What a user should see is printed; this is for a user who looks closer. What has happened,
/// whatever the filter says, is in the answer too.
///
/// # Errors
/// The environment names no format, or the journal does not listen; what to do.
pub fn start() -> Result<Arc<EventLog>, String> {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .with_env_var("WEFT_LOG")
        .from_env_lossy();
    let events = Arc::new(EventLog::default());
    let all = tracing_subscriber::registry().with(events.layer());
    all.with(layer(log_format()?)?.with_filter(filter)).init();
    Ok(events)
}

fn layer<S>(to: LogFormat) -> Result<Box<dyn Layer<S> + Send + Sync>, String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let no_color = std::env::var_os("NO_COLOR");
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(has_color(io::stderr().is_terminal(), no_color.as_deref()))
        // It would be told on standard error, whose end it is: that panics.
        .log_internal_errors(false);
    Ok(match to {
        LogFormat::Json => lines.event_format(JsonLines).boxed(),
        LogFormat::Journal => {
            let journal = JournalLayer::new().map_err(|error| {
                format!(
                    "WEFT_LOG_FORMAT is journal, and the journal does not listen: {error}: start \
                     weft where it does, or log as text or json"
                )
            })?;
            journal.boxed()
        }
        LogFormat::Text if is_journal() => {
            let text = format::format().without_time().with_level(false);
            lines.event_format(JournalLines(text)).boxed()
        }
        LogFormat::Text => lines.boxed(),
    })
}

/// An error on standard error, which may be closed: what goes on goes on.
pub fn tell_error(error: &dyn Display) {
    let mut out = io::stderr();
    let _ = match log_format() {
        Ok(LogFormat::Json) => {
            let text = error.to_string();
            let fields = LogFields {
                text,
                ..LogFields::default()
            };
            let line = json_line(Level::ERROR, "weft", &fields);
            writeln!(out, "{line}")
        }
        _ => {
            let priority = if is_journal() { "<3>" } else { "" };
            writeln!(out, "{priority}weft: {error}")
        }
    };
}

/// A line of JSON; the keys are those of an event of `weft events --json`.
fn json_line(level: Level, target: &str, fields: &LogFields) -> Value {
    let LogFields {
        event,
        text,
        details,
    } = fields;
    json!({
        "time": admin::now(),
        "level": level.as_str().to_ascii_lowercase(),
        "target": target,
        "event": (!event.is_empty()).then_some(event),
        "text": text,
        "details": details,
    })
}

/// An object a line.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let line = json_line(*metadata.level(), metadata.target(), &LogFields::of(event));
        writeln!(writer, "{line}")
    }
}

/// Whether the log has color: a terminal's, unless NO_COLOR says anything
/// (no-color.org).
fn has_color(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Whether standard error is the journal's (systemd.exec(5), JOURNAL_STREAM): children inherit
/// the variable, and may have another standard error.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let named = std::env::var("JOURNAL_STREAM");
        let there = fs::metadata("/proc/self/fd/2");
        match (named, there) {
            (Ok(named), Ok(there)) => named == format!("{}:{}", there.dev(), there.ino()),
            _ => false,
        }
    })
}

/// Lines with a priority before each (sd-daemon(3)).
struct JournalLines(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = priority_of(*event.metadata().level());
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        for line in text.lines() {
            writeln!(writer, "<{priority}>{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_text_unless_the_environment_names_another_format() {
        let of = |named: &str| LogFormat::of(Some(OsStr::new(named)));
        assert_eq!(LogFormat::of(None), Ok(LogFormat::Text));
        assert_eq!(of(""), Ok(LogFormat::Text));
        assert_eq!(of("json"), Ok(LogFormat::Json));
        assert_eq!(of("journal"), Ok(LogFormat::Journal));
        let error = of("xml").expect_err("no format");
        assert!(error.contains("text, json or journal"), "{error}");
    }

    #[test]
    fn no_color_takes_the_color_of_a_terminal() {
        let says = |text| Some(OsStr::new(text));
        assert!(has_color(true, None) && has_color(true, says("")));
        assert!(!has_color(true, says("1")) && !has_color(true, says("0")));
        assert!(!has_color(false, None));
    }
}
