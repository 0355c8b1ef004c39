//! What takes part in a measurement, and one run of it: a target is started and
//! filled, a client is run, both are asked, both are ended. Whatever weft does is
//! done by this very program in processes of their own.

mod ceiling;
pub(crate) mod child;
mod client;
mod config;
mod leash;
mod local;
mod namespaces;
mod peers;
mod sampled;
mod target;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

pub use leash::{LeashArgs, run as leash};

use child::Words;
use namespaces::Namespaces;

use super::agent::Agent;
use super::load::{Durations, Load, LoadProtocol, Mode, Subject};
use super::measured::{Quantity, Sample};

/// What of the user's is to be used.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An NVMe/TCP target that the user runs, as an URL of `weft perf`. Its data
    /// is overwritten.
    pub peer: Option<String>,
    /// The program that runs a script in a Linux guest.
    pub guest: Option<PathBuf>,
    /// Machines that run the loads; none: this one does.
    pub agents: Vec<Agent>,
    /// The weft that is measured; this program where none is named.
    pub weft: Option<PathBuf>,
}

/// One run of a side.
#[derive(Clone, Debug, Default)]
pub struct SideRun {
    /// What it gave; its round is not set.
    pub sample: Sample,
    /// What was run, word by word; the configuration of the target first.
    pub commands: Vec<String>,
    /// What others' programs took part, and in which version.
    pub versions: Vec<(String, String)>,
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FigureError {
    /// The user wants no more.
    #[error("stopped")]
    Stopped,
    /// Another program does not run here, in a sentence.
    #[error("{0}")]
    NotHere(String),
    /// In a sentence.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for FigureError {
    fn from(why: String) -> FigureError {
        FigureError::Failed(why)
    }
}

/// Whether `stop` has come.
fn check_not_stopped(stop: &AtomicBool) -> Result<(), FigureError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(FigureError::Stopped),
        false => Ok(()),
    }
}

/// Whether `subject` under `load` can be measured here.
///
/// # Errors
/// What is missing, and how to get it.
pub fn available(subject: &Subject, load: &Load, options: &Options) -> Result<(), String> {
    if !options.agents.is_empty() {
        check_for_agents(subject, load)?;
    }
    if load.mtu.is_some() {
        namespaces::available()?;
    }
    match subject {
        Subject::Weft(protocol, mode) => target::available(*protocol, mode, load),
        Subject::Ceiling(..) => ceiling::available(load),
        Subject::Local(protocol) => local::available(*protocol, load),
        Subject::Peer(name) => peers::available_peer(name, load, options),
        Subject::Client(name) => peers::available_client(name, load, options),
    }
}

/// Whether agents on other machines can run the load.
fn check_for_agents(subject: &Subject, load: &Load) -> Result<(), String> {
    if load.mtu.is_some() {
        return Err("the network to the agents has its own MTU".into());
    }
    if load.tls.is_some() {
        return Err("the file of the key is on this machine, not with the agents".into());
    }
    match subject {
        Subject::Weft(..) => Ok(()),
        Subject::Peer(name) if peers::is_elsewhere(name) => Ok(()),
        Subject::Peer(_) => Err("agents cannot reach it: it listens on this machine alone".into()),
        Subject::Ceiling(..) => Err("agents run `weft perf`, not `weft ceiling`".into()),
        Subject::Client(_) => Err("agents run `weft perf`, not others' programs".into()),
        Subject::Local(_) => Err("without a network there is nothing for agents".into()),
    }
}

/// One run of `subject` under `load`.
///
/// # Errors
/// [`FigureError::Stopped`] where `stop` came; everything that was started is ended
/// then, as it is after any other error.
pub fn measure(
    subject: &Subject,
    load: &Load,
    how_long: &Durations,
    options: &Options,
    stop: &AtomicBool,
) -> Result<SideRun, FigureError> {
    check_not_stopped(stop)?;
    available(subject, load, options)?;
    let mut around = Around::new(load, how_long, options, stop)?;
    let pair = match load.mtu {
        Some(mtu) => Some(Namespaces::new(&around, mtu)?),
        None => None,
    };
    if let Some(pair) = &pair {
        around.net = pair.net();
    }
    let run = match subject {
        Subject::Weft(protocol, mode) => target::measure(&around, *protocol, mode),
        Subject::Ceiling(protocol, payload) => ceiling::measure(&around, *protocol, *payload),
        Subject::Local(_) => local::measure(&around),
        Subject::Peer(name) => peers::measure_peer(&around, name),
        Subject::Client(name) => peers::measure_client(&around, name),
    };
    let mut run = run?;
    if let Some(pair) = pair {
        for (place, words) in [
            ("target", &around.net.target),
            ("client", &around.net.client),
        ] {
            let (real, named) = (words.join(" "), format!("ip netns exec {place}"));
            let commands = run.commands.iter_mut();
            commands.for_each(|command| *command = command.replace(&real, &named));
        }
        if let Some(net) = &around.net.target_net {
            let named = "/run/netns/target";
            let commands = run.commands.iter_mut();
            commands.for_each(|command| *command = command.replace(net, named));
        }
        run.commands.splice(0..0, pair.commands);
    }
    Ok(run)
}

