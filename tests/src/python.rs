//! Programs in Python, in an environment of their own in the cache folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::output;
use crate::packages::{cache_dir, key};
use crate::{Unavailable, workspace_dir};

/// An environment (PEP 405) with the packages that a file of `tests/python` names.
#[derive(Debug)]
pub struct Python {
    folder: PathBuf,
}

impl Python {
    /// Makes the one of `requirements.txt` in the cache, if that does not have it.
    ///
    /// # Errors
    /// What is not to be had.
    pub fn prepare() -> Result<Python, Unavailable> {
        Python::prepare_of("requirements.txt")
    }

    /// The same of another file.
    ///
    /// # Errors
    /// What is not to be had.
    pub fn prepare_of(requirements: &str) -> Result<Python, Unavailable> {
        let wanted = workspace_dir().join("tests/python").join(requirements);
        let packages = fs::read(&wanted).map_err(|e| Unavailable::wrap(wanted.display(), e))?;
        let folder = cache_dir().join(format!("python-{}", key(&packages)));
        fs::create_dir_all(cache_dir())?;
        // One process or thread at a time makes it.
        let lock = File::create(folder.with_extension("lock"))?;
        lock.lock()?;
        make(&wanted, &folder)?;
        Ok(Python { folder })
    }

    /// A program of its packages, or `python`.
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// Makes a client of the API that the description in `docs` describes, as the package `weft`
    /// in `folder`.
    ///
    /// # Errors
    /// What the generator said.
    pub fn make_client(&self, folder: &Path) -> Result<(), String> {
        let description = workspace_dir().join("docs/openapi.json");
        let mut make = self.program("openapi-python-client");
        make.args([
            "generate",
            "--meta",
            "none",
            "--overwrite",
            "--fail-on-warning",
        ]);
        make.arg("--config");
        make.arg(workspace_dir().join("examples/python/client.yml"));
        make.arg("--path").arg(description);
        make.arg("--output-path").arg(folder.join("weft"));
        output(&mut make).map(drop)
    }
}

/// Makes the environment of a folder, unless that has it.
fn make(wanted: &Path, folder: &Path) -> Result<(), Unavailable> {
    let made = folder.join("made");
    if made.exists() {
        return Ok(());
    }
    let mut make = Command::new("python3");
    output(make.args(["-m", "venv", "--clear"]).arg(folder)).map_err(Unavailable)?;
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "--quiet", "--requirement"]);
    output(install.arg(wanted)).map_err(Unavailable)?;
    fs::write(&made, "").map_err(|e| Unavailable::wrap(made.display(), e))
}
