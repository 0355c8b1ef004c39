//! RPCSEC_GSS on connections of a server, driven by hand with a mechanism that proves
//! nothing.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use doubles::gss::{GssClient, SERVICES, ServerCall};
use doubles::nfs::RpcDouble;
use machine::Machine as _;
use nfs::connection::{CallBack, Connection, Flavor, RpcServerSettings, Stop};
use nfs::gss::{Contexts, ContextsSettings, major};
use nfs::server::{CallbackHandles, CallbackWay, Secret};
use proptest::prelude::*;
use random::Random;
use testkit::nfs::call::{CompoundPart, call_header, compound, cut, record, write3};
use wire::nfs3::{NFS_V3, nfs_proc3};
use wire::nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND};
use wire::rpc::{
    RPCSEC_GSS, RPCSEC_GSS_MAXSEQ, accept_stat, accepted_body, auth_stat, rpc_gss_service_t,
};
use wire::xdr::Opaque;

const SECOND: u64 = 1_000_000_000;
/// When contexts end, unless a test says otherwise.
const LATE_S: u64 = 1000;
/// Of a client.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
const COMPOUND: (u32, u32, u32) = (NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND);
const NONE: rpc_gss_service_t = SERVICES[0];
const INTEGRITY: rpc_gss_service_t = SERVICES[1];
const PRIVACY: rpc_gss_service_t = SERVICES[2];

fn contexts(settings: ContextsSettings) -> Arc<Contexts> {
    Arc::new(Contexts::new(settings, Secret([7; 16])))
}

fn connection(contexts: &Arc<Contexts>) -> RpcDouble {
    let machine = Connection::new(RpcServerSettings::default(), 0);
    RpcDouble::with_contexts(machine, contexts.clone())
}

fn server() -> RpcDouble {
    connection(&contexts(ContextsSettings::default()))
}

/// A record arrives in pieces of at most `max` bytes: what is answered at once.
fn say(server: &mut RpcDouble, bytes: &[u8], max: usize) -> Vec<Vec<u8>> {
    let mut stream: VecDeque<u8> = record(bytes, || usize::MAX).into();
    while server.receive(&mut stream, max) {}
    server.take_ops();
    sent(server)
}

fn sent(server: &mut RpcDouble) -> Vec<Vec<u8>> {
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 1);
    }
    cut(&mut out)
}

fn one(mut answers: Vec<Vec<u8>>) -> Vec<u8> {
    assert_eq!(answers.len(), 1, "one call, one answer");
    answers.remove(0)
}

/// A client with a context of this name.
fn client(server: &mut RpcDouble, name: &str) -> GssClient {
    client_until(server, name, LATE_S)
}

fn client_until(server: &mut RpcDouble, name: &str, expires_at_s: u64) -> GssClient {
    let mut client = GssClient::new(name, expires_at_s);
    let answer = one(say(server, &client.init(1), usize::MAX));
    assert_eq!(client.take_init(&answer), (major::COMPLETE, 0));
    client
}

/// What a call that is not let in is answered with.
fn denied(why: auth_stat) -> Vec<u8> {
    [1, 1, why as u32].map(u32::to_be_bytes).concat()
}

fn numbered((program, version, procedure): (u32, u32, u32), xid: u32) -> (u32, u32, u32, u32) {
    (xid, program, version, procedure)
}

fn small() -> Vec<u8> {
    compound(&[
        CompoundPart::Put(vec![1; 9]),
        CompoundPart::Getattr(vec![3]),
    ])
    .0
}

#[test]
fn context_is_made_by_as_many_tokens_as_its_mechanism_wants() {
    let mut server = server();
    let fast = client(&mut server, "user7@TEST");
    assert_eq!(fast.handle.len(), 16);
    let mut slow = GssClient::new("slow@TEST", LATE_S);
    let answer = one(say(&mut server, &slow.init(2), 3));
    assert_eq!(slow.take_init(&answer), (major::CONTINUE_NEEDED, 0));
    let first = slow.handle.clone();
    let answer = one(say(&mut server, &slow.init(3), usize::MAX));
    assert_eq!(slow.take_init(&answer), (major::COMPLETE, 0));
    let again = GssClient {
        handle: first,
        ..slow.clone()
    };
    let answer = one(say(&mut server, &again.init(4), usize::MAX));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
    assert_ne!(fast.handle, slow.handle);
}

#[test]
fn token_that_is_refused_is_answered_with_the_status_of_the_mechanism() {
    let mut server = server();
    let mut bad = GssClient::new("bad@TEST", LATE_S);
    let answer = one(say(&mut server, &bad.init(2), usize::MAX));
    assert_eq!(bad.take_init(&answer), (major::FAILURE, 77));
    assert!(bad.handle.is_empty(), "there is no context");
}