/// The configuration with which [`measure`] starts a target of weft.
///
/// # Errors
/// Why there can be none.
pub fn configuration(
    protocol: LoadProtocol,
    mode: &Mode,
    load: &Load,
    how_long: &Durations,
) -> Result<String, FigureError> {
    let (options, stop) = (Options::default(), AtomicBool::new(false));
    let around = Around::new(load, how_long, &options, &stop)?;
    Ok(target::config(&around, protocol, mode)?.text())
}

/// What every part of a run must know.
struct Around<'a> {
    load: &'a Load,
    how_long: &'a Durations,
    options: &'a Options,
    stop: &'a AtomicBool,
    weft: String,
    cpus: Cpus,
    net: Net,
}

/// The CPUs of the target and of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpus {
    target: Vec<usize>,
    client: Vec<usize>,
    /// Whether both have the same.
    is_shared: bool,
}

/// How target and clients reach each other.
#[derive(Clone, Debug)]
struct Net {
    /// Words before the commands of the target, and of the clients.
    target: Vec<String>,
    client: Vec<String>,
    /// The target's network namespace, as a file.
    target_net: Option<String>,
    /// Where the target listens.
    ip: IpAddr,
}

impl Cpus {
    /// The target has the first `cores`, the client what is left.
    fn new(all: &[usize], cores: usize) -> Cpus {
        let cores = cores.clamp(1, all.len());
        let (target, client) = all.split_at(cores);
        let is_shared = client.is_empty();
        Cpus {
            target: target.to_vec(),
            client: if is_shared { target } else { client }.to_vec(),
            is_shared,
        }
    }
}

impl<'a> Around<'a> {
    fn new(
        load: &'a Load,
        how_long: &'a Durations,
        options: &'a Options,
        stop: &'a AtomicBool,
    ) -> Result<Around<'a>, FigureError> {
        let weft = match &options.weft {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe(),
        };
        let weft = weft.map_err(|error| format!("this program does not find itself: {error}"))?;
        let weft = weft.into_os_string().into_string();
        let cpus = Cpus::new(&reactor::available_cpus(), load.target_cores.into());
        Ok(Around {
            load,
            how_long,
            options,
            stop,
            weft: weft.map_err(|_| "the path of this program is not UTF-8".to_owned())?,
            cpus: Cpus {
                is_shared: cpus.is_shared && options.agents.is_empty(),
                ..cpus
            },
            net: Net {
                target: Vec::new(),
                client: Vec::new(),
                target_net: None,
                ip: match options.agents.first() {
                    Some(agent) => agent.sees,
                    None => Ipv4Addr::LOCALHOST.into(),
                },
            },
        })
    }

    /// The agent that runs the load with this number, if agents run loads.
    fn agent(&self, load: usize) -> Option<&'a Agent> {
        let agents = &self.options.agents;
        agents.get(load % agents.len().max(1))
    }

    /// CPUs of the target, and of all clients.
    fn cores(&self) -> (usize, usize) {
        let agents = self.options.agents.iter().take(self.load.hosts.into());
        let clients = match self.options.agents.is_empty() {
            true => self.cpus.client.len(),
            false => agents.map(|agent| agent.cpus).sum(),
        };
        (self.cpus.target.len(), clients)
    }

    /// The words of one of weft's commands.
    fn weft(&self, words: Vec<String>) -> Result<Words, FigureError> {
        let mut all = vec![self.weft.clone()];
        all.extend(words);
        Ok(Words {
            leash: self.weft.clone(),
            words: all,
            ..Words::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_has_the_first_cpus() {
        let cpus = |all: &[usize], cores| {
            let Cpus {
                target,
                client,
                is_shared,
            } = Cpus::new(all, cores);
            (target, client, is_shared)
        };
        assert_eq!(cpus(&[2, 3, 5], 1), (vec![2], vec![3, 5], false));
        assert_eq!(cpus(&[2, 3], 2), (vec![2, 3], vec![2, 3], true));
        assert_eq!(cpus(&[4], 8), (vec![4], vec![4], true));
        assert_eq!(cpus(&[4, 5], 0), (vec![4], vec![5], false));
    }
}
