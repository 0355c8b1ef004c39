//! Changes that pages ask for: each is a text, an object or a generation; each is shown first
//! and served then, both by this one way.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Changed, ConfigText, ObjectVerb, ProblemDetails};
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use control::{
    Edit, ObjectField, ObjectKind, ObjectPath, SET, Takes, edit, object_kind, objects,
    with_secrets_hidden, with_secrets_kept,
};
use serde_json::{Map, Value};
use web_console::{FieldForm, FormField, ObjectForm, Proposal, kind_title};

use super::{Pairs, page, page_of};
use crate::access::AdminCaller;
use crate::body::body_of;
use crate::config::turn;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::served::{ChangeAsked, ServedFile};

/// Shows a form, or what a change would do.
pub(super) async fn by_link(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    uri: Uri,
) -> Response {
    let pairs = Pairs::of_uri(&uri);
    answer(served, caller, pairs, false)
        .await
        .unwrap_or_else(Problem::page)
}

/// The same, and makes the change where that is asked for.
pub(super) async fn by_form(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Response {
    let body = body_of(request).await;
    let answered = match body {
        Ok((_, body)) => answer(served, caller, Pairs::of(&body), true).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(Problem::page)
}

async fn answer(
    served: Arc<ServedFile>,
    caller: AdminCaller,
    pairs: Pairs,
    may_serve: bool,
) -> Result<Response, Problem> {
    let turn = turn(&served).await?;
    let Json(answer) = off_thread(move || {
        let _turn = turn;
        AskedChange {
            served: &served,
            caller: &caller,
            pairs: &pairs,
        }
        .answer(may_serve)
    })
    .await?;
    Ok(match answer {
        Shown::Page(status, html) => page(status, html),
        Shown::Made(number) => Redirect::to(&format!("/history/{number}")).into_response(),
    })
}

enum Shown {
    Page(StatusCode, String),
    /// The generation that the change has made.
    Made(u64),
}

/// What is to be served.
enum Desired {
    Text(String),
    Object(Edit),
    Generation(u64),
}

struct AskedChange<'a> {
    served: &'a ServedFile,
    caller: &'a AdminCaller,
    pairs: &'a Pairs,
}

impl AskedChange<'_> {
    fn answer(&self, may_serve: bool) -> Result<Shown, Problem> {
        match self.pairs.one("step") {
            Some("form") => self.form(Vec::new()),
            Some("serve") if may_serve => match self.make() {
                Ok(changed) => Ok(Shown::Made(changed.document.generation)),
                Err(problem) => self.plan(Some(problem)),
            },
            _ => self.plan(None),
        }
    }

    /// Makes the change, on the generation that was shown alone.
    fn make(&self) -> Result<Changed, Problem> {
        let (before, now) = self.served.text();
        if self.pairs.number("generation") != Some(now.generation) {
            return Err(NotApplied::Conflict(Box::new(now)).into());
        }
        let (desired, after) = self.desired(&before)?;
        let asked = ChangeAsked {
            disconnect: self.pairs.one("disconnect") == Some("true"),
            if_match: Some(vec![now.generation]),
            ..self.asked(&desired)
        };
        Ok(self.served.change(&asked, |_| Ok(after))?)
    }

    /// Shows what the change would do. `notice`: why it was not made.
    fn plan(&self, notice: Option<Problem>) -> Result<Shown, Problem> {
        let (before, now) = self.served.text();
        let seen = self.pairs.number("generation");
        let was_changed = seen.is_some_and(|seen| seen != now.generation);
        let conflict = || NotApplied::Conflict(Box::new(now.clone())).into();
        let notice = notice.or_else(|| was_changed.then(conflict));
        let planned = self.desired(&before).and_then(|(desired, after)| {
            let asked = ChangeAsked {
                dry_run: true,
                ..self.asked(&desired)
            };
            let changed = self.served.change(&asked, |_| Ok(after.clone()))?;
            Ok((after, changed))
        });
        let (after, changed) = match planned {
            Ok(planned) => planned,
            Err(problem) => return self.form(notice.into_iter().chain([problem]).collect()),
        };
        let title = self.title();
        let proposal = Proposal {
            title: &title,
            pairs: &self.pairs.0,
            generation: now.generation,
            has_form: matches!(self.word(), "text" | "add" | "set"),
        };
        let told: Vec<_> = notice.iter().map(Problem::told).collect();
        let page = page_of("/configuration", self.caller);
        let texts = (
            &*with_secrets_hidden(&before, &before),
            &*with_secrets_hidden(&after, &before),
        );
        let html = web_console::plan(&page, &proposal, texts, &changed, &told);
        Ok(Shown::Page(status_of(&told), html))
    }

    /// Shows the form that asks for the change. `problems`: why what it said cannot be.
    fn form(&self, problems: Vec<Problem>) -> Result<Shown, Problem> {
        let told: Vec<_> = problems.iter().map(Problem::told).collect();
        let page = page_of("/configuration", self.caller);
        let ConfigText { document, text } = self.served.config();
        let html = match self.word() {
            "text" => {
                let text = self.text(&text);
                web_console::editor(&page, &document, &text, &told)
            }
            "add" | "set" => {
                let title = self.title();
                let fields = self.fields(&text)?;
                let form = ObjectForm {
                    title: &title,
                    change: self.word(),
                    kind: self.pairs.one("kind").unwrap_or_default(),
                    names: &self.names(),
                    fields,
                    generation: document.generation,
                    problems: &told,
                };
                web_console::object_form(&page, &form)
            }
            _ => {
                let unknown = || bad("`change` is text, add, set, rm or rollback");
                return Err(problems.into_iter().next_back().unwrap_or_else(unknown));
            }
        };
        Ok(Shown::Page(status_of(&told), html))
    }

    fn word(&self) -> &str {
        self.pairs.one("change").unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        self.pairs.all("name").map(str::to_owned).collect()
    }

    fn kind(&self) -> Result<ObjectKind, Problem> {
        let kind = self.pairs.one("kind").unwrap_or_default();
        object_kind(kind).ok_or_else(|| bad("`kind` is none of those that GET /v1/objects shows"))
    }

    fn asked(&self, desired: &Desired) -> ChangeAsked {
        let (verb, object) = match desired {
            Desired::Text(_) => ("apply".to_owned(), None),
            Desired::Generation(number) => (format!("rollback to {number}"), None),
            Desired::Object(edit) => {
                let (verb, object) = match edit {
                    Edit::Add { object, .. } => (ObjectVerb::Add, object),
                    Edit::Set { object, .. } => (ObjectVerb::Set, object),
                    Edit::Remove { object } => (ObjectVerb::Rm, object),
                };
                (format!("{} {object}", verb.name()), Some(object.clone()))
            }
        };
        ChangeAsked {
            verb,
            uid: self.caller.uid,
            by: self.caller.by(),
            role: self.caller.role,
            object,
            ..ChangeAsked::default()
        }
    }

    fn title(&self) -> String {
        let kind = self.pairs.one("kind").unwrap_or_default();
        let title = kind_title(kind);
        let names = self.names();
        let own = names.last().map_or("", String::as_str);
        match self.word() {
            "add" if names.is_empty() => format!("Add {title}"),
            "add" => format!("Add {title} to {}", names[0]),
            "set" if names.is_empty() => format!("Settings of {title}"),
            "set" => format!("Change {title} {own}"),
            "rm" => format!("Remove {title} {own}"),
            "rollback" => {
                let number = self.pairs.number("to").unwrap_or_default();
                format!("Serve generation {number} again")
            }
            _ => "Configuration".to_owned(),
        }
    }

    /// What is asked for, and the text that it makes of the one before.
    fn desired(&self, before: &str) -> Result<(Desired, String), Problem> {
        let desired = match self.word() {
            "text" => Desired::Text(with_secrets_kept(&self.text(before), before)),
            "rollback" => {
                let number = self.pairs.number("to");
                Desired::Generation(
                    number.ok_or_else(|| bad("`to` is the number of a generation"))?,
                )
            }
            _ => Desired::Object(self.edit(before)?),
        };
        let text = match &desired {
            Desired::Text(text) => text.clone(),
            Desired::Generation(number) => self.served.whole_generation(*number)?.1,
            Desired::Object(one) => {
                edit(before, std::slice::from_ref(one)).map_err(NotApplied::Edit)?
            }
        };
        Ok((desired, text))
    }

    /// The text of the form. Browsers end its lines with two characters, whatever was there
    /// (HTML, "constructing the entry list"): they end as those before do.
    fn text(&self, before: &str) -> String {
        let text = self.pairs.one("text").unwrap_or_default();
        match before.contains("\r\n") {
            true => text.to_owned(),
            false => text.replace("\r\n", "\n"),
        }
    }

    fn edit(&self, before: &str) -> Result<Edit, Problem> {
        let kind = self.kind()?;
        let mut names = self.names();
        let mut fields = Map::new();
        let now = match self.word() {
            "add" => Map::new(),
            "set" => fields_of(before, kind.word, &names),
            "rm" => {
                let object = path_of(&kind, names);
                return Ok(Edit::Remove { object });
            }
            _ => return Err(bad("`change` is text, add, set, rm or rollback")),
        };
        let mut tables: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for field in &kind.fields {
            let Some(text) = self.pairs.one(&format!("field.{}", field.name())) else {
                continue;
            };
            let said = json_of(field.takes, text);
            let Some(table) = field.table else {
                note(&mut fields, field.key, now.get(field.key), said);
                continue;
            };
            let table_said = tables.entry(table).or_default();
            if let Some(said) = said {
                table_said.insert(field.key.to_owned(), said);
            }
        }
        for (table, said) in tables {
            let before = now.get(table);
            let said = with_secret_of(said, before);
            note(&mut fields, table, before, said.map(Value::Object));
        }
        if self.word() == "set" {
            let object = path_of(&kind, names);
            return Ok(Edit::Set { object, fields });
        }
        // What is let in is named with all its names; a form names what it is in alone.
        if names.len() < kind.word.split('/').count() {
            let own = control::object_name(kind.word, &fields);
            let own = own.or_else(|| self.pairs.one(OWN_FIELD).map(|own| own.trim().to_owned()));
            names.push(own.unwrap_or_default());
        }
        let object = path_of(&kind, names);
        Ok(Edit::Add { object, fields })
    }

    /// The fields of the form of an object, with what was said, or is so now.
    fn fields(&self, text: &str) -> Result<Vec<FormField>, Problem> {
        let kind = self.kind()?;
        let adds = self.word() == "add";
        let names = self.names();
        let now = match adds {
            true => Map::new(),
            false => fields_of(text, kind.word, &names),
        };
        let all = objects(text);
        let is_there = |field: &&ObjectField| {
            let is_name = names.last() == now.get(field.key).map(text_of).as_ref();
            let has_own = |kind: &str| {
                let mut own = all.iter().filter(|(path, _)| path.kind == kind);
                own.any(|(path, _)| path.names.starts_with(&names))
            };
            adds || field.table.is_some() || !(is_name || field.short_for.is_some_and(has_own))
        };
        let field = |field: &ObjectField| {
            let name = field.name();
            let said = self.pairs.one(&format!("field.{name}"));
            let now = match field.table {
                Some(table) => now.get(table).and_then(|table| table.get(field.key)),
                None => now.get(field.key),
            };
            let value = said.map_or_else(
                || now.map(text_of).unwrap_or_default(),
                |said| said.replace("\r\n", "\n"),
            );
            let words = control::words(kind.word, field.key);
            let known = match field.refers {
                Some(kind) => {
                    let named = all.iter().filter(|(path, _)| path.kind == kind);
                    named
                        .filter_map(|(path, _)| path.names.last().cloned())
                        .collect()
                }
                None => words.iter().map(|&word| word.to_owned()).collect(),
            };
            FormField {
                key: name,
                form: match field.is_secret() {
                    true => FieldForm::Secret {
                        is_set: now.is_some(),
                    },
                    false => form_of(field.takes, !words.is_empty()),
                },
                value: if field.is_secret() {
                    String::new()
                } else {
                    value
                },
                known,
                is_needed: adds && field.table.is_none() && kind.named_by == [field.key],
            }
        };
        let mut fields: Vec<_> = kind.fields.iter().filter(is_there).map(field).collect();
        if adds && kind.named_by.is_empty() {
            let key = OWN_FIELD.trim_start_matches("field.");
            fields.push(FormField {
                key: key.to_owned(),
                form: FieldForm::Text,
                value: self.pairs.one(OWN_FIELD).unwrap_or_default().to_owned(),
                known: Vec::new(),
                is_needed: true,
            });
        }
        Ok(fields)
    }
}