#[test]
fn call_is_as_without_gss_with_every_service() {
    for service in SERVICES {
        let mut server = server();
        let mut client = client(&mut server, "user7@TEST");
        let args = small();
        let call = client.call(numbered(COMPOUND, 5), &args, service);
        assert!(say(&mut server, &call, usize::MAX).is_empty());
        let (tag, seen) = server.calls[0].clone();
        assert_eq!((seen.xid, &seen.args, seen.ops), (5, &args, (2, Stop::End)));
        let call = server.end.machine.call(tag);
        assert_eq!(call.record_bytes as usize, args.len());
        let credential = call.credential.clone();
        assert_eq!((credential.uid, credential.gid), (7, 7));
        assert_eq!(credential.flavor.service(), Some(service));
        server.answer(0, &[]);
        let answer = one(sent(&mut server));
        let (status, results) = client.open(&answer, 1, service).expect("let in");
        assert_eq!(status, accepted_body::default(accept_stat::SUCCESS));
        assert_eq!(results, args, "{service:?}");
    }
}

#[test]
fn call_that_does_nothing_is_answered_with_every_service() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    for (service, number) in SERVICES.into_iter().zip(1..) {
        let call = client.call((9, NFS4_PROGRAM, NFS_V4, 0), &[], service);
        let answer = one(say(&mut server, &call, 5));
        let (_, results) = client.open(&answer, number, service).expect("let in");
        assert!(results.is_empty());
    }
}

#[test]
fn error_of_rpc_in_a_context_has_its_verifier_and_no_results() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    for (service, number) in SERVICES.into_iter().zip(1..) {
        let call = client.call((9, NFS4_PROGRAM, NFS_V4, 2), &[0; 4], service);
        let answer = one(say(&mut server, &call, usize::MAX));
        let (status, _) = client.open(&answer, number, service).expect("let in");
        assert_eq!(status, accepted_body::default(accept_stat::PROC_UNAVAIL));
    }
}

#[test]
fn credential_that_is_none_is_refused_with_the_status_of_the_standard() {
    let mut server = server();
    let init = GssClient::new("user7@TEST", LATE_S).init(1);
    // The credential begins behind xid, type and four words of the call, its flavor and
    // its length: version, procedure, number, service, length of the handle.
    let body = 32;
    let cases: [(usize, u8, auth_stat); 6] = [
        (body + 3, 2, auth_stat::AUTH_REJECTEDCRED),
        (body + 7, 4, auth_stat::AUTH_BADCRED),
        (body + 15, 0, auth_stat::AUTH_BADCRED),
        (body + 19, 1, auth_stat::AUTH_BADCRED),
        // A token goes on with no context.
        (body + 7, 2, auth_stat::AUTH_BADCRED),
        // The procedure does something.
        (23, 1, auth_stat::AUTH_BADCRED),
    ];
    for (at, value, why) in cases {
        let mut bytes = init.clone();
        bytes[at] = value;
        let answer = one(say(&mut server, &bytes, usize::MAX));
        assert_eq!(answer[8..], denied(why), "{value} at {at}");
    }
    let answer = one(say(&mut server, &init[..init.len() - 4], usize::MAX));
    assert_eq!(
        answer[20..24],
        (accept_stat::GARBAGE_ARGS as u32).to_be_bytes()
    );
}

#[test]
fn connection_without_contexts_takes_no_call_by_gss() {
    let machine = Connection::new(RpcServerSettings::default(), 0);
    let mut server = RpcDouble::new(machine);
    let init = GssClient::new("user7@TEST", LATE_S).init(1);
    let answer = one(say(&mut server, &init, usize::MAX));
    assert_eq!(answer[8..], denied(auth_stat::AUTH_BADCRED));
}

#[test]
fn call_without_a_context_or_its_checksum_is_not_executed() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let mut other = GssClient {
        handle: client.handle.clone(),
        ..GssClient::new("user8@TEST", LATE_S)
    };
    let mut lost = client.clone();
    lost.handle[15] ^= 1;
    let bare = call_header(3, |call| {
        call.cred.flavor = RPCSEC_GSS;
        call.cred.body = Opaque(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
    });
    for call in [
        other.call(numbered(COMPOUND, 3), &small(), NONE),
        lost.call(numbered(COMPOUND, 3), &small(), NONE),
        bare,
    ] {
        let answer = one(say(&mut server, &call, usize::MAX));
        assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
    }
    assert!(server.calls.is_empty());
    say(
        &mut server,
        &client.call(numbered(COMPOUND, 4), &small(), NONE),
        1,
    );
    assert_eq!(server.calls.len(), 1, "its number was not taken by another");
}

