//! Clients that want what is not theirs, or keep others from what is.

use std::cell::Cell;
use std::rc::Rc;

use nfs::server::files::{OpenArgs, ShareReservation};
use nfsd::xprtsec::{Xprtsec, XprtsecModes};
use wire::nfs4::*;

use crate::world::*;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;

const ALICE: u32 = 1000;
const MALLORY: u32 = 1001;

/// The attributes of a file for its owner alone.
fn private() -> fattr4<'static> {
    fattr4 {
        attrmask: wire::xdr::List::Of(&[0, 1 << (FATTR4_MODE - 32)]),
        attr_vals: wire::xdr::Opaque(&[0, 0, 1, 0x80]),
    }
}

/// The right verifier lets only the user who made the file pass its permissions.
#[test]
fn an_exclusive_open_with_the_verifier_of_another_user_is_refused() {
    for minor in [0, 1] {
        let mut world = World::new();
        let how = |attrs| match minor {
            0 => createhow4::EXCLUSIVE4(*b"verifier"),
            _ => createhow4::EXCLUSIVE4_1(creatverfattr {
                cva_verf: *b"verifier",
                cva_attrs: attrs,
            }),
        };
        let mut client = world.client("a", minor);
        let mut create = |world: &mut World, uid, seqid, owner| {
            world.uid = uid;
            let args = OPEN4args {
                seqid,
                share_access: BOTH,
                openhow: openflag4::OPEN4_CREATE(how(private())),
                ..opening(&client.clone(), owner, "f")
            };
            world.open(&mut client, args).map(|_| ())
        };
        assert_eq!(create(&mut world, ALICE, 1, "alice"), Ok(()));
        assert_eq!(create(&mut world, ALICE, 1, "alice, again"), Ok(()));
        let refused = create(&mut world, MALLORY, 1, "mallory");
        assert_eq!(refused, Err(nfsstat4::NFS4ERR_ACCESS), "4.{minor}");
    }
}

/// A machine with a certificate keeps its state, whatever name and user one without it claims.
#[test]
fn client_without_certificate_cannot_end_the_state_of_one_that_has_shown_one() {
    const NAMES: [&str; 2] = ["DNS:a.example.org", "IP:192.0.2.1"];
    for minor in [0, 1, 2] {
        let mut world = World::new();
        let mut client = world.returned_with("a", minor, &NAMES);
        if minor > 0 {
            world.complete(&mut client);
        }
        let args = OPEN4args {
            seqid: 1,
            openhow: openflag4::OPEN4_CREATE(createhow4::UNCHECKED4(mode())),
            ..opening(&client, "o", "f")
        };
        world.open(&mut client, args).expect("opened");
        world.verifier = *b"another.";
        let number = match minor {
            0 => nfs_opnum4::OP_SETCLIENTID,
            _ => nfs_opnum4::OP_EXCHANGE_ID,
        };
        let [plain, other, again] = [0; 3].map(|_| world.connect());
        world.server.secure(other, &["DNS:b.example.org"]);
        // Renewed, with one more name.
        world
            .server
            .secure(again, &[NAMES[0], "DNS:0.example.org", NAMES[1]]);
        let mut introduce = |conn| {
            let introduction = world.introduction("a", minor);
            world.plain(conn, minor, &introduction).next(number)
        };
        let in_use = nfsstat4::NFS4ERR_CLID_INUSE;
        let told = [plain, other, again].map(&mut introduce);
        assert_eq!(told, [in_use, in_use, NFS4_OK], "4.{minor}");
        let refused = world.server.nfsd.take_clients_refused().list;
        let told: Vec<_> = refused.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        let holder = format!("has proved `{}`, from 127.0.0.1", NAMES[0]);
        assert!(told.iter().all(|told| told.contains(&holder)), "{told:?}");
        assert!(told[1].contains("this one `DNS:b.example.org`"), "{told:?}");
        assert!(refused.iter().all(|refused| *refused.owner == *b"a"));
        if minor > 0 {
            // No connection without it is bound to its session.
            let args = BIND_CONN_TO_SESSION4args {
                bctsa_sessid: client.session,
                bctsa_dir: channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
                bctsa_use_conn_in_rdma_mode: false,
            };
            let bind = Ops::default().op(arg::OP_BIND_CONN_TO_SESSION(args));
            let mut bound = world.plain(plain, minor, &bind);
            let wrong = nfsstat4::NFS4ERR_WRONG_CRED;
            assert_eq!(bound.next(nfs_opnum4::OP_BIND_CONN_TO_SESSION), wrong);
            // Nor may it use it, whatever it calls.
            let mut used = client.clone();
            used.sequence += 1;
            let asked = world.sequenced(&used, &Ops::default().op(arg::OP_PUTROOTFH));
            let unbound = nfsstat4::NFS4ERR_CONN_NOT_BOUND_TO_SESSION;
            let mut refused = world.plain(plain, minor, &asked);
            assert_eq!(refused.next(nfs_opnum4::OP_SEQUENCE), unbound);
            assert_eq!(world.run(&mut client, Ops::default()).status, NFS4_OK);
        }
        assert!(world.server.nfsd.files.has_state(client.id), "4.{minor}");
        let known = world.server.nfsd.server.client(client.id);
        let known = known.expect("it is there");
        assert_eq!(known.identity.as_deref(), Some(NAMES[0]));
    }
}

