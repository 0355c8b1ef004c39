//! What an NFSv3 call asks for: arguments in one form for all procedures.

use store::fs::{New, Removable, SetAttr, Time};
use wire::nfs3::{
    ACCESS3args, COMMIT3args, CREATE3args, GETACL3args, GETATTR3args, LINK3args, LOOKUP3args,
    MKDIR3args, MKNOD3args, READ3args, READDIR3args, READDIRPLUS3args, REMOVE3args, RENAME3args,
    SETACL3args, SETATTR3args, SYMLINK3args, WRITE3args, diropargs3, nfs_proc3, nfsacl_proc3,
    nfsstat3, secattr3, stable_how,
};
use wire::xdr::{Decode, Reader, XdrError};

use super::convert;

/// A directory by its handle, and a name in it.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) dir: &'a [u8],
    pub(super) name: &'a [u8],
}

impl<'a> From<diropargs3<'a>> for Named<'a> {
    fn from(args: diropargs3<'a>) -> Named<'a> {
        Named {
            dir: args.dir.0,
            name: args.name.0,
        }
    }
}

/// What READDIR and READDIRPLUS ask for.
#[derive(Clone, Copy)]
pub(super) struct Readdir {
    pub(super) cookie: u64,
    pub(super) verifier: [u8; 8],
    /// Bytes of names, ids and cookies at most.
    pub(super) entry_bytes_max: u32,
    /// Bytes of the results at most.
    pub(super) bytes_max: u32,
    /// With attributes and handles.
    pub(super) is_plus: bool,
}

/// A procedure of NFSv3 or of NFSACL beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum V3Procedure {
    Nfs(nfs_proc3),
    Acl(nfsacl_proc3),
}

impl V3Procedure {
    /// Different for each.
    pub(super) fn number(self) -> u32 {
        match self {
            V3Procedure::Nfs(procedure) => procedure as u32,
            V3Procedure::Acl(procedure) => 1 << 16 | procedure as u32,
        }
    }
}

