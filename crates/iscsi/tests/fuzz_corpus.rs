//! What fuzzing has reached.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use iscsi::{fuzz, testing};
use replay::replay;

#[test]
fn iscsi_login_text() {
    replay("iscsi_login_text", 10, fuzz::login_text);
}

#[test]
fn iscsi_pdu() {
    replay("iscsi_pdu", 10, fuzz::pdu);
}

#[test]
fn iscsi_target() {
    replay("iscsi_target", 10, testing::fuzz::iscsi_target);
}
