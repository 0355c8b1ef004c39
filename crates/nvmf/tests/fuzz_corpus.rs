//! What fuzzing has reached.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use nvmf::tcp::testing::fuzz;
use replay::replay;

#[test]
fn nvme_tcp_pdu() {
    replay("nvme_tcp_pdu", 10, fuzz::pdu);
}

#[test]
fn nvme_tcp_controller() {
    replay("nvme_tcp_controller", 10, fuzz::controller);
}

#[test]
fn nvme_tcp_host() {
    replay("nvme_tcp_host", 10, fuzz::host);
}
