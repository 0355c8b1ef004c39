//! Patterns: `disk{00..31}` in a name, and one table of the file stands for 32.
//!
//! In a table whose name has a pattern, the n-th name goes with the n-th of
//! every other pattern in it. Elsewhere a pattern may stand in a list, for all
//! its texts in order. Both are written out before anything else reads the
//! file, so the rest need not know of patterns.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::schema::is_secret;
use crate::source::Sink;

/// What one table or list may become at most.
const COUNT_MAX: usize = 1024;

/// Tables that become several by a pattern in their name: where they are, and
/// the key of the name.
const NAMED: &[(&[&str], &str)] = &[
    (&["volume"], "name"),
    (&["nvme", "subsystem"], "nqn"),
    (&["iscsi", "target"], "name"),
    (&["file_system"], "name"),
    (&["export"], "path"),
    (&["nbd_export"], "name"),
];

/// A text with patterns: what stands before each, and what follows the last.
struct TextPattern<'t> {
    parts: Vec<(&'t str, Range<u32>, usize)>,
    tail: &'t str,
}

/// `{first..last}` with digits, as shells know it; `None` if there is none.
///
/// # Errors
/// What is wrong with it.
fn parse(text: &str) -> Result<Option<TextPattern<'_>>, String> {
    let mut parts = Vec::new();
    let mut tail = text;
    while let Some((before, first, last, rest)) = next_range(tail) {
        let shown = &tail[before.len()..tail.len() - rest.len()];
        let (from, to) = match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(from), Ok(to)) if from <= to && to < u32::MAX => (from, to),
            (Ok(from), Ok(to)) if from > to => {
                return Err(format!(
                    "the pattern {shown} runs backwards: write {{{to}..{from}}}"
                ));
            }
            _ => return Err(format!("the numbers of the pattern {shown} are too large")),
        };
        if (to - from) as usize >= COUNT_MAX {
            return Err(format!(
                "the pattern {shown} stands for more than {COUNT_MAX}"
            ));
        }
        // As wide as the first is written, if with zeros in front.
        let width = if first.starts_with('0') {
            first.len()
        } else {
            0
        };
        parts.push((before, from..to + 1, width));
        tail = rest;
    }
    let Some((_, first, _)) = parts.first() else {
        return Ok(None);
    };
    match parts.iter().all(|(_, range, _)| range.len() == first.len()) {
        true => Ok(Some(TextPattern { parts, tail })),
        false => Err("the patterns of one text stand for as many each".to_owned()),
    }
}

/// Whether tables in this place become several by a pattern in their name.
pub(crate) fn makes_many(path: &[&str]) -> bool {
    NAMED.iter().any(|(known, _)| *known == path)
}

/// Whether a key's text is taken as it is.
pub(crate) fn is_literal(key: &str) -> bool {
    is_secret(key)
}

/// The texts that a text stands for: itself where it has no pattern.
pub(crate) fn members(text: &str) -> Vec<String> {
    match parse(text) {
        Ok(Some(pattern)) => (0..pattern.count()).map(|turn| pattern.nth(turn)).collect(),
        _ => vec![text.to_owned()],
    }
}

/// The text that stands for only these turns of all that `text` stands for.
pub(crate) fn narrowed(text: &str, turns: &Range<usize>) -> String {
    match parse(text) {
        Ok(Some(pattern)) if turns.end <= pattern.count() => pattern.narrowed(turns),
        _ => text.to_owned(),
    }
}

/// What stands before the next `{first..last}`, its ends, and what follows it.
fn next_range(text: &str) -> Option<(&str, &str, &str, &str)> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.match_indices('{').find_map(|(open, _)| {
        let (inside, rest) = text[open + 1..].split_once('}')?;
        let (first, last) = inside.split_once("..")?;
        (is_number(first) && is_number(last)).then_some((&text[..open], first, last, rest))
    })
}

impl TextPattern<'_> {
    fn count(&self) -> usize {
        self.parts[0].1.len()
    }

    /// The text of the `turn`-th, from 0.
    fn nth(&self, turn: usize) -> String {
        let mut text = String::new();
        for (before, range, width) in &self.parts {
            let number = range.start + turn as u32;
            text += &format!("{before}{number:0width$}");
        }
        text + self.tail
    }

    /// The pattern of these turns alone; without braces if that is one.
    fn narrowed(&self, turns: &Range<usize>) -> String {
        if turns.len() == 1 {
            return self.nth(turns.start);
        }
        let mut text = String::new();
        for (before, range, width) in &self.parts {
            let first = range.start + turns.start as u32;
            let last = range.start + turns.end as u32 - 1;
            text += &format!("{before}{{{first:0width$}..{last:0width$}}}");
        }
        text + self.tail
    }
}

/// Writes out every pattern of the file.
pub(crate) fn expand(sink: &mut Sink, file: &mut DeTable) {
    for (path, key) in NAMED {
        let (last, tables) = path.split_last().expect("a path has a name");
        let mut holder = Some(&mut *file);
        for name in tables.iter() {
            holder = holder.and_then(|table| match table.get_mut(*name)?.get_mut() {
                DeValue::Table(table) => Some(table),
                _ => None,
            });
        }
        let list = holder.and_then(|table| table.get_mut(*last));
        if let Some(DeValue::Array(list)) = list.map(Spanned::get_mut) {
            multiply(sink, list, key);
        }
    }
    lists_of(sink, file);
}

