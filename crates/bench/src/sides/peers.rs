//! Targets and clients that others have written, by what is installed here.

mod fio;
mod ganesha;
mod guest;
mod iscsi_perf;
mod tgtd;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::load::{
    CLIENTS, Driver, Load, LoadProtocol, LoadVolume, Mode, PEERS, Placement, Spin,
};
use super::child::{Child, Words};
use super::client::{self, Clients, LoadHost, wait_until};
use super::namespaces::find;
use super::sampled::{ClientSample, Look, Looks, sample};
use super::target::{self, ServingTarget};
use super::{Around, FigureError, Options, SideRun};

/// How long a client of others may take beside what it is asked for.
const END_MAX: Duration = Duration::from_secs(120);

/// The name of the target that the user names.
const BY_ADDRESS: &str = "nvme-tcp target by address";

/// weft as it is best, for clients of others.
const MODE: Mode = Mode {
    driver: Driver::IoUring,
    fast_path: true,
    zero_copy: false,
    spin: Spin::Default,
    placement: Placement::LeastLoaded,
};

/// Another program's target that serves.
#[derive(Default)]
struct ServingPeer {
    /// Its process, where it runs here.
    child: Option<Child>,
    /// Whether the CPU time of that process is the target's.
    is_counted: bool,
    /// What `weft perf` calls its device.
    url: String,
    /// Bytes of it, where they are fewer than asked for.
    device_bytes: Option<u64>,
    commands: Vec<String>,
    versions: Vec<(String, String)>,
    /// Files that go when it does.
    _files: Vec<Box<dyn std::any::Any>>,
}

/// What is known of a target of others.
struct Peer {
    available: fn(&Options) -> Result<(), String>,
    /// Starts it with one device of this many bytes.
    start: fn(&Around, u64) -> Result<ServingPeer, FigureError>,
}

/// What is known of a client of others.
struct PeerClient {
    available: fn(&Load, &Options) -> Result<(), String>,
    /// How it is run against a device of weft.
    plan: fn(&Around, &ServingTarget, LoadProtocol) -> Result<Planned, FigureError>,
}

/// How a client of others is run.
struct Planned {
    words: Words,
    /// The line with which it says that it begins; without one it begins at once.
    begins: Option<&'static str>,
    /// From what it printed.
    read: fn(&str, &Around) -> Result<ClientSample, FigureError>,
    versions: Vec<(String, String)>,
    /// What is undone when it has ended.
    _undo: Option<Box<dyn std::any::Any>>,
}

fn peer(name: &str) -> Option<Peer> {
    Some(match name {
        BY_ADDRESS => Peer {
            available: by_address,
            start: at_address,
        },
        "tgtd" => tgtd::PEER,
        "nfs-ganesha" => ganesha::PEER,
        "nvmet in the guest" => guest::NVMET,
        "LIO in the guest" => guest::LIO,
        "knfsd in the guest" => guest::KNFSD,
        _ => return None,
    })
}

fn client(name: &str) -> Option<PeerClient> {
    Some(match name {
        "fio, kernel device" => fio::KERNEL_DEVICE,
        "fio, libiscsi" => fio::LIBISCSI,
        "fio, nfs" => fio::NFS,
        "iscsi-perf" => iscsi_perf::CLIENT,
        "kernel host in the guest" => guest::NVME_HOST,
        "kernel initiator in the guest" => guest::INITIATOR,
        "kernel client in the guest" => guest::NFS_CLIENT,
        _ => return None,
    })
}

fn protocol_of(table: &[(&str, LoadProtocol)], name: &str) -> Result<LoadProtocol, String> {
    let found = table.iter().find(|(one, _)| *one == name);
    let found = found.map(|(_, protocol)| *protocol);
    found.ok_or_else(|| format!("{name} is not in the catalogue"))
}

/// What others do under a load of the simplest kind only.
fn is_simple(load: &Load) -> Result<(), String> {
    let is_simple = load.hosts == 1
        && load.devices == 1
        && load.rate.is_none()
        && load.mtu.is_none()
        && !load.beside
        && load.volume == LoadVolume::Ram
        && !load.rw.is_metadata();
    match is_simple {
        true => Ok(()),
        false => Err("others are only measured with one host on one device over loopback".into()),
    }
}

