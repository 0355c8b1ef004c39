//! RPCSEC_GSS and what is exported: which flavors are let in and told of, as whom a
//! principal acts, state that a machine's credential protects.

#![forbid(unsafe_code)]

use std::sync::Arc;

use auth::user::{AccountKind, Accounts, AccountsUnavailable};
use doubles::gss::{GssClient, SERVICES};
use doubles::nfsd::NfsdDouble;
use nfs::connection::Flavor;
use nfs::gss::major;
use nfsd::exports::{Export, Exports, Rule, Squash};
use nfsd::owners::OwnerNaming;
use nfsd::{Nfsd, NfsdSettings};
use store::fs::{FileSystem, Memory, Time};
use testkit::nfs::call::{call_header, call_header_of, cut, record, write3};
use testkit::nfs::client::{
    CALLBACK, FORE, create_session, sequence, setclientid, setclientid_confirm,
};
use testkit::nfs::compound::*;
use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3, mount_proc3, mountres3};
use wire::nfs3::{NFS_V3, READ3args, nfs_proc3};
use wire::nfs4::*;
use wire::rpc::{accept_stat, accepted_body, auth_stat, rpc_gss_service_t};
use wire::xdr::{Decode, Encode, List, Opaque, Reader};

use nfs_opnum4 as op;

const NONE: rpc_gss_service_t = SERVICES[0];
const INTEGRITY: rpc_gss_service_t = SERVICES[1];
const PRIVACY: rpc_gss_service_t = SERVICES[2];
/// The data of one READ or WRITE at most: more than one buffer holds.
const IO_BYTES_MAX: usize = 8 << 20;

/// A server of exports, each with flavors of its own, and a client of it.
struct World {
    server: NfsdDouble,
    conn: usize,
    xid: u32,
}

fn world() -> World {
    let time = Time::default();
    let fs: Arc<dyn FileSystem> = Arc::new(Memory::new("m", 256 << 20, 9, time).expect("memory"));
    let all = [Flavor::Krb5p, Flavor::Krb5i, Flavor::Krb5, Flavor::Sys];
    let of = |path: &str, flavors: &[Flavor]| {
        let rule = Rule {
            squash: Squash::None,
            flavors: flavors.to_vec(),
            ..Rule::default()
        };
        Export::new(path, fs.clone(), vec![rule]).expect("an export")
    };
    let exports = vec![
        of("/all", &all),
        of("/private", &[Flavor::Krb5p]),
        of("/either", &[Flavor::Krb5i, Flavor::Krb5p]),
        of("/plain", &[Flavor::Sys]),
    ];
    let exports = Exports::new(exports, time).expect("exports");
    let mut settings = NfsdSettings {
        io_bytes_max: IO_BYTES_MAX as u32,
        ..NfsdSettings::default()
    };
    let fore = &mut settings.server.fore;
    fore.request_bytes_max = IO_BYTES_MAX as u32 + (64 << 10);
    fore.response_bytes_max = fore.request_bytes_max;
    let nfsd = Nfsd::new(settings, 3, [], exports, 0);
    nfsd.set_gss(true);
    let mut server = NfsdDouble::new(nfsd, 128 << 20);
    let conn = server.connect("192.0.2.1:700".parse().expect("an address"));
    World {
        server,
        conn,
        xid: 0,
    }
}

impl World {
    fn client(&mut self, name: &str) -> GssClient {
        let mut client = GssClient::new(name, u64::from(u32::MAX));
        let answer = self.server.call(self.conn, &client.init(0));
        assert_eq!(client.take_init(&answer), (major::COMPLETE, 0));
        client
    }

    /// Results of a procedure by RPCSEC_GSS.
    fn call(
        &mut self,
        client: &mut GssClient,
        service: rpc_gss_service_t,
        (program, version, procedure): (u32, u32, u32),
        args: &[u8],
    ) -> Result<Vec<u8>, Vec<u8>> {
        self.xid += 1;
        let number = client.number;
        let record = client.call((self.xid, program, version, procedure), args, service);
        let answer = self.server.call(self.conn, &record);
        let (status, results) = client.open(&answer, number, service)?;
        assert_eq!(status, accepted_body::default(accept_stat::SUCCESS));
        Ok(results)
    }

    fn compound(
        &mut self,
        client: &mut GssClient,
        service: rpc_gss_service_t,
        minor: u32,
        ops: &Ops,
    ) -> CompoundAnswer {
        let of = (NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND);
        let args = compound_args(minor, ops);
        let results = self.call(client, service, of, &args);
        CompoundAnswer::read(&results.expect("it is let in"))
    }

    /// The same by AUTH_SYS, as root.
    fn compound_by_sys(&mut self, minor: u32, ops: &Ops) -> CompoundAnswer {
        self.xid += 1;
        let mut record = call_header(self.xid, |_| {});
        record.extend(compound_args(minor, ops));
        let answer = self.server.call(self.conn, &record);
        CompoundAnswer::read(&answer[24..])
    }
}

/// What SECINFO tells: the number of a flavor, and the service where it has one.
fn told(answer: &CompoundAnswer) -> Vec<(u32, u32)> {
    let list = SECINFO4resok::decode(&mut Reader::new(answer.body(op::OP_SECINFO)));
    let list = list.expect("a list");
    let told = list.iter().map(|one| match one {
        secinfo4::case_6(info) => {
            let kerberos = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
            assert_eq!((info.oid.0, info.qop), (&kerberos[..], 0));
            (6, info.service)
        }
        secinfo4::default(flavor) => (flavor, 0),
    });
    told.collect()
}

