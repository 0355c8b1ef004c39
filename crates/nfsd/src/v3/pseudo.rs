//! What NFSv3 finds above the exports: directories that can be read, and nothing else. Their
//! entries that are exports have another `fsid`, by which clients mount them of their own
//! accord.

use store::fs::{Attr, FileId};
use wire::nfs3::{
    self, ACCESS3res, ACCESS3resok, FSINFO3res, FSINFO3resok, FSSTAT3res, FSSTAT3resok,
    GETATTR3res, LOOKUP3res, LOOKUP3resok, PATHCONF3res, PATHCONF3resok, READDIR3res, fattr3,
    filename3, nfs_fh3, nfs_proc3, nfsstat3, nfstime3,
};
use wire::xdr::{Encode, Opaque};

use super::args::{Readdir, V3Asked};
use super::results::{EntryRoom, READDIR_BYTES_MAX};
use super::{convert, results};
use crate::handle::Handle;
use crate::{Nfsd, PseudoPlace, View};

/// The `fsid` of no export.
const FSID: u64 = 0;

/// Why a procedure is not for a directory that cannot be changed; `None` of one that is.
pub(super) fn refusal(asked: &V3Asked<'_>, procedure: nfs_proc3) -> Option<nfsstat3> {
    match asked {
        V3Asked::Of(_) if procedure == nfs_proc3::NFSPROC3_READLINK => {
            Some(nfsstat3::NFS3ERR_INVAL)
        }
        V3Asked::Of(_) | V3Asked::Access(..) | V3Asked::Lookup(_) | V3Asked::Readdir(..) => None,
        V3Asked::Read { .. } | V3Asked::Write { .. } | V3Asked::Commit(_) => {
            Some(nfsstat3::NFS3ERR_ISDIR)
        }
        _ => Some(nfsstat3::NFS3ERR_ROFS),
    }
}

/// Appends the results of a call that has no [`refusal`].
pub(super) fn write(
    (asked, procedure): (&V3Asked<'_>, nfs_proc3),
    (dir, attr): (FileId, &Attr),
    (view, nfsd): (&View, &Nfsd),
    to: &mut Vec<u8>,
) {
    let own = convert::fattr(attr, FSID);
    match (asked, procedure) {
        (V3Asked::Access(_, asked), _) => ACCESS3res::NFS3_OK(ACCESS3resok {
            obj_attributes: Some(own),
            access: asked & (nfs3::ACCESS3_READ | nfs3::ACCESS3_LOOKUP | nfs3::ACCESS3_EXECUTE),
        })
        .encode(to),
        (V3Asked::Lookup(named), _) => lookup(view, (dir, own), named.name, to),
        (V3Asked::Readdir(_, args), _) => readdir(view, (dir, own), args, to),
        (_, nfs_proc3::NFSPROC3_FSSTAT) => FSSTAT3res::NFS3_OK(FSSTAT3resok {
            obj_attributes: Some(own),
            tbytes: 0,
            fbytes: 0,
            abytes: 0,
            tfiles: 0,
            ffiles: 0,
            afiles: 0,
            invarsec: 0,
        })
        .encode(to),
        (_, nfs_proc3::NFSPROC3_FSINFO) => {
            FSINFO3res::NFS3_OK(fsinfo(own, nfsd.settings.io_bytes_max)).encode(to);
        }
        (_, nfs_proc3::NFSPROC3_PATHCONF) => PATHCONF3res::NFS3_OK(PATHCONF3resok {
            obj_attributes: Some(own),
            linkmax: u32::MAX,
            name_max: store::fs::NAME_BYTES_MAX as u32,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })
        .encode(to),
        _ => GETATTR3res::NFS3_OK(own).encode(to),
    }
}

fn fsinfo(own: fattr3, io_bytes_max: u32) -> FSINFO3resok {
    FSINFO3resok {
        obj_attributes: Some(own),
        rtmax: io_bytes_max,
        rtpref: io_bytes_max,
        rtmult: 4096,
        wtmax: io_bytes_max,
        wtpref: io_bytes_max,
        wtmult: 4096,
        dtpref: READDIR_BYTES_MAX / 4,
        maxfilesize: i64::MAX as u64,
        time_delta: nfstime3 {
            seconds: 0,
            nseconds: 1,
        },
        properties: nfs3::FSF3_HOMOGENEOUS,
    }
}

/// Attributes and the handle of what lies in such a directory; of an export its client asks
/// for the attributes.
fn found(view: &View, place: PseudoPlace) -> Option<([u8; Handle::BYTES], Option<fattr3>)> {
    let attr = match place {
        PseudoPlace::Pseudo(file) => view.attr(file).map(|attr| convert::fattr(&attr, FSID)),
        // The latter has no handle.
        PseudoPlace::File { .. } | PseudoPlace::Absent(_) => None,
    };
    Some((view.handle(place)?.encode(), attr))
}

fn lookup(view: &View, (dir, own): (FileId, fattr3), name: &[u8], to: &mut Vec<u8>) {
    let here = PseudoPlace::Pseudo(dir);
    let place = match name {
        b"." => Some(here),
        b".." => Some(view.parent(here).unwrap_or(here)),
        name => view.lookup(dir, name),
    };
    match place.and_then(|place| found(view, place)) {
        Some((handle, obj_attributes)) => LOOKUP3res::NFS3_OK(LOOKUP3resok {
            object: Opaque(&handle),
            obj_attributes,
            dir_attributes: Some(own),
        })
        .encode(to),
        None => LOOKUP3res::default(nfsstat3::NFS3ERR_NOENT, Some(own)).encode(to),
    }
}

fn readdir(view: &View, (dir, own): (FileId, fattr3), args: &Readdir, to: &mut Vec<u8>) {
    let here = PseudoPlace::Pseudo(dir);
    let up = match view.parent(here) {
        Some(PseudoPlace::Pseudo(up)) => up,
        _ => dir,
    };
    let dots = [
        (results::DOT, &b"."[..], dir.0, here),
        (results::DOT_DOT, b"..", up.0, PseudoPlace::Pseudo(up)),
    ];
    let dots = dots.into_iter().filter(|entry| entry.0 > args.cookie);
    let children = view.list(dir, args.cookie).into_iter().flatten();
    // Referrals are of version 4.
    let is_there = |place: &PseudoPlace| !matches!(place, PseudoPlace::Absent(_));
    let children = children.filter(|(.., place)| is_there(place));
    let children = children.map(|(id, name, place)| (id, name.as_bytes(), id, place));
    let begin = to.len();
    nfsstat3::NFS3_OK.encode(to);
    Some(own).encode(to);
    args.verifier.encode(to);
    let mut room = EntryRoom::new(args);
    let mut is_end = true;
    for (cookie, name, file, place) in dots.chain(children) {
        if !room.as_mut().is_some_and(|room| room.take(name.len())) {
            is_end = false;
            break;
        }
        true.encode(to);
        file.encode(to);
        let name: filename3<'_> = Opaque(name);
        name.encode(to);
        cookie.encode(to);
        if args.is_plus {
            let found = found(view, place);
            found.as_ref().and_then(|(_, attr)| *attr).encode(to);
            let handle: Option<nfs_fh3<'_>> = found.as_ref().map(|(handle, _)| Opaque(handle));
            handle.encode(to);
        }
    }
    if !is_end && room.is_none_or(|room| room.is_unused()) {
        to.truncate(begin);
        return READDIR3res::default(nfsstat3::NFS3ERR_TOOSMALL, Some(own)).encode(to);
    }
    false.encode(to);
    is_end.encode(to);
}
