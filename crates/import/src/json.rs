//! JSON with the line of every key, and no key twice.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::report::Place;
use crate::tree::SourceKey;

/// Reads a text.
///
/// # Errors
/// The line, and what is wrong there.
pub(crate) fn read(text: &str, file: u16) -> Result<SourceKey, (Place, String)> {
    let ends = text.match_indices('\n').map(|(at, _)| at);
    let reader = JsonReader {
        text,
        ends: ends.collect(),
        line: Cell::new(1),
        file,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = JsonValue(&reader).deserialize(&mut deserializer);
    let read = read.and_then(|key| deserializer.end().map(|()| key));
    read.map_err(|error| {
        let line = u32::try_from(error.line()).unwrap_or(u32::MAX);
        let why = error.to_string();
        let why = match why.contains("recursion limit") {
            true => "brackets are nested more than 127 deep: this is no configuration".to_owned(),
            false => format!("this is no valid JSON: {why}"),
        };
        (Place { file, line }, why)
    })
}

struct JsonReader<'t> {
    text: &'t str,
    /// Where each line ends.
    ends: Vec<usize>,
    /// Of the key that was read last.
    line: Cell<u32>,
    file: u16,
}

impl JsonReader<'_> {
    fn place(&self) -> Place {
        let (file, line) = (self.file, self.line.get());
        Place { file, line }
    }

    /// Sets the line to that of a key, which is a part of the text unless it has escapes.
    fn at(&self, key: &str) {
        let start = (key.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        if start < self.text.len() {
            let line = self.ends.partition_point(|end| *end < start) + 1;
            self.line.set(u32::try_from(line).unwrap_or(u32::MAX));
        }
    }
}

/// A value; its key's name is not known yet.
#[derive(Clone, Copy)]
struct JsonValue<'r, 't>(&'r JsonReader<'t>);

impl<'de> DeserializeSeed<'de> for JsonValue<'_, '_> {
    type Value = SourceKey;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<SourceKey, D::Error> {
        from.deserialize_any(self)
    }
}

impl JsonValue<'_, '_> {
    fn word<E>(self, word: String) -> Result<SourceKey, E> {
        let mut key = SourceKey::new("", self.0.place());
        key.words.push(word);
        Ok(key)
    }
}

impl<'de> Visitor<'de> for JsonValue<'_, '_> {
    type Value = SourceKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<SourceKey, E> {
        self.word(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<SourceKey, E> {
        self.word(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<SourceKey, E> {
        self.word(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<SourceKey, E> {
        self.word(value.to_string())
    }

    fn visit_str<E>(self, value: &str) -> Result<SourceKey, E> {
        self.word(value.to_owned())
    }

    fn visit_unit<E>(self) -> Result<SourceKey, E> {
        Ok(SourceKey::new("", self.0.place()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<SourceKey, A::Error> {
        let mut list = SourceKey::new("", self.0.place());
        while let Some(item) = items.next_element_seed(self)? {
            match item.keys.is_empty() && item.words.len() == 1 {
                true => list.words.extend(item.words),
                false => list.keys.push(item),
            }
        }
        Ok(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SourceKey, A::Error> {
        let mut table = SourceKey::new("", self.0.place());
        let mut names: HashSet<String> = HashSet::new();
        while let Some(name) = entries.next_key_seed(JsonKey(self.0))? {
            if table.keys.is_empty() {
                table.place = self.0.place();
            }
            if !names.insert(name.clone()) {
                let text = format!("the key {name:?} is there already: leave one of both");
                return Err(A::Error::custom(text));
            }
            let place = self.0.place();
            let mut value = entries.next_value_seed(self)?;
            (value.name, value.place) = (name, place);
            table.keys.push(value);
        }
        Ok(table)
    }
}

struct JsonKey<'r, 't>(&'r JsonReader<'t>);

impl<'de> DeserializeSeed<'de> for JsonKey<'_, '_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for JsonKey<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<String, E> {
        self.0.at(key);
        Ok(key.to_owned())
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }
}
