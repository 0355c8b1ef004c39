//! Secrets of a text that was shown without them and comes back.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::document::{KINDS, SET, name_of};
use crate::schema::{FILE, Takes, is_secret, keys_of};

/// The text with the secrets of `served` where it says that those of the same objects are set.
/// One that `served` does not have stays what it says, which is no secret to any parser.
#[must_use]
pub fn with_secrets_kept(text: &str, served: &str) -> String {
    let (Ok(said), Ok(known)) = (DeTable::parse(text), DeTable::parse(served)) else {
        return text.to_owned();
    };
    let mut kept = Vec::new();
    find(said.get_ref(), known.get_ref(), FILE, &mut kept);
    kept.sort_by_key(|(place, _)| place.start);
    let (mut whole, mut end) = (String::new(), 0);
    for (place, secret) in kept {
        whole += &text[end..place.start];
        whole += &served[secret];
        end = place.end;
    }
    whole + &text[end..]
}

/// Where secrets are said to be set in a section, and where `known` has them.
fn find(
    said: &DeTable,
    known: &DeTable,
    title: &str,
    kept: &mut Vec<(Range<usize>, Range<usize>)>,
) {
    for (key, value) in said.iter() {
        let key = key.get_ref().as_ref();
        let Some(before) = known.get(key) else {
            continue;
        };
        let takes = keys_of(title).iter().find(|one| one.name == key);
        let section = match takes.map(|key| key.takes) {
            Some(Takes::Table(section) | Takes::Tables(section)) => section,
            _ => {
                let is_set = matches!(value.get_ref(), DeValue::String(text) if text == SET);
                if is_secret(key) && is_set {
                    kept.push((value.span(), before.span()));
                }
                continue;
            }
        };
        match (value.get_ref(), before.get_ref()) {
            (DeValue::Table(said), DeValue::Table(known)) => find(said, known, section, kept),
            (DeValue::Array(said), DeValue::Array(known)) => {
                for said in said.iter().filter_map(|item| item.get_ref().as_table()) {
                    let mut known = known.iter().filter_map(|item| item.get_ref().as_table());
                    let name = called(said, section);
                    let same = known.find(|known| name.is_some() && called(known, section) == name);
                    if let Some(known) = same {
                        find(said, known, section, kept);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What an object of a section is called, as it is written.
fn called(table: &DeTable, section: &str) -> Option<String> {
    let kind = KINDS.iter().find(|kind| kind.section == section)?;
    kind.naming.name(|key| name_of(table.get(key)?.get_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_secrets_hidden;

    const SERVED: &str = r#"
        [iscsi.discovery]
        chap = { user = "finder", secret = "first" } # a comment
        [[iscsi.target]]
        name = "iqn.2026-01.io.weft:{1..2}"
        [[iscsi.target.initiator]]
        name = "iqn.2026-01.io.weft:i"
        chap = { user = "alice", secret = 'second' }
        [[iscsi.target.initiator]]
        name = "iqn.2026-01.io.weft:j"
        [iscsi.target.initiator.chap]
        user = "bob"
        secret = """
third"""
        [[nvme.subsystem]]
        nqn = "nqn.2026-01.io.weft:a"
        host = [{ nqn = "nqn.2026-01.io.weft:h", dhchap_secret = "fourth" }]
        [[admin.token]]
        name = "ci"
        role = "viewer"
        sha256 = "fifth"
    "#;

    #[test]
    fn text_that_is_shown_without_secrets_comes_back_as_it_was() {
        let shown = with_secrets_hidden(SERVED, SERVED);
        for secret in ["first", "second", "third", "fourth", "fifth"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        assert_eq!(with_secrets_kept(&shown, SERVED), SERVED);
        assert_eq!(with_secrets_kept(SERVED, SERVED), SERVED);
        assert_eq!(with_secrets_kept("[volume", SERVED), "[volume");
    }

    #[test]
    fn secret_stays_with_its_own_object_and_key_alone() {
        let shown = with_secrets_hidden(SERVED, SERVED);
        // In another order, each has its own.
        let moved = shown.replace("weft:i\"", "weft:k\"");
        let moved = moved
            .replace("weft:j\"", "weft:i\"")
            .replace("weft:k\"", "weft:j\"");
        let kept = with_secrets_kept(&moved, SERVED);
        let (second, third) = (kept.find("second"), kept.find("third"));
        assert!(third.is_some() && third < second, "{kept}");
        for (from, to) in [
            ("weft:i\"", "weft:other\""),
            ("dhchap_secret", "dhchap_ctrl_secret"),
            ("name = \"ci\"", "name = \"other\""),
            (
                "\"ci\"\n        role = \"viewer\"\n        sha256 = \"(set)",
                "\"ci\"\nsha256 = \"(set, another)",
            ),
        ] {
            let kept = with_secrets_kept(&shown.replace(from, to), SERVED);
            assert_eq!(kept.matches("\"(set").count(), 1, "{kept}");
        }
    }
}
