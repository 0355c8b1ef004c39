//! The other side: a request of a command.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tls::{ClientConfig, failure_of, problem_of};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

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

/// How long a machine may take to be connected, and to do its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Where weft is asked.
#[derive(Clone)]
pub enum AdminAddress {
    /// At the Unix socket of this path.
    Socket(PathBuf),
    /// Over TCP.
    Url(AdminUrl),
}

/// Where weft is asked over TCP, and as whom.
#[derive(Clone)]
pub struct AdminUrl {
    /// As `Host` has it.
    authority: String,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// `None`: in plain.
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
}

impl AdminAddress {
    /// Of `https://HOST:PORT`, with what is taken of that and shown to it, or of
    /// `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_url(
        url: &str,
        tls: Option<Arc<ClientConfig>>,
        token: Option<String>,
    ) -> Result<AdminAddress, String> {
        let like = "it is like https://storage.example.org:4480, with its port";
        let wrong = |why: &str| format!("{url}: {why}: {like}");
        let uri: Uri = url.parse().map_err(|_| wrong("this is no address"))?;
        if !matches!(uri.scheme_str(), Some("https" | "http")) {
            return Err(wrong("it begins with neither https:// nor http://"));
        }
        let is_whole = uri.path() != "/" || uri.query().is_some() || url.contains('@');
        if is_whole {
            return Err(wrong("it has more than a name and a port"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it has no name"))?;
        let rest = authority.as_str().strip_prefix(authority.host());
        let port = match rest.and_then(|rest| rest.strip_prefix(':')) {
            None | Some("") => return Err(wrong("it has no port")),
            Some(port) => match port.parse::<u16>() {
                Ok(port @ 1..) => port,
                _ => return Err(wrong("its port is none: ports are 1 to 65535")),
            },
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let is_here = match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        match (uri.scheme_str() == Some("https"), &tls) {
            (true, None) => {
                return Err(format!(
                    "{url}: no authority is named whose certificates are good: name its own with \
                     --ca (/etc/ssl/certs/ca-certificates.crt has those of this machine)"
                ));
            }
            (false, _) if !is_here => {
                return Err(format!(
                    "{url}: what goes to another machine goes by https://, encrypted"
                ));
            }
            (false, Some(_)) => {
                return Err(format!("{url}: --ca and --certificate are for https://"));
            }
            (true, Some(_)) | (false, None) => {}
        }
        Ok(AdminAddress::Url(AdminUrl {
            authority: authority.to_string(),
            host,
            port,
            tls,
            token,
        }))
    }

    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let url = match self {
            AdminAddress::Socket(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            AdminAddress::Url(url) => url,
        };
        let connected = timeout(CONNECT_MAX, url.connect()).await;
        connected.unwrap_or_else(|_| {
            let why = format!("no connection in {} s", CONNECT_MAX.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, why))
        })
    }
}

impl AdminUrl {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|error| io::Error::other(error.to_string()))?;
        let connector = TlsConnector::from(tls.clone());
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Socket(path) => write!(f, "{}", path.display()),
            AdminAddress::Url(url) => {
                let s = if url.tls.is_some() { "s" } else { "" };
                write!(f, "http{s}://{}", url.authority)
            }
        }
    }
}

/// What requests go over.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Asks at an address. Waits as long as it takes.
///
/// # Errors
/// None answers there as weft does.
pub fn ask(at: &AdminAddress, request: &Request) -> io::Result<Answer> {
    let (status, body) = exchange(at, request, None)?;
    parsed(status, &body)
}

fn parsed(status: StatusCode, body: &[u8]) -> io::Result<Answer> {
    let body = serde_json::from_slice(body).map_err(|_| {
        let why = format!("the answer ({status}) is not weft's");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    Ok(Answer {
        is_done: status.is_success(),
        body,
    })
}

/// An answer when all of it has come.
pub(crate) async fn answer_of(answer: Response<Incoming>) -> io::Result<Answer> {
    let (status, body) = whole(answer).await?;
    parsed(status, &body)
}

/// Asks at the socket of `path` for what may be no JSON; whether it was done, and the answer.
///
/// # Errors
/// None answers there, or not within `patience`.
pub fn fetch(at: &AdminAddress, target: &str, patience: Duration) -> io::Result<(bool, Vec<u8>)> {
    let request = Request {
        target: target.to_owned(),
        ..Request::default()
    };
    let (status, body) = exchange(at, &request, Some(patience))?;
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

/// Sends a request that is answered with this media type.
pub(crate) async fn sent(
    at: &AdminAddress,
    asked: &Request,
    accepts: &str,
) -> io::Result<Response<Incoming>> {
    let body = Full::new(Bytes::from(asked.body.clone()));
    sent_with(at, asked, accepts, body).await
}

/// Sends a request with another body.
pub(crate) async fn sent_with<B>(
    at: &AdminAddress,
    asked: &Request,
    accepts: &str,
    body: B,
) -> io::Result<Response<Incoming>>
where
    B: Body<Data: Send> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stream = at.connect().await.map_err(told)?;
    let (host, token) = match at {
        AdminAddress::Socket(_) => ("localhost", None),
        AdminAddress::Url(url) => (&*url.authority, url.token.as_ref()),
    };
    let mut request = hyper::Request::builder()
        .method(&asked.method)
        .uri(&asked.target)
        .header(header::HOST, host)
        .header(header::ACCEPT, accepts);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    for (name, value) in &asked.headers {
        request = request.header(*name, value);
    }
    let request = request.body(body).map_err(no_answer)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(no_answer)?;
    // It ends with the runtime of whoever asks.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(no_answer)
}

fn exchange(
    at: &AdminAddress,
    asked: &Request,
    patience: Option<Duration>,
) -> io::Result<(StatusCode, Bytes)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let answered = whole_answer(at, asked);
        match patience {
            None => answered.await,
            Some(patience) => timeout(patience, answered).await.map_err(|_| {
                let why = format!("no answer within {} s", patience.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, why)
            })?,
        }
    })
}

async fn whole_answer(at: &AdminAddress, asked: &Request) -> io::Result<(StatusCode, Bytes)> {
    whole(sent(at, asked, "application/json").await?).await
}

async fn whole(answer: Response<Incoming>) -> io::Result<(StatusCode, Bytes)> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| io::Error::other(format!("no answer: {error}")))?;
    Ok((head.status, body.to_bytes()))
}

/// Why none answers who is connected.
pub(crate) fn no_answer(error: impl Error + Send + Sync + 'static) -> io::Error {
    match failure_of(&error) {
        Some(failure) => io::Error::new(ErrorKind::InvalidData, problem_of(failure)),
        None => io::Error::other(format!("no answer: {error}")),
    }
}

/// An error of a connection, with what of TLS is wrong in words.
fn told(error: io::Error) -> io::Error {
    match failure_of(&error) {
        Some(failure) => io::Error::new(ErrorKind::InvalidData, problem_of(failure)),
        None => error,
    }
}
