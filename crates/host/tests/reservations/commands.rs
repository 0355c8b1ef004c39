//! What commands do and what they are answered.

use host::Payload;
use server::Change;
use store::reservation::{Registrant, ReservationRequest};
use wire::nvme::feature::fid;
use wire::nvme::log::lid;
use wire::nvme::reservation::{IEKEY, action};
use wire::nvme::{NSID_ALL, Sqe, Status, admin, identify::cns, io};

use crate::ends::stop;
use crate::fabric::*;

const CONFLICT: Status = Status::RESERVATION_CONFLICT.dnr();
const INVALID: Status = Status::INVALID_FIELD.dnr();

/// Commands of the standard's read and write groups; each works on blocks of
/// its own, which hold zeros.
fn group(reads: bool) -> Vec<(&'static str, Sqe, Vec<u8>, usize)> {
    let blocks = |opcode, slba| {
        let mut sqe = command(opcode, 0);
        sqe.set_blocks(slba, 1);
        sqe
    };
    if reads {
        return vec![
            ("Read", blocks(io::READ, 0), vec![], BLOCK),
            ("Compare", blocks(io::COMPARE, 0), vec![0; BLOCK], 0),
            ("Verify", blocks(io::VERIFY, 0), vec![], 0),
        ];
    }
    let mut deallocate = command(io::DATASET_MANAGEMENT, 0);
    deallocate.cdw11 = 4.into();
    let mut range = vec![0; 16];
    range[4] = 1;
    range[8] = 9;
    let mut copy = command(io::COPY, 8);
    copy.cdw12 = 0.into();
    vec![
        ("Write", blocks(io::WRITE, 1), vec![0; BLOCK], 0),
        ("Write Zeroes", blocks(io::WRITE_ZEROES, 2), vec![], 0),
        (
            "Write Uncorrectable",
            blocks(io::WRITE_UNCORRECTABLE, 3),
            vec![],
            0,
        ),
        ("Dataset Management", deallocate, range, 0),
        ("Flush", command(io::FLUSH, 0), vec![], 0),
        ("Copy", copy, vec![0; 32], 0),
    ]
}

/// Read and write of a non-registrant, of a registrant and of the holder, by
/// type: the standard's table of command behavior.
const BEHAVIOR: [[(bool, bool); 3]; 6] = {
    const ALL: (bool, bool) = (true, true);
    const READ: (bool, bool) = (true, false);
    const NONE: (bool, bool) = (false, false);
    [
        [READ, READ, ALL],
        [NONE, NONE, ALL],
        [READ, ALL, ALL],
        [NONE, ALL, ALL],
        [READ, ALL, ALL],
        [NONE, ALL, ALL],
    ]
};

#[test]
fn every_command_under_every_type() {
    WAYS.into_iter().for_each(every_command);
}

fn every_command(way: Way) {
    let running = serve_ram();
    let to = running.addresses()[0];
    let mut hosts = [1, 2, 3].map(|number| Host::connect_by(way, to, NQN, number));
    hosts[1].join(2);
    hosts[2].join(3);
    for rtype in 1..=6 {
        assert_eq!(
            hosts[2].acquire(action::ACQUIRE, 3, 0, rtype),
            Status::SUCCESS
        );
        for (host, rights) in hosts.iter_mut().zip(BEHAVIOR[usize::from(rtype) - 1]) {
            for (reads, may) in [(true, rights.0), (false, rights.1)] {
                let expected = if may { Status::SUCCESS } else { CONFLICT };
                for (name, sqe, out, len) in group(reads) {
                    let pending = host.submit(&sqe, &out, len);
                    let (status, _) = host.wait(pending);
                    assert_eq!(status, expected, "{name}, type {rtype}, {:?}", host.hostid);
                }
            }
            let flush_all = Sqe {
                nsid: NSID_ALL.into(),
                ..command(io::FLUSH, 0)
            };
            let expected = if rights.1 { Status::SUCCESS } else { CONFLICT };
            assert_eq!(host.run(&flush_all, &[]), expected, "Flush of all, {rtype}");
            fused(host, rights == (true, true));
        }
        let reserved = hosts[0].report(64);
        assert_eq!(reserved.rtype(), rtype);
        assert_eq!(hosts[2].release(action::RELEASE, 3, rtype), Status::SUCCESS);
        assert_eq!(hosts[0].write(1), Status::SUCCESS, "all is free again");
    }
    stop(running);
}

