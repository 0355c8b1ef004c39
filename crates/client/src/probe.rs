//! Whether a client gets through to what is served: it connects, reads a block, disconnects.

use std::net::SocketAddr;

use host::iscsi::{Initiator, InitiatorSettings, Params, Session, SessionError};
use host::{Admin, Caller, Error, HostIdentity, Payload, Settings};
use wire::nvme::{Sqe, io};

use crate::discover;
use crate::nfs_client::NfsClientArgs;
use crate::perf::admin_driver;

/// Entries of the I/O queue.
const ENTRIES: u16 = 2;

/// What is tried.
#[derive(Clone, Debug)]
pub enum ProbeTo {
    /// A namespace of a subsystem; without a number the first.
    Namespace(String, Option<u32>),
    /// A logical unit of a target.
    Unit(String, u16),
    /// A path of an NFS server.
    Export(String),
}

/// What a try has come to.
#[derive(Clone, Debug, Default)]
pub struct Probed {
    /// The name that it was made by; NFS has none.
    pub name: Option<String>,
    /// What has gone well, in order.
    pub steps: Vec<String>,
    /// Why it went no further.
    pub error: Option<String>,
    /// That is for want of a secret.
    pub asks_for_secret: bool,
}

/// Tries to get through to what is served at an address, as the host or initiator `name`, or one
/// that nobody knows. Each answer is waited for ten seconds.
#[must_use]
pub fn probe(at: SocketAddr, to: &ProbeTo, name: Option<&str>) -> Probed {
    let mut probed = Probed::default();
    let tried = match to {
        ProbeTo::Namespace(nqn, nsid) => namespace(&mut probed, (at, nqn, *nsid), name),
        ProbeTo::Unit(target, lun) => unit(&mut probed, (at, target, *lun), name),
        ProbeTo::Export(path) => export(&mut probed, at, path),
    };
    probed.error = tried.err();
    probed
}

fn namespace(
    probed: &mut Probed,
    (at, nqn, nsid): (SocketAddr, &str, Option<u32>),
    name: Option<&str>,
) -> Result<(), String> {
    let words = |error: Error| error.to_string();
    let host = HostIdentity::new(name).map_err(|why| why.to_string())?;
    probed.name = Some(host.hostnqn.clone());
    let driver = || admin_driver().map_err(|why| why.to_string());
    let mut admin =
        Admin::connect(driver()?, at, nqn, &host, Settings::default(), 0).map_err(words)?;
    probed.steps.push(format!("connected to {nqn}"));
    let found = admin.namespace(nsid).map_err(words)?;
    let (nsid, blocks, bytes) = (found.nsid, found.block_count, found.block_bytes);
    probed.steps.push(format!(
        "namespace {nsid}: {blocks} blocks of {bytes} bytes"
    ));
    admin.set_queue_count(1).map_err(words)?;
    let ids = (admin.cntlid(), ENTRIES);
    let queue = Caller::io(driver()?, at, nqn, &host, Settings::default(), ids);
    let mut queue = queue.map_err(words)?;
    let mut sqe = Sqe::new(io::READ);
    sqe.nsid = nsid.into();
    sqe.set_blocks(0, 1);
    let mut block = vec![0; bytes as usize];
    queue
        .command("Read", &sqe, Payload::In(&mut block))
        .map_err(words)?;
    probed.steps.push("read its first block".to_owned());
    drop(queue);
    admin.shutdown().map_err(words)?;
    probed.steps.push("disconnected".to_owned());
    Ok(())
}

fn unit(
    probed: &mut Probed,
    (at, target, lun): (SocketAddr, &str, u16),
    name: Option<&str>,
) -> Result<(), String> {
    let initiator = Initiator::new(name).map_err(|why| why.to_string())?;
    probed.name = Some(initiator.name.clone());
    let settings = InitiatorSettings::new(&initiator.name, target);
    let params = Params::new(settings, &initiator, 0).map_err(|why| why.to_string())?;
    let driver = admin_driver().map_err(|why| why.to_string())?;
    // Without what a user of `weft perf` can do about it.
    let words = |error: SessionError| match error {
        SessionError::Protocol(error) => error.to_string(),
        error => error.to_string(),
    };
    let mut session = match Session::open(driver, at, params) {
        Ok(session) => session,
        Err(error) => {
            probed.asks_for_secret = error.asks_for_secret();
            return Err(words(error));
        }
    };
    probed.steps.push(format!("logged in to {target}"));
    let unit = session.unit(lun).map_err(words)?;
    let (blocks, bytes) = (unit.block_count, unit.block_bytes);
    probed
        .steps
        .push(format!("LUN {lun}: {blocks} blocks of {bytes} bytes"));
    let mut block = vec![0; bytes as usize];
    session.read(&unit, 0, &mut block).map_err(words)?;
    probed.steps.push("read its first block".to_owned());
    session.logout().map_err(words)?;
    probed.steps.push("logged out".to_owned());
    Ok(())
}

fn export(probed: &mut Probed, at: SocketAddr, path: &str) -> Result<(), String> {
    let found = discover::files(&format!("nfs://{at}{path}"), &NfsClientArgs::default())?;
    let steps = ["made a session", "found the path", "disconnected"];
    probed.steps.extend(steps.map(str::to_owned));
    probed
        .steps
        .insert(2, format!("read its directory: {} names", found.len()));
    Ok(())
}
