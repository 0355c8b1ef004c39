//! `cargo xtask package`: the packages for Debian and for systems of RPM, out of one release
//! build. `cargo xtask lab package` installs them in a system of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::tools::{ROOT, exit_code, is_there, lab_folder, succeeds};

/// The programs that make packages of what `crates/weft/Cargo.toml` says.
const MAKERS: &[(&str, &[&str])] = &[
    (
        "cargo-deb",
        &["--no-build", "--package", "weft", "--output"],
    ),
    (
        "cargo-generate-rpm",
        &["--package", "crates/weft", "--output"],
    ),
];

/// Whose completions are in the packages.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Where the packages are put.
const OUTPUT: &str = "target/package/";

/// Builds weft and makes the packages.
pub fn package() -> ExitCode {
    exit_code(is_made())
}

/// The packages from their installation to their end, under systemd.
pub fn lab() -> ExitCode {
    let mut test = Command::new("tests/package/boot.sh");
    test.arg(OUTPUT).arg(lab_folder().join("package"));
    exit_code(is_made() && succeeds(&mut test))
}

fn is_made() -> bool {
    // What was made of another version is none of this one's.
    let _ = std::fs::remove_dir_all(Path::new(ROOT).join(OUTPUT));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "--package", "weft", "--bin", "weft"]);
    succeeds(&mut build)
        && says_of_itself()
        && is_stripped()
        && MAKERS.iter().all(|(name, words)| make(name, words))
}

/// The program of both packages, without what only debuggers read: three quarters of it. The names
/// of functions stay, for backtraces and `perf`, and the probes.
fn is_stripped() -> bool {
    let mut strip = Command::new("strip");
    strip
        .args(["--strip-debug", "-o"])
        .arg(Path::new(OUTPUT).join("weft"));
    succeeds(strip.arg("target/release/weft"))
}

/// Has the program write its manual pages and completions, for both packages.
fn says_of_itself() -> bool {
    let folder = Path::new(ROOT).join(OUTPUT);
    let weft = || Command::new(Path::new(ROOT).join("target/release/weft"));
    let completions = folder.join("completions");
    let complete = |shell: &&str| {
        let file = File::create(completions.join(shell));
        file.is_ok_and(|file| succeeds(weft().args(["completions", shell]).stdout(file)))
    };
    succeeds(weft().arg("man").arg(folder.join("man")))
        && std::fs::create_dir_all(&completions).is_ok()
        && SHELLS.iter().all(complete)
}

fn make(name: &str, words: &[&str]) -> bool {
    let Some(program) = maker(name) else {
        return false;
    };
    let mut command = Command::new(program);
    // As cargo would call it.
    command.arg(name.trim_start_matches("cargo-"));
    succeeds(command.args(words).arg(OUTPUT))
}

/// The program, built into the cache folder where the machine has none.
fn maker(name: &str) -> Option<PathBuf> {
    if is_there(name, &["--version"]) {
        return Some(name.into());
    }
    let folder = lab_folder().join("tools");
    let program = folder.join("bin").join(name);
    if program.exists() {
        return Some(program);
    }
    let mut install = Command::new(env!("CARGO"));
    install
        .args(["install", "--locked", name, "--root"])
        .arg(folder);
    succeeds(&mut install).then_some(program)
}
