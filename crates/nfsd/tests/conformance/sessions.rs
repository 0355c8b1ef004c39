//! Clients and sessions: how they begin and end, slots and what they remember
//! (RFC 8881, sections 2.10, 15.1 and 18.33 to 18.51), and clients of version
//! 4.0 (RFC 7530, sections 9.1, 16.33 and 16.34).

use testkit::nfs::client::*;
use testkit::nfs::compound::*;
use wire::nfs4::*;
use wire::xdr::{Decode, List, Opaque, Reader};

use crate::names::{Row, SINCE_1, ask};
use nfs_opnum4 as op;
use nfsstat4::*;

fn destroy_session(session: [u8; 16]) -> Ops {
    ops().op(nfs_argop4::OP_DESTROY_SESSION(DESTROY_SESSION4args {
        dsa_sessionid: session,
    }))
}

fn destroy_clientid(id: u64) -> Ops {
    ops().op(nfs_argop4::OP_DESTROY_CLIENTID(DESTROY_CLIENTID4args {
        dca_clientid: id,
    }))
}

fn bind(session: [u8; 16], dir: channel_dir_from_client4) -> Ops {
    ops().op(nfs_argop4::OP_BIND_CONN_TO_SESSION(
        BIND_CONN_TO_SESSION4args {
            bctsa_sessid: session,
            bctsa_dir: dir,
            bctsa_use_conn_in_rdma_mode: false,
        },
    ))
}

fn reclaim_complete(is_one: bool) -> Ops {
    ops().op(nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args {
        rca_one_fs: is_one,
    }))
}

/// The answer to EXCHANGE_ID.
struct Exchanged {
    id: u64,
    next: u32,
    flags: u32,
}

fn exchanged(answer: &CompoundAnswer) -> Exchanged {
    let mut from = Reader::new(answer.body(op::OP_EXCHANGE_ID));
    let told = EXCHANGE_ID4resok::decode(&mut from).expect("EXCHANGE_ID4resok");
    assert!(!told.eir_server_owner.so_major_id.0.is_empty());
    assert!(!told.eir_server_scope.0.is_empty());
    assert!(matches!(told.eir_state_protect, state_protect4_r::SP4_NONE));
    Exchanged {
        id: told.eir_clientid,
        next: told.eir_sequenceid,
        flags: told.eir_flags,
    }
}

const UPDATES: u32 = PLAIN | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;

