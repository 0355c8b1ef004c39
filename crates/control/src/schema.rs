//! The sections of the file and the keys that they may hold.

/// A section of the file: its title as a user writes it, and the keys that it may hold.
pub type Keys = (&'static str, &'static [Key]);

/// One key of a section.
#[derive(Debug)]
pub struct Key {
    /// As it stands in the file.
    pub name: &'static str,
    /// The form of its value.
    pub takes: Takes,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A text.
    Text,
    /// The path of a file or folder, relative to the configuration's folder.
    File,
    /// The same, or this word.
    FileOr(&'static str),
    /// The same, or another place of a secret: a credential or a key of the kernel.
    Secret,
    /// True or false.
    Flag,
    /// The same, or this word.
    FlagOr(&'static str),
    /// A whole number.
    Number,
    /// The same, or this word.
    NumberOr(&'static str),
    /// A number of bytes, or a text with a unit.
    Size,
    /// A list of texts.
    Texts,
    /// A list of whole numbers.
    Numbers,
    /// The section of this title, once.
    Table(&'static str),
    /// Any number of sections of this title.
    Tables(&'static str),
}

/// `rdma` of listeners without NVMe/TCP.
pub(crate) const RDMA_ONLY: &str = "only";
/// `direct` of volumes that go through the page cache where they have to.
pub(crate) const DIRECT_AUTO: &str = "auto";

const fn key(name: &'static str, takes: Takes) -> Key {
    Key { name, takes }
}

/// The keys that a section may hold.
pub(crate) fn keys_of(title: &str) -> &'static [Key] {
    let found = SCHEMA.iter().find(|(name, _)| *name == title);
    found.map_or(&[], |(_, keys)| keys)
}

/// Whether what opens something, or comes close, is the value of a key.
pub(crate) fn is_secret(key: &str) -> bool {
    ["secret", "sha256"].contains(&key) || key.ends_with("_secret")
}

/// Sections and the keys that they may hold.
pub const SCHEMA: &[Keys] = &[
    (
        FILE,
        &[
            key("volume", Takes::Tables(VOLUME)),
            key("file_system", Takes::Tables(FILE_SYSTEM)),
            key("nvme", Takes::Table(NVME)),
            key("iscsi", Takes::Table(ISCSI)),
            key("nfs", Takes::Table(NFS)),
            key("nbd", Takes::Table(NBD)),
            key("quota", Takes::Tables(QUOTA)),
            key("export", Takes::Tables(EXPORT)),
            key("nbd_export", Takes::Tables(NBD_EXPORT)),
            key("listener", Takes::Tables(LISTENER)),
            key("limit", Takes::Tables(LIMIT)),
            key("connection_policy", Takes::Tables(CONNECTION_POLICY)),
            key("snapshot_schedule", Takes::Tables(SNAPSHOT_SCHEDULE)),
            key("policy", Takes::Table(POLICY)),
            key("admin", Takes::Table(ADMIN)),
        ],
    ),
    (
        VOLUME,
        &[
            key("name", Takes::Text),
            key("kind", Takes::Text),
            key("size", Takes::Size),
            key("block_bytes", Takes::Size),
            key("path", Takes::File),
            key("of", Takes::Texts),
            key("offset_bytes", Takes::Size),
            key("chunk_bytes", Takes::Size),
            key("resync_rate", Takes::Size),
            key("urls", Takes::Texts),
            key("host_nqn", Takes::Text),
            key("timeout_ms", Takes::Number),
            key("psk_file", Takes::Secret),
            key("dhchap_secret_file", Takes::Secret),
            key("dhchap_ctrl_secret_file", Takes::Secret),
            key("read_fixed_us", Takes::Number),
            key("read_mean_us", Takes::Number),
            key("read_tail_us", Takes::Number),
            key("write_fixed_us", Takes::Number),
            key("write_mean_us", Takes::Number),
            key("write_tail_us", Takes::Number),
            key("state", Takes::File),
            key("key_file", Takes::Secret),
            key("passphrase_file", Takes::Secret),
            key("former_key_file", Takes::Secret),
            key("former_passphrase_file", Takes::Secret),
            key("uuid", Takes::Text),
            key("nguid", Takes::Text),
            key("eui64", Takes::Text),
            key("naa", Takes::Text),
            key("serial", Takes::Text),
            key("vendor", Takes::Text),
            key("product", Takes::Text),
            key("revision", Takes::Text),
            key("adopt", Takes::Flag),
            key("direct", Takes::FlagOr(DIRECT_AUTO)),
            key("preallocate", Takes::Flag),
            key("checksum", Takes::Flag),
            key("scrub_rate", Takes::Size),
            key("read_only", Takes::Flag),
        ],
    ),
    (
        NVME,
        &[
            key("io_queues_max", Takes::Number),
            key("queue_entries_max", Takes::Number),
            key("io_bytes_max", Takes::Size),
            key("in_capsule_bytes", Takes::Size),
            key("maxh2cdata_bytes", Takes::Size),
            key("connections_max", Takes::Number),
            key("connections_of_address_max", Takes::Number),
            key("tls_handshakes_max", Takes::Number),
            key("controllers_of_host_max", Takes::Number),
            key("digests", Takes::Texts),
            key("psk_compat", Takes::Text),
            key("subsystem", Takes::Tables(SUBSYSTEM)),
            key("referral", Takes::Tables(REFERRAL)),
        ],
    ),
    (
        SUBSYSTEM,
        &[
            key("nqn", Takes::Text),
            key("allow_any_host", Takes::Flag),
            key("psk_file", Takes::Secret),
            key("hosts", Takes::Texts),
            key("serial", Takes::Text),
            key("model", Takes::Text),
            key("cntlids", Takes::Text),
            key("listeners", Takes::Texts),
            key("volumes", Takes::Texts),
            key("namespace", Takes::Tables(NAMESPACE)),
            key("ana", Takes::Tables(ANA)),
            key("host", Takes::Tables(HOST)),
            key("dhchap_hashes", Takes::Texts),
            key("dhchap_groups", Takes::Texts),
        ],
    ),
    (
        HOST,
        &[
            key("nqn", Takes::Text),
            key("networks", Takes::Texts),
            key("psk_file", Takes::Secret),
            key("dhchap_secret", Takes::Text),
            key("dhchap_secret_file", Takes::Secret),
            key("dhchap_ctrl_secret", Takes::Text),
            key("dhchap_ctrl_secret_file", Takes::Secret),
        ],
    ),
    (
        NAMESPACE,
        &[
            key("nsid", Takes::Number),
            key("volume", Takes::Text),
            key("ana_group", Takes::Number),
            key("hosts", Takes::Texts),
        ],
    ),
    (
        ANA,
        &[
            key("group", Takes::Number),
            key("state", Takes::Text),
            key("listener", Takes::Text),
        ],
    ),
    (REFERRAL, &[key("address", Takes::Text)]),
    (
        ISCSI,
        &[
            key("io_bytes_max", Takes::Size),
            key("queue_depth", Takes::Number),
            key("max_recv_data_segment_bytes", Takes::Size),
            key("first_burst_bytes", Takes::Size),
            key("max_burst_bytes", Takes::Size),
            key("r2ts_max", Takes::Number),
            key("initial_r2t", Takes::Flag),
            key("immediate_data", Takes::Flag),
            key("error_recovery_level", Takes::Number),
            key("session_connections_max", Takes::Number),
            key("sessions_max", Takes::Number),
            key("sessions_of_initiator_max", Takes::Number),
            key("nop_in_interval_ms", Takes::Number),
            key("target_cold_reset", Takes::Flag),
            key("header_digest", Takes::Text),
            key("data_digest", Takes::Text),
            key("chap_algorithms", Takes::Texts),
            key("space_warning", Takes::Size),
            key("portal_group", Takes::Tables(PORTAL_GROUP)),
            key("discovery", Takes::Table(DISCOVERY)),
            key("target", Takes::Tables(TARGET)),
        ],
    ),
    (
        PORTAL_GROUP,
        &[
            key("tag", Takes::Number),
            key("listeners", Takes::Texts),
            key("header_digest", Takes::Text),
            key("data_digest", Takes::Text),
        ],
    ),
    (
        DISCOVERY,
        &[
            key("chap", Takes::Table(DISCOVERY_CHAP)),
            key("mutual_chap", Takes::Table(DISCOVERY_MUTUAL)),
        ],
    ),
    (DISCOVERY_CHAP, CREDENTIALS),
    (DISCOVERY_MUTUAL, CREDENTIALS),
    (
        TARGET,
        &[
            key("name", Takes::Text),
            key("alias", Takes::Text),
            key("allow_any_initiator", Takes::Flag),
            key("initiators", Takes::Texts),
            key("networks", Takes::Texts),
            key("volumes", Takes::Texts),
            key("portal_groups", Takes::Numbers),
            key("subsystem", Takes::Text),
            key("redirect", Takes::Text),
            key("redirect_permanent", Takes::Flag),
            key("chap", Takes::Table(TARGET_CHAP)),
            key("mutual_chap", Takes::Table(TARGET_MUTUAL)),
            key("lun", Takes::Tables(LUN)),
            key("initiator", Takes::Tables(INITIATOR)),
            key("ana", Takes::Tables(TARGET_ANA)),
            key("queue_depth", Takes::Number),
            key("max_recv_data_segment_bytes", Takes::Size),
            key("first_burst_bytes", Takes::Size),
            key("max_burst_bytes", Takes::Size),
            key("r2ts_max", Takes::Number),
            key("initial_r2t", Takes::Flag),
            key("immediate_data", Takes::Flag),
            key("error_recovery_level", Takes::Number),
            key("session_connections_max", Takes::Number),
            key("sessions_max", Takes::Number),
            key("sessions_of_initiator_max", Takes::Number),
            key("nop_in_interval_ms", Takes::Number),
            key("target_cold_reset", Takes::Flag),
            key("header_digest", Takes::Text),
            key("data_digest", Takes::Text),
            key("chap_algorithms", Takes::Texts),
            key("space_warning", Takes::Size),
        ],
    ),
    (TARGET_CHAP, CREDENTIALS),
    (TARGET_MUTUAL, CREDENTIALS),
    (
        LUN,
        &[
            key("lun", Takes::Number),
            key("volume", Takes::Text),
            key("ana_group", Takes::Number),
        ],
    ),
    (
        INITIATOR,
        &[
            key("name", Takes::Text),
            key("networks", Takes::Texts),
            key("portal_groups", Takes::Numbers),
            key("luns", Takes::Numbers),
            key("chap", Takes::Table(INITIATOR_CHAP)),
            key("mutual_chap", Takes::Table(INITIATOR_MUTUAL)),
        ],
    ),
    (INITIATOR_CHAP, CREDENTIALS),
    (INITIATOR_MUTUAL, CREDENTIALS),
    (
        TARGET_ANA,
        &[
            key("group", Takes::Number),
            key("state", Takes::Text),
            key("portal_group", Takes::Number),
        ],
    ),
    (
        FILE_SYSTEM,
        &[
            key("name", Takes::Text),
            key("kind", Takes::Text),
            key("size", Takes::Size),
            key("path", Takes::File),
            key("state", Takes::File),
            key("read_only", Takes::Flag),
            key("acl", Takes::Text),
            key("direct", Takes::Flag),
        ],
    ),
    (
        QUOTA,
        &[
            key("name", Takes::Text),
            key("file_system", Takes::Text),
            key("user", Takes::Number),
            key("each_user", Takes::Flag),
            key("group", Takes::Number),
            key("tree", Takes::Text),
            key("hard_bytes", Takes::Size),
            key("soft_bytes", Takes::Size),
            key("hard_objects", Takes::Number),
            key("soft_objects", Takes::Number),
            key("grace_s", Takes::Number),
        ],
    ),
    (
        NFS,
        &[
            key("max_io_bytes", Takes::Size),
            key("lease_ms", Takes::Number),
            key("grace_ms", Takes::Number),
            key("state", Takes::File),
            key("manage_gids", Takes::Flag),
            key("domain", Takes::Text),
            key("user_ids", Takes::Texts),
            key("group_ids", Takes::Texts),
            key("tls", Takes::Table(NFS_TLS)),
            key("kerberos", Takes::Table(KERBEROS)),
        ],
    ),
    (
        KERBEROS,
        &[
            key("keytab", Takes::Secret),
            key("domain", Takes::Text),
            key("realm", Takes::Text),
            key("service", Takes::Text),
        ],
    ),
    (NFS_TLS, TLS_FILES),
    (NBD, &[key("tls", Takes::Table(NBD_TLS))]),
    (
        NBD_TLS,
        &[
            key("certificate", Takes::File),
            key("key", Takes::Secret),
            key("client_ca", Takes::File),
            key("client_crl", Takes::File),
            key("psk_file", Takes::Secret),
        ],
    ),
    (
        EXPORT,
        &[
            key("path", Takes::Text),
            key("file_system", Takes::Text),
            key("referral", Takes::Texts),
            key("allow_any_client", Takes::Flag),
            key("clients", Takes::Texts),
            key("read_only", Takes::Flag),
            key("squash", Takes::Text),
            key("anon_uid", Takes::Number),
            key("anon_gid", Takes::Number),
            key("security", Takes::Texts),
            key("xprtsec", Takes::Texts),
            key("secure", Takes::Flag),
            key("security_label", Takes::Flag),
            key("client", Takes::Tables(CLIENT)),
        ],
    ),
    (
        CLIENT,
        &[
            key("clients", Takes::Texts),
            key("read_only", Takes::Flag),
            key("squash", Takes::Text),
            key("anon_uid", Takes::Number),
            key("anon_gid", Takes::Number),
            key("security", Takes::Texts),
            key("xprtsec", Takes::Texts),
            key("secure", Takes::Flag),
            key("security_label", Takes::Flag),
        ],
    ),
    (
        LISTENER,
        &[
            key("address", Takes::Text),
            key("protocol", Takes::Text),
            key("advertise", Takes::Text),
            key("programs", Takes::Texts),
            key("discovery_only", Takes::Flag),
            key("tls", Takes::Text),
            key("rdma", Takes::FlagOr(RDMA_ONLY)),
            key("mpa_crc", Takes::Text),
            key("fpdu_bytes_max", Takes::Size),
            key("rdma_reads_max", Takes::Number),
        ],
    ),
    (
        NBD_EXPORT,
        &[
            key("name", Takes::Text),
            key("volume", Takes::Text),
            key("description", Takes::Text),
            key("read_only", Takes::Flag),
            key("clients", Takes::Texts),
            key("allow_any_client", Takes::Flag),
        ],
    ),
    (
        LIMIT,
        &[
            key("name", Takes::Text),
            key("volumes", Takes::Texts),
            key("exports", Takes::Texts),
            key("hosts", Takes::Texts),
            key("listeners", Takes::Texts),
            key("iops", Takes::Number),
            key("read_iops", Takes::Number),
            key("write_iops", Takes::Number),
            key("bytes", Takes::Size),
            key("read_bytes", Takes::Size),
            key("write_bytes", Takes::Size),
            key("burst_s", Takes::Number),
            key("floor_iops", Takes::Number),
            key("floor_bytes", Takes::Size),
        ],
    ),
    (
        CONNECTION_POLICY,
        &[
            key("name", Takes::Text),
            key("networks", Takes::Texts),
            key("listeners", Takes::Texts),
            key("send_buffer_bytes", Takes::Size),
            key("receive_buffer_bytes", Takes::Size),
            key("pacing_bytes", Takes::Size),
            key("priority", Takes::Number),
            key("dscp", Takes::Number),
            key("busy_poll_us", Takes::Number),
            key("congestion_control", Takes::Text),
            key("fast_path", Takes::Flag),
        ],
    ),
    (
        SNAPSHOT_SCHEDULE,
        &[
            key("name", Takes::Text),
            key("volumes", Takes::Texts),
            key("hourly", Takes::Number),
            key("daily", Takes::Number),
            key("weekly", Takes::Number),
        ],
    ),
    (
        POLICY,
        &[
            key("cpus", Takes::Text),
            key("io", Takes::Text),
            key("placement", Takes::Text),
            key("spin_us_max", Takes::NumberOr("always")),
            key("memory_max", Takes::Size),
            key("zero_copy_min_bytes", Takes::Size),
            key("registered_min_bytes", Takes::Size),
            key("fast_path", Takes::Flag),
            key("start", Takes::Text),
        ],
    ),
    (
        ADMIN,
        &[
            key("socket", Takes::FileOr("off")),
            key("listen", Takes::Text),
            key("names", Takes::Texts),
            key("state", Takes::File),
            key("token", Takes::Tables(TOKEN)),
            key("group", Takes::Tables(GROUP)),
            key("tls", Takes::Table(ADMIN_TLS)),
            key("client", Takes::Tables(ADMIN_CLIENT)),
        ],
    ),
    (GROUP, &[key("name", Takes::Text), key("role", Takes::Text)]),
    (
        TOKEN,
        &[
            key("name", Takes::Text),
            key("role", Takes::Text),
            key("sha256", Takes::Text),
        ],
    ),
    (ADMIN_TLS, TLS_FILES),
    (
        ADMIN_CLIENT,
        &[key("name", Takes::Text), key("role", Takes::Text)],
    ),
];

pub(crate) const FILE: &str = "the file";
pub(crate) const VOLUME: &str = "[[volume]]";
pub(crate) const NVME: &str = "[nvme]";
pub(crate) const SUBSYSTEM: &str = "[[nvme.subsystem]]";
pub(crate) const HOST: &str = "[[nvme.subsystem.host]]";
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
pub(crate) const QUOTA: &str = "[[quota]]";
pub(crate) const NFS: &str = "[nfs]";
pub(crate) const NFS_TLS: &str = "[nfs.tls]";
pub(crate) const KERBEROS: &str = "[nfs.kerberos]";
pub(crate) const EXPORT: &str = "[[export]]";
pub(crate) const CLIENT: &str = "[[export.client]]";
pub(crate) const NBD: &str = "[nbd]";
pub(crate) const NBD_TLS: &str = "[nbd.tls]";
pub(crate) const NBD_EXPORT: &str = "[[nbd_export]]";
pub(crate) const LISTENER: &str = "[[listener]]";
pub(crate) const LIMIT: &str = "[[limit]]";
pub(crate) const CONNECTION_POLICY: &str = "[[connection_policy]]";
pub(crate) const SNAPSHOT_SCHEDULE: &str = "[[snapshot_schedule]]";
pub(crate) const POLICY: &str = "[policy]";
pub(crate) const ADMIN: &str = "[admin]";
pub(crate) const TOKEN: &str = "[[admin.token]]";
pub(crate) const GROUP: &str = "[[admin.group]]";
pub(crate) const ADMIN_TLS: &str = "[admin.tls]";
pub(crate) const ADMIN_CLIENT: &str = "[[admin.client]]";

/// What a server of TLS shows, and whom it believes.
const TLS_FILES: &[Key] = &[
    key("certificate", Takes::File),
    key("key", Takes::Secret),
    key("client_ca", Takes::File),
    key("client_crl", Takes::File),
];

/// Of CHAP.
const CREDENTIALS: &[Key] = &[
    key("user", Takes::Text),
    key("secret", Takes::Text),
    key("secret_file", Takes::Secret),
];