/// Makes several tables of each whose name has a pattern.
fn multiply(sink: &mut Sink, list: &mut DeArray, key: &str) {
    let mut all = DeArray::new();
    for item in std::mem::replace(list, DeArray::new()) {
        let count = count_of(sink, &item, key);
        for nth in 0..count.unwrap_or(1) {
            let mut one = item.clone();
            if let (Some(count), DeValue::Table(table)) = (count, one.get_mut()) {
                sink.is_many(item.span().start);
                let name = key;
                turn_table(sink, table, &PatternTurn { name, nth, count });
            }
            all.push(one);
        }
    }
    *list = all;
}

/// How many tables the pattern in a table's name makes of it; none if that is
/// wrong.
fn count_of(sink: &mut Sink, item: &Spanned<DeValue>, key: &str) -> Option<usize> {
    let DeValue::Table(table) = item.get_ref() else {
        return None;
    };
    let value = table.get(key)?;
    let DeValue::String(text) = value.get_ref() else {
        return None;
    };
    match parse(text) {
        Ok(pattern) => Some(pattern?.count()),
        Err(why) => {
            sink.add(&value.span(), format!("`{key}`: {why}"));
            Some(0)
        }
    }
}

/// One of the tables that the pattern in a name makes.
struct PatternTurn<'n> {
    /// The key of the name.
    name: &'n str,
    nth: usize,
    /// Of so many.
    count: usize,
}

/// Puts the text of the turn in the place of every pattern.
fn turn_table(sink: &mut Sink, table: &mut DeTable, turn: &PatternTurn) {
    for (key, value) in table.iter_mut() {
        sink.is_many(key.span().start);
        let key = key.get_ref().as_ref();
        if !is_secret(key) {
            turn_value(sink, key, value, turn);
        }
    }
}

fn turn_value(sink: &mut Sink, key: &str, value: &mut Spanned<DeValue>, turn: &PatternTurn) {
    let span = value.span();
    sink.is_many(span.start);
    match value.get_mut() {
        DeValue::String(text) => {
            let why = match parse(text) {
                Ok(None) => return,
                Ok(Some(pattern)) if pattern.count() == turn.count => {
                    let turned = pattern.nth(turn.nth);
                    *text = Cow::Owned(turned);
                    return;
                }
                Ok(Some(pattern)) => {
                    let PatternTurn { name, count, .. } = turn;
                    let own = pattern.count();
                    format!(
                        "stands for {own}, but `{name}` for {count}: the n-th goes with the n-th"
                    )
                }
                Err(why) => why,
            };
            sink.add(&span, format!("`{key}`: {why}"));
        }
        DeValue::Array(list) => {
            for item in list.iter_mut() {
                turn_value(sink, key, item, turn);
            }
        }
        DeValue::Table(table) => turn_table(sink, table, turn),
        _ => {}
    }
}

/// Writes out patterns in lists; there is no other place for those that are left.
fn lists_of(sink: &mut Sink, table: &mut DeTable) {
    for (key, value) in table.iter_mut() {
        let key = key.get_ref().as_ref();
        if is_secret(key) {
            continue;
        }
        let span = value.span();
        match value.get_mut() {
            DeValue::String(text) => match parse(text) {
                Ok(None) => {}
                Ok(Some(_)) => {
                    let why = "has a pattern, but the name of this table has none to go with it";
                    sink.add(&span, format!("`{key}` {why}"));
                }
                Err(why) => sink.add(&span, format!("`{key}`: {why}")),
            },
            DeValue::Array(list) => {
                let items = std::mem::replace(list, DeArray::new());
                *list = items
                    .into_iter()
                    .flat_map(|item| written_out(sink, key, item))
                    .collect();
            }
            DeValue::Table(table) => lists_of(sink, table),
            _ => {}
        }
    }
}

/// One item of a list, or as many as its pattern stands for.
fn written_out<'i>(
    sink: &mut Sink,
    key: &str,
    mut item: Spanned<DeValue<'i>>,
) -> Vec<Spanned<DeValue<'i>>> {
    let span = item.span();
    match item.get_mut() {
        DeValue::Table(table) => lists_of(sink, table),
        DeValue::String(text) => match parse(text) {
            Ok(None) => {}
            Ok(Some(pattern)) => {
                sink.is_many(span.start);
                let one = |turn| DeValue::String(Cow::Owned(pattern.nth(turn)));
                let all = (0..pattern.count()).map(|turn| Spanned::new(span.clone(), one(turn)));
                return all.collect();
            }
            Err(why) => sink.add(&span, format!("`{key}`: {why}")),
        },
        _ => {}
    }
    vec![item]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let pattern = parse(text).expect(text).expect(text);
        (0..pattern.count()).map(|turn| pattern.nth(turn)).collect()
    }

    #[test]
    fn patterns_are_written_out_as_shells_do() {
        assert_eq!(all("a{9..11}b"), ["a9b", "a10b", "a11b"]);
        assert_eq!(all("{098..100}"), ["098", "099", "100"]);
        assert_eq!(all("{0..1}"), ["0", "1"]);
        assert_eq!(all("x{1..2}/y{05..06}."), ["x1/y05.", "x2/y06."]);
        assert_eq!(all("{a}{7..7}"), ["{a}7"]);
        for plain in [
            "", "disk", "{}", "{..}", "{1..}", "{1-3}", "{a..b}", "{1..2", "}{",
        ] {
            assert!(parse(plain).expect(plain).is_none(), "{plain}");
        }
    }

    #[test]
    fn impossible_patterns_are_refused() {
        for (text, part) in [
            ("a{3..1}", "write {1..3}"),
            ("a{1..2000}", "more than 1024"),
            ("a{1..99999999999}", "too large"),
            ("a{1..4294967295}", "too large"),
            ("{1..2}{1..3}", "as many each"),
        ] {
            let why = parse(text).err().expect(text);
            assert!(why.contains(part), "{text}: {why}");
        }
        assert_eq!(all("{1..1024}").len(), COUNT_MAX);
    }
}
