//! SCSI commands over iSCSI, as several initiators see them.

mod copy;
mod ending;
mod reservation;
mod steps;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;

use host::Payload;
use host::iscsi::{CommandOutcome, Initiator, InitiatorSettings, Params, Session, SessionError};
use iscsi::PortalGroup;
use iscsi::initiator::Chap;
use mem::{Budget, Pool};
use reactor::{Choice, DriverConfig, EpollDriver};
use server::{Config, IscsiTargetSpec, Limits, ListenerSpec, LunSpec, Running, parts};
use store::Volume;
use wire::scsi::{cdb, key, opcode, status};

use crate::common::{config, ram};

/// The target that every initiator is at.
pub const DISKS: &str = "iqn.2026-01.io.weft:disks";
/// Another one.
pub const MORE: &str = "iqn.2026-01.io.weft:more";

/// See [`serve_volumes`].
pub fn serve(volumes: Vec<store::Spec>) -> Running {
    let open = |spec| store::open(spec).expect("opened");
    serve_volumes(volumes.iter().map(open).collect())
}

/// The RAM volume "ram", that the NVMe subsystem has too, is LUN 0 of [`DISKS`],
/// which is reached through two portal groups: 1 at listener 2, 2 at listener 3.
/// `volumes` are its LUNs from 1; the last of them is LUN 7 of [`MORE`] too.
pub fn serve_volumes(volumes: Vec<Arc<dyn Volume>>) -> Running {
    let mut disks = IscsiTargetSpec::new(DISKS);
    disks.target.portal_groups = [(1, 2), (2, 3)]
        .map(|(tag, listener)| PortalGroup {
            tag,
            portals: vec![listener],
            ..PortalGroup::default()
        })
        .into();
    let names = volumes.iter().map(|volume| volume.info().name.clone());
    let names = ["ram".to_owned()].into_iter().chain(names);
    let luns = (0..).zip(names);
    disks.luns = luns.map(|(lun, name)| LunSpec::new(lun, name)).collect();
    let mut more = IscsiTargetSpec::new(MORE);
    let last = volumes.last().map(|volume| volume.info().name.clone());
    more.luns = last.map(|name| LunSpec::new(7, name)).into_iter().collect();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config: Config = config(Choice::Epoll, Limits::default(), 128 << 20);
    let iscsi = ListenerSpec::iscsi(local);
    config.listeners.extend([iscsi.clone(), iscsi]);
    config.iscsi_targets = vec![disks, more];
    let mut all = vec![store::open(&ram("ram", 4096)).expect("memory")];
    all.extend(volumes);
    parts::start_with(config, all).expect("starts")
}

/// A RAM volume of 4 MiB with blocks of 512 bytes.
pub fn small(name: &str) -> store::Spec {
    store::Spec {
        size_bytes: 4 << 20,
        block_bytes: 512,
        ..ram(name, 1)
    }
}

/// Why a command did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION: sense key, additional sense code with its qualifier, and
    /// information.
    Check(u8, u16, Option<u64>),
}

/// ILLEGAL REQUEST with an additional sense code.
pub fn illegal(code: u16) -> Fail {
    Fail::Check(key::ILLEGAL_REQUEST, code, None)
}

/// A session of an initiator, one I_T nexus.
pub struct Nexus {
    pub session: Session<EpollDriver>,
    pub lun: u16,
    /// Name of its initiator port.
    pub port: String,
}

pub const ALICE: &str = "iqn.2004-01.org.example:alice";
pub const BOB: &str = "iqn.2004-01.org.example:bob";

impl Nexus {
    /// Logs in through a listener; the unit attention of a new nexus is seen.
    pub fn login(running: &Running, listener: usize, name: &str, target: &str) -> Nexus {
        Nexus::connect(running.addresses()[listener], name, target)
    }

    pub fn connect(address: SocketAddr, name: &str, target: &str) -> Nexus {
        Nexus::proving(address, name, target, None)
    }

    pub fn proving(address: SocketAddr, name: &str, target: &str, chap: Option<Chap>) -> Nexus {
        let pool = Pool::new(Budget::new(16 << 20)).expect("memory");
        let driver = EpollDriver::new(&DriverConfig::default(), pool).expect("a driver");
        let initiator = Initiator::new(Some(name)).expect("random bytes");
        let settings = InitiatorSettings {
            chap,
            ..InitiatorSettings::new(name, target)
        };
        let params = Params::new(settings, &initiator, 1).expect("random bytes");
        let port = scsi::reservation::initiator_port(name, params.isid);
        let session = Session::open(driver, address, params).expect("logged in");
        let mut nexus = Nexus {
            session,
            lun: 0,
            port,
        };
        nexus.settle();
        nexus
    }

    /// At the first portal of [`DISKS`].
    pub fn of(running: &Running, name: &str) -> Nexus {
        Nexus::login(running, 2, name, DISKS)
    }

    /// The same at another logical unit.
    pub fn at(mut self, lun: u16) -> Nexus {
        self.lun = lun;
        self.settle();
        self
    }

    /// Takes unit attentions until there is none; their codes.
    pub fn settle(&mut self) -> Vec<u16> {
        let mut codes = Vec::new();
        loop {
            match self.ask(cdb::plain(opcode::TEST_UNIT_READY), Payload::None) {
                Err(Fail::Check(key::UNIT_ATTENTION, code, _)) => codes.push(code),
                _ => return codes,
            }
        }
    }

    /// One command, once.
    pub fn ask(&mut self, cdb: [u8; 16], payload: Payload<'_>) -> Result<u32, Fail> {
        let lun = [0, self.lun as u8, 0, 0, 0, 0, 0, 0];
        match self.session.command_once("a command", lun, cdb, payload) {
            Ok(completion) => Ok(completion.data_len),
            Err(SessionError::Refused { failure, .. }) => {
                Err(match (failure.outcome, failure.sense) {
                    (CommandOutcome::Status(status::RESERVATION_CONFLICT), _) => Fail::Conflict,
                    (_, Some(sense)) => Fail::Check(sense.key, sense.code, sense.information),
                    (outcome, None) => panic!("{outcome:?} of {cdb:02x?}"),
                })
            }
            Err(error) => panic!("{error:?} of {cdb:02x?}"),
        }
    }

    /// A command without data.
    pub fn plain(&mut self, cdb: [u8; 16]) -> Result<(), Fail> {
        self.ask(cdb, Payload::None).map(|_| ())
    }

    /// A command with data for the target.
    pub fn give(&mut self, cdb: [u8; 16], bytes: &[u8]) -> Result<(), Fail> {
        let payload = match bytes.is_empty() {
            true => Payload::None,
            false => Payload::Out(bytes),
        };
        self.ask(cdb, payload).map(|_| ())
    }

    /// A command with up to `len` bytes of data from the target: what came.
    pub fn take(&mut self, cdb: [u8; 16], len: usize) -> Result<Vec<u8>, Fail> {
        let mut bytes = vec![0; len];
        let came = self.ask(cdb, Payload::In(&mut bytes))?;
        bytes.truncate(came as usize);
        Ok(bytes)
    }

    /// Reads blocks of `block` bytes.
    pub fn read(&mut self, block: usize, lba: u64, blocks: u32) -> Result<Vec<u8>, Fail> {
        self.take(cdb::read16(lba, blocks), blocks as usize * block)
    }

    /// Writes blocks of `block` bytes.
    pub fn write(&mut self, block: usize, lba: u64, bytes: &[u8]) -> Result<(), Fail> {
        self.give(cdb::write16(lba, (bytes.len() / block) as u32), bytes)
    }
}
