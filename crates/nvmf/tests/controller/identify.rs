//! Identify: every structure, and what is refused.

use nvmf::transport::Transport;
use nvmf::{Namespace, WriteProtect};
use wire::nvme::discovery::DISCOVERY_NQN;
use wire::nvme::feature::fid;
use wire::nvme::identify::cns;
use wire::nvme::{NSID_ALL, Sqe, Status, admin};

use crate::bench::{Bench, HOST, NQN, disk, namespace, subsystem, u16_at, u32_at, u64_at};

/// Fields of Identify Controller by the byte that the standard gives.
#[test]
fn identify_controller_fields() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let data = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(&data[4..24], b"WEFT0001            ", "SN");
    assert_eq!(&data[24..64], format!("{:40}", "weft").as_bytes(), "MN");
    assert_eq!(&data[64..72], b"0.1.0   ", "FR");
    assert_eq!(data[76], 0b1011, "CMIC: ports, controllers, ANA");
    assert_eq!(data[77], 8, "MDTS: 1 MiB");
    assert_eq!(u16_at(&data, 78), 1, "CNTLID");
    assert_eq!(u32_at(&data, 80), 0x2_0000, "VER");
    assert_eq!(u32_at(&data, 92), 1 << 8 | 1 << 11, "OAES");
    assert_eq!(u32_at(&data, 96), 1 | 1 << 6, "CTRATT: HIDS, TBKAS");
    assert_eq!(data[111], 1, "CNTRLTYPE");
    assert_eq!(
        [128, 130, 132].map(|at| u16_at(&data, at)),
        [1, 10, 50],
        "CRDT 1 to 3"
    );
    assert_eq!(
        u16_at(&data, 256),
        1 << 1 | 1 << 9,
        "OACS: Format NVM, Get LBA Status"
    );
    assert_eq!((data[258], data[259]), (7, 3), "ACL, AERL");
    assert_eq!(
        (data[260], data[261], data[262]),
        (3, 0x27, 63),
        "FRMW, LPA, ELPE"
    );
    assert_eq!(u16_at(&data, 320), 10, "KAS");
    assert_eq!((data[342], data[343]), (10, 0x1f), "ANATT, ANACAP");
    assert_eq!(
        (u32_at(&data, 344), u32_at(&data, 348)),
        (128, 128),
        "ANAGRPMAX, NANAGRPID"
    );
    assert_eq!((data[512], data[513]), (0x66, 0x44), "SQES, CQES");
    assert_eq!(u16_at(&data, 514), 128, "MAXCMD");
    assert_eq!(u32_at(&data, 516), 1024, "NN");
    assert_eq!(u16_at(&data, 520), 0x1ff, "ONCS");
    assert_eq!(u16_at(&data, 522), 1, "FUSES: Compare and Write");
    assert_eq!(data[525], 7, "VWC present, broadcast flush");
    assert_eq!(
        (u16_at(&data, 526), u16_at(&data, 528)),
        (0, 0),
        "AWUN, AWUPF: one block"
    );
    assert_eq!(data[531], 3, "NWPC: nowhere to keep the permanent state");
    assert_eq!(
        (u16_at(&data, 532), u16_at(&data, 534)),
        (0, 0xf),
        "ACWU, CDFS"
    );
    assert_eq!(u32_at(&data, 540), 1024, "MNAN, which Linux wants for ANA");
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

/// Data that is not in the capsule has keyed descriptors; all else is as over TCP.
#[test]
fn controller_by_rdma() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let by_tcp = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    let mut bench = Bench::new();
    bench.transport = Transport::Rdma;
    let id = bench.controller();
    let mut by_rdma = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(u32_at(&by_rdma, 536), 0x10_0005, "SGLS");
    by_rdma[536..540].copy_from_slice(&by_tcp[536..540]);
    assert_eq!(by_rdma, by_tcp);
}

