//! What NBD clients say and are told: what hosts ask for in its words, and its answers in those of
//! NVMe.

use host::Completion as Cqe;
use wire::nbd::{
    CompactRequest, ExtendedReply, ExtendedRequest, Greeting, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    OptionHeader, OptionReply, SimpleReply, StructuredReply, allocation, command_flags as flags,
    handshake_flags, nbd_error, nbd_magic, nbd_option as option, option_reply, reply_type,
    request_type,
};
use wire::nvme::{DsmRange, Status, admin, cdw12, io};
use zerocopy::{FromBytes, IntoBytes};

use crate::plan::NbdForm;
use crate::work::SimRequest;

/// Bytes of a reply at most: more was never asked for.
const REPLY_BYTES_MAX: u64 = 32 << 20;

/// A request to send.
pub struct NbdAsked {
    kind: u16,
    flags: u16,
    offset: u64,
    len: u64,
}

impl NbdAsked {
    /// Bytes that a simple reply has behind its header.
    pub fn read_len(&self) -> usize {
        match self.kind {
            request_type::READ => self.len as usize,
            _ => 0,
        }
    }
}

/// What a reply says.
pub enum NbdReplied {
    /// It is done, with this data.
    Done(Vec<u8>),
    /// It is not: why, and the same in words where the form has them.
    Failed(u32, String),
}

/// The request that a host's command is, on a volume of blocks of this size.
pub fn asked(request: &SimRequest, block_bytes: u32) -> NbdAsked {
    let sqe = &request.sqe;
    let (dword12, block_bytes) = (sqe.cdw12.get(), u64::from(block_bytes));
    let lba = u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get());
    let blocks = u64::from(dword12 & 0xffff) + 1;
    let of = |kind, flags, lba: u64, blocks: u64| NbdAsked {
        kind,
        flags,
        offset: lba * block_bytes,
        len: blocks * block_bytes,
    };
    let flag = |bit: u32, flag: u16| if dword12 & bit != 0 { flag } else { 0 };
    let fua = flag(cdw12::FUA, flags::FUA);
    match sqe.opcode {
        io::READ => of(request_type::READ, 0, lba, blocks),
        io::WRITE => of(request_type::WRITE, fua, lba, blocks),
        io::FLUSH => of(request_type::FLUSH, 0, 0, 0),
        io::WRITE_ZEROES => {
            let no_hole = flags::NO_HOLE ^ flag(cdw12::DEAC, flags::NO_HOLE);
            of(request_type::WRITE_ZEROES, fua | no_hole, lba, blocks)
        }
        io::DATASET_MANAGEMENT => {
            let range = DsmRange::read_from_bytes(&request.bytes).expect("hosts trim one range");
            let blocks = range.length_blocks.get().into();
            of(request_type::TRIM, 0, range.slba.get(), blocks)
        }
        admin::GET_LBA_STATUS => {
            let blocks = u64::from(sqe.cdw13.get() & 0xffff);
            of(request_type::BLOCK_STATUS, 0, lba, blocks)
        }
        opcode => unreachable!("NBD has no {opcode:02x}h"),
    }
}

/// Appends a request, with its payload.
pub fn put(to: &mut Vec<u8>, form: NbdForm, cookie: u64, asked: &NbdAsked, payload: &[u8]) {
    let is_write = asked.kind == request_type::WRITE;
    match form {
        NbdForm::Extended => {
            let has_payload = if is_write { flags::PAYLOAD_LEN } else { 0 };
            let header = ExtendedRequest {
                magic: nbd_magic::EXTENDED_REQUEST.into(),
                flags: (asked.flags | has_payload).into(),
                kind: asked.kind.into(),
                cookie: cookie.into(),
                offset: asked.offset.into(),
                len: asked.len.into(),
            };
            to.extend(header.as_bytes());
        }
        NbdForm::Simple | NbdForm::Structured => {
            let header = CompactRequest {
                magic: nbd_magic::REQUEST.into(),
                flags: asked.flags.into(),
                kind: asked.kind.into(),
                cookie: cookie.into(),
                offset: asked.offset.into(),
                len: (asked.len as u32).into(),
            };
            to.extend(header.as_bytes());
        }
    }
    if is_write {
        to.extend(payload);
    }
}

