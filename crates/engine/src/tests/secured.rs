//! What a connection in TLS sends, and which host its memory counts to.

use std::io::{Read as _, Write as _};

use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use reactor::Completion;
use tls::psk_handshake::{KnownPsks, PskHandshake};

use super::*;
use crate::hosts::HostName;

/// Bytes that leave in one send of several buffers.
const SENT_BYTES: u32 = 1 << 20;
/// Bytes of one buffer of records: the first of a send is no host's.
const SEALED_BYTES: u64 = 256 << 10;

/// All that a server knows.
struct OneKey(TlsPsk);

impl KnownPsks for OneKey {
    fn psks_of(&self, _: &str) -> Vec<TlsPsk> {
        vec![self.0.clone()]
    }

    fn has_any(&self) -> bool {
        true
    }
}

impl Bench {
    fn completion(&mut self) -> Completion {
        let mut done = Vec::new();
        while done.is_empty() {
            let polled = self.driver.poll(Wait::Until(Nanos::MAX), &mut done);
            polled.expect("the driver runs");
        }
        done.remove(0)
    }

    /// Receives what its peer has sent of a handshake, and answers it.
    fn answer(&mut self) {
        self.connection.0.link.receive(&mut self.driver);
        let received = match self.completion() {
            Completion::Received { result, .. } => result.expect("the peer is there"),
            other => panic!("{other:?}"),
        };
        self.link.on_received(received);
        let work = self.link.stream.take_handshake().expect("a step");
        self.connection.on_handshake(work.step(), &mut self.driver);
        self.connection.0.link.flush_now(&mut self.driver);
        if self.link.stream.is_sending() {
            self.sent();
        }
    }

    /// Its peer makes a handshake with it.
    fn secure(&mut self) {
        let key = Psk::new(PskHash::Sha256, |bytes| bytes.fill(7));
        let key = key.tls_psk("nqn.host", "nqn.subsystem", Derivation::Standard);
        let server = PskHandshake::server(Arc::new(OneKey(key.clone())));
        self.link.stream.begin_handshake(server);
        let mut client = PskHandshake::client(key);
        let mut step = client.step(&[]);
        loop {
            if !step.output.is_empty() {
                self.peer.write_all(&step.output).expect("room");
                self.answer();
            }
            if let Some(end) = step.end {
                end.map(drop).expect("the keys are the same");
                break;
            }
            let mut input = [0; 4096];
            let len = self.peer.read(&mut input).expect("an answer");
            step = client.step(&input[..len]);
        }
        assert!(!self.link.stream.is_in_handshake());
    }

    /// So much of its host's memory lies in what is being sent.
    fn host_bytes_of_send(&mut self) -> u64 {
        let pool = self.driver.pool().clone();
        let buf = pool.get(SENT_BYTES).expect("memory");
        self.link.set_data(TAG, CommandMemory::owned(buf));
        self.link.machine.payload_bytes = SENT_BYTES;
        let before = self.host.share.held_bytes();
        self.connection.0.link.flush_now(&mut self.driver);
        assert!(self.link.stream.is_sending());
        self.host.share.held_bytes() - before
    }
}

#[test]
fn send_of_records_has_several_buffers_that_count_to_the_host_of_the_connection() {
    let mut bench = bench();
    bench.secure();
    assert!(bench.host_bytes_of_send() >= 3 * SEALED_BYTES);
}

#[test]
fn buffers_of_records_count_to_the_host_that_has_identified_itself() {
    let mut bench = bench();
    bench.secure();
    let stranger = bench.host.share.clone();
    let before = stranger.held_bytes();
    bench.set_host(HostName::Said("a subsystem", "a host".to_owned()));
    assert!(bench.host_bytes_of_send() >= 3 * SEALED_BYTES);
    assert_eq!(stranger.held_bytes(), before);
}
