//! What an NFS client asks for, as COMPOUNDs.

use std::ops::Range;

use host::nfs::Compound;
use nfs::client::{create_session, exchange_id};
use wire::nfs4::{
    BIND_CONN_TO_SESSION4args, CLOSE4args, COMMIT4args, CREATE4args, DELEGRETURN4args,
    DESTROY_CLIENTID4args, DESTROY_SESSION4args, FATTR4_CHANGE, FATTR4_FILEID, FATTR4_MODE,
    FATTR4_SIZE, FATTR4_TYPE, GETATTR4args, LOCK4args, LOCKU4args, LOOKUP4args,
    OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION, OPEN4args, PUTFH4args, READ4args,
    RECLAIM_COMPLETE4args, REMOVE4args, RENAME4args, SETATTR4args, WRITE4args,
    channel_dir_from_client4, createhow4, createtype4, creatverfattr, fattr4, locker4, nfs_argop4,
    nfs_lock_type4, open_claim4, open_delegation_type4, open_to_lock_owner4, openflag4,
    stable_how4, state_owner4, stateid4,
};
use wire::xdr::{Encode, List, Opaque, Payload};

use super::DELEGATED;
use super::client::CHANNELS;
use super::had::{FileView, SimIdentity};

/// The state id that an operation before has left (RFC 8881, section 16.2.3.1.2).
const CURRENT: stateid4 = stateid4 {
    seqid: 1,
    other: [0; 12],
};

/// A file handle.
pub type SimHandle = Vec<u8>;

/// What is made in a client's own directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    Guarded,
    Exclusive(u64),
    Directory,
}

/// What is opened, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenShare {
    pub file: usize,
    pub access: u32,
    pub deny: u32,
    pub wants: bool,
    /// Names the owner.
    pub owner: u64,
}

/// A byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range4 {
    pub file: usize,
    /// First byte and last byte.
    pub first: u64,
    pub last: u64,
    pub is_exclusive: bool,
    /// Names the owner.
    pub owner: u64,
}

impl Range4 {
    /// Offset and length, which is all ones where it has no end.
    fn extent(&self) -> (u64, u64) {
        let length = match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        };
        (self.first, length)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    Exchange,
    Session,
    Bind,
    Complete,
    Root,
    MakeHome,
    FindHome,
    Open(OpenShare),
    /// Of an open file, by its place among those of the client.
    Reclaim(usize),
    /// Of a lock, likewise.
    ReclaimLock(usize),
    Read(usize, Range<usize>),
    Write {
        file: usize,
        blocks: Range<usize>,
        value: u32,
        is_stable: bool,
    },
    Commit(usize),
    Make(usize, New),
    Remove(usize),
    Rename(usize, usize),
    Look(usize),
    Lock(Range4),
    /// A lock with an offset and a length that make no range.
    LockWrongly(Range4, (u64, u64)),
    /// Gives up a lock, or all of it behind a byte.
    Unlock {
        at: usize,
        keeps: Option<u64>,
    },
    Close(usize),
    /// Tells the server what is known by a delegation alone.
    Flush(usize),
    Return(usize),
    /// Looks at the size of the file that may be delegated.
    Size,
    /// Looks into the export that takes TLS alone.
    Secured,
    Renew,
    DestroySession,
    DestroyClient,
}

impl Ask {
    /// Whether it is in a slot of a session.
    pub fn has_slot(&self) -> bool {
        !matches!(
            self,
            Ask::Exchange | Ask::Session | Ask::Bind | Ask::DestroySession | Ask::DestroyClient
        )
    }

    /// Whether it waits until its client is live.
    pub fn is_ordinary(&self) -> bool {
        matches!(
            self,
            Ask::Read(..)
                | Ask::Write { .. }
                | Ask::Commit(_)
                | Ask::Make(..)
                | Ask::Remove(_)
                | Ask::Rename(..)
                | Ask::Look(_)
                | Ask::Lock(_)
                | Ask::LockWrongly(..)
                | Ask::Secured
                | Ask::Size
                | Ask::Renew
        )
    }

    /// Whether it must not be executed twice: its answer is to be kept.
    pub fn is_once(&self) -> bool {
        !matches!(
            self,
            Ask::Read(..)
                | Ask::Write { .. }
                | Ask::Commit(_)
                | Ask::Look(_)
                | Ask::Root
                | Ask::FindHome
                | Ask::Secured
                | Ask::Size
                | Ask::Renew
        )
    }
}

