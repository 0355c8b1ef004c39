//! One script in one guest: an unmodified Linux kernel in QEMU.
//!
//! The guest is emulated (no hypervisor needed), has a network of its own in
//! which 10.0.2.2 is this machine's 127.0.0.1, and no disk. The script comes
//! in through the firmware's configuration device; what it prints comes out
//! through a virtio port as it is printed; how it ended, through a serial line.

use crate::child::{Owned, in_network_of, tail};
use crate::initramfs::Image;
use crate::packages::{Sysroot, cache_dir};
use crate::systems::{RELEASE, System};
use crate::{Unavailable, target_dir};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a guest is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names the folder of its logs.
    pub name: String,
    /// Run by `dash`, with the applets of busybox.
    pub script: String,
    /// What it is made of.
    pub system: &'static System,
    /// Processors. One is steadiest; a Linux host opens no more I/O queues of
    /// one kind than it has processors.
    pub cpus: u32,
    /// The script's end at the latest, counted from power-on.
    pub limit: Duration,
    /// Ports of this machine's 127.0.0.1, and the guest's port that each leads to.
    pub forwards: Vec<(u16, u16)>,
    /// A program of this machine that the guest finds as its first virtio disk.
    pub program: Option<PathBuf>,
    /// Folders of this machine, each under the name by which the guest mounts it (9p), to read.
    pub folders: Vec<(&'static str, PathBuf)>,
    /// More words on the kernel's command line.
    pub kernel_words: String,
    /// A process in whose network the guest is: 10.0.2.2 is the 127.0.0.1 that this process has.
    pub network_of: Option<u32>,
}

impl Config {
    /// The machine's release on one processor for four minutes: ten times what a session takes on an idle
    /// machine.
    pub fn new(name: &str, script: &str) -> Config {
        Config {
            name: name.into(),
            script: script.into(),
            system: &RELEASE,
            cpus: 1,
            limit: Duration::from_secs(240),
            forwards: Vec::new(),
            program: None,
            folders: Vec::new(),
            kernel_words: String::new(),
            network_of: None,
        }
    }
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEnd {
    /// The script's exit status.
    Exit(i32),
    /// The guest's kernel panicked.
    Panic,
    /// The limit passed.
    TimedOut,
    /// The emulator ended without a word from the script.
    Lost,
}

/// A guest that runs.
#[derive(Debug)]
pub struct Guest {
    child: Owned,
    logs: PathBuf,
    end: Instant,
}

/// Memory of a guest; most of it holds the initial file system, twice for a
/// moment.
const MEMORY_MIB: u32 = 1024;

/// The guest's console, what the script printed, how it ended, and what the
/// emulator said.
const CONSOLE: &str = "console.log";
const OUTPUT: &str = "output.log";
const STATUS: &str = "status";
const EMULATOR: &str = "qemu.log";

/// A guest is up in 3 s, or in 15 on a machine with much else to do.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
const BOOT_TRIES: u32 = 3;

impl Guest {
    /// Fetches and builds what is missing, then powers a guest on.
    pub fn start(config: &Config) -> Result<Guest, Unavailable> {
        let (sysroot, _) = prepare(&RELEASE)?;
        let (_, image) = prepare(config.system)?;
        let logs = new_log_dir(&config.name)?;
        let script = logs.join("script");
        fs::write(&script, &config.script)?;
        for file in [CONSOLE, OUTPUT, STATUS] {
            File::create(logs.join(file))?;
        }
        let emulator = File::create(logs.join(EMULATOR))?;
        let mut command = sysroot.command("usr/bin/qemu-system-x86_64");
        command.env(
            "QEMU_MODULE_DIR",
            sysroot.root.join("usr/lib/x86_64-linux-gnu/qemu"),
        );
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(sysroot.root.join(data));
        }
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        command.args(["-accel", "tcg,thread=multi", "-machine", "q35"]);
        command.args(["-cpu", "max,la57=off,aes=off"]);
        command.args([
            "-smp",
            &config.cpus.to_string(),
            "-m",
            &MEMORY_MIB.to_string(),
        ]);
        command.arg("-kernel").arg(&image.kernel);
        command.arg("-initrd").arg(&image.initramfs);
        command.args([
            "-append",
            &format!("{} {}", kernel_line(), config.kernel_words),
        ]);
        command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
        add_devices(&mut command, config);
        command
            .arg("-chardev")
            .arg(to_file("out", &logs.join(OUTPUT)));
        command.args(["-device", "virtserialport,chardev=out"]);
        for file in [CONSOLE, STATUS] {
            command.arg("-chardev").arg(to_file(file, &logs.join(file)));
            command.args(["-serial", &format!("chardev:{file}")]);
        }
        let script = format!("name=opt/weft/script,file={}", escaped(&script));
        // The guest's own, should this process be gone by then.
        let limit_s = config.limit.as_secs() + 10;
        command.args(["-fw_cfg", &script, "-fw_cfg"]);
        command.arg(format!("name=opt/weft/limit_s,string={limit_s}"));
        if let Some(pid) = config.network_of {
            command = in_network_of(pid, &command);
        }
        command.stdin(Stdio::null());
        command.stdout(emulator.try_clone()?).stderr(emulator);
        Ok(Guest {
            child: boot(&mut command, &logs)?,
            logs,
            end: Instant::now() + config.limit,
        })
    }

