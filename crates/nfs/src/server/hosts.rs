//! Hosts of NFSv3 on record: they may reclaim their locks after a restart, and are told of it.
//! Their records lie among those of clients of NFSv4, under names and a principal that no such
//! client has.

use std::net::IpAddr;

use super::principal::{Principal, proven_number};
use super::{Record, RecordedClient, Server};
use crate::connection::Credential;

/// What the names of their records begin with.
const PREFIX: &[u8] = b"nlm ";

impl RecordedClient {
    fn of_host(address: IpAddr, name: &[u8]) -> RecordedClient {
        let address = address.to_string();
        RecordedClient {
            owner: [PREFIX, address.as_bytes(), b" ", name].concat().into(),
            principal: Some(principal()),
        }
    }

    /// The address of the host that it is the record of, if it is one.
    pub fn host(&self) -> Option<IpAddr> {
        let rest = self.owner.strip_prefix(PREFIX)?;
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let address = str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        (self.principal == Some(principal())).then_some(address)
    }
}

/// What no client of NFSv4 is: it would have to show a certificate whose name has this SHA-256.
fn principal() -> Principal {
    Principal::new(&Credential::default(), Some(proven_number("nlm")))
}

impl Server {
    /// A host is about to have locks: it is on record before it is answered
    /// ([`Server::has_unsaved`]).
    pub fn record_host(&self, address: IpAddr, name: &[u8]) {
        let record = RecordedClient::of_host(address, name);
        let mut registry = self.registry();
        self.grace.recorded(&record.owner, principal());
        registry.changes.record(Record::Kept(record));
    }

    /// A host has nothing more.
    pub fn forget_host(&self, address: IpAddr, name: &[u8]) {
        let record = RecordedClient::of_host(address, name);
        self.registry().changes.record(Record::Gone(record));
    }

    /// Whether a host had locks before this start, and may have them back.
    pub fn awaits_host(&self, address: IpAddr, name: &[u8]) -> bool {
        let record = RecordedClient::of_host(address, name);
        self.grace.awaits(&record.owner, principal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_their_records_alone() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let address = address.parse().unwrap();
            let record = RecordedClient::of_host(address, b"a name");
            assert_eq!(record.host(), Some(address));
            let of_another = RecordedClient {
                principal: Some(Principal::new(&Credential::sys(0, 0, []), None)),
                ..record.clone()
            };
            let without = RecordedClient {
                principal: None,
                ..record
            };
            assert_eq!((of_another.host(), without.host()), (None, None));
        }
    }
}
