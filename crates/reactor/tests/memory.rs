//! Memory of connections that are gone comes back: a test of its own process, since it
//! looks at the whole of it.
#![cfg(target_env = "gnu")]

use mem::{Budget, Pool};
use needs::each_driver;
use reactor::{AnyDriver, Choice, Completion, ConnectedSocket, Driver, DriverConfig, Wait, open};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

/// As many as the usual limit on descriptors leaves.
const SOCKETS: usize = 800;
/// What a connection takes of the heap beside its socket: most of a page.
const CONNECTION_BYTES: usize = 3500;
/// A page for each socket would be 3,200 KiB.
const KEPT_KIB_MAX: u64 = 1024;

/// Memory that is resident and belongs to no file.
fn resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let line = text.lines().find(|line| line.starts_with("Anonymous:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse().ok()).expect("a number")
}

fn socket(listener: &TcpListener) -> ConnectedSocket {
    let address = listener.local_addr().expect("bound");
    let _peer = TcpStream::connect(address).expect("a connection");
    let (ours, _) = listener.accept().expect("its other end");
    ours.into()
}

fn open_and_close_sockets(driver: &mut AnyDriver) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let connections = Vec::from_iter((0..SOCKETS).map(|_| {
        let socket = driver.add_socket(socket(&listener)).expect("room");
        (socket, vec![1u8; CONNECTION_BYTES])
    }));
    for (socket, _) in &connections {
        driver.close(*socket, 9);
    }
    let (mut closed, mut out) = (0, Vec::new());
    while closed < SOCKETS {
        driver.poll(Wait::Now, &mut out).expect("the driver works");
        for completion in out.drain(..) {
            assert!(matches!(completion, Completion::Closed { token: 9 }));
            closed += 1;
        }
    }
}

#[each_driver]
fn sockets_that_are_closed_keep_no_page_each(choice: Choice) {
    // One at a time: both look at the memory of the process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN
        .lock()
        .unwrap_or_else(|other_failed| other_failed.into_inner());
    let pool = Pool::new(Budget::new(64 << 20)).expect("address space");
    let mut driver = open(choice, &DriverConfig::default(), pool).expect("a driver");
    mem::give_back_heap();
    let before = resident_kib();
    open_and_close_sockets(&mut driver);
    mem::give_back_heap();
    let kept = resident_kib().saturating_sub(before);
    assert!(kept < KEPT_KIB_MAX, "{kept} KiB with {}", driver.name());
}
