//! SECINFO and SECINFO_NO_NAME: which authentication flavors a call may have (RFC 8881,
//! sections 2.6, 18.29 and 18.45).

use nfs::connection::Flavor;
use store::fs::{self, FsOp, Output, check_name};
use wire::nfs4::{
    SECINFO_NO_NAME4args, SECINFO4args, SECINFO4resok, nfsstat4, secinfo_style4, secinfo4,
};
use wire::rpc::{AUTH_NONE, AUTH_SYS};
use wire::xdr::{Encode, List};

use crate::call::{Ask, OperationOutcome, RunningCall};
use crate::continuation::{Continuation, ThenSecinfo};
use crate::names::{file, parent_above};
use crate::pseudo::PseudoPlace;
use crate::status::status;

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenSecinfo,
    result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    let ThenSecinfo::Found = then;
    run.done(result)?;
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    answer_secinfo(run, current.place)
}

fn ask_file_system<'a>(run: &mut RunningCall<'a>, op: FsOp<'_>) -> OperationOutcome<'a> {
    run.ask_file_system(Ask {
        op,
        is_open: false,
        then: Continuation::Security(ThenSecinfo::Found),
    })
}

pub(crate) fn secinfo<'a>(
    run: &mut RunningCall<'a>,
    args: &SECINFO4args<'a>,
) -> OperationOutcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    let name = args.name.0;
    match current.place {
        PseudoPlace::Pseudo(dir) => {
            check_name(name).map_err(|error| status(error, run.minor()))?;
            let place = run.peer.view.lookup(dir, name);
            answer_secinfo(run, place.ok_or(nfsstat4::NFS4ERR_NOENT)?)
        }
        PseudoPlace::File { file: dir, .. } => ask_file_system(run, FsOp::Lookup { dir, name }),
    }
}

pub(crate) fn secinfo_no_name<'a>(
    run: &mut RunningCall<'a>,
    args: &SECINFO_NO_NAME4args,
) -> OperationOutcome<'a> {
    let current = run.flow.current.ok_or(nfsstat4::NFS4ERR_NOFILEHANDLE)?;
    if args.style == secinfo_style4::SECINFO_STYLE4_CURRENT_FH {
        return answer_secinfo(run, current.place);
    }
    match parent_above(run, current.place) {
        Some(parent) => answer_secinfo(run, parent?),
        None => {
            let dir = file(current.place);
            ask_file_system(run, FsOp::Parent { dir })
        }
    }
}

/// Answers for a place. With sessions the current file handle is used up.
fn answer_secinfo<'a>(run: &mut RunningCall<'a>, place: PseudoPlace) -> OperationOutcome<'a> {
    let everything = [Flavor::Sys, Flavor::None];
    let flavors: &[Flavor] = match place {
        PseudoPlace::Pseudo(_) => &everything,
        PseudoPlace::File { export, .. } => {
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
