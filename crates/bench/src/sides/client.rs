//! `weft perf`: one process for each host, begun together.

use std::thread;
use std::time::{Duration, Instant};

use super::super::agent::RemoteLoad;
use super::super::load::{LoadProtocol, Spin};
use super::child::{Child, Words, list};
use super::config::host_name;
use super::sampled::{ClientSample, Look, Looks, json, number};
use super::{Around, FigureError, check_not_stopped};
use client::perf::Rw;

/// How long connections may take.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// How long a client may take beside what it is asked for.
const END_MAX: Duration = Duration::from_secs(30);
/// Files of a load on names, where it does not make its own.
const FILES: &str = "10000";
/// Bytes of one write that fills a device.
const FILL_BYTES: u64 = 1 << 20;

/// How fast that is expected to be, so that one run is mostly enough.
const FILL_BYTES_PER_MS: u64 = 3_000_000;

/// Where the I/Os of one host go.
#[derive(Clone, Debug)]
pub struct LoadHost {
    /// Which of them, from 0.
    pub number: u16,
    /// What is spoken.
    pub protocol: LoadProtocol,
    /// URLs of its devices.
    pub urls: Vec<String>,
    /// Bytes of each device.
    pub device_bytes: u64,
    /// The file of the key that it speaks TLS by, if it does.
    pub key_file: Option<String>,
}

/// Fio's word for a kind of load.
pub fn rw_word(rw: client::perf::Rw) -> String {
    let value = clap::ValueEnum::to_possible_value(&rw);
    value.expect("no value is skipped").get_name().to_owned()
}

/// A duration as `weft perf` takes it.
pub fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// The words of `weft perf` for a host, which has `share` of all connections.
pub fn words(
    around: &Around,
    spin: Spin,
    host: &LoadHost,
    share: f64,
) -> Result<Words, FigureError> {
    let (load, how_long) = (around.load, around.how_long);
    let mut words: Vec<String> = ["perf", "--json", "--wait"].map(str::to_owned).into();
    let mut add = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    add("rw", rw_word(load.rw));
    add("bs", load.bs.to_string());
    add("iodepth", load.iodepth.to_string());
    add("numjobs", load.connections.to_string());
    add("ramp-time", millis(how_long.ramp));
    add("runtime", millis(how_long.runtime));
    if around.options.agents.is_empty() {
        add("cpus", list(&around.cpus.client));
    }
    let name = host_name(host.number);
    match host.protocol {
        LoadProtocol::NvmeTcp | LoadProtocol::NvmeRdma => add("hostnqn", format!("nqn.{name}")),
        LoadProtocol::Iscsi => add("initiator", format!("iqn.{name}")),
        LoadProtocol::Nfs | LoadProtocol::NfsRdma if load.rw.is_metadata() => {}
        LoadProtocol::Nfs | LoadProtocol::NfsRdma => add("size", host.device_bytes.to_string()),
    }
    if let Some(path) = &host.key_file {
        add("psk-file", path.clone());
    }
    if matches!(load.rw, Rw::Getattr | Rw::Readdir) {
        add("nrfiles", FILES.into());
    }
    if let Some(rate) = load.rate {
        add("rate", (rate * share).to_string());
    }
    match spin {
        Spin::Default if !around.cpus.is_shared => {}
        Spin::Default | Spin::Sleep => add("spin-us", "0".into()),
        Spin::Poll => add("spin-us", "always".into()),
    }
    for (is_wanted, flag) in [
        (load.header_digest, "--hdr-digest"),
        (load.data_digest, "--data-digest"),
    ] {
        if is_wanted && host.protocol != LoadProtocol::Nfs {
            words.push(flag.into());
        }
    }
    words.extend(host.urls.iter().map(|url| {
        match load.rw.is_metadata() {
            // The directory of the file.
            true => url
                .rsplit_once('/')
                .map_or(url.clone(), |(at, _)| at.to_owned()),
            false => url.clone(),
        }
    }));
    Ok(Words {
        before: around.net.client.clone(),
        ..around.weft(words)?
    })
}

/// How often a device is written anew, each time for longer, until all of it is.
const FILL_TRIES: u32 = 8;
/// And for how long at most.
const FILL_MAX: Duration = Duration::from_secs(60);

