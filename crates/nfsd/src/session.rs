//! Clients and sessions (RFC 8881, sections 18.33 to 18.37, 18.50, 18.51; RFC
//! 7530, sections 16.29, 16.33, 16.34).

use faults::Fault;
use machine::work;
use nfs::server::{CallbackWay, Channel, ClientOwner, Operations, Protection};
use store::fs::{self, Output};
use wire::nfs4::{
    BACKCHANNEL_CTL4args, BIND_CONN_TO_SESSION4args, BIND_CONN_TO_SESSION4resok,
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4args, CREATE_SESSION4resok,
    DESTROY_CLIENTID4args, DESTROY_SESSION4args, EXCHANGE_ID4args, EXCHANGE_ID4resok,
    EXCHGID4_FLAG_CONFIRMED_R, EXCHGID4_FLAG_USE_NON_PNFS, RECLAIM_COMPLETE4args, RENEW4args,
    SETCLIENTID_CONFIRM4args, SETCLIENTID4args, SETCLIENTID4resok, channel_attrs4,
    channel_dir_from_client4, clientaddr4, nfsstat4, server_owner4, state_protect_ops4,
    state_protect4_a, state_protect4_r,
};
use wire::xdr::{Encode, List, Opaque};

use crate::call::{Elsewhere, OperationOutcome, RunningCall, Step};
use crate::callback::callback_address;
use crate::continuation::{Continuation, ThenSession};

pub(crate) fn resume<'a>(
    run: &mut RunningCall<'a>,
    then: ThenSession,
    _result: Result<Output, fs::Error>,
) -> OperationOutcome<'a> {
    match then {
        ThenSession::Recorded => run.ok(|_| {}),
    }
}

pub(crate) fn renew<'a>(run: &mut RunningCall<'a>, args: &RENEW4args) -> OperationOutcome<'a> {
    let client = run.nfsd.server.renew(args.clientid, run.now)?;
    let path = run.nfsd.server.callback_path(client.id);
    let is_down = path.is_some_and(|path| path.is_down());
    if is_down && run.nfsd.files.has_delegations() {
        let counts = run.nfsd.files.counts(client.id);
        work::spend(counts.iter().sum::<usize>() as u64);
        let [_, _, delegations, _] = counts;
        if delegations > 0 {
            return Err(nfsstat4::NFS4ERR_CB_PATH_DOWN);
        }
    }
    run.ok(|_| {})
}

pub(crate) fn setclientid<'a>(
    run: &mut RunningCall<'a>,
    args: &SETCLIENTID4args<'a>,
) -> OperationOutcome<'a> {
    let owner = ClientOwner {
        verifier: args.client.verifier,
        id: args.client.id.0,
        host: run.peer.asker().host,
        implementation: b"",
        identity: run.proven_identity(),
        protection: None,
    };
    let is_proven = run.credential().flavor.is_gss();
    let callback = (&args.callback, args.callback_ident);
    let address = callback_address(run.peer, is_proven, callback);
    let principal = run.principal();
    let server = &run.nfsd.server;
    run.nfsd.check_arrival(run.peer, 0, &owner)?;
    let has_state = |id| run.nfsd.files.has_state(id);
    match server.set_clientid(owner, address, principal, (run.now, &has_state)) {
        Ok((clientid, setclientid_confirm)) => {
            run.nfsd.remove_gone_clients();
            let resok = SETCLIENTID4resok {
                clientid,
                setclientid_confirm,
            };
            run.ok(|to| resok.encode(to))
        }
        Err(status @ nfsstat4::NFS4ERR_CLID_INUSE) => {
            run.name_refused(status, owner.id, || server.named(0, owner.id));
            // The address of the client that has the name is not for others.
            let hidden = clientaddr4 {
                r_netid: Opaque(b"tcp"),
                r_addr: Opaque(b"0.0.0.0.0.0"),
            };
            run.answer(status, |to| hidden.encode(to))
        }
        Err(status) => Err(status),
    }
}

pub(crate) fn setclientid_confirm<'a>(
    run: &mut RunningCall<'a>,
    args: &SETCLIENTID_CONFIRM4args,
) -> OperationOutcome<'a> {
    let principal = run.principal();
    let (id, verifier) = (args.clientid, args.setclientid_confirm);
    let server = &run.nfsd.server;
    let confirmed = server.confirm_clientid(id, verifier, principal, run.now);
    confirmed.map_err(|status| run.client_refused(status, server.introduced(id)))?;
    run.nfsd.admit(id, true);
    run.nfsd.remove_gone_clients();
    // It may have delegations once it has answered.
    run.nfsd.proves_path(id, run.now);
    run.ok(|_| {})
}

