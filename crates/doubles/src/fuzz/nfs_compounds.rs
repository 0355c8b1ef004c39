//! Any clients against a whole server of NFS, as the bytes of an input choose.

use std::sync::Arc;

use machine::Nanos;
use nfsd::exports::{Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use wire::nfs4::*;
use wire::rpc::{RecordMark, accept_stat, reply_stat};
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader, pad};

use crate::nfsd::NfsdDouble;

/// Calls of an input at most.
const CALLS_MAX: u32 = 300;
const CONNECTIONS: usize = 4;
/// Handles and state ids that are remembered.
const KEPT_MAX: usize = 16;
const SECOND: Nanos = 1_000_000_000;

/// What an input chooses, byte by byte; zeros when it is at its end.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number that is often near an end of something.
    fn number(&mut self) -> u64 {
        let edges = [
            0,
            1,
            9,
            4096,
            8192,
            16_384,
            1 << 20,
            1 << 40,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(4) {
            0 => edges[self.below(edges.len())],
            1 => u64::from(self.word()),
            _ => u64::from(self.byte()) * 97,
        }
    }

    fn name(&mut self) -> &'static [u8] {
        const NAMES: [&[u8]; 10] = [
            b"a",
            b"b",
            b"c",
            b"dir",
            b"link",
            b"",
            b".",
            b"..",
            b"x/y",
            &[b'n'; 300],
        ];
        NAMES[self.below(NAMES.len())]
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())].clone())
    }
}

/// A client as it goes along.
#[derive(Default)]
struct KnownClient {
    client: u64,
    next: u32,
    session: [u8; 16],
    confirm: [u8; 8],
    /// The numbers of slots that were used last.
    slots: [u32; 4],
    handles: Vec<Vec<u8>>,
    stateids: Vec<stateid4>,
    /// Operations that went well, a bit each.
    done: u128,
    /// A session does not take it as it is: it begins anew.
    is_lost: bool,
}

impl KnownClient {
    fn keep_handle(&mut self, handle: &[u8]) {
        if self.handles.len() == KEPT_MAX {
            self.handles.remove(1);
        }
        self.handles.push(handle.to_vec());
    }

    fn keep_stateid(&mut self, stateid: stateid4) {
        self.stateids.retain(|kept| kept.other != stateid.other);
        if self.stateids.len() == KEPT_MAX {
            self.stateids.remove(0);
        }
        self.stateids.push(stateid);
    }

    fn stateid(&self, from: &mut Choices<'_>) -> stateid4 {
        let kept = from.pick(&self.stateids);
        // The current one, mostly that of an OPEN right before.
        if from.one_in(2) {
            return stateid4 {
                seqid: 1,
                other: [0; 12],
            };
        }
        let other = match from.below(8) {
            0 => [0; 12],
            1 => [0xff; 12],
            _ => kept.map_or([0; 12], |stateid| stateid.other),
        };
        let seqid = match from.below(4) {
            0 => kept.map_or(0, |stateid| stateid.seqid),
            1 => u32::MAX,
            2 => u32::from(from.byte()) % 4,
            _ => 0,
        };
        stateid4 { seqid, other }
    }
}

/// Runs what the input chooses; panics where the server does wrong.
pub fn nfs_compounds(input: &[u8]) {
    nfs_operations_done(input);
}

/// The same. Which operations went well: a bit each, by their numbers.
pub fn nfs_operations_done(input: &[u8]) -> u128 {
    let mut from = Choices(input);
    let mut server = served();
    let address = "127.0.0.1:700".parse().expect("an address");
    let mut conns: Vec<usize> = (0..CONNECTIONS).map(|_| server.connect(address)).collect();
    let mut known: [KnownClient; 2] = Default::default();
    let mut xid = 0;
    greet(&mut server, conns[0], &mut known[0], 1);
    greet(&mut server, conns[2], &mut known[1], 0);
    while !from.0.is_empty() && xid < CALLS_MAX {
        xid += 1;
        let at = from.below(CONNECTIONS);
        match from.below(24) {
            0 => {
                server.disconnect(conns[at]);
                conns[at] = server.connect(address);
            }
            1 => server.advance(SECOND * (1 + 20 * Nanos::from(from.byte() & 15))),
            2 => {
                let minor = from.below(3) as u32;
                greet(
                    &mut server,
                    conns[at],
                    &mut known[usize::from(at > 1)],
                    minor,
                );
            }
            _ => {
                let client = &mut known[usize::from(at > 1)];
                if std::mem::take(&mut client.is_lost) {
                    greet(&mut server, conns[at], client, 1 + from.below(2) as u32);
                }
                call(&mut server, conns[at], xid, client, &mut from);
                if server.fatal(conns[at]).is_some() {
                    server.disconnect(conns[at]);
                    conns[at] = server.connect(address);
                }
            }
        }
    }
    for conn in conns {
        server.disconnect(conn);
    }
    // All clients are gone for good: so is what they had.
    for _ in 0..4 {
        server.advance(SECOND * 3600 * 24);
    }
    known[0].done | known[1].done
}