#[test]
fn bit_that_is_flipped_on_the_way_keeps_a_protected_call_from_being_executed() {
    for service in [INTEGRITY, PRIVACY] {
        let contexts = contexts(ContextsSettings::default());
        let mut client = client(&mut connection(&contexts), "user7@TEST");
        let len = client
            .clone()
            .call(numbered(COMPOUND, 3), &small(), service)
            .len();
        for bit in 0..len * 8 {
            let mut call = client.call(numbered(COMPOUND, 3), &small(), service);
            call[bit / 8] ^= 1 << (bit % 8);
            let mut server = connection(&contexts);
            say(&mut server, &call, usize::MAX);
            assert!(server.calls.is_empty(), "bit {bit} with {service:?}");
        }
        let mut server = connection(&contexts);
        say(
            &mut server,
            &client.call(numbered(COMPOUND, 3), &small(), service),
            9,
        );
        assert_eq!(server.calls.len(), 1, "the context is good still");
    }
}

#[test]
fn bit_that_is_flipped_in_a_header_keeps_its_call_from_being_executed() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let whole = client.clone().call(numbered(COMPOUND, 3), &small(), NONE);
    for bit in 0..(whole.len() - small().len()) * 8 {
        let mut call = client.call(numbered(COMPOUND, 3), &small(), NONE);
        call[bit / 8] ^= 1 << (bit % 8);
        say(&mut server, &call, usize::MAX);
        assert!(server.calls.is_empty(), "bit {bit}");
    }
}

/// The arguments of one call are not taken for those of another one.
#[test]
fn protected_arguments_of_another_call_are_garbage() {
    for service in [INTEGRITY, PRIVACY] {
        let mut server = server();
        let mut client = client(&mut server, "user7@TEST");
        let first = client.call(numbered(COMPOUND, 3), &small(), service);
        let second = client.call(numbered(COMPOUND, 4), &small(), service);
        // The header ends with the checksum of 16 bytes.
        let header = 32 + 36 + 8 + 16;
        let mixed = [&first[..header], &second[header..]].concat();
        let answer = one(say(&mut server, &mixed, usize::MAX));
        let (status, _) = client
            .open(&answer, 1, service)
            .expect("its header is right");
        assert_eq!(status, accepted_body::default(accept_stat::GARBAGE_ARGS));
        assert!(server.calls.is_empty());
    }
}

#[test]
fn call_that_comes_again_or_is_below_the_window_is_not_answered() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    client.number = 1000;
    let at = |client: &GssClient, server: &mut RpcDouble, number: u32| {
        let mut client = GssClient {
            number,
            ..client.clone()
        };
        let call = client.call(numbered(COMPOUND, 3), &small(), PRIVACY);
        let before = server.calls.len();
        assert!(
            say(server, &call, usize::MAX).is_empty(),
            "no answer to {number}"
        );
        server.calls.len() > before
    };
    assert!(at(&client, &mut server, 1000));
    assert!(!at(&client, &mut server, 1000), "again");
    assert!(at(&client, &mut server, 745), "256 are remembered");
    assert!(!at(&client, &mut server, 744), "and no more");
    assert!(at(&client, &mut server, 1001));
    assert!(!at(&client, &mut server, 745), "the window has moved");
    assert_eq!(server.end.machine.executing(), 3);
}

#[test]
fn call_that_comes_again_on_another_connection_is_not_answered() {
    let contexts = contexts(ContextsSettings::default());
    let (mut first, mut second) = (connection(&contexts), connection(&contexts));
    let mut client = client(&mut first, "user7@TEST");
    for service in SERVICES {
        let call = client.call(numbered(COMPOUND, 3), &small(), service);
        say(&mut first, &call, usize::MAX);
        assert!(say(&mut second, &call, usize::MAX).is_empty());
        assert!(second.calls.is_empty(), "{service:?}");
    }
    assert_eq!(first.calls.len(), SERVICES.len());
}

#[test]
fn number_far_ahead_moves_the_window_past_all_before_it() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let mut is_taken = |number| {
        client.number = number;
        let before = server.calls.len();
        let call = client.call(numbered(COMPOUND, 3), &small(), INTEGRITY);
        assert!(say(&mut server, &call, usize::MAX).is_empty());
        server.calls.len() > before
    };
    let far = RPCSEC_GSS_MAXSEQ - 1000;
    let numbers = [
        5,
        far,
        6,
        far - 256,
        far - 255,
        far - 255,
        far - 1,
        far + 512,
        far + 1,
    ];
    let taken = [true, true, false, false, true, false, true, true, false];
    assert_eq!(numbers.map(&mut is_taken), taken);
}

