//! Files by their operations: what is written is read.

use host::nfs::{Access, Create};
use needs::each_driver;
use reactor::Choice;
use server::nfs::Flavor;
use wire::nfs4::{nfsstat4, stable_how4};

use crate::common::{at, config, connect, drain, fill, make, params, pattern, stop, with_server};

/// Sizes around what is staged, what lies beside attributes, and one call's data.
const SIZES: [usize; 8] = [1, 511, 4096, 8192, 8193, 65_537, 1 << 20, (2 << 20) + 4097];

#[each_driver]
fn read_of_a_file_returns_what_was_written(backend: Choice) {
    with_server(backend, |running, export| {
        let (mut client, root) = at(running, export);
        for (seed, size) in (1..).zip(SIZES) {
            for each in [4096, 100_000, 1 << 20] {
                let name = format!("{size}-{each}");
                let open = make(&mut client, &root, &name);
                let bytes = pattern(seed, size);
                fill(&mut client, &open, &bytes, each);
                assert!(drain(&mut client, &open, each) == bytes, "{export} {name}");
                client.close_file(open).expect("closed");
            }
        }
        let report = crate::report::report(running);
        assert!(report.nfs_calls > report.ios && report.ios > 0);
        let written: usize = 3 * SIZES.iter().sum::<usize>();
        assert!(report.io_bytes as usize >= 2 * written, "written and read");
    });
}

/// A second client finds what the first has left, by names.
#[each_driver]
fn second_client_finds_files_of_the_first_by_name(backend: Choice) {
    with_server(backend, |running, export| {
        let (mut one, root) = at(running, export);
        let below = one.create_directory(&root, "below").expect("room");
        let open = make(&mut one, &below, "file");
        let bytes = pattern(7, 50_000);
        fill(&mut one, &open, &bytes, 1 << 20);
        one.commit(&one.handle(&open).clone()).expect("committed");
        one.close_file(open).expect("closed");

        let (mut other, root) = at(running, export);
        let names = |entries: Vec<host::nfs::Entry>| {
            let names = entries.into_iter().map(|entry| entry.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(other.entries(&root).expect("listed")), [b"below"]);
        let below = other.lookup([export, "below"]).expect("there");
        let open =
            (other.open((&below, "file"), (Access::Read, Create::No), false)).expect("there");
        assert!(drain(&mut other, &open, 10_000) == bytes);
        other.close_file(open).expect("closed");
        other.remove(&below, "file").expect("removed");
        other.remove(&root, "below").expect("removed");
        let gone = one.lookup([export, "below"]).expect_err("gone");
        assert_eq!(gone.status(), Some(nfsstat4::NFS4ERR_NOENT));
    });
}

/// Of exports that want calls to be secured otherwise the list of those above says that.
#[each_driver]
fn entry_that_is_not_shown_hides_no_other(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(backend, folder.path());
    config.exports[1].rules[0].flavors = vec![Flavor::Krb5];
    let running = server::start(config).expect("starts");
    let mut client = connect(&running, params());
    let root = client.lookup([]).expect("the uppermost directory");
    let entries = client.entries(&root).expect("listed").into_iter();
    let mut told: Vec<_> = entries
        .map(|entry| (entry.name, entry.attributes.error))
        .collect();
    told.sort_by(|a, b| a.0.cmp(&b.0));
    let wants_other = Some(nfsstat4::NFS4ERR_WRONGSEC);
    let expected = [(b"dir".to_vec(), wants_other), (b"mem".to_vec(), None)];
    assert_eq!(told, expected);
    stop(running);
}

/// FILE_SYNC says so, and the verifier is one while the server runs.
#[each_driver]
fn stable_write_is_answered_with_file_sync(backend: Choice) {
    with_server(backend, |running, export| {
        let (mut client, root) = at(running, export);
        let open = make(&mut client, &root, "stable");
        let data = (&b"safe"[..], stable_how4::FILE_SYNC4);
        let first = client.write(&open, 0, data).expect("room");
        assert_eq!(first.committed, stable_how4::FILE_SYNC4);
        let verifier = client.commit(&client.handle(&open).clone()).expect("kept");
        assert_eq!(first.writeverf, verifier);
        client.close_file(open).expect("closed");
    });
}
