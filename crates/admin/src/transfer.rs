//! What commands do that take a stream of bytes, or bring one.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::thread;

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use serde_json::Value;
use tokio::sync::mpsc::channel;

use crate::chunks::{Chunks, Taken};
use crate::client::{AdminAddress, Answer, Request, answer_of, sent, sent_with};
use crate::serve::PATIENCE;

/// The most that a refusal may have.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// Bytes of a part of a stream.
const CHUNK_BYTES: usize = 256 << 10;

/// How the taking of a stream has ended.
#[derive(Debug)]
pub enum Download {
    /// All of it has come.
    Whole,
    /// It was refused: problem details (RFC 9457).
    Refused(Value),
    /// A part of it could not be taken.
    Untaken(io::Error),
    /// It has ended before its end: why.
    Cut(String),
}

/// Asks at an address for a stream, and gives each part to `take`, until that fails.
///
/// # Errors
/// None answers there as weft does.
pub fn download(
    at: &AdminAddress,
    request: &Request,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Download> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let answer = sent(at, request, "application/octet-stream").await?;
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
            let bytes = body.map_err(io::Error::other)?.to_bytes();
            return Ok(Download::Refused(serde_json::from_slice(&bytes)?));
        }
        while let Some(frame) = body.frame().await {
            let bytes = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => return Ok(Download::Cut(error.to_string())),
            };
            if let Err(error) = take(&bytes) {
                return Ok(Download::Untaken(error));
            }
        }
        Ok(Download::Whole)
    })
}

/// How the bringing of a stream has ended.
#[derive(Debug)]
pub enum Upload {
    /// It was answered.
    Answered(Answer),
    /// A part of it could not be read: why.
    Unread(String),
}

/// Asks at an address with all of `input` as the body, each part of which is told to `told`
/// by its length.
///
/// # Errors
/// None answers there as weft does.
pub fn upload(
    at: &AdminAddress,
    request: &Request,
    mut input: impl Read + Send + 'static,
    mut told: impl FnMut(usize) + Send + 'static,
) -> io::Result<Upload> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (to, chunks) = channel(1);
    let unread = Arc::new(OnceLock::new());
    let why = unread.clone();
    // It ends with the input, or with the command.
    thread::spawn(move || {
        loop {
            let mut bytes = vec![0; CHUNK_BYTES];
            let read = match input.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read,
            };
            let chunk = match read {
                Ok(0) => return,
                Ok(len) => {
                    bytes.truncate(len);
                    told(len);
                    Ok(Bytes::from(bytes))
                }
                Err(error) => {
                    let _ = why.set(error.to_string());
                    Err(error)
                }
            };
            let ends = chunk.is_err();
            if to.blocking_send(chunk).is_err() || ends {
                return;
            }
        }
    });
    let answered = runtime.block_on(async {
        let taken = Taken::within(PATIENCE);
        let body = Chunks { chunks, taken };
        answer_of(sent_with(at, request, "application/json", body).await?).await
    });
    match (answered, unread.get()) {
        (Err(_), Some(why)) => Ok(Upload::Unread(why.clone())),
        (answered, _) => answered.map(Upload::Answered),
    }
}