#[test]
fn flavors_are_told_in_the_order_of_the_export() {
    let mut world = world();
    let mut client = world.client("user7@TEST");
    let mut ask = |of: &str| {
        let asked = ops().root().secinfo(of);
        told(&world.compound(&mut client, NONE, 0, &asked))
    };
    assert_eq!(ask("all"), [(6, 3), (6, 2), (6, 1), (1, 0)]);
    assert_eq!(ask("either"), [(6, 2), (6, 3)]);
    assert_eq!(ask("plain"), [(1, 0)]);
    // The directories above take all that may be taken below.
    let no_name = nfs_argop4::OP_SECINFO_NO_NAME(SECINFO_NO_NAME4args {
        style: secinfo_style4::SECINFO_STYLE4_CURRENT_FH,
    });
    let asked = ops().root().op(no_name);
    // Only SEQUENCE may come first with sessions.
    let refused = world.compound_by_sys(1, &asked);
    assert_eq!(
        refused.results[0].status,
        nfsstat4::NFS4ERR_OP_NOT_IN_SESSION
    );
}

#[test]
fn server_without_an_acceptor_tells_of_no_kerberos() {
    let mut world = world();
    world.server.nfsd.set_gss(false);
    let asked = ops().root().secinfo("all");
    assert_eq!(told(&world.compound_by_sys(0, &asked)), [(1, 0)]);
}

#[test]
fn readdir_tells_nothing_but_the_names_of_exports_that_want_another_flavor() {
    let mut world = world();
    let listed = |asked: &[u32]| ops().root().readdir(0, [0; 8], 4096, asked);
    let answer = world.compound_by_sys(0, &listed(&[FATTR4_RDATTR_ERROR, FATTR4_SIZE]));
    let answer = answer.ok();
    let body = answer.body(op::OP_READDIR);
    let told = READDIR4resok::decode(&mut Reader::new(body)).expect("READDIR4resok");
    let shut = nfsstat4::NFS4ERR_WRONGSEC as u32;
    let mut names = Vec::new();
    for entry in told.entries.iter() {
        let name = str::from_utf8(entry.name.0).expect("UTF-8");
        let is_open = ["all", "plain"].contains(&name);
        let is_told = entry.attrs.attr_vals.0 == shut.to_be_bytes();
        assert_eq!(is_told, !is_open, "{name}");
        names.push(name);
    }
    names.sort_unstable();
    assert_eq!(names, ["all", "either", "plain", "private"]);
    let status = world.compound_by_sys(0, &listed(&[FATTR4_SIZE])).status;
    assert_eq!(status, nfsstat4::NFS4ERR_WRONGSEC);
    let mut client = world.client("user7@TEST");
    let answer = world.compound(
        &mut client,
        PRIVACY,
        0,
        &ops().root().lookup("private").getfh(),
    );
    assert_eq!(answer.status, nfsstat4::NFS4_OK);
}

#[test]
fn export_takes_the_flavors_that_it_names() {
    let mut world = world();
    let mut client = world.client("user7@TEST");
    let cases = [
        ("all", [true, true, true], true),
        ("private", [false, false, true], false),
        ("either", [false, true, true], false),
        ("plain", [false, false, false], true),
    ];
    for (path, takes, takes_sys) in cases {
        let asked = ops().root().lookup(path).getfh();
        for (service, takes) in SERVICES.into_iter().zip(takes) {
            let answer = world.compound(&mut client, service, 0, &asked);
            let status = match takes {
                true => nfsstat4::NFS4_OK,
                false => nfsstat4::NFS4ERR_WRONGSEC,
            };
            assert_eq!(answer.status, status, "{path} with {service:?}");
        }
        let status = world.compound_by_sys(0, &asked).status;
        assert_eq!(status == nfsstat4::NFS4_OK, takes_sys, "{path}");
        // A handle leads no further than a name.
        let handle = {
            let service = SERVICES[takes.iter().rposition(|takes| *takes).unwrap_or(0)];
            let answer = match takes_sys {
                true => world.compound_by_sys(0, &asked),
                false => world.compound(&mut client, service, 0, &asked),
            };
            answer.handle()
        };
        let asked = ops().fh(&handle).getattr(&[FATTR4_SIZE]);
        let status = world.compound_by_sys(0, &asked).status;
        assert_eq!(
            status == nfsstat4::NFS4_OK,
            takes_sys,
            "{path} by its handle"
        );
    }
}

fn mounted(world: &mut World, path: &str) -> (Vec<u8>, Vec<u32>) {
    let mount = mount_proc3::MOUNTPROC3_MNT as u32;
    let mut record = call_header_of(9, (MOUNT_PROGRAM, MOUNT_V3, mount));
    Opaque::<1024>(path.as_bytes()).encode(&mut record);
    let answer = world.server.call(world.conn, &record);
    match mountres3::decode(&mut Reader::new(&answer[24..])).expect("results") {
        mountres3::MNT3_OK(ok) => (ok.fhandle.0.to_vec(), ok.auth_flavors.iter().collect()),
        mountres3::default(status) => panic!("{status:?}"),
    }
}

#[test]
fn mount_of_version_3_names_flavors_in_their_order() {
    let mut world = world();
    let (_, flavors) = mounted(&mut world, "/all");
    assert_eq!(flavors, [390_005, 390_004, 390_003, 1]);
}

