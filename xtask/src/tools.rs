//! Checks beside the tests: a scheduler of threads, sanitizers, mutants, other compilers and
//! machines, dependencies. They are not a part of CI: they build everything anew, take hours,
//! or need what not every machine can fetch.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Sanitizers are not in the stable compiler.
const NIGHTLY: &str = "nightly";
/// Named, so that what runs while building is not watched.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command of cargo with settings that need a target folder of their own.
struct Build {
    folder: &'static str,
    flags: &'static str,
    tests: &'static [&'static [&'static str]],
}

/// Models of threads, and the planted faults that they must find.
const SHUTTLE: Build = Build {
    folder: "target/shuttle",
    flags: "--cfg shuttle",
    tests: &[&[
        "--package",
        "faults",
        "--package",
        "store",
        "--package",
        "reactor",
        "--features",
        "faults/broken",
        "--lib",
        "--",
        "model_",
    ]],
};

/// The fuzzers' corpus.
const ASAN: Build = Build {
    folder: "target/asan",
    flags: "-Zsanitizer=address",
    tests: &[&["--package", "doubles", "--test", "fuzz_corpus"]],
};

/// Writes that others read meanwhile, whole or not at all: frames under threads, a
/// file under several drivers, a volume under two protocols on two reactors.
const TSAN: Build = Build {
    folder: "target/tsan",
    // The compiler asks whether a standard library that is not watched is known of.
    flags: "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
    tests: &[
        &[
            "--package",
            "store",
            "--package",
            "reactor",
            "--lib",
            "--",
            "frames::tests::threads",
            "bell",
            "mailbox",
            "waker",
        ],
        &[
            "--package",
            "server",
            "--test",
            "nvme",
            "--",
            "write_over_one_protocol_is_read_whole_over_the_other",
        ],
    ],
};

/// Small worlds of threads, in orders that a scheduler draws.
pub fn shuttle() -> ExitCode {
    run(&SHUTTLE, None)
}

/// The corpus under AddressSanitizer.
pub fn asan() -> ExitCode {
    run(&ASAN, Some(NIGHTLY))
}

/// Torn writes under ThreadSanitizer.
pub fn tsan() -> ExitCode {
    run(&TSAN, Some(NIGHTLY))
}

fn run(build: &Build, toolchain: Option<&str>) -> ExitCode {
    if let Some(toolchain) = toolchain {
        eprintln!("The standard library is not built anew: what happens inside of it is not seen.");
        if !is_there("rustup", &["run", toolchain, "cargo", "--version"]) {
            eprintln!("There is no {toolchain} toolchain: rustup toolchain install {toolchain}");
            return ExitCode::FAILURE;
        }
    }
    for tests in build.tests {
        let mut command = match toolchain {
            Some(toolchain) => {
                let mut command = Command::new("rustup");
                command.args(["run", toolchain, "cargo", "test", "--target", TARGET]);
                command
            }
            None => {
                let mut command = Command::new(env!("CARGO"));
                command.arg("test");
                command
            }
        };
        let suppressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tsan-suppressions");
        command
            .args(*tests)
            .env("CARGO_TARGET_DIR", build.folder)
            .env("RUSTFLAGS", build.flags)
            .env("TSAN_OPTIONS", format!("suppressions={suppressions}"));
        eprintln!("== {}: cargo test {}", build.flags, tests.join(" "));
        if !succeeds(&mut command) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// A check by a program that the toolchain of weft does not bring.
pub struct Check {
    /// The program with the words that show that it is there.
    is_there: &'static [&'static str],
    /// How to get it.
    remedy: &'static str,
    /// What it does.
    command: &'static [&'static str],
    /// A target folder of its own, where it builds otherwise than weft is built.
    folder: &'static str,
}

/// The oldest compiler that weft promises to build with: `rust-version` of the workspace.
pub const MSRV: Check = Check {
    is_there: &["rustup", "run", "1.91", "cargo", "--version"],
    remedy: "rustup toolchain install 1.91",
    command: &[
        "rustup",
        "run",
        "1.91",
        "cargo",
        "check",
        "--workspace",
        "--all-targets",
    ],
    folder: "target/msrv",
};

/// 64-bit Arm: what the compiler says of it, without a linker for it; a C compiler for it
/// builds aws-lc.
pub const AARCH64: Check = Check {
    is_there: &[
        "sh",
        "-c",
        "rustup target list --installed | grep -q aarch64-unknown-linux-gnu \
         && aarch64-linux-gnu-gcc --version",
    ],
    remedy: "rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu",
    command: &[
        "cargo",
        "check",
        "--workspace",
        "--target",
        "aarch64-unknown-linux-gnu",
    ],
    folder: "target/aarch64",
};

/// Another C library: what the compiler says of it.
pub const MUSL: Check = Check {
    is_there: &[
        "sh",
        "-c",
        "rustup target list --installed | grep -q x86_64-unknown-linux-musl",
    ],
    remedy: "rustup target add x86_64-unknown-linux-musl",
    command: &[
        "cargo",
        "check",
        "--package",
        "weft",
        "--target",
        "x86_64-unknown-linux-musl",
    ],
    folder: "target/musl",
};

/// Requests that the fuzzer of the API makes up for each operation; the test makes up fewer.
const API_EXAMPLES: &str = "40";

/// The admin API under a fuzzer that its description leads.
pub fn schemathesis() -> ExitCode {
    let mut test = tests_of(&["api", "--", "--nocapture", "schemathesis"]);
    test.env("WEFT_API_EXAMPLES", API_EXAMPLES);
    // The test has the same seed each time.
    if std::env::var_os("WEFT_SEED").is_none() {
        test.env("WEFT_SEED", std::process::id().to_string());
    }
    exit_code(succeeds(&mut test))
}

/// How often the story of an operator's day is gone through; the test does it once.
const STORY_TIMES: &str = "3";

/// An operator's day by commands, by the API and in the console, with a guest as the host.
pub fn story() -> ExitCode {
    let mut test = tests_of(&["linux", "--", "--include-ignored", "story::"]);
    test.env("WEFT_STORY_TIMES", STORY_TIMES);
    exit_code(succeeds(&mut test))
}

/// How often weft is killed; the test does it a few times.
const KILLS: &str = "1000";

/// weft that is killed again and again under writes.
pub fn kills() -> ExitCode {
    let mut test = tests_of(&["program", "--", "kills::", "--nocapture"]);
    test.env("WEFT_KILLS", KILLS);
    exit_code(succeeds(&mut test))
}

/// Files of the largest directories that are tried.
const FILES: &str = "10000000";

/// Directories of ten million files.
pub fn directories() -> ExitCode {
    let words = [
        "files",
        "--",
        "a_million_files",
        "--nocapture",
        "--test-threads=1",
    ];
    let mut test = tests_of(&words);
    test.env("CI", "true").env("WEFT_FILES", FILES);
    exit_code(succeeds(&mut test))
}

/// TLS and authentication between the kernel's own two sides.
pub fn secure() -> ExitCode {
    ignored_guests(&["secure::"])
}

/// The guests of which the test command has another of their kind.
pub fn guests() -> ExitCode {
    ignored_guests(&["--skip", "secure::", "--skip", "story::"])
}

fn ignored_guests(words: &[&str]) -> ExitCode {
    let words = [&["linux", "--", "--ignored"], words].concat();
    exit_code(succeeds(&mut tests_of(&words)))
}

/// The tests of that name and words for them, of the whole workspace: for one package its
/// dependencies would be built once more.
fn tests_of(words: &[&str]) -> Command {
    let mut test = Command::new(env!("CARGO"));
    test.args(["test", "--workspace", "--test"]).args(words);
    test
}

/// Undefined behaviour in the room of raw memory.
pub const MIRI: Check = Check {
    is_there: &["rustup", "run", NIGHTLY, "cargo", "miri", "--version"],
    remedy: "rustup toolchain install nightly --component miri",
    command: &[
        "rustup",
        "run",
        NIGHTLY,
        "cargo",
        "miri",
        "test",
        "--package",
        "mem",
        "--lib",
    ],
    folder: "target/miri",
};

/// Advisories, licences and sources of dependencies.
pub const DENY: Check = Check {
    is_there: &["cargo", "deny", "--version"],
    remedy: "cargo install cargo-deny",
    command: &["cargo", "deny", "check"],
    folder: "target",
};

/// Lines that no test of units and machines reaches.
pub const COVERAGE: Check = Check {
    is_there: &["cargo", "llvm-cov", "--version"],
    remedy: "cargo install cargo-llvm-cov",
    command: &["cargo", "llvm-cov", "--workspace", "--lib"],
    folder: "target/coverage",
};

/// Runs a check, if its program is there.
pub fn check(check: &Check) -> ExitCode {
    let [program, words @ ..] = check.is_there else {
        unreachable!("a check names its program");
    };
    if !is_there(program, words) {
        eprintln!(
            "Not run, as this machine lacks what it needs: {}",
            check.remedy
        );
        return ExitCode::FAILURE;
    }
    let [program, words @ ..] = check.command else {
        unreachable!("a check names its program");
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .env("CARGO_TARGET_DIR", check.folder)
        // That of the toolchain that built this program is not the one that is asked for.
        .env_remove("RUSTUP_TOOLCHAIN");
    exit_code(succeeds(&mut command))
}

/// Files on the path of data, reservations, locks, identity and access, and the
/// tests that see the most of them in the least time.
struct Guarded {
    package: &'static str,
    files: &'static [&'static str],
    tests: &'static [&'static str],
}

