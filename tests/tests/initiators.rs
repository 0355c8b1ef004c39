//! Other people's iSCSI initiators on this machine: libiscsi's conformance
//! suite, and QEMU's block driver.

#![forbid(unsafe_code)]

use interop::child::{output, tail};
use interop::guest;
use interop::packages::Sysroot;
use interop::suite::{self, Verdict};
use interop::systems::RELEASE;
use interop::weft::{Setup, WeftProcess, free_address};
use needs::needs;
use std::collections::BTreeSet;
use std::net::SocketAddr;

const IQN: &str = "iqn.2026-01.org.example:suite";

/// A target with two portals, one LUN of each kind: 0 a sparse file of 512 byte
/// blocks, 1 memory, 2 memory that may not be written, 3 memory of 4096 byte
/// blocks; and one whose initiators authenticate by CHAP.
fn config(portals: [SocketAddr; 2]) -> String {
    let [first, second] = portals;
    format!(
        r#"
[[volume]]
name = "file"
kind = "file"
path = "file.img"
size = "100MiB"
block_bytes = 512
[[volume]]
name = "ram"
kind = "ram"
size = "64MiB"
block_bytes = 512
[[volume]]
name = "fixed"
kind = "ram"
size = "16MiB"
block_bytes = 512
read_only = true
[[volume]]
name = "large"
kind = "ram"
size = "64MiB"
block_bytes = 4096
[[iscsi.target]]
name = "{IQN}"
allow_any_initiator = true
volumes = ["file", "ram", "fixed", "large"]
target_cold_reset = true
[[iscsi.target]]
name = "{IQN}-chap"
allow_any_initiator = true
volumes = ["file"]
chap_algorithms = ["md5", "sha256"]
chap = {{ user = "suite", secret = "a secret of ours" }}
[[listener]]
address = "{first}"
protocol = "iscsi"
[[listener]]
address = "{second}"
protocol = "iscsi"
"#
    )
}

/// A target for `name`, and where it is reached.
fn serve(name: &str) -> (WeftProcess, [SocketAddr; 2]) {
    let portals = [free_address(), free_address()];
    (
        WeftProcess::serve(name, &config(portals), portals[0]),
        portals,
    )
}

fn url(portal: SocketAddr, lun: u32) -> String {
    format!("iscsi://{portal}/{IQN}/{lun}")
}

/// What is known of tests: that a part of them is skipped, with the reason that
/// the suite gives.
type Skips = &'static [(&'static str, &'static str)];

/// Whether `pattern`, which may end in `*`, names a test.
fn names(pattern: &str, test: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => test.starts_with(start),
        None => pattern == test,
    }
}

/// Skipped everywhere.
const ALWAYS: Skips = &[
    // SBC's commands for media that are taken out; a disk's stays.
    ("PreventAllow.*", "not removable"),
    ("StartStopUnit.Simple", "not removable"),
    // Optional, and weft has no such thing: to erase a volume is to remove it.
    ("Sanitize.*", "is not implemented"),
    // It is what the read-only LUN is for.
    ("ReadOnly.ReadOnlySBC", "not write-protected"),
    // A WRITE SAME without a number of blocks is refused (WSNZ is 1): optional.
    ("WriteSame10.ZeroBlocks", "does not support 0-blocks"),
    ("WriteSame16.ZeroBlocks", "does not support 0-blocks"),
];

/// Of volumes that could be torn when the power fails: SBC-4's atomic writes
/// may not be.
const OF_FILES: Skips = &[("WriteAtomic16.*", "WRITEATOMIC16 is not implemented")];

/// Of memory, which has no physical blocks larger than logical ones.
const OF_MEMORY: Skips = &[
    ("CompareAndWrite.InvalidDataOutSize", "LBPPB < 2"),
    ("WriteSame10.InvalidDataOutSize", "LBPPB < 2"),
    ("WriteSame10.UnmapUnaligned", "LBPPB < 2"),
    ("WriteSame16.InvalidDataOutSize", "LBPPB < 2"),
    ("WriteSame16.UnmapUnaligned", "LBPPB < 2"),
];

/// The suite asks about block i + 1 and expects an answer about block i + 8, where a
/// physical block has 8 logical ones.
const MISTAKEN_OF_FILES: &[&str] = &["GetLBAStatus.UnmapSingle"];

/// Up to version 1.19 the suite writes one block with 512 bytes of data, whatever a block
/// has. Such a write is refused: nothing could be written.
const MISTAKEN_OF_LARGE_BLOCKS: &[&str] = &[
    "ProutReserve.AccessEA",
    "ProutReserve.AccessWE",
    "ProutReserve.AccessEARO",
    "ProutReserve.AccessWERO",
    "ProutReserve.AccessEAAR",
    "ProutReserve.AccessWEAR",
];

