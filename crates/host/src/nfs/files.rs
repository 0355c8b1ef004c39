//! Files and directories of a server.

use ::nfs::client::Slots;
use reactor::Driver;
use wire::nfs4::{
    COMMIT4args, COMMIT4resok, CREATE4args, FATTR4_MODE, GETATTR4args, LOOKUP4args,
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
    OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE, OPEN4args, OPEN4resok, PUTFH4args, READ4args,
    READ4resok, READDIR4args, READDIR4resok, REMOVE4args, WRITE4args, WRITE4resok, change_info4,
    createhow4, createtype4, creatverfattr, fattr4, nfs_argop4, nfs_fh4, nfs_opnum4, open_claim4,
    open_delegation4, openflag4, stable_how4, state_owner4, stateid4, verifier4,
};
use wire::xdr::{Encode, List, Opaque, Payload as Length};

use super::attributes::{ASKED, ASKED_OF_ENTRIES};
use super::client::Manner;
use super::{Attributes, Client, ClientError, Compound, Results, Wrong};
use crate::Payload;

/// Bytes of one answer to READDIR.
const READDIR_BYTES: u32 = 64 << 10;
/// What a READ or WRITE has beside its data: credential, SEQUENCE, handle.
const MESSAGE_BYTES_MAX: u32 = 1024;
/// Permission bits of what is made here.
const MODE: u32 = 0o644;
/// The same of directories.
const DIRECTORY_MODE: u32 = 0o755;

/// What a server calls an object by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handle(Box<[u8]>);

impl Handle {
    pub(super) fn new(bytes: &[u8]) -> Handle {
        Handle(bytes.into())
    }

    /// As it goes on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// Both.
    Both,
}

impl Access {
    pub(super) fn bits(self) -> u32 {
        match self {
            Access::Read => OPEN4_SHARE_ACCESS_READ,
            Access::Write => OPEN4_SHARE_ACCESS_WRITE,
            Access::Both => OPEN4_SHARE_ACCESS_BOTH,
        }
    }
}

/// Whether an OPEN makes the file (RFC 8881, section 18.16.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must be there.
    No,
    /// If it is not there.
    Unchecked,
    /// It must not be there.
    Guarded,
    /// It must not be there, but for one made with this verifier.
    Exclusive(verifier4),
}

/// An open file; its client knows the rest.
#[derive(Debug, PartialEq, Eq)]
pub struct Open {
    number: usize,
}

/// What a client knows of an open file.
#[derive(Clone, Debug)]
pub(super) struct ClientOpen {
    pub handle: Handle,
    pub access: Access,
    pub stateid: stateid4,
    pub has_delegation: bool,
}

/// The files that a client has open.
#[derive(Debug, Default)]
pub(super) struct Opens(Vec<Option<ClientOpen>>);

impl Opens {
    pub(super) fn at(&self, number: usize) -> &ClientOpen {
        self.0[number].as_ref().expect("an open file")
    }

    pub(super) fn set(&mut self, number: usize, stateid: stateid4) {
        let open = self.0[number].as_mut().expect("an open file");
        open.stateid = stateid;
        open.has_delegation = false;
    }

    pub(super) fn forget(&mut self, number: usize) {
        self.0[number] = None;
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        let all = self.0.iter().enumerate();
        all.filter_map(|(at, open)| open.is_some().then_some(at))
            .collect()
    }

    /// The number that the next has.
    fn next(&self) -> usize {
        let free = self.0.iter().position(Option::is_none);
        free.unwrap_or(self.0.len())
    }

    fn add(&mut self, open: ClientOpen) -> Open {
        let number = self.next();
        if number == self.0.len() {
            self.0.push(None);
        }
        self.0[number] = Some(open);
        Open { number }
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// Kind and fileid of what it names.
    pub attributes: Attributes,
}

fn putfh(compound: &mut Compound<'_>, handle: &Handle) {
    compound.op(&nfs_argop4::OP_PUTFH(PUTFH4args {
        object: Opaque(handle.as_bytes()),
    }));
}

/// GETFH, and what it found.
fn handle(results: &mut Results<'_>) -> Result<Handle, Wrong> {
    let found: nfs_fh4<'_> = results.take(nfs_opnum4::OP_GETFH)?;
    Ok(Handle::new(found.0))
}

/// The owner of an open file: of each another, so that state ids end one by one.
pub(super) fn owner(number: usize) -> Vec<u8> {
    format!("open {number}").into_bytes()
}

/// Attributes with only a mode.
fn with_mode(mode: u32, values: &mut Vec<u8>) -> fattr4<'_> {
    mode.encode(values);
    fattr4 {
        attrmask: List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
        attr_vals: Opaque(values),
    }
}

