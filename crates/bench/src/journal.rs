//! What was measured so far, by which runs, and why something was not: a line of JSON
//! each, so that nothing is lost when a run is interrupted: the same command then goes on
//! where it was, and others add to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::measured::{Effort, FORMAT, Sample};

/// The file's name.
pub const NAME: &str = "journal.jsonl";

/// The first line: what the others were measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of this layout.
    pub format: u32,
    /// What must be the same for measurements to stand side by side.
    pub settings: JournalSettings,
    /// When the first was begun, RFC 3339.
    pub began: String,
}

/// What must be the same for measurements to stand side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalSettings {
    /// How long and how often.
    pub effort: Effort,
    /// A digest of the program.
    pub program: String,
    /// The target that the user runs, where one was named.
    pub peer: Option<String>,
    /// The program that runs guests, where one was named.
    pub guest: Option<PathBuf>,
    /// The machines that run the loads, where some were named.
    #[serde(default)]
    pub agents: Vec<String>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The catalogue's name of the sweep.
    pub sweep: String,
    /// The name of the series.
    pub series: String,
    /// Where on the axis.
    pub x: f64,
    /// What it gave, with its round.
    pub sample: Sample,
    /// What was run.
    pub commands: Vec<String>,
    /// What others' programs took part.
    pub versions: Vec<(String, String)>,
}

/// Why a point is not measured: it failed, or what it needs is not here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The catalogue's name of the sweep.
    pub sweep: String,
    /// The name of the series.
    pub series: String,
    /// Where on the axis.
    pub x: f64,
    /// In a sentence.
    pub why: String,
}

/// A run that the lines behind this one come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRun {
    /// Its command line.
    pub command: String,
    /// When it began, RFC 3339.
    pub began: String,
}

/// Any line but the first.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JournalLine {
    Entry(Measurement),
    Reason(Reason),
    Run(JournalRun),
}

/// Why a journal cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// It was made with something else: what.
    #[error(
        "{} holds what was measured with another {}, which does not stand beside this: {REMEDY}",
        .0.display(), .1
    )]
    Other(PathBuf, &'static str),
    /// A line in the middle is not one of ours: its number.
    #[error("{}, line {}: nothing that this version writes: {REMEDY}", .0.display(), .1)]
    Garbled(PathBuf, usize),
}

const REMEDY: &str = "--again begins anew and forgets it, --out DIR writes elsewhere";

/// A journal that is written to.
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Its first line.
    pub header: Header,
    /// What was in it when it was opened, and what came since.
    pub held: JournalContent,
    /// This run, until it has added something.
    run: Option<JournalRun>,
}

/// What a journal holds.
#[derive(Debug, Default, PartialEq)]
pub struct JournalContent {
    /// Measurements.
    pub entries: Vec<Measurement>,
    /// Why points are not measured; of a point the last one counts.
    pub reasons: Vec<Reason>,
    /// The runs that all this comes from.
    pub runs: Vec<JournalRun>,
}

impl JournalContent {
    fn take(&mut self, line: JournalLine) {
        match line {
            JournalLine::Entry(entry) => self.entries.push(entry),
            JournalLine::Reason(reason) => self.reasons.push(reason),
            JournalLine::Run(run) => self.runs.push(run),
        }
    }

    /// Fewer rounds than planned are still a measurement.
    fn is_measured(&self, sweep: &str, series: &str, x: f64) -> bool {
        self.entries.iter().any(|entry| {
            (entry.sweep.as_str(), entry.series.as_str()) == (sweep, series) && entry.x == x
        })
    }

    /// Why that point is not measured, where it is not and that is known.
    #[must_use]
    pub fn why(&self, sweep: &str, series: &str, x: f64) -> Option<&str> {
        let last = self.reasons.iter().rev().find(|reason| {
            (reason.sweep.as_str(), reason.series.as_str()) == (sweep, series) && reason.x == x
        })?;
        (!self.is_measured(sweep, series, x)).then_some(&last.why)
    }

