//! A server without sockets and clients of it, in as few lines as it takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use doubles::nfsd::NfsdDouble;
use nfs::connection::Flavor;
use nfs::server::{Record, RecordedClient};
use nfsd::exports::{Clients, Export, Exports, Rule, Squash};
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::call::{call_header_as, cut};
use wire::nfs4::*;
use wire::rpc::{RecordMark, reply_body};
use wire::xdr::{Decode, Encode, List, Opaque, Payload, Reader, pad};

use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

pub const SECOND: u64 = 1_000_000_000;
pub const READ: u32 = OPEN4_SHARE_ACCESS_READ;
pub const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE;
pub const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;
pub const ANONYMOUS: stateid4 = stateid4 {
    seqid: 0,
    other: [0; 12],
};

/// Operations of a COMPOUND.
#[derive(Clone, Default)]
pub struct Ops(pub Vec<u8>, pub u32);

/// From the root.
pub fn root() -> Ops {
    Ops::default().op(arg::OP_PUTROOTFH)
}

/// At this file.
pub fn at(handle: &[u8]) -> Ops {
    let object = Opaque(handle);
    Ops::default().op(arg::OP_PUTFH(PUTFH4args { object }))
}

impl Ops {
    pub fn op(mut self, op: arg<'_>) -> Ops {
        op.encode(&mut self.0);
        self.1 += 1;
        self
    }

    pub fn write(self, stateid: stateid4, offset: u64, data: &[u8]) -> Ops {
        let mut ops = self.op(arg::OP_WRITE(WRITE4args {
            stateid,
            offset,
            stable: stable_how4::UNSTABLE4,
            data: Payload {
                len: data.len() as u32,
            },
        }));
        ops.0.extend(data);
        ops.0.extend(&[0; 3][..pad(data.len())]);
        ops
    }

    pub fn remove(self, name: &str) -> Ops {
        let target = Opaque(name.as_bytes());
        self.op(arg::OP_REMOVE(REMOVE4args { target }))
    }

    pub fn close(self, seqid: u32, open_stateid: stateid4) -> Ops {
        self.op(arg::OP_CLOSE(CLOSE4args {
            seqid,
            open_stateid,
        }))
    }
}

/// An OPEN by name of a file that is there.
pub fn opening<'a>(client: &Client, owner: &'a str, name: &'a str) -> OPEN4args<'a> {
    OPEN4args {
        seqid: 0,
        share_access: READ,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: state_owner4 {
            clientid: client.id,
            owner: Opaque(owner.as_bytes()),
        },
        openhow: openflag4::OPEN4_NOCREATE,
        claim: open_claim4::CLAIM_NULL(Opaque(name.as_bytes())),
    }
}

/// An access without a delegation.
pub fn undelegated(client: &Client, access: u32) -> u32 {
    match client.minor {
        0 => access,
        _ => access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    }
}

/// The attributes of a file that is made.
pub fn mode() -> fattr4<'static> {
    fattr4 {
        attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
        attr_vals: Opaque(&[0, 0, 1, 0xb6]),
    }
}

/// A new lock owner's lock of a whole file.
pub fn locking<'a>(client: &Client, owner: &'a str, open_stateid: stateid4) -> LOCK4args<'a> {
    LOCK4args {
        locktype: nfs_lock_type4::WRITE_LT,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: locker4::TRUE(open_to_lock_owner4 {
            open_seqid: 0,
            open_stateid,
            lock_seqid: 0,
            lock_owner: state_owner4 {
                clientid: client.id,
                owner: Opaque(owner.as_bytes()),
            },
        }),
    }
}

/// What a COMPOUND came to, to be read result by result.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: nfsstat4,
    bytes: Vec<u8>,
    at: usize,
}

/// What OPEN came to.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub stateid: stateid4,
    pub rflags: u32,
    pub delegation: Option<stateid4>,
    /// It is a write delegation.
    pub may_write: bool,
    /// The times of the file are delegated too.
    pub delegates_times: bool,
    pub why_none: Option<why_no_delegation4>,
}

