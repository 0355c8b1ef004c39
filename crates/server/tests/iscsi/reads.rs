//! Reads, writes and what both protocols see of them.

use needs::each_driver;
use std::sync::Arc;

use reactor::Choice;
use server::Limits;
use store::{Errno, Error, Volume};
use wire::iscsi::{TaskFunction, TaskResponse, flags};
use wire::scsi::{asc, key, status};

use crate::client::{Client, Ended, InitiatorPort, read_16, write_16};
use crate::common::{BLOCK, config, pattern, portal, stop, until, with_target};
use crate::gate::Gate;

#[each_driver]
fn data_written_in_every_size_is_read_back(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        // Immediate data, with and without more that is asked for.
        for (blocks, immediate) in [
            (1, BLOCK),
            (1, 0),
            (2, BLOCK),
            (40, 8192),
            (256, 0),
            (256, 65536),
        ] {
            let data = pattern(blocks as u8, blocks * BLOCK);
            let itt = client.start_write(0, &write_16(7, blocks as u32), &data, immediate);
            let ended = client.end_of(itt, &data);
            assert_eq!(
                (ended.status, ended.residual),
                (status::GOOD, (0, 0)),
                "{blocks}"
            );
            let read = client.command(0, &read_16(7, blocks as u32), data.len() as u32);
            assert!(
                read.is_good() && read.data == data,
                "{blocks} blocks, {immediate}"
            );
        }
    });
}

/// The host decides how much it takes, the command how much there is (RFC 7143,
/// section 11.4.5).
#[each_driver]
fn residual_counts_tell_overflow_and_underflow(backend: Choice) {
    with_target(backend, |running| {
        use flags::{OVERFLOW, UNDERFLOW};
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let block = BLOCK as u32;
        let data = pattern(9, 2 * BLOCK);
        assert!(client.command_out(0, &write_16(0, 2), &data).is_good());
        let short = client.command(0, &read_16(0, 2), block);
        assert_eq!(short.residual, (OVERFLOW, block));
        assert_eq!(
            (short.status, &short.data[..]),
            (status::GOOD, &data[..BLOCK])
        );
        let long = client.command(0, &read_16(0, 1), 2 * block);
        assert_eq!(
            (long.residual, long.data.len()),
            ((UNDERFLOW, block), BLOCK)
        );
        let none = client.command(0, &read_16(0, 1), 0);
        assert_eq!(
            (none.status, none.residual),
            (status::GOOD, (OVERFLOW, block))
        );
        let other = pattern(77, BLOCK);
        let short = client.command_out(0, &write_16(0, 2), &other);
        assert_eq!(
            (short.status, short.residual),
            (status::GOOD, (OVERFLOW, block))
        );
        let read = client.command(0, &read_16(0, 2), 2 * block);
        assert_eq!(&read.data[..BLOCK], &other[..BLOCK]);
        assert_eq!(
            &read.data[BLOCK..],
            &data[BLOCK..],
            "the second is as it was"
        );
        let long = client.command_out(0, &write_16(0, 1), &data);
        assert_eq!(
            (long.status, long.residual),
            (status::GOOD, (UNDERFLOW, block))
        );
    });
}

/// INVALID FIELD IN COMMAND INFORMATION UNIT, and what the residual says of it.
fn is_short(ended: &Ended, residual: (u8, u32)) -> bool {
    let sense = (
        key::ILLEGAL_REQUEST,
        asc::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT,
    );
    ended.sense == Some(sense) && ended.residual == residual
}

/// What is GOOD is there: a write of less than its CDB says either writes all
/// that was announced or nothing.
#[each_driver]
fn a_write_of_no_whole_blocks_is_refused_and_writes_nothing(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let before = pattern(9, 2 * BLOCK);
        assert!(client.command_out(0, &write_16(0, 2), &before).is_good());
        let mut write_and_verify = write_16(0, 2);
        write_and_verify[0] = 0x8e;
        for cdb in [write_16(0, 2), write_and_verify] {
            for len in [1, 200, BLOCK - 1, BLOCK + 512] {
                let ended = client.command_out(0, &cdb, &pattern(77, len));
                let residual = (flags::OVERFLOW, (2 * BLOCK - len) as u32);
                assert!(is_short(&ended, residual), "{len}: {ended:?}");
                let read = client.command(0, &read_16(0, 2), 2 * BLOCK as u32);
                assert!(read.data == before, "{len} bytes of {:#x}", cdb[0]);
            }
        }
        // Nothing was announced, and the residual says that nothing came.
        let none = client.command_out(0, &write_16(0, 2), &[]);
        assert_eq!(
            (none.status, none.residual),
            (status::GOOD, (flags::OVERFLOW, 2 * BLOCK as u32))
        );
        assert_eq!(
            client.command(0, &read_16(0, 2), 2 * BLOCK as u32).data,
            before
        );
    });
}

