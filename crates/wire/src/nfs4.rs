//! NFS version 4: 4.0 (RFC 7530, 7531), 4.1 (RFC 8881, 5662), 4.2 (RFC 7862,
//! 7863) and extended attributes (RFC 8276), as generated from descriptions in
//! `crates/wire/xdr/nfs4`. Names are the standards'.

described!("nfs4");
