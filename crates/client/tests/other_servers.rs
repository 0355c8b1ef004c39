//! `weft perf` against servers of files that are not weft as it comes: older,
//! busy, or with small limits.
#![allow(missing_docs)]

#[path = "shared/files.rs"]
mod files;
#[path = "shared/line.rs"]
mod line;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use client::perf::Report;
use files::{Files, load};
use server::RdmaSpec;
use server::nfs::NfsSettings;
use testkit::nfs::proxy;
use wire::nfs4::{nfs_opnum4, nfsstat4};

fn start(io_bytes_max: u32) -> Files {
    let nfs = NfsSettings {
        io_bytes_max,
        ..NfsSettings::default()
    };
    Files::start(nfs, RdmaSpec::default())
}

fn perf(address: SocketAddr, words: &str) -> Result<Report, String> {
    load(&format!("nfs://{address}/files {words}"))
}

#[test]
fn a_server_without_4_2_is_loaded_by_4_1() {
    let files = start(1 << 20);
    let refuse = |call: &[u8]| {
        let is_newer = proxy::minor(call)? > 1;
        is_newer.then(|| proxy::refused(call, nfsstat4::NFS4ERR_MINOR_VERS_MISMATCH))
    };
    let address = proxy::start(files.address(), Arc::new(refuse), Arc::new(|_| ()));
    for words in ["--rw randrw --size 1m", "--rw create", "--rw readdir"] {
        let report = perf(address, words).expect("it is loaded");
        assert!(report.is_clean(), "{words}: {}", report.text());
        assert!(report.text().contains("NFSv4.1"), "{}", report.text());
    }
}

/// A file is filled by WRITEs that its server takes, and so it is loaded.
#[test]
fn a_server_with_small_limits_is_loaded_within_them() {
    let files = start(64 << 10);
    let address = files.address();
    for words in ["--rw randread --size 3m --bs 64k", "--rw create --bs 64k"] {
        let report = perf(address, words).expect("it is loaded");
        assert!(report.is_clean(), "{words}: {}", report.text());
    }
    let error = perf(address, "--rw read --size 1m --bs 128k").expect_err("too much");
    assert!(error.contains("above the target's limit"), "{error}");
    let error = perf(address, "--rw create --bs 128k").expect_err("too much");
    assert!(error.contains("one WRITE"), "{error}");
}

/// The answer to a COMPOUND of SEQUENCE, PUTFH and `op` becomes NFS4ERR_DELAY, as
/// if `op` had not been executed.
fn delay(answer: &mut Vec<u8>, op: nfs_opnum4) -> bool {
    // The header of RPC, then the status of all, no tag, three results.
    const STATUS: usize = 24;
    const OP: usize = 88;
    let word = |at: usize| answer.get(at..at + 4).map(|word| word.to_vec());
    let is_it = word(OP) == Some((op as u32).to_be_bytes().into())
        && word(STATUS) == Some(vec![0; 4])
        && word(4) == Some(vec![0, 0, 0, 1]);
    if is_it {
        let status = (nfsstat4::NFS4ERR_DELAY as u32).to_be_bytes();
        answer.truncate(OP + 8);
        answer[STATUS..STATUS + 4].copy_from_slice(&status);
        answer[OP + 4..].copy_from_slice(&status);
    }
    is_it
}

/// A server that asks for patience is left alone for a while: 80 such answers to
/// four at a time take twenty turns, in which the load ends.
#[test]
fn a_busy_server_is_left_alone_for_a_while() {
    const DELAYS: u32 = 80;
    let files = start(1 << 20);
    for (words, op) in [
        ("--rw readdir", nfs_opnum4::OP_READDIR),
        ("--rw create", nfs_opnum4::OP_WRITE),
    ] {
        let given = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&given);
        let edit = move |answer: &mut Vec<u8>| {
            if count.load(Ordering::Relaxed) < DELAYS && delay(answer, op) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let address = proxy::start(files.address(), Arc::new(|_| None), Arc::new(edit));
        let report = perf(address, &format!("{words} --iodepth 4")).expect("it is loaded");
        assert_eq!(given.load(Ordering::Relaxed), DELAYS, "all of them came");
        assert!(report.is_clean(), "{words}: {}", report.text());
        assert_eq!(report.metadata.ops, 0, "{words}: {}", report.text());
    }
}
