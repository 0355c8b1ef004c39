//! Identify, features, log pages, events and errors.

use nvmf::{ErrorNote, IoCounters, Outcome};
use proptest::prelude::*;
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::{fid, select};
use wire::nvme::identify::cns;
use wire::nvme::log::lid;
use wire::nvme::{NSID_ALL, Sqe, Status, admin};
use zerocopy::{FromBytes, IntoBytes};

use crate::bench::{
    Bench, HOSTID, NQN, SECOND, disk, log_sqe, namespace, subsystem, u16_at, u32_at, u64_at,
};

/// Fields of Identify Controller by the byte that the standard gives.
#[test]
fn identify_controller_fields() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let data = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(&data[4..24], b"WEFT0001            ", "SN");
    assert_eq!(&data[24..64], format!("{:40}", "weft").as_bytes(), "MN");
    assert_eq!(&data[64..72], b"0.1.0   ", "FR");
    assert_eq!(data[76], 3, "CMIC");
    assert_eq!(data[77], 8, "MDTS: 1 MiB");
    assert_eq!(u16_at(&data, 78), 1, "CNTLID");
    assert_eq!(u32_at(&data, 80), 0x2_0000, "VER");
    assert_eq!(u32_at(&data, 92), 1 << 8, "OAES");
    assert_eq!(u32_at(&data, 96), 1 | 1 << 6, "CTRATT: HIDS, TBKAS");
    assert_eq!(data[111], 1, "CNTRLTYPE");
    assert_eq!(u16_at(&data, 256), 0, "OACS");
    assert_eq!((data[258], data[259]), (3, 3), "ACL, AERL");
    assert_eq!(
        (data[260], data[261], data[262]),
        (3, 0x27, 63),
        "FRMW, LPA, ELPE"
    );
    assert_eq!(u16_at(&data, 320), 10, "KAS");
    assert_eq!((data[512], data[513]), (0x66, 0x44), "SQES, CQES");
    assert_eq!(u16_at(&data, 514), 128, "MAXCMD");
    assert_eq!(u32_at(&data, 516), 1024, "NN");
    assert_eq!(u16_at(&data, 520), 0x1d, "ONCS");
    assert_eq!(data[525], 5, "VWC present, no broadcast flush");
    assert_eq!(
        (u16_at(&data, 526), u16_at(&data, 528)),
        (0, 0),
        "AWUN, AWUPF: one block"
    );
    assert_eq!(u32_at(&data, 536), 0x30_0001, "SGLS");
    assert_eq!(&data[768..768 + NQN.len()], NQN.as_bytes(), "SUBNQN");
    assert_eq!(data[768 + NQN.len()], 0);
    assert_eq!(u32_at(&data, 1792), (64 + 8192) / 16, "IOCCSZ");
    assert_eq!(u16_at(&data, 1804), 1, "OFCS: Disconnect");
    assert_eq!(u32_at(&data, 1796), 1, "IORCSZ");
    assert_eq!(
        (u16_at(&data, 1800), data[1802], data[1803]),
        (0, 0, 1),
        "ICDOFF, FCATT, MSDBD"
    );
}