#[test]
fn version_3_refuses_a_flavor_that_the_export_does_not_name() {
    let mut world = world();
    let mut client = world.client("user7@TEST");
    let (handle, _) = mounted(&mut world, "/private");
    let mut args = Vec::new();
    Opaque::<64>(&handle).encode(&mut args);
    let of = (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_GETATTR as u32);
    let refused = world.call(&mut client, INTEGRITY, of, &args);
    let too_weak = [1, 1, auth_stat::AUTH_TOOWEAK as u32].map(u32::to_be_bytes);
    assert_eq!(refused, Err(too_weak.concat()));
    let results = world.call(&mut client, PRIVACY, of, &args);
    assert_eq!(results.expect("let in")[..4], [0; 4], "NFS3_OK");
}

#[test]
fn principal_acts_as_its_user_and_one_that_is_none_as_the_anonymous_one() {
    let mut world = world();
    world.compound_by_sys(
        0,
        &ops()
            .root()
            .lookup("all")
            .setattr(ANONYMOUS, &Attributes::mode(0o777)),
    );
    for (name, owner) in [("user7@TEST", "7"), ("host/one@TEST", "65534")] {
        let mut client = world.client(name);
        let made = ops()
            .root()
            .lookup("all")
            .mkdir(name.split('/').next().unwrap());
        let asked = made.getattr(&[FATTR4_OWNER]);
        let answer = world.compound(&mut client, PRIVACY, 0, &asked).ok();
        let (_, values) = answer.attributes();
        let said = Opaque::<64>::decode(&mut Reader::new(&values)).expect("a name");
        assert_eq!(said.0, owner.as_bytes(), "{name}");
    }
}

#[test]
fn protected_reads_and_writes_are_as_large_as_may_be() {
    let data: Vec<u8> = (0..IO_BYTES_MAX as u32).map(|at| (at >> 3) as u8).collect();
    for (service, name) in [(INTEGRITY, "one"), (PRIVACY, "two"), (NONE, "three")] {
        let mut world = world();
        world.compound_by_sys(
            0,
            &ops()
                .root()
                .lookup("all")
                .setattr(ANONYMOUS, &Attributes::mode(0o777)),
        );
        let mut client = world.client("user7@TEST");
        // In version 3.
        let (root, _) = mounted(&mut world, "/all");
        let mut args = Vec::new();
        Opaque::<64>(&root).encode(&mut args);
        Opaque::<255>(name.as_bytes()).encode(&mut args);
        // UNCHECKED, and no attribute but the mode.
        [0, 1, 0o666, 0, 0, 0, 0, 0]
            .iter()
            .for_each(|word: &u32| word.encode(&mut args));
        let of = |procedure| (NFS4_PROGRAM, NFS_V3, procedure as u32);
        let create = of(nfs_proc3::NFSPROC3_CREATE);
        let made = world
            .call(&mut client, service, create, &args)
            .expect("let in");
        assert_eq!(
            made[..8],
            [0, 0, 0, 0, 0, 0, 0, 1],
            "it is made, and has a handle"
        );
        let len = u32::from_be_bytes(made[8..12].try_into().expect("4 bytes")) as usize;
        let handle = made[12..12 + len].to_vec();
        let (wire, rest) = write3(0, &handle, 0, &data);
        let args = &wire[wire.len() - rest.len() - data.len()..];
        let write = of(nfs_proc3::NFSPROC3_WRITE);
        let wrote = world
            .call(&mut client, service, write, args)
            .expect("let in");
        assert_eq!(wrote[..4], [0; 4]);
        let mut args = Vec::new();
        READ3args {
            file: Opaque(&handle),
            offset: 0,
            count: IO_BYTES_MAX as u32,
        }
        .encode(&mut args);
        let read = of(nfs_proc3::NFSPROC3_READ);
        let results = world
            .call(&mut client, service, read, &args)
            .expect("let in");
        assert!(results.ends_with(&data), "{service:?}");
        // In 4.0 by the anonymous state, and in a session.
        let session = session(&mut world, &mut client, service);
        for (minor, begin) in [(0, ops()), (1, sequence(session, 0, 1, false))] {
            let asked = begin
                .fh(&handle)
                .write(ANONYMOUS, 0, stable_how4::UNSTABLE4, &data);
            world.compound(&mut client, service, minor, &asked).ok();
            let begin = match minor {
                0 => ops(),
                _ => sequence(session, 0, 2, false),
            };
            let asked = begin.fh(&handle).read(ANONYMOUS, 0, IO_BYTES_MAX as u32);
            let answer = world.compound(&mut client, service, minor, &asked).ok();
            assert!(answer.data().0 == data, "4.{minor} with {service:?}");
        }
    }
}

fn exchange(protect: state_protect4_a<'_>) -> Ops {
    ops().op(nfs_argop4::OP_EXCHANGE_ID(EXCHANGE_ID4args {
        eia_clientowner: client_owner4 {
            co_verifier: [7; 8],
            co_ownerid: Opaque(b"the client"),
        },
        eia_flags: 0,
        eia_state_protect: protect,
        eia_client_impl_id: List::Of(&[]),
    }))
}

/// The client identifier, and the next number of CREATE_SESSION.
fn exchanged(answer: &CompoundAnswer) -> (u64, u32) {
    let body = answer.body(op::OP_EXCHANGE_ID);
    let from = &mut Reader::new(body);
    (
        u64::decode(from).expect("it"),
        u32::decode(from).expect("it"),
    )
}

