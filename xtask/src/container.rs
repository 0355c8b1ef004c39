//! `cargo xtask static`: a weft that needs no library, and what a container image is built of.
//! `cargo xtask lab container` builds the image and runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::tools::{ROOT, TARGET, exit_code, lab_folder, succeeds};

/// What is linked in whole: the C library too.
const FLAGS: &str = "-C target-feature=+crt-static";

/// What an image is built of, beside the program.
const CONTENT: &[&str] = &["Containerfile", "container.toml", "seccomp.json"];

/// Where it is put.
const OUTPUT: &str = "target/static";

/// Builds weft and puts the content of an image beside it.
pub fn built() -> ExitCode {
    exit_code(is_built())
}

/// The image from its build to its end, by podman.
pub fn lab() -> ExitCode {
    let mut test = Command::new("tests/container/run.sh");
    test.arg(OUTPUT).arg(lab_folder().join("container"));
    exit_code(is_built() && succeeds(&mut test))
}

fn is_built() -> bool {
    let mut build = Command::new(env!("CARGO"));
    // The target is named, so that build scripts are linked as ever.
    build.args(["build", "--release", "--package", "weft", "--bin", "weft"]);
    build.args(["--target", TARGET]).env("RUSTFLAGS", FLAGS);
    succeeds(&mut build) && is_put().inspect_err(|why| eprintln!("{why}")).is_ok()
}

fn is_put() -> Result<(), String> {
    let root = Path::new(ROOT);
    let output = root.join(OUTPUT);
    let data = output.join("data");
    std::fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let program = root.join("target").join(TARGET).join("release/weft");
    let content = CONTENT.iter().map(|name| root.join("packaging").join(name));
    content.chain([program]).try_for_each(|from: PathBuf| {
        let to = output.join(from.file_name().unwrap_or_default());
        let copied = std::fs::copy(&from, to);
        copied
            .map(drop)
            .map_err(|error| format!("{}: {error}", from.display()))
    })
}