/// With the flags of the other direction no byte of it moves.
#[each_driver]
fn a_command_whose_data_is_announced_in_the_other_direction_moves_none(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let block = BLOCK as u32;
        let before = pattern(9, BLOCK);
        assert!(client.command_out(0, &write_16(0, 1), &before).is_good());
        let other = pattern(1, BLOCK);
        let itt = client.start_write(0, &read_16(0, 1), &other, BLOCK);
        let ended = client.end_of(itt, &other);
        assert_eq!((ended.is_good(), ended.data.len()), (true, 0));
        for direction in [flags::READ, 0] {
            let (bhs, itt) = client.command_header(0, &write_16(0, 1), (direction, block), 1);
            client.send(bhs, &[]);
            let ended = client.end_of(itt, &[]);
            assert!(!ended.is_good(), "{direction:#x}");
        }
        assert_eq!(client.command(0, &read_16(0, 1), block).data, before);
    });
}

/// A list or a block that does not come whole does nothing.
#[each_driver]
fn a_command_that_needs_all_of_its_data_is_refused_with_less(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let before = pattern(9, 2 * BLOCK);
        assert!(client.command_out(0, &write_16(0, 2), &before).is_good());
        let cdb = |bytes: &[(usize, u8)]| {
            let mut cdb = [0; 16];
            bytes.iter().for_each(|(at, byte)| cdb[*at] = *byte);
            cdb
        };
        let unmap = cdb(&[(0, 0x42), (8, 24)]);
        let mut list = [0; 24];
        (list[1], list[3], list[19]) = (22, 16, 1);
        let compare_and_write = cdb(&[(0, 0x89), (13, 1)]);
        let mut pair = before[..BLOCK].to_vec();
        pair.extend(pattern(77, BLOCK));
        let write_same = cdb(&[(0, 0x93), (13, 2)]);
        // REGISTER AND IGNORE EXISTING KEY, of key 7.
        let register = cdb(&[(0, 0x5f), (1, 6), (8, 24)]);
        let mut keys = [0; 24];
        keys[15] = 7;
        // MODE SELECT(10), PF: the Control page with D_SENSE.
        let mode_select = cdb(&[(0, 0x55), (1, 0x10), (8, 20)]);
        let mut modes = [0; 20];
        (modes[8], modes[9], modes[10]) = (0x0a, 10, 4);
        let or_write = cdb(&[(0, 0x8b), (13, 2)]);
        let cases: [(&[u8; 16], &[u8]); 6] = [
            (&unmap, &list),
            (&compare_and_write, &pair),
            (&write_same, &before[..BLOCK]),
            (&register, &keys),
            (&mode_select, &modes),
            (&or_write, &before),
        ];
        for (cdb, data) in cases {
            for len in [0, 1, data.len() / 2, data.len() - 1] {
                let ended = client.command_out(0, cdb, &data[..len]);
                let over = (flags::OVERFLOW, (data.len() - len) as u32);
                assert_eq!(
                    ended.status,
                    status::CHECK_CONDITION,
                    "{:#x}, {len}",
                    cdb[0]
                );
                assert_eq!(ended.residual, over, "{:#x}, {len}", cdb[0]);
            }
        }
        let read = client.command(0, &read_16(0, 2), 2 * BLOCK as u32);
        assert!(read.data == before, "nothing was written");
        // PERSISTENT RESERVE IN, READ KEYS: none.
        let read_keys = cdb(&[(0, 0x5e), (8, 64)]);
        assert_eq!(client.command(0, &read_keys, 64).data, [0; 8]);
    });
}