/// The rows of RFC 8881, section 18.35.4.
pub fn exchange_ids(case: &mut Case) {
    let (server, minor) = (case.server.clone(), case.minor);
    let mut client = TestClient::unborn(&server, minor);
    let owner = client.owner.clone();
    let mut call = |asked: Ops| client.wire.compound(minor, &asked);
    let first = exchanged(&call(exchange_id(&owner, [1; 8], PLAIN)).ok());
    assert_eq!(first.flags & EXCHGID4_FLAG_CONFIRMED_R, 0);
    assert_ne!(first.flags & EXCHGID4_FLAG_USE_NON_PNFS, 0);
    // Unconfirmed, and asked again: it may have another number.
    let second = exchanged(&call(exchange_id(&owner, [1; 8], PLAIN)).ok());
    call(exchange_id(&owner, [1; 8], UPDATES)).is(NFS4ERR_NOENT);
    let id = second.id;
    call(create_session(id, second.next + 1, 0, FORE)).is(NFS4ERR_SEQ_MISORDERED);
    call(create_session(id ^ 0x5555, second.next, 0, FORE)).is(NFS4ERR_STALE_CLIENTID);
    let made = call(create_session(id, second.next, 0, FORE)).ok();
    let session = made.body(op::OP_CREATE_SESSION).to_vec();
    // Asked again: the answer of the first time.
    let again = call(create_session(id, second.next, 0, FORE)).ok();
    assert_eq!(again.body(op::OP_CREATE_SESSION), session);
    let known = exchanged(&call(exchange_id(&owner, [1; 8], PLAIN)).ok());
    assert_eq!(known.id, id, "one incarnation has one number");
    assert_ne!(known.flags & EXCHGID4_FLAG_CONFIRMED_R, 0);
    let updated = exchanged(&call(exchange_id(&owner, [1; 8], UPDATES)).ok());
    assert_eq!(updated.id, id);
    call(exchange_id(&owner, [2; 8], UPDATES)).is(NFS4ERR_NOT_SAME);
    // Flags that only a server sets, or that are none.
    call(exchange_id(&owner, [1; 8], EXCHGID4_FLAG_CONFIRMED_R)).is(NFS4ERR_INVAL);
    call(exchange_id(&owner, [1; 8], 1 << 28)).is(NFS4ERR_INVAL);
    // It started again: the old one stays until the new one is confirmed.
    let session: [u8; 16] = session[..16].try_into().expect("a session");
    let reborn = exchanged(&call(exchange_id(&owner, [3; 8], PLAIN)).ok());
    assert_ne!(reborn.id, id);
    call(sequence(session, 0, 1, false)).ok();
    call(create_session(reborn.id, reborn.next, 0, FORE)).ok();
    call(sequence(session, 0, 2, false)).is(NFS4ERR_BADSESSION);
    call(create_session(id, second.next + 1, 0, FORE)).is(NFS4ERR_STALE_CLIENTID);
    // State protection that weft has not.
    let ssv = ssv_sp_parms4 {
        ssp_ops: state_protect_ops4 {
            spo_must_enforce: List::Of(&[]),
            spo_must_allow: List::Of(&[]),
        },
        ssp_hash_algs: List::Of(&[]),
        ssp_encr_algs: List::Of(&[]),
        ssp_window: 1,
        ssp_num_gss_handles: 1,
    };
    let asked = nfs_argop4::OP_EXCHANGE_ID(EXCHANGE_ID4args {
        eia_clientowner: client_owner4 {
            co_verifier: [1; 8],
            co_ownerid: Opaque(b"with a secret"),
        },
        eia_flags: PLAIN,
        eia_state_protect: state_protect4_a::SP4_SSV(ssv),
        eia_client_impl_id: List::Of(&[]),
    });
    let refused = call(ops().op(asked));
    assert_ne!(refused.status, NFS4_OK, "SSV is not there");
    // Another user with the same client name.
    client.wire.credential = Credential::user(4711);
    let other = client
        .wire
        .compound(minor, &exchange_id(&owner, [3; 8], PLAIN));
    other.is(NFS4ERR_CLID_INUSE);
}

