//! Changes of a document on a target that runs: what the disk has then, and after every
//! step that fails or is the last of the process.

mod keyrings;
mod locked;
mod snapshots;

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use api::{Changed, HistoryEntry, Holds, RequestKey};
use control::BUILT_IN;
use serde_json::Value;
use server::Running;

use crate::document::{Document, generation_of};
use crate::event_log::EventLog;
use crate::files::faults::{Fault, heal, plant};
use crate::generations::Generations;
use crate::refused::NotApplied;
use crate::served::{ChangeAsked, ServedFile};
use crate::state::sha256;

/// errno(3).
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Set in a process that is killed: the folder, and the step.
const VICTIM: &str = "WEFT_TEST_VICTIM";
/// The number of the process that has started it.
const PARENT: &str = "WEFT_TEST_PARENT";

/// An address of the loopback interface that no other test listens on meanwhile.
fn address() -> Ipv4Addr {
    static OWN: LazyLock<String> = LazyLock::new(|| {
        let of_parent = std::env::var(PARENT);
        of_parent.unwrap_or_else(|_| std::process::id().to_string())
    });
    let test = format!("{} {:?}", *OWN, thread::current().name());
    let digest = sha256(test.as_bytes());
    let byte = |at: usize| u8::from_str_radix(&digest[at..at + 2], 16).expect("hexadecimal");
    Ipv4Addr::new(127, byte(0) | 1, byte(2), byte(4) | 1)
}

/// A document with these volumes, and one that hosts see.
fn text(volumes: &[&str]) -> String {
    let mut text = format!(
        "# Kept as it is.\n[admin]\nstate = \"state\"\n[policy]\ncpus = \"0\"\n\
         [[listener]]\naddress = \"{}:4420\"\n\
         [[nvme.subsystem]]\nnqn = \"nqn.2026-01.org.example:s\"\n\
         allow_any_host = true\nvolumes = [\"base\"]\n",
        address()
    );
    let volumes = ["base"].iter().chain(volumes);
    for name in volumes {
        text += &format!("[[volume]]\nname = \"{name}\"\nkind = \"null\"\nsize = \"1MiB\"\n");
    }
    text
}

/// A target that serves a file of a folder, or what is built in.
struct Target {
    served: Arc<ServedFile>,
    running: Arc<Running>,
    notes: Vec<String>,
}

impl Target {
    fn start(file: Option<&Path>, built_in: &str) -> Target {
        let (document, config) = Document::open(file, (BUILT_IN, built_in)).expect("no mistakes");
        let notes = document.notes().to_vec();
        let running = Arc::new(server::start(config.clone()).expect("starts"));
        Target {
            served: Arc::new(ServedFile::new(
                running.clone(),
                &config,
                document,
                Arc::new(EventLog::default()),
            )),
            running,
            notes,
        }
    }

    fn volumes(&self) -> Vec<String> {
        let served = self.running.served();
        let names = served.volumes.iter().map(|(name, _)| name.clone());
        let names: BTreeSet<_> = names.filter(|name| name != "base").collect();
        names.into_iter().collect()
    }

    fn put(&self, text: &str) -> Result<Changed, NotApplied> {
        self.served.change(&asked(), |_| Ok(text.to_owned()))
    }

    fn generation(&self) -> u64 {
        self.served.text().1.generation
    }

    /// Numbers and verbs.
    fn history(&self) -> Vec<(u64, String)> {
        let all = self.served.history().generations.into_iter();
        let one = |entry: HistoryEntry| {
            let number = entry.number();
            match entry {
                HistoryEntry::Made(made) => (number, made.verb),
                HistoryEntry::Damaged { .. } => (number, "damaged".to_owned()),
            }
        };
        all.map(one).collect()
    }

    fn end(self) {
        self.running.stop();
        let ended = self.running.wait(Duration::from_secs(20));
        assert!(ended.expect("in order").is_some(), "it has ended");
    }
}

