//! A text that moves to another folder.

use std::path::Path;
use tls::is_no_path;

use toml_edit::{DocumentMut, Item, TableLike, Value};

use super::list::set_text;
use crate::schema::{FILE, Takes, keys_of};

/// The text with every relative path in it made absolute, as of a configuration in `folder`. A
/// text that is no TOML stays as it is.
#[must_use]
pub fn with_absolute_paths(text: &str, folder: &Path) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else {
        return text.to_owned();
    };
    let mut changed = false;
    absolute_in(document.as_table_mut(), FILE, folder, &mut changed);
    match changed {
        true => document.to_string(),
        false => text.to_owned(),
    }
}

fn absolute_in(table: &mut dyn TableLike, section: &str, folder: &Path, changed: &mut bool) {
    for key in keys_of(section) {
        let Some(item) = table.get_mut(key.name) else {
            continue;
        };
        match (key.takes, item) {
            (Takes::Table(title), item) => {
                if let Some(table) = item.as_table_like_mut() {
                    absolute_in(table, title, folder, changed);
                }
            }
            (Takes::Tables(title), Item::ArrayOfTables(tables)) => {
                for table in tables.iter_mut() {
                    absolute_in(table, title, folder, changed);
                }
            }
            (Takes::Tables(title), Item::Value(Value::Array(array))) => {
                for table in array.iter_mut().filter_map(Value::as_inline_table_mut) {
                    absolute_in(table, title, folder, changed);
                }
            }
            (Takes::File, Item::Value(Value::String(text))) if !text.value().is_empty() => {
                *changed |= set_text(text, &folder.join(text.value()).to_string_lossy());
            }
            (Takes::Secret, Item::Value(Value::String(text)))
                if !text.value().is_empty() && !is_no_path(text.value()) =>
            {
                *changed |= set_text(text, &folder.join(text.value()).to_string_lossy());
            }
            (Takes::FileOr(word), Item::Value(Value::String(text))) if text.value() != word => {
                *changed |= set_text(text, &folder.join(text.value()).to_string_lossy());
            }
            _ => {}
        }
    }
}