fn session(world: &mut World, client: &mut GssClient, service: rpc_gss_service_t) -> [u8; 16] {
    let asked = exchange(state_protect4_a::SP4_NONE);
    let answer = world.compound(client, service, 1, &asked).ok();
    let (id, next) = exchanged(&answer);
    let asked = create_session(id, next, 0, FORE_LARGE);
    let answer = world.compound(client, service, 1, &asked).ok();
    answer.body(op::OP_CREATE_SESSION)[..16]
        .try_into()
        .expect("16 bytes")
}

/// A session with room for the largest data.
const FORE_LARGE: channel_attrs4<'static> = channel_attrs4 {
    ca_maxrequestsize: IO_BYTES_MAX as u32 + (16 << 10),
    ca_maxresponsesize: IO_BYTES_MAX as u32 + (16 << 10),
    ..FORE
};

/// What a Linux client asks for.
const ENFORCED: [u32; 2] = [0, 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 25];
const ALLOWED: [u32; 2] = [
    1 << 4 | 1 << 5 | 1 << 8 | 1 << 14 | 1 << 21,
    1 << 1 | 1 << 6 | 1 << 13 | 1 << 20 | 1 << 23,
];

fn protected() -> state_protect4_a<'static> {
    state_protect4_a::SP4_MACH_CRED(state_protect_ops4 {
        spo_must_enforce: List::Of(&ENFORCED),
        spo_must_allow: List::Of(&ALLOWED),
    })
}

#[test]
fn state_that_the_machine_protects_is_for_its_principal_alone() {
    let mut world = world();
    let mut machine = world.client("host/one@TEST");
    let mut user = world.client("user7@TEST");
    let answer = world.compound(&mut machine, NONE, 1, &exchange(protected()));
    assert_eq!(
        answer.status,
        nfsstat4::NFS4ERR_INVAL,
        "it rests on integrity"
    );
    let answer = world.compound_by_sys(1, &exchange(protected()));
    assert_eq!(answer.status, nfsstat4::NFS4ERR_INVAL);
    let answer = world
        .compound(&mut machine, INTEGRITY, 1, &exchange(protected()))
        .ok();
    let (id, next) = exchanged(&answer);
    // Flags stand before how it is protected.
    let from = &mut Reader::new(&answer.body(op::OP_EXCHANGE_ID)[16..]);
    let state_protect4_r::SP4_MACH_CRED(agreed) = state_protect4_r::decode(from).expect("it")
    else {
        panic!("it is not protected");
    };
    let enforced: Vec<u32> = agreed.spo_must_enforce.iter().collect();
    assert_eq!(enforced, ENFORCED);
    let allowed: Vec<u32> = agreed.spo_must_allow.iter().collect();
    // Neither COMMIT nor WRITE.
    let most = [ALLOWED[0] & !(1 << 5), ALLOWED[1] & !(1 << 6)];
    assert_eq!(allowed, most);
    let wrong = [
        create_session(id, next, 0, FORE),
        ops().op(nfs_argop4::OP_DESTROY_CLIENTID(DESTROY_CLIENTID4args {
            dca_clientid: id,
        })),
    ];
    for asked in &wrong {
        let by_user = world.compound(&mut user, PRIVACY, 1, asked).status;
        assert_ne!(by_user, nfsstat4::NFS4_OK);
        let without = world.compound(&mut machine, NONE, 1, asked).status;
        assert_eq!(without, nfsstat4::NFS4ERR_WRONG_CRED);
    }
    let asked = create_session(id, next, 0, FORE);
    let answer = world.compound(&mut machine, PRIVACY, 1, &asked).ok();
    let session: [u8; 16] = answer.body(op::OP_CREATE_SESSION)[..16]
        .try_into()
        .expect("16");
    let bind = ops().op(nfs_argop4::OP_BIND_CONN_TO_SESSION(
        BIND_CONN_TO_SESSION4args {
            bctsa_sessid: session,
            bctsa_dir: channel_dir_from_client4::CDFC4_FORE,
            bctsa_use_conn_in_rdma_mode: false,
        },
    ));
    let destroy = ops().op(nfs_argop4::OP_DESTROY_SESSION(DESTROY_SESSION4args {
        dsa_sessionid: session,
    }));
    for asked in [&bind, &destroy] {
        for (client, service) in [(&mut user, PRIVACY), (&mut machine, NONE)] {
            let answer = world.compound(client, service, 1, asked);
            assert_eq!(answer.status, nfsstat4::NFS4ERR_WRONG_CRED);
        }
        assert_eq!(
            world.compound_by_sys(1, asked).status,
            nfsstat4::NFS4ERR_WRONG_CRED
        );
    }
    // Users work in the session of their machine.
    let asked = sequence(session, 0, 1, false)
        .root()
        .lookup("private")
        .getfh();
    world.compound(&mut user, PRIVACY, 1, &asked).ok();
    world.compound(&mut machine, INTEGRITY, 1, &bind).ok();
    world.compound(&mut machine, INTEGRITY, 1, &destroy).ok();
}

