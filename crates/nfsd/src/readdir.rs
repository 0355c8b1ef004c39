//! READDIR (RFC 8881, section 18.23).

use machine::work;
use nfs::attributes::{AskedAttributes, FreeSpace};
use store::fs::{self, Entry, FsOp, Listing, Output};
use wire::nfs4::{READDIR4args, component4, nfs_argop4, nfsstat4};
use wire::xdr::{Encode, Opaque};

use crate::answers::{AnswerWait, ENTRIES_MAX, listing_bytes};
use crate::attributes::{OwnerNames, blank_attributes, room, write};
use crate::call::{Ask, NextStep, OperationOutcome, QuestionBegun, RunningCall};
use crate::continuation::{Continuation, ThenReaddir};
use crate::names::{ANSWERED, file};
use crate::pseudo::{AccessTerms, PseudoPlace};

/// Bytes of the result beside its entries: the verifier, and that no entry
/// follows, and whether that was all.
const FRAME_BYTES: u32 = 16;
/// Bytes of an entry beside its name and attributes: that there is one, its
/// cookie, a length.
const ENTRY_BYTES: u32 = 16;
/// Bytes of the longest name with what belongs to it, so that one entry comes
/// whatever `dircount` says.
const NAME_BYTES: u32 = 256;
/// The number of the operation, and its status.
const RESULT_BYTES: u32 = 8;
/// Bytes of the result at most: it is made in memory of the process, and stays there
/// until it is sent.
const READDIR_BYTES_MAX: u32 = 256 << 10;

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenReaddir,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    if let ThenReaddir::Listing(_, reserved) = then {
        run.peer.answers.made(reserved);
    }
    let args = args(run);
    let asked = AskedAttributes::new(&args.attr_request, run.minor())?;
    match (then, run.done(result)?) {
        (ThenReaddir::Room, Output::Statfs(stat)) => list(run, &args, asked, room(&stat)),
        (ThenReaddir::Listing(room, _), Output::Listing(listing)) => {
            let bytes_max = bytes_max(run, &args)?;
            write_listing(run, asked, &listing, &room, bytes_max)
        }
        (ThenReaddir::Root(cookie), Output::Attr(attr)) => {
            list_pseudo(run, &args, asked, Some((cookie, attr)))
        }
        _ => unreachable!("{ANSWERED}"),
    }
}

fn args<'a>(run: &RunningCall<'a>) -> READDIR4args<'a> {
    match run.op() {
        nfs_argop4::OP_READDIR(args) => args,
        _ => unreachable!("READDIR asked"),
    }
}

fn file_system_request<'a>(op: FsOp<'a>, then: ThenReaddir) -> Ask<'a> {
    Ask {
        op,
        is_open: false,
        then: Continuation::Readdir(then),
    }
}

pub(crate) fn readdir<'a>(
    run: &mut RunningCall<'a>,
    args: &READDIR4args<'a>,
) -> OperationOutcome<'a> {
    let place = run.current()?;
    let asked = AskedAttributes::new(&args.attr_request, run.minor())?;
    if matches!(args.cookie, 1 | 2) {
        return Err(nfsstat4::NFS4ERR_BAD_COOKIE);
    }
    bytes_max(run, args)?;
    match place {
        PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_MOVED),
        PseudoPlace::Pseudo(_) => {
            let verifier = [0u8; 8];
            run.ok(|to| verifier.encode(to))?;
            list_pseudo(run, args, asked, None)
        }
        PseudoPlace::File { .. } if asked.needs_room() => {
            let file = file(place);
            run.ask_file_system(file_system_request(
                FsOp::Statfs { file },
                ThenReaddir::Room,
            ))
        }
        PseudoPlace::File { .. } => list(run, args, asked, FreeSpace::default()),
    }
}

/// Bytes that the result may have.
fn bytes_max(run: &mut RunningCall<'_>, args: &READDIR4args<'_>) -> Result<u32, nfsstat4> {
    let max = args.maxcount.min(READDIR_BYTES_MAX);
    let max = max.min(run.room().saturating_sub(RESULT_BYTES));
    match max < FRAME_BYTES {
        true => Err(nfsstat4::NFS4ERR_TOOSMALL),
        false => Ok(max),
    }
}

