//! Clients of each minor version with what they need to begin, and the folder
//! that each case has for itself.

use std::cell::Cell;

use wire::nfs4::*;
use wire::xdr::{Decode, List, Opaque, Reader};

use super::compound::*;
use nfs_opnum4 as op;
use nfsstat4::{NFS4_OK, NFS4ERR_DELAY};

/// Minor versions.
pub const MINORS: [u32; 3] = [0, 1, 2];

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(1) };
}

/// A number that no other client or owner has.
pub fn unique() -> u64 {
    let next = NEXT.get();
    NEXT.set(next + 1);
    next
}

/// What a session asks for, unless a case wants something else.
pub const FORE: channel_attrs4<'static> = channel_attrs4 {
    ca_headerpadsize: 0,
    ca_maxrequestsize: 1 << 20,
    ca_maxresponsesize: 1 << 20,
    ca_maxresponsesize_cached: 4096,
    ca_maxoperations: 32,
    ca_maxrequests: 8,
    ca_rdma_ird: List::Of(&[]),
};

/// The program of callbacks.
pub const CALLBACK: u32 = 0x4000_0001;

/// A client with a lease, and with a session where there are such.
pub struct TestClient {
    pub wire: Wire,
    pub minor: u32,
    pub id: u64,
    /// What it is called, and when it started.
    pub owner: Vec<u8>,
    pub verifier: [u8; 8],
    pub session: [u8; 16],
    /// The sequence number of slot 0 that was used last.
    pub sequence: u32,
    /// How often NFS4ERR_DELAY is met before it counts.
    pub patience: u32,
}

pub fn exchange_id(owner: &[u8], verifier: [u8; 8], flags: u32) -> Ops {
    ops().op(nfs_argop4::OP_EXCHANGE_ID(EXCHANGE_ID4args {
        eia_clientowner: client_owner4 {
            co_verifier: verifier,
            co_ownerid: Opaque(owner),
        },
        eia_flags: flags,
        eia_state_protect: state_protect4_a::SP4_NONE,
        eia_client_impl_id: List::Of(&[]),
    }))
}

pub fn create_session(id: u64, sequence: u32, flags: u32, fore: channel_attrs4<'_>) -> Ops {
    ops().op(nfs_argop4::OP_CREATE_SESSION(CREATE_SESSION4args {
        csa_clientid: id,
        csa_sequence: sequence,
        csa_flags: flags,
        csa_fore_chan_attrs: fore,
        csa_back_chan_attrs: channel_attrs4 {
            ca_maxrequests: 1,
            ca_maxoperations: 4,
            ca_maxrequestsize: 4096,
            ca_maxresponsesize: 4096,
            ca_maxresponsesize_cached: 0,
            ..fore
        },
        csa_cb_program: CALLBACK,
        csa_sec_parms: List::Of(&[callback_sec_parms4::case_0]),
    }))
}

pub fn sequence(session: [u8; 16], slot: u32, sequence: u32, is_kept: bool) -> Ops {
    ops().op(nfs_argop4::OP_SEQUENCE(SEQUENCE4args {
        sa_sessionid: session,
        sa_sequenceid: sequence,
        sa_slotid: slot,
        sa_highest_slotid: slot,
        sa_cachethis: is_kept,
    }))
}

pub fn setclientid(owner: &[u8], verifier: [u8; 8]) -> Ops {
    ops().op(nfs_argop4::OP_SETCLIENTID(SETCLIENTID4args {
        client: nfs_client_id4 {
            verifier,
            id: Opaque(owner),
        },
        callback: cb_client4 {
            cb_program: CALLBACK,
            cb_location: clientaddr4 {
                r_netid: Opaque(b"tcp"),
                r_addr: Opaque(b"127.0.0.1.0.9"),
            },
        },
        callback_ident: 1,
    }))
}