/// RFC 8881, sections 2.10.8.3 and 18.46.3: an identifier of a session is no secret.
#[test]
fn session_that_the_machine_protects_is_used_on_connections_that_it_has_bound() {
    let mut world = world();
    let mut machine = world.client("host/one@TEST");
    let mut user = world.client("user7@TEST");
    let exchanged_id = exchange(state_protect4_a::SP4_MACH_CRED(state_protect_ops4 {
        // What Linux asks for, and all that the standard names besides.
        spo_must_enforce: List::Of(&[ENFORCED[0] | 1 << 7, ENFORCED[1] | 1 << 8 | 1 << 26]),
        spo_must_allow: List::Of(&[]),
    }));
    let answer = world
        .compound(&mut machine, INTEGRITY, 1, &exchanged_id)
        .ok();
    let (id, next) = exchanged(&answer);
    let asked = create_session(id, next, 0, FORE);
    let answer = world.compound(&mut machine, INTEGRITY, 1, &asked).ok();
    let session: [u8; 16] = answer.body(op::OP_CREATE_SESSION)[..16]
        .try_into()
        .expect("16");
    let in_session = |at| sequence(session, 0, at, false);
    let made_on = world.conn;
    world.conn = (world.server).connect("192.0.2.9:700".parse().expect("an address"));
    let done = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
    let back = nfs_argop4::OP_BACKCHANNEL_CTL(BACKCHANNEL_CTL4args {
        bca_cb_program: 7,
        bca_sec_parms: List::Of(&[]),
    });
    for asked in [in_session(1).op(done), in_session(1).op(back)] {
        let by_sys = world.compound_by_sys(1, &asked).status;
        assert_eq!(by_sys, nfsstat4::NFS4ERR_CONN_NOT_BOUND_TO_SESSION);
        let by_user = world.compound(&mut user, PRIVACY, 1, &asked).status;
        assert_eq!(by_user, nfsstat4::NFS4ERR_CONN_NOT_BOUND_TO_SESSION);
    }
    let bind = ops().op(nfs_argop4::OP_BIND_CONN_TO_SESSION(
        BIND_CONN_TO_SESSION4args {
            bctsa_sessid: session,
            bctsa_dir: channel_dir_from_client4::CDFC4_FORE,
            bctsa_use_conn_in_rdma_mode: false,
        },
    ));
    world.compound(&mut machine, INTEGRITY, 1, &bind).ok();
    world.compound(&mut user, PRIVACY, 1, &in_session(1)).ok();
    // What it wants to be enforced is for the machine there, too.
    world.conn = made_on;
    for (at, asked) in [(2, done), (4, back)] {
        let wrong = world.compound(&mut user, PRIVACY, 1, &in_session(at).op(asked));
        assert_eq!(wrong.status, nfsstat4::NFS4ERR_WRONG_CRED);
        world
            .compound(&mut machine, INTEGRITY, 1, &in_session(at + 1).op(asked))
            .ok();
    }
    let told = world.server.nfsd.take_clients_refused().list;
    let told: Vec<_> = told.iter().map(|one| one.identity.as_deref()).collect();
    assert_eq!(told, [Some("user7@TEST"); 2]);
}

#[test]
fn machine_may_ask_what_it_was_allowed_where_the_export_wants_another_flavor() {
    let mut world = world();
    let mut machine = world.client("host/one@TEST");
    let mut user = world.client("user7@TEST");
    let asked = ops().root().lookup("private").getfh();
    let handle = world.compound(&mut user, PRIVACY, 0, &asked).ok().handle();
    let answer = world
        .compound(&mut machine, INTEGRITY, 1, &exchange(protected()))
        .ok();
    let (id, next) = exchanged(&answer);
    let asked = create_session(id, next, 0, FORE);
    let answer = world.compound(&mut machine, INTEGRITY, 1, &asked).ok();
    let session: [u8; 16] = answer.body(op::OP_CREATE_SESSION)[..16]
        .try_into()
        .expect("16");
    let close = |at| {
        let begin = sequence(session, 0, at, false).fh(&handle);
        begin.close(
            0,
            stateid4 {
                seqid: 1,
                other: [9; 12],
            },
        )
    };
    let mut status =
        |client: &mut GssClient, service, ops: &Ops| world.compound(client, service, 1, ops).status;
    assert_eq!(
        status(&mut machine, INTEGRITY, &close(1)),
        nfsstat4::NFS4ERR_BAD_STATEID
    );
    assert_eq!(
        status(&mut machine, NONE, &close(2)),
        nfsstat4::NFS4ERR_WRONGSEC
    );
    assert_eq!(
        status(&mut user, INTEGRITY, &close(3)),
        nfsstat4::NFS4ERR_WRONGSEC
    );
    let read = sequence(session, 0, 4, false)
        .fh(&handle)
        .getattr(&[FATTR4_SIZE]);
    assert_eq!(
        status(&mut machine, INTEGRITY, &read),
        nfsstat4::NFS4ERR_WRONGSEC
    );
}

#[test]
fn client_of_version_4_0_is_not_for_another_principal() {
    let mut world = world();
    let mut one = world.client("host/one@TEST");
    let mut two = world.client("host/two@TEST");
    let answer = world
        .compound(&mut one, INTEGRITY, 0, &setclientid(b"name", [1; 8]))
        .ok();
    let body = answer.body(op::OP_SETCLIENTID).to_vec();
    let id = u64::from_be_bytes(body[..8].try_into().expect("8 bytes"));
    let confirm = setclientid_confirm(id, body[8..16].try_into().expect("8 bytes"));
    let by_other = world.compound(&mut two, INTEGRITY, 0, &confirm).status;
    assert_eq!(by_other, nfsstat4::NFS4ERR_CLID_INUSE);
    // Another service is the same principal.
    world.compound(&mut one, PRIVACY, 0, &confirm).ok();
    let known = world
        .server
        .nfsd
        .server
        .client(id)
        .expect("it is confirmed");
    assert_eq!(known.identity.as_deref(), Some("host/one@TEST"));
}

