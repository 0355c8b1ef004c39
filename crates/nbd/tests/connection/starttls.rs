//! NBD_OPT_STARTTLS.

use nbd::{FatalError, NbdOp, NbdTls};
use wire::nbd::{nbd_option as option, option_reply as reply, request_type};

use crate::peer::{DISK, Peer, context_data, go_data};

#[test]
fn starttls_that_is_not_offered_is_refused_and_the_connection_goes_on() {
    let mut peer = Peer::with_tls(NbdTls::Refused);
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_POLICY);
    peer.option(option::GO, &go_data(DISK, &[]));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert!(!peer.end.machine.awaits_tls());
}

#[test]
fn tls_that_is_required_before_there_is_any_is_told_so_and_nothing_else_is_heard() {
    let mut peer = Peer::with_tls(NbdTls::Awaited);
    peer.option(option::GO, &go_data(DISK, &[]));
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_TLS_REQD);
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), [NbdOp::Refused(FatalError::TlsAwaited)]);
    let told = peer.reply();
    let words = String::from_utf8_lossy(&told.data).into_owned();
    assert_eq!(told.kind, reply::ERR_POLICY);
    assert!(words.contains("from the next start"), "{words}");
    assert!(!peer.end.machine.awaits_tls());
    peer.option(option::LIST, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_TLS_REQD);
}

#[test]
fn nothing_but_starttls_and_abort_is_heard_in_the_clear_where_tls_is_required() {
    let mut peer = Peer::with_tls(NbdTls::Required);
    for kind in [option::LIST, option::GO, option::STRUCTURED_REPLY, 77] {
        peer.option(kind, &go_data(DISK, &[]));
        assert_eq!(peer.ops(), []);
        assert_eq!(peer.reply().kind, reply::ERR_TLS_REQD, "{kind}");
    }
    peer.option(option::ABORT, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ACK);
    let mut peer = Peer::with_tls(NbdTls::Required);
    peer.option(option::EXPORT_NAME, b"disk");
    assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::TlsRequired)]);
    assert!(peer.is_finished());
}

#[test]
fn starttls_with_data_is_refused_and_one_without_is_taken_once() {
    let mut peer = Peer::with_tls(NbdTls::Required);
    peer.option(option::STARTTLS, b"x");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_INVALID);
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!((peer.reply().kind, peer.stage_max()), (reply::ACK, 0));
    assert!(peer.end.machine.awaits_tls());
    peer.end.machine.tls_begun();
    assert!(peer.stage_max() > 0);
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ERR_INVALID);
    peer.option(option::LIST, b"");
    assert_eq!(peer.ops(), [NbdOp::List]);
}

#[test]
fn bytes_in_the_clear_behind_starttls_end_the_connection() {
    let mut peer = Peer::with_tls(NbdTls::Offered);
    peer.option(option::STARTTLS, b"");
    peer.option(option::LIST, b"");
    assert_eq!(peer.ops(), [NbdOp::Fatal(FatalError::BehindStartTls)]);
    assert!(peer.is_finished() && !peer.end.machine.awaits_tls());
}

#[test]
fn options_negotiated_before_starttls_count_no_more() {
    let mut peer = Peer::with_tls(NbdTls::Offered);
    peer.option(option::STRUCTURED_REPLY, b"");
    let contexts = context_data(DISK, &["base:allocation"]);
    peer.option(option::SET_META_CONTEXT, &contexts);
    let mut ops = peer.ops();
    if ops.is_empty() {
        let _ = peer.sent();
        ops = peer.ops();
    }
    assert_eq!(ops, [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(false));
    let _ = peer.sent();
    peer.option(option::STARTTLS, b"");
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.reply().kind, reply::ACK);
    peer.end.machine.tls_begun();
    peer.option(option::GO, &go_data(DISK, &[]));
    assert_eq!(peer.ops(), [NbdOp::Find]);
    assert_eq!(peer.find(true), Ok(true));
    let _ = peer.sent();
    // Replies are simple again, and no context is selected.
    peer.request(request_type::BLOCK_STATUS, 0, 9, (0, 512));
    assert_eq!(peer.ops(), []);
    assert_eq!(peer.error(), (22, 9));
}
