//! One change of one object.

use serde_json::{Map, Value as Json};
use toml_edit::{Array, Decor, DocumentMut, Item, RawString, Table, Value};

use super::kind::{KINDS, Kind, Naming, Short};
use super::list::{List, OpenTable, Removed, cut_texts, parts_without, push_item, take_text};
use super::objects::{SET, is_list};
use super::value::{key_of, value};
use super::{Edit, EditProblem, ObjectPath};
use crate::pattern::{makes_many, members};
use crate::schema::{Takes, is_secret, keys_of};
use crate::source::nearest;

type Fields = Vec<(&'static str, Option<Value>)>;

pub(super) fn make(document: &mut DocumentMut, edit: &Edit) -> Result<(), EditProblem> {
    let object = edit.object();
    let kind = Kind::of(object)?;
    let object = &as_numbered(kind, object)?;
    let root = OpenTable {
        table: document.as_table_mut(),
        is_inline: false,
    };
    match edit {
        Edit::Add { fields, .. } => {
            let fields = read(kind, object, fields)?;
            add(parent(root, kind, object)?, kind, object, fields)
        }
        Edit::Set { fields, .. } => {
            let fields = read(kind, object, fields)?;
            let parent = parent(root, kind, object)?;
            set(parent, kind, object, fields)
        }
        Edit::Remove { .. } => {
            let removed = remove(parent(root, kind, object)?, kind, object)?;
            keep_comments(document, &removed);
            Ok(())
        }
    }
}

/// The path with its numbers as the text has them: `01` is `1`.
fn as_numbered(kind: &Kind, object: &ObjectPath) -> Result<ObjectPath, EditProblem> {
    let mut object = object.clone();
    let (Some(key), Some(name)) = (kind.naming.keys().first().copied(), object.names.last()) else {
        return Ok(object);
    };
    let is_number = keys_of(kind.section)
        .iter()
        .any(|known| known.name == key && known.takes == Takes::Number);
    if !is_number {
        return Ok(object);
    }
    let (number, tail) = match (kind.naming, name.split_once('@')) {
        (Naming::Both(..), Some((number, _))) => (number, &name[number.len()..]),
        _ => (name.as_str(), ""),
    };
    match number.parse::<u32>() {
        Ok(number) => {
            let name = format!("{number}{tail}");
            object.names.pop();
            object.names.push(name);
            Ok(object)
        }
        Err(_) => {
            let reason = format!("is a whole number, not \"{number}\"");
            let hint = "give it a number, as 1";
            Err(EditProblem::new(&object, Some(key), reason, hint))
        }
    }
}

/// The fields in the text's form and the schema's order.
fn read(
    kind: &Kind,
    object: &ObjectPath,
    fields: &Map<String, Json>,
) -> Result<Fields, EditProblem> {
    let problem = |name: &str, told: String| EditProblem::of_text(object, Some(name), &told);
    let mut read = Vec::new();
    for (name, json) in fields {
        let key = key_of(kind.section, name).map_err(|why| problem(name, why))?;
        let is_object = matches!(key.takes, Takes::Table(_) | Takes::Tables(_));
        if is_object && kind.holds_objects(name) {
            let told = "what is in it are objects of their own; `weft add` adds each by its kind";
            return Err(problem(name, told.to_owned()));
        }
        let value = match json {
            Json::Null => None,
            _ => Some(value(key.takes, json).map_err(|why| problem(name, why))?),
        };
        read.push((key.name, value));
    }
    let place = |name: &str| {
        keys_of(kind.section)
            .iter()
            .position(|key| key.name == name)
    };
    read.sort_by_key(|(name, _)| place(name));
    Ok(read)
}

/// What the object is in.
fn parent<'d>(
    root: OpenTable<'d>,
    kind: &Kind,
    object: &ObjectPath,
) -> Result<OpenTable<'d>, EditProblem> {
    let Some(parent) = KINDS.iter().find(|known| Some(known.word) == kind.parent) else {
        return Ok(root);
    };
    let name = &object.names[0];
    let missing = || missing(object, parent, name, &[]);
    let mut list = root.list(parent.keys, false).ok_or_else(missing)?;
    let (at, nth, count) = find(&list, parent, object, name)?;
    let own = take_from_pattern(&mut list, at, nth, count);
    list.holder(own).ok_or_else(missing)
}

