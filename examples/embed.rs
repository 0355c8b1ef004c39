//! Serves a RAM disk over NVMe/TCP from inside a program, and writes and reads a block of
//! it as a host.
//!
//! `cargo run --example embed`

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use host::{Admin, Caller, HostIdentity, Payload, Settings};
use mem::{Budget, Pool};
use reactor::{DriverConfig, EpollDriver};
use server::{Config, NamespaceSpec, Running, SubsystemSpec};
use store::{Kind, Spec};
use wire::nvme::{Sqe, io};

const NQN: &str = "nqn.2026-01.org.example:embedded";
const BLOCK_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let running = serve()?;
    let address = running.addresses()[0];
    println!("{NQN} is served at {address}");
    let block = vec![7; BLOCK_BYTES];
    let read = write_and_read(address, &block)?;
    assert_eq!(read, block);
    println!("a host has written a block and read it again");
    running.stop();
    let report = running.wait(Duration::from_secs(10))?;
    println!(
        "reads and writes served: {}",
        report.ok_or("it does not end")?.ios
    );
    Ok(())
}

/// One volume, one subsystem, one listener whose port the kernel chooses.
fn serve() -> Result<Running, Box<dyn Error>> {
    let config = Config {
        volumes: vec![Spec::new("disk", Kind::RAM, 16 << 20, BLOCK_BYTES as u32)],
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "1".into(),
            model: "embedded".into(),
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
    Ok(server::start(config)?)
}

/// Writes the first block of namespace 1 and reads it.
fn write_and_read(to: SocketAddr, block: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let identity = HostIdentity::new(None)?;
    let settings = Settings::default();
    let mut admin = Admin::connect(driver()?, to, NQN, &identity, settings, 10_000)?;
    admin.set_queue_count(1)?;
    let ids = (admin.cntlid(), 16);
    let mut queue = Caller::io(driver()?, to, NQN, &identity, settings, ids)?;
    let mut sqe = Sqe {
        nsid: 1.into(),
        ..Sqe::new(io::WRITE)
    };
    sqe.set_blocks(0, 1);
    queue.command("Write", &sqe, Payload::Out(block))?;
    sqe.opcode = io::READ;
    let mut read = vec![0; block.len()];
    queue.command("Read", &sqe, Payload::In(&mut read))?;
    admin.shutdown()?;
    Ok(read)
}

/// What waits for the sockets of one connection.
fn driver() -> Result<EpollDriver, Box<dyn Error>> {
    let pool = Pool::new(Budget::new(16 << 20))?;
    Ok(EpollDriver::new(&DriverConfig::default(), pool)?)
}

#[test]
fn it_serves_itself() {
    main().expect("it runs");
}
