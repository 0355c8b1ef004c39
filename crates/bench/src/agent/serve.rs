//! The side that runs loads: `weft bench agent`.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::{AgentAnswer, AgentSecret, Hello, LINE_BYTES_MAX, Order, PORT, line, nonce};
use crate::provenance;
use crate::sides::FigureError;
use crate::sides::child::{Child, Words};

/// How long a peer may take to say what it wants.
const ORDER_MAX: Duration = Duration::from_secs(10);
/// How long a load may take to connect.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// How long a load may wait for the others, and run.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Loads at a time.
const LOADS_MAX: usize = 64;
/// How often the end is looked for while no peer comes.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `weft perf` that an order may have: what a load is, and no file of this machine.
const OPTIONS: &[&str] = &[
    "--bs",
    "--data-digest",
    "--hdr-digest",
    "--hostnqn",
    "--initiator",
    "--iodepth",
    "--json",
    "--nrfiles",
    "--numjobs",
    "--ramp-time",
    "--rate",
    "--runtime",
    "--rw",
    "--size",
    "--spin-us",
    "--wait",
];

/// Arguments of `weft bench agent`.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// Where it listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0, 0, 0, 0], PORT)))]
    listen: SocketAddr,
    /// The secret of this agent and of the machine that measures: the same file on both, which its owner
    /// alone can read
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
}

/// Runs loads until `stop`.
///
/// # Errors
/// Where nothing can be printed.
pub fn run(args: &AgentArgs, stop: &AtomicBool) -> io::Result<ExitCode> {
    let (listener, agent) = match open(args) {
        Ok(opened) => opened,
        Err(why) => {
            writeln!(io::stderr(), "weft bench agent: {why}")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let (at, cpus) = (listener.local_addr()?, reactor::available_cpus().len());
    let mut out = io::stdout();
    writeln!(
        out,
        "loads are taken on {at}, for {cpus} CPUs; Ctrl-C ends it"
    )?;
    out.flush()?;
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, peer)) = listener.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        // One beyond the limit is closed at once.
        if Arc::strong_count(&agent) <= LOADS_MAX {
            let agent = agent.clone();
            thread::spawn(move || {
                if let Err(why) = agent.serve(stream) {
                    let _ = writeln!(io::stderr(), "{peer}: {why}");
                }
            });
        }
    }
    // Loads that run hang on this process and end with it.
    Ok(ExitCode::SUCCESS)
}