/// Appends an option.
fn put_option(to: &mut Vec<u8>, option: u32, data: &[u8]) {
    let header = OptionHeader {
        magic: OPTION_MAGIC.into(),
        option: option.into(),
        len: (data.len() as u32).into(),
    };
    to.extend(header.as_bytes());
    to.extend(data);
}

/// All that a client says in a handshake for the export of a name.
pub fn hello(form: NbdForm, name: &str) -> Vec<u8> {
    let client_flags = handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES;
    let mut all = u32::from(client_flags).to_be_bytes().to_vec();
    let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    match form {
        NbdForm::Simple => {}
        NbdForm::Structured => put_option(&mut all, option::STRUCTURED_REPLY, &[]),
        NbdForm::Extended => put_option(&mut all, option::EXTENDED_HEADERS, &[]),
    }
    if form != NbdForm::Simple {
        let queries = [
            &string(name),
            &1_u32.to_be_bytes()[..],
            &string("base:allocation"),
        ];
        put_option(&mut all, option::SET_META_CONTEXT, &queries.concat());
    }
    put_option(&mut all, option::GO, &[&string(name)[..], &[0, 0]].concat());
    all
}

/// Takes one structure off the front.
fn taken<T: FromBytes>(bytes: &mut &[u8]) -> Option<T> {
    let (one, rest) = T::read_from_prefix(bytes).ok()?;
    *bytes = rest;
    Some(one)
}

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdHandshake {
    /// More is to come.
    UnderWay,
    /// It is over, and was of so many bytes.
    Over(usize),
    /// The server refuses an option because it ends.
    ServerEnds,
}

/// How far a handshake has come by what was received.
pub fn handshake(received: &[u8]) -> Result<NbdHandshake, String> {
    let mut left = received;
    if taken::<Greeting>(&mut left).is_none() {
        return Ok(NbdHandshake::UnderWay);
    }
    while let Some(reply) = taken::<OptionReply>(&mut left) {
        if reply.magic.get() != OPTION_REPLY_MAGIC {
            return Err("a reply to an option has no magic".to_owned());
        }
        let len = reply.len.get() as usize;
        if reply.kind.get() == option_reply::ERR_SHUTDOWN {
            return Ok(NbdHandshake::ServerEnds);
        }
        if reply.kind.get() >= option_reply::ERR_UNSUP {
            let (option, error) = (reply.option.get(), reply.kind.get());
            return Err(format!("option {option} is refused: {error:#x}"));
        }
        let Some(rest) = left.get(len..) else {
            return Ok(NbdHandshake::UnderWay);
        };
        left = rest;
        if (reply.option.get(), reply.kind.get()) == (option::GO, option_reply::ACK) {
            return Ok(NbdHandshake::Over(received.len() - left.len()));
        }
    }
    Ok(NbdHandshake::UnderWay)
}

/// The header of a reply, whatever its form.
struct ReplyHeader {
    is_magic_right: bool,
    kind: u16,
    cookie: u64,
    /// The error of a simple one.
    error: u32,
    /// Bytes that follow.
    len: u64,
}

/// Takes the header of the next reply. `read_len` knows how much data a simple one has.
fn header(
    left: &mut &[u8],
    form: NbdForm,
    read_len: impl Fn(u64) -> Option<usize>,
) -> Result<Option<ReplyHeader>, String> {
    let chunk = |is_magic_right, kind, cookie, len| ReplyHeader {
        is_magic_right,
        kind,
        cookie,
        error: 0,
        len,
    };
    Ok(match form {
        NbdForm::Structured => taken::<StructuredReply>(left).map(|header| {
            let is_right = header.magic.get() == nbd_magic::STRUCTURED_REPLY;
            let (kind, len) = (header.kind.get(), header.len.get().into());
            chunk(is_right, kind, header.cookie.get(), len)
        }),
        NbdForm::Extended => taken::<ExtendedReply>(left).map(|header| {
            let is_right = header.magic.get() == nbd_magic::EXTENDED_REPLY;
            let (kind, len) = (header.kind.get(), header.len.get());
            chunk(is_right, kind, header.cookie.get(), len)
        }),
        NbdForm::Simple => {
            let Some(header) = taken::<SimpleReply>(left) else {
                return Ok(None);
            };
            let (cookie, error) = (header.cookie.get(), header.error.get());
            let Some(len) = read_len(cookie) else {
                return Err(format!("a reply to no request: {cookie}"));
            };
            let is_right = header.magic.get() == nbd_magic::SIMPLE_REPLY;
            let (kind, len) = match error {
                0 => (reply_type::NONE, len as u64),
                _ => (reply_type::ERROR, 0),
            };
            Some(ReplyHeader {
                error,
                ..chunk(is_right, kind, cookie, len)
            })
        }
    })
}

