mod clients;

use std::collections::HashMap;

use proptest::prelude::*;
use wire::nfs4::{
    CREATE_SESSION4args, EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, SEQ4_STATUS_CB_PATH_DOWN_SESSION,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQUENCE4args, channel_attrs4, channel_dir_from_client4,
    channel_dir_from_server4, clientid4, nfsstat4,
};
use wire::xdr::List;

use super::*;
use crate::connection::Credential;

const SECOND: Nanos = 1_000_000_000;
const UPDATE: u32 = EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;

fn server() -> Server {
    Server::new(ServerSettings::default(), 7, [], 0)
}

fn user(uid: u32) -> Principal {
    Principal::new(&Credential::sys(uid, 0, []), None)
}

/// A client of [`confirmed`] or [`old_client`] as it is on record.
fn recorded(name: &[u8]) -> RecordedClient {
    RecordedClient {
        owner: name.into(),
        principal: Some(user(0)),
    }
}

/// The time, with every client having state.
fn at(now: Nanos) -> (Nanos, &'static dyn Fn(clientid4) -> bool) {
    (now, &|_| true)
}

fn owner(id: &[u8], boot: u8) -> ClientOwner<'_> {
    let verifier = [boot; 8];
    ClientOwner {
        verifier,
        id,
        host: 1,
        implementation: b"",
        identity: None,
        protection: None,
    }
}

fn attrs(bytes: u32) -> channel_attrs4<'static> {
    channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: bytes,
        ca_maxresponsesize: bytes,
        ca_maxresponsesize_cached: 100,
        ca_maxoperations: 8,
        ca_maxrequests: 4,
        ca_rdma_ird: List::Of(&[]),
    }
}

fn session_args(client: clientid4, sequence: u32) -> CREATE_SESSION4args<'static> {
    CREATE_SESSION4args {
        csa_clientid: client,
        csa_sequence: sequence,
        csa_flags: 2,
        csa_fore_chan_attrs: attrs(100_000),
        csa_back_chan_attrs: attrs(4096),
        csa_cb_program: 0x4000_0000,
        csa_sec_parms: List::Of(&[]),
    }
}

/// A client that is confirmed, and its session.
fn confirmed(server: &Server, id: &[u8], boot: u8, now: Nanos) -> Arc<Session> {
    let exchanged = server
        .exchange_id(1, owner(id, boot), 0, user(0), at(now))
        .unwrap();
    let args = session_args(exchanged.clientid, exchanged.sequenceid);
    server
        .create_session(&args, user(0), (now, &|_| false))
        .unwrap()
}

/// A client of version 4.0 that is confirmed.
fn old_client(server: &Server, id: &[u8], now: Nanos) -> Arc<Client> {
    let address = CallbackAddress {
        program: 1,
        to: None,
        local: None,
        ident: 0,
    };
    let set = server.set_clientid(owner(id, 1), address, user(0), at(now));
    let (id, verifier) = set.unwrap();
    server.confirm_clientid(id, verifier, user(0), now).unwrap();
    server.renew(id, now).unwrap()
}

fn request(record_bytes: u32, ops: u32) -> RequestId {
    RequestId {
        record_bytes,
        ops,
        principal: user(0),
    }
}

fn sequence(session: &Session, slot: u32, sequenceid: u32) -> Result<Sequenced, nfsstat4> {
    let args = SEQUENCE4args {
        sa_sessionid: session.id,
        sa_sequenceid: sequenceid,
        sa_slotid: slot,
        sa_highest_slotid: 0,
        sa_cachethis: true,
    };
    session.sequence(&args, &request(100, 2), 0)
}

