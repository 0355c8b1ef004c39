//! Which room may use which, and where `unsafe` may stand.

use std::collections::BTreeSet;

use crate::scan::{code, files, has_word, root};

/// Rooms and the rooms of ours that they may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("faults", &[]),
    ("needs", &[]),
    ("machine", &["faults"]),
    ("mem", &["faults", "machine"]),
    ("tls", &["auth", "faults", "mem"]),
    ("wire", &[]),
    ("random", &[]),
    ("testkit", &["machine", "wire"]),
    ("auth", &[]),
    ("kerberos", &["auth"]),
    ("tune", &[]),
    ("nvmf", &["auth", "faults", "iwarp", "machine", "wire"]),
    ("scsi", &["wire"]),
    ("iscsi", &["auth", "faults", "iwarp", "machine", "wire"]),
    ("nfs", &["auth", "faults", "iwarp", "machine", "wire"]),
    ("iwarp", &["machine", "wire"]),
    ("nbd", &["machine", "wire"]),
    ("reactor", &["faults", "mem"]),
    ("crypt", &["auth", "faults", "mem"]),
    ("store", &["crypt", "faults", "machine", "mem", "reactor"]),
    ("link", &["auth", "machine", "mem", "reactor", "tls"]),
    (
        "engine",
        &[
            "auth", "faults", "link", "machine", "mem", "reactor", "store", "tls",
        ],
    ),
    (
        "nfsd",
        &[
            "auth", "engine", "faults", "link", "machine", "mem", "nfs", "reactor", "store", "wire",
        ],
    ),
    (
        "serve_nvme",
        &[
            "auth", "engine", "faults", "link", "machine", "mem", "nvmf", "reactor", "store",
            "tls", "wire",
        ],
    ),
    (
        "serve_iscsi",
        &[
            "engine", "faults", "iscsi", "link", "machine", "mem", "nvmf", "reactor", "scsi",
            "store", "wire",
        ],
    ),
    (
        "serve_nbd",
        &[
            "auth", "engine", "faults", "link", "machine", "mem", "nbd", "reactor", "store", "tls",
        ],
    ),
    (
        "serve_nfs",
        &[
            "auth", "engine", "link", "machine", "mem", "nfs", "nfsd", "reactor", "store", "tls",
            "wire",
        ],
    ),
    (
        "server",
        &[
            "auth",
            "engine",
            "faults",
            "iscsi",
            "kerberos",
            "link",
            "machine",
            "mem",
            "nfsd",
            "nvmf",
            "reactor",
            "scsi",
            "serve_iscsi",
            "serve_nbd",
            "serve_nfs",
            "serve_nvme",
            "store",
        ],
    ),
    (
        "host",
        &[
            "auth", "iscsi", "link", "machine", "mem", "nfs", "nvmf", "reactor", "tls", "wire",
        ],
    ),
    (
        "store_remote",
        &["host", "machine", "mem", "reactor", "store", "wire"],
    ),
    (
        "control",
        &[
            "auth",
            "faults",
            "iscsi",
            "mem",
            "nvmf",
            "reactor",
            "server",
            "store",
            "store_remote",
            "tls",
        ],
    ),
    ("api", &[]),
    ("tables", &["api"]),
    ("top", &["api", "tables"]),
    ("web_console", &["api", "tables"]),
    (
        "admin",
        &[
            "api",
            "client",
            "control",
            "iscsi",
            "mem",
            "server",
            "store",
            "tables",
            "tls",
            "web_console",
        ],
    ),
    ("import", &["auth", "iscsi", "nvmf", "server", "store"]),
    (
        "client",
        &[
            "auth", "host", "kerberos", "machine", "mem", "random", "reactor", "store", "wire",
        ],
    ),
    ("bench", &["auth", "client", "mem", "random", "reactor"]),
    (
        "sim",
        &[
            "auth", "control", "doubles", "faults", "host", "iscsi", "link", "machine", "mem",
            "nfs", "nfsd", "nvmf", "random", "reactor", "server", "store", "wire",
        ],
    ),
    (
        "weft",
        &[
            "admin", "api", "auth", "bench", "client", "control", "import", "mem", "nvmf",
            "reactor", "server", "store", "tables", "tls", "top", "tune", "wire",
        ],
    ),
    (
        "doubles",
        &[
            "auth", "crypt", "iscsi", "iwarp", "link", "machine", "mem", "nbd", "nfs", "nfsd",
            "nvmf", "random", "reactor", "scsi", "store", "testkit", "tls", "wire",
        ],
    ),
];

