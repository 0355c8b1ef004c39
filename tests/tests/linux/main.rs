//! An unmodified Linux kernel in a guest: as the host, as a host whose target
//! is changed under it, as the target, and as a client of files. One program, so
//! that the guests, which wait more than they compute, run side by side.

#![forbid(unsafe_code)]

mod authentication;
mod changes;
mod concatenation;
mod connect_page;
mod erase;
mod host;
mod import;
mod iscsi;
mod kerberos;
mod kernel_target;
mod live;
mod nfs;
mod nfs_storage;
mod peer;
mod rdma;
mod rdma_files;
mod rdma_peer;
mod rping;
mod secure;
mod story;
mod tls;
mod tls_files;
mod tunnel;
