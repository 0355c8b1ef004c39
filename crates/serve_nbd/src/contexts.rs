//! Metadata contexts: `base:allocation`, and each snapshot of a volume as a dirty bitmap, which says
//! where the volume may differ from it.

use std::convert::identity;
use std::sync::Arc;

use engine::{About, Elsewhere as _};
use faults::Fault;
use link::CommandMemory;
use machine::Tag;
use nbd::{
    BITMAPS_LISTED_MAX, BitmapsAsked, BitmapsFound, DirtyBitmap, NbdContext, NbdError, NbdRequest,
    StatusReply,
};
use store::snapshot::{self, Comparison};
use store::{Extent, Range, Volume};

use crate::io::error_of;
use crate::{NbdConnection, NbdReply};

/// Bytes of each chunk of a block status at most. A file system takes long to find many parts, and
/// others wait for it; the client asks for the rest.
const CHUNK_BYTES_MAX: usize = 4 << 10;

/// The tag of what is asked for an option: there are no requests then.
const OPTION_TAG: Tag = 0;

impl NbdConnection {
    /// NBD_CMD_BLOCK_STATUS: where a volume keeps data, and what it has changed, may take the file
    /// system a while to say. False while memory is short.
    pub(crate) fn block_status(&mut self, tag: Tag, request: NbdRequest) -> bool {
        let reply = self.core.link.machine.status_reply(tag);
        let bytes = reply.contexts().len() * CHUNK_BYTES_MAX;
        let Some(buf) = self.core.pool.get(bytes as u32) else {
            return false;
        };
        self.core.link.set_data(tag, CommandMemory::owned(buf));
        let volume = self.export.as_ref().expect("it is served").volume.clone();
        let later = self.later(tag);
        self.core
            .shared
            .blocking(About::question(&volume), move || {
                let told = status(&*volume, &request, &reply).map(NbdReply::Done);
                later.answer(told.map_or_else(NbdReply::Failed, identity));
            });
        true
    }

    /// Finds the dirty bitmaps of an export that the machine asks for, if it does.
    pub(crate) fn find_bitmaps(&mut self, volume: &Arc<dyn Volume>) {
        let Some(asked) = self.core.link.machine.bitmaps_asked().cloned() else {
            return;
        };
        let none = match asked {
            BitmapsAsked::List { .. } => BitmapsFound::List(Vec::new()),
            BitmapsAsked::Set(_) => BitmapsFound::Set(Vec::new()),
        };
        let later = self.later_unless_lost(OPTION_TAG, NbdReply::Bitmaps(none));
        let asked_of = volume.clone();
        self.core.shared.blocking(About::question(volume), move || {
            later.answer(NbdReply::Bitmaps(bitmaps(&*asked_of, &asked)));
        });
    }
}

/// The snapshots of a volume that are asked for. One that is damaged is none, and none is told
/// where they cannot be read.
fn bitmaps(volume: &dyn Volume, asked: &BitmapsAsked) -> BitmapsFound {
    match asked {
        BitmapsAsked::List { after, .. } => {
            let is_asked = |name: &str| asked.has(name);
            let max = BITMAPS_LISTED_MAX;
            let names = snapshot::names_behind(volume, after.as_deref(), is_asked, max);
            BitmapsFound::List(names.unwrap_or_default())
        }
        BitmapsAsked::Set(names) => {
            let found = names.iter().filter_map(|name| {
                let identity = snapshot::identity_of(volume, name)?;
                Some(DirtyBitmap {
                    name: name.clone(),
                    identity,
                })
            });
            BitmapsFound::Set(found.collect())
        }
    }
}

/// What a volume says of a range, in all of the contexts that the client has selected.
fn status(
    volume: &dyn Volume,
    request: &NbdRequest,
    reply: &StatusReply,
) -> Result<Vec<u8>, NbdError> {
    let NbdRequest { offset, len, .. } = *request;
    // It may have become smaller.
    if offset + len > volume.size_bytes() {
        return Err(NbdError::BEYOND);
    }
    // One sync for all contexts.
    let mut comparison = None;
    reply.chunks(CHUNK_BYTES_MAX, |context, most| match context {
        NbdContext::Allocation => allocated(volume, request, most),
        NbdContext::DirtyBitmap(bitmap) => {
            let comparison = comparison.get_or_insert_with(|| Comparison::of(volume));
            let range = Range { offset, len };
            let parts = comparison.parts(&bitmap.name, bitmap.identity, range, most);
            let parts = parts.iter().map(|part| (part.len, part.may_differ));
            Ok(parts.collect())
        }
    })
}

/// Where a volume has data; it may ask the file system below.
fn allocated(
    volume: &dyn Volume,
    request: &NbdRequest,
    most: usize,
) -> Result<Vec<(u64, bool)>, NbdError> {
    let mut extents: Vec<Extent> = Vec::new();
    let asked = volume.extents(request.offset, request.len, most, &mut extents);
    asked.map_err(|error| error_of(error, request.kind))?;
    if extents.is_empty() {
        return Err(NbdError::BEYOND);
    }
    let is_there = |extent: &Extent| extent.allocated && !faults::is(Fault::NoExtents);
    let parts = extents.iter().map(|extent| (extent.len, is_there(extent)));
    Ok(parts.collect())
}
