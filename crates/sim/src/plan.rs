//! What a seed stands for.

mod nbd;
mod transports;

use auth::dhchap::{DhchapGroup, DhchapHash};
use auth::psk::PskHash;
use host::CrcPolicy;
use host::iscsi::Digest;
use host::nfs::RdmaClientSettings;
use random::Random;
use reactor::Nanos;

use crate::disk::DiskSettings;
use crate::made::Made;
use crate::net::{NetSettings, StreamCut};
use crate::world::{MS, S, US};

pub use nbd::{NbdForm, NbdPlan};

/// Reactors and hosts of a run at most.
pub const SHARDS_MAX: usize = 3;
const HOSTS_MAX: usize = 4;
const CLIENTS_MAX: usize = 3;
/// The drivers of hosts end here, and those of clients.
pub const HOSTS_END: usize = SHARDS_MAX + HOSTS_MAX;
pub const CLIENTS_END: usize = HOSTS_END + CLIENTS_MAX;
/// Behind them the driver of the users of one machine.
pub const USERS: usize = CLIENTS_END;
pub const DRIVERS: usize = USERS + 1;
/// Where a volume's data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// In the target's memory.
    Memory,
    /// In a file on a simulated disk.
    File,
}

/// One volume, served as a namespace.
#[derive(Clone, Copy, Debug)]
pub struct VolumePlan {
    /// Where its data lies.
    pub lies: Lies,
    /// What it is made of, where it lies in a file.
    pub made: Made,
    /// Its blocks have checksums, and some are changed on its disk.
    pub is_checksummed: bool,
    /// It is encrypted, and its key is another after each start.
    pub is_encrypted: bool,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Its size.
    pub blocks: u64,
    /// The first of the blocks that all hosts want.
    pub hot: u64,
}

/// One host.
#[derive(Clone, Copy, Debug)]
pub struct HostPlan {
    /// The subsystem that it uses.
    pub subsystem: usize,
    /// I/O queues.
    pub queues: u16,
    /// Entries of each.
    pub entries: u16,
    /// Header digests wanted.
    pub header_digest: bool,
    /// Data digests wanted.
    pub data_digest: bool,
    /// Alignment of data from the target, as on the wire.
    pub hpda: u8,
    /// R2Ts outstanding for a command, as on the wire.
    pub maxr2t: u32,
    /// Data that does not fit into a capsule begins there.
    pub part_in_capsule: bool,
    /// No flow control of submission queues.
    pub no_flow_control: bool,
    /// In-capsule data that it makes use of at most, bytes.
    pub in_capsule_max: u32,
    /// Keep alive timeout, 0 for none.
    pub kato_ms: u32,
    /// It speaks iSCSI, and of the above only entries and keep alive mean
    /// something.
    pub iscsi: Option<IscsiPlan>,
    /// It speaks NBD, and of the above only entries mean something.
    pub nbd: Option<NbdPlan>,
    /// The one volume that it uses; any if `None`.
    pub volume: Option<usize>,
    /// It speaks TLS, by a key of this hash.
    pub tls: Option<PskHash>,
    /// It authenticates by DH-HMAC-CHAP.
    pub dhchap: Option<DhchapPlan>,
    /// It makes a key for TLS by that, and comes back by it.
    pub concatenates: bool,
    /// It connects by RDMA, and header digests stand for CRCs.
    pub rdma: bool,
}

impl HostPlan {
    /// Whether it speaks NVMe.
    pub fn speaks_nvme(&self) -> bool {
        self.iscsi.is_none() && self.nbd.is_none()
    }

    /// Header and data digests that it insists on.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        (self.header_digest, self.data_digest) = (header, data);
        if let Some(iscsi) = &mut self.iscsi {
            let digest = |is_wanted| match is_wanted {
                true => Digest::Required,
                false => Digest::Never,
            };
            (iscsi.header_digest, iscsi.data_digest) = (digest(header), digest(data));
        }
    }

    /// Whether what it reads and writes goes by TLS.
    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some() || self.concatenates
    }

    /// Whether digests guard its headers, and its data, for certain.
    fn digests(&self) -> (bool, bool) {
        match &self.iscsi {
            _ if self.nbd.is_some() => (false, false),
            _ if self.rdma => (self.needs_crc(), self.needs_crc()),
            None => (self.header_digest, self.data_digest),
            Some(iscsi) => (
                iscsi.header_digest == Digest::Required,
                iscsi.data_digest == Digest::Required,
            ),
        }
    }

    /// Whether it insists on CRCs, by RDMA.
    fn needs_crc(&self) -> bool {
        match &self.iscsi {
            None => self.header_digest,
            Some(iscsi) => iscsi.header_digest == Digest::Required,
        }
    }

    /// Its CRCs, by RDMA.
    pub fn crc(&self) -> CrcPolicy {
        match self.needs_crc() {
            true => CrcPolicy::Require,
            false => CrcPolicy::Off,
        }
    }
}

