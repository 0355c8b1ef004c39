//! What was measured so far, a line of JSON each, so that nothing is lost when
//! somebody ends a run: the same command then goes on where it was.

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
    pub settings: Settings,
    /// When the first was begun, RFC 3339.
    pub began: String,
}

/// What must be the same for measurements to stand side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How long and how often.
    pub effort: Effort,
    /// A digest of the program.
    pub program: String,
    /// The target that somebody runs, where one was named.
    pub peer: Option<String>,
    /// The program that runs guests, where one was named.
    pub guest: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
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

/// Why a journal cannot be gone on with.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read or written.
    Io(PathBuf, io::Error),
    /// It was made with something else: what.
    Other(PathBuf, &'static str),
    /// A line in the middle is not one of ours: its number.
    Garbled(PathBuf, usize),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const REMEDY: &str = "--again begins anew and forgets it, --out DIR writes elsewhere";
        match self {
            Error::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Other(path, what) => write!(
                f,
                "{} holds what was measured with another {what}, which does not stand beside \
                 this: {REMEDY}",
                path.display()
            ),
            Error::Garbled(path, line) => write!(
                f,
                "{}, line {line}: not a measurement of this version: {REMEDY}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}

/// A journal that is written to.
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Its first line.
    pub header: Header,
    /// What was in it when it was opened, and what came since.
    pub entries: Vec<Entry>,
}

impl Journal {
    /// The journal in `folder`: a new one, or the one that is there, if it was
    /// made with the same settings. `again`: a new one whatever is there.
    ///
    /// # Errors
    /// Where it cannot be gone on with.
    pub fn open(
        folder: &Path,
        settings: Settings,
        now: String,
        again: bool,
    ) -> Result<Journal, Error> {
        let path = folder.join(NAME);
        let failed = |error| Error::Io(path.clone(), error);
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
                began: now,
            };
            file.set_len(0).map_err(failed)?;
            append(&mut file, &header).map_err(failed)?;
            return Ok(Journal {
                file,
                path,
                header,
                entries: Vec::new(),
            });
        };
        if let Some(what) = difference(&found.header.settings, &settings) {
            return Err(Error::Other(path, what));
        }
        // What a write left half done when the process ended goes.
        file.set_len(found.whole_bytes).map_err(failed)?;
        io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(failed)?;
        Ok(Journal {
            file,
            path,
            header: found.header,
            entries: found.entries,
        })
    }

    /// Adds a measurement, for good.
    ///
    /// # Errors
    /// Where the file does not take it.
    pub fn add(&mut self, entry: Entry) -> Result<(), Error> {
        append(&mut self.file, &entry).map_err(|error| Error::Io(self.path.clone(), error))?;
        self.entries.push(entry);
        Ok(())
    }

    /// Whether that has been measured.
    #[must_use]
    pub fn has(&self, sweep: &str, series: &str, x: f64, round: u32) -> bool {
        self.entries.iter().any(|entry| {
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
fn difference(there: &Settings, here: &Settings) -> Option<&'static str> {
    let rows = [
        (there.effort == here.effort, "effort (--quick, --full)"),
        (there.program == here.program, "build of weft"),
        (there.peer == here.peer, "--peer"),
        (there.guest == here.guest, "--guest"),
    ];
    rows.iter().find(|(is_same, _)| !is_same).map(|row| row.1)
}

/// What a journal holds.
pub struct Found {
    /// Its first line.
    pub header: Header,
    /// The others.
    pub entries: Vec<Entry>,
    /// Bytes of its whole lines.
    whole_bytes: u64,
}

/// Reads the journal in `folder`; `None` without one, or where not even its first
/// line was written.
///
/// # Errors
/// Where it cannot be read, or a line before the last is not one of ours.
pub fn read(folder: &Path) -> Result<Option<Found>, Error> {
    let path = folder.join(NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::Io(path, error)),
    };
    let garbled = |at: usize| Error::Garbled(path.clone(), at + 1);
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
        return Err(Error::Other(path, "version of weft"));
    }
    let entries = lines
        .enumerate()
        .map(|(at, line)| serde_json::from_slice::<Entry>(line).map_err(|_| garbled(at + 1)));
    Ok(Some(Found {
        header,
        entries: entries.collect::<Result<_, _>>()?,
        whole_bytes: whole_bytes as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::measured::Quantity;

    fn settings(effort: Effort) -> Settings {
        Settings {
            effort,
            program: "00ff".into(),
            peer: None,
            guest: None,
        }
    }

    fn entry(round: u32) -> Entry {
        let sample = Sample {
            round,
            values: [(Quantity::Iops, 1e6 / 3.0)].into(),
            tenths: vec![0.1; 10],
            distribution: vec![(0.5, 10.25)],
        };
        Entry {
            sweep: "nvme-read".into(),
            series: "fast path".into(),
            x: 4096.0,
            sample,
            commands: vec!["weft serve".into()],
            versions: Vec::new(),
        }
    }

    fn open(folder: &Path, again: bool) -> Result<Journal, Error> {
        Journal::open(folder, settings(Effort::Quick), "now".into(), again)
    }

    #[test]
    fn what_was_measured_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = open(folder.path(), false).expect("a new one");
        journal.add(entry(0)).expect("room");
        journal.add(entry(1)).expect("room");
        drop(journal);
        let mut journal = open(folder.path(), false).expect("the same");
        assert_eq!(journal.entries, [entry(0), entry(1)]);
        assert!(journal.has("nvme-read", "fast path", 4096.0, 1));
        assert!(!journal.has("nvme-read", "fast path", 4096.0, 2));
        assert!(!journal.has("nvme-read", "plain", 4096.0, 1));
        assert!(!journal.has("nvme-read", "fast path", 8192.0, 1));
        journal.add(entry(2)).expect("room");
        drop(journal);
        let journal = open(folder.path(), true).expect("a new one");
        assert!(journal.entries.is_empty());
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
            assert_eq!(journal.entries, [entry(0)], "torn at {end}");
            journal.add(entry(1)).expect("room");
            assert_eq!(std::fs::read(&path).expect("written"), whole);
        }
        // Not even the first line.
        std::fs::write(&path, &whole[..10]).expect("torn");
        assert!(open(folder.path(), false).expect("new").entries.is_empty());
    }

    #[test]
    fn measurements_of_other_settings_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(open(folder.path(), false).expect("a new one"));
        let path = folder.path().join(NAME);
        let before = std::fs::read(&path).expect("written");
        let of = |settings| Journal::open(folder.path(), settings, "now".into(), false);
        let quick = settings(Effort::Quick);
        let others = [
            (settings(Effort::Full), "effort"),
            (
                Settings {
                    program: "11ff".into(),
                    ..quick.clone()
                },
                "build",
            ),
            (
                Settings {
                    peer: Some("nvme-tcp://192.0.2.1".into()),
                    ..quick.clone()
                },
                "--peer",
            ),
            (
                Settings {
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
        assert!(matches!(refused, Error::Garbled(_, 3)), "{refused:?}");
    }
}
