//! A CDB, from its decoding to its answer.

use scsi::{
    AccessState, Addressed, Attention, Command, IoKind, Modes, Nexus, PRODUCT, Port, PortGroup,
    SENSE_MAX, ScsiIo, Sense, SenseBytes, Specific, TargetView, Unit, UnitIdentity, VENDOR, asc,
    copy, decode, decode_elsewhere, groups, key, mode, name, provisioning, reservation, respond,
    token, unmap,
};

/// A thin unit of 2048 blocks of 512 bytes that can do everything, LUN 0, behind
/// two target port groups.
fn unit() -> Unit {
    Unit {
        lun: 0,
        block_bytes: 512,
        block_count: 2048,
        physical_exponent: 3,
        identity: UnitIdentity {
            uuid: *b"\x8a\x2f\x1a\xb9\xfb\x97\x5a\x34\x8d\xf3\x18\xc0\x0a\xbc\x40\x10",
            nguid: *b"\x30\x65\x39\x2e\xcc\x3a\x5c\xfe\x8a\xd6\x61\xfe\x2e\xee\xc6\x1e",
            eui64: None,
            naa: b"\x30\x65\x39\x2e\xcc\x3a\x5c\xfe".to_vec(),
            serial: "8a2f1ab9fb975a348df3".to_owned(),
            vendor: VENDOR.to_owned(),
            product: PRODUCT.to_owned(),
            revision: "0.1".to_owned(),
        },
        read_only: false,
        is_encrypted: true,
        thin: true,
        volatile_cache: true,
        atomic_bytes: 256 << 10,
        atomic_power_fail_bytes: 128 << 10,
        io_bytes_max: 512 << 10,
        can_persist: true,
        modes: Modes::default(),
        default_modes: Modes::default(),
        here: Port { group: 1, id: 1 },
        state: AccessState::ActiveOptimized,
        groups: [
            PortGroup {
                tag: 1,
                state: AccessState::ActiveOptimized,
                ports: vec![1, 2],
            },
            PortGroup {
                tag: 7,
                state: AccessState::Standby,
                ports: vec![3],
            },
        ]
        .into(),
    }
}

/// The target that it is in, which has LUN 300 besides.
fn target() -> TargetView {
    TargetView {
        name: "iqn.2026-01.io.weft:test".to_owned(),
        luns: vec![0, 300],
    }
}

/// The unit that a byte of an input stands for.
fn unit_of(config: u8) -> Unit {
    let mut unit = unit();
    let bit = |n: u8| config >> n & 1 != 0;
    unit.thin = !bit(0);
    unit.read_only = bit(1);
    unit.modes.write_protected = bit(2);
    unit.modes.descriptor_sense = bit(3);
    unit.modes.write_cache = !bit(4);
    if bit(5) {
        unit.atomic_power_fail_bytes = unit.block_bytes;
        unit.block_count = u64::from(u32::MAX) + 2;
    }
    unit.state = match config >> 6 {
        0 | 1 => AccessState::ActiveOptimized,
        2 => AccessState::Standby,
        _ => AccessState::Unavailable,
    };
    unit
}

/// One command, from its CDB to its answer: a byte that chooses the unit, 16
/// bytes of CDB, then what the initiator sends. Whatever they are nothing panics,
/// no promise of [`ScsiIo`] is broken, and no bit counts that REPORT SUPPORTED
/// OPERATION CODES does not name.
///
/// # Panics
///
/// If any of that does not hold.
pub fn scsi_cdb(input: &[u8]) {
    let Some((&[config], rest)) = input.split_first_chunk::<1>() else {
        return;
    };
    let Some((cdb, data)) = rest.split_first_chunk::<16>() else {
        return;
    };
    let unit = unit_of(config);
    let decoded = decode(cdb, &unit);
    check_usage(cdb, &unit, &decoded);
    for is_well_known in [false, true] {
        let to = match is_well_known {
            true => Addressed::ReportLuns,
            false => Addressed::Nothing,
        };
        match decode_elsewhere(cdb, is_well_known) {
            Ok(command) => check_answer(&command, to, &unit),
            Err(sense) => check_sense(&sense),
        }
    }
    match decoded {
        Ok(command) => run(&command, &unit, data),
        Err(sense) => check_sense(&sense),
    }
}

