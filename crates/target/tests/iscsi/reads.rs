//! Reads, writes and what both protocols see of them.

use wire::scsi::{asc, status};

use crate::client::{Client, Who, read_16, write_16};
use crate::common::{BLOCK, on_each_driver, pattern, portal};

#[test]
fn what_is_written_is_read_in_every_size() {
    on_each_driver(|running| {
        let mut client = Client::login(portal(running), &Who::new(1))
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
#[test]
fn residuals_tell_what_did_not_fit() {
    on_each_driver(|running| {
        use wire::iscsi::flags::{OVERFLOW, UNDERFLOW};
        let mut client = Client::login(portal(running), &Who::new(1))
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
        // Of a write that is shorter than its CDB says whole blocks arrive.
        let other = pattern(77, BLOCK + 512);
        let short = client.command_out(0, &write_16(0, 2), &other);
        assert_eq!(
            (short.status, short.residual),
            (status::GOOD, (OVERFLOW, block - 512))
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

#[test]
fn units_that_are_not_there_say_so() {
    on_each_driver(|running| {
        let mut client = Client::login(portal(running), &Who::new(1))
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
