//! Each side of a measurement that weft brings along, run for a moment.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use bench::load::{
    Driver, Durations, Load, LoadProtocol, LoadVolume, Mode, Payload, Placement, Spin, Subject,
};
use bench::measured::Quantity;
use bench::sides::{FigureError, Options, SideRun, available, measure};
use client::perf::Rw;

const MODE: Mode = Mode {
    driver: Driver::Epoll,
    fast_path: true,
    zero_copy: false,
    spin: Spin::Default,
    placement: Placement::LeastLoaded,
};

const LOAD: Load = Load {
    rw: Rw::RandRead,
    bs: 4096,
    iodepth: 8,
    connections: 1,
    hosts: 1,
    devices: 1,
    block_bytes: 4096,
    volume: LoadVolume::Ram,
    header_digest: false,
    data_digest: false,
    fpdu_bytes_max: None,
    tls: None,
    rate: None,
    target_cores: 1,
    mtu: None,
    beside: false,
    distribution: false,
};

const MOMENT: Durations = Durations {
    ramp: Duration::from_millis(20),
    runtime: Duration::from_millis(100),
    volume_bytes: 8 << 20,
};

fn options() -> Options {
    Options {
        weft: Some(PathBuf::from(env!("CARGO_BIN_EXE_weft"))),
        ..Options::default()
    }
}

fn run(subject: Subject, load: &Load) -> SideRun {
    let stop = AtomicBool::new(false);
    let run = measure(&subject, load, &MOMENT, &options(), &stop);
    run.unwrap_or_else(|error| panic!("{subject:?} {load:?}: {error}"))
}

fn value(run: &SideRun, quantity: Quantity) -> f64 {
    let value = run.sample.values.get(&quantity);
    *value.unwrap_or_else(|| panic!("no {quantity:?} in {run:?}"))
}

/// What every side tells.
fn check(run: &SideRun) {
    assert!(value(run, Quantity::Iops) > 0.0);
    assert!(value(run, Quantity::P50Us) > 0.0);
    assert!((0.0..=1.0).contains(&value(run, Quantity::ClientBusy)));
    assert_eq!(run.sample.tenths.len(), 10);
    assert!(!run.commands.is_empty());
}

#[test]
fn weft_is_measured_by_every_protocol() {
    for protocol in [
        LoadProtocol::NvmeTcp,
        LoadProtocol::Iscsi,
        LoadProtocol::Nfs,
    ] {
        let run = run(Subject::Weft(protocol, MODE), &LOAD);
        check(&run);
        for quantity in [
            Quantity::TargetCpuSPerGbit,
            Quantity::TargetCpuUsPerIo,
            Quantity::TargetBusy,
            Quantity::SyscallsPerIo,
            Quantity::BytesPerSecond,
        ] {
            assert!(value(&run, quantity) > 0.0, "{protocol:?} {quantity:?}");
        }
        assert!(run.commands[0].contains("[policy]"), "{:?}", run.commands);
        assert!(
            run.commands[2].starts_with("weft perf "),
            "{:?}",
            run.commands
        );
    }
}

#[test]
fn a_copy_in_user_space_is_seen_without_the_fast_path() {
    let copied = |fast_path| {
        let run = run(
            Subject::Weft(LoadProtocol::NvmeTcp, Mode { fast_path, ..MODE }),
            &LOAD,
        );
        value(&run, Quantity::CopiedBytesPerIo)
    };
    // What it gathers of headers and small things is less than a payload.
    let (with, without) = (copied(true), copied(false));
    assert!(with < 1024.0 && without >= 4096.0, "{with} {without}");
}

#[test]
fn hosts_begin_together_on_devices_of_their_own() {
    let load = Load {
        hosts: 2,
        devices: 4,
        connections: 2,
        distribution: true,
        rw: Rw::RandWrite,
        header_digest: true,
        data_digest: true,
        ..LOAD
    };
    let run = run(Subject::Weft(LoadProtocol::Iscsi, MODE), &load);
    check(&run);
    let perf: Vec<&String> = run.commands.iter().filter(|c| c.contains("perf")).collect();
    assert_eq!(perf.len(), 2);
    assert!(
        perf[0].contains("bench00/0") && perf[0].contains("bench02/0"),
        "{perf:?}"
    );
    assert!(
        perf[1].contains("bench01/0") && perf[1].contains("bench03/0"),
        "{perf:?}"
    );
    let shares = run.sample.distribution;
    assert!(
        shares
            .windows(2)
            .all(|two| two[0].0 <= two[1].0 && two[0].1 < two[1].1)
    );
    assert!((shares.last().expect("some").0 - 1.0).abs() < 1e-9);
}