#[each_driver]
fn commands_to_a_missing_logical_unit_are_refused(backend: Choice) {
    with_target(backend, |running| {
        let mut client = Client::login(portal(running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let nowhere = client.command(5, &read_16(0, 1), BLOCK as u32);
        assert_eq!(nowhere.sense, Some((5, asc::LOGICAL_UNIT_NOT_SUPPORTED)));
        let refused = client.command_out(5, &write_16(0, 1), &[0; BLOCK]);
        assert_eq!(refused.sense, Some((5, asc::LOGICAL_UNIT_NOT_SUPPORTED)));
        // REPORT LUNS, wherever it is sent to.
        let luns = client.command(5, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
        let mut want = vec![0, 0, 0, 16, 0, 0, 0, 0];
        want.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(luns.data, want);
        let behind = client.command(0, &read_16(4096, 1), BLOCK as u32);
        assert_eq!(
            behind.sense,
            Some((5, asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE))
        );
        let behind = client.command_out(0, &write_16(4096, 1), &[0; BLOCK]);
        assert_eq!(
            behind.sense,
            Some((5, asc::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE))
        );
        assert!(client.test_unit_ready(0).is_good());
    });
}

/// Common tools send so much without asking what a target takes.
#[each_driver]
fn one_command_of_8_mib_writes_and_reads(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = store::Kind::file(folder.path().join("disk"));
    for kind in [store::Kind::RAM, file] {
        let mut config = config(backend, Limits::default(), 256 << 20);
        config.volumes[0].kind = kind;
        let running = server::start(config).expect("starts");
        let mut client = Client::login(portal(&running), &InitiatorPort::new(1))
            .expect("in")
            .calm(&[0]);
        let block_limits = [0x12, 1, 0xb0, 0, 64, 0];
        let limits = client.command(0, &block_limits, 64).data;
        let blocks = u32::from_be_bytes(limits[8..12].try_into().expect("4"));
        assert_eq!(blocks, 2048, "MAXIMUM TRANSFER LENGTH");
        let data: Vec<u8> = (0..blocks as usize)
            .flat_map(|at| pattern(at as u8, BLOCK))
            .collect();
        // Its end lies in a third buffer, and in no frame's end.
        for (lba, blocks) in [(7, 2048), (3, 1025), (0, 513)] {
            let data = &data[..blocks as usize * BLOCK];
            let itt = client.start_write(0, &write_16(lba, blocks), data, 8192);
            let ended = client.end_of(itt, data);
            assert_eq!((ended.status, ended.residual), (status::GOOD, (0, 0)));
            let read = client.command(0, &read_16(lba, blocks), data.len() as u32);
            assert!(read.is_good() && read.data == data, "{blocks} blocks");
        }
        assert!(
            !client
                .command(0, &read_16(0, 2049), 2049 * BLOCK as u32)
                .is_good()
        );
        // WRITE AND VERIFY, VERIFY and ORWRITE look at all of it at once.
        for (opcode, byte_check) in [(0x8e, 0), (0x8f, 2), (0x8b, 0)] {
            let mut cdb = write_16(0, 2048);
            (cdb[0], cdb[1]) = (opcode, byte_check);
            let refused = client.command_out(0, &cdb, &data);
            let code = asc::INVALID_FIELD_IN_CDB;
            assert_eq!(
                refused.sense,
                Some((key::ILLEGAL_REQUEST, code)),
                "{opcode:#x}"
            );
        }
        stop(running);
    }
}

/// READ(16) with FUA of as many buffers as it may have: one flush, of all that was read.
#[each_driver]
fn a_read_with_fua_of_8_mib_is_flushed_once_it_has_been_read(backend: Choice) {
    const BLOCKS: u32 = 2048;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let mut config = config(backend, Limits::default(), 256 << 20);
    config.volumes[0].kind = store::Kind::file(path);
    let gate = Gate::open_over(&config.volumes[0]);
    let other = store::open(&config.volumes[1]).expect("memory");
    let volumes: Vec<Arc<dyn Volume>> = vec![gate.clone(), other];
    let running = server::parts::start_with(config, volumes).expect("starts");
    let login = || {
        let client = Client::login(portal(&running), &InitiatorPort::new(1));
        client.expect("in").calm(&[0])
    };
    let mut client = login();
    let data: Vec<u8> = (0..BLOCKS as usize)
        .flat_map(|at| pattern(at as u8, BLOCK))
        .collect();
    assert!(client.command_out(0, &write_16(7, BLOCKS), &data).is_good());
    let flushes = || gate.stats().flushes;
    let orphans = || crate::report::report(&running).orphans;
    let edtl = data.len() as u32;
    let mut with_fua = read_16(7, BLOCKS);
    with_fua[1] = 8;
    gate.shut();
    let itt = client.start_read(0, &with_fua, edtl);
    until("it hangs", || gate.hanging() == 1);
    assert_eq!(flushes(), 0);
    gate.open();
    let read = client.end_of(itt, &[]);
    assert!(read.is_good() && read.data == data);
    assert_eq!(flushes(), 1);
    gate.fail_flushes(Some(Error::FlushFailed(Errno::IO)));
    let failed = client.command(0, &with_fua, edtl);
    assert_eq!(failed.sense, Some((key::MEDIUM_ERROR, asc::WRITE_ERROR)));
    assert_eq!((failed.information, failed.data.len()), (7, 0));
    gate.fail_flushes(None);
    // Nothing of it begins when it was aborted, or its connection is gone.
    gate.shut();
    let itt = client.start_read(0, &with_fua, edtl);
    until("it hangs", || gate.hanging() == 1);
    let response = client.function(TaskFunction::AbortTask, 0, itt);
    assert_eq!(response, TaskResponse::Complete);
    gate.open();
    until("the orphan ends", || orphans() == 0);
    gate.shut();
    client.start_read(0, &with_fua, edtl);
    until("it hangs", || gate.hanging() == 1);
    drop(client);
    until("an orphan is left", || orphans() == 1);
    gate.open();
    until("the orphan ends", || orphans() == 0);
    assert_eq!(flushes(), 1);
    let read = login().command(0, &with_fua, edtl);
    assert!(read.is_good() && read.data == data);
    stop(running);
}
