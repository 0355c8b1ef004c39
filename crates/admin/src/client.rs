//! The other side: a request of a command.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The most that an answer may have.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it was done.
    pub is_done: bool,
    /// The answer, or problem details (RFC 9457).
    pub body: Value,
}

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// GET, unless another is named.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty: none.
    pub body: String,
}

/// Asks at the socket of `path`. Waits as long as it takes.
///
/// # Errors
/// None answers there as weft does.
pub fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    let (status, body) = exchange(socket, request, None)?;
    let body = serde_json::from_slice(&body).map_err(|_| {
        let why = format!("the answer ({status}) is not weft's");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    Ok(Answer {
        is_done: status.is_success(),
        body,
    })
}

/// Asks at the socket of `path` for what may be no JSON; whether it was done, and the answer.
///
/// # Errors
/// None answers there, or not within `patience`.
pub fn fetch(socket: &Path, target: &str, patience: Duration) -> io::Result<(bool, Vec<u8>)> {
    let request = Request {
        target: target.to_owned(),
        ..Request::default()
    };
    let (status, body) = exchange(socket, &request, Some(patience))?;
    Ok((status.is_success(), body.into()))
}

/// A text as a part of a path or a value of a query (RFC 3986, section 2.1).
#[must_use]
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request that is answered with this media type.
pub(crate) async fn sent(
    stream: UnixStream,
    asked: &Request,
    accepts: &str,
) -> Result<Response<Incoming>, Failure> {
    let mut request = hyper::Request::builder()
        .method(&asked.method)
        .uri(&asked.target)
        .header(header::HOST, "localhost")
        .header(header::ACCEPT, accepts);
    for (name, value) in &asked.headers {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from(asked.body.clone())))?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with the runtime of whoever asks.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

fn exchange(
    socket: &Path,
    asked: &Request,
    patience: Option<Duration>,
) -> io::Result<(StatusCode, Bytes)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let answered = async {
            let stream = UnixStream::connect(socket).await?;
            let answer = whole_answer(stream, asked).await;
            answer.map_err(|error| io::Error::other(format!("no answer: {error}")))
        };
        match patience {
            None => answered.await,
            Some(patience) => timeout(patience, answered).await.map_err(|_| {
                let why = format!("no answer within {} s", patience.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, why)
            })?,
        }
    })
}

async fn whole_answer(stream: UnixStream, asked: &Request) -> Result<(StatusCode, Bytes), Failure> {
    let answer = sent(stream, asked, "application/json").await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
    Ok((head.status, body.to_bytes()))
}