    /// Whether it has anything of that sweep.
    #[must_use]
    pub fn knows(&self, sweep: &str) -> bool {
        self.entries.iter().any(|entry| entry.sweep == sweep)
            || self.reasons.iter().any(|reason| reason.sweep == sweep)
    }

    /// The command lines of all runs, each once.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        for run in &self.runs {
            if !commands.contains(&run.command) {
                commands.push(run.command.clone());
            }
        }
        commands
    }
}

impl Journal {
    /// The journal in `folder`: a new one, or the one that is there, if it was
    /// made with the same settings. `again`: a new one whatever is there.
    ///
    /// # Errors
    /// Where it cannot be gone on with.
    pub fn open(
        folder: &Path,
        settings: JournalSettings,
        run: JournalRun,
        again: bool,
    ) -> Result<Journal, JournalError> {
        let path = folder.join(NAME);
        let failed = |error| JournalError::Io(path.clone(), error);
        let found = match again {
            true => None,
            false => read(folder)?,
        };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let Some(found) = found else {
            let header = Header {
                format: FORMAT,
                settings,
                began: run.began.clone(),
            };
            file.set_len(0).map_err(failed)?;
            append(&mut file, &header).map_err(failed)?;
            return Ok(Journal {
                file,
                path,
                header,
                held: JournalContent::default(),
                run: Some(run),
            });
        };
        if let Some(what) = difference(&found.header.settings, &settings) {
            return Err(JournalError::Other(path, what));
        }
        // What a write left half done when the process ended goes.
        file.set_len(found.whole_bytes).map_err(failed)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
        Ok(Journal {
            file,
            path,
            header: found.header,
            held: found.held,
            run: Some(run),
        })
    }

    /// Adds a measurement, for good.
    ///
    /// # Errors
    /// Where the file does not take it.
    pub fn add(&mut self, entry: Measurement) -> Result<(), JournalError> {
        self.put(JournalLine::Entry(entry))
    }

    /// Adds why a point is not measured, if that is news.
    ///
    /// # Errors
    /// Where the file does not take it.
    pub fn tell(&mut self, reason: Reason) -> Result<(), JournalError> {
        let Reason {
            sweep, series, x, ..
        } = &reason;
        let is_known = self.held.is_measured(sweep, series, *x)
            || self.held.why(sweep, series, *x) == Some(&reason.why);
        match is_known {
            true => Ok(()),
            false => self.put(JournalLine::Reason(reason)),
        }
    }

    /// A run that adds nothing is none that the report consists of.
    fn put(&mut self, line: JournalLine) -> Result<(), JournalError> {
        let run = self.run.take().map(JournalLine::Run);
        for line in run.into_iter().chain([line]) {
            append(&mut self.file, &line)
                .map_err(|error| JournalError::Io(self.path.clone(), error))?;
            self.held.take(line);
        }
        Ok(())
    }

    /// Whether that has been measured.
    #[must_use]
    pub fn has(&self, sweep: &str, series: &str, x: f64, round: u32) -> bool {
        self.held.entries.iter().any(|entry| {
            (entry.sweep.as_str(), entry.series.as_str()) == (sweep, series)
                && entry.x == x
                && entry.sample.round == round
        })
    }
}

/// One whole line in one write.
fn append<T: Serialize>(file: &mut File, line: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    file.write_all(&text)
}

/// What of the settings is not the same.
fn difference(there: &JournalSettings, here: &JournalSettings) -> Option<&'static str> {
    let rows = [
        (there.effort == here.effort, "effort (--quick, --full)"),
        (there.program == here.program, "build of weft"),
        (there.peer == here.peer, "--peer"),
        (there.guest == here.guest, "--guest"),
        (there.agents == here.agents, "--agents"),
    ];
    rows.iter().find(|(is_same, _)| !is_same).map(|row| row.1)
}

/// A journal that is there.
pub struct JournalFound {
    /// Its first line.
    pub header: Header,
    /// The others.
    pub held: JournalContent,
    /// Bytes of its whole lines.
    whole_bytes: u64,
}

