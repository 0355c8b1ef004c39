//! A distribution's packages, unpacked into a cache folder.
//!
//! The machine's own package sources are used with lists, status and archives
//! kept apart from the machine's, so that nothing on it changes and no
//! privilege is needed. An empty status makes the closure of dependencies
//! complete, down to the C library: what runs from the folder needs nothing of
//! the machine but its kernel.

use crate::child::output;
use crate::systems::System;
use crate::{Unavailable, target_dir};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Named as a dependency of what is wanted, but of no use to programs that are
/// only unpacked: maintainer scripts' tools, and data for things not started.
const NOT_WANTED: &[&str] = &[
    "adduser",
    "apt",
    "base-files",
    "base-passwd",
    "bash",
    "bsdutils",
    "coreutils",
    "cpio",
    "debconf",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "init-system-helpers",
    "initramfs-tools",
    "ipxe-qemu",
    "iso-codes",
    "keyutils",
    "klibc-utils",
    "libc-bin",
    "libsasl2-modules-db",
    "linux-base",
    "linux-initramfs-tool",
    "login",
    "logsave",
    "media-types",
    "mount",
    "ncurses-base",
    "ncurses-bin",
    "passwd",
    "rpcbind",
    "sed",
    "sensible-utils",
    "sysvinit-utils",
    "tar",
    "ucf",
    "usrmerge",
    "util-linux-extra",
    "uuid-runtime",
];

/// Where a 64-bit x86 Debian keeps its shared libraries.
const LIBRARIES: &[&str] = &[
    "lib",
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/ceph",
];

/// The program interpreter, itself a program.
const LOADER: &str = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

/// Packages unpacked under one folder.
#[derive(Clone, Debug)]
pub struct Sysroot {
    /// The folder.
    pub root: PathBuf,
}

/// The folder for everything fetched and built here: `weft-lab` under
/// `$XDG_CACHE_HOME` where that is set, else in the build folder.
pub fn cache_dir() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty());
    base.map_or_else(target_dir, PathBuf::from).join("weft-lab")
}

/// A name for what `inputs` lead to.
pub fn key(inputs: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    inputs.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

impl Sysroot {
    /// The packages for `system`, fetched unless the cache has them. The
    /// caller holds the cache's lock.
    pub fn fetch(system: &System) -> Result<Sysroot, Unavailable> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Unavailable("guests are made for x86-64 Linux only".into()));
        }
        let release = release()?;
        let kernel = system.kernel_suite();
        let key = key(&(system.packages, NOT_WANTED, &release, kernel));
        let root = cache_dir().join(format!("{}-{key}", system.name));
        if !root.exists() {
            let work = cache_dir().join(format!("fetch-{key}"));
            fetch_into(&work, &release, system)?;
            // Renamed when complete, so that a folder by this name is.
            fs::rename(work.join("root"), &root).map_err(|e| io(&root, e))?;
            fs::remove_dir_all(&work).map_err(|e| io(&work, e))?;
        }
        Ok(Sysroot { root })
    }

    /// A command that runs `program` (a path below the root) with the root's
    /// own libraries.
    pub fn command(&self, program: &str) -> Command {
        let mut command = crate::child::tied(&self.root.join(LOADER));
        command.arg("--library-path").arg(self.library_path());
        command.arg(self.root.join(program));
        command
    }

    /// As [`Sysroot::command`], under another name, for programs that are
    /// many in one.
    pub fn command_as(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new(self.root.join(LOADER));
        command.args(["--argv0", name, "--library-path"]);
        command.arg(self.library_path());
        command.arg(self.root.join(program));
        command
    }

    /// The shared libraries that `program` loads, the interpreter among them,
    /// as paths below the root.
    pub fn libraries_of(&self, program: &str) -> Result<Vec<PathBuf>, Unavailable> {
        let mut command = Command::new(self.root.join(LOADER));
        command.arg("--library-path").arg(self.library_path());
        command.arg("--list").arg(self.root.join(program));
        let listed = output(&mut command).map_err(Unavailable)?;
        let listed = String::from_utf8_lossy(&listed);
        let mut found = vec![PathBuf::from(LOADER)];
        for line in listed.lines() {
            let Some((name, rest)) = line.split_once("=>") else {
                continue;
            };
            let path = rest.split(" (").next().unwrap_or(rest).trim();
            if name.trim().starts_with('/') {
                continue; // the interpreter by its fixed name
            }
            let below = Path::new(path).strip_prefix(&self.root);
            found.push(
                below
                    .map_err(|_| Unavailable(format!("{program}: {line}: not in the packages")))?
                    .to_path_buf(),
            );
        }
        Ok(found)
    }

    fn library_path(&self) -> std::ffi::OsString {
        let paths: Vec<PathBuf> = LIBRARIES.iter().map(|dir| self.root.join(dir)).collect();
        std::env::join_paths(paths).unwrap_or_default()
    }
}

fn io(path: &Path, e: std::io::Error) -> Unavailable {
    Unavailable::wrap(path.display(), e)
}

/// The release's code name.
fn release() -> Result<String, Unavailable> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_string())
    };
    match (field("ID").as_deref(), field("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => Ok(codename),
        (id, _) => Err(Unavailable(format!(
            "guests are made of Debian's packages, this is {}",
            id.unwrap_or("an unknown system")
        ))),
    }
}

