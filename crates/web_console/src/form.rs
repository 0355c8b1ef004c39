//! Forms of objects.

use api::{ObjectProblem, ProblemDetails};
use maud::{Markup, html};

use crate::change::not_done;
use crate::layout::Page;
use tables::plain;

/// The form of one object.
#[derive(Clone, Debug)]
pub struct ObjectForm<'a> {
    /// What it does, to people.
    pub title: &'a str,
    /// `add` or `set`.
    pub change: &'a str,
    /// The kind of the object.
    pub kind: &'a str,
    /// The names of what it is in; of one that is there its own, too.
    pub names: &'a [String],
    /// The keys that can be said.
    pub fields: Vec<FormField>,
    /// The generation that is served.
    pub generation: u64,
    /// Why what was asked for cannot be.
    pub problems: &'a [&'a ProblemDetails],
}

/// A key in a form.
#[derive(Clone, Debug)]
pub struct FormField {
    /// As it stands in the configuration.
    pub key: String,
    /// What its value is.
    pub form: FieldForm,
    /// What it says; a list has one a line.
    pub value: String,
    /// Values that it may have.
    pub known: Vec<String>,
    /// It has to be said.
    pub is_needed: bool,
}

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// Words.
    Text,
    /// One of the words that are known.
    Word,
    /// Yes or no.
    Flag,
    /// A whole number.
    Number,
    /// Bytes, with a unit or without.
    Size,
    /// Any number of them.
    List,
    /// Words that no page shows.
    Secret {
        /// There is one already.
        is_set: bool,
    },
}

impl FieldForm {
    fn hint(self) -> Option<&'static str> {
        match self {
            FieldForm::Size => Some("such as 10GiB"),
            FieldForm::List => Some("one a line"),
            FieldForm::Secret { is_set: true } => {
                Some("there is one, which stays if this is empty")
            }
            FieldForm::Secret { is_set: false } => Some("it is not shown again"),
            _ => None,
        }
    }
}

/// The keys of a kind that most objects say; of other kinds all are.
const FIRST: &[(&str, &[&str])] = &[
    ("volume", &["name", "kind", "size", "path", "read_only"]),
    (
        "file_system",
        &["name", "kind", "size", "path", "read_only"],
    ),
    ("subsystem", &["nqn", "volumes", "hosts", "allow_any_host"]),
    (
        "target",
        &["name", "volumes", "initiators", "allow_any_initiator"],
    ),
    (
        "export",
        &[
            "path",
            "file_system",
            "clients",
            "allow_any_client",
            "read_only",
        ],
    ),
    ("listener", &["address", "protocol"]),
];

/// A form that asks for a change of one object.
#[must_use]
pub fn object_form(page: &Page<'_>, form: &ObjectForm<'_>) -> String {
    let known = FIRST.iter().find(|(kind, _)| *kind == form.kind);
    let is_first = |field: &&FormField| known.is_none_or(|(_, keys)| keys.contains(&&*field.key));
    let (first, others): (Vec<_>, Vec<_>) = form.fields.iter().partition(is_first);
    let problems = form.problems.iter().flat_map(|problem| &problem.objects);
    let problems: Vec<_> = problems.collect();
    let is_wrong = |field: &&FormField| problem_of(&problems, field).is_some();
    let opens = others.iter().any(is_wrong);
    let content = html! {
        (not_done(form.problems))
        form.object-form method="post" action="/configuration/change" {
            input type="hidden" name="change" value=(form.change);
            input type="hidden" name="kind" value=(form.kind);
            @for name in form.names { input type="hidden" name="name" value=(name); }
            input type="hidden" name="generation" value=(form.generation);
            div.fields { @for field in &first { (shown(field, &problems)) } }
            @if !others.is_empty() {
                details open[opens] {
                    summary { "More settings" }
                    div.fields { @for field in &others { (shown(field, &problems)) } }
                }
            }
            div.buttons {
                button.main name="step" value="plan" { "Show what changes" }
                a href="/configuration" { "Leave it" }
            }
        }
        p.soft { "What is left empty keeps its default. Nothing is served before it was shown." }
    };
    page.whole(form.title, false, &content)
}

