//! A client on a blocking socket, in as few lines as it takes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use wire::nbd::{
    CompactRequest, ExtendedReply, ExtendedRequest, OPTION_MAGIC, OptionHeader, OptionReply,
    REPLY_DONE, SimpleReply, StructuredReply, command_flags as flags, nbd_magic,
    nbd_option as option, option_reply as reply, reply_type, request_type as request,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::running::PATIENCE;

/// The form of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Simple,
    Structured,
    Extended,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(Vec<u8>),
    Failed(u32),
    /// The connection has ended.
    Gone,
}

/// A client of one export.
pub struct Client {
    pub stream: TcpStream,
    form: Form,
    cookie: u64,
    /// Bytes of the reads under way.
    read_len: u64,
    /// Data of the chunks of a reply before the last.
    earlier: Vec<Vec<u8>>,
}

impl Client {
    /// A connection whose client flags are sent.
    pub fn greeted(address: SocketAddr, form: Form) -> Client {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        let mut client = Client {
            stream,
            form: Form::Simple,
            cookie: 0,
            read_len: 0,
            earlier: Vec::new(),
        };
        let greeting = client.bytes(18).expect("a greeting");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        client.put(&3u32.to_be_bytes());
        let kind = match form {
            Form::Simple => return client,
            Form::Structured => option::STRUCTURED_REPLY,
            Form::Extended => option::EXTENDED_HEADERS,
        };
        assert_eq!(client.option(kind, b"").0, reply::ACK);
        client.form = form;
        client
    }

    /// A connection to an export.
    pub fn open(address: SocketAddr, form: Form, name: &str) -> Client {
        let mut client = Client::greeted(address, form);
        assert_eq!(client.go(name), reply::ACK);
        client
    }

    /// The same with `base:allocation`.
    pub fn with_context(address: SocketAddr, form: Form, name: &str) -> Client {
        let mut client = Client::greeted(address, form);
        let contexts = client.contexts(option::SET_META_CONTEXT, name, &["base:allocation"]);
        assert_eq!(contexts, ["base:allocation"]);
        assert_eq!(client.go(name), reply::ACK);
        client
    }

    /// Lists or sets metadata contexts: those that are told.
    pub fn contexts(&mut self, kind: u32, name: &str, queries: &[&str]) -> Vec<String> {
        let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
        let mut data = string(name);
        data.extend((queries.len() as u32).to_be_bytes());
        data.extend(queries.iter().flat_map(|query| string(query)));
        let (last, told) = self.option(kind, &data);
        assert_eq!(last, reply::ACK);
        let names = told.iter();
        names
            .map(|data| String::from_utf8_lossy(&data[4..]).into_owned())
            .collect()
    }

    /// Asks for an export: the last reply.
    pub fn go(&mut self, name: &str) -> u32 {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend([0, 0]);
        self.option(option::GO, &data).0
    }

    /// The names of the exports.
    pub fn list(&mut self) -> Vec<String> {
        let (last, told) = self.option(option::LIST, b"");
        assert_eq!(last, reply::ACK);
        let names = told
            .iter()
            .map(|data| String::from_utf8_lossy(&data[4..]).into_owned());
        names.collect()
    }

    /// Sends an option: the last reply, and the data of those before it.
    pub fn option(&mut self, kind: u32, data: &[u8]) -> (u32, Vec<Vec<u8>>) {
        let header = OptionHeader {
            magic: OPTION_MAGIC.into(),
            option: kind.into(),
            len: (data.len() as u32).into(),
        };
        self.put(header.as_bytes());
        self.put(data);
        let mut told = Vec::new();
        loop {
            let header = self.bytes(size_of::<OptionReply>()).expect("a reply");
            let header = OptionReply::read_from_bytes(&header).expect("its size");
            assert_eq!(header.option.get(), kind);
            let data = self.bytes(header.len.get() as usize).expect("its data");
            match header.kind.get() {
                reply::SERVER | reply::INFO | reply::META_CONTEXT => told.push(data),
                last => return (last, told),
            }
        }
    }

    pub fn put(&mut self, bytes: &[u8]) {
        // A server that has ended the connection is seen when it is read.
        let _ = self.stream.write_all(bytes);
    }

