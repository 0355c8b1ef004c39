//! Locks of NFSv3, beside those of version 4, and hosts that start again.

use nfsd::nlm::HostCall;
use testkit::nfs::call::call_header_of;
use wire::nfs4::*;
use wire::nlm4::*;
use wire::nsm::*;
use wire::rpc::accept_stat;
use wire::xdr::{Decode, Encode, Opaque, Reader};

use crate::world::*;
use crate::write_delegations::delegated;
use nfs_argop4 as arg;
use nfsstat4::NFS4_OK;
use nlm4_proc::*;
use nlm4_stats::*;

/// A host of NFSv3: its connection, what it calls itself, its state, the number of its next call.
struct Host {
    conn: usize,
    name: &'static str,
    state: u32,
    xid: u32,
}

/// What a host wants to lock, and for which of its processes.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    file: &'a [u8],
    svid: u32,
    range: (u64, u64),
    exclusive: bool,
    block: bool,
    reclaim: bool,
}

/// A write lock of the whole file, if it is free.
fn all(file: &[u8]) -> Wanted<'_> {
    Wanted {
        file,
        svid: 1,
        range: (0, 0),
        exclusive: true,
        block: false,
        reclaim: false,
    }
}

impl Host {
    fn new(world: &mut World, name: &'static str, address: &str) -> Host {
        Host {
            conn: world.server.connect(address.parse().unwrap()),
            name,
            state: 3,
            xid: 1,
        }
    }

    /// The results of a procedure; of one that RPC refuses, why.
    fn call(
        &mut self,
        world: &mut World,
        program: (u32, u32, u32),
        args: &impl Encode,
    ) -> Result<Vec<u8>, accept_stat> {
        self.xid += 1;
        let mut record = call_header_of(self.xid, program);
        args.encode(&mut record);
        let answer = world.server.call(self.conn, &record);
        let status = accept_stat::decode(&mut Reader::new(&answer[20..])).unwrap();
        match status {
            accept_stat::SUCCESS => Ok(answer[24..].to_vec()),
            status => Err(status),
        }
    }

    fn nlm(&mut self, world: &mut World, procedure: nlm4_proc, args: &impl Encode) -> Vec<u8> {
        let program = (NLM_PROG, NLM4_VERS, procedure as u32);
        self.call(world, program, args).expect("a result")
    }

    fn stat(&mut self, world: &mut World, procedure: nlm4_proc, args: &impl Encode) -> nlm4_stats {
        let results = self.nlm(world, procedure, args);
        let res = nlm4_res::decode(&mut Reader::new(&results)).unwrap();
        assert_eq!(res.cookie.0, b"cookie");
        res.stat
    }

