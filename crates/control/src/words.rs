//! The words that some keys take, for those who ask people for one.

use crate::listener::PROTOCOLS;

/// The words that a key of a kind of objects takes; none where it takes any text.
#[must_use]
pub fn words(kind: &str, key: &str) -> Vec<&'static str> {
    match (kind, key) {
        ("volume", "kind") => store::KINDS.iter().map(|row| row.name).collect(),
        ("file_system", "kind") => vec!["mem", "dir"],
        ("listener", "protocol") => PROTOCOLS.iter().map(|(word, _)| *word).collect(),
        _ => Vec::new(),
    }
}

/// Hosts that one line names.
const HOSTS_TOLD_MAX: usize = 8;

/// Which hosts do something.
pub(crate) fn told(hosts: Option<&[String]>, does: &str) -> String {
    match hosts {
        None => format!("all hosts {does}"),
        Some([]) => format!("no hosts {does}"),
        Some(hosts) => {
            let (first, others) = hosts.split_at(hosts.len().min(HOSTS_TOLD_MAX));
            let first = first.join(", ");
            match others.len() {
                0 => format!("{first} {does}"),
                others => format!("{first} and {others} others {does}"),
            }
        }
    }
}
