//! The text of a configuration as objects: what it holds ([`objects`]), and changes of single
//! objects that leave comments, order and layout of all others as they are ([`edit`]).
//!
//! Nothing here judges a value: the new text is parsed as any other, and [`object_at`] says which
//! object and field a problem of it is of.

mod change;
mod kind;
mod list;
mod objects;
mod paths;
mod value;

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};
use toml_edit::DocumentMut;

pub(crate) use kind::KINDS;
pub use kind::{ObjectField, ObjectKind, ObjectPath, object_kind, object_name};
pub(crate) use objects::name_of;
pub use objects::{SET, object_at, objects};
pub use paths::with_absolute_paths;

/// The kinds of objects that there are.
pub fn object_kinds() -> impl Iterator<Item = &'static str> {
    kind::KINDS.iter().map(|kind| kind.word)
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// It is not there yet.
    Add {
        /// The new object.
        object: ObjectPath,
        /// What is said of it; its name may be left out.
        fields: Map<String, Value>,
    },
    /// Some of what is said of it changes.
    Set {
        /// The object; settings need not be there yet.
        object: ObjectPath,
        /// The new values; `null` leaves a field to its default.
        fields: Map<String, Value>,
    },
    /// It goes, with all that is in it.
    Remove {
        /// The object.
        object: ObjectPath,
    },
}

impl Edit {
    fn object(&self) -> &ObjectPath {
        match self {
            Edit::Add { object, .. } | Edit::Set { object, .. } | Edit::Remove { object } => object,
        }
    }
}

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditProblem {
    /// The object that was to be changed.
    pub object: ObjectPath,
    /// The field that is wrong, if it is one.
    pub field: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub hint: String,
}

impl EditProblem {
    fn new(
        object: &ObjectPath,
        field: Option<&str>,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            object: object.clone(),
            field: field.map(str::to_owned),
            reason: reason.into(),
            hint: hint.into(),
        }
    }

    /// What is told of an object or its field, with what would be right: behind `; ` in what is
    /// told, or what the field takes.
    #[must_use]
    pub fn of_text(object: &ObjectPath, field: Option<&str>, told: &str) -> Self {
        let name = field.map(|field| format!("`{field}`: "));
        let own = name.and_then(|name| told.strip_prefix(&*name));
        let told = own.unwrap_or(told);
        match told.split_once("; ") {
            Some((reason, hint)) => Self::new(object, field, reason, hint),
            None => Self::new(object, field, told, kind::remedy(object, field)),
        }
    }
}

impl fmt::Display for EditProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        if let Some(field) = &self.field {
            write!(f, "`{field}`: ")?;
        }
        write!(f, "{}; {}", self.reason, self.hint)
    }
}

impl std::error::Error for EditProblem {}

/// The text with these changes made, one after another.
///
/// # Errors
/// Every change that cannot be made, and why; what only the parser knows is not among them.
pub fn edit(text: &str, edits: &[Edit]) -> Result<String, Vec<EditProblem>> {
    let Some(first) = edits.first() else {
        return Ok(text.to_owned());
    };
    let plain = text.replace("\r\n", "\n");
    let mut document: DocumentMut = plain.parse().map_err(|error: toml_edit::TomlError| {
        let reason = format!("the configuration is no TOML: {}", error.message());
        let hint = "`weft check` of its file says where: mend that first";
        vec![EditProblem::new(first.object(), None, reason, hint)]
    })?;
    let made = edits.iter().map(|edit| change::make(&mut document, edit));
    let mut problems: Vec<EditProblem> = made.filter_map(Result::err).collect();
    let mut edited = document.to_string();
    if problems.is_empty() {
        problems = still_named(&edited, edits);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    // Lines end as they did.
    if plain.len() < text.len() {
        edited = edited.replace('\n', "\r\n");
    }
    Ok(edited)
}

/// The body of the fuzz target: every object of a text is said again, added beside and removed.
pub fn fuzz_edits(input: &[u8]) {
    /// More say the same, more slowly.
    const OBJECTS_MAX: usize = 64;
    let text = String::from_utf8_lossy(input);
    for (object, fields) in objects(&text).into_iter().take(OBJECTS_MAX) {
        let mut other = object.clone();
        if let Some(name) = other.names.last_mut() {
            name.push('7');
        }
        let add = Edit::Add {
            object: other,
            fields: Map::new(),
        };
        let gone = Edit::Remove {
            object: object.clone(),
        };
        let said = Edit::Set { object, fields };
        for edits in [&[add.clone(), gone.clone()][..], &[said, add], &[gone]] {
            if let Ok(edited) = edit(&text, edits) {
                let edited = with_absolute_paths(&edited, "/a".as_ref());
                let mut place = crate::Problem::of_file(String::new());
                (place.line, place.column) = (edited.lines().count(), 1);
                let _ = object_at(&edited, &place);
            }
        }
    }
}

/// Objects that are gone, and that others name.
fn still_named(edited: &str, edits: &[Edit]) -> Vec<EditProblem> {
    let removed = edits.iter().filter_map(|edit| match edit {
        Edit::Remove { object } => Some(object),
        _ => None,
    });
    let mut removed = removed.peekable();
    if removed.peek().is_none() {
        return Vec::new();
    }
    let all = objects(edited);
    let there: HashSet<&ObjectPath> = all.iter().map(|(path, _)| path).collect();
    let mut problems = Vec::new();
    for object in removed.filter(|object| !there.contains(object)) {
        let Some(name) = object.names.last() else {
            continue;
        };
        let names_it = |value: &Value| match value {
            Value::String(text) => text == name,
            Value::Number(number) => number.to_string() == *name,
            _ => false,
        };
        let named = all.iter().filter(|(path, fields)| {
            let mut keys = kind::REFERENCES
                .iter()
                .filter(|(of, by, _)| *of == object.kind && *by == path.kind);
            keys.any(|(_, _, key)| match fields.get(*key) {
                Some(Value::Array(list)) => list.iter().any(names_it),
                Some(value) => names_it(value),
                None => false,
            })
        });
        let named: Vec<String> = named.map(|(path, _)| path.to_string()).collect();
        if let Some((first, others)) = named.split_first() {
            let more = match others.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let reason = format!("{first}{more} names it");
            let hint = "remove or change that first";
            problems.push(EditProblem::new(object, None, reason, hint));
        }
    }
    problems
}
