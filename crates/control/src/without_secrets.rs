//! A document for those who are to read it and learn no secret.

use toml::{Table, Value};

use crate::schema::{FILE, Takes, keys_of};

/// What stands for a value that is left out.
const LEFT_OUT: &str = "(left out)";

/// Keys whose values open something, or come close.
const SECRETS: &[&str] = &["secret", "sha256"];

/// The same without secrets and comments: a value stays only where the schema knows its key, and
/// that holds no secret. `None`: the text is no TOML, and any part of it may be a secret.
#[must_use]
pub fn without_secrets(text: &str) -> Option<String> {
    let mut document: Table = text.parse().ok()?;
    leave_out(&mut document, FILE);
    Some(document.to_string())
}

fn leave_out(section: &mut Table, title: &str) {
    for (name, value) in section.iter_mut() {
        let key = keys_of(title).iter().find(|key| key.name == name);
        let is_fine = match key.map(|key| key.takes) {
            None => false,
            Some(_) if SECRETS.contains(&&**name) => false,
            Some(Takes::Table(title) | Takes::Tables(title)) => is_section(value, title),
            Some(_) => is_plain(value),
        };
        if !is_fine {
            *value = LEFT_OUT.into();
        }
    }
}

/// Leaves out what is secret in a section, or in many; `false`: it is none.
fn is_section(value: &mut Value, title: &str) -> bool {
    match value {
        Value::Table(section) => {
            leave_out(section, title);
            true
        }
        Value::Array(sections) => sections.iter_mut().all(|section| match section {
            Value::Table(section) => {
                leave_out(section, title);
                true
            }
            _ => false,
        }),
        _ => false,
    }
}

/// Whether nothing else is in it whose key could be one of a secret.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Table(_) => false,
        Value::Array(all) => all.iter().all(is_plain),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_all_sections_unknown_keys_and_comments_are_left_out_and_all_else_stays() {
        let text = r#"
            # an old one: hidden-0
            [[iscsi.target]]
            name = "iqn.2026-01.io.weft:a"
            chap = { user = "alice", secret = "hidden-1" } # hidden-2
            mutual_chap = { user = "weft", secert = "hidden-3" }
            queue_depth = [{ secret = "hidden-4" }]
            [[iscsi.target.initiator]]
            name = "iqn.2026-01.io.weft:i"
            [iscsi.target.initiator.chap]
            user = "bob"
            secret = """
            hidden-5"""
            [iscsi.discovery.chap]
            user = "finder"
            secret_file = "finder.secret"
            [[admin.token]]
            name = "ci"
            role = "viewer"
            sha256 = "hidden-6"
            [password]
            admin = "hidden-7"
            [[volume]]
            name = { secret = "hidden-8" }
            nvme = "hidden-9"
        "#;
        let told = without_secrets(text).expect("TOML");
        assert!(!told.contains("hidden"), "{told}");
        assert_eq!(told.matches(LEFT_OUT).count(), 8, "{told}");
        for kept in ["alice", "bob", "finder.secret", "viewer", "io.weft:i"] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
        assert_eq!(without_secrets("[volume"), None);
    }

    #[test]
    fn example_without_secrets_is_the_same_document_but_for_them() {
        let example = include_str!("../../../weft.example.toml");
        let told = without_secrets(example).expect("TOML");
        let (told, all): (Table, Table) =
            (told.parse().expect("ours"), example.parse().expect("TOML"));
        assert_eq!(told, all, "all its secrets are in comments");
    }
}
