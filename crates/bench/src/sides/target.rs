//! weft as the target: `weft serve` of a configuration made for the run.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::super::load::{Driver, Load, LoadProtocol, LoadVolume, Mode};
use super::super::measured::Quantity;
use super::child::{Child, Words};
use super::client::{self, Clients, LoadHost};
use super::config::{Config, VOLUME_KEY_FILE, ZERO_COPY_BYTES_MIN, ports, protocols};
use super::sampled::{ClientSample, Counters, Look, sample};
use super::{Around, FigureError, SideRun};

/// How long a target may take to start, and to tell what it counts.
const START_MAX: Duration = Duration::from_secs(20);
const TELL_MAX: Duration = Duration::from_secs(5);
/// What the file of the key is called.
const KEY_FILE: &str = "host.psk";
/// Devices are a whole number of these.
const DEVICE_UNIT: u64 = 1 << 20;

/// Whether any payload goes from the target to the client.
fn is_reading(load: &Load) -> bool {
    !load.rw.is_metadata() && load.rw.read_percent(0) > 0
}

/// Whether a mode can be had here under this load.
pub fn available(protocol: LoadProtocol, mode: &Mode, load: &Load) -> Result<(), String> {
    if load.rw.is_metadata() && !protocol.has_files() {
        return Err("only NFS has names and attributes".into());
    }
    if load.tls.is_some() && protocol != LoadProtocol::NvmeTcp {
        return Err("only NVMe/TCP has pre-shared keys".into());
    }
    if load.volume != LoadVolume::Ram && protocol.has_files() {
        return Err("what NFS serves is a file system in memory, and no volume".into());
    }
    if mode.zero_copy && !(is_reading(load) && load.bs >= ZERO_COPY_BYTES_MIN) {
        return Err("only payload of 64 KiB and more is sent so: the rest is the fast path".into());
    }
    if mode.driver == Driver::IoUring
        && let Err(why) = reactor::probe()
    {
        return Err(format!(
            "the kernel does not give io_uring ({why}): run it where \
             kernel.io_uring_disabled is 0 and no container filter forbids it"
        ));
    }
    Ok(())
}

/// A target that serves.
pub struct ServingTarget {
    child: Child,
    config: Config,
    /// Has its configuration, files of keys, and what volumes keep in files.
    folder: TempDir,
    text: String,
}

impl ServingTarget {
    /// Starts it; when this returns, hosts can connect.
    pub fn start(around: &Around, mut config: Config) -> Result<ServingTarget, FigureError> {
        let folder = tempfile::Builder::new().prefix("weft-bench-").tempdir();
        let folder = folder.map_err(|error| format!("no folder for the target: {error}"))?;
        if let Some(((path, _), key)) = config.tls.as_mut().zip(around.load.tls) {
            *path = file(&folder, KEY_FILE, key.interchange())?;
        }
        if config.volume == LoadVolume::EncryptedFile {
            file(&folder, VOLUME_KEY_FILE, &"07".repeat(32))?;
        }
        let text = config.text();
        let path = file(&folder, "target.toml", &text)?;
        let words = Words {
            before: around.net.target.clone(),
            ..around.weft(vec!["serve".into(), "-c".into(), path])?
        };
        let mut child = Child::start(&words)?;
        child.line(START_MAX, around.stop, |line| {
            line.contains("ends it in order").then_some(())
        })?;
        Ok(ServingTarget {
            child,
            config,
            folder,
            text,
        })
    }

    /// The URL of a device.
    pub fn url(&self, protocol: LoadProtocol, device: u16) -> String {
        self.config.url(protocol, device)
    }

    /// Where a protocol is spoken.
    pub fn address(&self, protocol: LoadProtocol) -> SocketAddr {
        self.config.address(protocol)
    }

    /// What a standard calls the first device.
    pub fn name(&self, protocol: LoadProtocol) -> String {
        self.config.name(protocol, 0)
    }

    /// CPU time so far, nanoseconds, and memory now, bytes.
    fn spent(&self) -> [u64; 2] {
        [self.child.cpu_ns(), self.child.resident_bytes()]
    }

    /// What it has done so far.
    pub fn look(&mut self, stop: &AtomicBool) -> Result<Look, FigureError> {
        self.child.signal(Signal::USR1);
        let counters = self.child.line(TELL_MAX, stop, Counters::parse)?;
        Ok(Look {
            at: Instant::now(),
            cpu_ns: Some(self.child.cpu_ns()),
            counters: Some(counters),
        })
    }