fn open(args: &AgentArgs) -> Result<(TcpListener, Arc<LoadRunner>), String> {
    let secret = AgentSecret::read(&args.secret_file)?;
    let weft = std::env::current_exe().map_err(|error| error.to_string())?;
    let weft = weft.into_os_string().into_string();
    let weft = weft.map_err(|_| "the path of this program is not UTF-8")?;
    let listener = TcpListener::bind(args.listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let listener = listener.map_err(|error| format!("{}: {error}", args.listen))?;
    Ok((listener, Arc::new(LoadRunner { secret, weft })))
}

/// What all connections share: each has one reference.
struct LoadRunner {
    secret: AgentSecret,
    /// This program.
    weft: String,
}

impl LoadRunner {
    /// One connection: an order, and what comes of it.
    fn serve(&self, mut stream: TcpStream) -> Result<(), String> {
        let broken = |error: io::Error| error.to_string();
        stream.set_nonblocking(false).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        stream.set_read_timeout(Some(ORDER_MAX)).map_err(broken)?;
        let hello = Hello {
            weft: env!("CARGO_PKG_VERSION").into(),
            machine: provenance::in_short(Path::new("/")),
            cpus: reactor::available_cpus().len(),
            nonce: nonce()?,
        };
        stream.write_all(line(&hello).as_bytes()).map_err(broken)?;
        let mut from = BufReader::new(stream.try_clone().map_err(broken)?.take(LINE_BYTES_MAX));
        let mut text = String::new();
        from.read_line(&mut text).map_err(broken)?;
        let answer = match read_order(&text, &hello.nonce, &self.secret) {
            Err(why) => {
                let _ = stream.write_all(line(&AgentAnswer::Failed(why.clone())).as_bytes());
                return Err(why);
            }
            Ok(words) if words.is_empty() => AgentAnswer::Ready,
            Ok(words) => {
                stream.set_read_timeout(None).map_err(broken)?;
                match self.load(words, &mut stream, from) {
                    Ok(told) => AgentAnswer::Told(told),
                    Err(FigureError::Stopped) => return Err("it ended before its load".into()),
                    Err(other) => AgentAnswer::Failed(other.to_string()),
                }
            }
        };
        let answered = stream.write_all(line(&answer).as_bytes());
        // The thread that reads it ends.
        let _ = stream.shutdown(Shutdown::Both);
        answered.map_err(broken)
    }

    /// Runs `weft perf` with these words: connects, says so, begins with the peer's next line. A peer
    /// that goes before the load has ended ends it.
    fn load(
        &self,
        words: Vec<String>,
        stream: &mut TcpStream,
        from: impl BufRead + Send + 'static,
    ) -> Result<String, FigureError> {
        let is_gone = Arc::new(AtomicBool::new(false));
        let (tell, lines) = mpsc::channel();
        let gone = is_gone.clone();
        thread::spawn(move || {
            let came = from.lines().map_while(Result::ok);
            came.for_each(|line| drop(tell.send(line)));
            gone.store(true, Ordering::Relaxed);
        });
        let words = Words {
            leash: self.weft.clone(),
            words: [vec![self.weft.clone()], words].concat(),
            ..Words::default()
        };
        let mut child = Child::start(&words)?;
        let ready = |line: &str| (line == "ready").then_some(());
        child.error_line(CONNECT_MAX, &is_gone, ready)?;
        let told = stream.write_all(line(&AgentAnswer::Ready).as_bytes());
        told.map_err(|_| FigureError::Stopped)?;
        let begin = lines.recv_timeout(RUN_MAX);
        begin.map_err(|_| FigureError::Stopped)?;
        child.write_line("begin")?;
        child.output(RUN_MAX, &is_gone)
    }
}

/// The words of an order that may be run.
fn read_order(text: &str, nonce: &str, secret: &AgentSecret) -> Result<Vec<String>, String> {
    let order: Order = serde_json::from_str(text).map_err(|error| format!("no order: {error}"))?;
    if !secret.has_signed(nonce, &order) {
        return Err(
            "the secret is not the agent's: both machines need the same --secret-file".into(),
        );
    }
    check(&order.words)?;
    Ok(order.words)
}

/// Whether these words are a load on a target over a network, and nothing of this machine's.
fn check(words: &[String]) -> Result<(), String> {
    let Some((first, rest)) = words.split_first() else {
        return Ok(());
    };
    if first != "perf" {
        return Err(format!("an agent runs `weft perf` alone, not `{first}`"));
    }
    for word in rest {
        if word.starts_with('-') && !OPTIONS.contains(&word.as_str()) {
            return Err(format!("an agent takes no `{word}`"));
        }
        if word.starts_with("local:") {
            return Err(format!(
                "an agent loads targets over a network, not `{word}`"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_for_anything_but_a_load_over_a_network_is_refused() {
        let order = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let load = "perf --json --wait --rw randread --bs 4096 --hostnqn nqn.2026-01.io.weft:host0 \
                    nvme-tcp://192.0.2.1:4420/nqn.2026-01.io.weft:a";
        assert_eq!(check(&order(load)), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        for (text, what) in [
            ("serve -c x", "serve"),
            ("perf local:file?path=/etc/shadow&size=1m", "local:file"),
            ("perf --psk-file /etc/shadow nvme-tcp://h/n", "--psk-file"),
            ("perf --cpus 0 nvme-tcp://h/n", "--cpus"),
            ("perf -n x", "-n"),
        ] {
            let refused = check(&order(text)).expect_err(text);
            assert!(refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn agents_options_are_options_of_perf() {
        use clap::CommandFactory as _;
        #[derive(clap::Parser)]
        struct Perf {
            #[command(flatten)]
            _args: client::perf::PerfArgs,
        }
        let command = Perf::command();
        for option in OPTIONS {
            let mut known = command.get_arguments();
            let name = &option[2..];
            assert!(
                known.any(|known| known.get_long() == Some(name)),
                "{option}"
            );
        }
    }
}
