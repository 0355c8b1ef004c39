//! A configuration file as read: tables with positions, and what is wrong with it.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::excerpt;
use crate::schema::{Key, Keys};

/// One mistake in a configuration file, with the place to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1; 0 where the problem has no place in the file.
    pub line: usize,
    /// Characters, counted from 1; 0 where the problem has no place in the file.
    pub column: usize,
    /// What is wrong and what would be right.
    pub text: String,
    /// Its line of the file with a mark below the place, each with an end of line; empty where
    /// the problem has no place, or the line may hold a secret.
    pub excerpt: String,
    /// Where `text` has another place of the file as "in line N", and its line, counted from 1.
    pub other_line: Option<(Range<usize>, usize)>,
}

impl Problem {
    /// One that has no place in the file.
    #[must_use]
    pub fn of_file(text: String) -> Problem {
        Problem {
            line: 0,
            column: 0,
            text,
            excerpt: String::new(),
            other_line: None,
        }
    }
}

/// All mistakes found in one configuration file, in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file as the user named it.
    pub file: String,
    /// At least one.
    pub list: Vec<Problem>,
}

impl Problems {
    /// The same as [`fmt::Display`] shows, with the lines of the file below, each with an end of
    /// line.
    #[must_use]
    pub fn with_excerpts(&self) -> String {
        let one = |problem| format!("{}\n{}", self.line_of(problem), problem.excerpt);
        self.list.iter().map(one).collect()
    }

    pub(crate) fn line_of(&self, problem: &Problem) -> String {
        let (file, text) = (&self.file, &problem.text);
        match problem.line {
            0 => format!("{file}: {text}"),
            line => format!("{file}:{line}:{}: {text}", problem.column),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.list.iter().map(|one| self.line_of(one)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// Collects problems while a file is read, so that one run shows them all.
pub(crate) struct Sink<'s> {
    source: &'s str,
    /// Where each line begins.
    lines: Vec<usize>,
    list: Vec<Problem>,
    /// Where a pattern makes several of what stands there once.
    many: HashSet<usize>,
}

impl<'s> Sink<'s> {
    pub fn new(source: &'s str) -> Self {
        let ends = source.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            source,
            lines: std::iter::once(0).chain(ends).collect(),
            list: Vec::new(),
            many: HashSet::new(),
        }
    }

    /// What starts at this byte of the file is read several times: of the
    /// problems there only the first is told.
    pub fn is_many(&mut self, start: usize) {
        self.many.insert(start);
    }

    /// Notes a problem at a byte range of the file.
    pub fn add(&mut self, span: &Range<usize>, text: impl Into<String>) {
        self.note(span, text.into(), None);
    }

    /// Notes one that another line of the file belongs to, which is told between two texts.
    pub fn add_with_line(
        &mut self,
        span: &Range<usize>,
        (before, line, after): (&str, usize, &str),
    ) {
        let there = format!("in line {line}");
        let at = before.len()..before.len() + there.len();
        self.note(span, format!("{before}{there}{after}"), Some((at, line)));
    }

    fn note(
        &mut self,
        span: &Range<usize>,
        text: String,
        other_line: Option<(Range<usize>, usize)>,
    ) {
        let (line, column) = self.place(span.start);
        let known = |known: &Problem| (known.line, known.column) == (line, column);
        if self.many.contains(&span.start) && self.list.iter().any(known) {
            return;
        }
        self.list.push(Problem {
            line,
            column,
            text,
            excerpt: String::new(),
            other_line,
        });
    }

    /// The line that a byte range starts in, counted from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        self.place(span.start).0
    }

    fn place(&self, at: usize) -> (usize, usize) {
        let at = at.min(self.source.len());
        let line = self.lines.partition_point(|start| *start <= at);
        let before = &self.source[self.lines[line - 1]..at];
        (line, before.chars().count() + 1)
    }

    /// The byte of a line and column, which count from 1.
    pub fn offset(&self, line: usize, column: usize) -> Option<usize> {
        let start = *self.lines.get(line.checked_sub(1)?)?;
        let rest = &self.source[start..];
        let within = rest.char_indices().nth(column.checked_sub(1)?);
        Some(within.map_or(self.source.len(), |(at, _)| start + at))
    }

    /// What was found so far, in the file's order.
    pub fn take(&mut self) -> Vec<Problem> {
        let mut list = std::mem::take(&mut self.list);
        list.sort_by_key(|problem| (problem.line, problem.column));
        excerpt::add(&mut list, self.source);
        list
    }
}

/// A value with its place in the file.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

/// What a key says that takes a flag or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagOr {
    Flag(bool),
    Word,
}

/// One table of the file.
pub(crate) struct Section<'a, 'i> {
    table: &'a DeTable<'i>,
    /// As a user writes it: `[[volume]]`.
    pub title: &'static str,
    /// Where it starts.
    pub span: Range<usize>,
}