#[test]
fn identify_controller_of_discovery() {
    let mut bench = Bench::new();
    let id = bench.enabled(DISCOVERY_NQN, 0);
    let data = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(data[111], 2, "CNTRLTYPE");
    assert_eq!(u32_at(&data, 92), 1 << 31, "OAES");
    assert_eq!(u32_at(&data, 516), 0, "NN");
    assert_eq!(data[512], 0, "SQES");
    assert_eq!(
        &data[768..768 + DISCOVERY_NQN.len()],
        DISCOVERY_NQN.as_bytes()
    );
    for other in [cns::NAMESPACE, cns::ACTIVE_NAMESPACES, cns::CONTROLLERS] {
        assert_eq!(bench.identify(id, other, 0), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn a_subsystem_without_write_cache_says_so() {
    let plain = subsystem(NQN, vec![namespace(1, 4096, 8)]);
    let mut bench = Bench::with(vec![plain], &[]);
    let id = bench.controller();
    assert_eq!(bench.identify(id, cns::CONTROLLER, 0).unwrap()[525], 4);
    let reply = bench.get_feature(id, fid::VOLATILE_WRITE_CACHE, 0, 0);
    assert_eq!(reply.status.code(), Status::INVALID_FIELD);
}

#[test]
fn identify_namespace_fields() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for cns in [cns::NAMESPACE, cns::ALLOCATED_NAMESPACE] {
        let data = bench.identify(id, cns, 5).unwrap();
        for at in [0, 8, 16] {
            assert_eq!(u64_at(&data, at), 2048, "NSZE, NCAP, NUSE");
        }
        assert_eq!(data[24], 1 << 4, "NSFEAT: OPTPERF");
        assert_eq!((data[25], data[26]), (0, 0), "NLBAF, FLBAS");
        assert_eq!(data[30], 1, "NMIC: shared");
        assert_eq!(data[33], 9, "DLFEAT");
        assert_eq!(u64_at(&data, 48), 1 << 20, "NVMCAP");
        for at in [64, 66, 68, 70, 72] {
            assert_eq!(u16_at(&data, at), 7, "NPWG, NPWA, NPDG, NPDA, NOWS: 4 KiB");
        }
        assert_eq!(data[99], 0, "NSATTR");
        assert_eq!(data[104..120], [0x45; 16], "NGUID");
        assert_eq!(data[120..128], [1, 2, 3, 4, 5, 6, 7, 8], "EUI64");
        assert_eq!(data[128..132], [0, 0, 9, 0], "LBAF 0");
    }
    let data = bench.identify(id, cns::NAMESPACE, 2).unwrap();
    assert_eq!(
        (u64_at(&data, 0), data[99], data[130], u16_at(&data, 64)),
        (256, 1, 12, 0)
    );
    let data = bench.identify(id, cns::NAMESPACE_INDEPENDENT, 2).unwrap();
    assert_eq!(
        (data[1], data[8], data[14]),
        (1, 1, 1),
        "NMIC, NSATTR, NSTAT"
    );
    let data = bench.identify(id, cns::CONTROLLER_CSI, 0).unwrap();
    assert_eq!(
        (data[0], data[1], data[3]),
        (0, 8, 0),
        "VSL, WZSL: 1 MiB, DMRL"
    );
}

#[test]
fn namespaces_that_are_not_there() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let by_namespace = [
        cns::NAMESPACE,
        cns::NAMESPACE_CSI,
        cns::NAMESPACE_INDEPENDENT,
        cns::ALLOCATED_NAMESPACE,
        cns::NAMESPACE_CONTROLLERS,
    ];
    for cns in by_namespace {
        assert_eq!(
            bench.identify(id, cns, 3),
            Ok(vec![0; 4096]),
            "CNS {cns:#x}: not active"
        );
        for nsid in [0, 1025, NSID_ALL] {
            assert_eq!(
                bench.identify(id, cns, nsid),
                Err(Status::INVALID_NAMESPACE),
                "CNS {cns:#x}"
            );
        }
    }
    assert_eq!(
        bench.identify(id, cns::DESCRIPTORS, 3),
        Err(Status::INVALID_NAMESPACE)
    );
    for cns in [0x04, 0x09, 0x14, 0x1b, 0x1d, 0xff] {
        assert_eq!(
            bench.identify(id, cns, 0),
            Err(Status::INVALID_FIELD),
            "CNS {cns:#x}"
        );
    }
}

#[test]
fn identify_lists() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.admin_queue(NQN, 0);
    for list in [
        cns::ACTIVE_NAMESPACES,
        cns::ACTIVE_NAMESPACES_CSI,
        cns::ALLOCATED_NAMESPACES,
    ] {
        for (from, expected) in [(0, [2, 5, 0]), (2, [5, 0, 0]), (5, [0, 0, 0])] {
            let data = bench.identify(id, list, from).unwrap();
            let nsids: Vec<u32> = (0..3).map(|i| u32_at(&data, i * 4)).collect();
            assert_eq!(nsids, expected, "above {from}");
        }
        for nsid in [NSID_ALL, NSID_ALL - 1] {
            assert_eq!(
                bench.identify(id, list, nsid),
                Err(Status::INVALID_NAMESPACE)
            );
        }
    }
    let data = bench.identify(id, cns::CONTROLLERS, 0).unwrap();
    assert_eq!(data[..8], [2, 0, 1, 0, 2, 0, 0, 0]);
    let data = bench.identify(id, cns::NAMESPACE_CONTROLLERS, 5).unwrap();
    assert_eq!(data[..8], [2, 0, 1, 0, 2, 0, 0, 0]);

    let with_cntid = |cns: u8, cntid: u32| {
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.cdw10 = (u32::from(cns) | cntid << 16).into();
        sqe
    };
    let mut out = [0; 4096];
    bench.admin(id, &with_cntid(cns::CONTROLLERS, 2), &mut out);
    assert_eq!(out[..6], [1, 0, 2, 0, 0, 0]);
    for (cntid, expected) in [
        (0xffff, Status::SUCCESS),
        (2, Status::SUCCESS),
        (3, Status::INVALID_FIELD),
    ] {
        let reply = bench.admin(id, &with_cntid(cns::COMMAND_SETS, cntid), &mut out);
        assert_eq!(reply.status.code(), expected, "{cntid:#x}");
    }
    assert_eq!(u64_at(&out, 0), 1, "the NVM Command Set");
}