pub(crate) fn backchannel_ctl<'a>(
    run: &mut RunningCall<'a>,
    args: &BACKCHANNEL_CTL4args<'a>,
) -> OperationOutcome<'a> {
    let session = run.session().ok_or(nfsstat4::NFS4ERR_OP_NOT_IN_SESSION)?;
    run.check_enforced(&session.client)?;
    let way = CallbackWay::first(args.bca_sec_parms.iter(), &|handle| {
        has_context(run, handle)
    })?;
    session.set_callback_program(args.bca_cb_program, way);
    run.ok(|_| {})
}

/// Whether a call may name the context of a handle for callbacks: one of its own principal.
fn has_context(run: &RunningCall<'_>, handle: &[u8]) -> bool {
    let principal = run.nfsd.contexts.principal_of(handle, run.now);
    principal == Some(run.credential().principal)
}

pub(crate) fn bind_conn_to_session<'a>(
    run: &mut RunningCall<'a>,
    args: &BIND_CONN_TO_SESSION4args,
) -> OperationOutcome<'a> {
    let held = run.peer.session(run.nfsd, &args.bctsa_sessid);
    let held = held.ok_or(nfsstat4::NFS4ERR_BADSESSION)?;
    let principal = run.principal();
    let client = &held.session.client;
    let checked = client.check_protection(principal);
    checked.map_err(|status| run.client_refused(status, Some(client.clone())))?;
    let dir = held.session.bind(run.peer.id, args.bctsa_dir)?;
    held.bind();
    run.peer.states.bound(&held.session);
    held.session.client.renew(run.now);
    if faults::is(Fault::ForgetLocks) {
        run.nfsd.forget(held.session.client.id);
    }
    let resok = BIND_CONN_TO_SESSION4resok {
        bctsr_sessid: args.bctsa_sessid,
        bctsr_dir: dir,
        bctsr_use_conn_in_rdma_mode: false,
    };
    // What waited for a way to the client has one.
    run.nfsd.post_waiting(held.session.client.id, run.now);
    run.ok(|to| resok.encode(to))
}

pub(crate) fn exchange_id<'a>(
    run: &mut RunningCall<'a>,
    args: &EXCHANGE_ID4args<'a>,
) -> OperationOutcome<'a> {
    let protection = match &args.eia_state_protect {
        state_protect4_a::SP4_NONE => None,
        // It rests on what cannot be changed on the way.
        state_protect4_a::SP4_MACH_CRED(_) if !run.credential().flavor.has_integrity() => {
            return Err(nfsstat4::NFS4ERR_INVAL);
        }
        state_protect4_a::SP4_MACH_CRED(ops) => {
            let enforced = Operations::of_bitmap(ops.spo_must_enforce.iter());
            let allowed = Operations::of_bitmap(ops.spo_must_allow.iter());
            Some(Protection::new(enforced, allowed))
        }
        state_protect4_a::SP4_SSV(_) => return Err(nfsstat4::NFS4ERR_ENCR_ALG_UNSUPP),
    };
    let implementation = args.eia_client_impl_id.iter().next();
    let owner = ClientOwner {
        verifier: args.eia_clientowner.co_verifier,
        id: args.eia_clientowner.co_ownerid.0,
        host: run.peer.asker().host,
        implementation: implementation.map_or(b"", |own| own.nii_name.0),
        identity: run.proven_identity(),
        protection,
    };
    let principal = run.principal();
    let (server, minor) = (&run.nfsd.server, run.minor());
    run.nfsd.check_arrival(run.peer, minor, &owner)?;
    let files = &run.nfsd.files;
    let has_state = |id| files.has_state(id);
    let known: (_, &dyn Fn(_) -> _) = (run.now, &has_state);
    let exchanged = server.exchange_id(minor, owner, args.eia_flags, principal, known);
    let holder = || server.named(minor, owner.id);
    let exchanged = exchanged.map_err(|status| run.name_refused(status, owner.id, holder))?;
    run.nfsd.remove_gone_clients();
    let confirmed = match exchanged.is_confirmed {
        true => EXCHGID4_FLAG_CONFIRMED_R,
        false => 0,
    };
    // The same on every address of this server, and on no other server.
    let identity = run.nfsd.settings.identity;
    let of = exchanged.protection.unwrap_or_default();
    let (enforced, allowed) = (of.enforced.bitmap(), of.allowed.bitmap());
    let resok = EXCHANGE_ID4resok {
        eir_clientid: exchanged.clientid,
        eir_sequenceid: exchanged.sequenceid,
        eir_flags: EXCHGID4_FLAG_USE_NON_PNFS | confirmed,
        eir_state_protect: match exchanged.protection {
            None => state_protect4_r::SP4_NONE,
            Some(_) => state_protect4_r::SP4_MACH_CRED(state_protect_ops4 {
                spo_must_enforce: List::Of(&enforced),
                spo_must_allow: List::Of(&allowed),
            }),
        },
        eir_server_owner: server_owner4 {
            so_minor_id: 0,
            so_major_id: Opaque(&identity),
        },
        eir_server_scope: Opaque(&identity),
        eir_server_impl_id: List::Of(&[]),
    };
    run.ok(|to| resok.encode(to))
}