fn list<'a>(
    run: &mut RunningCall<'a>,
    args: &READDIR4args<'a>,
    asked: AskedAttributes,
    room: FreeSpace,
) -> OperationOutcome<'a> {
    let bytes_max = bytes_max(run, args)? - FRAME_BYTES;
    // What an entry of one letter takes: more than so many never fit.
    let mut one = Vec::with_capacity(512);
    let place = run.current()?;
    write(
        run.nfsd,
        run.peer,
        place,
        (&blank_attributes(), &OwnerNames::default()),
        &room,
        asked,
        &mut one,
    )?;
    let fit = bytes_max / (ENTRY_BYTES + 4 + one.len() as u32);
    // `dircount` is a hint about names and cookies, and 0 is none.
    let (names_max, hinted) = match args.dircount {
        0 => (bytes_max, fit),
        dircount => (
            dircount.clamp(NAME_BYTES, bytes_max.max(NAME_BYTES)),
            dircount / 16,
        ),
    };
    let entries_max = fit.min(hinted).clamp(1, ENTRIES_MAX);
    let reserved = listing_bytes(entries_max, bytes_max);
    let unsent = run.link.machine.unsent_bytes();
    match run.peer.answers.reserve(run.pool, unsent, reserved) {
        Ok(()) => {}
        Err(AnswerWait::Later) => return Err(nfsstat4::NFS4ERR_DELAY),
        Err(AnswerWait::NoMemory) => return Ok(NextStep::NoMemory),
    }
    let op = FsOp::Readdir {
        dir: file(place),
        cookie: args.cookie,
        verifier: u64::from_be_bytes(args.cookieverf),
        entries_max,
        name_bytes_max: names_max,
        with_attrs: asked.needs_object(),
    };
    run.ask_file_system(file_system_request(
        op,
        ThenReaddir::Listing(room, reserved),
    ))
}

fn write_listing<'a>(
    run: &mut RunningCall<'a>,
    asked: AskedAttributes,
    listing: &Listing,
    room: &FreeSpace,
    bytes_max: u32,
) -> OperationOutcome<'a> {
    let PseudoPlace::File { export, .. } = run.current()? else {
        unreachable!("a file system has listed it");
    };
    check_owners(run, asked, listing)?;
    run.ok(|to| listing.verifier.encode(to))?;
    let begin = run.reply().bytes().len();
    let mut is_end = listing.is_end;
    let mut is_first = true;
    for (entry, name) in listing.iter() {
        work::spend(1);
        let mark = run.reply().bytes().len();
        write_entry(run, export, entry, name, (asked, room))?;
        let to = run.reply().bytes();
        let len = to.len() - begin;
        if len as u32 + FRAME_BYTES > bytes_max {
            to.truncate(mark);
            if is_first {
                return run.replace_result(nfsstat4::NFS4ERR_TOOSMALL);
            }
            is_end = false;
            break;
        }
        is_first = false;
    }
    end(run, is_end)
}

/// Whether all names of owners are known: those that are not are asked for together.
///
/// # Errors
/// NFS4ERR_DELAY where one is not.
fn check_owners(
    run: &RunningCall<'_>,
    asked: AskedAttributes,
    listing: &Listing,
) -> Result<(), nfsstat4> {
    let mut known = Ok(());
    for attr in listing.iter().filter_map(|(entry, _)| entry.attr.as_ref()) {
        known = known.and(run.owner_names(asked, attr).map(drop));
    }
    known
}

/// No entry follows.
fn end<'a>(run: &mut RunningCall<'a>, is_end: bool) -> OperationOutcome<'a> {
    let to = run.reply().bytes();
    false.encode(to);
    is_end.encode(to);
    Ok(NextStep::Done)
}

fn write_name(cookie: u64, name: &[u8], to: &mut Vec<u8>) {
    let name: component4<'_> = Opaque(name);
    true.encode(to);
    cookie.encode(to);
    name.encode(to);
}

fn write_entry(
    run: &mut RunningCall<'_>,
    export: u32,
    entry: &Entry,
    name: &[u8],
    (asked, room): (AskedAttributes, &FreeSpace),
) -> Result<(), nfsstat4> {
    let place = PseudoPlace::File {
        export,
        file: entry.file,
    };
    let names = match &entry.attr {
        Some(attr) => run.owner_names(asked, attr)?,
        None => OwnerNames::default(),
    };
    let seen = match &entry.attr {
        Some(attr) => run.may_see(asked, attr),
        None => Ok(()),
    };
    let reply = run.link.machine.reply(run.flow.tag);
    let to = reply.bytes();
    let before = to.len();
    write_name(entry.cookie, name, to);
    let attr = match &entry.attr {
        Some(_) if seen.is_err() && asked.has_rdattr_error() => {
            asked.write_error(nfsstat4::NFS4ERR_ACCESS, to);
            return Ok(());
        }
        Some(attr) => attr,
        None if !asked.needs_object() => &fs::Attr {
            file: entry.file,
            ..blank_attributes()
        },
        None if asked.has_rdattr_error() => {
            asked.write_error(nfsstat4::NFS4ERR_IO, to);
            return Ok(());
        }
        // It was removed meanwhile.
        None => {
            to.truncate(before);
            return Ok(());
        }
    };
    seen?;
    let of = (attr, &names);
    write(run.nfsd, run.peer, place, of, room, asked, to)
}

