//! `docs/nfs.md` lists the operations, procedures and attributes that the
//! server has, as it says itself when it is asked, no more and no less.
//! `WEFT_WRITE_DOCS=1 cargo test -p nfsd --test conformance` brings it up to
//! date.

use std::fmt::Write as _;

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, Reader};

use crate::machine;
use nfsstat4::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nfs.md");

/// Attributes by their numbers, as the standards call them.
const ATTRIBUTES: [&str; 87] = [
    "supported_attrs",
    "type",
    "fh_expire_type",
    "change",
    "size",
    "link_support",
    "symlink_support",
    "named_attr",
    "fsid",
    "unique_handles",
    "lease_time",
    "rdattr_error",
    "acl",
    "aclsupport",
    "archive",
    "cansettime",
    "case_insensitive",
    "case_preserving",
    "chown_restricted",
    "filehandle",
    "fileid",
    "files_avail",
    "files_free",
    "files_total",
    "fs_locations",
    "hidden",
    "homogeneous",
    "maxfilesize",
    "maxlink",
    "maxname",
    "maxread",
    "maxwrite",
    "mimetype",
    "mode",
    "no_trunc",
    "numlinks",
    "owner",
    "owner_group",
    "quota_avail_hard",
    "quota_avail_soft",
    "quota_used",
    "rawdev",
    "space_avail",
    "space_free",
    "space_total",
    "space_used",
    "system",
    "time_access",
    "time_access_set",
    "time_backup",
    "time_create",
    "time_delta",
    "time_metadata",
    "time_modify",
    "time_modify_set",
    "mounted_on_fileid",
    "dir_notif_delay",
    "dirent_notif_delay",
    "dacl",
    "sacl",
    "change_policy",
    "fs_status",
    "fs_layout_type",
    "layout_hint",
    "layout_type",
    "layout_blksize",
    "layout_alignment",
    "fs_locations_info",
    "mdsthreshold",
    "retention_get",
    "retention_set",
    "retentevt_get",
    "retentevt_set",
    "retention_hold",
    "mode_set_masked",
    "suppattr_exclcreat",
    "fs_charset_cap",
    "clone_blksize",
    "space_freed",
    "change_attr_type",
    "sec_label",
    "mode_umask",
    "xattr_support",
    "offline",
    "time_deleg_access",
    "time_deleg_modify",
    "open_arguments",
];

fn told(status: nfsstat4) -> &'static str {
    match status {
        NFS4ERR_OP_ILLEGAL => "",
        NFS4ERR_NOTSUPP => "no",
        _ => "yes",
    }
}

/// In which versions an operation is there: where it is, what its arguments are
/// matters.
fn operations(cases: &mut [Case]) -> String {
    let mut out = String::from("\n| operation | 4.0 | 4.1 | 4.2 |\n|---|---|---|---|\n");
    for number in 3..=75u32 {
        let word = number.to_be_bytes();
        let Ok(op) = nfs_opnum4::decode(&mut Reader::new(&word)) else {
            continue;
        };
        // These are understood, and then refused.
        let arguments: &[u8] = match op {
            nfs_opnum4::OP_OPENATTR => &[0; 4],
            nfs_opnum4::OP_DELEGPURGE => &[0; 8],
            _ => &[],
        };
        let asked = [&word[..], arguments].concat();
        let has: Vec<&str> = (cases.iter_mut())
            .map(|case| {
                let minor = case.minor;
                // What begins without a session answers for itself.
                let bare = ops().fh(&case.file).raw(&asked);
                let bare = match op {
                    nfs_opnum4::OP_OPENATTR | nfs_opnum4::OP_DELEGPURGE => {
                        return told(case.call(bare).status);
                    }
                    _ => ops().raw(&asked),
                };
                let answer = match case.client.wire.compound(minor, &bare) {
                    bare if bare.status == nfsstat4::NFS4ERR_OP_NOT_IN_SESSION => {
                        case.call(ops().raw(&asked))
                    }
                    bare => bare,
                };
                told(answer.status)
            })
            .collect();
        let name = format!("{op:?}");
        let name = name.trim_start_matches("OP_");
        let _ = writeln!(out, "| {name} | {} |", has.join(" | "));
    }
    out.push('\n');
    out
}

