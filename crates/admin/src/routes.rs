//! What can be asked, and what answers.

use std::sync::Arc;

use api::{Figures, Refusals, TargetStatus};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::access::Access;
use crate::connections;
use crate::console;
use crate::drain;
use crate::events;
use crate::metrics::MEDIA_TYPE;
use crate::objects;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;
use crate::{access, config, login};

const BODY_BYTES_MAX: usize = 1 << 20;

/// Everything, each for those who may ask for it.
pub(crate) fn all(served: Arc<ServedFile>) -> Router {
    let wrong_method = || async {
        let detail = "the path has other methods: GET to ask, PUT, POST or DELETE to change";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    let no_path = || async {
        let detail = "paths are /healthz, /readyz, /metrics, /v1/figures, /v1/status, \
                      /v1/refusals, \
                      /v1/config, /v1/config:rollback, /v1/config/history, /v1/audit, \
                      /v1/audit:verify, /v1/events, /v1/drain, /v1/objects, /v1/connections, /v1/hosts, \
                      /v1/iscsi/sessions, /v1/nfs/clients and /v1/doctor/clients";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let access = Arc::new(Access::new(served.clone()));
    Router::new()
        .route("/healthz", get(async || "the admin socket answers\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/figures", get(figures))
        .route("/v1/status", get(status))
        .route("/v1/refusals", get(refusals))
        .route("/v1/events", get(events::events))
        .merge(drain::routes())
        .merge(config::routes())
        .merge(objects::routes())
        .merge(connections::routes())
        .merge(console::routes())
        .merge(login::routes(access.clone()))
        .fallback(no_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(access, access::admit))
        .with_state(served)
}

async fn metrics(State(served): Served) -> Result<Response, Problem> {
    let Json(text) = off_thread(move || Ok::<_, Problem>(served.metrics())).await?;
    let media_type = (header::CONTENT_TYPE, MEDIA_TYPE);
    Ok(([media_type], text).into_response())
}

async fn ready(State(served): Served) -> (StatusCode, &'static str) {
    match served.running().is_drained() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "weft is drained\n"),
        false => (StatusCode::OK, "weft serves\n"),
    }
}

async fn figures(State(served): Served) -> Result<Json<Figures>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.figures())).await
}

async fn status(State(served): Served) -> Result<Json<TargetStatus>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.status())).await
}

async fn refusals(State(served): Served) -> Result<Json<Refusals>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.refusals())).await
}
