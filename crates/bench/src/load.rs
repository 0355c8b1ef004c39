//! The words in which the catalogue says what is measured under what load: the
//! runner passes them to the sides, which know how each is started.

use std::time::Duration;

use client::perf::Rw;

/// What takes part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `weft serve` in a mode, and `weft perf`.
    Weft(LoadProtocol, Mode),
    /// Bare sockets with the byte counts of a protocol. Cold: payload at random
    /// places of much memory, as a volume's is; hot: in one small buffer.
    Ceiling(LoadProtocol, Payload),
    /// The same volume, or the same kind of file for NFS, without a network.
    Local(LoadProtocol),
    /// Another program's target, with weft's client; by its name in [`PEERS`].
    Peer(&'static str),
    /// Another program's client, with weft's target; by its name in [`CLIENTS`].
    Client(&'static str),
}

/// Targets that others have written, by what a user may have installed.
pub const PEERS: &[(&str, LoadProtocol)] = &[
    ("nvme-tcp target by address", LoadProtocol::NvmeTcp),
    ("nvmet in the guest", LoadProtocol::NvmeTcp),
    ("tgtd", LoadProtocol::Iscsi),
    ("LIO in the guest", LoadProtocol::Iscsi),
    ("nfs-ganesha", LoadProtocol::Nfs),
    ("knfsd in the guest", LoadProtocol::Nfs),
];

/// Clients that others have written.
pub const CLIENTS: &[(&str, LoadProtocol)] = &[
    ("fio, kernel device", LoadProtocol::NvmeTcp),
    ("kernel host in the guest", LoadProtocol::NvmeTcp),
    ("fio, libiscsi", LoadProtocol::Iscsi),
    ("iscsi-perf", LoadProtocol::Iscsi),
    ("kernel initiator in the guest", LoadProtocol::Iscsi),
    ("fio, nfs", LoadProtocol::Nfs),
    ("kernel client in the guest", LoadProtocol::Nfs),
];

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadProtocol {
    /// NVMe/TCP.
    NvmeTcp,
    /// NVMe/RDMA over iWARP in software; data digests are MPA's CRCs.
    NvmeRdma,
    /// iSCSI.
    Iscsi,
    /// NFS 4.2.
    Nfs,
    /// NFS 4.2 by RDMA over iWARP in software; data digests are MPA's CRCs.
    NfsRdma,
}

impl LoadProtocol {
    /// Whether files are what is used.
    #[must_use]
    pub fn has_files(self) -> bool {
        matches!(self, LoadProtocol::Nfs | LoadProtocol::NfsRdma)
    }
}

/// Where the ceiling's payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// In one small buffer that stays in the cache.
    Hot,
    /// At random places of as much memory as the volume has.
    Cold,
}

/// Settings of the target, the words of `[policy]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// `io`.
    pub driver: Driver,
    /// `fast_path`.
    pub fast_path: bool,
    /// Sends payload from 64 KiB on with SEND_ZC (`zero_copy_min_bytes`).
    pub zero_copy: bool,
    /// `spin_us_max`, of target and client.
    pub spin: Spin,
    /// `placement`.
    pub placement: Placement,
}

/// Which kernel interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring, or nothing.
    IoUring,
    /// epoll.
    Epoll,
}

/// How long both look for work before they sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// As long as their defaults say.
    Default,
    /// Not at all (0).
    Sleep,
    /// For as long as a run takes.
    Poll,
}

/// Which reactor serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// "least-loaded"
    LeastLoaded,
    /// "round-robin"
    RoundRobin,
    /// "incoming-cpu"
    IncomingCpu,
}

/// What the client asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Kind of I/Os.
    pub rw: Rw,
    /// Bytes of one I/O; of loads on names those of a file that is made.
    pub bs: u32,
    /// I/Os in flight on each connection.
    pub iodepth: u16,
    /// Connections of each host; queue pairs, sessions, or what `nconnect` makes.
    pub connections: u16,
    /// Hosts (clients), each a process with a name of its own, started together.
    pub hosts: u16,
    /// NVM subsystems of one namespace, LUNs, or exports: each host uses its share
    /// of them, with `connections` to each.
    pub devices: u16,
    /// Logical block of the volume: 512 or 4096.
    pub block_bytes: u32,
    /// What volume is used; NFS has a file system in memory.
    pub volume: LoadVolume,
    /// Header digest (iSCSI: HeaderDigest; NFS has none).
    pub header_digest: bool,
    /// Data digest.
    pub data_digest: bool,
    /// Most bytes of an FPDU of iWARP that the target sends; `None`: 64 KiB.
    pub fpdu_bytes_max: Option<u32>,
    /// TLS by a pre-shared key; `None`: in the clear. Of NVMe/TCP alone.
    pub tls: Option<TlsKey>,
    /// Open loop: I/Os a second over all connections; `None`: closed loop.
    pub rate: Option<f64>,
    /// CPUs of the target, the first ones of this process's; the client has the
    /// rest, or shares them all where none is left.
    pub target_cores: u16,
    /// Over a veth pair with this MTU; `None`: over the loopback interface.
    pub mtu: Option<u32>,
    /// The other protocols are under the same load of their own at the same time,
    /// on the same target. What is told is of one alone.
    pub beside: bool,
    /// Whether [`Sample::distribution`](super::measured::Sample::distribution) is
    /// wanted.
    pub distribution: bool,
}

/// What keeps the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadVolume {
    /// Memory.
    Ram,
    /// Nothing: reads are zeros, writes are dropped. No memory is touched for it.
    Null,
    /// A file in the folder for temporary files.
    File,
    /// The same past the page cache.
    DirectFile,
    /// A file with limits that it never reaches.
    LimitedFile,
    /// An encrypted file.
    EncryptedFile,
    /// A file whose blocks have checksums.
    ChecksummedFile,
    /// Two files that hold the same.
    MirroredFile,
}

impl LoadVolume {
    /// Whether payload is somewhere.
    #[must_use]
    pub fn has_memory(self) -> bool {
        self != LoadVolume::Null
    }
}

/// A key that hosts speak TLS by, and with it the cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsKey {
    /// SHA-256, TLS_AES_128_GCM_SHA256.
    Sha256,
    /// SHA-384, TLS_AES_256_GCM_SHA384.
    Sha384,
}

impl TlsKey {
    /// As a file of keys holds it: the bytes from 1 on, which keep nothing secret.
    #[must_use]
    pub fn interchange(self) -> &'static str {
        match self {
            TlsKey::Sha256 => "NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:\n",
            TlsKey::Sha384 => {
                "NVMeTLSkey-1:02:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8w\
                 yg3Bcw==:\n"
            }
        }
    }
}

/// How long one run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Before anything counts.
    pub ramp: Duration,
    /// What counts.
    pub runtime: Duration,
    /// Bytes of the volume or file, all written before; of the cold ceiling's
    /// memory.
    pub volume_bytes: u64,
}