    fn bytes(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Sends a request with its payload.
    pub fn send(&mut self, kind: u16, flags: u16, offset: u64, payload: &[u8]) {
        let flags = match (self.form, payload.is_empty()) {
            (Form::Extended, false) => flags | flags::PAYLOAD_LEN,
            _ => flags,
        };
        self.send_header(kind, flags, offset, payload.len() as u64);
        self.put(payload);
    }

    fn send_header(&mut self, kind: u16, flags: u16, offset: u64, len: u64) {
        let cookie = self.cookie;
        self.cookie += 1;
        match self.form {
            Form::Extended => self.put(
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
            _ => self.put(
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

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Outcome {
        self.send(request::WRITE, flags, offset, data);
        self.receive(self.cookie - 1)
    }

    pub fn request(&mut self, kind: u16, flags: u16, offset: u64, len: u64) -> Outcome {
        self.read_len = if kind == request::READ { len } else { 0 };
        self.send_header(kind, flags, offset, len);
        let outcome = self.receive(self.cookie - 1);
        self.read_len = 0;
        match outcome {
            // The offset stands before the data.
            Outcome::Done(data) if kind == request::READ && self.form != Form::Simple => {
                assert_eq!(data[..8], offset.to_be_bytes());
                Outcome::Done(data[8..].to_vec())
            }
            outcome => outcome,
        }
    }

    /// Lengths and states of the parts of a range.
    pub fn block_status(&mut self, offset: u64, len: u64, flags: u16) -> Vec<(u64, u64)> {
        let mut all = self.block_statuses(offset, len, flags);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The same of each context.
    pub fn block_statuses(&mut self, offset: u64, len: u64, flags: u16) -> Vec<Vec<(u64, u64)>> {
        self.earlier.clear();
        let Outcome::Done(last) = self.request(request::BLOCK_STATUS, flags, offset, len) else {
            panic!("no block status");
        };
        let all = std::mem::take(&mut self.earlier).into_iter().chain([last]);
        all.map(|data| self.parts(&data)).collect()
    }

    fn parts(&self, data: &[u8]) -> Vec<(u64, u64)> {
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (head, part) = if self.form == Form::Extended {
            (8, 16)
        } else {
            (4, 8)
        };
        let parts = data[head..].chunks(part);
        let halves = parts.map(|both| both.split_at(part / 2));
        halves
            .map(|(len, state)| (number(len), number(state)))
            .collect()
    }

    /// The reply to the request of a cookie, which is the next.
    pub fn receive(&mut self, cookie: u64) -> Outcome {
        let received = match self.form {
            Form::Simple => self.simple(),
            _ => self.chunk(),
        };
        let Some((own, outcome)) = received else {
            return Outcome::Gone;
        };
        assert_eq!(own, cookie);
        outcome
    }

    fn simple(&mut self) -> Option<(u64, Outcome)> {
        let header = self.bytes(size_of::<SimpleReply>())?;
        let header = SimpleReply::read_from_bytes(&header).expect("its size");
        assert_eq!(header.magic.get(), nbd_magic::SIMPLE_REPLY);
        let outcome = match header.error.get() {
            0 => Outcome::Done(self.bytes(self.read_len as usize)?),
            error => Outcome::Failed(error),
        };
        Some((header.cookie.get(), outcome))
    }

    fn chunk(&mut self) -> Option<(u64, Outcome)> {
        let (flags, kind, cookie, len) = match self.form {
            Form::Extended => {
                let header = self.bytes(size_of::<ExtendedReply>())?;
                let header = ExtendedReply::read_from_bytes(&header).expect("its size");
                assert_eq!(header.magic.get(), nbd_magic::EXTENDED_REPLY);
                (header.flags, header.kind, header.cookie, header.len.get())
            }
            _ => {
                let header = self.bytes(size_of::<StructuredReply>())?;
                let header = StructuredReply::read_from_bytes(&header).expect("its size");
                assert_eq!(header.magic.get(), nbd_magic::STRUCTURED_REPLY);
                let len = header.len.get().into();
                (header.flags, header.kind, header.cookie, len)
            }
        };
        let data = self.bytes(len as usize)?;
        if flags.get() & REPLY_DONE == 0 {
            self.earlier.push(data);
            return self.chunk();
        }
        let outcome = match kind.get() {
            reply_type::ERROR => {
                let error = data.first_chunk().expect("an error");
                Outcome::Failed(u32::from_be_bytes(*error))
            }
            _ => Outcome::Done(data),
        };
        Some((cookie.get(), outcome))
    }
}
