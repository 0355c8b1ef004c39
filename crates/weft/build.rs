//! What `weft --version` says: the version, of a release the commit, and what it is built with.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut about = Vec::new();
    // Debug builds are not built anew for each commit.
    if variable("PROFILE") == "release" {
        about.extend(commit());
    }
    let features = variable("CARGO_CFG_TARGET_FEATURE");
    if features.split(',').any(|feature| feature == "crt-static") {
        about.push("static".to_owned());
    }
    if !variable("CARGO_FEATURE_COUNT_ALLOCATIONS").is_empty() {
        about.push("count-allocations".to_owned());
    }
    let version = variable("CARGO_PKG_VERSION");
    match about.join(", ") {
        none if none.is_empty() => println!("cargo::rustc-env=WEFT_VERSION={version}"),
        about => println!("cargo::rustc-env=WEFT_VERSION={version} ({about})"),
    }
}

/// Nothing is known of what was unpacked from an archive, inside of another repository too.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ])?;
    println!("cargo::rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let said = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(said).ok()?.trim().to_owned())
}
