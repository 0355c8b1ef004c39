//! iscsi-perf, the load generator of libiscsi: reads, and a rate as all it tells.

use super::super::super::load::{Load, LoadProtocol};
use super::super::child::Words;
use super::super::sampled::ClientSample;
use super::super::target::ServingTarget;
use super::super::{Around, FigureError, Options};
use super::{PeerClient, Planned, program};
use client::perf::Rw;

const PACKAGE: &str = "libiscsi-bin";

pub const CLIENT: PeerClient = PeerClient { available, plan };

fn available(load: &Load, _: &Options) -> Result<(), String> {
    program("iscsi-perf", PACKAGE)?;
    if !matches!(load.rw, Rw::Read | Rw::RandRead) {
        return Err("iscsi-perf 0.1 only reads: it has no option to write".into());
    }
    match load.header_digest || load.data_digest || load.connections > 1 {
        true => Err("iscsi-perf has one connection without digests".into()),
        false => Ok(()),
    }
}

fn plan(
    around: &Around,
    target: &ServingTarget,
    protocol: LoadProtocol,
) -> Result<Planned, FigureError> {
    let load = around.load;
    let seconds = (around.how_long.ramp + around.how_long.runtime).as_secs_f64();
    // It knows whole seconds only.
    let seconds = seconds.ceil().max(1.0);
    let mut words = vec![program("iscsi-perf", PACKAGE)?];
    let depth = load.iodepth.to_string();
    let blocks = (load.bs / load.block_bytes).to_string();
    let seconds = seconds.to_string();
    words.extend(["-m", &depth, "-b", &blocks, "-t", &seconds].map(str::to_owned));
    if load.rw == Rw::RandRead {
        words.push("-r".into());
    }
    words.push(target.url(protocol, 0));
    let words = Words {
        words,
        ..around.weft(Vec::new())?
    };
    Ok(Planned {
        words: words.on(&around.cpus.client),
        begins: None,
        read,
        versions: vec![("iscsi-perf".into(), "0.1 of libiscsi".into())],
        _undo: None,
    })
}

/// From its last `iops average N (M MB/s)`.
fn read(text: &str, around: &Around) -> Result<ClientSample, FigureError> {
    let rate = text
        .rsplit("average ")
        .next()
        .filter(|rest| rest.len() < text.len());
    let rate = rate.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let iops = rate.ok_or_else(|| format!("iscsi-perf tells no rate: {text}"))?;
    let seconds = (around.how_long.ramp + around.how_long.runtime).as_secs_f64();
    let seconds = seconds.ceil().max(1.0);
    Ok(ClientSample {
        iops,
        ios: iops * seconds,
        bytes: iops * seconds * f64::from(around.load.bs),
        seconds,
        ..ClientSample::default()
    })
}
