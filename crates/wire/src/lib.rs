//! Bytes to typed headers and back: the standards' structures, with sizes and
//! offsets asserted at compile time.
#![forbid(unsafe_code)]

/// What `build.rs` generates from the descriptions in `xdr/GROUP`.
macro_rules! described {
    ($group:literal) => {
        #[allow(non_camel_case_types, non_upper_case_globals, missing_docs)]
        mod described {
            use crate::xdr::*;

            include!(concat!(env!("OUT_DIR"), "/", $group, ".rs"));
        }
        pub use described::*;
    };
}

pub mod iscsi;
pub mod iser;
pub mod iwarp;
pub mod mount3;
pub mod nbd;
pub mod nfs3;
pub mod nfs4;
pub mod nlm4;
pub mod nsm;
pub mod nvme;
pub mod nvme_rdma;
pub mod nvme_tcp;
pub mod rpc;
pub mod rpc_rdma;
pub mod rpcbind;
pub mod scsi;
pub mod xdr;