/// Runs every test against a LUN: none may fail but those in `mistaken`, and
/// what is skipped is what `skips` says.
fn run(sysroot: &Sysroot, url: &str, arguments: &[&str], skips: Skips, mistaken: &[&str]) {
    let verdicts = suite::run(sysroot, "ALL", url, arguments).unwrap_or_else(|e| panic!("{e}"));
    assert!(verdicts.len() >= 230, "only {} tests ran", verdicts.len());
    let mut wrong = Vec::new();
    for Verdict {
        test, passed, said, ..
    } in &verdicts
    {
        if *passed == mistaken.contains(&test.as_str()) {
            wrong.push(format!("{test}: passed: {passed}: {}", tail(said, 12)));
        }
    }
    let told: BTreeSet<(&str, &str)> = (verdicts.iter())
        .flat_map(|v| v.skipped.iter().map(|why| (v.test.as_str(), why.as_str())))
        .collect();
    let known = |(test, why): &(&str, &str)| {
        (ALWAYS.iter().chain(skips)).any(|(t, w)| names(t, test) && why.contains(w))
    };
    for (test, why) in told.iter().filter(|told| !known(told)) {
        wrong.push(format!("{test} is skipped: {why}"));
    }
    for (test, why) in ALWAYS.iter().chain(skips) {
        let is_there = (told.iter()).any(|(t, w)| names(test, t) && w.contains(why));
        if !is_there {
            wrong.push(format!("{test} is not skipped any more: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The suite against LUN `lun`, over both portals.
fn suite(name: &str, lun: u32, arguments: &[&str], skips: Skips, mistaken: &[&str]) {
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let (server, [first, second]) = serve(name);
    let second = url(second, lun);
    let mut all = arguments.to_vec();
    all.push(&second);
    run(&sysroot, &url(first, lun), &all, skips, mistaken);
    server.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn a_thin_file_whose_data_may_be_lost() {
    suite("suite-file", 0, &["-d", "-S"], OF_FILES, MISTAKEN_OF_FILES);
}

#[needs(guest)]
#[test]
fn memory_whose_data_may_be_lost() {
    suite("suite-ram", 1, &["-d", "-S"], OF_MEMORY, &[]);
}

#[needs(guest)]
#[test]
fn memory_of_large_blocks() {
    // With commands of 8 MiB among others, which the suite sends whatever a target says.
    let mistaken = MISTAKEN_OF_LARGE_BLOCKS;
    suite("suite-large", 3, &["-d", "-S"], OF_MEMORY, mistaken);
}

/// What the suite tests without writing, and that nothing else is done there.
const OF_READING: &[&str] = &[
    "Inquiry",
    "Mandatory",
    "ModeSense6",
    "NoMedia",
    "Prefetch10",
    "Prefetch16",
    "PrinReadKeys",
    "PrinServiceactionRange",
    "PrinReportCapabilities",
    "ProutRegister",
    "ProutClear",
    "ProutPreempt",
    "Read6",
    "Read10",
    "Read12",
    "Read16",
    "ReadCapacity10",
    "ReadCapacity16",
    "ReadDefectData10",
    "ReadDefectData12",
    "ReadOnly",
    "ReportSupportedOpcodes",
    "Reserve6",
    "TestUnitReady",
    "Verify10",
    "Verify12",
    "Verify16",
];

#[needs(guest)]
#[test]
fn a_volume_that_may_not_be_written() {
    let name = "suite-fixed";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let (server, [portal, _]) = serve(name);
    let mut wrong = Vec::new();
    for family in OF_READING {
        let verdicts = suite::run(&sysroot, &format!("ALL.{family}"), &url(portal, 2), &["-d"]);
        let verdicts = verdicts.unwrap_or_else(|e| panic!("{family}: {e}"));
        assert!(!verdicts.is_empty(), "no family {family}");
        for Verdict {
            test,
            passed,
            skipped,
            said,
        } in verdicts
        {
            if !passed || !skipped.is_empty() {
                wrong.push(format!(
                    "{test}: passed: {passed}: {skipped:?} {}",
                    tail(&said, 6)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    server.expect_orderly_end();
}

#[needs(guest)]
#[test]
fn an_initiator_with_chap_reads_and_one_with_a_wrong_secret_does_not() {
    let name = "suite-chap";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let (server, [portal, _]) = serve(name);
    let with = |secret: &str| format!("iscsi://suite%{secret}@{portal}/{IQN}-chap/0");
    let verdicts = suite::run(&sysroot, "ALL.Read10", &with("a secret of ours"), &["-d"]);
    let verdicts = verdicts.unwrap_or_else(|e| panic!("{e}"));
    assert!(verdicts.iter().all(|v| v.passed), "{verdicts:?}");
    let wrong = suite::run(
        &sysroot,
        "ALL.Read10",
        &with("another one of ours"),
        &["-d"],
    );
    assert!(wrong.is_err(), "{wrong:?}");
    server.expect_orderly_end();
}

/// libiscsi reads one PDU of the answer and no more.
#[needs(guest)]
#[test]
fn a_thousand_targets_are_listed() {
    let name = "iscsi-ls";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let portal = free_address();
    let config = format!(
        "[[volume]]\nname = \"n{{000..999}}\"\nkind = \"null\"\nsize = \"1MiB\"\n\
         [[iscsi.target]]\nname = \"iqn.2026-01.org.example:a-disk-of-a-rack-{{000..999}}\"\n\
         allow_any_initiator = true\nvolumes = [\"n{{000..999}}\"]\n\
         [[listener]]\naddress = \"{portal}\"\nprotocol = \"iscsi\"\n"
    );
    let server = WeftProcess::serve(name, &config, portal);
    let mut command = sysroot.command("usr/bin/iscsi-ls");
    command.arg(format!("iscsi://{portal}"));
    let listed = output(&mut command).unwrap_or_else(|e| panic!("{e}"));
    let listed = String::from_utf8_lossy(&listed);
    let targets = listed
        .lines()
        .filter(|line| line.contains("a-disk-of-a-rack-"));
    assert_eq!(targets.count(), 1000, "{}", tail(&listed, 5));
    server.expect_orderly_end();
}

/// QEMU's own initiator writes an image to a LUN, reads it back, and compares.
#[needs(guest)]
#[test]
fn qemu_converts_to_a_lun_and_back() {
    let name = "qemu-img";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let (server, [portal, _]) = serve(name);
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image.raw");
    let mut bytes = vec![0; 100 << 20];
    for (at, block) in (0u64..).zip(bytes.chunks_mut(4096)) {
        // Two blocks of three hold something.
        if at % 3 != 0 {
            block[..8].copy_from_slice(&at.to_le_bytes());
        }
    }
    std::fs::write(&image, &bytes).expect("an image");
    let image = image.to_str().expect("a path in UTF-8");
    let back = folder.path().join("back.raw");
    let back = back.to_str().expect("a path in UTF-8");
    let lun = url(portal, 0);
    let steps: [&[&str]; 5] = [
        &["info", &lun],
        &["convert", "-n", "-f", "raw", "-O", "raw", image, &lun],
        &["compare", "-f", "raw", "-F", "raw", image, &lun],
        &["convert", "-f", "raw", "-O", "raw", &lun, back],
        &[
            "bench", "-f", "raw", "-c", "2000", "-d", "16", "-w", "-s", "65536", &lun,
        ],
    ];
    for step in steps {
        let mut command = sysroot.command("usr/bin/qemu-img");
        command.env(
            "QEMU_MODULE_DIR",
            sysroot.root.join("usr/lib/x86_64-linux-gnu/qemu"),
        );
        let said = output(command.args(step)).unwrap_or_else(|e| panic!("{step:?}: {e}"));
        let said = String::from_utf8_lossy(&said);
        assert!(step[0] != "compare" || said.contains("identical"), "{said}");
    }
    assert!(std::fs::read(back).expect("what came back") == bytes);
    server.expect_orderly_end();
}

/// A volume promises more than the file system below it has: QEMU gets an error for which
/// it stops a machine instead of failing its write, and can go on when there is space
/// again.
#[needs(guest, mount_namespace)]
#[test]
fn a_full_file_system_is_told_as_one() {
    let name = "full";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what the initiators are made of");
    let address = free_address();
    let config = format!(
        "[[volume]]\nname = \"v\"\nkind = \"file\"\npath = \"small/v.img\"\nsize = \"64MiB\"\n\
         block_bytes = 512\n[iscsi]\nspace_warning = \"6MiB\"\n\
         [[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\nvolumes = [\"v\"]\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"iscsi\"\n"
    );
    let setup = Setup {
        small_disk_mib: Some(8),
        ..Setup::default()
    };
    let target = WeftProcess::serve_in(name, setup, &config, address);
    let io = |steps: &[&str]| {
        let mut command = sysroot.command("usr/bin/qemu-io");
        command.env(
            "QEMU_MODULE_DIR",
            sysroot.root.join("usr/lib/x86_64-linux-gnu/qemu"),
        );
        command.args(["-f", "raw", "-d", "unmap"]);
        for step in steps {
            command.args(["-c", step]);
        }
        let said = command.arg(url(address, 0)).output().expect("qemu-io runs");
        let said = [said.stdout, said.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    let said = io(&[
        "write -P 1 0 1M",
        "write -P 2 16M 16M",
        "read -P 1 0 1M",
        "discard 16M 16M",
        "write -P 3 20M 1M",
        "read -P 3 20M 1M",
    ]);
    // DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT, and that alone.
    assert!(
        said.contains("write failed: No space left on device"),
        "{said}"
    );
    assert!(said.contains("(0x2707)"), "{said}");
    assert_eq!(said.matches(" failed: ").count(), 1, "{said}");
    assert_eq!(said.matches("1 MiB, 1 ops").count(), 4, "{said}");
    let log = target.log();
    assert!(log.contains("out of space"), "{log}");
    target.expect_orderly_end();
}