/// The cases of section 18.35.4 of RFC 8881.
#[test]
fn exchange_id_has_nine_cases() {
    let server = server();
    // 7: nothing to update. 1: a new owner.
    let absent = server.exchange_id(1, owner(b"a", 1), UPDATE, user(0), at(0));
    assert_eq!(absent, Err(nfsstat4::NFS4ERR_NOENT));
    let first = server
        .exchange_id(1, owner(b"a", 1), 0, user(0), at(0))
        .unwrap();
    assert!(!first.is_confirmed && server.client(first.clientid).is_none());
    // 4: an unconfirmed record is replaced; it cannot be updated.
    let second = server
        .exchange_id(1, owner(b"a", 1), 0, user(0), at(0))
        .unwrap();
    assert_ne!(first.clientid, second.clientid);
    let stale = server.create_session(&session_args(first.clientid, 1), user(0), (0, &|_| false));
    assert_eq!(stale.unwrap_err(), nfsstat4::NFS4ERR_STALE_CLIENTID);
    let absent = server.exchange_id(1, owner(b"a", 1), UPDATE, user(0), at(0));
    assert_eq!(absent, Err(nfsstat4::NFS4ERR_NOENT));
    let session = server
        .create_session(&session_args(second.clientid, 1), user(0), (0, &|_| false))
        .unwrap();
    // 2: it is known. 6: so it can be updated.
    for flags in [0, UPDATE] {
        let known = server
            .exchange_id(1, owner(b"a", 1), flags, user(0), at(0))
            .unwrap();
        let (clientid, sequenceid) = (second.clientid, 2);
        assert_eq!(
            known,
            Exchanged {
                clientid,
                sequenceid,
                is_confirmed: true,
                protection: None,
            }
        );
    }
    // 8, 9
    let other = server.exchange_id(1, owner(b"a", 2), UPDATE, user(0), at(0));
    assert_eq!(other, Err(nfsstat4::NFS4ERR_NOT_SAME));
    let other = server.exchange_id(1, owner(b"a", 1), UPDATE, user(1), at(0));
    assert_eq!(other, Err(nfsstat4::NFS4ERR_PERM));
    // 3: another principal has the name.
    let other = server.exchange_id(1, owner(b"a", 2), 0, user(1), at(89 * SECOND));
    assert_eq!(other, Err(nfsstat4::NFS4ERR_CLID_INUSE));
    // 5: it has started again: what it had goes when it has a session.
    let again = server
        .exchange_id(1, owner(b"a", 2), 0, user(0), at(0))
        .unwrap();
    assert!(!again.is_confirmed && !session.is_gone());
    let next = server
        .create_session(&session_args(again.clientid, 1), user(0), (0, &|_| false))
        .unwrap();
    assert!(session.is_gone() && !next.is_gone());
    assert_eq!(server.take_gone()[0].id, second.clientid);
    // 3 once more, and the other is silent for longer than its lease.
    let other = server
        .exchange_id(1, owner(b"a", 2), 0, user(1), at(91 * SECOND))
        .unwrap();
    assert!(next.is_gone() && other.clientid != again.clientid);
    let bad = server.exchange_id(1, owner(b"b", 1), 8, user(0), at(0));
    assert_eq!(bad, Err(nfsstat4::NFS4ERR_INVAL));
}

#[test]
fn create_session_has_a_slot_of_its_own() {
    let server = server();
    let client = server
        .exchange_id(1, owner(b"a", 1), 0, user(0), at(0))
        .unwrap()
        .clientid;
    let create = |args: &CREATE_SESSION4args<'_>, uid| {
        server.create_session(args, user(uid), (0, &|_| false))
    };
    for (args, uid, error) in [
        (session_args(99, 1), 0, nfsstat4::NFS4ERR_STALE_CLIENTID),
        (session_args(client, 0), 0, nfsstat4::NFS4ERR_SEQ_MISORDERED),
        (session_args(client, 2), 0, nfsstat4::NFS4ERR_SEQ_MISORDERED),
        (session_args(client, 1), 5, nfsstat4::NFS4ERR_CLID_INUSE),
    ] {
        assert_eq!(create(&args, uid).unwrap_err(), error);
    }
    let mut small = session_args(client, 1);
    small.csa_fore_chan_attrs = attrs(100);
    assert_eq!(create(&small, 0).unwrap_err(), nfsstat4::NFS4ERR_TOOSMALL);
    let mut flags = session_args(client, 1);
    flags.csa_flags = 8;
    assert_eq!(create(&flags, 0).unwrap_err(), nfsstat4::NFS4ERR_INVAL);

    let first = create(&session_args(client, 1), 0).unwrap();
    assert_eq!(create(&session_args(client, 1), 0).unwrap().id, first.id);
    let second = create(&session_args(client, 2), 0).unwrap();
    assert_ne!(second.id, first.id);
    let old = create(&session_args(client, 1), 0).unwrap_err();
    assert_eq!(old, nfsstat4::NFS4ERR_SEQ_MISORDERED);
    assert_eq!(
        (
            first.fore.slots,
            first.fore.ops_max,
            first.back.request_bytes_max
        ),
        (4, 8, 4096)
    );
    assert!(first.has_backchannel());
    assert_eq!(server.counts(), (1, 2));
    for sequence in 3..=16 {
        create(&session_args(client, sequence), 0).unwrap();
    }
    assert_eq!(
        create(&session_args(client, 17), 0).unwrap_err(),
        nfsstat4::NFS4ERR_NOSPC
    );
}