/// The name of what has no keys, a host of a subsystem.
const OWN_FIELD: &str = "field.nqn";

fn bad(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

fn status_of(problems: &[&ProblemDetails]) -> StatusCode {
    let status = problems
        .first()
        .and_then(|told| StatusCode::from_u16(told.status).ok());
    status.unwrap_or(StatusCode::OK)
}

fn path_of(kind: &ObjectKind, names: Vec<String>) -> ObjectPath {
    let kind = kind.word.to_owned();
    ObjectPath { kind, names }
}

/// What a text says of an object now.
fn fields_of(text: &str, kind: &str, names: &[String]) -> Map<String, Value> {
    let mut all = objects(text).into_iter();
    let found = all.find(|(path, _)| path.kind == kind && path.names == names);
    found.map(|(_, fields)| fields).unwrap_or_default()
}

/// Notes what is said of a key, where that is another than before.
fn note(fields: &mut Map<String, Value>, key: &str, before: Option<&Value>, said: Option<Value>) {
    if before != said.as_ref() {
        fields.insert(key.to_owned(), said.unwrap_or(Value::Null));
    }
}

/// What is said of credentials: the secret that there is stays where none is said, unless
/// nothing else is said either.
fn with_secret_of(
    mut said: Map<String, Value>,
    before: Option<&Value>,
) -> Option<Map<String, Value>> {
    if said.is_empty() {
        return None;
    }
    let is_set = before.is_some_and(|before| before.get("secret").is_some());
    if is_set && !said.contains_key("secret") && !said.contains_key("secret_file") {
        said.insert("secret".to_owned(), SET.into());
    }
    Some(said)
}

fn form_of(takes: Takes, has_words: bool) -> FieldForm {
    match takes {
        _ if has_words => FieldForm::Word,
        Takes::Flag => FieldForm::Flag,
        Takes::Number => FieldForm::Number,
        Takes::Size => FieldForm::Size,
        Takes::Texts | Takes::Numbers => FieldForm::List,
        _ => FieldForm::Text,
    }
}

/// A value as a form has it.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        value => value.to_string(),
    }
}

/// What a form says, as JSON; what is of another form than the key takes stays a text, and is
/// told to be wrong where all values are judged.
fn json_of(takes: Takes, said: &str) -> Option<Value> {
    let text = said.trim();
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) => Value::from(number),
        Err(_) => Value::from(text),
    };
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    if text.is_empty() {
        return None;
    }
    Some(match takes {
        Takes::Flag | Takes::FlagOr(_) => match text.parse::<bool>() {
            Ok(flag) => Value::from(flag),
            Err(_) => Value::from(text),
        },
        Takes::Number | Takes::NumberOr(_) | Takes::Size => number(text),
        Takes::Texts => lines().map(Value::from).collect(),
        Takes::Numbers => lines().map(number).collect(),
        _ => Value::from(text),
    })
}
