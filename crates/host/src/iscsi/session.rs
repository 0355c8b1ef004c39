//! A session with a driver of its own: one command at a time, waiting for each
//! answer.

use std::net::SocketAddr;
use std::time::Duration;

use machine::Nanos;
use reactor::{Driver, Wait};
use wire::iscsi::{LogoutResponseCode, PORT, TaskFunction, TaskResponse};
use wire::scsi::{
    CDB_BYTES, ReadCapacity16, StandardInquiry, UnmapDescriptor, UnmapHeader, cdb, opcode, vpd,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Command, Completion, ExpectedData, Failure, Params, SessionConnection, SessionError,
    SessionEvent, lun_field,
};
use crate::{Payload, resolve};

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a command is sent again that a unit attention kept from being executed.
const UNIT_ATTENTIONS_MAX: u32 = 16;
/// How often a login may be sent elsewhere.
const REDIRECTS_MAX: u32 = 4;
/// Bytes that REPORT LUNS may return: 16,384 units.
const LUNS_LEN_MAX: u32 = 8 + 8 * 16_384;

/// Standard INQUIRY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InquiryInfo {
    /// Peripheral qualifier (bits 7:5) and device type (bits 4:0).
    pub peripheral: u8,
    /// T10 vendor identification.
    pub vendor: String,
    /// Product identification.
    pub product: String,
    /// Product revision level.
    pub revision: String,
    /// TPGS: 0 is no asymmetric access, 1 implicit, 2 explicit, 3 both.
    pub tpgs: u8,
}

/// What an initiator needs to know of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitInfo {
    /// Its number.
    pub lun: u16,
    /// Vendor and product.
    pub model: String,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub block_count: u64,
    /// Most blocks of one transfer; `None`: no limit is told.
    pub transfer_blocks_max: Option<u32>,
    /// Deallocated blocks are managed (LBPME).
    pub is_thin: bool,
}

/// A session whose commands are waited for, one at a time.
pub struct Session<D> {
    driver: D,
    connection: SessionConnection,
    out: Vec<reactor::Completion>,
}

impl<D: Driver> Session<D> {
    /// Connects and logs in, where the target sends us if it does.
    ///
    /// # Errors
    /// Where the connection fails or the target refuses.
    pub fn open(mut driver: D, to: SocketAddr, params: Params) -> Result<Self, SessionError> {
        let mut to = to;
        for _ in 0..=REDIRECTS_MAX {
            let connection = SessionConnection::open(&mut driver, to, params.clone(), 0)?;
            let mut session = Session {
                driver,
                connection,
                out: Vec::new(),
            };
            let live = |event: SessionEvent| matches!(event, SessionEvent::Live).then_some(());
            match session.wait("answer to the login", live) {
                Ok(()) => return Ok(session),
                Err(SessionError::Redirected(address)) => {
                    let portal = address.split(',').next().unwrap_or_default();
                    to = resolve(portal, PORT).map_err(SessionError::Unusable)?;
                    session.close()?;
                    driver = session.driver;
                }
                Err(error) => return Err(error),
            }
        }
        Err(SessionError::Unusable(
            "the target sends its initiators in circles".into(),
        ))
    }

    /// What the login agreed on.
    #[must_use]
    pub fn agreed(&self) -> &::iscsi::Negotiated {
        self.connection.agreed()
    }

    /// Runs one command to its end; a unit attention is noted, and the command
    /// sent again. How many bytes of data came; the rest of the memory is zeroed.
    ///
    /// # Errors
    /// Where the connection fails, or the command does not end with GOOD.
    pub fn command(
        &mut self,
        name: &'static str,
        lun: u16,
        cdb: [u8; CDB_BYTES],
        mut payload: Payload<'_>,
    ) -> Result<u32, SessionError> {
        for _ in 0..UNIT_ATTENTIONS_MAX {
            let again = match &mut payload {
                Payload::None => Payload::None,
                Payload::In(into) => Payload::In(into),
                Payload::Out(bytes) => Payload::Out(bytes),
            };
            match self.command_once(name, lun_field(lun), cdb, again) {
                Ok(completion) => return Ok(completion.data_len),
                Err(error) if error.sense().is_some_and(|s| s.is_unit_attention()) => {}
                Err(error) => return Err(error),
            }
        }
        Err(SessionError::Unusable(format!(
            "{name}: unit attentions come to no end"
        )))
    }

