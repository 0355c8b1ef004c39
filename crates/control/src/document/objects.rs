//! The objects of a text, patterns and short lists written out.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ObjectPath;
use super::kind::{KINDS, Kind, Naming};
use crate::source::{Problem, Sink};
use crate::{pattern, schema};

/// What is told of a secret that there is; of one that is set so, it stays.
pub const SET: &str = "(set)";

/// An object, and where in the text it says what.
pub(super) struct FoundObject {
    pub path: ObjectPath,
    pub fields: Map<String, Value>,
    /// Starts of what stands there, in bytes, and the field that this is of.
    places: Vec<(usize, Option<String>)>,
}

/// The objects of a text and the fields that it says of each; secrets are not shown. What is
/// broken is left out.
#[must_use]
pub fn objects(text: &str) -> Vec<(ObjectPath, Map<String, Value>)> {
    let found = found(text).into_iter();
    // A section that says nothing says what one that is not there says.
    let said = found.filter(|object| !object.fields.is_empty() || !object.path.names.is_empty());
    said.map(|object| (object.path, object.fields)).collect()
}

/// The object, and its field, that a problem of a text is told of.
#[must_use]
pub fn object_at(text: &str, problem: &Problem) -> Option<(ObjectPath, Option<String>)> {
    let sink = Sink::new(text);
    let at = sink.offset(problem.line, problem.column)?;
    let mut best: Option<(usize, ObjectPath, Option<String>)> = None;
    for object in found(text) {
        for (start, field) in &object.places {
            // Of what starts there, the last is the smallest.
            if *start <= at && best.as_ref().is_none_or(|(known, ..)| known <= start) {
                best = Some((*start, object.path.clone(), field.clone()));
            }
        }
    }
    best.map(|(_, path, field)| (path, field))
}

pub(super) fn found(text: &str) -> Vec<FoundObject> {
    let (mut table, _) = DeTable::parse_recoverable(text);
    pattern::expand(&mut Sink::new(text), table.get_mut());
    let mut all = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.parent.is_none()) {
        collect(kind, table.get_ref(), &[], &mut all);
    }
    all
}

/// Adds the objects of a kind that are in one table.
fn collect(kind: &'static Kind, within: &DeTable, parents: &[String], all: &mut Vec<FoundObject>) {
    let mut value: Option<&Spanned<DeValue>> = None;
    for (depth, key) in kind.keys.iter().enumerate() {
        let table = match value.map(Spanned::get_ref) {
            None if depth == 0 => Some(within),
            Some(DeValue::Table(table)) => Some(table),
            _ => None,
        };
        value = table.and_then(|table| table.get(*key));
    }
    match value.map(|value| (value.get_ref(), value.span())) {
        Some((DeValue::Table(table), span)) if matches!(kind.naming, Naming::Settings) => {
            all.push(object(kind, table, parents.to_vec(), span));
        }
        Some((DeValue::Array(array), _)) => {
            for item in array.iter() {
                let DeValue::Table(table) = item.get_ref() else {
                    continue;
                };
                let name = kind.naming.name(|key| name_of(table.get(key)?.get_ref()));
                let mut names = parents.to_vec();
                names.push(name.unwrap_or_default());
                all.push(object(kind, table, names.clone(), item.span()));
                for child in kind.children() {
                    collect(child, table, &names, all);
                }
            }
        }
        _ => {}
    }
    in_short(kind, within, parents, all);
}

/// Adds those that a list of their parent has in short.
fn in_short(kind: &Kind, within: &DeTable, parents: &[String], all: &mut Vec<FoundObject>) {
    let Some(short) = kind.short else { return };
    let list = within.get(short.list).map(Spanned::get_ref);
    let Some(DeValue::Array(list)) = list else {
        return;
    };
    for (number, item) in (short.first.unwrap_or(0)..).zip(list.iter()) {
        let DeValue::String(text) = item.get_ref() else {
            continue;
        };
        let mut fields = Map::new();
        if let Some(key) = kind.naming.keys().first() {
            let is_list = is_list(kind, key);
            let named = match short.first {
                Some(_) => Value::from(number),
                None if is_list => Value::from(vec![text.to_string()]),
                None => Value::from(text.to_string()),
            };
            fields.insert((*key).to_owned(), named);
        }
        let mut names = parents.to_vec();
        names.push(text.to_string());
        if short.first.is_some() {
            fields.insert(short.key.to_owned(), Value::from(text.to_string()));
            names.pop();
            names.push(number.to_string());
        }
        let field = fields.contains_key(short.key).then(|| short.key.to_owned());
        let kind = kind.word.to_owned();
        all.push(FoundObject {
            path: ObjectPath { kind, names },
            fields,
            places: vec![(item.span().start, field)],
        });
    }
}

/// Whether a key of a kind takes a list of texts.
pub(super) fn is_list(kind: &Kind, key: &str) -> bool {
    let keys = schema::keys_of(kind.section);
    let known = keys.iter().find(|known| known.name == key);
    known.is_some_and(|known| known.takes == schema::Takes::Texts)
}

fn object(kind: &Kind, table: &DeTable, names: Vec<String>, span: Range<usize>) -> FoundObject {
    let mut fields = Map::new();
    let mut places = vec![(span.start, None)];
    for (key, value) in table.iter() {
        let name = key.get_ref();
        if kind.holds_objects(name) {
            continue;
        }
        fields.insert(name.to_string(), shown(name, value.get_ref()));
        places.push((key.span().start, Some(name.to_string())));
        starts(value, &mut |start| {
            places.push((start, Some(name.to_string())))
        });
    }
    let kind = kind.word.to_owned();
    FoundObject {
        path: ObjectPath { kind, names },
        fields,
        places,
    }
}

/// Where a value and all within it start.
fn starts(value: &Spanned<DeValue>, found: &mut impl FnMut(usize)) {
    found(value.span().start);
    match value.get_ref() {
        DeValue::Array(array) => array.iter().for_each(|item| starts(item, found)),
        DeValue::Table(table) => table.iter().for_each(|(key, value)| {
            found(key.span().start);
            starts(value, found);
        }),
        _ => {}
    }
}

/// What an object is called by where a key has this value.
pub(crate) fn name_of(value: &DeValue) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let read = u64::from_str_radix(number.as_str(), number.radix());
            Some(read.map_or_else(|_| number.to_string(), |read| read.to_string()))
        }
        DeValue::Array(array) => {
            let items: Option<Vec<_>> = array.iter().map(|item| name_of(item.get_ref())).collect();
            Some(items?.join(","))
        }
        _ => None,
    }
}

/// A value as JSON; a secret only says that it is there.
fn shown(key: &str, value: &DeValue) -> Value {
    match value {
        _ if schema::is_secret(key) => Value::from(SET),
        DeValue::String(text) => Value::from(Cow::as_ref(text)),
        DeValue::Integer(number) => match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(number.to_string()),
        },
        DeValue::Float(number) => Value::from(number.to_string()),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(array) => array
            .iter()
            .map(|item| shown(key, item.get_ref()))
            .collect(),
        DeValue::Table(table) => {
            let pairs = table.iter();
            let pairs = pairs.map(|(key, value)| {
                let name = key.get_ref().to_string();
                let value = shown(&name, value.get_ref());
                (name, value)
            });
            Value::Object(pairs.collect())
        }
    }
}
