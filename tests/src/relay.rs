//! A way between a client and a server that is as long as a network's.
//!
//! Soft iWARP of Linux hears nothing of what comes while it sends its MPA Reply, until more
//! comes (`siw_accept` sends it before it has data of the socket told to the queue pair). What
//! an initiator sends at once is lost so now and then in a guest, whose processors are slow and
//! which has no network between.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// As long as the first bytes behind its Request take that a client sends.
const PAUSE: Duration = Duration::from_millis(100);

/// An address from which connections lead on to `to`, for as long as the process runs.
pub fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            for (from, into, pause) in [
                (&client, &server, PAUSE),
                (&server, &client, Duration::ZERO),
            ] {
                let both = from
                    .try_clone()
                    .and_then(|from| Ok((from, into.try_clone()?)));
                let (from, into) = both.expect("a descriptor");
                thread::spawn(move || pass(from, into, pause));
            }
        }
    });
    address
}

/// Passes bytes on until either end is gone, the second lot of them after `pause`.
fn pass(mut from: TcpStream, mut into: TcpStream, pause: Duration) {
    let mut bytes = [0; 64 << 10];
    let mut lots = 0;
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        lots += 1;
        if lots == 2 {
            thread::sleep(pause);
        }
        if into.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // What has ended already cannot be ended again.
    let _ = from.shutdown(Shutdown::Both);
    let _ = into.shutdown(Shutdown::Both);
}
