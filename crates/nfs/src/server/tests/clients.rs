//! Which client a name stands for, and what a session is made of.

use wire::nfs4::{EXCHGID4_FLAG_SUPP_FENCE_OPS, callback_sec_parms4, cb_sys_cred, gss_cb_handles4};
use wire::rpc::rpc_gss_service_t;
use wire::xdr::Opaque;

use super::*;

/// Case 3 of EXCHANGE_ID: no other principal gets the name then.
#[test]
fn name_is_in_use_while_its_client_has_a_session_or_state() {
    for (has_session, has_state) in [(true, false), (false, true), (false, false)] {
        let server = server();
        let session = confirmed(&server, b"a", 1, 0);
        if !has_session {
            server.destroy_session(&session.id, user(0)).unwrap();
        }
        let state = move |_| has_state;
        let other = server.exchange_id(1, owner(b"a", 2), 0, user(1), (0, &state));
        let is_in_use = other == Err(nfsstat4::NFS4ERR_CLID_INUSE);
        assert_eq!(is_in_use, has_session || has_state, "{other:?}");
    }
}

/// Root of a machine that has shown the certificate of this number, or none.
fn machine(certificate: Option<ProvenNumber>) -> Principal {
    Principal::new(&Credential::sys(0, 0, []), certificate)
}

#[test]
fn client_with_a_certificate_is_its_own_and_no_one_elses() {
    let server = server();
    let own = machine(Some(1));
    let exchange = |boot, flags, by| server.exchange_id(1, owner(b"a", boot), flags, by, at(0));
    let id = exchange(1, 0, own).unwrap().clientid;
    let create =
        |sequence, by| server.create_session(&session_args(id, sequence), by, (0, &|_| false));
    let session = create(1, own).unwrap();
    for other in [machine(None), machine(Some(2))] {
        for boot in [1, 2] {
            let in_use = exchange(boot, 0, other);
            assert_eq!(in_use, Err(nfsstat4::NFS4ERR_CLID_INUSE));
        }
        let wrong = Some(nfsstat4::NFS4ERR_WRONG_CRED);
        assert_eq!(exchange(1, UPDATE, other).err(), wrong);
        assert_eq!(create(2, other).err(), wrong);
        assert_eq!(session.client.check_protection(other).err(), wrong);
        assert_eq!(server.destroy_session(&session.id, other).err(), wrong);
        assert_eq!(server.destroy_clientid(id, false, other).err(), wrong);
    }
    assert!(!session.is_gone() && !session.client.is_gone());
    assert_eq!(exchange(1, 0, own).unwrap().clientid, id);
    server.destroy_session(&session.id, own).unwrap();
    server.destroy_clientid(id, false, own).unwrap();
}

#[test]
fn client_of_version_4_0_that_starts_again_is_not_removed_by_one_without_its_certificate() {
    let server = server();
    let set = |boot, by| {
        let address = CallbackAddress {
            program: 1,
            to: None,
            local: None,
            ident: 1,
        };
        server.set_clientid(owner(b"a", boot), address, by, at(0))
    };
    let own = machine(Some(1));
    let (id, verifier) = set(1, own).unwrap();
    server.confirm_clientid(id, verifier, own, 0).unwrap();
    let (again, verifier) = set(2, own).unwrap();
    for other in [machine(None), machine(Some(2)), user(1)] {
        let in_use = Err(nfsstat4::NFS4ERR_CLID_INUSE);
        assert_eq!(set(3, other).map(|_| ()), in_use);
        assert_eq!(server.confirm_clientid(again, verifier, other, 0), in_use);
    }
    server.confirm_clientid(again, verifier, own, 0).unwrap();
}

