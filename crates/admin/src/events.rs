//! `GET /v1/events`: what has happened, as a list or (server-sent events) as it happens.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::EventList;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::chunks::{Chunks, Taken};
use crate::event_log::{EventLog, FOLLOWERS_MAX, KEPT_MAX};
use crate::off_thread::Served;
use crate::problem::Problem;
use crate::serve::PATIENCE;

/// Events that are written at a time.
const BATCH_MAX: usize = 64;
/// How often something is written where nothing happens, so that who is gone is missed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// The number or id of an event: those behind it are told.
    #[param(pattern = "^([0-9a-f]+-)?[0-9]{1,19}$", min_length = 1)]
    since: Option<String>,
}

/// What has happened: a list, or a stream of what happens.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events",
    params(EventQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Goes before `since`.")),
    responses((status = 200, description = "Server-sent events, or a list for those that accept JSON.",
        content((String = "text/event-stream"), (EventList = "application/json")))))]
pub(crate) async fn events(
    State(served): Served,
    query: Result<Query<EventQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Query(EventQuery { since }) = query.map_err(|why| {
        let detail = format!("{}: ask with since alone", why.body_text());
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A browser that comes again has both: the header is newer.
    let since = header("last-event-id").or(since.as_deref());
    let log = served.events.clone();
    let reader = Reader::since(log.clone(), since)?;
    if header(header::ACCEPT.as_str()).is_some_and(|kinds| kinds.contains("application/json")) {
        return Ok(Json(reader.list()).into_response());
    }
    let place = log.followers.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        let detail = format!("{FOLLOWERS_MAX} others follow already: end one of them");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let (to, chunks) = mpsc::channel(1);
    tokio::spawn(async move {
        reader.follow(to).await;
        drop(place);
    });
    let taken = Taken::within(PATIENCE);
    let body = Body::new(Chunks {
        chunks,
        taken: taken.clone(),
    });
    let heads = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (heads, body).into_response();
    response.extensions_mut().insert(taken);
    Ok(response)
}

/// One that goes through the events.
struct Reader {
    log: Arc<EventLog>,
    /// The last that it has.
    last: u64,
    /// It has asked for what is not there any more: it was another process.
    was_before: bool,
    /// Whether it is to be told what it has missed.
    tells_gaps: bool,
}

impl Reader {
    fn since(log: Arc<EventLog>, since: Option<&str>) -> Result<Reader, Problem> {
        let Some(text) = since else {
            return Ok(Reader {
                log,
                last: 0,
                was_before: false,
                tells_gaps: false,
            });
        };
        let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
        let (boot, number) = match text.rsplit_once('-') {
            Some((boot, number)) => (boot, number),
            None => (log.boot(), text),
        };
        let number: u64 = number.parse().map_err(|_| {
            bad(format!(
                "since is \"{}\": give the number of an event, or its id (BOOT-NUMBER)",
                text.escape_debug()
            ))
        })?;
        let was_before = boot != log.boot();
        if !was_before && number > log.last() {
            let last = log.last();
            return Err(bad(format!(
                "since is {number}, and the last event is {last}: ask from {last} or before"
            )));
        }
        Ok(Reader {
            last: if was_before { 0 } else { number },
            log,
            was_before,
            tells_gaps: true,
        })
    }

    /// The next events, with their ids.
    fn next(&mut self, max: usize) -> Vec<(String, Arc<Value>)> {
        let boot = self.log.boot();
        let mut told = Vec::new();
        if std::mem::take(&mut self.was_before) {
            let value = json!({
                "boot": boot,
                "event": "restarted",
                "text": "weft has started anew since: these are its events from then on",
            });
            told.push((format!("{boot}-0"), Arc::new(value)));
        }
        let batch = self.log.after(self.last, max);
        if batch.lost > 0 && self.tells_gaps {
            let value = json!({
                "boot": boot,
                "event": "gap",
                "text": format!("events are lost: {}", batch.lost),
                "details": { "from": self.last + 1, "count": batch.lost },
            });
            told.push((
                format!("{boot}-{}", self.last + batch.lost),
                Arc::new(value),
            ));
        }
        self.tells_gaps = true;
        self.last += batch.lost;
        for (number, event) in batch.events {
            self.last = number;
            told.push((format!("{boot}-{number}"), event));
        }
        told
    }

    /// All that there is now.
    fn list(mut self) -> EventList {
        let events = self.next(KEPT_MAX).into_iter();
        let events = events.map(|(_, event)| (*event).clone()).collect();
        EventList {
            boot: self.log.boot().to_owned(),
            last: self.last,
            events,
        }
    }

    /// How far it has come.
    fn sign_of_life(&self) -> String {
        format!("id: {}-{}\n\n", self.log.boot(), self.last)
    }

    /// Writes all that comes, as fast as it is taken, until the follower is gone.
    async fn follow(mut self, to: Sender<io::Result<Bytes>>) {
        let (mut watch, mut is_new) = (self.log.watch(), true);
        // What is lost meanwhile is told when there is room for it.
        while let Ok(room) = to.reserve().await {
            let last = *watch.borrow_and_update();
            let chunk = match self.was_before || self.last < last {
                true => self.next(BATCH_MAX).iter().map(in_stream).collect(),
                // Where it is to go on, should it be cut before anything happens.
                false if std::mem::take(&mut is_new) => self.sign_of_life(),
                false => {
                    let changed = timeout(SIGN_OF_LIFE, watch.changed());
                    match changed.await {
                        Ok(_) => continue,
                        Err(_) => self.sign_of_life(),
                    }
                }
            };
            room.send(Ok(Bytes::from(chunk)));
        }
    }
}

/// As a stream of server-sent events has it (HTML, section 9.2.6).
fn in_stream((id, event): &(String, Arc<Value>)) -> String {
    let name = event["event"].as_str().unwrap_or_default();
    format!("id: {id}\nevent: {name}\ndata: {event}\n\n")
}