/// A server of one file system.
pub(super) fn served() -> NfsdDouble {
    let begin = Time {
        seconds: 1_000_000,
        nanos: 0,
    };
    let fs: Arc<dyn FileSystem> = Arc::new(Memory::new("fuzz", 8 << 20, 7, begin).expect("memory"));
    let rule = Rule {
        squash: Squash::None,
        ..Rule::default()
    };
    let export = Export::new("/", fs, vec![rule]).expect("an export");
    let exports = Exports::new(vec![export], begin).expect("exports");
    NfsdDouble::new(
        Nfsd::new(NfsdSettings::default(), 1, [], exports, 0),
        16 << 20,
    )
}

/// A client begins as one should.
fn greet(server: &mut NfsdDouble, conn: usize, known: &mut KnownClient, minor: u32) {
    // A number for each step, as `begin` takes them.
    let steps: &[&[u8]] = match minor {
        0 => &[&[1, 0], &[1, 3]],
        _ => &[&[1, 0], &[1, 2, 1], &[1, 4]],
    };
    for (at, step) in steps.iter().enumerate() {
        let mut ops = Vec::new();
        if minor > 0 && at == 2 {
            known.slots[0] += 1;
            sequence_of(known, 0, false).encode(&mut ops);
        }
        let op = begin(known, minor, &mut Choices(step)).expect("an operation");
        op.encode(&mut ops);
        compound(server, conn, known, minor, 1 + u32::from(at == 2), &ops);
    }
}

/// One call, and what came of it. It is answered once, or its connection ends.
fn call(
    server: &mut NfsdDouble,
    conn: usize,
    xid: u32,
    known: &mut KnownClient,
    from: &mut Choices<'_>,
) {
    let minor = [1, 2, 2, 0, 0, 3][from.below(6)];
    let mut ops = Vec::new();
    let mut count = 0;
    if matches!(minor, 1 | 2) && known.client != 0 && !from.one_in(8) {
        sequence(known, from).encode(&mut ops);
        count += 1;
    }
    if minor > 0 && from.one_in(2) {
        count += 2;
        opened(known, from, &mut ops);
    } else if !from.one_in(5) {
        count += 1;
        put(known, from, &mut ops);
    }
    for _ in 0..1 + from.below(6) {
        count += 1;
        operation(known, minor, from, &mut ops);
    }
    let mut bytes = message(xid, minor, count, &ops);
    let whole = bytes.clone();
    if from.one_in(16) {
        let at = from.below(bytes.len());
        bytes[at] ^= 1 << from.below(8);
    }
    if from.one_in(24) {
        bytes.truncate(from.below(bytes.len()));
    }
    if bytes != whole {
        // It may be a call of something else now.
        send(server, conn, &bytes);
        drop(server.sent(conn));
        return;
    }
    exchange(server, conn, known, &bytes);
}

fn message(xid: u32, minor: u32, count: u32, ops: &[u8]) -> Vec<u8> {
    let mut bytes = testkit::nfs::call::call_header(xid, |_| {});
    let head = compound_head {
        tag: Opaque(b"fuzz"),
        minorversion: minor,
        ops: count,
    };
    head.encode(&mut bytes);
    bytes.extend(ops);
    bytes
}

fn compound(
    server: &mut NfsdDouble,
    conn: usize,
    known: &mut KnownClient,
    minor: u32,
    count: u32,
    ops: &[u8],
) {
    exchange(server, conn, known, &message(1, minor, count, ops));
}

fn send(server: &mut NfsdDouble, conn: usize, message: &[u8]) {
    let mark = RecordMark {
        is_last: true,
        len: message.len() as u32,
    };
    server.receive(conn, &mark.encode());
    server.receive(conn, message);
}