pub fn setclientid_confirm(id: u64, confirm: [u8; 8]) -> Ops {
    ops().op(nfs_argop4::OP_SETCLIENTID_CONFIRM(
        SETCLIENTID_CONFIRM4args {
            clientid: id,
            setclientid_confirm: confirm,
        },
    ))
}

/// The flags of a client that wants nothing special.
pub const PLAIN: u32 = EXCHGID4_FLAG_USE_NON_PNFS;

impl TestClient {
    /// A client that may open and lock.
    pub fn new(server: &ServerUnderTest, minor: u32) -> TestClient {
        TestClient::of(server, minor, |_| {})
    }

    pub fn of(server: &ServerUnderTest, minor: u32, change: impl FnOnce(&mut Wire)) -> TestClient {
        let mut client = TestClient::unborn(server, minor);
        change(&mut client.wire);
        match minor {
            0 => client.begin_0(),
            _ => client.begin_with_session(),
        }
        client
    }

    /// Nothing has been asked of the server yet.
    pub fn unborn(server: &ServerUnderTest, minor: u32) -> TestClient {
        let number = unique();
        TestClient {
            wire: Wire::new(server),
            minor,
            id: 0,
            owner: format!("conformance {} {number}", std::process::id()).into_bytes(),
            verifier: number.to_be_bytes(),
            session: [0; 16],
            sequence: 0,
            patience: 0,
        }
    }

    fn begin_0(&mut self) {
        let asked = self
            .wire
            .compound(0, &setclientid(&self.owner, self.verifier));
        let found: SETCLIENTID4resok = asked.ok().get(op::OP_SETCLIENTID);
        self.id = found.clientid;
        let confirm = setclientid_confirm(self.id, found.setclientid_confirm);
        self.wire.compound(0, &confirm).ok();
    }

    fn begin_with_session(&mut self) {
        let asked = exchange_id(&self.owner, self.verifier, PLAIN);
        let answer = self.wire.compound(self.minor, &asked).ok();
        let next = self.known_as(&answer);
        self.begin_session(next, FORE);
        let complete = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
        self.call(ops().op(complete)).ok();
    }

    /// What EXCHANGE_ID answered: the client's number, which is kept, and that of
    /// its next CREATE_SESSION.
    pub fn known_as(&mut self, answer: &CompoundAnswer) -> u32 {
        let mut from = Reader::new(answer.body(op::OP_EXCHANGE_ID));
        self.id = u64::decode(&mut from).expect("a client");
        u32::decode(&mut from).expect("a sequence")
    }

    pub fn begin_session(&mut self, next: u32, fore: channel_attrs4<'_>) {
        let flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        let asked = create_session(self.id, next, flags, fore);
        let answer = self.wire.compound(self.minor, &asked).ok();
        let body = answer.body(op::OP_CREATE_SESSION);
        self.session = body[..16].try_into().expect("a session");
        self.sequence = 0;
    }

    /// Another connection of the same client, which uses the next slot.
    pub fn sibling(&self, server: &ServerUnderTest) -> TestClient {
        TestClient {
            wire: Wire::new(server),
            minor: self.minor,
            id: self.id,
            owner: self.owner.clone(),
            verifier: self.verifier,
            session: self.session,
            sequence: 0,
            patience: self.patience,
        }
    }

    /// A COMPOUND; with SEQUENCE before it, and without its result, where there
    /// are sessions.
    pub fn call(&mut self, asked: Ops) -> CompoundAnswer {
        let mut tries = 0;
        loop {
            let answer = self.call_once(asked.clone());
            tries += 1;
            if answer.status != NFS4ERR_DELAY || tries > self.patience {
                return answer;
            }
        }
    }

    fn call_once(&mut self, asked: Ops) -> CompoundAnswer {
        if self.minor == 0 {
            return self.wire.compound(0, &asked);
        }
        self.sequence += 1;
        let all = sequence(self.session, 0, self.sequence, false).then(asked);
        let mut answer = self.wire.compound(self.minor, &all);
        let first = answer.results.remove(0);
        assert_eq!((first.op, first.status), (op::OP_SEQUENCE, NFS4_OK));
        answer
    }

