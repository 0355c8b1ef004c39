//! Commands on single objects of the document: `weft add`, `set` and `rm`, and what `weft get`
//! shows of them.

use std::io::{self, BufRead, Read as _, Write};
use std::process::ExitCode;

use admin::encoded;
use api::ConfigObjects;
use clap::Args;
use serde_json::{Map, Value};

use crate::USAGE;
use crate::ask::{AskArgs, ask, end, get, tell};
use crate::changes::ChangeArgs;

#[derive(Args)]
pub struct EditArgs {
    /// What it is: volume, subsystem, subsystem/namespace, target/lun, export, listener, ...
    /// `weft get` shows each with its kind
    kind: String,
    /// The names of what it is in and its own, then KEY=VALUE for each key of its table. A
    /// value is TOML, or a text; of a secret it is -, and the secret is a line of standard input
    #[arg(value_name = "NAME|KEY=VALUE")]
    words: Vec<String>,
    #[command(flatten)]
    how: ChangeArgs,
}

#[derive(Args)]
pub struct RemoveArgs {
    /// What it is, as for `add`
    kind: String,
    /// The names of what it is in, and its own
    names: Vec<String>,
    #[command(flatten)]
    how: ChangeArgs,
}

/// Adds an object.
pub fn add(arguments: &EditArgs) -> io::Result<ExitCode> {
    arguments.send("POST")
}

/// Changes some keys of an object.
pub fn set(arguments: &EditArgs) -> io::Result<ExitCode> {
    arguments.send("PATCH")
}

/// Removes an object.
pub fn remove(arguments: &RemoveArgs) -> io::Result<ExitCode> {
    change(
        &arguments.how,
        "DELETE",
        &place(&arguments.kind, &arguments.names),
        String::new(),
    )
}

/// Prints objects: all, those of a kind, or those in one.
pub fn show(kind: Option<&str>, names: &[String], ask: &AskArgs) -> io::Result<ExitCode> {
    let target = match kind {
        Some(kind) => place(kind, names),
        None => "/v1/objects".to_owned(),
    };
    end(ask, get(ask, &target), show_objects)
}

impl EditArgs {
    fn send(&self, method: &str) -> io::Result<ExitCode> {
        let is_field = |word: &&String| field(word).is_some();
        let names = self.words.iter().take_while(|word| !is_field(word));
        let names: Vec<String> = names.cloned().collect();
        let mut fields = Map::new();
        for word in &self.words[names.len()..] {
            match field(word) {
                Some((key, value)) if !fields.contains_key(key) => {
                    let value = match told_value(key, value, &mut io::stdin().lock()) {
                        Ok(value) => value,
                        Err(why) => {
                            tell(&format!("weft: {why}"));
                            return Ok(ExitCode::from(USAGE));
                        }
                    };
                    fields.insert(key.to_owned(), value);
                }
                Some((key, _)) => {
                    tell(&format!("weft: {key} is given twice: name it once"));
                    return Ok(ExitCode::from(USAGE));
                }
                None => {
                    tell(&format!(
                        "weft: {word} is no KEY=VALUE: names stand before all keys"
                    ));
                    return Ok(ExitCode::from(USAGE));
                }
            }
        }
        let body = Value::Object(fields).to_string();
        change(&self.how, method, &place(&self.kind, &names), body)
    }
}

fn change(how: &ChangeArgs, method: &str, place: &str, body: String) -> io::Result<ExitCode> {
    let request = admin::Request {
        method: method.parse().expect("a method"),
        body,
        ..how.request(place)
    };
    how.end(ask(how.place(), &request, None))
}

/// Where an object is asked for.
fn place(kind: &str, names: &[String]) -> String {
    let parts = std::iter::once(kind).chain(names.iter().map(String::as_str));
    let parts: Vec<String> = parts.map(encoded).collect();
    format!("/v1/objects/{}", parts.join("/"))
}

/// Key and value, where a word is that: a name may have `=` behind what no key has.
fn field(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!key.is_empty() && key.chars().all(is_key)).then_some((key, value))
}

/// Bytes of a secret in a line, at most.
const SECRET_LINE_BYTES_MAX: u64 = 4096;

/// Whether the value of a key is a secret itself.
fn is_secret(key: &str) -> bool {
    key == "secret" || key.ends_with("_secret")
}

