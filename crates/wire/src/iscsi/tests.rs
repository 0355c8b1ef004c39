use super::*;

#[test]
fn headers_are_where_the_standard_has_them() {
    let mut command = ScsiCommand::new();
    command.first |= first::IMMEDIATE;
    command.flags = flags::FINAL | flags::WRITE | TaskAttribute::Simple as u8;
    command.data_segment_length = U24::new(0x01_0203);
    command.itt = U32::new(0x1122_3344);
    command.expected_data_transfer_length = U32::new(4096);
    command.cmd_sn = U32::new(7);
    command.cdb[0] = 0x2a;
    let bytes = command.as_bytes();
    assert_eq!(bytes[..8], [0x41, 0xa1, 0, 0, 0, 1, 2, 3]);
    assert_eq!(
        bytes[16..28],
        [0x11, 0x22, 0x33, 0x44, 0, 0, 0x10, 0, 0, 0, 0, 7]
    );
    assert_eq!(bytes[32], 0x2a);

    let bhs = Bhs::read_from_bytes(bytes).expect("48 bytes");
    assert_eq!(bhs.opcode(), opcode::SCSI_COMMAND);
    assert!(bhs.is_immediate());
    assert_eq!(bhs.data_segment_length.get(), 0x01_0203);
    assert_eq!(*bhs.cast::<ScsiCommand>(), command);

    let mut login = LoginResponse::new();
    login.tsih = U16::new(0x0102);
    login.status_class = LoginStatus::NoSession.class();
    login.status_detail = LoginStatus::NoSession.detail();
    let bytes = login.as_bytes();
    assert_eq!(bytes[0], 0x23);
    assert_eq!(bytes[14..16], [1, 2]);
    assert_eq!(bytes[36..38], [2, 10]);
}

#[test]
fn codes_know_their_numbers() {
    for status in LoginStatus::ALL {
        let back = LoginStatus::from_bytes(status.class(), status.detail());
        assert_eq!(back, Some(*status));
    }
    assert_eq!(LoginStatus::from_bytes(2, 12), None);
    assert_eq!(RejectReason::from_value(0x0b), None, "must not be used");
    assert_eq!(Stage::from_value(2), None, "reserved");
    assert_eq!(
        TaskFunction::from_value(5),
        Some(TaskFunction::LogicalUnitReset)
    );
    assert_eq!(TaskResponse::from_value(255), Some(TaskResponse::Rejected));
    assert_eq!(
        AsyncEvent::LogoutRequest.to_string(),
        "target requests Logout"
    );
}

#[test]
fn serial_numbers_wrap() {
    assert_eq!(serial_distance(0xffff_fffe, 1), 3);
    assert_eq!(serial_distance(1, 0xffff_fffe), -3);
    assert_eq!(serial_distance(5, 5), 0);
}

#[test]
fn lengths_are_padded_to_words() {
    assert_eq!([0, 1, 4, 5].map(padded), [0, 4, 4, 8]);
    assert_eq!(padded(DATA_SEGMENT_LEN_MAX), 1 << 24);
}

#[test]
fn additional_headers_are_walked_and_bounded() {
    let both = [
        0, 5, 2, 0, 0, 0, 2, 0, // bidirectional read length 512
        0, 3, 1, 0, 0xaa, 0xbb, 0, 0, // two bytes of CDB, padded
    ];
    let walked: Vec<_> = additional_headers(&both).collect();
    assert_eq!(
        walked,
        [
            Ok((AHS_BIDI_READ_LENGTH, &[0, 0, 0, 2, 0][..])),
            Ok((AHS_EXTENDED_CDB, &[0, 0xaa, 0xbb][..])),
        ]
    );
    let beyond = [0, 6, 2, 0, 0, 0, 2, 0];
    assert_eq!(
        additional_headers(&beyond).collect::<Vec<_>>(),
        [Err(AhsError)]
    );
    assert_eq!(
        additional_headers(&[0, 0]).collect::<Vec<_>>(),
        [Err(AhsError)]
    );
    let empty: Vec<_> = additional_headers(&[0, 0, 1, 0, 0, 0, 9, 0]).collect();
    assert_eq!(empty, [Ok((1, &[][..])), Ok((9, &[][..]))]);
}
