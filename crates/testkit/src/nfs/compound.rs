//! A client in as few lines as it takes: COMPOUNDs are put together operation
//! by operation, answers are taken apart result by result.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use wire::nfs4::*;
use wire::rpc::{
    AUTH_NONE, AUTH_SYS, RPC_VERSION, authsys_parms, call_body, msg_type, opaque_auth,
};
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader, pad};

use nfs_opnum4 as op;
use nfsstat4::NFS4_OK;

/// One connection: whole records go in and come out.
pub trait Transport {
    /// Sends a record.
    fn send(&mut self, record: &[u8]);
    /// The next record; `None` if the connection has ended.
    fn receive(&mut self) -> Option<Vec<u8>>;
    /// The next record if there is one now.
    fn poll(&mut self) -> Option<Vec<u8>>;
}

/// What operations came to in all cases together: minor version, operation,
/// status.
pub type SeenResults = Rc<RefCell<BTreeSet<(u32, u32, u32)>>>;

/// Where connections are made, and what is known of all.
#[derive(Clone)]
pub struct ServerUnderTest {
    pub connect: Rc<dyn Fn() -> Box<dyn Transport>>,
    /// Lets time pass; `None` where it passes by itself.
    pub advance: Option<Rc<dyn Fn(u64)>>,
    pub seen: SeenResults,
    /// The names on the way to a folder that may be written.
    pub base: Vec<String>,
}

/// The special state ids (RFC 8881, section 8.2.3).
pub const ANONYMOUS: stateid4 = stateid4 {
    seqid: 0,
    other: [0; 12],
};
pub const BYPASS: stateid4 = stateid4 {
    seqid: u32::MAX,
    other: [0xff; 12],
};
pub const CURRENT: stateid4 = stateid4 {
    seqid: 1,
    other: [0; 12],
};

/// Operations of a COMPOUND, as they go on the wire.
#[derive(Clone, Default)]
pub struct Ops {
    pub bytes: Vec<u8>,
    pub count: u32,
}

pub fn ops() -> Ops {
    Ops::default()
}

fn name(name: &str) -> Opaque<'_, { COMPONENT_BYTES_MAX as usize }> {
    Opaque(name.as_bytes())
}

/// Attributes by their numbers in ascending order, with their values.
pub struct Attributes {
    words: Vec<u32>,
    values: Vec<u8>,
}

impl Attributes {
    pub fn none() -> Attributes {
        Attributes {
            words: Vec::new(),
            values: Vec::new(),
        }
    }

    pub fn of(number: u32, value: &impl Encode) -> Attributes {
        Attributes::none().and(number, value)
    }

    pub fn and(mut self, number: u32, value: &impl Encode) -> Attributes {
        self.words = with_bit(self.words, number);
        value.encode(&mut self.values);
        self
    }

    /// With a value as it is on the wire.
    pub fn and_raw(mut self, number: u32, value: &[u8]) -> Attributes {
        self.words = with_bit(self.words, number);
        self.values.extend_from_slice(value);
        self
    }

    pub fn mode(mode: u32) -> Attributes {
        Attributes::of(FATTR4_MODE, &mode)
    }

    pub fn size(size: u64) -> Attributes {
        Attributes::of(FATTR4_SIZE, &size)
    }

    pub fn fattr(&self) -> fattr4<'_> {
        fattr4 {
            attrmask: List::Of(&self.words),
            attr_vals: Opaque(&self.values),
        }
    }
}

fn with_bit(mut words: Vec<u32>, number: u32) -> Vec<u32> {
    let word = number as usize / 32;
    if words.len() <= word {
        words.resize(word + 1, 0);
    }
    words[word] |= 1 << (number % 32);
    words
}

/// The bitmap with these numbers.
pub fn bits(numbers: &[u32]) -> Vec<u32> {
    numbers
        .iter()
        .fold(Vec::new(), |words, n| with_bit(words, *n))
}

