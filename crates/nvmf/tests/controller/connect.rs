//! Connect: every refusal with its status and parameter, and what is given out.

use wire::nvme::fabrics::{ConnectData, nqn_field};
use wire::nvme::{ConnectCommand, Status};
use zerocopy::IntoBytes;

use crate::bench::{Bench, CC_ENABLE, HOST, HOSTID, NQN, PRIVATE_NQN, VIA, command, data};

const IN_DATA: u32 = 1 << 16;

/// Changes to a good Connect, and what becomes of it.
struct Case {
    name: &'static str,
    command: ConnectCommand,
    data: ConnectData,
    status: Status,
    result: u32,
}

fn case(
    name: &'static str,
    command: ConnectCommand,
    data: ConnectData,
    status: Status,
    result: u32,
) -> Case {
    Case {
        name,
        command,
        data,
        status,
        result,
    }
}

fn edited(mut data: ConnectData, edit: impl FnOnce(&mut ConnectData)) -> ConnectData {
    edit(&mut data);
    data
}

#[test]
fn refusals() {
    let invalid = Status::CONNECT_INVALID_PARAMETERS.dnr();
    let good = || data(0xffff, NQN);
    let admin = command(0, 31, 5000);
    let io = |qid| command(qid, 127, 0);
    let recfmt = |command| ConnectCommand {
        recfmt: 1,
        ..command
    };
    let sequence = Status::COMMAND_SEQUENCE.dnr();
    let cases = [
        case(
            "record format",
            recfmt(admin),
            good(),
            Status::CONNECT_FORMAT.dnr(),
            0,
        ),
        case(
            "record format, I/O",
            recfmt(io(1)),
            data(1, NQN),
            Status::CONNECT_FORMAT.dnr(),
            0,
        ),
        case(
            "no subsystem",
            admin,
            data(0xffff, "nqn.2024-01.org.example:none"),
            invalid,
            IN_DATA | 256,
        ),
        case(
            "subsystem NQN without end",
            admin,
            edited(good(), |d| d.subnqn.fill(b'n')),
            invalid,
            IN_DATA | 256,
        ),
        case(
            "host NQN without end",
            admin,
            edited(good(), |d| d.hostnqn.fill(b'n')),
            invalid,
            IN_DATA | 512,
        ),
        case(
            "no host NQN",
            admin,
            edited(good(), |d| d.hostnqn.fill(0)),
            invalid,
            IN_DATA | 512,
        ),
        case(
            "host not allowed",
            admin,
            data(0xffff, PRIVATE_NQN),
            Status::CONNECT_INVALID_HOST.dnr(),
            IN_DATA | 512,
        ),
        case(
            "a controller chosen",
            admin,
            data(1, NQN),
            invalid,
            IN_DATA | 16,
        ),
        case(
            "static model",
            admin,
            data(0xfffe, NQN),
            invalid,
            IN_DATA | 16,
        ),
        case("admin queue of 1", command(0, 0, 0), good(), invalid, 44),
        case(
            "admin queue of 129",
            command(0, 128, 0),
            good(),
            invalid,
            44,
        ),
        case(
            "no such controller",
            io(1),
            data(9, NQN),
            invalid,
            IN_DATA | 16,
        ),
        case(
            "any controller",
            io(1),
            data(0xffff, NQN),
            invalid,
            IN_DATA | 16,
        ),
        case(
            "controller of another subsystem",
            io(1),
            data(1, PRIVATE_NQN),
            invalid,
            IN_DATA | 16,
        ),
        case(
            "another host",
            io(1),
            edited(data(1, NQN), |d| {
                nqn_field(&mut d.hostnqn, "nqn.2024-01.org.example:b")
            }),
            invalid,
            IN_DATA | 512,
        ),
        case(
            "another host identifier",
            io(1),
            edited(data(1, NQN), |d| d.hostid[15] ^= 1),
            invalid,
            IN_DATA,
        ),
        case("queue past the last", io(5), data(1, NQN), invalid, 42),
        case(
            "I/O queue of 1",
            command(1, 0, 0),
            data(1, NQN),
            invalid,
            44,
        ),
        case(
            "I/O queue of 129",
            command(1, 128, 0),
            data(1, NQN),
            invalid,
            44,
        ),
        case("queue connected already", io(1), data(1, NQN), sequence, 0),
        case("controller not enabled", io(1), data(2, NQN), sequence, 0),
        case(
            "I/O queue of a discovery controller",
            io(1),
            data(1, wire::nvme::discovery::DISCOVERY_NQN),
            invalid,
            42,
        ),
    ];
    for case in cases {
        let mut bench = Bench::new();
        bench.controller();
        bench.io_queue(1, 1).unwrap();
        bench.admin_queue(NQN, 0);
        bench.enabled(wire::nvme::discovery::DISCOVERY_NQN, 0);
        let refusal = bench.connect(&case.command, &case.data).unwrap_err();
        assert_eq!(
            (refusal.status, refusal.result),
            (case.status, case.result),
            "{}",
            case.name
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
fn what_a_connected_queue_gets() {
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
fn a_controller_id_is_in_use_until_the_last_queue_is_gone() {
    let mut bench = Bench::with(vec![], &[]);
    let mut one = crate::bench::disk();
    one.cntlids = 1..=1;
    bench.registry.replace_subsystem(one.into());
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
