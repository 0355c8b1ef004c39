//! What clients do to reach what is served: the commands of each system.

mod nbd;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nvmf::{DISCOVERY_NQN, HostTerms};
use server::{ListenerSpec, SubsystemSpec};

pub use self::nbd::NbdProof;

/// Something that is served, and where.
#[derive(Clone, Debug)]
pub struct Reached<'a> {
    /// What.
    pub what: ReachedObject<'a>,
    /// Where, as the client can connect to it.
    pub address: SocketAddr,
    /// How this program is started there.
    pub weft: &'a str,
}

/// What a client reaches.
#[derive(Clone, Copy, Debug)]
pub enum ReachedObject<'a> {
    /// An NVMe subsystem.
    Subsystem {
        /// Its NQN.
        nqn: &'a str,
        /// What its hosts prove themselves by.
        proof: NvmeProof,
    },
    /// A logical unit of an iSCSI target.
    Unit {
        /// The name of the target.
        target: &'a str,
        /// Its number.
        lun: u16,
        /// The user that initiators prove to be.
        user: Option<&'a str>,
    },
    /// The path of an export.
    Export(&'a str),
    /// The name of an NBD export, and what its clients prove themselves by.
    NbdExport(&'a str, NbdProof<'a>),
}

/// What a host proves itself by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostProof {
    /// A key for TLS.
    pub tls: bool,
    /// A secret of DH-HMAC-CHAP.
    pub dhchap: bool,
}

impl HostProof {
    /// All there are, that of a host that proves nothing first.
    const ALL: [HostProof; 4] = [
        HostProof::new(false, false),
        HostProof::new(true, false),
        HostProof::new(false, true),
        HostProof::new(true, true),
    ];

    /// Of a host that has a key for TLS, and of one that has a secret.
    #[must_use]
    pub const fn new(tls: bool, dhchap: bool) -> HostProof {
        HostProof { tls, dhchap }
    }

    /// What it has, behind a command that others have, too.
    fn comment(self) -> &'static str {
        match (self.tls, self.dhchap) {
            (false, false) => "",
            (true, false) => "  # of a host that has a key in the configuration",
            (false, true) => "  # of a host that has a secret in the configuration",
            (true, true) => "  # of a host that has a key and a secret in the configuration",
        }
    }
}

/// What hosts of a subsystem prove themselves by at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeProof {
    /// Which of [`HostProof::ALL`] there are.
    has: [bool; HostProof::ALL.len()],
    /// Discovery is told over TLS alone.
    pub discovers_by_tls: bool,
    /// A host that is not listed is not let in, whatever it proves.
    pub is_listed: bool,
    /// By RDMA, as the listener refuses NVMe/TCP.
    pub is_by_rdma: bool,
}

impl Default for NvmeProof {
    /// Nothing, whichever host it is.
    fn default() -> NvmeProof {
        NvmeProof::new(&[HostProof::default()])
    }
}

impl NvmeProof {
    /// There are hosts that prove themselves by each of these.
    #[must_use]
    pub fn new(hosts: &[HostProof]) -> NvmeProof {
        NvmeProof {
            has: HostProof::ALL.map(|proof| hosts.contains(&proof)),
            discovers_by_tls: false,
            is_listed: false,
            is_by_rdma: false,
        }
    }

    /// That of the hosts of `subsystem` at `listener`.
    #[must_use]
    pub fn of(subsystem: &SubsystemSpec, listener: &ListenerSpec) -> NvmeProof {
        let proof = |tls, dhchap| HostProof::new(tls || listener.requires_tls, dhchap);
        let terms = subsystem.terms.iter();
        let mut hosts: Vec<_> = terms
            .map(|terms| proof(terms.needs_tls(), terms.dhchap.is_some()))
            .collect();
        let listed = subsystem.hosts.as_ref().map(Vec::len);
        let has_key = subsystem
            .terms
            .iter()
            .any(|terms| terms.nqn == HostTerms::ANY_HOST);
        if listed.is_none_or(|listed| listed > hosts.len()) && !has_key || hosts.is_empty() {
            hosts.push(proof(false, false));
        }
        if listener.rdma.is_only() {
            // RDMA has no TLS: a host with a key for it cannot connect.
            hosts.retain(|host| !host.tls);
        }
        NvmeProof {
            discovers_by_tls: listener.requires_tls,
            is_listed: subsystem.hosts.is_some(),
            is_by_rdma: listener.rdma.is_only(),
            ..NvmeProof::new(&hosts)
        }
    }

