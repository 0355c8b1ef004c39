//! Requests that show and change the document.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{
    Audit, AuditVerified, Changed, ConfigText, GenerationText, History, RequestKey, Rollback,
};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::with_secrets_kept;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use utoipa::IntoParams;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::body::body_of;
use crate::document::Document;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::served::{ChangeAsked, ServedFile};
use crate::state::sha256;

/// How long a change waits for those before it.
const TURN_PATIENCE: Duration = Duration::from_secs(30);

const KEY_BYTES_MAX: usize = 255;

/// How a change is made.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeQuery {
    /// Only what would change.
    #[serde(default)]
    dry_run: bool,
    /// Hosts, initiators and clients may be cut, and what is in memory be lost.
    #[serde(default)]
    disconnect: bool,
    /// Paths in the text are relative to this; else to the folder of the document.
    #[param(value_type = Option<String>, pattern = "^/")]
    folder: Option<PathBuf>,
}

/// The routes of the document.
pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    let limit = DefaultBodyLimit::max(control::FILE_BYTES_MAX as usize);
    OpenApiRouter::new()
        .routes(routes!(config, put).layer(limit))
        .routes(routes!(rollback))
        .routes(routes!(history))
        .routes(routes!(generation))
        .routes(routes!(audit))
        .routes(routes!(verify_audit))
}

/// The configuration: its text, or with what keeps it. For each secret that stands in it, it says
/// "(set)".
#[utoipa::path(get, path = "/v1/config", operation_id = "get_config",
    responses((status = 200, description = "The configuration that is served.",
        headers(("ETag" = String, description = "Its generation, for `If-Match`.")),
        content((String = "application/toml"), (ConfigText = "application/json")))))]
async fn config(State(served): Served, headers: HeaderMap) -> Result<Response, Problem> {
    let answer = off_thread(move || Ok::<_, Problem>(served.config())).await?;
    let generation = answer.document.generation;
    let tag = [(header::ETAG, format!("\"{generation}\""))];
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("application/json")) {
        return Ok((tag, answer).into_response());
    }
    let kind = [(header::CONTENT_TYPE, "application/toml")];
    Ok((tag, kind, answer.0.text).into_response())
}

/// Serves a configuration. A secret that is said to be "(set)" stays what it is.
#[utoipa::path(put, path = "/v1/config", operation_id = "put_config", params(ChangeQuery),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = Changed)))]
async fn put(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let query = checked(query)?;
    let (head, body) = body_of(request).await?;
    let text = String::from_utf8(body.to_vec()).map_err(|_| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "the body is not UTF-8: send the text of a configuration",
        )
    })?;
    let folder = query.folder.clone();
    if folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
        let detail = "`folder` is not an absolute path: weft runs in another folder";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let asked = asked("apply", &caller, &query, &head, &body)?;
    change(served, asked, move |document| {
        let text = with_secrets_kept(&text, &document.text);
        Ok(match folder {
            Some(folder) => document.moved(text, &folder),
            None => text,
        })
    })
    .await
}

/// Serves an earlier generation again.
#[utoipa::path(post, path = "/v1/config:rollback", operation_id = "roll_back",
    params(ChangeQuery), request_body = Rollback, responses((status = 200, body = Changed)))]
async fn rollback(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let query = checked(query)?;
    let (head, body) = body_of(request).await?;
    let Rollback { generation } = serde_json::from_slice(&body).map_err(|why| {
        let detail = format!("the body is not {{\"generation\": 1}}: {why}");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let verb = format!("rollback to {generation}");
    let asked = asked(&verb, &caller, &query, &head, &body)?;
    change(served, asked, move |document| {
        document.keeper.read(generation).map(|(_, text)| text)
    })
    .await
}

/// The generations that are kept.
#[utoipa::path(get, path = "/v1/config/history", operation_id = "list_generations",
    responses((status = 200, body = History)))]
async fn history(State(served): Served) -> Result<Json<History>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.history())).await
}

/// Who asked for which change, and what came of it.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit",
    responses((status = 200, body = Audit)))]
async fn audit(State(served): Served) -> Result<Json<Audit>, Problem> {
    off_thread(move || served.audit()).await
}