/// RFC 2203, section 5.3.3.4.2.
#[test]
fn body_of_another_service_or_with_wrong_lengths_is_garbage() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    // The header ends with the checksum of 16 bytes.
    let header = 32 + 36 + 8 + 16;
    for (says, has) in [
        (INTEGRITY, PRIVACY),
        (PRIVACY, INTEGRITY),
        (INTEGRITY, NONE),
        (PRIVACY, NONE),
    ] {
        let number = client.number;
        let body = client.clone().call(numbered(COMPOUND, 3), &small(), has);
        let call = client.call(numbered(COMPOUND, 3), &small(), says);
        let mixed = [&call[..header], &body[header..]].concat();
        garbage(&mut server, &mut client, (number, says), &mixed);
    }
    /// What is done to a body, and what remains of it.
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 6] = [
        ("nothing", |body| body.clear()),
        ("no more than a length", |body| body.truncate(4)),
        ("an end that is missing", |body| {
            body.truncate(body.len() - 4)
        }),
        ("bytes behind it", |body| body.extend([0; 4])),
        ("a length beyond it", |body| body[..4].fill(0x7f)),
        ("a length of 0", |body| body[..4].fill(0)),
    ];
    for (what, damage) in damages {
        for service in [INTEGRITY, PRIVACY] {
            let number = client.number;
            let call = client.call(numbered(COMPOUND, 3), &small(), service);
            let mut body = call[header..].to_vec();
            damage(&mut body);
            let damaged = [&call[..header], &body].concat();
            garbage(&mut server, &mut client, (number, service), &damaged);
            assert!(server.calls.is_empty(), "{what}, {service:?}");
        }
    }
}

/// A call is answered as one whose arguments cannot be read, and not executed.
fn garbage(
    server: &mut RpcDouble,
    client: &mut GssClient,
    (number, service): (u32, rpc_gss_service_t),
    call: &[u8],
) {
    let answer = one(say(server, call, usize::MAX));
    let opened = client.open(&answer, number, service);
    let (status, _) = opened.expect("its header is right");
    assert_eq!(status, accepted_body::default(accept_stat::GARBAGE_ARGS));
    assert!(server.calls.is_empty());
}

#[test]
fn context_is_destroyed_by_its_own_client_alone() {
    let contexts = contexts(ContextsSettings::default());
    let mut server = connection(&contexts);
    let mut client = client(&mut server, "user7@TEST");
    let mut other = GssClient {
        handle: client.handle.clone(),
        ..GssClient::new("user8@TEST", LATE_S)
    };
    let problem = denied(auth_stat::RPCSEC_GSS_CREDPROBLEM);
    let destroy = other.destroy(4);
    assert_eq!(one(say(&mut server, &destroy, usize::MAX))[8..], problem);
    // One whose number was here before is not even answered.
    let ping = client.call((9, NFS4_PROGRAM, NFS_V4, 0), &[], NONE);
    one(say(&mut server, &ping, usize::MAX));
    client.number = 1;
    let again = client.destroy(5);
    assert!(say(&mut server, &again, usize::MAX).is_empty());
    assert_eq!(contexts.len(), 1);
    let destroy = client.destroy(6);
    one(say(&mut server, &destroy, usize::MAX));
    assert!(contexts.is_empty());
    // What was said before is of no context now.
    assert_eq!(one(say(&mut server, &ping, usize::MAX))[8..], problem);
    assert_eq!(one(say(&mut server, &destroy, usize::MAX))[8..], problem);
}

#[test]
fn sequence_numbers_end() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    client.number = RPCSEC_GSS_MAXSEQ - 1;
    say(
        &mut server,
        &client.call(numbered(COMPOUND, 3), &small(), NONE),
        8,
    );
    assert_eq!(server.calls.len(), 1);
    let call = client.call(numbered(COMPOUND, 3), &small(), NONE);
    let answer = one(say(&mut server, &call, 8));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CTXPROBLEM));
}

