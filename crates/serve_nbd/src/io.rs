//! Requests of a connection, executed on its volume.

use engine::blocks::{AfterIo, WriteStart};
use engine::steps::Steps;
use engine::{About, Elsewhere as _, OnVolumes as _, payload};
use faults::Fault;
use link::CommandMemory;
use machine::Tag;
use nbd::{NbdAnswer, NbdError, NbdRequest, RequestKind, descriptors};
use reactor::Driver;
use store::reservation::Registrant;
use store::{Error, Extent, Volume};

use crate::{NbdConnection, NbdReply};

/// Bytes of the descriptors of a block status at most. A file system takes long to find many
/// parts, and others wait for it; the client asks for the rest.
const STATUS_BYTES_MAX: usize = 4 << 10;
/// Bytes of the shortest of them.
const DESCRIPTOR_BYTES_MIN: usize = 8;

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

    /// NBD_CMD_BLOCK_STATUS: where a volume keeps data may take the file system a while to say.
    /// False while memory is short.
    fn block_status(&mut self, tag: Tag, request: NbdRequest) -> bool {
        let Some(buf) = self.core.pool.get(STATUS_BYTES_MAX as u32) else {
            return false;
        };
        self.core.link.set_data(tag, CommandMemory::owned(buf));
        let is_extended = self.core.link.machine.is_extended();
        let volume = self.export.as_ref().expect("it is served").volume.clone();
        let later = self.later(tag);
        self.core
            .shared
            .blocking(About::question(&volume), move || {
                later.answer(status(&*volume, &request, is_extended));
            });
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

/// What a volume says of a range; it may ask the file system below.
fn status(volume: &dyn Volume, request: &NbdRequest, is_extended: bool) -> NbdReply {
    let most = match request.kind {
        RequestKind::BlockStatus { is_one: true } => 1,
        _ => STATUS_BYTES_MAX / DESCRIPTOR_BYTES_MIN,
    };
    let mut extents: Vec<Extent> = Vec::new();
    match volume.extents(request.offset, request.len, most, &mut extents) {
        Ok(()) if !extents.is_empty() => {
            let is_there = |extent: &Extent| extent.allocated && !faults::is(Fault::NoExtents);
            let parts = extents.iter().map(|extent| (extent.len, is_there(extent)));
            NbdReply::Done(descriptors(request, is_extended, parts, STATUS_BYTES_MAX))
        }
        // It has become smaller.
        Ok(()) => NbdReply::Failed(NbdError::BEYOND),
        Err(error) => NbdReply::Failed(error_of(error, request.kind)),
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
