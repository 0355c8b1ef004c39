//! Why a client may not have a name, or change what is of it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use nfs::server::Client;

use crate::hosts::host_name;

/// A principal may not have the name of a client, or change what is of it (NFS4ERR_CLID_INUSE,
/// NFS4ERR_WRONG_CRED). Its [`Display`](fmt::Display) says why, and the remedy.
#[derive(Debug)]
pub struct ClientRefused {
    /// Where it came from.
    pub peer: SocketAddr,
    /// What it has proved to be, if anything.
    pub identity: Option<String>,
    /// What the client calls itself (`co_ownerid`).
    pub owner: Box<[u8]>,
    /// That client; `None`: it was there before the server was started again.
    pub holder: Option<Arc<Client>>,
}

impl fmt::Display for ClientRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "a machine mounts all by one certificate or principal, or all \
            without, and has a host name of its own";
        let proved = |identity: Option<&str>| match identity {
            Some(identity) => format!("`{identity}`"),
            None => "nothing".to_owned(),
        };
        let own = proved(self.identity.as_deref());
        let Some(holder) = &self.holder else {
            return write!(
                f,
                "the name is that of a client which may reclaim what it had before the restart; \
                 this one has proved {own}: wait for the end of that time; {REMEDY}"
            );
        };
        if self.identity.is_some() && holder.identity.as_deref() == self.identity.as_deref() {
            return write!(
                f,
                "the client's state is protected (SP4_MACH_CRED), and its principal has called \
                 without integrity: krb5i or krb5p has it"
            );
        }
        let holds = proved(holder.identity.as_deref());
        let (host, id) = (host_name(holder.host), holder.id);
        write!(
            f,
            "the client is of another principal: it has proved {holds}, from {host}, this one \
             {own}; {REMEDY}; `weft evict nfs-client {id:#x}` frees the name"
        )
    }
}
