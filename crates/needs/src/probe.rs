//! Whether this machine has what a test needs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::fs::{SeekFrom, XattrFlags};
use rustix::process::Resource;

/// Something that a test needs.
pub struct Need {
    pub name: String,
    /// What stands in parentheses behind the name, if anything.
    pub value: String,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => f.write_str(&self.name),
            value => write!(f, "{} {value}", self.name),
        }
    }
}

/// Why it is not there.
type Found = Result<(), String>;

impl Need {
    pub fn new(name: &str) -> Need {
        let (name, value) = (name.to_owned(), String::new());
        Need { name, value }
    }

    /// The variable that decides, where one does.
    pub fn variable(&self) -> Option<&'static str> {
        (self.name == "ci").then_some("CI")
    }

    /// Why it is not there, if it is not; an error for a name that is not known. Each is
    /// looked for once in each run of the compiler.
    pub fn probe(&self) -> Result<Found, String> {
        static FOUND: Mutex<BTreeMap<String, Found>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().expect("no probe panics");
        if let Some(found) = found.get(&self.to_string()) {
            return Ok(found.clone());
        }
        let looked = self.look()?;
        found.insert(self.to_string(), looked.clone());
        Ok(looked)
    }

    fn look(&self) -> Result<Found, String> {
        Ok(match self.name.as_str() {
            // A test that takes long.
            "ci" => ci(),
            // A ring as the reactor's driver sets one up.
            "io_uring" => io_uring(),
            // The superuser, who may give files away.
            "root" => root(),
            // The right to mount for all processes to see.
            "mount" => root().and_then(|()| mounts(&[])),
            // The right to mount in a namespace of its own, which users may have too.
            "mount_namespace" => mount_namespace(),
            // The right to have a network namespace of its own.
            "network_namespace" => network_namespace(),
            "loop_device" => loop_device(),
            // Keyrings of the kernel (CONFIG_KEYS).
            "keyring" => keyring(),
            // Any block device that this process sees.
            "block_device" => block_device(),
            "ipv6" => ipv6(),
            // Attributes of users on files of the folder for temporary files.
            "user_attributes" => user_attributes(),
            // Files there tell where they have holes.
            "holes" => holes(),
            // Numbers of files that were removed there are given to new ones at once.
            "inode_reuse" => inode_reuse(),
            // A file of 1 PiB is refused there.
            "file_size_limit" => file_size_limit(),
            // A build folder that is on a disk, not in memory.
            "build_on_disk" => build_on_disk(),
            // As many open files.
            "open_files" => open_files(&self.value)?,
            // A program of that name in the search path.
            "program" => program(&self.value),
            // A shared library of that name where the system has them.
            "library" => library(&self.value),
            // Debian's packages, fetched already or from the archive: guests are made of them.
            "guest" => guest(),
            // The packages of a system of a newer suite, of which guests are made too
            // (tests/src/systems.rs).
            "system" => newer_system(&self.value),
            // Chromium, there or to be installed, and what drives it.
            "browser" => browser(),
            // Prometheus and promtool of Debian, in the cache or to be fetched.
            "prometheus" => prometheus(),
            other => {
                return Err(format!(
                    "a test cannot need {other}: probe.rs has the names"
                ));
            }
        })
    }
}

fn refused(error: impl fmt::Display) -> String {
    error.to_string()
}

fn ci() -> Found {
    let asked = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    match asked {
        true => Ok(()),
        false => Err("it takes long, and runs with CI=true".into()),
    }
}

fn io_uring() -> Found {
    let ring = io_uring::IoUring::new(8).map_err(refused)?;
    // As young as the youngest operation that the driver uses (Linux 5.19).
    ring.submitter().register_files_sparse(1).map_err(refused)
}

fn root() -> Found {
    match fs::metadata("/proc/self").map_err(refused)?.uid() {
        0 => Ok(()),
        uid => Err(format!("user {uid} runs the tests")),
    }
}

fn keyring() -> Found {
    File::open("/proc/keys").map(drop).map_err(refused)
}