fn asked() -> ChangeAsked {
    ChangeAsked {
        verb: "apply".to_owned(),
        disconnect: true,
        ..ChangeAsked::default()
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weft.toml");
    fs::write(&file, text(&["a"])).expect("room");
    (folder, file)
}

/// The same document without a file: its state folder has to have an absolute path.
fn built_in(folder: &Path, volumes: &[&str]) -> String {
    let state = folder.join("state");
    text(volumes).replace("\"state\"", &format!("\"{}\"", state.display()))
}

fn pairs(of: &[(u64, &str)]) -> Vec<(u64, String)> {
    of.iter()
        .map(|(n, verb)| (*n, (*verb).to_owned()))
        .collect()
}

#[test]
fn file_that_became_a_pipe_refuses_changes_until_it_is_back() {
    let (_folder, file) = folder();
    let target = Target::start(Some(&file), "");
    fs::remove_file(&file).expect("ours");
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo").success());
    let why = target.put(&text(&["b"])).expect_err("nothing to read");
    assert!(matches!(why, NotApplied::FileChanged(..)), "{why}");
    let remedy = format!("`weft dump > {}`", file.display());
    assert!(why.to_string().contains(&remedy), "{why}");
    fs::remove_file(&file).expect("ours");
    fs::write(&file, &*target.served.text().0).expect("room");
    target.put(&text(&["b"])).expect("it may");
    target.end();
}

#[test]
fn state_that_is_removed_is_made_again_and_the_audit_tells() {
    let (folder, file) = folder();
    let without = tempfile::tempdir().expect("a folder");
    let built_in = built_in(without.path(), &["a"]);
    for (folder, file) in [(&folder, Some(&*file)), (&without, None)] {
        let target = Target::start(file, &built_in);
        let document = |volumes: &[&str]| match file {
            Some(_) => text(volumes),
            None => self::built_in(folder.path(), volumes),
        };
        target.put(&document(&["a", "b"])).expect("it may");
        fs::remove_dir_all(folder.path().join("state")).expect("ours");
        target.put(&document(&["a", "c"])).expect("it may");
        assert_eq!(target.history(), pairs(&[(2, "apply"), (3, "apply")]));
        let verified = target.served.verify_audit().expect("it can be read");
        let wrong = &verified.wrong[0];
        assert!(wrong.contains("was changed or taken out"), "{wrong}");
        target.end();
        let target = Target::start(file, &built_in);
        assert_eq!(target.volumes(), ["a", "c"]);
        assert_eq!(target.generation(), 3);
        target.end();
    }
}

#[test]
fn change_is_in_the_file_and_in_the_history() {
    let (folder, file) = folder();
    let real = folder.path().join("real.toml");
    fs::rename(&file, &real).expect("ours");
    symlink("real.toml", &file).expect("a link");
    fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).expect("ours");
    let target = Target::start(Some(&file), "");
    let state = folder.path().join("state");
    assert!(
        !state.exists(),
        "nothing is written before the first change"
    );
    assert_eq!(target.history(), pairs(&[(1, "start")]));
    let answer = target.put(&text(&["a", "b"])).expect("it may");
    assert_eq!(
        (answer.document.generation, answer.document.holds),
        (2, Holds::File)
    );
    assert_eq!(answer.done[0], "volume \"b\" is added");
    assert_eq!(target.volumes(), ["a", "b"]);
    assert_eq!(fs::read_to_string(&real).expect("there"), text(&["a", "b"]));
    assert!(file.is_symlink());
    assert_eq!(fs::metadata(&real).expect("there").mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(&state).expect("there").mode() & 0o777, 0o700);
    // The same again is no generation.
    target.put(&text(&["a", "b"])).expect("it may");
    assert_eq!(target.history(), pairs(&[(1, "start"), (2, "apply")]));
    target.end();
    // The history goes on, and has what an editor did meanwhile.
    let target = Target::start(Some(&file), "");
    assert_eq!((target.generation(), target.notes.len()), (2, 0));
    target.end();
    fs::write(&real, text(&["c"])).expect("ours");
    let target = Target::start(Some(&file), "");
    let history = [(1, "start"), (2, "apply"), (3, "edit of the file")];
    assert_eq!(target.history(), pairs(&history));
    target.put(&text(&[])).expect("it may");
    let history = [&history[..], &[(4, "apply")]].concat();
    assert_eq!(target.history(), pairs(&history));
    // Each can be served again.
    for (number, volumes) in [
        (1, vec!["a"]),
        (2, vec!["a", "b"]),
        (3, vec!["c"]),
        (4, vec![]),
    ] {
        let back = target.served.change(&asked(), |document| {
            document.keeper.read(number).map(|(_, text)| text)
        });
        back.expect("it may");
        assert_eq!(target.volumes(), volumes);
        assert_eq!(fs::read_to_string(&real).expect("there"), text(&volumes));
    }
    assert_eq!(target.generation(), 8);
    let why = target.served.generation(9).expect_err("none");
    assert!(matches!(why, NotApplied::NoGeneration(9)), "{why}");
    target.end();
}