fn exchange(server: &mut NfsdDouble, conn: usize, known: &mut KnownClient, message: &[u8]) {
    send(server, conn, message);
    let mut sent = server.sent(conn).into();
    for record in testkit::nfs::call::cut(&mut sent) {
        learn(&record, known);
    }
}

/// A file that is open, made if it is not there.
fn opened(known: &KnownClient, from: &mut Choices<'_>, to: &mut Vec<u8>) {
    const NONE: fattr4<'_> = fattr4 {
        attrmask: List::Of(&[]),
        attr_vals: Opaque(&[]),
    };
    nfs_argop4::OP_PUTROOTFH.encode(to);
    let names: [&[u8]; 2] = [b"a", b"b"];
    nfs_argop4::OP_OPEN(OPEN4args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: 0,
        owner: state_owner4 {
            clientid: known.client,
            owner: Opaque(b"one"),
        },
        openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(NONE)),
        claim: open_claim4::CLAIM_NULL(Opaque(names[from.below(2)])),
    })
    .encode(to);
}

/// A file handle to go on from.
fn put(known: &KnownClient, from: &mut Choices<'_>, to: &mut Vec<u8>) {
    match from.pick(&known.handles) {
        Some(handle) if !from.one_in(3) => nfs_argop4::OP_PUTFH(PUTFH4args {
            object: Opaque(&handle),
        })
        .encode(to),
        _ => nfs_argop4::OP_PUTROOTFH.encode(to),
    }
}

fn sequence(known: &mut KnownClient, from: &mut Choices<'_>) -> nfs_argop4<'static> {
    let slot = from.below(known.slots.len());
    if !from.one_in(6) {
        known.slots[slot] += 1;
    }
    sequence_of(known, slot, from.one_in(2))
}

fn sequence_of(known: &KnownClient, slot: usize, sa_cachethis: bool) -> nfs_argop4<'static> {
    nfs_argop4::OP_SEQUENCE(SEQUENCE4args {
        sa_sessionid: known.session,
        sa_sequenceid: known.slots[slot],
        sa_slotid: slot as u32,
        sa_highest_slotid: 3,
        sa_cachethis,
    })
}

/// Takes from an answer what later calls can use. Everything in it can be read.
fn learn(record: &[u8], known: &mut KnownClient) {
    let mut from = Reader::new(&record[4..]);
    let kind = u32::decode(&mut from).expect("a kind");
    if kind != 1 || reply_stat::decode(&mut from) != Ok(reply_stat::MSG_ACCEPTED) {
        return;
    }
    from.take(8).expect("a verifier");
    if accept_stat::decode(&mut from) != Ok(accept_stat::SUCCESS) {
        return;
    }
    let head = compound_res_head::decode(&mut from).expect("a COMPOUND's head");
    for _ in 0..head.results {
        let mut op = from;
        let op = nfs_opnum4::decode(&mut op).expect("a number") as u32;
        let before = from;
        let result = nfs_resop4::decode(&mut from).expect("a result");
        let mut status = Reader::new(&before.rest()[4..]);
        if op < 128 && nfsstat4::decode(&mut status) == Ok(nfsstat4::NFS4_OK) {
            known.done |= 1 << op;
        }
        keep(result, known, &mut from);
    }
    assert!(from.rest().is_empty(), "nothing is behind the results");
}

