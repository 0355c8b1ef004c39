//! The port mapper (RFC 1833): where the programs of NFS are. It knows those of this server and
//! takes no others, and it passes no calls on to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use store::fs::Time;
use wire::mount3::{MOUNT_PROGRAM, MOUNT_V3};
use wire::nfs3::NFS_V3;
use wire::nfs4::{NFS_V4, NFS4_PROGRAM};
use wire::nlm4::{NLM_PROG, NLM4_VERS};
use wire::nsm::{SM_PROG, SM_VERS};
use wire::rpcbind::{
    IPPROTO_TCP, IPPROTO_UDP, NC_TPI_CLTS, NC_TPI_COTS_ORD, PMAP_PROG, PMAP_VERS, RPCBVERS_3,
    RPCBVERS_4, pmap, pmap_proc, rpcb, rpcb_entry, rpcb_proc, uaddr,
};
use wire::rquota::{EXT_RQUOTAVERS, RQUOTAPROG, RQUOTAVERS};
use wire::xdr::{Decode, Encode, Opaque, Reader, XdrError};

use crate::Nfsd;

/// A program that clients look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcProgram {
    /// The port mapper itself.
    Portmap,
    /// NFS.
    Nfs,
    /// MOUNT.
    Mount,
    /// The Network Lock Manager.
    Nlm,
    /// The Network Status Monitor.
    Nsm,
    /// RQUOTA.
    Rquota,
}

impl RpcProgram {
    /// All.
    pub const ALL: [RpcProgram; 6] = [
        RpcProgram::Portmap,
        RpcProgram::Nfs,
        RpcProgram::Mount,
        RpcProgram::Nlm,
        RpcProgram::Nsm,
        RpcProgram::Rquota,
    ];

    /// The one with this number.
    pub(crate) fn of(number: u32) -> Option<RpcProgram> {
        let mut all = RpcProgram::ALL.into_iter();
        all.find(|program| program.number() == number)
    }

    /// As configurations call it.
    pub fn word(self) -> &'static str {
        match self {
            RpcProgram::Portmap => "portmap",
            RpcProgram::Nfs => "nfs",
            RpcProgram::Mount => "mount",
            RpcProgram::Nlm => "nlm",
            RpcProgram::Nsm => "nsm",
            RpcProgram::Rquota => "rquota",
        }
    }

    fn number(self) -> u32 {
        match self {
            RpcProgram::Portmap => PMAP_PROG,
            RpcProgram::Nfs => NFS4_PROGRAM,
            RpcProgram::Mount => MOUNT_PROGRAM,
            RpcProgram::Nlm => NLM_PROG,
            RpcProgram::Nsm => SM_PROG,
            RpcProgram::Rquota => RQUOTAPROG,
        }
    }

    fn versions(self) -> &'static [u32] {
        match self {
            RpcProgram::Portmap => &[PMAP_VERS, RPCBVERS_3, RPCBVERS_4],
            RpcProgram::Nfs => &[NFS_V3, NFS_V4],
            RpcProgram::Mount => &[MOUNT_V3],
            RpcProgram::Nlm => &[NLM4_VERS],
            RpcProgram::Nsm => &[SM_VERS],
            RpcProgram::Rquota => &[RQUOTAVERS, EXT_RQUOTAVERS],
        }
    }

    /// Whether it is called by datagrams too: those that move no data and keep no order are.
    pub fn is_on_udp(self) -> bool {
        matches!(
            self,
            RpcProgram::Portmap | RpcProgram::Mount | RpcProgram::Nsm | RpcProgram::Rquota
        )
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Programs that clients are told are at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcPrograms(u8);

impl RpcPrograms {
    /// These.
    pub fn new(named: &[RpcProgram]) -> RpcPrograms {
        RpcPrograms(named.iter().fold(0, |bits, program| bits | program.bit()))
    }

    /// Whether this is one of them.
    pub fn has(self, program: RpcProgram) -> bool {
        self.0 & program.bit() != 0
    }
}

impl Default for RpcPrograms {
    /// All but the port mapper.
    fn default() -> RpcPrograms {
        RpcPrograms::new(&RpcProgram::ALL[1..])
    }
}

/// Where a server listens, in the order in which clients are sent there.
pub type ProgramPorts = Arc<[(SocketAddr, RpcPrograms)]>;

/// How clients reach a program: the transport and the family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Netid {
    is_udp: bool,
    is_v6: bool,
}

