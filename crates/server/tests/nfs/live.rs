//! Changes while clients are at work.

use needs::each_driver;
use reactor::Choice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use host::nfs::{Access, Create};
use server::nfs::{Clients, ExportSpec, QuotaSpec, Rule, Squash};
use server::{Change, ListenerSpec, Protocol};
use store::fs::{Quota, QuotaLimits, QuotaSubject};
use wire::nfs4::{nfsstat4, stable_how4};

use crate::common::{
    at, config, connect, directory, export, fill, make, memory, params, pattern, stop, until,
    with_server,
};

fn status<T: std::fmt::Debug>(result: Result<T, host::nfs::ClientError>) -> Option<nfsstat4> {
    result.expect_err("refused").status()
}

fn rule(rule: Rule) -> Vec<Rule> {
    vec![Rule {
        squash: Squash::None,
        ..rule
    }]
}

/// What a client may do changes with its next call, without a new mount.
#[each_driver]
fn rules_change_under_an_open_file(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let open = make(&mut client, &root, "file");
        fill(&mut client, &open, b"one", 3);
        let set = |rules: Vec<Rule>| {
            let spec = ExportSpec {
                rules,
                ..export(name)
            };
            running.change(Change::SetExport(spec)).expect("made");
        };
        let write = |client: &mut crate::common::Caller| {
            client.write(&open, 0, (b"two", stable_how4::UNSTABLE4))
        };
        set(rule(Rule {
            is_read_only: true,
            ..Rule::default()
        }));
        assert_eq!(status(write(&mut client)), Some(nfsstat4::NFS4ERR_ROFS));
        client.read(&open, 0, &mut [0; 3]).expect("still readable");
        set(rule(Rule {
            clients: Clients::nets(vec!["192.0.2.0/24".parse().expect("a network")]),
            ..Rule::default()
        }));
        assert_eq!(status(write(&mut client)), Some(nfsstat4::NFS4ERR_STALE));
        set(rule(Rule::default()));
        write(&mut client).expect("as before");
        client.close_file(open).expect("closed");
    });
}

/// A quota holds for the next write, and no more when it is gone.
#[each_driver]
fn quotas_are_set_while_clients_write(backend: Choice) {
    with_server(backend, |running, name| {
        let quota = |file_system: &str, bytes: u64| QuotaSpec {
            name: "all".to_owned(),
            file_system: file_system.to_owned(),
            quota: Quota {
                subject: QuotaSubject::Tree("/".to_owned()),
                limits: QuotaLimits {
                    hard_bytes: Some(bytes),
                    ..QuotaLimits::default()
                },
            },
        };
        let set = |quotas: Vec<QuotaSpec>| running.change(Change::SetQuotas(quotas));
        if name == "dir" {
            let mut tree = quota("dir", 1 << 20);
            tree.quota.subject = QuotaSubject::Tree("/t".to_owned());
            let refused = set(vec![quota("mem", 1 << 20), tree]);
            let text = refused.expect_err("no trees").to_string();
            let expected = "quota \"all\": tree /t: the file system keeps no such quotas";
            assert_eq!(text, expected);
        }
        let (mut client, root) = at(running, name);
        let open = make(&mut client, &root, "file");
        fill(&mut client, &open, b"one", 3);
        let mut write = |at: u64| {
            let data = pattern(1, 64 << 10);
            let written = client.write(&open, at, (&data, stable_how4::UNSTABLE4));
            written.map(|_| ()).map_err(|error| error.status())
        };
        set(vec![quota(name, 100 << 10)]).expect("made");
        write(0).expect("it fits");
        assert_eq!(write(64 << 10), Err(Some(nfsstat4::NFS4ERR_DQUOT)));
        write(0).expect("it has room already");
        set(vec![quota(name, 1 << 20)]).expect("made");
        write(64 << 10).expect("it fits now");
        set(Vec::new()).expect("made");
        write(4 << 20).expect("nothing limits it");
        client.close_file(open).expect("closed");
    });
}

#[each_driver]
fn file_systems_and_exports_are_added_and_removed_while_others_serve(backend: Choice) {
    with_server(backend, |running, _| {
        let (mut client, _) = at(running, "mem");
        let gone = client.lookup(["new"]);
        assert_eq!(status(gone), Some(nfsstat4::NFS4ERR_NOENT));
        let add = |change| running.change(change);
        add(Change::AddFileSystem(memory("new", 8 << 20))).expect("made");
        let twice = add(Change::AddFileSystem(memory("new", 8 << 20)));
        assert!(twice.expect_err("twice").to_string().contains("already"));
        add(Change::AddExport(export("new"))).expect("made");
        let below = ExportSpec {
            path: "/new/below".into(),
            ..export("new")
        };
        let nested = add(Change::AddExport(below))
            .expect_err("nested")
            .to_string();
        assert!(
            nested.contains("/new/below would lie within /new"),
            "{nested}"
        );
        let unknown = add(Change::AddExport(export("none"))).expect_err("no such");
        assert!(unknown.to_string().contains("no file system \"none\""));

        let root = client.lookup(["new"]).expect("there at once");
        let open = make(&mut client, &root, "file");
        fill(&mut client, &open, &pattern(1, 100_000), 50_000);
        let name = "new".to_owned();
        let used = add(Change::RemoveFileSystem { name: name.clone() });
        assert!(
            used.expect_err("used")
                .to_string()
                .contains("exported as /new")
        );
        let path = "/new".to_owned();
        add(Change::RemoveExport { path: path.clone() }).expect("removed");
        let late = client.read(&open, 0, &mut [0; 8]);
        assert_eq!(status(late), Some(nfsstat4::NFS4ERR_STALE));
        let again = add(Change::RemoveExport { path }).expect_err("gone");
        assert!(again.to_string().contains("no export /new"), "{again}");
        add(Change::RemoveFileSystem { name }).expect("removed");
        // The client has the others as before.
        let root = client.lookup(["mem"]).expect("there");
        let open = make(&mut client, &root, "else");
        client.close_file(open).expect("closed");
    });
}