/// Writes every byte of the devices of a host, so that none is read before it is
/// there.
pub fn fill(around: &Around, host: &LoadHost) -> Result<(), FigureError> {
    let bs = FILL_BYTES.min(host.device_bytes);
    let wanted = host.device_bytes * host.urls.len() as u64;
    let mut runtime = Duration::from_millis(40 + wanted / FILL_BYTES_PER_MS);
    let mut written = 0.0;
    for _ in 0..FILL_TRIES {
        let mut words: Vec<String> = ["perf", "--json", "--rw", "write", "--iodepth", "8"]
            .map(str::to_owned)
            .into();
        let mut add = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        add("bs", bs.to_string());
        add("ramp-time", "0ms".into());
        add("runtime", millis(runtime));
        add("cpus", list(&around.cpus.client));
        if host.protocol.has_files() {
            // A file that is not there is written before anything is measured.
            add("size", host.device_bytes.to_string());
        }
        words.extend_from_slice(&host.urls);
        let words = Words {
            before: around.net.client.clone(),
            ..around.weft(words)?
        };
        let text = Child::start(&words)?.output(CONNECT_MAX + runtime, around.stop)?;
        written = number(&json(&text)?, "/total/ios")? * bs as f64;
        if host.protocol.has_files() || written >= wanted as f64 {
            return Ok(());
        }
        // As long as it takes at this speed, and some.
        let times = (wanted as f64 / written.max(1.0) * 1.2).clamp(1.5, 100.0);
        runtime = runtime.mul_f64(times).min(FILL_MAX);
    }
    Err(FigureError::Failed(format!(
        "{written} of {wanted} bytes of the devices were written in the last of {FILL_TRIES} \
         tries: the machine is too slow or too busy to fill them"
    )))
}

/// A client that runs.
enum ClientRun {
    Here(Child),
    /// On the machine of an agent.
    There(RemoteLoad),
}

impl ClientRun {
    fn start(around: &Around, number: usize, words: &Words) -> Result<ClientRun, FigureError> {
        Ok(match around.agent(number) {
            // What runs it is there: its own weft.
            Some(agent) => ClientRun::There(agent.load(&words.words[1..], around.stop)?),
            None => ClientRun::Here(Child::start(words)?),
        })
    }

    /// Waits until it is connected.
    fn ready(&mut self, around: &Around) -> Result<(), FigureError> {
        match self {
            ClientRun::Here(child) => {
                let ready = |line: &str| (line == "ready").then_some(());
                child.error_line(CONNECT_MAX, around.stop, ready)
            }
            ClientRun::There(load) => load.ready(CONNECT_MAX, around.stop),
        }
    }

    fn begin(&mut self) -> Result<(), FigureError> {
        match self {
            ClientRun::Here(child) => child.write_line("begin"),
            ClientRun::There(load) => load.begin(),
        }
    }

    fn output(self, around: &Around) -> Result<String, FigureError> {
        match self {
            ClientRun::Here(child) => child.output(END_MAX, around.stop),
            ClientRun::There(load) => load.output(END_MAX, around.stop),
        }
    }
}

/// Clients that are connected and wait for the word.
pub struct Clients {
    runs: Vec<ClientRun>,
}

impl Clients {
    /// Starts them and waits until all of them are connected.
    pub fn connect(around: &Around, all: &[Words]) -> Result<Clients, FigureError> {
        let numbered = all.iter().enumerate();
        let runs = numbered.map(|(number, words)| ClientRun::start(around, number, words));
        let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
        for run in &mut runs {
            run.ready(around)?;
        }
        Ok(Clients { runs })
    }

    /// Lets them begin, and looks at what is watched before, when they have begun
    /// to measure, shortly before they end and after: what each told.
    pub fn run(
        mut self,
        around: &Around,
        mut look: impl FnMut() -> Result<Look, FigureError>,
    ) -> Result<(Vec<ClientSample>, Looks), FigureError> {
        let before = look()?;
        for run in &mut self.runs {
            run.begin()?;
        }
        let began = Instant::now();
        let (ramp, runtime) = (around.how_long.ramp, around.how_long.runtime);
        // Inside of what the clients measure, however far apart they are.
        let margin = (runtime / 20).min(Duration::from_millis(20));
        wait_until(began + ramp + margin, around)?;
        let first = look()?;
        wait_until(began + ramp + runtime - margin, around)?;
        let within = [first, look()?];
        let told = self
            .runs
            .into_iter()
            .map(|run| ClientSample::parse(&run.output(around)?));
        let told = told.collect::<Result<_, _>>()?;
        let looks = Looks {
            within,
            around: Some([before, look()?]),
        };
        Ok((told, looks))
    }
}

/// Sleeps until then, unless the run is to stop.
pub fn wait_until(when: Instant, around: &Around) -> Result<(), FigureError> {
    loop {
        check_not_stopped(around.stop)?;
        let left = when.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}
