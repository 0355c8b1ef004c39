//! What is served without a file.

use std::path::Path;

use server::Config;

use crate::{FileText, volume};

/// Where what is built in stands, in the place of a file.
pub const BUILT_IN: &str = "built-in";

/// NFS's own port.
pub(crate) const NFS_PORT: u16 = 2049;

/// Where the built-in configuration serves NFS if NFS's own port is taken.
pub const NFS_PORT_ELSE: u16 = 20_490;

/// Without a file: one RAM volume of 1 GiB for every host, over NVMe/TCP on
/// 127.0.0.1:4420, over iSCSI on 127.0.0.1:3260 and over NBD on 127.0.0.1:10809, and one file
/// system in memory of 1 GiB at most, over NFS on 127.0.0.1:2049.
#[must_use]
pub fn default_config() -> Config {
    let text = FileText::of_own(built_in_text(NFS_PORT));
    let config = text.parse(Path::new(BUILT_IN));
    config.unwrap_or_else(|problems| panic!("what is built in is sound: {problems}"))
}

/// The same as the text of a configuration, with NFS on this port.
#[must_use]
pub fn built_in_text(nfs_port: u16) -> String {
    // Two machines that are tried out side by side are two to every host.
    let machine = store::identity::of_machine(BUILT_IN);
    let block_bytes = volume::BLOCK_BYTES_DEFAULT;
    format!(
        r#"# What weft serves without a file; weft.example.toml explains every key.

[[volume]]
name = "default"
kind = "ram"                    # gone when weft ends
size = "1GiB"
block_bytes = {block_bytes}

[[nvme.subsystem]]
nqn = "nqn.2026-01.io.weft:default-{machine}"
allow_any_host = true
volumes = ["default"]

[[iscsi.portal_group]]
tag = 1
# With NVMe's listener, so that the states of paths are one.
listeners = ["127.0.0.1:4420", "127.0.0.1:3260"]

[[iscsi.target]]
name = "iqn.2026-01.io.weft:default-{machine}"
allow_any_initiator = true
subsystem = "nqn.2026-01.io.weft:default-{machine}"
portal_groups = [1]
volumes = ["default"]

[[nbd_export]]
volume = "default"
allow_any_client = true

[[file_system]]
name = "default"
kind = "mem"                    # gone when weft ends
size = "1GiB"

[[export]]
path = "/"
file_system = "default"
allow_any_client = true
# A user who tries it mounts it as root, from this machine alone. Squashed to nobody, root
# could not even give a file away.
squash = "none"

[[listener]]
address = "127.0.0.1:4420"
protocol = "nvme-tcp"

[[listener]]
address = "127.0.0.1:3260"
protocol = "iscsi"

[[listener]]
address = "127.0.0.1:{nfs_port}"
protocol = "nfs"

[[listener]]
address = "127.0.0.1:10809"
protocol = "nbd"
"#
    )
}