#[test]
fn identify_descriptors() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let data = bench.identify(id, cns::DESCRIPTORS, 5).unwrap();
    let mut expected = vec![1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    expected.extend([2, 16, 0, 0]);
    expected.extend([0x45; 16]);
    expected.extend([3, 16, 0, 0]);
    expected.extend([5; 16]);
    expected.extend([4, 1, 0, 0, 0]);
    expected.resize(4096, 0);
    assert_eq!(data, expected);
    assert_eq!(
        bench.identify(id, cns::DESCRIPTORS, 2).unwrap()[0],
        2,
        "no EUI64"
    );
}

#[test]
fn identify_needs_the_nvm_command_set_and_4096_bytes() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut sqe = Sqe::new(admin::IDENTIFY);
    sqe.nsid = 5.into();
    for cns in [
        cns::NAMESPACE_CSI,
        cns::CONTROLLER_CSI,
        cns::ACTIVE_NAMESPACES_CSI,
    ] {
        sqe.cdw10 = u32::from(cns).into();
        sqe.cdw11 = (2 << 24).into();
        let reply = bench.admin(id, &sqe, &mut [0; 4096]);
        assert_eq!(reply.status.code(), Status::INVALID_FIELD);
    }
    sqe.cdw10 = 1.into();
    let reply = bench.admin(id, &sqe, &mut [0; 4095]);
    assert_eq!(reply.status.code(), Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn features_keep_what_is_set() {
    let mut bench = Bench::new();
    let id = bench.controller();
    // Feature, dword 11 to set, dword 11 to get, current value after, default value.
    let table = [
        (fid::ARBITRATION, 0x0102_0304, 0, 0x0102_0304, 7),
        (fid::POWER_MANAGEMENT, 0x40, 0, 0x40, 0),
        (fid::TEMPERATURE_THRESHOLD, 0x0150, 0, 0x0150, 0xffff),
        (fid::TEMPERATURE_THRESHOLD, 0x10_0100, 0x10_0000, 0x0100, 0),
        (
            fid::NUMBER_OF_QUEUES,
            0x0001_0002,
            0,
            0x0002_0002,
            0x0003_0003,
        ),
        (
            fid::NUMBER_OF_QUEUES,
            0x00fe_00fe,
            0,
            0x0003_0003,
            0x0003_0003,
        ),
        (fid::WRITE_ATOMICITY, 1, 0, 1, 0),
        (fid::ASYNC_EVENT_CONFIG, 0x10f, 0, 0x10f, 0x100),
        (fid::KEEP_ALIVE_TIMER, 9001, 0, 10_000, 5000),
        (fid::VOLATILE_WRITE_CACHE, 1, 0, 1, 1),
    ];
    for (fid, set, get, current, default) in table {
        assert_eq!(
            bench.set_feature(id, fid, set).status,
            Status::SUCCESS,
            "{fid:#x}"
        );
        assert_eq!(
            bench.get_feature(id, fid, select::CURRENT, get).result,
            current,
            "{fid:#x}"
        );
        for select in [select::DEFAULT, select::SAVED] {
            assert_eq!(
                bench.get_feature(id, fid, select, get).result,
                default,
                "{fid:#x}"
            );
        }
        let reply = bench.get_feature(id, fid, 4, get);
        assert_eq!(reply.status.code(), Status::INVALID_FIELD);
    }
    assert_eq!(
        bench
            .get_feature(id, fid::KEEP_ALIVE_TIMER, select::CAPABILITIES, 0)
            .result,
        4
    );
    assert_eq!(
        bench
            .get_feature(id, fid::ERROR_RECOVERY, select::CAPABILITIES, 0)
            .result,
        2
    );
    assert_eq!(
        bench
            .get_feature(id, fid::HOST_IDENTIFIER, select::CAPABILITIES, 0)
            .result,
        0
    );
}

#[test]
fn features_refuse_what_they_cannot_do() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let table = [
        (fid::POWER_MANAGEMENT, 1, Status::INVALID_FIELD),
        (fid::TEMPERATURE_THRESHOLD, 1 << 16, Status::INVALID_FIELD),
        (fid::TEMPERATURE_THRESHOLD, 2 << 20, Status::INVALID_FIELD),
        (fid::VOLATILE_WRITE_CACHE, 0, Status::FEATURE_NOT_CHANGEABLE),
        (fid::NUMBER_OF_QUEUES, 0xffff, Status::INVALID_FIELD),
        (fid::NUMBER_OF_QUEUES, 0xffff_0000, Status::INVALID_FIELD),
        (fid::ASYNC_EVENT_CONFIG, 1 << 11, Status::INVALID_FIELD),
        (fid::ASYNC_EVENT_CONFIG, 1 << 31, Status::INVALID_FIELD),
        (fid::HOST_IDENTIFIER, 1, Status::COMMAND_SEQUENCE),
        (fid::HOST_BEHAVIOR, 0, Status::DATA_SGL_LENGTH_INVALID),
        (fid::ERROR_RECOVERY, 0, Status::INVALID_NAMESPACE),
        (0x00, 0, Status::INVALID_FIELD),
        (0x08, 0, Status::INVALID_FIELD),
        (0x0e, 0, Status::INVALID_FIELD),
        (0x82, 0, Status::INVALID_FIELD),
        (0xc0, 0, Status::INVALID_FIELD),
    ];
    for (fid, cdw11, expected) in table {
        let reply = bench.set_feature(id, fid, cdw11);
        assert_eq!(reply.status.code(), expected, "{fid:#x} {cdw11:#x}");
    }
    let mut sqe = Sqe::new(admin::SET_FEATURES);
    sqe.cdw10 = (1 << 31 | u32::from(fid::ARBITRATION)).into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_SAVEABLE
    );
    sqe.cdw10 = u32::from(fid::ARBITRATION).into();
    sqe.nsid = 5.into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_NS_SPECIFIC
    );
    sqe.cdw10 = u32::from(fid::ERROR_RECOVERY).into();
    assert_eq!(bench.admin(id, &sqe, &mut []).status, Status::SUCCESS);
    sqe.cdw11 = (1 << 16).into();
    assert_eq!(
        bench.admin(id, &sqe, &mut []).status.code(),
        Status::FEATURE_NOT_CHANGEABLE
    );
    bench.io_queue(1, 1).unwrap();
    let late = bench.set_feature(id, fid::NUMBER_OF_QUEUES, 0);
    assert_eq!(late.status.code(), Status::COMMAND_SEQUENCE);
}

