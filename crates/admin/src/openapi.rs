//! The description of the API (OpenAPI 3.1). What a request takes and what it answers stand at
//! the functions that answer; here is what all have in common, and the objects of the
//! configuration, as the schema of its file has them.

use std::sync::Arc;

use axum::Extension;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use control::{ObjectSchema, object_schemas};
use serde_json::{Map, Value, json};
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, OpenApi};

use crate::config::ChangeQuery;
use crate::objects::OBJECTS;

/// The text of the description, as it is served.
#[derive(Clone)]
pub(crate) struct Description(pub Arc<str>);

/// What any request may be refused with.
const REFUSED: &[(&str, &str)] = &[
    ("400", "The request is not as it is described."),
    ("401", "It needs a login."),
    (
        "403",
        "It needs another role, or comes from a page of elsewhere.",
    ),
    ("421", "weft is not asked by this name."),
    ("429", "Too many requests, or too many wrong secrets, came."),
    ("500", "A part of weft has failed."),
];

/// What a request may be refused with that names something.
const MISSING: (&str, &str) = ("404", "What it names is not there.");

/// What a request may be refused with that has a body.
const BODY_REFUSED: &[(&str, &str)] = &[
    ("408", "The body did not come in time."),
    ("413", "The body is too long."),
];

/// What a change may be refused with.
const NOT_CHANGED: &[(&str, &str)] = &[
    MISSING,
    (
        "409",
        "Another generation is served, hosts would be cut, or it needs a restart.",
    ),
    (
        "422",
        "The configuration would have mistakes, or the key is another request's.",
    ),
    ("503", "Other changes are being made."),
    ("507", "The change cannot be kept over a restart."),
];

/// What each change takes beside its query.
const CHANGE_HEADERS: &[(&str, &str, &str)] = &[
    (
        "If-Match",
        "ETags of generations: the change is made while one of them is served.",
        r#"^(\*|"[0-9]{1,19}"(, ?"[0-9]{1,19}")*)$"#,
    ),
    (
        "Idempotency-Key",
        "Names the request: when it comes again it is answered as before, and not done again.",
        "^[!-~]{1,255}$",
    ),
];

/// Everything that no path says.
#[derive(OpenApi)]
#[openapi(components(schemas(api::ProblemDetails, api::Changed, api::ConfigObjects)))]
struct Common;

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "get_description",
    responses((status = 200, body = HashMap<String, serde_json::Value>)))]
pub(crate) async fn description(Extension(Description(text)): Extension<Description>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        text.to_string(),
    )
        .into_response()
}

/// The description of paths, completed, as text.
pub(crate) fn text(described: &utoipa::openapi::OpenApi) -> String {
    let common = Common::openapi().merge_from(described.clone());
    let mut all = serde_json::to_value(common).expect("JSON");
    all["info"] = json!({
        "title": "weft",
        "description": "The admin API of weft, a network storage target. An error is a problem \
                        of RFC 9457. docs/admin.md says more.",
        "license": { "name": "Apache-2.0 OR MIT" },
        "version": env!("CARGO_PKG_VERSION"),
    });
    all["servers"] = json!([{ "url": "http://127.0.0.1:4480" }]);
    all["security"] = json!([{ "token": [] }, { "session": [] }]);
    all["components"]["securitySchemes"] = json!({
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "`weft token add`; the Unix socket needs none.",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "weft-session-4480",
            "description": "Of a login (`weft login`); its name ends in the port.",
        },
    });
    let refused = [REFUSED, BODY_REFUSED, NOT_CHANGED].concat();
    all["components"]["responses"] = refused.iter().map(refusal).collect::<Map<_, _>>().into();
    all["components"]["parameters"] = of_changes().into();
    for form in object_schemas() {
        let name = fields_name(&form);
        all["components"]["schemas"][name] = form.fields.clone();
        for (path, item) in paths_of(&form) {
            all["paths"][path] = item;
        }
    }
    let paths = all["paths"].as_object_mut().expect("paths");
    for (path, item) in paths {
        let operations = item.as_object_mut().expect("operations");
        for operation in operations.values_mut() {
            complete(path, operation);
        }
    }
    serde_json::to_string_pretty(&all).expect("JSON") + "\n"
}

/// A problem by its status.
fn refusal((status, why): &(&str, &str)) -> (String, Value) {
    let problem = json!({
        "description": why,
        "content": {
            "application/problem+json": {
                "schema": { "$ref": "#/components/schemas/ProblemDetails" },
            },
        },
    });
    ((*status).to_owned(), problem)
}