    fn alock<'a>(&self, wanted: Wanted<'a>) -> nlm4_lock<'a> {
        nlm4_lock {
            caller_name: Opaque(self.name.as_bytes()),
            fh: Opaque(wanted.file),
            oh: Opaque(b"7@host"),
            svid: wanted.svid,
            l_offset: wanted.range.0,
            l_len: wanted.range.1,
        }
    }

    fn lock(&mut self, world: &mut World, wanted: Wanted<'_>) -> nlm4_stats {
        let args = nlm4_lockargs {
            cookie: Opaque(b"cookie"),
            block: wanted.block,
            exclusive: wanted.exclusive,
            alock: self.alock(wanted),
            reclaim: wanted.reclaim,
            state: self.state,
        };
        self.stat(world, NLMPROC4_LOCK, &args)
    }

    fn unlock(&mut self, world: &mut World, wanted: Wanted<'_>) -> nlm4_stats {
        let args = nlm4_unlockargs {
            cookie: Opaque(b"cookie"),
            alock: self.alock(wanted),
        };
        self.stat(world, NLMPROC4_UNLOCK, &args)
    }

    fn cancel(&mut self, world: &mut World, wanted: Wanted<'_>) -> nlm4_stats {
        let args = nlm4_cancargs {
            cookie: Opaque(b"cookie"),
            block: true,
            exclusive: wanted.exclusive,
            alock: self.alock(wanted),
        };
        self.stat(world, NLMPROC4_CANCEL, &args)
    }

    /// The holder of what is in the way: whether exclusively, its process, owner and range.
    fn test(&mut self, world: &mut World, wanted: Wanted<'_>) -> Result<nlm4_stats, Holder> {
        let args = nlm4_testargs {
            cookie: Opaque(b"cookie"),
            exclusive: wanted.exclusive,
            alock: self.alock(wanted),
        };
        let results = self.nlm(world, NLMPROC4_TEST, &args);
        match nlm4_testres::decode(&mut Reader::new(&results))
            .unwrap()
            .test_stat
        {
            nlm4_testrply::NLM4_DENIED(holder) => Err((
                holder.exclusive,
                holder.svid,
                holder.oh.0.to_vec(),
                (holder.l_offset, holder.l_len),
            )),
            nlm4_testrply::default(stat) => Ok(stat),
        }
    }

    fn share(
        &mut self,
        world: &mut World,
        procedure: nlm4_proc,
        file: &[u8],
        (access, mode): (fsh4_access, fsh4_mode),
    ) -> nlm4_stats {
        let args = nlm4_shareargs {
            cookie: Opaque(b"cookie"),
            share: nlm4_share {
                caller_name: Opaque(self.name.as_bytes()),
                fh: Opaque(file),
                oh: Opaque(b"dos"),
                mode,
                access,
            },
            reclaim: false,
        };
        let results = self.nlm(world, procedure, &args);
        nlm4_shareres::decode(&mut Reader::new(&results))
            .unwrap()
            .stat
    }

    fn notify(&mut self, world: &mut World, name: &str, state: u32) {
        let args = stat_chge {
            mon_name: Opaque(name.as_bytes()),
            state,
        };
        let program = (SM_PROG, SM_VERS, sm_proc::SM_NOTIFY as u32);
        assert_eq!(self.call(world, program, &args), Ok(Vec::new()));
    }
}

/// Arguments as they are.
struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0);
    }
}

type Holder = (bool, u32, Vec<u8>, (u64, u64));

/// A world with a file, a client of version 4 that has it open, and two hosts.
fn setting() -> (World, Client, (stateid4, Vec<u8>), [Host; 2]) {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let opened = world.create(&mut client, "o", "f");
    let hosts = [
        Host::new(&mut world, "one.example.org", "192.0.2.1:700"),
        Host::new(&mut world, "two", "192.0.2.2:700"),
    ];
    (world, client, opened, hosts)
}

fn grants(world: &World) -> Vec<nfsd::nlm::NlmGrant> {
    let calls = world.server.nfsd.take_host_calls().into_iter();
    calls
        .map(|call| match call {
            HostCall::Granted(grant) => grant,
            HostCall::Notify(_) => panic!("no host waits for that"),
        })
        .collect()
}

#[test]
fn locks_of_versions_3_and_4_are_in_each_others_way() {
    let (mut world, mut client, (open, file), [mut one, mut two]) = setting();
    let part = Wanted {
        range: (10, 5),
        ..all(&file)
    };
    assert_eq!(one.lock(&mut world, part), NLM4_GRANTED);
    // The whole file by version 4, then what is beside.
    let ops = at(&file).op(arg::OP_LOCK(locking(&client, "l", open)));
    let mut answer = world.run(&mut client, ops);
    answer.ok(nfs_opnum4::OP_PUTFH);
    assert_eq!(answer.next(nfs_opnum4::OP_LOCK), nfsstat4::NFS4ERR_DENIED);
    assert_eq!((answer.get::<u64>(), answer.get::<u64>()), (10, 5));
    let beside = LOCK4args {
        offset: 15,
        ..locking(&client, "l", open)
    };
    let ops = at(&file).op(arg::OP_LOCK(beside));
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_DENIED);
    let behind = Wanted {
        range: (20, 0),
        ..all(&file)
    };
    let holder = two.test(&mut world, behind).unwrap_err();
    assert_eq!(holder, (true, 0, b"l".to_vec(), (15, 0)));
    let holder = two.test(&mut world, part).unwrap_err();
    assert_eq!(holder, (true, 1, b"7@host".to_vec(), (10, 5)));
    let shared = Wanted {
        exclusive: false,
        range: (0, 10),
        ..all(&file)
    };
    assert_eq!(two.test(&mut world, shared), Ok(NLM4_GRANTED));
    assert_eq!(two.lock(&mut world, shared), NLM4_GRANTED);
    assert_eq!(one.lock(&mut world, shared), NLM4_GRANTED, "it is shared");
    // Another process of the same host is another owner.
    let other = Wanted { svid: 2, ..part };
    assert_eq!(one.lock(&mut world, other), NLM4_DENIED);
    assert_eq!(one.unlock(&mut world, other), NLM4_GRANTED);
    assert_eq!(one.unlock(&mut world, part), NLM4_GRANTED);
    assert_eq!(two.lock(&mut world, part), NLM4_GRANTED);
    // A client of version 4 that is gone is not in the way for long; a host stays.
    world.server.advance(200 * SECOND);
    let mine = Wanted {
        range: (15, 0),
        ..all(&file)
    };
    assert_eq!(two.lock(&mut world, mine), NLM4_GRANTED);
    assert_eq!(one.lock(&mut world, part), NLM4_DENIED);
}

