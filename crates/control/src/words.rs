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
