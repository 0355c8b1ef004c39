//! Servers that start again: clients on record reclaim what they had.

use host::nfs::{Access, Create};
use needs::each_driver;
use reactor::Choice;
use wire::nfs4::{nfsstat4, stable_how4};

use crate::common::{at, config, drain, fill, make, params, pattern, stop};

/// The same port, the same directory: a client with an open file goes on as if
/// nothing had been, and no other client may open files before.
#[each_driver]
fn a_client_on_record_reclaims_its_open_file(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    let running = server::start(config.clone()).expect("starts");
    config.listeners[0].address = running.addresses()[0];
    let (mut client, root) = at(&running, "dir");
    let open = make(&mut client, &root, "kept");
    let bytes = pattern(9, 100_000);
    fill(&mut client, &open, &bytes, 30_000);
    let file = client.handle(&open).clone();
    let before = client.commit(&file).expect("on the disk");
    stop(running);

    let running = server::start(config.clone()).expect("starts again");
    // A newcomer may open nothing before those on record had their time.
    let patient = params();
    let impatient = host::nfs::Params {
        patience: std::time::Duration::ZERO,
        ..patient
    };
    let mut newcomer = crate::common::connect(&running, impatient);
    let there = newcomer.lookup(["dir"]).expect("exported");
    let how = (Access::Read, Create::No);
    let refused = newcomer.open((&there, "kept"), how, false);
    let refused = refused.expect_err("grace");
    assert_eq!(refused.status(), Some(nfsstat4::NFS4ERR_GRACE));

    // The one on record does not even notice.
    let data = (&b"more"[..], stable_how4::FILE_SYNC4);
    let more = client.write(&open, 100_000, data).expect("reclaimed");
    assert_ne!(more.writeverf, before, "another start, another verifier");
    let mut expected = bytes.clone();
    expected.extend_from_slice(b"more");
    assert!(drain(&mut client, &open, 65_536) == expected);
    // All have reclaimed: grace is over before its time.
    let open_too = newcomer.open((&there, "kept"), how, false);
    newcomer
        .close_file(open_too.expect("grace is over"))
        .expect("closed");
    client.close_file(open).expect("closed");
    stop(running);
}

/// A state folder that is damaged or another's is told, not taken for an empty
/// one.
#[test]
fn a_damaged_record_keeps_the_server_from_starting() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(Choice::Epoll, folder.path());
    let running = server::start(config.clone()).expect("starts");
    let (mut client, root) = at(&running, "mem");
    let open = make(&mut client, &root, "x");
    client.close_file(open).expect("closed");
    let in_use = server::start(config.clone()).map(|_| ());
    let text = in_use.expect_err("one server, one folder").to_string();
    assert!(
        text.contains("in use") || text.contains("another weft"),
        "{text}"
    );
    stop(running);
    let path = folder.path().join("state/nfs-clients");
    let text = std::fs::read_to_string(&path).expect("records");
    assert!(text.contains("\nkept "), "{text}");
    std::fs::write(&path, text.replacen("boot", "boat", 1)).expect("ours");
    let damaged = server::start(config).map(|_| ());
    let text = damaged.expect_err("damaged").to_string();
    assert!(
        text.contains("nfs-clients") && text.contains("remove the file"),
        "{text}"
    );
}
