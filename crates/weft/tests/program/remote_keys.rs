//! A volume of another process, whose keys and secrets change while it is used.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;

use crate::admin::{Admin, with_socket};
use crate::keys::{HOST, NQN, key};
use crate::reload::Load;
use crate::serving::{File, PATIENCE, file, free_port, serve, text, weft};
use crate::told::end_in_order;

/// The keys of the configuration, and how the files of each are made.
const KINDS: [(&str, &[&str]); 2] = [("psk", &[]), ("dhchap_secret", &["--dhchap"])];

/// What the log says of credentials that are taken.
const TAKEN: &str = "connects by other credentials";

/// What it says of a host whose keys are others.
const OTHER_TERMS: &str = "get other terms";

/// How a change of a file is taken.
#[derive(Clone, Copy, Debug)]
enum Way {
    Signal,
    Apply,
}

const WAYS: [Way; 2] = [Way::Signal, Way::Apply];

/// A target that holds a host to a key and a secret, and what serves its disk as that host.
struct Both {
    there: Admin,
    front: Admin,
}

fn path(admin: &Admin, kind: &str) -> PathBuf {
    admin.file.path.with_file_name(format!("{kind}.key"))
}

/// The lines that name the files of these kinds.
fn named(kinds: &[&str]) -> String {
    let lines = kinds.iter();
    lines
        .map(|kind| format!("{kind}_file = \"{kind}.key\"\n"))
        .collect()
}

fn target(port: u16, kinds: &[&str]) -> String {
    with_socket(&format!(
        "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"a\"]\n\
         [[nvme.subsystem.host]]\nnqn = \"{HOST}\"\n{}\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n",
        named(kinds)
    ))
}

/// What serves the disk at `there`, at a port.
fn front(there: u16, port: u16, kinds: &[&str]) -> String {
    with_socket(&format!(
        "[[volume]]\nname = \"there\"\nkind = \"remote\"\nhost_nqn = \"{HOST}\"\n{}\
         urls = [\"nvme-tcp://127.0.0.1:{there}/{NQN}?nsid=1\"]\n\
         [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:front\"\nallow_any_host = true\n\
         volumes = [\"there\"]\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n",
        named(kinds)
    ))
}

