//! Hosts go elsewhere before maintenance: `weft drain`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use admin::{Method, Request};
use api::{Drain, Host};
use clap::Args;
use tables::HOSTS;

use crate::ask::{self, AskArgs, Asked};
use crate::{FAILURE, table};

const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct DrainArgs {
    /// Only say what would be done to whom
    #[arg(long, conflicts_with = "end")]
    dry_run: bool,
    /// Do it although hosts that have no other path are cut
    #[arg(long, conflicts_with = "end")]
    disconnect: bool,
    /// Take from NFS clients what they have, too: they wait until they are let in again
    #[arg(long, conflicts_with = "end")]
    evict: bool,
    /// How long to wait until no command is in flight
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        conflicts_with = "end"
    )]
    wait: u64,
    /// Let hosts in again
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    ask: AskArgs,
}

/// Drains, and says who has gone and who is left; or ends that.
pub fn run(arguments: &DrainArgs) -> io::Result<ExitCode> {
    let DrainArgs { ask, .. } = arguments;
    let (dry_run, disconnect, evict) = (arguments.dry_run, arguments.disconnect, arguments.evict);
    let method = match arguments.end {
        true => Method::DELETE,
        false => Method::POST,
    };
    let target = match arguments.end {
        true => "/v1/drain".to_owned(),
        false => format!("/v1/drain?dry_run={dry_run}&disconnect={disconnect}&evict={evict}"),
    };
    let request = Request {
        method,
        target,
        ..Request::default()
    };
    let asked = ask::ask(ask, &request, None);
    if arguments.end || dry_run {
        return ask::end(ask, asked, show);
    }
    let begun: Drain = match asked.and_then(|answer| ask::decoded(&answer)) {
        Ok(begun) => begun,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    if !ask.json {
        show(&mut io::stdout().lock(), &begun)?;
    }
    let (asked, is_quiet) = until_quiet(arguments, begun);
    let printed = ask::end(ask, asked, |out, drain| {
        show_end(out, drain, (arguments.wait, is_quiet))
    })?;
    Ok(match is_quiet {
        true => printed,
        false => ExitCode::from(FAILURE),
    })
}

/// Waits until no command was in flight twice, and none was done between; what is so then.
fn until_quiet(arguments: &DrainArgs, begun: Drain) -> (Asked, bool) {
    let give_up = Instant::now() + Duration::from_secs(arguments.wait);
    let mut before = begun;
    loop {
        let asked = ask::get(&arguments.ask, "/v1/drain");
        let now: Drain = match asked.clone().and_then(|answer| ask::decoded(&answer)) {
            Ok(now) => now,
            Err(code) => return (Err(code), false),
        };
        let is_quiet = is_idle(&before) && is_idle(&now) && ios(&before) == ios(&now);
        if is_quiet || !now.is_drained || Instant::now() >= give_up {
            return (asked, is_quiet);
        }
        before = now;
        thread::sleep(LOOK_EVERY);
    }
}

fn is_idle(drain: &Drain) -> bool {
    drain.left.iter().all(|host| host.in_flight == 0)
}

/// What was done for those that are left.
fn ios(drain: &Drain) -> Vec<(&str, u64)> {
    let left = drain.left.iter();
    left.map(|host| (host.name.as_str(), host.ios)).collect()
}

fn show(out: &mut dyn Write, drain: &Drain) -> io::Result<()> {
    let Some(plan) = &drain.plan else {
        if drain.done.is_empty() {
            writeln!(out, "weft is not drained: there is nothing to end")?;
        }
        return drain
            .done
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"));
    };
    for line in plan {
        writeln!(out, "{}", ask::marked(line))?;
    }
    let cut = plan.iter().filter(|line| line.disturbs).count();
    writeln!(out, "{}", count_of(plan.len(), cut))
}

fn count_of(hosts: usize, cut: usize) -> String {
    match cut {
        0 => format!("hosts: {hosts}, none is cut"),
        _ => format!("hosts: {hosts}, cut where they have no other path: {cut}"),
    }
}

fn show_end(out: &mut dyn Write, drain: &Drain, (wait, is_quiet): (u64, bool)) -> io::Result<()> {
    match (is_quiet, drain.is_drained) {
        (true, _) => writeln!(out, "quiet: no command is in flight")?,
        (false, true) => writeln!(out, "NOT QUIET after {wait} s: commands are in flight")?,
        (false, false) => writeln!(out, "NOT DRAINED any more: it was ended meanwhile")?,
    }
    let names = |all: &[Host]| {
        let names: Vec<_> = all.iter().map(|host| host.name.as_str()).collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    };
    writeln!(out, "gone: {}", names(&drain.gone))?;
    match drain.left.is_empty() {
        true => writeln!(out, "left: none"),
        false => {
            writeln!(out, "left:")?;
            table::show(out, HOSTS, &drain.left)
        }
    }
}