/// A fused Compare and Write, which needs both rights.
fn fused(host: &mut Host, may: bool) {
    let pair = [(io::COMPARE, 1), (io::WRITE, 2)].map(|(opcode, fuse)| {
        let mut sqe = command(opcode, 0);
        sqe.set_blocks(4, 1);
        sqe.flags |= fuse;
        sqe
    });
    let pending = pair.map(|sqe| host.submit(&sqe, &[0; BLOCK], 0));
    let statuses = pending.map(|pending| host.wait(pending).0.code());
    let expected = match may {
        true => [Status::SUCCESS; 2],
        false => [Status::RESERVATION_CONFLICT, Status::FUSED_FAILED],
    };
    assert_eq!(statuses, expected);
}

#[test]
fn keys_are_registered_replaced_and_reported() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    assert_eq!(a.register(action::REGISTER, 0, 0, 0), INVALID, "no key");
    a.join(10);
    a.join(10);
    assert_eq!(a.register(action::REGISTER, 0, 11, 0), CONFLICT);
    assert_eq!(a.register(action::REPLACE, 9, 11, 0), CONFLICT);
    assert_eq!(a.register(action::REPLACE, 10, 11, 0), Status::SUCCESS);
    assert_eq!(b.register(action::REPLACE, 1, 20, 0), CONFLICT);
    assert_eq!(b.register(action::REPLACE, 1, 20, IEKEY), Status::SUCCESS);
    assert_eq!(b.acquire(action::ACQUIRE, 19, 0, 3), CONFLICT, "wrong key");
    assert_eq!(
        b.acquire(action::ACQUIRE, 20, 0, 7),
        INVALID,
        "no such type"
    );
    assert_eq!(b.acquire(action::ACQUIRE, 20, 0, 3), Status::SUCCESS);
    assert_eq!(a.acquire(action::ACQUIRE, 11, 0, 3), CONFLICT);
    let report = a.report(64 * 3);
    assert_eq!(
        (report.rtype(), report.count(), report.persists()),
        (3, 2, false)
    );
    // Registered twice, replaced twice.
    assert_eq!(report.generation(), 4);
    assert_eq!(
        report.registrants(),
        [(a.hostid, 11, false), (b.hostid, 20, true)]
    );
    // As much of it as the host has room for.
    let short = a.report(64 * 2);
    assert_eq!((short.count(), short.registrants().len()), (2, 1));
    assert_eq!(a.report(8).head(), &report.head()[..8]);
    assert_eq!(b.release(action::RELEASE, 20, 4), INVALID, "another type");
    assert_eq!(
        a.release(action::RELEASE, 11, 3),
        Status::SUCCESS,
        "not held"
    );
    assert_eq!(a.report(64).rtype(), 3);
    assert_eq!(b.leave(), Status::SUCCESS);
    assert_eq!((a.report(64).rtype(), a.report(64).count()), (0, 1));
    assert_eq!(b.register(action::UNREGISTER, 20, 0, 0), CONFLICT);
    assert_eq!(b.leave(), Status::SUCCESS, "nothing to unregister");
    // 64-bit Host Identifiers are not for fabrics.
    let short_form = command(io::RESERVATION_REPORT, 15);
    let pending = a.submit(&short_form, &[], 64);
    let (status, _) = a.wait(pending);
    assert_eq!(status, Status::HOST_ID_INCONSISTENT.dnr());
    stop(running);
}

#[test]
fn two_controllers_of_one_host_are_one_registrant() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let mut paths = [1, 1].map(|number| Host::connect(to, number));
    let mut other = Host::connect(to, 2);
    paths[0].join(5);
    assert_eq!(paths[1].acquire(action::ACQUIRE, 5, 0, 2), Status::SUCCESS);
    assert_eq!(paths[0].write(0), Status::SUCCESS);
    assert_eq!(other.read(0), CONFLICT);
    assert_eq!(other.report(64 * 3).registrants().len(), 1);
    // The registration is the host's, not the connection's.
    drop(paths);
    assert_eq!(other.read(0), CONFLICT);
    let mut again = Host::connect(to, 1);
    assert_eq!(again.write(0), Status::SUCCESS);
    assert_eq!(again.release(action::CLEAR, 5, 0), Status::SUCCESS);
    assert_eq!(other.read(0), Status::SUCCESS);
    stop(running);
}

