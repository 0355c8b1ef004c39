//! What is there of the standard, for the documentation: lists made of what the
//! code goes by.

pub use crate::text::Key;
use crate::{keys, login, security};

/// All keys that are known, operational ones first.
pub fn keys() -> impl Iterator<Item = Key> {
    keys::listed()
        .chain(login::listed())
        .chain(security::listed())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_key_is_listed_once() {
        let names: Vec<_> = keys().map(|key| key.name).collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len());
        // Those of RFC 7143, sections 12.1 and 13, the four of RFC 3720, and those of RFC 7145.
        assert_eq!(names.len(), 42);
    }
}
