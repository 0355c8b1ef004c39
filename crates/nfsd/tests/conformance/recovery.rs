//! What only time brings: leases that run out, clients that come in the way of
//! those that have gone, restarts. Without sockets, where time is an argument.

use std::rc::Rc;

use nfsd::NfsdSettings;
use store::fs::FileSystem;
use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::Opaque;

use crate::machine;
use nfs_opnum4 as op;
use nfsstat4::*;

const SECOND: u64 = 1_000_000_000;
const R: u32 = OPEN4_SHARE_ACCESS_READ;
const RW: u32 = OPEN4_SHARE_ACCESS_BOTH;

fn lease() -> u64 {
    NfsdSettings::default().server.lease
}

fn grace() -> u64 {
    NfsdSettings::default().server.grace
}

fn serve(fs: &std::sync::Arc<dyn FileSystem>, known: &[&[u8]]) -> ServerUnderTest {
    let exports = vec![("/", fs.clone(), machine::rule())];
    let known = known.iter().map(|owner| Box::from(*owner)).collect();
    machine::tried(
        &machine::server(NfsdSettings::default(), exports, known),
        &[],
    )
}

fn wait(server: &ServerUnderTest, nanos: u64) {
    let advance = Rc::clone(server.advance.as_ref().expect("time is an argument"));
    // A tick at a time, as a target does it.
    for _ in 0..nanos.div_ceil(SECOND) {
        advance(SECOND);
    }
}

/// A client that is silent keeps what it has until another client needs it.
#[test]
fn a_courtesy_ends_when_another_client_needs_the_file() {
    for minor in MINORS {
        let server = serve(&machine::memory("courtesy"), &[]);
        let mut case = Case::new(&server, minor);
        let mut silent = TestClient::new(&server, minor);
        let dir = case.dir.clone();
        let mut kept = silent.open(&dir, "file", RW, OPEN4_SHARE_DENY_WRITE);
        wait(&server, lease() * 3);
        if minor == 0 {
            let id = case.client.id;
            let renew = nfs_argop4::OP_RENEW(RENEW4args { clientid: id });
            case.call(ops().op(renew)).ok();
        }
        // No client wanted the file: its state is still good.
        let read = ops().fh(&kept.handle).read(kept.stateid, 0, 4);
        silent.call(read.clone()).ok();
        silent.close(&mut kept).ok();
        let kept = silent.open(&dir, "file", RW, OPEN4_SHARE_DENY_WRITE);
        let refuse = |case: &mut Case| {
            let (owner, dir) = (case.client.owner(), case.dir.clone());
            let how = openflag4::OPEN4_NOCREATE;
            let opened = case.client.open_as(owner, &dir, "file", (RW, 0), how);
            opened.map_err(|(status, _)| status)
        };
        assert_eq!(refuse(&mut case).unwrap_err(), NFS4ERR_SHARE_DENIED);
        wait(&server, lease() * 3);
        refuse(&mut case).expect("the silent client is gone");
        let late = ops().fh(&kept.handle).read(kept.stateid, 0, 4);
        let status = match minor {
            0 => silent.call(late).status,
            _ => {
                let asked = sequence(silent.session, 0, silent.sequence + 1, false);
                silent.wire.compound(minor, &asked.then(late)).status
            }
        };
        let allowed = [
            NFS4ERR_EXPIRED,
            NFS4ERR_BAD_STATEID,
            NFS4ERR_BADSESSION,
            NFS4ERR_STALE_CLIENTID,
        ];
        assert!(allowed.contains(&status), "4.{minor}: {status:?}");
    }
}

