//! A document for those who are to read it and learn no secret.

use std::collections::HashSet;
use std::ops::Range;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::document::SET;
use crate::schema::{FILE, Takes, is_secret, keys_of};
use crate::source::{Problems, Sink};

/// What stands for a value that is left out.
const LEFT_OUT: &str = "(left out)";
/// What stands for a secret that another text does not have.
const SET_ANOTHER: &str = "(set, another)";

/// Whether a value is a secret, and not what stands for one that is not shown.
///
/// # Errors
/// It is not, and what to do.
pub(crate) fn check_is_shown(value: &str) -> Result<(), String> {
    match [SET, SET_ANOTHER].contains(&value) {
        false => Ok(()),
        true => Err(format!(
            "\"{value}\" is what weft shows in the place of a secret: write the secret itself"
        )),
    }
}

/// The same without secrets and comments: a value stays only where the schema knows its key,
/// that holds no secret, and the value has the form that it takes. `None`: the text is no TOML,
/// and any part of it may be a secret.
#[must_use]
pub fn without_secrets(text: &str) -> Option<String> {
    told(text).map(|(document, _)| document.to_string())
}

/// The same text with each secret said to be set, and to be another where no secret of `before`
/// has its value.
#[must_use]
pub fn with_secrets_hidden(text: &str, before: &str) -> String {
    let Some((_, mut hidden)) = told(text) else {
        return LEFT_OUT.to_owned();
    };
    let known = told(before).map_or(Vec::new(), |(_, known)| known);
    let known: HashSet<&str> = known.into_iter().map(|place| &before[place]).collect();
    hidden.sort_by_key(|value| value.start);
    let (mut shown, mut end) = (String::new(), 0);
    for value in hidden {
        let is_known = known.contains(&text[value.clone()]);
        shown += &text[end..value.start];
        let told = if is_known { SET } else { SET_ANOTHER };
        shown += &format!("\"{told}\"");
        end = value.end;
    }
    shown + &text[end..]
}

impl Problems {
    /// The mistakes of `text` without the lines of it, each with an end of line: what is wrong
    /// is said only where [`without_secrets`] leaves the value.
    #[must_use]
    pub fn without_secrets(&self, text: &str) -> String {
        let hidden = told(text).map(|(_, hidden)| hidden);
        let places = Sink::new(text);
        let mut all = String::new();
        for problem in &self.list {
            let at = places.offset(problem.line, problem.column);
            let is_hidden = |at| match &hidden {
                Some(hidden) => hidden.iter().any(|value| value.contains(&at)),
                None => true,
            };
            let mut problem = problem.clone();
            if at.is_some_and(is_hidden) {
                problem.text = format!("{LEFT_OUT}: it may say a secret");
            }
            all += &format!("{}\n", self.line_of(&problem));
        }
        all
    }
}

/// What may be told, and where all else stands.
fn told(text: &str) -> Option<(Table, Vec<Range<usize>>)> {
    let mut document: Table = text.parse().ok()?;
    let places = DeTable::parse(text).ok()?;
    let mut hidden = Vec::new();
    leave_out(&mut document, places.get_ref(), FILE, &mut hidden);
    Some((document, hidden))
}

fn leave_out(section: &mut Table, places: &DeTable, title: &str, hidden: &mut Vec<Range<usize>>) {
    for (name, value) in section.iter_mut() {
        let key = keys_of(title).iter().find(|key| key.name == name);
        let place = places.get(name.as_str());
        let is_fine = match key.map(|key| key.takes) {
            None => false,
            Some(_) if is_secret(name) => false,
            Some(Takes::Table(title) | Takes::Tables(title)) => {
                is_section(value, place, title, hidden)
            }
            Some(takes) => has_form(value, takes),
        };
        if !is_fine {
            *value = LEFT_OUT.into();
            hidden.extend(place.map(Spanned::span));
        }
    }
}

