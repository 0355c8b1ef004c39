use super::*;
use crate::testing::unit;

fn asked(
    options: u8,
    operation_code: u8,
    service_action: u16,
    timeouts: bool,
    unit: &Unit,
) -> Result<Vec<u8>, Sense> {
    let command = Command::ReportSupportedOperationCodes {
        options,
        operation_code,
        service_action,
        timeouts,
        allocation_len: u32::MAX,
    };
    let mut out = Vec::new();
    operation_codes(&command, unit, &mut out).map(|()| out)
}

#[test]
fn report_of_all_commands_lists_every_row() {
    let unit = unit();
    let all = asked(0, 0, 0, false, &unit).unwrap();
    assert_eq!(all.len(), 4 + 8 * ROWS.len());
    assert_eq!(all[..4], (8 * ROWS.len() as u32).to_be_bytes());
    assert_eq!(all[4..12], [0x00, 0, 0, 0, 0, 0, 0, 6]);
    let all: Vec<&[u8]> = all[4..].chunks(8).collect();
    assert!(all.contains(&&[0x8a, 0, 0, 0, 0, 0, 0, 16][..]));
    assert!(all.contains(&&[0x9e, 0, 0, 0x12, 0, 1, 0, 16][..]));
    let timed = asked(0, 0, 0, true, &unit).unwrap();
    assert_eq!(timed.len(), 4 + 20 * ROWS.len());
    for descriptor in timed[4..].chunks(20) {
        assert_eq!(descriptor[5] & 2, 2);
        assert_eq!(descriptor[8..16], [0, 10, 0, 0, 0, 0, 0, 0]);
        assert!(descriptor[16..] > [0, 0, 0, 0][..]);
    }
}

#[test]
fn report_leaves_out_commands_that_a_unit_does_not_offer() {
    let mut unit = unit();
    unit.thin = false;
    unit.atomic_power_fail_bytes = 512;
    let all = asked(0, 0, 0, false, &unit).unwrap();
    assert_eq!(all.len(), 4 + 8 * (ROWS.len() - 2));
    let all: Vec<u8> = all[4..].chunks(8).map(|descriptor| descriptor[0]).collect();
    assert!(!all.contains(&0x42) && !all.contains(&0x9c));
    assert_eq!(asked(1, 0x42, 0, false, &unit), Ok(vec![0, 1, 0, 0]));
}

#[test]
fn report_of_one_command_has_its_usage_bits() {
    let unit = unit();
    let write = [
        0, 3, 0, 10, 0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0,
    ];
    assert_eq!(asked(1, 0x2a, 0, false, &unit), Ok(write.to_vec()));
    assert_eq!(asked(3, 0x2a, 0, false, &unit), Ok(write.to_vec()));
    let timed = asked(1, 0x2a, 0, true, &unit).unwrap();
    assert_eq!((timed[1], timed.len()), (0x83, 4 + 10 + 12));
    assert_eq!(timed[14..], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30]);
    let groups = [
        0, 3, 0, 12, 0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ];
    assert_eq!(asked(2, 0xa3, 0x0a, false, &unit), Ok(groups.to_vec()));
    assert_eq!(asked(3, 0xa3, 0x0a, false, &unit), Ok(groups.to_vec()));
}

#[test]
fn report_of_an_unsupported_command_says_so_and_a_wrong_request_is_refused() {
    let unit = unit();
    let no = Ok(vec![0, 1, 0, 0]);
    assert_eq!(asked(1, 0x04, 0, true, &unit), no);
    assert_eq!(asked(2, 0x04, 0, false, &unit), no);
    assert_eq!(asked(2, 0xa3, 0x1f, false, &unit), no);
    assert_eq!(asked(2, 0xa3, 0x100 + 0x0a, false, &unit), no);
    assert_eq!(asked(3, 0xa3, 0x1f, false, &unit), no);
    assert_eq!(asked(3, 0x2a, 1, false, &unit), no);
    let wrong = Err(Sense::in_cdb(3, None));
    assert_eq!(asked(1, 0xa3, 0x0a, false, &unit), wrong);
    assert_eq!(asked(2, 0x2a, 0, false, &unit), wrong);
    for options in 4..8 {
        let refused = asked(options, 0x2a, 0, false, &unit);
        assert_eq!(refused, Err(Sense::in_cdb(2, Some(2))));
    }
}

/// What libiscsi's conformance tests ask of every command that is listed.
#[test]
fn every_command_is_reported_by_the_option_that_fits_it() {
    let unit = unit();
    for row in ROWS {
        let action = row.action.map(u16::from);
        let plain = asked(1, row.opcode, action.unwrap_or(0), false, &unit);
        let with = asked(2, row.opcode, action.unwrap_or(0), false, &unit);
        assert_eq!(
            (plain.is_ok(), with.is_ok()),
            (action.is_none(), action.is_some())
        );
        let one = plain.or(with).unwrap();
        assert_eq!((one[1], one[3], one[4]), (3, row.len, row.opcode));
        assert_eq!(one.len(), 4 + usize::from(row.len));
    }
}

#[test]
fn report_of_task_management_functions() {
    let mut out = Vec::new();
    task_management_functions(false, &mut out);
    assert_eq!(out, [0xda, 0, 0, 0]);
    let mut out = Vec::new();
    task_management_functions(true, &mut out);
    assert_eq!((out.len(), &out[..5]), (16, &[0xda, 0, 0, 12, 0][..]));
}