/// What a session may be, and what is made of it.
pub fn channels(case: &mut Case) {
    let (server, minor) = (case.server.clone(), case.minor);
    let identified = |server: &ServerUnderTest| {
        let mut client = TestClient::unborn(server, minor);
        let asked = exchange_id(&client.owner, client.verifier, PLAIN);
        let answer = client.wire.compound(minor, &asked).ok();
        let next = client.known_as(&answer);
        (client, next)
    };
    let small = |ca_maxrequestsize, ca_maxresponsesize| channel_attrs4 {
        ca_maxrequestsize,
        ca_maxresponsesize,
        ..FORE
    };
    let rows = [
        (0, small(40, 4096), NFS4ERR_TOOSMALL),
        (0, small(4096, 40), NFS4ERR_TOOSMALL),
        (1 << 9, FORE, NFS4ERR_INVAL),
    ];
    for (flags, fore, expected) in rows {
        let (mut client, next) = identified(&server);
        let asked = create_session(client.id, next, flags, fore);
        let status = client.wire.compound(minor, &asked).status;
        assert_eq!(status, expected, "4.{minor} {flags} {fore:?}");
    }
    let (mut client, next) = identified(&server);
    let vast = channel_attrs4 {
        ca_maxrequestsize: u32::MAX,
        ca_maxresponsesize: u32::MAX,
        ca_maxresponsesize_cached: u32::MAX,
        ca_maxoperations: u32::MAX,
        ca_maxrequests: u32::MAX,
        ..FORE
    };
    let asked = create_session(client.id, next, CREATE_SESSION4_FLAG_PERSIST, vast);
    let made = client.wire.compound(minor, &asked).ok();
    let told = CREATE_SESSION4resok::decode(&mut Reader::new(made.body(op::OP_CREATE_SESSION)));
    let told = told.expect("CREATE_SESSION4resok");
    assert_eq!(told.csr_flags & CREATE_SESSION4_FLAG_PERSIST, 0);
    let fore = told.csr_fore_chan_attrs;
    assert!(
        fore.ca_maxrequests <= 4096 && fore.ca_maxoperations <= 4096,
        "{fore:?}"
    );
    assert!(fore.ca_maxrequestsize < 1 << 28 && fore.ca_maxresponsesize < 1 << 28);
    client.session = told.csr_sessionid;
    let call = |client: &mut TestClient, asked: &Ops| client.wire.compound(minor, asked).status;
    let slot = fore.ca_maxrequests;
    let beyond = sequence(client.session, slot, 1, false);
    assert_eq!(call(&mut client, &beyond), NFS4ERR_BADSLOT);
    // A session of a few small things.
    let tiny = channel_attrs4 {
        ca_maxrequestsize: 1024,
        ca_maxresponsesize: 1024,
        ca_maxresponsesize_cached: 512,
        ca_maxoperations: 4,
        ca_maxrequests: 1,
        ..FORE
    };
    client.begin_session(next + 1, tiny);
    let session = client.session;
    let seq = |n: u32, kept: bool| sequence(session, 0, n, kept);
    let many = (0..4).fold(seq(1, false), |ops, _| ops.root());
    assert_eq!(call(&mut client, &many), NFS4ERR_TOO_MANY_OPS);
    let root = seq(1, false).root().lookup(&"x".repeat(1100));
    assert_eq!(call(&mut client, &root), NFS4ERR_REQ_TOO_BIG);
    let (dir, path) = (case.dir.clone(), "long".to_owned());
    case.call(ops().fh(&dir).create(
        createtype4::NF4LNK(Opaque(&[b't'; 1500])),
        &path,
        &Attributes::none(),
    ))
    .ok();
    let read = ops().fh(&dir).lookup(&path).readlink();
    assert_eq!(
        call(&mut client, &seq(1, false).then(read.clone())),
        NFS4ERR_REP_TOO_BIG
    );
    case.call(ops().fh(&dir).create(
        createtype4::NF4LNK(Opaque(&[b't'; 700])),
        "longer",
        &Attributes::none(),
    ))
    .ok();
    let read = ops().fh(&dir).lookup("longer").readlink();
    assert_eq!(
        call(&mut client, &seq(2, true).then(read.clone())),
        NFS4ERR_REP_TOO_BIG_TO_CACHE
    );
    assert_eq!(call(&mut client, &seq(3, false).then(read)), NFS4_OK);
}

