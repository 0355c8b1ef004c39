//! Connect: every refusal with its status and parameter, and what is given out.

use nvmf::{Refusal, connect_names};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::fabrics::{ConnectData, nqn_field};
use wire::nvme::{ConnectCommand, Status};
use zerocopy::IntoBytes;

use crate::bench::{Bench, CC_ENABLE, HOST, HOSTID, NQN, PRIVATE_NQN, VIA, command, data};

const IN_DATA: u32 = 1 << 16;
const SUBNQN: u32 = IN_DATA | 256;
const HOSTNQN: u32 = IN_DATA | 512;
const CNTLID: u32 = IN_DATA | 16;
const QID: u32 = 42;
const SQSIZE: u32 = 44;

/// Connects with controllers 1 (ready, with queue 1) and 2 (not enabled) there.
fn refusal(command: ConnectCommand, data: ConnectData) -> Refusal {
    let mut bench = Bench::new();
    bench.controller();
    bench.io_queue(1, 1).unwrap();
    bench.admin_queue(NQN, 0);
    bench.enabled(DISCOVERY_NQN, 0);
    bench.connect(&command, &data).unwrap_err()
}

fn edited(cntlid: u16, edit: impl FnOnce(&mut ConnectData)) -> ConnectData {
    let mut data = data(cntlid, NQN);
    edit(&mut data);
    data
}

/// Connect Invalid Parameters, and the byte that is at fault.
#[test]
fn invalid_parameters() {
    let any = 0xffff;
    let admin = command(0, 31, 5000);
    let io = |qid| command(qid, 127, 0);
    let other = |d: &mut ConnectData| nqn_field(&mut d.hostnqn, "nqn.2024-01.org.example:b");
    let cases = [
        (
            "no subsystem",
            admin,
            data(any, "nqn.2024-01.org.example:x"),
            SUBNQN,
        ),
        (
            "subsystem without end",
            admin,
            edited(any, |d| d.subnqn.fill(b'n')),
            SUBNQN,
        ),
        (
            "host without end",
            admin,
            edited(any, |d| d.hostnqn.fill(b'n')),
            HOSTNQN,
        ),
        (
            "no subsystem named",
            admin,
            edited(any, |d| d.subnqn.fill(0)),
            SUBNQN,
        ),
        (
            "host without a form",
            admin,
            edited(any, |d| nqn_field(&mut d.hostnqn, "formless")),
            HOSTNQN,
        ),
        (
            "host without a date, I/O",
            io(2),
            edited(1, |d| nqn_field(&mut d.hostnqn, "nqn.org.example:a")),
            HOSTNQN,
        ),
        (
            "host with half a UUID",
            admin,
            edited(any, |d| {
                nqn_field(&mut d.hostnqn, "nqn.2014-08.org.nvmexpress:uuid:f81d4fae");
            }),
            HOSTNQN,
        ),
        ("a controller chosen", admin, data(1, NQN), CNTLID),
        ("static model", admin, data(0xfffe, NQN), CNTLID),
        ("admin queue of 1", command(0, 0, 0), data(any, NQN), SQSIZE),
        (
            "admin queue of 129",
            command(0, 128, 0),
            data(any, NQN),
            SQSIZE,
        ),
        ("no such controller", io(1), data(9, NQN), CNTLID),
        ("any controller", io(1), data(any, NQN), CNTLID),
        ("another subsystem's", io(1), data(1, PRIVATE_NQN), CNTLID),
        ("another host", io(2), edited(1, other), HOSTNQN),
        (
            "another host ID",
            io(2),
            edited(1, |d| d.hostid[15] ^= 1),
            IN_DATA,
        ),
        ("queue past the last", io(5), data(1, NQN), QID),
        ("I/O queue of 1", command(2, 0, 0), data(1, NQN), SQSIZE),
        ("I/O queue of 129", command(2, 128, 0), data(1, NQN), SQSIZE),
        ("discovery I/O queue", io(1), data(1, DISCOVERY_NQN), QID),
    ];
    for (name, command, data, parameter) in cases {
        let refusal = refusal(command, data);
        let expected = Status::CONNECT_INVALID_PARAMETERS.dnr();
        assert_eq!(
            (refusal.status, refusal.result),
            (expected, parameter),
            "{name}"
        );
    }
}

