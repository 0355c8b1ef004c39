//! `docs/nfs.md` lists the operations, procedures and attributes that the
//! server has, as it says itself when it is asked, no more and no less.
//! `WEFT_WRITE_DOCS=1 cargo test -p nfsd --test conformance` brings it up to
//! date.

use std::fmt::Write as _;

use wire::nfs4::*;
use wire::xdr::{Decode, Reader};

use crate::client::*;
use crate::machine;
use crate::world::*;
use nfsstat4::{NFS4_OK, NFS4ERR_NOTSUPP, NFS4ERR_OP_ILLEGAL};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nfs.md");

/// Attributes by their numbers, as the standards call them.
const ATTRIBUTES: [&str; 83] = [
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
];

/// In which versions an operation is there: where it is, what its arguments are
/// matters.
fn operations(cases: &mut [Case]) -> String {
    let mut out = String::from("\n| operation | 4.0 | 4.1 | 4.2 |\n|---|---|---|---|\n");
    for number in 3..=75u32 {
        let word = number.to_be_bytes();
        let Ok(op) = nfs_opnum4::decode(&mut Reader::new(&word)) else {
            continue;
        };
        let has: Vec<&str> = (cases.iter_mut())
            .map(|case| {
                let minor = case.minor;
                // What begins without a session answers for itself.
                let answer = match case.client.wire.compound(minor, &ops().raw(&word)) {
                    bare if bare.status == nfsstat4::NFS4ERR_OP_NOT_IN_SESSION => {
                        case.call(ops().raw(&word))
                    }
                    bare => bare,
                };
                match answer.status {
                    NFS4ERR_OP_ILLEGAL => "",
                    NFS4ERR_NOTSUPP => "no",
                    _ => "yes",
                }
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

#[test]
fn the_page_lists_what_the_server_does() {
    let exports = vec![("/", machine::memory("page"), machine::rule())];
    let server = machine::server(nfsd::Settings::default(), exports, Vec::new());
    let server = machine::tried(&server, &[]);
    let mut cases: Vec<Case> = MINORS.map(|minor| Case::new(&server, minor)).into();
    let page = std::fs::read_to_string(PAGE).expect("docs/nfs.md");
    let page = hold(&page, "operations", &operations(&mut cases));
    let page = hold(&page, "attributes", &attributes(&mut cases));
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, page).expect("docs/nfs.md can be written");
    }
}