impl Answer {
    fn new(body: &[u8]) -> Answer {
        let mut from = Reader::new(body);
        let head = compound_res_head::decode(&mut from).expect("a COMPOUND's head");
        Answer {
            status: head.status,
            bytes: from.rest().to_vec(),
            at: 0,
        }
    }

    /// The next result is of this operation: its status.
    #[track_caller]
    pub fn next(&mut self, op: nfs_opnum4) -> nfsstat4 {
        assert_eq!(self.get::<nfs_opnum4>(), op, "{:?}", self.status);
        self.get()
    }

    /// The next result is of this operation, which succeeded.
    #[track_caller]
    pub fn ok(&mut self, op: nfs_opnum4) -> &mut Answer {
        assert_eq!(self.next(op), NFS4_OK, "{op:?}");
        self
    }

    /// A part of the result.
    #[track_caller]
    pub fn get<T: for<'a> Decode<'a>>(&mut self) -> T {
        let mut from = Reader::new(&self.bytes[self.at..]);
        let value = T::decode(&mut from).expect("it is there");
        self.at += from.position();
        value
    }

    /// A part of the result that borrows, as `read` has it.
    #[track_caller]
    pub fn with<T>(&mut self, read: impl FnOnce(&mut Reader<'_>) -> T) -> T {
        let mut from = Reader::new(&self.bytes[self.at..]);
        let value = read(&mut from);
        self.at += from.position();
        value
    }

    #[track_caller]
    pub fn opened(&mut self) -> Opened {
        self.ok(nfs_opnum4::OP_OPEN);
        self.with(|from| {
            let resok = OPEN4resok::decode(from).expect("what OPEN gives");
            let may_write = matches!(
                resok.delegation,
                open_delegation4::OPEN_DELEGATE_WRITE(_)
                    | open_delegation4::OPEN_DELEGATE_WRITE_ATTRS_DELEG(_)
            );
            let delegates_times = matches!(
                resok.delegation,
                open_delegation4::OPEN_DELEGATE_READ_ATTRS_DELEG(_)
                    | open_delegation4::OPEN_DELEGATE_WRITE_ATTRS_DELEG(_)
            );
            let (delegation, why_none) = match resok.delegation {
                open_delegation4::OPEN_DELEGATE_READ(read)
                | open_delegation4::OPEN_DELEGATE_READ_ATTRS_DELEG(read) => {
                    (Some(read.stateid), None)
                }
                open_delegation4::OPEN_DELEGATE_WRITE(write)
                | open_delegation4::OPEN_DELEGATE_WRITE_ATTRS_DELEG(write) => {
                    (Some(write.stateid), None)
                }
                open_delegation4::OPEN_DELEGATE_NONE_EXT(none) => (
                    None,
                    Some(match none {
                        open_none_delegation4::WND4_CONTENTION(_) => {
                            why_no_delegation4::WND4_CONTENTION
                        }
                        open_none_delegation4::WND4_RESOURCE(_) => {
                            why_no_delegation4::WND4_RESOURCE
                        }
                        open_none_delegation4::default(why) => why,
                    }),
                ),
                _ => (None, None),
            };
            Opened {
                stateid: resok.stateid,
                rflags: resok.rflags,
                delegation,
                may_write,
                delegates_times,
                why_none,
            }
        })
    }

    #[track_caller]
    pub fn handle(&mut self) -> Vec<u8> {
        self.ok(nfs_opnum4::OP_GETFH);
        self.with(|from| nfs_fh4::decode(from).expect("a handle").0.to_vec())
    }
}

/// A client on a connection.
#[derive(Clone, Debug)]
pub struct Client {
    pub conn: usize,
    pub minor: u32,
    pub id: u64,
    pub session: [u8; 16],
    pub sequence: u32,
    /// SEQ4_STATUS_* of the last answer.
    pub flags: u32,
}

/// A server with one file system, and what was kept of its clients.
pub struct World {
    pub server: NfsdDouble,
    pub fs: Arc<Memory>,
    /// Calls of the server's may come with the next answer: they are kept for
    /// [`World::called_meanwhile`].
    pub send_quietly: bool,
    meanwhile: Vec<(usize, Vec<u8>)>,
    /// The user on whose behalf clients call.
    pub uid: u32,
    /// Whether they want answers to be kept (`sa_cachethis`), and how long those
    /// may be in sessions from now on.
    pub keeps: bool,
    pub kept_bytes_max: u32,
    /// Of the call that was sent last; the next has the next.
    pub xid: u32,
    /// Of this start of clients.
    pub verifier: [u8; 8],
    /// The program and the address by which clients of version 4.0 take calls.
    pub callback: (u32, String),
}

/// A call of the server's.
#[derive(Clone, Debug)]
pub struct Called {
    pub xid: u32,
    pub minor: u32,
    pub sequence: (u32, u32),
    /// What follows CB_SEQUENCE.
    pub op: Vec<u8>,
}

pub fn exports(fs: &Arc<Memory>, path: &str) -> Exports {
    let rule = Rule {
        clients: Clients::Any,
        is_read_only: false,
        squash: Squash::None,
        anon_uid: 65534,
        anon_gid: 65534,
        flavors: vec![Flavor::Sys],
        ..Rule::default()
    };
    exports_by(fs, path, rule)
}

/// One export with one rule.
pub fn exports_by(fs: &Arc<Memory>, path: &str, rule: Rule) -> Exports {
    let fs: Arc<dyn FileSystem> = fs.clone();
    let export = Export::new(path, fs, vec![rule]).expect("an export");
    Exports::new(vec![export], Time::default()).expect("exports")
}

fn start(fs: &Arc<Memory>, boot: u32, known: BTreeSet<RecordedClient>) -> NfsdDouble {
    let nfsd = Nfsd::new(NfsdSettings::default(), boot, known, exports(fs, "/"), 0);
    NfsdDouble::new(nfsd, 64 << 20)
}

impl World {
    pub fn new() -> World {
        let time = Time {
            seconds: 1_000_000,
            nanos: 0,
        };
        let fs = Arc::new(Memory::new("test", 1 << 30, 7, time).expect("memory"));
        World {
            server: start(&fs, 1, BTreeSet::new()),
            fs,
            send_quietly: false,
            meanwhile: Vec::new(),
            uid: 0,
            keeps: false,
            kept_bytes_max: 4096,
            xid: 0,
            verifier: *b"verifier",
            callback: (0x4000_0000, "127.0.0.1.0.9".into()),
        }
    }

