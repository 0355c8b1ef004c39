//! What becomes of each key of a source, and what is wrong with it.

use std::fmt;

/// Mistakes that are told at once.
const MISTAKES_MAX: usize = 100;

/// A line of one of the files that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Its number in [`Report::files`].
    pub file: u16,
    /// Counted from 1.
    pub line: u32,
}

/// What it means that a key is not carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// It changes who may do what, or has to be filled in.
    Access,
    /// It is lost.
    Lost,
    /// weft does it so anyhow, or has a default of its own.
    Default,
}

impl Weight {
    fn word(self) -> &'static str {
        match self {
            Weight::Access => "ACCESS",
            Weight::Lost => "lost",
            Weight::Default => "default",
        }
    }
}

/// A key that is not carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    place: Place,
    /// As the source spells it.
    pub key: String,
    /// What it means.
    pub weight: Weight,
    /// Why, and what to do about it.
    pub why: String,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    place: Place,
    /// What is wrong and what would be right.
    pub text: String,
}

/// What is told beside the document.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The files that were read, the first as the user named it.
    pub files: Vec<String>,
    /// What is not carried over.
    pub losses: Vec<Loss>,
    /// What makes the source unreadable; with any there is no document.
    pub mistakes: Vec<Mistake>,
}

impl Report {
    pub(crate) fn add(&mut self, place: Place, key: &str, weight: Weight, why: impl Into<String>) {
        self.losses.push(Loss {
            place,
            key: plain(key),
            weight,
            why: plain(&why.into()),
        });
    }

    pub(crate) fn mistake(&mut self, place: Place, text: impl Into<String>) {
        if self.mistakes.len() < MISTAKES_MAX {
            let text = plain(&text.into());
            self.mistakes.push(Mistake { place, text });
        }
    }

    /// Whether something that decides who may do what is not as it was.
    #[must_use]
    pub fn changes_access(&self) -> bool {
        let mut losses = self.losses.iter();
        losses.any(|loss| loss.weight == Weight::Access)
    }

    pub(crate) fn show(&self, place: Place) -> String {
        let file = self.files.get(usize::from(place.file));
        let file = file.map_or("", String::as_str);
        match place.line {
            0 => file.to_owned(),
            line => format!("{file}:{line}"),
        }
    }

    /// The losses as lines, those that change access before all others.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let mut losses: Vec<&Loss> = self.losses.iter().collect();
        losses.sort_by_key(|loss| (loss.weight, loss.place));
        losses.into_iter().map(|loss| {
            let (place, word) = (self.show(loss.place), loss.weight.word());
            format!("{place}: {word}: {}: {}", loss.key, loss.why)
        })
    }
}

impl fmt::Display for Report {
    /// Mistakes if there are any, else losses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.mistakes {
            writeln!(f, "{}: {}", self.show(mistake.place), mistake.text)?;
        }
        if self.mistakes.is_empty() {
            for line in self.lines() {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

/// A text on one line: what a source holds must not end a comment or move a cursor.
pub(crate) fn plain(text: &str) -> String {
    const SHOWN_MAX: usize = 300;
    let shown = text.chars().take(SHOWN_MAX);
    let mut plain: String = shown
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        plain.push_str("...");
    }
    plain
}