/// Adds what follows from what an operation takes.
fn complete(path: &str, operation: &mut Value) {
    let has_body = operation.get("requestBody").is_some();
    let is_open = operation["security"] == json!([{}]);
    let parameters = operation["parameters"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    // A drain changes no document.
    let is_change = path != "/v1/drain"
        && parameters
            .iter()
            .any(|parameter| parameter["name"] == "dry_run");
    let mut refused = Vec::new();
    if !is_open {
        refused.extend_from_slice(REFUSED);
    }
    if path.contains('{') {
        refused.push(MISSING);
    }
    if has_body {
        refused.extend_from_slice(BODY_REFUSED);
    }
    if is_change {
        refused.extend_from_slice(NOT_CHANGED);
        let known = of_changes();
        let is_own = |parameter: &Value| {
            let name = parameter["name"].as_str().unwrap_or_default();
            !known.contains_key(name)
        };
        let own = parameters.into_iter().filter(is_own);
        let of_changes = known
            .keys()
            .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }));
        operation["parameters"] = own.chain(of_changes).collect::<Vec<_>>().into();
        operation["responses"]["200"]["headers"] = tag();
    }
    for (status, _) in refused {
        operation["responses"][status] = json!({});
    }
    let responses = operation["responses"].as_object_mut().expect("responses");
    for (status, response) in responses
        .iter_mut()
        .filter(|(status, _)| status.as_str() >= "400" && !is_open)
    {
        *response = json!({ "$ref": format!("#/components/responses/{status}") });
    }
    // OpenAPI 3.1 has no words for the events of a stream. Bytes as they are need none by the
    // standard, but makers of clients leave out what has a body without a schema.
    let bytes = json!({ "schema": { "type": "string", "format": "binary" } });
    for (at, content) in [
        ("/responses/200/content/text~1event-stream", json!({})),
        (
            "/responses/200/content/application~1octet-stream",
            bytes.clone(),
        ),
        ("/requestBody/content/application~1octet-stream", bytes),
    ] {
        if let Some(stream) = operation.pointer_mut(at) {
            *stream = content;
        }
    }
    let done = &mut operation["responses"]["200"]["description"];
    if done.as_str().unwrap_or_default().is_empty() {
        *done = json!("What was asked for.");
    }
}

/// What each change takes beside what it is about.
fn of_changes() -> Map<String, Value> {
    let query = ChangeQuery::into_params(|| Some(ParameterIn::Query)).into_iter();
    let query = query.map(|parameter| (parameter.name.clone(), json!(parameter)));
    // Paths in an object are relative to the folder of the document.
    let query = query.filter(|(name, _)| name != "folder");
    let headers = CHANGE_HEADERS.iter().map(|(name, what, pattern)| {
        let header = json!({
            "name": name,
            "in": "header",
            "description": what,
            "schema": { "type": "string", "minLength": 1, "pattern": pattern },
        });
        ((*name).to_owned(), header)
    });
    query.chain(headers).collect()
}

fn tag() -> Value {
    let what = "The generation that is served, for `If-Match`.";
    json!({ "ETag": { "description": what, "schema": { "type": "string" } } })
}

/// `subsystem/namespace` as the name of a type.
fn type_name(kind: &str) -> String {
    let words = kind.split(['/', '_']).map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

fn fields_name(form: &ObjectSchema) -> String {
    type_name(form.kind) + "Fields"
}

/// The paths of a kind of objects: all of them, those in another, and one.
fn paths_of(form: &ObjectSchema) -> Vec<(String, Value)> {
    let mut path = format!("{OBJECTS}{}", form.kind.replace('/', "%2F"));
    let mut names: Vec<Value> = Vec::new();
    let words: Vec<&str> = form.kind.split('/').collect();
    let mut paths = Vec::new();
    for depth in 0..=form.names {
        if depth > 0 {
            let word = words[depth - 1];
            path += &format!("/{{{word}}}");
            names.push(json!({
                "name": word,
                "in": "path",
                "required": true,
                "schema": { "type": "string", "minLength": 1 },
            }));
        }
        let operations = operations_of(form, depth, &names);
        paths.push((path.clone(), operations.into()));
    }
    paths
}

/// What can be asked of a kind of objects by so many names.
fn operations_of(form: &ObjectSchema, depth: usize, names: &[Value]) -> Map<String, Value> {
    const ALL: &[(&str, &str, &str)] = &[("get", "list", "Lists")];
    const WITHIN: &[(&str, &str, &str)] = &[("get", "list_in", "Lists")];
    const SETTINGS: &[(&str, &str, &str)] = &[
        ("get", "get", "Shows"),
        ("patch", "set", "Changes"),
        ("delete", "remove", "Leaves to their defaults"),
    ];
    const ONE: &[(&str, &str, &str)] = &[
        ("get", "get", "Shows"),
        ("post", "add", "Adds"),
        ("patch", "set", "Changes"),
        ("delete", "remove", "Removes"),
    ];
    let asked = match (form.names, depth) {
        (0, _) => SETTINGS,
        (of_one, depth) if of_one == depth => ONE,
        (_, 0) => ALL,
        _ => WITHIN,
    };
    let operation = |(method, verb, does): &(&str, &str, &str)| {
        let mut operation = operation_of(form, method, names);
        operation["operationId"] = json!(format!("{verb}_{}", form.kind.replace('/', "_")));
        operation["summary"] = json!(format!("{does}: {}.", form.kind));
        ((*method).to_owned(), operation)
    };
    asked.iter().map(operation).collect()
}

fn operation_of(form: &ObjectSchema, method: &str, names: &[Value]) -> Value {
    let mut parameters = names.to_vec();
    let answer = match method {
        "get" => "ConfigObjects",
        _ => "Changed",
    };
    if method != "get" {
        parameters.extend(of_changes().into_iter().map(|(_, parameter)| parameter));
    }
    let json_of = |schema: &str| {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "application/json": { "schema": schema } })
    };
    let mut operation = json!({
        "tags": ["objects"],
        "parameters": parameters,
        "responses": {
            "200": { "description": "", "headers": tag(), "content": json_of(answer) },
        },
    });
    if ["post", "patch"].contains(&method) {
        // Where there is none, no field is said.
        operation["requestBody"] = json!({ "content": json_of(&fields_name(form)) });
    }
    operation
}