/// What stands where in a COMPOUND (RFC 8881, section 2.10.2 and 18.46).
pub fn places(case: &mut Case) {
    let (minor, session, id) = (case.minor, case.client.session, case.client.id);
    let next = case.client.sequence + 1;
    let rows: &[(&str, Ops, nfsstat4)] = &[
        ("no session", ops().root(), NFS4ERR_OP_NOT_IN_SESSION),
        (
            "no session",
            ops().then(reclaim_complete(false)),
            NFS4ERR_OP_NOT_IN_SESSION,
        ),
        (
            "EXCHANGE_ID and more",
            exchange_id(b"x", [0; 8], PLAIN).root(),
            NFS4ERR_NOT_ONLY_OP,
        ),
        (
            "CREATE_SESSION and more",
            create_session(id, 9, 0, FORE).root(),
            NFS4ERR_NOT_ONLY_OP,
        ),
        (
            "DESTROY_CLIENTID and more",
            destroy_clientid(id).root(),
            NFS4ERR_NOT_ONLY_OP,
        ),
        (
            "BIND and more",
            bind(session, channel_dir_from_client4::CDFC4_FORE).root(),
            NFS4ERR_NOT_ONLY_OP,
        ),
        (
            "not the last",
            destroy_session(session).root(),
            NFS4ERR_NOT_ONLY_OP,
        ),
        (
            "unknown session",
            sequence([9; 16], 0, 1, false),
            NFS4ERR_BADSESSION,
        ),
        (
            "a session to destroy",
            destroy_session([9; 16]),
            NFS4ERR_BADSESSION,
        ),
        (
            "a session to bind to",
            bind([9; 16], channel_dir_from_client4::CDFC4_FORE),
            NFS4ERR_BADSESSION,
        ),
        (
            "a client to destroy",
            destroy_clientid(id ^ 0x5a5a),
            NFS4ERR_STALE_CLIENTID,
        ),
        (
            "a client with a session",
            destroy_clientid(id),
            NFS4ERR_CLIENTID_BUSY,
        ),
        (
            "no operation 2",
            ops().raw(&[0, 0, 0, 2]),
            NFS4ERR_OP_ILLEGAL,
        ),
        (
            "no operation 76",
            ops().raw(&[0, 0, 0, 76]),
            NFS4ERR_OP_ILLEGAL,
        ),
        (
            "no operation 10044",
            ops().raw(&10044u32.to_be_bytes()),
            NFS4ERR_OP_ILLEGAL,
        ),
        ("nothing", ops(), NFS4_OK),
    ];
    for (what, asked, status) in rows {
        let found = case.client.wire.compound(minor, asked).status;
        assert_eq!(found, *status, "4.{minor} {what}");
    }
    let twice = sequence(session, 0, next, false).then(sequence(session, 1, 1, false));
    case.client
        .wire
        .compound(minor, &twice)
        .is(NFS4ERR_SEQUENCE_POS);
    case.client.sequence = next;
    ask(case, IN_SESSION);
    let flags = case.client.flags();
    assert_eq!(
        flags & SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED,
        0,
        "{flags:x}"
    );
    // Versions that there are not, and operations that a version has not.
    let future = case.client.wire.compound(3, &ops().root());
    assert_eq!(
        (future.status, future.results.len()),
        (NFS4ERR_MINOR_VERS_MISMATCH, 0)
    );
    if minor == 1 {
        let advised = ops().raw(&[[0, 0, 0, 59].as_slice(), &[0; 32]].concat());
        case.call(advised).is(NFS4ERR_OP_ILLEGAL);
    }
}

