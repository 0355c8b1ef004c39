//! What a command does that follows events.

use std::io;

use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use serde_json::Value;

use crate::client::{AdminAddress, Request, sent};

/// The most that an event may have.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// How following has ended.
#[derive(Debug)]
pub enum Followed {
    /// The connection has.
    Ended,
    /// It was refused: problem details (RFC 9457).
    Refused(Value),
    /// An event could not be taken.
    Untaken(io::Error),
}

/// Asks at an address for a stream of events, and gives each to `take`, until that
/// fails or the stream ends; `last` is how far it has come, for the next time.
///
/// # Errors
/// None answers there as weft does.
pub fn follow(
    at: &AdminAddress,
    request: &Request,
    last: &mut Option<String>,
    mut take: impl FnMut(&Value) -> io::Result<()>,
) -> io::Result<Followed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let answer = sent(at, request, "text/event-stream").await?;
        let (head, mut body) = answer.into_parts();
        if head.status != StatusCode::OK {
            let body = Limited::new(body, EVENT_BYTES_MAX).collect().await;
            let bytes = body.map_err(io::Error::other)?.to_bytes();
            return Ok(Followed::Refused(serde_json::from_slice(&bytes)?));
        }
        let mut lines = Lines::default();
        // However it ends: weft may have been killed.
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.into_data().unwrap_or_default();
            for told in lines.add(&bytes)? {
                if let Some(event) = told.event
                    && let Err(error) = take(&event)
                {
                    return Ok(Followed::Untaken(error));
                }
                *last = Some(told.id);
            }
        }
        Ok(Followed::Ended)
    })
}

/// Server-sent events as they come (HTML, section 9.2.6), as far as weft writes them.
#[derive(Default)]
struct Lines {
    /// What has come of a line.
    part: Vec<u8>,
    next: Told,
}

/// How far a stream has come.
#[derive(Default)]
struct Told {
    id: String,
    /// `None`: nothing has happened.
    event: Option<Value>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> io::Result<Vec<Told>> {
        let mut told = Vec::new();
        let is_wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.part.extend_from_slice(piece);
            if self.part.len() > EVENT_BYTES_MAX {
                return Err(is_wrong("the answer is not weft's: an event without end"));
            }
            if !piece.ends_with(b"\n") {
                break;
            }
            let line = String::from_utf8_lossy(&self.part).trim_end().to_owned();
            self.part.clear();
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut self.next.id),
                Some(("data", data)) => {
                    let event = serde_json::from_str(data);
                    self.next.event = Some(event.map_err(|_| is_wrong("it is not weft's"))?);
                }
                _ if line.is_empty() => told.push(std::mem::take(&mut self.next)),
                _ => {}
            }
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_once_however_they_are_cut() {
        let stream = "id: b-6\n\nid: b-7\nevent: gap\ndata: {\"n\": 7}\n\n:\nid: b-8\nevent: came\n\
                      data: {\"n\": \"\u{e9}: \"}\n\n";
        for size in 1..stream.len() {
            let (mut lines, mut told) = (Lines::default(), Vec::new());
            for chunk in stream.as_bytes().chunks(size) {
                let new = lines.add(chunk).expect("as weft writes it");
                told.extend(new.into_iter().map(|told| {
                    let n = told.event.map(|event| event["n"].clone());
                    (told.id, n)
                }));
            }
            let expected = [
                ("b-6", None),
                ("b-7", Some(7.into())),
                ("b-8", Some("é: ".into())),
            ];
            let expected = expected.map(|(id, n)| (id.to_owned(), n));
            assert_eq!(told, expected, "cut after {size}");
        }
    }

    #[test]
    fn line_without_end_is_an_error() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert!(lines.add(&chunk).expect("it may end").is_empty());
        assert!(lines.add(&chunk).is_err(), "it is too long");
    }
}