fn owner(clientid: u64, bytes: &[u8; 8]) -> state_owner4<'_> {
    state_owner4 {
        clientid,
        owner: Opaque(bytes),
    }
}

fn kind_of(is_exclusive: bool) -> nfs_lock_type4 {
    match is_exclusive {
        true => nfs_lock_type4::WRITE_LT,
        false => nfs_lock_type4::READ_LT,
    }
}

fn putfh(to: &mut Compound<'_>, handle: &SimHandle) {
    to.op(&nfs_argop4::OP_PUTFH(PUTFH4args {
        object: Opaque(handle),
    }));
}

fn getattr(to: &mut Compound<'_>) {
    let asked = [1 << FATTR4_TYPE | 1 << FATTR4_FILEID];
    to.op(&nfs_argop4::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&asked),
    }));
}

/// What a [`FileView`] has.
const VIEW: [u32; 1] = [1 << FATTR4_CHANGE | 1 << FATTR4_SIZE];

/// Appends its attributes.
pub fn write_view(view: &FileView, to: &mut Vec<u8>) {
    let values = [view.change.to_be_bytes(), view.size.to_be_bytes()].concat();
    fattr4 {
        attrmask: List::Of(&VIEW),
        attr_vals: Opaque(&values),
    }
    .encode(to);
}

fn get_view(to: &mut Compound<'_>) {
    to.op(&nfs_argop4::OP_GETATTR(GETATTR4args {
        attr_request: List::Of(&VIEW),
    }));
}

/// Attributes with only a mode.
fn mode(bits: u32, values: &mut Vec<u8>) -> fattr4<'_> {
    bits.encode(values);
    fattr4 {
        attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
        attr_vals: Opaque(values),
    }
}

/// The name of a shared file.
fn file_name(file: usize) -> [u8; 2] {
    [b'f', b'0' + file as u8]
}

/// The name of something in a client's directory.
fn own_name(name: usize) -> [u8; 2] {
    [b'n', b'0' + name as u8]
}

/// Writes what comes behind SEQUENCE.
pub fn write(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    match ask {
        Ask::Exchange => {
            let name = of.name();
            to.op(&nfs_argop4::OP_EXCHANGE_ID(exchange_id(
                of.verifier(),
                &name,
            )));
        }
        Ask::Session => {
            let channels = nfs::client::Channels {
                slots: of.slots,
                ..CHANNELS
            };
            let args = create_session(of.clientid, of.sequence, &channels);
            to.op(&nfs_argop4::OP_CREATE_SESSION(args));
        }
        Ask::Bind => {
            to.op(&nfs_argop4::OP_BIND_CONN_TO_SESSION(
                BIND_CONN_TO_SESSION4args {
                    bctsa_sessid: of.session,
                    bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
                    bctsa_use_conn_in_rdma_mode: false,
                },
            ));
        }
        Ask::Complete => {
            let args = RECLAIM_COMPLETE4args { rca_one_fs: false };
            to.op(&nfs_argop4::OP_RECLAIM_COMPLETE(args));
        }
        Ask::Root | Ask::Secured | Ask::FindHome | Ask::MakeHome => write_way(ask, of, to),
        Ask::DestroySession => {
            let args = DESTROY_SESSION4args {
                dsa_sessionid: of.session,
            };
            to.op(&nfs_argop4::OP_DESTROY_SESSION(args));
        }
        Ask::DestroyClient => {
            let args = DESTROY_CLIENTID4args {
                dca_clientid: of.clientid,
            };
            to.op(&nfs_argop4::OP_DESTROY_CLIENTID(args));
        }
        Ask::Renew => {}
        Ask::Open(_) | Ask::Reclaim(_) | Ask::Close(_) => write_open(ask, of, to),
        Ask::Flush(_) | Ask::Return(_) | Ask::Size => write_delegated(ask, of, to),
        Ask::Lock(_) | Ask::LockWrongly(..) | Ask::ReclaimLock(_) | Ask::Unlock { .. } => {
            write_lock(ask, of, to);
        }
        Ask::Read(..) | Ask::Write { .. } | Ask::Commit(_) => write_io(ask, of, to),
        Ask::Make(..) | Ask::Remove(_) | Ask::Rename(..) | Ask::Look(_) => {
            write_name(ask, of, to);
        }
    }
}