/// Whether attributes of an entry can be told where nothing says in their place why not.
///
/// # Errors
/// NFS4ERR_WRONGSEC; NFS4ERR_MOVED of an absent file system (RFC 8881, section 11.4.2).
fn check_entry(asked: AskedAttributes, is_shut: bool, is_absent: bool) -> Result<(), nfsstat4> {
    match is_absent && !asked.knows_of_absence() {
        _ if is_shut => Err(nfsstat4::NFS4ERR_WRONGSEC),
        true => Err(nfsstat4::NFS4ERR_MOVED),
        false => Ok(()),
    }
}

/// Entries of a directory of the pseudo file system, of which those before the
/// cookie of `root` were written, and `root` has these attributes.
fn list_pseudo<'a>(
    run: &mut RunningCall<'a>,
    args: &READDIR4args<'a>,
    asked: AskedAttributes,
    mut root: Option<(u64, fs::Attr)>,
) -> OperationOutcome<'a> {
    let dir = file(run.current()?);
    // Each entry is looked for anew: there are few.
    let mut cookie = root.as_ref().map_or(args.cookie, |(of, _)| of - 1);
    let begin = run.flow.body_at();
    loop {
        work::spend(1);
        let view = &run.peer.view;
        let mut entries = view.list(dir, cookie).ok_or(nfsstat4::NFS4ERR_STALE)?;
        let Some((at, name, place)) = entries.next() else {
            drop(entries);
            return end(run, true);
        };
        cookie = at;
        let (granted, terms) = match place {
            PseudoPlace::Pseudo(_) => (None, None),
            PseudoPlace::File { export, .. } => (view.granted(export), view.terms(export)),
            PseudoPlace::Absent(export) => (None, view.terms(export)),
        };
        let is_absent = matches!(place, PseudoPlace::Absent(_));
        // Of what a call must not enter nothing is told but where it is.
        let (flavor, xprtsec) = (run.credential().flavor, run.peer.xprtsec());
        let lacks = |terms: &AccessTerms<'_>| terms.lacks(flavor, xprtsec).is_some();
        let is_shut = asked.needs_object() && terms.as_ref().is_some_and(lacks);
        if !asked.has_rdattr_error() {
            check_entry(asked, is_shut, is_absent)?;
        }
        let fs = granted.map(|granted| granted.fs.clone());
        let name = name.to_owned();
        drop(entries);
        let attr = match (root.take(), fs) {
            _ if is_shut => None,
            (Some((of, attr)), _) if of == cookie => Some(attr),
            (_, None) if is_absent => Some(blank_attributes()),
            (_, None) => run.peer.view.attr(file(place)),
            (_, Some(fs)) => {
                let file = file(place);
                match run.begin_at(&fs, FsOp::Getattr { file }) {
                    QuestionBegun::Done(Ok(Output::Attr(attr))) => Some(attr),
                    begun => {
                        return run
                            .await_answer(begun, Continuation::Readdir(ThenReaddir::Root(cookie)));
                    }
                }
            }
        };
        let names = match &attr {
            Some(_) if is_absent => OwnerNames::default(),
            Some(attr) => run.owner_names(asked, attr)?,
            None if is_shut => OwnerNames::default(),
            None => continue,
        };
        let reply = run.link.machine.reply(run.flow.tag);
        let to = reply.bytes();
        let mark = to.len();
        write_name(cookie, name.as_bytes(), to);
        match &attr {
            None => asked.write_error(nfsstat4::NFS4ERR_WRONGSEC, to),
            Some(attr) => {
                let (of, room) = ((attr, &names), FreeSpace::default());
                write(run.nfsd, run.peer, place, of, &room, asked, to)?;
            }
        }
        if (to.len() - begin) as u32 + FRAME_BYTES - 8 > args.maxcount {
            to.truncate(mark);
            return match mark - begin > 8 {
                true => end(run, false),
                false => run.replace_result(nfsstat4::NFS4ERR_TOOSMALL),
            };
        }
    }
}
