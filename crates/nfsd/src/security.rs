//! SECINFO and SECINFO_NO_NAME: how one may say who one is (RFC 8881, sections
//! 2.6, 18.29 and 18.45).

use nfs::connection::Flavor;
use store::fs::{self, Op, Output, check_name};
use wire::nfs4::{
    SECINFO_NO_NAME4args, SECINFO4args, SECINFO4resok, nfsstat4, secinfo_style4, secinfo4,
};
use wire::rpc::{AUTH_NONE, AUTH_SYS};
use wire::xdr::{Encode, List};

use crate::names::{file, parent_above};
use crate::pseudo::Place;
use crate::run::{self, Ask, Outcome, Run};
use crate::status::status;

/// How an operation goes on.
pub(crate) enum Then {
    /// What was asked about is there, in the export of the current file handle.
    Found,
}

pub(crate) fn after<'a>(
    run: &mut Run<'a>,
    then: Then,
    result: Result<Output, fs::Error>,
) -> Outcome<'a> {
    let Then::Found = then;
    run.done(result)?;
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    tell(run, current.place)
}

fn ask<'a>(run: &mut Run<'a>, op: Op<'_>) -> Outcome<'a> {
    run.ask(Ask {
        op,
        is_open: false,
        then: run::Then::Security(Then::Found),
    })
}

pub(crate) fn secinfo<'a>(run: &mut Run<'a>, args: &SECINFO4args<'a>) -> Outcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    let name = args.name.0;
    match current.place {
        Place::Pseudo(dir) => {
            check_name(name).map_err(|error| status(error, run.minor()))?;
            let place = run.peer.view.lookup(dir, name);
            tell(run, place.ok_or(nfsstat4::NFS4ERR_NOENT)?)
        }
        Place::File { file: dir, .. } => ask(run, Op::Lookup { dir, name }),
    }
}

pub(crate) fn secinfo_no_name<'a>(run: &mut Run<'a>, args: &SECINFO_NO_NAME4args) -> Outcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    if args.style == secinfo_style4::SECINFO_STYLE4_CURRENT_FH {
        return tell(run, current.place);
    }
    match parent_above(run, current.place) {
        Some(parent) => tell(run, parent?),
        None => {
            let dir = file(current.place);
            ask(run, Op::Parent { dir })
        }
    }
}

/// Answers for a place. With sessions the current file handle is used up.
fn tell<'a>(run: &mut Run<'a>, place: Place) -> Outcome<'a> {
    let everything = [Flavor::Sys, Flavor::None];
    let flavors: &[Flavor] = match place {
        Place::Pseudo(_) => &everything,
        Place::File { export, .. } => {
            let granted = run.peer.view.granted(export);
            &granted.ok_or(nfsstat4::NFS4ERR_STALE)?.rule.flavors
        }
    };
    let number = |flavor: &Flavor| match flavor {
        Flavor::None => AUTH_NONE,
        Flavor::Sys => AUTH_SYS,
    };
    let all: Vec<secinfo4<'_>> = flavors
        .iter()
        .map(|flavor| secinfo4::default(number(flavor)))
        .collect();
    if run.minor() > 0 {
        run.flow.current = None;
    }
    let list: SECINFO4resok<'_> = List::Of(&all);
    run.ok(|to| list.encode(to))
}