/// What bits that are flipped on the way may do to a host, beside what digests catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nothing: digests guard every byte, or no bit is flipped.
    Nothing,
    /// Data is other than it was by those bits: only headers have digests.
    Data,
    /// Whatever a host can do to a volume: headers have no digests.
    Anything,
}

/// What an iSCSI initiator asks for.
#[derive(Clone, Copy, Debug)]
pub struct IscsiPlan {
    /// Connections of its session.
    pub connections: u16,
    /// HeaderDigest.
    pub header_digest: Digest,
    /// DataDigest.
    pub data_digest: Digest,
    /// MaxRecvDataSegmentLength.
    pub max_recv_data_segment: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u16,
}

/// NFS, where a seed has any.
#[derive(Clone, Debug)]
pub struct NfsPlan {
    /// Its clients.
    pub clients: Vec<NfsClientPlan>,
    /// The file system outlives the target's process.
    pub survives: bool,
    /// It is a `dir`, over a simulated POSIX file system.
    pub is_dir: bool,
    /// Bytes of a block of content.
    pub block_bytes: usize,
    /// Blocks of a file.
    pub blocks: usize,
    /// How long a client may be silent.
    pub lease_ms: u32,
    /// How long clients may reclaim.
    pub grace_ms: u32,
    /// How often, of a hundred, the file system answers late.
    pub late_percent: u64,
    /// How late that is.
    pub late: Nanos,
    /// Mean time between two requests of a client.
    pub think: Nanos,
    /// Names in the directory of the files that no client asks for. Where there are any,
    /// one more client has come again, and has had much.
    pub others: u32,
    /// The disk below a `dir` is full now and then, and the power fails soon after, so
    /// often; 0 where there is room.
    pub full_cuts: u32,
    /// The file system that outlives the target's process has limits of quotas now and then.
    pub has_limits: bool,
    /// Users of one machine prove who they are.
    pub users: Option<UsersPlan>,
}

/// Users who prove who they are by RPCSEC_GSS.
#[derive(Clone, Copy, Debug)]
pub struct UsersPlan {
    /// How many.
    pub users: u32,
    /// Calls of each.
    pub ops: u64,
    /// How long a context is good, in seconds.
    pub lives_s: u64,
    /// They end contexts themselves.
    pub ends_contexts: bool,
    /// Arguments and results are protected.
    pub only_protected: bool,
    /// Bits of their connection are flipped once all have contexts.
    pub is_exposed: bool,
    /// Mean time between two calls.
    pub think: Nanos,
}

/// An NFS client.
#[derive(Clone, Copy, Debug)]
pub struct NfsClientPlan {
    /// Connections of its session.
    pub lanes: usize,
    /// Requests at a time.
    pub slots: u32,
    /// Requests in all.
    pub ops: u64,
    /// It speaks nothing but TLS, behind a probe.
    pub tls: bool,
    /// It connects by RDMA, without TLS.
    pub rdma: Option<NfsRdmaPlan>,
}

/// How an NFS client connects by RDMA.
#[derive(Clone, Copy, Debug)]
pub struct NfsRdmaPlan {
    /// It insists on CRCs: bits of its connections may be flipped.
    pub crc: bool,
    /// An FPDU of it is no longer than a TCP segment on Ethernet.
    pub small_fpdus: bool,
    /// RDMA Reads of the server at a time.
    pub ird_max: u16,
}

impl NfsRdmaPlan {
    /// What such a client asks for.
    pub fn settings(&self) -> RdmaClientSettings {
        RdmaClientSettings {
            crc: match self.crc {
                true => CrcPolicy::Require,
                false => CrcPolicy::Off,
            },
            ird_max: self.ird_max,
            ulpdu_max: if self.small_fpdus { 1454 } else { u16::MAX },
        }
    }
}

impl NfsPlan {
    /// Whether a client speaks TLS.
    pub fn has_tls(&self) -> bool {
        self.clients.iter().any(|client| client.tls)
    }
}