    /// The same with a LUN field as it goes on the wire, and without a second
    /// attempt.
    ///
    /// # Errors
    /// Where the connection fails, or the command does not end with GOOD.
    pub fn command_once(
        &mut self,
        name: &'static str,
        lun: [u8; 8],
        cdb: [u8; CDB_BYTES],
        mut payload: Payload<'_>,
    ) -> Result<Completion, SessionError> {
        let data = match &payload {
            Payload::None => ExpectedData::None,
            Payload::In(into) => ExpectedData::In(into.len() as u32),
            Payload::Out(bytes) => ExpectedData::Out(bytes.len() as u32),
        };
        let memory = payload
            .memory(self.driver.pool())
            .ok_or(SessionError::NoMemory)?;
        let command = Command {
            lun,
            ..Command::new(0, cdb)
        };
        let tag = self
            .connection
            .submit(&command, data, |_| memory)
            .ok_or(SessionError::Closed)?;
        let completion = self.wait(name, |event| match event {
            SessionEvent::Completed(done, completion) if done == tag => Some(completion),
            _ => None,
        })?;
        let memory = self.connection.take_memory(tag);
        if let Some(failure) = Failure::of(completion.outcome, self.connection.sense()) {
            return Err(SessionError::Refused {
                command: name,
                failure,
            });
        }
        payload.take(&memory, usize::MAX);
        Ok(completion)
    }

    /// TEST UNIT READY (SPC-4, section 6.47).
    ///
    /// # Errors
    /// Where the unit is not ready.
    pub fn test_unit_ready(&mut self, lun: u16) -> Result<(), SessionError> {
        let cdb = cdb::plain(opcode::TEST_UNIT_READY);
        self.command("TEST UNIT READY", lun, cdb, Payload::None)?;
        Ok(())
    }