/// Nor after a restart, when nothing but its record tells of it.
#[test]
fn client_without_certificate_takes_no_name_and_no_state_of_before_a_restart() {
    const NAME: &str = "DNS:a.example.org";
    for minor in [0, 1, 2] {
        let mut world = World::new();
        let mut client = world.returned_with("a", minor, &[NAME]);
        if minor > 0 {
            world.complete(&mut client);
        }
        world.create(&mut client, "o", "f");
        world.restart();
        world.verifier = *b"another.";
        let number = match minor {
            0 => nfs_opnum4::OP_SETCLIENTID,
            _ => nfs_opnum4::OP_EXCHANGE_ID,
        };
        let [plain, other] = [0; 2].map(|_| world.connect());
        world.server.secure(other, &["DNS:b.example.org"]);
        for conn in [plain, other] {
            let introduction = world.introduction("a", minor);
            let status = world.plain(conn, minor, &introduction).next(number);
            assert_eq!(status, nfsstat4::NFS4ERR_CLID_INUSE, "4.{minor}");
        }
        let told = world.server.nfsd.take_clients_refused().list;
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|refused| *refused.owner == *b"a"));
        assert_eq!(told[1].identity.as_deref(), Some("DNS:b.example.org"));
        assert!(told[0].to_string().contains("before the restart"));
        let back = world.returned_with("a", minor, &[NAME]);
        let back = world
            .server
            .nfsd
            .server
            .client(back.id)
            .expect("it is there");
        assert!(back.may_reclaim());
    }
}

/// It has nothing to lose, and could hold or end what others have by their names.
#[test]
fn client_that_no_export_lets_in_has_no_record() {
    use nfsd::exports::{Clients, Rule};
    let mut world = World::new();
    let rule = |clients: &str, xprtsec| Rule {
        clients: Clients::nets(vec![clients.parse().expect("a network")]),
        xprtsec,
        ..Rule::default()
    };
    let all = XprtsecModes::ALL;
    let mtls = XprtsecModes::new(&[Xprtsec::Mtls]);
    let cases = [
        (rule("192.0.2.0/24", all), nfsstat4::NFS4ERR_ACCESS),
        (rule("127.0.0.1", mtls), nfsstat4::NFS4ERR_WRONGSEC),
        (rule("127.0.0.1", all), NFS4_OK),
    ];
    for (rule, expected) in cases {
        world
            .server
            .set_exports(exports_by(&world.fs, "/files", rule));
        for minor in [0, 1, 2] {
            let number = match minor {
                0 => nfs_opnum4::OP_SETCLIENTID,
                _ => nfs_opnum4::OP_EXCHANGE_ID,
            };
            let conn = world.connect();
            let introduction = world.introduction("a", minor);
            let status = world.plain(conn, minor, &introduction).next(number);
            assert_eq!(status, expected, "4.{minor}");
            let told = world.server.nfsd.take_refused().list;
            let paths: Vec<_> = told.iter().map(|refused| &*refused.path).collect();
            let is_told = expected != NFS4_OK;
            assert_eq!(paths, ["/files"][..usize::from(is_told)], "4.{minor}");
            let (clients, _) = world.server.nfsd.server.counts();
            assert_eq!(clients > 0, !is_told);
        }
    }
}