/// The reply that comes next, with its bytes in all and the cookie of its request.
pub fn reply(
    received: &[u8],
    form: NbdForm,
    read_len: impl Fn(u64) -> Option<usize>,
) -> Result<Option<(usize, u64, NbdReplied)>, String> {
    let mut left = received;
    let Some(header) = header(&mut left, form, read_len)? else {
        return Ok(None);
    };
    let (kind, len) = (header.kind, header.len);
    if !header.is_magic_right || len > REPLY_BYTES_MAX {
        return Err(format!("a reply of {len} bytes, or without its magic"));
    }
    let Some((data, rest)) = left.split_at_checked(len as usize) else {
        return Ok(None);
    };
    let behind = |len: usize| data.get(len..).ok_or("a chunk without its fields");
    let replied = match kind {
        reply_type::ERROR if header.error != 0 => NbdReplied::Failed(header.error, String::new()),
        reply_type::ERROR => {
            let text = String::from_utf8_lossy(behind(6)?).into_owned();
            let code = data.first_chunk().ok_or("an error has no number")?;
            NbdReplied::Failed(u32::from_be_bytes(*code), text)
        }
        reply_type::NONE => NbdReplied::Done(data.to_vec()),
        reply_type::OFFSET_DATA | reply_type::BLOCK_STATUS_EXT => {
            NbdReplied::Done(behind(8)?.to_vec())
        }
        reply_type::BLOCK_STATUS => NbdReplied::Done(behind(4)?.to_vec()),
        kind => return Err(format!("a chunk of type {kind}")),
    };
    let len = received.len() - rest.len();
    Ok(Some((len, header.cookie, replied)))
}

/// A reply in the words of NVMe, with its data; `None` where nothing is known of what became of the
/// request.
pub fn answer(asked: &NbdAsked, replied: NbdReplied) -> Option<(Cqe, Vec<u8>)> {
    let (status, data) = match replied {
        NbdReplied::Done(data) => (Status::SUCCESS, data),
        NbdReplied::Failed(nbd_error::ESHUTDOWN, _) => return None,
        NbdReplied::Failed(code, text) => (status_of(asked, code, &text), Vec::new()),
    };
    let cqe = Cqe {
        status,
        result: 0,
        sqhd: 0,
        data_len: data.len() as u32,
    };
    Some((cqe, data))
}

/// What NVMe would call an error. Clients without words are asked for nothing that has two reasons.
fn status_of(asked: &NbdAsked, code: u32, text: &str) -> Status {
    let reads = matches!(asked.kind, request_type::READ | request_type::BLOCK_STATUS);
    match code {
        nbd_error::EPERM if text.contains("reserved") => Status::RESERVATION_CONFLICT,
        nbd_error::EPERM => Status::WRITE_PROTECTED,
        nbd_error::EIO if reads => Status::UNRECOVERED_READ,
        nbd_error::EIO => Status::WRITE_FAULT,
        nbd_error::ENOMEM => Status::COMMAND_INTERRUPTED,
        nbd_error::ENOSPC if text.contains("no space") => Status::CAPACITY_EXCEEDED,
        nbd_error::EINVAL | nbd_error::ENOSPC => Status::LBA_OUT_OF_RANGE,
        // Nothing explains it.
        _ => Status::INTERNAL_ERROR,
    }
}

/// The blocks without data in a block status: the parts of a range that begins with block `first`.
pub fn holes(data: &[u8], form: NbdForm, first: u64, block_bytes: u32) -> Option<Vec<u64>> {
    let field_bytes = if form == NbdForm::Extended { 8 } else { 4 };
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (mut holes, mut at) = (Vec::new(), first);
    for part in data.chunks(2 * field_bytes) {
        let (len, status) = part.split_at_checked(field_bytes)?;
        let (len, status) = (number(len), number(status));
        let blocks = len / u64::from(block_bytes);
        match (len % u64::from(block_bytes), status as u32) {
            (0, 0) => {}
            (0, status) if status == allocation::HOLE | allocation::ZERO => {
                holes.extend(at..at + blocks);
            }
            _ => return None,
        }
        at += blocks;
    }
    Some(holes)
}