fn problem_of<'p>(problems: &[&'p ObjectProblem], field: &FormField) -> Option<&'p ObjectProblem> {
    let mut problems = problems.iter().copied();
    let is_its = |known: &str| field.key == known || field.key == format!("{known}.user");
    problems.find(|problem| problem.field.as_deref().is_some_and(is_its))
}

fn shown(field: &FormField, problems: &[&ObjectProblem]) -> Markup {
    let problem = problem_of(problems, field);
    let id = format!("field-{}", field.key);
    let (hint_id, list_id) = (format!("{id}-hint"), format!("{id}-known"));
    let is_told = problem.is_some() || field.form.hint().is_some();
    html! {
        div.field {
            label for=(id) { code { (field.key) } }
            (input(field, &id, &list_id, is_told.then_some(&*hint_id), problem.is_some()))
            @if is_told {
                p.hint #(hint_id) {
                    @if let Some(problem) = problem { span.bad { (plain(&problem.reason)) } " " }
                    @if let Some(hint) = field.form.hint() { (hint) }
                    @if field.form == FieldForm::List && !field.known.is_empty() {
                        ": " (plain(&told(&field.known)))
                    }
                }
            }
        }
    }
}

/// Some of the values that a list takes.
fn told(known: &[String]) -> String {
    const TOLD_MAX: usize = 8;
    let mut told = known[..known.len().min(TOLD_MAX)].join(", ");
    if known.len() > TOLD_MAX {
        told += ", …";
    }
    told
}

/// Values that are offered.
const OFFERED_MAX: usize = 500;

fn input(
    field: &FormField,
    id: &str,
    list_id: &str,
    told_by: Option<&str>,
    is_wrong: bool,
) -> Markup {
    let name = format!("field.{}", field.key);
    let wrong = is_wrong.then_some("true");
    let offers = !field.known.is_empty();
    let option = |value: &str, shown: &str| {
        html! { option value=(value) selected[field.value == value] { (shown) } }
    };
    match field.form {
        FieldForm::Flag => html! {
            select id=(id) name=(name) aria-invalid=[wrong] aria-describedby=[told_by] {
                (option("", "the default")) (option("true", "yes")) (option("false", "no"))
            }
        },
        FieldForm::Word => html! {
            select id=(id) name=(name) aria-invalid=[wrong] aria-describedby=[told_by] {
                @if !field.is_needed { (option("", "the default")) }
                @for word in &field.known { (option(word, word)) }
                @if !field.value.is_empty() && !field.known.contains(&field.value) {
                    (option(&field.value, &field.value))
                }
            }
        },
        FieldForm::List => {
            let rows = field.value.lines().count().clamp(2, 12);
            html! {
                textarea id=(id) name=(name) rows=(rows) spellcheck="false"
                    aria-invalid=[wrong] aria-describedby=[told_by] { "\n" (field.value) }
            }
        }
        FieldForm::Secret { .. } => html! {
            input type="password" id=(id) name=(name) autocomplete="new-password"
                aria-invalid=[wrong] aria-describedby=[told_by];
        },
        FieldForm::Text | FieldForm::Number | FieldForm::Size => html! {
            input type="text" id=(id) name=(name) value=(field.value) autocomplete="off"
                spellcheck="false" required[field.is_needed]
                inputmode=[(field.form == FieldForm::Number).then_some("numeric")]
                list=[offers.then_some(list_id)]
                aria-invalid=[wrong] aria-describedby=[told_by];
            @if offers {
                datalist id=(list_id) {
                    @for known in field.known.iter().take(OFFERED_MAX) { option value=(known) {} }
                }
            }
        },
    }
}
