//! What can be asked, and what answers.

use std::sync::Arc;

use api::{Figures, Refusals, TargetStatus};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::connections;
use crate::console;
use crate::drain;
use crate::events;
use crate::metrics::MEDIA_TYPE;
use crate::objects;
use crate::off_thread::{Served, off_thread};
use crate::openapi::{self, Description};
use crate::problem::Problem;
use crate::served::ServedFile;
use crate::{access, config, login, quotas, scrubs, self_test, snapshot_streams, snapshots};

const BODY_BYTES_MAX: usize = 1 << 20;

/// Everything, each for those who may ask for it.
pub(crate) fn all(access: Arc<Access>) -> Router {
    let wrong_method = || async {
        let detail = "the path has other methods: GET to ask, PUT, POST or DELETE to change";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    let no_path = || async {
        let detail = "there is no such path: GET /v1/openapi.json has those that there are";
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    let served = access.served.clone();
    let (router, described) = described().split_for_parts();
    let description = Description(openapi::text(&described).into());
    router
        .merge(console::routes())
        .fallback(no_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(Extension(description))
        .layer(Extension(access.clone()))
        .layer(from_fn_with_state(access, access::admit))
        .with_state(served)
}

/// What is described: everything but the pages of the console.
pub(crate) fn described() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(readiness))
        .routes(routes!(metrics))
        .routes(routes!(figures))
        .routes(routes!(status))
        .routes(routes!(refusals))
        .routes(routes!(events::events))
        .routes(routes!(openapi::description))
        .routes(routes!(self_test::self_test))
        .merge(drain::routes())
        .merge(quotas::routes())
        .merge(scrubs::routes())
        .merge(snapshots::routes())
        .merge(snapshot_streams::routes())
        .merge(config::routes())
        .merge(objects::routes())
        .merge(connections::routes())
        .merge(login::routes())
}

/// Whether the thread that answers does.
#[utoipa::path(get, path = "/healthz", operation_id = "get_health", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn health() -> &'static str {
    "the admin socket answers\n"
}

/// Whether hosts are served, and let in.
#[utoipa::path(get, path = "/readyz", operation_id = "get_readiness", security(()),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 503, description = "Hosts are to go elsewhere.", body = String,
            content_type = "text/plain")))]
async fn readiness(State(served): Served) -> (StatusCode, &'static str) {
    match served.running().is_drained() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "weft is drained\n"),
        false => (StatusCode::OK, "weft serves\n"),
    }
}

/// Metrics, as OpenMetrics.
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics",
    responses((status = 200, body = String, content_type = MEDIA_TYPE)))]
async fn metrics(State(served): Served) -> Result<Response, Problem> {
    let Json(text) = off_thread(move || Ok::<_, Problem>(served.metrics())).await?;
    let media_type = (header::CONTENT_TYPE, MEDIA_TYPE);
    Ok(([media_type], text).into_response())
}

/// What is measured, for programs that take differences.
#[utoipa::path(get, path = "/v1/figures", operation_id = "get_figures",
    responses((status = 200, body = Figures)))]
async fn figures(State(served): Served) -> Result<Json<Figures>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.figures())).await
}

/// What is served, since when, and by which file.
#[utoipa::path(get, path = "/v1/status", operation_id = "get_status",
    responses((status = 200, body = TargetStatus)))]
async fn status(State(served): Served) -> Result<Json<TargetStatus>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.status())).await
}

/// What was refused last, and what lets it in.
#[utoipa::path(get, path = "/v1/refusals", operation_id = "list_refusals",
    responses((status = 200, body = Refusals)))]
async fn refusals(State(served): Served) -> Result<Json<Refusals>, Problem> {
    off_thread(move || Ok::<_, Problem>(served.refusals())).await
}