#[test]
fn sessions_and_clients_are_destroyed() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    let (id, client) = (session.id, session.client.id);
    let busy = server.destroy_clientid(client, false, user(0));
    assert_eq!(busy, Err(nfsstat4::NFS4ERR_CLIENTID_BUSY));
    assert_eq!(
        server.destroy_session(&id, user(3)),
        Err(nfsstat4::NFS4ERR_WRONG_CRED)
    );
    assert_eq!(server.destroy_session(&id, user(0)), Ok(()));
    assert_eq!(
        server.destroy_session(&id, user(0)),
        Err(nfsstat4::NFS4ERR_BADSESSION)
    );
    assert!(server.session(&id).is_none());
    assert_eq!(sequence(&session, 0, 1), Err(nfsstat4::NFS4ERR_BADSESSION));
    assert_eq!(
        server.destroy_clientid(client, true, user(0)),
        Err(nfsstat4::NFS4ERR_CLIENTID_BUSY)
    );
    assert_eq!(server.destroy_clientid(client, false, user(0)), Ok(()));
    let stale = server.destroy_clientid(client, false, user(0));
    assert_eq!(stale, Err(nfsstat4::NFS4ERR_STALE_CLIENTID));
    assert_eq!(server.take_records().0, [], "it never was on record");
    assert_eq!(server.counts(), (0, 0));
}

#[test]
fn sequence_with_a_wrong_slot_or_number_is_refused() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    assert_eq!(sequence(&session, 4, 1), Err(nfsstat4::NFS4ERR_BADSLOT));
    assert_eq!(
        sequence(&session, 0, 2),
        Err(nfsstat4::NFS4ERR_SEQ_MISORDERED)
    );
    assert_eq!(
        sequence(&session, 0, 0),
        Err(nfsstat4::NFS4ERR_SEQ_MISORDERED)
    );
    let mut args = SEQUENCE4args {
        sa_sessionid: session.id,
        sa_sequenceid: 1,
        sa_slotid: 0,
        sa_highest_slotid: 4,
        sa_cachethis: false,
    };
    let high = session.sequence(&args, &request(100, 2), 0);
    assert_eq!(high, Err(nfsstat4::NFS4ERR_BAD_HIGH_SLOT));
    args.sa_highest_slotid = 3;
    let big = session.sequence(&args, &request(100_001, 2), 0);
    assert_eq!(big, Err(nfsstat4::NFS4ERR_REQ_TOO_BIG));
    let many = session.sequence(&args, &request(100, 9), 0);
    assert_eq!(many, Err(nfsstat4::NFS4ERR_TOO_MANY_OPS));
    // None of these has used the sequence id up.
    let new = session
        .sequence(&args, &request(100, 2), 5 * SECOND)
        .unwrap();
    assert!(matches!(new, Sequenced::New(ok) if ok.sr_target_highest_slotid == 3));
    assert_eq!(
        session.client.silent(15 * SECOND),
        10 * SECOND - SECOND / 10
    );
    assert_eq!(sequence(&session, 0, 1), Err(nfsstat4::NFS4ERR_DELAY));
    assert_eq!(
        sequence(&session, 0, 2),
        Err(nfsstat4::NFS4ERR_SEQ_MISORDERED)
    );
    session.finish(0, None);
    let again = session.sequence(&args, &request(100, 2), 0);
    assert_eq!(again, Err(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP));
    // Another request that bears its numbers.
    let other_user = RequestId {
        principal: user(1),
        ..request(100, 2)
    };
    for other in [request(104, 2), request(100, 3), other_user] {
        let false_retry = session.sequence(&args, &other, 0);
        assert_eq!(false_retry, Err(nfsstat4::NFS4ERR_SEQ_FALSE_RETRY));
    }
    assert_eq!(
        sequence(&session, 0, 1),
        Err(nfsstat4::NFS4ERR_SEQ_FALSE_RETRY),
        "its answer is to be kept"
    );
    assert!(matches!(sequence(&session, 0, 2), Ok(Sequenced::New(_))));
    // An answer that is longer than agreed is not kept.
    session.finish(0, Some(&[0; 101]));
    assert_eq!(
        sequence(&session, 0, 2),
        Err(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP)
    );
}

/// RFC 8881, section 8.3: each SEQUENCE renews the lease, also one that comes just after
/// another.
#[test]
fn a_lease_lasts_from_the_last_request() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    session.client.renew(SECOND);
    let last = SECOND + SECOND / 10;
    session.client.renew(last);
    assert!(!server.is_expired(&session.client, last + 90 * SECOND));
    assert!(server.is_expired(&session.client, last + 91 * SECOND));
}

#[test]
fn silent_clients_are_treated_with_courtesy() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    let id = session.client.id;
    server.on_tick(91 * SECOND);
    assert!(server.client(id).is_some(), "no client needs that");
    assert!(!server.expire(id, 90 * SECOND), "its lease has not run out");
    assert!(server.is_expired(&session.client, 91 * SECOND));
    // It is back.
    session.client.renew(92 * SECOND);
    assert!(!server.expire(id, 93 * SECOND));
    // A client needs its state gone.
    assert!(server.expire(id, 200 * SECOND) && session.is_gone());
    assert_eq!(server.take_gone().len(), 1);
    // No client does, for a day.
    let session = confirmed(&server, b"b", 1, 0);
    server
        .exchange_id(1, owner(b"c", 1), 0, user(0), at(0))
        .unwrap();
    server.on_tick(86_400 * SECOND);
    assert_eq!(
        server.counts().0,
        1,
        "a client without a session has no courtesy"
    );
    server.on_tick((86_400 + 91) * SECOND);
    assert!(session.is_gone());
    assert_eq!(server.counts(), (0, 0));
}