#[test]
fn context_that_is_destroyed_takes_no_call_and_answers_those_under_way() {
    let contexts = contexts(ContextsSettings::default());
    let (mut server, mut second) = (connection(&contexts), connection(&contexts));
    let mut client = client(&mut server, "user7@TEST");
    say(
        &mut server,
        &client.call(numbered(COMPOUND, 3), &small(), PRIVACY),
        8,
    );
    let destroy = client.destroy(4);
    let answer = one(say(&mut second, &destroy, 8));
    client.open(&answer, 2, NONE).expect("its header is right");
    assert!(contexts.is_empty());
    server.answer(0, &[]);
    let answer = one(sent(&mut server));
    client.open(&answer, 1, PRIVACY).expect("it was let in");
    let call = client.call(numbered(COMPOUND, 5), &small(), PRIVACY);
    let answer = one(say(&mut server, &call, 8));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
    let answer = one(say(&mut second, &client.destroy(6), 8));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn contexts_that_are_cleared_take_no_call() {
    let contexts = contexts(ContextsSettings::default());
    let mut server = connection(&contexts);
    let mut client = client(&mut server, "user7@TEST");
    contexts.clear();
    assert!(contexts.is_empty());
    let call = client.call(numbered(COMPOUND, 3), &small(), PRIVACY);
    let answer = one(say(&mut server, &call, 8));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
}

#[test]
fn context_ends_with_its_ticket() {
    let contexts = contexts(ContextsSettings::default());
    let mut server = connection(&contexts);
    let mut client = client_until(&mut server, "user7@TEST", 60);
    server.end.now = 60 * SECOND - 1;
    say(
        &mut server,
        &client.call(numbered(COMPOUND, 3), &small(), NONE),
        8,
    );
    assert_eq!(server.calls.len(), 1);
    server.end.now = 60 * SECOND;
    let call = client.call(numbered(COMPOUND, 3), &small(), NONE);
    let answer = one(say(&mut server, &call, 8));
    assert_eq!(answer[8..], denied(auth_stat::RPCSEC_GSS_CREDPROBLEM));
    assert!(contexts.is_empty());
}

#[test]
fn context_is_used_on_several_connections() {
    let contexts = contexts(ContextsSettings::default());
    let (mut server, mut second) = (connection(&contexts), connection(&contexts));
    let mut client = client(&mut server, "user7@TEST");
    let first = client.call(numbered(COMPOUND, 3), &small(), NONE);
    say(
        &mut second,
        &client.call(numbered(COMPOUND, 3), &small(), NONE),
        8,
    );
    say(&mut server, &first, 8);
    assert!(say(&mut second, &first, 8).is_empty());
    assert_eq!((server.calls.len(), second.calls.len()), (1, 1));
}

#[test]
fn principals_share_a_connection_and_are_told_apart() {
    let mut server = server();
    let mut names = [
        client(&mut server, "user7@TEST"),
        client(&mut server, "user8@TEST"),
        client(&mut server, "host/one@TEST"),
        client(&mut server, "user7@OTHER"),
    ];
    for client in &mut names {
        say(
            &mut server,
            &client.call(numbered(COMPOUND, 3), &small(), NONE),
            8,
        );
    }
    let calls = server.calls.iter();
    let said: Vec<_> = calls
        .map(|(tag, _)| server.end.machine.call(*tag).credential.clone())
        .collect();
    assert_eq!((said[0].uid, said[1].uid, said[3].uid), (7, 8, 7));
    assert!(said[2].is_unknown && !said[0].is_unknown);
    let principals: std::collections::HashSet<u128> =
        said.iter().map(|said| said.principal).collect();
    assert_eq!(principals.len(), 4);
    assert!(said.iter().all(|said| said.flavor == Flavor::Krb5));
}

#[test]
fn context_that_is_idle_longest_goes_when_its_host_has_too_many() {
    let contexts = contexts(ContextsSettings {
        contexts_max: 3,
        contexts_of_host_max: 2,
        ..ContextsSettings::default()
    });
    let mut server = connection(&contexts);
    let mut all = Vec::new();
    for number in 0..3u64 {
        server.end.now = number * 10 * SECOND;
        all.push(client(&mut server, &format!("user{number}@TEST")));
        assert!(contexts.len() <= 2);
        if number == 1 {
            server.end.now += 5 * SECOND;
            say(
                &mut server,
                &all[0].call(numbered(COMPOUND, 3), &small(), NONE),
                8,
            );
        }
    }
    let mut is_good = |client: &mut GssClient| {
        let call = client.call((9, NFS4_PROGRAM, NFS_V4, 0), &[], NONE);
        let answer = one(say(&mut server, &call, 8));
        client.open(&answer, client.number - 1, NONE).is_ok()
    };
    assert!(is_good(&mut all[0]), "it was used since");
    assert!(!is_good(&mut all[1]), "it was idle longest");
    assert!(is_good(&mut all[2]));
    // Other hosts have theirs, as far as there is room for all.
    let other = |name: &str, host, now| {
        let token = doubles::gss::token_of(name, LATE_S);
        doubles::gss::accept(&contexts, (None, &token), (host, now)).expect("it begins");
    };
    other("user8@TEST", 2, 40 * SECOND);
    assert_eq!(contexts.len(), 3);
    other("user9@TEST", 3, 41 * SECOND);
    assert_eq!(contexts.len(), 3);
}

/// A call in the context of a client is answered, and tells that its client has the key.
fn proves(server: &mut RpcDouble, client: &mut GssClient) -> bool {
    let call = client.call((9, NFS4_PROGRAM, NFS_V4, 0), &[], NONE);
    let answer = one(say(server, &call, 8));
    client.open(&answer, client.number - 1, NONE).is_ok()
}

/// A client on another host, with a context that was made in that second.
fn client_on(contexts: &Contexts, (host, second): (u64, u64), name: &str) -> GssClient {
    let mut client = GssClient::new(name, LATE_S);
    let token = doubles::gss::token_of(name, LATE_S);
    let made = doubles::gss::accept(contexts, (None, &token), (host, second * SECOND));
    client.handle = made.expect("it begins").handle;
    client
}

#[test]
fn token_that_is_sent_again_takes_the_place_of_no_context_whose_client_has_the_key() {
    let contexts = contexts(ContextsSettings {
        contexts_max: 4,
        contexts_of_host_max: 3,
        ..ContextsSettings::default()
    });
    let mut server = connection(&contexts);
    let mut proven = [1, 2].map(|host| client_on(&contexts, (host, host), "user7@TEST"));
    for client in &mut proven {
        assert!(proves(&mut server, client));
    }
    // From the address of one of them, from another, and from many.
    for (host, second) in [1, 3, 1, 3, 3, 3, 4, 5, 6, 7, 8].into_iter().zip(10..) {
        client_on(&contexts, (host, second), "user7@TEST");
        assert!(contexts.len() <= 4);
    }
    server.end.now = 30 * SECOND;
    for client in &mut proven {
        assert!(proves(&mut server, client), "it was idle longest");
    }
}

#[test]
fn newcomer_without_a_call_stays_where_another_host_has_filled_the_table() {
    let contexts = contexts(ContextsSettings {
        contexts_max: 4,
        contexts_of_host_max: 3,
        ..ContextsSettings::default()
    });
    let mut server = connection(&contexts);
    for second in 0..3 {
        let mut client = client_on(&contexts, (1, second), "user7@TEST");
        assert!(proves(&mut server, &mut client));
    }
    let mut newcomer = client_on(&contexts, (2, 10), "user7@TEST");
    client_on(&contexts, (3, 11), "user7@TEST");
    assert!(proves(&mut server, &mut newcomer));
}

#[test]
fn token_identifies_no_connection_and_a_call_in_its_context_does() {
    let mut server = server();
    server.end.machine.set_let_in(true);
    let mut client = client(&mut server, "user7@TEST");
    assert!(!server.end.machine.is_identified());
    let call = client.call(numbered(COMPOUND, 3), &small(), NONE);
    say(&mut server, &call, usize::MAX);
    assert!(server.end.machine.is_identified());
}

#[test]
fn host_with_most_contexts_makes_room_for_another() {
    let contexts = contexts(ContextsSettings {
        contexts_max: 4,
        contexts_of_host_max: 3,
        ..ContextsSettings::default()
    });
    let mut server = connection(&contexts);
    let hosts = [(1, 0), (2, 10), (2, 11), (2, 12), (3, 13)];
    let mut all = hosts.map(|from| {
        let mut client = client_on(&contexts, from, "user7@TEST");
        server.end.now = from.1 * SECOND;
        assert!(proves(&mut server, &mut client));
        client
    });
    let are_there = [0, 1, 2, 3, 4].map(|at| {
        let call = all[at].call((9, NFS4_PROGRAM, NFS_V4, 0), &[], NONE);
        let answer = one(say(&mut server, &call, 8));
        answer[8..] != denied(auth_stat::RPCSEC_GSS_CREDPROBLEM)
    });
    assert_eq!(are_there, [true, false, true, true, true]);
}

#[test]
fn unfinished_contexts_are_bounded_and_end() {
    let contexts = contexts(ContextsSettings {
        unfinished_max: 2,
        ..ContextsSettings::default()
    });
    let begin = |now| {
        let token = doubles::gss::token_of("slow@TEST", LATE_S);
        let answer = doubles::gss::accept(&contexts, (None, &token), (1, now));
        answer.expect("it begins").handle
    };
    let handles = [begin(0), begin(0), begin(0)];
    assert!(contexts.take_unfinished(Some(&handles[0])).is_none());
    assert!(contexts.take_unfinished(Some(&handles[2])).is_some());
    let late = begin(31 * SECOND);
    assert!(contexts.take_unfinished(Some(&handles[1])).is_none());
    assert!(contexts.take_unfinished(Some(&late)).is_some());
    assert!(contexts.take_unfinished(Some(&[0; 16])).is_none());
}

/// How the server calls a client in the context that they have, by this handle of the client's.
fn calls(client: &GssClient, service: rpc_gss_service_t, there: &[u8]) -> CallBack {
    CallBack {
        way: CallbackWay::Gss(Arc::new(CallbackHandles {
            service,
            here: client.handle.clone().into(),
            there: there.into(),
        })),
        ..(CALLBACK_PROGRAM, 1, 1).into()
    }
}

/// Calls the client: its identifier, and the record.
fn call_back(server: &mut RpcDouble, how: CallBack, args: &[u8]) -> (u32, Vec<u8>) {
    let made = (server.end.machine).call_back(how, |to| to.extend_from_slice(args));
    (made.expect("it is made"), one(sent(server)))
}

/// What the driver reads of an answer to a callback: its status and results.
fn answered(server: &mut RpcDouble, record: &[u8]) -> Vec<u8> {
    assert!(say(server, record, 7).is_empty());
    server.answers.pop().expect("it is awaited").1
}

#[test]
fn callback_is_in_the_context_and_by_the_service_that_the_client_names() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let results = [7; 20];
    for (service, number) in SERVICES.into_iter().zip(1..) {
        let how = calls(&client, service, b"the client's own");
        let (xid, record) = call_back(&mut server, how, &[3; 12]);
        let call = client.called(&record);
        assert_eq!((call.xid, call.number), (xid, number), "the next number");
        assert_eq!(
            (call.service, &call.handle[..]),
            (service, &b"the client's own"[..])
        );
        assert_eq!(call.args, [3; 12]);
        let answer = client.answer_called(&call, &results);
        let read = answered(&mut server, &answer);
        assert_eq!(read[read.len() - results.len()..], results, "{service:?}");
        assert_eq!(read[..4], [0; 4], "it was accepted");
    }
    // The numbers of the client's own calls are others.
    assert_eq!(client.number, 1);
    let call = client.call((9, NFS4_PROGRAM, NFS_V4, 0), &[], NONE);
    one(say(&mut server, &call, usize::MAX));
}

