//! The name service of this machine, as its configuration has it (nsswitch.conf(5)): hosts by
//! name, names of addresses, and netgroups. `getent` is asked, which can be ended where the answer
//! does not come: functions of the C library cannot.

use std::io::Read;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

use nfsd::client_names::NameService;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What `getent` says. It blocks, for a while at most.
pub(crate) struct Getent;

impl NameService for Getent {
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let told = getent("ahosts", host)?;
        let first = |line: &str| line.split_ascii_whitespace().next()?.parse().ok();
        let addresses: Vec<IpAddr> = told.lines().filter_map(first).collect();
        (!addresses.is_empty()).then_some(addresses)
    }

    /// One line: the address, its name, and others of it.
    fn names(&self, address: IpAddr) -> Option<Vec<String>> {
        let told = getent("hosts", &address.to_string())?;
        let names = told.split_ascii_whitespace().skip(1);
        Some(names.map(str::to_owned).collect())
    }

    fn members(&self, netgroup: &str) -> Option<Vec<String>> {
        let told = getent("netgroup", netgroup)?;
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

/// What `getent` prints of a key; `None` where it finds nothing, is too slow, or does not run.
fn getent(database: &str, key: &str) -> Option<String> {
    static WARNED: Once = Once::new();
    let mut command = Command::new("getent");
    command.args([database, "--", key]);
    printed(&mut command, PATIENCE).unwrap_or_else(|error| {
        WARNED.call_once(|| {
            tracing::warn!(
                %error,
                "NFS: names and netgroups of clients cannot be looked up: `getent` of the C \
                 library's package does not run"
            );
        });
        None
    })
}

/// What a command prints that succeeds in this time; else it is ended.
fn printed(command: &mut Command, patience: Duration) -> std::io::Result<Option<String>> {
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("it is a pipe");
    let (tell, told) = mpsc::channel();
    let reader = move || {
        let mut bytes = Vec::new();
        let read = stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        // Nothing takes it when it comes too late.
        let _ = tell.send(read.map(|_| bytes));
    };
    let started = thread::Builder::new()
        .name("weft-getent".into())
        .spawn(reader);
    let bytes = started.ok().and_then(|_| told.recv_timeout(patience).ok());
    if bytes.is_none() {
        // It may have ended by itself meanwhile.
        let _ = child.kill();
    }
    let has_found = child.wait()?.success();
    let bytes = bytes.transpose()?.filter(|_| has_found);
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
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

    fn printed_by(script: &str, patience: Duration) -> Option<String> {
        let mut command = Command::new("sh");
        printed(command.args(["-c", script]), patience).expect("it runs")
    }

    #[test]
    fn command_that_prints_without_end_or_nothing_for_too_long_is_ended() {
        assert_eq!(printed_by("echo a", PATIENCE).as_deref(), Some("a\n"));
        assert_eq!(printed_by("echo a; exit 2", PATIENCE), None);
        assert_eq!(printed_by("exec yes", PATIENCE), None);
        let short = Duration::from_millis(50);
        assert_eq!(printed_by("exec sleep 86400", short), None);
        let mut missing = Command::new("no-such-program-of-weft");
        printed(&mut missing, PATIENCE).expect_err("there is none");
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