/// What the iSCSI target takes.
#[derive(Clone, Copy, Debug)]
pub struct IscsiTargetPlan {
    /// Commands of a session.
    pub queue_depth: u16,
    /// MaxRecvDataSegmentLength.
    pub max_recv_data_segment: u32,
    /// FirstBurstLength.
    pub first_burst: u32,
    /// MaxBurstLength.
    pub max_burst: u32,
    /// MaxOutstandingR2T.
    pub r2ts_max: u16,
}

/// How often things go wrong: the weights of one fault against another.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// Mean time between two.
    pub interval: Nanos,
    /// How many there are at most.
    pub count_max: u64,
    /// A connection is reset.
    pub resets: u32,
    /// A connection stands still for a while.
    pub stalls: u32,
    /// A host vanishes, and returns.
    pub vanishes: u32,
    /// A reactor or a host is slow for a while.
    pub slow: u32,
    /// The target's machine stands still for up to 4 seconds.
    pub standstills: u32,
    /// The target's process is killed and started again.
    pub kills: u32,
    /// The power fails; then the target is started again.
    pub power_cuts: u32,
    /// What is served changes.
    pub changes: u32,
    /// A disk of a mirror fails everything, or does no more.
    pub cuts: u32,
}

/// Everything that a seed decides before the run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Reactors of the target.
    pub shards: usize,
    /// The volumes.
    pub volumes: Vec<VolumePlan>,
    /// Subsystems, each with a namespace for every volume.
    pub subsystems: usize,
    /// Listeners, each a way to every subsystem.
    pub listeners: usize,
    /// The one of them where only TLS is spoken.
    pub tls_listener: Option<usize>,
    /// Hosts come now and then in the name of another, or with another key or secret.
    pub odd_arrivals: bool,
    /// The group that hosts authenticate in.
    pub dhchap_group: DhchapGroup,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The network.
    pub net: NetSettings,
    /// The disks.
    pub disk: DiskSettings,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// Operations that hosts begin, all together.
    pub ops: u64,
    /// In-capsule data that the target takes, bytes.
    pub in_capsule_max: u32,
    /// Data of one H2CData PDU, bytes.
    pub h2c_data_max: u32,
    /// Alignment of data from hosts, as on the wire.
    pub cpda: u8,
    /// Data of one command, bytes.
    pub io_bytes_max: u32,
    /// How often, of a hundred, an operation goes to the same few blocks.
    pub hot_percent: u64,
    /// How often, of a hundred, a write is durable.
    pub fua_percent: u64,
    /// How often, of a hundred, an operation is a reservation command.
    pub reserve_percent: u64,
    /// How often, against the 35 of a write, hosts flush.
    pub flushes: u32,
    /// How often, against the 35 of a write, blocks are made unreadable.
    pub spoils: u32,
    /// How often, against the 35 of a write, hosts have blocks copied.
    pub copies: u32,
    /// How often, of a hundred turns, a host aborts one of its commands.
    pub abort_percent: u64,
    /// The target has less memory than hosts ask for.
    pub little_memory: bool,
    /// How long hosts stay connected when they have nothing to ask for any more.
    pub idle: Nanos,
    /// Mean time between two operations of a queue that has room.
    pub think: Nanos,
    /// The iSCSI target, beside the subsystems.
    pub iscsi: IscsiTargetPlan,
    /// NFS beside all that.
    pub nfs: Option<NfsPlan>,
    /// What a connection may spend in one turn, in units of [`machine::work`].
    pub turn_units_max: u64,
    /// A reactor of the target panics.
    pub panic: Option<PanicPlan>,
    /// The volume whose disk does not answer until everything is to work.
    pub dead_disk: Option<usize>,
    /// Documents are applied, in place of single changes.
    pub applies: Option<AppliesPlan>,
    /// Limits of what is read and written in a second.
    pub limits: Vec<LimitPlan>,
    /// Time between two attempts at a snapshot of all volumes; 0: none.
    pub snapshots: Nanos,
}

/// A limit of one volume, or of one host.
#[derive(Clone, Copy, Debug)]
pub struct LimitPlan {
    /// The volume that it is about, for all hosts.
    pub volume: Option<usize>,
    /// The host that it is about, on all volumes.
    pub host: Option<usize>,
    /// Reads and writes in a second.
    pub iops: u64,
    /// Bytes of them in a second.
    pub bytes: u64,
}

