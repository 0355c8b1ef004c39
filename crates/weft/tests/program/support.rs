//! What a support bundle has, and what it has not.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::admin::with_socket;
use crate::serving::{File, file, free_port, good, serve, text, weft};
use crate::told::end_in_order;

/// Secrets of all kinds that a configuration has.
const SECRETS: &[&str] = &[
    "hidden-of-target-1",
    "hidden-of-weft-22",
    "hidden-of-desk-333",
    "hidden-of-finder-4",
    "hidden-in-a-file-5",
    "hidden-in-comment-6",
    "hidden-and-changed-7",
    "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffff0000000011111111",
];

fn with_secrets() -> File {
    let [target, own, desk, finder, in_file, comment, _, token] = SECRETS else {
        panic!("eight");
    };
    let file = file(&format!(
        "# {comment}\n{}[[listener]]\naddress = \"127.0.0.1:{}\"\nprotocol = \"iscsi\"\n\
         [iscsi.discovery]\nchap = {{ user = \"finder\", secret = \"{finder}\" }} # {comment}\n\
         [[iscsi.target]]\nname = \"iqn.2026-01.io.weft:s\"\nvolumes = [\"disk0\"]\n\
         allow_any_initiator = true\nchap = {{ user = \"alice\", secret = \"{target}\" }}\n\
         mutual_chap = {{ user = \"weft\", secret_file = \"weft.secret\" }}\n\
         [[iscsi.target.initiator]]\nname = \"iqn.2026-01.io.weft:desk\"\n\
         chap = {{ user = \"desk\", secret = \"{desk}\" }}\n\
         mutual_chap = {{ user = \"weft2\", secret = \"{own}\" }}\n\
         [admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n\
         [[admin.token]]\nname = \"ci\"\nrole = \"viewer\"\nsha256 = \"{token}\"\n",
        good(free_port()),
        free_port(),
    ));
    let secret = file.path.with_file_name("weft.secret");
    std::fs::write(&secret, in_file).expect("a file");
    for path in [&secret, &file.path] {
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("ours");
    }
    file
}

/// The files of an archive, below its folder.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let archive = std::fs::File::open(path).expect("it was made");
    let mode = archive.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut entry = entry.expect("whole");
        let path = entry.path().expect("a name").into_owned();
        let name = path.strip_prefix("weft-support").expect("one folder");
        let name = name.to_str().expect("UTF-8").to_owned();
        let mut content = String::new();
        entry.read_to_string(&mut content).expect("UTF-8");
        (name, content)
    });
    entries.collect()
}

