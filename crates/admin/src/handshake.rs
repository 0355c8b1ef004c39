//! TLS over TCP: from a connection to one that requests may come by.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use tls::{Certificate, RenewedTls, ServerSide, failure_of, problem_of};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::{Access, Peer, TlsPeer};
use crate::problem::Problem;
use crate::serve::{CONNECTIONS_MAX, PATIENCE, answer, read_rest};
use crate::wrong_logins::WrongLogin;

/// How many handshakes are under way at a time: another one ends the oldest.
const HANDSHAKES_MAX: usize = 64;

/// The type of the first record of a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// Takes connections, for ever.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Arc<RenewedTls>,
    access: Arc<Access>,
    router: Router,
) -> Infallible {
    // Who shows a certificate waits for none that shows none.
    let places = [(); 2].map(|()| Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let mut handshakes: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::debug!(%error, "the admin socket cannot take a connection now");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        handshakes.retain(|task| !task.is_finished());
        if handshakes.len() == HANDSHAKES_MAX
            && let Some(oldest) = handshakes.pop_front()
        {
            oldest.abort();
        }
        let (side, access) = (tls.side(), access.clone());
        let (router, places) = (router.clone(), places.clone());
        let task = tokio::spawn(async move {
            let shaken = timeout(PATIENCE, shake(stream, peer, &side)).await;
            let why = match shaken {
                Ok(Ok((stream, peer, has_shown))) => {
                    let place = places[usize::from(has_shown)].clone();
                    let place = place.acquire_owned().await;
                    tokio::spawn(async move {
                        answer(stream, peer, router, &AtomicBool::default()).await;
                        drop(place);
                    });
                    return;
                }
                Ok(Err(why)) => why,
                Err(_) => Some("it takes too long".to_owned()),
            };
            if let Some(why) = why {
                let why = format!("no handshake of TLS: {why}");
                access.count_wrong(WrongLogin::Handshake, peer.ip(), &why, Instant::now());
            }
        });
        handshakes.push_back(task.abort_handle());
    }
}

type Shaken = (TlsStream<TcpStream>, Peer, bool);

/// Does a handshake; what was wrong, if anything has come.
async fn shake(
    mut stream: TcpStream,
    peer: SocketAddr,
    side: &ServerSide,
) -> Result<Shaken, Option<String>> {
    let told = |error: io::Error| Some(error.to_string());
    let here = stream.local_addr().map_err(told)?;
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] == HANDSHAKE => {}
        Ok(1) => {
            let _ = stream.write_all(plain_answer().as_bytes()).await;
            read_rest(stream).await;
            return Err(Some("it speaks no TLS".to_owned()));
        }
        // It looks whether the port is open.
        _ => return Err(None),
    }
    let acceptor = TlsAcceptor::from(side.config.clone());
    let stream = match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            // The alert is on its way (RFC 8446, section 6.2).
            read_rest(stream).await;
            return Err(Some(
                failure_of(&error).map_or_else(|| error.to_string(), problem_of),
            ));
        }
    };
    let shown = stream.get_ref().1.peer_certificates();
    let client = shown.and_then(|chain| chain.first()).map(Certificate::new);
    let client = client.transpose().map_err(Some)?;
    let client = client.map(|certificate| certificate.names);
    let has_shown = client.is_some();
    let tls = TlsPeer {
        certificate: side.certificate.clone(),
        client,
    };
    let tls = Some(Arc::new(tls));
    Ok((stream, Peer::Address { peer, here, tls }, has_shown))
}

/// What is told in plain HTTP.
fn plain_answer() -> String {
    let detail = "this port speaks TLS";
    let problem = Problem::new(StatusCode::BAD_REQUEST, detail);
    problem.hint("ask by https://").unasked()
}