#[test]
fn blocked_lock_is_granted_by_a_call_when_it_is_free() {
    let (mut world, mut client, (open, file), [mut one, mut two]) = setting();
    let ops = at(&file).op(arg::OP_LOCK(locking(&client, "l", open)));
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    let waits = Wanted {
        block: true,
        range: (3, 4),
        ..all(&file)
    };
    assert_eq!(one.lock(&mut world, waits), NLM4_BLOCKED);
    assert_eq!(two.lock(&mut world, waits), NLM4_BLOCKED);
    assert!(grants(&world).is_empty());
    let ops = at(&file).close(0, open);
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    let granted = grants(&world);
    assert_eq!(granted.len(), 1, "the other waits");
    let mut bytes = Vec::new();
    granted[0].encode(&mut bytes);
    let args = nlm4_testargs::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!((args.cookie.0, args.exclusive), (&b"cookie"[..], true));
    assert_eq!(args.alock, one.alock(waits));
    assert_eq!(
        granted[0].address,
        "192.0.2.1".parse::<std::net::IpAddr>().unwrap()
    );
    // A host that asks again has it, whatever it says to the call that comes later.
    assert_eq!(one.lock(&mut world, waits), NLM4_GRANTED);
    let now = world.server.now();
    let denied = Some(NLM4_DENIED);
    world.server.nfsd.granted(&granted[0], denied, now);
    assert_eq!(two.test(&mut world, waits).unwrap_err().1, 1);
    assert_eq!(one.unlock(&mut world, waits), NLM4_GRANTED);
    // One that does not want it any more gives it back.
    let granted = grants(&world);
    let two_address: std::net::IpAddr = "192.0.2.2".parse().unwrap();
    assert_eq!((granted.len(), granted[0].address), (1, two_address));
    assert_eq!(one.lock(&mut world, waits), NLM4_BLOCKED);
    world.server.nfsd.granted(&granted[0], denied, now);
    let granted = grants(&world);
    assert_eq!(granted.len(), 1, "the other has it then");
    // One that says nothing keeps it.
    world.server.nfsd.granted(&granted[0], None, now);
    assert_eq!(two.lock(&mut world, waits), NLM4_BLOCKED);
    assert_eq!(two.cancel(&mut world, waits), NLM4_GRANTED);
    assert_eq!(
        two.cancel(&mut world, waits),
        NLM4_DENIED,
        "it waits no longer"
    );
    assert_eq!(one.unlock(&mut world, waits), NLM4_GRANTED);
    assert!(grants(&world).is_empty());
}

#[test]
fn waiting_host_has_the_lock_of_one_that_starts_again() {
    let (mut world, _, (_, file), [mut one, mut two]) = setting();
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
    let waits = Wanted {
        block: true,
        ..all(&file)
    };
    assert_eq!(two.lock(&mut world, waits), NLM4_BLOCKED);
    // Another name, another address, the same start.
    one.notify(&mut world, "other", 5);
    two.notify(&mut world, "one.example.org", 5);
    one.notify(&mut world, "one", 3);
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_DENIED);
    one.notify(&mut world, "one", 5);
    world.server.advance(SECOND);
    assert_eq!(grants(&world).len(), 1);
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_DENIED);
    assert_eq!(two.unlock(&mut world, all(&file)), NLM4_GRANTED);
    // What it has locked since stays, however often it says so.
    one.state = 5;
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
    one.notify(&mut world, "one", 5);
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_DENIED);
    let args = nlm4_notify {
        name: Opaque(b"one.example.org"),
        state: 5,
    };
    assert!(one.nlm(&mut world, NLMPROC4_FREE_ALL, &args).is_empty());
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_GRANTED);
}