#[test]
fn clients_are_bounded_and_an_expired_one_makes_room() {
    let settings = ServerSettings {
        clients_max: 3,
        ..ServerSettings::default()
    };
    let server = Server::new(settings, 1, [], 0);
    let first = confirmed(&server, b"a", 1, 0);
    confirmed(&server, b"b", 1, 50 * SECOND);
    confirmed(&server, b"c", 1, 50 * SECOND);
    let exchange = |now| server.exchange_id(1, owner(b"d", 1), 0, user(0), at(now));
    assert_eq!(exchange(60 * SECOND), Err(nfsstat4::NFS4ERR_DELAY));
    assert!(exchange(100 * SECOND).is_ok() && first.is_gone());
    assert_eq!(server.counts().0, 3);
}

/// Client ids that were asked for and never used make room for others.
#[test]
fn clients_that_were_never_confirmed_make_room() {
    let settings = ServerSettings {
        clients_max: 3,
        ..ServerSettings::default()
    };
    let server = Server::new(settings, 1, [], 0);
    let kept = confirmed(&server, b"a", 1, 0);
    for name in 0u64..10 {
        let id = name.to_be_bytes();
        let named = server.exchange_id(1, owner(&id, 1), 0, user(9), at(name));
        assert!(named.is_ok(), "{name}");
    }
    confirmed(&server, b"b", 1, SECOND);
    assert!(!kept.is_gone());
    assert_eq!(server.counts().0, 3);
}

/// A record is of a name: the last client of that name takes it along.
#[test]
fn a_client_that_starts_again_stays_on_record() {
    let server = server();
    let first = confirmed(&server, b"a", 1, 0);
    server.reclaim_complete(&first.client).unwrap();
    let second = confirmed(&server, b"a", 2, 0);
    assert!(first.is_gone());
    let client = recorded(b"a");
    assert_eq!(server.take_records().0, [Record::Kept(client.clone())]);
    assert!(server.evict(second.client.id));
    assert_eq!(server.take_records().0, [Record::Gone(client)]);
}

#[test]
fn grace_ends_with_the_last_client_to_complete_its_reclaims() {
    let known = [recorded(b"a"), recorded(b"b")];
    let server = Server::new(ServerSettings::default(), 8, known, 0);
    assert!(server.is_in_grace(SECOND));
    let a = confirmed(&server, b"a", 1, 0);
    let stranger = confirmed(&server, b"x", 1, 0);
    assert!(a.client.may_reclaim() && !stranger.client.may_reclaim());
    let may =
        |session: &Session, is_reclaim, now| server.check_grace(&session.client, is_reclaim, now);
    let (grace, no_grace) = (nfsstat4::NFS4ERR_GRACE, nfsstat4::NFS4ERR_NO_GRACE);
    assert_eq!(may(&a, true, SECOND), Ok(()));
    assert_eq!(
        may(&stranger, true, SECOND),
        Err(nfsstat4::NFS4ERR_RECLAIM_BAD)
    );
    assert_eq!(may(&a, false, SECOND), Err(grace));
    assert_eq!(server.reclaim_complete(&stranger.client), Ok(()));
    assert_eq!(server.reclaim_complete(&a.client), Ok(()));
    assert_eq!(may(&a, true, SECOND), Err(no_grace), "it has said so");
    let twice = server.reclaim_complete(&a.client);
    assert_eq!(twice, Err(nfsstat4::NFS4ERR_COMPLETE_ALREADY));
    assert!(server.is_in_grace(SECOND), "b is waited for");
    let b = confirmed(&server, b"b", 1, 0);
    server.reclaim_complete(&b.client).unwrap();
    assert!(!server.is_in_grace(SECOND));
    assert_eq!(may(&a, false, SECOND), Ok(()));
    assert_eq!(may(&b, true, SECOND), Err(no_grace));
    let late = confirmed(&server, b"y", 1, 0);
    assert_eq!(
        may(&late, false, SECOND),
        Err(grace),
        "RECLAIM_COMPLETE first"
    );
    // No client is known.
    assert!(!Server::new(ServerSettings::default(), 1, [], 0).is_in_grace(0));
}

