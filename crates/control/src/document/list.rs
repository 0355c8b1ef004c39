//! Tables and lists of a text, with their layout: found, copied, narrowed to some of what a
//! pattern stands for, and taken out.

use std::ops::Range;

use toml_edit::{
    Array, ArrayOfTables, Decor, Formatted, InlineTable, Item, RawString, Table, TableLike, Value,
};

use super::kind::Naming;
use crate::pattern::{is_literal, members, narrowed};

/// A table that something is in.
pub(super) struct OpenTable<'d> {
    pub table: &'d mut dyn TableLike,
    /// In braces: so is all that is in it.
    pub is_inline: bool,
}

impl<'d> OpenTable<'d> {
    /// The table under a key; made if it is not there and `make`.
    pub fn enter(self, key: &str, make: bool) -> Option<OpenTable<'d>> {
        if make && !self.table.contains_key(key) {
            let mut table = Table::new();
            table.set_implicit(true);
            let empty = match self.is_inline {
                true => Item::Value(Value::from(InlineTable::new())),
                false => Item::Table(table),
            };
            self.table.insert(key, empty);
        }
        match self.table.get_mut(key)? {
            Item::Table(table) => Some(OpenTable {
                table,
                is_inline: false,
            }),
            Item::Value(Value::InlineTable(table)) => Some(OpenTable {
                table,
                is_inline: true,
            }),
            _ => None,
        }
    }

    /// The list of tables that these keys lead to; made if it is not there and `make`.
    pub fn list(self, keys: &[&str], make: bool) -> Option<List<'d>> {
        let (last, through) = keys.split_last()?;
        let mut holder = self;
        for key in through {
            holder = holder.enter(key, make)?;
        }
        let OpenTable { table, is_inline } = holder;
        if make && !table.contains_key(last) {
            let empty = match is_inline {
                true => Item::Value(Value::from(Array::new())),
                false => Item::ArrayOfTables(ArrayOfTables::new()),
            };
            table.insert(last, empty);
        }
        match table.get_mut(last)? {
            Item::ArrayOfTables(tables) => Some(List::Tables(tables)),
            Item::Value(Value::Array(array)) => Some(List::Inline(array)),
            _ => None,
        }
    }

    /// The list of texts under a key.
    pub fn texts(&mut self, key: &str) -> Option<&mut Array> {
        self.table.get_mut(key)?.as_array_mut()
    }

    /// The same holder for a shorter time.
    pub fn again(&mut self) -> OpenTable<'_> {
        OpenTable {
            table: &mut *self.table,
            is_inline: self.is_inline,
        }
    }
}