/// Leaves out what is secret in a section, or in many; `false`: it is none.
fn is_section(
    value: &mut Value,
    place: Option<&Spanned<DeValue>>,
    title: &str,
    hidden: &mut Vec<Range<usize>>,
) -> bool {
    match (value, place.map(Spanned::get_ref)) {
        (Value::Table(section), Some(DeValue::Table(places))) => {
            leave_out(section, places, title, hidden);
            true
        }
        (Value::Array(sections), Some(DeValue::Array(places))) => {
            let mut both = sections.iter_mut().zip(places.iter());
            both.all(|(section, place)| {
                section.is_table() && is_section(section, Some(place), title, hidden)
            })
        }
        _ => false,
    }
}

/// Whether a value has the form that a key takes.
fn has_form(value: &Value, takes: Takes) -> bool {
    let all =
        |is_one: fn(&Value) -> bool| value.as_array().is_some_and(|all| all.iter().all(is_one));
    match takes {
        Takes::Text | Takes::File | Takes::FileOr(_) | Takes::Secret => value.is_str(),
        Takes::Flag => value.is_bool(),
        Takes::FlagOr(_) => value.is_bool() || value.is_str(),
        Takes::Number => value.is_integer(),
        Takes::NumberOr(_) | Takes::Size => value.is_integer() || value.is_str(),
        Takes::Texts => all(Value::is_str),
        Takes::Numbers => all(Value::is_integer),
        Takes::Table(_) | Takes::Tables(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, parse};

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
            size = ["hidden-10"]
            serial = 1110
            adopt = "hidden-12"
        "#;
        let told = without_secrets(text).expect("TOML");
        assert!(!told.contains("hidden") && !told.contains("1110"), "{told}");
        assert_eq!(told.matches(LEFT_OUT).count(), 11, "{told}");
        for kept in ["alice", "bob", "finder.secret", "viewer", "io.weft:i"] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
        assert_eq!(without_secrets("[volume"), None);
    }

    #[test]
    fn secrets_are_hidden_where_they_stand_and_told_to_be_others() {
        let text = |secret: &str| {
            format!(
                "[iscsi.discovery] # a comment\nchap = {{ user = \"a\", secret = {secret} }}\n\
                 [[admin.token]]\nname = \"ci\"\nrole = \"viewer\"\nsha256 = 'digest'\n"
            )
        };
        let (before, after) = (text("\"one\""), text("\"two\""));
        let shown = with_secrets_hidden(&after, &before);
        let expected = text("\"(set, another)\"").replace("'digest'", "\"(set)\"");
        assert_eq!(shown, expected);
        let shown = with_secrets_hidden(&before, &before);
        assert_eq!(shown, text("\"(set)\"").replace("'digest'", "\"(set)\""));
        // What is no secret there says nothing of it.
        let shown = with_secrets_hidden(&text("\"a\""), &before);
        assert!(shown.contains("\"(set, another)\""), "{shown}");
    }

    #[test]
    fn mistakes_without_secrets_name_no_value_that_is_left_out() {
        let mistakes = |text: &str| {
            let origin = Origin {
                folder: "/".as_ref(),
                access: None,
            };
            let list = parse(text, &origin, &[0]).expect_err("mistakes");
            let file = "weft.toml".to_owned();
            Problems { file, list }.without_secrets(text)
        };
        let told = mistakes(
            r#"
            [[volume]] # hidden-0
            name = ["hidden-1",
                "hidden-2{4..3}"]
            secert = "hidden-{98765..3}"
            kind = "rom" # hidden-4
            [[admin.token]]
            name = "ci"
            role = "viewer"
            sha256 = "hidden-5"
        "#,
        );
        for part in [
            "weft.toml:3:20: (left out)",
            "weft.toml:4:17: (left out)",
            "unknown key `secert`",
            "weft.toml:5:22: (left out)",
            "\"rom\"",
            "weft.toml:10:22: (left out)",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(
            !told.contains("hidden") && !told.contains("98765"),
            "{told}"
        );
        let torn = mistakes("secret = \"hidden\" hidden = 1\n[volume\n");
        assert!(
            torn.contains("weft.toml:1:") && !torn.contains("hidden"),
            "{torn}"
        );
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