    /// REPORT LUNS: the numbers of the logical units.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn report_luns(&mut self) -> Result<Vec<u16>, SessionError> {
        let mut bytes = vec![0; LUNS_LEN_MAX as usize];
        let cdb = cdb::report_luns(LUNS_LEN_MAX);
        let came = self.command("REPORT LUNS", 0, cdb, Payload::In(&mut bytes))? as usize;
        let len = bytes[..4].try_into().expect("4 bytes");
        let len = (u32::from_be_bytes(len) as usize).min(came.saturating_sub(8));
        let luns = bytes[8..8 + len].chunks_exact(8);
        Ok(luns
            .map(|field| u16::from_be_bytes([field[0] & 0x3f, field[1]]))
            .collect())
    }

    /// INQUIRY: the standard data.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn inquiry(&mut self, lun: u16) -> Result<InquiryInfo, SessionError> {
        let mut bytes = [0; size_of::<StandardInquiry>()];
        let cdb = cdb::inquiry(None, bytes.len() as u16);
        self.command("INQUIRY", lun, cdb, Payload::In(&mut bytes))?;
        let data = StandardInquiry::read_from_bytes(&bytes).expect("its size");
        Ok(InquiryInfo {
            peripheral: data.peripheral,
            vendor: ascii(&data.vendor),
            product: ascii(&data.product),
            revision: ascii(&data.revision),
            tpgs: data.flags5 >> 4 & 3,
        })
    }

    /// INQUIRY: a vital product data page, its header included.
    ///
    /// # Errors
    /// Where the command fails, or there is no such page.
    pub fn vpd(&mut self, lun: u16, page: u8) -> Result<Vec<u8>, SessionError> {
        let mut bytes = vec![0; 4096];
        let cdb = cdb::inquiry(Some(page), bytes.len() as u16);
        let came = self.command("INQUIRY", lun, cdb, Payload::In(&mut bytes))?;
        let len = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        bytes.truncate(len.min(came as usize));
        Ok(bytes)
    }

    /// What the logical unit is: INQUIRY, READ CAPACITY(16), Block Limits.
    ///
    /// # Errors
    /// Where a command fails, or the unit is no disk with blocks of 512 to
    /// 65,536 bytes.
    pub fn unit(&mut self, lun: u16) -> Result<UnitInfo, SessionError> {
        let inquiry = self.inquiry(lun)?;
        if inquiry.peripheral != 0 {
            return Err(SessionError::Unusable(format!(
                "LUN {lun} is no disk (peripheral {:02x}h): see the target's LUNs",
                inquiry.peripheral
            )));
        }
        self.test_unit_ready(lun)?;
        let mut bytes = [0; size_of::<ReadCapacity16>()];
        let cdb = cdb::read_capacity16(bytes.len() as u32);
        self.command("READ CAPACITY(16)", lun, cdb, Payload::In(&mut bytes))?;
        let capacity = ReadCapacity16::read_from_bytes(&bytes).expect("its size");
        let block_bytes = capacity.block_bytes.get();
        if !(512..=65_536).contains(&block_bytes) || !block_bytes.is_power_of_two() {
            return Err(SessionError::Unusable(format!(
                "LUN {lun} has blocks of {block_bytes} bytes"
            )));
        }
        // A unit need not have the page.
        let limits = self.vpd(lun, vpd::page::BLOCK_LIMITS).unwrap_or_default();
        let max = limits.get(8..12).map(|b| b.try_into().expect("4 bytes"));
        let max = max.map(u32::from_be_bytes).filter(|max| *max > 0);
        Ok(UnitInfo {
            lun,
            model: format!("{} {}", inquiry.vendor, inquiry.product),
            block_bytes,
            block_count: capacity.last_lba.get().saturating_add(1),
            transfer_blocks_max: max,
            is_thin: capacity.provisioning.get() & 1 << 15 != 0,
        })
    }

    /// READ(16) of so many blocks as `into` has bytes.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn read(&mut self, unit: &UnitInfo, lba: u64, into: &mut [u8]) -> Result<(), SessionError> {
        let cdb = cdb::read16(lba, unit.blocks_of(into.len()));
        self.command("READ(16)", unit.lun, cdb, Payload::In(into))?;
        Ok(())
    }

    /// WRITE(16).
    ///
    /// # Errors
    /// Where the command fails.
    pub fn write(&mut self, unit: &UnitInfo, lba: u64, bytes: &[u8]) -> Result<(), SessionError> {
        let cdb = cdb::write16(lba, unit.blocks_of(bytes.len()));
        self.command("WRITE(16)", unit.lun, cdb, Payload::Out(bytes))?;
        Ok(())
    }

    /// SYNCHRONIZE CACHE(16) of the whole unit.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn flush(&mut self, unit: &UnitInfo) -> Result<(), SessionError> {
        let cdb = cdb::synchronize_cache16();
        self.command("SYNCHRONIZE CACHE(16)", unit.lun, cdb, Payload::None)?;
        Ok(())
    }

    /// UNMAP of ranges: first block and how many.
    ///
    /// # Errors
    /// Where the command fails.
    pub fn unmap(&mut self, unit: &UnitInfo, ranges: &[(u64, u32)]) -> Result<(), SessionError> {
        let list = unmap_list(ranges);
        let cdb = cdb::unmap(0, list.len() as u16);
        self.command("UNMAP", unit.lun, cdb, Payload::Out(&list))?;
        Ok(())
    }

    /// COMPARE AND WRITE: the blocks that should be there, then those that
    /// take their place. A miscompare is [`SessionError::Refused`] with its sense.
    ///
    /// # Errors
    /// Where the command fails or the blocks are not as expected.
    pub fn compare_and_write(
        &mut self,
        unit: &UnitInfo,
        lba: u64,
        old_and_new: &[u8],
    ) -> Result<(), SessionError> {
        let blocks = unit.blocks_of(old_and_new.len() / 2);
        let cdb = cdb::compare_and_write(0, lba, blocks as u8);
        self.command(
            "COMPARE AND WRITE",
            unit.lun,
            cdb,
            Payload::Out(old_and_new),
        )?;
        Ok(())
    }

    /// A task management function on a logical unit, with nothing in flight.
    ///
    /// # Errors
    /// Where the connection fails or the function is refused.
    pub fn task_management(
        &mut self,
        function: TaskFunction,
        lun: u16,
    ) -> Result<(), SessionError> {
        let tag = self
            .connection
            .task_management(function, lun_field(lun), None);
        let tag = tag.ok_or(SessionError::Closed)?;
        let name = function.name();
        let response = self.wait(name, |event| match event {
            SessionEvent::TaskManaged(done, response) if done == tag => Some(response),
            _ => None,
        })?;
        match TaskResponse::from_value(response) {
            Some(TaskResponse::Complete | TaskResponse::Succeeded) => Ok(()),
            _ => Err(SessionError::Function { name, response }),
        }
    }

    /// NOP-Out: whether the target is alive.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn ping(&mut self) -> Result<(), SessionError> {
        let tag = self.connection.ping().ok_or(SessionError::Closed)?;
        self.wait("answer to a NOP-Out", |event| match event {
            SessionEvent::Pong(done) if done == tag => Some(()),
            _ => None,
        })
    }

    /// A text exchange, such as SendTargets: the whole answer.
    ///
    /// # Errors
    /// Where the connection fails or the target refuses.
    pub fn text(&mut self, text: &[u8]) -> Result<Vec<u8>, SessionError> {
        let tag = self.connection.text(text).ok_or(SessionError::Closed)?;
        let has_answer = self.wait("answer to a text request", |event| match event {
            SessionEvent::Text(done) if done == tag => Some(true),
            SessionEvent::Rejected(done, _) if done == tag => Some(false),
            _ => None,
        })?;
        match has_answer {
            true => Ok(self.connection.text_answer().to_vec()),
            false => Err(SessionError::Unusable(
                "the target rejects the text request".into(),
            )),
        }
    }

    /// Waits at most so long for something that the target says by itself.
    ///
    /// # Errors
    /// Where the connection fails.
    pub fn next_async(&mut self, timeout: Duration) -> Result<super::Async, SessionError> {
        self.wait_until("asynchronous message", timeout, |event| match event {
            SessionEvent::Async(event) => Some(event),
            _ => None,
        })
    }

    /// Logs out and closes the connection.
    ///
    /// # Errors
    /// Where the target refuses or does not answer; the connection is closed
    /// all the same.
    pub fn logout(mut self) -> Result<(), SessionError> {
        let answer = match self.connection.logout() {
            None => Err(SessionError::Closed),
            Some(tag) => self.wait("answer to the logout", |event| match event {
                SessionEvent::LoggedOut(done, response) if done == tag => Some(response),
                _ => None,
            }),
        };
        self.close()?;
        let response = answer?;
        match LogoutResponseCode::from_value(response) {
            Some(LogoutResponseCode::Success) => Ok(()),
            _ => Err(SessionError::Function {
                name: "Logout",
                response,
            }),
        }
    }

    fn wait<T>(
        &mut self,
        what: &'static str,
        pick: impl FnMut(SessionEvent) -> Option<T>,
    ) -> Result<T, SessionError> {
        self.wait_until(what, COMMAND_TIMEOUT, pick)
    }

    /// Turns the driver until `pick` finds what it wants.
    fn wait_until<T>(
        &mut self,
        what: &'static str,
        timeout: Duration,
        mut pick: impl FnMut(SessionEvent) -> Option<T>,
    ) -> Result<T, SessionError> {
        // Not the time of the last turn, which may be long ago.
        let deadline = self.driver.clock() + timeout.as_nanos() as Nanos;
        loop {
            while let Some(event) = self.connection.next_event(&mut self.driver) {
                if let SessionEvent::Down(error) = event {
                    return Err(error);
                }
                if let Some(found) = pick(event) {
                    return Ok(found);
                }
            }
            if self.driver.now() >= deadline {
                return Err(SessionError::TimedOut { waiting_for: what });
            }
            self.turn(deadline)?;
        }
    }

    fn turn(&mut self, deadline: Nanos) -> Result<(), SessionError> {
        self.connection.flush(&mut self.driver);
        self.driver.poll(Wait::Until(deadline), &mut self.out)?;
        for completion in self.out.drain(..) {
            self.connection.on_completion(&mut self.driver, completion);
        }
        Ok(())
    }

    /// Closes the connection and waits for its end.
    fn close(&mut self) -> Result<(), SessionError> {
        self.connection.close(&mut self.driver);
        let deadline = self.driver.clock() + COMMAND_TIMEOUT.as_nanos() as Nanos;
        while !self.connection.is_closed() && self.driver.now() < deadline {
            self.turn(deadline)?;
        }
        Ok(())
    }
}

impl UnitInfo {
    /// Bytes of the unit.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.block_count.saturating_mul(u64::from(self.block_bytes))
    }

    fn blocks_of(&self, len: usize) -> u32 {
        assert!(
            len.is_multiple_of(self.block_bytes as usize),
            "whole blocks are transferred"
        );
        (len / self.block_bytes as usize) as u32
    }
}

/// The parameter list of UNMAP for ranges of blocks (SBC-3, section 5.30.2).
fn unmap_list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let descriptors_len = (ranges.len() * size_of::<UnmapDescriptor>()) as u16;
    let header = UnmapHeader {
        data_len: (descriptors_len + 6).into(),
        descriptors_len: descriptors_len.into(),
        reserved4: [0; 4],
    };
    let mut list = header.as_bytes().to_vec();
    for (lba, blocks) in ranges {
        let descriptor = UnmapDescriptor {
            lba: (*lba).into(),
            blocks: (*blocks).into(),
            reserved12: [0; 4],
        };
        list.extend(descriptor.as_bytes());
    }
    list
}

/// The text of a space padded ASCII field.
fn ascii(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim().to_owned()
}
