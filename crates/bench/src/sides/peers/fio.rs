//! fio: on a device of this machine's kernel, or by its own engines for iSCSI and
//! NFS where it was built with them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::super::load::{Load, LoadProtocol};
use super::super::child::Words;
use super::super::client::rw_word;
use super::super::sampled::{ClientSample, PERCENTILES, json, number};
use super::super::target::ServingTarget;
use super::super::{Around, FigureError, Options, check_not_stopped};
use super::{PeerClient, Planned, program, said, version};

/// How long a device may take to appear.
const DEVICE_MAX: Duration = Duration::from_secs(10);

pub const KERNEL_DEVICE: PeerClient = PeerClient {
    available: kernel_available,
    plan: plan_kernel,
};
pub const LIBISCSI: PeerClient = PeerClient {
    available: |load, _| engine(load, "libiscsi", "libiscsi-dev"),
    plan: plan_libiscsi,
};
pub const NFS: PeerClient = PeerClient {
    available: |load, _| engine(load, "nfs", "libnfs-dev"),
    plan: plan_nfs,
};

fn has_digests(load: &Load) -> Result<(), String> {
    match load.header_digest || load.data_digest {
        true => Err("fio is only measured without digests".into()),
        false => Ok(()),
    }
}

/// Whether fio has an engine.
fn engine(load: &Load, name: &str, package: &str) -> Result<(), String> {
    has_digests(load)?;
    let fio = program("fio", "fio")?;
    let known = said(&fio, &["--enghelp"])?;
    match known.lines().any(|line| line.trim() == name) {
        true => Ok(()),
        false => Err(format!(
            "this fio was built without its engine `{name}`, as distributions do: build it \
             from source with {package} installed"
        )),
    }
}

fn kernel_available(load: &Load, _: &Options) -> Result<(), String> {
    has_digests(load)?;
    program("fio", "fio")?;
    if !Path::new("/dev/nvme-fabrics").exists() {
        return Err(
            "this machine's kernel is no NVMe/TCP host: `modprobe nvme-tcp`, if it has that \
             module"
                .into(),
        );
    }
    program("nvme", "nvme-cli")?;
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err("only root may connect the kernel's NVMe/TCP host".into()),
    }
}

/// The words of fio for a load, wherever it goes; at least so long.
pub fn words(around: &Around, engine: &str, least: Duration) -> Vec<String> {
    let (load, how_long) = (around.load, around.how_long);
    let mut words: Vec<String> = ["--name=load", "--thread", "--time_based", "--direct=1"]
        .map(str::to_owned)
        .into();
    let shares = PERCENTILES.map(|(share, ..)| format!("{}", share * 100.0));
    for (name, value) in [
        ("ioengine", engine.to_owned()),
        ("rw", rw_word(load.rw)),
        ("bs", load.bs.to_string()),
        ("iodepth", load.iodepth.to_string()),
        ("numjobs", load.connections.to_string()),
        ("ramp_time", format!("{}ms", how_long.ramp.as_millis())),
        (
            "runtime",
            format!("{}ms", how_long.runtime.max(least).as_millis()),
        ),
        ("lat_percentiles", "1".into()),
        ("clat_percentiles", "0".into()),
        ("percentile_list", shares.join(":")),
        ("output-format", "json".into()),
    ] {
        words.push(format!("--{name}={value}"));
    }
    words.push("--group_reporting".into());
    words.push("--norandommap".into());
    words.push("--randrepeat=0".into());
    words
}

fn planned(around: &Around, words: Vec<String>) -> Result<Planned, FigureError> {
    let fio = program("fio", "fio")?;
    let versions = vec![version("fio", &fio, &["--version"])];
    let words = Words {
        words: std::iter::once(fio).chain(words).collect(),
        ..around.weft(Vec::new())?
    };
    Ok(Planned {
        words: words.on(&around.cpus.client),
        begins: None,
        read,
        versions,
        _undo: None,
    })
}

fn plan_libiscsi(
    around: &Around,
    target: &ServingTarget,
    protocol: LoadProtocol,
) -> Result<Planned, FigureError> {
    let mut words = words(around, "libiscsi", Duration::ZERO);
    // A colon ends a file name of fio's.
    let url = target.url(protocol, 0).replace(':', "\\:");
    words.push(format!("--filename={url}"));
    planned(around, words)
}

fn plan_nfs(
    around: &Around,
    target: &ServingTarget,
    protocol: LoadProtocol,
) -> Result<Planned, FigureError> {
    let mut words = words(around, "nfs", Duration::ZERO);
    let address = target.address(protocol);
    let (ip, port) = (address.ip(), address.port());
    words.push(format!(
        "--nfs_url=nfs://{ip}/files?version=4&nfsport={port}"
    ));
    words.push("--filename=disk".into());
    words.push(format!("--size={}", around.how_long.volume_bytes));
    planned(around, words)
}