/// Tables of one kind: each with a header, or in braces in an array.
pub(super) enum List<'d> {
    Tables(&'d mut ArrayOfTables),
    Inline(&'d mut Array),
}

/// What is left of a table that went: where it stood, and what stood before it.
pub(super) struct Removed {
    pub position: Option<isize>,
    pub prefix: String,
}

impl<'d> List<'d> {
    pub fn len(&self) -> usize {
        match self {
            List::Tables(tables) => tables.len(),
            List::Inline(array) => array.len(),
        }
    }

    fn get(&self, at: usize) -> Option<&dyn TableLike> {
        match self {
            List::Tables(tables) => tables.get(at).map(|table| table as &dyn TableLike),
            List::Inline(array) => {
                let table = array.get(at)?.as_inline_table()?;
                Some(table)
            }
        }
    }

    pub fn holder(self, at: usize) -> Option<OpenTable<'d>> {
        match self {
            List::Tables(tables) => tables.get_mut(at).map(|table| OpenTable {
                table,
                is_inline: false,
            }),
            List::Inline(array) => {
                let table = array.get_mut(at)?.as_inline_table_mut()?;
                Some(OpenTable {
                    table,
                    is_inline: true,
                })
            }
        }
    }

    /// What each table is called, in order; of a name with a pattern all that it stands for.
    pub fn names(&self, naming: Naming, many: bool) -> impl Iterator<Item = Vec<String>> {
        (0..self.len()).map(move |at| {
            let table = self.get(at);
            let name = naming.name(|key| name_of(table?.get(key)?));
            match many {
                true => members(&name.unwrap_or_default()),
                false => vec![name.unwrap_or_default()],
            }
        })
    }

    pub fn push(&mut self, fields: impl IntoIterator<Item = (&'static str, Value)>) {
        match self {
            List::Tables(tables) => {
                let mut table = Table::new();
                for (key, value) in fields {
                    table.insert(key, Item::Value(value));
                }
                tables.push(table);
            }
            List::Inline(array) => {
                let table: InlineTable = fields.into_iter().collect();
                array.push(table);
            }
        }
    }

    pub fn remove(&mut self, at: usize) -> Removed {
        match self {
            List::Tables(tables) => {
                let table = tables.remove(at);
                let prefix = table.decor().prefix().and_then(RawString::as_str);
                Removed {
                    position: table.position(),
                    prefix: prefix.unwrap_or_default().to_owned(),
                }
            }
            List::Inline(array) => {
                remove_item(array, at);
                Removed {
                    position: None,
                    prefix: String::new(),
                }
            }
        }
    }

    /// Makes a table of each of these parts of what the table's pattern stands for.
    pub fn split(&mut self, at: usize, parts: &[Range<usize>]) {
        for (next, part) in parts.iter().enumerate().rev() {
            match self {
                List::Tables(tables) => {
                    let Some(mut table) = tables.get(at).cloned() else {
                        return;
                    };
                    narrow(&mut table, part);
                    if next == 0 {
                        tables.replace(at, table);
                    } else {
                        plain_table(&mut table);
                        tables.insert(at + 1, table);
                    }
                }
                List::Inline(array) => {
                    let Some(mut value) = array.get(at).cloned() else {
                        return;
                    };
                    narrow_value(&mut value, part);
                    if next == 0 {
                        array.replace_formatted(at, value);
                    } else {
                        plain_value(&mut value);
                        array.insert_formatted(at + 1, value);
                    }
                }
            }
        }
    }
}

/// What an object is called by where a key has this value.
fn name_of(item: &Item) -> Option<String> {
    fn text(value: &Value) -> Option<Vec<String>> {
        match value {
            Value::String(text) => Some(members(text.value())),
            Value::Integer(number) => Some(vec![number.value().to_string()]),
            _ => None,
        }
    }
    match item.as_value()? {
        Value::String(text) => Some(text.value().clone()),
        Value::Array(array) => {
            let items: Option<Vec<_>> = array.iter().map(text).collect();
            Some(items?.concat().join(","))
        }
        value => Some(text(value)?.concat()),
    }
}

/// Sets a text where it stands; whether it was another.
pub(super) fn set_text(text: &mut Formatted<String>, new: &str) -> bool {
    if text.value() == new {
        return false;
    }
    let decor = text.decor().clone();
    *text = Formatted::new(new.to_owned());
    *text.decor_mut() = decor;
    true
}

fn narrow(table: &mut dyn TableLike, turns: &Range<usize>) {
    for (key, item) in table.iter_mut() {
        if is_literal(key.get()) {
            continue;
        }
        match item {
            Item::Value(value) => narrow_value(value, turns),
            Item::Table(table) => narrow(table, turns),
            Item::ArrayOfTables(tables) => {
                tables.iter_mut().for_each(|table| narrow(table, turns));
            }
            Item::None => {}
        }
    }
}

fn narrow_value(value: &mut Value, turns: &Range<usize>) {
    match value {
        Value::String(text) => {
            let new = narrowed(text.value(), turns);
            set_text(text, &new);
        }
        Value::Array(array) => array.iter_mut().for_each(|item| narrow_value(item, turns)),
        Value::InlineTable(table) => narrow(table, turns),
        _ => {}
    }
}

/// A copy says no comment again, and stands behind what it is a copy of.
fn plain_table(table: &mut Table) {
    table.set_position(None);
    plain_decor(table.decor_mut());
    for (mut key, item) in table.iter_mut() {
        plain_key(key.leaf_decor_mut());
        match item {
            Item::Value(value) => plain_value(value),
            Item::Table(table) => plain_table(table),
            Item::ArrayOfTables(tables) => tables.iter_mut().for_each(plain_table),
            Item::None => {}
        }
    }
}

fn plain_value(value: &mut Value) {
    plain_decor(value.decor_mut());
    match value {
        Value::Array(array) => {
            array.iter_mut().for_each(plain_value);
            let trailing = array.trailing().as_str().map(without_comments);
            array.set_trailing(trailing.unwrap_or_default());
        }
        Value::InlineTable(table) => {
            for (mut key, value) in table.iter_mut() {
                plain_key(key.leaf_decor_mut());
                plain_value(value);
            }
        }
        _ => {}
    }
}

fn plain_decor(decor: &mut Decor) {
    let plain = |text: Option<&RawString>| text?.as_str().map(without_comments);
    if let Some(prefix) = plain(decor.prefix()) {
        decor.set_prefix(prefix);
    }
    if let Some(suffix) = plain(decor.suffix()) {
        decor.set_suffix(suffix);
    }
}

/// What stands around a value or header, less its comments; of empty lines one is enough.
fn without_comments(text: &str) -> String {
    let (first, others) = text
        .split_once('\n')
        .map_or((text, None), |(a, b)| (a, Some(b)));
    let first = if first.contains('#') { "" } else { first };
    let Some(others) = others else {
        return first.to_owned();
    };
    let others = others.split('\n').filter(|line| !line.contains('#'));
    let others = others.collect::<Vec<_>>().join("\n");
    format!("{first}\n{}", others.trim_start_matches('\n'))
}

/// As above, for a key: it is on the next line anyway.
fn plain_key(decor: &mut Decor) {
    let prefix = decor.prefix().and_then(RawString::as_str);
    let indent = prefix.and_then(|text| text.rsplit('\n').next());
    let indent = indent.unwrap_or_default().to_owned();
    decor.set_prefix(indent);
}

/// Adds a text to a list, laid out as the last is.
pub(super) fn push_item(array: &mut Array, text: &str) {
    let last = array.iter().last();
    let prefix = last.and_then(|value| value.decor().prefix()?.as_str().map(without_comments));
    match prefix.filter(|prefix| prefix.contains('\n')) {
        None => array.push(text),
        Some(prefix) => array.push_formatted(Value::from(text).decorated(prefix, "")),
    }
}

/// Takes an item out of a list. A comment behind the item before it stays, one behind the item
/// goes with it.
fn remove_item(array: &mut Array, at: usize) {
    let behind = |text: &str| text.split_once('\n').map(|(_, rest)| format!("\n{rest}"));
    let gone = array.remove(at);
    let prefix = gone.decor().prefix().and_then(RawString::as_str);
    let prefix = prefix.unwrap_or_default();
    let own = prefix.split('\n').next().unwrap_or_default();
    match array.get_mut(at) {
        Some(next) => {
            let found = next.decor().prefix().and_then(RawString::as_str);
            let rest = found.map_or_else(String::new, |text| behind(text).unwrap_or_default());
            let line = if own.contains('#') && rest.is_empty() {
                "\n"
            } else {
                ""
            };
            next.decor_mut().set_prefix(format!("{own}{line}{rest}"));
        }
        None => {
            let rest = array.trailing().as_str().map(behind);
            match rest.flatten() {
                Some(rest) => array.set_trailing(format!("{own}{rest}")),
                None if own.contains('#') => array.set_trailing(format!("{own}\n")),
                None => {}
            }
        }
    }
}

/// Takes one text out of a list, out of the pattern that stands for it too; whether it was there.
pub(super) fn take_text(array: &mut Array, text: &str) -> bool {
    for at in 0..array.len() {
        let Some(Value::String(item)) = array.get(at) else {
            continue;
        };
        let all = members(item.value());
        let Some(nth) = all.iter().position(|member| member == text) else {
            continue;
        };
        let pattern = item.value().clone();
        let parts = parts_without(nth, all.len());
        let texts: Vec<String> = parts.iter().map(|part| narrowed(&pattern, part)).collect();
        replace_item(array, at, &texts);
        return true;
    }
    false
}

/// Keeps the first texts of a list, and answers the others.
pub(super) fn cut_texts(array: &mut Array, keep: usize) -> Vec<String> {
    let (mut seen, mut others) = (0, Vec::new());
    let mut at = 0;
    while at < array.len() {
        let Some(Value::String(item)) = array.get(at) else {
            at += 1;
            continue;
        };
        let pattern = item.value().clone();
        let all = members(&pattern);
        let kept = keep.saturating_sub(seen).min(all.len());
        seen += all.len();
        others.extend_from_slice(&all[kept..]);
        if kept == all.len() {
            at += 1;
        } else if kept > 0 {
            replace_item(array, at, &[narrowed(&pattern, &(0..kept))]);
            at += 1;
        } else {
            remove_item(array, at);
        }
    }
    others
}

/// Puts several texts, or none, in the place of one.
fn replace_item(array: &mut Array, at: usize, texts: &[String]) {
    let Some((first, others)) = texts.split_first() else {
        return remove_item(array, at);
    };
    array.replace(at, first.as_str());
    for (next, text) in others.iter().enumerate() {
        array.insert(at + 1 + next, text.as_str());
    }
}

/// The parts of a pattern before and behind one that it stands for.
pub(super) fn parts_without(nth: usize, count: usize) -> Vec<Range<usize>> {
    let parts = [0..nth, nth + 1..count];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}
