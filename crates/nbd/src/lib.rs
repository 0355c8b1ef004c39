//! NBD as a sans-IO machine, the server's side: the fixed newstyle handshake and the
//! transmission phase, with simple, structured and extended replies. What is cited as a section is
//! one of the NBD protocol, `doc/proto.md` of NetworkBlockDevice/nbd.
#![forbid(unsafe_code)]

mod error;
mod export;
mod option;
mod request;
mod server;

pub use error::{FatalError, NbdError};
pub use export::{ALLOCATION, NbdExport, PAYLOAD_BYTES_MAX};
pub use request::{NbdRequest, RequestKind};
pub use server::{NbdAnswer, NbdOp, NbdServer, NbdSettings, NbdTls, descriptors};