#[test]
fn bare_sockets_and_the_bare_volume_are_measured_too() {
    for payload in [Payload::Hot, Payload::Cold] {
        let run = run(Subject::Ceiling(LoadProtocol::NvmeTcp, payload), &LOAD);
        check(&run);
        assert!(value(&run, Quantity::TargetCpuSPerGbit) > 0.0);
    }
    check(&run(Subject::Local(LoadProtocol::NvmeTcp), &LOAD));
    let names = Load {
        rw: Rw::Getattr,
        ..LOAD
    };
    for subject in [
        Subject::Ceiling(LoadProtocol::Nfs, Payload::Hot),
        Subject::Local(LoadProtocol::NvmeTcp),
        Subject::Weft(LoadProtocol::Iscsi, MODE),
    ] {
        assert!(
            available(&subject, &names, &options()).is_err(),
            "{subject:?}"
        );
    }
}

/// A volume that keeps nothing needs no filling, and has no name in NFS.
#[test]
fn a_volume_of_nothing_is_measured_behind_a_target_and_without() {
    let null = Load {
        volume: LoadVolume::Null,
        ..LOAD
    };
    for protocol in [LoadProtocol::NvmeTcp, LoadProtocol::Iscsi] {
        let run = run(Subject::Weft(protocol, MODE), &null);
        check(&run);
        assert!(run.commands[0].contains("kind = \"null\""), "{run:?}");
    }
    let run = run(Subject::Local(LoadProtocol::NvmeTcp), &null);
    check(&run);
    assert!(run.commands[0].contains("local:null"), "{run:?}");
    let files = Subject::Weft(LoadProtocol::Nfs, MODE);
    assert!(available(&files, &null, &options()).is_err());
}

/// Sends without a copy begin at a size; below it they are no mode of their own.
#[test]
fn only_what_is_sent_so_is_measured_as_zero_copy() {
    let mode = Mode {
        zero_copy: true,
        ..MODE
    };
    let subject = Subject::Weft(LoadProtocol::NvmeTcp, mode);
    for (rw, bs, is_there) in [
        (Rw::RandRead, 32 << 10, false),
        (Rw::RandRead, 64 << 10, true),
        (Rw::RandWrite, 64 << 10, false),
    ] {
        let load = Load { rw, bs, ..LOAD };
        assert_eq!(
            available(&subject, &load, &options()).is_ok(),
            is_there,
            "{load:?}"
        );
    }
}

#[test]
fn measurement_that_is_stopped_gives_no_figure() {
    let stop = AtomicBool::new(true);
    let subject = Subject::Weft(LoadProtocol::NvmeTcp, MODE);
    let run = measure(&subject, &LOAD, &MOMENT, &options(), &stop);
    assert_eq!(run.expect_err("it was stopped"), FigureError::Stopped);
}

/// What hangs on a process ends when that is killed, which runs no destructor.
#[test]
fn leashed_process_ends_with_its_parent() {
    let weft = env!("CARGO_BIN_EXE_weft");
    let script = format!("{weft} leash --parent $$ -- sleep 60 & echo $!; read word");
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = String::new();
    let mut out = BufReader::new(shell.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("a number");
    let name = PathBuf::from(format!("/proc/{}/comm", line.trim()));
    let is_asleep = || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep");
    let give_up = Instant::now() + Duration::from_secs(30);
    while !is_asleep() {
        assert!(Instant::now() < give_up, "it does not become `sleep`");
        thread::sleep(Duration::from_millis(5));
    }
    shell.kill().expect("our child");
    shell.wait().expect("our child");
    while is_asleep() {
        assert!(Instant::now() < give_up, "it is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A configuration for every mode, as `weft check` sees it.
#[test]
fn every_mode_is_a_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("target.toml");
    let drivers = [Driver::Epoll, Driver::IoUring];
    let spins = [Spin::Default, Spin::Sleep, Spin::Poll];
    let placements = [
        Placement::LeastLoaded,
        Placement::RoundRobin,
        Placement::IncomingCpu,
    ];
    for (at, protocol) in [
        LoadProtocol::NvmeTcp,
        LoadProtocol::Iscsi,
        LoadProtocol::Nfs,
    ]
    .into_iter()
    .enumerate()
    {
        let mode = Mode {
            driver: drivers[at % 2],
            fast_path: at != 0,
            zero_copy: at != 1,
            spin: spins[at],
            placement: placements[at],
        };
        for (devices, block_bytes, beside) in [(1, 4096, true), (32, 512, false)] {
            let load = Load {
                devices,
                block_bytes,
                beside,
                ..LOAD
            };
            let text = bench::sides::configuration(protocol, &mode, &load, &MOMENT);
            fs::write(&path, text.expect("a configuration")).expect("a file");
            assert_fine(&path);
        }
    }
}

fn assert_fine(path: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(["check", "-c"])
        .arg(path)
        .output()
        .expect("weft starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{said}\n{}",
        fs::read_to_string(path).expect("text")
    );
}
