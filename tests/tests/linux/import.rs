//! Configurations of other programs, imported: disks keep their names and content, exports their
//! paths and rights.

use interop::guest::{Config, Guest, prepare};
use interop::scripts::{
    EXPORTS, FILES_LOOKS, GANESHA, ISCSI, ISCSI_IDENTITIES, LAB, NVMET, PROGRAMS, TARGETCLI, TGT,
    script,
};
use interop::systems::RELEASE;
use interop::weft::{NQN, binary};
use needs::needs;
use std::fs;
use std::time::Duration;

/// Runs a script beside which there are Debian's packages and weft.
fn run(name: &str, settings: &[(&str, &str)], pieces: &[&str]) {
    let weft = tempfile::tempdir().expect("a folder");
    fs::copy(binary(), weft.path().join("weft")).expect("a copy");
    let (packages, _) = prepare(&RELEASE).expect("packages, as everything for a guest is there");
    let mut config = Config::new(name, &script(settings, pieces));
    config.cpus = 2;
    config.limit = Duration::from_secs(480);
    config.folders = vec![
        ("packages", packages.root),
        ("weft", weft.path().to_path_buf()),
    ];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    println!("{}", guest.finish().expect_success());
}

/// targetcli saves, weft imports and exports, targetcli restores.
#[needs(guest)]
#[test]
fn disks_of_targetcli_stay_the_same_when_weft_serves_them_and_on_the_way_back() {
    let settings = [
        ("ADDR", "10.0.2.15"),
        ("PORT", "3260"),
        ("IQN", "iqn.2003-01.org.linux-iscsi.lab:disks"),
    ];
    let pieces = [LAB, ISCSI, ISCSI_IDENTITIES, TARGETCLI];
    run("import-targetcli", &settings, &pieces);
}

/// tgt-admin reads a file, and weft imports it.
#[needs(guest)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn disks_of_tgt_stay_the_same_when_weft_serves_them() {
    let settings = [
        ("ADDR", "10.0.2.15"),
        ("PORT", "3260"),
        ("IQN", "iqn.2026-01.org.example"),
    ];
    let pieces = [LAB, ISCSI, ISCSI_IDENTITIES, TGT];
    run("import-tgt", &settings, &pieces);
}

/// Paths, content, rights and owners.
#[needs(guest)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn exports_of_ganesha_stay_the_same_when_weft_serves_them() {
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "2049")];
    run("import-ganesha", &settings, &[LAB, FILES_LOOKS, GANESHA]);
}

/// exportfs and the kernel's server read the file, then weft does.
#[needs(guest)]
#[test]
fn exports_of_the_kernel_stay_the_same_when_weft_serves_them() {
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "2049")];
    run("import-exports", &settings, &[LAB, FILES_LOOKS, EXPORTS]);
}

/// SPDK, ctld, and the BSDs' mountd.
#[needs(guest)]
#[test]
fn objects_of_other_programs_configurations_are_found_when_weft_serves_them() {
    let pieces = [LAB, ISCSI, ISCSI_IDENTITIES, FILES_LOOKS, PROGRAMS];
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "3260")];
    run("import-programs", &settings, &pieces);
}

/// weft imports what the kernel's NVMe target serves, and exports it.
#[needs(guest)]
#[test]
fn namespaces_of_nvmet_stay_the_same_when_weft_serves_them_and_on_the_way_back() {
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "4420"), ("NQN", NQN)];
    run("import-nvmet", &settings, &[LAB, NVMET]);
}
