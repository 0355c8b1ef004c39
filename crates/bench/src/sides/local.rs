//! The volume without a network between: `weft perf local:...`.

use super::super::load::{Load, LoadProtocol, LoadVolume};
use super::child::{Child, list};
use super::client::{millis, rw_word};
use super::config::kind;
use super::sampled::{ClientSample, sample};
use super::{Around, FigureError, SideRun};
use std::time::Duration;

/// How long it may take beside what it is asked for.
const END_MAX: Duration = Duration::from_secs(60);

/// Whether there is anything like this load without a network.
pub fn available(protocol: LoadProtocol, load: &Load) -> Result<(), String> {
    if protocol.has_files() {
        return Err(
            "a file system of weft's is reached through NFS alone: a local one is the kernel's"
                .into(),
        );
    }
    if load.rw.is_metadata() {
        return Err("a volume has no names and attributes".into());
    }
    if !matches!(load.volume, LoadVolume::Ram | LoadVolume::Null) {
        return Err("a local volume here is memory, or keeps nothing".into());
    }
    Ok(())
}

/// One run.
pub fn measure(around: &Around) -> Result<SideRun, FigureError> {
    let (load, how_long) = (around.load, around.how_long);
    let mut words: Vec<String> = vec!["perf".into(), "--json".into()];
    let mut add = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    let jobs = u32::from(load.connections) * u32::from(load.hosts);
    add("rw", rw_word(load.rw));
    add("bs", load.bs.to_string());
    add("iodepth", load.iodepth.to_string());
    add("numjobs", jobs.to_string());
    add("ramp-time", millis(how_long.ramp));
    add("runtime", millis(how_long.runtime));
    add("cpus", list(&around.cpus.client));
    if let Some(rate) = load.rate {
        add("rate", rate.to_string());
    }
    let size = how_long.volume_bytes / u64::from(load.devices);
    let block = load.block_bytes;
    let kind = kind(load.volume);
    let url = format!("local:{kind}?size={size}&block={block}");
    words.extend((0..load.devices).map(|_| url.clone()));
    let words = around.weft(words)?;
    let limit = how_long.ramp + how_long.runtime + END_MAX;
    let told = ClientSample::parse(&Child::start(&words)?.output(limit, around.stop)?)?;
    let cores = around.cpus.client.len();
    Ok(SideRun {
        sample: sample(&told, None, (cores, cores), load),
        commands: vec![words.shown()],
        versions: Vec::new(),
    })
}