/// RFC 8881, section 8.4.3: what others may have had meanwhile is not taken
/// back after the next start.
#[test]
fn client_that_has_not_reclaimed_in_grace_is_off_the_record() {
    let known = [&b"a"[..], b"b", b"c", b"d"].map(recorded);
    let server = Server::new(ServerSettings::default(), 9, known, 0);
    let a = confirmed(&server, b"a", 1, 0);
    server.reclaim_complete(&a.client).unwrap();
    // It came, and is silent since; of version 4.0, it has taken something back.
    confirmed(&server, b"b", 1, 0);
    let old = old_client(&server, b"c", 0);
    assert_eq!(server.check_grace(&old, true, SECOND), Ok(()));
    server.record(&old);
    server.record(&old);
    let (records, number) = server.take_records();
    assert_eq!(
        records,
        [Record::Kept(recorded(b"a")), Record::Kept(recorded(b"c"))]
    );
    assert!(server.has_unsaved());
    server.saved(number);
    assert!(!server.has_unsaved() && server.is_in_grace(89 * SECOND));
    assert!(!server.is_in_grace(90 * SECOND) && server.has_unsaved());
    let (mut records, number) = server.take_records();
    records.sort_by_key(|record| format!("{record:?}"));
    assert_eq!(
        records,
        [Record::Gone(recorded(b"d")), Record::Gone(recorded(b"b"))]
    );
    server.saved(number);
    assert!(!server.is_in_grace(91 * SECOND) && !server.has_unsaved());
    // A client whose lease has run out, and whose state is in the way of another.
    let (id, now) = (a.client.id, 200 * SECOND);
    assert!(server.expire(id, now) && server.has_unsaved());
    assert_eq!(server.take_records().0, [Record::Gone(recorded(b"a"))]);
}

#[test]
fn the_administrator_evicts_a_client() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    let id = session.client.id;
    assert_eq!(server.sessions_of(id).len(), 1);
    assert_eq!(server.clients()[0].id, id);
    assert!(server.evict(id) && session.is_gone() && !server.evict(id));
    assert_eq!(server.take_gone()[0].id, id);
    let old = old_client(&server, b"b", 0);
    assert!(server.evict(old.id));
    assert_eq!(
        server.renew(old.id, 0).unwrap_err(),
        nfsstat4::NFS4ERR_EXPIRED
    );
}

#[test]
fn many_sessions_have_fewer_slots() {
    let settings = ServerSettings {
        cached_bytes_max: 64 * 100 * 4,
        ..ServerSettings::default()
    };
    let server = Server::new(settings, 7, [], 0);
    let mut args = session_args(0, 1);
    args.csa_fore_chan_attrs.ca_maxrequests = 64;
    let mut create = |name: &[u8]| {
        let exchanged = server
            .exchange_id(1, owner(name, 1), 0, user(0), at(0))
            .unwrap();
        args.csa_clientid = exchanged.clientid;
        server
            .create_session(&args, user(0), (0, &|_| false))
            .unwrap()
    };
    let first = create(b"a");
    let slots = [first.fore.slots, create(b"b").fore.slots];
    assert_eq!(slots, [16, 15]);
    let ids = [first.id];
    for id in 0..40u8 {
        create(&[id]);
    }
    assert_eq!(create(b"c").fore.slots, 4, "as few as there are");
    let before = server.registry().cached_bytes;
    server.destroy_session(&ids[0], user(0)).unwrap();
    assert_eq!(server.registry().cached_bytes, before - 16 * 100);
    let high = sequence(&create(b"d"), 4, 1);
    assert_eq!(high, Err(nfsstat4::NFS4ERR_BADSLOT));
}

/// What a client does in one slot.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The next request; whether its answer is to be kept.
    Next(bool),
    /// The last one again.
    Again,
    /// The server ends what is executed.
    Finish,
    /// A request out of order.
    Stray(u32),
}

/// The last sequence id of a slot; whether that request is being executed, and
/// to be kept; what is kept.
type SlotModel = (u32, Option<bool>, Option<Vec<u8>>);

