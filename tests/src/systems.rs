//! The systems that guests are made of: each is one suite's programs and a kernel.

/// What is fetched for a guest, and what of it goes into the guest.
#[derive(Debug)]
pub struct System {
    /// Begins the name of its folder in the cache.
    pub name: &'static str,
    /// The suite of the programs; without it, the release that this machine has.
    pub suite: Option<&'static str>,
    /// The suite of the kernel; without it, as [`System::kernel_suite`] says.
    pub kernel: Option<&'static str>,
    /// Packages, whose dependencies are fetched with them.
    pub packages: &'static [&'static str],
    /// Programs in the guest besides the applets of busybox, which come last in
    /// the guest's search path.
    pub programs: &'static [&'static str],
    /// Files that the programs read.
    pub files: &'static [&'static str],
    /// Kernel modules that the guest's init loads.
    pub loaded: &'static [&'static str],
    /// Kernel modules that a script may load with `modprobe`.
    pub modules: &'static [&'static str],
    /// Kernel modules that the distribution's kernel is without: they are built from its
    /// source, which is among the packages with the headers.
    pub built: &'static [BuiltModule],
}

/// A kernel module that is built.
#[derive(Debug)]
pub struct BuiltModule {
    /// The name by which a script loads it.
    pub name: &'static str,
    /// Its folder in the kernel's source, which makes a module of the folder's own name.
    pub folder: &'static str,
    /// The option of the kernel's configuration that it is.
    pub option: &'static str,
    /// Constants of the source that are made true.
    pub constants: &'static [&'static str],
}

impl System {
    /// The suite that the kernel is of: its own, or for the machine's release the one that
    /// `WEFT_GUEST_KERNEL` names, if any. It is one that apt prefers to no other: all but the
    /// kernel comes from the programs' suite.
    pub fn kernel_suite(&self) -> Option<String> {
        if let Some(suite) = self.kernel {
            return Some(suite.into());
        }
        let asked = std::env::var("WEFT_GUEST_KERNEL");
        asked.ok().filter(|suite| !suite.is_empty())
    }
}

/// The machine's own release, with the emulator of all guests and the clients that run on the
/// machine.
pub static RELEASE: System = System {
    name: "root",
    suite: None,
    kernel: None,
    packages: &[
        "acl",
        "qemu-system-x86",
        "busybox-static",
        "kmod",
        "dash",
        "dbus-daemon",
        "nvme-cli",
        "fio",
        "e2fsprogs",
        "xfsprogs",
        "iproute2",
        "libiscsi-bin",
        "libnbd-bin",
        "libnfs-utils",
        "mount",
        "multipath-tools",
        "nfs-common",
        "nfs-ganesha-vfs",
        "nfs-kernel-server",
        "nfs4-acl-tools",
        "open-iscsi",
        "qemu-block-extra",
        "qemu-utils",
        "rpcbind",
        "sg3-utils",
        "targetcli-fb",
        "tgt",
        "udev",
        "util-linux",
        "wireguard-tools",
        "xz-utils",
        "zstd",
    ],
    programs: &[
        "bin/dash",
        "bin/getfacl",
        "bin/ip",
        "bin/lsblk",
        "bin/setfacl",
        "sbin/dmsetup",
        "sbin/iscsid",
        "sbin/mkfs.ext4",
        "sbin/fsck.ext4",
        "sbin/mkfs.xfs",
        "sbin/mount.nfs",
        "sbin/multipath",
        "sbin/multipathd",
        "sbin/rpcbind",
        "sbin/rpc.statd",
        "sbin/showmount",
        "sbin/sm-notify",
        "sbin/xfs_repair",
        "usr/bin/fio",
        "usr/bin/flock",
        "usr/bin/nfs4_getfacl",
        "usr/bin/nfs4_setfacl",
        "usr/bin/rpcinfo",
        "sbin/iscsiadm",
        "usr/bin/sg_compare_and_write",
        "usr/bin/sg_get_lba_status",
        "usr/bin/sg_inq",
        "usr/bin/sg_luns",
        "usr/bin/sg_modes",
        "usr/bin/sg_opcodes",
        "usr/bin/sg_persist",
        "usr/bin/sg_readcap",
        "usr/bin/sg_requests",
        "usr/bin/sg_reset",
        "usr/bin/sg_rtpg",
        "usr/bin/sg_sanitize",
        "usr/bin/sg_stpg",
        "usr/bin/sg_sync",
        "usr/bin/sg_turs",
        "usr/bin/sg_unmap",
        "usr/bin/sg_verify",
        "usr/bin/sg_vpd",
        "usr/bin/sg_write_same",
        "usr/bin/sg_xcopy",
        "usr/bin/wg",
        "usr/sbin/nvme",
    ],
    files: &[
        "etc/iscsi/iscsid.conf",
        "etc/mke2fs.conf",
        "etc/netconfig",
        "lib/multipath/libchecktur.so",
        "lib/multipath/libforeign-nvme.so",
        "lib/multipath/libprioalua.so",
        "lib/multipath/libprioconst.so",
        "lib/multipath/libpriosysfs.so",
    ],
    loaded: &["ext4", "xfs"],
    modules: &[
        "9p",
        "9pnet_virtio",
        "configfs",
        "dm_multipath",
        "dm_round_robin",
        "dm_service_time",
        "iscsi_target_mod",
        "iscsi_tcp",
        "nfsv3",
        "nfsd",
        "nfsv4",
        "null_blk",
        "nvmet",
        "nvmet_tcp",
        "scsi_dh_alua",
        "sd_mod",
        "sg",
        "target_core_file",
        "target_core_iblock",
        "target_core_mod",
        "veth",
        "virtio_blk",
        "wireguard",
    ],
    built: &[],
};

