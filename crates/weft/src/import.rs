//! `weft import`: files of other programs into a configuration.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use control::Origin;
use import::{BYTES_MAX, Files, Format, Imported};

use crate::{FAILURE, USAGE, with_config};

/// Something that decides who may do what is not as it was, or has to be filled in.
const CHANGES_ACCESS: u8 = 4;

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// What the file is; see docs/import.md
    #[arg(value_name = "FORMAT", required_unless_present = "live",
          value_parser = PossibleValuesParser::new(Format::all().map(|(name, _)| name)))]
    format: Option<String>,
    /// The file of the other program
    #[arg(required_unless_present = "live")]
    file: Option<PathBuf>,
    /// A folder for secrets, each in a file that only its owner may read; what the document
    /// names as `secret_file` has to lie beside it
    #[arg(long, value_name = "DIR")]
    secrets: Option<PathBuf>,
    /// Read what the kernel serves now instead of a file: its NVMe target, nvmet
    #[arg(long, value_name = "TARGET", value_parser = ["nvmet"], conflicts_with = "format")]
    live: Option<String>,
    /// Where configfs is mounted, for --live
    #[arg(long, value_name = "DIR", default_value = "/sys/kernel/config")]
    configfs: PathBuf,
    /// The other way: FILE is a configuration of weft, and FORMAT (nvmetcli, targetcli or
    /// exports) what is printed, without secrets
    #[arg(long, conflicts_with_all = ["live", "secrets"])]
    back: bool,
}

/// Files of this machine.
struct FilesHere;

impl Files for FilesHere {
    fn read(&self, path: &str) -> io::Result<String> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
        }
        let mut bytes = Vec::new();
        // One byte more shows that there is more.
        file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
        String::from_utf8(bytes).map_err(no_text)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn bytes(&self, path: &str) -> Option<u64> {
        let about = fs::metadata(path).ok()?;
        about.is_file().then_some(about.len())
    }
}

pub(crate) fn run(arguments: &ImportArgs) -> io::Result<ExitCode> {
    let mut told = io::stderr();
    let format = arguments.format.as_deref().and_then(Format::named);
    let (imported, file) = match (format, &arguments.file) {
        (Some(format), Some(file)) if arguments.back => return back(format, file),
        (Some(format), Some(file)) => {
            let file = file.display().to_string();
            let text = match FilesHere.read(&file) {
                Ok(text) => text,
                Err(error) => {
                    let _ = writeln!(told, "{file}: cannot be read: {error}");
                    return Ok(ExitCode::from(USAGE));
                }
            };
            (import::import(format, &file, &text, &FilesHere), file)
        }
        _ => {
            let folder = arguments.configfs.join("nvmet").display().to_string();
            (import::import_live(&folder, &FilesHere), folder)
        }
    };
    let imported = match imported {
        Ok(imported) => imported,
        Err(report) => {
            let _ = write!(told, "{report}");
            return Ok(ExitCode::from(USAGE));
        }
    };
    if let Some(folder) = &arguments.secrets
        && let Err(why) = write_secrets(folder, &imported)
    {
        let _ = writeln!(told, "{why}");
        return Ok(ExitCode::from(FAILURE));
    }
    let _ = write!(told, "{}", imported.report);
    if arguments.secrets.is_none() {
        for secret in &imported.secrets {
            let _ = writeln!(
                told,
                "{}: the secret of {} is not written: `--secrets DIR` writes it into a file",
                secret.name, secret.user
            );
        }
    }
    let is_whole = is_whole(&imported, &file);
    io::stdout().write_all(imported.document.as_bytes())?;
    Ok(match imported.report.changes_access() || !is_whole {
        true => ExitCode::from(CHANGES_ACCESS),
        false => ExitCode::SUCCESS,
    })
}

/// Prints a configuration of weft's in another program's form.
fn back(format: Format, file: &Path) -> io::Result<ExitCode> {
    with_config(file, |config| {
        let name = file.display().to_string();
        let Some((text, report)) = import::export(format, &config, &name) else {
            let why = "--back prints nvmetcli, targetcli or exports";
            let _ = writeln!(io::stderr(), "{why}");
            return Ok(ExitCode::from(USAGE));
        };
        let _ = write!(io::stderr(), "{report}");
        io::stdout().write_all(text.as_bytes())?;
        Ok(match report.changes_access() {
            true => ExitCode::from(CHANGES_ACCESS),
            false => ExitCode::SUCCESS,
        })
    })
}

/// Tells of what the document still lacks to be loaded.
fn is_whole(imported: &Imported, file: &str) -> bool {
    let origin = Origin {
        folder: Path::new(""),
        access: Some(auth::FileAccess::OWN),
    };
    let document = imported.document_with_secrets();
    let checked = control::parse(&document, &origin, &reactor::affinity());
    let problems = checked.err().unwrap_or_default();
    for problem in &problems {
        let control::Problem { line, text, .. } = problem;
        let _ = writeln!(
            io::stderr(),
            "{file}: line {line} of the document does not load yet: {text}"
        );
    }
    problems.is_empty()
}

/// Writes each secret into a file of its own that was not there.
fn write_secrets(folder: &Path, imported: &Imported) -> Result<(), String> {
    let make = || -> io::Result<()> {
        if imported.secrets.is_empty() || folder.is_dir() {
            return Ok(());
        }
        DirBuilder::new().mode(0o700).create(folder)
    };
    make().map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    for secret in &imported.secrets {
        let path = folder.join(&secret.name);
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| file.write_all(secret.secret.as_bytes()));
        written.map_err(|error| {
            format!(
                "{} cannot be written: {error}; name a folder where no such file is",
                path.display()
            )
        })?;
    }
    Ok(())
}
