//! A kind of volume of one's own: a RAM disk of which every so many reads fail, to see
//! what hosts make of a disk that goes bad. It serves it over NVMe/TCP and counts.
//!
//! `cargo run --example volume_kind`

#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host::{Admin, Caller, Error as HostError, HostIdentity, Payload, Settings};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver, FileIo, Token};
use server::{Config, NamespaceSpec, SubsystemSpec, parts};
use store::{Base, Errno, Error, Extent, Io, Kind, Progress, ResizeError, Spec, Task, Volume};
use wire::nvme::{Sqe, io as opcode};

const NQN: &str = "nqn.2026-01.org.example:failing";
const READS: u64 = 30;
const FAILS_EVERY: u64 = 10;

/// A volume over another one, of which every so many reads fail.
struct Failing {
    below: Arc<dyn Volume>,
    every: u64,
    reads: AtomicU64,
}

impl Volume for Failing {
    /// Its name, its size, its identity: those of the volume below.
    fn base(&self) -> &Base {
        self.below.base()
    }

    /// `lend` is not passed on, so that every read comes here.
    fn start(&self, io: Io, files: &mut dyn FileIo, token: Token) -> Progress {
        if matches!(io, Io::Read { .. })
            && (self.reads.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every)
        {
            return Progress::Done(Err(Error::ReadFailed(Errno::IO)));
        }
        self.below.start(io, files, token)
    }

    fn resume(
        &self,
        task: Task,
        result: io::Result<u32>,
        files: &mut dyn FileIo,
        token: Token,
    ) -> Progress {
        self.below.resume(task, result, files, token)
    }

    fn resize(&self, size_bytes: u64, allow_shrink: bool) -> Result<(), ResizeError> {
        self.below.resize(size_bytes, allow_shrink)
    }

    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        self.below.extents(offset, len, max, out)
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    let spec = Spec::new("disk", Kind::RAM, 16 << 20, 4096);
    let volume: Arc<dyn Volume> = Arc::new(Failing {
        below: store::open(&spec)?,
        every: FAILS_EVERY,
        reads: AtomicU64::new(0),
    });
    let config = Config {
        volumes: vec![spec],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "failing".into(),
            hosts: None,
            namespaces: vec![NamespaceSpec {
                nsid: 1,
                volume: "disk".into(),
                ..NamespaceSpec::default()
            }],
            ..SubsystemSpec::default()
        }],
        listeners: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        cpus: vec![reactor::available_cpus()[0]],
        ..Config::default()
    };
    let running = parts::start_with(config, vec![volume])?;
    let failed = failed_reads(running.addresses()[0])?;
    println!("{failed} of {READS} reads failed");
    assert_eq!(failed, READS / FAILS_EVERY);
    running.stop();
    running.wait(Duration::from_secs(10))?;
    Ok(())
}

/// Reads a block many times. How many reads the disk has failed.
fn failed_reads(to: SocketAddr) -> Result<u64, Box<dyn StdError>> {
    let identity = HostIdentity::new(None)?;
    let settings = Settings::default();
    let mut admin = Admin::connect(driver()?, to, NQN, &identity, settings, 10_000)?;
    admin.set_queue_count(1)?;
    let ids = (admin.cntlid(), 16);
    let mut queue = Caller::io(driver()?, to, NQN, &identity, settings, ids)?;
    let mut sqe = Sqe {
        nsid: 1.into(),
        ..Sqe::new(opcode::READ)
    };
    sqe.set_blocks(0, 1);
    let mut failed = 0;
    for _ in 0..READS {
        let mut block = vec![0; 4096];
        match queue.command("Read", &sqe, Payload::In(&mut block)) {
            Err(HostError::Refused { .. }) => failed += 1,
            other => drop(other?),
        }
    }
    admin.shutdown()?;
    Ok(failed)
}

/// What waits for the sockets of one connection.
fn driver() -> Result<EpollDriver, Box<dyn StdError>> {
    let pool = Pool::new(Budget::new(16 << 20))?;
    Ok(EpollDriver::new(&DriverConfig::default(), pool)?)
}

#[test]
fn every_tenth_read_fails() {
    main().expect("it runs");
}