    /// The folder of its logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Where what the script prints is written.
    pub fn output_file(&self) -> PathBuf {
        self.logs.join(OUTPUT)
    }

    /// What the script has printed by now.
    pub fn output(&self) -> String {
        read(&self.logs.join(OUTPUT))
    }

    /// Waits until the script has printed a line that starts with `mark`. Panics
    /// with what it said when it ends without.
    pub fn until(mut self, mark: &str) -> Guest {
        if self.wait_for_line(mark).is_none() {
            self.finish().expect_success();
            panic!("the script ended well without '{mark}'");
        }
        self
    }

    /// Waits until the script has printed a line that starts with `mark`;
    /// `None` when the guest ends first or its limit passes.
    pub fn wait_for_line(&mut self, mark: &str) -> Option<String> {
        loop {
            let ended = !matches!(self.child.try_wait(), Ok(None));
            let output = self.output();
            // The last line counts once its end is there.
            let whole = output.rfind('\n').map_or("", |end| &output[..end]);
            if let Some(line) = whole.lines().find(|line| line.starts_with(mark)) {
                return Some(line.to_string());
            }
            if ended || Instant::now() > self.end {
                return None;
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end.
    pub fn finish(mut self) -> GuestOutcome {
        let left = self.end.saturating_duration_since(Instant::now());
        let ended = self.child.wait_for(left);
        let status = read(&self.logs.join(STATUS));
        let exit = status
            .lines()
            .find_map(|line| line.trim().strip_prefix("exit "))
            .and_then(|code| code.parse().ok());
        let panicked = read(&self.logs.join(CONSOLE)).contains("Kernel panic");
        let end = match (ended, exit) {
            (_, _) if panicked => GuestEnd::Panic,
            (_, Some(code)) => GuestEnd::Exit(code),
            (Ok(Some(_)), None) if Instant::now() < self.end => GuestEnd::Lost,
            (Err(_), None) => GuestEnd::Lost,
            (Ok(_), None) => GuestEnd::TimedOut,
        };
        GuestOutcome {
            end,
            output: self.output(),
            logs: self.logs.clone(),
        }
    }
}

/// A guest that has ended.
#[derive(Debug)]
pub struct GuestOutcome {
    /// How.
    pub end: GuestEnd,
    /// What the script printed.
    pub output: String,
    /// The folder of its logs.
    pub logs: PathBuf,
}

impl GuestOutcome {
    /// The output of a script that ended well; its logs are removed. Panics
    /// with the end of what was said, and where the rest is, for any other.
    pub fn expect_success(self) -> String {
        if self.end == GuestEnd::Exit(0) {
            // Logs of a success are only in the way.
            let _ = fs::remove_dir_all(&self.logs);
            return self.output;
        }
        let console = read(&self.logs.join(CONSOLE));
        let emulator = read(&self.logs.join(EMULATOR));
        panic!(
            "guest ended with {:?}; logs kept in {}\n--- output\n{}\n--- console\n{}\n--- emulator\n{}",
            self.end,
            self.logs.display(),
            tail(&self.output, 40),
            tail(&console, 30),
            tail(&emulator, 10),
        );
    }
}

/// Its network, and what it has of this machine.
fn add_devices(command: &mut Command, config: &Config) {
    let mut network = String::from("user,id=net");
    for (here, there) in &config.forwards {
        network += &format!(",hostfwd=tcp:127.0.0.1:{here}-:{there}");
    }
    command.args(["-netdev", &network]);
    command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
    if let Some(program) = &config.program {
        let file = escaped(program);
        command.arg("-drive");
        command.arg(format!("file={file},format=raw,if=virtio,readonly=on"));
    }
    for (tag, folder) in &config.folders {
        let path = escaped(folder);
        command.arg("-virtfs");
        command.arg(format!(
            "local,path={path},mount_tag={tag},security_model=none,readonly=on"
        ));
    }
}

/// Powers a guest on and waits until its first program runs. Emulated processors now and then stall
/// while the kernel starts them, or run a line that the kernel is about to change and panic, before any
/// program of the tests runs: then the guest is powered on again, which is printed.
fn boot(command: &mut Command, logs: &Path) -> Result<Owned, Unavailable> {
    let mut tries_left = BOOT_TRIES;
    loop {
        let mut child = Owned::spawn(command)?;
        tries_left -= 1;
        let is_up = is_up_in_time(&mut child, logs);
        if is_up || tries_left == 0 {
            return Ok(child);
        }
        // Past the test runner's capture; a closed standard error is no reason
        // to fail.
        let line = "a guest did not come up and is powered on again\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Waits until the first program of a guest runs; false when the guest ends before or `BOOT_LIMIT` passes.
fn is_up_in_time(child: &mut Owned, logs: &Path) -> bool {
    let give_up = Instant::now() + BOOT_LIMIT;
    loop {
        let has_ended = !matches!(child.try_wait(), Ok(None));
        // Read after the look at the process: a short script may end between the two.
        let status = read(&logs.join(STATUS));
        if status.lines().any(|line| line.trim() == "up") {
            return true;
        }
        if has_ended || Instant::now() > give_up {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Fetches and builds what is missing for `system`. What cannot be had is asked for once a
/// process, and by one process at a time.
pub fn prepare(system: &'static System) -> Result<(Sysroot, Image), Unavailable> {
    type Prepared = BTreeMap<&'static str, Result<(Sysroot, Image), Unavailable>>;
    static PREPARED: Mutex<Prepared> = Mutex::new(BTreeMap::new());
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = prepared.entry(system.name);
    entry.or_insert_with(|| fetch_and_build(system)).clone()
}

fn fetch_and_build(system: &System) -> Result<(Sysroot, Image), Unavailable> {
    let cache = cache_dir();
    fs::create_dir_all(&cache).map_err(|e| Unavailable::wrap(cache.display(), e))?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    let sysroot = Sysroot::fetch(system)?;
    let image = Image::build(&sysroot, system)?;
    Ok((sysroot, image))
}

/// A folder for the logs of one run.
pub fn new_log_dir(name: &str) -> Result<PathBuf, Unavailable> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let dir = format!("{name}-{}-{run}", std::process::id());
    let logs = target_dir().join("interop-logs").join(dir);
    fs::create_dir_all(&logs).map_err(|e| Unavailable::wrap(logs.display(), e))?;
    Ok(logs)
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A comma ends a value in QEMU's options, two are one.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

fn to_file(id: &str, path: &Path) -> String {
    format!("file,id={id},path={}", escaped(path))
}

/// The guest's kernel command line: quiet, nothing probed that an emulated
/// machine need not, an end (not a halt) on a bug or panic. Its own NVMe/TCP
/// target trips over hardened user copies when a write spans pages.
fn kernel_line() -> String {
    let mut line = String::from(
        "quiet console=ttyS0 oops=panic panic=-1 hardened_usercopy=off mitigations=off nokaslr tsc=reliable no_timer_check \
         noirqdebug random.trust_cpu=on rcupdate.rcu_expedited=1 cryptomgr.notests \
         nowatchdog audit=0",
    );
    if let Some(khz) = tsc_khz() {
        // Calibrated under load, the guest's clock can run several times fast.
        line += &format!(" tsc_early_khz={khz}");
    }
    line
}

/// The rate of this machine's time-stamp counter, where it can be known: on a
/// machine without frequency scaling it is the processor's.
fn tsc_khz() -> Option<u64> {
    if Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        return None;
    }
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("cpu MHz"))?;
    let (mhz, fraction) = line.split_once(':')?.1.trim().split_once('.')?;
    let khz = format!("{fraction:0<3}").get(..3)?.parse::<u64>().ok()?;
    Some(mhz.parse::<u64>().ok()? * 1000 + khz)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boots `emulator`, a line of the shell in a folder of its own; how often it was started.
    fn starts_of(emulator: &str) -> (usize, bool) {
        let logs = tempfile::tempdir().expect("a folder");
        let line = format!("echo >>starts; {emulator}");
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(logs.path());
        let mut child = boot(&mut command, logs.path()).expect("a process");
        child
            .wait_for(Duration::from_secs(10))
            .expect("it ends by itself");
        let starts = fs::read_to_string(logs.path().join("starts")).expect("it was started");
        let is_up = read(&logs.path().join(STATUS)).contains("up");
        (starts.lines().count(), is_up)
    }

    #[test]
    fn guest_that_panics_before_its_first_program_is_powered_on_again() {
        let panics_once = "[ $(wc -l <starts) = 1 ] || echo up >status";
        assert_eq!(starts_of(panics_once), (2, true));
        assert_eq!(starts_of("exit 1"), (3, false));
    }

    #[test]
    fn guest_that_ends_after_its_first_program_ran_is_powered_on_once() {
        assert_eq!(starts_of("echo up >status; exit 1"), (1, true));
    }
}