impl<'a, 'i> Section<'a, 'i> {
    /// Takes a table and reports the keys that it may not hold.
    pub fn open(
        sink: &mut Sink,
        schema: &'static [Keys],
        title: &'static str,
        table: &'a DeTable<'i>,
        span: Range<usize>,
    ) -> Self {
        let keys = schema
            .iter()
            .find(|(name, _)| *name == title)
            .map_or(&[][..], |(_, keys)| keys);
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if !keys.iter().any(|key| key.name == name) {
                let hint = hint_for_key(schema, title, keys, name);
                sink.add(
                    &key.span(),
                    format!("unknown key `{name}` in {title}{hint}"),
                );
            }
        }
        Self { table, title, span }
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.table.get(key)
    }

    /// Where a key's value stands, or the section if the key is absent.
    pub fn span_of(&self, key: &str) -> Range<usize> {
        self.value(key)
            .map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Whether the key is there, with whatever value.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// The key's value if it is a text.
    pub fn word(&self, key: &str) -> Option<&'a str> {
        match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            _ => None,
        }
    }

    /// Whether the key's value is this word.
    pub fn says(&self, key: &str, word: &str) -> bool {
        self.word(key) == Some(word)
    }

    /// Reports a key that must be there and is not.
    pub fn missing(&self, sink: &mut Sink, key: &str, hint: &str) {
        if !self.has(key) {
            let text = format!("{} lacks the key `{key}`; for example: {hint}", self.title);
            sink.add(&self.span, text);
        }
    }

    pub fn text(&self, sink: &mut Sink, key: &str) -> Option<At<&'a str>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(At {
                value: text.as_ref(),
                span: value.span(),
            }),
            other => {
                let text = format!("`{key}` takes a text in quotes, not {}", kind_of(other));
                sink.add(&value.span(), text);
                None
            }
        }
    }

    pub fn flag(&self, sink: &mut Sink, key: &str) -> Option<bool> {
        self.flag_of(sink, key, "true or false")
    }

    /// A flag, or `word` in its place.
    pub fn flag_or(&self, sink: &mut Sink, key: &str, word: &str) -> Option<FlagOr> {
        let form = format!("true, false or \"{word}\"");
        match self.word(key) {
            Some(found) if found == word => Some(FlagOr::Word),
            Some(other) => {
                let text = format!("`{key}` takes {form}, not \"{other}\"");
                sink.add(&self.span_of(key), text);
                None
            }
            None => self.flag_of(sink, key, &form).map(FlagOr::Flag),
        }
    }

    /// A flag of a key that takes what `form` says, where it is neither of the others.
    fn flag_of(&self, sink: &mut Sink, key: &str, form: &str) -> Option<bool> {
        let value = self.value(key)?;
        if let DeValue::Boolean(flag) = value.get_ref() {
            return Some(*flag);
        }
        let found = kind_of(value.get_ref());
        sink.add(&value.span(), format!("`{key}` takes {form}, not {found}"));
        None
    }

    /// A whole number, or a size such as `"64KiB"` where `sized`.
    pub fn number(&self, sink: &mut Sink, key: &str, sized: bool) -> Option<At<u64>> {
        let value = self.value(key)?;
        let parsed = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| format!("`{key}` takes a number from 0 to 2^64 - 1, not {number}")),
            DeValue::String(text) if sized => {
                crate::value::parse_size(text).map_err(|why| format!("`{key}`: {why}"))
            }
            other if sized => Err(format!(
                "`{key}` takes a size such as \"1GiB\" or a number of bytes, not {}",
                kind_of(other)
            )),
            other => Err(format!(
                "`{key}` takes a whole number, not {}",
                kind_of(other)
            )),
        };
        match parsed {
            Ok(number) => Some(At {
                value: number,
                span: value.span(),
            }),
            Err(text) => {
                sink.add(&value.span(), text);
                None
            }
        }
    }

    /// A list of texts.
    pub fn texts(&self, sink: &mut Sink, key: &str) -> Option<Vec<At<&'a str>>> {
        let value = self.value(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            let found = kind_of(value.get_ref());
            let text = format!("`{key}` takes a list: {key} = [\"...\"], not {found}");
            sink.add(&value.span(), text);
            return None;
        };
        let mut texts = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::String(text) => texts.push(At {
                    value: text.as_ref(),
                    span: item.span(),
                }),
                other => {
                    let text = format!("`{key}` holds texts in quotes, not {}", kind_of(other));
                    sink.add(&item.span(), text);
                }
            }
        }
        Some(texts)
    }

    /// A list of whole numbers.
    pub fn numbers(&self, sink: &mut Sink, key: &str) -> Option<Vec<At<u64>>> {
        let value = self.value(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            let found = kind_of(value.get_ref());
            let text = format!("`{key}` takes a list: {key} = [0, 1], not {found}");
            sink.add(&value.span(), text);
            return None;
        };
        let mut numbers = Vec::new();
        for item in array.iter() {
            let number = match item.get_ref() {
                DeValue::Integer(number) => {
                    u64::from_str_radix(number.as_str(), number.radix()).ok()
                }
                _ => None,
            };
            match number {
                Some(value) => numbers.push(At {
                    value,
                    span: item.span(),
                }),
                None => sink.add(&item.span(), format!("`{key}` holds whole numbers")),
            }
        }
        Some(numbers)
    }

    /// Where the first of the tables under a key stands.
    pub fn first_of(&self, key: &str) -> Range<usize> {
        match self.value(key).map(Spanned::get_ref) {
            Some(DeValue::Array(array)) if !array.is_empty() => array[0].span(),
            _ => self.span_of(key),
        }
    }

    /// The one table under a key, empty if it is absent.
    pub fn table(
        &self,
        sink: &mut Sink,
        schema: &'static [Keys],
        key: &str,
        title: &'static str,
    ) -> Option<Section<'a, 'i>> {
        let value = self.value(key)?;
        if let DeValue::Table(table) = value.get_ref() {
            return Some(Section::open(sink, schema, title, table, value.span()));
        }
        let text = format!("`{key}` is one table: write {title} once");
        sink.add(&value.span(), text);
        None
    }

    /// The tables under a key that may occur several times.
    pub fn tables(
        &self,
        sink: &mut Sink,
        schema: &'static [Keys],
        key: &str,
        title: &'static str,
    ) -> Vec<Section<'a, 'i>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let mut sections = Vec::new();
        if let DeValue::Array(array) = value.get_ref() {
            for item in array.iter() {
                if let DeValue::Table(table) = item.get_ref() {
                    sections.push(Section::open(sink, schema, title, table, item.span()));
                } else {
                    sink.add(&item.span(), format!("`{key}` holds tables: write {title}"));
                }
            }
        } else {
            let text = format!("there may be several of `{key}`: write {title}");
            sink.add(&value.span(), text);
        }
        sections
    }
}

