//! What fuzzing has reached.

#![forbid(unsafe_code)]

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn scsi_cdb() {
    replay("scsi_cdb", 30, scsi::testing::fuzz_cdb);
}