    /// The ways there are; of the first the command stands without a comment where it is the only
    /// one, or proves nothing.
    fn ways(self) -> impl Iterator<Item = (HostProof, &'static str)> {
        let there = HostProof::ALL.into_iter().zip(self.has);
        let there = there.filter_map(|(proof, is_there)| is_there.then_some(proof));
        let is_only = self.has.iter().filter(|has| **has).count() == 1;
        there.map(move |proof| (proof, if is_only { "" } else { proof.comment() }))
    }
}

/// What a Linux host does with its copy of a key for TLS, in `file`, before it connects.
/// `host` and `file` are as a shell takes them.
#[must_use]
pub fn tls_key_steps(host: &str, subsystem: &str, file: &str) -> Vec<ClientStep> {
    let insert = |command: &str, key: &str, title: &str| {
        let lines = [subsystem, DISCOVERY_NQN].map(|subnqn| {
            format!("{command} --identity=1 --hostnqn={host} --subsysnqn={subnqn} {key}")
        });
        step(title, &lines)
    };
    vec![
        insert(
            "nvme keys insert-tls-psk",
            &format!("< {file}"),
            "Its key, as root, with nvme-cli 3, and with tlshd (ktls-utils) running",
        ),
        insert(
            "nvme check-tls-key --insert",
            &format!("--keydata=\"$(head -n1 {file})\""),
            "The same with nvme-cli 2, which takes a key as an argument alone: whoever is logged in \
             on the host may see it meanwhile",
        ),
    ]
}

/// What a Linux host does with its copy of a secret, the first line of `file`, once.
#[must_use]
pub fn dhchap_secret_steps(host: &str, subsystem: &str, file: &str) -> Vec<ClientStep> {
    let at = ("tcp", "ADDRESS", 4420);
    let proof = (HostProof::new(false, true), "");
    secret_steps(at, (host, subsystem), file, proof)
}

/// What a Linux host with a secret in `secret_file` writes once, so that no argument of nvme-cli
/// has it.
fn secret_steps(
    (by, ip, port): (&str, &str, u16),
    (host_nqn, nqn): (&str, &str),
    secret_file: &str,
    (host, comment): (HostProof, &str),
) -> Vec<ClientStep> {
    let secret = format!("$(head -n1 {secret_file})");
    let tls = |line: &str| {
        if host.tls {
            line.to_owned()
        } else {
            String::new()
        }
    };
    let file = |title: &str, content: String| {
        let lines = format!("(umask 077; cat > {SECRET_FILE} <<END\n{content}\nEND\n)");
        let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        step(format!("{title}{comment}"), &lines)
    };
    let (json_tls, ini_tls) = (tls(", \"tls\": true"), tls("tls = true\n"));
    vec![
        file(
            "Its secret, with nvme-cli 2, in a file for root alone; before 2.11 nvme-cli takes it \
             as an argument alone (--dhchap-secret)",
            format!(
                "[{{\"hostnqn\": \"{host_nqn}\", \"hostid\": \"$(cat /etc/nvme/hostid)\",\n  \
                 \"dhchap_key\": \"{secret}\",\n  \
                 \"subsystems\": [{{\"nqn\": \"{nqn}\", \"ports\": [\n    \
                 {{\"transport\": \"{by}\", \"traddr\": \"{ip}\", \"trsvcid\": \"{port}\"{json_tls}}}]}}]}}]"
            ),
        ),
        file(
            "The same with nvme-cli 3",
            format!(
                "[Subsystem]\nnqn = {nqn}\n{ini_tls}kxchap-secret = {secret}\n\
                 controller = transport={by};traddr={ip};trsvcid={port}"
            ),
        ),
    ]
}

/// What runs on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSystem {
    /// Linux.
    Linux,
    /// VMware ESXi.
    Esxi,
    /// Windows.
    Windows,
    /// Whatever runs programs that speak the protocol themselves.
    Other,
}

impl ClientSystem {
    /// All there are.
    pub const ALL: [ClientSystem; 4] = [
        ClientSystem::Linux,
        ClientSystem::Esxi,
        ClientSystem::Windows,
        ClientSystem::Other,
    ];

    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ClientSystem::Linux => "Linux",
            ClientSystem::Esxi => "VMware ESXi",
            ClientSystem::Windows => "Windows",
            ClientSystem::Other => "other",
        }
    }
}

