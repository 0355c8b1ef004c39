//! Configurations of the kernel's own targets, imported: the disks keep their names and content.

use interop::guest::{Config, Guest, prepare};
use interop::scripts::{ISCSI, LAB, NVMET, TARGETCLI, script};
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
    run("import-targetcli", &settings, &[LAB, ISCSI, TARGETCLI]);
}

/// weft imports what the kernel's NVMe target serves, and exports it.
#[needs(guest)]
#[test]
fn namespaces_of_nvmet_stay_the_same_when_weft_serves_them_and_on_the_way_back() {
    let settings = [("ADDR", "10.0.2.15"), ("PORT", "4420"), ("NQN", NQN)];
    run("import-nvmet", &settings, &[LAB, NVMET]);
}
