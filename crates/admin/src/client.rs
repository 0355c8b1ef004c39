//! The other side: a request of a command.

use std::io;
use std::path::Path;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

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

/// Asks at the socket of `path`: POST with a body, else GET. Waits as long as it takes.
///
/// # Errors
/// None answers there as weft does.
pub fn ask(socket: &Path, target: &str, body: Option<&Value>) -> io::Result<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stream = UnixStream::connect(socket).await?;
        let (status, body) = exchange(stream, target, body)
            .await
            .map_err(|error| io::Error::other(format!("no answer: {error}")))?;
        let body = serde_json::from_slice(&body).map_err(|_| {
            let why = format!("the answer ({status}) is not weft's");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(Answer {
            is_done: status.is_success(),
            body,
        })
    })
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    stream: UnixStream,
    target: &str,
    body: Option<&Value>,
) -> Result<(StatusCode, Bytes), Failure> {
    let method = match body {
        Some(_) => Method::POST,
        None => Method::GET,
    };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
    drop(sender);
    connection.abort();
    Ok((head.status, body.to_bytes()))
}