/// Something to be done on a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStep {
    /// What it is for.
    pub title: String,
    /// Commands, or lines of a file.
    pub lines: Vec<String>,
}

fn step(title: impl Into<String>, lines: &[String]) -> ClientStep {
    ClientStep {
        title: title.into(),
        lines: lines.to_vec(),
    }
}

impl Reached<'_> {
    /// What is done on a client of this system, the connecting first.
    #[must_use]
    pub fn steps(&self, system: ClientSystem) -> Vec<ClientStep> {
        match (self.what, system) {
            (ReachedObject::Subsystem { proof, .. }, _) if proof.ways().next().is_none() => {
                vec![step(
                    "No host can connect: all have keys for TLS, and the listener is for RDMA \
                     alone, which has no TLS. Give them one without `rdma = \"only\"`",
                    &[],
                )]
            }
            (ReachedObject::Subsystem { nqn, proof }, ClientSystem::Linux) => {
                self.nvme_linux(nqn, proof)
            }
            (ReachedObject::Subsystem { nqn, proof }, ClientSystem::Esxi) => {
                self.nvme_esxi(nqn, proof)
            }
            (ReachedObject::Subsystem { .. }, ClientSystem::Windows) => vec![step(
                "weft was not tried with an NVMe/TCP initiator of Windows: serve the volume as a \
                 LUN of an iSCSI target",
                &[],
            )],
            (ReachedObject::Subsystem { nqn, proof }, ClientSystem::Other) => {
                self.nvme_own(nqn, proof)
            }
            (ReachedObject::Unit { target, user, .. }, ClientSystem::Linux) => {
                self.iscsi_linux(target, user)
            }
            (ReachedObject::Unit { user, .. }, ClientSystem::Esxi) => self.iscsi_esxi(user),
            (ReachedObject::Unit { target, user, .. }, ClientSystem::Windows) => {
                self.iscsi_windows(target, user)
            }
            (ReachedObject::Unit { target, lun, .. }, ClientSystem::Other) => {
                self.iscsi_own(target, lun)
            }
            (ReachedObject::Export(path), ClientSystem::Linux) => self.nfs_linux(path),
            (ReachedObject::Export(path), ClientSystem::Esxi) => self.nfs_esxi(path),
            (ReachedObject::Export(_), ClientSystem::Windows) => vec![step(
                "the NFS client of Windows asks a portmapper on port 111, which weft is where a \
                 [[listener]] there has `programs = [\"portmap\"]`; weft was not tried with it",
                &[],
            )],
            (ReachedObject::Export(path), ClientSystem::Other) => self.nfs_own(path),
            (ReachedObject::NbdExport(name, proof), ClientSystem::Linux) => {
                self.nbd_linux(name, proof)
            }
            (ReachedObject::NbdExport(..), ClientSystem::Esxi | ClientSystem::Windows) => {
                vec![step("It has no NBD: take NVMe/TCP, iSCSI or NFS", &[])]
            }
            (ReachedObject::NbdExport(name, proof), ClientSystem::Other) => {
                self.nbd_own(name, proof)
            }
        }
    }

    fn nvme_linux(&self, nqn: &str, proof: NvmeProof) -> Vec<ClientStep> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let discovers_by = if proof.discovers_by_tls {
            TLS_OPTION
        } else {
            ""
        };
        let by = if proof.is_by_rdma { "rdma" } else { "tcp" };
        let connect = proof.ways().map(|(HostProof { tls, dhchap }, comment)| {
            let tls = if tls { TLS_OPTION } else { "" };
            match dhchap {
                true => format!("nvme connect --config {SECRET_FILE}{comment}"),
                false => format!("nvme connect -t {by} -a {ip} -s {port} -n {nqn}{tls}{comment}"),
            }
        });
        let first = [
            format!("modprobe nvme-{by}"),
            format!("nvme discover -t {by} -a {ip} -s {port}{discovers_by}"),
        ];
        let lines: Vec<_> = first.into_iter().chain(connect).collect();
        let mut steps = vec![step("From Linux, as root, with nvme-cli", &lines)];
        for way in proof.ways().filter(|(host, _)| host.dhchap) {
            let (at, names) = ((by, &*ip.to_string(), port), (HOST_NQN_THERE, nqn));
            steps.extend(secret_steps(at, names, "host.dhchap", way));
        }
        if proof.ways().any(|(host, _)| host.tls) {
            let title = "A key for TLS, made here once for each host: it prints what both sides do";
            let new = format!("weft key new host.psk --host {HOST_NQN} --subsystem {nqn}");
            steps.push(step(title, &[new]));
            steps.extend(tls_key_steps(HOST_NQN_THERE, nqn, "host.psk"));
        }
        steps.extend([
            step(
                "At every start: a line of /etc/nvme/discovery.conf, and two commands once",
                &[
                    format!("--transport={by} --traddr={ip} --trsvcid={port}{discovers_by}"),
                    format!("echo nvme-{by} > /etc/modules-load.d/nvme-{by}.conf"),
                    "systemctl enable nvmf-autoconnect.service".to_owned(),
                ],
            ),
            step(
                "With several paths, used in turn: a line of \
                 /etc/udev/rules.d/71-nvme-weft.rules",
                &[format!(
                    "ACTION==\"add\", SUBSYSTEM==\"nvme-subsystem\", ATTR{{subsysnqn}}==\"{nqn}\", \
                     ATTR{{iopolicy}}=\"round-robin\""
                )],
            ),
            fstab_of_block(),
        ]);
        steps
    }

    fn nvme_esxi(&self, nqn: &str, proof: NvmeProof) -> Vec<ClientStep> {
        let is_open = proof.ways().any(|(host, _)| host == HostProof::default());
        if !is_open {
            let title = "weft was not tried with TLS or DH-HMAC-CHAP of ESXi: name its host in \
                         `hosts`, which asks neither, and give it a [[listener]] without \
                         `tls = \"required\"`";
            return vec![step(title, &[])];
        }
        let (ip, port) = (self.address.ip(), self.address.port());
        vec![
            step(
                "On ESXi, with the network card, the VMkernel port and the adapter of the host in \
                 the place of vmnic1, vmk1 and vmhba65",
                &[
                    "esxcli nvme fabrics enable --protocol TCP --device vmnic1".to_owned(),
                    "esxcli network ip interface tag add --interface-name vmk1 --tagname NVMeTCP"
                        .to_owned(),
                    format!(
                        "esxcli nvme fabrics discover --adapter vmhba65 --ip-address {ip} \
                         --port-number {port}"
                    ),
                    format!(
                        "esxcli nvme fabrics connect --adapter vmhba65 --ip-address {ip} \
                         --port-number {port} --subsystem-nqn {nqn}"
                    ),
                ],
            ),
            step(
                "The name of the host, for `hosts` of the subsystem",
                &["esxcli nvme info get".to_owned()],
            ),
        ]
    }

    fn nvme_own(&self, nqn: &str, proof: NvmeProof) -> Vec<ClientStep> {
        let (weft, address) = (self.weft, self.address);
        let options = |HostProof { tls, dhchap }| {
            let is_named = tls || dhchap || proof.is_listed;
            let of = |is_there, option: &str| match is_there {
                true => option.to_owned(),
                false => String::new(),
            };
            of(is_named, &format!(" -q {HOST_NQN}"))
                + &of(tls, " --psk-file host.psk")
                + &of(dhchap, " --dhchap-secret-file host.dhchap")
        };
        // Discovery asks for no secret, and tells a host of what it may see.
        let discovers_by = options(HostProof::new(proof.discovers_by_tls, false));
        let (by, discover_by) = match proof.is_by_rdma {
            true => ("rdma", "rdma://"),
            false => ("nvme-tcp", ""),
        };
        let discover = format!("{weft} discover {discover_by}{address}{discovers_by}");
        let perf = proof.ways().map(|(host, comment)| {
            let options = options(host);
            format!("{weft} perf {by}://{address}/{nqn}{options} --rw randread --bs 4k{comment}")
        });
        let lines: Vec<_> = [discover].into_iter().chain(perf).collect();
        vec![step("With weft's own initiator, as anybody", &lines)]
    }

    fn iscsi_linux(&self, target: &str, user: Option<&str>) -> Vec<ClientStep> {
        let address = self.address;
        let node = format!("iscsiadm -m node -T {target} -p {address}");
        let wants = match user {
            Some(_) => " (it wants CHAP: docs/iscsi.md says where that is set)",
            None => "",
        };
        let mut steps = vec![step(
            format!("From Linux, as root, with open-iscsi{wants}"),
            &[
                format!("iscsiadm -m discovery -t sendtargets -p {address}"),
                format!("{node} --login"),
            ],
        )];
        if let Some(user) = user {
            let set = |name: &str, value: &str| {
                format!("{node} -o update -n node.session.auth.{name} -v {value}")
            };
            steps.push(step(
                format!(
                    "Its CHAP, between discovery and login; SECRET is {}",
                    secret_of(target)
                ),
                &[
                    set("authmethod", "CHAP"),
                    set("chap_algs", "SHA3-256,SHA256"),
                    set("username", &quoted(user)),
                    set("password", "SECRET"),
                ],
            ));
        }
        steps.push(step(
            "At every start",
            &[format!("{node} -o update -n node.startup -v automatic")],
        ));
        steps.push(step(
            "With several paths: a part of /etc/multipath.conf",
            &MULTIPATH.map(str::to_owned),
        ));
        steps.push(fstab_of_block());
        steps
    }

    fn iscsi_esxi(&self, user: Option<&str>) -> Vec<ClientStep> {
        let address = self.address;
        let mut lines = vec![
            "esxcli iscsi software set --enabled=true".to_owned(),
            format!(
                "esxcli iscsi adapter discovery sendtarget add --adapter=vmhba64 \
                 --address={address}"
            ),
        ];
        if let Some(user) = user {
            lines.push(format!(
                "esxcli iscsi adapter auth chap set --adapter=vmhba64 --direction=uni \
                 --level=required --authname={} --secret=SECRET",
                quoted(user)
            ));
        }
        lines.push("esxcli storage core adapter rescan --adapter=vmhba64".to_owned());
        vec![
            step(
                "On ESXi, with the adapter of the host in the place of vmhba64",
                &lines,
            ),
            step(
                "With several paths, used in turn",
                &[
                    "esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --psp=VMW_PSP_RR \
                   --vendor=WEFT --model=volume --claim-option=tpgs_on"
                        .to_owned(),
                ],
            ),
        ]
    }

    fn iscsi_windows(&self, target: &str, user: Option<&str>) -> Vec<ClientStep> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let chap = user.map_or_else(String::new, |user| {
            // PowerShell takes what is between these as it is, and two of them for one.
            let user = user.replace('\'', "''");
            format!(" -AuthenticationType ONEWAYCHAP -ChapUsername '{user}' -ChapSecret SECRET")
        });
        let connect =
            format!("Connect-IscsiTarget -NodeAddress {target} -IsPersistent $true{chap}");
        vec![
            step(
                "In PowerShell, as administrator",
                &[
                    "Set-Service MSiSCSI -StartupType Automatic; Start-Service MSiSCSI".to_owned(),
                    format!(
                        "New-IscsiTargetPortal -TargetPortalAddress {ip} \
                         -TargetPortalPortNumber {port}"
                    ),
                    connect.clone(),
                ],
            ),
            step(
                "With several paths and MPIO, instead of the last line: the first two once, then \
                 the last for the address of each path",
                &[
                    "New-MSDSMSupportedHW -VendorId WEFT -ProductId volume".to_owned(),
                    "Update-MPIOClaimedHW -Confirm:$false".to_owned(),
                    format!("{connect} -IsMultipathEnabled $true -TargetPortalAddress {ip}"),
                ],
            ),
        ]
    }

    fn iscsi_own(&self, target: &str, lun: u16) -> Vec<ClientStep> {
        let (weft, address) = (self.weft, self.address);
        let url = format!("iscsi://{address}/{target}/{lun}");
        vec![step(
            "With QEMU, or weft's own initiator, as anybody",
            &[
                format!("qemu-img info {url}"),
                format!("qemu-system-x86_64 -drive file={url},format=raw"),
                format!("{weft} discover iscsi://{address}"),
                format!("{weft} perf {url} --rw randread --bs 4k"),
            ],
        )]
    }

    fn nfs_linux(&self, path: &str) -> Vec<ClientStep> {
        let (host, proto, port) = self.nfs();
        let path = quoted(path);
        let own = match port {
            NFS_PORT => String::new(),
            _ => format!(",port={port}"),
        };
        let options = format!("vers=4.2,proto={proto},nconnect=4{own}");
        vec![
            step(
                "From Linux, as root, with nfs-common; the second is NFSv3, whose locks hold on \
                 that client alone",
                &[
                    format!("mount -t nfs4 -o {options} {host}:{path} /mnt"),
                    format!(
                        "mount -t nfs -o vers=3,proto={proto},nolock,port={port},mountport={port},\
                         mountproto={proto} {host}:{path} /mnt"
                    ),
                ],
            ),
            step(
                "At every start: a line of /etc/fstab",
                &[format!(
                    "{host}:{path}  /mnt  nfs4  {options},_netdev  0  0"
                )],
            ),
        ]
    }

    fn nfs_esxi(&self, path: &str) -> Vec<ClientStep> {
        let (host, _, port) = self.nfs();
        let mut title = "On ESXi, where hosts come as root: the export wants `squash = \"none\"` \
                         for their addresses"
            .to_owned();
        if port != NFS_PORT {
            title += "; it asks at port 2049 alone, so a listener has to be there";
        }
        let name = quoted(path.rsplit('/').next().unwrap_or_default());
        let path = quoted(path);
        vec![step(
            title,
            &[format!(
                "esxcli storage nfs41 add --hosts {host} --share {path} --volume-name {name}"
            )],
        )]
    }

    fn nfs_own(&self, path: &str) -> Vec<ClientStep> {
        let (host, _, port) = self.nfs();
        let url_port = match port {
            NFS_PORT => String::new(),
            _ => format!("&nfsport={port}"),
        };
        vec![step(
            "With libnfs, as anybody",
            &[format!("nfs-ls 'nfs://{host}{path}?version=4{url_port}'")],
        )]
    }

    fn nfs(&self) -> (String, &'static str, u16) {
        let port = self.address.port();
        match self.address.ip() {
            IpAddr::V4(ip) => (ip.to_string(), "tcp", port),
            IpAddr::V6(ip) => (format!("[{ip}]"), "tcp6", port),
        }
    }
}

