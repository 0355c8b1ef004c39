//! Get Log Page: every page, and what is refused.

use nvmf::command::AnaState;
use nvmf::{AdminOutcome, ErrorNote, IoCounters, support};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::fid;
use wire::nvme::log::lid;
use wire::nvme::{NSID_ALL, Sqe, Status};

use crate::bench::{Bench, NQN, SECOND, disk, log_sqe, u16_at, u32_at, u64_at};

/// Every page read whole and in pieces of every size gives the same bytes.
#[test]
fn log_pages_can_be_read_in_pieces() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.counters.read_commands = 0x0102_0304_0506_0708;
    for lid in 0..3 {
        let _ = bench.identify(id, 0xf0 + lid, 0);
    }
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    let pages = [
        (id, lid::SUPPORTED, 1024),
        (id, lid::ERROR, 4096),
        (id, lid::SMART, 512),
        (id, lid::FIRMWARE_SLOT, 512),
        (id, lid::CHANGED_NAMESPACES, 4096),
        (id, lid::COMMAND_EFFECTS, 4096),
        (id, lid::FEATURE_EFFECTS, 1024),
        (id, lid::MI_EFFECTS, 1024),
        (discovery, lid::SUPPORTED, 1024),
        (discovery, lid::FEATURE_EFFECTS, 1024),
        (id, lid::ANA, 16 + 128 * 32 + 1024 * 4),
        (id, lid::RESERVATION_NOTIFICATION, 64),
        (discovery, lid::ERROR, 4096),
        (discovery, lid::DISCOVERY, 3072),
    ];
    for (id, lid, size) in pages {
        let whole = bench.log(id, lid, 0, 0, size + 64).unwrap();
        assert_eq!(whole[size..], [0; 64], "{lid:#x}: zeros behind the page");
        for piece in [4, 12, 500, 1028] {
            let mut read = Vec::new();
            while read.len() < size {
                read.extend(bench.log(id, lid, 0, read.len() as u64, piece).unwrap());
            }
            assert_eq!(read[..size], whole[..size], "{lid:#x} in pieces of {piece}");
        }
        assert_eq!(
            bench.log(id, lid, 0, size as u64, 4),
            Ok(vec![0; 4]),
            "{lid:#x} at its end"
        );
        let beyond = [size as u64 + 4, u64::MAX - 3];
        for offset in beyond {
            assert_eq!(
                bench.log(id, lid, 0, offset, 4),
                Err(Status::INVALID_FIELD),
                "{lid:#x}"
            );
        }
    }
}

#[test]
fn log_page_refusals() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    for lid in [0x06, 0x07, 0x0d, 0x0e, 0x70, 0x82, 0xff] {
        assert_eq!(
            bench.log(id, lid, 0, 0, 512),
            Err(Status::INVALID_LOG_PAGE),
            "{lid:#x}"
        );
    }
    for lid in [lid::SMART, lid::COMMAND_EFFECTS, lid::ANA] {
        assert_eq!(
            bench.log(discovery, lid, 0, 0, 512),
            Err(Status::INVALID_LOG_PAGE)
        );
    }
    assert_eq!(
        bench.log(id, lid::ERROR, 0, 2, 64),
        Err(Status::INVALID_FIELD),
        "alignment"
    );
    assert_eq!(
        bench.log(id, lid::ERROR, 5, 0, 64),
        Err(Status::INVALID_FIELD),
        "scope"
    );
    assert_eq!(
        bench.log(id, lid::SMART, 3, 0, 512),
        Err(Status::INVALID_FIELD),
        "inactive"
    );
    assert_eq!(
        bench.log(id, lid::SMART, 1025, 0, 512),
        Err(Status::INVALID_NAMESPACE)
    );
    let mut indexed = log_sqe(lid::ERROR, 0, 0, 64);
    indexed.cdw14 = (1 << 23).into();
    assert_eq!(
        bench.admin(id, &indexed, &mut [0; 64]).status.code(),
        Status::INVALID_FIELD
    );
    let mut zoned = log_sqe(lid::COMMAND_EFFECTS, 0, 0, 4096);
    zoned.cdw14 = (2 << 24).into();
    assert_eq!(
        bench.admin(id, &zoned, &mut [0; 4096]).status.code(),
        Status::INVALID_FIELD,
        "CSI"
    );
    let long = log_sqe(lid::ERROR, 0, 0, 1 << 20);
    let reply = bench.admin(id, &long, &mut [0; 64]);
    assert_eq!(reply.status.code(), Status::DATA_SGL_LENGTH_INVALID);
}

