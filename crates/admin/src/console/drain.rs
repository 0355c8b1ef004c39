//! The drain that a page asks for: what it costs is shown first.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use web_console::Page;

use super::{Pairs, page, page_of};
use crate::access::AdminCaller;
use crate::body::body_of;
use crate::drain::{self, DrainQuery};
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;

pub(super) const PATH: &str = "/connections/drain";

/// Says whether there is one, and what it would do.
pub(super) fn show(served: &ServedFile, page: &Page<'_>, _: &Pairs) -> Result<String, Problem> {
    Ok(web_console::drain(page, &drain::planned(served, false)))
}

/// Begins or ends it.
pub(super) async fn by_form(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Response {
    let changed = async {
        let (_, body) = body_of(request).await?;
        let Json(html) = off_thread(move || {
            let pairs = Pairs::of(&body);
            let query = DrainQuery {
                disconnect: pairs.one("disconnect") == Some("true"),
                ..DrainQuery::default()
            };
            let changed = match pairs.one("step") {
                Some("begin") => drain::begin_drain(&served, &caller, query)?,
                Some("end") => drain::end_drain(&served, &caller)?,
                _ => {
                    let detail = "`step` is begin or end";
                    return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
                }
            };
            Ok::<_, Problem>(web_console::drain(&page_of(PATH, &caller), &changed))
        })
        .await?;
        Ok::<_, Problem>(html)
    };
    match changed.await {
        Ok(html) => page(StatusCode::OK, html),
        Err(problem) => problem.page(),
    }
}