/// How nvme-cli is told to speak TLS.
const TLS_OPTION: &str = " --tls";
/// The file by which nvme-cli is told the secret of a host.
const SECRET_FILE: &str = "host.conf";
/// Stands for the NQN of a host.
const HOST_NQN: &str = "HOSTNQN";
/// The same on the host itself.
const HOST_NQN_THERE: &str = "$(cat /etc/nvme/hostnqn)";

/// Where clients look that are not told.
const NFS_PORT: u16 = 2049;

const MULTIPATH: [&str; 12] = [
    "devices {",
    "    device {",
    "        vendor                \"WEFT\"",
    "        product               \"volume\"",
    "        path_grouping_policy  group_by_prio",
    "        prio                  alua",
    "        path_checker          tur",
    "        path_selector         \"service-time 0\"",
    "        failback              immediate",
    "        no_path_retry         queue",
    "    }",
    "}",
];

/// An address that the machine which listens on it can connect to itself.
#[must_use]
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A word of a command for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._:@-+,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Where a secret stands; never the secret.
fn secret_of(target: &str) -> String {
    format!("`secret`, or what `secret_file` has, of `chap` in the [[iscsi.target]] {target}")
}

fn fstab_of_block() -> ClientStep {
    step(
        "A file system of it at every start: a line of /etc/fstab; `blkid` prints its UUID",
        &["UUID=...  /mnt  ext4  _netdev,nofail  0  2".to_owned()],
    )
}

