//! Configurations of other targets and servers into weft's document: text in, a document and
//! a report out. Nothing here touches the machine but through [`Files`].
//!
//! An importer reads its format into a tree of keys, each with its line, fills a model of
//! what weft serves from it, and tells of each key that is not carried over. Rights are
//! never widened: what weft cannot express is left out and told.
#![forbid(unsafe_code)]

mod back;
mod blocks;
mod clients;
mod ctl;
mod exports;
mod exports_bsd;
mod ganesha;
mod iscsi_parts;
mod json;
mod live;
mod model;
mod nvmetcli;
mod report;
mod settle;
mod spdk;
mod spdk_ini;
mod targetcli;
mod tgt;
mod tree;
mod volumes;
mod words;
mod write;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;

pub use back::export;
pub use live::import_live;
use model::{ListenerModel, Model, Notes, Spoken};
use report::Place;
pub use report::{Loss, Mistake, Report, Weight};
use server::check;

/// No configuration is larger.
pub const BYTES_MAX: usize = 16 << 20;

/// Files of one source: the first, and those that it includes.
const FILES_MAX: usize = 1_000;

/// How importers look at the machine: at files that are included, and how large volumes are.
pub trait Files {
    /// The text of a file of [`BYTES_MAX`] at most.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, path: &str) -> io::Result<String>;

    /// The names in a folder, in order.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// The length of a plain file that is there.
    fn bytes(&self, path: &str) -> Option<u64>;
}

/// No file is there.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn bytes(&self, _: &str) -> Option<u64> {
        None
    }
}

/// The form of a source.
#[derive(Clone, Copy, Debug)]
pub struct Format(&'static FormatRow);

#[derive(Debug)]
struct FormatRow {
    name: &'static str,
    about: &'static str,
    read: Reader,
}

/// Fills the model from a text.
type Reader = fn(&mut Import, &str);

const FORMATS: &[FormatRow] = &[
    FormatRow {
        name: "nvmetcli",
        about: "the JSON that `nvmetcli save` writes (/etc/nvmet/config.json)",
        read: nvmetcli::read,
    },
    FormatRow {
        name: "targetcli",
        about: "the JSON that `targetcli saveconfig` writes (/etc/target/saveconfig.json)",
        read: targetcli::read,
    },
    FormatRow {
        name: "spdk",
        about: "the JSON that SPDK's `rpc.py save_config` prints",
        read: spdk::read,
    },
    FormatRow {
        name: "spdk-ini",
        about: "the INI of SPDK before release 20.07 (nvmf.conf, iscsi.conf)",
        read: spdk_ini::read,
    },
    FormatRow {
        name: "exports",
        about: "exports(5) of Linux (/etc/exports)",
        read: exports::read,
    },
    FormatRow {
        name: "exports-bsd",
        about: "exports(5) of FreeBSD and the other BSDs",
        read: exports_bsd::read,
    },
    FormatRow {
        name: "ganesha",
        about: "ganesha.conf of NFS-Ganesha, with the files that it includes",
        read: ganesha::read,
    },
    FormatRow {
        name: "tgt",
        about: "targets.conf of tgt, with the files that it includes",
        read: tgt::read,
    },
    FormatRow {
        name: "ctl",
        about: "ctl.conf of FreeBSD's ctld, in its classic form",
        read: ctl::read_classic,
    },
    FormatRow {
        name: "ctl-ucl",
        about: "ctl.conf of FreeBSD's ctld as UCL (`ctld -u`)",
        read: ctl::read_ucl,
    },
];

impl Format {
    /// Every format, by its name on the command line and what it is.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        FORMATS.iter().map(|row| (row.name, row.about))
    }

    /// The format of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Format> {
        FORMATS.iter().find(|row| row.name == name).map(Format)
    }
}

/// The body of the fuzz target: the first byte says which format, the rest is the text.
pub fn fuzz(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let row = &FORMATS[usize::from(*first) % FORMATS.len()];
    let text = String::from_utf8_lossy(rest);
    let _ = import(Format(row), "fuzz", &text, &NoFiles);
}

/// Why a listener of another transport than TCP is left out.
fn other_transport(kind: &str) -> String {
    let by_rdma = match kind.contains("rdma") {
        true => " (where hosts have iWARP, `rdma` of [[listener]] serves them on the port for TCP)",
        false => "",
    };
    format!("weft serves NVMe over TCP, not over {kind:?}: it is left out{by_rdma}")
}

/// A secret of the source, for a file of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretFile {
    /// The file, as the document names it.
    pub name: String,
    /// Whose it is.
    pub user: String,
    /// What it holds.
    pub secret: String,
}

impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} ({} bytes)",
            self.name,
            self.user,
            self.secret.len()
        )
    }
}

/// What an import yields.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Weft's document, as TOML.
    pub document: String,
    /// What it names as `secret_file`, `dhchap_secret_file` or `dhchap_ctrl_secret_file`.
    pub secrets: Vec<SecretFile>,
    /// What is not carried over.
    pub report: Report,
}

impl Imported {
    /// The document with each secret in the place of its file: to see whether it loads, and
    /// for no other eyes.
    #[must_use]
    pub fn document_with_secrets(&self) -> String {
        let mut whole = String::with_capacity(self.document.len());
        for line in self.document.split_inclusive('\n') {
            let named = line.rsplit_once("secret_file = \"");
            let named = named.and_then(|(before, behind)| {
                let (name, rest) = behind.split_once('"')?;
                let secret = self.secrets.iter().find(|secret| secret.name == name)?;
                Some((before, &secret.secret, rest))
            });
            match named {
                Some((before, secret, rest)) if !line.starts_with('#') => {
                    whole += &format!("{before}secret = {}{rest}", write::quoted(secret));
                }
                _ => whole += line,
            }
        }
        whole
    }
}