/// One user and one group.
struct Few;

impl Accounts for Few {
    fn name(&self, kind: AccountKind, id: u32) -> Result<Option<String>, AccountsUnavailable> {
        let known = [
            (AccountKind::User, 7, "alice"),
            (AccountKind::Group, 8, "staff"),
        ];
        let found = known.iter().find(|known| (known.0, known.1) == (kind, id));
        Ok(found.map(|known| known.2.to_owned()))
    }

    fn groups(&self, _: u32) -> Result<Vec<u32>, AccountsUnavailable> {
        Ok(Vec::new())
    }

    fn number(&self, kind: AccountKind, name: &str) -> Result<Option<u32>, AccountsUnavailable> {
        let is_called = |id: &u32| self.name(kind, *id) == Ok(Some(name.to_owned()));
        Ok([7, 8].into_iter().find(is_called))
    }
}

/// The database answers what is asked for.
fn answer_owners(nfsd: &Nfsd) {
    let questions = nfsd.owners.take_questions();
    assert!(!questions.is_empty(), "they are asked for");
    for question in questions {
        nfsd.owners.answer(question, &Few);
    }
}

/// Owner and group.
fn owners(answer: &CompoundAnswer) -> (String, String) {
    let (_, values) = answer.attributes();
    let mut from = Reader::new(&values);
    let mut next = || {
        let text = Opaque::<64>::decode(&mut from).expect("a name");
        String::from_utf8(text.0.to_vec()).expect("UTF-8")
    };
    (next(), next())
}

#[test]
fn owners_have_names_for_users_that_prove_who_they_are_and_numbers_for_others() {
    const BOTH: [u32; 2] = [FATTR4_OWNER, FATTR4_OWNER_GROUP];
    let mut world = world();
    let naming = OwnerNaming::default();
    (world.server.nfsd.owners).set_naming(&naming, Some("example.org"));
    let root = || ops().root().lookup("all");
    world.compound_by_sys(0, &root().mkdir("d")).ok();
    let mut client = world.client("user0@TEST");
    // What is not known comes later, and is asked for meanwhile.
    let mut settled = |world: &mut World, asked: &Ops| {
        let late = world.compound(&mut client, PRIVACY, 0, asked);
        assert_eq!(late.status, nfsstat4::NFS4ERR_DELAY);
        let nfsd = &world.server.nfsd;
        answer_owners(nfsd);
        world.compound(&mut client, PRIVACY, 0, asked)
    };
    let set = |owner: &'static [u8], group: &'static [u8]| {
        let owner = Attributes::of(FATTR4_OWNER, &Opaque::<64>(owner));
        let both = owner.and(FATTR4_OWNER_GROUP, &Opaque::<64>(group));
        root().lookup("d").setattr(ANONYMOUS, &both)
    };
    let named = set(b"alice@example.org", b"8");
    settled(&mut world, &named).ok();
    settled(&mut world, &set(b"mallory@example.org", b"8")).is(nfsstat4::NFS4ERR_BADOWNER);
    let of_d = root().lookup("d").getattr(&BOTH);
    let told = settled(&mut world, &of_d).ok();
    let names = (
        "alice@example.org".to_owned(),
        "staff@example.org".to_owned(),
    );
    assert_eq!(owners(&told), names);
    // Root has no name there.
    let of_root = root().getattr(&BOTH);
    let told = settled(&mut world, &of_root).ok();
    assert_eq!(owners(&told), ("0".to_owned(), "0".to_owned()));
    let numbers = world.compound_by_sys(0, &of_d).ok();
    assert_eq!(owners(&numbers), ("7".to_owned(), "8".to_owned()));
    let named = world.compound_by_sys(0, &named);
    assert_eq!(named.status, nfsstat4::NFS4ERR_BADOWNER);
}

#[test]
fn owners_have_names_for_users_of_every_flavor_where_the_domain_is_for_all() {
    const BOTH: [u32; 2] = [FATTR4_OWNER, FATTR4_OWNER_GROUP];
    let mut world = world();
    let naming = OwnerNaming {
        domain: Some("example.org".to_owned()),
        user_ids: vec![("bob".to_owned(), 11)],
        group_ids: Vec::new(),
    };
    world.server.nfsd.owners.set_naming(&naming, None);
    let root = || ops().root().lookup("all");
    let set = |owner: &'static [u8]| {
        let owner = Attributes::of(FATTR4_OWNER, &Opaque::<64>(owner));
        let both = owner.and(FATTR4_OWNER_GROUP, &Opaque::<64>(b"8"));
        root().lookup("d").setattr(ANONYMOUS, &both)
    };
    world.compound_by_sys(0, &root().mkdir("d")).ok();
    world.compound_by_sys(0, &set(b"bob@example.org")).ok();
    let of_d = root().lookup("d").getattr(&BOTH);
    let late = world.compound_by_sys(0, &of_d);
    late.is(nfsstat4::NFS4ERR_DELAY);
    answer_owners(&world.server.nfsd);
    let told = world.compound_by_sys(0, &of_d).ok();
    let names = ("bob@example.org", "staff@example.org");
    assert_eq!(owners(&told), (names.0.to_owned(), names.1.to_owned()));
    // A number is taken as well.
    world.compound_by_sys(0, &set(b"9")).ok();
    world.compound_by_sys(0, &of_d).is(nfsstat4::NFS4ERR_DELAY);
    answer_owners(&world.server.nfsd);
    let told = world.compound_by_sys(0, &of_d).ok();
    assert_eq!(owners(&told).0, "9");
}

