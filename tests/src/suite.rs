//! libiscsi's conformance suite (`iscsi-test-cu`): runs it and says what became
//! of each test.

use crate::child::tail;
use crate::packages::Sysroot;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

/// Its program below the packages' root.
const PROGRAM: &str = "usr/bin/iscsi-test-cu";

/// How long a run of everything may take.
const RUN_MAX: Duration = Duration::from_secs(300);

/// What became of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `Suite.Test`.
    pub test: String,
    /// Every assertion held.
    pub passed: bool,
    /// Why it, or a part of it, did not run: each reason once.
    pub skipped: BTreeSet<String>,
    /// All that it said.
    pub said: String,
}

/// Runs the tests that `family` names (`ALL` for all) against a LUN, with
/// more `arguments` (`-d`: data may be lost; a second URL: another path).
///
/// # Errors
/// It could not be run, or did not come to an end.
pub fn run(
    sysroot: &Sysroot,
    family: &str,
    url: &str,
    arguments: &[&str],
) -> Result<Vec<Verdict>, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let log = folder.path().join("log");
    let said = std::fs::File::create(&log).map_err(|e| e.to_string())?;
    let mut command = sysroot.command(PROGRAM);
    // Only the verbose mode prints each reason to skip.
    let (options, urls): (Vec<&str>, Vec<&str>) =
        arguments.iter().partition(|word| word.starts_with('-'));
    command
        .args(options)
        .args(["--test", family, "--verbose", url])
        .args(urls);
    command.current_dir(folder.path()).stdin(Stdio::null());
    command
        .stdout(said.try_clone().map_err(|e| e.to_string())?)
        .stderr(said);
    let mut child = crate::child::Owned::spawn(&mut command).map_err(|e| e.to_string())?;
    let ended = child.wait_for(RUN_MAX).map_err(|e| e.to_string())?;
    let bytes = std::fs::read(&log).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let verdicts = verdicts(&text);
    match ended {
        // It fails where a test does, and says so of each.
        Some(_) if text.contains("Run Summary:") => Ok(verdicts),
        Some(status) => Err(format!("{status}: {}", tail(&text, 20))),
        None => Err(format!("no end after {RUN_MAX:?}: {}", tail(&text, 20))),
    }
}

/// What a verbose run says of each test: a line `  Test: NAME ...`, at whose
/// end or behind which the test speaks, then `passed` or `FAILED`.
fn verdicts(text: &str) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = Vec::new();
    let mut suite = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            suite = name;
            continue;
        }
        let mut said = line;
        if let Some((name, rest)) = line
            .strip_prefix("  Test: ")
            .and_then(|l| l.split_once(" ..."))
        {
            found.push(Verdict {
                test: format!("{suite}.{name}"),
                passed: false,
                skipped: BTreeSet::new(),
                said: String::new(),
            });
            said = rest;
        }
        let Some(test) = found.last_mut() else {
            continue;
        };
        if line.starts_with("Run Summary:") {
            break;
        }
        test.said += said;
        test.said.push('\n');
        if let Some((_, why)) = said.split_once("[SKIPPED] ") {
            test.skipped
                .insert(why.trim_end_matches("passed").trim().to_owned());
        }
        // What comes next may speak in the same line.
        test.passed |= said.ends_with("passed") || said.starts_with("passed ");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\n\nSuite: Read\n  Test: Simple ...passed\n  Test: Far ...    [SKIPPED] not there\n    [SKIPPED] not there\npassed\nSuite: Write\n  Test: Wrong ...    [FAILED] another status\nFAILED\n    1. a.c:38  - EQUAL(_r,0)\n  Test: Cut\n\nRun Summary: passed\n";

    #[test]
    fn every_test_has_its_verdict() {
        let found = verdicts(SAID);
        let short: Vec<(&str, bool, usize)> = found
            .iter()
            .map(|v| (v.test.as_str(), v.passed, v.skipped.len()))
            .collect();
        let expected = [
            ("Read.Simple", true, 0),
            ("Read.Far", true, 1),
            ("Write.Wrong", false, 0),
        ];
        assert_eq!(short, expected);
        assert!(found[1].skipped.contains("not there"));
        assert!(found[2].said.contains("another status"));
    }
}