/// Rooms of ours that tests of a room may use beside those. A test with both ends of a
/// protocol stands with either.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[
    ("nvmf", &["doubles", "random", "testkit"]),
    ("iscsi", &["doubles", "random", "testkit"]),
    ("scsi", &["doubles"]),
    ("iwarp", &["random", "testkit"]),
    ("nfs", &["doubles", "random", "testkit"]),
    ("nbd", &["random", "testkit"]),
    ("machine", &["random"]),
    ("kerberos", &["needs"]),
    ("mem", &["random", "testkit"]),
    ("reactor", &["needs", "random"]),
    ("store", &["auth", "needs", "random", "testkit"]),
    ("nfsd", &["doubles", "random", "server", "testkit"]),
    ("host", &["server", "store", "testkit"]),
    ("store_remote", &["auth", "needs", "nvmf", "server"]),
    (
        "server",
        &[
            "doubles", "host", "iwarp", "needs", "random", "testkit", "tls", "wire",
        ],
    ),
    ("client", &["needs", "nvmf", "server", "testkit"]),
    ("control", &["needs"]),
    ("import", &["control", "reactor"]),
    ("admin", &["auth", "needs"]),
    ("weft", &["host", "needs", "random", "testkit"]),
];

/// The rooms where `unsafe` may stand.
const UNSAFE: &[&str] = &["crypt", "kerberos", "mem", "reactor", "tls"];

/// Lines with the word in their code, tests left out: the number may only shrink. In `tls`,
/// `kerberos` and `crypt` they are calls of libraries in C.
const UNSAFE_LINES_MAX: usize = 58 + 24 + 33 + 5;

/// The rooms that know file descriptors. To all others, connections, listeners and
/// files are what a driver takes and gives.
const DESCRIPTORS: &[&str] = &["bench", "reactor", "sim", "store"];

/// What file descriptors are called.
const DESCRIPTOR_WORDS: &[&str] = &["OwnedFd", "BorrowedFd", "RawFd", "AsFd", "AsRawFd"];

/// The rooms that hold protocols: no syscall, no clock, no thread.
const SANS_IO: &[&str] = &[
    "auth", "iscsi", "iwarp", "machine", "nbd", "nfs", "nvmf", "scsi", "wire",
];

/// What protocol code has no use for.
const IO: &[&str] = &[
    "std::fs",
    "std::io",
    "std::os",
    "std::process",
    "std::thread",
    "std::env",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "Instant",
    "SystemTime",
    "libc",
];

fn manifest(room: &str) -> toml::Table {
    let path = root().join("crates").join(room).join("Cargo.toml");
    let text = std::fs::read_to_string(path).expect("a manifest");
    text.parse().expect("TOML")
}

/// What a room depends on, sorted.
fn dependencies(room: &str, table: &str) -> Vec<String> {
    let manifest = manifest(room);
    let used = manifest.get(table).and_then(|table| table.as_table());
    let names = used.map(|table| table.keys().cloned().collect::<BTreeSet<_>>());
    names.unwrap_or_default().into_iter().collect()
}