impl<D: Driver> Client<D> {
    /// The object behind names from the root of all exports on; symbolic links are
    /// not followed.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn lookup<'p>(
        &mut self,
        path: impl IntoIterator<Item = &'p str> + Clone,
    ) -> Result<Handle, ClientError> {
        self.call(
            Manner::PLAIN,
            |_, compound| {
                compound.op(&nfs_argop4::OP_PUTROOTFH);
                for name in path.clone() {
                    compound.op(&nfs_argop4::OP_LOOKUP(LOOKUP4args {
                        objname: Opaque(name.as_bytes()),
                    }));
                }
                compound.op(&nfs_argop4::OP_GETFH);
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTROOTFH)?;
                for _ in path.clone() {
                    results.done(nfs_opnum4::OP_LOOKUP)?;
                }
                handle(results)
            },
        )
    }

    /// GETATTR.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn attributes(&mut self, of: &Handle) -> Result<Attributes, ClientError> {
        self.call(
            Manner::PLAIN,
            |_, compound| {
                putfh(compound, of);
                compound.op(&nfs_argop4::OP_GETATTR(GETATTR4args {
                    attr_request: List::Of(ASKED),
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                let all: fattr4<'_> = results.take(nfs_opnum4::OP_GETATTR)?;
                Ok(Attributes::read(&all)?)
            },
        )
    }

    /// OPEN of `name` in a directory; the server may delegate the file where
    /// `takes_delegation`.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn open(
        &mut self,
        (directory, name): (&Handle, &str),
        (access, create): (Access, Create),
        takes_delegation: bool,
    ) -> Result<Open, ClientError> {
        let mut values = Vec::new();
        let attrs = with_mode(MODE, &mut values);
        let openhow = match create {
            Create::No => openflag4::OPEN4_NOCREATE,
            Create::Unchecked => openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(attrs)),
            Create::Guarded => openflag4::OPEN4_CREATE(createhow4::GUARDED4(attrs)),
            Create::Exclusive(cva_verf) => {
                openflag4::OPEN4_CREATE(createhow4::EXCLUSIVE4_1(creatverfattr {
                    cva_verf,
                    cva_attrs: attrs,
                }))
            }
        };
        let want = match (takes_delegation, access) {
            (true, Access::Read) => OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
            (true, _) => OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
            (false, _) => OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        };
        let owner = owner(self.opens.next());
        let clientid = self.clientid;
        let opened = self.call(
            Manner::ONCE,
            |_, compound| {
                putfh(compound, directory);
                compound.op(&nfs_argop4::OP_OPEN(OPEN4args {
                    seqid: 0,
                    share_access: access.bits() | want,
                    share_deny: OPEN4_SHARE_DENY_NONE,
                    owner: state_owner4 {
                        clientid,
                        owner: Opaque(&owner),
                    },
                    openhow,
                    claim: open_claim4::CLAIM_NULL(Opaque(name.as_bytes())),
                }));
                compound.op(&nfs_argop4::OP_GETFH);
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                let opened: OPEN4resok<'_> = results.take(nfs_opnum4::OP_OPEN)?;
                Ok(ClientOpen {
                    handle: handle(results)?,
                    access,
                    stateid: opened.stateid,
                    has_delegation: matches!(
                        opened.delegation,
                        open_delegation4::OPEN_DELEGATE_READ(_)
                            | open_delegation4::OPEN_DELEGATE_WRITE(_)
                    ),
                })
            },
        )?;
        Ok(self.opens.add(opened))
    }

    /// What the server calls an open file by.
    #[must_use]
    pub fn handle(&self, open: &Open) -> &Handle {
        &self.opens.at(open.number).handle
    }

    /// The state id of an open file.
    #[must_use]
    pub fn stateid(&self, open: &Open) -> stateid4 {
        self.opens.at(open.number).stateid
    }

    /// Whether the server has delegated it.
    #[must_use]
    pub fn has_delegation(&self, open: &Open) -> bool {
        self.opens.at(open.number).has_delegation
    }

    /// The minor version that the server was found to speak.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.params.minor
    }

    /// Bytes of one READ or WRITE at most, as far as messages of the session take
    /// them; files may have limits of their own.
    #[must_use]
    pub fn io_bytes_max(&self) -> u32 {
        let of_session = self.slots.as_ref().map_or(0, Slots::message_bytes_max);
        let most = of_session.saturating_sub(MESSAGE_BYTES_MAX);
        self.params.io_bytes_max.min(most)
    }

    /// `clientid4`, for owners of opens.
    #[must_use]
    pub fn clientid(&self) -> u64 {
        self.clientid
    }

    /// CLOSE.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn close_file(&mut self, open: Open) -> Result<(), ClientError> {
        self.close_number(open.number)
    }

    /// READ: how many bytes came, and whether the file ends behind them.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn read(
        &mut self,
        open: &Open,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(usize, bool), ClientError> {
        let count = into.len() as u32;
        let manner = Manner {
            data: Payload::In(into),
            is_once: false,
        };
        self.call(
            manner,
            |opens, compound| {
                let open = opens.at(open.number);
                putfh(compound, &open.handle);
                compound.op(&nfs_argop4::OP_READ(READ4args {
                    stateid: open.stateid,
                    offset,
                    count,
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                let read: READ4resok = results.take(nfs_opnum4::OP_READ)?;
                Ok((read.data.len as usize, read.eof))
            },
        )
    }

    /// WRITE: how many bytes were taken, how stable they are, and of which start
    /// of the server.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn write(
        &mut self,
        open: &Open,
        offset: u64,
        (bytes, stable): (&[u8], stable_how4),
    ) -> Result<WRITE4resok, ClientError> {
        let data = Length {
            len: bytes.len() as u32,
        };
        let manner = Manner {
            data: Payload::Out(bytes),
            is_once: false,
        };
        self.call(
            manner,
            |opens, compound| {
                let open = opens.at(open.number);
                putfh(compound, &open.handle);
                compound.op(&nfs_argop4::OP_WRITE(WRITE4args {
                    stateid: open.stateid,
                    offset,
                    stable,
                    data,
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                results.take(nfs_opnum4::OP_WRITE)
            },
        )
    }

    /// COMMIT of all that was written.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn commit(&mut self, file: &Handle) -> Result<verifier4, ClientError> {
        self.call(
            Manner::PLAIN,
            |_, compound| {
                putfh(compound, file);
                compound.op(&nfs_argop4::OP_COMMIT(COMMIT4args {
                    offset: 0,
                    count: 0,
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                let done: COMMIT4resok = results.take(nfs_opnum4::OP_COMMIT)?;
                Ok(done.writeverf)
            },
        )
    }

    /// CREATE of a directory.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn create_directory(&mut self, parent: &Handle, name: &str) -> Result<Handle, ClientError> {
        let mut values = Vec::new();
        let createattrs = with_mode(DIRECTORY_MODE, &mut values);
        self.call(
            Manner::ONCE,
            |_, compound| {
                putfh(compound, parent);
                compound.op(&nfs_argop4::OP_CREATE(CREATE4args {
                    objtype: createtype4::NF4DIR,
                    objname: Opaque(name.as_bytes()),
                    createattrs,
                }));
                compound.op(&nfs_argop4::OP_GETFH);
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                results.take::<wire::nfs4::CREATE4resok<'_>>(nfs_opnum4::OP_CREATE)?;
                handle(results)
            },
        )
    }

    /// REMOVE.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn remove(&mut self, parent: &Handle, name: &str) -> Result<change_info4, ClientError> {
        self.call(
            Manner::ONCE,
            |_, compound| {
                putfh(compound, parent);
                compound.op(&nfs_argop4::OP_REMOVE(REMOVE4args {
                    target: Opaque(name.as_bytes()),
                }));
            },
            |results| {
                results.done(nfs_opnum4::OP_PUTFH)?;
                results.take(nfs_opnum4::OP_REMOVE)
            },
        )
    }

    /// READDIR, until the end.
    ///
    /// # Errors
    /// Where the server refuses.
    pub fn entries(&mut self, directory: &Handle) -> Result<Vec<Entry>, ClientError> {
        let mut all = Vec::new();
        let (mut cookie, mut cookieverf) = (0, [0; 8]);
        let maxcount = READDIR_BYTES.min(self.params.io_bytes_max);
        loop {
            let args = READDIR4args {
                cookie,
                cookieverf,
                dircount: maxcount,
                maxcount,
                attr_request: List::Of(ASKED_OF_ENTRIES),
            };
            let (entries, verifier, is_end) = self.call(
                Manner::PLAIN,
                |_, compound| {
                    putfh(compound, directory);
                    compound.op(&nfs_argop4::OP_READDIR(args));
                },
                |results| {
                    results.done(nfs_opnum4::OP_PUTFH)?;
                    let found: READDIR4resok<'_> = results.take(nfs_opnum4::OP_READDIR)?;
                    let entries = found.entries.iter().map(|entry| {
                        let attributes = Attributes::read(&entry.attrs)?;
                        let name = entry.name.0.to_vec();
                        Ok((entry.cookie, Entry { name, attributes }))
                    });
                    let entries = entries.collect::<Result<Vec<_>, Wrong>>()?;
                    Ok((entries, found.cookieverf, found.eof))
                },
            )?;
            let last = entries.last().map(|(cookie, _)| *cookie);
            all.extend(entries.into_iter().map(|(_, entry)| entry));
            match last {
                _ if is_end => return Ok(all),
                Some(last) => (cookie, cookieverf) = (last, verifier),
                None => return Err(ClientError::Unusable("a directory without an end".into())),
            }
        }
    }

    /// SEQUENCE alone: renews the lease.
    ///
    /// # Errors
    /// Where the server does not answer.
    pub fn renew(&mut self) -> Result<(), ClientError> {
        self.call(Manner::PLAIN, |_, _| {}, |_| Ok(()))
    }
}
