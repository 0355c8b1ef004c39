//! The arguments of `weft perf`, and what follows from them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args, ValueEnum};
use host::iscsi::{self, Digest};
use host::nfs;
use host::{
    Address, CrcPolicy, HostIdentity, Policy, QueueSettings, RdmaHostSettings, Settings, Transport,
};
use reactor::Choice;

use super::device::{Device, ISCSI_QUEUE_DEPTH_MAX};
use super::local;
use super::workload::Rw;
use crate::chap::ChapArgs;
use crate::nfs_client::NfsClientArgs;
use crate::nvme_host::NvmeHostArgs;
use crate::units::{parse_bytes, parse_duration};

/// The subsystem that weft serves on this machine when nothing is configured.
#[must_use]
pub fn default_nqn() -> String {
    let machine = store::identity::of_machine("built-in");
    format!("nqn.2026-01.io.weft:default-{machine}")
}

/// Buffers of one job.
const JOB_BYTES_MAX: u64 = 2 << 30;
/// Blocks of which `--verify` keeps track in one job.
const VERIFY_BLOCKS_MAX: u64 = 1 << 26;

/// What can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// Offset, generation and CRC32C in every block.
    Crc32c,
}

/// Which driver to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// io_uring where it can be used, else epoll.
    Auto,
    /// io_uring or nothing.
    #[value(name = "io_uring", alias = "uring")]
    IoUring,
    /// epoll.
    Epoll,
}

impl From<Backend> for Choice {
    fn from(backend: Backend) -> Choice {
        match backend {
            Backend::Auto => Choice::Auto,
            Backend::IoUring => Choice::Uring,
            Backend::Epoll => Choice::Epoll,
        }
    }
}

/// How a load is spread over the paths to one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathPolicy {
    /// Each path in turn.
    RoundRobin,
    /// The path with the fewest I/Os outstanding.
    QueueDepth,
}

impl From<PathPolicy> for Policy {
    fn from(policy: PathPolicy) -> Policy {
        match policy {
            PathPolicy::RoundRobin => Policy::RoundRobin,
            PathPolicy::QueueDepth => Policy::QueueDepth,
        }
    }
}

/// Where a load goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadAddress {
    /// To a namespace.
    Nvme(Address),
    /// To a logical unit.
    Iscsi(iscsi::IscsiAddress),
    /// To a file or directory.
    Nfs(nfs::NfsAddress),
    /// To a volume of this process.
    Local(local::LocalAddress),
}

/// Arguments of `weft perf`: fio's words where fio has one.
#[derive(Args, Clone, Debug)]
pub struct PerfArgs {
    /// Targets as nvme-tcp://host:port/nqn?nsid=1, rdma://host:port/nqn?nsid=1,
    /// iscsi://host:port/iqn/lun, iser://host:port/iqn/lun, nfs://host:port/path or
    /// nfs+rdma://host:port/path; without any, the one that -a, -s, -n and --nsid name.
    /// To compare with: local:ram?size=1g&block=4k, local:null or
    /// local:file?path=FILE, a volume of this process without a network
    #[arg(value_name = "URL", conflicts_with_all = ["traddr", "trsvcid", "nqn", "nsid"])]
    pub targets: Vec<String>,
    /// Address of the target
    #[arg(short = 'a', long, default_value = "127.0.0.1")]
    pub traddr: IpAddr,
    /// Port of the target
    #[arg(short = 's', long, default_value_t = 4420)]
    pub trsvcid: u16,
    /// NVM subsystem NQN
    #[arg(short = 'n', long, default_value_t = default_nqn())]
    pub nqn: String,
    /// Namespace identifier [default: the first namespace]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub nsid: Option<u32>,
    /// Of NVMe
    #[command(flatten)]
    pub nvme_host: NvmeHostArgs,
    /// Speak TLS by a key that authentication makes (secure channel concatenation)
    #[arg(long, requires = "dhchap_secret_file", conflicts_with = "psk_file")]
    pub concat: bool,
    /// Header digests
    #[arg(short = 'g', long)]
    pub hdr_digest: bool,
    /// Data digests; over RDMA, CRCs of MPA
    #[arg(short = 'G', long)]
    pub data_digest: bool,
    /// Of iSCSI
    #[command(flatten)]
    pub chap: ChapArgs,
    /// Of NFS
    #[command(flatten)]
    pub nfs_client: NfsClientArgs,