/// After a restart clients on record reclaim, others wait, and the waiting ends
/// when all have reclaimed.
#[test]
fn a_restart_lets_clients_reclaim() {
    for minor in [1, 2] {
        let fs = machine::memory("restart");
        let before = serve(&fs, &[]);
        let mut case = Case::new(&before, minor);
        let held = case.open("file", RW, 0);
        let owner = case.client.owner.clone();
        // It starts again with the same files.
        let server = serve(&fs, &[&owner, b"another that was there"]);
        let mut back = TestClient::unborn(&server, minor);
        back.owner = owner;
        let asked = exchange_id(&back.owner, back.verifier, PLAIN);
        let answer = back.wire.compound(minor, &asked).ok();
        let next = back.known_as(&answer);
        back.begin_session(next, FORE);
        let old = ops().fh(&held.handle).read(held.stateid, 0, 4);
        let status = back.call(old).status;
        let allowed = [NFS4ERR_BAD_STATEID, NFS4ERR_STALE_STATEID];
        assert!(allowed.contains(&status), "{status:?}");
        let opens = back.owner();
        let reclaim = OPEN4args {
            claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
            ..open_args(&opens, "", RW, 0, openflag4::OPEN4_NOCREATE)
        };
        let mut stranger = TestClient::new(&server, minor);
        let refused = stranger.owner();
        let reclaims = OPEN4args {
            owner: refused.wire(),
            ..reclaim
        };
        let status = stranger.call(ops().fh(&held.handle).open(reclaims)).status;
        assert!(
            [NFS4ERR_NO_GRACE, NFS4ERR_RECLAIM_BAD].contains(&status),
            "{status:?}"
        );
        let open = open_args(&refused, "file", R, 0, openflag4::OPEN4_NOCREATE);
        stranger
            .call(ops().fh(&case.dir).open(open))
            .is(NFS4ERR_GRACE);
        let gone = ops().fh(&case.dir).remove("link");
        stranger.call(gone.clone()).is(NFS4ERR_GRACE);
        let answer = back.call(ops().fh(&held.handle).open(reclaim)).ok();
        let again = opened(&answer, opens.clone(), held.handle.clone());
        let lock = |reclaim| {
            ops().fh(&held.handle).op(nfs_argop4::OP_LOCK(LOCK4args {
                locktype: nfs_lock_type4::WRITE_LT,
                reclaim,
                offset: 0,
                length: 10,
                locker: locker4::TRUE(open_to_lock_owner4 {
                    open_seqid: 0,
                    open_stateid: again.stateid,
                    lock_seqid: 0,
                    lock_owner: opens.wire(),
                }),
            }))
        };
        back.call(lock(false)).is(NFS4ERR_GRACE);
        back.call(lock(true)).ok();
        let done = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
        back.call(ops().op(done)).ok();
        stranger.call(gone.clone()).is(NFS4ERR_GRACE);
        // The other one never comes: the period ends by itself.
        for _ in 0..grace() / SECOND + 1 {
            wait(&server, SECOND);
            back.call(ops().root()).ok();
        }
        let mut stranger = TestClient::new(&server, minor);
        stranger.call(gone).ok();
        // What was reclaimed holds.
        let mut late = TestClient::new(&server, minor);
        let owner = late.owner();
        let test = nfs_argop4::OP_LOCKT(LOCKT4args {
            locktype: nfs_lock_type4::READ_LT,
            offset: 3,
            length: 1,
            owner: owner.wire(),
        });
        late.call(ops().fh(&held.handle).op(test))
            .is(NFS4ERR_DENIED);
    }
}

/// All clients on record have reclaimed: no client waits any more.
#[test]
fn a_grace_period_ends_early() {
    let fs = machine::memory("early");
    let server = serve(&fs, &[b"the only one"]);
    let mut stranger = TestClient::new(&server, 1);
    let made = ops().root().mkdir("folder");
    stranger.call(made).ok();
    let gone = ops().root().remove("folder");
    stranger.call(gone.clone()).is(NFS4ERR_GRACE);
    let mut back = TestClient::unborn(&server, 1);
    back.owner = b"the only one".to_vec();
    let asked = exchange_id(&back.owner, back.verifier, PLAIN);
    let answer = back.wire.compound(1, &asked).ok();
    let next = back.known_as(&answer);
    back.begin_session(next, FORE);
    let done = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
    back.call(ops().op(done)).ok();
    stranger.call(gone).ok();
}