const GUARDED: &[Guarded] = &[
    Guarded {
        package: "nfs",
        files: &[
            // Locks.
            "crates/nfs/src/server/locks.rs",
            "crates/nfs/src/server/locks/*.rs",
            // Replay.
            "crates/nfs/src/server/session.rs",
            "crates/nfs/src/server/set_clientid.rs",
            "crates/nfs/src/server/secret.rs",
            // Clients, and what they have.
            "crates/nfs/src/server/client.rs",
            "crates/nfs/src/server/registry.rs",
            "crates/nfs/src/server/grace.rs",
            "crates/nfs/src/server/files.rs",
            "crates/nfs/src/server/files/*.rs",
        ],
        tests: &["--lib", "server::"],
    },
    Guarded {
        package: "store",
        files: &[
            "crates/store/src/reservation.rs",
            "crates/store/src/reservation/**",
            "crates/store/src/locks.rs",
            "crates/store/src/locks/*.rs",
            "crates/store/src/unreadable.rs",
            "crates/store/src/fs/access.rs",
        ],
        tests: &["--lib"],
    },
    Guarded {
        package: "store",
        files: &[
            "crates/store/src/state.rs",
            "crates/store/src/kept.rs",
            "crates/store/src/identity.rs",
        ],
        tests: &["--lib", "--test", "volumes"],
    },
    Guarded {
        package: "nfsd",
        files: &[
            "crates/nfsd/src/handle.rs",
            "crates/nfsd/src/retransmission.rs",
            "crates/nfsd/src/duplicate_request_cache.rs",
            "crates/nfsd/src/exports.rs",
            "crates/nfsd/src/security.rs",
        ],
        tests: &[
            "--lib",
            "--test",
            "conformance",
            "--test",
            "state",
            "--test",
            "v3",
        ],
    },
    Guarded {
        package: "store",
        files: &[
            "crates/store/src/frames.rs",
            "crates/store/src/frames/change.rs",
            "crates/store/src/frames/word.rs",
        ],
        tests: &["--lib", "frames::"],
    },
    Guarded {
        package: "auth",
        files: &["crates/auth/src/*.rs"],
        tests: &["--lib"],
    },
    Guarded {
        package: "tls",
        files: &["crates/tls/src/*.rs"],
        tests: &["--lib"],
    },
    Guarded {
        package: "kerberos",
        files: &["crates/kerberos/src/*.rs"],
        tests: &["--lib"],
    },
    Guarded {
        package: "nvmf",
        files: &[
            "crates/nvmf/src/registry.rs",
            "crates/nvmf/src/registry/*.rs",
            "crates/nvmf/src/reservation.rs",
        ],
        tests: &["--lib", "--test", "controller"],
    },
    Guarded {
        package: "iscsi",
        files: &[
            "crates/iscsi/src/registry.rs",
            "crates/iscsi/src/registry/*.rs",
            "crates/iscsi/src/security.rs",
            "crates/iscsi/src/name.rs",
        ],
        tests: &["--lib", "--test", "logins"],
    },
    Guarded {
        package: "engine",
        files: &["crates/engine/src/reservation.rs"],
        tests: RESERVATIONS,
    },
    Guarded {
        package: "serve_nvme",
        files: &["crates/serve_nvme/src/reservation.rs"],
        tests: RESERVATIONS,
    },
    Guarded {
        package: "serve_iscsi",
        files: &["crates/serve_iscsi/src/reservation.rs"],
        tests: RESERVATIONS,
    },
];