proptest! {
    /// A request is executed once: slots against a model of them.
    #[test]
    fn slots_execute_a_request_once(
        steps in proptest::collection::vec((0u32..4, prop_oneof![
            any::<bool>().prop_map(Step::Next),
            Just(Step::Again),
            Just(Step::Finish),
            (2u32..u32::MAX - 1).prop_map(Step::Stray),
        ]), 1..80),
    ) {
        let server = server();
        let session = confirmed(&server, b"a", 1, 0);
        let mut model: HashMap<u32, SlotModel> = HashMap::new();
        for (slot, step) in steps {
            let (last, executing, kept) = model.entry(slot).or_default();
            match step {
                Step::Next(keeps) => {
                    let result = sequence(&session, slot, last.wrapping_add(1));
                    if executing.is_some() {
                        prop_assert_eq!(result, Err(nfsstat4::NFS4ERR_SEQ_MISORDERED));
                        continue;
                    }
                    prop_assert!(matches!(result, Ok(Sequenced::New(_))));
                    *last += 1;
                    *executing = Some(keeps);
                    *kept = None;
                }
                Step::Again => {
                    let result = sequence(&session, slot, *last);
                    let expected = match (*last, *executing, kept) {
                        (0, ..) => Err(nfsstat4::NFS4ERR_SEQ_MISORDERED),
                        (_, Some(_), _) => Err(nfsstat4::NFS4ERR_DELAY),
                        (_, None, Some(kept)) => Ok(Sequenced::Again(kept.clone())),
                        (_, None, None) => Err(nfsstat4::NFS4ERR_RETRY_UNCACHED_REP),
                    };
                    prop_assert_eq!(result, expected);
                }
                Step::Finish => {
                    let Some(keeps) = executing.take() else { continue };
                    let results = [slot.to_be_bytes(), last.to_be_bytes()].concat();
                    session.finish(slot, keeps.then_some(&results[..]));
                    *kept = keeps.then_some(results);
                }
                Step::Stray(by) => {
                    let result = sequence(&session, slot, last.wrapping_add(by));
                    prop_assert_eq!(result, Err(nfsstat4::NFS4ERR_SEQ_MISORDERED));
                }
            }
        }
    }
}

#[test]
fn sequence_answers_the_status_flags_of_its_client() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    let mut next = 0;
    let mut flags = || {
        next += 1;
        let Ok(Sequenced::New(ok)) = sequence(&session, 0, next) else {
            panic!("it is the next");
        };
        session.finish(0, None);
        ok.sr_status_flags
    };
    assert_eq!(flags(), 0);
    let revoked = SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
    session.client.set_status_flags(revoked, 0);
    assert_eq!(flags(), revoked);
    session.client.set_status_flags(0, revoked);
    assert_eq!(flags(), 0);
    // Callbacks had a way, and have none any more, until one is bound again.
    let both = channel_dir_from_client4::CDFC4_FORE_OR_BOTH;
    session.unbind(2);
    assert_eq!(flags(), 0, "they had no way that could be lost");
    session.bind(1, both).unwrap();
    session.unbind(2);
    assert_eq!(flags(), 0);
    session.unbind(1);
    assert_eq!(flags(), SEQ4_STATUS_CB_PATH_DOWN_SESSION);
    session.bind(3, both).unwrap();
    assert_eq!(flags(), 0);
}

#[test]
fn request_of_exactly_what_was_agreed_is_executed() {
    let session = confirmed(&server(), b"a", 1, 0);
    let args = SEQUENCE4args {
        sa_sessionid: session.id,
        sa_sequenceid: 1,
        sa_slotid: 0,
        sa_highest_slotid: 3,
        sa_cachethis: false,
    };
    let largest = session.sequence(&args, &request(100_000, 8), 0);
    assert!(matches!(largest, Ok(Sequenced::New(_))), "{largest:?}");
}

#[test]
fn session_has_a_backchannel_only_where_its_client_asks_for_one() {
    let server = server();
    assert!(confirmed(&server, b"a", 1, 0).has_backchannel());
    let exchanged = server.exchange_id(1, owner(b"b", 1), 0, user(0), at(0));
    let exchanged = exchanged.unwrap();
    let mut args = session_args(exchanged.clientid, exchanged.sequenceid);
    args.csa_flags = 0;
    let session = server
        .create_session(&args, user(0), (0, &|_| false))
        .unwrap();
    assert!(!session.has_backchannel());
}