    /// The clients on record.
    fn recorded(&self) -> BTreeSet<RecordedClient> {
        let mut kept = BTreeSet::new();
        for record in &self.server.records {
            match record {
                Record::Kept(client) => kept.insert(client.clone()),
                Record::Gone(client) => kept.remove(client),
            };
        }
        kept
    }

    /// Their names.
    pub fn on_record(&self) -> BTreeSet<Box<[u8]>> {
        let recorded = self.recorded().into_iter();
        recorded.map(|client| client.owner).collect()
    }

    /// The server is killed, and started again.
    pub fn restart(&mut self) {
        let known = self.recorded();
        let boot = self.server.nfsd.server.boot() + 1;
        let mut server = start(&self.fs, boot, known.clone());
        server.records = known.into_iter().map(Record::Kept).collect();
        self.server = server;
    }

    pub fn connect(&mut self) -> usize {
        self.server
            .connect("127.0.0.1:700".parse().expect("an address"))
    }

    /// The next call, a record without its mark.
    pub fn record(&mut self, minor: u32, ops: &Ops) -> Vec<u8> {
        let mut sys = Vec::new();
        // Stamp, machine, user, group, no further groups.
        [0, 0, self.uid, self.uid, 0]
            .iter()
            .for_each(|word: &u32| word.encode(&mut sys));
        self.xid += 1;
        let mut record = call_header_as(self.xid, &sys, |_| {});
        compound_head {
            tag: Opaque(b"test"),
            minorversion: minor,
            ops: ops.1,
        }
        .encode(&mut record);
        record.extend(&ops.0);
        record
    }

    pub fn send(&mut self, conn: usize, minor: u32, ops: &Ops) {
        let record = self.record(minor, ops);
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        let bytes = [&mark.encode()[..], &record].concat();
        self.server.receive(conn, &bytes);
    }

