//! The Admin Queue of a controller: what happens seldom, one command at a
//! time, waiting for each answer.

use std::net::SocketAddr;
use std::time::Duration;

use nvmf::command::AnaState;
use nvmf::dhchap::DhchapKeys;
use nvmf::host::Completion;
use reactor::Driver;
use wire::nvme::discovery::{DISCOVERY_NQN, LogEntry, LogHeader, TRTYPE_TCP};
use wire::nvme::fabrics::ConnectData;
use wire::nvme::feature::fid;
use wire::nvme::identify::{self, IDENTIFY_BYTES, LIST_NSIDS_MAX, cns};
use wire::nvme::log::lid;
use wire::nvme::property::{Cap, csts, offset};
use wire::nvme::{ConnectCommand, PropertyGet, PropertySet, Sqe, admin};
use zerocopy::FromBytes;

use crate::ana::{self, AnaInfo};
use crate::{Caller, Error, HostIdentity, Payload, QueueParams, QueueSettings};

/// Entries of the Admin Queue: the least that the standard allows (Base 2.0, 3.3.1).
const ADMIN_ENTRIES: u16 = 32;
/// Controller ID with which a controller is asked for (dynamic model).
const CNTLID_ANY: u16 = 0xffff;
/// Records of a discovery log that are read at most.
const RECORDS_MAX: u64 = 4096;
/// How often a discovery log that changes while it is read is read again.
const LOG_ATTEMPTS_MAX: u32 = 5;
/// CC: enabled, NVM Command Set, 64-byte SQEs, 16-byte CQEs (Base 2.0, figure 46).
const CC_ENABLE: u64 = 1 | 6 << 16 | 4 << 20;
/// CC with a normal shutdown notification (SHN 01b).
const CC_SHUTDOWN: u64 = CC_ENABLE | 1 << 14;

/// CMIC: the controller reports Asymmetric Namespace Access (Base 2.0, figure 275).
const CMIC_ANA: u8 = 1 << 3;
/// ONCS: Write Zeroes (Base 2.0, figure 275).
const ONCS_WRITE_ZEROES: u16 = 1 << 3;

/// What is said besides where there is no connection by a key from an authentication in which
/// both sides have proven themselves: Linux's controller forgets what the key is made of before
/// it makes it.
fn by_mutual_key(error: Error) -> Error {
    match error {
        Error::Socket(_) | Error::Closed => Error::Unusable(format!(
            "{error}; a target of Linux makes no key (`--concat`) where it proves itself \
             (`--dhchap-ctrl-secret-file`): leave that out, or use `--psk-file`"
        )),
        error => error,
    }
}

/// What a host needs to know of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Controller ID.
    pub cntlid: u16,
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Most bytes of one transfer; `None`: no limit.
    pub transfer_max: Option<u64>,
    /// In-capsule data that I/O queues take, in bytes.
    pub in_capsule_max: u32,
    /// Most entries of an I/O queue.
    pub queue_entries_max: u32,
    /// What it says about ANA, if it reports that.
    pub ana: Option<AnaInfo>,
    /// Asynchronous events that it tells of where that is asked for (OAES).
    pub notices: u32,
    /// It has a volatile write cache (VWC).
    pub volatile_cache: bool,
    /// It takes Write Zeroes (ONCS).
    pub write_zeroes: bool,
}

/// What a host needs to know of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace identifier.
    pub nsid: u32,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub block_count: u64,
    /// Thin provisioning (NSFEAT).
    pub is_thin: bool,
}

/// The Admin Queue of a controller, with a driver of its own.
pub struct Admin<D> {
    caller: Caller<D>,
    settings: QueueSettings,
    host: HostIdentity,
    cntlid: u16,
    cap: u64,
}