/// What the tables say, what the logs say and what is executed are one.
#[test]
fn supported_commands_features_and_logs_are_those_of_the_tables() {
    let mut bench = Bench::new();
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    let io = bench.controller();
    for (id, is_discovery) in [(io, false), (discovery, true)] {
        let listed = |item: Option<&support::NamedItem>| {
            item.is_some_and(|item| {
                if is_discovery {
                    item.discovery
                } else {
                    item.io
                }
            })
        };
        let supported = bench.log(id, lid::SUPPORTED, 0, 0, 1024).unwrap();
        let features = bench.log(id, lid::FEATURE_EFFECTS, 0, 0, 1024).unwrap();
        for number in 0..=255u8 {
            let at = usize::from(number) * 4;
            let there = listed(support::log_pages().find(|page| page.id == number));
            assert_eq!(u32_at(&supported, at) & 1 == 1, there, "{number:#x}");
            assert_eq!(bench.log(id, number, 0, 0, 4).is_ok(), there, "{number:#x}");

            let there = listed(support::features().find(|feature| feature.id == number));
            assert_eq!(u32_at(&features, at) & 1 == 1, there, "feature {number:#x}");
            let mut sqe = Sqe::new(wire::nvme::admin::GET_FEATURES);
            sqe.nsid = 5.into();
            sqe.cdw10 = u32::from(number).into();
            sqe.cdw11 = u32::from(number == fid::HOST_IDENTIFIER).into();
            let unknown = AdminOutcome::Done(nvmf::Reply::failed(Status::INVALID_FIELD.dnr()));
            let got = bench.run(id, 0, &sqe, &[], &mut [0; 4096]) != unknown;
            assert_eq!(got, there, "feature {number:#x}");

            let there = listed(support::admin_commands().find(|command| command.id == number));
            let outcome = bench.run(id, 0, &Sqe::new(number), &[], &mut [0; 4096]);
            let invalid = AdminOutcome::Done(nvmf::Reply::failed(Status::INVALID_OPCODE.dnr()));
            assert_eq!(outcome != invalid, there, "opcode {number:#x}");
        }
    }
    let effects = bench.log(io, lid::COMMAND_EFFECTS, 0, 0, 4096).unwrap();
    for (table, at) in [
        (support::admin_commands().collect::<Vec<_>>(), 0),
        (support::io_commands().collect(), 1024),
    ] {
        for opcode in 0..256 {
            let there = table.iter().any(|item| usize::from(item.id) == opcode);
            let entry = u32_at(&effects, at + opcode * 4);
            assert_eq!(entry & 1 == 1, there, "opcode {opcode:#x}");
        }
    }
    let changing: Vec<usize> = (0..256)
        .filter(|op| u32_at(&effects, 1024 + op * 4) & 2 != 0)
        .collect();
    assert_eq!(changing, [1, 4, 8, 9, 0x19], "content changes");
    let features = bench.log(io, lid::FEATURE_EFFECTS, 0, 0, 1024).unwrap();
    let entry = |fid: u8| u32_at(&features, usize::from(fid) * 4);
    assert_eq!(entry(fid::WRITE_PROTECTION), 1 | 1 << 2 | 1 << 20);
    assert_eq!(entry(fid::KEEP_ALIVE_TIMER), 1 | 1 << 21);
}

