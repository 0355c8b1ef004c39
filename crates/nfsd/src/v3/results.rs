//! What an NFSv3 call is answered.

use nfs::connection::Reply;
use store::fs::{Attr, ChangeInfo, FileId, FsOp, Listing, Output};
use wire::nfs3::{
    self, ACCESS3res, ACCESS3resok, COMMIT3res, COMMIT3resok, CREATE3res, CREATE3resok, FSINFO3res,
    FSINFO3resok, FSSTAT3res, FSSTAT3resok, GETACL3res, GETATTR3res, LINK3res, LOOKUP3res,
    LOOKUP3resok, PATHCONF3res, PATHCONF3resok, READ3res, READ3resok, READDIR3res, READLINK3res,
    READLINK3resok, RENAME3res, SETACL3res, WCC3res, WRITE3res, WRITE3resok, fattr3, nfs_fh3,
    nfs_proc3, nfsstat3, nfstime3, stable_how, wcc_data,
};
use wire::xdr::{Encode, Opaque, Payload, pad};

use super::acl;
use super::args::{Readdir, V3Asked, V3Procedure};
use super::call::V3CallState;
use super::convert;
use crate::answers::{self, ENTRIES_MAX};
use crate::attributes::told_access;
use crate::handle::Handle;
use crate::{Granted, NfsdSettings};
use store::counters;

/// Bytes of a directory in one answer at most.
pub(super) const READDIR_BYTES_MAX: u32 = 256 << 10;
/// Bytes of READDIR's results beside its entries: attributes, verifier, and what
/// says that there are no more.
const READDIR_BYTES: u32 = 88 + 8 + 8;
/// Bytes of an entry beside its name: that there is one, id, length, cookie.
const ENTRY_BYTES: u32 = 24;
/// Bytes that READDIRPLUS adds: attributes and a file handle.
const PLUS_BYTES: u32 = 88 + 8 + Handle::BYTES as u32;
/// Cookies of the first two entries, which are none of the file system's.
pub(super) const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

/// Appends the results of a call that has gone through its steps.
pub(super) fn write(
    call: &V3CallState,
    asked: &V3Asked<'_>,
    granted: Option<Granted<'_>>,
    settings: &NfsdSettings,
    reply: &mut Reply,
) {
    let answer = V3Answer {
        call,
        granted,
        fsid: granted.map_or(0, |granted| {
            let (major, minor) = granted.export.fsid();
            major ^ minor.rotate_left(32)
        }),
    };
    let to = reply.bytes();
    match *asked {
        V3Asked::Of(_) => answer.about_object(settings, reply),
        V3Asked::Setattr(..) | V3Asked::Remove(..) => WCC3res {
            status: call.status,
            wcc: answer.wcc(0),
        }
        .encode(to),
        V3Asked::GetAcl(_, mask) => answer.get_acl(mask, to),
        V3Asked::SetAcl(..) => SETACL3res {
            status: call.status,
            attr: answer.after(0),
        }
        .encode(to),
        V3Asked::Lookup(_) => answer.lookup(to),
        V3Asked::Access(_, asked) => answer.access(asked, to),
        V3Asked::Read { offset, .. } => answer.read(offset, reply),
        V3Asked::Write { .. } => answer.write(to),
        V3Asked::Create(..) => answer.create(to),
        V3Asked::Rename(..) => RENAME3res {
            status: call.status,
            fromdir_wcc: answer.wcc(0),
            todir_wcc: answer.wcc(1),
        }
        .encode(to),
        V3Asked::Link(..) => LINK3res {
            status: call.status,
            file_attributes: answer.after(0),
            linkdir_wcc: answer.wcc(1),
        }
        .encode(to),
        V3Asked::Readdir(_, ref args) => answer.readdir(args, to),
        V3Asked::Commit(_) => answer.commit(to),
    }
}

/// Entries that READDIR and READDIRPLUS ask for, and bytes of all their names.
fn listing_max(args: &Readdir) -> (u32, u32) {
    let bytes = args.bytes_max.min(READDIR_BYTES_MAX);
    let entries = bytes / entry_bytes(1, args.is_plus);
    (entries.clamp(1, ENTRIES_MAX), bytes)
}

/// Bytes of memory that the answer to READDIR or READDIRPLUS takes at most.
pub(super) fn listing_bytes(args: &Readdir) -> u32 {
    let (entries, bytes) = listing_max(args);
    answers::listing_bytes(entries, bytes)
}

