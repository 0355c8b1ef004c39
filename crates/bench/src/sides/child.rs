//! Processes of a run: started on a leash, asked, always ended.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{FigureError, check_not_stopped};

/// How often a child that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Lines of what a child said that are told of one that failed.
const SAID_MAX: usize = 8;

/// What is to be started: a program with its words, perhaps elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The weft on whose leash it runs.
    pub leash: String,
    /// Words before that, of a program that runs it in a namespace.
    pub before: Vec<String>,
    /// CPUs that it may use; none: as we may.
    pub cpus: Vec<usize>,
    /// Program and arguments.
    pub words: Vec<String>,
}

impl Words {
    /// The same on these CPUs.
    pub fn on(self, cpus: &[usize]) -> Words {
        Words {
            cpus: cpus.to_vec(),
            ..self
        }
    }

    /// As a user would type it.
    pub fn shown(&self) -> String {
        let mut all = self.before.clone();
        if !self.cpus.is_empty() {
            all.extend(["taskset", "-c", &list(&self.cpus)].map(str::to_owned));
        }
        let is_ours = self.leash == self.words[0];
        let program = if is_ours { "weft" } else { &self.words[0] };
        all.push(quoted(program));
        all.extend(self.words[1..].iter().map(|word| quoted(word)));
        all.join(" ")
    }
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+%@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// CPUs as the kernel lists them.
pub fn list(cpus: &[usize]) -> String {
    let all: Vec<String> = cpus.iter().map(usize::to_string).collect();
    all.join(",")
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    shown: String,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Child {
    /// Starts it. What it prints can be had line by line.
    pub fn start(words: &Words) -> Result<Child, FigureError> {
        let shown = words.shown();
        let mut all = words.before.clone();
        all.extend([&words.leash, "leash", "--parent"].map(str::to_owned));
        all.push(process::id().to_string());
        if !words.cpus.is_empty() {
            all.extend(["--cpus".into(), list(&words.cpus)]);
        }
        all.push("--".into());
        all.extend_from_slice(&words.words);
        // A signal from the terminal is for us: we end it in its turn.
        let mut command = Command::new(&all[0]);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let spawned = command
            .args(&all[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(|error| format!("{}: {error}", all[0]))?;
        let lines = read(child.stdout.take().expect("piped"));
        let errors = read(child.stderr.take().expect("piped"));
        Ok(Child {
            child,
            shown,
            lines,
            errors,
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it was started by.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The first line that `wanted` takes, on standard output.
    pub fn line<T>(
        &mut self,
        limit: Duration,
        stop: &AtomicBool,
        wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, FigureError> {
        self.wait_for(&self.lines, limit, stop, wanted)
    }

    /// The same on standard error.
    pub fn error_line<T>(
        &mut self,
        limit: Duration,
        stop: &AtomicBool,
        wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, FigureError> {
        self.wait_for(&self.errors, limit, stop, wanted)
    }

    fn wait_for<T>(
        &self,
        lines: &Receiver<String>,
        limit: Duration,
        stop: &AtomicBool,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, FigureError> {
        let mut seen = Vec::new();
        let found = await_line(lines, limit, stop, |line| {
            seen.push(line.to_owned());
            wanted(line)
        })?;
        found.ok_or_else(|| {
            let last = seen[seen.len().saturating_sub(SAID_MAX)..].join("; ");
            self.error_with_output(&format!("it does not say what was waited for; {last}"))
        })
    }

    /// Writes a line to its standard input.
    pub fn write_line(&mut self, line: &str) -> Result<(), FigureError> {
        let input = self.child.stdin.as_mut().expect("piped");
        let told = writeln!(input, "{line}").and_then(|()| input.flush());
        told.map_err(|error| FigureError::Failed(format!("{}: {error}", self.shown)))
    }

    /// Waits for its end, at most `limit`: all that it printed since on standard
    /// output.
    pub fn output(mut self, limit: Duration, stop: &AtomicBool) -> Result<String, FigureError> {
        let give_up = Instant::now() + limit;
        let mut text = String::new();
        loop {
            check_not_stopped(stop)?;
            match self.lines.recv_timeout(LOOK * 10) {
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() < give_up => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.error_with_output("it does not end"));
                }
            }
        }
        while Instant::now() < give_up {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(text),
                Ok(Some(status)) => return Err(self.error_with_output(&told(status, &text))),
                Ok(None) => thread::sleep(LOOK),
                Err(error) => return Err(self.error_with_output(&error.to_string())),
            }
        }
        Err(self.error_with_output("it does not end"))
    }

    /// CPU time of all its threads so far, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns(self.id())
    }

    /// Memory that it has now, bytes.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.id())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        // One that has ended needs none.
        let _ = rustix::process::kill_process(id, signal);
    }

    /// What is wrong, with what it said about it.
    pub fn error_with_output(&self, what: &str) -> FigureError {
        let mut said: Vec<String> = self.errors.try_iter().collect();
        // What was said last is closest to the mistake.
        said.drain(..said.len().saturating_sub(SAID_MAX));
        FigureError::Failed(format!("{}: {what}; {}", self.shown, said.join("; ")))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a child ended that did not end well: of a report in JSON its errors.
fn told(status: process::ExitStatus, text: &str) -> String {
    let report = serde_json::from_str::<serde_json::Value>(text).ok();
    let errors = report.as_ref().and_then(|report| report.get("errors"));
    match errors {
        Some(errors) => format!("{status}, {errors}"),
        None => {
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(SAID_MAX)..].join("; ");
            format!("{status}, {last}")
        }
    }
}

/// Lines as they come; the process that writes them never waits for us.
pub fn read(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        lines.for_each(|line| drop(tell.send(line)));
    });
    told
}

/// The first line that `wanted` takes; `None` where there is none in time, or none comes any more.
pub fn await_line<T>(
    lines: &Receiver<String>,
    limit: Duration,
    stop: &AtomicBool,
    mut wanted: impl FnMut(&str) -> Option<T>,
) -> Result<Option<T>, FigureError> {
    let give_up = Instant::now() + limit;
    while Instant::now() < give_up {
        check_not_stopped(stop)?;
        match lines.recv_timeout(LOOK * 10) {
            Ok(line) => {
                if let Some(found) = wanted(&line) {
                    return Ok(Some(found));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
    Ok(None)
}

/// Memory that a process has, bytes; 0 where the kernel does not tell.
fn resident_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmRSS:"));
    let kib = lines.next().and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// CPU time of all threads that a process has, nanoseconds: the scheduler's
/// count, or in hundredths of a second where the kernel keeps none.
fn cpu_ns(id: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{id}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let exact: u64 = tasks
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    match exact {
        0 => fs::read_to_string(format!("/proc/{id}/stat")).map_or(0, |stat| ticks(&stat)),
        exact => exact,
    }
}

/// Fields 14 and 15 of proc(5), in ticks of 1/100 s; the name before may hold
/// spaces.
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    let ticks = fields.skip(11).take(2);
    ticks
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>()
        * 10_000_000
}

/// A file that goes when this is dropped.
#[derive(Debug)]
pub struct TempFile(pub PathBuf);

impl TempFile {
    /// With `content`, named by `name`, this process and a number.
    pub fn new(name: &str, content: &str) -> Result<TempFile, FigureError> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weft-bench-{}-{number}-{name}", process::id());
        let path = std::env::temp_dir().join(name);
        let file = fs::File::create(&path).and_then(|mut file| {
            // Keys may stand in it.
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(content.as_bytes())
        });
        match file {
            Ok(()) => Ok(TempFile(path)),
            Err(error) => Err(FigureError::Failed(format!("{}: {error}", path.display()))),
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        assert_eq!(ticks(stat), (11 + 12) * 10_000_000);
    }

    #[test]
    fn this_process_has_used_a_cpu() {
        let before = cpu_ns(process::id());
        // The kernel may tell less for a moment while a thread ends.
        while cpu_ns(process::id()) <= before {
            std::hint::spin_loop();
        }
        assert_eq!(cpu_ns(0), 0);
    }

    #[test]
    fn words_are_shown_as_they_are_typed() {
        let words = Words {
            leash: "/opt/weft-2/weft".into(),
            before: vec!["nsenter".into(), "-n".into()],
            cpus: vec![0, 2],
            words: vec!["/usr/bin/x".into(), "a b".into(), "-y=1".into()],
        };
        assert_eq!(
            words.shown(),
            "nsenter -n taskset -c 0,2 /usr/bin/x 'a b' -y=1"
        );
        let ours = Words {
            words: vec![words.leash.clone(), "perf".into()],
            ..Words::default()
        };
        let ours = Words {
            leash: words.leash,
            ..ours
        };
        assert_eq!(ours.shown(), "weft perf");
    }
}
