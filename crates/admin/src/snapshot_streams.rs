//! Snapshots on their way to another weft and from one, and what they differ in.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use api::{SnapshotChange, SnapshotChanges, SnapshotsDone};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http_body_util::BodyExt;
use serde::Deserialize;
use store::snapshot::{self, SnapshotError, SnapshotSource};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::body::NamedIn;
use crate::chunks::{Chunks, Taken};
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::{SNAPSHOT_STREAMS_MAX, ServedFile};
use crate::snapshots::{find, told};

/// How long a peer may take to send, or to take, a part of a stream: it may be a person who
/// looks at a pager, or a disk that is busy.
const STREAM_PATIENCE: Duration = Duration::from_secs(300);
/// Parts of a stream that wait for the other side.
const CHUNKS_WAITING: usize = 4;
/// Bytes of a part of a stream, about.
const CHUNK_BYTES: usize = 256 << 10;
/// Ranges that are told at once.
const CHANGES_MAX: usize = 4096;

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new()
        .routes(routes!(send, receive))
        .routes(routes!(changes))
}

/// What of a snapshot is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct PartQuery {
    /// What it holds that this snapshot of the volume does not; else all.
    since: Option<String>,
    /// Nothing before this byte.
    #[serde(default)]
    from: u64,
}

fn part_of(query: Result<Query<PartQuery>, QueryRejection>) -> Result<PartQuery, Problem> {
    let query = query.map(|Query(query)| query);
    query.map_err(|why| {
        let detail = format!("{}: ask with since and from alone", why.body_text());
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

/// A snapshot as a stream, for another weft to receive.
#[utoipa::path(get, path = "/v1/snapshots/{volume}/{name}/stream", operation_id = "send_snapshot",
    params(("volume" = String, Path), ("name" = String, Path), PartQuery),
    responses((status = 200, description = "The stream. It ends with its end, or is not whole.",
            body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 409), (status = 503)))]
async fn send(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    NamedIn(volume, name): NamedIn,
    query: Result<Query<PartQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let PartQuery { since, from } = part_of(query)?;
    let place = place(&served)?;
    let (of, what) = (
        served.clone(),
        format!("snapshot {name} of volume {volume}"),
    );
    let Json(source) = off_thread(move || {
        let found = find(of.running(), &volume)?;
        let source = SnapshotSource::open(&*found, &name, since.as_deref())?;
        if from > source.size_bytes() {
            let bytes = source.size_bytes();
            let detail =
                format!("snapshot {name} of volume {volume} has {bytes} bytes, not {from}");
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        }
        Ok(source)
    })
    .await?;
    let (to, chunks) = channel(CHUNKS_WAITING);
    let taken = Taken::within(STREAM_PATIENCE);
    let by_peer = taken.clone();
    spawn_blocking(move || {
        let _place: OwnedSemaphorePermit = place;
        let sent = send_all(&source, from, &to);
        let done = match &sent {
            Ok(()) => format!("{what} is sent"),
            Err(why) => {
                let bytes = by_peer.bytes();
                format!(
                    "{what} is not sent to its end: it was cut behind {bytes} bytes of its stream: {why}"
                )
            }
        };
        told(&served, &caller, "snapshot send", vec![done]);
        if let Err(error) = sent {
            // The answer has no end then.
            let _ = to.blocking_send(Err(error));
        }
    });
    let body = Body::new(Chunks {
        chunks,
        taken: taken.clone(),
    });
    let head = [(header::CONTENT_TYPE, "application/octet-stream")];
    let mut response = (head, body).into_response();
    response.extensions_mut().insert(taken);
    Ok(response)
}

/// Writes a snapshot as a stream; all of it is taken when this returns.
fn send_all(source: &SnapshotSource, from: u64, to: &Sender<io::Result<Bytes>>) -> io::Result<()> {
    let out = io::BufWriter::with_capacity(CHUNK_BYTES, Outgoing(to.clone()));
    source.send(from, out)?;
    let all_taken = Handle::current().block_on(to.reserve_many(CHUNKS_WAITING));
    all_taken.map(drop).map_err(gone)
}

/// Makes a snapshot of what a stream brings.
#[utoipa::path(put, path = "/v1/snapshots/{volume}/{name}/stream",
    operation_id = "receive_snapshot",
    params(("volume" = String, Path), ("name" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = SnapshotsDone), (status = 409), (status = 422),
        (status = 503), (status = 507)))]