/// Reclaiming is for what a client had: the file's permissions say what it may have had.
#[test]
fn a_reclaim_by_a_user_who_could_not_have_opened_is_refused() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    world.uid = ALICE;
    let args = OPEN4args {
        share_access: BOTH,
        openhow: openflag4::OPEN4_CREATE(createhow4::GUARDED4(fattr4 {
            // The user who made it may write, whatever these bits say.
            attr_vals: wire::xdr::Opaque(&[0, 0, 1, 0]),
            ..private()
        })),
        ..opening(&client, "o", "f")
    };
    let ops = root().op(arg::OP_OPEN(args)).op(arg::OP_GETFH);
    let mut answer = world.run(&mut client, ops);
    answer.ok(nfs_opnum4::OP_PUTROOTFH).opened();
    let handle = answer.handle();
    world.uid = 0;
    world.restart();
    let mut client = world.returned("a", 1);
    let mut reclaim = |world: &mut World, uid| {
        world.uid = uid;
        let args = OPEN4args {
            share_access: BOTH,
            claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
            ..opening(&client.clone(), "o", "f")
        };
        world.open_at(&mut client, at(&handle), args).map(|_| ())
    };
    let refused = reclaim(&mut world, MALLORY);
    assert_eq!(refused, Err(nfsstat4::NFS4ERR_ACCESS));
    assert_eq!(reclaim(&mut world, ALICE), Ok(()));
}

/// An OPEN waits for the disk once, however many other clients come and go
/// meanwhile.
#[test]
fn an_open_waits_for_records_once_while_other_clients_go() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    world.file(&mut client, "f");
    let others: Vec<u64> = (0..20)
        .map(|at| world.client(&format!("other {at}"), 1).id)
        .collect();
    let (stateid, _) = world.create(&mut client, "holder", "g");
    let waits = Rc::new(Cell::new(0));
    let (counted, mut left) = (waits.clone(), others.into_iter());
    world.server.after_save = Some(Box::new(move |nfsd| {
        counted.set(counted.get() + 1);
        left.next().map(|id| nfsd.evict(id));
    }));
    // One is gone, and that is not safe yet.
    let gone = world.client("gone", 1);
    waits.set(0);
    assert!(world.server.nfsd.evict(gone.id));
    let args = opening(&client.clone(), "o", "f");
    world.open(&mut client, args).expect("it is free");
    assert_eq!(waits.get(), 1);
    let ops = root()
        .op(arg::OP_LOOKUP(LOOKUP4args {
            objname: wire::xdr::Opaque(b"g"),
        }))
        .op(arg::OP_LOCK(locking(&client, "l", stateid)));
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    assert_eq!(waits.get(), 2);
}

/// State that a call of a client makes after its eviction is taken away when another
/// client needs the file.
#[test]
fn state_made_after_an_eviction_does_not_deny_opens_of_others() {
    let mut world = World::new();
    let (mut a, mut b) = (world.client("a", 1), world.client("b", 1));
    let handle = world.file(&mut a, "f");
    let file = u64::from_le_bytes(*handle[16..].first_chunk().expect("a handle"));
    let nfsd = &world.server.nfsd;
    assert!(nfsd.evict(a.id));
    // As another reactor does that was about to when the client went.
    nfsd.files.admit_client(a.id, false);
    let late = nfsd.files.open(&OpenArgs {
        client: a.id,
        uid: 0,
        owner: b"late",
        file: (7, file),
        share: ShareReservation { access: 1, deny: 3 },
        delegate: None,
        open_xor_delegation: false,
        delegates_times: false,
        must_confirm: false,
        now: 0,
    });
    late.expect("it has state again");
    let args = opening(&b.clone(), "holder", "f");
    let opened = world.open(&mut b, args);
    opened.expect("the client that denies it is gone");
}

/// A call that waits while its export becomes that of other files touches none
/// of those.
#[test]
fn a_waiting_call_touches_no_files_of_a_swapped_export() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    world.file(&mut client, "f");
    let other = std::sync::Arc::new(
        store::fs::Memory::new("other", 1 << 30, 8, store::fs::Time::default()).expect("memory"),
    );
    // It has a file of that name, too.
    let mine = exports(&world.fs, "/");
    world.server.nfsd.exports.swap(exports(&other, "/"));
    world.file(&mut client, "victim");
    world.server.nfsd.exports.swap(mine);
    world.file(&mut client, "victim");
    let gone = world.client("gone", 1);
    assert!(world.server.nfsd.evict(gone.id));
    let swapped = other.clone();
    world.server.after_save = Some(Box::new(move |nfsd| {
        nfsd.exports.swap(exports(&swapped, "/"));
    }));
    let args = opening(&client, "o", "f");
    let ops = root()
        .op(arg::OP_SAVEFH)
        .op(arg::OP_OPEN(args))
        .op(arg::OP_RESTOREFH)
        .remove("victim");
    assert_eq!(world.last(&mut client, ops), nfsstat4::NFS4ERR_STALE);
    world.server.after_save = None;
    let ops = root().op(arg::OP_LOOKUP(LOOKUP4args {
        objname: wire::xdr::Opaque(b"victim"),
    }));
    assert_eq!(
        world.last(&mut client, ops),
        NFS4_OK,
        "that of others is there"
    );
}
