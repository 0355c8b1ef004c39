//! What programs read: an object a line.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use serde::Serialize;

use crate::look::{Look, LookSource, Looks};
use crate::rows::{Between, ClientRow, ConnectionRow, HostRow, ReactorRow, VolumeRow};

/// What was done between two looks.
#[derive(Serialize)]
struct Done {
    boot: String,
    unix_ms: u64,
    /// How long that was.
    seconds: f64,
    refusals_per_s: f64,
    hosts: Vec<HostRow>,
    volumes: Vec<VolumeRow>,
    connections: Vec<ConnectionRow>,
    reactors: Vec<ReactorRow>,
    nfs_clients: Vec<ClientRow>,
    /// Those since the last line.
    events: Vec<serde_json::Value>,
}

/// Prints what is done in each `delay`, so many times or without end. Where weft starts anew in
/// between it goes on with what is done from then on.
///
/// # Errors
/// The first look fails, with the reason; or it cannot be printed.
pub fn print(
    source: &dyn LookSource,
    (delay, count): (Duration, Option<u64>),
    out: &mut dyn Write,
) -> io::Result<Result<(), String>> {
    let mut looks = Looks::default();
    match Look::take(source, None) {
        Ok(look) => drop(looks.add(look)),
        Err(why) => return Ok(Err(why)),
    }
    looks.events.clear();
    let mut left = count;
    while left != Some(0) {
        thread::sleep(delay);
        let since = looks.last().map(|last| last.since().to_owned());
        match Look::take(source, since.as_deref()) {
            Ok(look) => drop(looks.add(look)),
            Err(why) => {
                let _ = writeln!(io::stderr(), "weft: {why}; asking again");
                continue;
            }
        }
        let Some((between, look)) = Between::of(&looks).zip(looks.last()) else {
            continue;
        };
        let done = Done {
            boot: look.figures.boot.clone(),
            unix_ms: look.figures.unix_ms,
            seconds: between.seconds,
            refusals_per_s: between.refusals_per_s(),
            hosts: between.hosts(),
            volumes: between.volumes(),
            connections: between.connections(),
            reactors: between.reactors(),
            nfs_clients: between.clients(),
            events: looks.events.iter().cloned().collect(),
        };
        writeln!(out, "{}", serde_json::to_string(&done)?)?;
        out.flush()?;
        looks.events.clear();
        left = left.map(|left| left - 1);
    }
    Ok(Ok(()))
}
