//! Bytes to typed headers and back: the standards' structures, with sizes and
//! offsets asserted at compile time.
#![forbid(unsafe_code)]

/// A structure of a protocol: its size, and where each field begins, are checked.
macro_rules! structure {
    ($(#[$doc:meta])* $name:ident, $size:literal, {$($(#[$field_doc:meta])* $field:ident: $ty:ty = $offset:literal,)*}) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout,
            Immutable, Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }
        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

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
pub mod rquota;
pub mod scsi;
pub mod xdr;