fn keep(result: nfs_resop4<'_>, known: &mut KnownClient, from: &mut Reader<'_>) {
    use nfs_resop4 as res;
    match result {
        res::OP_READ(READ4res::NFS4_OK(read)) => {
            from.opaque(read.data.len as usize).expect("data");
        }
        res::OP_READ_PLUS(READ_PLUS4res::NFS4_OK(head)) => {
            for _ in 0..head.contents {
                let content = read_plus_content::decode(from).expect("a content");
                if let read_plus_content::NFS4_CONTENT_DATA(data) = content {
                    from.opaque(data.d_data.len as usize).expect("data");
                }
            }
        }
        res::OP_GETFH(GETFH4res::NFS4_OK(handle)) => known.keep_handle(handle.0),
        res::OP_OPEN(OPEN4res::NFS4_OK(open)) => {
            known.keep_stateid(open.stateid);
            match open.delegation {
                open_delegation4::OPEN_DELEGATE_READ(read) => known.keep_stateid(read.stateid),
                open_delegation4::OPEN_DELEGATE_WRITE(write)
                | open_delegation4::OPEN_DELEGATE_WRITE_ATTRS_DELEG(write) => {
                    known.keep_stateid(write.stateid)
                }
                _ => {}
            }
        }
        res::OP_LOCK(LOCK4res::NFS4_OK(stateid))
        | res::OP_LOCKU(LOCKU4res::NFS4_OK(stateid))
        | res::OP_OPEN_CONFIRM(OPEN_CONFIRM4res::NFS4_OK(stateid))
        | res::OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4res::NFS4_OK(stateid)) => {
            known.keep_stateid(stateid);
        }
        res::OP_EXCHANGE_ID(EXCHANGE_ID4res::NFS4_OK(told)) => {
            (known.client, known.next) = (told.eir_clientid, told.eir_sequenceid);
        }
        res::OP_CREATE_SESSION(CREATE_SESSION4res::NFS4_OK(told)) => {
            known.session = told.csr_sessionid;
            known.next += 1;
            known.slots = [0; 4];
        }
        res::OP_SEQUENCE(SEQUENCE4res::default(_)) => known.is_lost = true,
        res::OP_SETCLIENTID(SETCLIENTID4res::NFS4_OK(told)) => {
            (known.client, known.confirm) = (told.clientid, told.setclientid_confirm);
        }
        _ => {}
    }
}

/// Appends an operation that is whole.
fn operation(known: &KnownClient, minor: u32, from: &mut Choices<'_>, to: &mut Vec<u8>) {
    let op = match from.below(5) {
        0 => begin(known, minor, from),
        1 => Some(names(from)),
        2 => data(known, from, to),
        3 => Some(state(known, from)),
        _ => attributes(known, from, to),
    };
    if let Some(op) = op {
        op.encode(to);
    }
}

fn begin(known: &KnownClient, minor: u32, from: &mut Choices<'_>) -> Option<nfs_argop4<'static>> {
    use nfs_argop4::*;
    const FORE: channel_attrs4<'_> = channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: 1 << 20,
        ca_maxresponsesize: 1 << 20,
        ca_maxresponsesize_cached: 2048,
        ca_maxoperations: 16,
        ca_maxrequests: 4,
        ca_rdma_ird: List::Of(&[]),
    };
    let verifier = [from.byte() & 1; 8];
    Some(match (minor, from.below(8)) {
        (0, 0..3) => OP_SETCLIENTID(SETCLIENTID4args {
            client: nfs_client_id4 {
                verifier,
                id: Opaque(b"fuzz"),
            },
            callback: cb_client4 {
                cb_program: 1,
                cb_location: clientaddr4 {
                    r_netid: Opaque(b"tcp"),
                    r_addr: Opaque(b"127.0.0.1.0.9"),
                },
            },
            callback_ident: 0,
        }),
        (0, 3..6) => OP_SETCLIENTID_CONFIRM(SETCLIENTID_CONFIRM4args {
            clientid: known.client,
            setclientid_confirm: known.confirm,
        }),
        (0, _) => OP_RENEW(RENEW4args {
            clientid: known.client,
        }),
        (_, 0 | 1) => OP_EXCHANGE_ID(EXCHANGE_ID4args {
            eia_clientowner: client_owner4 {
                co_verifier: verifier,
                co_ownerid: Opaque(b"fuzz"),
            },
            eia_flags: 0,
            eia_state_protect: state_protect4_a::SP4_NONE,
            eia_client_impl_id: List::Of(&[]),
        }),
        (_, 2 | 3) => OP_CREATE_SESSION(CREATE_SESSION4args {
            csa_clientid: known.client,
            csa_sequence: known.next,
            csa_flags: u32::from(from.byte() & 3),
            csa_fore_chan_attrs: FORE,
            csa_back_chan_attrs: FORE,
            csa_cb_program: 7,
            csa_sec_parms: List::Of(&[callback_sec_parms4::case_0]),
        }),
        (_, 4 | 5) => OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false }),
        (_, 6) if from.one_in(4) => OP_DESTROY_SESSION(DESTROY_SESSION4args {
            dsa_sessionid: known.session,
        }),
        _ => OP_PUTROOTFH,
    })
}