/// Reads the text of a file of a format.
///
/// # Errors
/// A report of mistakes: all that is wrong with the text.
pub fn import(
    format: Format,
    file: &str,
    text: &str,
    files: &dyn Files,
) -> Result<Imported, Report> {
    document(&model_of(format, file, text, files)?)
}

/// The document of a model, with its report.
fn document((model, report): &(Model, Report)) -> Result<Imported, Report> {
    let (document, secrets) = write::write(model, report);
    let mut report = report.clone();
    // Written with escapes in the source, it was not seen before.
    if let Some(line) = document.lines().find(|line| has_pattern(line)) {
        report.mistake(Place::default(), format!("{line}: {PATTERN}"));
        return Err(report);
    }
    Ok(Imported {
        document,
        secrets,
        report,
    })
}

fn model_of(
    format: Format,
    file: &str,
    text: &str,
    files: &dyn Files,
) -> Result<(Model, Report), Report> {
    let mut import = Import::new(files);
    if let Some(file) = import.enter(file, text) {
        debug_assert_eq!(file, 0, "the first");
        (format.0.read)(&mut import, text);
    }
    finish(import)
}

/// Settles what no single key decides.
fn finish(mut import: Import) -> Result<(Model, Report), Report> {
    if import.report.mistakes.is_empty() {
        settle::settle(&mut import);
    }
    match import.report.mistakes.is_empty() {
        true => Ok((import.model, import.report)),
        false => Err(import.report),
    }
}

/// An import that goes on.
struct Import<'f> {
    model: Model,
    report: Report,
    files: &'f dyn Files,
    /// Where each subsystem or target stands in the model, by its name.
    named: HashMap<String, usize>,
    /// Where each volume stands in the model, by its name.
    volume_named: HashMap<String, usize>,
}

impl<'f> Import<'f> {
    fn new(files: &'f dyn Files) -> Self {
        Import {
            model: Model::default(),
            report: Report::default(),
            files,
            named: HashMap::new(),
            volume_named: HashMap::new(),
        }
    }

    /// Begins with a file: its number, unless its text is none that could be read.
    fn enter(&mut self, name: &str, text: &str) -> Option<u16> {
        let number = self.report.files.len();
        self.report.files.push(name.to_owned());
        let file = u16::try_from(number).unwrap_or(u16::MAX);
        if number >= FILES_MAX {
            let text = format!("there are more than {FILES_MAX} files: this includes too much");
            self.report.mistake(Place { file: 0, line: 0 }, text);
            return None;
        }
        let whole = Place { file, line: 0 };
        if text.len() > BYTES_MAX {
            let text = "it has more than 16 MiB: this is no configuration";
            self.report.mistake(whole, text);
            return None;
        }
        let before = self.report.mistakes.len();
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(why) = unreadable(text) {
                self.report.mistake(Place { file, line }, why);
            }
        }
        (self.report.mistakes.len() == before).then_some(file)
    }

    /// Adds a listener, unless it is there.
    fn listen(&mut self, key: &tree::SourceKey, address: SocketAddr, spoken: Spoken) {
        self.listen_for(key, address, spoken, false);
    }

    /// Adds a listener, which may be one for NVMe's discovery alone.
    fn listen_for(
        &mut self,
        key: &tree::SourceKey,
        address: SocketAddr,
        spoken: Spoken,
        discovery_only: bool,
    ) {
        let listeners = &mut self.model.listeners;
        let is_same =
            |known: &&mut ListenerModel| (known.address, known.spoken) == (address, spoken);
        if let Some(known) = listeners.iter_mut().find(is_same) {
            known.discovery_only &= discovery_only;
            return;
        }
        if listeners.len() == check::LISTENERS_MAX {
            let most = check::LISTENERS_MAX;
            let text = format!("there are more than {most} addresses: weft has {most} listeners");
            self.report.mistake(key.place, text);
            return;
        }
        let mut notes = Notes::default();
        notes.set("address", note(key));
        listeners.push(ListenerModel {
            address,
            spoken,
            discovery_only,
            notes,
        });
    }

    /// Why an object of weft's cannot have this name or value.
    fn fits<E: fmt::Display>(&mut self, key: &tree::SourceKey, fits: Result<(), E>) -> bool {
        if let Err(why) = &fits {
            let why = format!("{why}; it is left out");
            self.report.add(key.place, &key.name, Weight::Access, why);
        }
        fits.is_ok()
    }
}

const PATTERN: &str =
    "`{1..2}` is a pattern to weft, which would make several of it: give it another name";

/// What no configuration holds, in any of the formats.
fn unreadable(line: &str) -> Option<String> {
    if line.contains('\0') {
        return Some("a NUL byte: this is no text".to_owned());
    }
    for mark in ["{{", "{%", "${"] {
        if line.contains(mark) {
            return Some(format!(
                "`{mark}` is of a template: let the tool that it is for fill it in first"
            ));
        }
    }
    has_pattern(line).then(|| PATTERN.to_owned())
}

/// Whether a text has digits, two dots and digits between braces.
fn has_pattern(text: &str) -> bool {
    let mut parts = text.split('{').skip(1);
    parts.any(|part| {
        let range = part
            .split_once('}')
            .and_then(|(range, _)| range.split_once(".."));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        range.is_some_and(|(first, last)| is_number(first) && is_number(last))
    })
}

/// The note of a value that stands in the source.
fn note(key: &tree::SourceKey) -> String {
    match key.name.as_str() {
        "" => format!("line {}", key.place.line),
        name => format!("`{name}`, line {}", key.place.line),
    }
}

#[cfg(test)]
mod tests;