/// Gives a file this text, for its owner alone.
fn give(path: &PathBuf, text: &str) {
    fs::write(path, text).expect("room");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

/// A key of a kind, which nothing else has.
fn made(file: &File, options: &[&str]) -> String {
    let path = file.path.with_file_name("made.key");
    let (code, said) = key("new", &path, options);
    assert_eq!(code, Some(0), "{said}");
    let text = fs::read_to_string(&path).expect("text");
    fs::remove_file(&path).expect("ours");
    text
}

/// Has a process take what its file and those that it names say now: the line of its log with
/// `part`.
fn take(admin: &mut Admin, way: Way, part: &str) -> String {
    match way {
        Way::Signal => admin.serving.signal("HUP"),
        Way::Apply => {
            let path = admin.file.path.to_str().expect("UTF-8");
            let output = admin.ask(&["apply", "-c", path]);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
    }
    admin.serving.log_line(part)
}

impl Both {
    fn start() -> Both {
        let kinds = KINDS.map(|(kind, _)| kind);
        let (at, port) = (free_port(), free_port());
        let files = [file(&target(at, &kinds)), file(&front(at, port, &kinds))];
        for (kind, options) in KINDS {
            let text = made(&files[0], options);
            for file in &files {
                give(&file.path.with_file_name(format!("{kind}.key")), &text);
            }
        }
        let [there, front] = files;
        let there = Admin::of(serve(&there.path), there, at);
        let front = Admin::of(serve(&front.path), front, port);
        Both { there, front }
    }

    fn url(&self) -> String {
        let port = self.front.port;
        format!("nvme-tcp://127.0.0.1:{port}/nqn.2026-01.io.weft:front?nsid=1")
    }

    /// The volume is read, by the connection for I/O.
    fn works(&self) {
        let output = weft(&[
            "perf",
            &self.url(),
            "--runtime",
            "100ms",
            "--ramp-time",
            "0",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// The connections that the target has: their IDs, and whether each is encrypted.
    fn connections(&self) -> Vec<(String, bool)> {
        let output = self.there.ask(&["get", "connections", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = all["connections"].as_array().expect("a list").iter();
        let mut ids: Vec<_> = all
            .map(|one| (one["id"].to_string(), !one["tls"].is_null()))
            .collect();
        ids.sort();
        ids
    }

    /// Ends the connections at the target, where there are any.
    fn cut(&mut self) {
        self.there.ask(&["evict", "host", HOST]);
        self.front.serving.log_line("remote-path-lost");
    }

    /// Ends them, and the volume comes by what it goes by now.
    fn comes_again(&mut self) {
        self.cut();
        self.front.serving.log_line("remote-path-up");
        self.works();
    }

    fn end(self) {
        end_in_order(self.front.serving);
        end_in_order(self.there.serving);
    }
}

#[test]
fn credentials_of_a_remote_volume_rotate_by_a_signal_and_by_apply_under_a_load() {
    let mut both = Both::start();
    both.front.serving.log_line("remote-path-up");
    // Both of its connections have authenticated: a secret that changes amid that refuses them.
    both.works();
    let load = Load::start(&both.url());
    both.front.serving.log_line("host connected");
    let first = both.connections();
    assert_eq!(first.len(), 2, "an Admin Queue and one for I/O");
    for way in WAYS {
        for (kind, _) in KINDS {
            let at = path(&both.there, kind);
            let (code, said) = key("rotate", &at, &["--grace", "1h"]);
            assert_eq!(code, Some(0), "{said}");
            take(&mut both.there, way, OTHER_TERMS);
            let lines = fs::read_to_string(&at).expect("text");
            let (new, old) = lines.split_once('\n').expect("two keys");
            assert!(old.contains("until"), "the old one is good for a time");
            give(&path(&both.front, kind), &format!("{new}\n"));
            take(&mut both.front, way, TAKEN);
            give(&at, &format!("{new}\n"));
            take(&mut both.there, way, OTHER_TERMS);
            assert_eq!(both.connections(), first, "{way:?} {kind}");
        }
    }
    both.comes_again();
    load.end();
    both.end();
}

/// Makes a file of a key one that will not do.
type Spoil<'a> = &'a dyn Fn(&PathBuf);

#[test]
fn key_file_that_will_not_do_is_told_by_its_name_and_costs_no_connection() {
    let mut both = Both::start();
    both.front.serving.log_line("remote-path-up");
    both.works();
    for (kind, options) in KINDS {
        let first = both.connections();
        let at = path(&both.front, kind);
        let good = fs::read_to_string(&at).expect("text");
        let other = made(&both.there.file, options);
        let spoil: [(&str, Spoil<'_>); 5] = [
            ("line 1: it is no", &|at| give(at, "open sesame\n")),
            ("it has no key", &|at| give(at, "")),
            ("it is longer than", &|at| give(at, &other.repeat(99))),
            ("mode 0644", &|at| {
                give(at, &other);
                fs::set_permissions(at, Permissions::from_mode(0o644)).expect("ours");
            }),
            ("cannot be read", &|at| fs::remove_file(at).expect("ours")),
        ];
        for (why, spoil) in spoil {
            spoil(&at);
            for way in WAYS {
                let told = take(&mut both.front, way, "What was read before stays good");
                let name = format!("{kind}.key");
                assert!(told.contains(&name) && told.contains(why), "{why}: {told}");
                assert!(!told.contains(other.trim()), "a key is shown: {told}");
            }
            // Named anew it is needed.
            let anew = path(&both.front, "anew");
            give(&anew, &good);
            spoil(&anew);
            let field = format!("{kind}_file=anew.key");
            let refused = both.front.ask(&["set", "volume", "there", &field]);
            let told = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{told}");
            assert!(
                told.contains("anew.key") && told.contains(why),
                "{why}: {told}"
            );
            let document = fs::read_to_string(&both.front.file.path).expect("text");
            let own = format!("{kind}_file = \"{kind}.key\"");
            let edited = document.replace(&own, &format!("{kind}_file = \"anew.key\""));
            fs::write(&both.front.file.path, edited).expect("room");
            both.front.serving.signal("HUP");
            let told = both.front.serving.log_line("not reloaded");
            assert!(
                told.contains("anew.key") && told.contains(why),
                "{why}: {told}"
            );
            fs::write(&both.front.file.path, document).expect("room");
        }
        assert_eq!(both.connections(), first, "{kind}");
        // The key that was read before is the one that the next connection is made by.
        both.comes_again();
        give(&at, &good);
    }
    both.end();
}

#[test]
fn credentials_that_a_target_does_not_take_cost_nothing_until_it_is_lost_and_are_told_then() {
    let mut both = Both::start();
    both.front.serving.log_line("remote-path-up");
    let load = Load::start(&both.url());
    both.front.serving.log_line("host connected");
    for way in WAYS {
        for (kind, options) in KINDS {
            let at = path(&both.front, kind);
            let good = fs::read_to_string(&at).expect("text");
            let before = both.connections();
            give(&at, &made(&both.there.file, options));
            take(&mut both.front, way, TAKEN);
            assert_eq!(both.connections(), before, "{way:?} {kind}");
            both.cut();
            let address = format!("the path nvme-tcp://127.0.0.1:{}/", both.there.port);
            let deadline = Instant::now() + PATIENCE;
            while both.there.status()["counters"]["refusals"] == 0 {
                assert!(Instant::now() < deadline, "no refusal is told");
            }
            let warnings = both.front.status()["warnings"].to_string();
            assert!(warnings.contains(&address), "{warnings}");
            give(&at, &good);
            take(&mut both.front, way, TAKEN);
            both.front.serving.log_line("remote-path-up");
            assert_eq!(both.front.status()["warnings"], Value::Array(Vec::new()));
        }
    }
    load.end();
    both.end();
}

#[test]
fn remote_volume_takes_credentials_that_it_had_none_of_and_goes_without_them_again() {
    let mut both = Both::start();
    both.front.serving.log_line("remote-path-up");
    both.works();
    let (at, port) = (both.there.port, both.front.port);
    for kinds in [
        &[][..],
        &["psk"],
        &["dhchap_secret"],
        &["psk", "dhchap_secret"],
    ] {
        let before = both.connections();
        fs::write(&both.front.file.path, front(at, port, kinds)).expect("room");
        take(&mut both.front, Way::Apply, TAKEN);
        assert_eq!(both.connections(), before, "{kinds:?}");
        fs::write(&both.there.file.path, target(at, kinds)).expect("room");
        take(&mut both.there, Way::Signal, OTHER_TERMS);
        both.comes_again();
        let is_secure = kinds.contains(&"psk");
        let all = both.connections();
        assert!(
            all.iter().all(|(_, tls)| *tls == is_secure),
            "{kinds:?}: {all:?}"
        );
    }
    both.end();
}

#[test]
fn plan_takes_no_key_and_apply_takes_the_one_that_its_file_has_then() {
    let mut both = Both::start();
    both.front.serving.log_line("remote-path-up");
    both.works();
    let document = both.front.file.path.to_str().expect("UTF-8").to_owned();
    for (kind, options) in KINDS {
        let at = path(&both.front, kind);
        let good = fs::read_to_string(&at).expect("text");
        let other = made(&both.there.file, options);
        give(&at, &other);
        let planned = both.front.ask(&["diff", "-c", &document]);
        let shown = text(&planned.stdout);
        assert!(
            shown.contains(TAKEN) && shown.contains("none cuts a host"),
            "{shown}"
        );
        assert!(!shown.contains(other.trim()), "a key is shown: {shown}");
        // What was planned only is not gone by.
        both.comes_again();
        give(&at, &good);
        let made = both.front.ask(&["apply", "-c", &document]);
        let shown = text(&made.stdout);
        assert!(shown.starts_with("nothing to do"), "{shown}");
        both.comes_again();
    }
    both.end();
}
