//! Snapshots to another weft and from one, and what two of them differ in: `weft snapshot send`,
//! `receive` and `diff`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use admin::{Answer, Download, Method, Request, Upload, encoded};
use api::{SnapshotChanges, SnapshotsDone};
use tables::{Cell, SNAPSHOT_CHANGES};

use crate::ask::{self, AskArgs};
use crate::{FAILURE, USAGE, table};

/// How often a person is told how far a stream has come.
const EVERY: Duration = Duration::from_secs(1);

/// Writes the snapshot at `place` to standard output.
pub fn send(
    ask: &AskArgs,
    place: &str,
    (since, from): (Option<&str>, u64),
) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        ask::tell(&"weft: a snapshot is no text: write it to a file or into a pipe");
        return Ok(ExitCode::from(USAGE));
    }
    let at = match ask::address(ask) {
        Ok(at) => at,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let mut target = format!("{place}/stream?from={from}");
    if let Some(since) = since {
        target += &format!("&since={}", encoded(since));
    }
    let request = Request {
        target,
        ..Request::default()
    };
    let mut progress = Progress::new("sent");
    let ended = admin::download(&at, &request, |bytes| {
        progress.add(bytes.len());
        out.write_all(bytes)
    });
    clear_line();
    match ended {
        Ok(Download::Whole) => out.flush().map(|()| ExitCode::SUCCESS),
        Ok(Download::Untaken(error)) => Err(error),
        Ok(Download::Refused(problem)) => Ok(ExitCode::from(ask::refused(ask, None, &problem))),
        Ok(Download::Cut(why)) => {
            ask::tell(&format!(
                "weft: the stream is not whole: {why}: its receiver says from where to send the rest \
                 (`--from`); the log of the weft that sends says more"
            ));
            Ok(ExitCode::from(FAILURE))
        }
        Err(error) => Ok(ExitCode::from(ask::unreached(&at, &error))),
    }
}

/// Brings standard input to `place`.
pub fn receive(ask: &AskArgs, place: &str) -> io::Result<ExitCode> {
    if io::stdin().is_terminal() {
        ask::tell(&"weft: no snapshot comes from a terminal: read it from a file or a pipe");
        return Ok(ExitCode::from(USAGE));
    }
    let at = match ask::address(ask) {
        Ok(at) => at,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let request = Request {
        method: Method::PUT,
        target: format!("{place}/stream"),
        headers: vec![("content-type", "application/octet-stream".to_owned())],
        ..Request::default()
    };
    let mut progress = Progress::new("received");
    let answered = admin::upload(&at, &request, io::stdin(), move |len| progress.add(len));
    clear_line();
    let asked = match answered {
        Ok(Upload::Answered(Answer {
            is_done: true,
            body,
        })) => Ok(body),
        Ok(Upload::Answered(Answer { body, .. })) => Err(ask::refused(ask, None, &body)),
        Ok(Upload::Unread(why)) => {
            ask::tell(&format!(
                "weft: standard input cannot be read: {why}: `weft snapshot list` says what of it was \
                 received"
            ));
            Err(FAILURE)
        }
        Err(error) => Err(ask::unreached(&at, &error)),
    };
    ask::end(ask, asked, |out, answer: &SnapshotsDone| {
        let mut lines = answer.done.iter();
        lines.try_for_each(|line| writeln!(out, "{line}"))
    })
}

/// Lists what the snapshot at `place` may hold that another does not.
pub fn diff(ask: &AskArgs, place: &str, since: &str) -> io::Result<ExitCode> {
    let mut all = SnapshotChanges::default();
    loop {
        let from = all.next.take().unwrap_or_default();
        let target = format!("{place}/changes?since={}&from={from}", encoded(since));
        let page = ask::get(ask, &target).and_then(|page| ask::decoded(&page));
        let page: SnapshotChanges = match page {
            Ok(page) => page,
            Err(code) => return Ok(ExitCode::from(code)),
        };
        all.size_bytes = page.size_bytes;
        all.changes.extend(page.changes);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    let answer = serde_json::to_value(&all).map_err(io::Error::other)?;
    ask::end(ask, Ok(answer), |out, all: &SnapshotChanges| {
        match all.changes.is_empty() {
            true => writeln!(out, "they hold the same"),
            false => table::show(out, SNAPSHOT_CHANGES, &all.changes),
        }
    })
}

/// How far a stream has come, in a line on a terminal.
struct Progress {
    verb: &'static str,
    bytes: u64,
    /// `None`: there is no terminal.
    shown: Option<Instant>,
}

impl Progress {
    fn new(verb: &'static str) -> Progress {
        let is_seen = io::stderr().is_terminal();
        Progress {
            verb,
            bytes: 0,
            shown: is_seen.then(Instant::now),
        }
    }

    fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if let Some(shown) = self.shown.filter(|shown| shown.elapsed() >= EVERY) {
            let _ = write!(
                io::stderr(),
                "\r{} {}  ",
                Cell::Bytes(self.bytes),
                self.verb
            );
            self.shown = Some(shown + EVERY);
        }
    }
}

/// Leaves the line of progress as if it had not been there.
fn clear_line() {
    if io::stderr().is_terminal() {
        // To the left, and nothing from there on (ECMA-48, EL).
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