#[test]
fn bundle_has_what_helps_and_no_secret_of_any_kind() {
    let file = with_secrets();
    let serving = serve(&file.path);
    let socket = file.path.with_file_name("admin.sock");
    let socket = ["--at", socket.to_str().expect("UTF-8")];
    let secret = file.path.with_file_name("changed.secret");
    std::fs::write(&secret, SECRETS[6]).expect("a file");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let changed = "chap={ user = \"finder\", secret_file = \"changed.secret\" }";
    let set = ["set", "iscsi/discovery", changed];
    let output = weft(&[&set[..], &socket].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let path = file.path.with_file_name("bundle.tar.gz");
    let make = ["support-bundle", path.to_str().expect("UTF-8")];
    let output = weft(&[&make[..], &socket].concat());
    let (told, problem) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{problem}");
    assert!(
        told.starts_with("made ") && problem.is_empty(),
        "{told}{problem}"
    );
    let files = unpacked(&path);
    for (name, content) in &files {
        for secret in SECRETS {
            assert!(!content.contains(secret), "{name} has {secret}: {content}");
        }
    }
    for (name, part) in [
        ("README.txt", "figures-2.json"),
        ("version.txt", env!("CARGO_PKG_VERSION")),
        ("status.json", "\"driver\""),
        ("config.toml", "iqn.2026-01.io.weft:desk"),
        ("config.toml", "(left out)"),
        ("check.txt", "fine; it serves"),
        ("history.json", "set iscsi/discovery"),
        ("audit.json", "set iscsi/discovery"),
        ("events.json", "\"changed\""),
        ("refusals.json", "refusals"),
        ("connections.json", "connections"),
        ("hosts.json", "hosts"),
        ("sessions.json", "sessions"),
        ("nfs-clients.json", "clients"),
        ("metrics.txt", "# EOF"),
        ("machine.txt", "/proc/meminfo"),
        ("machine.txt", "io_uring for this process: "),
        ("machine.txt", "Max open files"),
    ] {
        let content = files
            .get(name)
            .unwrap_or_else(|| panic!("{name}: {:?}", files.keys()));
        assert!(content.contains(part), "{name} lacks {part}: {content}");
    }
    assert!(
        !files["README.txt"].contains("NOT HERE"),
        "{}",
        files["README.txt"]
    );
    let figures =
        |name: &str| -> api::Figures { serde_json::from_str(&files[name]).expect("figures") };
    let (first, second) = (figures("figures-1.json"), figures("figures-2.json"));
    assert!(second.uptime_ns - first.uptime_ns >= 900_000_000);
    let again = weft(&[&make[..], &socket].concat());
    assert_eq!(again.status.code(), Some(1), "it is there already");
    assert!(text(&again.stderr).contains("not there yet"));
    end_in_order(serving);
}

#[test]
fn bundle_without_a_weft_that_answers_has_what_the_machine_says_and_tells_what_it_lacks() {
    let file = with_secrets();
    let socket = file.path.with_file_name("admin.sock");
    let path = file.path.with_file_name("bundle.tar.gz");
    let [archive, config, socket] =
        [&path, &file.path, &socket].map(|path| path.to_str().expect("UTF-8"));
    let output = weft(&[
        "support-bundle",
        archive,
        "-c",
        config,
        "--at",
        socket,
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let left_out = told["left_out"].as_object().expect("a list");
    assert!(left_out.contains_key("status.json") && !left_out.contains_key("config.toml"));
    let files = unpacked(&path);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "README.txt",
        "check.txt",
        "config.toml",
        "machine.txt",
        "version.txt",
    ];
    assert_eq!(names, expected);
    assert!(files["README.txt"].contains("status.json       NOT HERE"));
    assert!(
        files["check.txt"].contains("fine; it serves"),
        "{}",
        files["check.txt"]
    );
    for (name, content) in &files {
        for secret in SECRETS {
            assert!(!content.contains(secret), "{name} has {secret}");
        }
    }
}

#[test]
fn bundle_of_a_file_with_mistakes_shows_where_they_are_and_no_line_of_it() {
    let file = file(
        "[[volume]] # hidden-0\nname = [\"hidden-1\",\n\"hidden-2\"]\nsecert = \"hidden-3{2..1}\"\n\
         [[admin.token]]\nname = \"ci\"\nrole = \"viewer\"\nsha256 = \"hidden-4\"\n",
    );
    let path = file.path.with_file_name("bundle.tar.gz");
    let [archive, config] = [&path, &file.path].map(|path| path.to_str().expect("UTF-8"));
    let at = ["--at", "/nowhere/admin.sock"];
    let output = weft(&[&["support-bundle", archive, "-c", config], &at[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let files = unpacked(&path);
    for part in [
        ":2:8: (left out)",
        "unknown key `secert`",
        ":8:10: (left out)",
    ] {
        assert!(files["check.txt"].contains(part), "{}", files["check.txt"]);
    }
    for (name, content) in &files {
        assert!(!content.contains("hidden"), "{name}: {content}");
    }
}

#[test]
fn bundle_of_a_weft_that_hangs_says_so_and_waits_for_it_once() {
    let file = file(&with_socket(&good(free_port())));
    let serving = serve(&file.path);
    serving.signal("STOP");
    let socket = file.path.with_file_name("admin.sock");
    let path = file.path.with_file_name("bundle.tar.gz");
    let [archive, socket] = [&path, &socket].map(|path| path.to_str().expect("UTF-8"));
    let output = weft(&["support-bundle", archive, "--at", socket]);
    serving.signal("CONT");
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in ["status.json", "metrics.txt", "figures-2.json"] {
        let line = told.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {told}"));
        assert!(line.contains("no answer within 5 s"), "{line}");
    }
    assert!(told.contains(
        "config.toml, check.txt: no weft that serves a file answers: name the file with -c"
    ));
    assert!(unpacked(&path)["README.txt"].contains("machine.txt"));
    end_in_order(serving);
}