/// The machine's release, which speaks RDMA without a card as host and client, target and
/// server: soft iWARP (siw), as it is, and one that asks for CRCs and for the first FPDU, and sends large ones.
pub static SIW: System = System {
    name: "siw",
    suite: None,
    kernel: None,
    packages: &[
        "busybox-static",
        "dash",
        "e2fsprogs",
        "fio",
        "ibverbs-providers",
        "iproute2",
        "kmod",
        "linux-headers-amd64",
        "linux-source",
        "nfs-common",
        "nfs-kernel-server",
        "nvme-cli",
        "open-iscsi",
        "rdmacm-utils",
        "sg3-utils",
        "xfsprogs",
        "xz-utils",
        "zstd",
    ],
    programs: &[
        "bin/dash",
        "bin/ip",
        "sbin/fsck.ext4",
        "sbin/iscsiadm",
        "sbin/iscsid",
        "sbin/mkfs.ext4",
        "sbin/mkfs.xfs",
        "sbin/mount.nfs",
        "sbin/xfs_repair",
        "usr/bin/fio",
        "usr/bin/rdma",
        "usr/bin/rping",
        "usr/bin/sg_inq",
        "usr/bin/sg_reset",
        "usr/bin/sg_turs",
        "usr/sbin/exportfs",
        "usr/sbin/nfsdcld",
        "usr/sbin/nvme",
        "usr/sbin/rpc.mountd",
        "usr/sbin/rpc.nfsd",
    ],
    files: &[
        "etc/iscsi/iscsid.conf",
        "etc/libibverbs.d/siw.driver",
        "etc/mke2fs.conf",
        "etc/netconfig",
        "usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav34.so",
    ],
    loaded: &["ext4"],
    modules: &[
        "configfs",
        "ib_iser",
        "iscsi_tcp",
        "nfsd",
        "nfsv3",
        "nfsv4",
        "null_blk",
        "nvme_rdma",
        "nvmet",
        "nvmet_rdma",
        "rdma_ucm",
        "rpcrdma",
        "sd_mod",
        "sg",
        "siw",
        "siw_strict",
        "virtio_blk",
        "xfs",
    ],
    built: &[
        BuiltModule {
            name: "siw",
            folder: "drivers/infiniband/sw/siw",
            option: "CONFIG_RDMA_SIW",
            constants: &[],
        },
        BuiltModule {
            name: "siw_strict",
            folder: "drivers/infiniband/sw/siw",
            option: "CONFIG_RDMA_SIW",
            constants: &["mpa_crc_required", "peer_to_peer", "try_gso"],
        },
    ],
};

/// A kernel and programs young enough for TLS and in-band authentication of NVMe/TCP.
pub static FORKY: System = System {
    name: "forky",
    suite: Some("forky"),
    kernel: Some("trixie-backports"),
    packages: SECURE_PACKAGES,
    programs: SECURE_PROGRAMS,
    files: SECURE_FILES,
    // Not xfs, which takes a guest 2 s.
    loaded: &["ext4"],
    modules: SECURE_MODULES,
    built: &[],
};

/// The same kernel with programs from before FORKY's: libnvme derives PSKs otherwise than the
/// standard, and tlshd binds each with SHA-256.
pub static TRIXIE: System = System {
    name: "trixie",
    suite: Some("trixie"),
    ..FORKY
};

const SECURE_PACKAGES: &[&str] = &[
    "busybox-static",
    "dash",
    "e2fsprogs",
    "fio",
    "iproute2",
    "keyutils",
    "kmod",
    "krb5-admin-server",
    "krb5-kdc",
    "krb5-user",
    "ktls-utils",
    "nfs-common",
    "nfs-kernel-server",
    "nvme-cli",
    "openssl",
    "xz-utils",
    "zstd",
];

const SECURE_PROGRAMS: &[&str] = &[
    "bin/dash",
    "bin/ip",
    "sbin/fsck.ext4",
    "sbin/mkfs.ext4",
    "sbin/mount.nfs",
    "sbin/request-key",
    "usr/bin/fio",
    "usr/bin/keyctl",
    "usr/bin/kinit.mit",
    "usr/sbin/exportfs",
    "usr/sbin/kadmin.local",
    "usr/sbin/kdb5_util",
    "usr/sbin/krb5kdc",
    "usr/sbin/nvme",
    "usr/sbin/nfsdcld",
    "usr/sbin/nfsidmap",
    "usr/sbin/rpc.gssd",
    "usr/sbin/rpc.mountd",
    "usr/sbin/rpc.nfsd",
    "usr/sbin/rpc.svcgssd",
    "usr/sbin/tlshd",
];

const SECURE_FILES: &[&str] = &[
    "etc/mke2fs.conf",
    "etc/netconfig",
    "lib/x86_64-linux-gnu/libev.so.4",
    "lib/x86_64-linux-gnu/libverto-libev.so.1",
    "usr/lib/x86_64-linux-gnu/krb5/plugins/kdb/db2.so",
    "usr/lib/x86_64-linux-gnu/libnfsidmap/nsswitch.so",
];

const SECURE_MODULES: &[&str] = &[
    "9p",
    "9pnet_virtio",
    "authenc",
    "chacha",
    "chacha20poly1305",
    "configfs",
    "krb5enc",
    "nfsd",
    "nfsv3",
    "nfsv4",
    "null_blk",
    "nvmet",
    "nvmet_tcp",
    "rpcsec_gss_krb5",
    "tls",
    "virtio_blk",
];
