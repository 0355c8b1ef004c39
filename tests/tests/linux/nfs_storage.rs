//! An unmodified Linux kernel as the client of a storage machine that has port 111 to itself and
//! calls back: locks of version 3 by UDP, delegations of version 4.0 by TCP, access control lists,
//! and referrals to another such machine.

use interop::guest::{Config, Guest, prepare};
use interop::scripts::{
    LAB, NFS, NFS_ACL, NFS_CALLBACKS, NFS_LOCKS, NFS_REFERRALS, NFS_STORAGE, STORAGE, script,
};
use interop::systems::RELEASE;
use interop::weft::binary;
use needs::needs;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs `pieces` in a guest in which weft is a machine of its own.
fn run(name: &str, pieces: &[&str]) {
    let weft = tempfile::tempdir().expect("a folder");
    fs::copy(binary(), weft.path().join("weft")).expect("a copy");
    let (packages, _) = prepare(&RELEASE).expect("packages, as everything for a guest is there");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = now.expect("a clock").subsec_nanos().to_string();
    let settings = [
        ("ADDR", "192.0.2.1"),
        ("PORT", "2049"),
        ("STEPS", "60"),
        ("SEED", &seed),
    ];
    let pieces = [&[LAB, STORAGE, NFS], pieces].concat();
    let mut config = Config::new(name, &script(&settings, &pieces));
    config.cpus = 2;
    config.limit = Duration::from_secs(600);
    config.program = Some(env!("CARGO_BIN_EXE_exerciser").into());
    config.folders = vec![
        ("packages", packages.root),
        ("weft", weft.path().to_path_buf()),
    ];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    println!("{said}");
    let last = said.lines().rfind(|line| line.starts_with("STEP"));
    assert!(last.is_some_and(|line| line.ends_with(" end")), "{said}");
}

/// No option but the version: the port mapper says where all else is. Locks and those of version
/// 4.2 are in each other's way, are given to those that wait, and outlive weft.
#[needs(guest)]
#[test]
fn version_3_without_options_has_locks_that_hold_against_version_4_2_and_are_reclaimed() {
    run("nfs-locks", &[NFS_STORAGE, NFS_LOCKS]);
}

/// By nfs4_setfacl in versions 4.2 and 4.0 and by setfacl in version 3, on every kind of file
/// system: the kernel's users may do what lists say.
#[needs(guest)]
#[test]
fn access_control_lists_say_what_users_of_the_kernel_may_do() {
    run("nfs-acl", &[NFS_STORAGE, NFS_ACL]);
}

/// The kernel is called on a connection to it: delegations are recalled and asked about. Where it
/// is not to be called, or does not answer, it has none, and others go on.
#[needs(guest)]
#[test]
fn version_4_0_has_delegations_as_long_as_its_client_answers() {
    run("nfs-callbacks", &[NFS_CALLBACKS]);
}

/// Versions 4.2 to 4.0 find files of another server below the first, of two the one that is up.
/// Where none is, who enters gets an error and all else goes on. Version 3 has no referrals.
#[needs(guest)]
#[test]
fn referral_leads_the_kernel_to_files_of_another_server() {
    run("nfs-referrals", &[NFS_REFERRALS]);
}