#[rustfmt::skip]
const IN_SESSION: &[Row] = &[
    Row("SETCLIENTID", SINCE_1, |_| setclientid(b"x", [0; 8]), &[NFS4ERR_NOTSUPP]),
    Row("SETCLIENTID_CONFIRM", SINCE_1, |_| setclientid_confirm(0, [0; 8]), &[NFS4ERR_NOTSUPP]),
    Row("RENEW", SINCE_1, |c| ops().op(nfs_argop4::OP_RENEW(RENEW4args { clientid: c.client.id })), &[NFS4ERR_NOTSUPP]),
    Row("OPEN_CONFIRM", SINCE_1, |_| ops().op(nfs_argop4::OP_OPEN_CONFIRM(OPEN_CONFIRM4args { open_stateid: ANONYMOUS, seqid: 0 })), &[NFS4ERR_NOTSUPP]),
    Row("RELEASE_LOCKOWNER", SINCE_1, |c| { let owner = c.client.owner(); ops().op(nfs_argop4::OP_RELEASE_LOCKOWNER(RELEASE_LOCKOWNER4args { lock_owner: owner.wire() })) }, &[NFS4ERR_NOTSUPP]),
    Row("RECLAIM_COMPLETE again", SINCE_1, |_| reclaim_complete(false), &[NFS4ERR_COMPLETE_ALREADY]),
    Row("BIND_CONN_TO_SESSION in a session", SINCE_1, |c| bind(c.client.session, channel_dir_from_client4::CDFC4_FORE), &[NFS4ERR_NOT_ONLY_OP]),
    Row("LAYOUTGET", SINCE_1, |c| ops().fh(&c.file).raw(&[[0, 0, 0, 50].as_slice(), &[0; 52]].concat()), &[NFS4ERR_NOTSUPP, NFS4ERR_LAYOUTUNAVAILABLE]),
    Row("GETDEVICEINFO", SINCE_1, |_| ops().raw(&[[0, 0, 0, 47].as_slice(), &[0; 28]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("GET_DIR_DELEGATION", SINCE_1, |c| ops().fh(&c.dir).raw(&[[0, 0, 0, 46].as_slice(), &[0; 48]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("SET_SSV", SINCE_1, |_| ops().raw(&[[0, 0, 0, 54].as_slice(), &[0; 8]].concat()), &[NFS4ERR_NOTSUPP, NFS4ERR_INVAL]),
    Row("WANT_DELEGATION", SINCE_1, |c| ops().fh(&c.file).raw(&[[0, 0, 0, 56].as_slice(), &[0; 8]].concat()), &[NFS4ERR_NOTSUPP]),
    Row("BACKCHANNEL_CTL", SINCE_1, |_| ops().op(nfs_argop4::OP_BACKCHANNEL_CTL(BACKCHANNEL_CTL4args { bca_cb_program: CALLBACK, bca_sec_parms: List::Of(&[callback_sec_parms4::case_0]) })), &[NFS4_OK]),
];

/// Slots (RFC 8881, section 2.10.6).
pub fn slots(case: &mut Case) {
    let (minor, session) = (case.minor, case.client.session);
    let dir = case.dir.clone();
    let seq = |slot: u32, n: u32, kept: bool| sequence(session, slot, n, kept);
    let wire = &mut case.client.wire;
    // Done once, however often it is asked for.
    let asked = seq(1, 1, true).fh(&dir).mkdir("once").getfh();
    let first = wire.compound(minor, &asked).ok();
    let again = wire.compound(minor, &asked).ok();
    let bodies = |answer: &CompoundAnswer| -> Vec<Vec<u8>> {
        answer.results.iter().map(|r| r.body.clone()).collect()
    };
    assert_eq!(bodies(&first), bodies(&again));
    // A refusal is remembered too.
    let refused = seq(1, 2, true).fh(&dir).mkdir("once");
    wire.compound(minor, &refused).is(NFS4ERR_EXIST);
    wire.compound(minor, &seq(2, 1, false).fh(&dir).remove("once"))
        .ok();
    wire.compound(minor, &refused).is(NFS4ERR_EXIST);
    // Another request by the same number.
    let other = seq(1, 2, true).fh(&dir).remove("file").root().root();
    let status = wire.compound(minor, &other).status;
    let allowed = [NFS4ERR_SEQ_FALSE_RETRY, NFS4ERR_EXIST];
    assert!(allowed.contains(&status), "{status:?}");
    wire.compound(minor, &seq(1, 1, true))
        .is(NFS4ERR_SEQ_MISORDERED);
    wire.compound(minor, &seq(1, 4, true))
        .is(NFS4ERR_SEQ_MISORDERED);
    wire.compound(minor, &seq(3, 0, true))
        .is(NFS4ERR_SEQ_MISORDERED);
    wire.compound(minor, &seq(1, 3, false)).ok();
    wire.compound(minor, &seq(999, 1, false))
        .is(NFS4ERR_BADSLOT);
    // What was not to be kept, and was not.
    let asked = seq(2, 2, false).fh(&dir).mkdir("unkept");
    wire.compound(minor, &asked).ok();
    let again = wire.compound(minor, &asked);
    let allowed = [NFS4ERR_RETRY_UNCACHED_REP, NFS4_OK];
    assert!(allowed.contains(&again.status), "{again:?}");
    // SEQUENCE alone is kept anyway.
    wire.compound(minor, &seq(2, 3, false)).ok();
    wire.compound(minor, &seq(2, 3, false)).ok();
    let mut high = SEQUENCE4args {
        sa_sessionid: session,
        sa_sequenceid: 4,
        sa_slotid: 2,
        sa_highest_slotid: 1,
        sa_cachethis: false,
    };
    let asked = ops().op(nfs_argop4::OP_SEQUENCE(high));
    let status = wire.compound(minor, &asked).status;
    assert!(
        [NFS4ERR_BAD_HIGH_SLOT, NFS4_OK].contains(&status),
        "{status:?}"
    );
    high.sa_highest_slotid = 2;
    high.sa_sequenceid = if status == NFS4_OK { 5 } else { 4 };
    let told = wire
        .compound(minor, &ops().op(nfs_argop4::OP_SEQUENCE(high)))
        .ok();
    let told: SEQUENCE4resok = told.get(op::OP_SEQUENCE);
    assert_eq!(
        (told.sr_sessionid, told.sr_sequenceid, told.sr_slotid),
        (session, high.sa_sequenceid, 2)
    );
    assert!(told.sr_highest_slotid >= 2 && told.sr_target_highest_slotid >= 2);
    // The number after the last is 0.
    case.call(ops().root()).ok();
}

/// Several connections of one session, and sessions of one client.
pub fn trunks(case: &mut Case) {
    let (server, minor) = (case.server.clone(), case.minor);
    let session = case.client.session;
    let mut second = case.client.sibling(&server);
    // A request on a connection that is not bound binds it.
    let asked = sequence(session, 1, 1, false).root();
    second.wire.compound(minor, &asked).ok();
    // What was answered to one connection is answered on another.
    let asked = sequence(session, 2, 1, true).fh(&case.dir).mkdir("trunk");
    second.wire.compound(minor, &asked).ok();
    case.client.wire.compound(minor, &asked).ok();
    for (dir, expected) in [
        (
            channel_dir_from_client4::CDFC4_FORE,
            channel_dir_from_server4::CDFS4_FORE,
        ),
        (
            channel_dir_from_client4::CDFC4_FORE_OR_BOTH,
            channel_dir_from_server4::CDFS4_BOTH,
        ),
        (
            channel_dir_from_client4::CDFC4_BACK_OR_BOTH,
            channel_dir_from_server4::CDFS4_BOTH,
        ),
    ] {
        let told = second.wire.compound(minor, &bind(session, dir)).ok();
        let told: BIND_CONN_TO_SESSION4resok = told.get(op::OP_BIND_CONN_TO_SESSION);
        assert_eq!(told.bctsr_sessid, session);
        let may = told.bctsr_dir == expected
            || (dir == channel_dir_from_client4::CDFC4_FORE_OR_BOTH
                && told.bctsr_dir == channel_dir_from_server4::CDFS4_FORE);
        assert!(may, "{dir:?}: {told:?}");
    }
    // Another session of the same client.
    let asked = exchange_id(&case.client.owner, case.client.verifier, PLAIN);
    let known = exchanged(&second.wire.compound(minor, &asked).ok());
    second.begin_session(known.next, FORE);
    assert_ne!(second.session, session);
    second.call(ops().root()).ok();
    // One goes, the other stays; then the client itself may go.
    case.client
        .wire
        .compound(minor, &destroy_session(second.session))
        .ok();
    let gone = sequence(second.session, 0, 2, false);
    second.wire.compound(minor, &gone).is(NFS4ERR_BADSESSION);
    case.call(ops().root()).ok();
    let last = sequence(session, 0, case.client.sequence + 1, false).then(destroy_session(session));
    case.client.wire.compound(minor, &last).ok();
    case.client
        .wire
        .compound(minor, &destroy_clientid(known.id))
        .ok();
    case.client
        .wire
        .compound(minor, &destroy_clientid(known.id))
        .is(NFS4ERR_STALE_CLIENTID);
}

/// Before RECLAIM_COMPLETE a client may reclaim, and nothing else.
pub fn completes(case: &mut Case) {
    let (server, minor) = (case.server.clone(), case.minor);
    let mut client = TestClient::unborn(&server, minor);
    let asked = exchange_id(&client.owner, client.verifier, PLAIN);
    let answer = client.wire.compound(minor, &asked).ok();
    let next = client.known_as(&answer);
    client.begin_session(next, FORE);
    let owner = client.owner();
    let dir = case.dir.clone();
    let open = open_args(
        &owner,
        "file",
        OPEN4_SHARE_ACCESS_READ,
        0,
        openflag4::OPEN4_NOCREATE,
    );
    client.call(ops().fh(&dir).open(open)).is(NFS4ERR_GRACE);
    // Of one file system: that is another thing (section 18.51.3).
    client
        .call(ops().fh(&dir).then(reclaim_complete(true)))
        .ok();
    client.call(reclaim_complete(false)).ok();
    client
        .call(reclaim_complete(false))
        .is(NFS4ERR_COMPLETE_ALREADY);
    client.call(ops().fh(&dir).open(open)).ok();
    let reclaim = OPEN4args {
        claim: open_claim4::CLAIM_PREVIOUS(open_delegation_type4::OPEN_DELEGATE_NONE),
        ..open
    };
    client
        .call(ops().fh(&case.file).open(reclaim))
        .is(NFS4ERR_NO_GRACE);
}

/// Clients of version 4.0.
pub fn without_sessions(case: &mut Case) {
    let server = case.server.clone();
    let mut client = TestClient::unborn(&server, 0);
    let owner = client.owner.clone();
    let mut call = |asked: Ops| client.wire.compound(0, &asked);
    let told = |answer: CompoundAnswer| answer.ok().get::<SETCLIENTID4resok>(op::OP_SETCLIENTID);
    let first = told(call(setclientid(&owner, [1; 8])));
    call(setclientid_confirm(first.clientid, [9; 8])).is(NFS4ERR_STALE_CLIENTID);
    call(setclientid_confirm(
        !first.clientid,
        first.setclientid_confirm,
    ))
    .is(NFS4ERR_STALE_CLIENTID);
    let renew = |id: u64| ops().op(nfs_argop4::OP_RENEW(RENEW4args { clientid: id }));
    call(renew(!first.clientid)).is(NFS4ERR_STALE_CLIENTID);
    call(setclientid_confirm(
        first.clientid,
        first.setclientid_confirm,
    ))
    .ok();
    call(setclientid_confirm(
        first.clientid,
        first.setclientid_confirm,
    ))
    .ok();
    call(renew(first.clientid)).ok();
    // New callbacks of the same incarnation: the number stays.
    let second = told(call(setclientid(&owner, [1; 8])));
    assert_eq!(second.clientid, first.clientid);
    call(setclientid_confirm(
        second.clientid,
        second.setclientid_confirm,
    ))
    .ok();
    // It started again.
    let third = told(call(setclientid(&owner, [2; 8])));
    assert_ne!(third.clientid, first.clientid);
    call(renew(first.clientid)).ok();
    call(setclientid_confirm(
        third.clientid,
        third.setclientid_confirm,
    ))
    .ok();
    let status = call(renew(first.clientid)).status;
    assert!(
        [NFS4ERR_STALE_CLIENTID, NFS4ERR_EXPIRED].contains(&status),
        "{status:?}"
    );
    call(renew(third.clientid)).ok();
    // Operations of versions to come.
    for number in [40u32, 42, 53, 58, 59, 75] {
        call(ops().raw(&number.to_be_bytes())).is(NFS4ERR_OP_ILLEGAL);
    }
    let purge = nfs_argop4::OP_DELEGPURGE(DELEGPURGE4args {
        clientid: third.clientid,
    });
    let status = call(ops().op(purge)).status;
    assert!([NFS4_OK, NFS4ERR_NOTSUPP].contains(&status), "{status:?}");
    // Another user with the same client name, while this one has state.
    let dir = case.dir.clone();
    let mut owner_of_opens = client.owner();
    owner_of_opens.client = third.clientid;
    let how = openflag4::OPEN4_NOCREATE;
    client.id = third.clientid;
    client
        .open_as(owner_of_opens, &dir, "file", (1, 0), how)
        .expect("an open");
    client.wire.credential = Credential::user(4711);
    client
        .wire
        .compound(0, &setclientid(&owner, [2; 8]))
        .is(NFS4ERR_CLID_INUSE);
}