#[test]
fn a_host_without_an_identifier_cannot_register() {
    let running = serve_ram();
    let mut unidentified = Host::connect(running.addresses()[0], 0);
    assert_eq!(unidentified.register(action::REGISTER, 0, 1, 0), INVALID);
    assert_eq!(unidentified.report(64).count(), 0);
    stop(running);
}

#[test]
fn a_volume_in_memory_promises_no_persistence() {
    let running = serve_ram();
    let mut host = Host::connect(running.addresses()[0], 1);
    assert_eq!(host.register(action::REGISTER, 0, 1, 3 << 30), INVALID);
    assert_eq!(host.report(64).count(), 0, "all or nothing");
    assert_eq!(host.register(action::REGISTER, 0, 1, 1 << 30), INVALID);
    assert_eq!(
        host.register(action::REGISTER, 0, 1, 2 << 30),
        Status::SUCCESS
    );
    let persistence = fid::RESERVATION_PERSISTENCE;
    assert_eq!(host.feature(persistence), Ok(0));
    assert_eq!(host.set_feature(1, persistence, 1), Err(INVALID));
    assert_eq!(host.set_feature(1, persistence, 0), Ok(0));
    assert_eq!(rescap(&mut host), 0xfe);
    stop(running);
}

/// RESCAP of namespace 1.
fn rescap(host: &mut Host) -> u8 {
    let mut data = vec![0; 4096];
    let mut sqe = Sqe::new(admin::IDENTIFY);
    sqe.nsid = 1.into();
    sqe.cdw10 = u32::from(cns::NAMESPACE).into();
    host.admin(&sqe, Payload::In(&mut data)).expect("Identify");
    data[31]
}

#[test]
fn persistence_is_a_feature_and_outlasts_the_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let spec = store::Spec {
        kind: store::Kind::file(path.clone()),
        ..ram("disk")
    };
    let open = || store::open(&spec).expect("the volume opens");
    let running = serve(vec![open()]);
    let mut host = Host::connect(running.addresses()[0], 1);
    assert_eq!(rescap(&mut host), 0xff);
    host.join(1);
    let persistence = fid::RESERVATION_PERSISTENCE;
    assert_eq!(host.feature(persistence), Ok(0));
    assert_eq!(host.set_feature(NSID_ALL, persistence, 1), Ok(0));
    assert_eq!(host.feature(persistence), Ok(1));
    assert_eq!(host.set_feature(1, persistence, 2), Err(INVALID));
    assert_eq!(
        host.set_feature(9, persistence, 1),
        Err(INVALID),
        "inactive"
    );
    assert_eq!(host.acquire(action::ACQUIRE, 1, 0, 2), Status::SUCCESS);
    let before = host.report(128).head().to_vec();
    drop(host);
    stop(running);

    let running = serve(vec![open()]);
    let to = running.addresses()[0];
    let (mut host, mut other) = (Host::connect(to, 1), Host::connect(to, 2));
    assert_eq!(other.read(0), CONFLICT, "from the first command on");
    let report = host.report(128);
    assert_eq!(report.head(), before, "generation and all");
    assert_eq!(report.registrants(), [(host.hostid, 1, true)]);
    assert!(report.persists());
    // Off, it is gone with the next restart.
    let off = host.register(action::REPLACE, 1, 2, 2 << 30);
    assert_eq!((off, host.feature(persistence)), (Status::SUCCESS, Ok(0)));
    assert_eq!(other.read(0), CONFLICT, "but not before");
    drop((host, other));
    stop(running);
    let running = serve(vec![open()]);
    let mut host = Host::connect(running.addresses()[0], 3);
    assert_eq!(
        (host.read(0), host.report(64).count()),
        (Status::SUCCESS, 0)
    );
    stop(running);
}

