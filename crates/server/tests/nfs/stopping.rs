//! An orderly end while clients are at work.

use needs::each_driver;
use reactor::Choice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use host::nfs::Params;
use wire::nfs4::stable_how4;

use crate::common::{config, connect, make, params, pattern, stop, until};

/// Every write that was answered is there; for one that was not, the connection
/// ends without an error.
#[each_driver]
fn writes_answered_before_the_end_are_on_the_disk(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let answered: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (n, answered) in answered.iter().enumerate() {
            let one = Params {
                patience: Duration::ZERO,
                ..params()
            };
            let running = &running;
            scope.spawn(move || {
                let mut client = connect(running, one);
                let root = client.lookup(["dir"]).expect("exported");
                let open = make(&mut client, &root, &format!("file{n}"));
                for turn in 0u64.. {
                    let bytes = pattern(turn as u8, 30_000);
                    let data = (&bytes[..], stable_how4::UNSTABLE4);
                    match client.write(&open, turn * 30_000, data) {
                        Ok(_) => answered.store(turn + 1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.status(), None, "{error}");
                            break;
                        }
                    }
                }
            });
        }
        until("all are at work", || {
            answered.iter().all(|n| n.load(Ordering::Relaxed) > 20)
        });
        running.stop();
    });
    {
        let report = stop(running);
        assert!(report.nfs_calls > 80, "{} calls", report.nfs_calls);
        assert_eq!((report.unsynced, report.refusals), (0, 0));
        assert_eq!(report.orphans, 0);
    }
    for (n, answered) in answered.iter().enumerate() {
        let path = folder.path().join(format!("dir/file{n}"));
        let there = std::fs::read(path).expect("the file");
        let turns = answered.load(Ordering::Relaxed);
        assert!(there.len() as u64 >= turns * 30_000, "file{n}");
        for (turn, part) in (0..turns).zip(there.chunks(30_000)) {
            assert!(part == pattern(turn as u8, 30_000), "file{n}, write {turn}");
        }
    }
}

/// Connections that send nothing do not delay the end.
#[each_driver]
fn silent_connections_do_not_delay_the_end(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let mut streams: Vec<_> = (0..20)
        .map(|_| crate::raw::open(crate::common::address(&running)))
        .collect();
    streams.iter_mut().take(10).for_each(crate::raw::ping);
    let report = stop(running);
    assert_eq!(report.nfs_calls, 0, "NULL is answered by the machine");
    for mut stream in streams {
        let mut rest = Vec::new();
        let end = std::io::Read::read_to_end(&mut stream, &mut rest);
        assert!(rest.is_empty(), "{end:?}");
    }
}