impl LimitPlan {
    /// Of a volume or a host of a plan.
    pub fn new(plan: &Plan, r: &mut Random) -> LimitPlan {
        let of_volume = r.percent(50);
        let volume = of_volume.then(|| r.below(plan.volumes.len() as u64) as usize);
        let host = (!of_volume).then(|| r.below(plan.hosts.len() as u64) as usize);
        // NBD clients have no names.
        let host = host.filter(|host| plan.hosts[*host].nbd.is_none());
        LimitPlan {
            volume: volume.or(host.is_none().then_some(0)),
            host,
            iops: r.pick(&[50, 500, 5_000]),
            bytes: r.pick(&[4 << 20, 64 << 20]),
        }
    }
}

/// Documents that are applied while hosts work.
#[derive(Clone, Copy, Debug)]
pub struct AppliesPlan {
    /// How many.
    pub count: u32,
    /// Mean time between two.
    pub interval: Nanos,
    /// Nothing else goes wrong: hosts see what plans say and nothing besides.
    pub is_exact: bool,
}

/// How a host authenticates.
#[derive(Clone, Copy, Debug)]
pub struct DhchapPlan {
    /// The hash that its secrets are transformed by.
    pub hash: DhchapHash,
    /// The controller has to authenticate, too.
    pub is_mutual: bool,
}

/// When a reactor panics.
#[derive(Clone, Copy, Debug)]
pub struct PanicPlan {
    /// Which.
    pub shard: usize,
    /// The time, from the start of the run.
    pub after: Nanos,
    /// Completions and letters of its turn that it still takes.
    pub events: usize,
}

/// Makes one seed's chance another's.
const NFS: u64 = 0x6e66_735f_6e66_735f;
/// What a connection may spend in one turn.
const TURN_UNITS: [u64; 4] = [8, 64, 512, machine::work::TURN_UNITS_MAX];
const TURNS: u64 = 0x7475_726e_7475_726e;

/// Names of a directory that is large: looking at each would take longer than a turn.
const OTHERS: u32 = 20_000;
const FLIPS: u64 = 0x666c_6970_666c_6970;
const STRIPES: u64 = 0x7374_7269_7065_7321;
const COPIES: u64 = 0x636f_7079_636f_7079;
const PANIC: u64 = 0x7061_6e69_6370_616e;
const APPLIES: u64 = 0x6170_706c_6965_7321;
const SNAPSHOTS: u64 = 0x736e_6170_7368_6f74;
const USERS_PROVE: u64 = 0x7573_6572_7573_6572;
const LIMITS: u64 = 0x6c69_6d69_7473_2121;
const FULL: u64 = 0x6675_6c6c_6675_6c6c;

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let r = &mut random;
        let ops = r.between(60, 260);
        let volumes = (0..r.between(1, 2)).map(|_| volume(r)).collect();
        let subsystems = r.weighted(&[(2, 1), (1, 2)]);
        let hosts = (0..r.weighted(&[(2, 1), (4, 2), (3, 3), (1, 4)]))
            .map(|_| host(r, subsystems))
            .collect();
        let mut plan = Plan {
            seed,
            shards: r.weighted(&[(3, 1), (3, 2), (1, 3)]),
            volumes,
            subsystems,
            listeners: r.weighted(&[(1, 1), (1, 2)]),
            tls_listener: None,
            odd_arrivals: true,
            dhchap_group: DhchapGroup::Null,
            hosts,
            net: NetSettings {
                latency: r.pick(&[2, 20, 20, 200]) * US,
                split_percent: r.pick(&[0, 10, 50, 90]),
                window_bytes: r.pick(&[1 << 10, 16 << 10, 256 << 10, 256 << 10]),
                zero_copy: r.one_in(3),
                flips: 0,
                cut: None,
            },
            disk: disk(r),
            faults: faults(r),
            ops,
            in_capsule_max: r.pick(&[0, 4096, 8192]),
            h2c_data_max: r.pick(&[4096, 8192, 1 << 20]),
            cpda: r.pick(&[0, 0, 3, 31]),
            io_bytes_max: r.pick(&[64 << 10, 128 << 10, 1 << 20]),
            hot_percent: r.pick(&[30, 60, 90]),
            fua_percent: r.pick(&[0, 10, 50]),
            reserve_percent: r.pick(&[0, 0, 2, 8]),
            abort_percent: r.pick(&[0, 0, 5, 20]),
            little_memory: r.one_in(10),
            flushes: r.pick(&[4, 4, 30]),
            spoils: r.pick(&[0, 0, 3]),
            copies: r.pick(&[0, 0, 8]),
            idle: 0,
            think: r.pick(&[0, 5, 50]) * US,
            iscsi: iscsi_target(r),
            nfs: None,
            turn_units_max: 0,
            panic: None,
            dead_disk: None,
            applies: None,
            limits: Vec::new(),
            snapshots: Random::new(seed ^ SNAPSHOTS).pick(&[0, 100, 1000]) * US,
        };
        plan.some_are_initiators(r);
        // Chance of its own, so that the rest of a seed is what it would be without.
        plan.nfs = nfs(&mut Random::new(seed ^ NFS));
        plan.turn_units_max = Random::new(seed ^ TURNS).pick(&TURN_UNITS);
        plan.flip_bits(&mut Random::new(seed ^ FLIPS));
        plan.meet_on_two_stripes(&mut Random::new(seed ^ STRIPES));
        plan.copy_beside_reservations(&mut Random::new(seed ^ COPIES));
        plan.flush_where_syncs_fail();
        plan.run_full(&mut Random::new(seed ^ FULL));
        plan.panic = panic(&mut Random::new(seed ^ PANIC), plan.shards);
        let r = &mut Random::new(seed ^ APPLIES);
        if r.one_in(4) {
            plan.apply_documents(r.percent(50), r);
        }
        plan.choose_transports(seed);
        plan.prove_users(&mut Random::new(seed ^ USERS_PROVE));
        plan.limit(&mut Random::new(seed ^ LIMITS))
    }
}