#[test]
fn callbacks_go_out_on_connections_bound_to_the_backchannel() {
    let server = server();
    let session = confirmed(&server, b"a", 1, 0);
    assert!(session.begin_callback().is_none(), "no connection yet");
    assert!(!session.has_callback_path());
    for (id, asked, agreed) in [
        (
            1,
            channel_dir_from_client4::CDFC4_FORE,
            channel_dir_from_server4::CDFS4_FORE,
        ),
        (
            2,
            channel_dir_from_client4::CDFC4_BACK,
            channel_dir_from_server4::CDFS4_BACK,
        ),
        (
            3,
            channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
            channel_dir_from_server4::CDFS4_BOTH,
        ),
        (
            3,
            channel_dir_from_client4::CDFC4_BACK_OR_BOTH,
            channel_dir_from_server4::CDFS4_BOTH,
        ),
    ] {
        assert_eq!(session.bind(id, asked), Ok(agreed));
    }
    assert!(session.has_callback_path());
    let calls: Vec<_> = std::iter::from_fn(|| session.begin_callback()).collect();
    assert_eq!(calls.len(), 4, "a slot each");
    for (slotid, call) in calls.iter().enumerate() {
        let (sequenceid, program, way) = (1, 0x4000_0000, CallbackWay::Sys(0, 0));
        let slotid = slotid as u32;
        let (connection, highest_slotid) = (3, 3);
        assert_eq!(
            *call,
            Callback {
                connection,
                program,
                way,
                slotid,
                sequenceid,
                highest_slotid,
                is_unsure: false
            }
        );
    }
    let again = session.repeat_callback(1).unwrap();
    assert_eq!(again, calls[1]);
    // One is answered, of one nothing is known.
    session.end_callback(2, true);
    session.end_callback(0, false);
    session.set_callback_program(9, None);
    assert!(session.unbind(3), "2 is left");
    let next = session.begin_callback().unwrap();
    assert_eq!(
        (next.slotid, next.sequenceid, next.connection, next.program),
        (2, 2, 2, 9)
    );
    // The client says what became of the number that was used before.
    let unsure = session.begin_callback().unwrap();
    assert_eq!((unsure.slotid, unsure.sequenceid), (0, 1));
    assert!(unsure.is_unsure && !next.is_unsure);
    assert!(session.begin_callback().is_none());
    session.end_callback(0, true);
    let sure = session.begin_callback().unwrap();
    assert_eq!(
        (sure.slotid, sure.sequenceid, sure.is_unsure),
        (0, 2, false)
    );
    session.end_callback(2, true);
    assert!(!session.unbind(2));
    assert!(session.begin_callback().is_none(), "no connection is left");
    let most = (10..100).take_while(|&id| {
        session
            .bind(id, channel_dir_from_client4::CDFC4_BACK)
            .is_ok()
    });
    assert_eq!(most.count(), 16);
}

fn called_at(server: &Server, id: clientid4) -> Option<CallbackAddress> {
    Some(server.callback_path(id)?.address.clone())
}

#[test]
fn setclientid_takes_effect_when_it_is_confirmed() {
    let server = server();
    let address = |ident| CallbackAddress {
        program: 1,
        to: None,
        local: None,
        ident,
    };
    let set = |boot, ident, uid, now| {
        server.set_clientid(owner(b"a", boot), address(ident), user(uid), at(now))
    };
    let confirm = |id, verifier, uid| server.confirm_clientid(id, verifier, user(uid), 0);
    let stale = Err(nfsstat4::NFS4ERR_STALE_CLIENTID);
    let in_use = Err(nfsstat4::NFS4ERR_CLID_INUSE);
    let renew = |id, now| server.renew(id, now).map(|_| ());
    let (first, verifier) = set(1, 1, 0, 0).unwrap();
    assert_eq!(renew(first, 0), stale, "not confirmed");
    assert_eq!(renew(0, 0), stale);
    assert_eq!(renew(first + 1, 0), stale, "not given yet");
    // What was never confirmed is replaced.
    let (id, verifier2) = set(1, 2, 0, 0).unwrap();
    assert_eq!(confirm(first, verifier, 0), stale);
    assert_eq!(confirm(id, verifier, 0), stale);
    assert_eq!(confirm(id, verifier2, 4), in_use);
    for _ in 0..2 {
        assert_eq!(confirm(id, verifier2, 0), Ok(()));
    }
    assert_eq!(renew(id, SECOND), Ok(()));
    assert_eq!(called_at(&server, id), Some(address(2)));
    // Callbacks go elsewhere once that is confirmed.
    let (same, verifier3) = set(1, 3, 0, 0).unwrap();
    assert_eq!((same, called_at(&server, id)), (id, Some(address(2))));
    assert_eq!(confirm(id, verifier3, 0), Ok(()));
    assert_eq!(called_at(&server, id), Some(address(3)));
    assert_eq!(confirm(id, verifier2, 0), stale);
    // Another principal; itself, started again; one with sessions of that name.
    assert_eq!(renew(id, SECOND), Ok(()));
    let lease_end = SECOND + ServerSettings::default().lease;
    assert_eq!(set(1, 4, 9, lease_end), Err(nfsstat4::NFS4ERR_CLID_INUSE));
    let session = confirmed(&server, b"a", 1, 0);
    let (again, verifier4) = set(2, 5, 0, 0).unwrap();
    assert!(again != id && server.client(id).is_some());
    assert_eq!(confirm(again, verifier4, 0), Ok(()));
    assert!(server.client(id).is_none() && !session.is_gone());
    let gone = server.take_gone();
    assert_eq!(
        gone.iter().map(|client| client.id).collect::<Vec<_>>(),
        [id]
    );
    let (other, _) = set(1, 6, 9, 200 * SECOND).unwrap();
    let records = server.take_records().0;
    assert!(
        !records.contains(&Record::Gone(recorded(b"a"))),
        "one has a session"
    );
    assert!(other != again && server.client(again).is_none());
    // A client id of the one kind is none of the other.
    assert_eq!(renew(session.client.id, 0), stale);
    let created = server.create_session(&session_args(other, 1), user(9), (0, &|_| false));
    assert_eq!(created.unwrap_err(), nfsstat4::NFS4ERR_STALE_CLIENTID);
}

