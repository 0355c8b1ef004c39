//! What a file of another target says, as a tree of keys: the same for JSON, for blocks
//! with braces and for lines of words. A key that no importer looks at is told at the end.

use std::cell::Cell;
use std::collections::HashSet;

use crate::report::{Place, Report, Weight};

/// A key with what stands behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceKey {
    /// As the file spells it; of an item of a list it is empty.
    pub name: String,
    pub place: Place,
    /// Scalars: a value, the items of a list of values, the words of a line.
    pub words: Vec<String>,
    /// The keys of a table or a block; the items of a list of tables, without names.
    pub keys: Vec<SourceKey>,
    is_seen: Cell<bool>,
}

/// A key that is known: what becomes of it, and why.
pub(crate) type Known = (&'static str, Weight, &'static str);

impl SourceKey {
    pub fn new(name: &str, place: Place) -> Self {
        SourceKey {
            name: name.to_owned(),
            place,
            ..SourceKey::default()
        }
    }

    /// Marks it, so that it is not told as unknown.
    pub fn see(&self) -> &Self {
        self.is_seen.set(true);
        self
    }

    /// The first key of this name.
    pub fn key(&self, name: &str) -> Option<&SourceKey> {
        let found = self.keys.iter().find(|key| key.name == name)?;
        Some(found.see())
    }

    /// Every key of this name.
    pub fn all<'k>(&'k self, name: &'k str) -> impl Iterator<Item = &'k SourceKey> {
        let same = move |key: &&SourceKey| key.name == name;
        self.keys.iter().filter(same).map(SourceKey::see)
    }

    /// The items of the list of this name.
    pub fn items<'k>(&'k self, name: &'k str) -> impl Iterator<Item = &'k SourceKey> {
        let lists = self.all(name);
        lists.flat_map(|list| list.keys.iter().map(SourceKey::see))
    }

    /// The first word, which a file may leave empty.
    pub fn word(&self) -> Option<&str> {
        let word = self.words.first().map(String::as_str);
        word.filter(|word| !word.is_empty())
    }

    /// The first word of the key of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.key(name)?.word()
    }

    /// Whether the key of this name says yes.
    pub fn flag(&self, name: &str) -> Option<bool> {
        flag(self.text(name)?)
    }

    /// Tells of all that was not looked at.
    pub fn tell_rest(&self, known: &[Known], report: &mut Report) {
        let mut told: HashSet<(&str, Weight)> = HashSet::new();
        let mut rest = vec![self];
        while let Some(key) = rest.pop() {
            if key.is_seen.get() || key.name.is_empty() {
                rest.extend(key.keys.iter().rev());
                continue;
            }
            let Some((name, weight, why)) = known.iter().find(|(name, ..)| *name == key.name)
            else {
                let why = "weft does not know this key: see in its manual whether it keeps \
                           anybody out";
                report.add(key.place, &key.name, Weight::Access, why);
                continue;
            };
            // What is off is not missed.
            let weight = match key.word().and_then(flag) {
                Some(false) => Weight::Default,
                _ => *weight,
            };
            // Said a thousand times, it is told once.
            if told.insert((name, weight)) {
                report.add(key.place, &key.name, weight, *why);
            }
        }
    }
}

/// As all of these programs write yes and no.
pub(crate) fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" | "on" | "y" => Some(true),
        "0" | "no" | "false" | "off" | "n" => Some(false),
        _ => None,
    }
}

/// Decimal, or hexadecimal after `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number with K, M, G or T behind it: binary.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        text if text.ends_with('K') => (text[..text.len() - 1].to_owned(), 10),
        text if text.ends_with('M') => (text[..text.len() - 1].to_owned(), 20),
        text if text.ends_with('G') => (text[..text.len() - 1].to_owned(), 30),
        text if text.ends_with('T') => (text[..text.len() - 1].to_owned(), 40),
        text => (text, 0),
    };
    number(digits.trim())?.checked_mul(1 << shift)
}