#[test]
fn identify_controller_of_discovery() {
    let mut bench = Bench::new();
    let id = bench.enabled(DISCOVERY_NQN, 0);
    let data = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(data[111], 2, "CNTRLTYPE");
    assert_eq!(data[77], 8, "MDTS: 1 MiB");
    assert_eq!(u32_at(&data, 92), 1 << 31, "OAES");
    assert_eq!(data[261], 0x24, "LPA: offsets, logs about logs");
    assert_eq!(u32_at(&data, 516), 0, "NN");
    assert_eq!(
        (data[76], data[343], data[512]),
        (0, 0, 0),
        "CMIC, ANACAP, SQES"
    );
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
    assert_eq!(bench.identify(id, cns::CONTROLLER, 0).unwrap()[525], 6);
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
        assert_eq!(data[24], 0b11010, "NSFEAT: OPTPERF, UIDREUSE, NSABP");
        assert_eq!((data[25], data[26]), (0, 0), "NLBAF, FLBAS");
        assert_eq!((data[30], data[31]), (1, 0xfe), "NMIC: shared, RESCAP");
        assert_eq!(data[33], 9, "DLFEAT");
        assert_eq!(u64_at(&data, 48), 1 << 20, "NVMCAP");
        for at in [64, 66, 68, 70, 72] {
            assert_eq!(u16_at(&data, at), 7, "NPWG, NPWA, NPDG, NPDA, NOWS: 4 KiB");
        }
        assert_eq!(
            [34, 36, 38, 40, 42, 44].map(|at| u16_at(&data, at)),
            [0; 6],
            "NAWUN, NAWUPF, NACWU: one block; no boundaries"
        );
        assert_eq!(u16_at(&data, 74), 2048, "MSSRL: 1 MiB");
        assert_eq!((u32_at(&data, 76), data[80]), (8192, 127), "MCL, MSRC");
        assert_eq!(u32_at(&data, 92), 1, "ANAGRPID");
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
    assert_eq!(data[..4], [8, 8, 8, 0], "VSL, WZSL, WUSL: 1 MiB; DMRL");
    assert_eq!(u16_at(&data, 18), 1, "AOCS: allocated blocks");
    let data = bench.identify(id, cns::NAMESPACE_CSI, 5).unwrap();
    assert_eq!(
        (u64_at(&data, 0), u32_at(&data, 12)),
        (0, 0),
        "LBSTM, ELBAF"
    );
    assert_eq!(u32_at(&data, 292), 8, "TLBAAG: 4 KiB");
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
        Err(Status::INVALID_FIELD),
        "inactive"
    );
    for nsid in [0, 1025, NSID_ALL] {
        let refused = bench.identify(id, cns::DESCRIPTORS, nsid);
        assert_eq!(refused, Err(Status::INVALID_NAMESPACE), "{nsid:#x}");
    }
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

/// What a volume can do shows in the fields of its namespace.
#[test]
fn identify_namespace_follows_the_volume() {
    let rich = Namespace {
        atomic_bytes: 1 << 20,
        atomic_power_fail_bytes: 8192,
        preferred_bytes: 65536,
        is_thin: true,
        persists_state: true,
        ana_group: 9,
        write_protect: WriteProtect::On,
        ..namespace(1, 4096, 1 << 20)
    };
    let mut bench = Bench::with(vec![subsystem(NQN, vec![rich])], &["0.0.0.0:4420"]);
    let id = bench.controller();
    for (used_bytes, nuse) in [(0, 0), (4097, 2), (u64::MAX, 1 << 20)] {
        bench.used_bytes = used_bytes;
        let data = bench.identify(id, cns::NAMESPACE, 1).unwrap();
        assert_eq!(u64_at(&data, 16), nuse, "NUSE, of {used_bytes} bytes");
    }
    let data = bench.identify(id, cns::NAMESPACE, 1).unwrap();
    assert_eq!(data[24], 0b11011, "NSFEAT: thin too");
    assert_eq!(data[31], 0xff, "RESCAP: persist through power loss");
    assert_eq!(
        [34, 36, 38].map(|at| u16_at(&data, at)),
        [255, 1, 255],
        "NAWUN, NAWUPF, NACWU"
    );
    assert_eq!(u16_at(&data, 64), 15, "NPWG");
    assert_eq!(u16_at(&data, 74), 256, "MSSRL");
    assert_eq!(u32_at(&data, 76), 1024, "MCL");
    assert_eq!((u32_at(&data, 92), data[99]), (9, 1), "ANAGRPID, NSATTR");
    let data = bench.identify(id, cns::NAMESPACE_INDEPENDENT, 1).unwrap();
    assert_eq!(
        (data[0], data[1], data[2]),
        (8, 1, 0xff),
        "NSFEAT, NMIC, RESCAP"
    );
    assert_eq!((u32_at(&data, 4), data[8]), (9, 1), "ANAGRPID, NSATTR");
    let data = bench.identify(id, cns::CONTROLLER, 0).unwrap();
    assert_eq!(
        data[531], 7,
        "NWPC: there is where to keep the permanent state"
    );
    let data = bench.identify(id, cns::NAMESPACE_CSI, 1).unwrap();
    assert_eq!(u32_at(&data, 292), 16, "TLBAAG");
}

