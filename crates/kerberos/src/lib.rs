//! Security contexts of Kerberos 5 (RFC 1964, 4121) for RPCSEC_GSS, made by MIT's library, which
//! is loaded when the first is asked for; and the users that principals are on this machine.
//!
//! Making a context may block: on the file of keys, on the network where names of realms are
//! looked up, on the user database. A worker thread does it. What an established context does
//! to messages only computes, and a reactor may do it.
#![allow(unsafe_code)]

mod acceptor;
mod calls;
mod established;
mod initiator;
mod library;
#[cfg(test)]
mod tests;
mod users;
mod words;

use std::path::PathBuf;

pub use acceptor::Acceptor;
pub use initiator::{Initiator, Keys};
pub use users::{UserDatabase, Users};
pub use words::Failure;

/// Why there is no context, in words for the one who runs the server or the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KerberosError {
    /// MIT's library is not on this machine.
    #[error(
        "Kerberos needs {name}, which does not load: `apt install libgssapi-krb5-2` ({why})",
        name = library::NAME
    )]
    NoLibrary {
        /// What the loader says.
        why: String,
    },
    /// A static build loads no library.
    #[error("this build of weft is static and loads no library, as Kerberos needs: use another")]
    StaticBuild,
    /// The file of keys cannot be used.
    #[error("{0}")]
    Keytab(String),
    /// The keys or tickets in a file are not what is needed.
    #[error("{}: {failure}", file.display())]
    Keys {
        /// The file.
        file: PathBuf,
        /// What the library says.
        failure: Failure,
    },
    /// The user of this process has no tickets.
    #[error("this user has no tickets, `kinit` gets them: {0}")]
    NoTickets(Failure),
    /// The other side, the KDC or the library refused.
    #[error("{0}")]
    Failed(Failure),
}