fn kind_of(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The nearest of `names`, if one is near enough to be what was meant: few
/// letters away, or with the word in it.
pub(crate) fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let near_max = (word.chars().count() / 3).max(2);
    let distance = |name: &str| match word.len() > 2 && name.contains(word) {
        true => 1,
        false => strsim::damerau_levenshtein(word, name),
    };
    names
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, name)| *distance <= near_max && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `; did you mean ...?`, or nothing.
pub fn hint<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// A key that stands in the wrong section is the likelier mistake than a misspelt one.
pub(crate) fn hint_for_key(
    schema: &'static [Keys],
    title: &str,
    keys: &'static [Key],
    name: &str,
) -> String {
    let names = |keys: &'static [Key]| keys.iter().map(|key| key.name);
    let homes: Vec<_> = schema
        .iter()
        .filter(|(section, keys)| *section != title && names(keys).any(|key| key == name))
        .map(|(section, _)| *section)
        .collect();
    let words = |key: &str| {
        let mut words: Vec<String> = key.split('_').map(str::to_owned).collect();
        words.sort();
        words
    };
    if let Some(same) = names(keys).find(|key| words(key) == words(name)) {
        return format!("; did you mean `{same}`?");
    }
    if let Some(home) = homes.first() {
        return format!("; `{name}` belongs in {home}");
    }
    if let Some(near) = nearest(name, names(keys)) {
        return format!("; did you mean `{near}`?");
    }
    let elsewhere = schema
        .iter()
        .find_map(|(section, keys)| Some((*section, nearest(name, names(keys))?)));
    match elsewhere {
        Some((section, near)) => format!("; did you mean `{near}` in {section}?"),
        None => format!("; it knows {}", names(keys).collect::<Vec<_>>().join(", ")),
    }
}

/// The path of a file; relative ones are to the configuration's folder.
pub(crate) fn file(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    folder: &Path,
) -> Option<PathBuf> {
    let path = section.text(sink, key)?;
    if path.value.is_empty() {
        sink.add(&path.span, format!("`{key}` is empty"));
        return None;
    }
    Some(folder.join(path.value))
}

/// The index of a key's value among the words it may be.
pub(crate) fn choice(
    sink: &mut Sink,
    section: &Section,
    key: &str,
    words: &[&str],
) -> Option<usize> {
    let text = section.text(sink, key)?;
    let found = words.iter().position(|word| *word == text.value);
    if found.is_none() {
        let hint = hint(text.value, words.iter().copied());
        let known = words.join("\", \"");
        let text = format!(
            "`{key}` is one of \"{known}\", not \"{}\"{hint}",
            text.value
        );
        sink.add(&section.span_of(key), text);
    }
    found
}