fn run(command: &Command, unit: &Unit, data: &[u8]) {
    let wanted = usize::try_from(command.data_out_len(unit.block_bytes)).unwrap_or(usize::MAX);
    let list = &data[..data.len().min(wanted)];
    let refused = match *command {
        Command::Io(io) => {
            check_io(io, unit);
            None
        }
        Command::Unmap { .. } => match unmap::parse(list, unit) {
            Ok(ranges) => {
                let size = unit.block_count * u64::from(unit.block_bytes);
                let ends = ranges.iter().map(|range| range.offset + range.len);
                assert!(ends.max().unwrap_or(0) <= size);
                assert!(ranges.len() <= unmap::DESCRIPTORS_MAX);
                None
            }
            Err(sense) => Some(sense),
        },
        Command::ModeSelect(select) => mode::select(&select, list, unit).err(),
        Command::SetTargetPortGroups { .. } => groups::parse_set(list, unit).err(),
        Command::ExtendedCopy { .. } => copy::List::parse(list).err(),
        Command::PopulateToken { .. } => token::Populate::parse(list, unit)
            .map(|asked| check_ranges(&asked.ranges, unit))
            .err(),
        Command::WriteUsingToken { .. } => token::WriteUsing::parse(list, unit)
            .map(|asked| check_ranges(&asked.ranges, unit))
            .err(),
        Command::PersistentReserveOut {
            action,
            scope,
            kind,
            list_len,
        } => reservation::Out::new(action, scope, kind, list_len)
            .and_then(|out| out.request(list))
            .err(),
        Command::PersistentReserveIn {
            action,
            allocation_len,
        } => reservation::In::new(action, allocation_len).err(),
        Command::GetLbaStatus {
            offset,
            allocation_len,
        } => {
            let mut out = Vec::new();
            let extents = [(u64::from(unit.block_bytes), true); 3];
            unmap::lba_status(unit, offset, extents, allocation_len, &mut out);
            assert!(out.len() as u64 <= command.data_in_len_max());
            None
        }
        Command::ProvisioningLog { allocation_len } => {
            let mut out = Vec::new();
            provisioning::log_page(None, allocation_len, &mut out);
            assert!(out.len() as u64 <= command.data_in_len_max());
            None
        }
        Command::Reserve
        | Command::Release
        | Command::CryptographicErase
        | Command::ReceiveRodTokenInformation { .. }
        | Command::ReceiveCopyResults { .. } => None,
        _ => {
            check_answer(command, Addressed::Unit(unit), unit);
            None
        }
    };
    if let Some(sense) = refused {
        check_sense(&sense);
    }
}

/// They lie on the medium, apart from each other, and are no more than a token names.
fn check_ranges(ranges: &[unmap::Range], unit: &Unit) {
    let size = unit.block_count * u64::from(unit.block_bytes);
    assert!(token::total(ranges) <= token::TRANSFER_BYTES_MAX);
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.offset);
    let ends = sorted.iter().map(|range| range.offset + range.len);
    let starts = sorted.iter().skip(1).map(|range| range.offset);
    assert!(
        ends.zip(starts.chain([size]))
            .all(|(end, next)| end <= next)
    );
}

/// The answer is no longer than what was asked for.
fn check_answer(command: &Command, to: Addressed<'_>, unit: &Unit) {
    let mut nexus = Nexus::new();
    nexus.post(Attention::CAPACITY_CHANGED);
    let mut out = vec![0xee; 3];
    match respond(command, to, &mut nexus, &target(), &mut out) {
        Ok(()) => {
            assert_eq!(out[..3], [0xee; 3], "what was there stays");
            let len = (out.len() - 3) as u64;
            assert!(len <= command.data_in_len_max(), "{command:?}: {len}");
        }
        Err(sense) => check_sense(&sense),
    }
    assert_eq!(command.data_out_len(unit.block_bytes), 0, "{command:?}");
}

