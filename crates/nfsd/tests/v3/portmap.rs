//! The port mapper.

use nfsd::rpcbind::{RpcProgram, RpcPrograms};
use wire::rpcbind::*;

use super::*;

const NLM: u32 = 100_021;
const NSM: u32 = 100_024;

/// A server with a port mapper, a port of its own for locks, and one for everything else.
fn with_ports() -> World {
    let world = world();
    let ports = [
        ("0.0.0.0:111", RpcPrograms::new(&[RpcProgram::Portmap])),
        ("0.0.0.0:4045", RpcPrograms::new(&[RpcProgram::Nlm])),
        ("0.0.0.0:2049", RpcPrograms::default()),
        ("[::1]:20490", RpcPrograms::default()),
    ];
    let ports = ports.map(|(at, programs)| (address(at), programs));
    world.server.nfsd.set_ports(ports.into());
    world
}

impl World {
    /// The results of a procedure of the port mapper.
    fn portmap(&mut self, version: u32, procedure: u32, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        let mut record = testkit::nfs::call::call_header_as(self.xid, &[], |call| {
            (call.prog, call.vers, call.proc) = (PMAP_PROG, version, procedure);
            call.cred.flavor = AUTH_NONE;
        });
        args.encode(&mut record);
        self.results(&record)
    }

    fn getport(&mut self, prog: u32, vers: u32, prot: u32) -> u32 {
        let port = 0;
        let asked = pmap {
            prog,
            vers,
            prot,
            port,
        };
        decoded(&self.portmap(PMAP_VERS, pmap_proc::PMAPPROC_GETPORT as u32, &asked))
    }

    fn getaddr(&mut self, procedure: rpcb_proc, (prog, vers): (u32, u32), netid: &str) -> String {
        let asked = rpcb {
            r_prog: prog,
            r_vers: vers,
            r_netid: Opaque(netid.as_bytes()),
            r_addr: Opaque(b"198.51.100.7.0.111"),
            r_owner: Opaque(b""),
        };
        let bytes = self.portmap(RPCBVERS_4, procedure as u32, &asked);
        let found = uaddr::decode(&mut Reader::new(&bytes)).unwrap();
        String::from_utf8(found.0.to_vec()).unwrap()
    }
}

#[test]
fn ports_of_programs_are_told_by_version_2() {
    let mut world = with_ports();
    let expected = [
        ((PMAP_PROG, 2, IPPROTO_TCP), 111),
        ((PMAP_PROG, 2, IPPROTO_UDP), 111),
        ((NFS4_PROGRAM, 3, IPPROTO_TCP), 2049),
        // Data goes over TCP alone.
        ((NFS4_PROGRAM, 3, IPPROTO_UDP), 0),
        ((MOUNT_PROGRAM, 3, IPPROTO_TCP), 2049),
        ((MOUNT_PROGRAM, 3, IPPROTO_UDP), 2049),
        ((NLM, 4, IPPROTO_TCP), 4045),
        ((NLM, 4, IPPROTO_UDP), 0),
        ((NSM, 1, IPPROTO_UDP), 2049),
        ((100_011, 2, IPPROTO_UDP), 2049),
        ((100_003, 2, IPPROTO_UDP), 0),
        ((NFS4_PROGRAM, 3, 132), 0),
    ];
    for ((prog, vers, prot), port) in expected {
        assert_eq!(
            world.getport(prog, vers, prot),
            port,
            "{prog} {vers} {prot}"
        );
    }
    let bytes = world.portmap(PMAP_VERS, pmap_proc::PMAPPROC_DUMP as u32, &0u32);
    let list = pmaplist::decode(&mut Reader::new(&bytes)).unwrap();
    let rows: Vec<_> = list.maps.iter().map(|row| (row.prog, row.port)).collect();
    // Three versions of the port mapper by both transports, and so on.
    let count = |prog: u32, port: u32| rows.iter().filter(|row| **row == (prog, port)).count();
    assert_eq!(count(PMAP_PROG, 111), 6);
    assert_eq!(count(NFS4_PROGRAM, 2049), 2);
    assert_eq!(
        (
            count(MOUNT_PROGRAM, 2049),
            count(NLM, 4045),
            count(NSM, 2049)
        ),
        (2, 1, 2)
    );
    assert_eq!(count(100_011, 2049), 4);
    assert_eq!(rows.len(), 17);
}

#[test]
fn datagrams_are_told_of_only_where_there_is_a_port_mapper() {
    let mut world = world();
    let ports = [(address("0.0.0.0:2049"), RpcPrograms::default())];
    world.server.nfsd.set_ports(ports.into());
    assert_eq!(world.getport(MOUNT_PROGRAM, 3, IPPROTO_TCP), 2049);
    assert_eq!(world.getport(MOUNT_PROGRAM, 3, IPPROTO_UDP), 0);
    assert_eq!(world.getport(PMAP_PROG, 2, IPPROTO_TCP), 0);
}

