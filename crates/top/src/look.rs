//! Looks at a target, one after another.

use std::collections::VecDeque;

use api::{Connections, Figures, Hosts, NfsClients};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Events that stay.
const EVENTS_MAX: usize = 1000;
/// Looks that stay: times are those of all of them, as so few I/Os are timed.
const LOOKS_MAX: usize = 11;

/// Who answers.
pub trait LookSource: Send {
    /// What is answered at a path of the admin API, or why nothing is.
    ///
    /// # Errors
    /// A text for people.
    fn get(&self, path: &str) -> Result<Value, String>;

    /// Ends what is named; what was done, a line each.
    ///
    /// # Errors
    /// A text for people.
    fn evict(&self, what: &Evicts) -> Result<Vec<String>, String>;
}

/// What is ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicts {
    /// A connection, by its ID.
    Connection(String),
    /// A host, by its name or address.
    Host(String),
    /// An NFS client, by its ID.
    NfsClient(String),
}

/// What was seen at one time.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub figures: Figures,
    pub hosts: Hosts,
    pub connections: Connections,
    pub clients: NfsClients,
    /// Those since the last look.
    pub events: Vec<Value>,
    /// Where to go on with events.
    since: String,
}

impl Look {
    /// Looks, with the events behind those of an earlier look.
    pub fn take(source: &dyn LookSource, before: Option<&str>) -> Result<Look, String> {
        let since = before.map(|before| format!("?since={before}"));
        let path = format!("/v1/events{}", since.unwrap_or_default());
        let mut events = source.get(&path)?;
        let number = events["last"].as_u64().unwrap_or_default();
        let since = format!("{}-{number}", events["boot"].as_str().unwrap_or_default());
        let told = match events["events"].take() {
            Value::Array(events) => events,
            _ => Vec::new(),
        };
        Ok(Look {
            figures: answer(source, "/v1/figures")?,
            hosts: answer(source, "/v1/hosts")?,
            connections: answer(source, "/v1/connections")?,
            clients: answer(source, "/v1/nfs/clients")?,
            events: told,
            since,
        })
    }

    /// By which the next look asks for its events.
    pub fn since(&self) -> &str {
        &self.since
    }
}

fn answer<T: DeserializeOwned>(source: &dyn LookSource, path: &str) -> Result<T, String> {
    let answer = source.get(path)?;
    T::deserialize(answer).map_err(|error| {
        format!("the answer to {path} is not one of this version ({error}): use the weft that runs")
    })
}

/// The last looks, the latest at the end; all of one process.
#[derive(Default)]
pub(crate) struct Looks {
    looks: VecDeque<Look>,
    /// Of earlier processes too, the latest at the end.
    pub events: VecDeque<Value>,
}

impl Looks {
    /// Adds one; whether weft has started anew since the one before.
    pub fn add(&mut self, mut look: Look) -> bool {
        let boot = |look: &Look| look.figures.boot.clone();
        let is_other = self.last().is_some_and(|last| boot(last) != boot(&look));
        if is_other {
            self.looks.clear();
        }
        self.events.extend(look.events.drain(..));
        let too_many = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..too_many);
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
        is_other
    }

    pub fn last(&self) -> Option<&Look> {
        self.looks.back()
    }

    /// The one before the last.
    pub fn before(&self) -> Option<&Look> {
        self.looks.len().checked_sub(2).map(|at| &self.looks[at])
    }

    /// The first of those that stay, which is not the last.
    pub fn first(&self) -> Option<&Look> {
        self.looks.front().filter(|_| self.looks.len() > 1)
    }
}
