//! The sections of the file and the keys that they may hold.

use crate::source::Keys;

/// Sections and the keys that they may hold.
pub const SCHEMA: &[Keys] = &[
    (
        FILE,
        &[
            "volume",
            "file_system",
            "nvme",
            "iscsi",
            "nfs",
            "export",
            "listener",
            "policy",
            "admin",
        ],
    ),
    (
        VOLUME,
        &[
            "name",
            "kind",
            "size",
            "block_bytes",
            "path",
            "state",
            "uuid",
            "nguid",
            "eui64",
            "naa",
            "serial",
            "vendor",
            "product",
            "revision",
            "adopt",
            "read_only",
        ],
    ),
    (
        NVME,
        &[
            "io_queues_max",
            "queue_entries_max",
            "io_bytes_max",
            "in_capsule_bytes",
            "maxh2cdata_bytes",
            "connections_max",
            "connections_of_address_max",
            "controllers_of_host_max",
            "digests",
            "subsystem",
            "referral",
        ],
    ),
    (
        SUBSYSTEM,
        &[
            "nqn",
            "allow_any_host",
            "hosts",
            "serial",
            "model",
            "cntlids",
            "listeners",
            "volumes",
            "namespace",
            "ana",
        ],
    ),
    (NAMESPACE, &["nsid", "volume", "ana_group", "hosts"]),
    (ANA, &["group", "state", "listener"]),
    (REFERRAL, &["address"]),
    (
        ISCSI,
        &[
            "io_bytes_max",
            "queue_depth",
            "max_recv_data_segment_bytes",
            "first_burst_bytes",
            "max_burst_bytes",
            "r2ts_max",
            "initial_r2t",
            "immediate_data",
            "error_recovery_level",
            "session_connections_max",
            "sessions_max",
            "sessions_of_initiator_max",
            "nop_in_interval_ms",
            "target_cold_reset",
            "header_digest",
            "data_digest",
            "chap_algorithms",
            "space_warning",
            "portal_group",
            "discovery",
            "target",
        ],
    ),
    (
        PORTAL_GROUP,
        &["tag", "listeners", "header_digest", "data_digest"],
    ),
    (DISCOVERY, &["chap", "mutual_chap"]),
    (DISCOVERY_CHAP, CREDENTIALS),
    (DISCOVERY_MUTUAL, CREDENTIALS),
    (
        TARGET,
        &[
            "name",
            "alias",
            "allow_any_initiator",
            "initiators",
            "networks",
            "volumes",
            "portal_groups",
            "subsystem",
            "redirect",
            "redirect_permanent",
            "chap",
            "mutual_chap",
            "lun",
            "initiator",
            "ana",
            "queue_depth",
            "max_recv_data_segment_bytes",
            "first_burst_bytes",
            "max_burst_bytes",
            "r2ts_max",
            "initial_r2t",
            "immediate_data",
            "error_recovery_level",
            "session_connections_max",
            "sessions_max",
            "sessions_of_initiator_max",
            "nop_in_interval_ms",
            "target_cold_reset",
            "header_digest",
            "data_digest",
            "chap_algorithms",
            "space_warning",
        ],
    ),
    (TARGET_CHAP, CREDENTIALS),
    (TARGET_MUTUAL, CREDENTIALS),
    (LUN, &["lun", "volume", "ana_group"]),
    (
        INITIATOR,
        &[
            "name",
            "networks",
            "portal_groups",
            "luns",
            "chap",
            "mutual_chap",
        ],
    ),
    (INITIATOR_CHAP, CREDENTIALS),
    (INITIATOR_MUTUAL, CREDENTIALS),
    (TARGET_ANA, &["group", "state", "portal_group"]),
    (
        FILE_SYSTEM,
        &["name", "kind", "size", "path", "state", "read_only"],
    ),
    (NFS, &["max_io_bytes", "lease_ms", "grace_ms", "state"]),
    (
        EXPORT,
        &[
            "path",
            "file_system",
            "allow_any_client",
            "clients",
            "read_only",
            "squash",
            "anon_uid",
            "anon_gid",
            "security",
            "client",
        ],
    ),
    (
        CLIENT,
        &[
            "clients",
            "read_only",
            "squash",
            "anon_uid",
            "anon_gid",
            "security",
        ],
    ),
    (
        LISTENER,
        &["address", "protocol", "advertise", "discovery_only"],
    ),
    (
        POLICY,
        &[
            "cpus",
            "io",
            "placement",
            "spin_us_max",
            "memory_max",
            "zero_copy_min_bytes",
            "registered_min_bytes",
            "fast_path",
            "start",
        ],
    ),
    (ADMIN, &["socket"]),
];

pub(crate) const FILE: &str = "the file";
pub(crate) const VOLUME: &str = "[[volume]]";
pub(crate) const NVME: &str = "[nvme]";
pub(crate) const SUBSYSTEM: &str = "[[nvme.subsystem]]";
pub(crate) const NAMESPACE: &str = "[[nvme.subsystem.namespace]]";
pub(crate) const ANA: &str = "[[nvme.subsystem.ana]]";
pub(crate) const REFERRAL: &str = "[[nvme.referral]]";
pub(crate) const ISCSI: &str = "[iscsi]";
pub(crate) const PORTAL_GROUP: &str = "[[iscsi.portal_group]]";
pub(crate) const DISCOVERY: &str = "[iscsi.discovery]";
pub(crate) const DISCOVERY_CHAP: &str = "[iscsi.discovery.chap]";
pub(crate) const DISCOVERY_MUTUAL: &str = "[iscsi.discovery.mutual_chap]";
pub(crate) const TARGET: &str = "[[iscsi.target]]";
pub(crate) const TARGET_CHAP: &str = "[iscsi.target.chap]";
pub(crate) const TARGET_MUTUAL: &str = "[iscsi.target.mutual_chap]";
pub(crate) const LUN: &str = "[[iscsi.target.lun]]";
pub(crate) const INITIATOR: &str = "[[iscsi.target.initiator]]";
pub(crate) const INITIATOR_CHAP: &str = "[iscsi.target.initiator.chap]";
pub(crate) const INITIATOR_MUTUAL: &str = "[iscsi.target.initiator.mutual_chap]";
pub(crate) const TARGET_ANA: &str = "[[iscsi.target.ana]]";
pub(crate) const FILE_SYSTEM: &str = "[[file_system]]";
pub(crate) const NFS: &str = "[nfs]";
pub(crate) const EXPORT: &str = "[[export]]";
pub(crate) const CLIENT: &str = "[[export.client]]";
pub(crate) const LISTENER: &str = "[[listener]]";
pub(crate) const POLICY: &str = "[policy]";
pub(crate) const ADMIN: &str = "[admin]";

/// Of CHAP.
const CREDENTIALS: &[&str] = &["user", "secret", "secret_file"];