#[test]
fn edit_by_hand_is_never_overwritten_and_is_served_when_that_is_asked_for() {
    let (_folder, file) = folder();
    let target = Target::start(Some(&file), "");
    target.put(&text(&["a", "b"])).expect("it may");
    let edited = text(&["a", "hand"]);
    fs::write(&file, &edited).expect("ours");
    let why = target
        .put(&text(&["a", "b", "c"]))
        .expect_err("it was edited");
    assert!(matches!(why, NotApplied::FileChanged(..)), "{why}");
    assert_eq!(fs::read_to_string(&file).expect("there"), edited);
    assert_eq!(target.volumes(), ["a", "b"]);
    target.served.reload();
    assert_eq!(target.volumes(), ["a", "hand"]);
    // What the file says already is applied, and not written.
    let edited = text(&["hand"]);
    fs::write(&file, &edited).expect("ours");
    let inode = fs::metadata(&file).expect("there").ino();
    target.put(&edited).expect("it may");
    assert_eq!(fs::metadata(&file).expect("there").ino(), inode);
    assert_eq!(target.volumes(), ["hand"]);
    let history = [(1, "start"), (2, "apply"), (3, "reload"), (4, "apply")];
    assert_eq!(target.history(), pairs(&history));
    fs::remove_file(&file).expect("ours");
    let why = target.put(&text(&[])).expect_err("it is gone");
    assert!(matches!(why, NotApplied::FileChanged(..)), "{why}");
    target.end();
}

#[test]
fn generation_holds_where_there_is_no_file() {
    let (folder, _) = folder();
    let before = built_in(folder.path(), &["a"]);
    let after = built_in(folder.path(), &["a", "b"]);
    let target = Target::start(None, &before);
    target.served.reload();
    let answer = target.put(&after).expect("it may");
    assert_eq!(
        (answer.document.generation, answer.document.holds),
        (2, Holds::Generation)
    );
    // One process at a time changes it.
    let (mut other, _) = Document::open(None, (BUILT_IN, &before)).expect("no mistakes");
    assert_eq!(*other.text, *after);
    let mut refused = || {
        let made = generation_of("apply", &before, 0);
        let holder = other.keeper.holder();
        let why = other.prepare(made, before.clone(), &holder);
        why.expect_err("the other has it").to_string()
    };
    assert!(refused().contains("another weft that runs changes this document"));
    target.put(&before).expect("it may");
    target.end();
    assert!(refused().contains("restart this one"));
    drop(other);
    let target = Target::start(None, &before);
    assert_eq!(
        (target.generation(), target.volumes()),
        (3, vec!["a".to_owned()])
    );
    assert!(
        target.notes[0].starts_with("generation 3, "),
        "{:?}",
        target.notes
    );
    target.end();
}

/// What a step that fails leaves behind.
#[track_caller]
fn assert_old(target: &Target, file: &Path, why: &NotApplied) {
    assert!(matches!(why, NotApplied::NotKept(_)), "{why}");
    assert_eq!(target.volumes(), ["a", "b"], "{why}");
    let told_of_file = why.to_string().contains("it has the new text all the same");
    let now = fs::read_to_string(file).expect("there");
    match told_of_file {
        true => assert_eq!(now, text(&["c"])),
        false => assert_eq!(now, text(&["a", "b"]), "{why}"),
    }
}

