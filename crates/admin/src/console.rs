//! The pages of the console: what each shows, and how browsers get it.

use std::sync::Arc;

use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use web_console::{ObjectsPage, Page, TableQuery};

use crate::access::AdminCaller;
use crate::connections::{all_clients, all_connections, all_hosts, all_sessions};
use crate::html::{HTML, POLICY};
use crate::objects::all_objects;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;

type Make = fn(&ServedFile, &Page<'_>, &TableQuery) -> Result<String, Problem>;

/// Each page.
const PAGES: &[(&str, Make)] = &[
    ("/", |served, page, _| {
        Ok(web_console::overview(
            page,
            &served.status(),
            &served.refusals(),
        ))
    }),
    ("/volumes", |served, page, _| {
        Ok(web_console::objects(
            page,
            ObjectsPage::Volumes,
            &all_objects(served),
        ))
    }),
    ("/nvme", |served, page, _| {
        Ok(web_console::objects(
            page,
            ObjectsPage::Nvme,
            &all_objects(served),
        ))
    }),
    ("/iscsi", |served, page, _| {
        Ok(web_console::objects(
            page,
            ObjectsPage::Iscsi,
            &all_objects(served),
        ))
    }),
    ("/files", |served, page, _| {
        Ok(web_console::objects(
            page,
            ObjectsPage::Files,
            &all_objects(served),
        ))
    }),
    ("/connections", |served, page, query| {
        Ok(web_console::connections(
            page,
            &all_connections(served.running()),
            query,
        ))
    }),
    ("/connections/hosts", |served, page, query| {
        Ok(web_console::hosts(
            page,
            &all_hosts(served.running()),
            query,
        ))
    }),
    ("/connections/sessions", |served, page, query| {
        Ok(web_console::sessions(
            page,
            &all_sessions(served.running()),
            query,
        ))
    }),
    ("/connections/nfs-clients", |served, page, query| {
        Ok(web_console::nfs_clients(
            page,
            &all_clients(served.running()),
            query,
        ))
    }),
    ("/refusals", |served, page, query| {
        Ok(web_console::refusals(page, &served.refusals(), query))
    }),
    ("/configuration", |served, page, _| {
        Ok(web_console::configuration(page, &served.config()))
    }),
    ("/history", |served, page, query| {
        Ok(web_console::history(page, &served.history(), query))
    }),
    ("/audit", |served, page, query| {
        Ok(web_console::audit(page, &served.audit()?, query))
    }),
];

/// The routes of the pages, and of what lies beside them.
pub(crate) fn routes() -> Router<Arc<ServedFile>> {
    let routes = Router::new().route("/console/{name}", get(asset));
    PAGES.iter().fold(routes, |routes, &(path, make)| {
        let show = move |State(served): Served,
                         Extension(caller): Extension<AdminCaller>,
                         Query(pairs): Query<Vec<(String, String)>>| {
            show(served, caller, path, pairs, make)
        };
        routes.route(path, get(show))
    })
}

async fn show(
    served: Arc<ServedFile>,
    caller: AdminCaller,
    path: &'static str,
    pairs: Vec<(String, String)>,
    make: Make,
) -> Response {
    let made = off_thread(move || {
        let page = Page {
            path,
            caller: &caller.name,
            role: caller.role.name(),
        };
        let pairs = pairs.iter().map(|(name, value)| (&**name, &**value));
        make(&served, &page, &TableQuery::of(pairs))
    });
    match made.await {
        Ok(Json(html)) => ([HTML, POLICY], html).into_response(),
        Err(problem) => problem.page(),
    }
}

async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let asset = web_console::asset(&name).ok_or_else(|| {
        let detail = "the console has no file of that name";
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let kind = (header::CONTENT_TYPE, asset.media_type);
    Ok(([kind], asset.text).into_response())
}
