//! `weft events`: what has happened, and what happens.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use admin::{Followed, Request};
use clap::Args;
use serde_json::Value;
use tables::plain;

use crate::ask::{self, AskArgs};

/// How long to wait for a weft that starts anew.
const TRY_AGAIN: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct EventsArgs {
    /// Go on with what happens from now on, over a restart of weft too; Ctrl-C ends it
    #[arg(short, long)]
    follow: bool,
    /// Only what came behind the event of this number or id
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    #[command(flatten)]
    ask: AskArgs,
}

/// Prints events, a line each.
pub fn run(arguments: &EventsArgs) -> io::Result<ExitCode> {
    let EventsArgs { follow, since, ask } = arguments;
    let mut target = "/v1/events".to_owned();
    if let Some(since) = since {
        target += &format!("?since={}", admin::encoded(since));
    }
    if *follow {
        return follow_events(ask, target);
    }
    let events = match ask::get(ask, &target) {
        Ok(answer) => answer["events"].as_array().cloned().unwrap_or_default(),
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let mut out = io::stdout().lock();
    for event in &events {
        writeln!(out, "{}", line_of(event, ask.json))?;
    }
    if events.is_empty() && !ask.json {
        writeln!(out, "nothing has happened since")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn follow_events(ask: &AskArgs, target: String) -> io::Result<ExitCode> {
    let at = match ask::address(ask) {
        Ok(at) => at,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let mut request = Request {
        target,
        ..Request::default()
    };
    let mut last = None;
    loop {
        let followed = admin::follow(&at, &request, &mut last, |event| {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", line_of(event, ask.json)).and_then(|()| out.flush())
        });
        match followed {
            Ok(Followed::Refused(problem)) => {
                return Ok(ExitCode::from(ask::refused(ask, None, &problem)));
            }
            Ok(Followed::Untaken(error)) => return Err(error),
            Ok(Followed::Ended) => ask::tell(&"weft: the connection has ended; asking again"),
            Err(error) if last.is_none() => {
                return Ok(ExitCode::from(ask::unreached(&at, &error)));
            }
            // It starts anew.
            Err(_) => {}
        }
        if let Some(id) = &last {
            request.headers = vec![("last-event-id", id.clone())];
        }
        thread::sleep(TRY_AGAIN);
    }
}

/// As a program reads it, or people do.
fn line_of(event: &Value, is_json: bool) -> String {
    if is_json {
        return event.to_string();
    }
    let text = |key: &str| event[key].as_str().unwrap_or("-");
    let id = event["id"].as_u64().map(|id| id.to_string());
    // To the second: 2026-01-05T08:00:00.
    let time = text("time").get(..19).map(|time| format!("{time}Z"));
    let (id, time) = (id.as_deref().unwrap_or("-"), time.as_deref().unwrap_or("-"));
    let (level, name) = (text("level"), text("event"));
    let mut line = format!(
        "{id:>6}  {time:<20}  {level:<5}  {name:<16}  {}",
        text("text")
    );
    for (name, value) in event["details"].as_object().into_iter().flatten() {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        line += &format!(" {name}={value}");
    }
    plain(&line).replace('\n', "\\n")
}
