//! What must be known of clients after a restart (RFC 8881, section 8.4.2.1).

use super::client::Client;
use super::principal::Principal;

/// A client that may have had state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedClient {
    /// What it calls itself (`co_ownerid`).
    pub owner: Box<[u8]>,
    /// What made its record, and alone may reclaim; `None` where a version of weft has written
    /// names alone: then the first that says the name.
    pub principal: Option<Principal>,
}

impl RecordedClient {
    pub(super) fn of(client: &Client) -> RecordedClient {
        RecordedClient {
            owner: client.owner.clone(),
            principal: Some(client.principal),
        }
    }
}

/// A change of what must be known after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// This client may have state.
    Kept(RecordedClient),
    /// It has none any more.
    Gone(RecordedClient),
}