fn supported(case: &mut Case) -> Vec<u32> {
    let told = case.call(ops().fh(&case.file).getattr(&[FATTR4_SUPPORTED_ATTRS]));
    let (_, values) = told.ok().attributes();
    let words = bitmap4::decode(&mut Reader::new(&values)).expect("a bitmap");
    let words: Vec<u32> = words.iter().collect();
    (0..words.len() as u32 * 32)
        .filter(|n| words[*n as usize / 32] >> (n % 32) & 1 == 1)
        .collect()
}

fn attributes(cases: &mut [Case]) -> String {
    let mut out = String::from("\n| attribute | | since | |\n|---|---|---|---|\n");
    let supported: Vec<Vec<u32>> = cases.iter_mut().map(supported).collect();
    for (number, name) in (0..).zip(ATTRIBUTES) {
        let Some(since) = supported.iter().position(|all| all.contains(&number)) else {
            continue;
        };
        let case = &mut cases[since];
        let asked = ops().fh(&case.file).getattr(&[number]);
        let is_told = case.call(asked).status == NFS4_OK;
        // What can be set wants a value.
        let asked = ops().setattr(ANONYMOUS, &Attributes::none().and(number, &[0u8; 0]));
        let asked = ops().fh(&case.file).then(asked);
        let is_set = case.call(asked).status == nfsstat4::NFS4ERR_BADXDR;
        let how = match (is_told, is_set) {
            (true, true) => "read, set",
            (true, false) => "read",
            _ => "set",
        };
        let _ = writeln!(out, "| {name} | {number} | 4.{since} | {how} |");
    }
    out.push('\n');
    out
}

/// Puts `table` in between the marks of this name, or says that another one is
/// there.
fn hold(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name} from the code: begin -->\n");
    let end = format!("<!-- {name} from the code: end -->\n");
    let (before, rest) = page.split_once(&begin).expect("the beginning of the list");
    let (listed, after) = rest.split_once(&end).expect("the end of the list");
    let is_written = std::env::var_os("WEFT_WRITE_DOCS").is_some();
    assert!(
        is_written || listed == table,
        "docs/nfs.md is out of date: WEFT_WRITE_DOCS=1 cargo test -p nfsd --test conformance"
    );
    [before, &begin, table, &end, after].concat()
}

/// Statuses that no case meets, and why.
const UNMET: &[(nfsstat4, &str)] = &[
    (NFS4ERR_BADIOMODE, "only of pNFS"),
    (NFS4ERR_BADLAYOUT, "only of pNFS"),
    (NFS4ERR_LAYOUTTRYLATER, "only of pNFS"),
    (NFS4ERR_LAYOUTUNAVAILABLE, "only of pNFS"),
    (NFS4ERR_NOMATCHING_LAYOUT, "only of pNFS"),
    (NFS4ERR_RECALLCONFLICT, "only of pNFS"),
    (NFS4ERR_UNKNOWN_LAYOUTTYPE, "only of pNFS"),
    (NFS4ERR_PNFS_IO_HOLE, "only of pNFS"),
    (NFS4ERR_PNFS_NO_LAYOUT, "only of pNFS"),
    (NFS4ERR_RETURNCONFLICT, "only of pNFS"),
    (NFS4ERR_BAD_SESSION_DIGEST, "only of SSV"),
    (NFS4ERR_HASH_ALG_UNSUPP, "only of SSV"),
    (NFS4ERR_WRONG_CRED, "only of SSV"),
    (NFS4ERR_MOVED, "tried in `referrals`"),
    (NFS4ERR_LEASE_MOVED, "only of file systems that move"),
    (NFS4ERR_FHEXPIRED, "only of file systems that move"),
    (
        NFS4ERR_DELEG_ALREADY_WANTED,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_DIRDELEG_UNAVAIL,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_REJECT_DELEG,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_PARTNER_NOTSUPP,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_PARTNER_NO_AUTH,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_OFFLOAD_DENIED,
        "only of operations that are not there",
    ),
    (NFS4ERR_WRONG_LFS, "only of operations that are not there"),
    (NFS4ERR_BADLABEL, "only of operations that are not there"),
    (
        NFS4ERR_OFFLOAD_NO_REQS,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_UNION_NOTSUPP,
        "only of operations that are not there",
    ),
    (
        NFS4ERR_LOCK_RANGE,
        "locks of any range, and none that blocks",
    ),
    (
        NFS4ERR_BAD_RANGE,
        "locks of any range, and none that blocks",
    ),
    (
        NFS4ERR_LOCK_NOTSUPP,
        "locks of any range, and none that blocks",
    ),
    (NFS4ERR_DEADLOCK, "locks of any range, and none that blocks"),
    (NFS4ERR_FILE_OPEN, "what a client may be told and is not"),
    (
        NFS4ERR_UNSAFE_COMPOUND,
        "what a client may be told and is not",
    ),
    (NFS4ERR_DEADSESSION, "what a client may be told and is not"),
    (
        NFS4ERR_CONN_NOT_BOUND_TO_SESSION,
        "what a client may be told and is not",
    ),
    (
        NFS4ERR_BACK_CHAN_BUSY,
        "what a client may be told and is not",
    ),
    (
        NFS4ERR_BAD_HIGH_SLOT,
        "what a client may be told and is not",
    ),
    (
        NFS4ERR_CB_PATH_DOWN,
        "of clients of version 4.0 with delegations",
    ),
    (NFS4ERR_XDEV, "tried in `recovery`"),
    (NFS4ERR_ROFS, "tried in `recovery`"),
    (NFS4ERR_WRONGSEC, "tried in `recovery`"),
    (NFS4ERR_ADMIN_REVOKED, "tried in `recovery`"),
    (NFS4ERR_DELEG_REVOKED, "tried in `recovery`"),
    (NFS4ERR_RECLAIM_BAD, "tried in `recovery`"),
    (NFS4ERR_RECLAIM_CONFLICT, "tried in `recovery`"),
    (
        NFS4ERR_IO,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_MLINK,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_DQUOT,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_SERVERFAULT,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_RESOURCE,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_XATTR2BIG,
        "memory has no such end, or a test would have to fill it",
    ),
    (
        NFS4ERR_MINOR_VERS_MISMATCH,
        "without a result, seen in `sessions::places`",
    ),
];

