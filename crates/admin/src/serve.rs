//! The thread of the socket.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use crate::place::Place;
use crate::routes;
use crate::served::{ServedFile, locked};

const CONNECTIONS_MAX: usize = 64;

/// How long the head of a request may take, and a peer to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket while it is served. Dropping it removes the socket.
#[derive(Debug)]
pub struct AdminThread {
    path: PathBuf,
    place: TakenPlace,
}

/// The thread removes the socket too, where it fails.
type TakenPlace = Arc<Mutex<Option<Place>>>;

impl AdminThread {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(locked(&self.place).take());
    }
}

/// Answers at `place` from now on, in a thread of its own. Where that fails it is told in
/// the log, and nothing else ends.
///
/// # Errors
/// The thread cannot be started.
pub fn serve(place: Place, served: Arc<ServedFile>) -> io::Result<AdminThread> {
    let owner = std::fs::metadata(place.path())?.uid();
    let routers = Routers {
        open: routes::open(served),
        closed: routes::closed(),
    };
    in_thread(place, move |listener| accept(listener, owner, routers))
}

/// Does `work` with what comes in at `place`, in a thread of its own. The socket goes with
/// it: who asks is told at once that nothing answers.
fn in_thread<F: Future<Output = Infallible>>(
    place: Place,
    work: impl FnOnce(UnixListener) -> F + Send + 'static,
) -> io::Result<AdminThread> {
    let path = place.path().to_owned();
    let listener = place.listener.try_clone()?;
    let place = Arc::new(Mutex::new(Some(place)));
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
            runtime.block_on(async { Ok(work(UnixListener::from_std(listener)?).await) })
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
    Ok(AdminThread { path, place })
}

/// What answers.
struct Routers {
    /// Those who may ask.
    open: Router,
    /// All others.
    closed: Router,
}

/// Takes connections, for ever.
async fn accept(listener: UnixListener, owner: u32, routers: Routers) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = match stream.peer_cred() {
                    Ok(peer) if [0, owner].contains(&peer.uid()) => routers.open.clone(),
                    _ => routers.closed.clone(),
                };
                tokio::spawn(async move {
                    answer(stream, router).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the admin socket cannot take a connection now");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One request of one connection: nothing waits for a peer that says no more.
async fn answer(stream: UnixStream, router: Router) {
    let router = TowerToHyperService::new(router);
    let answered = Notify::new();
    let service = service_fn(|request| {
        let answer = router.call(request);
        async {
            let answer = answer.await;
            answered.notify_one();
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false);
    let unread = async {
        answered.notified().await;
        sleep(PATIENCE).await;
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
    use std::net::{SocketAddr, TcpStream};

    use axum::routing::get;
    use server::{AdminSocket, Config, Running};

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

        fn place(&mut self) -> Place {
            self.place.take().expect("taken once")
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
        Place::take(&AdminSocket::At(path.to_owned())).expect("free")
    }

    fn ask(path: &Path, target: &str) -> io::Result<crate::Answer> {
        crate::ask(path, target, None)
    }

    #[test]
    fn thread_that_panics_leaves_hosts_served_and_its_socket_to_another() {
        let mut served = Served::start();
        let place = served.place();
        let thread = in_thread(place, |listener| async move {
            let _peer = listener.accept().await;
            panic!("asked to");
        });
        let thread = thread.expect("a thread");
        assert!(thread.path().exists());
        ask(&served.path, "/healthz").expect_err("no answer");
        for _ in 0..10_000 {
            if !served.path.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let why = ask(&served.path, "/healthz").expect_err("nothing is there");
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
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
        let uid = std::fs::metadata(&served.path).expect("there").uid();
        let routers = Routers {
            open: Router::new()
                .route("/panic", get(async || -> &str { panic!("asked to") }))
                .route("/answer", get(async || "1")),
            closed: routes::closed(),
        };
        let place = served.place();
        let thread = in_thread(place, move |listener| accept(listener, uid, routers));
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
}