impl<D: Driver> Admin<D> {
    /// Connects to `subnqn` at `to` and enables the controller. `kato_ms` is
    /// its Keep Alive Timeout, 0 for none: see [`Admin::keep_alive`]. A host that is to make
    /// a key for TLS does so on a connection before this one. A key that it has is said by an
    /// identity of version 1, and by one of version 0 where the handshake ends by that.
    ///
    /// # Errors
    /// Where the connection fails or the controller refuses, and where the host has a key for TLS, or
    /// is to make one, and connects by RDMA.
    pub fn connect(
        driver: D,
        to: SocketAddr,
        subnqn: &str,
        host: &HostIdentity,
        settings: impl Into<QueueSettings>,
        kato_ms: u32,
    ) -> Result<Self, Error> {
        let settings = settings.into();
        let needs_tls = host.psk.is_some() || host.concatenates;
        if needs_tls && matches!(settings, QueueSettings::Rdma(_)) {
            let why = "NVMe/RDMA has no TLS: leave --psk-file and --concat out, or say nvme-tcp://";
            return Err(Error::Unusable(why.to_owned()));
        }
        let params = |host: &HostIdentity| QueueParams {
            settings,
            connect: ConnectCommand {
                recfmt: 0,
                qid: 0,
                sqsize: ADMIN_ENTRIES - 1,
                cattr: 0,
                kato_ms,
            },
            connect_data: ConnectData::new(host.hostid, CNTLID_ANY, subnqn, &host.hostnqn),
            in_capsule_max: settings.admin_in_capsule_max(),
            psk: host.psk.clone(),
            dhchap: host.dhchap.clone(),
        };
        let (caller, result, host) = match host.concatenates {
            false => {
                let opened = Caller::open_by_either_identity(driver, to, params(host))?;
                let (caller, result, psk) = opened;
                let host = host.clone();
                (caller, result, HostIdentity { psk, ..host })
            }
            true => {
                let asks_for_proof = |keys: &DhchapKeys| keys.controller.is_some();
                let is_mutual = host.dhchap.as_ref().is_some_and(asks_for_proof);
                let (driver, psk) = Caller::make_key(driver, to, params(host))?;
                let host = host.with_generated_psk(psk);
                let opened = Caller::open(driver, to, params(&host));
                let (caller, result) = opened.map_err(|error| match is_mutual {
                    true => by_mutual_key(error),
                    false => error,
                })?;
                (caller, result, host)
            }
        };
        let mut admin = Admin {
            caller,
            settings,
            host,
            cntlid: result as u16,
            cap: 0,
        };
        admin.cap = admin.property(offset::CAP, true)?;
        admin.enable()?;
        Ok(admin)
    }

    /// Whose I/O queues of the controller are: the host that connected it, with the key for TLS
    /// that it has made, or that was taken, if it has one.
    #[must_use]
    pub fn host(&self) -> &HostIdentity {
        &self.host
    }