/// The one table of this name: its place, and which it is of how many that its pattern makes.
fn find(
    list: &List,
    kind: &Kind,
    object: &ObjectPath,
    name: &str,
) -> Result<(usize, usize, usize), EditProblem> {
    let mut found = Vec::new();
    let mut known = Vec::new();
    for (at, names) in list.names(kind.naming, makes_many(kind.keys)).enumerate() {
        let nth = names.iter().position(|known| known == name);
        found.extend(nth.map(|nth| (at, nth, names.len())));
        known.extend(names);
    }
    match *found {
        [] => Err(missing(object, kind, name, &known)),
        [one] => Ok(one),
        _ => {
            let count = found.len();
            let reason = format!("{count} of this kind are called \"{name}\"");
            let hint = "change the file itself";
            Err(EditProblem::new(object, None, reason, hint))
        }
    }
}

fn missing(object: &ObjectPath, kind: &Kind, name: &str, known: &[String]) -> EditProblem {
    let reason = format!("there is no {} \"{name}\"", kind.title());
    let near = nearest(name, known.iter().map(String::as_str));
    let hint = match near {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("`weft get {}` lists those that there are", kind.word),
    };
    EditProblem::new(object, None, reason, hint)
}

/// Gives one of those that a pattern makes a table of its own; its place.
fn take_from_pattern(list: &mut List, at: usize, nth: usize, count: usize) -> usize {
    if count > 1 {
        let parts = [0..nth, nth..nth + 1, nth + 1..count];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        list.split(at, &parts);
    }
    at + usize::from(nth > 0)
}

fn add(
    mut parent: OpenTable,
    kind: &Kind,
    object: &ObjectPath,
    mut fields: Fields,
) -> Result<(), EditProblem> {
    let Some(name) = object.names.last() else {
        let reason = "settings are there already";
        return Err(EditProblem::new(object, None, reason, "set them"));
    };
    if is_there(&mut parent, kind, name) {
        let reason = format!("there is a {} \"{name}\" already", kind.title());
        let hint = format!("`weft set {}` changes it", kind.word);
        return Err(EditProblem::new(object, None, reason, hint));
    }
    called(kind, object, name, &mut fields)?;
    let only_name = fields
        .iter()
        .all(|(key, _)| kind.naming.keys().first() == Some(key));
    let list_of_one = |short: &Short| !is_list(kind, short.key) || !name.contains(',');
    let short = kind
        .short
        .filter(|short| short.first.is_none() && only_name);
    if let Some(short) = short.filter(list_of_one) {
        if !parent.table.contains_key(short.list) {
            let empty = Item::Value(Value::from(Array::new()));
            parent.table.insert(short.list, empty);
        }
        let array = parent.texts(short.list);
        let array = array.ok_or_else(|| misshapen(object, short.list))?;
        push_item(array, name);
        return Ok(());
    }
    let list = parent.list(kind.keys, true);
    let mut list = list.ok_or_else(|| misshapen(object, kind.keys[kind.keys.len() - 1]))?;
    let said = fields.into_iter();
    list.push(said.filter_map(|(key, value)| Some((key, value?))));
    Ok(())
}

fn misshapen(object: &ObjectPath, key: &str) -> EditProblem {
    let reason = format!("`{key}` has another form in the file than it needs");
    EditProblem::new(object, None, reason, "mend the file first")
}

fn is_there(parent: &mut OpenTable, kind: &Kind, name: &str) -> bool {
    let many = makes_many(kind.keys);
    let list = parent.again().list(kind.keys, false);
    let in_list = list.is_some_and(|list| {
        let mut names = list.names(kind.naming, many);
        names.any(|names| names.iter().any(|known| known == name))
    });
    in_list
        || kind
            .short
            .is_some_and(|short| in_short(parent, short, name).is_some())
}

/// Where a list of the parent has the object, if it does: the how-manieth text.
fn in_short(parent: &mut OpenTable, short: Short, name: &str) -> Option<usize> {
    let array = parent.texts(short.list)?;
    let texts = array.iter().filter_map(Value::as_str);
    let mut texts = texts.flat_map(members);
    match short.first {
        None => texts.position(|text| text == name),
        Some(first) => {
            let at = name.parse::<u64>().ok()?.checked_sub(first)?;
            let at = usize::try_from(at).ok()?;
            texts.nth(at).map(|_| at)
        }
    }
}

