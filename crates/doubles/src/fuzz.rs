//! The bodies of the fuzz targets: plain functions of the input, so that a test replays
//! the corpus without a fuzzer.

mod dhchap;
mod iscsi;
mod iscsi_target;
mod iser_target;
mod iwarp_stream;
mod mirror_log;
mod nbd_connection;
mod nfs_acls;
mod nfs_compounds;
mod nfs_connection;
mod nfs_rdma_client;
mod nlm;
mod nvme_rdma;
mod nvme_tcp;
mod portmap;
mod rpc_rdma;
mod rpcsec_gss;
mod scsi_cdb;
mod snapshot_stream;
mod sums_file;
mod tls;
mod volume_keys;
mod volumes;

pub use dhchap::dhchap;
pub use iscsi::{login_text as iscsi_login_text, pdu as iscsi_pdu};
pub use iscsi_target::iscsi_target;
pub use iser_target::iser_target;
pub use iwarp_stream::iwarp_stream;
pub use mirror_log::mirror_log;
pub use nbd_connection::{nbd_connection, nbd_requests_executed};
pub use nfs_acls::nfs_acls;
pub use nfs_compounds::{nfs_compounds, nfs_operations_done};
pub use nfs_connection::nfs_connection;
pub use nfs_rdma_client::{client as nfs_rdma_client, told as nfs_rdma_client_told};
pub use nlm::nlm;
pub use nvme_rdma::{host as nvme_rdma_host, told as nvme_rdma_host_told};
pub use nvme_tcp::{
    controller as nvme_tcp_controller, host as nvme_tcp_host, host_stream, pdu as nvme_tcp_pdu,
};
pub use portmap::portmap;
pub use rpc_rdma::rpc_rdma;
pub use rpcsec_gss::rpcsec_gss;
pub use scsi_cdb::scsi_cdb;
pub use snapshot_stream::snapshot_stream;
pub use sums_file::sums_file;
pub use tls::{hello as tls_hello, records as tls_records, stream as tls_stream};
pub use volume_keys::volume_keys;

/// The records of an input: mode and bytes of each.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[mode, low, high], rest) = bytes.split_first_chunk::<3>()?;
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (record, rest) = rest.split_at(len);
        bytes = rest;
        Some((mode, record))
    })
}

/// The body of a fuzz target.
pub type Body = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: &[(&str, Body)] = &[
    ("dhchap", dhchap),
    ("iscsi_login_text", iscsi_login_text),
    ("iscsi_pdu", iscsi_pdu),
    ("iscsi_target", iscsi_target),
    ("iser_target", iser_target),
    ("iwarp_stream", iwarp_stream),
    ("mirror_log", mirror_log),
    ("nbd_connection", nbd_connection),
    ("nfs_acls", nfs_acls),
    ("nfs_compounds", nfs_compounds),
    ("nfs_connection", nfs_connection),
    ("nfs_rdma_client", nfs_rdma_client),
    ("nlm", nlm),
    ("nvme_rdma_host", nvme_rdma_host),
    ("nvme_tcp_controller", nvme_tcp_controller),
    ("nvme_tcp_host", nvme_tcp_host),
    ("nvme_tcp_pdu", nvme_tcp_pdu),
    ("portmap", portmap),
    ("rpc_rdma", rpc_rdma),
    ("rpcsec_gss", rpcsec_gss),
    ("scsi_cdb", scsi_cdb),
    ("snapshot_stream", snapshot_stream),
    ("sums_file", sums_file),
    ("tls_hello", tls_hello),
    ("tls_records", tls_records),
    ("tls_stream", tls_stream),
    ("volume_keys", volume_keys),
];
