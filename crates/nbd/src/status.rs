//! The reply to a block status: a chunk for each metadata context that the client has selected
//! (section "Structured reply types").

use std::sync::Arc;

use wire::nbd::{BlockDescriptor, ExtendedDescriptor, allocation, dirty_bitmap, reply_type};
use zerocopy::IntoBytes;

use crate::context::NbdContext;
use crate::request::{NbdRequest, RequestKind};
use crate::server::{ChunkHeader, ReplyForm, ReplyTo};

/// What the reply to a block status is made by, on any thread.
#[derive(Clone, Debug)]
pub struct StatusReply {
    pub(crate) to: ReplyTo,
    pub(crate) request: NbdRequest,
    pub(crate) contexts: Arc<[NbdContext]>,
}

impl StatusReply {
    /// What the client wants to know, in this order.
    pub fn contexts(&self) -> &[NbdContext] {
        &self.contexts
    }

    /// Parts that a chunk of so many bytes may tell of.
    pub fn parts_max(&self, chunk_bytes: usize) -> usize {
        let part_bytes = match self.to.form {
            ReplyForm::Extended => size_of::<ExtendedDescriptor>(),
            _ => size_of::<BlockDescriptor>(),
        };
        match self.request.kind {
            RequestKind::BlockStatus { is_one: true } => 1,
            _ => chunk_bytes.saturating_sub(ChunkHeader::LONGEST) / part_bytes,
        }
    }

    /// All of the reply, with each chunk of so many bytes at most. `parts` says of a context, in
    /// order from the offset of the request on, the bytes of each part and whether data is there,
    /// or may have changed: of one part at least, and of as many at most as it is told. Nothing
    /// behind the request is told.
    ///
    /// # Errors
    /// Those of `parts`.
    pub fn chunks<E>(
        &self,
        chunk_bytes: usize,
        mut parts: impl FnMut(&NbdContext, usize) -> Result<Vec<(u64, bool)>, E>,
    ) -> Result<Vec<u8>, E> {
        let (mut all, most) = (Vec::new(), self.parts_max(chunk_bytes));
        for (id, context) in (1..).zip(self.contexts.iter()) {
            let descriptors = self.descriptors(context, &parts(context, most)?, most);
            let is_last = id as usize == self.contexts.len();
            all.extend_from_slice(self.header(id, is_last, &descriptors).bytes());
            all.extend(descriptors);
        }
        Ok(all)
    }

    fn descriptors(&self, context: &NbdContext, parts: &[(u64, bool)], most: usize) -> Vec<u8> {
        let (mut bytes, mut left) = (Vec::new(), self.request.len);
        for &(len, is_so) in parts.iter().take(most) {
            let len = len.min(left);
            if len == 0 {
                break;
            }
            left -= len;
            let state = match (context, is_so) {
                (NbdContext::Allocation, true) | (NbdContext::DirtyBitmap(_), false) => 0,
                (NbdContext::Allocation, false) => allocation::HOLE | allocation::ZERO,
                (NbdContext::DirtyBitmap(_), true) => dirty_bitmap::DIRTY,
            };
            if self.to.form == ReplyForm::Extended {
                let (len, status) = (len.into(), u64::from(state).into());
                bytes.extend_from_slice(ExtendedDescriptor { len, status }.as_bytes());
            } else {
                // A request of that form has 32 bits for its length.
                let (len, status) = ((len as u32).into(), state.into());
                bytes.extend_from_slice(BlockDescriptor { len, status }.as_bytes());
            }
        }
        bytes
    }

    fn header(&self, id: u32, is_last: bool, descriptors: &[u8]) -> ChunkHeader {
        let len = descriptors.len() as u32;
        let id = id.to_be_bytes();
        if self.to.form != ReplyForm::Extended {
            return ChunkHeader::new(self.to, reply_type::BLOCK_STATUS, &id, (len, is_last));
        }
        let count = len / size_of::<ExtendedDescriptor>() as u32;
        let fields = [id, count.to_be_bytes()].concat();
        ChunkHeader::new(
            self.to,
            reply_type::BLOCK_STATUS_EXT,
            &fields,
            (len, is_last),
        )
    }
}
