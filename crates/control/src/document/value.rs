//! Values of fields: from JSON to the text's own form.

use serde_json::Value as Json;
use tls::SECRET_PLACE;
use toml_edit::{Array, InlineTable, Value};

use crate::schema::{Key, SCHEMA, Takes, keys_of};
use crate::source::hint_for_key;

/// The key of a section, or what is wrong with its name.
pub(super) fn key_of(section: &'static str, name: &str) -> Result<&'static Key, String> {
    let keys = keys_of(section);
    let known = keys.iter().find(|key| key.name == name);
    known.ok_or_else(|| {
        let hint = hint_for_key(SCHEMA, section, keys, name);
        format!("unknown key `{name}` in {section}{hint}")
    })
}

/// A value as a key takes it, or what it takes instead.
pub(super) fn value(takes: Takes, json: &Json) -> Result<Value, String> {
    let text = |form: &str| match json {
        Json::String(text) => Ok(Value::from(text.as_str())),
        _ => Err(wrong(form, json)),
    };
    match takes {
        Takes::Text => text("a text"),
        Takes::File => text("the path of a file"),
        Takes::Secret => text(SECRET_PLACE),
        Takes::FileOr(word) => text(&format!("the path of a file, or \"{word}\"")),
        Takes::Flag => match json {
            Json::Bool(flag) => Ok(Value::from(*flag)),
            _ => Err(wrong("true or false", json)),
        },
        Takes::FlagOr(word) => match json {
            Json::Bool(flag) => Ok(Value::from(*flag)),
            _ if json == word => Ok(Value::from(word)),
            _ => Err(wrong(&format!("true, false or \"{word}\""), json)),
        },
        Takes::Number => number(json).ok_or_else(|| wrong("a whole number", json)),
        Takes::NumberOr(word) if json == word => Ok(Value::from(word)),
        Takes::NumberOr(word) => {
            let form = format!("a whole number or \"{word}\"");
            number(json).ok_or_else(|| wrong(&form, json))
        }
        Takes::Size => match json {
            Json::String(text) => Ok(Value::from(text.as_str())),
            _ => number(json)
                .ok_or_else(|| wrong("a size such as \"1GiB\" or a number of bytes", json)),
        },
        Takes::Texts => list(json, "texts", |item| item.as_str().map(Value::from)),
        Takes::Numbers => list(json, "whole numbers", number),
        Takes::Table(section) => table(section, json),
        Takes::Tables(_) => Err("what is in it are objects of their own".to_owned()),
    }
}

/// TOML's numbers have a sign.
fn number(json: &Json) -> Option<Value> {
    let number = json.as_u64()?;
    Some(Value::from(i64::try_from(number).ok()?))
}

fn list(json: &Json, of: &str, item: impl Fn(&Json) -> Option<Value>) -> Result<Value, String> {
    let items = json.as_array().map(|items| items.iter().map(item));
    let array: Option<Option<Array>> = items.map(Iterator::collect);
    let array = array.flatten();
    array
        .map(Value::from)
        .ok_or_else(|| wrong(&format!("a list of {of}"), json))
}

/// `user` and `secret` of CHAP, ...
fn table(section: &'static str, json: &Json) -> Result<Value, String> {
    let Json::Object(fields) = json else {
        return Err(wrong("an object", json));
    };
    let mut table = InlineTable::new();
    for (name, json) in fields {
        let key = key_of(section, name)?;
        let value = value(key.takes, json).map_err(|why| format!("`{name}` {why}"))?;
        table.insert(name, value);
    }
    Ok(Value::from(table))
}

fn wrong(form: &str, json: &Json) -> String {
    let found = match json {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(number) if !number.is_u64() => "a number below 0 or with a fraction",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    };
    format!("takes {form}, not {found}")
}
