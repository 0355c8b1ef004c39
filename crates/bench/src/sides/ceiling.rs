//! Bare sockets: `weft ceiling`.

use std::time::Duration;

use super::super::load::{Load, LoadProtocol, Payload};
use super::child::{Child, Words};
use super::client::millis;
use super::config::word;
use super::sampled::{ClientSample, json, list, number, pairs, percentiles, sample};
use super::{Around, FigureError, SideRun};
use client::perf::Rw;

/// How long it may take beside what it is asked for.
const END_MAX: Duration = Duration::from_secs(30);
/// The most connections that it makes.
const CONNECTIONS_MAX: u32 = 256;
/// Payloads of a vectored call, which cold memory must have room for.
const SPAN_PAYLOADS: u64 = 256;

/// Which way the payload goes.
fn shape(rw: Rw) -> Option<&'static str> {
    match rw {
        Rw::Read | Rw::RandRead => Some("read"),
        Rw::Write | Rw::RandWrite => Some("write"),
        _ => None,
    }
}

/// Connections of all hosts.
fn connections(load: &Load) -> u32 {
    let devices = load.devices.max(load.hosts);
    u32::from(load.connections) * u32::from(devices)
}

/// Whether bare sockets have anything like this load.
pub fn available(load: &Load) -> Result<(), String> {
    let why = if shape(load.rw).is_none() {
        "bare sockets only read or only write"
    } else if connections(load) > CONNECTIONS_MAX {
        "bare sockets are measured on 256 connections at most"
    } else {
        return Ok(());
    };
    Err(why.into())
}

/// One run: as many of them as there are cores on the smaller side, each with its
/// share of the connections.
pub fn measure(
    around: &Around,
    protocol: LoadProtocol,
    payload: Payload,
) -> Result<SideRun, FigureError> {
    let (load, how_long, cpus) = (around.load, around.how_long, &around.cpus);
    let all = connections(load);
    let pairs_of_cpus = cpus.target.iter().zip(cpus.client.iter().cycle());
    let pairs_of_cpus: Vec<_> = pairs_of_cpus.take(all as usize).collect();
    let count = pairs_of_cpus.len() as u32;
    let span = match payload {
        Payload::Hot => 0,
        Payload::Cold => {
            let share = how_long.volume_bytes / u64::from(count);
            share.max(u64::from(load.bs) * SPAN_PAYLOADS)
        }
    };
    let mut commands = Vec::new();
    let mut children = Vec::new();
    for ((server, client), number) in pairs_of_cpus.into_iter().zip(0..) {
        let one = One {
            cpus: (*server, *client),
            connections: all / count + u32::from(number < all % count),
            span,
            rate: load.rate.map(|rate| rate / f64::from(count)),
        };
        let words = words(around, protocol, &one)?;
        commands.push(words.shown());
        children.push(Child::start(&words)?);
    }
    let limit = how_long.ramp + how_long.runtime + END_MAX;
    let mut told = Vec::new();
    let (mut server_cpu_s, mut server_busy_s) = (0.0, 0.0);
    for child in children {
        let report = json(&child.output(limit, around.stop)?)?;
        let one = parse(&report, load)?;
        server_cpu_s += number(&report, "/server_cpu_s_per_gb")? * one.bytes / 1e9;
        server_busy_s += number(&report, "/server_busy_s_per_gb")? * one.bytes / 1e9;
        told.push(one);
    }
    let told = ClientSample::together(&told);
    let cores = (count as usize, count as usize);
    let mut sample = sample(&told, None, cores, load);
    let busy = server_busy_s / (told.seconds * f64::from(count));
    for (quantity, value) in [
        (
            super::Quantity::TargetCpuSPerGbit,
            server_cpu_s / (told.bytes * 8.0 / 1e9),
        ),
        (
            super::Quantity::TargetCpuUsPerIo,
            server_cpu_s * 1e6 / told.ios,
        ),
        (super::Quantity::TargetBusy, busy.clamp(0.0, 1.0)),
    ] {
        sample.values.insert(quantity, value);
    }
    Ok(SideRun {
        sample,
        commands,
        versions: Vec::new(),
    })
}

/// What one of them is asked for.
struct One {
    /// Of server and client.
    cpus: (usize, usize),
    connections: u32,
    /// Bytes of the server's memory.
    span: u64,
    /// Its share of the rate.
    rate: Option<f64>,
}

fn words(around: &Around, protocol: LoadProtocol, one: &One) -> Result<Words, FigureError> {
    let (load, how_long) = (around.load, around.how_long);
    let mut words: Vec<String> = vec!["ceiling".into(), "--json".into()];
    let mut add = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    add("headers", word(protocol).into());
    add("rw", shape(load.rw).expect("it was asked for").into());
    add("bs", load.bs.to_string());
    add("iodepth", load.iodepth.to_string());
    add("numjobs", one.connections.to_string());
    add("ramp-time", millis(how_long.ramp));
    add("runtime", millis(how_long.runtime));
    add("server-cpu", one.cpus.0.to_string());
    add("client-cpu", one.cpus.1.to_string());
    add("span", one.span.to_string());
    if let Some(rate) = one.rate {
        add("rate", rate.to_string());
    }
    add("address", around.net.ip.to_string());
    if let Some(net) = &around.net.target_net {
        add("server-net", net.clone());
    }
    Ok(Words {
        before: around.net.client.clone(),
        ..around.weft(words)?
    })
}

fn parse(report: &serde_json::Value, load: &Load) -> Result<ClientSample, FigureError> {
    let ios = number(report, "/latency/count")?;
    let latency = report.pointer("/latency").expect("it has a count");
    Ok(ClientSample {
        iops: number(report, "/iops")?,
        ios,
        bytes: ios * f64::from(load.bs),
        seconds: number(report, "/seconds")?,
        mean_us: Some(number(latency, "/mean_us")?),
        percentiles_us: percentiles(latency)?,
        tenths: list(report, "/tenths")?,
        distribution: pairs(report, "/distribution")?,
        cpu_s: Some(number(report, "/client_cpu_s")?),
        busy_s: Some(number(report, "/client_busy_s")?),
    })
}
