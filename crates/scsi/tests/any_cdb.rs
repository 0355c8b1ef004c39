//! CDBs of any bytes are decoded as REPORT SUPPORTED OPERATION CODES tells.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use doubles::fuzz::scsi_cdb;
use proptest::prelude::*;

/// The first two bytes of each command.
static COMMANDS: LazyLock<Vec<[u8; 2]>> = LazyLock::new(|| {
    let mut commands = BTreeMap::new();
    for opcode in 0..=u8::MAX {
        for action in 0..32 {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1]) = (opcode, action);
            if let Some(name) = scsi::name(&cdb) {
                commands.entry(name).or_insert([opcode, action]);
            }
        }
    }
    commands.into_values().collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_decoded_as_they_are_reported(input in proptest::collection::vec(any::<u8>(), 17..96)) {
        scsi_cdb(&input);
    }

    /// The same with operation codes that there are and few bits set.
    #[test]
    fn any_cdb_of_a_known_command_is_decoded_as_it_is_reported(
        config in any::<u8>(),
        command in 0..COMMANDS.len(),
        flips in proptest::collection::vec((1..16usize, 0..8u8), 0..6),
        list in proptest::collection::vec(any::<u8>(), 0..128),
    ) {
        let mut input = vec![0; 17];
        input[0] = config;
        input[1..3].copy_from_slice(&COMMANDS[command]);
        for (at, bit) in flips {
            input[1 + at] ^= 1 << bit;
        }
        input.extend_from_slice(&list);
        scsi_cdb(&input);
    }
}