#[test]
fn other_refusals() {
    let any = 0xffff;
    let admin = command(0, 31, 5000);
    let io = command(1, 127, 0);
    let recfmt = |command| ConnectCommand {
        recfmt: 1,
        ..command
    };
    let cases = [
        (
            "format",
            recfmt(admin),
            data(any, NQN),
            Status::CONNECT_FORMAT,
            0,
        ),
        (
            "format, I/O",
            recfmt(io),
            data(1, NQN),
            Status::CONNECT_FORMAT,
            0,
        ),
        (
            "host",
            admin,
            data(any, PRIVATE_NQN),
            Status::CONNECT_INVALID_HOST,
            HOSTNQN,
        ),
        (
            "host without a name",
            admin,
            ConnectData::new(HOSTID, any, PRIVATE_NQN, ""),
            Status::CONNECT_INVALID_HOST,
            HOSTNQN,
        ),
        (
            "connected already",
            io,
            data(1, NQN),
            Status::COMMAND_SEQUENCE,
            0,
        ),
        ("not enabled", io, data(2, NQN), Status::COMMAND_SEQUENCE, 0),
    ];
    for (name, command, data, status, result) in cases {
        let refusal = refusal(command, data);
        assert_eq!(
            (refusal.status, refusal.result),
            (status.dnr(), result),
            "{name}"
        );
    }
}