    /// The controller's ID.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn controller(&mut self) -> Result<ControllerInfo, Error> {
        let bytes = self.identify(cns::CONTROLLER, 0)?;
        let (c, _) = identify::Controller::read_from_prefix(&bytes[..]).expect("4096 bytes");
        let page_shift = 12 + (self.cap >> 48 & 15) as u32;
        let mdts = page_shift + u32::from(c.mdts);
        let mdts = (c.mdts != 0).then(|| 1u64 << mdts.min(62));
        // IOCCSZ counts 16-byte units and includes the 64-byte SQE. Data that begins behind
        // an offset is of no use here.
        let capsule = c.ioccsz.get().saturating_mul(16).saturating_sub(64);
        Ok(ControllerInfo {
            cntlid: self.cntlid,
            model: ascii(&c.mn),
            serial: ascii(&c.sn),
            transfer_max: [mdts, self.settings.data_max()].into_iter().flatten().min(),
            in_capsule_max: if c.icdoff.get() == 0 { capsule } else { 0 },
            queue_entries_max: u32::from(Cap(self.cap).mqes()) + 1,
            ana: (c.cmic & CMIC_ANA != 0).then(|| AnaInfo {
                transition_s: c.anatt,
                log_bytes: ana::log_bytes(c.nanagrpid.get(), c.mnan.get().max(c.nn.get())),
            }),
            notices: c.oaes.get(),
            volatile_cache: c.vwc & 1 != 0,
            write_zeroes: c.oncs.get() & ONCS_WRITE_ZEROES != 0,
        })
    }

    /// The namespace `nsid`, or the first active one.
    ///
    /// # Errors
    /// Where the command fails, there is no such namespace, or its format is odd.
    pub fn namespace(&mut self, nsid: Option<u32>) -> Result<NamespaceInfo, Error> {
        let nsid = match nsid {
            Some(nsid) => nsid,
            None => *self
                .active_namespaces()?
                .first()
                .ok_or_else(|| Error::Unusable("the subsystem has no namespace".into()))?,
        };
        let bytes = self.identify(cns::NAMESPACE, nsid)?;
        let (n, _) = identify::Namespace::read_from_prefix(&bytes[..]).expect("4096 bytes");
        // FLBAS bits 3:0, and 6:5 above them (NVM Command Set 1.0, figure 97).
        let format = usize::from(n.flbas & 15 | n.flbas >> 1 & 0x30);
        let shift = u32::from(n.lbaf[format].lbads);
        if n.nsze.get() == 0 {
            return Err(Error::Unusable(format!("namespace {nsid} is not active")));
        }
        if !(9..=16).contains(&shift) || n.lbaf[format].ms.get() != 0 {
            return Err(Error::Unusable(format!(
                "namespace {nsid} has blocks of 2^{shift} bytes and {} bytes of metadata",
                n.lbaf[format].ms.get()
            )));
        }
        Ok(NamespaceInfo {
            nsid,
            block_bytes: 1 << shift,
            block_count: n.nsze.get(),
            is_thin: n.nsfeat & 1 != 0,
        })
    }

    /// The first 1,024 active namespaces.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, Error> {
        let bytes = self.identify(cns::ACTIVE_NAMESPACES, 0)?;
        let list = bytes.chunks_exact(4).take(LIST_NSIDS_MAX);
        let list = list.map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes")));
        Ok(list.take_while(|nsid| *nsid != 0).collect())
    }

    /// What identifies a namespace, in bytes: the same on every path to it and
    /// for nothing else (Base 2.0, section 5.17.2.3).
    ///
    /// # Errors
    /// Where the command fails.
    pub fn identifiers(&mut self, nsid: u32) -> Result<Box<[u8; IDENTIFY_BYTES]>, Error> {
        self.identify(cns::DESCRIPTORS, nsid)
    }

    /// The ANA state of `nsid` for hosts of this controller, by its log; one
    /// that is not named there is [`AnaState::Inaccessible`].
    ///
    /// # Errors
    /// Where the command fails.
    pub fn ana_state(&mut self, info: AnaInfo, nsid: u32) -> Result<AnaState, Error> {
        let mut bytes = vec![0; info.log_bytes as usize];
        self.log_page(lid::ANA, 0, &mut bytes)?;
        Ok(ana::state_of(&bytes, nsid).unwrap_or(AnaState::Inaccessible))
    }

    /// Reads the Changed Namespace List, after which more is told (Base 2.0, section 5.16.1.5).
    ///
    /// # Errors
    /// Where the command fails.
    pub fn read_changed_namespaces(&mut self) -> Result<(), Error> {
        let mut bytes = vec![0; 4 * LIST_NSIDS_MAX];
        self.log_page(lid::CHANGED_NAMESPACES, 0, &mut bytes)
    }

    /// Asks to be told of what `notices` names (bits of the Asynchronous Event
    /// Configuration), from the next [`Admin::idle`] on.
    ///
    /// # Errors
    /// Where a command fails.
    pub fn enable_notices(&mut self, notices: u32) -> Result<(), Error> {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = u32::from(fid::ASYNC_EVENT_CONFIG).into();
        sqe.cdw11 = notices.into();
        self.command("Set Features", &sqe, Payload::None)?;
        self.caller.post(&Sqe::new(admin::ASYNC_EVENT_REQUEST))
    }

    /// Waits as long as `pause` for an event that was asked for with
    /// [`Admin::enable_notices`]: dword 0 of its completion. The next is told after what
    /// it is about was read.
    ///
    /// # Errors
    /// Where the connection fails.
    pub fn idle(&mut self, pause: Duration) -> Result<Option<u32>, Error> {
        let Some(completion) = self.caller.idle(pause)? else {
            return Ok(None);
        };
        if !completion.status.is_success() {
            let command = "Asynchronous Event Request";
            let status = completion.status;
            return Err(Error::Refused { command, status });
        }
        self.caller.post(&Sqe::new(admin::ASYNC_EVENT_REQUEST))?;
        Ok(Some(completion.result as u32))
    }

    /// Asks for `queues` I/O queues (1 to 65,535); how many there may be.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn set_queue_count(&mut self, queues: u16) -> Result<u16, Error> {
        let mut sqe = Sqe::new(admin::SET_FEATURES);
        sqe.cdw10 = u32::from(fid::NUMBER_OF_QUEUES).into();
        // Both counts are 0's based (Base 2.0, 5.27.1.5).
        let count = u32::from(queues.max(1) - 1);
        sqe.cdw11 = (count << 16 | count).into();
        let result = self.command("Set Features", &sqe, Payload::None)?.result as u32;
        let granted = (result & 0xffff).min(result >> 16) + 1;
        Ok(granted.min(u32::from(queues)) as u16)
    }

    /// Keep Alive. Send one well within every Keep Alive Timeout.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        self.command("Keep Alive", &Sqe::new(admin::KEEP_ALIVE), Payload::None)?;
        Ok(())
    }

    /// Abort of the command `cid` of the queue `sqid`; whether it was aborted
    /// (Base 2.0, section 5.1). The identifier of a
    /// [`Queue`](crate::Queue)'s command is its tag.
    ///
    /// # Errors
    /// Where the Abort itself fails.
    pub fn abort(&mut self, sqid: u16, cid: u16) -> Result<bool, Error> {
        let mut sqe = Sqe::new(admin::ABORT);
        sqe.cdw10 = (u32::from(cid) << 16 | u32::from(sqid)).into();
        let completion = self.command("Abort", &sqe, Payload::None)?;
        Ok(completion.result & 1 == 0)
    }

    /// Controller Reset: disables the controller, which ends its I/O queues,
    /// and enables it again (Base 2.0, section 3.7.2).
    ///
    /// # Errors
    /// Where the controller does not follow.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.set_property(offset::CC, 0)?;
        self.until_status("controller to be disabled", |status| {
            status & csts::RDY == 0
        })?;
        self.enable()
    }

    /// The discovery log, of a discovery controller.
    ///
    /// # Errors
    /// Where the command fails, or the log changes each time that it is read.
    pub fn discovery_log(&mut self) -> Result<Vec<DiscoveryEntry>, Error> {
        for _ in 0..LOG_ATTEMPTS_MAX {
            let header = self.log_header()?;
            let count = header.numrec.get().min(RECORDS_MAX);
            let mut entries = Vec::new();
            for i in 0..count {
                let mut bytes = [0; size_of::<LogEntry>()];
                let at = (i + 1) * size_of::<LogEntry>() as u64;
                self.log_page(lid::DISCOVERY, at, &mut bytes)?;
                entries.push(DiscoveryEntry::decode(
                    &LogEntry::read_from_bytes(&bytes).expect("the size of an entry"),
                ));
            }
            // The generation says whether the entries belong together (Base 2.0, 5.16.1.23).
            if self.log_header()?.genctr.get() == header.genctr.get() {
                return Ok(entries);
            }
        }
        Err(Error::Unusable("the discovery log keeps changing".into()))
    }

    /// Shuts the controller down in order and closes the connection.
    ///
    /// # Errors
    /// Where the controller refuses or does not finish; it is disconnected all the same.
    pub fn shutdown(mut self) -> Result<(), Error> {
        let result = self.set_property(offset::CC, CC_SHUTDOWN).and_then(|()| {
            self.until_status("shutdown to complete", |status| {
                status & csts::SHST_MASK == csts::SHST_COMPLETE
            })
        });
        self.caller.close()?;
        result
    }

    fn enable(&mut self) -> Result<(), Error> {
        self.set_property(offset::CC, CC_ENABLE)?;
        self.until_status("controller to become ready", |status| {
            status & csts::RDY != 0
        })
    }

    /// Reads CSTS until `done`, as long as CAP.TO allows.
    fn until_status(&mut self, what: &'static str, done: fn(u32) -> bool) -> Result<(), Error> {
        let timeout_ms = u64::from(Cap(self.cap).to().max(1)) * 500;
        let deadline = self.caller.driver.now() + timeout_ms * 1_000_000;
        loop {
            let status = self.property(offset::CSTS, false)? as u32;
            if done(status) {
                return Ok(());
            }
            if status & csts::CFS != 0 {
                return Err(Error::Unusable(
                    "the controller has failed (CSTS.CFS)".into(),
                ));
            }
            if self.caller.driver.now() >= deadline {
                return Err(Error::TimedOut { waiting_for: what });
            }
            let pause = self.caller.driver.now() + 1_000_000;
            self.caller.turn(pause)?;
        }
    }

    fn property(&mut self, offset: u32, is_8_bytes: bool) -> Result<u64, Error> {
        let sqe = PropertyGet { offset, is_8_bytes }.encode();
        Ok(self.command("Property Get", &sqe, Payload::None)?.result)
    }

    fn set_property(&mut self, offset: u32, value: u64) -> Result<(), Error> {
        let sqe = PropertySet {
            offset,
            is_8_bytes: false,
            value,
        }
        .encode();
        self.command("Property Set", &sqe, Payload::None)?;
        Ok(())
    }

    fn identify(&mut self, cns: u8, nsid: u32) -> Result<Box<[u8; IDENTIFY_BYTES]>, Error> {
        let mut bytes = Box::new([0; IDENTIFY_BYTES]);
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.nsid = nsid.into();
        sqe.cdw10 = u32::from(cns).into();
        self.command("Identify", &sqe, Payload::In(&mut bytes[..]))?;
        Ok(bytes)
    }

    fn log_header(&mut self) -> Result<LogHeader, Error> {
        let mut bytes = [0; size_of::<LogHeader>()];
        self.log_page(lid::DISCOVERY, 0, &mut bytes)?;
        Ok(LogHeader::read_from_bytes(&bytes).expect("the size of a header"))
    }

    /// Get Log Page from byte `at` (Base 2.0, 5.16).
    fn log_page(&mut self, page: u8, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let dwords = (bytes.len() / 4 - 1) as u32;
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
        sqe.cdw10 = (u32::from(page) | dwords << 16).into();
        sqe.cdw11 = (dwords >> 16).into();
        sqe.cdw12 = (at as u32).into();
        sqe.cdw13 = ((at >> 32) as u32).into();
        self.command("Get Log Page", &sqe, Payload::In(bytes))?;
        Ok(())
    }

    /// Runs one command to its end. Fewer bytes than asked for leave the rest
    /// of the memory zeroed.
    ///
    /// # Errors
    /// Where the connection fails, or the controller refuses the command.
    pub fn command(
        &mut self,
        name: &'static str,
        sqe: &Sqe,
        payload: Payload<'_>,
    ) -> Result<Completion, Error> {
        self.caller.command(name, sqe, payload)
    }
}