#[test]
fn addresses_of_programs_are_told_by_versions_3_and_4() {
    let mut world = with_ports();
    let any = rpcb_proc::RPCBPROC_GETADDR;
    let exact = rpcb_proc::RPCBPROC_GETVERSADDR;
    // By the address that the client has called.
    let told = world.getaddr(any, (NFS4_PROGRAM, 3), "tcp");
    assert_eq!(told, "198.51.100.7.8.1");
    assert_eq!(
        world.getaddr(any, (NFS4_PROGRAM, 9), "tcp"),
        "198.51.100.7.8.1"
    );
    assert_eq!(world.getaddr(exact, (NFS4_PROGRAM, 9), "tcp"), "");
    assert_eq!(world.getaddr(exact, (NLM, 4), "tcp"), "198.51.100.7.15.205");
    assert_eq!(world.getaddr(any, (NFS4_PROGRAM, 3), "tcp6"), "::.80.10");
    assert_eq!(world.getaddr(any, (NFS4_PROGRAM, 3), "udp"), "");
    assert_eq!(world.getaddr(any, (NFS4_PROGRAM, 3), "sctp"), "");
    let asked = rpcb {
        r_prog: MOUNT_PROGRAM,
        r_vers: 3,
        r_netid: Opaque(b"tcp"),
        r_addr: Opaque(b""),
        r_owner: Opaque(b""),
    };
    let bytes = world.portmap(RPCBVERS_4, rpcb_proc::RPCBPROC_GETADDRLIST as u32, &asked);
    let list = rpcb_entry_list::decode(&mut Reader::new(&bytes)).unwrap();
    let ways: Vec<_> = list
        .entries
        .iter()
        .map(|entry| entry.r_nc_netid.0.to_vec())
        .collect();
    assert_eq!(ways, [&b"tcp"[..], b"udp", b"tcp6", b"udp6"]);
    let bytes = world.portmap(RPCBVERS_3, rpcb_proc::RPCBPROC_DUMP as u32, &0u32);
    let list = rpcblist::decode(&mut Reader::new(&bytes)).unwrap();
    assert!(
        list.maps
            .iter()
            .any(|row| row.r_prog == NLM && row.r_addr.0 == b"0.0.0.0.15.205")
    );
    let seconds: u32 = decoded(&world.portmap(3, rpcb_proc::RPCBPROC_GETTIME as u32, &0u32));
    assert_eq!(i64::from(seconds), world.server.time.seconds);
}

#[test]
fn nothing_is_registered_from_the_network() {
    let mut world = with_ports();
    let asked = pmap {
        prog: NFS4_PROGRAM,
        vers: 3,
        prot: IPPROTO_TCP,
        port: 666,
    };
    for procedure in [pmap_proc::PMAPPROC_SET, pmap_proc::PMAPPROC_UNSET] {
        let done: bool = decoded(&world.portmap(PMAP_VERS, procedure as u32, &asked));
        assert!(!done, "{procedure:?}");
    }
    let asked = rpcb {
        r_prog: NFS4_PROGRAM,
        r_vers: 3,
        r_netid: Opaque(b"tcp"),
        r_addr: Opaque(b"0.0.0.0.2.154"),
        r_owner: Opaque(b"superuser"),
    };
    for procedure in [rpcb_proc::RPCBPROC_SET, rpcb_proc::RPCBPROC_UNSET] {
        let done: bool = decoded(&world.portmap(RPCBVERS_3, procedure as u32, &asked));
        assert!(!done, "{procedure:?}");
    }
    assert_eq!(world.getport(NFS4_PROGRAM, 3, IPPROTO_TCP), 2049);
}

#[test]
fn calls_that_are_none_are_answered_with_the_reason() {
    let mut world = with_ports();
    // Program, version, procedure; what the answer has behind "accepted" and its verifier.
    let garbage = accept_stat::GARBAGE_ARGS as u32;
    let no_procedure = accept_stat::PROC_UNAVAIL as u32;
    let cases: [((u32, u32), &[u32]); 5] = [
        ((2, pmap_proc::PMAPPROC_GETPORT as u32), &[garbage]),
        // CALLIT: others would be called in this server's name.
        ((2, 5), &[no_procedure]),
        ((3, rpcb_proc::RPCBPROC_GETADDRLIST as u32), &[no_procedure]),
        ((4, 10), &[no_procedure]),
        ((5, 3), &[accept_stat::PROG_MISMATCH as u32, 2, 4]),
    ];
    for ((version, procedure), expected) in cases {
        world.xid += 1;
        let record = testkit::nfs::call::call_header_as(world.xid, &[], |call| {
            (call.prog, call.vers, call.proc) = (PMAP_PROG, version, procedure);
            call.cred.flavor = AUTH_NONE;
        });
        let answer = world.server.call(world.conn, &record);
        let words: Vec<u32> = answer[20..]
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, expected, "{version} {procedure}");
    }
}