fn names(from: &mut Choices<'_>) -> nfs_argop4<'static> {
    use nfs_argop4::*;
    let one: component4<'static> = Opaque(from.name());
    let other: component4<'static> = Opaque(from.name());
    const NONE: fattr4<'_> = fattr4 {
        attrmask: List::Of(&[]),
        attr_vals: Opaque(&[]),
    };
    match from.below(14) {
        0 => OP_LOOKUP(LOOKUP4args { objname: one }),
        1 => OP_LOOKUPP,
        2 => OP_GETFH,
        3 => OP_SAVEFH,
        4 => OP_RESTOREFH,
        5 => OP_CREATE(CREATE4args {
            objtype: match from.below(3) {
                0 => createtype4::NF4LNK(Opaque(other.0)),
                1 => createtype4::NF4FIFO,
                _ => createtype4::NF4DIR,
            },
            objname: one,
            createattrs: NONE,
        }),
        6 => OP_LINK(LINK4args { newname: one }),
        7 => OP_REMOVE(REMOVE4args { target: one }),
        8 => OP_RENAME(RENAME4args {
            oldname: one,
            newname: other,
        }),
        9 => OP_READLINK,
        10 => OP_READDIR(READDIR4args {
            cookie: from.number(),
            cookieverf: [0; 8],
            dircount: from.word() >> 12,
            maxcount: from.word() >> 12,
            attr_request: List::Of(&[0x0010_001a, 0x0030_a03a]),
        }),
        11 => OP_SECINFO(SECINFO4args { name: one }),
        12 => OP_PUTPUBFH,
        _ => OP_PUTROOTFH,
    }
}

/// Operations with bytes of their own are appended here.
fn data(
    known: &KnownClient,
    from: &mut Choices<'_>,
    to: &mut Vec<u8>,
) -> Option<nfs_argop4<'static>> {
    use nfs_argop4::*;
    let stateid = known.stateid(from);
    let (offset, count) = (from.number(), from.number());
    let range = ALLOCATE4args {
        aa_stateid: stateid,
        aa_offset: offset,
        aa_length: count,
    };
    let read = READ4args {
        stateid,
        offset,
        count: count as u32,
    };
    Some(match from.below(12) {
        0 | 1 => OP_READ(read),
        2 => OP_READ_PLUS(read),
        3 => OP_COMMIT(COMMIT4args {
            offset,
            count: count as u32,
        }),
        4 => OP_ALLOCATE(range),
        5 => OP_DEALLOCATE(range),
        6 => OP_SEEK(SEEK4args {
            sa_stateid: stateid,
            sa_offset: offset,
            sa_what: match from.one_in(2) {
                true => data_content4::NFS4_CONTENT_HOLE,
                false => data_content4::NFS4_CONTENT_DATA,
            },
        }),
        7 => OP_CLONE(CLONE4args {
            cl_src_stateid: known.stateid(from),
            cl_dst_stateid: stateid,
            cl_src_offset: from.number(),
            cl_dst_offset: offset,
            cl_count: count,
        }),
        8 => OP_COPY(COPY4args {
            ca_src_stateid: known.stateid(from),
            ca_dst_stateid: stateid,
            ca_src_offset: from.number(),
            ca_dst_offset: offset,
            ca_count: count,
            ca_consecutive: true,
            ca_synchronous: from.one_in(2),
            ca_source_server: List::Of(&[]),
        }),
        _ => {
            let len = from.below(40) as u32 * 300;
            OP_WRITE(WRITE4args {
                stateid,
                offset,
                stable: stable_how4::UNSTABLE4,
                data: Payload { len },
            })
            .encode(to);
            to.resize(to.len() + len as usize + pad(len as usize), 0x77);
            return None;
        }
    })
}