/// After a restart the name of a client that may have state is its own until it has reclaimed, or
/// its time for that is over (RFC 8881, sections 2.4.3, 8.4.2.1).
#[test]
fn name_on_record_is_its_principals_alone_while_clients_reclaim() {
    let own = machine(Some(1));
    let on_record = |owner: &[u8], principal| RecordedClient {
        owner: owner.into(),
        principal,
    };
    let known = [on_record(b"a", Some(own)), on_record(b"b", None)];
    let server = Server::new(ServerSettings::default(), 8, known, 0);
    let exchange = |name, by, now| server.exchange_id(1, owner(name, 1), 0, by, at(now));
    let set = |name, by, now| {
        let address = CallbackAddress {
            program: 1,
            to: None,
            local: None,
            ident: 1,
        };
        server.set_clientid(owner(name, 1), address, by, at(now))
    };
    let in_use = Some(nfsstat4::NFS4ERR_CLID_INUSE);
    for other in [machine(None), machine(Some(2)), user(1)] {
        assert_eq!(exchange(b"a", other, 0).err(), in_use);
        assert_eq!(set(b"a", other, 0).err(), in_use);
        assert!(exchange(b"new", other, 0).is_ok());
    }
    let may_reclaim = |id| server.introduced(id).expect("it is there").may_reclaim();
    assert!(may_reclaim(exchange(b"a", own, 0).unwrap().clientid));
    assert!(may_reclaim(set(b"a", own, 0).unwrap().0));
    // What a version of names alone has written is the first comer's.
    assert!(may_reclaim(exchange(b"b", user(1), 0).unwrap().clientid));
    let over = ServerSettings::default().grace;
    let late = exchange(b"a", user(1), over).unwrap().clientid;
    assert!(!may_reclaim(late));
}

/// Of the other kind, with or without sessions, a client may have the name of one of another
/// principal: neither touches the record of the other.
#[test]
fn record_of_a_client_outlives_one_of_another_principal_with_its_name() {
    let server = server();
    let first = confirmed(&server, b"a", 1, 0);
    server.reclaim_complete(&first.client).unwrap();
    let address = CallbackAddress {
        program: 1,
        to: None,
        local: None,
        ident: 0,
    };
    let (id, verifier) = server
        .set_clientid(owner(b"a", 1), address, user(9), at(0))
        .unwrap();
    server.confirm_clientid(id, verifier, user(9), 0).unwrap();
    server.record(&server.client(id).unwrap());
    let second = RecordedClient {
        principal: Some(user(9)),
        ..recorded(b"a")
    };
    let kept = [recorded(b"a"), second.clone()].map(Record::Kept);
    assert_eq!(server.take_records().0, kept);
    assert!(server.evict(id));
    assert_eq!(server.take_records().0, [Record::Gone(second)]);
}

/// Its answer has the session's identifier.
#[test]
fn create_session_is_repeated_for_its_principal_alone() {
    let server = server();
    let own = machine(Some(1));
    let exchanged = server.exchange_id(1, owner(b"a", 1), 0, own, at(0));
    let id = exchanged.unwrap().clientid;
    let create = |by| server.create_session(&session_args(id, 1), by, (0, &|_| false));
    let session = create(own).unwrap();
    assert_eq!(create(own).unwrap().id, session.id);
    let wrong = Some(nfsstat4::NFS4ERR_WRONG_CRED);
    assert_eq!(create(machine(None)).err(), wrong);
    assert_eq!(create(machine(Some(2))).err(), wrong);
}

#[test]
fn version_4_1_has_no_fencing_of_operations() {
    let exchange = |minor| {
        let flags = EXCHGID4_FLAG_SUPP_FENCE_OPS;
        let server = server();
        let exchanged = server.exchange_id(minor, owner(b"a", 1), flags, user(0), at(0));
        exchanged.map(|_| ())
    };
    assert_eq!(exchange(1), Err(nfsstat4::NFS4ERR_INVAL));
    assert_eq!(exchange(2), Ok(()));
}

#[test]
fn destroyed_clients_leave_no_name() {
    let server = server();
    let exchange = |boot| {
        let exchanged = server.exchange_id(1, owner(b"a", boot), 0, user(0), at(0));
        exchanged.unwrap().clientid
    };
    let has_no_owner = || server.registry().owners.iter().all(HashMap::is_empty);
    server
        .destroy_clientid(exchange(1), false, user(0))
        .unwrap();
    assert!(has_no_owner(), "it was not confirmed");
    let session = confirmed(&server, b"a", 1, 0);
    let next = exchange(2);
    server.destroy_session(&session.id, user(0)).unwrap();
    server
        .destroy_clientid(session.client.id, false, user(0))
        .unwrap();
    assert!(!has_no_owner(), "it has begun to start again");
    server.destroy_clientid(next, false, user(0)).unwrap();
    assert!(has_no_owner());
}

