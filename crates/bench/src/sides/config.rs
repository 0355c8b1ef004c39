//! The configuration of a target that is to be measured.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener};

use super::super::load::{Driver, Load, LoadProtocol, LoadVolume, Mode, Placement, Spin};
use super::child::list;

/// The NQN of the first subsystem, the name of the first iSCSI target.
const NQN: &str = "nqn.2026-01.io.weft:bench";
const IQN: &str = "iqn.2026-01.io.weft:bench";
/// The file that an NFS client reads and writes.
const FILE: &str = "disk";
/// What a file system has beside the file that is measured: for names, and for
/// files that a load makes.
const FILES_BYTES: u64 = 1 << 30;

/// The file with what wraps the keys of encrypted volumes: 64 hexadecimal digits.
pub const VOLUME_KEY_FILE: &str = "volume.key";

/// From where on `Mode::zero_copy` sends payload so.
pub const ZERO_COPY_BYTES_MIN: u32 = 64 << 10;

/// What a target serves, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is spoken; all of them where several are to be loaded at once.
    pub protocols: Vec<LoadProtocol>,
    /// Subsystems, targets or exports of each.
    pub devices: u16,
    /// Bytes of one.
    pub device_bytes: u64,
    /// Logical block.
    pub block_bytes: u32,
    /// What volumes are.
    pub volume: LoadVolume,
    /// The file of the key by which hosts speak TLS, and how many hosts there are.
    pub tls: Option<(String, u16)>,
    /// Most bytes of an FPDU of NVMe/RDMA.
    pub fpdu_bytes_max: Option<u32>,
    /// Settings.
    pub mode: Mode,
    /// One reactor each.
    pub cpus: Vec<usize>,
    /// Whether the client runs on the same CPUs.
    pub is_shared: bool,
    /// Where it listens, a port for each protocol.
    pub ip: IpAddr,
    /// In the order of the protocols.
    pub ports: Vec<u16>,
}

/// What a host calls itself, without the kind of name.
pub fn host_name(number: u16) -> String {
    format!("2026-01.io.weft:host{number}")
}

/// A port for each protocol: its own, or one that is free now on the loopback
/// interface, where others may be in use.
pub fn ports(protocols: &[LoadProtocol], ip: IpAddr) -> std::io::Result<Vec<u16>> {
    let own = |protocol: &LoadProtocol| match protocol {
        LoadProtocol::NvmeTcp | LoadProtocol::NvmeRdma => 4420,
        LoadProtocol::Iscsi => 3260,
        LoadProtocol::Nfs => 2049,
        LoadProtocol::NfsRdma => 20049,
    };
    if !ip.is_loopback() {
        return Ok(protocols.iter().map(own).collect());
    }
    // All are held until the last is known, or two would be the same.
    let listeners = protocols.iter().map(|_| TcpListener::bind((ip, 0)));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    listeners.iter().map(port).collect()
}

/// All protocols, that of the measurement first.
pub fn protocols(protocol: LoadProtocol, load: &Load) -> Vec<LoadProtocol> {
    let all = [
        LoadProtocol::NvmeTcp,
        LoadProtocol::Iscsi,
        LoadProtocol::Nfs,
    ];
    let others = all.into_iter().filter(|other| *other != protocol);
    let others = others.filter(|_| load.beside);
    std::iter::once(protocol).chain(others).collect()
}

/// How each protocol calls itself, and volumes that are served by it alone.
pub fn word(protocol: LoadProtocol) -> &'static str {
    match protocol {
        LoadProtocol::NvmeTcp => "nvme-tcp",
        LoadProtocol::NvmeRdma => "nvme-rdma",
        LoadProtocol::Iscsi => "iscsi",
        LoadProtocol::Nfs => "nfs",
        LoadProtocol::NfsRdma => "nfs-rdma",
    }
}

