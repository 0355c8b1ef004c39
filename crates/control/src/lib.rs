//! Configuration: a TOML file in, what the target wants out.
//!
//! A mistake in the file is told with line and column, what is wrong and what
//! would be right; all mistakes of a file at once ([`Problems`]). The schema is
//! `weft.example.toml`.
#![forbid(unsafe_code)]

mod nvme;
mod parse;
mod policy;
mod source;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use parse::SCHEMA;
pub use policy::{Backend, Limits, Placement, Policy};
pub use source::{Problem, Problems};
pub use value::{DISCOVERY_NQN, format_cpus, format_size};

/// Everything that a configuration file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What is stored.
    pub volumes: Vec<Volume>,
    /// What NVMe hosts see; namespaces refer to `volumes` by index.
    pub subsystems: Vec<Subsystem>,
    /// Limits of every NVMe/TCP connection.
    pub limits: Limits,
    /// Where the target listens; every subsystem and discovery on each.
    pub listeners: Vec<SocketAddr>,
    /// How the process uses the machine.
    pub policy: Policy,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Unique among volumes; its identity (UUID, NGUID, serial) follows from it.
    pub name: String,
    /// Where the blocks lie.
    pub kind: VolumeKind,
    /// A multiple of `block_bytes`.
    pub size_bytes: u64,
    /// 512 or 4096.
    pub block_bytes: u32,
    /// Instead of the UUID that follows from the name.
    pub uuid: Option<uuid::Uuid>,
    /// Writes are refused.
    pub read_only: bool,
}

/// Where the blocks of a volume lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Nowhere: writes are dropped, reads yield zeros.
    Null,
    /// In memory, gone when the process ends.
    Ram,
    /// In a sparse file, made if it is not there.
    File(PathBuf),
}

/// One NVMe subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its NVMe qualified name.
    pub nqn: String,
    /// Hosts that may connect, by NQN; `None`: every host.
    pub hosts: Option<Vec<String>>,
    /// Serial number, at most 20 ASCII characters; `None`: follows from the NQN.
    pub serial: Option<String>,
    /// Model number, at most 40 ASCII characters; `None`: weft's own.
    pub model: Option<String>,
    /// Its namespaces, by nsid.
    pub namespaces: Vec<Namespace>,
}

/// A volume as a subsystem shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// From 1.
    pub nsid: u32,
    /// Index into [`Config::volumes`].
    pub volume: usize,
}

impl Default for Config {
    /// One RAM volume of 1 GiB for every host on 127.0.0.1:4420.
    fn default() -> Self {
        Self {
            volumes: vec![Volume {
                name: "default".into(),
                kind: VolumeKind::Ram,
                size_bytes: 1 << 30,
                block_bytes: 4096,
                uuid: None,
                read_only: false,
            }],
            subsystems: vec![Subsystem {
                nqn: "nqn.2026-01.io.weft:default".into(),
                hosts: None,
                serial: None,
                model: None,
                namespaces: vec![Namespace { nsid: 1, volume: 0 }],
            }],
            limits: Limits::default(),
            listeners: vec![SocketAddr::from(([127, 0, 0, 1], 4420))],
            policy: Policy::default(),
        }
    }
}

impl Config {
    /// Reads a file. Paths in it are relative to the folder it lies in.
    ///
    /// # Errors
    /// The file cannot be read, or everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| Problems {
            file: file.clone(),
            list: vec![Problem {
                line: 0,
                column: 0,
                text: format!("cannot be read: {error}"),
            }],
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, folder).map_err(|list| Problems { file, list })
    }

    /// Reads the text of a file that lies in `folder`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Vec<Problem>> {
        parse::parse(text, folder)
    }
}

#[cfg(test)]
mod tests;