#[test]
fn step_that_fails_takes_the_change_back_wherever_it_is() {
    let mut steps = 0;
    for at in 0.. {
        let (folder, file) = folder();
        let target = Target::start(Some(&file), "");
        target.put(&text(&["a", "b"])).expect("it may");
        for (error, count) in [(ENOSPC, 1), (EIO, usize::MAX), (ENOSPC, 2)] {
            plant(at, Fault::Error(error), count);
            let outcome = target.put(&text(&["c"]));
            steps = heal();
            let Err(why) = outcome else {
                assert!(at >= steps, "step {at} of {steps} was not noticed");
                break;
            };
            assert_old(&target, &file, &why);
            fs::write(&file, text(&["a", "b"])).expect("ours");
            assert_eq!(
                target.history(),
                pairs(&[(1, "start"), (2, "apply")]),
                "{at}: {why}"
            );
            let left = fs::read_dir(folder.path()).expect("ours").count();
            // The file, its state and, where nothing can be removed, what was to replace it.
            assert!(left <= 3, "{left}");
        }
        target.put(&text(&["d"])).expect("it may again");
        assert_eq!(target.volumes(), ["d"]);
        let verified = target.served.verify_audit().expect("there");
        assert_eq!(verified.wrong, [""; 0], "step {at}");
        target.end();
        if at >= steps {
            break;
        }
    }
    assert!(steps > 10, "{steps}");
}

/// Runs in a process of its own, and ends there.
fn be_killed(folder: &Path, at: usize, file: Option<&Path>) {
    let (before, after) = (built_in(folder, &["a"]), built_in(folder, &["b"]));
    let target = Target::start(file, &before);
    plant(at, Fault::Kill, 1);
    target.put(&after).expect("it may");
    heal();
    target.end();
}

#[test]
fn process_that_is_killed_at_any_step_leaves_the_old_text_or_the_new_one() {
    const NAME: &str =
        "tests::process_that_is_killed_at_any_step_leaves_the_old_text_or_the_new_one";
    if let Ok(victim) = std::env::var(VICTIM) {
        let (at, folder) = victim.split_once(' ').expect("two words");
        let file = Path::new(folder).join("weft.toml");
        let file = file.exists().then_some(&*file);
        return be_killed(Path::new(folder), at.parse().expect("a number"), file);
    }
    for has_file in [true, false] {
        let mut seen = BTreeSet::new();
        for at in 0.. {
            let (folder, file) = folder();
            let (folder, file) = (folder.path(), has_file.then_some(&*file));
            let (before, after) = (built_in(folder, &["a"]), built_in(folder, &["b"]));
            match file {
                Some(file) => fs::write(file, &before).expect("ours"),
                None => fs::remove_file(folder.join("weft.toml")).expect("ours"),
            }
            let own = std::env::current_exe().expect("this program");
            let mut victim = Command::new(own);
            victim.args(["--exact", NAME]);
            victim.env(PARENT, std::process::id().to_string());
            victim.env(VICTIM, format!("{at} {}", folder.display()));
            let is_whole = victim.output().expect("it starts").status.success();
            let target = Target::start(file, &before);
            let (text, generation) = target.served.text();
            assert!([&*before, &*after].contains(&&*text), "step {at}: {text}");
            if let Some(file) = file {
                assert_eq!(fs::read_to_string(file).expect("there"), *text, "step {at}");
            }
            let number = if *text == *after { 2 } else { 1 };
            assert_eq!(generation.generation, number, "step {at}");
            let verbs: Vec<_> = target.history().into_iter().map(|(_, verb)| verb).collect();
            assert_eq!(verbs, ["start", "apply"][..number as usize], "step {at}");
            assert_eq!(
                target.notes.len(),
                usize::from(!has_file && folder_of(folder)),
                "{at}"
            );
            // And goes on, and the audit knows of all.
            target.put(&built_in(folder, &["c"])).expect("it may");
            assert_eq!(target.generation(), number + 1);
            let verified = target.served.verify_audit().expect("there");
            assert_eq!(verified.wrong, [""; 0], "step {at}");
            assert_eq!(verified.records, number, "step {at}");
            target.end();
            seen.insert(number);
            if is_whole {
                assert!(at > 10, "{at}");
                break;
            }
        }
        assert_eq!(seen.len(), 2);
    }
}