/// Whether a target of others can be measured here.
pub fn available_peer(name: &str, load: &Load, options: &Options) -> Result<(), String> {
    is_simple(load)?;
    let peer = peer(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
    (peer.available)(options)
}

/// Whether a client of others can be measured here.
pub fn available_client(name: &str, load: &Load, options: &Options) -> Result<(), String> {
    is_simple(load)?;
    let client = client(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
    (client.available)(load, options)
}

/// Another program's target with weft's client.
pub fn measure_peer(around: &Around, name: &str) -> Result<SideRun, FigureError> {
    let peer = peer(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
    let protocol = protocol_of(PEERS, name)?;
    let device_bytes = around.how_long.volume_bytes;
    let served = (peer.start)(around, device_bytes);
    // Nothing of weft had a part in it.
    let mut served = served.map_err(|error| match error {
        FigureError::Failed(why) => FigureError::NotHere(why),
        other => other,
    })?;
    let device_bytes = served.device_bytes.unwrap_or(device_bytes);
    let host = LoadHost {
        number: 0,
        protocol,
        urls: vec![served.url.clone()],
        device_bytes,
        key_file: None,
    };
    client::fill(around, &host)?;
    let words = client::words(around, Spin::Default, &host, 1.0)?;
    served.commands.push(words.shown());
    let clients = Clients::connect(around, &[words])?;
    let child = served.child.as_ref().filter(|_| served.is_counted);
    let look = || {
        Ok(Look {
            at: Instant::now(),
            cpu_ns: child.map(Child::cpu_ns),
            counters: None,
        })
    };
    let (told, looks) = clients.run(around, look)?;
    let cores = around.cores();
    Ok(SideRun {
        sample: sample(
            &ClientSample::together(&told),
            Some(&looks),
            cores,
            around.load,
        ),
        commands: std::mem::take(&mut served.commands),
        versions: std::mem::take(&mut served.versions),
    })
}

/// Another program's client with weft's target.
pub fn measure_client(around: &Around, name: &str) -> Result<SideRun, FigureError> {
    let client = client(name).ok_or_else(|| format!("{name} is not in the catalogue"))?;
    let protocol = protocol_of(CLIENTS, name)?;
    let mode = match reactor::probe() {
        Ok(_) => MODE,
        Err(_) => Mode {
            driver: Driver::Epoll,
            ..MODE
        },
    };
    let config = target::config(around, protocol, &mode)?;
    let device_bytes = config.device_bytes;
    let mut target = ServingTarget::start(around, config)?;
    let host = LoadHost {
        number: 0,
        protocol,
        urls: vec![target.url(protocol, 0)],
        device_bytes,
        key_file: None,
    };
    client::fill(around, &host)?;
    let planned = (client.plan)(around, &target, protocol)?;
    let mut commands = target.commands();
    commands.push(planned.words.shown());
    let (ramp, runtime) = (around.how_long.ramp, around.how_long.runtime);
    let mut child = Child::start(&planned.words)?;
    if let Some(begins) = planned.begins {
        child.line(END_MAX, around.stop, |line| {
            line.starts_with(begins).then_some(())
        })?;
    }
    // It has its own start before its ramp: the target counts per I/O, so the
    // middle of what it measures will do.
    let began = Instant::now();
    wait_until(began + ramp + runtime / 2, around)?;
    let first = (target.look(around.stop)?, child.cpu_ns());
    wait_until(began + ramp + runtime.mul_f64(0.9), around)?;
    let last = (target.look(around.stop)?, child.cpu_ns());
    let text = child.output(ramp + runtime + END_MAX, around.stop)?;
    let mut told = (planned.read)(&text, around)?;
    let spent_s = last.1.saturating_sub(first.1) as f64 / 1e9;
    let looked_s = last.0.at.duration_since(first.0.at).as_secs_f64();
    // What is spent in an emulated machine, or for it, is no client's.
    let is_here = planned.begins.is_none();
    told.cpu_s = is_here.then_some(spent_s / looked_s * told.seconds);
    told.busy_s = told.cpu_s;
    let cores = around.cores();
    let looks = Looks {
        within: [first.0, last.0],
        around: None,
    };
    Ok(SideRun {
        sample: sample(&told, Some(&looks), cores, around.load),
        commands,
        versions: planned.versions,
    })
}

fn by_address(options: &Options) -> Result<(), String> {
    match &options.peer {
        None => Err("name one: --peer nvme-tcp://HOST:PORT/NQN; its data is overwritten".into()),
        Some(url) if !url.starts_with("nvme-tcp://") => {
            Err(format!("--peer is nvme-tcp://HOST:PORT/NQN, not {url}"))
        }
        Some(_) => Ok(()),
    }
}

/// Whether agents on other machines reach a peer: it has an address that the user names.
pub fn is_elsewhere(name: &str) -> bool {
    name == BY_ADDRESS
}

fn at_address(around: &Around, _bytes: u64) -> Result<ServingPeer, FigureError> {
    Ok(ServingPeer {
        url: around.options.peer.clone().expect("it was looked at"),
        ..ServingPeer::default()
    })
}

/// A program, or which package has it.
fn program(name: &str, package: &str) -> Result<String, String> {
    let found = find(name).ok_or_else(|| format!("`{name}` is not here: install {package}"))?;
    Ok(found.to_string_lossy().into_owned())
}

/// What a program prints.
fn said(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&all).trim().to_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{program} {}: {text}", words.join(" "))),
    }
}

/// A program's own version, in one line.
fn version(name: &str, program: &str, words: &[&str]) -> (String, String) {
    let said = said(program, words).unwrap_or_default();
    let line = said
        .lines()
        .find(|line| line.chars().any(|c| c.is_ascii_digit()));
    (name.to_owned(), line.unwrap_or("unknown").trim().to_owned())
}