#[test]
fn features_with_data() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut sqe = Sqe::new(admin::GET_FEATURES);
    sqe.cdw10 = u32::from(fid::HOST_IDENTIFIER).into();
    let mut out = [0; 512];
    assert_eq!(
        bench.admin(id, &sqe, &mut out).status.code(),
        Status::INVALID_FIELD,
        "64 bits"
    );
    sqe.cdw11 = 1.into();
    assert_eq!(bench.admin(id, &sqe, &mut out).data_len, 16);
    assert_eq!(out[..16], HOSTID);
    assert_eq!(
        bench.admin(id, &sqe, &mut out[..15]).status.code(),
        Status::DATA_SGL_LENGTH_INVALID
    );

    let mut data = [0; 512];
    data[0] = 1;
    let mut set = Sqe::new(admin::SET_FEATURES);
    set.cdw10 = u32::from(fid::HOST_BEHAVIOR).into();
    let done = bench.run(id, 0, &set, &data, &mut []);
    assert_eq!(done, Outcome::Done(nvmf::Reply::done(0)));
    sqe.cdw10 = set.cdw10;
    assert_eq!(bench.admin(id, &sqe, &mut out).data_len, 512);
    assert_eq!(out, data);
    for at in [0, 2, 511] {
        let mut bad = [0; 512];
        bad[at] = 2;
        let Outcome::Done(reply) = bench.run(id, 0, &set, &bad, &mut []) else {
            panic!("held")
        };
        assert_eq!(reply.status.code(), Status::INVALID_FIELD, "byte {at}");
    }
}