#[test]
fn answer_to_a_callback_that_the_client_has_not_protected_for_it_is_empty() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let other = &mut GssClient::new("user8@TEST", LATE_S);
    for service in SERVICES {
        let mut answer_of = |change: &mut dyn FnMut(&mut GssClient, &mut ServerCall) -> Vec<u8>| {
            let (_, record) = call_back(&mut server, calls(&client, service, b"c"), &[3; 12]);
            let mut call = client.called(&record);
            let answer = change(&mut client, &mut call);
            answered(&mut server, &answer)
        };
        let right = answer_of(&mut |client, call| client.answer_called(call, &[1; 8]));
        assert!(!right.is_empty());
        let of_another = answer_of(&mut |_, call| other.answer_called(call, &[1; 8]));
        assert!(of_another.is_empty(), "{service:?}");
        let of_another_call = answer_of(&mut |client, call| {
            call.number += 1;
            client.answer_called(call, &[1; 8])
        });
        assert!(of_another_call.is_empty(), "{service:?}");
        let changed = answer_of(&mut |client, call| {
            let mut answer = client.answer_called(call, &[1; 8]);
            let last = answer.len() - 4;
            answer[last] ^= 1;
            answer
        });
        assert_eq!(changed.is_empty(), service != NONE, "{service:?}");
        let plain = answer_of(&mut |_, call| {
            let words = [call.xid, 1, 0, 0, 0, 0, 0, 0];
            words.map(u32::to_be_bytes).concat()
        });
        assert!(plain.is_empty(), "{service:?}");
    }
}

