//! The side that measures: agents that were named, and a load that one of them runs.

use std::io::Write as _;
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{AgentAnswer, AgentSecret, Hello, PORT, line};
use crate::sides::FigureError;
use crate::sides::child::{await_line, read};

/// How long an agent may take to answer, beside what its load takes.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A machine that runs loads.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Where it is, as the user has named it, with the port.
    pub name: String,
    /// Processor and kernel.
    pub machine: String,
    /// CPUs that its loads have.
    pub cpus: usize,
    /// The address of this machine that it reaches.
    pub sees: IpAddr,
    secret: AgentSecret,
}

impl Agent {
    /// The agent at `HOST[:PORT]`, which has answered and has the same secret.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn find(place: &str, secret: &AgentSecret, stop: &AtomicBool) -> Result<Agent, String> {
        let name = match place.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && !host.ends_with(':') => {
                place.to_owned()
            }
            _ => format!("{place}:{PORT}"),
        };
        let connected = connect(&name, stop).and_then(|(connection, hello)| {
            let sees = connection.stream.local_addr();
            let sees = sees.map_err(|error| error.to_string())?.ip();
            let agent = Agent {
                name: name.clone(),
                machine: hello.machine.clone(),
                cpus: hello.cpus.max(1),
                sees,
                secret: secret.clone(),
            };
            // The secret is tried before anything is measured.
            let mut load = agent.ordered(connection, &hello, Vec::new())?;
            load.ready(ANSWER_MAX, stop)?;
            Ok(agent)
        });
        connected.map_err(|error| error.to_string())
    }

    /// A load by `weft` with these words, which connects.
    ///
    /// # Errors
    /// Where the agent cannot be asked.
    pub fn load(&self, words: &[String], stop: &AtomicBool) -> Result<RemoteLoad, FigureError> {
        let (connection, hello) = connect(&self.name, stop)?;
        self.ordered(connection, &hello, words.to_vec())
    }

    fn ordered(
        &self,
        mut load: RemoteLoad,
        hello: &Hello,
        words: Vec<String>,
    ) -> Result<RemoteLoad, FigureError> {
        load.write(&line(&self.secret.sign(&hello.nonce, words)))?;
        Ok(load)
    }
}

/// A load that an agent runs; it ends when this is dropped.
#[derive(Debug)]
pub struct RemoteLoad {
    agent: String,
    stream: TcpStream,
    lines: Receiver<String>,
}

impl Drop for RemoteLoad {
    fn drop(&mut self) {
        // The thread that reads has it as well.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Connects to an agent and reads what it is.
fn connect(name: &str, stop: &AtomicBool) -> Result<(RemoteLoad, Hello), FigureError> {
    let failed = |error: std::io::Error| FigureError::Failed(format!("agent {name}: {error}"));
    let mut addresses = name.to_socket_addrs().map_err(failed)?;
    let first = addresses.next();
    let first = first.ok_or_else(|| format!("agent {name}: it has no address"))?;
    let stream = TcpStream::connect_timeout(&first, ANSWER_MAX).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let load = RemoteLoad {
        agent: name.to_owned(),
        lines: read(stream.try_clone().map_err(failed)?),
        stream,
    };
    let hello: Hello = load.message(ANSWER_MAX, stop)?;
    let ours = env!("CARGO_PKG_VERSION");
    if hello.weft != ours {
        let theirs = &hello.weft;
        return Err(format!(
            "agent {name} is weft {theirs}, this is {ours}: both must be the same"
        )
        .into());
    }
    Ok((load, hello))
}

impl RemoteLoad {
    /// Waits until it is connected.
    ///
    /// # Errors
    /// Why it is not.
    pub fn ready(&mut self, limit: Duration, stop: &AtomicBool) -> Result<(), FigureError> {
        match self.message(limit, stop)? {
            AgentAnswer::Ready => Ok(()),
            other => Err(self.unwanted(&other)),
        }
    }

    /// Lets it begin.
    ///
    /// # Errors
    /// Where its agent is gone.
    pub fn begin(&mut self) -> Result<(), FigureError> {
        self.write("begin\n")
    }

    /// Waits for its end: what it printed.
    ///
    /// # Errors
    /// Why it has not ended well.
    pub fn output(self, limit: Duration, stop: &AtomicBool) -> Result<String, FigureError> {
        match self.message(limit, stop)? {
            AgentAnswer::Told(text) => Ok(text),
            other => Err(self.unwanted(&other)),
        }
    }

    fn write(&mut self, text: &str) -> Result<(), FigureError> {
        let written = self.stream.write_all(text.as_bytes());
        written.map_err(|error| FigureError::Failed(format!("agent {}: {error}", self.agent)))
    }

    fn message<T: DeserializeOwned>(
        &self,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<T, FigureError> {
        let agent = &self.agent;
        let came = await_line(&self.lines, limit, stop, |line| {
            Some(serde_json::from_str(line))
        })?;
        match came {
            Some(Ok(message)) => Ok(message),
            Some(Err(_)) => Err(format!("agent {agent}: no agent of weft answers there").into()),
            None => Err(format!(
                "agent {agent}: it does not answer in {} s, or has closed the connection",
                limit.as_secs()
            )
            .into()),
        }
    }

    fn unwanted(&self, answer: &AgentAnswer) -> FigureError {
        let agent = &self.agent;
        FigureError::Failed(match answer {
            AgentAnswer::Failed(why) => format!("agent {agent}: {why}"),
            other => format!("agent {agent}: it answers {other:?} out of turn"),
        })
    }
}