    /// `SEQ4_STATUS_*` flags now.
    pub fn flags(&mut self) -> u32 {
        self.sequence += 1;
        let all = sequence(self.session, 0, self.sequence, false);
        let answer = self.wire.compound(self.minor, &all).ok();
        answer
            .get::<SEQUENCE4resok>(op::OP_SEQUENCE)
            .sr_status_flags
    }

    /// A new owner.
    pub fn owner(&self) -> TestOwner {
        TestOwner {
            client: self.id,
            name: unique().to_be_bytes().to_vec(),
            next: 0,
        }
    }

    /// Opens what is there, in `dir`, or makes it.
    pub fn open(&mut self, dir: &[u8], file: &str, access: u32, deny: u32) -> OpenFile {
        let owner = self.owner();
        let how = openflag4::OPEN4_NOCREATE;
        self.open_as(owner, dir, file, (access, deny), how)
            .expect("an open")
    }

    pub fn open_as(
        &mut self,
        mut owner: TestOwner,
        dir: &[u8],
        file: &str,
        (access, deny): (u32, u32),
        how: openflag4<'_>,
    ) -> Result<OpenFile, (nfsstat4, TestOwner)> {
        // A delegation is given only to a client that asks for one.
        let wants = access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK != 0 || self.minor == 0;
        let access = access
            | if wants {
                0
            } else {
                OPEN4_SHARE_ACCESS_WANT_NO_DELEG
            };
        let asked = open_args(&owner, file, access, deny, how);
        let answer = self.call(ops().fh(dir).open(asked).getfh());
        if answer.results.len() > 1 {
            owner.next += 1;
        }
        if answer.status != NFS4_OK {
            return Err((answer.status, owner));
        }
        let handle = answer.handle();
        let mut opened = opened(&answer, owner, handle);
        if opened.flags & OPEN4_RESULT_CONFIRM != 0 {
            assert_eq!(self.minor, 0, "only version 4.0 confirms");
            let confirm = nfs_argop4::OP_OPEN_CONFIRM(OPEN_CONFIRM4args {
                open_stateid: opened.stateid,
                seqid: opened.owner.next_seqid(),
            });
            let confirmed = self.call(ops().fh(&opened.handle).op(confirm)).ok();
            opened.stateid = confirmed.get(op::OP_OPEN_CONFIRM);
        }
        Ok(opened)
    }

    pub fn close(&mut self, opened: &mut OpenFile) -> CompoundAnswer {
        let seqid = opened.owner.next_seqid();
        self.call(ops().fh(&opened.handle).close(seqid, opened.stateid))
    }
}

/// One that opens or locks; in version 4.0 with a number for each request.
#[derive(Clone, Debug)]
pub struct TestOwner {
    pub client: u64,
    pub name: Vec<u8>,
    pub next: u32,
}

impl TestOwner {
    pub fn wire(&self) -> state_owner4<'_> {
        state_owner4 {
            clientid: self.client,
            owner: Opaque(&self.name),
        }
    }

    pub fn next_seqid(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}

/// An open file.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub stateid: stateid4,
    pub handle: Vec<u8>,
    pub owner: TestOwner,
    pub flags: u32,
    pub cinfo: change_info4,
    /// The state id of a read delegation.
    pub delegation: Option<stateid4>,
    pub set: Vec<u32>,
}

pub fn open_args<'a>(
    owner: &'a TestOwner,
    file: &'a str,
    share_access: u32,
    share_deny: u32,
    openhow: openflag4<'a>,
) -> OPEN4args<'a> {
    OPEN4args {
        seqid: owner.next,
        share_access,
        share_deny,
        owner: owner.wire(),
        openhow,
        claim: open_claim4::CLAIM_NULL(Opaque(file.as_bytes())),
    }
}