/// It is gone for good, so it does not say that it has started again.
#[test]
fn evicted_host_loses_what_it_had_and_waits_no_more() {
    let (mut world, _, (_, file), [mut one, mut two]) = setting();
    let waits = Wanted {
        block: true,
        ..all(&file)
    };
    let mut three = Host::new(&mut world, "three", "192.0.2.3:700");
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
    assert_eq!(two.lock(&mut world, waits), NLM4_BLOCKED);
    assert_eq!(three.lock(&mut world, waits), NLM4_BLOCKED);
    let id = |world: &World, name: &[u8]| {
        let mut hosts = world.server.nfsd.nlm_hosts(0).into_iter();
        hosts.find_map(|host| (*host.name == *name).then_some(host.client))
    };
    let [first, second] =
        [&b"one.example.org"[..], b"two"].map(|name| id(&world, name).expect("known"));
    assert!(world.server.nfsd.evict(second));
    assert!(world.server.nfsd.evict(first));
    assert!(!world.server.nfsd.evict(first), "it is gone");
    assert_eq!(id(&world, b"two"), None);
    world.server.advance(SECOND);
    assert_eq!(grants(&world).len(), 1, "of the third");
    assert_eq!(three.lock(&mut world, all(&file)), NLM4_GRANTED);
    let left = world.on_record();
    assert!(left.contains(&b"nlm 192.0.2.3 three"[..]), "{left:?}");
    assert_eq!(left.len(), 2, "and the client of version 4: {left:?}");
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_DENIED);
    assert_eq!(three.unlock(&mut world, all(&file)), NLM4_GRANTED);
    // It may come back.
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
}

#[test]
fn host_that_is_gone_is_not_told_of_a_lock_that_it_has_no_more() {
    let (mut world, _, (_, file), [mut one, mut two]) = setting();
    let waits = Wanted {
        block: true,
        ..all(&file)
    };
    for is_evicted in [true, false] {
        assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
        assert_eq!(two.lock(&mut world, waits), NLM4_BLOCKED);
        assert_eq!(one.unlock(&mut world, all(&file)), NLM4_GRANTED);
        assert_eq!(one.lock(&mut world, all(&file)), NLM4_DENIED, "two has it");
        match is_evicted {
            true => {
                let mut hosts = world.server.nfsd.nlm_hosts(0).into_iter();
                let two = hosts.find(|host| *host.name == *b"two").expect("known");
                assert!(world.server.nfsd.evict(two.client));
            }
            false => two.notify(&mut world, "two", 5),
        }
        world.server.advance(SECOND);
        assert!(grants(&world).is_empty(), "evicted: {is_evicted}");
    }
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
}

/// As many wait for locks of a file as it remembers.
#[test]
fn host_that_is_gone_leaves_room_for_others_that_wait() {
    let (mut world, _, (_, file), [mut one, mut two]) = setting();
    let mut three = Host::new(&mut world, "three", "192.0.2.3:700");
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
    let waits = Wanted {
        block: true,
        ..all(&file)
    };
    for state in [5, 7] {
        for svid in 0..256 {
            let wanted = Wanted { svid, ..waits };
            assert_eq!(two.lock(&mut world, wanted), NLM4_BLOCKED);
        }
        two.state = state;
        two.notify(&mut world, "two", state);
    }
    assert_eq!(three.lock(&mut world, waits), NLM4_BLOCKED);
    assert_eq!(one.unlock(&mut world, all(&file)), NLM4_GRANTED);
    assert_eq!(grants(&world).len(), 1, "of the third");
}

