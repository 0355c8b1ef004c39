//! What is there of the standard, for the documentation: lists made of what the
//! code goes by.

use crate::{keys, login, security};

/// A key of text negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Section of RFC 7143.
    pub section: &'static str,
    /// Of the session, hence negotiated on its leading connection alone.
    pub leading_only: bool,
    /// Means something in a discovery session.
    pub in_discovery: bool,
    /// Belongs to the SecurityNegotiation stage.
    pub is_security: bool,
    /// What comes of the two values: `min`, `max`, `AND`, `OR`, `list` (the
    /// first of the initiator's that the target takes), `declared` (not
    /// answered), or the answer that is always given.
    pub how: &'static str,
}

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
        // Those of RFC 7143, sections 12.1 and 13, and the four of RFC 3720.
        assert_eq!(names.len(), 35);
    }
}