/// Whether the audit is as it was written.
#[utoipa::path(get, path = "/v1/audit:verify", operation_id = "verify_audit",
    responses((status = 200, body = AuditVerified)))]
async fn verify_audit(State(served): Served) -> Result<Json<AuditVerified>, Problem> {
    off_thread(move || served.verify_audit()).await
}

/// A generation, with its text. For each secret that stands in it, it says "(set)" where what is
/// served has it too, or "(set, another)".
#[utoipa::path(get, path = "/v1/config/history/{generation}", operation_id = "get_generation", params(("generation" = u64, Path)),
    responses((status = 200, body = GenerationText)))]
async fn generation(
    State(served): Served,
    number: Result<Path<u64>, PathRejection>,
) -> Result<Json<GenerationText>, Problem> {
    let Path(number) = number.map_err(|why| Problem::new(why.status(), why.body_text()))?;
    off_thread(move || served.generation(number)).await
}

pub(crate) fn checked(
    query: Result<Query<ChangeQuery>, QueryRejection>,
) -> Result<ChangeQuery, Problem> {
    let Query(query) = query.map_err(|why| Problem::new(why.status(), why.body_text()))?;
    Ok(query)
}

/// A change as its request asks for it.
pub(crate) fn asked(
    verb: &str,
    caller: &AdminCaller,
    query: &ChangeQuery,
    head: &axum::http::request::Parts,
    body: &Bytes,
) -> Result<ChangeAsked, Problem> {
    let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
    let text = |name: &str| match head.headers.get(name).map(|value| value.to_str()) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(bad(format!("{name} is not ASCII"))),
    };
    let if_match = text("if-match")?.filter(|tags| tags.trim() != "*");
    let if_match = if_match.map(|tags| {
        let numbers = tags.split(',').map(|tag| {
            let number = tag.trim().strip_prefix('"')?.strip_suffix('"')?;
            // A tag that weft never gave matches nothing (RFC 9110, section 8.8.3.2).
            let given = number.parse().ok();
            Some(given.filter(|n: &u64| n.to_string() == number).unwrap_or(0))
        });
        numbers.collect::<Option<Vec<u64>>>().ok_or_else(|| {
            bad(format!(
                "If-Match takes ETags as GET /v1/config gives them, not {tags}"
            ))
        })
    });
    let request = match text("idempotency-key")? {
        // As `Idempotency-Key` of the API's description has it.
        Some(key)
            if !(1..=KEY_BYTES_MAX).contains(&key.len())
                || !key.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            return Err(bad(format!(
                "Idempotency-Key has 1 to {KEY_BYTES_MAX} characters of ASCII that print, and \
                 no space"
            )));
        }
        key => key.map(|key| RequestKey {
            key: key.to_owned(),
            sha256: sha256(&[format!("{} {}\n", head.method, head.uri).as_bytes(), body].concat()),
        }),
    };
    Ok(ChangeAsked {
        verb: verb.to_owned(),
        uid: caller.uid,
        by: caller.by(),
        role: caller.role,
        dry_run: query.dry_run,
        disconnect: query.disconnect,
        if_match: if_match.transpose()?,
        request,
        object: None,
    })
}

/// Waits until the changes before are made.
pub(crate) async fn turn(served: &ServedFile) -> Result<OwnedSemaphorePermit, Problem> {
    match timeout(TURN_PATIENCE, served.turn.clone().acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => Err(NotApplied::Busy.into()),
    }
}

/// Makes a change when those before it are made.
pub(crate) async fn change(
    served: Arc<ServedFile>,
    asked: ChangeAsked,
    desired: impl FnOnce(&Document) -> Result<String, NotApplied> + Send + 'static,
) -> Result<Response, Problem> {
    let turn = turn(&served).await?;
    let Json(answer) = off_thread(move || {
        // Given back when it is made, whether its answer is still waited for or not.
        let _turn = turn;
        served.change(&asked, desired)
    })
    .await?;
    let tag = format!("\"{}\"", answer.document.generation);
    Ok(([(header::ETAG, tag)], Json(answer)).into_response())
}