pub fn unchecked<'a>(attributes: &'a Attributes) -> openflag4<'a> {
    openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(attributes.fattr()))
}

pub fn guarded<'a>(attributes: &'a Attributes) -> openflag4<'a> {
    openflag4::OPEN4_CREATE(createhow4::GUARDED4(attributes.fattr()))
}

pub fn opened(answer: &CompoundAnswer, owner: TestOwner, handle: Vec<u8>) -> OpenFile {
    let body = answer.body(op::OP_OPEN);
    let found = OPEN4resok::decode(&mut Reader::new(body)).expect("OPEN4resok");
    OpenFile {
        stateid: found.stateid,
        handle,
        owner,
        flags: found.rflags,
        cinfo: found.cinfo,
        delegation: match found.delegation {
            open_delegation4::OPEN_DELEGATE_READ(read) => Some(read.stateid),
            _ => None,
        },
        set: found.attrset.iter().collect(),
    }
}

/// One case: a folder of its own, and in it one object of each kind.
pub struct Case {
    pub server: ServerUnderTest,
    /// Of a client of the version that is tried.
    pub client: TestClient,
    pub minor: u32,
    /// The folder, and objects in it by their names.
    pub dir: Vec<u8>,
    pub file: Vec<u8>,
}

/// What is in `file`.
pub const CONTENT: &[u8] = b"0123456789";

impl Case {
    pub fn new(server: &ServerUnderTest, minor: u32) -> Case {
        let mut client = TestClient::new(server, minor);
        let dir_name = format!("case-{}-{}", std::process::id(), unique());
        let base = server
            .base
            .iter()
            .fold(ops().root(), |o, name| o.lookup(name));
        let made = client.call(base.mkdir(&dir_name).getfh()).ok();
        let dir = made.handle();
        let device = specdata4 {
            specdata1: 8,
            specdata2: 1,
        };
        let kinds = [
            ("dir", createtype4::NF4DIR),
            ("link", createtype4::NF4LNK(Opaque(b"to/there"))),
            ("fifo", createtype4::NF4FIFO),
            ("sock", createtype4::NF4SOCK),
            ("blk", createtype4::NF4BLK(device)),
            ("chr", createtype4::NF4CHR(device)),
        ];
        for (name, kind) in kinds {
            let mode = Attributes::mode(0o755);
            client.call(ops().fh(&dir).create(kind, name, &mode)).ok();
        }
        let sub = client
            .call(ops().fh(&dir).lookup("dir").getfh())
            .ok()
            .handle();
        client.call(ops().fh(&sub).mkdir("in")).ok();
        let mut case = Case {
            server: server.clone(),
            client,
            minor,
            dir,
            file: Vec::new(),
        };
        case.file = case.make("file", CONTENT);
        case
    }

    /// Makes a file with this in it, closed; its handle.
    pub fn make(&mut self, name: &str, content: &[u8]) -> Vec<u8> {
        let owner = self.client.owner();
        let mode = Attributes::mode(0o644);
        let made = self.client.open_as(
            owner,
            &self.dir.clone(),
            name,
            (OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_NONE),
            unchecked(&mode),
        );
        let mut opened = made.expect("a file");
        let asked = ops().fh(&opened.handle);
        let write = asked.write(opened.stateid, 0, stable_how4::FILE_SYNC4, content);
        self.client.call(write).ok();
        self.client.close(&mut opened).ok();
        opened.handle
    }

    pub fn call(&mut self, asked: Ops) -> CompoundAnswer {
        self.client.call(asked)
    }

    /// The handle of something in the folder.
    pub fn handle(&mut self, name: &str) -> Vec<u8> {
        let asked = ops().fh(&self.dir).lookup(name).getfh();
        self.client.call(asked).ok().handle()
    }

    pub fn open(&mut self, name: &str, access: u32, deny: u32) -> OpenFile {
        let dir = self.dir.clone();
        self.client.open(&dir, name, access, deny)
    }
}
