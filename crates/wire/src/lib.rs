//! Bytes to typed headers and back: the standards' structures, with sizes and
//! offsets asserted at compile time.
#![forbid(unsafe_code)]

pub mod iscsi;
pub mod mount3;
pub mod nfs3;
pub mod nfs4;
pub mod nvme;
pub mod nvme_tcp;
pub mod rpc;
pub mod scsi;
pub mod xdr;