/// Puts what the object is called first among its fields.
fn called(
    kind: &Kind,
    object: &ObjectPath,
    name: &str,
    fields: &mut Fields,
) -> Result<(), EditProblem> {
    let parts = match (kind.naming, name.split_once('@')) {
        (Naming::Both(first_key, second_key), Some((first, second))) => {
            vec![(first_key, first), (second_key, second)]
        }
        _ => {
            let keys = kind.naming.keys();
            let is_said = |key: &str| {
                let mut said = fields.iter().filter(|(known, _)| *known == key);
                said.any(|(_, said)| {
                    let named = named_value(kind, key, name).ok();
                    said.as_ref().map(plain) == named.as_ref().map(plain)
                })
            };
            let said = keys.iter().find(|key| is_said(key));
            let key = said.or(keys.first()).copied();
            key.map(|key| (key, name)).into_iter().collect()
        }
    };
    for (at, (key, text)) in parts.into_iter().enumerate() {
        let problem = |told: String| EditProblem::of_text(object, Some(key), &told);
        let named = named_value(kind, key, text).map_err(problem)?;
        if let Some(said) = fields.iter().position(|(known, _)| *known == key) {
            let (_, said) = fields.remove(said);
            if said.is_some_and(|said| plain(&said) != plain(&named)) {
                let told = format!("is another name than \"{text}\"; leave it out");
                return Err(problem(told));
            }
        }
        fields.insert(at, (key, Some(named)));
    }
    Ok(())
}

/// What a key says of an object that is called so.
fn named_value(kind: &Kind, key: &str, text: &str) -> Result<Value, String> {
    let takes = key_of(kind.section, key).map_or(Takes::Text, |known| known.takes);
    let number = |text: &str| text.parse::<u32>().map_or(Json::Null, Json::from);
    let json = match takes {
        Takes::Number => number(text),
        Takes::Texts => text.split(',').map(Json::from).collect(),
        Takes::Numbers => text.split(',').map(number).collect(),
        _ => Json::from(text),
    };
    value(takes, &json)
}

/// A value as it is written, without what stands around it.
fn plain(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string()
}

fn set(
    mut parent: OpenTable,
    kind: &Kind,
    object: &ObjectPath,
    fields: Fields,
) -> Result<(), EditProblem> {
    let mut holder = parent.again();
    let Some(name) = object.names.last() else {
        for key in kind.keys {
            holder = holder
                .enter(key, true)
                .ok_or_else(|| misshapen(object, key))?;
        }
        put(&mut holder, fields);
        return Ok(());
    };
    if kind.keys.is_empty() {
        // An item of a list has no fields: it is there or not.
        return match is_there(&mut parent, kind, name) {
            true => Ok(()),
            false => Err(missing(object, kind, name, &[])),
        };
    }
    write_out(&mut parent, kind, name);
    let list = parent.list(kind.keys, false);
    let mut list = list.ok_or_else(|| missing(object, kind, name, &[]))?;
    let (at, nth, count) = find(&list, kind, object, name)?;
    let own = take_from_pattern(&mut list, at, nth, count);
    let holder = list.holder(own);
    let mut holder = holder.ok_or_else(|| missing(object, kind, name, &[]))?;
    let mut changed = Vec::new();
    for (key, value) in fields {
        let names_it = kind.naming.keys().contains(&key) && !is_a_list(kind, key);
        let known = holder.table.get(key).and_then(Item::as_value).map(plain);
        if !names_it {
            changed.push((key, value));
        } else if value.as_ref().map(plain) != known {
            let reason = "is what it is called, and stays";
            let hint = "remove it and add another";
            return Err(EditProblem::new(object, Some(key), reason, hint));
        }
    }
    put(&mut holder, changed);
    Ok(())
}

/// Whether a key takes a list: who is meant by a rule may change.
fn is_a_list(kind: &Kind, key: &str) -> bool {
    let known = key_of(kind.section, key).map(|known| known.takes);
    matches!(known, Ok(Takes::Texts | Takes::Numbers))
}

