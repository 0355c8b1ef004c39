//! Ends of connections that pages ask for: what it costs is shown first.

use api::Evicted;
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use web_console::{Evictable, Page};

use super::{Pairs, page, page_of};
use crate::access::AdminCaller;
use crate::body::body_of;
use crate::evict::{EvictedKind, Eviction};
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;

fn what(pairs: &Pairs) -> Result<(EvictedKind, &str), Problem> {
    let kind = pairs.one("kind").and_then(EvictedKind::of_name);
    let kind = kind.ok_or_else(|| {
        let detail = "`kind` is connection, host, session or nfs-client";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    Ok((kind, pairs.one("id").unwrap_or_default()))
}

/// Asks, and says what ends.
pub(super) fn ask(served: &ServedFile, page: &Page<'_>, pairs: &Pairs) -> Result<String, Problem> {
    let (kind, id) = what(pairs)?;
    let eviction = Eviction::find(served.running(), kind, id)?;
    let would = Evicted {
        done: eviction.lines(),
        may_return: eviction.may_return(),
    };
    let kind = kind.name();
    Ok(web_console::evict(page, Evictable { kind, id }, &would))
}

/// Ends it.
pub(super) async fn by_form(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Response {
    let evicted = async {
        let (_, body) = body_of(request).await?;
        let Json(html) = off_thread(move || {
            let pairs = Pairs::of(&body);
            let (kind, id) = what(&pairs)?;
            let eviction = Eviction::find(served.running(), kind, id)?;
            let done = eviction.end(&served, &caller)?;
            let kind = kind.name();
            let page = page_of("/connections", &caller);
            Ok::<_, Problem>(web_console::evicted(&page, Evictable { kind, id }, &done))
        })
        .await?;
        Ok::<_, Problem>(html)
    };
    match evicted.await {
        Ok(html) => page(StatusCode::OK, html),
        Err(problem) => problem.page(),
    }
}
