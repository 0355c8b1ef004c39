//! An unmodified Linux kernel as the client of files by RDMA, on soft iWARP: the sessions of
//! clients by TCP, and what goes otherwise by RDMA.

use interop::scripts::{NFS_RDMA, NFS_SESSION, RDMA};
use interop::systems::SIW;
use needs::needs;

use crate::nfs::{Transport, killed_under_load, session, two_kernels};

static BY_RDMA: Transport = Transport {
    system: &SIW,
    listener: "rdma = true",
    first: &[RDMA],
    settings: &[("SIW", "siw")],
};

/// A peer that asks for CRCs and the first FPDU, and sends large ones.
static STRICT: Transport = Transport {
    listener: "rdma = true\nmpa_crc = \"off\"",
    settings: &[("SIW", "siw_strict")],
    ..BY_RDMA
};

#[needs(guest, program("make"), program("gcc"))]
#[test]
fn files_by_rdma() {
    session(&BY_RDMA, "rdma-files", NFS_RDMA);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn files_by_rdma_with_a_stricter_peer() {
    session(&STRICT, "rdma-files-strict", NFS_RDMA);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn nfs_session_by_rdma() {
    session(&BY_RDMA, "rdma-session", NFS_SESSION);
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn nfs_server_killed_under_load_by_rdma() {
    killed_under_load(&BY_RDMA, "rdma-files-killed");
}

#[needs(guest, program("make"), program("gcc"))]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn nfs_two_kernels_by_rdma() {
    two_kernels(&BY_RDMA, "rdma-two");
}