impl Ops {
    pub fn op(mut self, op: nfs_argop4<'_>) -> Ops {
        op.encode(&mut self.bytes);
        self.count += 1;
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Ops {
        self.bytes.extend(bytes);
        self.count += 1;
        self
    }

    pub fn then(mut self, other: Ops) -> Ops {
        self.bytes.extend(other.bytes);
        self.count += other.count;
        self
    }

    pub fn fh(self, handle: &[u8]) -> Ops {
        self.op(nfs_argop4::OP_PUTFH(PUTFH4args {
            object: Opaque(handle),
        }))
    }

    pub fn root(self) -> Ops {
        self.op(nfs_argop4::OP_PUTROOTFH)
    }

    pub fn lookup(self, to: &str) -> Ops {
        self.op(nfs_argop4::OP_LOOKUP(LOOKUP4args { objname: name(to) }))
    }

    pub fn lookupp(self) -> Ops {
        self.op(nfs_argop4::OP_LOOKUPP)
    }

    pub fn getfh(self) -> Ops {
        self.op(nfs_argop4::OP_GETFH)
    }

    pub fn save(self) -> Ops {
        self.op(nfs_argop4::OP_SAVEFH)
    }

    pub fn restore(self) -> Ops {
        self.op(nfs_argop4::OP_RESTOREFH)
    }

    pub fn access(self, access: u32) -> Ops {
        self.op(nfs_argop4::OP_ACCESS(ACCESS4args { access }))
    }

    pub fn getattr(self, numbers: &[u32]) -> Ops {
        self.op(nfs_argop4::OP_GETATTR(GETATTR4args {
            attr_request: List::Of(&bits(numbers)),
        }))
    }

    pub fn setattr(self, stateid: stateid4, attributes: &Attributes) -> Ops {
        self.op(nfs_argop4::OP_SETATTR(SETATTR4args {
            stateid,
            obj_attributes: attributes.fattr(),
        }))
    }

    pub fn verify(self, attributes: &Attributes) -> Ops {
        self.op(nfs_argop4::OP_VERIFY(VERIFY4args {
            obj_attributes: attributes.fattr(),
        }))
    }

    pub fn nverify(self, attributes: &Attributes) -> Ops {
        self.op(nfs_argop4::OP_NVERIFY(VERIFY4args {
            obj_attributes: attributes.fattr(),
        }))
    }

    pub fn create(self, kind: createtype4<'_>, to: &str, attributes: &Attributes) -> Ops {
        self.op(nfs_argop4::OP_CREATE(CREATE4args {
            objtype: kind,
            objname: name(to),
            createattrs: attributes.fattr(),
        }))
    }

    pub fn mkdir(self, to: &str) -> Ops {
        self.create(createtype4::NF4DIR, to, &Attributes::mode(0o755))
    }

    pub fn link(self, to: &str) -> Ops {
        self.op(nfs_argop4::OP_LINK(LINK4args { newname: name(to) }))
    }

    pub fn remove(self, target: &str) -> Ops {
        self.op(nfs_argop4::OP_REMOVE(REMOVE4args {
            target: name(target),
        }))
    }

    pub fn rename(self, from: &str, to: &str) -> Ops {
        self.op(nfs_argop4::OP_RENAME(RENAME4args {
            oldname: name(from),
            newname: name(to),
        }))
    }

    pub fn readdir(self, cookie: u64, cookieverf: [u8; 8], maxcount: u32, asked: &[u32]) -> Ops {
        self.op(nfs_argop4::OP_READDIR(READDIR4args {
            cookie,
            cookieverf,
            dircount: maxcount,
            maxcount,
            attr_request: List::Of(&bits(asked)),
        }))
    }

    pub fn readlink(self) -> Ops {
        self.op(nfs_argop4::OP_READLINK)
    }

    pub fn read(self, stateid: stateid4, offset: u64, count: u32) -> Ops {
        self.op(nfs_argop4::OP_READ(READ4args {
            stateid,
            offset,
            count,
        }))
    }

    pub fn write(self, stateid: stateid4, offset: u64, stable: stable_how4, data: &[u8]) -> Ops {
        let args = WRITE4args {
            stateid,
            offset,
            stable,
            data: Payload {
                len: data.len() as u32,
            },
        };
        let mut ops = self.op(nfs_argop4::OP_WRITE(args));
        ops.bytes.extend(data);
        ops.bytes.extend(&[0; 3][..pad(data.len())]);
        ops
    }

    pub fn commit(self, offset: u64, count: u32) -> Ops {
        self.op(nfs_argop4::OP_COMMIT(COMMIT4args { offset, count }))
    }

    pub fn open(self, args: OPEN4args<'_>) -> Ops {
        self.op(nfs_argop4::OP_OPEN(args))
    }

    pub fn close(self, seqid: u32, stateid: stateid4) -> Ops {
        self.op(nfs_argop4::OP_CLOSE(CLOSE4args {
            seqid,
            open_stateid: stateid,
        }))
    }

    pub fn secinfo(self, of: &str) -> Ops {
        self.op(nfs_argop4::OP_SECINFO(SECINFO4args { name: name(of) }))
    }

    pub fn getxattr(self, key: &str) -> Ops {
        self.op(nfs_argop4::OP_GETXATTR(XATTR4args { name: name(key) }))
    }

    pub fn removexattr(self, key: &str) -> Ops {
        self.op(nfs_argop4::OP_REMOVEXATTR(XATTR4args { name: name(key) }))
    }

    pub fn setxattr(self, how: setxattr_option4, key: &str, value: &[u8]) -> Ops {
        self.op(nfs_argop4::OP_SETXATTR(SETXATTR4args {
            sxa_option: how,
            sxa_key: name(key),
            sxa_value: Opaque(value),
        }))
    }

    pub fn listxattrs(self, cookie: u64, maxcount: u32) -> Ops {
        self.op(nfs_argop4::OP_LISTXATTRS(LISTXATTRS4args {
            lxa_cookie: cookie,
            lxa_maxcount: maxcount,
        }))
    }

    pub fn free_stateid(self, stateid: stateid4) -> Ops {
        self.op(nfs_argop4::OP_FREE_STATEID(FREE_STATEID4args {
            fsa_stateid: stateid,
        }))
    }

    pub fn test_stateids(self, stateids: &[stateid4]) -> Ops {
        self.op(nfs_argop4::OP_TEST_STATEID(TEST_STATEID4args {
            ts_stateids: List::Of(stateids),
        }))
    }
}

/// One result.
#[derive(Clone, Debug)]
pub struct Result4 {
    pub op: nfs_opnum4,
    pub status: nfsstat4,
    /// What follows the status.
    pub body: Vec<u8>,
    /// The data of READ and READ_PLUS; of the latter with where it stands.
    pub data: Vec<(u64, Vec<u8>)>,
}

/// What a COMPOUND came to.
#[derive(Clone, Debug)]
pub struct CompoundAnswer {
    pub status: nfsstat4,
    pub tag: Vec<u8>,
    pub results: Vec<Result4>,
}

impl CompoundAnswer {
    /// From what follows the RPC header.
    pub fn read(bytes: &[u8]) -> CompoundAnswer {
        let mut from = Reader::new(bytes);
        let head = compound_res_head::decode(&mut from).expect("a COMPOUND's head");
        let results = (0..head.results).map(|_| result(&mut from)).collect();
        assert!(from.rest().is_empty(), "{} bytes behind", from.rest().len());
        let answer = CompoundAnswer {
            status: head.status,
            tag: head.tag.0.to_vec(),
            results,
        };
        let last = answer.results.last().map(|result| result.status);
        assert!(last.is_none() || last == Some(answer.status), "{answer:?}");
        let before = answer.results.iter().rev().skip(1);
        assert!(before.clone().all(|r| r.status == NFS4_OK), "{answer:?}");
        answer
    }