#[cfg(test)]
mod tests {
    use nvmf::HostTerms;

    use super::*;

    const NQN: &str = "nqn.2026-01.org.example:disks";

    fn lines(what: ReachedObject, system: ClientSystem) -> String {
        let reached = Reached {
            what,
            address: "192.0.2.1:3260".parse().expect("an address"),
            weft: "weft",
        };
        let steps = reached.steps(system).into_iter();
        let lines: Vec<_> = steps.flat_map(|step| step.lines).collect();
        lines.join("\n")
    }

    #[test]
    fn user_that_a_shell_would_take_for_a_command_is_quoted_and_no_secret_is_told() {
        let unit = ReachedObject::Unit {
            target: "iqn.2026-01.org.example:disks",
            lun: 0,
            user: Some("a'; reboot"),
        };
        let linux = lines(unit, ClientSystem::Linux);
        assert!(linux.contains("username -v 'a'\\''; reboot'"), "{linux}");
        assert!(linux.contains("password -v SECRET"), "{linux}");
        let esxi = lines(unit, ClientSystem::Esxi);
        assert!(
            esxi.contains("--authname='a'\\''; reboot' --secret=SECRET"),
            "{esxi}"
        );
        let windows = lines(unit, ClientSystem::Windows);
        assert!(
            windows.contains("-ChapUsername 'a''; reboot' -ChapSecret SECRET"),
            "{windows}"
        );
    }