    /// A COMPOUND as it is.
    #[track_caller]
    pub fn plain(&mut self, conn: usize, minor: u32, ops: &Ops) -> Answer {
        self.send(conn, minor, ops);
        self.arrived(conn)
    }

    /// The answer that has arrived on a connection.
    #[track_caller]
    pub fn arrived(&mut self, conn: usize) -> Answer {
        let mut records = cut(&mut self.server.sent(conn).into());
        if std::mem::take(&mut self.send_quietly) {
            let is_call = |record: &mut Vec<u8>| record[4..8] == [0; 4];
            let calls = records.extract_if(.., is_call);
            self.meanwhile.extend(calls.map(|call| (conn, call)));
        }
        assert_eq!(records.len(), 1, "one call, one answer");
        let mut from = Reader::new(&records[0][8..]);
        reply_body::decode(&mut from).expect("an answer");
        Answer::new(from.rest())
    }

    /// A COMPOUND of a client, in its session if it has one.
    #[track_caller]
    pub fn run(&mut self, client: &mut Client, ops: Ops) -> Answer {
        if client.minor == 0 {
            return self.plain(client.conn, 0, &ops);
        }
        client.sequence += 1;
        self.repeat(client, ops)
    }

    /// Operations in the session of a client, by its number of now.
    pub fn sequenced(&self, client: &Client, ops: &Ops) -> Ops {
        let mut all = Ops::default().op(arg::OP_SEQUENCE(SEQUENCE4args {
            sa_sessionid: client.session,
            sa_sequenceid: client.sequence,
            sa_slotid: 0,
            sa_highest_slotid: 0,
            sa_cachethis: self.keeps,
        }));
        all.0.extend(&ops.0);
        all.1 += ops.1;
        all
    }

    /// The same once more.
    #[track_caller]
    pub fn repeat(&mut self, client: &mut Client, ops: Ops) -> Answer {
        let all = self.sequenced(client, &ops);
        let mut answer = self.plain(client.conn, client.minor, &all);
        if answer.next(nfs_opnum4::OP_SEQUENCE) == NFS4_OK {
            client.flags = answer.get::<SEQUENCE4resok>().sr_status_flags;
        }
        answer
    }

    /// A client with all it needs to open files.
    pub fn client(&mut self, name: &str, minor: u32) -> Client {
        let mut client = self.returned(name, minor);
        if minor > 0 {
            self.complete(&mut client);
        }
        client
    }

    /// It says RECLAIM_COMPLETE.
    #[track_caller]
    pub fn complete(&mut self, client: &mut Client) {
        let args = RECLAIM_COMPLETE4args { rca_one_fs: false };
        let ops = Ops::default().op(arg::OP_RECLAIM_COMPLETE(args));
        self.run(client, ops).ok(nfs_opnum4::OP_RECLAIM_COMPLETE);
    }

    /// A client that has not said RECLAIM_COMPLETE.
    pub fn returned(&mut self, name: &str, minor: u32) -> Client {
        let conn = self.connect();
        self.returned_on(conn, name, minor)
    }

    /// The same, which has shown a certificate with these names.
    pub fn returned_with(&mut self, name: &str, minor: u32, names: &[&str]) -> Client {
        let conn = self.connect();
        self.server.secure(conn, names);
        self.returned_on(conn, name, minor)
    }

    /// The same, on this connection.
    pub fn returned_on(&mut self, conn: usize, name: &str, minor: u32) -> Client {
        match minor {
            0 => self.old_client(conn, name),
            _ => self.session_client(conn, name, minor),
        }
    }

    /// The operation by which a client names itself.
    pub fn introduction(&self, name: &str, minor: u32) -> Ops {
        let (verifier, id) = (self.verifier, Opaque(name.as_bytes()));
        Ops::default().op(match minor {
            0 => arg::OP_SETCLIENTID(SETCLIENTID4args {
                client: nfs_client_id4 { verifier, id },
                callback: cb_client4 {
                    cb_program: self.callback.0,
                    cb_location: clientaddr4 {
                        r_netid: Opaque(b"tcp"),
                        r_addr: Opaque(self.callback.1.as_bytes()),
                    },
                },
                callback_ident: 1,
            }),
            _ => arg::OP_EXCHANGE_ID(EXCHANGE_ID4args {
                eia_clientowner: client_owner4 {
                    co_verifier: verifier,
                    co_ownerid: id,
                },
                eia_flags: EXCHGID4_FLAG_USE_NON_PNFS,
                eia_state_protect: state_protect4_a::SP4_NONE,
                eia_client_impl_id: List::Of(&[]),
            }),
        })
    }