/// What weft calls the kind of a volume.
pub fn kind(volume: LoadVolume) -> &'static str {
    match volume {
        LoadVolume::Ram => "ram",
        LoadVolume::Null => "null",
        LoadVolume::File
        | LoadVolume::DirectFile
        | LoadVolume::LimitedFile
        | LoadVolume::EncryptedFile
        | LoadVolume::ChecksummedFile => "file",
        LoadVolume::MirroredFile => "mirror",
    }
}

impl Config {
    /// The pattern that makes one name of each device.
    fn pattern(&self) -> String {
        match self.devices {
            1 => String::new(),
            devices => format!("{{00..{:02}}}", devices - 1),
        }
    }

    /// What the pattern makes for one device.
    fn suffix(&self, device: u16) -> String {
        match self.devices {
            1 => String::new(),
            _ => format!("{device:02}"),
        }
    }

    /// As `weft serve -c` takes it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for protocol in &self.protocols {
            self.devices(*protocol, &mut text);
        }
        for (protocol, port) in self.protocols.iter().zip(&self.ports) {
            let address = SocketAddr::new(self.ip, *port);
            let (word, rdma) = match protocol {
                LoadProtocol::NvmeRdma => (word(LoadProtocol::NvmeTcp), self.rdma()),
                LoadProtocol::NfsRdma => (word(LoadProtocol::Nfs), self.rdma()),
                other => (word(*other), String::new()),
            };
            let _ = write!(
                text,
                "[[listener]]\naddress = \"{address}\"\nprotocol = \"{word}\"\n{rdma}"
            );
        }
        self.policy(&mut text);
        text
    }

    /// Of a listener for RDMA: a host decides whether there are CRCs.
    fn rdma(&self) -> String {
        let bytes = self.fpdu_bytes_max;
        let bytes = bytes.map(|bytes| format!("fpdu_bytes_max = {bytes}\n"));
        let bytes = bytes.unwrap_or_default();
        format!("rdma = \"only\"\nmpa_crc = \"off\"\n{bytes}")
    }

    fn devices(&self, protocol: LoadProtocol, text: &mut String) {
        let (at, size, block) = (self.pattern(), self.device_bytes, self.block_bytes);
        let word = word(protocol);
        let kind = kind(self.volume);
        if !protocol.has_files() {
            let name = format!("{word}{at}");
            let _ = write!(
                text,
                "[[volume]]\nname = \"{name}\"\nkind = \"{kind}\"\nsize = {size}\n\
                 block_bytes = {block}\n{}",
                self.rest_of_volume(&name)
            );
        }
        let _ = match protocol {
            LoadProtocol::NvmeTcp | LoadProtocol::NvmeRdma => write!(
                text,
                "[[nvme.subsystem]]\nnqn = \"{NQN}{at}\"\nallow_any_host = true\n\
                 volumes = [\"{word}{at}\"]\n{}",
                self.keyed_hosts()
            ),
            LoadProtocol::Iscsi => write!(
                text,
                "[[iscsi.target]]\nname = \"{IQN}{at}\"\nallow_any_initiator = true\n\
                 volumes = [\"{word}{at}\"]\n"
            ),
            LoadProtocol::Nfs | LoadProtocol::NfsRdma => write!(
                text,
                "[[file_system]]\nname = \"files{at}\"\nkind = \"mem\"\nsize = {}\n\
                 [[export]]\npath = \"/files{at}\"\nfile_system = \"files{at}\"\n\
                 allow_any_client = true\nsquash = \"none\"\n",
                2 * size + FILES_BYTES
            ),
        };
    }

    /// What a volume of this kind has besides; files lie beside the configuration.
    fn rest_of_volume(&self, name: &str) -> String {
        let file = format!("path = \"{name}.img\"\n");
        match self.volume {
            LoadVolume::Ram | LoadVolume::Null => String::new(),
            LoadVolume::File => file,
            LoadVolume::DirectFile => format!("{file}direct = true\n"),
            LoadVolume::LimitedFile => format!(
                "{file}[[limit]]\nname = \"{name}\"\nvolumes = [\"{name}\"]\n\
                 iops = 1_000_000_000\nbytes = \"64GiB\"\n"
            ),
            LoadVolume::EncryptedFile => format!("{file}key_file = \"{VOLUME_KEY_FILE}\"\n"),
            LoadVolume::ChecksummedFile => format!("{file}checksum = true\n"),
            LoadVolume::MirroredFile => {
                let (size, block) = (self.device_bytes, self.block_bytes);
                let legs = ["left", "right"].map(|leg| {
                    format!(
                        "[[volume]]\nname = \"{name}-{leg}\"\nkind = \"file\"\n\
                         path = \"{name}-{leg}.img\"\nsize = {size}\nblock_bytes = {block}\n"
                    )
                });
                format!(
                    "of = [\"{name}-left\", \"{name}-right\"]\nstate = \"{name}.state\"\n{}",
                    legs.concat()
                )
            }
        }
    }

    /// The hosts that speak TLS.
    fn keyed_hosts(&self) -> String {
        let (path, hosts) = self.tls.clone().unwrap_or_default();
        let host = |number| {
            let name = host_name(number);
            format!("[[nvme.subsystem.host]]\nnqn = \"nqn.{name}\"\npsk_file = \"{path}\"\n")
        };
        (0..hosts).map(host).collect()
    }

    fn policy(&self, text: &mut String) {
        let mode = &self.mode;
        let io = match mode.driver {
            Driver::IoUring => "io_uring",
            Driver::Epoll => "epoll",
        };
        let placement = match mode.placement {
            Placement::LeastLoaded => "least-loaded",
            Placement::RoundRobin => "round-robin",
            Placement::IncomingCpu => "incoming-cpu",
        };
        let _ = write!(
            text,
            "[admin]\nsocket = \"off\"\n[policy]\ncpus = \"{}\"\nio = \"{io}\"\nplacement = \"{placement}\"\n\
             fast_path = {}\n",
            list(&self.cpus),
            mode.fast_path
        );
        if let Some(spin) = self.spin() {
            let _ = writeln!(text, "spin_us_max = {spin}");
        }
        if mode.zero_copy {
            let _ = writeln!(text, "zero_copy_min_bytes = {ZERO_COPY_BYTES_MIN}");
        }
    }

    /// Where both ends share their CPUs, a spin is time taken from the other.
    fn spin(&self) -> Option<u32> {
        match self.mode.spin {
            Spin::Default => self.is_shared.then_some(0),
            Spin::Sleep => Some(0),
            Spin::Poll => Some(1_000_000),
        }
    }

    /// Where a protocol is spoken.
    pub fn address(&self, protocol: LoadProtocol) -> SocketAddr {
        let mut ports = self.protocols.iter().zip(&self.ports);
        let found = ports.find(|(one, _)| **one == protocol);
        let (_, port) = found.expect("it serves what it was configured for");
        SocketAddr::new(self.ip, *port)
    }

    /// What a standard calls a device: NQN, target name, path of the export.
    pub fn name(&self, protocol: LoadProtocol, device: u16) -> String {
        let at = self.suffix(device);
        match protocol {
            LoadProtocol::NvmeTcp | LoadProtocol::NvmeRdma => format!("{NQN}{at}"),
            LoadProtocol::Iscsi => format!("{IQN}{at}"),
            LoadProtocol::Nfs | LoadProtocol::NfsRdma => format!("/files{at}"),
        }
    }

    /// What `weft perf` calls a device.
    pub fn url(&self, protocol: LoadProtocol, device: u16) -> String {
        let name = self.name(protocol, device);
        let authority = self.address(protocol);
        match protocol {
            LoadProtocol::NvmeTcp => format!("nvme-tcp://{authority}/{name}"),
            LoadProtocol::NvmeRdma => format!("rdma://{authority}/{name}"),
            LoadProtocol::Iscsi => format!("iscsi://{authority}/{name}/0"),
            LoadProtocol::Nfs => format!("nfs://{authority}{name}/{FILE}"),
            LoadProtocol::NfsRdma => format!("nfs+rdma://{authority}{name}/{FILE}"),
        }
    }
}
