//! What every importer keeps to: the document loads, identities stay, rights are not widened,
//! and what cannot be read is told with its line.

mod back;
mod bad_input;
mod ctl;
mod exports;
mod ganesha;
mod nvmetcli;
mod page;
mod spdk;
mod targetcli;
mod tgt;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use control::Origin;
use server::Config;

use crate::{Files, Format, Imported, NoFiles, Report, import};

/// Files by their paths.
#[derive(Default)]
pub(super) struct SomeFiles(pub BTreeMap<String, String>);

impl SomeFiles {
    pub fn of(files: &[(&str, &str)]) -> SomeFiles {
        let files = files.iter();
        SomeFiles(
            files
                .map(|(path, text)| ((*path).into(), (*text).into()))
                .collect(),
        )
    }
}

impl Files for SomeFiles {
    fn read(&self, path: &str) -> io::Result<String> {
        self.0
            .get(path)
            .cloned()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let below = |path: &String| {
            let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
            Some(rest.split('/').next()?.to_owned())
        };
        let mut names: Vec<String> = self.0.keys().filter_map(below).collect();
        names.dedup();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names),
        }
    }

    fn bytes(&self, path: &str) -> Option<u64> {
        path.starts_with("/srv/").then_some(1 << 30)
    }
}

pub(super) fn format(name: &str) -> Format {
    Format::named(name).expect(name)
}

/// Imports a text that is fine.
pub(super) fn imported(name: &str, text: &str) -> Imported {
    let found = import(format(name), "source", text, &SomeFiles::default());
    let found = found.unwrap_or_else(|report| panic!("{report}"));
    println!("{}", found.document);
    found
}

/// Imports a text, and loads the document with its secrets.
pub(super) fn loaded(name: &str, text: &str) -> (Imported, Config) {
    let found = imported(name, text);
    let config = load(&found);
    (found, config)
}

pub(super) fn load(found: &Imported) -> Config {
    for secret in &found.secrets {
        assert!(
            !found.document.contains(&secret.secret),
            "a secret is printed"
        );
    }
    for line in found.document.lines() {
        let is_plain = line.is_empty() || line.starts_with('[') || line.starts_with('#');
        assert!(is_plain || line.contains("  # "), "no comment: {line}");
    }
    let origin = Origin {
        folder: Path::new(""),
        access: Some(auth::FileAccess::OWN),
    };
    let document = found.document_with_secrets();
    let config = control::parse(&document, &origin, &reactor::affinity());
    config.unwrap_or_else(|problems| panic!("{problems:#?}\n{document}"))
}

/// The mistakes of a text that cannot be read.
pub(super) fn mistakes(name: &str, text: &str) -> String {
    let found = import(format(name), "source", text, &NoFiles);
    let report: Report = match found {
        Ok(found) => panic!("it was read:\n{}", found.document),
        Err(report) => report,
    };
    let text = report.to_string();
    println!("{text}");
    text
}

/// Asserts that the report has a line with all of these parts.
#[track_caller]
pub(super) fn tells(found: &Imported, parts: &[&str]) {
    let mut lines = found.report.lines();
    let has = |line: String| parts.iter().all(|part| line.contains(part));
    assert!(lines.any(has), "{parts:?} is not in\n{}", found.report);
}

pub(super) fn path(path: &str) -> &Path {
    Path::new(path)
}