/// What is asked for READDIR and READDIRPLUS.
pub(super) fn readdir(dir: FileId, args: &Readdir) -> FsOp<'static> {
    let (entries_max, name_bytes_max) = listing_max(args);
    FsOp::Readdir {
        dir,
        cookie: if args.cookie <= DOT_DOT {
            0
        } else {
            args.cookie
        },
        verifier: u64::from_be_bytes(args.verifier),
        entries_max,
        name_bytes_max,
        with_attrs: args.is_plus,
    }
}

fn entry_bytes(name_len: usize, is_plus: bool) -> u32 {
    let name = (name_len + pad(name_len)) as u32;
    ENTRY_BYTES + name + if is_plus { PLUS_BYTES } else { 0 }
}

struct V3Answer<'a> {
    call: &'a V3CallState,
    granted: Option<Granted<'a>>,
    fsid: u64,
}

/// A procedure that succeeded has what it was about.
const KNOWN: &str = "known where the call succeeded";

impl V3Answer<'_> {
    fn attr(&self, attr: &Attr) -> fattr3 {
        convert::fattr(attr, self.fsid)
    }

    fn after(&self, at: usize) -> Option<fattr3> {
        self.call.after[at].as_ref().map(|attr| self.attr(attr))
    }

    fn is_ok(&self) -> bool {
        self.call.status == nfsstat3::NFS3_OK
    }

    /// What became of an object.
    fn wcc(&self, at: usize) -> wcc_data {
        let (before, after) = (&self.call.before[at], &self.call.after[at]);
        let is_one_step = match (before, after) {
            (Some(before), Some(after)) => self.is_one_step(at, before, after),
            _ => false,
        };
        convert::wcc(before.as_ref(), self.after(at), is_one_step)
    }

    /// Whether no other call has changed an object meanwhile.
    fn is_one_step(&self, at: usize, before: &Attr, after: &Attr) -> bool {
        let is = |change: &ChangeInfo| {
            change.is_atomic && (change.before, change.after) == (before.change, after.change)
        };
        match &self.call.output {
            Some(Output::Created { change, .. } | Output::Removed { change, .. }) => is(change),
            Some(Output::Change(change)) => is(change),
            Some(Output::Renamed { from, to, .. }) => is(if at == 0 { from } else { to }),
            Some(Output::Attr(_) | Output::Written(_)) => {
                after.change.wrapping_sub(before.change) <= 1
            }
            _ => after.change == before.change,
        }
    }

    fn handle(&self, file: FileId) -> Option<[u8; Handle::BYTES]> {
        let granted = self.granted?;
        Some(granted.handle(file).encode())
    }

    /// GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF.
    fn about_object(&self, settings: &NfsdSettings, reply: &mut Reply) {
        let call = self.call;
        let to = reply.bytes();
        let V3Procedure::Nfs(procedure) = call.procedure else {
            unreachable!("lists are asked for by their own");
        };
        match (procedure, &call.output) {
            (nfs_proc3::NFSPROC3_GETATTR, _) => match self.after(0) {
                Some(attr) if self.is_ok() => GETATTR3res::NFS3_OK(attr).encode(to),
                _ => GETATTR3res::default(call.status).encode(to),
            },
            (nfs_proc3::NFSPROC3_READLINK, Some(Output::Bytes(text))) if self.is_ok() => {
                READLINK3res::NFS3_OK(READLINK3resok {
                    symlink_attributes: self.after(0),
                    data: Opaque(text),
                })
                .encode(to);
                reply.data_item_behind(text.len() as u32);
            }
            (nfs_proc3::NFSPROC3_FSSTAT, Some(Output::Statfs(stat))) if self.is_ok() => {
                FSSTAT3res::NFS3_OK(FSSTAT3resok {
                    obj_attributes: self.after(0),
                    tbytes: stat.bytes,
                    fbytes: stat.bytes_free,
                    abytes: stat.bytes_free,
                    tfiles: stat.files,
                    ffiles: stat.files_free,
                    afiles: stat.files_free,
                    invarsec: 0,
                })
                .encode(to);
            }
            (nfs_proc3::NFSPROC3_FSINFO, _) if self.is_ok() => {
                FSINFO3res::NFS3_OK(self.fsinfo(settings)).encode(to);
            }
            (nfs_proc3::NFSPROC3_PATHCONF, _) if self.is_ok() => {
                PATHCONF3res::NFS3_OK(self.pathconf()).encode(to);
            }
            // Of all of them the same.
            _ => READLINK3res::default(call.status, self.after(0)).encode(to),
        }
    }

    fn fsinfo(&self, settings: &NfsdSettings) -> FSINFO3resok {
        let info = self.granted.expect(KNOWN).fs.info();
        let io_bytes_max = settings.io_bytes_max;
        FSINFO3resok {
            obj_attributes: self.after(0),
            rtmax: io_bytes_max,
            rtpref: io_bytes_max,
            rtmult: 4096,
            wtmax: io_bytes_max,
            wtpref: io_bytes_max,
            wtmult: 4096,
            dtpref: READDIR_BYTES_MAX / 4,
            maxfilesize: info.file_bytes_max,
            time_delta: nfstime3 {
                seconds: 0,
                nseconds: 1,
            },
            properties: nfs3::FSF3_LINK
                | nfs3::FSF3_SYMLINK
                | nfs3::FSF3_HOMOGENEOUS
                | nfs3::FSF3_CANSETTIME,
        }
    }

    fn pathconf(&self) -> PATHCONF3resok {
        let info = self.granted.expect(KNOWN).fs.info();
        PATHCONF3resok {
            obj_attributes: self.after(0),
            linkmax: info.links_max,
            name_max: store::fs::NAME_BYTES_MAX as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }
    }

    fn lookup(&self, to: &mut Vec<u8>) {
        let call = self.call;
        let handle = call.found.and_then(|file| self.handle(file));
        match handle {
            Some(handle) if self.is_ok() => LOOKUP3res::NFS3_OK(LOOKUP3resok {
                object: Opaque(&handle),
                obj_attributes: call.found_attr.as_ref().map(|attr| self.attr(attr)),
                dir_attributes: self.after(0),
            })
            .encode(to),
            _ => LOOKUP3res::default(call.status, self.after(0)).encode(to),
        }
    }

    fn access(&self, asked: u32, to: &mut Vec<u8>) {
        let call = self.call;
        let Some((attr, granted)) = call.after[0].as_ref().zip(self.granted) else {
            return ACCESS3res::default(call.status, None).encode(to);
        };
        let may_write = !granted.rule.is_read_only;
        let caller = call.caller(store::fs::Time::default());
        let (_, access) = told_access(attr, &caller, may_write);
        ACCESS3res::NFS3_OK(ACCESS3resok {
            obj_attributes: self.after(0),
            access: access & asked,
        })
        .encode(to);
    }

    fn get_acl(&self, mask: u32, to: &mut Vec<u8>) {
        match &self.call.after[0] {
            Some(attr) if self.is_ok() => {
                nfsstat3::NFS3_OK.encode(to);
                self.after(0).encode(to);
                acl::write(attr, mask, to);
            }
            after => {
                GETACL3res::default(self.call.status, after.as_ref().map(|attr| self.attr(attr)))
                    .encode(to)
            }
        }
    }

    fn read(&self, offset: u64, reply: &mut Reply) {
        let call = self.call;
        let (Some(Output::Read { len, is_end }), true) = (&call.output, self.is_ok()) else {
            return READ3res::default(call.status, self.after(0)).encode(reply.bytes());
        };
        let len = *len;
        counters::add(len);
        // Nothing was asked for: the end may be there all the same.
        let is_behind = || {
            let size = call.after[0].as_ref().map(|attr| attr.size);
            len == 0 && size.is_some_and(|size| offset >= size)
        };
        READ3res::NFS3_OK(READ3resok {
            file_attributes: self.after(0),
            count: len,
            eof: *is_end || is_behind(),
            data: Payload { len },
        })
        .encode(reply.bytes());
        reply.data_item(len);
        if let (Some(tag), 1..) = (call.data, len) {
            reply.payload(tag, 0, len);
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        let call = self.call;
        if let (Some(Output::Written(written)), true) = (&call.output, self.is_ok()) {
            counters::add(written.len);
        }
        match &call.output {
            Some(Output::Written(written)) if self.is_ok() => WRITE3res::NFS3_OK(WRITE3resok {
                file_wcc: self.wcc(0),
                count: written.len,
                committed: match written.is_stable {
                    true => stable_how::FILE_SYNC,
                    false => stable_how::UNSTABLE,
                },
                verf: call.verifier.to_be_bytes(),
            })
            .encode(to),
            _ => WRITE3res::default(call.status, self.wcc(0)).encode(to),
        }
    }

    fn commit(&self, to: &mut Vec<u8>) {
        let verifier = || self.granted.expect(KNOWN).fs.verifier();
        match self.is_ok() {
            true => COMMIT3res::NFS3_OK(COMMIT3resok {
                file_wcc: self.wcc(0),
                verf: verifier().to_be_bytes(),
            })
            .encode(to),
            false => COMMIT3res::default(self.call.status, self.wcc(0)).encode(to),
        }
    }

    fn create(&self, to: &mut Vec<u8>) {
        let call = self.call;
        if !self.is_ok() {
            return CREATE3res::default(call.status, self.wcc(0)).encode(to);
        }
        let handle = call.found.and_then(|file| self.handle(file));
        let obj: Option<nfs_fh3<'_>> = handle.as_ref().map(|handle| Opaque(handle));
        CREATE3res::NFS3_OK(CREATE3resok {
            obj,
            obj_attributes: call.found_attr.as_ref().map(|attr| self.attr(attr)),
            dir_wcc: self.wcc(0),
        })
        .encode(to);
    }

    /// READDIR and READDIRPLUS.
    fn readdir(&self, args: &Readdir, to: &mut Vec<u8>) {
        let call = self.call;
        let (Some(Output::Listing(listing)), true) = (&call.output, self.is_ok()) else {
            return READDIR3res::default(call.status, self.after(0)).encode(to);
        };
        let begin = to.len();
        nfsstat3::NFS3_OK.encode(to);
        self.after(0).encode(to);
        listing.verifier.to_be_bytes().encode(to);
        let entries = self.entries(args, listing, to);
        let Some(is_end) = entries else {
            // Not even one entry has room.
            to.truncate(begin);
            return READDIR3res::default(nfsstat3::NFS3ERR_TOOSMALL, self.after(0)).encode(to);
        };
        false.encode(to);
        is_end.encode(to);
    }

    /// Appends the entries that have room, and says whether those were the last;
    /// `None` if there are some and none has.
    fn entries(&self, args: &Readdir, listing: &Listing, to: &mut Vec<u8>) -> Option<bool> {
        let call = self.call;
        let mut room = EntryRoom::new(args)?;
        let own = call.files[0];
        let dots = [
            (DOT, own, &b"."[..], call.after[0].as_ref()),
            (DOT_DOT, call.up.unwrap_or(own), &b".."[..], None),
        ];
        let dots = dots.into_iter().filter(|entry| entry.0 > args.cookie);
        let others = listing.iter().map(|(entry, name)| {
            let attr = entry.attr.as_ref();
            (entry.cookie, entry.file, name, attr)
        });
        for (cookie, file, name, attr) in dots.chain(others) {
            if !room.take(name.len()) {
                return (room.count > 0).then_some(false);
            }
            true.encode(to);
            file.0.encode(to);
            let name: nfs3::filename3<'_> = Opaque(name);
            name.encode(to);
            cookie.encode(to);
            if args.is_plus {
                attr.map(|attr| self.attr(attr)).encode(to);
                let handle = self.handle(file).filter(|_| attr.is_some());
                let handle: Option<nfs_fh3<'_>> = handle.as_ref().map(|handle| Opaque(handle));
                handle.encode(to);
            }
        }
        Some(listing.is_end)
    }
}