#[test]
fn client_whose_context_is_gone_is_not_called_in_it() {
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let how = calls(&client, INTEGRITY, b"c");
    let destroy = client.destroy(9);
    one(say(&mut server, &destroy, usize::MAX));
    let made = server.end.machine.call_back(how, |_| {});
    assert_eq!(made, None);
    // Another way is there still.
    let made = (server.end.machine).call_back((CALLBACK_PROGRAM, 1, 1), |_| {});
    assert!(made.is_some());
}

#[test]
fn protected_write_and_read_are_as_large_as_others() {
    let data: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 3) as u8).collect();
    for service in SERVICES {
        let mut server = server();
        let mut client = client(&mut server, "user7@TEST");
        let parts = [
            CompoundPart::Put(vec![5; 9]),
            CompoundPart::Write(77, data.clone()),
            CompoundPart::Getattr(vec![3]),
        ];
        let (args, rest) = compound(&parts);
        let call = client.call(numbered(COMPOUND, 3), &args, service);
        say(&mut server, &call, 100_000);
        let (_, seen) = &server.calls[0];
        assert_eq!((seen.ops, seen.data.len()), ((3, Stop::End), 1));
        assert!(seen.data[0].as_ref() == Some(&data), "{service:?}");
        assert_eq!(server.places[0], (77, Some(vec![5; 9])));
        server.answer(0, std::slice::from_ref(&data));
        let answer = one(sent(&mut server));
        let (_, results) = client.open(&answer, 1, service).expect("let in");
        let expected = [&rest[..], &(data.len() as u32).to_be_bytes(), &data].concat();
        assert!(results == expected, "{service:?}");
    }
}