/// The value of a key: of a secret what a line of `input` has.
///
/// # Errors
/// The secret is among the arguments, which every user of the machine sees, and the history of the
/// shell keeps.
fn told_value(key: &str, value: &str, input: &mut dyn BufRead) -> Result<Value, String> {
    let shown = "every user of this machine sees the arguments of a process";
    if is_secret(key) {
        return match value {
            "" => Ok(Value::Null),
            "-" => {
                let mut line = String::new();
                let read = input.take(SECRET_LINE_BYTES_MAX).read_line(&mut line);
                match read {
                    Ok(0) => Err(format!("{key}: standard input has no line for it")),
                    Ok(_) => Ok(line.trim_end_matches(['\r', '\n']).into()),
                    Err(error) => Err(format!("{key}: standard input cannot be read: {error}")),
                }
            }
            _ => Err(format!(
                "{key}: {shown}: name a file that has it (`{key}_file=PATH`), or give it as a \
                 line of standard input (`{key}=-`)"
            )),
        };
    }
    let value = value_of(value);
    match secret_in(&value) {
        Some(secret) => Err(format!(
            "{key}: it has a secret, and {shown}: name a file that has it, as `{secret}_file`"
        )),
        None => Ok(value),
    }
}

/// The key of a secret that any table in a value has.
fn secret_in(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => {
            let mut fields = fields.iter();
            fields.find_map(|(key, value)| match is_secret(key) {
                true => Some(&**key),
                false => secret_in(value),
            })
        }
        Value::Array(all) => all.iter().find_map(secret_in),
        _ => None,
    }
}

/// What TOML takes it for, else a text. Nothing: the key goes, and its default holds.
fn value_of(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    let table = format!("value = {text}").parse::<toml::Table>();
    let value = table.ok().filter(|table| table.len() == 1);
    let value = value.and_then(|table| table.get("value").cloned());
    match value {
        // A day or an hour is a text to all keys.
        None | Some(toml::Value::Datetime(_)) => Value::String(text.to_owned()),
        Some(value) => serde_json::to_value(value).unwrap_or_else(|_| text.into()),
    }
}

fn show_objects(out: &mut dyn Write, answer: &ConfigObjects) -> io::Result<()> {
    if answer.objects.is_empty() {
        return writeln!(out, "there is none: `weft add` makes one");
    }
    for object in &answer.objects {
        writeln!(out, "{}", object.object)?;
        for (key, value) in &object.fields {
            writeln!(out, "  {key} = {value}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_is_taken_of_standard_input_and_of_no_argument() {
        let told =
            |key: &str, value: &str| told_value(key, value, &mut &b"a secret\r\nanother"[..]);
        for key in ["secret", "dhchap_secret", "dhchap_ctrl_secret"] {
            assert_eq!(told(key, "-"), Ok(json!("a secret")));
            assert_eq!(told(key, ""), Ok(json!(null)));
            let why = told(key, "a secret").expect_err(key);
            for part in [&format!("`{key}_file=PATH`"), &format!("`{key}=-`")] {
                assert!(why.contains(part) && !why.contains("a secret"), "{why}");
            }
        }
        let why = told("chap", r#"{ user = "a", secret = "b" }"#).expect_err("a secret");
        assert!(why.contains("`secret_file`"), "{why}");
        let why = told("hosts", r#"[{ nqn = "a", dhchap_secret = "b" }]"#).expect_err("a secret");
        assert!(why.contains("`dhchap_secret_file`"), "{why}");
        for value in [r#"{ user = "a", secret_file = "b" }"#, "-", "secret"] {
            assert!(told("chap", value).is_ok(), "{value}");
        }
        assert!(told_value("secret", "-", &mut &b""[..]).is_err());
    }

    #[test]
    fn words_are_names_or_keys_with_values_of_toml_or_texts() {
        for (word, expected) in [
            ("size=8GiB", Some(("size", json!("8GiB")))),
            ("nsid=2", Some(("nsid", json!(2)))),
            ("hosts=[\"a\", \"b\"]", Some(("hosts", json!(["a", "b"])))),
            ("read_only=true", Some(("read_only", json!(true)))),
            ("serial=\"12\"", Some(("serial", json!("12")))),
            ("serial=", Some(("serial", json!(null)))),
            ("name=1\nother = 2", Some(("name", json!("1\nother = 2")))),
            ("name=2026-01-05", Some(("name", json!("2026-01-05")))),
            ("/exports/a=b", None),
            ("iqn.1993-08.org.debian:a=b", None),
            ("=1", None),
        ] {
            let found = field(word).map(|(key, value)| (key, value_of(value)));
            assert_eq!(found, expected, "{word}");
        }
    }
}