#[test]
fn items_of_the_tables_have_unique_numbers_names_and_sections() {
    let tables: [Vec<&support::NamedItem>; 5] = [
        support::admin_commands().collect(),
        support::io_commands().collect(),
        support::features().collect(),
        support::log_pages().collect(),
        support::identify_structures().collect(),
    ];
    for table in tables {
        let mut ids: Vec<u8> = table.iter().map(|item| item.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), table.len());
        for item in table {
            assert!(
                !item.name.is_empty() && item.section.contains('.'),
                "{item:?}"
            );
            assert!(item.io || item.discovery, "{item:?}");
        }
    }
}

#[test]
fn smart_log_counts() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.counters = IoCounters {
        read_commands: 11,
        read_bytes: 512_001,
        write_commands: 13,
        write_bytes: 512_000,
        media_errors: 2,
        taken_percent: 0,
    };
    bench.now = SECOND + 2 * 3600 * SECOND;
    let _ = bench.identify(id, 0xff, 0);
    let one = bench.log(id, lid::SMART, 5, 0, 512).unwrap();
    let fields = [32, 48, 64, 80, 112, 128, 160, 176].map(|at| u64_at(&one, at));
    assert_eq!(fields, [2, 1, 11, 13, 1, 2, 2, 1]);
    assert_eq!(one[3], 100, "available spare");
    assert_eq!(one[0], 1 << 2, "critical warning: the media failed");
    bench.counters.media_errors = 0;
    let fine = bench.log(id, lid::SMART, 5, 0, 512).unwrap();
    assert_eq!(fine[0], 0);
    for (taken, spare, warning) in [(80, 20, 0), (81, 19, 1), (100, 0, 1)] {
        bench.counters.taken_percent = taken;
        for nsid in [5, NSID_ALL] {
            let log = bench.log(id, lid::SMART, nsid, 0, 512).unwrap();
            assert_eq!((log[0], log[3], log[4]), (warning, spare, 20), "{taken} %");
        }
    }
    for nsid in [0, NSID_ALL] {
        let all = bench.log(id, lid::SMART, nsid, 0, 512).unwrap();
        assert_eq!(u64_at(&all, 64), 22, "both namespaces");
    }
}

#[test]
fn errors_are_logged_newest_first() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.log(id, lid::ERROR, 0, 0, 4096), Ok(vec![0; 4096]));
    let mut sqe = Sqe::new(0xc0);
    sqe.cid = 77.into();
    sqe.nsid = 5.into();
    bench.admin(id, &sqe, &mut []);
    let _ = bench.registry.note_error(
        id,
        ErrorNote {
            qid: 2,
            cid: 9,
            status: Status::LBA_OUT_OF_RANGE.dnr(),
            location: None,
            lba: 4096,
            nsid: 2,
        },
    );
    let log = bench.log(id, lid::ERROR, NSID_ALL, 0, 4096).unwrap();
    assert_eq!(u64_at(&log, 0), 2);
    assert_eq!((u16_at(&log, 8), u16_at(&log, 10)), (2, 9), "SQID, CID");
    assert_eq!(u16_at(&log, 12), (0x4000 | 0x80) << 1, "status with DNR");
    assert_eq!(u16_at(&log, 14), 0xffff, "location");
    assert_eq!((u64_at(&log, 16), u32_at(&log, 24), log[29]), (4096, 2, 3));
    assert_eq!(u64_at(&log, 64), 1);
    assert_eq!((u16_at(&log, 72), u16_at(&log, 74)), (0, 77));
    assert_eq!(
        (u16_at(&log, 76), u16_at(&log, 78)),
        ((0x4000 | 0x01) << 1, 0)
    );
    assert_eq!(u64_at(&log, 128), 0, "no third one");
    for _ in 0..100 {
        bench.admin(id, &sqe, &mut []);
    }
    let log = bench.log(id, lid::ERROR, 0, 0, 4096).unwrap();
    assert_eq!((u64_at(&log, 0), u64_at(&log, 63 * 64)), (102, 39));
    let smart = bench.log(id, lid::SMART, 0, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 176), 102);
}

