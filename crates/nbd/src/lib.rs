//! NBD as a sans-IO machine, the server's side: the fixed newstyle handshake and the
//! transmission phase, with simple, structured and extended replies. What is cited as a section is
//! one of the NBD protocol, `doc/proto.md` of NetworkBlockDevice/nbd.
#![forbid(unsafe_code)]

mod context;
mod error;
mod export;
mod option;
mod request;
mod server;
mod status;

pub use context::{
    ALLOCATION, BITMAPS_LISTED_MAX, BitmapsAsked, CONTEXTS_MAX, DIRTY_BITMAP, DirtyBitmap,
    NbdContext,
};
pub use error::{FatalError, NbdError};
pub use export::{NbdExport, PAYLOAD_BYTES_MAX};
pub use request::{NbdRequest, RequestKind};
pub use server::{BitmapsFound, NbdAnswer, NbdOp, NbdServer, NbdSettings, NbdTls};
pub use status::StatusReply;