    /// What was run: the configuration, and the command.
    pub fn commands(&self) -> Vec<String> {
        let text = self.shown(&self.text);
        let command = self.shown(self.child.shown());
        vec![format!("# target.toml\n{text}"), command]
    }

    /// With short names for the files in its folder.
    fn shown(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

/// Makes a file that its owner alone reads; its path.
fn file(folder: &TempDir, name: &str, content: &str) -> Result<String, FigureError> {
    let path = folder.path().join(name);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(content.as_bytes()));
    let shown = path.display().to_string();
    written.map_err(|error| format!("{shown}: {error}"))?;
    Ok(shown)
}

/// What the hosts of a protocol use: each its share of the devices, or all the
/// same where there are fewer devices than hosts.
pub fn hosts(
    load: &Load,
    config: &Config,
    protocol: LoadProtocol,
    url: impl Fn(u16) -> String,
) -> Vec<LoadHost> {
    let devices = |host: u16| -> Vec<u16> {
        match load.devices >= load.hosts {
            true => (host..load.devices).step_by(load.hosts.into()).collect(),
            false => vec![host % load.devices],
        }
    };
    let host = |number: u16| LoadHost {
        number,
        protocol,
        urls: devices(number).into_iter().map(&url).collect(),
        device_bytes: config.device_bytes,
        key_file: config.tls.as_ref().map(|(path, _)| path.clone()),
    };
    (0..load.hosts).map(host).collect()
}

/// The configuration for a run.
pub fn config(around: &Around, protocol: LoadProtocol, mode: &Mode) -> Result<Config, FigureError> {
    let load = around.load;
    let share = around.how_long.volume_bytes / u64::from(load.devices);
    let (protocols, ip) = (protocols(protocol, load), around.net.ip);
    let ports = ports(&protocols, ip).map_err(|error| format!("no port is free: {error}"))?;
    Ok(Config {
        ports,
        protocols,
        devices: load.devices,
        device_bytes: (share / DEVICE_UNIT).max(1) * DEVICE_UNIT,
        block_bytes: load.block_bytes,
        volume: load.volume,
        tls: load.tls.map(|_| (KEY_FILE.to_owned(), load.hosts)),
        fpdu_bytes_max: load.fpdu_bytes_max,
        mode: *mode,
        cpus: around.cpus.target.clone(),
        is_shared: around.cpus.is_shared,
        ip,
    })
}

/// One run of weft against weft.
pub fn measure(
    around: &Around,
    protocol: LoadProtocol,
    mode: &Mode,
) -> Result<SideRun, FigureError> {
    let load = around.load;
    let config = config(around, protocol, mode)?;
    let mut target = ServingTarget::start(around, config)?;
    let mut commands = target.commands();
    let mut words = Vec::new();
    for protocol in target.config.protocols.clone() {
        let url = |device| target.url(protocol, device);
        let all = hosts(load, &target.config, protocol, url);
        let is_filled = !load.rw.is_metadata() && load.volume.has_memory();
        if is_filled {
            let everything = LoadHost {
                urls: (0..load.devices).map(url).collect(),
                // As a host that is not named.
                key_file: None,
                ..all[0].clone()
            };
            client::fill(around, &everything)?;
        }
        for host in &all {
            let share = 1.0 / f64::from(load.hosts);
            words.push(client::words(around, mode.spin, host, share)?);
        }
    }
    commands.extend(words.iter().enumerate().map(|(number, words)| {
        let shown = target.shown(&words.shown());
        match around.agent(number) {
            Some(agent) => format!("# at the agent {}\n{shown}", agent.name),
            None => shown,
        }
    }));
    let before = target.spent();
    let clients = Clients::connect(around, &words)?;
    let after = target.spent();
    let (told, looks) = clients.run(around, || target.look(around.stop))?;
    // The others' figures are none of this one's.
    let told = ClientSample::together(&told[..load.hosts.into()]);
    let mut sample = sample(&told, Some(&looks), around.cores(), load);
    // With an Admin Queue for each of its devices.
    let queues = load.devices.max(load.hosts) * (load.connections + 1);
    for (quantity, index, scale) in [
        (Quantity::TargetCpuUsPerConnection, 0, 1e-3),
        (Quantity::TargetBytesPerConnection, 1, 1.0),
    ] {
        let spent = after[index].saturating_sub(before[index]) as f64 * scale;
        sample.values.insert(quantity, spent / f64::from(queues));
    }
    Ok(SideRun {
        sample,
        commands,
        versions: Vec::new(),
    })
}
