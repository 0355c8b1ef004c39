//! What CI does, and what stands for it while one works: `cargo xtask ci` and
//! `cargo xtask quick`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Every test that could run passed, and some could not.
const COULD_NOT_RUN: u8 = 3;

/// A step: what it is, and what cargo is told.
type CiStep = (&'static str, &'static [&'static str]);

const FORMAT: CiStep = ("formatting", &["fmt", "--all", "--check"]);

const LINTS: CiStep = (
    "lints",
    &[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ],
);

/// In order; the first failure ends it.
const CI: &[CiStep] = &[
    FORMAT,
    LINTS,
    // Unit and property tests, house rules, the fuzzers' corpus, and the tests
    // with real clients.
    ("tests", &["test", "--workspace"]),
    // What a debug build does, a release build may leave out.
    (
        "memory that is touched, in a release build",
        &[
            "test",
            "--release",
            "--package",
            "mem",
            "--package",
            "store",
            "--lib",
            "--test",
            "resident",
            "--",
            "touched",
        ],
    ),
    // What lies above `mem` is built once more, so that it can be made to do wrong;
    // of the whole workspace, for else its dependencies would be too.
    (
        "the test of the simulator's checker",
        &[
            "test",
            "--workspace",
            "--features",
            "sim/broken",
            "--test",
            "broken",
        ],
    ),
];

/// What takes no socket, disk or guest: house rules, units, and machines against each
/// other, from documents and from the fuzzers' corpus.
const QUICK: &[CiStep] = &[
    FORMAT,
    LINTS,
    (
        "tests of units, machines and house rules",
        &[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--test",
            "any_cdb",
            "--test",
            "client",
            "--test",
            "conformance",
            "--test",
            "connection",
            "--test",
            "controller",
            "--test",
            "documents",
            "--test",
            "executor",
            "--test",
            "fuzz_corpus",
            "--test",
            "logins",
            "--test",
            "pair",
            "--test",
            "state",
            "--test",
            "tcp_controller",
            "--test",
            "v3",
            "--test",
            "xdr",
        ],
    ),
];

/// Tests that are ignored whatever the machine has, each with what runs it. The others of them
/// say it in their reason, behind [`LAB`].
const BY_DESIGN: &[(&str, &str)] = &[
    (
        "metering_of_an_io_is_timed",
        "cargo test --release -p engine --lib -- --ignored --nocapture metering_of_an_io",
    ),
    (
        "asking_limits_about_an_io_is_timed",
        "cargo test --release -p engine --lib -- --ignored --nocapture asking_limits",
    ),
    (
        "listing_of_a_million_files_has_every_name_once",
        "cargo test -p store --test dir -- --ignored listing_of_a_million_files",
    ),
    ("child", "the test that starts it as a process of its own"),
    (
        "how_long_calls_take",
        "cargo test --release -p nfsd --test state -- --ignored --nocapture how_long_calls_take",
    ),
    (
        "many_outstanding_operations_on_a_disk_are_answered",
        "cargo test -p store --test dir -- --ignored many_outstanding_operations",
    ),
];

/// How the command begins at the end of a reason.
const LAB: &str = "cargo xtask lab ";

/// Cargo's own variable: 0 compiles crates whole.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// A test that did not run.
#[derive(Debug, PartialEq, Eq)]
struct Ignored {
    /// The program that holds it.
    program: String,
    test: String,
    why: String,
}

impl Ignored {
    fn command(&self) -> Option<&str> {
        let name = self.test.rsplit("::").next().unwrap_or_default();
        let known = BY_DESIGN.iter().find(|(known, _)| *known == name);
        let in_lab = || self.why.find(LAB).map(|at| &self.why[at..]);
        known.map(|(_, command)| *command).or_else(in_lab)
    }
}

/// Everything, `CI=true` set: tests that are left to CI run.
pub fn ci() -> ExitCode {
    run(CI, true)
}

/// What is known within two minutes.
pub fn quick() -> ExitCode {
    run(QUICK, false)
}

fn run(steps: &[CiStep], is_ci: bool) -> ExitCode {
    let mut ignored = Vec::new();
    for (what, arguments) in steps {
        let shown = arguments.join(" ");
        eprintln!("== {what}: cargo {shown}");
        let start = Instant::now();
        match step(arguments, is_ci) {
            Ok((true, found)) => {
                eprintln!("== {what}: done in {} s", start.elapsed().as_secs());
                ignored.extend(found);
            }
            Ok((false, _)) => {
                eprintln!("== {what}: FAILED; to repeat it: cargo {shown}");
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("== {what}: cargo does not start: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let (by_design, others): (Vec<Ignored>, Vec<Ignored>) =
        ignored.into_iter().partition(|one| one.command().is_some());
    for one in &by_design {
        let command = one.command().unwrap_or_default();
        eprintln!("== ignored here: {}: {}: {command}", one.program, one.test);
    }
    if others.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("== COULD NOT RUN ON THIS MACHINE:");
    for one in &others {
        eprintln!("{}: {}: {}", one.program, one.test, one.why);
    }
    eprintln!("== once the machine has what they need: cargo clean -p needs");
    match is_ci {
        true => ExitCode::from(COULD_NOT_RUN),
        false => ExitCode::SUCCESS,
    }
}

/// Runs cargo and shows what it says; whether it succeeded, and the tests that it ignored.
fn step(arguments: &[&str], is_ci: bool) -> std::io::Result<(bool, Vec<Ignored>)> {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if is_ci {
        command.env("CI", "true");
        if std::env::var_os(INCREMENTAL).is_none() {
            // Much to write and to link for builds of which most are the first.
            command.env(INCREMENTAL, "0");
        }
    }
    let mut found = TestsTold::default();
    let success = shown(&mut command, |line| found.line(line))?;
    Ok((success, found.ignored()))
}

/// Runs a command, shows its lines and gives them to `heard`; whether it succeeded.
/// A process that it leaves behind is not waited for.
fn shown(command: &mut Command, mut heard: impl FnMut(&str)) -> std::io::Result<bool> {
    // One pipe for both, so that a test's line stands behind its program's.
    let (reader, mut writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?);
    let mut child = command.stderr(writer.try_clone()?).spawn()?;
    let waiting = std::thread::spawn(move || {
        let status = child.wait();
        // The last line: the pipe itself ends when the last process that has it does.
        writer.write_all(b"\n\0\n")?;
        status
    });
    let lines = BufReader::new(reader).split(b'\n');
    for line in lines {
        let line = line?;
        if line == b"\0" {
            break;
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        heard(&String::from_utf8_lossy(&line));
    }
    let status = waiting
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(status?.success())
}

/// What the lines of tests told so far.
#[derive(Default)]
struct TestsTold {
    program: String,
    ignored: Vec<Ignored>,
    /// How many the runners counted.
    counted: usize,
}

impl TestsTold {
    fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(program) = program(line) {
            program.clone_into(&mut self.program);
        } else if let Some((test, why)) = ignored(line) {
            self.ignored.push(Ignored {
                program: self.program.clone(),
                test: test.into(),
                why: why.into(),
            });
        } else if let Some((_, counts)) = line.split_once("test result: ") {
            let mut words = counts
                .split("; ")
                .filter_map(|count| count.strip_suffix(" ignored"));
            self.counted += words
                .next()
                .and_then(|count| count.parse().ok())
                .unwrap_or(0);
        }
    }

    /// All of them: one whose line was torn is there without its name.
    fn ignored(mut self) -> Vec<Ignored> {
        let torn = self.counted.saturating_sub(self.ignored.len());
        self.ignored.extend((0..torn).map(|_| Ignored {
            program: String::from("unknown"),
            test: String::from("unknown"),
            why: String::from("its line was mixed with others: look above"),
        }));
        self.ignored
    }
}

/// `Running tests/a.rs (target/debug/deps/a-0123456789abcdef)`: `a`.
fn program(line: &str) -> Option<&str> {
    let path = line.strip_prefix("Running ")?.strip_suffix(')')?;
    let name = path.rsplit(['(', '/']).next()?;
    name.rsplit_once('-').map(|(name, _)| name)
}

/// `test a::b ... ignored, why`: the test and why.
fn ignored(line: &str) -> Option<(&str, &str)> {
    let (test, why) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some((test, why.strip_prefix(", ").unwrap_or("no reason is given")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{files, functions};

    fn found(lines: &str) -> Vec<Ignored> {
        let mut found = TestsTold::default();
        lines.lines().for_each(|line| found.line(line));
        found.ignored()
    }

    #[test]
    fn process_that_a_command_leaves_behind_is_not_waited_for() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; exit 1"]);
        let mut told = Vec::new();
        let success = shown(&mut shell, |line| told.push(line.to_owned()));
        assert!(!success.expect("a shell"));
        let kill = Command::new("kill").arg(&told[0]).status();
        // It was still there, with the pipe.
        assert!(kill.expect("kill").success());
    }

    #[test]
    fn ignored_test_is_known_by_program_name_and_reason() {
        let all = found(
            "     Running tests/dir/main.rs (target/debug/deps/dir-1f0d2c)\n\
             test a::b ... ok\ntest a::c ... ignored, io_uring: no\n\
             test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n",
        );
        let [one] = &all[..] else { panic!("{all:?}") };
        let told = [&*one.program, &*one.test, &*one.why];
        assert_eq!(told, ["dir", "a::c", "io_uring: no"]);
        assert_eq!(one.command(), None);
        let all = found("test a::d ... ignored, it is long: cargo xtask lab story\n");
        assert_eq!(all[0].command(), Some("cargo xtask lab story"));
    }

    #[test]
    fn ignored_test_whose_line_is_torn_is_counted() {
        let all = found("test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured\n");
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|one| one.command().is_none()), "{all:?}");
    }

    /// A test that the machine cannot run says so by `needs`; of the others that are
    /// ignored each has something that runs it.
    #[test]
    fn test_that_is_always_ignored_is_listed_with_what_runs_it() {
        let mut seen = Vec::new();
        for file in files(&[".rs"]) {
            for (at, line) in file.text.lines().enumerate() {
                if !line.trim_start().starts_with("#[ignore") || line.contains(LAB) {
                    continue;
                }
                let rest: Vec<&str> = file.text.lines().skip(at).collect();
                let next = functions(&crate::scan::code(&rest.join("\n")));
                let name = next.first().map(|function| function.name.clone());
                let name = name.expect("a function below it");
                let known = BY_DESIGN.iter().find(|(test, _)| *test == name);
                let known = known
                    .unwrap_or_else(|| panic!("{}:{}: {name}: xtask/src/ci.rs", file.path, at + 1));
                seen.push(known.0);
            }
        }
        for (test, _) in BY_DESIGN {
            assert!(seen.contains(test), "no test {test}");
        }
    }
}