fn rooms() -> BTreeSet<String> {
    let folder = root().join("crates");
    let entries = std::fs::read_dir(folder).expect("crates/");
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

#[test]
fn rooms_use_only_what_they_may() {
    let rooms = rooms();
    let known: BTreeSet<String> = MAY_USE.iter().map(|(room, _)| room.to_string()).collect();
    assert_eq!(rooms, known, "crates/ and the table above");
    for (room, may) in MAY_USE {
        for name in dependencies(room, "dependencies") {
            let fine = !rooms.contains(&name) || may.contains(&name.as_str());
            assert!(fine, "crates/{room} may not use crates/{name}");
        }
    }
}

/// What a room needs for itself it need not name once more for its tests.
#[test]
fn tests_of_rooms_use_only_what_they_may() {
    let rooms = rooms();
    for (room, _) in MAY_USE {
        let used = dependencies(room, "dev-dependencies");
        let used: Vec<_> = used.iter().filter(|name| rooms.contains(*name)).collect();
        let listed = TESTS_MAY_USE.iter().find(|(known, _)| known == room);
        let may = listed.map_or(&[][..], |(_, may)| may);
        assert_eq!(used, may, "rooms of ours for tests of crates/{room}");
    }
}

#[test]
fn every_room_takes_the_workspace_lints() {
    for (room, _) in MAY_USE {
        let lints = manifest(room);
        let takes = lints["lints"]["workspace"].as_bool();
        assert_eq!(takes, Some(true), "crates/{room}/Cargo.toml");
    }
}

/// Faults put in on purpose are for one test alone: no room asks for them,
/// nor gets them by default.
#[test]
fn nothing_is_broken_by_default() {
    for (room, _) in MAY_USE {
        let manifest = manifest(room);
        let features = manifest.get("features").and_then(|table| table.as_table());
        let features: Vec<String> = features
            .into_iter()
            .flat_map(|t| t.keys().cloned())
            .collect();
        let may: &[&str] = match *room {
            "faults" | "sim" => &["broken"],
            "weft" => &["count-allocations"],
            _ => &[],
        };
        assert_eq!(features, may, "features of crates/{room}");
        for table in ["dependencies", "dev-dependencies"] {
            let used = manifest.get(table).map(|table| table.to_string());
            let asks = used.is_some_and(|used| used.contains("broken"));
            assert!(!asks, "crates/{room} asks for faults");
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_may_and_says_why_it_is_sound() {
    let mut wrong = Vec::new();
    for file in files(&[".rs"]) {
        let room = file
            .path
            .strip_prefix("crates/")
            .and_then(|rest| rest.split('/').next());
        let may = room.is_some_and(|room| UNSAFE.contains(&room));
        let lines: Vec<_> = file.text.lines().collect();
        for (at, line) in code(&file.text).lines().enumerate() {
            if !has_word(line, "unsafe") {
                continue;
            }
            let place = format!("{}:{}", file.path, at + 1);
            if !may {
                wrong.push(format!("{place}: `unsafe` outside of {UNSAFE:?}"));
            }
            let above = &lines[at.saturating_sub(12)..=at];
            let says = |line: &&str| line.contains("SAFETY:") || line.contains("# Safety");
            if !above.iter().any(says) {
                wrong.push(format!("{place}: no `// SAFETY:` above"));
            }
        }
        let is_root = ["/src/lib.rs", "/src/main.rs"]
            .iter()
            .any(|end| file.path.ends_with(end));
        if is_root && !may {
            let forbids = code(&file.text).contains("#![forbid(unsafe_code)]");
            if !forbids {
                wrong.push(format!("{}: no #![forbid(unsafe_code)]", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_does_not_grow() {
    let mut counts = Vec::new();
    for file in files(&[".rs"]) {
        let is_product = file.path.contains("/src/") && !file.path.contains("/tests/");
        if !is_product || !file.path.starts_with("crates/") {
            continue;
        }
        let code = code(&file.text);
        let (code, _) = code.split_once("#[cfg(test)]\nmod ").unwrap_or((&code, ""));
        let count = code.lines().filter(|line| has_word(line, "unsafe")).count();
        if count > 0 {
            counts.push((file.path, count));
        }
    }
    let count: usize = counts.iter().map(|(_, count)| count).sum();
    assert!(
        count <= UNSAFE_LINES_MAX,
        "{count} lines with `unsafe`, and at most {UNSAFE_LINES_MAX} may have it: {counts:#?}"
    );
}

#[test]
fn protocol_code_makes_no_syscall_and_reads_no_clock() {
    for room in SANS_IO {
        let start = format!("crates/{room}/src/");
        for file in files(&[".rs"])
            .iter()
            .filter(|f| f.path.starts_with(&start))
        {
            let code = code(&file.text);
            let code = code.split("#[cfg(test)]").next().unwrap_or_default();
            for word in IO {
                assert!(!has_word(code, word), "{}: {word}", file.path);
            }
        }
    }
}

#[test]
fn file_descriptors_stand_only_where_they_may() {
    for file in files(&[".rs"]) {
        let Some((room, rest)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|p| p.split_once('/'))
        else {
            continue;
        };
        // What drivers are to others.
        let is_interface = (room, rest) == ("reactor", "src/types.rs");
        if !rest.starts_with("src/") || DESCRIPTORS.contains(&room) && !is_interface {
            continue;
        }
        let code = code(&file.text);
        for word in DESCRIPTOR_WORDS {
            assert!(!has_word(&code, word), "{}: {word}", file.path);
        }
    }
}