/// A delegation that its client does not return is taken.
#[test]
fn a_delegation_that_is_not_returned_is_revoked() {
    let server = serve(&machine::memory("revoked"), &[]);
    let mut case = Case::new(&server, 1);
    let mut holder = TestClient::new(&server, 1);
    let (owner, dir) = (holder.owner(), case.dir.clone());
    let wants = R | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let how = openflag4::OPEN4_NOCREATE;
    let held = holder
        .open_as(owner, &dir, "file", (wants, 0), how)
        .expect("an open");
    let delegation = held.delegation.expect("a delegation");
    let write = |case: &mut Case| {
        let (owner, dir) = (case.client.owner(), case.dir.clone());
        let opened = case.client.open_as(owner, &dir, "file", (RW, 0), how);
        opened.map(drop).map_err(|(status, _)| status)
    };
    assert_eq!(write(&mut case).unwrap_err(), NFS4ERR_DELAY);
    for _ in 0..lease() / SECOND + 30 {
        wait(&server, SECOND);
        holder.call(ops().root()).ok();
        case.call(ops().root()).ok();
    }
    write(&mut case).expect("the delegation is gone");
    let revoked = SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
    assert_ne!(holder.flags() & revoked, 0);
    let read = ops().fh(&held.handle).read(delegation, 0, 4);
    holder.call(read).is(NFS4ERR_DELEG_REVOKED);
    let tested = holder.call(ops().test_stateids(&[delegation])).ok();
    assert_eq!(
        tested.body(op::OP_TEST_STATEID)[4..],
        (NFS4ERR_DELEG_REVOKED as u32).to_be_bytes()
    );
    holder.call(ops().free_stateid(delegation)).ok();
    assert_eq!(holder.flags() & revoked, 0);
}

