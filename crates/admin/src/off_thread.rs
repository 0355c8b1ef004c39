//! What answers a request beside the thread of the socket.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;

use crate::problem::Problem;
use crate::served::ServedFile;

/// What is served, as a handler is given it.
pub(crate) type Served = State<Arc<ServedFile>>;

/// Does what may block: other requests are answered meanwhile.
pub(crate) async fn off_thread<T: Send + 'static, E: Into<Problem> + Send + 'static>(
    deed: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<Json<T>, Problem> {
    match spawn_blocking(deed).await {
        Ok(done) => done.map(Json).map_err(E::into),
        Err(panic) => {
            tracing::error!(%panic, "a request of the admin socket failed; report this");
            let detail = "a part of weft has failed: its log says more; report this";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
    }
}