/// Runs a program without a word.
fn run(program: &str, arguments: &[&str]) -> Found {
    let mut command = Command::new(program);
    let command = command.args(arguments).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Mounts where none but this attempt sees it.
fn mounts(as_user: &[&str]) -> Found {
    let folder = tempfile::tempdir().map_err(refused)?;
    let place = folder.path().display().to_string();
    let mount = ["--mount", "mount", "-t", "tmpfs", "weft-test", &place];
    run("unshare", &[as_user, &mount].concat())
}

fn mount_namespace() -> Found {
    match root() {
        Ok(()) => mounts(&[]),
        Err(_) => mounts(&["--user", "--map-root-user"]),
    }
}

fn network_namespace() -> Found {
    let as_user: &[&str] = match root() {
        Ok(()) => &[],
        Err(_) => &["--user", "--map-root-user"],
    };
    run(
        "unshare",
        &[as_user, &["--net", "ip", "link", "set", "lo", "up"]].concat(),
    )
}

fn loop_device() -> Found {
    let file = tempfile::NamedTempFile::new().map_err(refused)?;
    file.as_file().set_len(1 << 20).map_err(refused)?;
    let path = file.path().display().to_string();
    let script = "device=$(losetup --find --show \"$0\") && losetup --detach \"$device\"";
    run("sh", &["-c", script, &path])
}

fn block_device() -> Found {
    let is_one = |entry: fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_block_device());
    match fs::read_dir("/dev").map_err(refused)?.flatten().any(is_one) {
        true => Ok(()),
        false => Err("there is none in /dev".into()),
    }
}

fn ipv6() -> Found {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
        .map(drop)
        .map_err(refused)
}

fn user_attributes() -> Found {
    let file = tempfile::NamedTempFile::new().map_err(refused)?;
    let set = rustix::fs::fsetxattr(&file, "user.probe", b"1", XattrFlags::empty());
    set.map_err(refused)
}

fn holes() -> Found {
    let file = tempfile::tempfile().map_err(refused)?;
    file.set_len(4 << 20).map_err(refused)?;
    file.write_all_at(&[1; 1 << 20], 1 << 20).map_err(refused)?;
    file.sync_all().map_err(refused)?;
    match rustix::fs::seek(&file, SeekFrom::Data(0)).map_err(refused)? {
        0 => Err("the file system tells of none".into()),
        _ => Ok(()),
    }
}

fn inode_reuse() -> Found {
    let folder = tempfile::tempdir().map_err(refused)?;
    let mut numbers = Vec::new();
    for _ in 0..20 {
        let path = folder.path().join("f");
        let file = File::create(&path).and_then(|file| file.metadata());
        let number = file.map_err(refused)?.ino();
        if numbers.contains(&number) {
            return Ok(());
        }
        numbers.push(number);
        fs::remove_file(path).map_err(refused)?;
    }
    Err("the file system gives each file a new number".into())
}

fn file_size_limit() -> Found {
    let file = tempfile::tempfile().map_err(refused)?;
    match file.set_len(1 << 50) {
        Ok(()) => Err("the file system takes one of 1 PiB".into()),
        Err(_) => Ok(()),
    }
}

/// Where the compiler puts the test's program.
fn build_folder() -> PathBuf {
    let mut words = std::env::args_os().skip_while(|word| word != "--out-dir");
    words.nth(1).map_or_else(std::env::temp_dir, PathBuf::from)
}

fn build_on_disk() -> Found {
    const TMPFS_MAGIC: i128 = 0x0102_1994;
    let system = rustix::fs::statfs(build_folder()).map_err(refused)?;
    match i128::from(system.f_type) {
        TMPFS_MAGIC => Err("the build folder is in memory".into()),
        _ => Ok(()),
    }
}

fn open_files(count: &str) -> Result<Found, String> {
    let count: u64 = count.parse().map_err(|_| "open_files has a number")?;
    let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
    Ok(match limit {
        Some(limit) if limit < count => Err(format!("the hard limit is {limit}")),
        _ => Ok(()),
    })
}

fn program(name: &str) -> Found {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        true => Ok(()),
        false => Err("it is not in the search path".into()),
    }
}

fn library(name: &str) -> Found {
    let of_debian = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["/usr/lib64", "/usr/lib", "/lib64", &of_debian];
    match folders
        .iter()
        .any(|folder| Path::new(folder).join(name).exists())
    {
        true => Ok(()),
        false => Err("the system has none of that name".into()),
    }
}

fn guest() -> Found {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("guests are made for x86-64 Linux only".into());
    }
    if is_in_cache("root-") {
        return Ok(());
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        return Err("guests are made of Debian's packages, this is another system".into());
    }
    archive()
}

fn browser() -> Found {
    program("node").and_then(|()| program("npm"))?;
    program("chromium").or_else(|_| root().and_then(|()| program("apt-get")))
}

fn prometheus() -> Found {
    if is_in_cache("prometheus") {
        return Ok(());
    }
    program("dpkg-deb").and_then(|()| program("apt-get"))?;
    // Says where it would be fetched from.
    run("apt-get", &["-q", "download", "--print-uris", "prometheus"])?;
    archive()
}

