//! The other side, which writes and reads bytes as the protocol has them.

use std::collections::VecDeque;
use std::convert::Infallible;

use machine::{Machine as _, Tag};
use nbd::{
    BITMAPS_LISTED_MAX, BitmapsAsked, BitmapsFound, DirtyBitmap, FatalError, NbdAnswer, NbdContext,
    NbdExport, NbdOp, NbdServer, NbdSettings, NbdTls,
};
use testkit::End;
use wire::nbd::{
    CompactRequest, ExtendedReply, ExtendedRequest, OPTION_MAGIC, OptionHeader, OptionReply,
    REPLY_DONE, SimpleReply, StructuredReply, command_flags as flags, nbd_magic,
    nbd_option as option, option_reply as reply, reply_type, request_type,
};
use zerocopy::{FromBytes, IntoBytes};

/// The name of the export.
pub const DISK: &str = "disk";

/// The form of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Simple,
    Structured,
    Extended,
}

/// A reply to an option.
#[derive(Debug)]
pub struct OptionSent {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// A chunk of a reply.
#[derive(Debug, PartialEq, Eq)]
pub struct ChunkSent {
    kind: u16,
    cookie: u64,
    data: Vec<u8>,
}

impl ChunkSent {
    pub fn new(kind: u16, cookie: u64, data: Vec<u8>) -> ChunkSent {
        ChunkSent { kind, cookie, data }
    }
}

/// A client and the server's end.
pub struct Peer {
    pub end: End<NbdServer>,
    /// Bytes that arrive at a time.
    pub max: usize,
    form: Form,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

pub fn export() -> NbdExport {
    NbdExport {
        name: DISK.to_owned(),
        description: "of tests".to_owned(),
        size_bytes: 1 << 20,
        block_bytes: 512,
        is_read_only: false,
        is_fast_to_zero: true,
    }
}

/// The data of NBD_OPT_GO.
pub fn go_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// The data of NBD_OPT_SET_META_CONTEXT.
pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

impl Peer {
    pub fn of(machine: NbdServer) -> Peer {
        Peer {
            end: End::new(machine),
            max: usize::MAX,
            form: Form::Simple,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    /// Connected to a server that takes 4 requests at a time and 7 ns for the handshake.
    pub fn greeted(now: u64) -> Peer {
        Peer::greeted_among(4, now)
    }

    /// The same, by a server that speaks TLS so; the client flags are sent.
    pub fn with_tls(tls: NbdTls) -> Peer {
        let settings = NbdSettings {
            in_flight_max: 4,
            handshake_timeout: 7,
            tls,
        };
        Peer::of(NbdServer::new(settings, 0)).with_flags(3)
    }

    fn greeted_among(in_flight_max: u16, now: u64) -> Peer {
        let settings = NbdSettings {
            in_flight_max,
            handshake_timeout: 7,
            tls: NbdTls::Refused,
        };
        Peer::of(NbdServer::new(settings, now))
    }

    pub fn after_flags(flags: u16) -> Peer {
        Peer::greeted(0).with_flags(flags)
    }

    pub fn with_flags(self, flags: u16) -> Peer {
        let mut peer = self;
        assert_eq!(peer.sent().len(), 18);
        peer.send(&u32::from(flags).to_be_bytes());
        assert_eq!(peer.ops(), []);
        peer
    }

    pub fn serving(form: Form) -> Peer {
        Peer::serving_sized(form, 1 << 20)
    }

    pub fn serving_sized(form: Form, size_bytes: u64) -> Peer {
        let mut peer = Peer::after_flags(3);
        peer.agree(form);
        peer.go(size_bytes);
        peer
    }

    /// Serving, with the context of an export of this name.
    pub fn with_context(form: Form, name: &str) -> Peer {
        Peer::with_context_among(4, form, name)
    }

    /// The same, by a server that takes so many requests at a time.
    pub fn with_context_among(in_flight_max: u16, form: Form, name: &str) -> Peer {
        let mut peer = Peer::greeted_among(in_flight_max, 0).with_flags(3);
        peer.agree(form);
        let data = context_data(name, &["base:allocation"]);
        peer.option(option::SET_META_CONTEXT, &data);
        assert_eq!(peer.ops(), [NbdOp::Find]);
        assert_eq!(peer.find(true), Ok(false));
        let _ = peer.sent();
        peer.go(1 << 20);
        peer
    }

    pub fn agree(&mut self, form: Form) {
        let kind = match form {
            Form::Simple => return,
            Form::Structured => option::STRUCTURED_REPLY,
            Form::Extended => option::EXTENDED_HEADERS,
        };
        self.option(kind, b"");
        assert_eq!(self.ops(), []);
        assert_eq!(self.reply().kind, reply::ACK);
        self.form = form;
    }

    pub fn go(&mut self, size_bytes: u64) {
        self.option(option::GO, &go_data(DISK, &[]));
        assert_eq!(self.ops(), [NbdOp::Find]);
        let export = NbdExport {
            size_bytes,
            ..export()
        };
        assert_eq!(self.end.machine.found(Some(export)), Ok(true));
        let _ = self.sent();
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.to_server.extend(bytes);
    }

    pub fn option_header(&mut self, kind: u32, len: u32) {
        let header = OptionHeader {
            magic: OPTION_MAGIC.into(),
            option: kind.into(),
            len: len.into(),
        };
        self.send(header.as_bytes());
    }

    pub fn option(&mut self, kind: u32, data: &[u8]) {
        self.option_header(kind, data.len() as u32);
        self.send(data);
    }

    pub fn request(&mut self, kind: u16, flags: u16, cookie: u64, (offset, len): (u64, u64)) {
        match self.form {
            Form::Extended => self.send(
                ExtendedRequest {
                    magic: nbd_magic::EXTENDED_REQUEST.into(),
                    flags: flags.into(),
                    kind: kind.into(),
                    cookie: cookie.into(),
                    offset: offset.into(),
                    len: len.into(),
                }
                .as_bytes(),
            ),
            _ => self.send(
                CompactRequest {
                    magic: nbd_magic::REQUEST.into(),
                    flags: flags.into(),
                    kind: kind.into(),
                    cookie: cookie.into(),
                    offset: offset.into(),
                    len: (len as u32).into(),
                }
                .as_bytes(),
            ),
        }
    }

    pub fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        self.write_with(0, cookie, offset, data);
    }

    pub fn write_with(&mut self, flags: u16, cookie: u64, offset: u64, data: &[u8]) {
        let flags = match self.form {
            Form::Extended => flags | flags::PAYLOAD_LEN,
            _ => flags,
        };
        let extent = (offset, data.len() as u64);
        self.request(request_type::WRITE, flags, cookie, extent);
        self.send(data);
    }

    /// Whether an export of the name that was asked for is there.
    pub fn find(&mut self, is_there: bool) -> Result<bool, FatalError> {
        self.end.machine.found(is_there.then(export))
    }

    /// What the driver is to do; none while it waits for the driver, or for replies to be sent.
    pub fn ops(&mut self) -> Vec<NbdOp> {
        let mut ops = Vec::new();
        loop {
            while let Some(op) = self.end.next_op() {
                ops.push(op);
                if matches!(op, NbdOp::List | NbdOp::Find) {
                    return ops;
                }
            }
            if self.end.receive(&mut self.to_server, self.max) == 0 {
                return ops;
            }
        }
    }

    pub fn stage_max(&self) -> u32 {
        self.end.machine.recv_plan().stage_max
    }

    pub fn is_finished(&self) -> bool {
        self.end.machine.is_finished()
    }

    /// All that the client has not read.
    pub fn sent(&mut self) -> Vec<u8> {
        self.end.transmit_some(&mut self.to_client, usize::MAX);
        self.to_client.drain(..).collect()
    }

    fn take<T: FromBytes>(&mut self) -> T {
        let bytes = self.bytes(size_of::<T>());
        T::read_from_bytes(&bytes).expect("its size")
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        if self.to_client.len() < len {
            self.end.transmit(&mut self.to_client, usize::MAX);
        }
        assert!(self.to_client.len() >= len, "nothing is sent");
        self.to_client.drain(..len).collect()
    }

    pub fn reply(&mut self) -> OptionSent {
        let header: OptionReply = self.take();
        assert_eq!(header.magic.get(), 0x0003_e889_0455_65a9);
        OptionSent {
            option: header.option.get(),
            kind: header.kind.get(),
            data: self.bytes(header.len.get() as usize),
        }
    }

    /// A simple reply: error, cookie and all that follows.
    pub fn simple(&mut self) -> (u32, u64, Vec<u8>) {
        let header: SimpleReply = self.take();
        assert_eq!(header.magic.get(), nbd_magic::SIMPLE_REPLY);
        let is_next = self.to_client.starts_with_magic();
        let data = match is_next {
            true => Vec::new(),
            false => self.to_client.drain(..).collect(),
        };
        (header.error.get(), header.cookie.get(), data)
    }

    pub fn chunk(&mut self) -> ChunkSent {
        let (is_last, chunk) = self.chunk_of_several();
        assert!(is_last);
        chunk
    }

    /// A chunk, and whether it is the last of its reply.
    pub fn chunk_of_several(&mut self) -> (bool, ChunkSent) {
        let (flags, kind, cookie, len) = match self.form {
            Form::Extended => {
                let header: ExtendedReply = self.take();
                assert_eq!(header.magic.get(), nbd_magic::EXTENDED_REPLY);
                (header.flags, header.kind, header.cookie, header.len.get())
            }
            _ => {
                let header: StructuredReply = self.take();
                assert_eq!(header.magic.get(), nbd_magic::STRUCTURED_REPLY);
                let len = header.len.get();
                (header.flags, header.kind, header.cookie, len.into())
            }
        };
        let data = self.bytes(len as usize);
        let chunk = ChunkSent::new(kind.get(), cookie.get(), data);
        (flags.get() == REPLY_DONE, chunk)
    }

    /// An error and the cookie of its request.
    pub fn error(&mut self) -> (u32, u64) {
        if self.form == Form::Simple {
            let (error, cookie, data) = self.simple();
            assert_eq!(data, []);
            return (error, cookie);
        }
        let ChunkSent { kind, cookie, data } = self.chunk();
        assert_eq!(kind, reply_type::ERROR);
        let (error, rest) = data.split_first_chunk().expect("an error");
        let (len, text) = rest.split_first_chunk().expect("a length");
        assert_eq!(usize::from(u16::from_be_bytes(*len)), text.len());
        assert!(!text.is_empty());
        (u32::from_be_bytes(*error), cookie)
    }

    /// Answers a block status with the parts of each context.
    pub fn tell_status(&mut self, tag: Tag, parts: impl Fn(&NbdContext) -> Vec<(u64, bool)>) {
        let reply = self.end.machine.status_reply(tag);
        let data = reply.chunks(4096, |context, _| Ok::<_, Infallible>(parts(context)));
        let data = data.unwrap_or_else(|never| match never {});
        let data_len = data.len() as u32;
        self.end.set_memory(tag, data);
        self.end.machine.complete(tag, NbdAnswer::Done { data_len });
    }

    /// These dirty bitmaps there are, if that is asked; in order.
    pub fn find_bitmaps(&mut self, names: &[&str]) {
        let Some(asked) = self.end.machine.bitmaps_asked() else {
            return;
        };
        let names = names.iter().filter(|name| asked.has(name));
        let found = match asked {
            BitmapsAsked::List { after, .. } => {
                let behind = names.filter(|name| Some(**name) > after.as_deref());
                let behind = behind.map(|name| (*name).to_owned());
                BitmapsFound::List(behind.take(BITMAPS_LISTED_MAX).collect())
            }
            BitmapsAsked::Set(_) => {
                let found = names.map(|name| DirtyBitmap {
                    name: (*name).to_owned(),
                    identity: [7; 16],
                });
                BitmapsFound::Set(found.collect())
            }
        };
        self.end.machine.bitmaps(found);
    }

    /// Whether a reply is there to be read.
    pub fn has_reply(&self) -> bool {
        self.end.machine.has_transmit() || !self.to_client.is_empty()
    }

    /// The cookie of a reply, and whether the request succeeded.
    pub fn outcome(&mut self) -> (u64, bool) {
        let ChunkSent { kind, cookie, .. } = self.chunk();
        (cookie, kind != reply_type::ERROR)
    }
}

trait StartsWithMagic {
    fn starts_with_magic(&self) -> bool;
}

impl StartsWithMagic for VecDeque<u8> {
    /// Whether the next reply begins.
    fn starts_with_magic(&self) -> bool {
        let magic = nbd_magic::SIMPLE_REPLY.to_be_bytes();
        self.iter().take(4).eq(magic.iter())
    }
}
