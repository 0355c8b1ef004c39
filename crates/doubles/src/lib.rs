//! Test doubles: machines with what they need around them, on plain memory, driven by
//! hand. [`nvme`] and [`iscsi`] execute commands on a byte vector, [`nfs`] keeps calls
//! until a test answers them, [`rdma`] has clients of it by RDMA, [`nfsd`] is a whole server without sockets. [`gss`] is a
//! mechanism that proves users by their names. [`files`] holds answers of a file system back. [`fuzz`] has the bodies of the fuzz targets.
//!
//! It uses the protocols, so their integration tests may use it, and their unit tests
//! may not: these would have two of each type.
#![forbid(unsafe_code)]

pub mod files;
pub mod fuzz;
pub mod gss;
pub mod iscsi;
pub mod nfs;
pub mod nfsd;
pub mod nvme;
mod queues;
pub mod rdma;
