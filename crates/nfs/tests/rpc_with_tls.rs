//! The probe of RPC-with-TLS (RFC 9289, section 4.1), driven by hand.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use doubles::nfs::RpcDouble;
use machine::Machine;
use nfs::connection::*;
use testkit::nfs::call::{call_header, call_header_as, compound, cut, record};
use wire::rpc::{AUTH_NONE, AUTH_TLS, auth_stat, call_body};
use wire::xdr::Opaque;

/// A server's end that has TLS, or has not.
fn server(offers_tls: bool) -> RpcDouble {
    let settings = RpcServerSettings {
        offers_tls,
        ..RpcServerSettings::default()
    };
    RpcDouble::new(Connection::new(settings, 0))
}

fn record_of(bytes: &[u8]) -> Vec<u8> {
    record(bytes, || usize::MAX)
}

/// A probe with something changed.
fn probe_with(xid: u32, change: impl FnOnce(&mut call_body<'_>)) -> Vec<u8> {
    let bytes = call_header_as(xid, &[], |call| {
        call.proc = 0;
        call.cred.flavor = AUTH_TLS;
        change(call);
    });
    record_of(&bytes)
}

fn probe(xid: u32) -> Vec<u8> {
    probe_with(xid, |_| {})
}

/// A COMPOUND of no operations.
fn call(xid: u32) -> Vec<u8> {
    let mut bytes = call_header(xid, |_| {});
    bytes.extend(compound(&[]).0);
    record_of(&bytes)
}

/// Receives all of it, in pieces of `max` bytes.
fn receive(server: &mut RpcDouble, bytes: &[u8], max: usize) {
    let mut stream = VecDeque::from(bytes.to_vec());
    while server.receive(&mut stream, max) {}
    server.take_ops();
}

/// The answers that are ready.
fn sent(server: &mut RpcDouble) -> Vec<Vec<u8>> {
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 1);
    }
    cut(&mut out)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |word: &[u8]| u32::from_be_bytes(word.try_into().expect("four"));
    bytes.chunks(4).map(word).collect()
}

/// MSG_ACCEPTED, AUTH_NONE with eight bytes, SUCCESS.
fn starttls(xid: u32) -> Vec<u32> {
    let token = words(b"STARTTLS");
    vec![xid, 1, 0, AUTH_NONE, 8, token[0], token[1], 0]
}

/// MSG_DENIED, AUTH_ERROR.
fn denied(xid: u32, why: auth_stat) -> Vec<u32> {
    vec![xid, 1, 1, 1, why as u32]
}

#[test]
fn probe_is_answered_and_nothing_is_received_before_tls_begins() {
    for max in [1, 7, usize::MAX] {
        let mut server = server(true);
        receive(&mut server, &probe(3), max);
        assert!(server.starts_tls && server.end.machine.awaits_tls());
        let plan = server.end.machine.recv_plan();
        assert_eq!((plan.direct.is_none(), plan.stage_max), (true, 0));
        let answers = sent(&mut server);
        assert_eq!(words(&answers[0]), starttls(3));
        assert_eq!(server.end.machine.recv_plan().stage_max, 0);
        server.end.machine.tls_begun();
        assert!(!server.end.machine.awaits_tls());
        receive(&mut server, &call(4), max);
        assert_eq!(server.calls.len(), 1);
        assert_eq!(server.calls[0].1.xid, 4);
    }
}

#[test]
fn probe_is_refused_where_there_is_no_tls() {
    let mut server = server(false);
    receive(&mut server, &[probe(3), call(4)].concat(), usize::MAX);
    let answers = sent(&mut server);
    assert_eq!(words(&answers[0]), denied(3, auth_stat::AUTH_BADCRED));
    assert!(!server.starts_tls);
    assert_eq!(server.calls.len(), 1, "the connection goes on in the clear");
}

#[test]
fn call_with_the_flavor_of_probes_that_is_none_is_refused() {
    type Change = fn(&mut call_body<'_>);
    let cases: [(Change, Vec<u32>); 6] = [
        (|call| call.proc = 1, denied(9, auth_stat::AUTH_BADCRED)),
        (
            |call| call.cred.body = Opaque(&[0; 4]),
            denied(9, auth_stat::AUTH_BADCRED),
        ),
        (
            |call| call.verf.flavor = AUTH_TLS,
            denied(9, auth_stat::AUTH_BADVERF),
        ),
        (
            |call| call.verf.body = Opaque(b"STARTTLS"),
            denied(9, auth_stat::AUTH_BADVERF),
        ),
        (|call| call.vers = 2, vec![9, 1, 0, 0, 0, 2, 3, 4]),
        (|call| call.prog = 400_000, vec![9, 1, 0, 0, 0, 1]),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let mut server = server(true);
        receive(&mut server, &probe_with(9, change), usize::MAX);
        assert_eq!(words(&sent(&mut server)[0]), expected, "case {at}");
        assert!(!server.starts_tls && !server.end.machine.awaits_tls());
    }
}

#[test]
fn probe_behind_a_call_is_refused() {
    let mut server = server(true);
    receive(&mut server, &[call(1), probe(2)].concat(), usize::MAX);
    let answers = sent(&mut server);
    assert_eq!(words(&answers[0]), denied(2, auth_stat::AUTH_BADCRED));
    assert!(!server.starts_tls);
}

#[test]
fn probe_in_tls_is_refused() {
    let mut server = server(true);
    receive(&mut server, &probe(1), usize::MAX);
    sent(&mut server);
    server.end.machine.tls_begun();
    server.starts_tls = false;
    receive(&mut server, &probe(2), usize::MAX);
    let answers = sent(&mut server);
    assert_eq!(words(&answers[0]), denied(2, auth_stat::AUTH_BADCRED));
    assert!(!server.starts_tls && !server.end.machine.awaits_tls());
}

/// Another on the way could else put calls before those of the client.
#[test]
fn bytes_in_the_clear_behind_a_probe_end_the_connection_and_are_never_taken() {
    let behind = [call(2), probe(2), vec![0], b"\x16\x03\x01\x00".to_vec()];
    for (at, behind) in behind.into_iter().enumerate() {
        let mut server = server(true);
        receive(&mut server, &[probe(1), behind].concat(), usize::MAX);
        let fatal = server.fatal;
        assert_eq!(fatal, Some(RpcServerFatalError::BehindProbe), "case {at}");
        assert!(!server.end.machine.awaits_tls() && server.end.machine.is_finished());
        assert!(server.calls.is_empty(), "case {at}");
    }
}

#[test]
fn client_that_probes_and_goes_no_further_is_ended_in_time() {
    let mut server = server(true);
    receive(&mut server, &probe(1), usize::MAX);
    sent(&mut server);
    server.end.machine.tls_begun();
    let deadline = server.end.machine.deadline().expect("a call must come");
    server.end.machine.on_deadline(deadline);
    assert!(server.end.machine.is_finished());
}