    #[test]
    fn every_system_is_told_something_of_everything() {
        let all = [
            ReachedObject::Subsystem {
                nqn: NQN,
                proof: NvmeProof::default(),
            },
            ReachedObject::Unit {
                target: "iqn.2026-01.org.example:disks",
                lun: 7,
                user: None,
            },
            ReachedObject::Export("/a file"),
        ];
        for what in all {
            for system in ClientSystem::ALL {
                let reached = Reached {
                    what,
                    address: "[2001:db8::1]:2050".parse().expect("an address"),
                    weft: "weft",
                };
                let steps = reached.steps(system);
                assert!(!steps.is_empty(), "{what:?}, {}", system.name());
                assert!(steps.iter().all(|step| !step.title.is_empty()));
            }
        }
        let mount = lines(all[2], ClientSystem::Linux);
        assert!(mount.contains("192.0.2.1:'/a file' /mnt"), "{mount}");
    }

    const TLS: HostProof = HostProof::new(true, false);
    const DHCHAP: HostProof = HostProof::new(false, true);

    fn of_subsystem(proof: NvmeProof, system: ClientSystem) -> String {
        lines(ReachedObject::Subsystem { nqn: NQN, proof }, system)
    }

    #[test]
    fn hosts_of_a_listener_for_rdma_alone_are_told_to_come_by_rdma() {
        let proof = NvmeProof {
            is_by_rdma: true,
            ..NvmeProof::new(&[DHCHAP])
        };
        let linux = of_subsystem(proof, ClientSystem::Linux);
        let own = of_subsystem(proof, ClientSystem::Other);
        for text in [&linux, &own] {
            assert!(!text.contains("tcp"), "{text}");
        }
        assert!(linux.contains("nvme discover -t rdma"), "{linux}");
        assert!(linux.contains("\"transport\": \"rdma\""), "{linux}");
        assert!(own.contains("discover rdma://192.0.2.1:3260"), "{own}");
        assert!(own.contains("perf rdma://192.0.2.1:3260/"), "{own}");
        // Hosts with keys for TLS alone.
        let proof = NvmeProof {
            is_by_rdma: true,
            ..NvmeProof::new(&[])
        };
        for system in ClientSystem::ALL {
            let reached = Reached {
                what: ReachedObject::Subsystem { nqn: NQN, proof },
                address: "192.0.2.1:3260".parse().expect("an address"),
                weft: "weft",
            };
            let [step] = &reached.steps(system)[..] else {
                panic!("{}", system.name());
            };
            assert!(step.lines.is_empty() && step.title.contains("No host can connect"));
        }
    }