/// A command for all namespaces is for each of them.
#[test]
fn flush_of_all_namespaces_needs_the_right_to_each() {
    let running = serve(
        ["one", "two"]
            .map(|name| store::open(&ram(name)).expect("memory"))
            .into(),
    );
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    let mut flush = |nsid: u32| {
        let mut sqe = Sqe::new(io::FLUSH);
        sqe.nsid = nsid.into();
        b.run(&sqe, &[])
    };
    assert_eq!(flush(NSID_ALL), Status::SUCCESS);
    a.join(1);
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 1), Status::SUCCESS);
    assert_eq!(
        [1, 2, NSID_ALL].map(&mut flush),
        [CONFLICT, Status::SUCCESS, CONFLICT]
    );
    drop((a, b));
    stop(running);
}

#[test]
fn persistence_of_all_namespaces_is_of_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| {
        let path = folder.path().join(name);
        let kind = store::Kind::file(path);
        store::open(&store::Spec { kind, ..ram(name) }).expect("the volume opens")
    };
    let volumes = ["one", "two", "three"].map(open);
    let running = serve(volumes.to_vec());
    let mut host = Host::connect(running.addresses()[0], 1);
    for value in [1, 0] {
        let persistence = fid::RESERVATION_PERSISTENCE;
        assert_eq!(host.set_feature(NSID_ALL, persistence, value), Ok(0));
        for volume in &volumes {
            assert_eq!(u32::from(volume.reservations().persists()), value);
        }
    }
    // One that was removed is none of them.
    let nqn = NQN.to_owned();
    let removed = running.change(Change::RemoveNamespace { nqn, nsid: 2 });
    removed.expect("it is removed");
    assert_eq!(
        host.set_feature(NSID_ALL, fid::RESERVATION_PERSISTENCE, 1),
        Ok(0)
    );
    let persist = volumes.map(|volume| volume.reservations().persists());
    assert_eq!(persist, [true, false, true]);
    drop(host);
    stop(running);
}

/// The log names the first block of a command that a reservation forbids.
#[test]
fn error_log_tells_where_a_conflict_was() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    a.join(1);
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 1), Status::SUCCESS);
    assert_eq!(b.write(5), CONFLICT);
    let mut entry = [0; 64];
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE);
    sqe.cdw10 = (u32::from(lid::ERROR) | 15 << 16).into();
    b.admin(&sqe, Payload::In(&mut entry)).expect("a page");
    assert_eq!(entry[16..28], [5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    drop((a, b));
    stop(running);
}

/// What could not be kept did not happen, and the log of the target says why.
#[test]
fn registration_that_cannot_be_kept_is_refused_and_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    let kind = store::Kind::file(path);
    let volume = store::open(&store::Spec {
        kind,
        ..ram("disk")
    })
    .expect("the volume opens");
    let running = serve(vec![volume]);
    let mut host = Host::connect(running.addresses()[0], 1);
    folder.close().expect("the folder goes");
    let unkept = host.register(action::REGISTER, 0, 1, 3 << 30);
    assert_eq!(unkept, Status::INTERNAL_ERROR);
    assert_eq!(host.report(64).count(), 0);
    assert_eq!(running.report().refusals, 1);
    host.join(1);
    drop(host);
    stop(running);
}

/// One volume in two subsystems: what is reserved is the volume.
#[test]
fn a_reservation_is_the_volumes_whatever_subsystem_it_is_in() {
    let running = serve_ram();
    let to = running.addresses()[0];
    let mut a = Host::connect(to, 1);
    a.join(1);
    let mut twins = [1, 2].map(|number| Host::connect_to(to, TWIN, number));
    assert_eq!(a.acquire(action::ACQUIRE, 1, 0, 5), Status::SUCCESS);
    let mut read = command(io::READ, 0);
    read.set_blocks(0, 1);
    read.nsid = 11.into();
    let mut write = command(io::WRITE_ZEROES, 0);
    write.set_blocks(0, 1);
    write.nsid = 11.into();
    for (host, expected) in twins.iter_mut().zip([Status::SUCCESS, CONFLICT]) {
        let pending = host.submit(&read, &[], BLOCK);
        assert_eq!(host.wait(pending).0, Status::SUCCESS);
        assert_eq!(host.run(&write, &[]), expected);
    }
    // A notification names the namespace that its host sees.
    let mut join = command(io::RESERVATION_REGISTER, 0);
    join.nsid = 11.into();
    assert_eq!(twins[1].run(&join, &keys(0, 2)), Status::SUCCESS);
    assert_eq!(twins[1].run(&write, &[]), Status::SUCCESS);
    assert_eq!(a.release(action::RELEASE, 1, 5), Status::SUCCESS);
    assert_eq!(twins[1].notification(false), (1, 2, 0, 11));
    stop(running);
}

