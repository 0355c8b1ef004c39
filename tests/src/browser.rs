//! A real browser: Debian's Chromium, driven by playwright-core with the scripts of the
//! folder `console`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::output;
use crate::packages::{cache_dir, key};
use crate::{Unavailable, is_root, workspace_dir};

/// Where Debian's package puts it.
const BROWSER: &str = "/usr/bin/chromium";

/// A browser and what drives it.
#[derive(Debug)]
pub struct Browser {
    /// The scripts, with their modules beside them.
    scripts: PathBuf,
}

impl Browser {
    /// Installs what is not there: the browser by apt-get as root, the modules by npm in the
    /// cache.
    ///
    /// # Errors
    /// What is not to be had.
    pub fn prepare() -> Result<Browser, Unavailable> {
        if !Path::new(BROWSER).exists() {
            install()?;
        }
        let own = workspace_dir().join("tests/console");
        let read = |name: &str| fs::read(own.join(name));
        let package = read("package.json").map_err(|e| Unavailable::wrap(own.display(), e))?;
        let scripts = cache_dir().join(format!("console-{}", key(&package)));
        let made = scripts.join("node_modules/.package-lock.json");
        fs::create_dir_all(&scripts)
            .and_then(|()| fs::write(scripts.join("package.json"), &package))
            .map_err(|e| Unavailable::wrap(scripts.display(), e))?;
        if !made.exists() {
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
            output(npm.current_dir(&scripts)).map_err(Unavailable)?;
        }
        Ok(Browser { scripts })
    }

    /// Runs a script with the path of the browser and `arguments`; what it printed.
    ///
    /// # Errors
    /// What it said where it failed.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Result<String, String> {
        let printed = output(self.script(script)?.args(arguments))?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// A command that runs a script with the path of the browser.
    ///
    /// # Errors
    /// The script is not there.
    pub fn script(&self, script: &str) -> Result<Command, String> {
        let own = workspace_dir().join("tests/console").join(script);
        // Modules are looked for beside the script.
        let here = self.scripts.join(script);
        fs::copy(&own, &here).map_err(|e| format!("{}: {e}", own.display()))?;
        let mut node = Command::new("node");
        node.arg(&here).arg(BROWSER);
        Ok(node)
    }
}

fn install() -> Result<(), Unavailable> {
    if !is_root() {
        let why = "only root installs it: apt-get install chromium";
        return Err(Unavailable::wrap(BROWSER, why));
    }
    let mut apt = Command::new("apt-get");
    apt.args(["install", "--yes", "--no-install-recommends", "chromium"]);
    output(apt.env("DEBIAN_FRONTEND", "noninteractive")).map_err(Unavailable)?;
    Ok(())
}
