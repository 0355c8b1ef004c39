//! Copy: every descriptor format, across namespaces, and every refusal.

use needs::{each_driver, needs};
use reactor::Choice;
use server::{Config, Limits, NamespaceSpec};
use store::Error;
use wire::nvme::{Sqe, Status, admin, cdw12, io as opcode};

use crate::commands::serve_gates;
use crate::common::{BLOCK, config, ram, stop};
use crate::initiator::{Carry, Ended, Initiator, Io, blocks, copy, pattern};

const A: u32 = 1;
const B: u32 = 2;
const SMALL: u32 = 3;
const COUNT: u64 = 4096;

fn served(backend: Choice, folder: &std::path::Path) -> Config {
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.volumes.push(store::Spec {
        kind: store::Kind::file(folder.join("disk")),
        ..ram("file", COUNT)
    });
    config.volumes.push(store::Spec {
        block_bytes: 512,
        ..ram("small", 256)
    });
    let names = (1..).zip(["ram", "file", "small"]);
    let namespaces = names.map(|(nsid, name)| NamespaceSpec {
        nsid,
        volume: name.into(),
        ..NamespaceSpec::default()
    });
    config.subsystems[0].namespaces = namespaces.collect();
    config
}

/// Host Behavior Support with the copy formats 2h and 3h (FID 16h; CDFE lies
/// at byte 4).
fn enable_formats(initiator: &mut Initiator) {
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.cdw10 = 0x16.into();
    let mut data = [0; 512];
    data[4] = 0b1100;
    let payload = host::Payload::Out(&data);
    initiator
        .admin
        .command("Set Features", &sqe, payload)
        .expect("known");
}

fn connected(backend: Choice, test: impl Fn(&mut Initiator, &mut Io)) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(served(backend, folder.path())).expect("starts");
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    let mut io = initiator.queue(1);
    test(&mut initiator, &mut io);
    stop(running);
}

fn run(io: &mut Io, (sqe, data): (Sqe, Vec<u8>)) -> Ended {
    io.run(&sqe, Carry::Out(&data))
}

#[each_driver]
fn each_format_copies_within_a_namespace_and_between(backend: Choice) {
    connected(backend, |initiator, io| {
        enable_formats(initiator);
        for (from, to) in [(A, B), (B, A), (A, A), (B, B)] {
            for format in 0..=3 {
                if format < 2 && from != to {
                    continue;
                }
                let seed = u64::from(from * 16 + to * 4) + u64::from(format);
                let data = pattern(seed, 300 * BLOCK);
                for (at, part) in data.chunks(256 * BLOCK).enumerate() {
                    let slba = 1000 + 256 * at as u64;
                    assert_eq!(io.write(from, slba, part, BLOCK), Status::SUCCESS);
                }
                let (mut sqe, table) = copy(
                    to,
                    3000,
                    format,
                    &[(from, 1000, 256), (from, 1290, 10), (from, 1260, 1)],
                );
                sqe.cdw12 = (sqe.cdw12.get() | cdw12::FUA).into();
                let ended = run(io, (sqe, table));
                assert_eq!((ended.status, ended.result), (Status::SUCCESS, 0));
                let mut expected = data[..256 * BLOCK].to_vec();
                expected.extend_from_slice(&data[290 * BLOCK..]);
                expected.extend_from_slice(&data[260 * BLOCK..261 * BLOCK]);
                let mut copied = io.read(to, 3000, 200 * BLOCK, BLOCK);
                copied.extend(io.read(to, 3200, 67 * BLOCK, BLOCK));
                assert!(copied == expected, "{from} to {to}, format {format}");
            }
        }
    });
}

#[each_driver]
fn a_copy_gathers_from_several_namespaces(backend: Choice) {
    connected(backend, |initiator, io| {
        enable_formats(initiator);
        let (one, two) = (pattern(1, 16 * BLOCK), pattern(2, 16 * BLOCK));
        assert_eq!(io.write(A, 0, &one, BLOCK), Status::SUCCESS);
        assert_eq!(io.write(B, 0, &two, BLOCK), Status::SUCCESS);
        let ended = run(
            io,
            copy(B, 100, 2, &[(A, 0, 8), (B, 8, 8), (A, 8, 8), (B, 0, 8)]),
        );
        assert_eq!(ended.status, Status::SUCCESS);
        let half = 8 * BLOCK;
        let expected = [&one[..half], &two[half..], &one[half..], &two[..half]].concat();
        assert!(io.read(B, 100, 32 * BLOCK, BLOCK) == expected);
    });
}