    /// The targets are paths to one namespace of one subsystem: every job uses
    /// all of them, the ANA optimized ones first, and sends what a path fails
    /// on another
    #[arg(long, value_enum, value_name = "POLICY", num_args = 0..=1, require_equals = true, default_missing_value = "round-robin")]
    pub multipath: Option<PathPolicy>,
    /// Pause between two attempts to connect a lost path again
    #[arg(long, alias = "reconnect_delay", requires = "multipath", value_parser = parse_duration, default_value = "10s")]
    pub reconnect_delay: Duration,
    /// How long after its loss a path is tried again; -1: for ever
    #[arg(long, alias = "ctrl_loss_tmo", requires = "multipath", value_parser = parse_patience, allow_hyphen_values = true, default_value = "600s")]
    pub ctrl_loss_tmo: Patience,
    /// How long I/Os wait while there is no path, before they fail; -1: until
    /// every path is given up
    #[arg(long, alias = "fast_io_fail_tmo", requires = "multipath", value_parser = parse_patience, allow_hyphen_values = true, default_value = "-1")]
    pub fast_io_fail_tmo: Patience,

    /// What to do
    #[arg(long, value_enum, default_value = "randread")]
    pub rw: Rw,
    /// Percentage of reads in a mixed load
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub rwmixread: u8,
    /// Bytes of one I/O
    #[arg(long, value_parser = parse_bytes, default_value = "4k")]
    pub bs: u64,
    /// I/Os in flight of each job; what the target's queue has no room for waits
    /// here, which counts as its latency
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=65_534))]
    pub iodepth: u16,
    /// Jobs, each an I/O queue or session with a connection of its own, for each
    /// target; of NFS, connections that share sessions as far as their slots go
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16_000))]
    pub numjobs: u16,
    /// How long to measure
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub runtime: Duration,
    /// How long to run before measuring
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    pub ramp_time: Duration,
    /// Bytes of the namespace or file to use [default: from --offset to its end];
    /// a file that is shorter, or not there yet, is written first
    #[arg(long, value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Files of a load of attributes or of a directory's entries, made for it and
    /// removed at its end [default: what is there]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub nrfiles: Option<u32>,
    /// First byte of the namespace to use
    #[arg(long, value_parser = parse_bytes, default_value = "0")]
    pub offset: u64,
    /// Stamp what is written and check what is read; a load that writes is read
    /// back at its end
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "crc32c")]
    pub verify: Option<Check>,
    /// Open loop: start so many I/Os a second over all jobs, each at its own
    /// time whatever became of the others; latency counts from that time
    #[arg(long, value_parser = parse_rate)]
    pub rate: Option<f64>,

    /// CPUs, one reactor each, such as 1 or 0-3,8 [default: one reactor, any CPU]
    #[arg(long, value_parser = parse_cpu_list)]
    pub cpus: Option<CpuList>,
    /// Kernel interface
    #[arg(long, value_enum, default_value = "auto")]
    pub io_backend: Backend,
    /// Spin at most so many microseconds before sleeping, and only while that
    /// pays off; `always` never sleeps [default: 1000, or 0 on a single CPU]
    #[arg(long, value_parser = parse_spin)]
    pub spin_us: Option<u64>,
    /// Connect, say `ready` on standard error, and begin when a line comes on
    /// standard input: for several loads that are to begin together
    #[arg(long)]
    pub wait: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// CPUs of the reactors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// CPUs by number, as `0,2-3`.
///
/// # Errors
/// What of it is none.
pub fn parse_cpu_list(text: &str) -> Result<CpuList, String> {
    reactor::parse_cpus(text).map(CpuList)
}

