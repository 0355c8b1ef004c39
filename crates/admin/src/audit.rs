//! The audit: a line of JSON for each change and each refusal of one. Each line names the
//! digest of the one before it, so that none can be changed or taken out unseen.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use api::{AuditRecord, AuditVerified, Generation};

use crate::files::{self, with_suffix};
use crate::generations::Generations;
use crate::state::sha256;

/// Lines of a plan that a record has.
const CHANGES_MAX: usize = 100;
/// Records that are shown.
const SHOWN_MAX: usize = 1_000;
/// What the first record has in the place of a digest.
const FIRST: &str = "";
/// The outcome of a change that was made.
pub(crate) const MADE: &str = "made";

/// The file.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    /// Once it is known.
    end: Option<End>,
}

/// The last whole line.
#[derive(Debug)]
struct End {
    number: u64,
    sha256: String,
    generation: u64,
    /// Something without an end follows it.
    is_torn: bool,
}

impl Audit {
    /// In the folder of the generations.
    pub fn of(folder: &Path) -> Audit {
        Audit {
            path: folder.join("audit.jsonl"),
            end: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record, on the disk when this returns: what was asked for on `before`, what is
    /// served after it, and what came of it.
    pub fn add(
        &mut self,
        before: &Generation,
        after: &Generation,
        outcome: &str,
    ) -> io::Result<()> {
        let end = match self.end.take() {
            Some(end) => end,
            None => End::of(&read(&self.path)?),
        };
        let record = AuditRecord {
            number: end.number + 1,
            unix_s: after.unix_s,
            uid: after.uid,
            by: after.by.clone(),
            verb: after.verb.clone(),
            outcome: outcome.to_owned(),
            generation_before: before.generation,
            generation: after.generation,
            sha256_before: before.sha256.clone(),
            sha256: after.sha256.clone(),
            changes: after.done.iter().take(CHANGES_MAX).cloned().collect(),
            change_count: after.done.len(),
            prev: end.sha256,
        };
        let line = serde_json::to_string(&record)?;
        // What a process has left that was killed stays, for whoever looks.
        let torn = if end.is_torn { "\n" } else { "" };
        files::append(&self.path, format!("{torn}{line}\n").as_bytes())?;
        self.end = Some(End {
            number: record.number,
            sha256: sha256(line.as_bytes()),
            generation: record.generation,
            is_torn: false,
        });
        Ok(())
    }

    /// Adds the last generation, if the process was killed that made it.
    pub fn catch_up(&mut self, made: &Generation) -> io::Result<()> {
        let end = End::of(&read(&self.path)?);
        if made.is_found() || end.generation >= made.generation {
            return Ok(());
        }
        let before = Generation {
            generation: end.generation,
            sha256: String::new(),
            ..made.clone()
        };
        self.add(&before, made, MADE)
    }

    /// The last records.
    pub fn records(&self) -> io::Result<Vec<AuditRecord>> {
        let bytes = read(&self.path)?;
        let mut records: Vec<AuditRecord> = lines(&bytes).filter_map(parse).collect();
        let old = records.len().saturating_sub(SHOWN_MAX);
        Ok(records.split_off(old))
    }

    /// Whether the file is as it was written, and knows of all that has made a generation.
    pub fn verify(&self, generations: &Generations) -> io::Result<AuditVerified> {
        let bytes = read(&self.path)?;
        let (mut torn, mut wrong) = (Vec::new(), Vec::new());
        let (mut number, mut prev) = (0, FIRST.to_owned());
        let mut made = Vec::new();
        for (at, line) in lines(&bytes).enumerate() {
            let at = at + 1;
            let Some(record) = parse(line) else {
                torn.push(format!(
                    "line {at} is torn: weft was killed while it wrote it"
                ));
                continue;
            };
            if record.prev != prev {
                wrong.push(format!(
                    "line {at}, record {}: a record before it was changed or taken out",
                    record.number
                ));
            } else if record.number != number + 1 {
                wrong.push(format!(
                    "line {at}: record {} follows {number}",
                    record.number
                ));
            }
            (number, prev) = (record.number, sha256(line));
            if record.outcome == MADE {
                made.push((record.generation, record.sha256));
            }
        }
        for generation in generations.numbers()? {
            let Ok(record) = generations.record(generation) else {
                continue;
            };
            let is_known = made.contains(&(generation, record.sha256.clone()));
            if !is_known && !record.is_found() {
                wrong.push(format!(
                    "no record of generation {generation}, which uid {} has made: it was taken out",
                    record.uid
                ));
            }
        }
        Ok(AuditVerified {
            file: Some(self.path.display().to_string()),
            records: number,
            torn,
            wrong,
        })
    }

    /// The first of what is not as it was written, if anything is. The file as it was found is
    /// copied aside, once for each damage; it stays too, and records go on in it.
    pub fn damage(&self, generations: &Generations) -> Option<String> {
        let verified = match self.verify(generations) {
            Ok(verified) => verified,
            Err(error) => return Some(error.to_string()),
        };
        let first = verified.wrong.first()?;
        let digest = sha256(verified.wrong.join("\n").as_bytes());
        let aside = with_suffix(&self.path, &format!(".corrupt-{}", &digest[..16]));
        let copied = match aside.exists() {
            true => Ok(()),
            false => read(&self.path).and_then(|bytes| files::write(&aside, &bytes, None)),
        };
        let copied = match copied {
            Ok(()) => format!("the file as it was found is kept in {}", aside.display()),
            Err(error) => format!("it cannot be copied to {}: {error}", aside.display()),
        };
        Some(format!("{first}; `weft audit verify` tells all; {copied}"))
    }
}

impl End {
    fn of(bytes: &[u8]) -> End {
        let mut lines = bytes.rsplit(|byte| *byte == b'\n');
        let last = lines.find_map(|line| Some((parse(line)?, line)));
        let (number, sha256, generation) = last
            .map_or((0, FIRST.to_owned(), 0), |(record, line)| {
                (record.number, sha256(line), record.generation)
            });
        End {
            number,
            sha256,
            generation,
            is_torn: bytes.last().is_some_and(|last| *last != b'\n'),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match files::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        bytes => bytes,
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

fn parse(line: &[u8]) -> Option<AuditRecord> {
    serde_json::from_slice(line).ok()
}