/// A reader of all file systems still holds the directory that is removed: its state file is free
/// when the removal is over.
#[each_driver]
fn a_directory_that_is_removed_can_be_added_at_once(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(config(backend, folder.path())).expect("starts");
    let spec = directory(folder.path(), "other");
    let add = || running.change(Change::AddFileSystem(spec.clone()));
    add().expect("made");
    let held = running.file_systems();
    std::thread::scope(|scope| {
        let again = scope.spawn(|| {
            let name = "other".to_owned();
            running.change(Change::RemoveFileSystem { name })?;
            add()
        });
        until("the removal has begun", || {
            running.file_systems().len() < held.len()
        });
        // A removal that does not wait is over by now.
        std::thread::sleep(Duration::from_millis(50));
        drop(held);
        again.join().expect("no panic").expect("added again");
    });
    stop(running);
}

/// An export goes while files in it are written: clients that write to it are refused, all
/// others go on.
#[each_driver]
fn an_export_is_removed_under_load(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut other, root) = at(running, if name == "mem" { "dir" } else { "mem" });
        let open = make(&mut other, &root, "calm");
        let writes = [const { AtomicU64::new(0) }; 3];
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (n, writes) in (0u8..).zip(&writes) {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut client, root) = at(running, name);
                    let open = make(&mut client, &root, &format!("load{n}"));
                    let bytes = pattern(n, 100_000);
                    for turn in 0..1_000_000u64 {
                        let offset = turn % 16 * 100_000;
                        let data = (&bytes[..], stable_how4::UNSTABLE4);
                        // Known before the call goes: one on its way may still be answered.
                        let must_fail = is_over.load(Ordering::Acquire);
                        match client.write(&open, offset, data) {
                            Ok(_) => drop(writes.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => {
                                // One that had found its file just before it went has
                                // lost what it opened.
                                let gone = [
                                    Some(nfsstat4::NFS4ERR_STALE),
                                    Some(nfsstat4::NFS4ERR_ADMIN_REVOKED),
                                ];
                                assert!(gone.contains(&error.status()), "{error}");
                                return;
                            }
                        }
                        assert!(!must_fail, "it goes on writing");
                    }
                    panic!("nothing ever refused a write");
                });
            }
            // Of each: one that has yet to open its file would find no export.
            let has_load = |writes: &AtomicU64| writes.load(Ordering::Relaxed) > 10;
            until("there is a load", || writes.iter().all(has_load));
            let path = format!("/{name}");
            running
                .change(Change::RemoveExport { path })
                .expect("removed");
            is_over.store(true, Ordering::Release);
        });
        fill(&mut other, &open, b"calm", 4);
        other.close_file(open).expect("closed");
        // It comes back with what it had.
        running
            .change(Change::AddExport(export(name)))
            .expect("made");
        let (mut client, root) = at(running, name);
        let how = (Access::Read, Create::No);
        let open = client.open((&root, "load0"), how, false).expect("there");
        client.close_file(open).expect("closed");
    });
}

#[each_driver]
fn nfs_listener_is_added_and_removed_while_others_serve(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut old, _) = at(running, name);
        let spec = ListenerSpec::nfs(([127, 0, 0, 1], 0).into());
        assert_eq!(spec.protocol, Protocol::Nfs);
        running.change(Change::AddListener(spec)).expect("made");
        let address = *running.addresses().last().expect("it");
        let driver = crate::common::driver();
        let mut new = host::nfs::Client::connect(driver, address, params()).expect("there");
        new.lookup([name]).expect("exported there too");
        running
            .change(Change::RemoveListener { address })
            .expect("made");
        new.idle(std::time::Duration::from_millis(1)).ok();
        old.lookup([name]).expect("others have not noticed");
        drop(connect(running, params()));
    });
}

/// Those that there are have nowhere to go.
#[each_driver]
fn drained_server_keeps_its_clients_and_takes_no_other(backend: Choice) {
    with_server(backend, |running, name| {
        let (mut client, root) = at(running, name);
        let open = make(&mut client, &root, "file");
        running.change(Change::SetDrained(true)).expect("made");
        fill(&mut client, &open, b"one", 3);
        let hurried = host::nfs::Params {
            patience: std::time::Duration::from_millis(1),
            ..params()
        };
        let (driver, address) = (crate::common::driver(), crate::common::address(running));
        let refused = host::nfs::Client::connect(driver, address, hurried);
        assert_eq!(status(refused.map(drop)), Some(nfsstat4::NFS4ERR_DELAY));
        until("the refusal is told", || {
            let told = running.refusals();
            told.iter()
                .any(|one| one.reason.contains("weft is drained"))
        });
        running.change(Change::SetDrained(false)).expect("made");
        drop(connect(running, params()));
        client.close_file(open).expect("closed");
    });
}
