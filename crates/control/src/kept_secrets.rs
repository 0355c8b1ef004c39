//! Secrets of a text that was shown without them and comes back.

use std::collections::HashMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::by_name::ByName;
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
                let [said, known] = [said, known].map(|all| {
                    let tables = all.iter().filter_map(|item| item.get_ref().as_table());
                    tables.filter_map(|table| Some((called(table, section)?, table)))
                });
                let known = ServedObjects::new(known);
                for (names, said) in said {
                    if let Some(known) = known.find(&names) {
                        find(said, known, section, kept);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What an object is called, as it is written, and all that it may be called by: one initiator may
/// have a table for each network that it comes from.
type Names = (String, String);

/// What an object of a section is called.
fn called(table: &DeTable, section: &str) -> Option<Names> {
    let naming = KINDS.iter().find(|kind| kind.section == section)?.naming;
    let text = |key: &str| name_of(table.get(key)?.get_ref());
    let all = naming.keys().into_iter().map(text);
    Some((naming.name(text)?, format!("{:?}", all.collect::<Vec<_>>())))
}

/// Objects of one section.
struct ServedObjects<'t, 'd> {
    by_all_names: ByName<&'t DeTable<'d>>,
    /// Each alone in what it is called.
    by_name: ByName<&'t DeTable<'d>>,
}

impl<'t, 'd> ServedObjects<'t, 'd> {
    fn new(named: impl Iterator<Item = (Names, &'t DeTable<'d>)>) -> Self {
        let named: Vec<_> = named.collect();
        let mut counts = HashMap::new();
        for ((name, _), _) in &named {
            *counts.entry(name.clone()).or_insert(0) += 1;
        }
        let alone = named.iter().filter(|((name, _), _)| counts[name] == 1);
        ServedObjects {
            by_name: ByName::new(alone.map(|((name, _), table)| (name.clone(), *table))),
            by_all_names: ByName::new(named.into_iter().map(|((_, all), table)| (all, table))),
        }
    }

    fn find(&self, (name, all): &Names) -> Option<&'t DeTable<'d>> {
        let found = self.by_all_names.find(all);
        found.or_else(|| self.by_name.find(name)).copied()
    }
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
    fn tables_of_one_initiator_at_two_networks_keep_a_secret_each() {
        let table = |networks: &str, secret: &str| {
            format!(
                "[[iscsi.target.initiator]]\nname = \"iqn.2026-01.io.weft:i\"\n{networks}\n\
                 chap = {{ user = \"a\", secret = \"{secret}\" }}\n"
            )
        };
        let text = |tables: &[String]| {
            let target = "[[iscsi.target]]\nname = \"iqn.2026-01.io.weft:t\"\n";
            target.to_owned() + &tables.concat()
        };
        let (here, there) = ("networks = [\"10.0.0.1\"]", "networks = [\"10.0.0.2\"]");
        let served = text(&[table(here, "first"), table(there, "second")]);
        let shown = with_secrets_hidden(&served, &served);
        assert_eq!(with_secrets_kept(&shown, &served), served);
        let moved = text(&[table(there, "(set)"), table(here, "(set)")]);
        let expected = text(&[table(there, "second"), table(here, "first")]);
        assert_eq!(with_secrets_kept(&moved, &served), expected);
        // Which is meant?
        let other = text(&[table("networks = [\"10.0.0.3\"]", "(set)")]);
        assert_eq!(with_secrets_kept(&other, &served), other);
        // One alone may come from elsewhere.
        let one = text(&[table(here, "first")]);
        let expected = one.replace("10.0.0.1", "10.0.0.3");
        assert_eq!(with_secrets_kept(&other, &one), expected);
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
