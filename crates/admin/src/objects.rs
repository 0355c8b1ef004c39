//! Requests that show and change single objects of the document.

use std::fmt;
use std::sync::Arc;

use api::{ConfigObject, ConfigObjects};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use control::{Edit, ObjectPath, edit, object_kinds, objects};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::body::body_of;
use crate::config::{ChangeQuery, asked, change, checked};
use crate::off_thread::Served;
use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::served::ServedFile;

/// Objects are named by their kind and the names of what they are in and of themselves, each
/// percent-encoded: `/v1/objects/subsystem%2Fnamespace/nqn.2026-01.org.example:s/1`.
pub(crate) const OBJECTS: &str = "/v1/objects/";

/// The routes of objects.
pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    let one = get(show).post(add).patch(set).delete(remove);
    OpenApiRouter::new()
        .routes(routes!(show))
        // Described by kinds: `openapi.rs`.
        .route("/v1/objects/{*object}", one)
}

/// All objects, those of a kind, or those in one.
#[utoipa::path(get, path = "/v1/objects", operation_id = "list_objects",
    responses((status = 200, body = ConfigObjects,
        headers(("ETag" = String, description = "Their generation, for `If-Match`.")))))]
async fn show(State(served): Served, uri: Uri) -> Result<Response, Problem> {
    let mut answer = all_objects(&served);
    if uri.path().starts_with(OBJECTS) {
        let asked = object_of(&uri)?;
        let missing = |detail| Problem::new(StatusCode::NOT_FOUND, detail);
        if !object_kinds().any(|kind| kind == asked.kind) {
            let kinds: Vec<_> = object_kinds().collect();
            let detail = format!(
                "there is no kind {}: there are {}",
                asked.kind,
                kinds.join(", ")
            );
            return Err(missing(detail));
        }
        let found = &mut answer.objects;
        found.retain(|object| object.kind == asked.kind && object.names.starts_with(&asked.names));
        if found.is_empty() && !asked.names.is_empty() {
            let detail =
                format!("there is no {asked}: GET {OBJECTS}KIND lists those that there are");
            return Err(missing(detail));
        }
    }
    let tag = [(header::ETAG, format!("\"{}\"", answer.generation))];
    Ok((tag, Json(answer)).into_response())
}

/// All objects of the configuration that is served.
pub(crate) fn all_objects(served: &ServedFile) -> ConfigObjects {
    let (text, generation) = served.text();
    let object = |(path, fields): (ObjectPath, _)| ConfigObject {
        object: path.to_string(),
        kind: path.kind,
        names: path.names,
        fields,
    };
    ConfigObjects {
        generation: generation.generation,
        objects: objects(&text).into_iter().map(object).collect(),
    }
}

type AskedQuery = Result<Query<ChangeQuery>, QueryRejection>;

async fn add(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: AskedQuery,
    request: Request,
) -> Result<Response, Problem> {
    make(served, &caller, query, request, "add", |object, fields| {
        Edit::Add { object, fields }
    })
    .await
}

async fn set(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: AskedQuery,
    request: Request,
) -> Result<Response, Problem> {
    make(served, &caller, query, request, "set", |object, fields| {
        Edit::Set { object, fields }
    })
    .await
}

async fn remove(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: AskedQuery,
    request: Request,
) -> Result<Response, Problem> {
    make(served, &caller, query, request, "rm", |object, _| {
        Edit::Remove { object }
    })
    .await
}

/// Makes one change of one object.
async fn make(
    served: Arc<ServedFile>,
    caller: &AdminCaller,
    query: AskedQuery,
    request: Request,
    verb: &str,
    of: impl FnOnce(ObjectPath, Map<String, Value>) -> Edit,
) -> Result<Response, Problem> {
    let query = checked(query)?;
    let object = object_of(request.uri())?;
    let (head, body) = body_of(request).await?;
    let Fields(fields) = match body.is_empty() {
        true => Fields(Map::new()),
        false => serde_json::from_slice(&body).map_err(|why| {
            let detail = format!("the body is no JSON object of fields: {why}");
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?,
    };
    let mut asked = asked(&format!("{verb} {object}"), caller, &query, &head, &body)?;
    asked.object = Some(object.clone());
    let made = of(object, fields);
    change(served, asked, move |document| {
        edit(&document.text, &[made]).map_err(NotApplied::Edit)
    })
    .await
}

/// A JSON object that gives each of its keys once.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(body: D) -> Result<Fields, D::Error> {
        struct EachOnce;
        impl<'de> Visitor<'de> for EachOnce {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("keys and values in braces")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut body: A) -> Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((key, value)) = body.next_entry::<String, Value>()? {
                    if fields.contains_key(&key) {
                        return Err(Error::custom(format!("`{key}` is given twice")));
                    }
                    fields.insert(key, value);
                }
                Ok(Fields(fields))
            }
        }
        body.deserialize_map(EachOnce)
    }
}

fn object_of(uri: &Uri) -> Result<ObjectPath, Problem> {
    let path = uri.path().strip_prefix(OBJECTS).unwrap_or_default();
    let parts: Option<Vec<String>> = path.split('/').map(decoded).collect();
    let parts = parts.ok_or_else(|| {
        let detail = "the path is not percent-encoded UTF-8 (RFC 3986, section 2.1)";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let names: Vec<&str> = parts[1..].iter().map(String::as_str).collect();
    Ok(ObjectPath::new(&parts[0], &names))
}

/// A part of a path as it is meant (RFC 3986, section 2.1).
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match first {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(*after.first()?)?, digit(*after.get(1)?)?);
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            byte => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