impl Netid {
    const ALL: [Netid; 4] = [
        Netid::new(false, false),
        Netid::new(true, false),
        Netid::new(false, true),
        Netid::new(true, true),
    ];

    const fn new(is_udp: bool, is_v6: bool) -> Netid {
        Netid { is_udp, is_v6 }
    }

    fn word(self) -> &'static [u8] {
        match (self.is_udp, self.is_v6) {
            (false, false) => b"tcp",
            (true, false) => b"udp",
            (false, true) => b"tcp6",
            (true, true) => b"udp6",
        }
    }

    fn parse(word: &[u8]) -> Option<Netid> {
        Netid::ALL.into_iter().find(|netid| netid.word() == word)
    }
}

/// A call of the port mapper: the server, and the address by which its client has reached it.
pub(crate) struct PortmapCall<'a> {
    pub(crate) nfsd: &'a Nfsd,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: IpAddr,
    /// The time of day.
    pub(crate) time: Time,
}

impl PortmapCall<'_> {
    /// A procedure of version 2.
    pub(crate) fn pmap(
        &self,
        procedure: pmap_proc,
        args: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), XdrError> {
        match procedure {
            pmap_proc::PMAPPROC_NULL => {}
            // The network registers nothing here.
            pmap_proc::PMAPPROC_SET | pmap_proc::PMAPPROC_UNSET => {
                pmap::decode(&mut Reader::new(args))?;
                false.encode(to);
            }
            pmap_proc::PMAPPROC_GETPORT => {
                let asked = pmap::decode(&mut Reader::new(args))?;
                let is_v6 = self.peer.to_canonical().is_ipv6();
                let port = match asked.prot {
                    IPPROTO_TCP => self.port(asked.prog, Netid::new(false, is_v6)),
                    IPPROTO_UDP => self.port(asked.prog, Netid::new(true, is_v6)),
                    _ => None,
                };
                u32::from(port.unwrap_or(0)).encode(to);
            }
            pmap_proc::PMAPPROC_DUMP => {
                for (program, vers, netid, port) in self.all().filter(|row| !row.2.is_v6) {
                    true.encode(to);
                    pmap {
                        prog: program.number(),
                        vers,
                        prot: match netid.is_udp {
                            true => IPPROTO_UDP,
                            false => IPPROTO_TCP,
                        },
                        port: port.into(),
                    }
                    .encode(to);
                }
                false.encode(to);
            }
        }
        Ok(())
    }

    /// A procedure of version 3 or 4.
    pub(crate) fn rpcb(
        &self,
        procedure: rpcb_proc,
        args: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<(), XdrError> {
        match procedure {
            rpcb_proc::RPCBPROC_NULL => {}
            rpcb_proc::RPCBPROC_SET | rpcb_proc::RPCBPROC_UNSET => {
                rpcb::decode(&mut Reader::new(args))?;
                false.encode(to);
            }
            rpcb_proc::RPCBPROC_GETADDR | rpcb_proc::RPCBPROC_GETVERSADDR => {
                let asked = rpcb::decode(&mut Reader::new(args))?;
                // GETVERSADDR wants the very version (RFC 1833, section 2.2.1).
                let is_exact = procedure == rpcb_proc::RPCBPROC_GETVERSADDR;
                let found = Netid::parse(asked.r_netid.0).and_then(|netid| {
                    let has = |version: &u32| !is_exact || *version == asked.r_vers;
                    let program = RpcProgram::of(asked.r_prog)?;
                    program.versions().iter().find(|version| has(version))?;
                    let port = self.port(asked.r_prog, netid)?;
                    Some(self.universal((netid, port), asked.r_addr.0))
                });
                let address: uaddr<'_> = Opaque(found.as_deref().unwrap_or("").as_bytes());
                address.encode(to);
            }
            rpcb_proc::RPCBPROC_DUMP => self.dump(to),
            rpcb_proc::RPCBPROC_GETTIME => (self.time.seconds as u32).encode(to),
            rpcb_proc::RPCBPROC_GETADDRLIST => {
                let asked = rpcb::decode(&mut Reader::new(args))?;
                let is_asked = |row: &(RpcProgram, u32, Netid, u16)| {
                    (row.0.number(), row.1) == (asked.r_prog, asked.r_vers)
                };
                for (.., netid, port) in self.all().filter(is_asked) {
                    self.entry((netid, port), asked.r_addr.0, to);
                }
                false.encode(to);
            }
        }
        Ok(())
    }

    fn dump(&self, to: &mut Vec<u8>) {
        for (program, r_vers, netid, port) in self.all() {
            true.encode(to);
            let address = universal(unspecified(netid.is_v6), port);
            rpcb {
                r_prog: program.number(),
                r_vers,
                r_netid: Opaque(netid.word()),
                r_addr: Opaque(address.as_bytes()),
                r_owner: Opaque(b"weft"),
            }
            .encode(to);
        }
        false.encode(to);
    }

    fn entry(&self, (netid, port): (Netid, u16), hint: &[u8], to: &mut Vec<u8>) {
        true.encode(to);
        let address = self.universal((netid, port), hint);
        rpcb_entry {
            r_maddr: Opaque(address.as_bytes()),
            r_nc_netid: Opaque(netid.word()),
            r_nc_semantics: match netid.is_udp {
                true => NC_TPI_CLTS,
                false => NC_TPI_COTS_ORD,
            },
            r_nc_protofmly: Opaque(if netid.is_v6 { b"inet6" } else { b"inet" }),
            r_nc_proto: Opaque(if netid.is_udp { b"udp" } else { b"tcp" }),
        }
        .encode(to);
    }

    /// Every program with its versions, and how it is reached.
    fn all(&self) -> impl Iterator<Item = (RpcProgram, u32, Netid, u16)> {
        RpcProgram::ALL.into_iter().flat_map(move |program| {
            let ways = Netid::ALL.into_iter().filter_map(move |netid| {
                let port = self.port(program.number(), netid)?;
                Some((netid, port))
            });
            ways.flat_map(move |(netid, port)| {
                let versions = program.versions().iter();
                versions.map(move |version| (program, *version, netid, port))
            })
        })
    }

    /// Where a program is: datagrams are taken where there is a port mapper.
    fn port(&self, number: u32, netid: Netid) -> Option<u16> {
        let program = RpcProgram::of(number)?;
        let ports = self.nfsd.ports();
        let has_portmap = || ports.iter().any(|(_, all)| all.has(RpcProgram::Portmap));
        if netid.is_udp && !(program.is_on_udp() && has_portmap()) {
            return None;
        }
        let is_there = |address: &SocketAddr| match (address.ip().to_canonical(), netid.is_v6) {
            (IpAddr::V4(_), is_v6) => !is_v6,
            // It takes both families.
            (IpAddr::V6(v6), is_v6) => is_v6 || v6.is_unspecified(),
        };
        let mut has = ports.iter().filter(|(_, all)| all.has(program));
        let found = has.find(|(address, _)| is_there(address))?;
        Some(found.0.port())
    }

    /// The address of a program (RFC 5665, section 5.2.3): with that of this server by which the
    /// client has reached it, or says that it has.
    fn universal(&self, (netid, port): (Netid, u16), hint: &[u8]) -> String {
        let fits = |ip: &IpAddr| ip.is_ipv6() == netid.is_v6 && !ip.is_unspecified();
        let local = self.local.map(|local| local.ip().to_canonical());
        let hint = || {
            let text = str::from_utf8(hint).ok()?;
            let (rest, _) = text.rsplit_once('.')?;
            let (ip, _) = rest.rsplit_once('.')?;
            ip.parse().ok()
        };
        let ip = local.filter(fits).or_else(|| hint().filter(fits));
        universal(ip.unwrap_or(unspecified(netid.is_v6)), port)
    }
}

fn unspecified(is_v6: bool) -> IpAddr {
    match is_v6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn universal(ip: IpAddr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("{ip}.{high}.{low}")
}

impl Nfsd {
    /// Where this server listens from now on.
    pub fn set_ports(&self, ports: ProgramPorts) {
        *machine::locked(&self.ports) = ports;
    }

    pub(crate) fn ports(&self) -> ProgramPorts {
        machine::locked(&self.ports).clone()
    }
}