/// How long something is waited for; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

fn parse_patience(text: &str) -> Result<Patience, String> {
    match text {
        "-1" => Ok(Patience(None)),
        _ => parse_duration(text).map(|duration| Patience(Some(duration))),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 1e3),
        t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 1e6),
        t => (t, 1.0),
    };
    let rate = number.parse::<f64>().map(|n| n * factor);
    rate.ok()
        .filter(|rate| (0.001..=1e9).contains(rate))
        .ok_or_else(|| format!("`{text}` is no rate, such as 10000 or 200k"))
}

fn parse_spin(text: &str) -> Result<u64, String> {
    match text {
        "always" => Ok(u64::MAX),
        _ => text
            .parse()
            .map_err(|_| format!("`{text}` is neither microseconds nor `always`")),
    }
}

impl PerfArgs {
    /// Who this host is to NVMe controllers; reads the files.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn host_identity(&self) -> Result<HostIdentity, String> {
        Ok(HostIdentity {
            concatenates: self.concat,
            ..self.nvme_host.identity()?
        })
    }

    /// The targets that are named.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn target_addresses(&self) -> Result<Vec<LoadAddress>, String> {
        let are_files = (self.targets.iter()).all(|url| nfs::NfsAddress::is_url(url));
        let wants_files = self.rw.is_metadata() || self.nrfiles.is_some();
        if wants_files && (self.targets.is_empty() || !are_files) {
            return Err("only NFS has names and attributes: use nfs:// or nfs+rdma:// URLs".into());
        }
        let has_nfs = self.targets.iter().any(|url| url.starts_with("nfs"));
        if self.nfs_client.is_said() && !has_nfs {
            return Err("--ca and --sec are for NFS: name an nfs:// URL".into());
        }
        if self.targets.is_empty() {
            let socket = SocketAddr::new(self.traddr, self.trsvcid);
            let address = Address::new(socket, &self.nqn, self.nsid)?;
            return Ok(vec![LoadAddress::Nvme(address)]);
        }
        let all = self.targets.iter().map(|url| match url.split_once(':') {
            Some(("local", volume)) => local::LocalAddress::parse(volume).map(LoadAddress::Local),
            Some(("iscsi" | "iser", _)) => iscsi::IscsiAddress::parse(url).map(LoadAddress::Iscsi),
            Some(("nfs" | "nfs+rdma", _)) => nfs::NfsAddress::parse(url).map(LoadAddress::Nfs),
            _ => Address::parse(url).map(LoadAddress::Nvme),
        });
        all.collect()
    }

    /// The paths to one namespace that are named, with `--multipath`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn path_addresses(&self) -> Result<Vec<Address>, String> {
        let all = self
            .target_addresses()?
            .into_iter()
            .map(|place| match place {
                LoadAddress::Nvme(address) => Ok(address),
                LoadAddress::Iscsi(_) | LoadAddress::Nfs(_) | LoadAddress::Local(_) => {
                    Err("--multipath is NVMe's: use it with nvme-tcp:// or rdma:// URLs")
                }
            });
        let all: Vec<Address> = all.collect::<Result<_, _>>()?;
        let is_one = |a: &Address| (&a.subnqn, a.nsid) == (&all[0].subnqn, all[0].nsid);
        if !all.iter().all(is_one) {
            return Err("--multipath wants one namespace of one subsystem in every URL".into());
        }
        Ok(all)
    }

    /// What to agree on with the iSCSI target at `address`: a session of `initiator`.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn iscsi_settings(
        &self,
        initiator: &str,
        address: &iscsi::IscsiAddress,
    ) -> Result<iscsi::InitiatorSettings, String> {
        let target = &address.target;
        if address.is_rdma {
            let stream = iscsi::QpSettings {
                crc: self.mpa_crc(),
                ..iscsi::QpSettings::default()
            };
            return Ok(iscsi::InitiatorSettings {
                chap: self.chap.chap()?,
                queue_depth: self.iodepth.min(ISCSI_QUEUE_DEPTH_MAX),
                rdma: Some(stream),
                ..iscsi::InitiatorSettings::new(initiator, target)
            });
        }
        let digest = |is_wanted| match is_wanted {
            true => Digest::Required,
            false => Digest::Never,
        };
        Ok(iscsi::InitiatorSettings {
            chap: self.chap.chap()?,
            header_digest: digest(self.hdr_digest),
            data_digest: digest(self.data_digest),
            queue_depth: self.iodepth.min(ISCSI_QUEUE_DEPTH_MAX),
            ..iscsi::InitiatorSettings::new(initiator, target)
        })
    }

    /// What to agree on with a controller.
    #[must_use]
    pub fn settings(&self, transport: Transport) -> QueueSettings {
        match transport {
            Transport::Tcp => QueueSettings::Tcp(Settings {
                header_digest: self.hdr_digest,
                data_digest: self.data_digest,
                ..Settings::default()
            }),
            Transport::Rdma => QueueSettings::Rdma(RdmaHostSettings {
                crc: self.mpa_crc(),
                ..RdmaHostSettings::default()
            }),
        }
    }

    /// Which CRCs of MPA are asked for.
    #[must_use]
    pub fn mpa_crc(&self) -> CrcPolicy {
        match self.data_digest {
            true => CrcPolicy::Require,
            false => CrcPolicy::Off,
        }
    }

    /// The longest spin, in microseconds.
    #[must_use]
    pub fn spin_us_max(&self) -> u64 {
        // Where the target shares the only CPU, a spin is time taken from it.
        let is_alone = reactor::available_cpus().len() < 2;
        self.spin_us.unwrap_or(if is_alone { 0 } else { 1000 })
    }

    /// The part of a device that each job of `jobs` uses: first byte and number
    /// of I/Os.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn job_areas(&self, device: &Device, jobs: u64) -> Result<Vec<(u64, u64)>, String> {
        let block = u64::from(device.block_bytes);
        let size = device.size_bytes();
        // The length of a PDU and an Expected Data Transfer Length have 32 bits.
        let bs_max = device.transfer_max.unwrap_or(u64::MAX).min(1 << 30);
        if self.bs == 0 || !self.bs.is_multiple_of(block) {
            return Err(format!(
                "--bs {} is no multiple of the block, {block} bytes",
                self.bs
            ));
        }
        if self.bs > bs_max {
            return Err(format!(
                "--bs {} is above the target's limit, {bs_max} bytes",
                self.bs
            ));
        }
        if !self.offset.is_multiple_of(block) {
            return Err(format!(
                "--offset is no multiple of the block, {block} bytes"
            ));
        }
        if (u64::from(self.iodepth) + 1) * self.bs > JOB_BYTES_MAX {
            return Err("--iodepth times --bs is more memory than a job may have, 2 GiB".into());
        }
        let room = size.saturating_sub(self.offset);
        let used = self.size.unwrap_or(room);
        if used > room {
            return Err(format!(
                "--offset and --size reach past {device}, {size} bytes"
            ));
        }
        let blocks = used / self.bs;
        if blocks == 0 {
            return Err("there is no room for one I/O: look at --offset, --size and --bs".into());
        }
        if self.verify.is_none() {
            return Ok(vec![(self.offset, blocks); jobs as usize]);
        }
        // Jobs that check may not write into each other's blocks.
        let share = blocks / jobs;
        if share <= u64::from(self.iodepth) {
            return Err("--verify needs more than --iodepth blocks for each job".into());
        }
        if share > VERIFY_BLOCKS_MAX {
            return Err(format!(
                "--verify takes {VERIFY_BLOCKS_MAX} blocks a job: use --size"
            ));
        }
        Ok((0..jobs)
            .map(|job| (self.offset + job * share * self.bs, share))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use host::{ControllerInfo, NamespaceInfo};

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PerfArgs,
    }

    fn parse(line: &str) -> Result<PerfArgs, clap::Error> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    fn controller() -> ControllerInfo {
        ControllerInfo {
            cntlid: 1,
            model: String::new(),
            serial: String::new(),
            transfer_max: Some(1 << 20),
            in_capsule_max: 8192,
            queue_entries_max: 129,
            ana: None,
            notices: 0,
            volatile_cache: false,
            write_zeroes: true,
        }
    }

    const NAMESPACE: NamespaceInfo = NamespaceInfo {
        nsid: 1,
        block_bytes: 4096,
        block_count: 256,
        is_thin: false,
    };

    #[test]
    fn key_for_tls_is_made_where_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        let key = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        fs::write(&path, key).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        let line = format!("-q nqn.h --dhchap-secret-file {}", path.display());
        let concatenates = |line: &str| {
            let args = parse(line).expect("parses");
            args.host_identity().expect("a secret").concatenates
        };
        assert!(!concatenates(&line));
        assert!(concatenates(&format!("{line} --concat")));
    }

    #[test]
    fn fios_words_are_understood() {
        let args = parse(
            "--rw=randrw --rwmixread=70 --bs=128KiB --iodepth=8 --numjobs=4 --runtime=3 \
             --ramp-time 500ms --size 1g --verify --rate 20k --cpus 0-1 --io-backend io_uring \
             --spin-us always -g -G nvme-tcp://127.0.0.1/nqn.a nvme-tcp://127.0.0.1:9/nqn.b?nsid=2",
        )
        .expect("parses");
        assert_eq!(
            (args.rw, args.rwmixread, args.bs),
            (Rw::RandRw, 70, 131_072)
        );
        assert_eq!((args.iodepth, args.numjobs), (8, 4));
        assert_eq!(args.runtime, Duration::from_secs(3));
        assert_eq!(args.ramp_time, Duration::from_millis(500));
        assert_eq!(
            (args.size, args.verify),
            (Some(1 << 30), Some(Check::Crc32c))
        );
        assert_eq!((args.rate, args.spin_us), (Some(20_000.0), Some(u64::MAX)));
        assert_eq!(args.cpus, Some(CpuList(vec![0, 1])));
        assert_eq!(args.io_backend, Backend::IoUring);
        let QueueSettings::Tcp(settings) = args.settings(Transport::Tcp) else {
            panic!("of NVMe/TCP");
        };
        assert!(settings.header_digest && settings.data_digest);
        let QueueSettings::Rdma(settings) = args.settings(Transport::Rdma) else {
            panic!("of NVMe/RDMA");
        };
        assert_eq!(settings.crc, CrcPolicy::Require);
        let addresses = args.path_addresses().expect_err("two namespaces");
        assert!(addresses.contains("one namespace"));
        let places = args.target_addresses().expect("places");
        assert!(matches!(&places[1], LoadAddress::Nvme(address) if address.nsid == Some(2)));
        assert!(matches!(&places[0], LoadAddress::Nvme(address) if address.socket.port() == 4420));
    }

    #[test]
    fn arguments_of_nfs_want_a_url_of_nfs() {
        for more in ["--ca ca.pem", "--sec krb5"] {
            for (url, is_fine) in [
                ("", false),
                ("nvme-tcp://127.0.0.1/nqn.a", false),
                ("nfs://127.0.0.1/a", true),
            ] {
                let args = parse(&format!("{more} {url}")).expect("parses");
                let told = args.target_addresses().map(drop);
                assert_eq!(told.is_ok(), is_fine, "{more} {url}: {told:?}");
            }
        }
    }

    #[test]
    fn perf_without_arguments_loads_the_built_in_target() {
        let args = parse("").expect("parses");
        let [LoadAddress::Nvme(address)] = &args.target_addresses().expect("a place")[..] else {
            panic!("NVMe");
        };
        assert_eq!(address.socket, "127.0.0.1:4420".parse().expect("address"));
        assert_eq!(
            (address.subnqn.as_str(), address.nsid),
            (&*default_nqn(), None)
        );
        assert_eq!((args.rw, args.bs), (Rw::RandRead, 4096));
        assert!(args.verify.is_none() && args.rate.is_none());
    }

    #[test]
    fn paths_are_addresses_of_one_namespace() {
        let urls = "nvme-tcp://127.0.0.1:1/nqn.a?nsid=2 nvme-tcp://127.0.0.1:2/nqn.a?nsid=2";
        let args = parse(&format!("--multipath {urls}")).expect("parses");
        assert_eq!(args.multipath, Some(PathPolicy::RoundRobin));
        assert_eq!(args.path_addresses().expect("addresses").len(), 2);
        assert_eq!(args.reconnect_delay, Duration::from_secs(10));
        assert_eq!(args.ctrl_loss_tmo.0, Some(Duration::from_secs(600)));
        assert_eq!(args.fast_io_fail_tmo.0, None);
        let args = parse(&format!(
            "--multipath=queue-depth --reconnect-delay 2 --ctrl-loss-tmo -1 \
             --fast_io_fail_tmo=500ms {urls}"
        ))
        .expect("parses");
        assert_eq!(args.multipath, Some(PathPolicy::QueueDepth));
        assert_eq!(args.reconnect_delay, Duration::from_secs(2));
        assert_eq!(args.ctrl_loss_tmo.0, None);
        assert_eq!(args.fast_io_fail_tmo.0, Some(Duration::from_millis(500)));
        for other in [
            "nvme-tcp://127.0.0.1/nqn.b?nsid=2",
            "nvme-tcp://127.0.0.1/nqn.a?nsid=1",
            "iscsi://127.0.0.1/iqn.2026-01.io.weft:a/2",
        ] {
            let args = parse(&format!("--multipath {urls} {other}")).expect("parses");
            assert!(args.path_addresses().is_err(), "{other}");
        }
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "--rw=trim",
            "--bs=4q",
            "--iodepth=0",
            "--rwmixread=101",
            "--rate=0",
            "--cpus=x",
            "--spin-us=never",
            "--verify=md5",
            "--nsid=0",
            "--multipath=numa",
            "--reconnect-delay 1",
            "--multipath --ctrl-loss-tmo -2",
            "-n nqn.a nvme-tcp://127.0.0.1/nqn.a",
            "-q nqn.h --concat",
            "-q nqn.h --psk-file f --dhchap-secret-file f --concat",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn areas_fit_into_the_namespace() {
        let areas = |line: &str, jobs| {
            parse(line)
                .expect("parses")
                .job_areas(&Device::namespace(&controller(), &NAMESPACE), jobs)
        };
        assert_eq!(areas("", 2), Ok(vec![(0, 256), (0, 256)]));
        assert_eq!(areas("--offset 4k --size 8k", 1), Ok(vec![(4096, 2)]));
        assert_eq!(
            areas("--verify --bs 8k", 2),
            Ok(vec![(0, 64), (64 * 8192, 64)])
        );
        for line in [
            "--bs 512",
            "--bs 0",
            "--bs 2m",
            "--offset 1k",
            "--offset 1m",
            "--size 2m",
            "--verify --size 128k",
        ] {
            assert!(areas(line, 1).is_err(), "{line}");
        }
        let device = Device::namespace(&controller(), &NAMESPACE);
        assert_eq!(
            (device.queue_depth(128), device.queue_depth(129)),
            (128, 128)
        );
        let boundless = ControllerInfo {
            transfer_max: None,
            ..controller()
        };
        let large = NamespaceInfo {
            block_count: 1 << 30,
            ..NAMESPACE
        };
        let device = Device::namespace(&boundless, &large);
        let areas = |line: &str| parse(line).expect("parses").job_areas(&device, 1);
        assert!(areas("--bs 256m --iodepth 7").is_ok());
        assert!(
            areas("--bs 256m --iodepth 8").is_err(),
            "more than 2 GiB of buffers"
        );
    }
}