/// Room for entries of a directory.
pub(super) struct EntryRoom {
    bytes: u32,
    /// For what of them READDIR tells too.
    entry_bytes: u32,
    is_plus: bool,
    count: u32,
}

impl EntryRoom {
    /// What a client has asked for; `None` where not even the results without entries have room.
    pub(super) fn new(args: &Readdir) -> Option<EntryRoom> {
        let bytes = args.bytes_max.min(READDIR_BYTES_MAX);
        Some(EntryRoom {
            bytes: bytes.checked_sub(READDIR_BYTES)?,
            entry_bytes: args.entry_bytes_max.min(READDIR_BYTES_MAX),
            is_plus: args.is_plus,
            count: 0,
        })
    }

    /// Whether no entry has taken any.
    pub(super) fn is_unused(&self) -> bool {
        self.count == 0
    }

    /// Whether one more entry has room: then it takes it.
    pub(super) fn take(&mut self, name_len: usize) -> bool {
        let bytes = entry_bytes(name_len, self.is_plus);
        let entry = entry_bytes(name_len, false);
        // What is meant by `dircount` is vague: it never keeps the first out.
        let is_full = self.bytes < bytes || self.count > 0 && self.entry_bytes < entry;
        if is_full {
            return false;
        }
        self.bytes -= bytes;
        self.entry_bytes = self.entry_bytes.saturating_sub(entry);
        self.count += 1;
        true
    }
}