#[test]
fn short_data_is_refused() {
    let mut bench = Bench::new();
    let data = data(0xffff, NQN);
    let refusal = bench
        .connect_raw(&command(0, 31, 0), &data.as_bytes()[..1023], VIA)
        .unwrap_err();
    assert_eq!(refusal.status.code(), Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn connect_makes_a_queue_with_the_size_and_flow_control_that_were_asked_for() {
    let mut bench = Bench::new();
    let admin = bench
        .connect(&command(0, 31, 5000), &data(0xffff, NQN))
        .unwrap();
    assert_eq!(
        (admin.cntlid, admin.qid, admin.entries, admin.result),
        (1, 0, 32, 1)
    );
    assert!(!admin.flow_control_disabled);
    assert_eq!(bench.set_cc(admin.controller, CC_ENABLE), Status::SUCCESS);
    let no_flow = ConnectCommand {
        cattr: 1 << 2,
        ..command(4, 127, 0)
    };
    let io = bench.connect(&no_flow, &data(1, NQN)).unwrap();
    assert_eq!(
        (io.controller, io.cntlid, io.qid, io.entries),
        (admin.controller, 1, 4, 128)
    );
    assert!(io.flow_control_disabled);
    assert_eq!(io.subsystem.nqn, NQN);
    assert_eq!(
        bench.registry.controller(io.controller).unwrap().hostnqn(),
        HOST
    );
}

#[test]
fn an_allowed_host_gets_in() {
    let mut bench = Bench::new();
    let other = ConnectData::new(HOSTID, 0xffff, PRIVATE_NQN, "nqn.2024-01.org.example:other");
    assert!(bench.connect(&command(0, 31, 0), &other).is_ok());
}

/// SPDK's load generator names its host only when it is told to.
#[test]
fn a_host_without_a_name_gets_in_where_any_host_may() {
    let mut bench = Bench::new();
    for subnqn in [NQN, DISCOVERY_NQN] {
        let nameless = ConnectData::new(HOSTID, 0xffff, subnqn, "");
        let connected = bench.connect(&command(0, 31, 0), &nameless);
        assert!(connected.is_ok(), "{subnqn}: {:?}", connected.err());
    }
}

#[test]
fn controller_ids_rest_and_run_out() {
    let mut bench = Bench::new();
    let first = bench.admin_queue(NQN, 0);
    assert!(bench.registry.disconnected(first, 0).is_empty());
    let ids: Vec<_> = (0..3).map(|_| bench.admin_queue(NQN, 0)).collect();
    let cntlids: Vec<u16> = ids
        .iter()
        .map(|id| bench.registry.controller(*id).unwrap().cntlid())
        .collect();
    assert_eq!(
        cntlids,
        [2, 3, 1],
        "an identifier is used again as late as possible"
    );
    let refusal = bench
        .connect(&command(0, 31, 0), &data(0xffff, NQN))
        .unwrap_err();
    assert_eq!(
        refusal.status,
        Status::CONNECT_BUSY,
        "it may be tried again"
    );
    bench.registry.disconnected(ids[1], 0);
    let again = bench.admin_queue(NQN, 0);
    assert_eq!(bench.registry.controller(again).unwrap().cntlid(), 3);
}

#[test]
fn host_with_all_its_controllers_is_refused_until_one_is_gone() {
    let mut bench = Bench::with(vec![], &[]);
    let mut one = crate::bench::disk();
    one.cntlids = 1..=100;
    let _ = bench.registry.replace_subsystem(one.into());
    let ids: Vec<_> = (0..3).map(|_| bench.admin_queue(NQN, 0)).collect();
    let connect = |bench: &mut Bench, hostnqn: &str| {
        let mut data = data(0xffff, NQN);
        nqn_field(&mut data.hostnqn, hostnqn);
        let connected = bench.connect(&command(0, 31, 0), &data);
        connected
            .map(|_| ())
            .map_err(|refusal| (refusal.status, refusal.reason.into_owned()))
    };
    let reason = "controllers_of_host_max = 3 is reached".to_owned();
    let busy = Err((Status::CONNECT_BUSY, reason));
    assert_eq!(connect(&mut bench, HOST), busy);
    assert_eq!(connect(&mut bench, "nqn.2024-01.org.example:b"), Ok(()));
    bench.registry.disconnected(ids[1], 0);
    assert_eq!(connect(&mut bench, HOST), Ok(()));
    assert_eq!(connect(&mut bench, HOST), busy, "one is gone, not all");
}

#[test]
fn connect_with_the_host_nqn_of_another_host_identifier_names_that_one() {
    let mut bench = Bench::with(vec![], &[]);
    let _ = bench
        .registry
        .replace_subsystem(crate::bench::disk().into());
    let connect = |bench: &mut Bench, hostid: u8| {
        let mut data = data(0xffff, NQN);
        data.hostid = [hostid; 16];
        let connected = bench.connect(&command(0, 31, 0), &data);
        connected.expect("there is room")
    };
    let first = connect(&mut bench, 1);
    let again = connect(&mut bench, 1);
    assert_eq!((first.other_hostid, again.other_hostid), (None, None));
    let other = connect(&mut bench, 2);
    assert_eq!(other.other_hostid, Some([1; 16]));
    for gone in [first, again, other] {
        bench.registry.disconnected(gone.controller, 0);
    }
    assert_eq!(connect(&mut bench, 3).other_hostid, None, "both are gone");
}

#[test]
fn a_controller_id_is_in_use_until_the_last_queue_is_gone() {
    let mut bench = Bench::with(vec![], &[]);
    let mut one = crate::bench::disk();
    one.cntlids = 1..=1;
    let _ = bench.registry.replace_subsystem(one.into());
    let id = bench.controller();
    bench.io_queue(1, 1).unwrap();
    let closing = bench.registry.disconnected(id, 0);
    assert_eq!(closing, [101], "the I/O queue's connection");
    let refusal = bench
        .connect(&command(0, 31, 0), &data(0xffff, NQN))
        .unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_BUSY);
    let refusal = bench.io_queue(1, 2).unwrap_err();
    assert_eq!(
        refusal.result,
        IN_DATA | 16,
        "an ended controller takes no queues"
    );
    assert!(bench.registry.disconnected(id, 1).is_empty());
    assert!(bench.registry.controller(id).is_none());
    bench.admin_queue(NQN, 0);
    assert!(
        bench.registry.disconnected(id, 1).is_empty(),
        "a stale name does nothing"
    );
}

#[test]
fn an_association_is_on_one_listener() {
    let mut bench = Bench::with(vec![crate::bench::disk()], &["0.0.0.0:4420", "[::]:4420"]);
    bench.controller();
    bench.listener = 1;
    let refusal = bench.io_queue(1, 1).unwrap_err();
    assert_eq!(refusal.result, CNTLID);
    bench.listener = 0;
    assert!(bench.io_queue(1, 1).is_ok());
}

/// One status stands for several.
#[test]
fn refusal_says_its_reason_for_the_log() {
    let admin = command(0, 31, 5000);
    let named = |name: &str| edited(0xffff, |d| nqn_field(&mut d.hostnqn, name));
    for (data, part) in [
        (
            data(0xffff, "nqn.2024-01.org.example:x"),
            "no such subsystem",
        ),
        (data(0xffff, PRIVATE_NQN), "is not among"),
        (
            ConnectData::new(HOSTID, 0xffff, PRIVATE_NQN, ""),
            "gives no NQN",
        ),
        (named("formless"), "an NQN starts with"),
        (named("nqn.org.example:a"), "a year and month"),
    ] {
        let reason = refusal(admin, data).reason;
        assert!(reason.contains(part), "{reason}");
    }
}

/// The log of the target names both, refused or not.
#[test]
fn names_in_the_data_of_a_connect_are_read_for_the_log() {
    let named = data(0xffff, NQN);
    assert_eq!(connect_names(named.as_bytes()), (Some(HOST), Some(NQN)));
    assert_eq!(connect_names(&named.as_bytes()[..1023]), (None, None));
    let endless = edited(0xffff, |data| data.hostnqn.fill(b'n'));
    assert_eq!(connect_names(endless.as_bytes()), (None, Some(NQN)));
}
