//! A leg that is not there: its volume could not be opened. It fails whatever it is asked for, so
//! that it is out, and another volume of its name takes its place when there is one.

use std::io;
use std::sync::Arc;

use reactor::{FileIo, Token};
use rustix::io::Errno;
use uuid::Uuid;

use super::record::MirrorRecord;
use crate::{Base, Error, Extent, Info, Io, Kind, Progress, ResizeError, Spec, Task, Volume};

/// The word for what it is.
const KIND: &str = "absent";

pub(super) struct Absent(Base);

/// The legs that a mirror is described to have, in their order: these volumes, and others that
/// its record knows and that are not there.
pub(super) fn with_absent(
    spec: &Spec,
    below: Vec<Arc<dyn Volume>>,
    record: Option<&MirrorRecord>,
) -> Vec<Arc<dyn Volume>> {
    let there: Vec<&Info> = below.iter().map(|leg| leg.info()).collect();
    let mut gone = absent_legs(spec, &there, record).into_iter();
    let legs = spec.kind.of().iter().filter_map(|name| {
        let found = below.iter().find(|leg| leg.info().name == *name);
        found.cloned().or_else(|| gone.next())
    });
    legs.collect()
}

/// The legs that a mirror is described to have and that are not among these, as far as its record
/// knows them.
pub(super) fn absent_legs(
    spec: &Spec,
    there: &[&Info],
    record: Option<&MirrorRecord>,
) -> Vec<Arc<dyn Volume>> {
    let Some(record) = record else {
        return Vec::new();
    };
    let is_there = |is: &dyn Fn(&Info) -> bool| there.iter().any(|leg| is(leg));
    let known = record.legs.iter().map(|leg| leg.volume);
    let known = known.filter(|uuid| !is_there(&|leg| leg.uuid == *uuid));
    let names = spec.kind.of().iter();
    let names = names.filter(|name| !is_there(&|leg| leg.name == **name));
    let legs = names.zip(known);
    let legs = legs.map(|(name, uuid)| absent(name, uuid, record.size_bytes, spec.block_bytes));
    legs.collect()
}

/// It is as large as the mirror was: what a leg has is known again when it is there.
fn absent(name: &str, uuid: Uuid, size_bytes: u64, block_bytes: u32) -> Arc<dyn Volume> {
    let spec = Spec::new(name, Kind::NULL, size_bytes, block_bytes);
    let info = Info {
        kind: KIND,
        ..spec.info(uuid, true)
    };
    Arc::new(Absent(Base::new(info, size_bytes)))
}

/// Whether a leg is not there.
pub(super) fn is_absent(leg: &dyn Volume) -> bool {
    leg.info().kind == KIND
}

impl Volume for Absent {
    fn base(&self) -> &Base {
        &self.0
    }

    fn start(&self, io: Io, _: &mut dyn FileIo, _: Token) -> Progress {
        let error = match io {
            Io::Flush => Error::FlushFailed(Errno::NXIO),
            _ if io.leaves_volume_unchanged() => Error::ReadFailed(Errno::NXIO),
            _ => Error::WriteFailed(Errno::NXIO),
        };
        Progress::Done(Err(error))
    }

    fn resume(&self, _: Task, _: io::Result<u32>, _: &mut dyn FileIo, _: Token) -> Progress {
        unreachable!("it leaves no task pending")
    }

    fn resize(&self, _: u64, _: bool) -> Result<(), ResizeError> {
        Err(ResizeError::Fixed(KIND))
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) -> Result<(), Error> {
        Err(Error::ReadFailed(Errno::NXIO))
    }
}
