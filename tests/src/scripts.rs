//! The guest's scripts, put together from the files in `tests/guest`.

/// The pieces of scripts; each says in its first lines what it needs set.
pub const CLIENT: &str = include_str!("../guest/client.sh");
/// The kernel's own target, in the guest.
pub const KERNEL_TARGET: &str = include_str!("../guest/kernel-target.sh");
/// A file system on a disk, and loads; [`script`] puts it before the others.
const DISK: &str = include_str!("../guest/disk.sh");
/// A target that is killed and started again: behind [`NVME_CRASH`] or [`ISCSI_CRASH`].
pub const CRASH: &str = include_str!("../guest/crash.sh");
/// Before what connects or serves by RDMA.
pub const RDMA: &str = include_str!("../guest/rdma.sh");
/// The host of [`CRASH`].
pub const NVME_CRASH: &str = include_str!("../guest/nvme-crash.sh");

/// TLS and in-band authentication, as a host does them; for guests of
/// [`FORKY`](crate::systems::FORKY) and [`TRIXIE`](crate::systems::TRIXIE).
pub const SECURE: &str = include_str!("../guest/secure.sh");
/// Behind [`KERNEL_TARGET`] and [`SECURE`]: that target asks for either.
pub const SECURE_KERNEL: &str = include_str!("../guest/secure-kernel.sh");
/// A PSK of each hash with that target.
pub const SECURE_PSK: &str = include_str!("../guest/secure-psk.sh");
/// DH-HMAC-CHAP with that target, and the PSK that it leads to.
pub const SECURE_CHAP: &str = include_str!("../guest/secure-chap.sh");
/// The kernel's client and server of files, which asks for security.
pub const KNFSD: &str = include_str!("../guest/knfsd.sh");
/// TLS with that server; behind [`SECURE`] and [`KNFSD`].
pub const SECURE_NFS: &str = include_str!("../guest/secure-nfs.sh");
/// Kerberos with that server; behind [`KNFSD`].
pub const KERBEROS: &str = include_str!("../guest/kerberos.sh");
/// The kernel's server of files with Kerberos for weft's client, behind [`KNFSD`].
pub const KERBEROS_SERVE: &str = include_str!("../guest/kerberos-serve.sh");

/// The kernel's server of files by RDMA for weft's client, behind [`RDMA`] and [`KNFSD`].
pub const RDMA_SERVE_NFS: &str = include_str!("../guest/rdma-serve-nfs.sh");
/// rping with an endpoint on the machine, behind [`RDMA`].
pub const RPING: &str = include_str!("../guest/rping.sh");

/// Kerberos with weft.
pub const KERBEROS_WEFT: &str = include_str!("../guest/kerberos-weft.sh");

/// Behind [`SECURE`]: TLS with weft.
pub const SECURE_WEFT: &str = include_str!("../guest/secure-weft.sh");
/// Files over TLS with weft, behind [`SECURE`].
pub const SECURE_NFS_WEFT: &str = include_str!("../guest/secure-nfs-weft.sh");
/// The kernel's server of files over TLS for weft's client, behind [`SECURE`] and [`KNFSD`].
pub const SECURE_NFS_SERVE: &str = include_str!("../guest/secure-nfs-serve.sh");
/// DH-HMAC-CHAP with weft, behind [`SECURE`].
pub const SECURE_CHAP_WEFT: &str = include_str!("../guest/secure-chap-weft.sh");
/// Both in one with weft, by secure channel concatenation; behind [`SECURE`].
pub const SECURE_CONCAT_WEFT: &str = include_str!("../guest/secure-concat-weft.sh");
/// TLS of weft's initiator with the kernel's target, behind [`SECURE_KERNEL`].
pub const SECURE_TLS_SERVE: &str = include_str!("../guest/secure-tls-serve.sh");
/// The same by secure channel concatenation.
pub const SECURE_CONCAT_SERVE: &str = include_str!("../guest/secure-concat-serve.sh");
/// DH-HMAC-CHAP of weft's initiator with the kernel's target.
pub const SECURE_CHAP_SERVE: &str = include_str!("../guest/secure-chap-serve.sh");

/// Every nvme subcommand for what weft serves.
pub const ADMINISTRATOR: &str = include_str!("../guest/administrator.sh");
/// A host whose target is changed under it.
pub const LIVE: &str = include_str!("../guest/live.sh");
/// A host whose target is changed by commands.
pub const STORY: &str = include_str!("../guest/story.sh");