#[test]
fn hosts_reclaim_their_locks_after_a_restart_and_are_told_of_it() {
    let (mut world, _, (_, file), [mut one, _]) = setting();
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_GRANTED);
    assert_eq!(world.on_record().len(), 2, "and the client of version 4");
    world.restart();
    let calls = world.server.nfsd.take_host_calls();
    let [HostCall::Notify(notice)] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!(
        notice.address,
        "192.0.2.1".parse::<std::net::IpAddr>().unwrap()
    );
    assert_eq!(notice.state % 2, 1, "a host that runs has an odd one");
    let mut one = Host::new(&mut world, "one.example.org", "192.0.2.1:700");
    let mut two = Host::new(&mut world, "two", "192.0.2.2:700");
    let again = Wanted {
        reclaim: true,
        ..all(&file)
    };
    assert_eq!(two.lock(&mut world, again), NLM4_DENIED_GRACE_PERIOD);
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_DENIED_GRACE_PERIOD);
    assert_eq!(
        two.test(&mut world, all(&file)),
        Ok(NLM4_DENIED_GRACE_PERIOD)
    );
    assert_eq!(one.lock(&mut world, again), NLM4_GRANTED);
    world.server.advance(90 * SECOND);
    assert_eq!(
        one.lock(&mut world, again),
        NLM4_DENIED_GRACE_PERIOD,
        "too late"
    );
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_DENIED);
    // It stays on record; the client that did not come does not.
    assert_eq!(world.on_record().len(), 1);
    one.notify(&mut world, "one", 9);
    assert_eq!(two.lock(&mut world, all(&file)), NLM4_GRANTED);
    let left = world.on_record().into_iter().collect::<Vec<_>>();
    assert_eq!(left, [Box::from(&b"nlm 192.0.2.2 two"[..])]);
}

#[test]
fn shares_of_version_3_and_opens_of_version_4_are_in_each_others_way() {
    let (mut world, mut client, (open, file), [mut one, mut two]) = setting();
    let (r_dw, rw) = (
        (fsh4_access::fsa_R, fsh4_mode::fsm_DW),
        (fsh4_access::fsa_RW, fsh4_mode::fsm_DN),
    );
    // The client has it open to write.
    assert_eq!(
        one.share(&mut world, NLMPROC4_SHARE, &file, r_dw),
        NLM4_DENIED
    );
    let ops = at(&file).close(0, open);
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    assert_eq!(
        one.share(&mut world, NLMPROC4_SHARE, &file, r_dw),
        NLM4_GRANTED
    );
    assert_eq!(
        two.share(&mut world, NLMPROC4_SHARE, &file, rw),
        NLM4_DENIED
    );
    let writes = OPEN4args {
        share_access: WRITE,
        ..opening(&client, "o", "f")
    };
    let refused = world.open(&mut client, writes).unwrap_err();
    assert_eq!(refused, nfsstat4::NFS4ERR_SHARE_DENIED);
    // It is not in the way of its own, and I/O of version 3 has no owner.
    assert_eq!(
        one.share(&mut world, NLMPROC4_SHARE, &file, rw),
        NLM4_GRANTED
    );
    assert_eq!(
        two.share(&mut world, NLMPROC4_SHARE, &file, rw),
        NLM4_GRANTED
    );
    for host in [&mut one, &mut two] {
        assert_eq!(
            host.share(&mut world, NLMPROC4_UNSHARE, &file, rw),
            NLM4_GRANTED
        );
    }
    let denies = OPEN4args {
        share_deny: OPEN4_SHARE_DENY_BOTH,
        ..opening(&client, "o", "f")
    };
    world.open(&mut client, denies).unwrap();
    assert_eq!(
        one.share(&mut world, NLMPROC4_SHARE, &file, rw),
        NLM4_DENIED
    );
}

#[test]
fn write_lock_waits_until_delegations_have_come_back() {
    let mut world = World::new();
    let mut client = world.client("a", 1);
    let (open, file) = world.create(&mut client, "o", "f");
    let ops = at(&file).close(0, open);
    assert_eq!(world.last(&mut client, ops), NFS4_OK);
    let args = opening(&client, "o", "f");
    let opened = world.open(&mut client, args).unwrap();
    assert!(opened.delegation.is_some(), "{:?}", opened.why_none);
    let mut one = Host::new(&mut world, "one", "192.0.2.1:700");
    let shared = Wanted {
        exclusive: false,
        ..all(&file)
    };
    assert_eq!(one.lock(&mut world, shared), NLM4_GRANTED);
    assert_eq!(one.lock(&mut world, all(&file)), NLM4_DENIED_GRACE_PERIOD);
    assert_eq!(world.called(client.conn).len(), 1, "it is recalled");
}