async fn receive(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    NamedIn(volume, name): NamedIn,
    request: Request,
) -> Result<Json<SnapshotsDone>, Problem> {
    let (to, chunks) = channel(CHUNKS_WAITING);
    // What still comes after a refusal is read, so that its sender reads why.
    tokio::spawn(pass_on(request.into_body(), to));
    let place = place(&served)?;
    off_thread(move || {
        let _place = place;
        let found = find(served.running(), &volume)?;
        let bytes = Bytes::new();
        let tell = |line| told(&served, &caller, "snapshot receive", vec![line]);
        match snapshot::receive(&*found, &name, Arriving { chunks, bytes }) {
            Ok(()) => Ok(tell(format!(
                "snapshot {name} of volume {volume} is received"
            ))),
            Err(why) => {
                // A part of it stays.
                if matches!(why, SnapshotError::Cut(..)) {
                    tell(why.to_string());
                }
                Err(Problem::from(why))
            }
        }
    })
    .await
}

/// The ranges in which a snapshot may hold what another does not: more than differ, never
/// less.
#[utoipa::path(get, path = "/v1/snapshots/{volume}/{name}/changes",
    operation_id = "list_snapshot_changes",
    params(("volume" = String, Path), ("name" = String, Path), PartQuery),
    responses((status = 200, body = SnapshotChanges), (status = 409), (status = 503)))]
async fn changes(
    State(served): Served,
    NamedIn(volume, name): NamedIn,
    query: Result<Query<PartQuery>, QueryRejection>,
) -> Result<Json<SnapshotChanges>, Problem> {
    let PartQuery { since, from } = part_of(query)?;
    off_thread(move || {
        let found = find(served.running(), &volume)?;
        let source = SnapshotSource::open(&*found, &name, since.as_deref())?;
        let found: io::Result<Vec<_>> = source.changes(from).take(CHANGES_MAX).collect();
        let found = found.map_err(|error| {
            let detail = format!("snapshot {name} of volume {volume} cannot be read: {error}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        })?;
        let is_page = found.len() == CHANGES_MAX;
        let last = found.last().filter(|_| is_page);
        Ok::<_, Problem>(SnapshotChanges {
            size_bytes: source.size_bytes(),
            next: last.map(|last| last.range.offset + last.range.len),
            changes: found
                .iter()
                .map(|found| SnapshotChange {
                    offset: found.range.offset,
                    bytes: found.range.len,
                    zeros: found.is_zeros,
                })
                .collect(),
        })
    })
    .await
}

fn place(served: &ServedFile) -> Result<OwnedSemaphorePermit, Problem> {
    let place = served.snapshot_streams.clone().try_acquire_owned();
    place.map_err(|_| {
        let detail =
            format!("{SNAPSHOT_STREAMS_MAX} snapshots are sent and received already: let one end");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })
}

/// What an answer is written to.
struct Outgoing(Sender<io::Result<Bytes>>);

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK_BYTES)];
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(part)));
        sent.map(|()| part.len()).map_err(gone)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gone<T>(_: SendError<T>) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "its receiver is gone")
}

/// Hands on what a request brings, and reads the rest when that is not wanted any more.
async fn pass_on(mut body: Body, to: Sender<io::Result<Bytes>>) {
    loop {
        let frame = match timeout(STREAM_PATIENCE, body.frame()).await {
            Ok(None) => return,
            Ok(Some(frame)) => frame.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let ends = frame.is_err();
        let bytes = frame.map(|frame| frame.into_data().unwrap_or_default());
        let _ = to.send(bytes).await;
        if ends {
            return;
        }
    }
}

/// What a request brings.
struct Arriving {
    chunks: Receiver<io::Result<Bytes>>,
    bytes: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.bytes.is_empty() {
            match self.chunks.blocking_recv() {
                None => return Ok(0),
                Some(chunk) => self.bytes = chunk?,
            }
        }
        let len = room.len().min(self.bytes.len());
        room[..len].copy_from_slice(&self.bytes.split_to(len));
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So what waits for a slow peer is bounded by their number.
    #[test]
    fn part_of_a_stream_is_small_however_much_is_written_at_once() {
        let (to, mut chunks) = channel(1);
        let written = Outgoing(to).write(&[0; 4 * CHUNK_BYTES]);
        assert_eq!(written.expect("there is room"), CHUNK_BYTES);
        let chunk = chunks.blocking_recv().expect("it is there");
        assert_eq!(chunk.expect("no error").len(), CHUNK_BYTES);
    }
}