    #[test]
    fn hosts_with_keys_are_told_to_speak_tls_and_others_are_not() {
        let plain = of_subsystem(NvmeProof::default(), ClientSystem::Linux);
        for part in ["--tls", "tls-key", "dhchap", "weft key"] {
            assert!(!plain.contains(part), "{part}: {plain}");
        }
        let connect = format!("nvme connect -t tcp -a 192.0.2.1 -s 3260 -n {NQN}");
        for (is_some, discovers_by_tls) in [(true, false), (false, false), (false, true)] {
            let hosts = [TLS, HostProof::default()];
            let proof = NvmeProof {
                discovers_by_tls,
                ..NvmeProof::new(&hosts[..1 + usize::from(is_some)])
            };
            let told = of_subsystem(proof, ClientSystem::Linux);
            let has = |line: &str| told.lines().any(|told| told == line);
            let comment = if is_some { TLS.comment() } else { "" };
            assert!(has(&format!("{connect} --tls{comment}")), "{told}");
            assert_eq!(has(&connect), is_some, "{told}");
            let discover = "nvme discover -t tcp -a 192.0.2.1 -s 3260";
            assert_eq!(has(discover), !discovers_by_tls, "{told}");
            for part in [
                "weft key new host.psk",
                "nvme check-tls-key --insert",
                "nvme keys insert-tls-psk",
            ] {
                assert!(told.contains(part), "{part}: {told}");
            }
            let own = of_subsystem(proof, ClientSystem::Other);
            // Discovery is open where it is not over TLS alone.
            assert_eq!(
                own.matches("-q HOSTNQN --psk-file host.psk").count(),
                if discovers_by_tls { 2 } else { 1 },
                "{own}"
            );
            let plain = format!("perf nvme-tcp://192.0.2.1:3260/{NQN} --rw");
            assert_eq!(own.contains(&plain), is_some, "{own}");
        }
    }