/// Of version 4.0 as well: a client that has started again takes its own place.
#[test]
fn client_of_version_4_0_that_is_back_needs_no_room() {
    let settings = ServerSettings {
        clients_of_host_max: 1,
        ..ServerSettings::default()
    };
    let server = Server::new(settings, 7, [], 0);
    old_client(&server, b"a", 0);
    let set = |id: &'static [u8]| {
        let address = CallbackAddress {
            program: 1,
            to: None,
            local: None,
            ident: 0,
        };
        let set = server.set_clientid(owner(id, 2), address, user(0), at(0));
        set.map(|_| ())
    };
    assert_eq!(set(b"b"), Err(nfsstat4::NFS4ERR_DELAY));
    assert_eq!(set(b"a"), Ok(()));
}

/// It has no RECLAIM_COMPLETE to say.
#[test]
fn client_of_version_4_0_takes_state_at_once_when_no_client_reclaims() {
    let server = server();
    let client = old_client(&server, b"a", 0);
    assert_eq!(server.check_grace(&client, false, 0), Ok(()));
}

#[test]
fn channels_below_the_least_size_are_refused() {
    let create = |edit: fn(&mut CREATE_SESSION4args<'_>)| {
        let server = server();
        let exchanged = server.exchange_id(1, owner(b"a", 1), 0, user(0), at(0));
        let exchanged = exchanged.unwrap();
        let mut args = session_args(exchanged.clientid, exchanged.sequenceid);
        edit(&mut args);
        server
            .create_session(&args, user(0), (0, &|_| false))
            .map(|_| ())
    };
    let small = Err(nfsstat4::NFS4ERR_TOOSMALL);
    assert_eq!(create(|args| args.csa_fore_chan_attrs = attrs(255)), small);
    assert_eq!(create(|args| args.csa_fore_chan_attrs = attrs(256)), Ok(()));
    let fewer = create(|args| args.csa_fore_chan_attrs.ca_maxoperations = 0);
    assert_eq!(fewer, small);
    let fewer = create(|args| args.csa_fore_chan_attrs.ca_maxrequests = 0);
    assert_eq!(fewer, small);
    // CB_SEQUENCE and one more.
    let fewer = create(|args| args.csa_back_chan_attrs.ca_maxoperations = 1);
    assert_eq!(fewer, small);
    let enough = create(|args| args.csa_back_chan_attrs.ca_maxoperations = 2);
    assert_eq!(enough, Ok(()));
}

#[test]
fn way_of_callbacks_is_the_first_that_the_client_names_and_all_its_contexts_are_known() {
    let sys = callback_sec_parms4::case_1(cb_sys_cred {
        stamp: 0,
        machinename: Opaque(b""),
        uid: 5,
        gid: 6,
        gids: List::Of(&[]),
    });
    let none = callback_sec_parms4::case_0;
    let gss = |service, here: &'static [u8], there: &'static [u8]| {
        callback_sec_parms4::case_6(gss_cb_handles4 {
            gcbp_service: service,
            gcbp_handle_from_server: Opaque(here),
            gcbp_handle_from_client: Opaque(there),
        })
    };
    let known = gss(3, b"known", b"c");
    let first = |ways: &[callback_sec_parms4<'static>]| {
        CallbackWay::first(ways.iter().copied(), &|handle| handle == b"known")
    };
    assert_eq!(first(&[none, sys]), Ok(Some(CallbackWay::None)));
    assert_eq!(first(&[sys, known]), Ok(Some(CallbackWay::Sys(5, 6))));
    assert_eq!(first(&[]), Ok(None));
    let handles = CallbackHandles {
        service: rpc_gss_service_t::rpc_gss_svc_privacy,
        here: (*b"known").into(),
        there: (*b"c").into(),
    };
    let expected = CallbackWay::Gss(Arc::new(handles));
    assert_eq!(first(&[known, sys]), Ok(Some(expected)));
    let unknown = gss(1, b"unknown", b"c");
    assert_eq!(first(&[none, unknown]), Err(nfsstat4::NFS4ERR_NOENT));
    for service in [0, 4] {
        let wrong = gss(service, b"known", b"c");
        assert_eq!(first(&[wrong]), Err(nfsstat4::NFS4ERR_INVAL));
    }
    assert!(first(&[gss(1, b"known", &[0; 380])]).is_ok());
    let long = first(&[gss(1, b"known", &[0; 381])]);
    assert_eq!(long, Err(nfsstat4::NFS4ERR_INVAL));
}
