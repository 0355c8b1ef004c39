//! The log on standard error: text for people, with color on a terminal; where standard error
//! is the journal, with the priority of each line in place of time and level.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs;
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};

use admin::EventLog;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// What a user should see is printed; this is for a user who looks closer. What has happened,
/// whatever the filter says, is in the answer too.
pub fn to_stderr() -> Arc<EventLog> {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .with_env_var("WEFT_LOG")
        .from_env_lossy();
    let no_color = std::env::var_os("NO_COLOR");
    let log = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(has_color(io::stderr().is_terminal(), no_color.as_deref()))
        // It would be told on standard error, whose end it is: that panics.
        .log_internal_errors(false);
    let events = Arc::new(EventLog::default());
    let all = tracing_subscriber::registry().with(events.layer());
    match is_journal() {
        true => {
            let text = format::format().without_time().with_level(false);
            let log = log.event_format(JournalLines(text));
            all.with(log.with_filter(filter)).init();
        }
        false => all.with(log.with_filter(filter)).init(),
    }
    events
}

/// An error on standard error, which may be closed: what goes on goes on.
pub fn tell_error(error: &dyn Display) {
    let priority = if is_journal() { "<3>" } else { "" };
    let _ = writeln!(io::stderr(), "{priority}weft: {error}");
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
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
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
    fn no_color_takes_the_color_of_a_terminal() {
        let says = |text| Some(OsStr::new(text));
        assert!(has_color(true, None) && has_color(true, says("")));
        assert!(!has_color(true, says("1")) && !has_color(true, says("0")));
        assert!(!has_color(false, None));
    }
}