impl Plan {
    /// In some seeds volumes or hosts have limits.
    fn limit(mut self, r: &mut Random) -> Plan {
        if r.one_in(4) {
            let limits = (0..r.between(1, 2)).map(|_| LimitPlan::new(&self, r));
            self.limits = limits.collect();
        }
        self
    }

    /// A third of the hosts speaks iSCSI.
    fn some_are_initiators(&mut self, r: &mut Random) {
        for host in &mut self.hosts {
            if r.one_in(3) {
                host.subsystem = self.subsystems;
                host.iscsi = Some(iscsi(r));
            }
        }
    }

    /// In some seeds bits are flipped on their way. Some hosts have digests to see it
    /// by.
    fn flip_bits(&mut self, r: &mut Random) {
        if !r.one_in(4) {
            return;
        }
        self.net.flips = r.pick(&[100, 1000]);
        for host in &mut self.hosts {
            let digests = [
                (4, (true, true)),
                (3, (true, false)),
                (1, (false, true)),
                (1, (false, false)),
            ];
            let (header, data) = r.weighted(&digests);
            host.set_digests(header, data);
        }
    }

    /// In some seeds users prove who they are, on files in memory. Where bits are flipped, all
    /// that they ask for is protected, and contexts stay.
    pub fn prove_users(&mut self, r: &mut Random) {
        let is_exposed = self.net.flips > 0;
        let Some(nfs) = self.nfs.as_mut().filter(|_| r.one_in(4)) else {
            return;
        };
        (nfs.survives, nfs.is_dir, nfs.full_cuts) = (false, false, 0);
        nfs.has_limits = false;
        nfs.users = Some(UsersPlan {
            users: r.between(2, 3) as u32,
            ops: r.between(40, 160),
            lives_s: match is_exposed {
                true => 10_000,
                false => r.pick(&[1, 3, 10_000]),
            },
            ends_contexts: !is_exposed && r.percent(50),
            only_protected: is_exposed || r.percent(30),
            is_exposed,
            think: r.pick(&[20, 200, 20_000]) * US,
        });
    }

    /// Whether a host speaks TLS or authenticates.
    pub fn has_credentials(&self) -> bool {
        let mut hosts = self.hosts.iter();
        hosts.any(|host| host.tls.is_some() || host.dhchap.is_some())
    }

    /// What bits that are flipped may do to a host.
    pub fn harm(&self, host: usize) -> Harm {
        match self.hosts[host].digests() {
            _ if self.net.flips == 0 || self.hosts[host].speaks_tls() => Harm::Nothing,
            (true, true) => Harm::Nothing,
            (true, false) => Harm::Data,
            (false, _) => Harm::Anything,
        }
    }

    /// Gives each host that may do anything a volume that no other uses, behind those
    /// that all use.
    pub fn part_volumes(&mut self) {
        for host in 0..self.hosts.len() {
            if self.harm(host) == Harm::Anything {
                let own = VolumePlan {
                    hot: 0,
                    ..self.volumes[0]
                };
                self.hosts[host].volume = Some(self.volumes.len());
                self.volumes.push(own);
            }
        }
    }