/// Whether something whose name begins so was fetched for tests before.
fn is_in_cache(beginning: &str) -> bool {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let cache = cache.or_else(|| std::env::var_os("CARGO_TARGET_DIR"));
    let cache = cache.map_or_else(|| Path::new("target").to_owned(), PathBuf::from);
    let mut entries = fs::read_dir(cache.join("weft-lab")).into_iter().flatten();
    let begins_so = |name: &str| name.starts_with(beginning);
    entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(begins_so)))
}

/// What the tests want of a newer suite, and of the one that has the kernel for it.
const OF_NEWER_SUITE: &[&str] = &["keyutils", "ktls-utils", "nvme-cli"];
const SUITE_OF_KERNEL: &str = "trixie-backports";

fn newer_system(suite: &str) -> Found {
    if is_in_cache(&format!("{suite}-")) {
        return Ok(());
    }
    guest()?;
    let release = fs::read_to_string("/etc/os-release").map_err(refused)?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .ok_or("the system's release has no code name")?;
    let folder = tempfile::tempdir().map_err(refused)?;
    let sources = folder.path().join("sources.list");
    let archive = address_of(codename)?;
    let lines = [suite, SUITE_OF_KERNEL].map(|suite| format!("deb {archive} {suite} main\n"));
    fs::write(&sources, lines.concat()).map_err(refused)?;
    let sources = format!("Dir::Etc::sourcelist={}", sources.display());
    let only = ["-o", &sources, "-o", "Dir::Etc::sourceparts=/dev/null"];
    apt_get(folder.path(), &[&only[..], &["update"]].concat())?;
    let wanted = OF_NEWER_SUITE.iter().map(|name| format!("{name}/{suite}"));
    let kernel = format!("linux-image-amd64/{SUITE_OF_KERNEL}");
    let wanted: Vec<String> = wanted.chain([kernel]).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let download = ["download", "--print-uris"];
    apt_get(folder.path(), &[&only[..], &download, &wanted].concat())
}

/// Where the machine's package sources have this suite.
fn address_of(suite: &str) -> Result<String, String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"]);
    let listed = command.output().map_err(refused)?.stdout;
    let listed = String::from_utf8_lossy(&listed);
    let mut lines = listed.lines().filter_map(|line| line.split_once(' '));
    let (_, address) = lines
        .find(|(named, _)| *named == suite)
        .ok_or_else(|| format!("no package source has {suite}"))?;
    Ok(address.to_owned())
}

/// Asks the archive for no more than what says what it has.
fn archive() -> Found {
    let folder = tempfile::tempdir().map_err(refused)?;
    let no_packages = "Acquire::IndexTargets::deb::Packages::DefaultEnabled=false";
    apt_get(folder.path(), &["-o", no_packages, "update"])
}

/// Runs `apt-get` with lists and a cache of its own below `folder`.
fn apt_get(folder: &Path, words: &[&str]) -> Found {
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial")).map_err(refused)?;
    let (lists, cache) = (lists.display(), folder.display());
    let options = [
        &format!("Dir::State::lists={lists}"),
        &format!("Dir::Cache={cache}"),
        "APT::Update::Error-Mode=any",
        "APT::Sandbox::User=",
        "Debug::NoLocking=1",
        "Acquire::http::Timeout=20",
        "Acquire::IndexTargets::deb::Translations::DefaultEnabled=false",
        "Acquire::IndexTargets::deb-src::Sources::DefaultEnabled=false",
    ];
    let options = options.iter().flat_map(|option| ["-o", option]);
    let all: Vec<&str> = options.chain(["-q"]).chain(words.iter().copied()).collect();
    run("apt-get", &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str, value: &str) -> Need {
        let value = value.into();
        Need {
            value,
            ..Need::new(name)
        }
    }

    #[test]
    fn missing_program_and_too_many_files_are_told() {
        assert_eq!(need("program", "sh").probe(), Ok(Ok(())));
        let missing = need("program", "no-such-program-of-weft");
        assert!(missing.probe().expect("a name").is_err());
        assert_eq!(missing.to_string(), "program no-such-program-of-weft");
        assert_eq!(need("open_files", "8").probe(), Ok(Ok(())));
    }

    #[test]
    fn unknown_name_and_number_that_is_none_are_errors_of_the_attribute() {
        let unknown = need("telepathy", "").probe().unwrap_err();
        assert!(unknown.contains("telepathy") && unknown.contains("probe.rs"));
        assert!(need("open_files", "many").probe().is_err());
    }

    #[test]
    fn failing_program_says_why() {
        let said = run("sh", &["-c", "echo no room >&2; exit 1"]);
        assert_eq!(said, Err("no room".into()));
    }
}