#[test]
fn directory_is_listed_once_the_names_of_all_owners_in_it_are_known() {
    let mut world = world();
    let naming = OwnerNaming::default();
    (world.server.nfsd.owners).set_naming(&naming, Some("example.org"));
    let root = || ops().root().lookup("all");
    for (name, owner) in [("a", b"7"), ("b", b"9")] {
        let owner = Attributes::of(FATTR4_OWNER, &Opaque::<64>(owner));
        let made = root().mkdir(name).setattr(ANONYMOUS, &owner);
        world.compound_by_sys(0, &made).ok();
    }
    let mut client = world.client("user0@TEST");
    let listed = root().readdir(0, [0; 8], 4096, &[FATTR4_OWNER]);
    let late = world.compound(&mut client, PRIVACY, 0, &listed);
    assert_eq!(late.status, nfsstat4::NFS4ERR_DELAY);
    let nfsd = &world.server.nfsd;
    answer_owners(nfsd);
    let answer = world.compound(&mut client, PRIVACY, 0, &listed).ok();
    let body = answer.body(op::OP_READDIR);
    let has = |text: &[u8]| body.windows(text.len()).any(|at| at == text);
    assert!(has(b"alice@example.org") && has(b"\0\0\0\x019"), "{body:?}");
}

/// A client with a session, the file that it opens, and where it says so.
struct Opener {
    id: u64,
    session: [u8; 16],
    sequence: u32,
    handle: Vec<u8>,
    conn: usize,
}

/// What is offered for callbacks: a context of the client's with this service.
fn offered(service: u32, here: &[u8]) -> [callback_sec_parms4<'_>; 1] {
    [callback_sec_parms4::case_6(gss_cb_handles4 {
        gcbp_service: service,
        gcbp_handle_from_server: Opaque(here),
        gcbp_handle_from_client: Opaque(b"the client's own"),
    })]
}

fn create_called((id, next): (u64, u32), ways: &[callback_sec_parms4<'_>]) -> Ops {
    ops().op(nfs_argop4::OP_CREATE_SESSION(CREATE_SESSION4args {
        csa_clientid: id,
        csa_sequence: next,
        csa_flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
        csa_fore_chan_attrs: FORE,
        csa_back_chan_attrs: FORE,
        csa_cb_program: CALLBACK,
        csa_sec_parms: List::Of(ways),
    }))
}

impl World {
    /// What a client says in its session, with integrity: the answer, and SEQ4_STATUS_*.
    fn in_session(
        &mut self,
        opener: &mut Opener,
        client: &mut GssClient,
        more: impl FnOnce(Ops) -> Ops,
    ) -> (CompoundAnswer, u32) {
        opener.sequence += 1;
        let asked = more(sequence(opener.session, 0, opener.sequence, false));
        self.conn = opener.conn;
        let answer = self.compound(client, INTEGRITY, 1, &asked);
        let sequenced: SEQUENCE4resok = answer.get(op::OP_SEQUENCE);
        (answer, sequenced.sr_status_flags)
    }

    /// The file is opened to read: the delegation that comes with it.
    fn open(&mut self, opener: &mut Opener, client: &mut GssClient) -> (Option<stateid4>, u32) {
        let args = OPEN4args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_READ,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: state_owner4 {
                clientid: opener.id,
                owner: Opaque(b"owner"),
            },
            openhow: openflag4::OPEN4_NOCREATE,
            claim: open_claim4::CLAIM_FH,
        };
        let handle = opener.handle.clone();
        let opens = |ops: Ops| ops.fh(&handle).open(args);
        let (answer, flags) = self.in_session(opener, client, opens);
        let answer = answer.ok();
        let from = &mut Reader::new(answer.body(op::OP_OPEN));
        let given = match OPEN4resok::decode(from).expect("it").delegation {
            open_delegation4::OPEN_DELEGATE_READ(read) => Some(read.stateid),
            _ => None,
        };
        (given, flags)
    }

    /// The file is changed by another client, on another connection.
    fn change(&mut self, opener: &Opener) -> nfsstat4 {
        self.conn = self
            .server
            .connect("192.0.2.2:700".parse().expect("an address"));
        let set = ops()
            .fh(&opener.handle)
            .setattr(ANONYMOUS, &Attributes::mode(0o640));
        self.compound_by_sys(0, &set).status
    }

    /// The delegation is recalled by this service; it is answered and given back.
    fn recalled(
        &mut self,
        opener: &mut Opener,
        client: &mut GssClient,
        (stateid, service): (stateid4, rpc_gss_service_t),
    ) {
        assert_eq!(self.change(opener), nfsstat4::NFS4ERR_DELAY);
        let mut records = cut(&mut self.server.sent(opener.conn).into());
        assert_eq!(records.len(), 1, "one recall");
        let call = client.called(&records.remove(0));
        assert_eq!(
            (call.service, &call.handle[..]),
            (service, &b"the client's own"[..])
        );
        let compound = CB_COMPOUND4args::decode(&mut Reader::new(&call.args)).expect("it");
        let recall = compound.argarray.iter().nth(1);
        let Some(nfs_cb_argop4::OP_CB_RECALL(recall)) = recall else {
            panic!("{recall:?} is no CB_RECALL");
        };
        assert_eq!(recall.stateid, stateid);
        let Some(nfs_cb_argop4::OP_CB_SEQUENCE(by)) = compound.argarray.iter().next() else {
            panic!("CB_SEQUENCE comes first");
        };
        let sequenced = CB_SEQUENCE4resok {
            csr_sessionid: by.csa_sessionid,
            csr_sequenceid: by.csa_sequenceid,
            csr_slotid: by.csa_slotid,
            csr_highest_slotid: 0,
            csr_target_highest_slotid: 0,
        };
        let mut results = Vec::new();
        // NFS4_OK, no tag, two results, of which the first is that of CB_SEQUENCE.
        [0, 0, 2, nfs_cb_opnum4::OP_CB_SEQUENCE as u32, 0]
            .iter()
            .for_each(|word: &u32| word.encode(&mut results));
        sequenced.encode(&mut results);
        [nfs_cb_opnum4::OP_CB_RECALL as u32, 0]
            .iter()
            .for_each(|word: &u32| word.encode(&mut results));
        let answer = client.answer_called(&call, &results);
        let record = record(&answer, || usize::MAX);
        self.server.receive(opener.conn, &record);
        let handle = opener.handle.clone();
        let back = nfs_argop4::OP_DELEGRETURN(DELEGRETURN4args {
            deleg_stateid: stateid,
        });
        let (answer, flags) = self.in_session(opener, client, |ops| ops.fh(&handle).op(back));
        answer.ok();
        assert_eq!(flags, 0, "the path is good");
        assert_eq!(self.change(opener), nfsstat4::NFS4_OK);
    }
}