#[test]
fn firmware_slot() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let log = bench.log(id, lid::FIRMWARE_SLOT, 0, 0, 512).unwrap();
    assert_eq!((log[0], &log[8..16]), (1, &b"0.1.0   "[..]));
}

/// Groups with their namespaces, of one listener's view.
#[test]
fn ana_log() {
    let mut grouped = disk();
    let mut namespaces = grouped.namespaces.to_vec();
    namespaces[0].ana_group = 7;
    namespaces.push(nvmf::Namespace {
        ana_group: 7,
        ..crate::bench::namespace(1, 512, 8)
    });
    grouped.namespaces = namespaces.into();
    grouped.set_ana_state(None, 7, AnaState::NonOptimized);
    grouped.set_ana_state(Some(1), 7, AnaState::Inaccessible);
    let mut bench = Bench::with(vec![grouped], &["0.0.0.0:4420", "0.0.0.0:4421"]);
    let id = bench.controller();
    bench.listener = 1;
    let other = bench.controller();

    // The header counts 2 groups; groups ascend, and so do their namespaces.
    let expected = |count: u64, changes: u64, state: u8| {
        let mut bytes = count.to_le_bytes().to_vec();
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        let mut group = |id: u8, changes: u64, state: u8, nsids: &[u8]| {
            bytes.extend([id, 0, 0, 0, nsids.len() as u8, 0, 0, 0]);
            bytes.extend(changes.to_le_bytes());
            bytes.push(state);
            bytes.extend([0; 15]);
            bytes.extend(nsids.iter().flat_map(|nsid| [*nsid, 0, 0, 0]));
        };
        group(1, 1, 1, &[2]);
        group(7, changes, state, &[1, 5]);
        bytes
    };
    let len = 16 + 32 + 4 + 32 + 8;
    assert_eq!(
        bench.log(id, lid::ANA, NSID_ALL, 0, len),
        Ok(expected(0, 1, 2))
    );
    assert_eq!(bench.log(other, lid::ANA, 0, 0, len), Ok(expected(0, 1, 3)));

    let mut groups_only = log_sqe(lid::ANA, 0, 0, 80);
    groups_only.cdw10 = (groups_only.cdw10.get() | 1 << 8).into();
    let mut out = [0xee; 80];
    assert!(bench.admin(id, &groups_only, &mut out).status.is_success());
    assert_eq!((out[16], out[20], out[48], out[52]), (1, 0, 7, 0), "RGO");

    let change = bench.registry.set_ana(NQN, Some(1), 7, AnaState::Optimized);
    assert!(change.is_some());
    assert_eq!(bench.log(id, lid::ANA, 0, 0, len), Ok(expected(0, 1, 2)));
    assert_eq!(bench.log(other, lid::ANA, 0, 0, len), Ok(expected(1, 2, 1)));
    assert!(
        bench
            .registry
            .set_ana(NQN, None, 0, AnaState::Change)
            .is_none()
    );
    assert!(
        bench
            .registry
            .set_ana(NQN, None, 129, AnaState::Change)
            .is_none()
    );
    assert!(
        bench
            .registry
            .set_ana("nqn", None, 1, AnaState::Change)
            .is_none()
    );
}

/// However late a host connects (Base 2.0, figure 207: hours at byte 128).
#[test]
fn power_on_hours_are_those_of_the_target() {
    let mut bench = Bench::new();
    bench.now = 5 * 3600 * SECOND;
    let id = bench.controller();
    let smart = bench.log(id, lid::SMART, 0, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 128), 5);
    assert_eq!(u64_at(&smart, 112), 1, "power cycles");
}