#[test]
fn discovery_controllers_have_two_features() {
    let mut bench = Bench::new();
    let id = bench.enabled(DISCOVERY_NQN, 0);
    assert_eq!(
        bench.get_feature(id, fid::ASYNC_EVENT_CONFIG, 0, 0).result,
        0
    );
    assert_eq!(
        bench
            .set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 31)
            .status,
        Status::SUCCESS
    );
    assert_eq!(
        bench
            .set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 8)
            .status
            .code(),
        Status::INVALID_FIELD
    );
    assert_eq!(
        bench.set_feature(id, fid::KEEP_ALIVE_TIMER, 1).status,
        Status::SUCCESS
    );
    assert_eq!(
        bench
            .set_feature(id, fid::NUMBER_OF_QUEUES, 1)
            .status
            .code(),
        Status::INVALID_FIELD
    );
    assert_eq!(
        bench
            .admin(id, &Sqe::new(admin::ABORT), &mut [])
            .status
            .code(),
        Status::INVALID_OPCODE
    );
    let id = bench.enabled(DISCOVERY_NQN, 30_000);
    assert_eq!(
        bench.get_feature(id, fid::ASYNC_EVENT_CONFIG, 0, 0).result,
        1 << 31
    );
}

/// Every page read whole and in pieces of every size gives the same bytes.
#[test]
fn log_pages_can_be_read_in_pieces() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.counters.read_commands = 0x0102_0304_0506_0708;
    for lid in 0..3 {
        let _ = bench.identify(id, 0xf0 + lid, 0);
    }
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    let pages = [
        (id, lid::SUPPORTED, 1024),
        (id, lid::ERROR, 4096),
        (id, lid::SMART, 512),
        (id, lid::FIRMWARE_SLOT, 512),
        (id, lid::CHANGED_NAMESPACES, 4096),
        (id, lid::COMMAND_EFFECTS, 4096),
        (id, lid::FEATURE_EFFECTS, 1024),
        (id, lid::MI_EFFECTS, 1024),
        (discovery, lid::SUPPORTED, 1024),
        (discovery, lid::FEATURE_EFFECTS, 1024),
        (discovery, lid::DISCOVERY, 2048),
    ];
    for (id, lid, size) in pages {
        let whole = bench.log(id, lid, 0, 0, size + 64).unwrap();
        assert_eq!(whole[size..], [0; 64], "{lid:#x}: zeros behind the page");
        for piece in [4, 12, 500, 1028] {
            let mut read = Vec::new();
            while read.len() < size {
                read.extend(bench.log(id, lid, 0, read.len() as u64, piece).unwrap());
            }
            assert_eq!(read[..size], whole[..size], "{lid:#x} in pieces of {piece}");
        }
        assert_eq!(
            bench.log(id, lid, 0, size as u64, 4),
            Ok(vec![0; 4]),
            "{lid:#x} at its end"
        );
        let beyond = [size as u64 + 4, u64::MAX - 3];
        for offset in beyond {
            assert_eq!(
                bench.log(id, lid, 0, offset, 4),
                Err(Status::INVALID_FIELD),
                "{lid:#x}"
            );
        }
    }
}

