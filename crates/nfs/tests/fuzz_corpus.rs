//! What fuzzing has reached.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn nfs_connection() {
    replay("nfs_connection", 10, nfs::testing::fuzz);
}
