//! `weft top`: what hosts do now, on a terminal or as JSON.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use admin::{AdminAddress, Answer, Request};
use api::{Evicted, ProblemDetails};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use top::{Evicts, LookSource};

use crate::ask::{self, AskArgs};
use crate::evict::{self, EvictKind};
use crate::{FAILURE, USAGE};

#[derive(Args)]
pub struct TopArgs {
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f64,
    /// Print so many lines, with --json; default: without end
    #[arg(long, requires = "json")]
    count: Option<u64>,
    #[command(flatten)]
    ask: AskArgs,
}

/// Shows what is done until a key ends it, or prints it.
pub fn run(arguments: &TopArgs) -> io::Result<ExitCode> {
    let TopArgs { delay, count, ask } = arguments;
    if !(0.1..=3600.0).contains(delay) {
        ask::tell(&"weft: --delay takes 0.1 to 3600 seconds: --delay 2");
        return Ok(ExitCode::from(USAGE));
    }
    let delay = Duration::from_secs_f64(*delay);
    let at = match ask::address(ask) {
        Ok(at) => at,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let source = LookedAt(at);
    let ended = match ask.json {
        true => top::print(&source, (delay, *count), &mut io::stdout().lock()),
        false => top::run(source, delay),
    };
    Ok(match ended? {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            ask::tell(&format!("weft: {why}"));
            ExitCode::from(FAILURE)
        }
    })
}

/// The weft that answers at this address.
struct LookedAt(AdminAddress);

impl LookedAt {
    fn ask(&self, request: &Request) -> Result<Value, String> {
        match admin::ask(&self.0, request) {
            Ok(Answer {
                is_done: true,
                body,
            }) => Ok(body),
            Ok(Answer { body, .. }) => Err(reason(&body)),
            Err(error) => Err(ask::why_unreached(&self.0, &error)),
        }
    }
}

impl LookSource for LookedAt {
    fn get(&self, path: &str) -> Result<Value, String> {
        self.ask(&Request {
            target: path.to_owned(),
            ..Request::default()
        })
    }

    fn evict(&self, what: &Evicts) -> Result<Vec<String>, String> {
        let (kind, name) = match what {
            Evicts::Connection(id) => (EvictKind::Connection, id),
            Evicts::Host(name) => (EvictKind::Host, name),
            Evicts::NfsClient(id) => (EvictKind::NfsClient, id),
        };
        let answer = self.ask(&evict::request(kind, name))?;
        let evicted = Evicted::deserialize(answer).map_err(|error| error.to_string())?;
        Ok(evicted.done)
    }
}

fn reason(problem: &Value) -> String {
    let told = ProblemDetails::deserialize(problem);
    told.map_or_else(|error| error.to_string(), |told| told.detail)
}