#[test]
fn lock_waits_until_a_write_delegation_has_come_back() {
    let (mut world, client, _, _, file) = delegated(1);
    let mut one = Host::new(&mut world, "one", "192.0.2.1:700");
    let shared = Wanted {
        exclusive: false,
        ..all(&file)
    };
    assert_eq!(one.lock(&mut world, shared), NLM4_DENIED_GRACE_PERIOD);
    assert_eq!(world.called(client.conn).len(), 1, "it is recalled");
}

#[test]
fn files_that_cannot_be_locked_are_told_apart() {
    let (mut world, mut client, (_, file), [mut one, _]) = setting();
    let mut answer = world.run(&mut client, root().op(arg::OP_GETFH));
    answer.ok(nfs_opnum4::OP_PUTROOTFH);
    let root_handle = answer.handle();
    assert_eq!(one.lock(&mut world, all(&root_handle)), NLM4_FAILED);
    assert_eq!(one.lock(&mut world, all(b"no handle")), NLM4_STALE_FH);
    let mut forged = file.clone();
    forged[16] ^= 1;
    assert_eq!(one.lock(&mut world, all(&forged)), NLM4_STALE_FH);
    let beyond = Wanted {
        range: (u64::MAX, 2),
        ..all(&file)
    };
    assert_eq!(one.lock(&mut world, beyond), NLM4_FBIG);
    assert_eq!(world.last(&mut client, root().remove("f")), NFS4_OK);
    // An owner of more bytes than one of version 4 may have.
    let mut long = Vec::new();
    netobj::encode(&Opaque(b"cookie"), &mut long);
    false.encode(&mut long);
    true.encode(&mut long);
    netobj::encode(&Opaque(b"one"), &mut long);
    netobj::encode(&Opaque(&file), &mut long);
    netobj::encode(&Opaque(&[b'x'; OH_MAX as usize + 1]), &mut long);
    [0u32; 7].iter().for_each(|word| word.encode(&mut long));
    let args = Raw(long);
    let program = (NLM_PROG, NLM4_VERS, NLMPROC4_LOCK as u32);
    let refused = one.call(&mut world, program, &args);
    assert_eq!(refused, Err(accept_stat::GARBAGE_ARGS));
    for (program, why) in [
        ((NLM_PROG, 3, 2), accept_stat::PROG_MISMATCH),
        // NLM_TEST_MSG: it would be answered by a call.
        ((NLM_PROG, 4, 6), accept_stat::PROC_UNAVAIL),
        ((SM_PROG, 1, 7), accept_stat::PROC_UNAVAIL),
        ((SM_PROG, 2, 6), accept_stat::PROG_MISMATCH),
    ] {
        assert_eq!(
            one.call(&mut world, program, &0u32),
            Err(why),
            "{program:?}"
        );
    }
}

#[test]
fn hosts_of_one_address_are_bounded() {
    let (mut world, _, (_, file), [mut one, mut two]) = setting();
    let mut refused = 0;
    for number in 0..300 {
        one.name = Box::leak(format!("host{number}").into_boxed_str());
        let own = Wanted {
            exclusive: false,
            ..all(&file)
        };
        refused += u32::from(one.lock(&mut world, own) == NLM4_DENIED_NOLOCKS);
    }
    assert_eq!(refused, 300 - 256);
    let own = Wanted {
        exclusive: false,
        ..all(&file)
    };
    assert_eq!(
        two.lock(&mut world, own),
        NLM4_GRANTED,
        "another address has room"
    );
}

#[test]
fn status_monitor_watches_no_host_for_others() {
    let (mut world, _, _, [mut one, _]) = setting();
    let name: sm_host<'_> = Opaque(b"victim");
    for procedure in [sm_proc::SM_STAT, sm_proc::SM_MON] {
        let program = (SM_PROG, SM_VERS, procedure as u32);
        let results = one.call(&mut world, program, &name).unwrap();
        let res = sm_stat_res::decode(&mut Reader::new(&results)).unwrap();
        assert_eq!((res.res_stat, res.state % 2), (sm_res::STAT_FAIL, 1));
    }
}