pub(crate) fn create_session<'a>(
    run: &mut RunningCall<'a>,
    args: &CREATE_SESSION4args<'a>,
) -> OperationOutcome<'a> {
    let principal = run.principal();
    let server = &run.nfsd.server;
    let is_known = |handle: &[u8]| has_context(run, handle);
    let session = server.create_session(args, principal, (run.now, &is_known));
    let client = || server.introduced(args.csa_clientid);
    let session = session.map_err(|status| run.client_refused(status, client()))?;
    if let Some(held) = run.peer.session(run.nfsd, &session.id) {
        held.bind();
    }
    run.nfsd.admit(session.client.id, false);
    run.nfsd.remove_gone_clients();
    if session.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0 {
        // All that can be refused is the way back, which is said then.
        let both = channel_dir_from_client4::CDFC4_FORE_OR_BOTH;
        let _ = session.bind(run.peer.id, both);
        run.peer.states.bound(&session);
        run.nfsd.post_waiting(session.client.id, run.now);
    }
    let resok = CREATE_SESSION4resok {
        csr_sessionid: session.id,
        csr_sequence: args.csa_sequence,
        csr_flags: session.flags,
        csr_fore_chan_attrs: channel_attrs(&session.fore),
        csr_back_chan_attrs: channel_attrs(&session.back),
    };
    run.ok(|to| resok.encode(to))
}

fn channel_attrs(channel: &Channel) -> channel_attrs4<'static> {
    channel_attrs4 {
        ca_headerpadsize: 0,
        ca_maxrequestsize: channel.request_bytes_max,
        ca_maxresponsesize: channel.response_bytes_max,
        ca_maxresponsesize_cached: channel.cached_bytes_max,
        ca_maxoperations: channel.ops_max,
        ca_maxrequests: channel.slots,
        ca_rdma_ird: List::Of(&[]),
    }
}

pub(crate) fn destroy_session<'a>(
    run: &mut RunningCall<'a>,
    args: &DESTROY_SESSION4args,
) -> OperationOutcome<'a> {
    let is_own = run
        .session()
        .is_some_and(|own| own.id == args.dsa_sessionid);
    if is_own && run.flow.compound.taken() != run.flow.compound.ops() {
        return Err(nfsstat4::NFS4ERR_NOT_ONLY_OP);
    }
    let principal = run.principal();
    let server = &run.nfsd.server;
    let id = &args.dsa_sessionid;
    let client = || Some(server.session(id)?.client.clone());
    let destroyed = server.destroy_session(id, principal);
    destroyed.map_err(|status| run.client_refused(status, client()))?;
    run.ok(|_| {})
}

pub(crate) fn destroy_clientid<'a>(
    run: &mut RunningCall<'a>,
    args: &DESTROY_CLIENTID4args,
) -> OperationOutcome<'a> {
    let id = args.dca_clientid;
    let has_state = run.nfsd.files.has_state(id);
    let principal = run.principal();
    let server = &run.nfsd.server;
    let destroyed = server.destroy_clientid(id, has_state, principal);
    destroyed.map_err(|status| run.client_refused(status, server.introduced(id)))?;
    run.nfsd.remove_gone_clients();
    run.ok(|_| {})
}

pub(crate) fn reclaim_complete<'a>(
    run: &mut RunningCall<'a>,
    args: &RECLAIM_COMPLETE4args,
) -> OperationOutcome<'a> {
    if args.rca_one_fs {
        // No file system comes from another server.
        run.current()?;
        return run.ok(|_| {});
    }
    let client = run.client().ok_or(nfsstat4::NFS4ERR_OP_NOT_IN_SESSION)?;
    run.check_enforced(client)?;
    run.nfsd.server.reclaim_complete(client)?;
    match run.nfsd.server.has_unsaved() && !faults::is(Fault::AnswerBeforeRecord) {
        true => run.wait(
            Step::Elsewhere(Elsewhere::Records),
            Continuation::Session(ThenSession::Recorded),
        ),
        false => run.ok(|_| {}),
    }
}