    fn old_client(&mut self, conn: usize, name: &str) -> Client {
        let set = self.introduction(name, 0);
        let mut answer = self.plain(conn, 0, &set);
        let set: SETCLIENTID4resok = answer.ok(nfs_opnum4::OP_SETCLIENTID).get();
        let confirm = Ops::default().op(arg::OP_SETCLIENTID_CONFIRM(SETCLIENTID_CONFIRM4args {
            clientid: set.clientid,
            setclientid_confirm: set.setclientid_confirm,
        }));
        let mut answer = self.plain(conn, 0, &confirm);
        answer.ok(nfs_opnum4::OP_SETCLIENTID_CONFIRM);
        Client {
            conn,
            minor: 0,
            id: set.clientid,
            session: [0; 16],
            sequence: 0,
            flags: 0,
        }
    }

    fn session_client(&mut self, conn: usize, name: &str, minor: u32) -> Client {
        let exchange = self.introduction(name, minor);
        let mut answer = self.plain(conn, minor, &exchange);
        answer.ok(nfs_opnum4::OP_EXCHANGE_ID);
        let (id, csa_sequence) = answer.with(|from| {
            let resok = EXCHANGE_ID4resok::decode(from).expect("a client id");
            (resok.eir_clientid, resok.eir_sequenceid)
        });
        let attrs = channel_attrs4 {
            ca_headerpadsize: 0,
            ca_maxrequestsize: 9 << 20,
            ca_maxresponsesize: 2 << 20,
            ca_maxresponsesize_cached: self.kept_bytes_max,
            ca_maxoperations: 16,
            ca_maxrequests: 4,
            ca_rdma_ird: List::Of(&[]),
        };
        let create = Ops::default().op(arg::OP_CREATE_SESSION(CREATE_SESSION4args {
            csa_clientid: id,
            csa_sequence,
            csa_flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            csa_fore_chan_attrs: attrs,
            csa_back_chan_attrs: attrs,
            csa_cb_program: 0x4000_0000,
            csa_sec_parms: List::Of(&[]),
        }));
        let mut answer = self.plain(conn, minor, &create);
        answer.ok(nfs_opnum4::OP_CREATE_SESSION);
        let session = answer.with(|from| {
            let resok = CREATE_SESSION4resok::decode(from).expect("a session");
            assert_eq!(resok.csr_flags, CREATE_SESSION4_FLAG_CONN_BACK_CHAN);
            resok.csr_sessionid
        });
        Client {
            conn,
            minor,
            id,
            session,
            sequence: 0,
            flags: 0,
        }
    }

    /// A file that is made, open for all, without a delegation: its state id and handle.
    #[track_caller]
    pub fn create(&mut self, client: &mut Client, owner: &str, name: &str) -> (stateid4, Vec<u8>) {
        let args = OPEN4args {
            share_access: undelegated(client, BOTH),
            openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
            ..opening(client, owner, name)
        };
        let ops = root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH);
        let mut answer = self.run(client, ops);
        answer.ok(nfs_opnum4::OP_PUTROOTFH);
        let opened = answer.opened();
        (opened.stateid, answer.handle())
    }

    /// The same, and closed: its handle.
    #[track_caller]
    pub fn file(&mut self, client: &mut Client, name: &str) -> Vec<u8> {
        let (stateid, handle) = self.create(client, "maker", name);
        let mut answer = self.run(client, at(&handle).close(0, stateid));
        answer.ok(nfs_opnum4::OP_PUTFH).ok(nfs_opnum4::OP_CLOSE);
        handle
    }

    /// An OPEN from the root: its status and what it gave.
    #[track_caller]
    pub fn open(&mut self, client: &mut Client, args: OPEN4args<'_>) -> Result<Opened, nfsstat4> {
        self.open_at(client, root(), args)
    }

