//! The name service of this machine, as its configuration has it (nsswitch.conf(5)): hosts by
//! name, and by `getent` names of addresses and netgroups, for which there is no safe function.

use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

use nfsd::client_names::NameService;

/// What `getent` and the resolver say. It blocks.
pub(crate) struct Getent;

impl NameService for Getent {
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let found = (host, 0).to_socket_addrs().ok()?;
        let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
        (!addresses.is_empty()).then_some(addresses)
    }

    /// One line: the address, its name, and others of it.
    fn names(&self, address: IpAddr) -> Option<Vec<String>> {
        let told = getent(&["hosts", &address.to_string()])?;
        let names = told.split_ascii_whitespace().skip(1);
        Some(names.map(str::to_owned).collect())
    }

    fn members(&self, netgroup: &str) -> Option<Vec<String>> {
        let told = getent(&["netgroup", netgroup])?;
        Some(hosts_of(&told).map(str::to_owned).collect())
    }
}

/// What is printed behind the name of a netgroup: `(host,user,domain)` of each member (netgroup(5)).
fn hosts_of(told: &str) -> impl Iterator<Item = &str> {
    let members = told.split('(').skip(1);
    let hosts = members.filter_map(|member| member.split(',').next());
    // A minus is no host.
    hosts.map(str::trim).filter(|host| *host != "-")
}

/// What `getent` prints; `None` where it finds nothing, or does not run.
fn getent(args: &[&str]) -> Option<String> {
    let mut command = Command::new("getent");
    command.args(args).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            tracing::warn!(
                %error,
                "NFS: names and netgroups of clients cannot be looked up: `getent` of the C \
                 library's package does not run"
            );
            return None;
        }
    };
    let told = output.status.success().then_some(output.stdout)?;
    String::from_utf8(told).ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn hosts_of_a_netgroup_are_told_without_users_and_domains() {
        let told = "staff  ( web1.example.org, -, ) (web2,,example.org) (-,alice,) (,bob,)\n";
        let hosts: Vec<&str> = hosts_of(told).collect();
        assert_eq!(hosts, ["web1.example.org", "web2", ""]);
        assert_eq!(hosts_of("staff\n").count(), 0);
    }

    #[test]
    fn own_machine_has_a_name_that_leads_back() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let names = Getent.names(address).expect("a name");
        let leads_back = |name: &String| {
            let found = Getent.addresses(name);
            found.is_some_and(|found| found.contains(&address))
        };
        assert!(names.iter().any(leads_back), "{names:?}");
        assert_eq!(Getent.members("no-such-netgroup-of-weft"), None);
    }
}
