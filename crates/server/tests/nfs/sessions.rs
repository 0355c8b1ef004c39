//! Sessions: several connections, delegations that are called back, clients that
//! are listed and evicted.

use needs::each_driver;
use reactor::Choice;
use std::path::Path;
use std::time::Duration;

use host::nfs::{Access, Create, Params};
use server::Change;
use wire::nfs4::{nfsstat4, stable_how4};

use crate::common::{
    Caller, at, config, connect, drain, export, fill, make, memory, params, pattern, stop, until,
    with_server,
};

#[each_driver]
fn a_session_spans_connections_on_both_reactors(backend: Choice) {
    with_server(backend, |running, export| {
        let params = Params {
            connections: 4,
            slots: 16,
            ..params()
        };
        let mut client = connect(running, params);
        let root = client.lookup([export]).expect("exported");
        let open = make(&mut client, &root, "spread");
        let bytes = pattern(3, 3 << 20);
        fill(&mut client, &open, &bytes, 64 << 10);
        assert!(drain(&mut client, &open, 64 << 10) == bytes);
        let known = running.nfs_clients();
        let known: Vec<_> = known.iter().filter(|c| c.id == client.clientid()).collect();
        assert_eq!(
            (known.len(), known[0].opens, known[0].minor),
            (1, 1, Some(2))
        );
        client.close_file(open).expect("closed");
        client.disconnect().expect("gone in order");
    });
}

/// Connections that are lost and come back lose nothing.
#[each_driver]
fn a_lost_connection_is_replaced(backend: Choice) {
    with_server(backend, |running, export| {
        let (mut client, root) = at(running, export);
        let open = make(&mut client, &root, "cut");
        let bytes = pattern(4, 300_000);
        for (n, part) in bytes.chunks(30_000).enumerate() {
            client.cut_connections().expect("cut");
            let offset = (n * 30_000) as u64;
            let data = (part, wire::nfs4::stable_how4::UNSTABLE4);
            client
                .write(&open, offset, data)
                .expect("written after all");
        }
        assert!(drain(&mut client, &open, 100_000) == bytes);
        client.close_file(open).expect("closed");
    });
}

/// A client with a read delegation is called back before another writes, on
/// whichever reactor it is.
#[each_driver]
fn a_delegation_is_called_back(backend: Choice) {
    with_server(backend, |running, export| {
        let (mut reader, root) = at(running, export);
        let open = make(&mut reader, &root, "given");
        fill(&mut reader, &open, b"before", 4096);
        reader.close_file(open).expect("closed");
        let how = (Access::Read, Create::No);
        let held = reader.open((&root, "given"), how, true).expect("there");
        assert!(reader.has_delegation(&held), "none writes it");

        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut writer, root) = at(running, export);
                // It is told to ask again until the delegation is back.
                let how = (Access::Write, Create::No);
                let open = writer.open((&root, "given"), how, false).expect("let in");
                fill(&mut writer, &open, b"after!", 4096);
                writer.close_file(open).expect("closed");
                done.store(true, std::sync::atomic::Ordering::Release);
            });
            let mut returned = 0;
            until("the writer is let in", || {
                returned += reader.serve(Duration::from_millis(20)).expect("alive");
                done.load(std::sync::atomic::Ordering::Acquire)
            });
            assert_eq!(returned, 1);
        });
        assert_eq!(drain(&mut reader, &held, 4096), b"after!");
        reader.close_file(held).expect("closed");
    });
}

/// What a local program does.
type LocalUse = fn(&Path);

/// What a local program does to a file of a `dir` is not kept from a client with a delegation.
#[each_driver]
fn delegation_of_a_file_that_a_local_program_uses_is_recalled(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let (mut client, root) = at(&running, "dir");
    let path = |name: &str| folder.path().join("dir").join(name);
    let cases: [(Access, LocalUse); 4] = [
        (Access::Read, |path| {
            std::fs::write(path, b"local").expect("written");
        }),
        (Access::Read, |path| {
            std::fs::remove_file(path).expect("removed");
        }),
        (Access::Read, |path| {
            std::fs::rename(path, path.with_extension("moved")).expect("moved");
        }),
        (Access::Both, |path| {
            std::fs::read(path).expect("read");
        }),
    ];
    for (n, (access, local)) in cases.into_iter().enumerate() {
        let name = format!("file{n}");
        let open = make(&mut client, &root, &name);
        fill(&mut client, &open, b"before", 4096);
        client.close_file(open).expect("closed");
        let how = (access, Create::No);
        let held = client.open((&root, &name), how, true).expect("there");
        assert!(client.has_delegation(&held), "{name}: none else has it");
        // What clients read, and what weft does for them, is no local change.
        assert_eq!(drain(&mut client, &held, 4096), b"before");
        let mut other = connect(&running, params());
        other.lookup(["dir", &name]).expect("there");
        assert_eq!(client.serve(Duration::from_millis(20)).expect("alive"), 0);
        local(&path(&name));
        until("it is recalled", || {
            client.serve(Duration::from_millis(20)).expect("alive") == 1
        });
        client.close_file(held).expect("closed");
    }
    stop(running);
}

#[each_driver]
fn an_evicted_client_loses_what_it_had(backend: Choice) {
    with_server(backend, |running, export| {
        let one = Params {
            patience: Duration::ZERO,
            ..params()
        };
        let mut evicted = connect(running, one);
        let root = evicted.lookup([export]).expect("exported");
        let open = make(&mut evicted, &root, "mine");
        fill(&mut evicted, &open, b"x", 1);
        let id = evicted.clientid();
        let (mut other, root) = at(running, export);
        other.remove(&root, "mine").expect("a file without an open");
        running.change(Change::EvictClient { id }).expect("there");
        assert!(running.nfs_clients().iter().all(|client| client.id != id));
        let refused = evicted.read(&open, 0, &mut [0; 8]).expect_err("evicted");
        assert!(refused.to_string().contains("session is gone"), "{refused}");
        let again = running.change(Change::EvictClient { id });
        let text = again.expect_err("it is gone").to_string();
        assert!(text.contains("NFS client"), "{text}");
        // Other clients have not noticed.
        let open = make(&mut other, &root, "other");
        other.close_file(open).expect("closed");
    });
}

/// A file without a name that only the evicted has open goes with it.
#[each_driver]
fn room_that_an_evicted_client_had_is_given_back(backend: Choice) {
    with_server(backend, |running, _| {
        let name = "small".to_owned();
        let made = running.change(Change::AddFileSystem(memory(&name, 8 << 20)));
        if made.is_ok() {
            running
                .change(Change::AddExport(export(&name)))
                .expect("made");
        }
        let (mut evicted, root) = at(running, &name);
        let open = make(&mut evicted, &root, "large");
        fill(&mut evicted, &open, &pattern(1, 6 << 20), 1 << 20);
        evicted.remove(&root, "large").expect("removed");
        let (mut other, root) = at(running, &name);
        let mine = make(&mut other, &root, "other");
        let bytes = pattern(2, 1 << 20);
        let full = |client: &mut Caller| {
            let write = |n: u64| client.write(&mine, n << 20, (&bytes, stable_how4::UNSTABLE4));
            let error = (0..6).map(write).find_map(Result::err);
            error.map(|error| error.status())
        };
        assert_eq!(full(&mut other), Some(Some(nfsstat4::NFS4ERR_NOSPC)));
        let id = evicted.clientid();
        running.change(Change::EvictClient { id }).expect("there");
        until("there is room", || full(&mut other).is_none());
        other.close_file(mine).expect("closed");
        other.remove(&root, "other").expect("removed");
    });
}