/// The promises of [`ScsiIo`].
fn check_io(io: ScsiIo, unit: &Unit) {
    let block = u64::from(unit.block_bytes);
    let size = unit.block_count * block;
    assert!(io.offset.is_multiple_of(block) && io.len.is_multiple_of(block));
    assert!(io.offset <= size && io.len <= size - io.offset, "{io:?}");
    assert!(io.data_out_len(unit.block_bytes) <= u64::from(unit.io_bytes_max));
    let writes = !matches!(
        io.kind,
        IoKind::Read | IoKind::Verify(_) | IoKind::Flush { .. } | IoKind::PreFetch
    );
    assert!(!writes || !unit.is_write_protected(), "{io:?}");
    assert!(!writes || io.fua || !unit.writes_through(), "{io:?}");
    assert!(unit.state.is_active());
}

/// Sense data fits, in either format, and says the same in both.
fn check_sense(sense: &Sense) {
    let mut bytes = SenseBytes::EMPTY;
    sense.encode(false, &mut bytes);
    let fixed = bytes.as_slice().to_vec();
    assert_eq!((fixed.len(), fixed[2]), (18, sense.key));
    sense.encode(true, &mut bytes);
    let descriptors = bytes.as_slice();
    assert!(descriptors.len() <= SENSE_MAX);
    assert_eq!(fixed[12..14], descriptors[2..4]);
}

/// A bit outside of the usage data is refused by its name, and one within it is
/// never called reserved.
fn check_usage(cdb: &[u8; 16], unit: &Unit, decoded: &Result<Command, Sense>) {
    let has_action =
        matches!(reported(cdb, 0b001, unit), Err(sense) if sense.key == key::ILLEGAL_REQUEST);
    let action = if has_action { 0b010 } else { 0b001 };
    let usage = reported(cdb, action, unit).expect("the options fit the command");
    let Some(usage) = usage else {
        let code = decoded.as_ref().expect_err("no such command").code;
        let expected = match has_action {
            true => asc::INVALID_FIELD_IN_CDB,
            false => asc::INVALID_COMMAND_OPERATION_CODE,
        };
        assert_eq!(code, expected, "{cdb:02x?}");
        return;
    };
    assert!(name(cdb).is_some());
    match first_unused(cdb, &usage, has_action) {
        Some((byte, bit)) => {
            let sense = decoded.as_ref().expect_err("a bit that must be zero");
            let expected = Specific::Field {
                in_cdb: true,
                byte,
                bit: Some(bit),
            };
            assert_eq!(
                (sense.key, sense.code, sense.specific),
                (key::ILLEGAL_REQUEST, asc::INVALID_FIELD_IN_CDB, expected,),
                "{cdb:02x?}"
            );
        }
        None => {
            let is_unknown = matches!(
                decoded,
                Err(sense) if sense.code == asc::INVALID_COMMAND_OPERATION_CODE
            );
            assert!(!is_unknown, "{cdb:02x?}");
        }
    }
}

/// The CDB usage data that REPORT SUPPORTED OPERATION CODES answers with these reporting
/// options of the command that `cdb` begins as; `None`: there is no such command.
fn reported(cdb: &[u8; 16], options: u8, unit: &Unit) -> Result<Option<Vec<u8>>, Sense> {
    let command = Command::ReportSupportedOperationCodes {
        options,
        operation_code: cdb[0],
        service_action: match options {
            0b010 => u16::from(cdb[1] & 0x1f),
            _ => 0,
        },
        timeouts: false,
        allocation_len: 64,
    };
    let mut out = Vec::new();
    let to = Addressed::Unit(unit);
    respond(&command, to, &mut Nexus::new(), &target(), &mut out)?;
    // SUPPORT 011b: as the standard has it.
    Ok((out[1] & 7 == 0b011).then(|| out.split_off(4)))
}

/// The first bit that the usage data does not have.
fn first_unused(cdb: &[u8; 16], usage: &[u8], has_action: bool) -> Option<(u16, u8)> {
    for (at, byte) in cdb.iter().enumerate().take(usage.len()).skip(1) {
        let mut used = usage[at];
        if at == 1 && has_action {
            used |= 0x1f;
        }
        let wrong = byte & !used;
        if wrong != 0 {
            return Some((at as u16, 7 - wrong.leading_zeros() as u8));
        }
    }
    None
}