/// A connected host of this machine's kernel.
struct Connected {
    nvme: String,
    nqn: String,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = said(&self.nvme, &["disconnect", "-n", &self.nqn]);
    }
}

fn plan_kernel(
    around: &Around,
    target: &ServingTarget,
    protocol: LoadProtocol,
) -> Result<Planned, FigureError> {
    let nvme = program("nvme", "nvme-cli")?;
    let (address, nqn) = (target.address(protocol), target.name(protocol));
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let queues = around.load.connections.to_string();
    let connected = Connected {
        nvme: nvme.clone(),
        nqn: nqn.clone(),
    };
    let connect = [
        "connect", "-t", "tcp", "-a", &ip, "-s", &port, "-n", &nqn, "-i", &queues, "-l", "5",
    ];
    said(&nvme, &connect)?;
    let give_up = Instant::now() + DEVICE_MAX;
    let device = loop {
        check_not_stopped(around.stop)?;
        if let Some(device) = device_of(&nqn) {
            break device;
        }
        if Instant::now() > give_up {
            return Err(FigureError::Failed(format!(
                "the kernel shows no device of {nqn}"
            )));
        }
        thread::sleep(Duration::from_millis(20));
    };
    let mut words = words(around, "io_uring", Duration::ZERO);
    words.push(format!("--filename=/dev/{device}"));
    Ok(Planned {
        _undo: Some(Box::new(connected)),
        ..planned(around, words)?
    })
}

/// The namespace that the kernel shows of a subsystem.
fn device_of(nqn: &str) -> Option<String> {
    let all = fs::read_dir("/sys/class/nvme-subsystem").ok()?.flatten();
    let mut ours = all.filter(|entry| {
        let named = fs::read_to_string(entry.path().join("subsysnqn"));
        named.is_ok_and(|named| named.trim() == nqn)
    });
    let inside = fs::read_dir(ours.next()?.path()).ok()?.flatten();
    let mut names = inside.filter_map(|entry| entry.file_name().into_string().ok());
    // nvme0n1, and not the nvme0c0n1 of one path.
    names.find(|name| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let parts = name
            .strip_prefix("nvme")
            .and_then(|rest| rest.split_once('n'));
        parts.is_some_and(|(controller, nsid)| digits(controller) && digits(nsid))
    })
}

/// Of `fio --output-format=json`.
pub fn read(text: &str, _: &Around) -> Result<ClientSample, FigureError> {
    // It warns in front of its report.
    let begin = text.find("\n{").map_or(0, |at| at + 1);
    let end = text.rfind('}').map_or(text.len(), |at| at + 1);
    let report = json(text.get(begin..end).unwrap_or(text))?;
    let job = report.pointer("/jobs/0");
    let job = job.ok_or_else(|| format!("fio tells of no job: {text}"))?;
    let ways = ["read", "write"].map(|way| job.get(way).unwrap_or(&Value::Null));
    let ios = |way: &&Value| {
        way.pointer("/total_ios")
            .and_then(Value::as_f64)
            .unwrap_or(0.0)
    };
    let busiest = ways.iter().max_by(|a, b| ios(a).total_cmp(&ios(b)));
    let way = *busiest.expect("two");
    if ios(&way) == 0.0 {
        return Err(FigureError::Failed("no I/O ended while measuring".into()));
    }
    let seconds = number(way, "/runtime")? / 1e3;
    let percentile = |share: f64| {
        let all = way.pointer("/lat_ns/percentile")?.as_object()?;
        let near = |text: &String| {
            let percent = text.parse::<f64>();
            percent.is_ok_and(|percent| (percent - share * 100.0).abs() < 1e-4)
        };
        let ns = all.iter().find(|(text, _)| near(text))?.1.as_f64()?;
        Some((share, ns / 1e3))
    };
    let percent = |name: &str| job.get(name).and_then(Value::as_f64);
    let cpu = percent("usr_cpu").zip(percent("sys_cpu"));
    let cpu_s = cpu.map(|(user, system)| (user + system) / 100.0 * seconds);
    Ok(ClientSample {
        iops: number(way, "/iops")?,
        ios: ios(&way),
        bytes: number(way, "/io_bytes")?,
        seconds,
        mean_us: number(way, "/lat_ns/mean").ok().map(|ns| ns / 1e3),
        percentiles_us: PERCENTILES.iter().filter_map(|p| percentile(p.0)).collect(),
        cpu_s,
        busy_s: cpu_s,
        ..ClientSample::default()
    })
}