/// Each source of a Copy is read like by a Read, in whichever namespace it is.
#[test]
fn a_copy_reads_only_where_a_read_may() {
    let volumes = ["to", "from"].map(|name| store::open(&ram(name)).expect("memory"));
    let running = serve(volumes.to_vec());
    let to = running.addresses()[0];
    let (mut a, mut b) = (Host::connect(to, 1), Host::connect(to, 2));
    // Copy descriptor format 2h enabled.
    let mut behavior = [0; 512];
    behavior[4] = 1 << 2;
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.cdw10 = u32::from(fid::HOST_BEHAVIOR).into();
    b.admin(&sqe, Payload::Out(&behavior))
        .expect("Set Features");
    // From block 0 of namespace 2 to block 8 of namespace 1.
    let mut copy = command(io::COPY, 8);
    copy.cdw12 = (2 << 8).into();
    let mut source = [0; 32];
    source[0] = 2;
    assert_eq!(b.run(&copy, &source), Status::SUCCESS);
    let mut join = command(io::RESERVATION_REGISTER, 0);
    join.nsid = 2.into();
    assert_eq!(a.run(&join, &keys(0, 1)), Status::SUCCESS);
    for (rtype, expected) in [(1, Status::SUCCESS), (2, CONFLICT)] {
        let mut acquire = command(io::RESERVATION_ACQUIRE, rtype << 8);
        acquire.nsid = 2.into();
        assert_eq!(a.run(&acquire, &keys(1, 0)), Status::SUCCESS);
        assert_eq!(b.run(&copy, &source), expected, "type {rtype}");
        assert_eq!(b.write(0), Status::SUCCESS, "the other namespace");
        let mut release = command(io::RESERVATION_RELEASE, rtype << 8);
        release.nsid = 2.into();
        assert_eq!(a.run(&release, &1u64.to_le_bytes()), Status::SUCCESS);
    }
    stop(running);
}

/// Far more than fit into one answer, and then one of them takes over.
#[test]
fn five_thousand_registrants_are_reported_and_preempted_by_one() {
    const HOSTS: u128 = 5000;
    let running = serve_ram();
    let to = running.addresses()[0];
    let volume = &running.volumes()[0];
    for number in 1..=HOSTS {
        // Each twentieth by its own connections, which is what takes the time.
        if number % 20 == 0 {
            Host::connect(to, number).join(number as u64);
        } else {
            let registrant = Registrant::NvmeHost(number.to_be_bytes());
            let key = number as u64;
            let register = ReservationRequest::Register { key, persist: None };
            let change = volume.reservations().change(&registrant, &register);
            change.expect("there is room");
        }
    }
    let mut host = Host::connect(to, 77);
    let report = host.report(64 * 5001);
    assert_eq!((report.count(), report.generation()), (5000, 5000));
    let registrants = report.registrants();
    assert_eq!(registrants.len(), 5000);
    for (number, (hostid, key, _)) in (1..).zip(registrants) {
        assert_eq!((hostid, key), (u128::to_be_bytes(number), number as u64));
    }
    assert_eq!(host.acquire(action::ACQUIRE, 77, 0, 6), Status::SUCCESS);
    assert!(
        host.report(64 * 5001)
            .registrants()
            .iter()
            .all(|(_, _, holds)| *holds)
    );
    let mut other = Host::connect(to, 5000);
    assert_eq!(other.write(0), Status::SUCCESS);
    assert_eq!(host.acquire(action::PREEMPT, 77, 0, 1), Status::SUCCESS);
    let report = host.report(128);
    assert_eq!(report.registrants(), [(host.hostid, 77, true)]);
    assert_eq!((other.write(0), other.read(0)), (CONFLICT, Status::SUCCESS));
    assert_eq!(other.notification(false), (1, 1, 0, 1));
    stop(running);
}