/// Operations that cannot come to a good end, and why.
const NEVER: &[(u32, nfs_opnum4, &str)] = &[(
    0,
    nfs_opnum4::OP_DELEGRETURN,
    "version 4.0 has no delegations",
)];

/// Every operation that there is has come to a good end in some case, and every
/// status that the standards have was met, but for those with a reason why not.
pub fn all_was_tried(server: &ServerUnderTest) {
    let mut cases: Vec<Case> = MINORS.map(|minor| Case::new(server, minor)).into();
    let listed = operations(&mut cases);
    let seen = server.seen.borrow();
    let mut wrong = Vec::new();
    for number in 3..=75u32 {
        let Ok(op) = nfs_opnum4::decode(&mut Reader::new(&number.to_be_bytes())) else {
            continue;
        };
        let name = format!("{op:?}");
        let row = format!("| {} | ", name.trim_start_matches("OP_"));
        let row = listed
            .lines()
            .find_map(|line| line.strip_prefix(&row))
            .expect("a row");
        for (minor, has) in (0..).zip(row.trim_end_matches(" |").split(" | ")) {
            let is_never = NEVER
                .iter()
                .any(|(in_minor, never, _)| (*in_minor, *never) == (minor, op));
            if has == "yes" && !is_never && !seen.contains(&(minor, number, NFS4_OK as u32)) {
                wrong.push(format!("{name} was not tried in 4.{minor}"));
            }
        }
    }
    for number in 0..=10_096u32 {
        let Ok(status) = nfsstat4::decode(&mut Reader::new(&number.to_be_bytes())) else {
            continue;
        };
        let is_met = seen.iter().any(|(_, _, found)| *found == number);
        if is_met == UNMET.iter().any(|(unmet, _)| *unmet == status) {
            wrong.push(format!("{status:?}: met: {is_met}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_lists_what_the_server_does() {
    let exports = vec![("/", machine::memory("page"), machine::rule())];
    let server = machine::server(nfsd::NfsdSettings::default(), exports, Vec::new());
    let server = machine::tried(&server, &[]);
    let mut cases: Vec<Case> = MINORS.map(|minor| Case::new(&server, minor)).into();
    let page = std::fs::read_to_string(PAGE).expect("docs/nfs.md");
    let page = hold(&page, "operations", &operations(&mut cases));
    let page = hold(&page, "attributes", &attributes(&mut cases));
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, page).expect("docs/nfs.md can be written");
    }
}