    #[test]
    fn hosts_with_keys_and_others_with_secrets_are_told_apart() {
        let proof = NvmeProof::new(&[TLS, DHCHAP]);
        for system in [ClientSystem::Linux, ClientSystem::Other] {
            let told = of_subsystem(proof, system);
            let of = |comment: &str| {
                let mut lines = told.lines();
                lines.find(|line| line.ends_with(comment)).expect(comment)
            };
            let (key, secret) = (
                of("a key in the configuration"),
                of("a secret in the configuration"),
            );
            let has_secret =
                |line: &str| line.contains("dhchap") || line.contains("--config host.conf");
            assert!(!has_secret(key) && has_secret(secret), "{told}");
            assert!(
                !secret.contains("--tls") && !secret.contains("--psk-file"),
                "{told}"
            );
            let connects = told
                .lines()
                .filter(|line| line.contains("nvme connect") || line.contains(" perf "));
            assert_eq!(connects.count(), 2, "{told}");
        }
    }

    #[test]
    fn host_of_a_list_says_its_name() {
        let proof = NvmeProof {
            is_listed: true,
            ..NvmeProof::default()
        };
        let own = of_subsystem(proof, ClientSystem::Other);
        assert!(own.contains(&format!("{NQN} -q HOSTNQN --rw")), "{own}");
    }

    #[test]
    fn hosts_with_secrets_are_told_where_theirs_is_read() {
        let proof = NvmeProof::new(&[DHCHAP]);
        let told = of_subsystem(proof, ClientSystem::Linux);
        for line in [
            "nvme connect --config host.conf",
            "  \"dhchap_key\": \"$(head -n1 host.dhchap)\",",
            "    {\"transport\": \"tcp\", \"traddr\": \"192.0.2.1\", \"trsvcid\": \"3260\"}]}]}]",
            "kxchap-secret = $(head -n1 host.dhchap)",
        ] {
            assert!(told.lines().any(|told| told == line), "{line}: {told}");
        }
        assert!(!told.contains("--dhchap-secret="), "{told}");
        let both = of_subsystem(
            NvmeProof::new(&[HostProof::new(true, true)]),
            ClientSystem::Linux,
        );
        assert!(
            both.contains("\"3260\", \"tls\": true}") && both.contains("tls = true\n"),
            "{both}"
        );
        let own = of_subsystem(proof, ClientSystem::Other);
        assert!(own.contains("--dhchap-secret-file host.dhchap"), "{own}");
        assert_eq!(of_subsystem(proof, ClientSystem::Esxi), "");
    }

    #[test]
    fn proof_follows_the_hosts_of_a_subsystem_and_its_listener() {
        let [plain, tls] = [false, true].map(|requires_tls| ListenerSpec {
            requires_tls,
            ..ListenerSpec::from(SocketAddr::from(([192, 0, 2, 1], 4420)))
        });
        let key = auth::HostPsk {
            key: auth::psk::Psk::new(auth::psk::PskHash::Sha256, |bytes| bytes.fill(1)),
            until: None,
        };
        let keyed = HostTerms {
            psks: vec![key],
            ..HostTerms::new("nqn.2026-01.org.example:a")
        };
        let named = |names: &[&str]| {
            let names = names
                .iter()
                .map(|name| format!("nqn.2026-01.org.example:{name}"));
            Some(names.collect())
        };
        let none = HostProof::default();
        for (hosts, terms, at, by) in [
            (None, vec![], &plain, &[none][..]),
            (None, vec![keyed.clone()], &plain, &[none, TLS]),
            (named(&["a"]), vec![keyed.clone()], &plain, &[TLS]),
            (
                named(&["a", "b"]),
                vec![keyed.clone()],
                &plain,
                &[none, TLS],
            ),
            (named(&["b"]), vec![], &tls, &[TLS]),
            (Some(vec![]), vec![], &plain, &[none]),
        ] {
            let subsystem = SubsystemSpec {
                hosts,
                terms,
                nqn: NQN.to_owned(),
                ..SubsystemSpec::default()
            };
            let proof = NvmeProof::of(&subsystem, at);
            assert!(proof.ways().map(|(host, _)| host).eq(by.iter().copied()));
            assert_eq!(proof.discovers_by_tls, at.requires_tls);
        }
    }
}