/// From the root, or from that of the files, to where a client works.
fn write_way(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    match ask {
        Ask::Root => {
            to.op(&nfs_argop4::OP_PUTROOTFH);
            lookup(to, b"files");
            to.op(&nfs_argop4::OP_GETFH);
        }
        Ask::Secured => {
            to.op(&nfs_argop4::OP_PUTROOTFH);
            lookup(to, b"secured");
            getattr(to);
        }
        Ask::FindHome => {
            putfh(to, &of.root);
            lookup(to, &of.name());
            to.op(&nfs_argop4::OP_GETFH);
        }
        Ask::MakeHome => {
            putfh(to, &of.root);
            make_directory(to, &of.name());
        }
        _ => unreachable!("no way"),
    }
}

fn lookup(to: &mut Compound<'_>, name: &[u8]) {
    to.op(&nfs_argop4::OP_LOOKUP(LOOKUP4args {
        objname: Opaque(name),
    }));
}

fn make_directory(to: &mut Compound<'_>, name: &[u8]) {
    let mut values = Vec::new();
    to.op(&nfs_argop4::OP_CREATE(CREATE4args {
        objtype: createtype4::NF4DIR,
        objname: Opaque(name),
        createattrs: mode(0o755, &mut values),
    }));
}

fn open(
    to: &mut Compound<'_>,
    of: &SimIdentity,
    share: &OpenShare,
    how: (openflag4<'_>, open_claim4<'_>),
) {
    // Some owners want a delegation instead of the open, others one beside it.
    let want = match (share.wants, share.owner % 2) {
        (true, 0) => {
            OPEN4_SHARE_ACCESS_WANT_ANY_DELEG | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION
        }
        (true, _) => OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
        (false, _) => OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    };
    to.op(&nfs_argop4::OP_OPEN(OPEN4args {
        seqid: 0,
        share_access: share.access | want,
        share_deny: share.deny,
        owner: owner(of.clientid, &share.owner.to_be_bytes()),
        openhow: how.0,
        claim: how.1,
    }));
}

fn write_open(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    match ask {
        Ask::Open(share) => {
            putfh(to, &of.root);
            let mut values = Vec::new();
            let attrs = mode(0o644, &mut values);
            // An OPEN that makes a file is given no delegation.
            let how = match share.wants {
                true => openflag4::OPEN4_NOCREATE,
                false => openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(attrs)),
            };
            let name = file_name(share.file);
            open(to, of, share, (how, open_claim4::CLAIM_NULL(Opaque(&name))));
            to.op(&nfs_argop4::OP_GETFH);
            get_view(to);
        }
        Ask::Reclaim(at) => {
            let opened = of.opens[*at].as_ref().expect("it is open");
            putfh(to, &opened.handle);
            let share = OpenShare {
                wants: false,
                ..opened.share
            };
            let claim = open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE);
            open(to, of, &share, (openflag4::OPEN4_NOCREATE, claim));
        }
        Ask::Close(at) => {
            let opened = of.opens[*at].as_ref().expect("it is open");
            putfh(to, &opened.handle);
            to.op(&nfs_argop4::OP_CLOSE(CLOSE4args {
                seqid: 0,
                open_stateid: opened.stateid,
            }));
        }
        _ => unreachable!("not of opens"),
    }
}

fn write_delegated(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    let (Ask::Flush(at) | Ask::Return(at)) = ask else {
        putfh(to, &of.root);
        lookup(to, &file_name(DELEGATED));
        return get_view(to);
    };
    let delegation = of.delegations[*at].as_ref().expect("it is there");
    putfh(to, &delegation.handle);
    let (stateid, size) = (delegation.stateid, delegation.size);
    match (ask, size.map(u64::to_be_bytes)) {
        (Ask::Flush(_), Some(size)) => to.op(&nfs_argop4::OP_SETATTR(SETATTR4args {
            stateid,
            obj_attributes: fattr4 {
                attrmask: List::Of(&[1 << FATTR4_SIZE]),
                attr_vals: Opaque(&size),
            },
        })),
        _ => to.op(&nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args {
            deleg_stateid: stateid,
        })),
    };
}

