//! A file system that is served, and short loads on it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use client::perf::Report;
use server::nfs::{
    ExportSpec, Exported, FileSystemKind, FileSystemSpec, NfsSettings, Rule, Squash,
};
use server::{Config, ListenerSpec, RdmaSpec, Running};

use crate::line;

/// As long as a load must be to do something.
pub const SHORT: &str = "--runtime 100ms --ramp-time 10ms";

/// A memory file system of 64 MiB as `/files`, over one reactor.
pub struct Files(pub Running);

impl Files {
    pub fn start(nfs: NfsSettings, rdma: RdmaSpec) -> Files {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = server::start(Config {
            file_systems: vec![FileSystemSpec {
                name: "files".into(),
                kind: FileSystemKind::Mem {
                    size_bytes: 64 << 20,
                },
            }],
            exports: vec![ExportSpec {
                path: "/files".into(),
                what: Exported::FileSystem("files".into()),
                rules: vec![Rule {
                    squash: Squash::None,
                    ..Rule::default()
                }],
            }],
            nfs,
            listeners: vec![ListenerSpec {
                rdma,
                ..ListenerSpec::nfs(any)
            }],
            cpus: vec![reactor::available_cpus()[0]],
            spin_us_max: 0,
            memory_max: 64 << 20,
            ..Config::default()
        });
        Files(running.expect("the target starts"))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.addresses()[0]
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.0.stop();
        let ended = self.0.wait(Duration::from_secs(10));
        if !std::thread::panicking() {
            ended.expect("the target ends").expect("in time");
        }
    }
}

/// A short load.
pub fn load(words: &str) -> Result<Report, String> {
    line::perf(&format!("{SHORT} {words}"), &AtomicBool::new(false))
}
