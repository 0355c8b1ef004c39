//! The form of the file as a JSON Schema, for editors.

use serde_json::{Map, Value, json};

use crate::document::KINDS;
use crate::schema::{FILE, SCHEMA, Takes, keys_of};
use crate::value::UNITS;

/// A JSON Schema of the file: sections, keys and the forms of their values. What depends on other
/// keys only [`crate::parse`] knows. It is of draft 7, with words of draft 4 alone: some
/// editors of TOML know no others.
#[must_use]
pub fn json_schema() -> Value {
    let sections = SCHEMA.iter().filter(|(title, _)| *title != FILE);
    let sections = sections.map(|(title, _)| (name_of(title).to_owned(), section(title)));
    let mut schema = section(FILE);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("weft.toml");
    schema["definitions"] = sections.collect::<Map<_, _>>().into();
    schema
}

/// What is said of the objects of one kind.
#[derive(Clone, Debug)]
pub struct ObjectSchema {
    /// As in [`crate::ObjectPath`].
    pub kind: &'static str,
    /// How many names such an object has: its own at the end. Settings have none.
    pub names: usize,
    /// A JSON Schema of its fields, that refers to no other.
    pub fields: Value,
}

/// The form of the objects of each kind, as single objects are added and changed: a field that
/// is `null` is left to its default, and what is in an object is none of its fields.
pub fn object_schemas() -> impl Iterator<Item = ObjectSchema> {
    KINDS.iter().map(|kind| {
        let keys = keys_of(kind.section).iter();
        let keys = keys.filter(|key| match key.takes {
            Takes::Table(_) | Takes::Tables(_) => !kind.holds_objects(key.name),
            _ => true,
        });
        let field = |takes| {
            let form = match takes {
                Takes::Table(title) => object(title),
                takes => form(takes),
            };
            json!({ "anyOf": [form, { "type": "null" }] })
        };
        let fields = keys.map(|key| (key.name.to_owned(), field(key.takes)));
        ObjectSchema {
            kind: kind.word,
            names: kind.names(),
            fields: object_of(fields.collect()),
        }
    })
}

fn section(title: &str) -> Value {
    let mut section = object(title);
    section["title"] = json!(title);
    section
}

fn object(title: &str) -> Value {
    let keys = keys_of(title).iter();
    object_of(
        keys.map(|key| (key.name.to_owned(), form(key.takes)))
            .collect(),
    )
}

fn object_of(properties: Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// A title without its brackets.
fn name_of(title: &str) -> &str {
    title.trim_matches(['[', ']'])
}

fn form(takes: Takes) -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let of = |title| json!({ "$ref": format!("#/definitions/{}", name_of(title)) });
    match takes {
        Takes::Text | Takes::File | Takes::FileOr(_) | Takes::Secret => text,
        Takes::Flag => json!({ "type": "boolean" }),
        Takes::FlagOr(word) => json!({ "anyOf": [{ "type": "boolean" }, { "enum": [word] }] }),
        Takes::Number => number,
        Takes::NumberOr(word) => json!({ "anyOf": [number, { "enum": [word] }] }),
        Takes::Size => json!({ "anyOf": [number, { "type": "string", "pattern": size() }] }),
        Takes::Texts => json!({ "type": "array", "items": text }),
        Takes::Numbers => json!({ "type": "array", "items": number }),
        Takes::Table(title) => of(title),
        Takes::Tables(title) => json!({ "type": "array", "items": of(title) }),
    }
}

/// Digits, or a range of numbers where one table makes several, and a unit.
fn size() -> String {
    let units: Vec<_> = UNITS.iter().map(|(name, _)| *name).collect();
    let units = units.join("|");
    format!(r"^([0-9]|\{{[0-9]+\.\.[0-9]+\}})+\s*({units})?$")
}
