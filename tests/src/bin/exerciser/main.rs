//! Does to a mounted file system what programs do to one, at random, and holds
//! every answer against a model: `exerciser KIND SEED STEPS DIR [OTHER DIR]`.
//!
//! The other folder is the same one through another mount, so that what is
//! compared there comes from the server and not from this client's memory. The
//! last line says how often each thing was done.

#![forbid(unsafe_code)]

mod contend;
mod data;
mod locks;
mod names;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::fs::{OpenOptions, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use random::Random;

/// What was found wrong.
type Wrong = String;

/// How many of the last steps are printed with what is wrong.
const TOLD: usize = 30;

/// One run.
struct ExerciserRun {
    random: Random,
    dir: PathBuf,
    /// The same folder, seen through another mount.
    other: Option<PathBuf>,
    /// How often each thing was done.
    counts: BTreeMap<&'static str, u32>,
    /// The last steps.
    told: VecDeque<String>,
    /// What the file system cannot do.
    missing: Vec<&'static str>,
}

impl ExerciserRun {
    /// Says what is about to be done.
    fn tell(&mut self, what: &'static str, details: impl Debug) {
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        self.told.push_back(format!("{what} {details:?}"));
        *self.counts.entry(what).or_default() += 1;
    }

    /// It was not done after all: the file system has no such thing.
    fn lacks(&mut self, what: &'static str) {
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
        self.counts.remove(what);
    }

    fn number(&mut self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(4) {
            // Never zero: so that a hole differs from data.
            let word = (self.random.next_u32() | 0x0101_0101).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

/// What an operation should have come to.
fn expect<T: PartialEq + Debug>(what: impl Debug, found: T, expected: T) -> Result<(), Wrong> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what:?}: {found:?}, not {expected:?}")),
    }
}

/// What must not fail.
fn must<T, E: Debug>(what: impl Debug, result: Result<T, E>) -> Result<T, Wrong> {
    result.map_err(|e| format!("{what:?}: {e:?}"))
}

/// The number of an error, 0 of none.
fn errno<T>(result: &std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(e) => e.raw_os_error().unwrap_or(-1),
    }
}

/// Becomes a program of another user.
fn run_as(uid: &str, program: &str, arguments: &[String]) -> ExitCode {
    let Ok(id) = uid.parse() else {
        eprintln!("{uid} is no number");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    let error = command.args(arguments).gid(id).uid(id).exec();
    eprintln!("{program}: {error}");
    ExitCode::FAILURE
}

/// Locks a file, says so, and keeps the lock until it is killed.
fn hold(file: &str) -> ExitCode {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let locked = opened.map(|file| (file.try_lock(), file));
    match locked {
        Ok((Ok(()), _file)) => {
            println!("held");
            loop {
                std::thread::park();
            }
        }
        Ok((Err(TryLockError::WouldBlock), _)) => eprintln!("held by another"),
        Ok((Err(error), _)) => eprintln!("{file}: {error}"),
        Err(error) => eprintln!("{file}: {error}"),
    }
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (kind, seed, steps, dirs) = match words.as_slice() {
        [kind, uid, program, arguments @ ..] if kind == "as" => {
            return run_as(uid, program, arguments);
        }
        [kind, file] if kind == "hold" => return hold(file),
        [kind, seed, steps, dirs @ ..] if matches!(dirs.len(), 1 | 2) => (kind, seed, steps, dirs),
        _ => {
            eprintln!(
                "usage: exerciser data|names|listing|locks|contend SEED STEPS DIR [OTHER DIR]"
            );
            eprintln!("       exerciser as UID PROGRAM [ARGUMENT...]");
            eprintln!("       exerciser hold FILE");
            return ExitCode::from(2);
        }
    };
    let (Ok(seed), Ok(steps)) = (seed.parse::<u64>(), steps.parse::<u32>()) else {
        eprintln!("SEED and STEPS are numbers");
        return ExitCode::from(2);
    };
    // Modes are held against the model as they were asked for.
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut run = ExerciserRun {
        random: Random::new(seed),
        dir: Path::new(&dirs[0]).to_path_buf(),
        other: dirs.get(1).map(PathBuf::from),
        counts: BTreeMap::new(),
        told: VecDeque::new(),
        missing: Vec::new(),
    };
    let found = match kind.as_str() {
        "data" => data::run(&mut run, steps),
        "names" => names::run(&mut run, steps),
        "listing" => names::listing(&mut run, steps),
        "locks" => locks::run(&mut run, steps),
        "contend" => contend::run(&mut run, steps),
        other => Err(format!("no such kind: {other}")),
    };
    match found {
        Ok(()) => {
            println!(
                "{kind} seed {seed}: {:?}, lacks {:?}",
                run.counts, run.missing
            );
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            for step in &run.told {
                println!("  {step}");
            }
            println!("{kind} seed {seed}: WRONG: {wrong}");
            ExitCode::FAILURE
        }
    }
}
