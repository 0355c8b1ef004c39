//! Requests of the transmission phase, and what is wrong with them.

use wire::nbd::{CompactRequest, ExtendedRequest, command_flags as flags, request_type};

use crate::error::NbdError;
use crate::export::{NbdExport, PAYLOAD_BYTES_MAX};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// NBD_CMD_READ.
    Read,
    /// NBD_CMD_WRITE.
    Write,
    /// NBD_CMD_FLUSH.
    Flush,
    /// NBD_CMD_TRIM.
    Trim,
    /// NBD_CMD_CACHE.
    Cache,
    /// NBD_CMD_WRITE_ZEROES.
    WriteZeroes {
        /// Without NBD_CMD_FLAG_NO_HOLE.
        may_be_hole: bool,
    },
    /// NBD_CMD_BLOCK_STATUS.
    BlockStatus {
        /// NBD_CMD_FLAG_REQ_ONE.
        is_one: bool,
    },
}

/// A request that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// What it asks for.
    pub kind: RequestKind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// NBD_CMD_FLAG_FUA.
    pub is_durable: bool,
}

/// The header of a request, of either form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHeader {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub len: u64,
    /// Bytes that follow it.
    pub payload_len: u64,
    /// NBD_CMD_FLAG_PAYLOAD_LEN is where it belongs, and nowhere else.
    pub is_payload_right: bool,
}

impl From<&CompactRequest> for RequestHeader {
    fn from(header: &CompactRequest) -> RequestHeader {
        let len = header.len.get().into();
        let is_write = header.kind.get() == request_type::WRITE;
        RequestHeader {
            flags: header.flags.get(),
            kind: header.kind.get(),
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            len,
            payload_len: if is_write { len } else { 0 },
            // The flag is unknown there, as others are.
            is_payload_right: true,
        }
    }
}

impl From<&ExtendedRequest> for RequestHeader {
    fn from(header: &ExtendedRequest) -> RequestHeader {
        let (len, kind) = (header.len.get(), header.kind.get());
        let has_payload = header.flags.get() & flags::PAYLOAD_LEN != 0;
        RequestHeader {
            flags: header.flags.get() & !flags::PAYLOAD_LEN,
            kind,
            cookie: header.cookie.get(),
            offset: header.offset.get(),
            len,
            payload_len: if has_payload { len } else { 0 },
            is_payload_right: has_payload == (kind == request_type::WRITE),
        }
    }
}

impl RequestHeader {
    /// What is to be executed on an export, with chunks in the replies or without them, and with
    /// a metadata context or without one.
    pub fn check(
        &self,
        export: &NbdExport,
        (takes_chunks, has_context): (bool, bool),
    ) -> Result<NbdRequest, NbdError> {
        let (kind, own_flags) = self.kind(takes_chunks).ok_or(NbdError::UNKNOWN)?;
        if !self.is_payload_right {
            return Err(NbdError::PAYLOAD);
        }
        // FUA is for all requests, wherever it means something (section "Command flags").
        if self.flags & !(own_flags | flags::FUA) != 0 {
            return Err(NbdError::FLAGS);
        }
        let writes = matches!(
            kind,
            RequestKind::Write | RequestKind::Trim | RequestKind::WriteZeroes { .. }
        );
        if writes && export.is_read_only {
            return Err(NbdError::READ_ONLY);
        }
        match kind {
            RequestKind::Flush if (self.offset, self.len) != (0, 0) => {
                return Err(NbdError::RESERVED);
            }
            RequestKind::Flush => {}
            RequestKind::BlockStatus { .. } if !has_context => return Err(NbdError::NO_CONTEXT),
            _ => self.check_range(export, kind)?,
        }
        if let RequestKind::WriteZeroes { may_be_hole } = kind
            && self.flags & flags::FAST_ZERO != 0
            && !(may_be_hole && export.is_fast_to_zero)
        {
            return Err(NbdError::NOT_FAST);
        }
        Ok(NbdRequest {
            kind,
            offset: self.offset,
            len: self.len,
            is_durable: self.flags & flags::FUA != 0,
        })
    }

    /// What it asks for, and the flags that it may have for itself.
    fn kind(&self, takes_chunks: bool) -> Option<(RequestKind, u16)> {
        let has = |flag: u16| self.flags & flag != 0;
        Some(match self.kind {
            request_type::READ if takes_chunks => (RequestKind::Read, flags::DF),
            request_type::READ => (RequestKind::Read, 0),
            request_type::WRITE => (RequestKind::Write, 0),
            request_type::FLUSH => (RequestKind::Flush, 0),
            request_type::TRIM => (RequestKind::Trim, 0),
            request_type::CACHE => (RequestKind::Cache, 0),
            request_type::WRITE_ZEROES => {
                let may_be_hole = !has(flags::NO_HOLE);
                let kind = RequestKind::WriteZeroes { may_be_hole };
                (kind, flags::NO_HOLE | flags::FAST_ZERO)
            }
            request_type::BLOCK_STATUS => {
                let is_one = has(flags::REQ_ONE);
                (RequestKind::BlockStatus { is_one }, flags::REQ_ONE)
            }
            _ => return None,
        })
    }

    /// Section "Error values" says which error is whose.
    fn check_range(&self, export: &NbdExport, kind: RequestKind) -> Result<(), NbdError> {
        if self.len == 0 {
            return Err(NbdError::EMPTY);
        }
        let block_bytes = u64::from(export.block_bytes);
        if !self.offset.is_multiple_of(block_bytes) || !self.len.is_multiple_of(block_bytes) {
            return Err(NbdError::UNALIGNED);
        }
        let end = self.offset.checked_add(self.len);
        if end.is_none_or(|end| end > export.size_bytes) {
            return Err(match kind {
                RequestKind::Write | RequestKind::WriteZeroes { .. } => NbdError::NO_SPACE_BEYOND,
                _ => NbdError::BEYOND,
            });
        }
        if kind == RequestKind::Read && self.len > PAYLOAD_BYTES_MAX.into() {
            return Err(NbdError::TOO_LONG);
        }
        Ok(())
    }
}