/// A client cannot work an identifier out from another.
#[test]
fn identifiers_cannot_be_foreseen_without_the_secret() {
    let with = |secret| {
        let settings = ServerSettings {
            secret: Secret([secret; 16]),
            ..ServerSettings::default()
        };
        Server::new(settings, 7, [], 0)
    };
    let (one, other) = (with(1), with(2));
    let ids = |server: &Server| -> Vec<_> {
        let names = [b"a", b"b", b"c", b"d"];
        let sessions = names.map(|name| confirmed(server, name, 1, 0));
        sessions.iter().map(|s| (s.client.id, s.id)).collect()
    };
    let (first, second) = (ids(&one), ids(&other));
    for (a, b) in first.iter().zip(&second) {
        // Of this start, which is no secret, and nothing more alike.
        assert_eq!(a.0 >> 32, 7);
        assert_ne!((a.0, &a.1[8..]), (b.0, &b.1[8..]));
        assert!(a.0 != b.0 && a.1[8..] != b.1[8..]);
    }
    // What confirms a client of version 4.0.
    let confirms = |server: &Server| {
        let address = CallbackAddress {
            program: 1,
            to: None,
            local: None,
            ident: 0,
        };
        let set = server.set_clientid(owner(b"new", 1), address, user(0), at(0));
        set.expect("there is room").1
    };
    assert_ne!(confirms(&one), confirms(&other));
    let far = |a: u64, b: u64| a.abs_diff(b) > 1 << 16;
    assert!(first.windows(2).all(|pair| far(pair[0].0, pair[1].0)));
    // What was once given is still told from what never was.
    let old = old_client(&one, b"old", 0);
    assert!(one.evict(old.id));
    assert_eq!(one.renew(old.id, 0).unwrap_err(), nfsstat4::NFS4ERR_EXPIRED);
    let never = one.renew(old.id ^ 1, 0).unwrap_err();
    assert_eq!(never, nfsstat4::NFS4ERR_STALE_CLIENTID);
}

/// One host does not fill the table; it may use what it has all the same, and its
/// clients may start again.
#[test]
fn clients_of_one_host_are_bounded() {
    let settings = ServerSettings {
        clients_max: 12,
        clients_of_host_max: 4,
        ..ServerSettings::default()
    };
    let server = Server::new(settings, 7, [], 0);
    let from = |host, id: &'static [u8], boot| ClientOwner {
        host,
        ..owner(id, boot)
    };
    let come = |host, id, boot, now| -> Result<(), nfsstat4> {
        let of = from(host, id, boot);
        let exchanged = server.exchange_id(1, of, 0, user(0), at(now))?;
        let args = session_args(exchanged.clientid, exchanged.sequenceid);
        server
            .create_session(&args, user(0), (now, &|_| false))
            .map(|_| ())
    };
    for name in [&b"a"[..], b"b", b"c", b"d"] {
        assert_eq!(come(1, name, 1, SECOND), Ok(()));
    }
    assert_eq!(come(1, b"e", 1, SECOND), Err(nfsstat4::NFS4ERR_DELAY));
    let address = CallbackAddress {
        program: 1,
        to: None,
        local: None,
        ident: 0,
    };
    let old = server.set_clientid(from(1, b"f", 1), address, user(0), at(0));
    assert_eq!(old, Err(nfsstat4::NFS4ERR_DELAY));
    assert_eq!(server.refused(), (2, 1));
    assert_eq!(come(2, b"e", 1, 0), Ok(()), "from another host");
    assert_eq!(come(1, b"a", 2, SECOND), Ok(()), "it has started again");
    assert_eq!(server.counts().0, 5);
    // A silent client yields to others of its host, and to no other host.
    let later = settings.lease + 3 * SECOND;
    assert_eq!(come(1, b"g", 1, later), Ok(()));
    assert_eq!(server.counts().0, 5);
    let has = |name: &[u8]| server.clients().iter().any(|client| *client.owner == *name);
    assert!(has(b"e"), "though it was silent longest");
    // Those that are never confirmed count, and yield at once.
    const NAMES: [&[u8]; 8] = [b"h", b"i", b"j", b"k", b"l", b"m", b"n", b"o"];
    for boot in 0..20 {
        let unconfirmed = server.exchange_id(1, from(3, NAMES[boot % 8], 1), 0, user(0), at(later));
        assert!(unconfirmed.is_ok());
    }
    assert_eq!(server.counts().0, 9);
    let all: Vec<_> = server.clients().iter().map(|client| client.id).collect();
    assert!(all.into_iter().all(|id| server.evict(id)));
    for name in [&b"a"[..], b"b", b"c", b"d"] {
        assert_eq!(
            come(1, name, 1, later),
            Ok(()),
            "a client that is gone is not counted"
        );
    }
}