/// The text of a space or NUL padded ASCII field.
fn ascii(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim().to_owned()
}

/// One record of a discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// Transport Type; 3 is TCP.
    pub trtype: u8,
    /// Address Family; 1 is IPv4, 2 is IPv6.
    pub adrfam: u8,
    /// Subsystem Type; 2 is an NVM subsystem, 1 and 3 are discovery.
    pub subtype: u8,
    /// Transport Requirements.
    pub treq: u8,
    /// Port ID.
    pub portid: u16,
    /// Controller ID; FFFFh: any.
    pub cntlid: u16,
    /// Admin Max SQ Size.
    pub asqsz: u16,
    /// Entry Flags.
    pub eflags: u16,
    /// Transport service: the port, as text.
    pub trsvcid: String,
    /// Transport address, as text.
    pub traddr: String,
    /// NVM subsystem NQN.
    pub subnqn: String,
    /// Security type of a TCP entry; 0 is none.
    pub sectype: u8,
}

impl DiscoveryEntry {
    fn decode(e: &LogEntry) -> Self {
        DiscoveryEntry {
            trtype: e.trtype,
            adrfam: e.adrfam,
            subtype: e.subtype,
            treq: e.treq,
            portid: e.portid.get(),
            cntlid: e.cntlid.get(),
            asqsz: e.asqsz.get(),
            eflags: e.eflags.get(),
            trsvcid: ascii(&e.trsvcid),
            traddr: ascii(&e.traddr),
            subnqn: ascii(&e.subnqn),
            sectype: if e.trtype == TRTYPE_TCP { e.tsas[0] } else { 0 },
        }
    }
}

/// Reads the discovery log of the discovery subsystem at `to`.
///
/// # Errors
/// Where the connection fails or the controller refuses.
pub fn discover<D: Driver>(
    driver: D,
    to: SocketAddr,
    host: &HostIdentity,
    settings: impl Into<QueueSettings>,
) -> Result<Vec<DiscoveryEntry>, Error> {
    let mut admin = Admin::connect(driver, to, DISCOVERY_NQN, host, settings, 0)?;
    let entries = admin.discovery_log()?;
    // The log is here: a shutdown that fails takes nothing away.
    let _ = admin.shutdown();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_fields_become_text() {
        assert_eq!(ascii(b"4420   \0\0"), "4420");
        assert_eq!(ascii(b"127.0.0.1\0junk"), "127.0.0.1");
        assert_eq!(ascii(b"        "), "");
    }
}
