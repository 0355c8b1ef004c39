//! What a connection with keys holds of memory, by whichever library it is allocated. It has the
//! process to itself: the allocator counts for all threads.
#![cfg(target_env = "gnu")]
#![allow(unsafe_code)]

use std::sync::Arc;

use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use tls::Secured;
use tls::psk_handshake::{KnownPsks, PskHandshake};

/// A connection may hold 8 KiB more over TLS than in the clear; what `link` adds to its keys is
/// less than the rest (its own tests hold it to that).
const HELD_BYTES_MAX: usize = 7 << 10;

/// Connections that are counted.
const CONNECTIONS: usize = 100;

/// Bytes that the process has allocated and not given back.
fn allocated_bytes() -> usize {
    // SAFETY: it reads the allocator's own numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

struct Known(TlsPsk);

impl KnownPsks for Known {
    fn psks_of(&self, _: &str) -> Vec<TlsPsk> {
        vec![self.0.clone()]
    }

    fn has_any(&self) -> bool {
        true
    }
}

/// A server's end of a new connection, whose handshake is over.
fn connected(psk: &TlsPsk) -> Secured {
    let mut client = PskHandshake::client(psk.clone());
    let mut server = PskHandshake::server(Arc::new(Known(psk.clone())));
    let hello = client.step(&[]).output;
    let answer = server.step(&hello).output;
    let finished = client.step(&answer).output;
    let end = server.step(&finished).end;
    end.expect("it is over").expect("a key that is known")
}

#[test]
fn keys_of_an_idle_connection_hold_less_than_8_kib() {
    for hash in PskHash::ALL {
        let psk = Psk::new(hash, |bytes| bytes.fill(7));
        let (host, subsystem) = ("nqn.2026-01.io.weft:host", "nqn.2026-01.io.weft:disk");
        let psk = psk.tls_psk(host, subsystem, Derivation::Standard);
        // What the libraries keep for all connections is there.
        drop(connected(&psk));
        let mut held = Vec::with_capacity(CONNECTIONS);
        let before = allocated_bytes();
        held.extend((0..CONNECTIONS).map(|_| connected(&psk)));
        let each = (allocated_bytes() - before) / CONNECTIONS + size_of::<Secured>();
        println!("{hash:?}: {each} bytes of a connection");
        assert!(each > 0 && each <= HELD_BYTES_MAX, "{hash:?}: {each} bytes");
    }
}