#[test]
fn log_page_refusals() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    for lid in [0x06, 0x07, 0x0c, 0x70, 0x80, 0xff] {
        assert_eq!(
            bench.log(id, lid, 0, 0, 512),
            Err(Status::INVALID_LOG_PAGE),
            "{lid:#x}"
        );
    }
    for lid in [lid::ERROR, lid::SMART, lid::COMMAND_EFFECTS] {
        assert_eq!(
            bench.log(discovery, lid, 0, 0, 512),
            Err(Status::INVALID_LOG_PAGE)
        );
    }
    assert_eq!(
        bench.log(id, lid::ERROR, 0, 2, 64),
        Err(Status::INVALID_FIELD),
        "alignment"
    );
    assert_eq!(
        bench.log(id, lid::ERROR, 5, 0, 64),
        Err(Status::INVALID_FIELD),
        "scope"
    );
    assert_eq!(
        bench.log(id, lid::SMART, 3, 0, 512),
        Err(Status::INVALID_NAMESPACE)
    );
    let mut indexed = log_sqe(lid::ERROR, 0, 0, 64);
    indexed.cdw14 = (1 << 23).into();
    assert_eq!(
        bench.admin(id, &indexed, &mut [0; 64]).status.code(),
        Status::INVALID_FIELD
    );
    let long = log_sqe(lid::ERROR, 0, 0, 1 << 20);
    let reply = bench.admin(id, &long, &mut [0; 64]);
    assert_eq!(reply.status.code(), Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn supported_pages_are_the_ones_that_can_be_read() {
    let mut bench = Bench::new();
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    let io = bench.controller();
    for id in [io, discovery] {
        let supported = bench.log(id, lid::SUPPORTED, 0, 0, 1024).unwrap();
        for lid in 0..=255u8 {
            let says = u32_at(&supported, usize::from(lid) * 4) & 1 == 1;
            assert_eq!(bench.log(id, lid, 0, 0, 4).is_ok(), says, "{lid:#x}");
        }
        let features = bench.log(id, lid::FEATURE_EFFECTS, 0, 0, 1024).unwrap();
        for fid in 0..=255u8 {
            let says = u32_at(&features, usize::from(fid) * 4) & 1 == 1;
            let reply =
                bench.get_feature(id, fid, 0, if fid == fid::HOST_IDENTIFIER { 1 } else { 0 });
            assert_eq!(reply.status.is_success(), says, "feature {fid:#x}");
        }
    }
    let effects = bench.log(io, lid::COMMAND_EFFECTS, 0, 0, 4096).unwrap();
    for opcode in 0..=255u8 {
        let says = u32_at(&effects, usize::from(opcode) * 4) & 1 == 1;
        let outcome = bench.run(io, 0, &Sqe::new(opcode), &[], &mut [0; 4096]);
        let invalid = Outcome::Done(nvmf::Reply::failed(Status::INVALID_OPCODE.dnr()));
        assert_eq!(outcome != invalid, says, "opcode {opcode:#x}");
    }
    let commands: Vec<usize> = (0..256)
        .filter(|op| u32_at(&effects, 1024 + op * 4) & 1 == 1)
        .collect();
    assert_eq!(commands, [0, 1, 2, 5, 8, 9]);
    let changes = |op: usize| u32_at(&effects, 1024 + op * 4) & 2 != 0;
    assert_eq!([1, 2, 8, 9].map(changes), [true, false, true, true]);
}

#[test]
fn smart_log_counts() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.counters = IoCounters {
        read_commands: 11,
        read_bytes: 512_001,
        write_commands: 13,
        write_bytes: 512_000,
        media_errors: 2,
    };
    bench.now = SECOND + 2 * 3600 * SECOND;
    let _ = bench.identify(id, 0xff, 0);
    let one = bench.log(id, lid::SMART, 5, 0, 512).unwrap();
    let fields = [32, 48, 64, 80, 112, 128, 160, 176].map(|at| u64_at(&one, at));
    assert_eq!(fields, [2, 1, 11, 13, 1, 2, 2, 1]);
    assert_eq!(one[3], 100, "available spare");
    for nsid in [0, NSID_ALL] {
        let all = bench.log(id, lid::SMART, nsid, 0, 512).unwrap();
        assert_eq!(u64_at(&all, 64), 22, "both namespaces");
    }
}