    /// All went well.
    #[track_caller]
    pub fn ok(self) -> CompoundAnswer {
        self.is(NFS4_OK)
    }

    /// It ended with `status`.
    #[track_caller]
    pub fn is(self, status: nfsstat4) -> CompoundAnswer {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// The body of the last result of this operation.
    #[track_caller]
    pub fn get<T: for<'a> Decode<'a>>(&self, op: nfs_opnum4) -> T {
        let mut from = Reader::new(self.body(op));
        T::decode(&mut from).expect("a body")
    }

    #[track_caller]
    pub fn body(&self, op: nfs_opnum4) -> &[u8] {
        &self.of(op).body
    }

    #[track_caller]
    pub fn of(&self, op: nfs_opnum4) -> &Result4 {
        let found = self.results.iter().rfind(|result| result.op == op);
        found.unwrap_or_else(|| panic!("no {op:?} in {self:?}"))
    }

    /// What the last GETFH answered.
    #[track_caller]
    pub fn handle(&self) -> Vec<u8> {
        let body = self.body(op::OP_GETFH);
        nfs_fh4::decode(&mut Reader::new(body))
            .expect("a handle")
            .0
            .to_vec()
    }

    /// The attributes that the last GETATTR answered: which, and their values.
    #[track_caller]
    pub fn attributes(&self) -> (Vec<u32>, Vec<u8>) {
        let fattr = fattr4::decode(&mut Reader::new(self.body(op::OP_GETATTR))).expect("fattr4");
        (numbers(&fattr), fattr.attr_vals.0.to_vec())
    }

    /// The value of one attribute that was the only one asked for.
    #[track_caller]
    pub fn attribute<T: for<'a> Decode<'a>>(&self) -> T {
        let (_, values) = self.attributes();
        let mut from = Reader::new(&values);
        let value = T::decode(&mut from).expect("a value");
        assert!(from.rest().is_empty(), "one attribute");
        value
    }

    /// The data that the last READ answered.
    #[track_caller]
    pub fn data(&self) -> (Vec<u8>, bool) {
        let read = self.of(op::OP_READ);
        let is_eof = bool::decode(&mut Reader::new(&read.body)).expect("eof");
        (read.data[0].1.clone(), is_eof)
    }
}

/// The numbers in a bitmap.
pub fn numbers(fattr: &fattr4<'_>) -> Vec<u32> {
    let words: Vec<u32> = fattr.attrmask.iter().collect();
    (0..words.len() as u32 * 32)
        .filter(|n| words[*n as usize / 32] >> (n % 32) & 1 == 1)
        .collect()
}

fn result(from: &mut Reader<'_>) -> Result4 {
    let rest = from.rest();
    let begin = from.position();
    let decoded = nfs_resop4::decode(from).expect("a result");
    let mut data = Vec::new();
    match decoded {
        nfs_resop4::OP_READ(READ4res::NFS4_OK(resok)) => {
            let bytes = from.opaque(resok.data.len as usize).expect("data");
            data.push((0, bytes.to_vec()));
        }
        nfs_resop4::OP_READ_PLUS(READ_PLUS4res::NFS4_OK(head)) => {
            for _ in 0..head.contents {
                match read_plus_content::decode(from).expect("a content") {
                    read_plus_content::NFS4_CONTENT_DATA(content) => {
                        let bytes = from.opaque(content.d_data.len as usize).expect("data");
                        data.push((content.d_offset, bytes.to_vec()));
                    }
                    read_plus_content::NFS4_CONTENT_HOLE(hole) => {
                        let len = usize::try_from(hole.di_length).expect("a hole of some bytes");
                        assert!(len <= 64 << 20, "a hole of {len} bytes");
                        data.push((hole.di_offset, vec![0; len]));
                    }
                }
            }
        }
        _ => {}
    }
    let mut head = Reader::new(rest);
    Result4 {
        op: nfs_opnum4::decode(&mut head).expect("a number"),
        status: nfsstat4::decode(&mut head).expect("a status"),
        body: rest[8..from.position() - begin].to_vec(),
        data,
    }
}

/// The credential of calls.
#[derive(Clone)]
pub enum Credential {
    Sys { uid: u32, gid: u32, gids: Vec<u32> },
    None,
}

impl Credential {
    pub fn user(uid: u32) -> Credential {
        Credential::Sys {
            uid,
            gid: uid,
            gids: Vec::new(),
        }
    }
}

/// The header of a call, for `change` to make wrong.
pub fn header(
    xid: u32,
    credential: &Credential,
    change: impl FnOnce(&mut call_body<'_>),
) -> Vec<u8> {
    let mut sys = Vec::new();
    let flavor = match credential {
        Credential::None => AUTH_NONE,
        Credential::Sys { uid, gid, gids } => {
            authsys_parms {
                stamp: 7,
                machinename: Opaque(b"conformance"),
                uid: *uid,
                gid: *gid,
                gids: List::Of(gids),
            }
            .encode(&mut sys);
            AUTH_SYS
        }
    };
    let mut call = call_body {
        rpcvers: RPC_VERSION,
        prog: NFS4_PROGRAM,
        vers: NFS_V4,
        proc: NFSPROC4_COMPOUND,
        cred: opaque_auth {
            flavor,
            body: Opaque(&sys),
        },
        verf: opaque_auth {
            flavor: AUTH_NONE,
            body: Opaque(&[]),
        },
    };
    change(&mut call);
    let mut bytes = Vec::new();
    xid.encode(&mut bytes);
    msg_type::CALL.encode(&mut bytes);
    call.encode(&mut bytes);
    bytes
}

/// A connection that makes calls one after the other.
pub struct Wire {
    transport: Box<dyn Transport>,
    pub credential: Credential,
    xid: u32,
    seen: SeenResults,
    /// Calls of the server that came in between.
    pub callbacks: Vec<Vec<u8>>,
}

impl Wire {
    pub fn new(server: &ServerUnderTest) -> Wire {
        Wire {
            transport: (server.connect)(),
            credential: Credential::user(0),
            xid: 0,
            seen: server.seen.clone(),
            callbacks: Vec::new(),
        }
    }

    /// Sends what follows the RPC header; what came back behind the header of
    /// an answer that was accepted, with success.
    pub fn call(&mut self, change: impl FnOnce(&mut call_body<'_>), args: &[u8]) -> Vec<u8> {
        let answer = self.exchange(change, args).expect("an answer");
        // REPLY, MSG_ACCEPTED, a verifier without a body, SUCCESS.
        let head: Vec<u32> = (answer[4..24].chunks(4))
            .map(|word| u32::from_be_bytes(word.try_into().expect("4 bytes")))
            .collect();
        assert_eq!(head, [1, 0, 0, 0, 0], "not accepted");
        answer[24..].to_vec()
    }

    /// The same without looking at what came back; `None` if the connection
    /// has ended instead.
    pub fn exchange(
        &mut self,
        change: impl FnOnce(&mut call_body<'_>),
        args: &[u8],
    ) -> Option<Vec<u8>> {
        self.xid += 1;
        let mut record = header(self.xid, &self.credential, change);
        record.extend(args);
        self.send(&record);
        self.answer(self.xid)
    }

    pub fn send(&mut self, record: &[u8]) {
        self.transport.send(record);
    }

    /// The next answer, which is to this call.
    pub fn answer(&mut self, xid: u32) -> Option<Vec<u8>> {
        loop {
            let record = self.transport.receive()?;
            match record[4..8] {
                [0, 0, 0, 0] => self.callbacks.push(record),
                _ => {
                    assert_eq!(record[..4], xid.to_be_bytes(), "another call's answer");
                    return Some(record);
                }
            }
        }
    }

    /// Calls of the server that have come by now.
    pub fn poll_callbacks(&mut self) -> usize {
        while let Some(record) = self.transport.poll() {
            assert_eq!(record[4..8], [0; 4], "an answer without a call");
            self.callbacks.push(record);
        }
        self.callbacks.len()
    }

    pub fn compound(&mut self, minor: u32, ops: &Ops) -> CompoundAnswer {
        let args = compound_args(minor, ops);
        let answer = CompoundAnswer::read(&self.call(|_| {}, &args));
        assert_eq!(answer.tag, b"tag");
        let seen = answer.results.iter();
        (self.seen.borrow_mut()).extend(seen.map(|r| (minor, r.op as u32, r.status as u32)));
        answer
    }
}

pub fn compound_args(minor: u32, ops: &Ops) -> Vec<u8> {
    let mut args = Vec::new();
    compound_head {
        tag: Opaque(b"tag"),
        minorversion: minor,
        ops: ops.count,
    }
    .encode(&mut args);
    args.extend(&ops.bytes);
    args
}
