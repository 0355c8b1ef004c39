//! What the kernel has cached.

use std::path::Path;
use std::process::Command;

/// Bytes of the file in the page cache. It takes the program `fincore`.
pub fn cached_bytes(path: &Path) -> u64 {
    let mut fincore = Command::new("fincore");
    fincore.args(["--bytes", "--raw", "--noheadings", "--output", "res"]);
    let output = fincore.arg(path).output().expect("fincore runs");
    let text = String::from_utf8(output.stdout).expect("a number");
    text.trim().parse().expect("a number")
}