#[test]
fn errors_are_logged_newest_first() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.log(id, lid::ERROR, 0, 0, 4096), Ok(vec![0; 4096]));
    let mut sqe = Sqe::new(0x80);
    sqe.cid = 77.into();
    sqe.nsid = 5.into();
    bench.admin(id, &sqe, &mut []);
    let _ = bench.registry.note_error(
        id,
        ErrorNote {
            qid: 2,
            cid: 9,
            status: Status::LBA_OUT_OF_RANGE.dnr(),
            location: None,
            lba: 4096,
            nsid: 2,
        },
    );
    let log = bench.log(id, lid::ERROR, NSID_ALL, 0, 4096).unwrap();
    assert_eq!(u64_at(&log, 0), 2);
    assert_eq!((u16_at(&log, 8), u16_at(&log, 10)), (2, 9), "SQID, CID");
    assert_eq!(u16_at(&log, 12), (0x4000 | 0x80) << 1, "status with DNR");
    assert_eq!(u16_at(&log, 14), 0xffff, "location");
    assert_eq!((u64_at(&log, 16), u32_at(&log, 24), log[29]), (4096, 2, 3));
    assert_eq!(u64_at(&log, 64), 1);
    assert_eq!((u16_at(&log, 72), u16_at(&log, 74)), (0, 77));
    assert_eq!(
        (u16_at(&log, 76), u16_at(&log, 78)),
        ((0x4000 | 0x01) << 1, 0)
    );
    assert_eq!(u64_at(&log, 128), 0, "no third one");
    for _ in 0..100 {
        bench.admin(id, &sqe, &mut []);
    }
    let log = bench.log(id, lid::ERROR, 0, 0, 4096).unwrap();
    assert_eq!((u64_at(&log, 0), u64_at(&log, 63 * 64)), (102, 39));
    let smart = bench.log(id, lid::SMART, 0, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 176), 102);
}

#[test]
fn firmware_slot() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let log = bench.log(id, lid::FIRMWARE_SLOT, 0, 0, 512).unwrap();
    assert_eq!((log[0], &log[8..16]), (1, &b"0.1.0   "[..]));
}

#[test]
fn event_requests_are_bounded_and_answered_once_a_read() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for tag in 10..14 {
        assert_eq!(bench.hold_event_request(id, tag), Outcome::Held);
    }
    let Outcome::Done(reply) = bench.hold_event_request(id, 14) else {
        panic!("held")
    };
    assert_eq!(reply.status.code(), Status::AER_LIMIT);
    assert!(bench.take_event(id).is_none());

    let change = |bench: &mut Bench, count| {
        let mut changed = disk();
        changed.namespaces = [namespace(5, 512, count), changed.namespaces[1].clone()].into();
        bench.registry.replace_subsystem(changed.into()).events
    };
    assert_eq!(
        change(&mut bench, 4096),
        [100],
        "the Admin Queue's connection"
    );
    let (tag, reply) = bench.take_event(id).unwrap();
    assert_eq!(
        (tag, reply.status, reply.result),
        (10, Status::SUCCESS, 0x04_0002)
    );
    assert!(bench.take_event(id).is_none());
    assert!(
        change(&mut bench, 8192).is_empty(),
        "masked until the log is read"
    );
    assert!(bench.take_event(id).is_none());
    let data = bench.identify(id, cns::NAMESPACE, 5).unwrap();
    assert_eq!(u64_at(&data, 0), 8192, "the new size is seen at once");

    let mut retaining = log_sqe(lid::CHANGED_NAMESPACES, 0, 0, 8);
    retaining.cdw10 = (retaining.cdw10.get() | 1 << 15).into();
    let mut out = [0; 8];
    bench.admin(id, &retaining, &mut out);
    assert_eq!(out, [5, 0, 0, 0, 0, 0, 0, 0]);
    assert!(bench.take_event(id).is_none(), "retained");
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    assert_eq!(u32_at(&list, 0), 5);
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    assert_eq!(u32_at(&list, 0), 0, "reading clears the list");
    assert_eq!(change(&mut bench, 16_384), [100]);
    assert_eq!(bench.take_event(id).unwrap().0, 11);

    bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 0);
    change(&mut bench, 2048);
    assert!(bench.take_event(id).is_none(), "not asked for");
    bench.set_feature(id, fid::ASYNC_EVENT_CONFIG, 1 << 8);
    assert_eq!(
        bench.take_event(id).unwrap().0,
        12,
        "an event waits for being asked for"
    );
}