    /// How many volumes all hosts use.
    pub fn shared_volumes(&self) -> usize {
        let hosts = 0..self.hosts.len();
        let own = hosts.filter(|&host| self.harm(host) == Harm::Anything);
        self.volumes.len() - own.count()
    }

    /// In some seeds a file is so large that its ranges lie in two of the stripes
    /// that locks are kept in, and all hosts want blocks on both sides.
    fn meet_on_two_stripes(&mut self, r: &mut Random) {
        const STRIPE_BLOCKS: u64 = (1 << 20) / 4096;
        let volume = &mut self.volumes[0];
        if volume.lies == Lies::File && r.one_in(8) {
            volume.block_bytes = 4096;
            volume.blocks = STRIPE_BLOCKS + r.between(8, 32);
            volume.hot = STRIPE_BLOCKS - 3;
        }
    }

    /// In some seeds hosts copy much from one volume to another while others reserve
    /// one of the two.
    fn copy_beside_reservations(&mut self, r: &mut Random) {
        if !r.one_in(8) {
            return;
        }
        let first = self.volumes[0];
        match self.volumes.get_mut(1) {
            Some(second) => second.block_bytes = first.block_bytes,
            None => self.volumes.push(VolumePlan {
                lies: Lies::Memory,
                ..first
            }),
        }
        (self.copies, self.reserve_percent) = (40, 8);
    }

    /// Where syncs fail there are mostly others beside them.
    fn flush_where_syncs_fail(&mut self) {
        if self.disk.sync_errors > 0 {
            (self.flushes, self.disk.sync_errors) = (60, 10);
        }
    }

    /// In some seeds the disk below a `dir` is full now and then, and the power fails
    /// while what it has taken of a write is new.
    fn run_full(&mut self, r: &mut Random) {
        if let Some(nfs) = self.nfs.as_mut().filter(|nfs| nfs.is_dir)
            && r.one_in(3)
        {
            nfs.full_cuts = r.pick(&[1, 3, 6]);
        }
    }

    /// Nothing goes wrong but that the target stands still once, for longer
    /// than hosts may be silent.
    pub fn only_stand_still(&mut self) {
        self.nothing_goes_wrong();
        (self.faults.count_max, self.faults.standstills) = (1, 1);
        // Then all that comes is Keep Alives.
        (self.ops, self.idle) = (60, 8 * S);
        for host in &mut self.hosts {
            (host.kato_ms, host.subsystem, host.iscsi) = (1000, 0, None);
            host.nbd = None;
        }
    }

    /// Documents are applied while hosts work; nothing else goes wrong where `is_exact`.
    pub fn apply_documents(&mut self, is_exact: bool, r: &mut Random) {
        if is_exact {
            self.nothing_goes_wrong();
        }
        // Hosts copy and reserve nothing, and lose no bits: what documents do shows.
        (self.copies, self.reserve_percent, self.net.flips) = (0, 0, 0);
        self.faults.changes = 0;
        self.ops *= 4;
        self.think = r.pick(&[20, 100]) * US;
        self.applies = Some(AppliesPlan {
            count: r.between(2, 6) as u32,
            interval: r.pick(&[MS / 2, 2 * MS]),
            is_exact,
        });
    }

