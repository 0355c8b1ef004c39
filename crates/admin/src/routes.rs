//! What can be asked, and what answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::FileRequest;
use crate::problem::Problem;
use crate::served::{NotApplied, ServedFile};

const BODY_BYTES_MAX: usize = 1 << 20;

/// How long the body of a request may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

type Served = State<Arc<ServedFile>>;

/// For those who may ask.
pub(crate) fn open(served: Arc<ServedFile>) -> Router {
    let wrong_method = || async {
        let detail = "the path has other methods: GET to ask, POST to change";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    let no_path = || async {
        let detail = "paths are /healthz, /readyz, /v1/status, /v1/refusals, \
                      /v1/config:diff and /v1/config:apply";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    Router::new()
        .route("/healthz", get(async || "the admin socket answers\n"))
        .route("/readyz", get(async || "weft serves\n"))
        .route("/v1/status", get(status))
        .route("/v1/refusals", get(refusals))
        .route("/v1/config:diff", post(diff))
        .route("/v1/config:apply", post(apply))
        .fallback(no_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(served)
}

/// For all others.
pub(crate) fn closed() -> Router {
    Router::new().fallback(|| async {
        let detail = "only the user that weft runs as, and root, may ask";
        Problem::new(StatusCode::FORBIDDEN, detail)
    })
}

async fn status(State(served): Served) -> Result<Json<Value>, Problem> {
    off_thread(move || Ok(served.status())).await
}

async fn refusals(State(served): Served) -> Result<Json<Value>, Problem> {
    off_thread(move || Ok(served.refusals())).await
}

async fn diff(State(served): Served, request: Request) -> Result<Json<Value>, Problem> {
    let asked = file_request(request).await?;
    off_thread(move || {
        let (lines, missing) = served.diff(&asked.file)?;
        Ok(json!({ "lines": lines, "not_served": missing }))
    })
    .await
}

async fn apply(State(served): Served, request: Request) -> Result<Json<Value>, Problem> {
    let asked = file_request(request).await?;
    off_thread(move || {
        let (done, missing) = served.apply(&asked.file, asked.disconnect)?;
        Ok(json!({ "done": done, "not_served": missing }))
    })
    .await
}

/// Does what may block: other requests are answered meanwhile.
async fn off_thread(
    deed: impl FnOnce() -> Result<Value, NotApplied> + Send + 'static,
) -> Result<Json<Value>, Problem> {
    match spawn_blocking(deed).await {
        Ok(done) => Ok(Json(done?)),
        Err(panic) => {
            tracing::error!(%panic, "a request of the admin socket failed; report this");
            let detail = "a part of weft has failed: its log says more; report this";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
    }
}

async fn file_request(request: Request) -> Result<FileRequest, Problem> {
    let body = timeout(BODY_PATIENCE, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| {
        let detail = format!("no whole body in {} s", BODY_PATIENCE.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })?;
    let body = body.map_err(|why| Problem::new(why.status(), why.body_text()))?;
    let asked: FileRequest = serde_json::from_slice(&body).map_err(|why| {
        let detail = format!(
            "the body is not {{\"file\": \"/path\"}}, with \"disconnect\": true or false at most: \
             {why}"
        );
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    match asked.file.is_absolute() {
        true => Ok(asked),
        false => {
            let detail = "\"file\" is not an absolute path: weft runs in another folder";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail))
        }
    }
}
