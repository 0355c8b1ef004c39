//! SECINFO and SECINFO_NO_NAME: which authentication flavors a call may have (RFC 8881,
//! sections 2.6, 18.29 and 18.45).

use nfs::connection::Flavor;
use store::fs::{self, FsOp, Output, check_name};
use wire::nfs4::{
    SECINFO_NO_NAME4args, SECINFO4args, SECINFO4resok, nfsstat4, rpcsec_gss_info, secinfo_style4,
    secinfo4,
};
use wire::xdr::{Encode, List, Opaque};

use crate::call::{Ask, OperationOutcome, RunningCall, check_present};
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
        PseudoPlace::Absent(_) => Err(nfsstat4::NFS4ERR_MOVED),
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
    check_present(current.place)?;
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

/// Kerberos 5 as a mechanism of GSS-API, in DER without tag and length: 1.2.840.113554.1.2.2
/// (RFC 1964, section 1).
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// What the directories above the exports take: whatever a client may be let in with below.
const EVERYTHING: [Flavor; 5] = [
    Flavor::Sys,
    Flavor::Krb5,
    Flavor::Krb5i,
    Flavor::Krb5p,
    Flavor::None,
];

/// Answers for a place. With sessions the current file handle is used up.
fn answer_secinfo<'a>(run: &mut RunningCall<'a>, place: PseudoPlace) -> OperationOutcome<'a> {
    let flavors: &[Flavor] = match place {
        PseudoPlace::Pseudo(_) => &EVERYTHING,
        PseudoPlace::File { export, .. } | PseudoPlace::Absent(export) => {
            let terms = run.peer.view.terms(export);
            &terms.ok_or(nfsstat4::NFS4ERR_STALE)?.rule.flavors
        }
    };
    let has_gss = run.nfsd.has_gss();
    let flavors = flavors.iter().filter(|flavor| has_gss || !flavor.is_gss());
    let all: Vec<secinfo4<'_>> = flavors.map(|flavor| secinfo_of(*flavor)).collect();
    if run.minor() > 0 {
        run.flow.current = None;
    }
    let list: SECINFO4resok<'_> = List::Of(&all);
    run.ok(|to| list.encode(to))
}

fn secinfo_of(flavor: Flavor) -> secinfo4<'static> {
    match flavor.service() {
        None => secinfo4::default(flavor.number()),
        Some(service) => secinfo4::case_6(rpcsec_gss_info {
            oid: Opaque(KERBEROS),
            qop: 0,
            service: service as u32,
        }),
    }
}