/// Fetches and unpacks into `work/root`.
fn fetch_into(work: &Path, release: &str, system: &System) -> Result<(), Unavailable> {
    if work.exists() {
        fs::remove_dir_all(work).map_err(|e| io(work, e))?; // left by one that was cut off
    }
    for dir in ["lists/partial", "debs/partial", "cache", "sources", "root"] {
        fs::create_dir_all(work.join(dir)).map_err(|e| io(work, e))?;
    }
    let mut status = String::new();
    for name in NOT_WANTED {
        if system.packages.contains(name) {
            continue;
        }
        let _ = write!(
            status,
            "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\n\
             Multi-Arch: allowed\nVersion: 999\nMaintainer: none\nDescription: none\n\n"
        );
    }
    fs::write(work.join("status"), status).map_err(|e| io(work, e))?;

    let kernel = system.kernel_suite();
    let mut suites = BTreeSet::new();
    suites.extend(system.suite);
    suites.extend(kernel.as_deref());
    if !suites.is_empty() {
        let suites: Vec<&str> = suites.into_iter().collect();
        add_suites(&work.join("sources"), release, &suites.join(" "))?;
    }
    apt(work, system, &["update"])?;
    let kernel = match &kernel {
        None => "linux-image-amd64".to_string(),
        Some(suite) => format!("linux-image-amd64/{suite}"),
    };
    let mut install = vec!["--download-only", "install", &kernel];
    install.extend(system.packages);
    apt(work, system, &install)?;

    let debs = work.join("debs");
    for entry in fs::read_dir(&debs).map_err(|e| io(&debs, e))? {
        let deb = entry.map_err(|e| io(&debs, e))?.path();
        if deb.extension() == Some(OsStr::new("deb")) {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(&deb).arg(work.join("root"));
            output(&mut unpack).map_err(Unavailable)?;
        }
    }
    as_without_merge(&work.join("root"))?;
    let sysroot = Sysroot {
        root: work.join("root"),
    };
    for module in system.built {
        crate::kernel_module::build(&sysroot, module, &work.join("module"))?;
    }
    Ok(())
}

/// Runs apt-get on lists, status and archives below `work`.
fn apt(work: &Path, system: &System, args: &[&str]) -> Result<Vec<u8>, Unavailable> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-y", "-o", "APT::Install-Recommends=false"]);
    command.args(["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]);
    command.args(["-o", "Acquire::Retries=2"]);
    command.args(["-o", "Acquire::http::Timeout=20"]);
    for (option, below) in [
        ("Dir::State::lists", "lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", "cache"),
        ("Dir::Cache::archives", "debs"),
    ] {
        let path = work.join(below);
        command
            .arg("-o")
            .arg(format!("{option}={}", path.display()));
    }
    if let Some(suite) = system.suite {
        command.args(["-o", &format!("APT::Default-Release={suite}")]);
    }
    if system.suite.is_some() || system.kernel_suite().is_some() {
        let sources = work.join("sources");
        command.args(["-o", "Dir::Etc::sourcelist=/dev/null", "-o"]);
        command.arg(format!("Dir::Etc::sourceparts={}", sources.display()));
    }
    output(command.args(args)).map_err(Unavailable)
}

/// Suites with one `usr` and those without are found by the same paths.
fn as_without_merge(root: &Path) -> Result<(), Unavailable> {
    for dir in ["bin", "sbin", "lib", "lib64"] {
        let at = root.join(dir);
        if !at.exists() {
            symlink(Path::new("usr").join(dir), &at).map_err(|e| io(&at, e))?;
        }
    }
    // A kernel of the one kind among programs of the other.
    let merged = root.join("usr/lib/modules");
    if merged.exists() {
        fs::rename(&merged, root.join("lib/modules")).map_err(|e| io(&merged, e))?;
    }
    Ok(())
}

/// Copies the machine's package sources to `to`; each that names `release`
/// names `suites`, with spaces between them, there too.
fn add_suites(to: &Path, release: &str, suites: &str) -> Result<(), Unavailable> {
    let parts = Path::new("/etc/apt/sources.list.d");
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let listed = fs::read_dir(parts).map_err(|e| io(parts, e))?;
    files.extend(listed.filter_map(|entry| Some(entry.ok()?.path())));
    for file in files {
        let kind = file.extension().and_then(OsStr::to_str).unwrap_or("");
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let edited = match kind {
            "sources" => in_deb822(&text, release, suites),
            "list" => in_one_line(&text, release, suites),
            _ => continue,
        };
        let name = file.file_name().unwrap_or_default();
        fs::write(to.join(name), edited).map_err(|e| io(to, e))?;
    }
    Ok(())
}

fn in_deb822(text: &str, release: &str, suites: &str) -> String {
    let mut edited = String::new();
    for line in text.lines() {
        edited.push_str(line);
        if let Some(named) = line.strip_prefix("Suites:")
            && named.split_whitespace().any(|name| name == release)
        {
            let _ = write!(edited, " {suites}");
        }
        edited.push('\n');
    }
    edited
}

fn in_one_line(text: &str, release: &str, suites: &str) -> String {
    let mut edited = String::from(text);
    for line in text.lines().filter(|line| line.starts_with("deb ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == release) {
            for suite in suites.split_whitespace() {
                let mut words = words.clone();
                words[at] = suite;
                let _ = write!(edited, "\n{}\n", words.join(" "));
            }
        }
    }
    edited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_join_the_release_they_are_named_beside() {
        let deb822 = "Types: deb\nURIs: http://a\nSuites: r1 r1-updates\n\nSuites: r1-security\n";
        let edited = in_deb822(deb822, "r1", "r2 r2-backports");
        assert!(edited.contains("Suites: r1 r1-updates r2 r2-backports\n"));
        assert!(edited.contains("Suites: r1-security\n"));
        let lines = "deb http://a r1 main\ndeb http://b r1-security main";
        let edited = in_one_line(lines, "r1", "r2 r2-backports");
        for suite in ["r2", "r2-backports"] {
            assert!(edited.contains(&format!("\ndeb http://a {suite} main\n")));
        }
        assert_eq!(edited.matches("http://b").count(), 1);
    }
}