/// Hosts of both protocols that reserve volumes of a target.
const RESERVATIONS: &[&str] = &[
    "--package",
    "server",
    "--package",
    "host",
    "--lib",
    "--test",
    "nvme",
    "--test",
    "reservations",
];

/// Of all other files: one mutant of so many, the same each time.
const SAMPLED_OF: u32 = 100;

/// Everything that guards, and of the rest a sample.
pub fn mutants() -> ExitCode {
    if !is_there("cargo-mutants", &["mutants", "--version"]) {
        eprintln!("There is no cargo-mutants: cargo install cargo-mutants");
        return ExitCode::FAILURE;
    }
    let mut is_fine = true;
    for (at, guarded) in GUARDED.iter().enumerate() {
        let mut command = mutate(&format!("guarded-{at}-{}", guarded.package));
        command.args(["--package", guarded.package]);
        command.args(guarded.files.iter().flat_map(|file| ["--file", file]));
        command.arg("--").args(guarded.tests);
        is_fine &= succeeds(&mut command);
    }
    let mut command = mutate("sample");
    let files = GUARDED.iter().flat_map(|guarded| guarded.files);
    command.args(files.flat_map(|file| ["--exclude", file]));
    command.args(["--workspace", "--sharding", "round-robin"]);
    command.args(["--shard", &format!("7/{SAMPLED_OF}")]);
    is_fine &= succeeds(&mut command);
    if !is_fine {
        eprintln!("Each mutant that was missed needs a test, or a reason: target/mutants/*");
    }
    exit_code(is_fine)
}

fn mutate(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["mutants", "--timeout", "60", "--output"])
        .arg(format!("target/mutants/{name}"))
        // A mutant that fails is not made smaller, nor kept for the next one.
        .env("PROPTEST_MAX_SHRINK_ITERS", "1")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    command
}

pub fn is_there(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

pub fn succeeds(command: &mut Command) -> bool {
    match command.current_dir(ROOT).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{:?} does not start: {error}", command.get_program());
            false
        }
    }
}

pub fn exit_code(is_fine: bool) -> ExitCode {
    match is_fine {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What is fetched and built beside weft, as for the tests with real clients.
pub fn lab_folder() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let cache = cache.map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
    cache.join("weft-lab")
}