fn write_lock(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    if let Ask::Unlock { at, keeps } = ask {
        let held = of.locks[*at].as_ref().expect("it is held");
        putfh(to, of.handle(held.range.file));
        let first = keeps.map_or(held.range.first, |keeps| keeps + 1);
        let (offset, length) = Range4 {
            first,
            ..held.range
        }
        .extent();
        to.op(&nfs_argop4::OP_LOCKU(LOCKU4args {
            locktype: kind_of(held.range.is_exclusive),
            seqid: 0,
            lock_stateid: held.stateid,
            offset,
            length,
        }));
        return;
    }
    let (range, reclaim) = match ask {
        Ask::Lock(range) | Ask::LockWrongly(range, _) => (*range, false),
        Ask::ReclaimLock(at) => (of.locks[*at].as_ref().expect("it is held").range, true),
        _ => unreachable!("not of locks"),
    };
    let (offset, length) = match ask {
        Ask::LockWrongly(_, extent) => *extent,
        _ => range.extent(),
    };
    putfh(to, of.handle(range.file));
    to.op(&nfs_argop4::OP_LOCK(LOCK4args {
        locktype: kind_of(range.is_exclusive),
        reclaim,
        offset,
        length,
        locker: locker4::TRUE(open_to_lock_owner4 {
            open_seqid: 0,
            open_stateid: of.stateid(range.file),
            lock_seqid: 0,
            lock_owner: owner(of.clientid, &range.owner.to_be_bytes()),
        }),
    }));
}

fn write_io(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    let len = of.block_bytes as u64;
    match ask {
        Ask::Read(file, blocks) => {
            putfh(to, of.handle(*file));
            to.op(&nfs_argop4::OP_READ(READ4args {
                stateid: of.stateid(*file),
                offset: blocks.start as u64 * len,
                count: (blocks.len() * of.block_bytes) as u32,
            }));
        }
        Ask::Write {
            file,
            blocks,
            is_stable,
            ..
        } => {
            putfh(to, of.handle(*file));
            to.op(&nfs_argop4::OP_WRITE(WRITE4args {
                stateid: of.stateid(*file),
                offset: blocks.start as u64 * len,
                stable: match is_stable {
                    true => stable_how4::FILE_SYNC4,
                    false => stable_how4::UNSTABLE4,
                },
                data: Payload {
                    len: (blocks.len() * of.block_bytes) as u32,
                },
            }));
        }
        Ask::Commit(file) => {
            putfh(to, of.handle(*file));
            to.op(&nfs_argop4::OP_COMMIT(COMMIT4args {
                offset: 0,
                count: 0,
            }));
        }
        _ => unreachable!("not of content"),
    }
}

fn write_name(ask: &Ask, of: &SimIdentity, to: &mut Compound<'_>) {
    putfh(to, &of.home);
    match ask {
        Ask::Make(name, New::Directory) => {
            make_directory(to, &own_name(*name));
            getattr(to);
        }
        Ask::Make(name, new) => {
            let mut values = Vec::new();
            let attrs = mode(0o644, &mut values);
            let how = match new {
                New::Exclusive(verifier) => createhow4::EXCLUSIVE4_1(creatverfattr {
                    cva_verf: verifier.to_be_bytes(),
                    cva_attrs: attrs,
                }),
                _ => createhow4::GUARDED4(attrs),
            };
            let name = own_name(*name);
            let share = OpenShare {
                file: 0,
                access: 3,
                deny: 0,
                wants: false,
                owner: u64::MAX - u64::from(name[1]),
            };
            let claim = open_claim4::CLAIM_NULL(Opaque(&name));
            open(to, of, &share, (openflag4::OPEN4_CREATE(how), claim));
            to.op(&nfs_argop4::OP_CLOSE(CLOSE4args {
                seqid: 0,
                open_stateid: CURRENT,
            }));
            getattr(to);
        }
        Ask::Remove(name) => {
            let name = own_name(*name);
            to.op(&nfs_argop4::OP_REMOVE(REMOVE4args {
                target: Opaque(&name),
            }));
        }
        Ask::Rename(from, into) => {
            to.op(&nfs_argop4::OP_SAVEFH);
            let (from, into) = (own_name(*from), own_name(*into));
            to.op(&nfs_argop4::OP_RENAME(RENAME4args {
                oldname: Opaque(&from),
                newname: Opaque(&into),
            }));
        }
        Ask::Look(name) => {
            lookup(to, &own_name(*name));
            getattr(to);
        }
        _ => unreachable!("not of names"),
    }
}
