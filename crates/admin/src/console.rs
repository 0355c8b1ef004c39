//! The pages of the console: what each shows, and how browsers get it.

mod change;
mod connect;
mod drain;
mod eviction;

use std::sync::Arc;

use api::ConfigText;
use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use web_console::{Measured, ObjectsPage, Page, TableQuery};

use crate::access::AdminCaller;
use crate::connections::{all_clients, all_connections, all_hosts, all_sessions};
use crate::html::{HTML, POLICY, REFERRER};
use crate::objects::all_objects;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;

type Make = fn(&ServedFile, &Page<'_>, &Pairs) -> Result<String, Problem>;

/// Each page.
const PAGES: &[(&str, Make)] = &[
    ("/", |served, page, _| {
        Ok(web_console::overview(
            page,
            &served.status(),
            &served.refusals(),
        ))
    }),
    ("/volumes", |served, page, query| {
        objects(served, page, query, ObjectsPage::Volumes)
    }),
    ("/nvme", |served, page, query| {
        objects(served, page, query, ObjectsPage::Nvme)
    }),
    ("/iscsi", |served, page, query| {
        objects(served, page, query, ObjectsPage::Iscsi)
    }),
    ("/files", |served, page, query| {
        objects(served, page, query, ObjectsPage::Files)
    }),
    ("/listeners", |served, page, query| {
        objects(served, page, query, ObjectsPage::Listeners)
    }),
    ("/nvme/objects", inner_objects),
    ("/iscsi/objects", inner_objects),
    ("/files/objects", inner_objects),
    ("/connections", |served, page, query| {
        Ok(web_console::connections(
            page,
            &all_connections(served.running()),
            &query.table(),
        ))
    }),
    ("/connections/hosts", |served, page, query| {
        Ok(web_console::hosts(
            page,
            &all_hosts(served.running()),
            &query.table(),
        ))
    }),
    ("/connections/sessions", |served, page, query| {
        Ok(web_console::sessions(
            page,
            &all_sessions(served.running()),
            &query.table(),
        ))
    }),
    ("/connections/nfs-clients", |served, page, query| {
        Ok(web_console::nfs_clients(
            page,
            &all_clients(served.running()),
            &query.table(),
        ))
    }),
    ("/refusals", |served, page, query| {
        Ok(web_console::refusals(
            page,
            &served.refusals(),
            &query.table(),
        ))
    }),
    ("/configuration", |served, page, _| {
        let ConfigText { document, text } = served.config();
        Ok(web_console::editor(page, &document, &text, &[]))
    }),
    ("/history", |served, page, query| {
        Ok(web_console::history(
            page,
            &served.history(),
            &query.table(),
        ))
    }),
    ("/history/{generation}", generation),
    ("/events", |served, page, query| {
        let events = served.events.lines();
        Ok(web_console::events(
            page,
            &events,
            query.one("kind"),
            &query.table(),
        ))
    }),
    ("/connections/evict", eviction::ask),
    (drain::PATH, drain::show),
    ("/connect", connect::show),
    ("/performance", |served, page, _| {
        measured(served, |all| web_console::performance(page, all))
    }),
    ("/performance/volumes", |served, page, query| {
        measured(served, |all| {
            web_console::volume_performance(page, all, &query.table())
        })
    }),
    ("/performance/hosts", |served, page, query| {
        measured(served, |all| {
            web_console::host_performance(page, all, &query.table())
        })
    }),
    ("/audit", |served, page, query| {
        Ok(web_console::audit(page, &served.audit()?, &query.table()))
    }),
];

/// The routes of the pages, and of what lies beside them.
pub(crate) fn routes() -> Router<Arc<ServedFile>> {
    // A text of a form is longer than the text itself: the larger ones are for `weft apply`.
    let change = get(change::by_link)
        .post(change::by_form)
        .layer(DefaultBodyLimit::max(control::FILE_BYTES_MAX as usize));
    let routes = Router::new()
        .route("/console/{name}", get(asset))
        .route("/configuration/change", change);
    PAGES.iter().fold(routes, |routes, &(path, make)| {
        let show = move |State(served): Served,
                         Extension(caller): Extension<AdminCaller>,
                         uri: Uri| show(served, caller, uri, make);
        let method = match path {
            "/connections/evict" => get(show).post(eviction::by_form),
            drain::PATH => get(show).post(drain::by_form),
            "/connect" => get(show).post(connect::test_by_form),
            _ => get(show),
        };
        routes.route(path, method)
    })
}

/// The names and values of a query or a form.
#[derive(Clone, Debug, Default)]
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn of(encoded: &[u8]) -> Pairs {
        Pairs(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// Of the address of a page; what its path names stands before what its query does.
    fn of_uri(uri: &Uri) -> Pairs {
        Pairs::of(uri.query().unwrap_or_default().as_bytes())
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let all = self.0.iter().filter(move |(known, _)| known == name);
        all.map(|(_, value)| &**value)
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.one(name)?.trim().parse().ok()
    }

    /// How a table is asked for.
    fn table(&self) -> TableQuery {
        let pairs = self.0.iter();
        TableQuery::of(pairs.map(|(name, value)| (&**name, &**value)))
    }
}

async fn show(served: Arc<ServedFile>, caller: AdminCaller, uri: Uri, make: Make) -> Response {
    let made =
        off_thread(move || make(&served, &page_of(uri.path(), &caller), &Pairs::of_uri(&uri)));
    match made.await {
        Ok(Json(html)) => page(StatusCode::OK, html),
        Err(problem) => problem.page(),
    }
}

/// A page for whoever asks.
fn page_of<'a>(path: &'a str, caller: &'a AdminCaller) -> Page<'a> {
    Page {
        path,
        caller: &caller.name,
        role: caller.role.name(),
    }
}

fn page(status: StatusCode, html: String) -> Response {
    (status, [HTML, POLICY, REFERRER], html).into_response()
}

fn objects(
    served: &ServedFile,
    page: &Page<'_>,
    pairs: &Pairs,
    which: ObjectsPage,
) -> Result<String, Problem> {
    let all = all_objects(served);
    Ok(web_console::objects(page, which, &all, &pairs.table()))
}

fn inner_objects(served: &ServedFile, page: &Page<'_>, pairs: &Pairs) -> Result<String, Problem> {
    let names: Vec<_> = pairs.all("name").map(str::to_owned).collect();
    let kind = pairs.one("kind").unwrap_or_default();
    let all = all_objects(served);
    Ok(web_console::inner_objects(
        page,
        kind,
        &names,
        &all,
        &pairs.table(),
    ))
}

fn measured(
    served: &ServedFile,
    shown: impl FnOnce(&Measured<'_>) -> String,
) -> Result<String, Problem> {
    let (samples, before) = served.samples.looks();
    let now = served.figures();
    let measured = Measured {
        samples: &samples,
        before: before.as_deref().unwrap_or(&now),
        now: &now,
    };
    Ok(shown(&measured))
}

fn generation(served: &ServedFile, page: &Page<'_>, pairs: &Pairs) -> Result<String, Problem> {
    let number = page.path.rsplit('/').next().unwrap_or_default();
    let number = number.parse().map_err(|_| {
        let detail = format!("a generation has a number, not {number}");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let shown = served.generation(number)?;
    let other = match pairs.number("with") {
        Some(other) => Some(served.generation(other)?),
        None => served.generation(number.saturating_sub(1)).ok(),
    };
    let (_, now) = served.text();
    let (other, now) = (other.as_ref(), now.generation);
    Ok(web_console::generation(page, &shown, other, now))
}

async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let asset = web_console::asset(&name).ok_or_else(|| {
        let detail = "the console has no file of that name";
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let kind = (header::CONTENT_TYPE, asset.media_type);
    Ok(([kind], asset.text).into_response())
}