/// Reads the journal in `folder`; `None` without one, or where not even its first
/// line was written.
///
/// # Errors
/// Where it cannot be read, or a line before the last is not one of ours.
pub fn read(folder: &Path) -> Result<Option<JournalFound>, JournalError> {
    let path = folder.join(NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(JournalError::Io(path, error)),
    };
    let garbled = |at: usize| JournalError::Garbled(path.clone(), at + 1);
    // Only what ends with a line feed was written whole.
    let whole_bytes = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut lines = text[..whole_bytes].split_inclusive(|byte| *byte == b'\n');
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    let header: Header = serde_json::from_slice(first).map_err(|_| garbled(0))?;
    if header.format != FORMAT {
        return Err(JournalError::Other(path, "version of weft"));
    }
    let mut held = JournalContent::default();
    for (at, line) in lines.enumerate() {
        held.take(serde_json::from_slice(line).map_err(|_| garbled(at + 1))?);
    }
    Ok(Some(JournalFound {
        header,
        held,
        whole_bytes: whole_bytes as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::Quantity;

    fn settings(effort: Effort) -> JournalSettings {
        JournalSettings {
            effort,
            program: "00ff".into(),
            peer: None,
            guest: None,
            agents: Vec::new(),
        }
    }

    fn entry(round: u32) -> Measurement {
        let sample = Sample {
            round,
            values: [(Quantity::Iops, 1e6 / 3.0)].into(),
            tenths: vec![0.1; 10],
            distribution: vec![(0.5, 10.25)],
        };
        Measurement {
            sweep: "nvme-read".into(),
            series: "fast path".into(),
            x: 4096.0,
            sample,
            commands: vec!["weft serve".into()],
            versions: Vec::new(),
        }
    }

    fn reason(series: &str, why: &str) -> Reason {
        Reason {
            sweep: "nvme-read".into(),
            series: series.into(),
            x: 4096.0,
            why: why.into(),
        }
    }

    fn run(command: &str) -> JournalRun {
        JournalRun {
            command: command.into(),
            began: "now".into(),
        }
    }

    fn open(folder: &Path, again: bool) -> Result<Journal, JournalError> {
        Journal::open(folder, settings(Effort::Quick), run("weft bench"), again)
    }

    #[test]
    fn why_something_is_not_measured_stays_until_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let why = |series: &str| {
            let journal = open(folder.path(), false).expect("a journal");
            let why = journal.held.why("nvme-read", series, 4096.0);
            why.map(str::to_owned)
        };
        let told = [
            reason("plain", "there is none"),
            reason("fast path", "failed: first"),
            reason("fast path", "failed: again"),
        ];
        for reason in told {
            let mut journal = open(folder.path(), false).expect("a journal");
            journal.tell(reason).expect("room");
        }
        assert_eq!(why("fast path").as_deref(), Some("failed: again"));
        assert_eq!(why("plain").as_deref(), Some("there is none"));
        assert_eq!(why("epoll"), None);
        // What is known is not written once more.
        let path = folder.path().join(NAME);
        let before = std::fs::read(&path).expect("written");
        let mut journal = open(folder.path(), false).expect("a journal");
        journal
            .tell(reason("plain", "there is none"))
            .expect("room");
        assert_eq!(std::fs::read(&path).expect("written"), before);
        // One round is measured: it is no matter that another fails.
        journal.add(entry(0)).expect("room");
        journal
            .tell(reason("fast path", "failed: later"))
            .expect("room");
        for why in [
            why("fast path").as_deref(),
            journal.held.why("nvme-read", "fast path", 4096.0),
        ] {
            assert_eq!(why, None);
        }
        assert_eq!(why("plain").as_deref(), Some("there is none"));
        assert!(open(folder.path(), true).expect("new").held == JournalContent::default());
    }

    #[test]
    fn runs_that_add_something_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |command: &str| {
            let settings = settings(Effort::Quick);
            Journal::open(folder.path(), settings, run(command), false).expect("a journal")
        };
        for (command, round) in [("one", 0), ("two", 1), ("one", 2)] {
            let mut journal = open(command);
            journal.add(entry(round)).expect("room");
            journal.add(entry(round + 10)).expect("room");
        }
        open("three")
            .tell(reason("plain", "there is none"))
            .expect("room");
        // It only looks.
        drop(open("four"));
        let held = open("five").held;
        assert_eq!(held.runs, ["one", "two", "one", "three"].map(run));
        assert_eq!(held.commands(), ["one", "two", "three"]);
        assert_eq!(held.entries.len(), 6);
    }

    #[test]
    fn entries_of_a_journal_are_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = open(folder.path(), false).expect("a new one");
        journal.add(entry(0)).expect("room");
        journal.add(entry(1)).expect("room");
        drop(journal);
        let mut journal = open(folder.path(), false).expect("the same");
        assert_eq!(journal.held.entries, [entry(0), entry(1)]);
        assert!(journal.has("nvme-read", "fast path", 4096.0, 1));
        assert!(!journal.has("nvme-read", "fast path", 4096.0, 2));
        assert!(!journal.has("nvme-read", "plain", 4096.0, 1));
        assert!(!journal.has("nvme-read", "fast path", 8192.0, 1));
        journal.add(entry(2)).expect("room");
        drop(journal);
        let journal = open(folder.path(), true).expect("a new one");
        assert!(journal.held.entries.is_empty());
    }

    #[test]
    fn a_line_torn_at_any_byte_costs_only_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = open(folder.path(), false).expect("a new one");
        journal.add(entry(0)).expect("room");
        let path = folder.path().join(NAME);
        let before = std::fs::read(&path).expect("written").len();
        journal.add(entry(1)).expect("room");
        drop(journal);
        let whole = std::fs::read(&path).expect("written");
        for end in before..whole.len() {
            std::fs::write(&path, &whole[..end]).expect("torn");
            let mut journal = open(folder.path(), false).expect("the first line is fine");
            assert_eq!(journal.held.entries, [entry(0)], "torn at {end}");
            journal.add(entry(1)).expect("room");
            let then = std::fs::read(&path).expect("written");
            assert!(then.starts_with(&whole[..before]) && then.ends_with(&whole[before..]));
            drop(journal);
            let journal = open(folder.path(), false).expect("all lines are fine");
            assert_eq!(journal.held.entries, [entry(0), entry(1)]);
        }
        // Not even the first line.
        std::fs::write(&path, &whole[..10]).expect("torn");
        let journal = open(folder.path(), false).expect("new");
        assert!(journal.held.entries.is_empty());
    }

    #[test]
    fn measurements_of_other_settings_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(open(folder.path(), false).expect("a new one"));
        let path = folder.path().join(NAME);
        let before = std::fs::read(&path).expect("written");
        let of = |settings| Journal::open(folder.path(), settings, run("weft bench"), false);
        let quick = settings(Effort::Quick);
        let others = [
            (settings(Effort::Full), "effort"),
            (
                JournalSettings {
                    program: "11ff".into(),
                    ..quick.clone()
                },
                "build",
            ),
            (
                JournalSettings {
                    peer: Some("nvme-tcp://192.0.2.1".into()),
                    ..quick.clone()
                },
                "--peer",
            ),
            (
                JournalSettings {
                    guest: Some("guest".into()),
                    ..quick
                },
                "--guest",
            ),
        ];
        for (settings, word) in others {
            let refused = of(settings).err().expect("refused").to_string();
            assert!(refused.contains(word), "{refused}");
            assert!(refused.contains("--again"), "{refused}");
        }
        assert_eq!(std::fs::read(&path).expect("there"), before);
    }

    #[test]
    fn a_line_in_the_middle_that_is_no_measurement_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = open(folder.path(), false).expect("a new one");
        journal.add(entry(0)).expect("room");
        let path = folder.path().join(NAME);
        let mut text = std::fs::read_to_string(&path).expect("written");
        text.push_str("{}\n");
        std::fs::write(&path, text).expect("spoilt");
        let refused = open(folder.path(), false).err().expect("refused");
        assert!(
            matches!(refused, JournalError::Garbled(_, 4)),
            "{refused:?}"
        );
    }
}
