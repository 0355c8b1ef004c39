//! Snapshots: of many volumes, and on disks that do not answer.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use api::SnapshotRollback;
use server::parts::start_with;
use server::{Change, NamespaceSpec};
use store::snapshot::{self, SnapshotData, SnapshotMedium};
use store::{Range, State, Volume};

use super::*;
use crate::rollback::roll_back;
use crate::snapshots::list_of;

/// A document in which hosts have the volume "a", which lies in a file of the folder.
fn text_with_a_file(folder: &Path, volumes: &[&str]) -> String {
    let file = folder.join("disk");
    let kind = format!("kind = \"file\"\npath = \"{}\"", file.display());
    text(volumes)
        .replace(
            "name = \"a\"\nkind = \"null\"",
            &format!("name = \"a\"\n{kind}"),
        )
        .replace("volumes = [\"base\"]", "volumes = [\"base\", \"a\"]")
}

#[test]
fn snapshots_are_listed_of_all_volumes_but_those_whose_folder_cannot_be_read() {
    let (folder, file) = folder();
    fs::write(&file, text_with_a_file(folder.path(), &["a"])).expect("room");
    let target = Target::start(Some(&file), "");
    let all = list_of(&target.running, None).expect("listed");
    assert!(all.snapshots.is_empty() && all.unread.is_empty());
    let link = folder.path().join("disk.snapshots");
    symlink(&link, &link).expect("a link to itself");
    let all = list_of(&target.running, None).expect("the others");
    assert_eq!(all.unread.len(), 1);
    assert!(
        all.unread[0].contains("of volume \"a\""),
        "{:?}",
        all.unread
    );
    assert!(list_of(&target.running, Some("a")).is_err());
    assert!(list_of(&target.running, Some("base")).is_ok());
    target.end();
}

/// Where snapshots lie on a disk that stands still once a rollback is to be noted there.
struct StillDisk {
    bytes: u64,
    record: Mutex<String>,
    reached: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

impl SnapshotMedium for StillDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let is_kept = !self.record.lock().expect("no panic").is_empty();
        Ok(is_kept.then(|| "monday".to_owned()).into_iter().collect())
    }
    fn record(&self, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.record.lock().expect("no panic").clone().into_bytes())
    }
    fn data(&self, _: &str) -> io::Result<SnapshotData> {
        Ok(SnapshotData {
            bytes: self.bytes,
            unique_bytes: None,
        })
    }
    fn prepare(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn take(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn keep(&self, _: &str, record: &str) -> io::Result<()> {
        record.clone_into(&mut self.record.lock().expect("no panic"));
        Ok(())
    }
    fn discard(&self, _: &str) {}
    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!("it stays")
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!("it keeps its name")
    }
    fn clone_to(&self, _: &str, _: &Path, _: &[Range]) -> io::Result<()> {
        unreachable!("there is no clone")
    }
    fn pending(&self) -> io::Result<Option<String>> {
        Ok(None)
    }
    fn set_pending(&self, name: Option<&str>) -> io::Result<()> {
        if name.is_some() {
            self.reached.send(()).expect("the test waits");
            let goes_on = self.goes_on.lock().expect("no panic");
            goes_on.recv().expect("the test goes on");
        }
        Ok(())
    }
    fn restore(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn clean(&self) {}
}

#[test]
fn rollback_on_a_disk_that_does_not_answer_holds_up_no_other_change() {
    let (folder, file) = folder();
    fs::write(&file, text_with_a_file(folder.path(), &["a"])).expect("room");
    let (document, config) = Document::open(Some(&file), (BUILT_IN, "")).expect("no mistakes");
    let (reached, is_reached) = channel();
    let (go_on, goes_on) = channel();
    let mut medium = Some(StillDisk {
        bytes: 1 << 20,
        record: Mutex::default(),
        reached,
        goes_on: Mutex::new(goes_on),
    });
    let volumes = config.volumes.iter().map(|spec| match &*spec.name {
        "a" => {
            let disk = fs::File::create_new(folder.path().join("disk")).expect("room");
            disk.set_len(1 << 20).expect("room");
            let medium = medium
                .take()
                .map(|medium| Box::new(medium) as Box<dyn SnapshotMedium>);
            store::over_file(spec, Arc::new(disk.into()), State::volatile(), medium)
        }
        _ => store::open(spec),
    });
    let volumes: Vec<Arc<dyn Volume>> = volumes.map(|volume| volume.expect("it opens")).collect();
    snapshot::create(&volumes[1..], "monday", 7).expect("it is made");
    let running = Arc::new(start_with(config.clone(), volumes).expect("starts"));
    let log = Arc::new(EventLog::default());
    let target = Target {
        served: Arc::new(ServedFile::new(running.clone(), &config, document, log)),
        running,
        notes: Vec::new(),
    };
    let (target, folder) = (&target, folder.path());
    let namespaces = || target.running.served().subsystems[0].namespaces.len();
    assert_eq!(namespaces(), 2);
    let asked = SnapshotRollback {
        name: "monday".to_owned(),
        volumes: vec!["a".to_owned()],
        disconnect: false,
    };
    thread::scope(|scope| {
        let rollback = scope.spawn(|| roll_back(&target.served, &asked).is_ok());
        is_reached.recv().expect("it is noted");
        assert_eq!(namespaces(), 1);
        let (made, is_made) = channel();
        scope.spawn(move || {
            let put = target.put(&text_with_a_file(folder, &["a", "b"]));
            made.send(put.is_ok())
        });
        let is_made = is_made.recv_timeout(Duration::from_secs(20));
        let given = target.running.change(Change::AddNamespace {
            nqn: "nqn.2026-01.org.example:s".to_owned(),
            namespace: NamespaceSpec {
                nsid: 9,
                volume: "a".to_owned(),
                ..NamespaceSpec::default()
            },
        });
        go_on.send(()).expect("it waits");
        assert_eq!(is_made, Ok(true));
        let refused = given.expect_err("it is being rolled back").to_string();
        assert!(refused.contains("a rollback that is not over"), "{refused}");
        assert!(rollback.join().expect("no panic"));
    });
    assert_eq!((namespaces(), target.volumes().len()), (2, 2));
    target.running.stop();
    let ended = target.running.wait(Duration::from_secs(20));
    assert!(ended.expect("in order").is_some(), "it has ended");
}