/// What is no longer exported is taken from clients that have it open.
#[test]
fn state_of_a_removed_export_is_admin_revoked() {
    let exports = vec![
        ("/kept", machine::memory("kept"), machine::rule()),
        ("/taken", machine::memory("taken"), machine::rule()),
    ];
    let kept = vec![("/kept", exports[0].1.clone(), machine::rule())];
    let raw = machine::server(NfsdSettings::default(), exports, Vec::new());
    let mut server = machine::tried(&raw, &["taken"]);
    server.base = vec!["taken".into()];
    let mut case = Case::new(&server, 1);
    let opened = case.open("file", RW, 0);
    raw.borrow_mut().nfsd.set_exports(machine::exports(kept));
    let read = ops().fh(&opened.handle).read(opened.stateid, 0, 4);
    case.call(read).is(NFS4ERR_STALE);
    assert_ne!(case.client.flags() & SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
    let tested = case.call(ops().test_stateids(&[opened.stateid])).ok();
    let told = &tested.body(op::OP_TEST_STATEID)[4..];
    assert_eq!(told, (NFS4ERR_ADMIN_REVOKED as u32).to_be_bytes());
    case.call(ops().free_stateid(opened.stateid)).ok();
    assert_eq!(case.client.flags() & SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
}

/// Exports as clients see them: the way to each, and which clients may use it.
#[test]
fn exports_are_what_a_client_may_see() {
    let mut none = machine::rule();
    none.clients = nfsd::exports::Clients::nets(vec!["192.0.2.0/24".parse().expect("a net")]);
    let mut fixed = machine::rule();
    fixed.is_read_only = true;
    let mut without_credential = machine::rule();
    without_credential.flavors = vec![nfs::connection::Flavor::None];
    let mut squashed = machine::rule();
    squashed.squash = nfsd::exports::Squash::All;
    let exports = vec![
        ("/a/open", machine::memory("open"), machine::rule()),
        ("/a/fixed", machine::memory("fixed"), fixed),
        ("/b/c/hidden", machine::memory("hidden"), none),
        ("/none", machine::memory("none"), without_credential),
        ("/squashed", machine::memory("squashed"), squashed),
    ];
    let server = machine::server(NfsdSettings::default(), exports, Vec::new());
    let server = machine::tried(&server, &[]);
    for minor in MINORS {
        let mut client = TestClient::new(&server, minor);
        let walk = |path: &str| {
            path.split('/')
                .fold(ops().root(), |ops, name| ops.lookup(name))
        };
        client.call(walk("a/open").getfh()).ok();
        client.call(walk("b")).is(NFS4ERR_NOENT);
        client.call(walk("a/nothing")).is(NFS4ERR_NOENT);
        client.call(walk("a").mkdir("x")).is(NFS4ERR_ROFS);
        client.call(walk("a").remove("open")).is(NFS4ERR_ROFS);
        client
            .call(walk("a").setattr(ANONYMOUS, &Attributes::mode(0)))
            .is(NFS4ERR_ROFS);
        client.call(walk("a/fixed").mkdir("x")).is(NFS4ERR_ROFS);
        let owner = client.owner();
        let how = unchecked_none();
        let open = open_args(&owner, "x", RW, 0, openflag4::OPEN4_CREATE(how));
        client.call(walk("a/fixed").open(open)).is(NFS4ERR_ROFS);
        client.call(walk("none")).is(NFS4ERR_WRONGSEC);
        let told = client.call(ops().root().secinfo("none")).ok();
        assert_eq!(told.body(op::OP_SECINFO), [0, 0, 0, 1, 0, 0, 0, 0]);
        // Up again, over the junction.
        let up = client.call(
            walk("a/open")
                .lookupp()
                .lookup("fixed")
                .lookupp()
                .lookupp()
                .getfh(),
        );
        let root = client.call(ops().root().getfh()).ok().handle();
        assert_eq!(up.ok().handle(), root);
        let fsid = |client: &mut TestClient, path: &str| -> fsid4 {
            client
                .call(walk(path).getattr(&[FATTR4_FSID]))
                .ok()
                .attribute()
        };
        let ids = [
            fsid(&mut client, "a"),
            fsid(&mut client, "a/open"),
            fsid(&mut client, "a/fixed"),
        ];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        let mounted = |client: &mut TestClient, which| -> u64 {
            client
                .call(walk("a/open").getattr(&[which]))
                .ok()
                .attribute()
        };
        let on = mounted(&mut client, FATTR4_MOUNTED_ON_FILEID);
        assert_ne!(on, mounted(&mut client, FATTR4_FILEID));
        let list = client
            .call(walk("a").readdir(0, [0; 8], 8192, &[FATTR4_MOUNTED_ON_FILEID]))
            .ok();
        let body = list.body(op::OP_READDIR);
        let told = <READDIR4resok as wire::xdr::Decode>::decode(&mut wire::xdr::Reader::new(body));
        let entries: Vec<_> = told.expect("entries").entries.iter().collect();
        let open = entries
            .iter()
            .find(|entry| entry.name.0 == b"open")
            .expect("open");
        assert_eq!(open.attrs.attr_vals.0, on.to_be_bytes());
        // Between exports nothing is moved or linked.
        let name = format!("from-{minor}");
        client.call(walk("a/open").mkdir(&name)).ok();
        let move_it = walk("a/open")
            .save()
            .root()
            .lookup("squashed")
            .rename(&name, "to");
        client.call(move_it).is(NFS4ERR_XDEV);
        // Every user is the anonymous one there.
        let made = client
            .call(walk("squashed").mkdir(&name).getattr(&[FATTR4_OWNER]))
            .ok();
        let mut expected = Vec::new();
        wire::xdr::Encode::encode(&Opaque::<8>(b"65534"), &mut expected);
        assert_eq!(made.attributes().1, expected);
    }
}

fn unchecked_none() -> createhow4<'static> {
    createhow4::UNCHECKED4(fattr4 {
        attrmask: wire::xdr::List::Of(&[]),
        attr_vals: Opaque(b""),
    })
}