#[test]
fn delegation_is_recalled_in_the_context_that_the_client_names_and_given_only_with_one() {
    let mut world = world();
    let conn = world.conn;
    let mut client = world.client("user7@TEST");
    let other = world.client("user8@TEST");
    let attributes = Attributes::mode(0o777);
    let shared = ops().root().lookup("all").setattr(ANONYMOUS, &attributes);
    world.compound_by_sys(0, &shared).ok();
    let (root, _) = mounted(&mut world, "/all");
    let mut args = Vec::new();
    Opaque::<64>(&root).encode(&mut args);
    Opaque::<255>(b"file").encode(&mut args);
    [0, 1, 0o666, 0, 0, 0, 0, 0]
        .iter()
        .for_each(|word: &u32| word.encode(&mut args));
    let create = (NFS4_PROGRAM, NFS_V3, nfs_proc3::NFSPROC3_CREATE as u32);
    let made = world.call(&mut client, INTEGRITY, create, &args);
    assert_eq!(made.expect("let in")[..4], [0; 4]);
    let asked = ops().root().lookup("all").lookup("file").getfh();
    let handle = world
        .compound(&mut client, INTEGRITY, 0, &asked)
        .ok()
        .handle();
    // What is changed is not delegated for a while.
    world.server.advance(31_000_000_000);

    let asked = exchange(state_protect4_a::SP4_NONE);
    let known = exchanged(&world.compound(&mut client, INTEGRITY, 1, &asked).ok());
    let own = client.handle.clone();
    let mut create = |world: &mut World, ways: &[callback_sec_parms4<'_>]| {
        world.compound(&mut client, INTEGRITY, 1, &create_called(known, ways))
    };
    let refused = [
        (offered(2, b"no handle"), nfsstat4::NFS4ERR_NOENT),
        (offered(2, &other.handle), nfsstat4::NFS4ERR_NOENT),
        (offered(4, &other.handle), nfsstat4::NFS4ERR_INVAL),
    ];
    for (ways, status) in refused {
        create(&mut world, &ways).is(status);
    }
    let answer = create(&mut world, &offered(2, &own)).ok();
    let mut opener = Opener {
        id: known.0,
        session: answer.body(op::OP_CREATE_SESSION)[..16]
            .try_into()
            .expect("16"),
        sequence: 0,
        handle,
        conn,
    };
    let complete = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
    let (answer, _) = world.in_session(&mut opener, &mut client, |ops| ops.op(complete));
    answer.ok();
    let (given, _) = world.open(&mut opener, &mut client);
    let given = given.expect("it can be recalled");
    world.recalled(&mut opener, &mut client, (given, INTEGRITY));

    // The context is gone, and with it the way back.
    world.server.advance(31_000_000_000);
    let mut next = world.client("user7@TEST");
    let destroy = client.destroy(99);
    world.server.call(conn, &destroy);
    let (given, _) = world.open(&mut opener, &mut next);
    assert_eq!(given, None);
    let (_, flags) = world.in_session(&mut opener, &mut next, |ops| ops);
    assert_eq!(flags, SEQ4_STATUS_CB_GSS_CONTEXTS_EXPIRED);
    // Another is named for it.
    let handle = next.handle.clone();
    let ways = offered(3, &handle);
    let control = nfs_argop4::OP_BACKCHANNEL_CTL(BACKCHANNEL_CTL4args {
        bca_cb_program: CALLBACK,
        bca_sec_parms: List::Of(&ways),
    });
    let (answer, _) = world.in_session(&mut opener, &mut next, |ops| ops.op(control));
    answer.ok();
    let (given, flags) = world.open(&mut opener, &mut next);
    assert_eq!(flags, 0);
    let given = given.expect("it can be recalled again");
    world.recalled(&mut opener, &mut next, (given, PRIVACY));
}