/// Sets values where they stand, with the comments behind them.
fn put(holder: &mut OpenTable, fields: Fields) {
    for (key, value) in fields {
        let Some(mut value) = value else {
            holder.table.remove(key);
            continue;
        };
        keep_secrets(key, &mut value, holder.table.get(key));
        match holder.table.get_mut(key).and_then(Item::as_value_mut) {
            Some(old) => {
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
            None => {
                holder.table.insert(key, Item::Value(value));
            }
        }
    }
}

/// Secrets that are said to be set stay what they are: they were not told.
fn keep_secrets(key: &str, value: &mut Value, known: Option<&Item>) {
    if let Some(table) = value.as_inline_table_mut() {
        let known = known.and_then(Item::as_table_like);
        for (key, value) in table.iter_mut() {
            let known = known.and_then(|known| known.get(key.get()));
            keep_secrets(key.get(), value, known);
        }
    } else if is_secret(key)
        && value.as_str() == Some(SET)
        && let Some(known) = known.and_then(Item::as_value)
    {
        *value = known.clone();
    }
}

/// Gives an object that a list of its parent has in short a table of its own. Where the list
/// numbers its objects, those behind it get theirs too, with the numbers that they have.
fn write_out(parent: &mut OpenTable, kind: &Kind, name: &str) {
    let Some(short) = kind.short else { return };
    let Some(at) = in_short(parent, short, name) else {
        return;
    };
    let Some(array) = parent.texts(short.list) else {
        return;
    };
    let naming = kind.naming.keys()[0];
    let mut tables = Vec::new();
    match short.first {
        Some(first) => {
            let others = cut_texts(array, at);
            for (number, text) in (first + at as u64..).zip(others) {
                let number = Value::from(number as i64);
                tables.push(vec![(naming, number), (short.key, Value::from(text))]);
            }
        }
        None => {
            take_text(array, name);
            let named = match is_list(kind, short.key) {
                true => Value::from(Array::from_iter([name])),
                false => Value::from(name),
            };
            tables.push(vec![(short.key, named)]);
        }
    }
    if array.is_empty() {
        parent.table.remove(short.list);
    }
    if let Some(mut list) = parent.again().list(kind.keys, true) {
        tables.into_iter().for_each(|fields| list.push(fields));
    }
}

/// Takes an object out; what stood before its table.
fn remove(
    mut parent: OpenTable,
    kind: &Kind,
    object: &ObjectPath,
) -> Result<Option<Removed>, EditProblem> {
    let Some(name) = object.names.last() else {
        let mut holder = Some(parent);
        for key in kind.keys {
            holder = holder.and_then(|holder| holder.enter(key, false));
        }
        if let Some(holder) = holder {
            let keys = holder.table.iter().map(|(key, _)| key.to_owned());
            let own: Vec<_> = keys.filter(|key| !kind.holds_objects(key)).collect();
            for key in own {
                holder.table.remove(&key);
            }
        }
        return Ok(None);
    };
    let is_named = kind.short.filter(|short| short.first.is_none());
    if let Some(short) = is_named.filter(|short| in_short(&mut parent, *short, name).is_some()) {
        if let Some(array) = parent.texts(short.list) {
            take_text(array, name);
            let is_empty = array.is_empty();
            let list = parent.again().list(kind.keys, false);
            if is_empty && list.is_some_and(|list| list.len() > 0) {
                parent.table.remove(short.list);
            }
        }
        return Ok(None);
    }
    write_out(&mut parent, kind, name);
    let list = parent.again().list(kind.keys, false);
    let mut list = list.ok_or_else(|| missing(object, kind, name, &[]))?;
    let (at, nth, count) = find(&list, kind, object, name)?;
    if count > 1 {
        list.split(at, &parts_without(nth, count));
        return Ok(None);
    }
    let removed = list.remove(at);
    if list.len() == 0
        && let Some(short) = kind.short
    {
        say_none(&mut parent, short);
    }
    Ok(Some(removed))
}

/// Says that there is none of those whom a parent lets in: it must say something of them.
fn say_none(parent: &mut OpenTable, short: Short) {
    if short.first.is_some() {
        return;
    }
    let is_any =
        |key: &str, item: &Item| key.starts_with("allow_any") && item.as_bool() == Some(true);
    let any_may = parent.table.iter().any(|(key, item)| is_any(key, item));
    if !parent.table.contains_key(short.list) && !any_may {
        let empty = Item::Value(Value::from(Array::new()));
        parent.table.insert(short.list, empty);
    }
}

/// Gives the comments before a table that went to the next, but those right above it.
fn keep_comments(document: &mut DocumentMut, removed: &Option<Removed>) {
    let Some(Removed { position, prefix }) = removed else {
        return;
    };
    let kept = prefix.rfind("\n\n").map_or("", |at| &prefix[..at + 2]);
    let Some(position) = position.filter(|_| kept.contains('#')) else {
        return;
    };
    let mut next: Option<isize> = None;
    each_table(document.as_table_mut(), &mut |table| {
        let behind = table.position().filter(|other| *other > position);
        next = [next, behind].into_iter().flatten().min();
    });
    let Some(next) = next else {
        let trailing = document.trailing().as_str().unwrap_or_default();
        let trailing = format!("{kept}{trailing}");
        document.set_trailing(trailing);
        return;
    };
    each_table(document.as_table_mut(), &mut |table| {
        if table.position() == Some(next) {
            prepend_comments(table.decor_mut(), kept);
        }
    });
}

fn prepend_comments(decor: &mut Decor, kept: &str) {
    let prefix = decor.prefix().and_then(RawString::as_str);
    let prefix = prefix.unwrap_or_default();
    let prefix = prefix.strip_prefix('\n').unwrap_or(prefix);
    let prefix = format!("{kept}{prefix}");
    decor.set_prefix(prefix);
}

fn each_table(table: &mut Table, see: &mut dyn FnMut(&mut Table)) {
    see(table);
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => each_table(table, see),
            Item::ArrayOfTables(tables) => {
                tables.iter_mut().for_each(|table| each_table(table, see))
            }
            _ => {}
        }
    }
}
