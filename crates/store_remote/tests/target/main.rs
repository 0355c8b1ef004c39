//! Remote volumes of a target in the same process.
#![allow(missing_docs)]

mod credentials;
mod late;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mem::{Budget, BufRange, Pool, Region};
use reactor::{Driver, DriverConfig, EpollDriver, Wait};
use server::{Change, Config, NamespaceSpec, Running, SubsystemSpec};
use store::{Errno, Error, Io, Kind, LEG_BITS, PathStatus, Progress, RemoteAt, Spec, Volume};
use store_remote::{RemoteTarget, host_identity, parse_url};

const NQN: &str = "nqn.2026-01.org.example:there";
const SIZE: u64 = 16 << 20;

/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A target with a namespace of each of these volumes, which lie in a folder.
fn config(folder: &tempfile::TempDir, address: SocketAddr, volumes: &[&str]) -> Config {
    let spec = |name: &&str| {
        let kind = Kind::file(folder.path().join(name));
        Spec::new(*name, kind, SIZE, 512)
    };
    let namespaces = volumes.iter().zip(1..);
    let namespaces = namespaces.map(|(name, nsid)| NamespaceSpec {
        nsid,
        volume: (*name).into(),
        ..NamespaceSpec::default()
    });
    Config {
        volumes: volumes.iter().map(spec).collect(),
        subsystems: vec![SubsystemSpec {
            nqn: NQN.into(),
            serial: "S1".into(),
            model: "model".into(),
            namespaces: namespaces.collect(),
            ..SubsystemSpec::default()
        }],
        listeners: vec![address.into()],
        cpus: vec![reactor::available_cpus()[0]],
        spin_us_max: 0,
        memory_max: 64 << 20,
        ..Config::default()
    }
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn serve(config: Config) -> Running {
    // The port of one that has just ended may not be free yet.
    let until = Instant::now() + PATIENCE;
    loop {
        match server::start(config.clone()) {
            Ok(running) => return running,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn stop(running: Running) {
    running.stop();
    let report = running.wait(PATIENCE).expect("no reactor failed");
    report.expect("the target stops");
}

fn url(address: SocketAddr, nsid: u32) -> String {
    format!("nvme-tcp://{address}/{NQN}?nsid={nsid}")
}

fn spec(urls: &[String], timeout: Duration) -> Spec {
    let urls = urls.iter().map(|url| parse_url(url).expect("a URL"));
    let target = RemoteTarget {
        urls: urls.collect(),
        host: host_identity(None),
        timeout,
    };
    Spec::new("there", Kind::remote(RemoteAt(Arc::new(target))), 0, 0)
}

fn open(urls: &[String], timeout: Duration) -> Arc<dyn Volume> {
    store::open(&spec(urls, timeout)).expect("it is reached")
}

fn paths(volume: &Arc<dyn Volume>) -> Vec<PathStatus> {
    volume.remote().expect("it is one").paths()
}

/// What runs I/Os, any number at a time.
struct Desk {
    driver: EpollDriver,
}

impl Desk {
    fn new() -> Desk {
        let pool = Pool::new(Budget::new(32 << 20)).expect("memory");
        let driver = EpollDriver::new(&DriverConfig::default(), pool);
        Desk {
            driver: driver.expect("a driver"),
        }
    }

    /// Begins all of them; `meanwhile` is done when they are under way.
    fn run(
        &mut self,
        volume: &dyn Volume,
        ios: &[Io],
        meanwhile: impl FnOnce(),
    ) -> Vec<Result<(), Error>> {
        let started = ios
            .iter()
            .zip(1u64..)
            .map(|(io, number)| volume.start(*io, &mut self.driver, number << LEG_BITS));
        let mut all: Vec<Option<Progress>> = started.map(Some).collect();
        meanwhile();
        let until = Instant::now() + PATIENCE;
        let is_done = |one: &Option<Progress>| matches!(one, Some(Progress::Done(_)));
        while !all.iter().all(is_done) {
            assert!(Instant::now() < until, "an I/O does not end");
            let mut out = Vec::new();
            let wait = Wait::Until(self.driver.clock() + 100_000_000);
            self.driver.poll(wait, &mut out).expect("it works");
            for completion in out {
                let reactor::Completion::File { token, result } = completion else {
                    panic!("{completion:?} is nothing of a volume");
                };
                let at = (token >> LEG_BITS) as usize - 1;
                if let Some(Progress::Pending(task)) = all[at].take() {
                    let progress = volume.resume(task, result, &mut self.driver, token);
                    all[at] = Some(progress);
                }
            }
        }
        let result = |one| match one {
            Some(Progress::Done(result)) => result,
            other => panic!("{other:?} is not over"),
        };
        all.into_iter().map(result).collect()
    }

    fn one(&mut self, volume: &dyn Volume, io: Io) -> Result<(), Error> {
        self.run(volume, &[io], || {})[0]
    }

    fn write(&mut self, volume: &dyn Volume, offset: u64, byte: u8, len: u32) -> Result<(), Error> {
        self.one(volume, write(offset, byte, len))
    }

    /// Whether a range has this byte everywhere.
    fn has(&mut self, volume: &dyn Volume, offset: u64, byte: u8, len: u32) -> bool {
        let buf = buffer(len);
        self.one(volume, Io::Read { offset, buf }).expect("read");
        let mut bytes = vec![0; len as usize];
        mem::copy_out(buf, &mut bytes);
        bytes.iter().all(|found| *found == byte)
    }
}

/// Memory that is never given back: tests are short.
fn buffer(len: u32) -> BufRange {
    let region = Box::leak(Box::new(Region::anonymous(len.into()).expect("memory")));
    region.range(0, len)
}

fn write(offset: u64, byte: u8, len: u32) -> Io {
    let buf = buffer(len);
    mem::copy_in(buf, &vec![byte; len as usize]);
    Io::Write {
        offset,
        buf,
        durable: false,
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn namespace_is_a_volume_for_ios_of_any_kind_and_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = serve(config(&folder, any(), &["a", "b"]));
    let to = running.addresses()[0];
    let volume = open(&[url(to, 2)], PATIENCE);
    assert_eq!(
        (volume.size_bytes(), volume.info().block_bytes),
        (SIZE, 512)
    );
    assert!(volume.info().is_thin && volume.info().volatile_cache);
    let mut desk = Desk::new();
    // More than one command may have.
    desk.write(&*volume, 512, 7, 5 << 20).expect("written");
    assert!(desk.has(&*volume, 512, 7, 5 << 20));
    assert!(desk.has(&*volume, 512 + (5 << 20), 0, 4096));
    let zero = Io::Zero {
        offset: 1024,
        len: 3 << 20,
        deallocate: true,
        durable: true,
    };
    desk.one(&*volume, zero).expect("zeroed");
    assert!(desk.has(&*volume, 512, 7, 512) && desk.has(&*volume, 1024, 0, 3 << 20));
    let swap = Io::CompareAndWrite {
        offset: 512,
        compare: buffer(512),
        write: buffer(512),
        scratch: buffer(512),
        durable: true,
    };
    let other = desk.one(&*volume, swap);
    assert_eq!(other, Err(Error::Miscompare { offset: 0 }));
    desk.one(&*volume, Io::Flush).expect("flushed");
    let many: Vec<Io> = (0..500).map(|n| write(n * 4096, n as u8, 4096)).collect();
    let results = desk.run(&*volume, &many, || {});
    assert!(results.iter().all(|result| result.is_ok()));
    assert!((0..500).all(|n| desk.has(&*volume, n * 4096, n as u8, 4096)));
    // The other one has nothing of it.
    let beside = open(&[url(to, 1)], PATIENCE);
    assert!(desk.has(&*beside, 0, 0, 1 << 20));
    assert_ne!(beside.info().uuid, volume.info().uuid);
    let again = store::examine(&spec(&[url(to, 2)], PATIENCE)).expect("it is there");
    assert_eq!(again.info, *volume.info(), "the same from anywhere");
    drop((volume, beside));
    stop(running);
}

#[test]
fn io_waits_for_a_target_that_is_away_and_is_done_when_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = serve(config(&folder, any(), &["a"]));
    let to = running.addresses()[0];
    let volume = open(&[url(to, 1)], PATIENCE);
    let mut desk = Desk::new();
    desk.write(&*volume, 0, 1, 4096).expect("written");
    let ios: Vec<Io> = (0..200).map(|n| write(n * 4096, 9, 4096)).collect();
    let losses = volume.losses();
    let mut back = None;
    let results = desk.run(&*volume, &ios, || {
        stop(running);
        back = Some(serve(config(&folder, to, &["a"])));
    });
    assert!(results.iter().all(|result| result.is_ok()), "{results:?}");
    assert!((0..200).all(|n| desk.has(&*volume, n * 4096, 9, 4096)));
    assert!(
        volume.losses() > losses,
        "it may have lost what was not flushed"
    );
    assert_eq!(paths(&volume)[0].word(), "live");
    drop(volume);
    stop(back.expect("it was started"));
}

#[test]
fn io_fails_when_its_target_is_away_too_long_and_works_when_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = serve(config(&folder, any(), &["a"]));
    let to = running.addresses()[0];
    let volume = open(&[url(to, 1)], Duration::from_secs(1));
    let mut desk = Desk::new();
    desk.write(&*volume, 0, 1, 4096).expect("written");
    stop(running);
    until("the loss is not noticed", || !paths(&volume)[0].is_live);
    let late = |result| matches!(result, Err(Error::WriteFailed(Errno::TIMEDOUT)));
    assert!(late(desk.write(&*volume, 0, 2, 4096)));
    let flushed = desk.one(&*volume, Io::Flush);
    assert_eq!(flushed, Err(Error::FlushFailed(Errno::TIMEDOUT)));
    let reason = || paths(&volume)[0].reason.clone().unwrap_or_default();
    until("the reason is not told", || reason().contains("refused"));
    let running = serve(config(&folder, to, &["a"]));
    until("it is not connected again", || paths(&volume)[0].is_live);
    until("no I/O is done", || {
        Desk::new().write(&*volume, 0, 3, 4096).is_ok()
    });
    assert!(desk.has(&*volume, 0, 3, 4096));
    drop(volume);
    stop(running);
}

#[test]
fn path_to_another_namespace_is_not_used_and_one_to_the_same_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&folder, any(), &["a", "b"]);
    config.listeners.push(any().into());
    let running = serve(config);
    let [first, second] = [0, 1].map(|at| running.addresses()[at]);
    // The first does not answer.
    let closed = TcpListener::bind(any()).and_then(|l| l.local_addr());
    let closed = closed.expect("a port");
    let urls = [
        url(closed, 1),
        url(first, 1),
        url(second, 2),
        url(second, 1),
    ];
    let volume = open(&urls, PATIENCE);
    let live = || {
        let paths = paths(&volume).into_iter();
        paths.map(|path| path.is_live).collect::<Vec<_>>()
    };
    until("the same is not used", || {
        live() == [false, true, false, true]
    });
    let reason = |at: usize| paths(&volume)[at].reason.clone().unwrap_or_default();
    until("why is not told", || reason(2).contains("another one"));
    until("why is not told", || reason(0).contains("refused"));
    let mut desk = Desk::new();
    desk.write(&*volume, 0, 1, 4096).expect("written");
    running
        .change(Change::RemoveListener { address: first })
        .expect("it is closed");
    until("the loss is not noticed", || !live()[1]);
    desk.write(&*volume, 0, 2, 4096).expect("by the other");
    assert!(desk.has(&*volume, 0, 2, 4096));
    drop(volume);
    stop(running);
}

#[test]
fn namespace_that_grows_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = serve(config(&folder, any(), &["a"]));
    let volume = open(&[url(running.addresses()[0], 1)], PATIENCE);
    let too_much = volume.resize(2 * SIZE, false);
    assert!(too_much.is_err(), "{too_much:?}");
    let grow = Change::ResizeVolume {
        name: "a".into(),
        size_bytes: 2 * SIZE,
        allow_shrink: false,
    };
    running.change(grow).expect("it is larger");
    until("it is not noticed", || {
        volume.resize(2 * SIZE, false).is_ok()
    });
    assert_eq!(volume.size_bytes(), 2 * SIZE);
    let mut desk = Desk::new();
    desk.write(&*volume, 2 * SIZE - 4096, 5, 4096)
        .expect("written");
    drop(volume);
    stop(running);
}

#[test]
fn peer_that_does_not_speak_nvme_is_an_error_in_words() {
    let listener = TcpListener::bind(any()).expect("a port");
    let to = listener.local_addr().expect("it is bound");
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(&[0x55; 4096]).expect("it is connected");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let Err(error) = store::open(&spec(&[url(to, 1)], PATIENCE)) else {
        panic!("it is no target");
    };
    let text = error.to_string();
    assert!(
        text.contains("cannot be reached") && text.contains("protocol error"),
        "{text}"
    );
    other.join().expect("it has ended");
    for (url, why) in [
        ("iscsi://127.0.0.1/iqn.a/0", "not by iSCSI"),
        ("rdma://127.0.0.1/nqn.a", "NVMe/TCP alone"),
        ("127.0.0.1", "no target"),
    ] {
        let error = parse_url(url).expect_err("it is no URL of a volume");
        assert!(error.contains(why), "{error}");
    }
}