#[test]
fn namespaces_come_and_go() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let replaced = subsystem(NQN, vec![namespace(5, 512, 2048), namespace(9, 4096, 1)]);
    let _ = bench.registry.replace_subsystem(replaced.into());
    let list = bench.log(id, lid::CHANGED_NAMESPACES, 0, 0, 4096).unwrap();
    assert_eq!(
        [0, 4, 8, 12].map(|at| u32_at(&list, at)),
        [2, 5, 9, 0],
        "gone, changed, new"
    );
    let active = bench.identify(id, cns::ACTIVE_NAMESPACES, 0).unwrap();
    assert_eq!([0, 4, 8].map(|at| u32_at(&active, at)), [5, 9, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a host sends: no panic, no data past what is reported, and the
    /// buffer is only written on success.
    #[test]
    fn arbitrary_commands(
        bytes in prop::array::uniform32(any::<u8>()),
        tail in prop::array::uniform32(any::<u8>()),
        opcode in prop::sample::select(vec![2u8, 6, 8, 9, 10, 12, 24, 0x7f, 0xff]),
        low in 0u32..0x20,
        nsid in prop::sample::select(vec![0, 1, 2, 5, 1024, NSID_ALL]),
        data in prop::collection::vec(any::<u8>(), 0..600),
        out_len in 0usize..5000,
        is_discovery: bool,
        is_tame: bool,
    ) {
        let mut raw = [0; 64];
        raw[..32].copy_from_slice(&bytes);
        raw[32..].copy_from_slice(&tail);
        let mut sqe = Sqe::read_from_bytes(&raw).unwrap();
        sqe.opcode = opcode;
        sqe.nsid = nsid.into();
        if is_tame {
            sqe.cdw10 = (low | (out_len as u32 / 8) << 16).into();
            sqe.cdw11 = 0.into();
            sqe.cdw12 = (sqe.cdw12.get() & 0x1ffc).into();
            sqe.cdw13 = 0.into();
            sqe.cdw14 = 0.into();
        }
        let mut bench = Bench::new();
        let id = bench.enabled(if is_discovery { DISCOVERY_NQN } else { NQN }, 0);
        let mut out = vec![0xa5; out_len];
        if let Outcome::Done(reply) = bench.run(id, 1, &sqe, &data, &mut out) {
            let len = reply.data_len as usize;
            prop_assert!(len <= out_len);
            prop_assert!(out[len..].iter().all(|byte| *byte == 0xa5));
            prop_assert!(reply.status.is_success() || len == 0);
        }
    }

    /// Whatever comes with Connect: no panic, and success only as it should be.
    #[test]
    fn arbitrary_connects(
        head in prop::array::uniform16(any::<u8>()),
        flips in prop::collection::vec((0usize..1024, any::<u8>()), 0..3),
        qid in 0u16..6,
        sqsize in prop::sample::select(vec![0u16, 1, 31, 127, 128, 0xffff]),
        cntlid in prop::sample::select(vec![0u16, 1, 2, 0xfffe, 0xffff]),
        len in prop::sample::select(vec![0usize, 1023, 1024, 2000]),
    ) {
        let mut bench = Bench::new();
        bench.controller();
        let good = wire::nvme::fabrics::ConnectData::new(head, cntlid, NQN, crate::bench::HOST);
        let mut bytes = good.as_bytes().to_vec();
        for (at, value) in flips {
            bytes[at] = value;
        }
        bytes.resize(len, 0);
        let command = crate::bench::command(qid, sqsize, 0);
        if let Ok(connected) = bench.connect_raw(&command, &bytes, crate::bench::VIA) {
            prop_assert!(len >= 1024 && qid <= 4);
            prop_assert_eq!(connected.entries, u32::from(sqsize) + 1);
            prop_assert!((2..=128).contains(&connected.entries));
        }
    }
}
