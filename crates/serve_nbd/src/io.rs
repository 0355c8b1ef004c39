//! Requests of a connection, executed on its volume.

use engine::blocks::{AfterIo, WriteStart};
use engine::steps::Steps;
use engine::{OnVolumes as _, payload};
use faults::Fault;
use link::CommandMemory;
use machine::Tag;
use nbd::{NbdAnswer, NbdError, NbdRequest, RequestKind};
use reactor::Driver;
use store::Error;
use store::reservation::Registrant;

use crate::NbdConnection;

/// What reservations know NBD clients by, which cannot register: no host has this identifier.
const NO_REGISTRANT: Registrant = Registrant::NvmeHost([0; 16]);

impl NbdConnection {
    /// Provides memory for the data of a write; false while there is none.
    #[inline]
    pub(crate) fn prepare(&mut self, tag: Tag, len: u32, staged: bool) -> bool {
        let request = self.core.link.machine.request_of(tag);
        let volume = &self.export.as_ref().expect("it is served").volume;
        let data = match staged {
            true => Some(CommandMemory::staged()),
            false => {
                let loan = volume.borrow(request.offset, len);
                payload::destination(loan, &self.core.pool, len)
            }
        };
        let spare = || self.core.pool.get_spare(len).map(CommandMemory::owned);
        let Some(data) = data.or_else(spare) else {
            return false;
        };
        self.core.link.set_data(tag, data);
        self.core.link.machine.prepared(tag);
        true
    }

    /// Executes a request all of which is here; false while memory is short.
    #[inline]
    pub(crate) fn execute_request<D: Driver>(&mut self, tag: Tag, driver: &mut D) -> bool {
        let request = self.core.link.machine.request_of(tag);
        tracing::debug!(peer = %self.core.via.peer, tag, ?request, "execute");
        if !self.may_execute(request.kind) {
            self.fail(tag, NbdError::RESERVATION);
            return true;
        }
        let (offset, len) = (request.offset, request.len);
        let durable = request.is_durable && !faults::is(Fault::ForgetFua);
        match request.kind {
            // What is read need not be durable: FUA says nothing of it.
            RequestKind::Read => self.read_volume(tag, (0, offset), len as u32, false, driver),
            RequestKind::Write => {
                let begun = self.write_volume(tag, (0, offset), durable, driver);
                matches!(begun, WriteStart::Begun)
            }
            RequestKind::Flush => self.start_io(tag, store::Io::Flush, driver),
            RequestKind::Trim => self.trim(tag, &request, driver),
            RequestKind::WriteZeroes { may_be_hole } => {
                let zero = store::Io::Zero {
                    offset,
                    len,
                    deallocate: may_be_hole,
                    durable,
                };
                self.start_io(tag, zero, driver)
            }
            // Nothing is fetched, and there is no difference but in speed (section "Request
            // types").
            RequestKind::Cache => {
                let answer = NbdAnswer::Done { data_len: 0 };
                self.core.link.machine.complete(tag, answer);
                true
            }
            RequestKind::BlockStatus { .. } => self.block_status(tag, request),
        }
    }

    fn start_io<D: Driver>(&mut self, tag: Tag, io: store::Io, driver: &mut D) -> bool {
        self.start(tag, 0, io, AfterIo::Complete { data_len: 0 }, driver);
        true
    }

    /// NBD_CMD_TRIM, with FUA as durable as a write.
    fn trim<D: Driver>(&mut self, tag: Tag, request: &NbdRequest, driver: &mut D) -> bool {
        let NbdRequest { offset, len, .. } = *request;
        let deallocate = store::Io::Deallocate { offset, len };
        if !request.is_durable {
            return self.start_io(tag, deallocate, driver);
        }
        let volume = &self.export.as_ref().expect("it is served").volume;
        let both = [deallocate, store::Io::Flush].into_iter();
        let steps = Steps::on(0, volume, both, None);
        self.go_on(tag, None, steps, driver);
        true
    }

    /// Whether reservations of others let it do that now.
    #[inline]
    fn may_execute(&mut self, kind: RequestKind) -> bool {
        if faults::is(Fault::NoReservations) {
            return true;
        }
        let export = self.export.as_mut().expect("it is served");
        let reservations = export.volume.reservations();
        let access = reservations.access(&NO_REGISTRANT, &mut export.grant);
        match kind {
            RequestKind::Read | RequestKind::Cache | RequestKind::BlockStatus { .. } => access.read,
            RequestKind::Flush => true,
            RequestKind::Write | RequestKind::Trim | RequestKind::WriteZeroes { .. } => {
                access.write
            }
        }
    }
}

/// What tells a client why its request failed (section "Error values").
pub(crate) fn error_of(error: Error, kind: RequestKind) -> NbdError {
    match (error, kind) {
        (Error::OutOfRange, RequestKind::Write | RequestKind::WriteZeroes { .. }) => {
            NbdError::NO_SPACE_BEYOND
        }
        (Error::OutOfRange, _) => NbdError::BEYOND,
        (Error::ReadOnly, _) => NbdError::READ_ONLY,
        (Error::OutOfSpace(_), _) => NbdError::NO_SPACE,
        (Error::Busy, _) => NbdError::NO_MEMORY,
        (Error::Locked, _) => NbdError::LOCKED,
        _ => NbdError::IO,
    }
}