/// A call by what it asks for.
pub(super) enum V3Asked<'a> {
    /// GETATTR, FSSTAT, FSINFO, PATHCONF, READLINK.
    Of(&'a [u8]),
    Setattr(&'a [u8], SetAttr, Option<Time>),
    /// GETACL, and which lists it wants.
    GetAcl(&'a [u8], u32),
    SetAcl(&'a [u8], secattr3<'a>),
    Lookup(Named<'a>),
    Access(&'a [u8], u32),
    Read {
        file: &'a [u8],
        offset: u64,
        count: u32,
    },
    Write {
        file: &'a [u8],
        offset: u64,
        count: u32,
        stable: stable_how,
    },
    /// CREATE, MKDIR, SYMLINK, MKNOD; `None`: of a kind that MKNOD does not make.
    Create(Named<'a>, Option<(New<'a>, SetAttr)>),
    /// REMOVE, RMDIR.
    Remove(Named<'a>, Removable),
    Rename(Named<'a>, Named<'a>),
    Link(&'a [u8], Named<'a>),
    Readdir(&'a [u8], Readdir),
    Commit(&'a [u8]),
}

fn read<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, XdrError> {
    T::decode(&mut Reader::new(bytes))
}

impl<'a> V3Asked<'a> {
    /// The arguments of a procedure. What follows them means nothing.
    pub(super) fn read(procedure: V3Procedure, bytes: &'a [u8]) -> Result<V3Asked<'a>, XdrError> {
        use nfs_proc3::*;
        let procedure = match procedure {
            V3Procedure::Nfs(procedure) => procedure,
            V3Procedure::Acl(procedure) => return V3Asked::read_acl(procedure, bytes),
        };
        Ok(match procedure {
            NFSPROC3_NULL => unreachable!("the connection answers it"),
            NFSPROC3_GETATTR | NFSPROC3_READLINK | NFSPROC3_FSSTAT | NFSPROC3_FSINFO
            | NFSPROC3_PATHCONF => V3Asked::Of(read::<GETATTR3args<'_>>(bytes)?.object.0),
            NFSPROC3_SETATTR => {
                let args: SETATTR3args<'_> = read(bytes)?;
                let set = convert::set_attr(&args.new_attributes);
                V3Asked::Setattr(args.object.0, set, convert::guard(args.guard))
            }
            NFSPROC3_LOOKUP => V3Asked::Lookup(read::<LOOKUP3args<'_>>(bytes)?.what.into()),
            NFSPROC3_ACCESS => {
                let args: ACCESS3args<'_> = read(bytes)?;
                V3Asked::Access(args.object.0, args.access)
            }
            NFSPROC3_READ => {
                let args: READ3args<'_> = read(bytes)?;
                V3Asked::Read {
                    file: args.file.0,
                    offset: args.offset,
                    count: args.count,
                }
            }
            NFSPROC3_WRITE => {
                let args: WRITE3args<'_> = read(bytes)?;
                V3Asked::Write {
                    file: args.file.0,
                    offset: args.offset,
                    count: args.count,
                    stable: args.stable,
                }
            }
            NFSPROC3_CREATE | NFSPROC3_MKDIR | NFSPROC3_SYMLINK | NFSPROC3_MKNOD => {
                V3Asked::read_new(procedure, bytes)?
            }
            NFSPROC3_REMOVE => V3Asked::Remove(
                read::<REMOVE3args<'_>>(bytes)?.object.into(),
                Removable::NotDirectory,
            ),
            NFSPROC3_RMDIR => V3Asked::Remove(
                read::<REMOVE3args<'_>>(bytes)?.object.into(),
                Removable::Directory,
            ),
            NFSPROC3_RENAME => {
                let args: RENAME3args<'_> = read(bytes)?;
                V3Asked::Rename(args.from.into(), args.to.into())
            }
            NFSPROC3_LINK => {
                let args: LINK3args<'_> = read(bytes)?;
                V3Asked::Link(args.file.0, args.link.into())
            }
            NFSPROC3_READDIR | NFSPROC3_READDIRPLUS => V3Asked::read_dir(procedure, bytes)?,
            NFSPROC3_COMMIT => V3Asked::Commit(read::<COMMIT3args<'_>>(bytes)?.file.0),
        })
    }

    fn read_acl(procedure: nfsacl_proc3, bytes: &'a [u8]) -> Result<V3Asked<'a>, XdrError> {
        Ok(match procedure {
            nfsacl_proc3::ACLPROC3_NULL => unreachable!("the connection answers it"),
            nfsacl_proc3::ACLPROC3_GETACL => {
                let args: GETACL3args<'_> = read(bytes)?;
                V3Asked::GetAcl(args.fh.0, args.mask)
            }
            nfsacl_proc3::ACLPROC3_SETACL => {
                let args: SETACL3args<'_> = read(bytes)?;
                V3Asked::SetAcl(args.fh.0, args.acl)
            }
        })
    }

    fn read_new(procedure: nfs_proc3, bytes: &'a [u8]) -> Result<V3Asked<'a>, XdrError> {
        Ok(match procedure {
            nfs_proc3::NFSPROC3_CREATE => {
                let args: CREATE3args<'_> = read(bytes)?;
                V3Asked::Create(args.where_.into(), Some(convert::created(&args.how)))
            }
            nfs_proc3::NFSPROC3_MKDIR => {
                let args: MKDIR3args<'_> = read(bytes)?;
                let set = convert::set_attr(&args.attributes);
                V3Asked::Create(args.where_.into(), Some((New::Directory, set)))
            }
            nfs_proc3::NFSPROC3_SYMLINK => {
                let args: SYMLINK3args<'_> = read(bytes)?;
                let set = convert::set_attr(&args.symlink_attributes);
                let new = New::Symlink(args.symlink_data.0);
                V3Asked::Create(args.where_.into(), Some((new, set)))
            }
            _ => {
                let args: MKNOD3args<'_> = read(bytes)?;
                V3Asked::Create(args.where_.into(), convert::node(&args.what))
            }
        })
    }

    fn read_dir(procedure: nfs_proc3, bytes: &'a [u8]) -> Result<V3Asked<'a>, XdrError> {
        Ok(match procedure {
            nfs_proc3::NFSPROC3_READDIR => {
                let args: READDIR3args<'_> = read(bytes)?;
                let readdir = Readdir {
                    cookie: args.cookie,
                    verifier: args.cookieverf,
                    entry_bytes_max: args.count,
                    bytes_max: args.count,
                    is_plus: false,
                };
                V3Asked::Readdir(args.dir.0, readdir)
            }
            _ => {
                let args: READDIRPLUS3args<'_> = read(bytes)?;
                let readdir = Readdir {
                    cookie: args.cookie,
                    verifier: args.cookieverf,
                    entry_bytes_max: args.dircount,
                    bytes_max: args.maxcount,
                    is_plus: true,
                };
                V3Asked::Readdir(args.dir.0, readdir)
            }
        })
    }

    /// The handles of what it is about: the object, or the directory, first.
    pub(super) fn handles(&self) -> (&'a [u8], Option<&'a [u8]>) {
        match *self {
            V3Asked::Of(file)
            | V3Asked::Setattr(file, ..)
            | V3Asked::GetAcl(file, _)
            | V3Asked::SetAcl(file, _)
            | V3Asked::Access(file, _)
            | V3Asked::Read { file, .. }
            | V3Asked::Write { file, .. }
            | V3Asked::Readdir(file, _)
            | V3Asked::Commit(file) => (file, None),
            V3Asked::Lookup(named) | V3Asked::Create(named, _) | V3Asked::Remove(named, _) => {
                (named.dir, None)
            }
            V3Asked::Rename(from, to) => (from.dir, Some(to.dir)),
            V3Asked::Link(file, named) => (file, Some(named.dir)),
        }
    }

    /// The name that it says for the directory that is its object `at`.
    pub(super) fn name(&self, at: usize) -> &'a [u8] {
        match (self, at) {
            (V3Asked::Lookup(named) | V3Asked::Create(named, _) | V3Asked::Remove(named, _), _) => {
                named.name
            }
            (V3Asked::Rename(from, _), 0) => from.name,
            (V3Asked::Rename(_, to), _) => to.name,
            (V3Asked::Link(_, named), _) => named.name,
            _ => b"",
        }
    }

    /// How `.` and `..` are refused where a name should be (RFC 1813, sections
    /// 3.3.8 to 3.3.15).
    pub(super) fn dots(&self) -> nfsstat3 {
        match self {
            V3Asked::Create(..) | V3Asked::Link(..) => nfsstat3::NFS3ERR_EXIST,
            V3Asked::Remove(named, Removable::Directory) if named.name == b".." => {
                nfsstat3::NFS3ERR_EXIST
            }
            _ => nfsstat3::NFS3ERR_INVAL,
        }
    }
}