/// What every script of an iSCSI initiator begins with.
pub const ISCSI: &str = include_str!("../guest/iscsi.sh");
/// An initiator's whole session.
pub const ISCSI_SESSION: &str = include_str!("../guest/iscsi-session.sh");
/// A session by iSER; behind [`RDMA`] and [`ISCSI`].
pub const ISER_SESSION: &str = include_str!("../guest/iser-session.sh");
/// The initiator of [`CRASH`].
pub const ISCSI_CRASH: &str = include_str!("../guest/iscsi-crash.sh");
/// The SCSI tools, two initiators, and an NVMe host on the same volume.
pub const ISCSI_TOOLS: &str = include_str!("../guest/iscsi-tools.sh");
/// The end of all data of an encrypted volume; behind [`ISCSI`].
pub const ERASE: &str = include_str!("../guest/erase.sh");
/// Two portals as paths of one disk, while the target is changed.
pub const ISCSI_MULTIPATH: &str = include_str!("../guest/iscsi-multipath.sh");
/// What the console tells clients of Linux to do; behind [`LAB`] and [`ISCSI`].
pub const CONNECT_PAGE: &str = include_str!("../guest/connect-page.sh");
/// An initiator that reaches weft through WireGuard; behind [`STORAGE`] and [`ISCSI`].
pub const TUNNEL: &str = include_str!("../guest/tunnel.sh");
/// An initiator whose target is changed by commands.
pub const ISCSI_STORY: &str = include_str!("../guest/iscsi-story.sh");

/// A Debian in the guest, with weft; the guest has the folders `packages` and `weft`.
pub const LAB: &str = include_str!("../guest/lab.sh");
/// A storage machine in the guest, behind [`LAB`].
pub const STORAGE: &str = include_str!("../guest/storage.sh");
/// What initiators know disks by.
pub const ISCSI_IDENTITIES: &str = include_str!("../guest/iscsi-identities.sh");
/// Targets of tgt's, imported.
pub const TGT: &str = include_str!("../guest/tgt.sh");
/// What clients find under exports.
pub const FILES_LOOKS: &str = include_str!("../guest/files-looks.sh");
/// Exports of Ganesha's, imported.
pub const GANESHA: &str = include_str!("../guest/ganesha.sh");
/// Exports of the kernel's, imported.
pub const EXPORTS: &str = include_str!("../guest/exports.sh");
/// What programs serve that are no packages of Debian, imported.
pub const PROGRAMS: &str = include_str!("../guest/programs.sh");
/// A target of targetcli's, imported.
pub const TARGETCLI: &str = include_str!("../guest/targetcli.sh");
/// The kernel's NVMe target, imported.
pub const NVMET: &str = include_str!("../guest/nvmet.sh");

/// What every script of an NFS client begins with.
pub const NFS: &str = include_str!("../guest/nfs.sh");
/// Mounts of every version, and what programs do to them.
pub const NFS_SESSION: &str = include_str!("../guest/nfs-session.sh");
/// A client whose server is killed and started again.
pub const NFS_CRASH: &str = include_str!("../guest/nfs-crash.sh");
/// Data, links and listings by RDMA, with chunks and without.
pub const NFS_RDMA: &str = include_str!("../guest/nfs-rdma.sh");
/// A client that writes more than there is room for.
pub const NFS_FULL: &str = include_str!("../guest/nfs-full.sh");
/// One of two clients on kernels of their own.
pub const NFS_PAIR: &str = include_str!("../guest/nfs-pair.sh");
/// Files of weft's on the storage machine, behind [`STORAGE`] and [`NFS`].
pub const NFS_STORAGE: &str = include_str!("../guest/nfs-storage.sh");
/// Mounts without options, and locks by version 3; behind [`NFS_STORAGE`].
pub const NFS_LOCKS: &str = include_str!("../guest/nfs-locks.sh");
/// Delegations of version 4.0; behind [`STORAGE`] and [`NFS`].
pub const NFS_CALLBACKS: &str = include_str!("../guest/nfs-callbacks.sh");
/// Files of another server below the first; behind [`STORAGE`] and [`NFS`].
pub const NFS_REFERRALS: &str = include_str!("../guest/nfs-referrals.sh");
/// Access control lists; behind [`NFS_STORAGE`].
pub const NFS_ACL: &str = include_str!("../guest/nfs-acl.sh");

/// Where the machine's 127.0.0.1 is, seen from a guest.
pub const MACHINE: &str = "10.0.2.2";

/// One script: the settings as variables, then the pieces in their order.
pub fn script(settings: &[(&str, &str)], pieces: &[&str]) -> String {
    let mut script = String::new();
    for (name, value) in settings {
        assert!(!value.contains('\''), "{name}: {value}");
        script += &format!("{name}='{value}'\n");
    }
    script += include_str!("../guest/prelude.sh");
    script += DISK;
    for piece in pieces {
        script += piece;
    }
    script
}
