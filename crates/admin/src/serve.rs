//! The thread of both sockets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use server::{AdminGroup, AdminRole};
use tls::RenewedTls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::access::{Access, Peer, is_in_charge};
use crate::chunks::Taken;
use crate::groups::{CONNECTIONS_OF_USER_MAX, UserConnections, role_of_user};
use crate::handshake;
use crate::place::{Place, TakenPlace};
use crate::problem::Problem;
use crate::renewed::{self, look_at_files};
use crate::routes;
use crate::samples::take_samples;
use crate::served::{AdminTaken, ServedFile, locked};
use crate::tcp::TcpPlace;

/// Of each of both sockets.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// What the head of a request may have.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How much is read of what a peer still sends that was refused, so that it reads why.
const REST_BYTES_MAX: u64 = 64 << 10;

/// How long the head of a request may take, and a peer to take its answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long one that comes waits before those that have asked nothing give way.
const SILENCE: Duration = Duration::from_millis(500);

/// Where it answers.
#[derive(Debug)]
pub struct AdminPlaces {
    /// The Unix socket.
    pub socket: Option<Place>,
    /// On TCP.
    pub tcp: Option<TcpPlace>,
}

/// The sockets while they are served. Dropping it removes that of a path.
#[derive(Debug)]
pub struct AdminThread {
    path: Option<PathBuf>,
    address: Option<SocketAddr>,
    url: Option<String>,
    place: TakenPlace,
}

/// The groups that let users in, as the document says now.
type Groups = Arc<dyn Fn() -> Vec<AdminGroup> + Send + Sync>;

impl AdminThread {
    /// Where the Unix socket is.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where it answers on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// By what a browser asks there.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(locked(&self.place).take());
    }
}

/// Answers at `places` from now on, in a thread of its own. Where that fails it is told in
/// the log, and nothing else ends.
///
/// # Errors
/// The thread cannot be started.
pub fn serve(places: AdminPlaces, served: Arc<ServedFile>) -> io::Result<AdminThread> {
    let access = Arc::new(Access::new(served.clone()));
    let tls = places.tcp.as_ref().and_then(|tcp| tcp.tls.clone());
    let (measured, looking, renewed) = (served.clone(), served.clone(), tls.clone());
    let thread = in_thread(places, move |listeners| async move {
        tokio::select! {
            never = accept(listeners, tls, access) => never,
            never = look_at_files(move || looking.look_at_files(), renewed::EVERY) => never,
            never = take_samples(measured) => never,
        }
    })?;
    served.places.get_or_init(|| AdminTaken {
        told: api::AdminPlaces {
            socket: thread.path.as_ref().map(|path| path.display().to_string()),
            address: thread.address,
            url: thread.url.clone(),
        },
        taken: thread.place.clone(),
        tls: renewed,
    });
    served.let_groups_in();
    Ok(thread)
}

/// Does `work` with what comes in at `places`, in a thread of its own. The sockets go with
/// it: who asks is told at once that nothing answers.
fn in_thread<F: Future<Output = Infallible>>(
    AdminPlaces { socket: place, tcp }: AdminPlaces,
    work: impl FnOnce(Listeners) -> F + Send + 'static,
) -> io::Result<AdminThread> {
    let path = place.as_ref().map(|place| place.path().to_owned());
    let address = tcp.as_ref().map(|tcp| tcp.address);
    let url = tcp.as_ref().map(TcpPlace::url);
    let tcp = tcp.map(|tcp| tcp.listener);
    let socket = place.as_ref().map(|place| place.listener.try_clone());
    let socket = socket.transpose()?;
    let place = Arc::new(Mutex::new(place));
    let taken = place.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("weft-admin-work")
        // Requests wait for one another rather than take threads without end.
        .max_blocking_threads(CONNECTIONS_MAX)
        .build()?;
    let thread = thread::Builder::new().name("weft-admin".into());
    thread.spawn(move || {
        let work = || -> io::Result<Infallible> {
            runtime.block_on(async {
                let listeners = Listeners {
                    socket: socket.map(UnixListener::from_std).transpose()?,
                    tcp: tcp.map(tokio::net::TcpListener::from_std).transpose()?,
                };
                Ok(work(listeners).await)
            })
        };
        let why = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it has panicked; report this".to_owned(),
        };
        drop(locked(&taken).take());
        // A change under way goes on.
        runtime.shutdown_background();
        tracing::error!(
            why,
            "the admin socket has failed: hosts are served as before; restart weft to have it again"
        );
    })?;
    Ok(AdminThread {
        path,
        address,
        url,
        place,
    })
}