/// Whether a generation was kept.
fn folder_of(folder: &Path) -> bool {
    folder.join("state/documents/built-in/000001.toml").exists()
}

#[test]
fn writers_that_name_their_generation_win_one_after_another() {
    let (_folder, file) = folder();
    let target = Target::start(Some(&file), "");
    const WRITERS: u64 = 200;
    let conflicts: usize = thread::scope(|scope| {
        let write = |n: u64| {
            let served = &target.served;
            move || {
                let mut conflicts = 0;
                loop {
                    let generation = served.text().1.generation;
                    let asked = ChangeAsked {
                        if_match: Some(vec![generation]),
                        ..asked()
                    };
                    match served.change(&asked, |document| Ok(with_line(&document.text, n))) {
                        Ok(answer) => {
                            assert_eq!(answer.document.generation, generation + 1);
                            return conflicts;
                        }
                        Err(NotApplied::Conflict(now)) => {
                            assert!(now.generation > generation);
                            conflicts += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(write(n))).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("no panic"))
            .sum()
    });
    println!("{conflicts} conflicts");
    assert_eq!(target.generation(), 1 + WRITERS);
    // And those that name none.
    thread::scope(|scope| {
        for n in WRITERS..2 * WRITERS {
            let served = &target.served;
            scope.spawn(move || {
                let made = served.change(&asked(), |document| Ok(with_line(&document.text, n)));
                made.expect("it may");
            });
        }
    });
    assert_eq!(target.generation(), 1 + 2 * WRITERS);
    let text = fs::read_to_string(&file).expect("there");
    for n in 0..2 * WRITERS {
        assert_eq!(text.matches(&format!("# line {n}.\n")).count(), 1, "{n}");
    }
    target.end();
}

fn with_line(text: &str, n: u64) -> String {
    format!("{text}# line {n}.\n")
}

#[test]
fn request_that_comes_again_is_answered_as_the_first_time() {
    let (_folder, file) = folder();
    let target = Target::start(Some(&file), "");
    let with_key = |sha256: &str| ChangeAsked {
        request: Some(RequestKey {
            key: "k".to_owned(),
            sha256: sha256.to_owned(),
        }),
        ..asked()
    };
    let put = |asked: &ChangeAsked, volumes: &[&str]| {
        let text = text(volumes);
        target.served.change(asked, |_| Ok(text))
    };
    let first = put(&with_key("1"), &["a", "b"]).expect("it may");
    put(&asked(), &["c"]).expect("it may");
    let again = put(&with_key("1"), &["a", "b"]).expect("it is made");
    assert_eq!(first, again);
    assert_eq!(target.volumes(), ["c"]);
    let why = put(&with_key("2"), &["d"]).expect_err("another request");
    assert!(matches!(why, NotApplied::KeyReused(2)), "{why}");
    target.end();
}

#[test]
fn damaged_generations_are_told_and_kept_aside_and_no_number_comes_twice() {
    let (folder, _) = folder();
    let of = |volumes: &[&str]| built_in(folder.path(), volumes);
    let target = Target::start(None, &of(&["a"]));
    for volumes in [&["b"][..], &["c"], &["d"]] {
        target.put(&of(volumes)).expect("it may");
    }
    target.end();
    let state = folder.path().join("state/documents/built-in");
    let path = |name: &str| state.join(name);
    let torn = fs::read(path("000004.json")).expect("there");
    fs::write(path("000004.json"), &torn[..torn.len() / 2]).expect("ours");
    fs::write(path("000003.toml"), "").expect("ours");
    let target = Target::start(None, &of(&["a"]));
    assert_eq!(
        (target.generation(), target.volumes()),
        (2, vec!["b".to_owned()])
    );
    let told = target.notes.join("\n");
    assert!(
        told.contains("000004.json") && told.contains("000003.toml"),
        "{told}"
    );
    let names = fs::read_dir(&state).expect("there").flatten();
    let aside = names.filter(|name| name.file_name().to_string_lossy().contains(".corrupt-"));
    assert_eq!(aside.count(), 4);
    target.put(&of(&["e"])).expect("it may");
    assert_eq!(target.generation(), 5);
    target.end();
    // Where nothing is left, nothing is made up.
    for name in ["000001.toml", "000002.toml", "000005.toml"] {
        fs::write(path(name), "").expect("ours");
    }
    for _ in 0..2 {
        let why = Document::open(None, (BUILT_IN, &of(&["a"])))
            .expect_err("damaged")
            .to_string();
        assert!(why.contains("no generation can be read"), "{why}");
    }
}

#[test]
fn last_thousand_generations_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut found = Generations::open(folder.path(), None);
    found.generations.lock().expect("free");
    for number in 1..=1_000 {
        for kind in ["toml", "json"] {
            fs::write(folder.path().join(format!("{number:06}.{kind}")), "").expect("room");
        }
    }
    let made = generation_of("test", "", 1_001);
    let prepared = found.generations.prepare(&made, "").expect("room");
    found.generations.commit(&prepared).expect("room");
    let numbers = found.generations.numbers().expect("there");
    assert_eq!((numbers[0], numbers.len()), (2, 1_000));
    assert!(!folder.path().join("000001.json").exists());
}

#[test]
fn audit_tells_what_was_changed_or_taken_out_of_it() {
    let (folder, file) = folder();
    let target = Target::start(Some(&file), "");
    let documents = folder.path().join("state/documents");
    for volumes in [&["b"][..], &["c"], &["d"]] {
        target.put(&text(volumes)).expect("it may");
    }
    target.put("volume = 1").expect_err("no configuration");
    let own = fs::read_dir(&documents).expect("there").flatten().next();
    let path = own.expect("one").path().join("audit.jsonl");
    let whole = fs::read_to_string(&path).expect("there");
    let lines: Vec<&str> = whole.lines().collect();
    let outcome =
        |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["outcome"].clone();
    let outcomes: Vec<_> = lines.iter().map(|line| outcome(line)).collect();
    assert_eq!(outcomes, ["made", "made", "made", "invalid-file"]);
    assert!(
        !whole.contains("volume = 1"),
        "what was refused may hold a secret"
    );
    let verify = |text: &str| {
        fs::write(&path, text).expect("ours");
        target.served.verify_audit().expect("there")
    };
    let verified = verify(&whole);
    assert_eq!((verified.records, verified.wrong), (4, Vec::new()));
    // Every byte of every record but the last, which no other names.
    for at in 0..whole.len() - lines[3].len() - 1 {
        let mut changed = whole.clone().into_bytes();
        changed[at] ^= 1;
        let Ok(changed) = String::from_utf8(changed) else {
            continue;
        };
        let verified = verify(&changed);
        assert_ne!(verified.wrong, [""; 0], "byte {at}: {changed}");
    }
    for gone in 0..3 {
        let left: Vec<_> = (0..4).filter(|n| *n != gone).map(|n| lines[n]).collect();
        let verified = verify(&(left.join("\n") + "\n"));
        assert_ne!(verified.wrong, [""; 0], "record {gone}");
        let verified = verify(&(lines[..gone].join("\n") + "\n"));
        assert_ne!(verified.wrong, [""; 0], "cut at {gone}");
    }
    // What a process leaves that is killed: it is told, and the records go on.
    fs::write(&path, &whole[..whole.len() - 9]).expect("ours");
    target.end();
    let target = Target::start(Some(&file), "");
    target.put(&text(&["e"])).expect("it may");
    let verified = target.served.verify_audit().expect("there");
    assert_eq!((verified.records, verified.wrong), (4, Vec::new()));
    assert_eq!(verified.torn.len(), 1);
    target.end();
}

/// A document that has been changed twice and is served no more; its audit's file.
fn changed_twice(folder: &Path, file: &Path) -> PathBuf {
    let target = Target::start(Some(file), "");
    target.put(&text(&["b"])).expect("it may");
    target.put(&text(&["c"])).expect("it may");
    target.end();
    let documents = fs::read_dir(folder.join("state/documents")).expect("there");
    let own = documents.flatten().next().expect("one");
    own.path().join("audit.jsonl")
}

#[test]
fn damaged_audit_is_told_at_the_start_and_all_of_it_stays() {
    type Harm = fn(&Path, Vec<u8>);
    let harms: [(&str, Harm); 3] = [
        ("truncated", |path, was| {
            let end = was.iter().position(|byte| *byte == b'\n').expect("a line");
            fs::write(path, &was[..=end]).expect("ours");
        }),
        ("garbage", |path, was| {
            let garbage: Vec<u8> = was.iter().map(|byte| byte ^ 0x55).collect();
            fs::write(path, garbage).expect("ours");
        }),
        ("empty", |path, _| fs::write(path, "").expect("ours")),
    ];
    for (harm, damage) in harms {
        let (folder, file) = folder();
        let path = changed_twice(folder.path(), &file);
        damage(&path, fs::read(&path).expect("there"));
        let left = fs::read(&path).expect("there");
        // The last change is added again, as if weft had been killed before it was.
        let target = Target::start(Some(&file), "");
        let told = target.notes.join("\n");
        let is_told = told.contains("audit.jsonl: ") && told.contains("`weft audit verify`");
        assert_eq!(is_told, harm != "truncated", "{harm}: {told}");
        let aside = || {
            let names = fs::read_dir(path.parent().expect("a folder")).expect("there");
            let names = names.flatten().map(|entry| entry.path());
            let names =
                names.filter(|name| name.to_string_lossy().contains("audit.jsonl.corrupt-"));
            names.collect::<Vec<_>>()
        };
        let copies = aside();
        assert_eq!(copies.len(), usize::from(is_told), "{harm}: {copies:?}");
        for copy in &copies {
            let copied = fs::read(copy).expect("there");
            assert!(copied.starts_with(&left), "{harm}: as it was found");
            assert!(told.contains(&copy.display().to_string()), "{harm}: {told}");
        }
        target.put(&text(&["d"])).expect("it may");
        let now = fs::read(&path).expect("there");
        assert!(now.starts_with(&left) && now.len() > left.len(), "{harm}");
        let verified = target.served.verify_audit().expect("it can be read");
        assert_eq!(verified.wrong.is_empty(), harm == "truncated", "{harm}");
        target.end();
        // The same damage is copied once.
        Target::start(Some(&file), "").end();
        assert_eq!(aside(), copies, "{harm}");
    }
}

#[test]
fn audit_that_is_a_link_or_a_pipe_is_told_and_nothing_is_written_or_changed() {
    for (what, place) in [("a symbolic link", false), ("a pipe", true)] {
        let (folder, file) = folder();
        let path = changed_twice(folder.path(), &file);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "another's\n").expect("ours");
        fs::remove_file(&path).expect("ours");
        match place {
            true => {
                let made = Command::new("mkfifo").arg(&path).status();
                assert!(made.expect("mkfifo").success());
            }
            false => symlink(&elsewhere, &path).expect("a link"),
        }
        let target = Target::start(Some(&file), "");
        let told = target.notes.join("\n");
        assert!(
            told.contains("in the place of a file: move it away"),
            "{what}: {told}"
        );
        let refused = target.put(&text(&["d"])).expect_err(what);
        assert!(
            refused.to_string().contains("move it away"),
            "{what}: {refused}"
        );
        assert_eq!(fs::read_to_string(&elsewhere).expect("ours"), "another's\n");
        target.end();
    }
}

#[test]
fn audit_has_the_change_of_a_killed_process_although_the_file_was_edited_since() {
    let (folder, file) = folder();
    let path = changed_twice(folder.path(), &file);
    let whole = fs::read_to_string(&path).expect("there");
    let first = whole.split_inclusive('\n').next().expect("a line");
    fs::write(&path, first).expect("ours");
    fs::write(&file, text(&["hand"])).expect("ours");
    let target = Target::start(Some(&file), "");
    assert_eq!(target.notes, [""; 0]);
    let verified = target.served.verify_audit().expect("it can be read");
    assert_eq!((verified.records, verified.wrong), (2, Vec::new()));
    target.end();
}
