//! Servers, and clients of them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use host::nfs::{Access, Client, Create, Handle, Open, Params};
use mem::{Budget, Pool};
use reactor::{Choice, DriverConfig, EpollDriver};
use server::nfs::{
    ExportSpec, Exported, FileSystemKind, FileSystemSpec, NfsSettings, Rule, Squash,
};
use server::{Config, Limits, ListenerSpec, Placement, Running};
use wire::nfs4::stable_how4;

pub use crate::content::{pattern, until};
pub use crate::running::{PATIENCE, stop};

pub type Caller = Client<EpollDriver>;

pub const MEMORY_MAX: u64 = 128 << 20;

/// What is exported by the name of its file system, to every client.
pub fn export(name: &str) -> ExportSpec {
    ExportSpec {
        path: format!("/{name}"),
        what: Exported::FileSystem(name.into()),
        rules: vec![Rule {
            squash: Squash::None,
            ..Rule::default()
        }],
    }
}

pub fn memory(name: &str, size_bytes: u64) -> FileSystemSpec {
    FileSystemSpec {
        name: name.into(),
        kind: FileSystemKind::Mem { size_bytes },
    }
}

/// A directory in `folder`.
pub fn directory(folder: &Path, name: &str) -> FileSystemSpec {
    let path = folder.join(name);
    std::fs::create_dir_all(&path).expect("a folder of ours");
    FileSystemSpec {
        name: name.into(),
        kind: FileSystemKind::Dir {
            path,
            state: folder.join(format!("{name}.state")),
            read_only: false,
            acls: None,
            direct: false,
        },
    }
}

/// `/mem` and `/dir`, over two reactors; what is to be known after a restart is
/// kept in `folder`.
pub fn config(backend: Choice, folder: &Path) -> Config {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        file_systems: vec![memory("mem", 256 << 20), directory(folder, "dir")],
        exports: vec![export("mem"), export("dir")],
        nfs: NfsSettings {
            state: Some(folder.join("state")),
            ..NfsSettings::default()
        },
        listeners: vec![ListenerSpec::nfs(local)],
        // Two reactors even on one CPU.
        cpus: vec![reactor::available_cpus()[0]; 2],
        backend,
        spin_us_max: 0,
        placement: Placement::RoundRobin,
        memory_max: MEMORY_MAX,
        limits: Limits::default(),
        ..Config::default()
    }
}

/// Runs a test with a server and the name of each export.
pub fn with_server(backend: Choice, test: impl Fn(&Running, &str)) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    for name in ["mem", "dir"] {
        test(&running, name);
    }
    stop(running);
}

pub fn address(running: &Running) -> SocketAddr {
    running.addresses()[0]
}

pub fn driver() -> EpollDriver {
    let pool = Pool::new(Budget::new(64 << 20)).expect("memory");
    EpollDriver::new(&DriverConfig::default(), pool).expect("a driver")
}

/// A client that no server has seen before.
pub fn params() -> Params {
    let params = Params::new().expect("random bytes");
    Params {
        patience: Duration::from_secs(20),
        ..params
    }
}

pub fn connect(running: &Running, params: Params) -> Caller {
    Client::connect(driver(), address(running), params).expect("a session")
}

/// A client, and the root of an export.
pub fn at(running: &Running, export: &str) -> (Caller, Handle) {
    let mut client = connect(running, params());
    let root = client.lookup([export]).expect("exported");
    (client, root)
}

/// A new file, open for both.
pub fn make(client: &mut Caller, root: &Handle, name: &str) -> Open {
    let how = (Access::Both, Create::Unchecked);
    client.open((root, name), how, false).expect("room")
}

/// Writes all of it.
pub fn fill(client: &mut Caller, open: &Open, bytes: &[u8], each: usize) {
    for (n, part) in bytes.chunks(each).enumerate() {
        let offset = (n * each) as u64;
        let done = client.write(open, offset, (part, stable_how4::UNSTABLE4));
        assert_eq!(done.expect("room").count as usize, part.len());
    }
}

/// Reads all of it.
pub fn drain(client: &mut Caller, open: &Open, each: usize) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut part = vec![0; each];
        let (len, is_end) = client
            .read(open, all.len() as u64, &mut part)
            .expect("readable");
        all.extend_from_slice(&part[..len]);
        if is_end {
            return all;
        }
        assert_ne!(len, 0, "neither data nor the end");
    }
}