/// What connections come in by.
struct Listeners {
    socket: Option<UnixListener>,
    tcp: Option<tokio::net::TcpListener>,
}

/// Takes connections, for ever.
async fn accept(
    Listeners { socket, tcp }: Listeners,
    tls: Option<Arc<RenewedTls>>,
    access: Arc<Access>,
) -> Infallible {
    let router = routes::all(access.clone());
    let of_document = access.served.clone();
    let groups: Groups = Arc::new(move || of_document.admin().groups);
    let of_socket = accept_at(socket, router.clone(), groups.clone());
    let over_tcp = async {
        match (tcp, tls) {
            (Some(tcp), Some(tls)) => handshake::accept(tcp, tls, access, router).await,
            (tcp, _) => accept_at(tcp, router, groups).await,
        }
    };
    tokio::select! {
        never = of_socket => never,
        never = over_tcp => never,
    }
}

async fn accept_at(listener: Option<impl Listen>, router: Router, groups: Groups) -> Infallible {
    let Some(listener) = listener else {
        return pending().await;
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (users, refused) = (UserConnections::default(), UserConnections::default());
    let mut silent: VecDeque<SilentPeer> = VecDeque::new();
    loop {
        match listener.take().await {
            Ok((stream, Peer::User { uid, role: None })) => {
                // One of many users of this machine: it takes no place of those in charge.
                let Some(place) = users.take(uid) else {
                    if let Some(place) = refused.take(uid) {
                        tokio::spawn(async move {
                            let _ = timeout(PATIENCE, refuse(stream, uid)).await;
                            drop(place);
                        });
                    }
                    continue;
                };
                let (router, groups) = (router.clone(), groups.clone());
                tokio::spawn(async move {
                    let role = spawn_blocking(move || role_of_user(uid, &groups())).await;
                    let role = role.unwrap_or_default();
                    answer(
                        stream,
                        Peer::User { uid, role },
                        router,
                        &AtomicBool::default(),
                    )
                    .await;
                    drop(place);
                });
            }
            Ok((stream, peer)) => {
                silent.retain(SilentPeer::is_silent);
                let place = loop {
                    match timeout(SILENCE, places.clone().acquire_owned()).await {
                        Ok(place) => break place,
                        Err(_) => {
                            silent.retain(SilentPeer::is_silent);
                            silent.drain(..).for_each(|peer| peer.task.abort());
                        }
                    }
                };
                let (router, has_asked) = (router.clone(), Arc::<AtomicBool>::default());
                let asks = has_asked.clone();
                let task = tokio::spawn(async move {
                    answer(stream, peer, router, &asks).await;
                    drop(place);
                });
                let task = task.abort_handle();
                silent.push_back(SilentPeer { has_asked, task });
            }
            Err(error) => {
                tracing::debug!(%error, "the admin socket cannot take a connection now");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Tells a user that it has too many connections.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, uid: u32) {
    let detail = format!(
        "user {uid} has {CONNECTIONS_OF_USER_MAX} connections to this admin socket, as many as a \
         user may have whom a group lets in"
    );
    let hint = "end some of its commands that go on, as `weft events --follow`, and ask again";
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).hint(hint);
    let _ = stream.write_all(problem.unasked().as_bytes()).await;
    read_rest(stream).await;
}

/// Ends a connection so that its peer reads what was sent: the kernel throws that away where
/// it has bytes left that were not read.
pub(crate) async fn read_rest(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = stream.shutdown().await;
    let mut rest = stream.take(REST_BYTES_MAX);
    let mut buffer = [0; 4096];
    while let Ok(1..) = rest.read(&mut buffer).await {}
}

/// A connection by which nothing was asked when it was last looked at: where all places stay
/// taken it gives way to one that comes.
struct SilentPeer {
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl SilentPeer {
    fn is_silent(&self) -> bool {
        !self.task.is_finished() && !self.has_asked.load(Ordering::Relaxed)
    }
}

/// A socket that is listened on.
trait Listen {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and whose it is.
    fn take(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>>;
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn take(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.accept().await?;
        let uid = stream.peer_cred()?.uid();
        let role = is_in_charge(uid).then_some(AdminRole::Admin);
        Ok((stream, Peer::User { uid, role }))
    }
}

impl Listen for tokio::net::TcpListener {
    type Stream = TcpStream;

    async fn take(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = self.accept().await?;
        let here = stream.local_addr()?;
        let tls = None;
        Ok((stream, Peer::Address { peer, here, tls }))
    }
}

/// One request of one connection: nothing waits for a peer that says no more, or takes no more.
pub(crate) async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    has_asked: &AtomicBool,
) {
    let router = TowerToHyperService::new(router);
    let (answered, follows) = (Notify::new(), OnceLock::new());
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        let answer = router.call(request);
        async {
            let answer = answer.await;
            if let Ok(answer) = &answer
                && let Some(taken) = answer.extensions().get::<Taken>()
            {
                let _ = follows.set(taken.clone());
            }
            answered.notify_one();
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false);
    let unread = async {
        answered.notified().await;
        let bytes = || follows.get().map(Taken::bytes);
        let patience = follows.get().map_or(PATIENCE, |taken| taken.patience);
        loop {
            let before = bytes();
            sleep(patience).await;
            if before == bytes() {
                break;
            }
        }
    };
    tokio::select! {
        // What its peer did wrong is its peer's concern.
        ended = http.serve_connection(TokioIo::new(stream), service) => drop(ended),
        () = unread => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::get;
    use server::{AdminSocket, AdminSpec, Config, Running};

    use super::*;

    /// A target with one listener of NVMe/TCP, and a socket that can be taken.
    struct Served {
        running: Running,
        path: PathBuf,
        place: Option<Place>,
        _folder: tempfile::TempDir,
    }

    impl Served {
        fn start() -> Served {
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            let config = Config {
                listeners: vec![address.into()],
                cpus: vec![reactor_cpu()],
                ..Config::default()
            };
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("admin.sock");
            Served {
                running: server::start(config).expect("it serves"),
                place: take(&path),
                path,
                _folder: folder,
            }
        }

        fn places(&mut self) -> AdminPlaces {
            AdminPlaces {
                socket: self.place.take(),
                tcp: crate::listen(&AdminSpec::default()).expect("a port"),
            }
        }

        /// ICReq (NVMe/TCP 1.0, section 3.6.2.2) is answered with ICResp.
        fn expect_host_is_served(&self) {
            let mut host = TcpStream::connect(self.running.addresses()[0]).expect("it listens");
            let mut request = [0; 128];
            // HLEN and PLEN.
            (request[2], request[4]) = (128, 128);
            host.write_all(&request).expect("room");
            let mut answer = [0; 128];
            host.read_exact(&mut answer).expect("an answer");
            assert_eq!(answer[0], 1);
        }

        fn end(self) {
            self.running.stop();
            let ended = self.running.wait(Duration::from_secs(20));
            assert!(ended.expect("in order").is_some(), "it has ended");
        }
    }

    fn reactor_cpu() -> usize {
        Config::default().cpus[0]
    }

    fn take(path: &Path) -> Option<Place> {
        Place::take(&AdminSocket::At(path.to_owned()), Vec::new()).expect("free")
    }

    fn ask(path: &Path, target: &str) -> io::Result<crate::Answer> {
        let request = crate::Request {
            target: target.to_owned(),
            ..crate::Request::default()
        };
        crate::ask(&crate::AdminAddress::Socket(path.to_owned()), &request)
    }

    #[test]
    fn thread_that_panics_leaves_hosts_served_and_its_socket_to_another() {
        let mut served = Served::start();
        let thread = in_thread(served.places(), |listeners| async move {
            let socket = listeners.socket.expect("wanted");
            let _peer = socket.accept().await;
            panic!("asked to");
        });
        let thread = thread.expect("a thread");
        assert!(thread.path().expect("wanted").exists());
        let address = thread.address().expect("wanted");
        ask(&served.path, "/healthz").expect_err("no answer");
        for _ in 0..10_000 {
            if !served.path.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let why = ask(&served.path, "/healthz").expect_err("nothing is there");
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
        assert!(TcpStream::connect(address).is_err());
        served.expect_host_is_served();
        // The one that has failed removes its own alone.
        let next = take(&served.path).expect("wanted");
        drop(thread);
        assert!(next.path().exists());
        served.end();
    }

    #[test]
    fn request_that_panics_costs_its_own_connection() {
        let mut served = Served::start();
        let router = Router::new()
            .route("/panic", get(async || -> &str { panic!("asked to") }))
            .route("/answer", get(async || "1"));
        let places = served.places();
        let groups: Groups = Arc::new(Vec::new);
        let thread = in_thread(places, move |listeners| {
            accept_at(listeners.socket, router, groups)
        });
        let thread = thread.expect("a thread");
        // More than may be open at a time: each gives its place back.
        for _ in 0..=CONNECTIONS_MAX {
            ask(&served.path, "/panic").expect_err("no answer");
        }
        let answer = ask(&served.path, "/answer").expect("an answer");
        assert!(answer.is_done && answer.body == 1);
        served.expect_host_is_served();
        drop(thread);
        assert!(!served.path.exists());
        served.end();
    }

    /// A socket whose peers are another user's.
    struct OfOtherUser(UnixListener);

    const OTHER_UID: u32 = u32::MAX - 7;

    impl Listen for OfOtherUser {
        type Stream = UnixStream;

        async fn take(&self) -> io::Result<(UnixStream, Peer)> {
            let (stream, _) = self.0.accept().await?;
            let (uid, role) = (OTHER_UID, None);
            Ok((stream, Peer::User { uid, role }))
        }
    }

    #[test]
    fn user_with_all_its_connections_is_told_so_and_asks_again_when_one_has_ended() {
        let mut served = Served::start();
        let groups: Groups = Arc::new(Vec::new);
        let router = Router::new().route("/answer", get(async || "1"));
        let thread = in_thread(served.places(), move |listeners| {
            accept_at(listeners.socket.map(OfOtherUser), router, groups)
        });
        let thread = thread.expect("a thread");
        let silent: Vec<_> = (0..CONNECTIONS_OF_USER_MAX)
            .map(|_| std::os::unix::net::UnixStream::connect(&served.path).expect("it listens"))
            .collect();
        let refused = ask(&served.path, "/answer").expect("an answer");
        assert_eq!(refused.body["status"], 429, "{refused:?}");
        let hint = refused.body["hint"].as_str().expect("what to do");
        assert!(hint.contains("weft events --follow"), "{hint}");
        drop(silent);
        let answered = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            ask(&served.path, "/answer").is_ok_and(|answer| answer.is_done)
        });
        assert!(answered, "its share is free again");
        drop(thread);
        served.end();
    }

    #[test]
    fn connections_that_ask_nothing_give_way_all_at_once_to_one_that_asks() {
        let mut served = Served::start();
        let groups: Groups = Arc::new(Vec::new);
        let router = Router::new().route("/answer", get(async || "1"));
        let thread = in_thread(served.places(), move |listeners| {
            accept_at(listeners.socket, router, groups)
        });
        let thread = thread.expect("a thread");
        let connect =
            |_| std::os::unix::net::UnixStream::connect(&served.path).expect("it listens");
        let mut silent: Vec<_> = (1..CONNECTIONS_MAX).map(connect).collect();
        // By their patience alone, the last would end later than the others.
        thread::sleep(Duration::from_millis(200));
        silent.push(connect(CONNECTIONS_MAX));
        let answer = ask(&served.path, "/answer").expect("an answer");
        assert!(answer.is_done);
        let ended = silent.iter_mut().map(|peer| {
            peer.set_nonblocking(true).expect("a socket");
            matches!(peer.read(&mut [0]), Ok(0))
        });
        assert_eq!(
            ended.filter(|has_ended| *has_ended).count(),
            CONNECTIONS_MAX
        );
        drop(thread);
        served.end();
    }
}