    #[track_caller]
    pub fn open_at(
        &mut self,
        client: &mut Client,
        ops: Ops,
        args: OPEN4args<'_>,
    ) -> Result<Opened, nfsstat4> {
        let mut answer = self.run(client, ops.op(arg::OP_OPEN(args)));
        let (first, status) = (answer.get::<nfs_opnum4>(), answer.get::<nfsstat4>());
        assert_eq!(status, NFS4_OK, "{first:?}");
        match answer.status {
            NFS4_OK => Ok(answer.opened()),
            status => {
                assert_eq!(answer.next(nfs_opnum4::OP_OPEN), status);
                Err(status)
            }
        }
    }

    /// The last result of a COMPOUND that begins at a file.
    #[track_caller]
    pub fn last(&mut self, client: &mut Client, ops: Ops) -> nfsstat4 {
        self.run(client, ops).status
    }

    /// What the server has called on a connection.
    #[track_caller]
    pub fn called(&mut self, conn: usize) -> Vec<Called> {
        let records = cut(&mut self.server.sent(conn).into());
        records.iter().map(|record| called(record)).collect()
    }

    /// What came with an answer on a connection.
    pub fn called_meanwhile(&mut self, conn: usize) -> Vec<Called> {
        let calls = self.meanwhile.extract_if(.., |(of, _)| *of == conn);
        calls.map(|(_, record)| called(&record)).collect()
    }

    /// A call is answered: CB_SEQUENCE went well, and what follows so.
    pub fn answer(
        &mut self,
        client: &Client,
        called: &Called,
        op: nfs_cb_opnum4,
        status: nfsstat4,
    ) {
        self.answer_with(client, called, (op, status, &[]));
    }

    /// The same, with a result that has a body.
    pub fn answer_with(
        &mut self,
        client: &Client,
        called: &Called,
        (op, status, result): (nfs_cb_opnum4, nfsstat4, &[u8]),
    ) {
        let mut body = Vec::new();
        for word in [called.xid, 1, 0, 0, 0, 0] {
            word.encode(&mut body);
        }
        cb_compound_res_head {
            status,
            tag: Opaque(&[]),
            results: 2,
        }
        .encode(&mut body);
        nfs_cb_opnum4::OP_CB_SEQUENCE.encode(&mut body);
        NFS4_OK.encode(&mut body);
        CB_SEQUENCE4resok {
            csr_sessionid: client.session,
            csr_sequenceid: called.sequence.1,
            csr_slotid: called.sequence.0,
            csr_highest_slotid: 0,
            csr_target_highest_slotid: 0,
        }
        .encode(&mut body);
        op.encode(&mut body);
        status.encode(&mut body);
        body.extend(result);
        let mark = RecordMark {
            is_last: true,
            len: body.len() as u32,
        };
        let bytes = [&mark.encode()[..], &body].concat();
        self.server.receive(client.conn, &bytes);
    }
}

fn called(record: &[u8]) -> Called {
    let mut from = Reader::new(record);
    let mut word = || u32::decode(&mut from).expect("a word");
    let xid = word();
    let header: Vec<u32> = (0..7).map(|_| word()).collect();
    // A call of RPC 2 to the client's program, version 1, CB_COMPOUND, by
    // AUTH_SYS.
    assert_eq!(header[..6], [0, 2, 0x4000_0000, 1, 1, 1]);
    let skipped: Vec<u32> = (0..header[6] / 4 + 2).map(|_| word()).collect();
    assert_eq!(skipped, [0; 7], "root of no machine, verified by nothing");
    let args = CB_COMPOUND4args::decode(&mut from).expect("a CB_COMPOUND");
    let mut ops = args.argarray.iter();
    let Some(nfs_cb_argop4::OP_CB_SEQUENCE(sequence)) = ops.next() else {
        panic!("CB_SEQUENCE comes first");
    };
    let mut op = Vec::new();
    ops.next().expect("one more").encode(&mut op);
    Called {
        xid,
        minor: args.minorversion,
        sequence: (sequence.csa_slotid, sequence.csa_sequenceid),
        op,
    }
}