/// A namespace that a host may not see does not exist for it.
#[test]
fn masked_namespaces_are_not_there() {
    let mut subsystem = disk();
    let mut namespaces = subsystem.namespaces.to_vec();
    namespaces[0].hosts = Some(vec!["nqn.2024-01.org.example:other".to_owned()]);
    subsystem.namespaces = namespaces.into();
    let mut bench = Bench::with(vec![subsystem], &["0.0.0.0:4420"]);
    let id = bench.controller();
    let other = bench.controller_of("nqn.2024-01.org.example:other");
    for list in [
        cns::ACTIVE_NAMESPACES,
        cns::ACTIVE_NAMESPACES_CSI,
        cns::ALLOCATED_NAMESPACES,
    ] {
        let data = bench.identify(id, list, 0).unwrap();
        assert_eq!((u32_at(&data, 0), u32_at(&data, 4)), (2, 0));
        let data = bench.identify(other, list, 0).unwrap();
        assert_eq!((u32_at(&data, 0), u32_at(&data, 4)), (2, 5));
    }
    for cns in [
        cns::NAMESPACE,
        cns::NAMESPACE_CSI,
        cns::NAMESPACE_INDEPENDENT,
    ] {
        assert_eq!(bench.identify(id, cns, 5), Ok(vec![0; 4096]), "{cns:#x}");
    }
    assert_eq!(
        bench.identify(id, cns::DESCRIPTORS, 5),
        Err(Status::INVALID_FIELD)
    );
    let data = bench.identify(id, cns::NAMESPACE_CONTROLLERS, 2).unwrap();
    assert_eq!(data[..6], [2, 0, 1, 0, 2, 0], "both hosts see namespace 2");
    let data = bench
        .identify(other, cns::NAMESPACE_CONTROLLERS, 5)
        .unwrap();
    assert_eq!(data[..6], [1, 0, 2, 0, 0, 0], "one sees namespace 5");
    let reply = bench.get_feature(id, fid::ERROR_RECOVERY, 0, 0);
    assert_eq!(reply.status.code(), Status::INVALID_FIELD);
    assert_eq!(
        bench.log(id, wire::nvme::log::lid::SMART, 5, 0, 512),
        Err(Status::INVALID_FIELD)
    );
    bench.counters.read_commands = 1;
    let smart = bench
        .log(id, wire::nvme::log::lid::SMART, 0, 0, 512)
        .unwrap();
    assert_eq!(u64_at(&smart, 64), 1, "one namespace counts");
    assert_ne!(HOST, "nqn.2024-01.org.example:other");
}

/// The CNS values of the table are the ones that are answered, and each does
/// its part with any CNS-specific identifier.
#[test]
fn structures_are_the_ones_of_the_table() {
    let mut bench = Bench::new();
    let io = bench.controller();
    let discovery = bench.enabled(DISCOVERY_NQN, 0);
    for cns in 0..=255u8 {
        let item = nvmf::support::identify_structures().find(|item| item.id == cns);
        let expected = |is_there: Option<bool>| is_there.unwrap_or(false);
        // Some structures are of a namespace, some of none.
        let known = |bench: &mut Bench, id| {
            bench.identify(id, cns, 5).is_ok() || bench.identify(id, cns, 0).is_ok()
        };
        // CNS 1Ch names a controller: this one.
        let mut sqe = Sqe::new(admin::IDENTIFY);
        sqe.cdw10 = (u32::from(cns) | 1 << 16).into();
        let by_cntid = bench.admin(io, &sqe, &mut [0; 4096]).status.is_success();
        let is_io = known(&mut bench, io) || by_cntid;
        assert_eq!(is_io, expected(item.map(|item| item.io)), "CNS {cns:#x}");
        let is_discovery = known(&mut bench, discovery);
        assert_eq!(
            is_discovery,
            expected(item.map(|item| item.discovery)),
            "CNS {cns:#x}"
        );
    }
}