#[each_driver]
fn copy_that_breaks_a_limit_is_refused_and_copies_nothing(backend: Choice) {
    connected(backend, |initiator, io| {
        let formats = run(io, copy(B, 100, 2, &[(A, 0, 1)]));
        assert_eq!(
            formats.status,
            Status::INVALID_FIELD.dnr(),
            "until the host has enabled the format"
        );
        enable_formats(initiator);
        let before = pattern(9, 8 * BLOCK);
        assert_eq!(io.write(B, 100, &before, BLOCK), Status::SUCCESS);
        let five = [
            (A, 0, 256),
            (A, 256, 256),
            (A, 512, 256),
            (A, 768, 256),
            (A, 0, 1),
        ];
        let many = vec![(A, 0, 1); 129];
        for (name, ranges, status) in [
            ("range", &[(A, 0, 257)][..], Status::COMMAND_SIZE_LIMIT),
            ("length", &five, Status::COMMAND_SIZE_LIMIT),
            ("count", &many, Status::COMMAND_SIZE_LIMIT),
            ("blocks", &[(SMALL, 0, 8)], Status::INCOMPATIBLE_NAMESPACE),
            (
                "outside",
                &[(A, 0, 1), (A, COUNT, 1)],
                Status::LBA_OUT_OF_RANGE,
            ),
            ("nowhere", &[(99, 0, 1)], Status::INVALID_NAMESPACE),
            ("overlap", &[(B, 99, 2)], Status::OVERLAPPING_RANGE),
        ] {
            let ended = run(io, copy(B, 100, 2, ranges));
            assert_eq!((ended.status, ended.result), (status.dnr(), 0), "{name}");
            assert!(io.read(B, 100, 8 * BLOCK, BLOCK) == before, "{name}");
        }
        let beyond = run(io, copy(B, COUNT - 1, 2, &[(A, 0, 2)]));
        assert_eq!(beyond.status, Status::LBA_OUT_OF_RANGE.dnr());
        let format = run(io, copy(B, 100, 4, &[(A, 0, 1)]));
        assert!(!format.status.is_success());
    });
}

#[each_driver]
fn dword_0_is_the_first_range_that_was_not_copied(backend: Choice) {
    connected(backend, |_, io| {
        for nsid in [A, B] {
            let data = pattern(6, 16 * BLOCK);
            assert_eq!(io.write(nsid, 0, &data, BLOCK), Status::SUCCESS);
            let spoil = blocks(opcode::WRITE_UNCORRECTABLE, nsid, 9, 1);
            assert_eq!(io.run(&spoil, Carry::Nothing).status, Status::SUCCESS);
            let ended = run(
                io,
                copy(nsid, 500, 0, &[(nsid, 0, 4), (nsid, 4, 4), (nsid, 8, 4)]),
            );
            assert_eq!(ended.status, Status::UNRECOVERED_READ.dnr());
            assert_eq!(ended.result, 2);
            assert!(io.read(nsid, 500, 8 * BLOCK, BLOCK) == data[..8 * BLOCK]);
        }
    });
}

#[each_driver]
fn a_write_that_fails_fails_its_range(backend: Choice) {
    let (running, gate, _) = serve_gates(backend);
    let mut initiator = Initiator::connect(running.addresses()[0], backend);
    enable_formats(&mut initiator);
    let mut io = initiator.queue(1);
    gate.fail(Some(Error::OutOfSpace(store::Errno::NOSPC)));
    let ended = run(&mut io, copy(1, 0, 2, &[(2, 0, 1), (2, 1, 1)]));
    assert_eq!(ended.status, Status::CAPACITY_EXCEEDED.dnr());
    assert_eq!(ended.result, 0);
    stop(running);
}

/// What is shared is not read: head and tail of a range are copied with it, in one step.
#[needs(loop_device, mount, program("mkfs.xfs"))]
#[test]
fn copy_between_files_of_one_file_system_shares_their_blocks() {
    for backend in [Choice::Uring, Choice::Epoll] {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = testkit::Mounted::made_by("mkfs.xfs", folder.path());
        let mut config = served(backend, mounted.path());
        config.volumes[0] = store::Spec {
            kind: store::Kind::file(mounted.path().join("other")),
            block_bytes: 512,
            ..ram("ram", COUNT)
        };
        config.volumes[1].block_bytes = 512;
        let running = server::start(config).expect("starts");
        let mut initiator = Initiator::connect(running.addresses()[0], backend);
        enable_formats(&mut initiator);
        let mut io = initiator.queue(1);
        let data = pattern(3, 512 << 10);
        assert_eq!(io.write(A, 3, &data, 512), Status::SUCCESS);
        let ranges = [(A, 5, 256), (A, 300, 8), (A, 5 + 256, 500)];
        let ended = run(&mut io, copy(B, 13, 2, &ranges));
        assert_eq!((ended.status, ended.result), (Status::SUCCESS, 0));
        let expected = [
            &data[2 * 512..258 * 512],
            &data[297 * 512..305 * 512],
            &data[258 * 512..758 * 512],
        ]
        .concat();
        assert!(io.read(B, 13, 764 * 512, 512) == expected);
        let shared = |running: &server::Running, name| {
            let volume = running.volumes().into_iter();
            let mut volume = volume.filter(|volume| volume.info().name == name);
            volume.next().expect("served").stats().shared_bytes
        };
        // Of the first and the third range, all whole blocks of 4 KiB.
        assert_eq!(shared(&running, "file"), (31 + 62) * 4096);
        assert_eq!(shared(&running, "ram"), 0);
        stop(running);
    }
}