fn state(known: &KnownClient, from: &mut Choices<'_>) -> nfs_argop4<'static> {
    use nfs_argop4::*;
    const OWNERS: [&[u8]; 3] = [b"one", b"two", b"three"];
    let owner = state_owner4 {
        clientid: known.client,
        owner: Opaque(OWNERS[from.below(3)]),
    };
    let (stateid, seqid) = (known.stateid(from), u32::from(from.byte()) % 5);
    let locktype = [nfs_lock_type4::READ_LT, nfs_lock_type4::WRITE_LT][from.below(2)];
    let (offset, length) = (from.number(), from.number());
    match from.below(12) {
        0..4 => open(owner, seqid, from),
        4 => OP_CLOSE(CLOSE4args {
            seqid,
            open_stateid: stateid,
        }),
        5 => OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
            open_stateid: stateid,
            seqid,
        }),
        6 => OP_OPEN_DOWNGRADE(OPEN_DOWNGRADE4args {
            open_stateid: stateid,
            seqid,
            share_access: 1 + from.word() % 3,
            share_deny: from.word() % 4,
        }),
        7 => OP_LOCK(LOCK4args {
            locktype,
            reclaim: from.one_in(8),
            offset,
            length,
            locker: match from.one_in(2) {
                true => locker4::TRUE(open_to_lock_owner4 {
                    open_seqid: seqid,
                    open_stateid: stateid,
                    lock_seqid: 0,
                    lock_owner: owner,
                }),
                false => locker4::FALSE(exist_lock_owner4 {
                    lock_stateid: stateid,
                    lock_seqid: seqid,
                }),
            },
        }),
        8 => OP_LOCKU(LOCKU4args {
            locktype,
            seqid,
            lock_stateid: stateid,
            offset,
            length,
        }),
        9 => OP_LOCKT(LOCKT4args {
            locktype,
            offset,
            length,
            owner,
        }),
        10 => OP_FREE_STATEID(FREE_STATEID4args {
            fsa_stateid: stateid,
        }),
        _ => OP_DELEGRETURN(DELEGRETURN4args {
            deleg_stateid: stateid,
        }),
    }
}

fn open(owner: state_owner4<'static>, seqid: u32, from: &mut Choices<'_>) -> nfs_argop4<'static> {
    const SIZE_0: fattr4<'_> = fattr4 {
        attrmask: List::Of(&[1 << FATTR4_SIZE]),
        attr_vals: Opaque(&[0; 8]),
    };
    let share_access = (1 + from.word() % 3) | [0, 0x100, 0x200, 0x400][from.below(4)];
    nfs_argop4::OP_OPEN(OPEN4args {
        seqid,
        share_access,
        share_deny: if from.one_in(4) { from.word() % 4 } else { 0 },
        owner,
        openhow: match from.below(4) {
            0 => openflag4::OPEN4_NOCREATE,
            1 => openflag4::OPEN4_CREATE(createhow4::GUARDED4(SIZE_0)),
            2 => openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4([from.byte() & 1; 8])),
            _ => openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(SIZE_0)),
        },
        claim: match from.below(8) {
            0 => open_claim4::CLAIM_FH,
            1 => open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
            _ => open_claim4::CLAIM_NULL(Opaque(from.name())),
        },
    })
}

/// Operations that borrow what is made here are appended here.
fn attributes(
    known: &KnownClient,
    from: &mut Choices<'_>,
    to: &mut Vec<u8>,
) -> Option<nfs_argop4<'static>> {
    use nfs_argop4::*;
    let words = [from.word(), from.word(), from.word() >> 12];
    let key = Opaque(from.name());
    match from.below(8) {
        0 => OP_GETATTR(GETATTR4args {
            attr_request: List::Of(&words),
        })
        .encode(to),
        1 => {
            let values = [from.byte(); 24];
            let attributes = fattr4 {
                attrmask: List::Of(&words),
                attr_vals: Opaque(&values[..from.below(24)]),
            };
            let stateid = known.stateid(from);
            OP_SETATTR(SETATTR4args {
                stateid,
                obj_attributes: attributes,
            })
            .encode(to);
        }
        2 => {
            let size = from.number().to_be_bytes();
            OP_SETATTR(SETATTR4args {
                stateid: known.stateid(from),
                obj_attributes: fattr4 {
                    attrmask: List::Of(&[1 << FATTR4_SIZE]),
                    attr_vals: Opaque(&size),
                },
            })
            .encode(to);
        }
        3 => {
            return Some(OP_ACCESS(ACCESS4args {
                access: from.word() & 0x1ff,
            }));
        }
        4 => return Some(OP_GETXATTR(XATTR4args { name: key })),
        5 => OP_SETXATTR(SETXATTR4args {
            sxa_option: setxattr_option4::SETXATTR4_EITHER,
            sxa_key: key,
            sxa_value: Opaque(&[7; 90][..from.below(90)]),
        })
        .encode(to),
        6 => {
            return Some(OP_LISTXATTRS(LISTXATTRS4args {
                lxa_cookie: from.number(),
                lxa_maxcount: from.word() >> 16,
            }));
        }
        _ => put(known, from, to),
    }
    None
}