    /// Nothing goes wrong but that the disk of the second volume never answers.
    /// Half of the hosts use that volume, the others the first one.
    pub fn only_dead_disk(&mut self) {
        self.nothing_goes_wrong();
        self.dead_disk = Some(1);
        (self.copies, self.reserve_percent) = (0, 0);
        self.volumes.resize(2, self.volumes[0]);
        for volume in &mut self.volumes {
            volume.lies = Lies::File;
        }
        self.hosts.resize(4, self.hosts[0]);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            (host.volume, host.entries) = (Some(number % 2), 16);
        }
    }

    /// Nothing goes wrong but that bits are flipped. Half of the hosts have both digests,
    /// the others none.
    pub fn only_flip_bits(&mut self) {
        self.nothing_goes_wrong();
        self.net.flips = 1000;
        self.hosts.resize(4, self.hosts[0]);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.set_digests(number % 2 == 0, number % 2 == 0);
        }
    }

    /// Nothing goes wrong but that a stream is cut of the only host, which connects by RDMA. It
    /// has one connection for I/O.
    pub fn only_cut(&mut self, cut: StreamCut) {
        self.nothing_goes_wrong();
        (self.copies, self.reserve_percent, self.spoils) = (0, 0, 0);
        (self.ops, self.think, self.net.cut) = (4, 0, Some(cut));
        (self.net.split_percent, self.io_bytes_max) = (50, 4096);
        (self.shards, self.listeners, self.subsystems) = (1, 1, 1);
        self.snapshots = 0;
        self.hosts.truncate(1);
        self.volumes.truncate(1);
        let volume = &mut self.volumes[0];
        (volume.lies, volume.block_bytes, volume.blocks) = (Lies::Memory, 512, 16);
        let host = &mut self.hosts[0];
        host.nbd = None;
        (host.rdma, host.tls, host.dhchap) = (true, None, None);
        (host.concatenates, host.subsystem) = (false, 0);
        (host.queues, host.kato_ms, host.in_capsule_max) = (1, 0, 512);
        if let Some(iscsi) = &mut host.iscsi {
            (iscsi.connections, iscsi.max_burst) = (1, 1024);
        }
    }

    fn nothing_goes_wrong(&mut self) {
        // Nor is a host refused.
        (self.tls_listener, self.odd_arrivals) = (None, false);
        self.faults = FaultPlan {
            interval: 3 * S,
            count_max: 0,
            resets: 0,
            stalls: 0,
            vanishes: 0,
            slow: 0,
            standstills: 0,
            kills: 0,
            power_cuts: 0,
            changes: 0,
            cuts: 0,
        };
        let disk = &mut self.disk;
        (disk.read_errors, disk.write_errors, disk.sync_errors) = (0, 0, 0);
        (disk.hangs, self.abort_percent, self.little_memory) = (0, 0, false);
        (self.net.latency, self.net.flips) = (2 * US, 0);
        (self.nfs, self.panic, self.applies) = (None, None, None);
        self.limits.clear();
    }

    /// Nothing goes wrong. Half of the hosts use the second volume, the others the first one,
    /// which is limited if they are to be.
    pub fn only_limit(&mut self, iops: Option<u64>) {
        self.nothing_goes_wrong();
        (self.copies, self.reserve_percent, self.spoils) = (0, 0, 0);
        (self.ops, self.think) = (1_200, 50 * US);
        self.io_bytes_max = 16 << 10;
        (self.net.split_percent, self.net.window_bytes) = (0, 256 << 10);
        self.turn_units_max = machine::work::TURN_UNITS_MAX;
        self.volumes.resize(2, self.volumes[0]);
        for volume in &mut self.volumes {
            volume.lies = Lies::Memory;
        }
        self.hosts.resize(4, self.hosts[0]);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            (host.volume, host.entries) = (Some(number % 2), 8);
        }
        let limit = |iops| LimitPlan {
            volume: Some(0),
            host: None,
            iops,
            bytes: 1 << 30,
        };
        self.limits = iops.map(limit).into_iter().collect();
    }
}

fn volume(r: &mut Random) -> VolumePlan {
    let block_bytes = r.pick(&[512, 4096]);
    let blocks = match block_bytes {
        512 => r.between(64, 512),
        _ => r.between(16, 96),
    };
    VolumePlan {
        lies: r.weighted(&[(3, Lies::File), (2, Lies::Memory)]),
        made: Made::File,
        is_checksummed: false,
        is_encrypted: false,
        block_bytes,
        blocks,
        hot: 0,
    }
}

fn host(r: &mut Random, subsystems: usize) -> HostPlan {
    HostPlan {
        subsystem: r.below(subsystems as u64) as usize,
        queues: r.between(1, 3) as u16,
        entries: r.pick(&[2, 4, 8, 16]),
        header_digest: r.one_in(3),
        data_digest: r.one_in(3),
        hpda: r.pick(&[0, 0, 3, 31]),
        maxr2t: r.pick(&[0, 1, 3]),
        part_in_capsule: r.one_in(3),
        no_flow_control: r.percent(50),
        in_capsule_max: r.pick(&[0, 512, 8192]),
        kato_ms: r.pick(&[0, 2000, 5000]),
        iscsi: None,
        nbd: None,
        volume: None,
        tls: None,
        dhchap: None,
        concatenates: false,
        rdma: false,
    }
}