#[test]
fn protected_write_of_version_3_is_placed_as_another() {
    let (wire, rest) = write3(0, &[9; 12], 40, &[3; 9001]);
    let args = &wire[wire.len() - rest.len() - 9004..];
    for service in [INTEGRITY, PRIVACY] {
        let mut server = server();
        let mut client = client(&mut server, "user7@TEST");
        let write = (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_WRITE as u32);
        let call = client.call(numbered(write, 3), args, service);
        say(&mut server, &call, 1000);
        let (_, seen) = &server.calls[0];
        assert_eq!((&seen.args, seen.ops), (&rest, (1, Stop::End)));
        assert_eq!(seen.data, [Some(vec![3; 9001])]);
        assert_eq!(server.places, [(40, Some(vec![9; 12]))]);
    }
}

#[test]
fn large_protected_call_waits_for_memory_before_it_is_received() {
    let args = compound(&[
        CompoundPart::Lookup(vec![1; 200]),
        CompoundPart::Raw(vec![0; 9000]),
    ]);
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    server.starves = true;
    let call = client.call(numbered(COMPOUND, 3), &args.0, PRIVACY);
    let len = call.len();
    say(&mut server, &call, 1000);
    let (_, bytes) = server.starved_args.expect("it asks");
    assert!(bytes as usize >= len, "{bytes} for {len}");
    let plan = server.end.machine.recv_plan();
    assert_eq!((plan.direct, plan.stage_max), (None, 0));
    server.starves = false;
    server.feed(true);
    server.take_ops();
    assert!(server.calls.is_empty(), "the rest has not come");
}

/// Calls with random operations, in random fragments and receives, with every service.
fn any_calls(seed: u64) {
    let mut random = Random::new(seed);
    let mut server = server();
    let mut client = client(&mut server, "user7@TEST");
    let mut stream = VecDeque::new();
    let mut expected = Vec::new();
    for xid in 0..1 + random.below(5) as u32 {
        let parts: Vec<CompoundPart> = (0..random.below(5))
            .map(|_| match random.below(3) {
                0 => CompoundPart::Put(vec![xid as u8; random.below(20) as usize]),
                1 => CompoundPart::Getattr(vec![7; random.below(3) as usize]),
                _ => {
                    let len = [0, 5, 900, 40_000][random.below(4) as usize];
                    CompoundPart::Write(random.below(99), vec![xid as u8 + 1; len])
                }
            })
            .collect();
        let service = SERVICES[random.below(3) as usize];
        let (args, rest) = compound(&parts);
        let number = client.number;
        let call = client.call(numbered(COMPOUND, xid), &args, service);
        let fragments = random.below(3);
        stream.extend(record(&call, || match fragments {
            0 => usize::MAX,
            1 => 1 + random.below(50) as usize * 80,
            _ => 1 + random.below(5000) as usize,
        }));
        let data: Vec<Option<Vec<u8>>> = parts
            .iter()
            .filter_map(|part| match part {
                CompoundPart::Write(_, bytes) => Some((!bytes.is_empty()).then(|| bytes.clone())),
                _ => None,
            })
            .collect();
        expected.push((service, number, rest, data));
    }
    let size = [1, 100, 5000, usize::MAX][random.below(4) as usize];
    while server.receive(&mut stream, size) {}
    server.take_ops();
    assert!(stream.is_empty() && server.fatal.is_none());
    assert_eq!(server.calls.len(), expected.len());
    for (service, number, rest, data) in expected {
        let seen = &server.calls[0].1;
        assert_eq!((&seen.args, seen.ops.1), (&rest, Stop::End));
        assert_eq!(seen.data, data);
        let payloads = vec![vec![9; random.below(6) as usize * 1000 + 1]; random.below(3) as usize];
        server.answer(0, &payloads);
        let answer = one(sent(&mut server));
        let (_, results) = client.open(&answer, number, service).expect("let in");
        let mut all = rest;
        for bytes in payloads {
            all.extend((bytes.len() as u32).to_be_bytes());
            all.extend(&bytes);
            all.extend(&[0; 3][..bytes.len().wrapping_neg() % 4]);
        }
        assert!(results == all);
    }
    assert_eq!(server.end.machine.executing(), 0);
}

proptest! {
    #[test]
    fn call_by_gss_is_the_same_however_it_is_cut(seed: u64) {
        any_calls(seed);
    }
}