fn iscsi(r: &mut Random) -> IscsiPlan {
    let digest = |r: &mut Random| {
        let all = [
            Digest::Never,
            Digest::Never,
            Digest::Preferred,
            Digest::Required,
        ];
        r.pick(&all)
    };
    IscsiPlan {
        connections: r.weighted(&[(3, 1), (1, 2), (1, 3)]),
        header_digest: digest(r),
        data_digest: digest(r),
        max_recv_data_segment: r.pick(&[512, 1001, 8192, 65_536, 262_144]),
        first_burst: r.pick(&[512, 4096, 65_536]),
        max_burst: r.pick(&[512, 8192, 262_144, 1 << 20]),
        initial_r2t: r.percent(50),
        immediate_data: r.percent(60),
        max_outstanding_r2t: r.pick(&[1, 2, 8]),
    }
}

fn iscsi_target(r: &mut Random) -> IscsiTargetPlan {
    IscsiTargetPlan {
        queue_depth: r.pick(&[1, 2, 8, 128]),
        max_recv_data_segment: r.pick(&[512, 1002, 8192, 262_144]),
        first_burst: r.pick(&[512, 8192, 65_536]),
        max_burst: r.pick(&[4096, 65_536, 1 << 20]),
        r2ts_max: r.pick(&[1, 2, 8]),
    }
}

fn nfs(r: &mut Random) -> Option<NfsPlan> {
    if !r.one_in(3) {
        return None;
    }
    let client = |r: &mut Random| NfsClientPlan {
        lanes: r.weighted(&[(2, 1), (2, 2), (1, 3)]),
        slots: r.pick(&[1, 2, 4, 8]),
        ops: r.between(40, 160),
        tls: false,
        rdma: None,
    };
    let mut plan = NfsPlan {
        clients: (0..r.between(1, 3)).map(|_| client(r)).collect(),
        survives: r.percent(80),
        is_dir: false,
        block_bytes: r.pick(&[512, 4096, 12_000]),
        blocks: r.pick(&[4, 8, 12]),
        lease_ms: r.pick(&[2000, 5000, 20_000]),
        grace_ms: r.pick(&[1000, 3000]),
        late_percent: r.pick(&[0, 20, 60]),
        late: r.pick(&[50 * US, MS, 10 * MS]),
        think: r.pick(&[20, 200, 1000]) * US,
        others: r.weighted(&[(7, 0), (1, OTHERS)]),
        full_cuts: 0,
        has_limits: false,
        users: None,
    };
    // `dir` has none of the others.
    plan.is_dir = plan.survives && plan.others == 0 && r.one_in(2);
    plan.has_limits = plan.survives && !plan.is_dir && r.one_in(2);
    Some(plan)
}

/// A fifth of the seeds have a reactor that panics.
fn panic(r: &mut Random, shards: usize) -> Option<PanicPlan> {
    let panic = PanicPlan {
        shard: r.below(shards as u64) as usize,
        after: r.pick(&[MS, 5 * MS, 20 * MS]),
        events: r.below(4) as usize,
    };
    r.one_in(5).then_some(panic)
}

fn disk(r: &mut Random) -> DiskSettings {
    let has_errors = r.one_in(4);
    let some = |r: &mut Random, rate: u64| if r.one_in(2) { rate } else { 0 };
    DiskSettings {
        latency: r.pick(&[5, 50, 500]) * US,
        read_errors: if has_errors { some(r, 40) } else { 0 },
        write_errors: if has_errors { some(r, 40) } else { 0 },
        sync_errors: if has_errors { some(r, 20) } else { 0 },
        short: r.pick(&[0, 3, 30]),
        hangs: if r.one_in(4) { 60 } else { 0 },
        writebacks: r.pick(&[0, 2, 10]),
        interrupts: r.pick(&[0, 0, 50]),
        punches: r.percent(80),
        zeroes: r.percent(80),
    }
}

fn faults(r: &mut Random) -> FaultPlan {
    let some = |r: &mut Random| {
        if r.percent(60) {
            r.between(1, 4) as u32
        } else {
            0
        }
    };
    FaultPlan {
        interval: r.pick(&[MS / 2, 2 * MS, 10 * MS]),
        count_max: r.pick(&[0, 3, 10, 30]),
        resets: some(r),
        stalls: some(r),
        vanishes: some(r),
        slow: some(r),
        standstills: if r.one_in(6) { 1 } else { 0 },
        kills: if r.one_in(3) { 1 } else { 0 },
        power_cuts: if r.one_in(2) { 1 } else { 0 },
        changes: some(r),
        cuts: 0,
    }
}
