//! A client that asks for TLS before anything else (RFC 9289, section 4.1).

use super::*;

fn server_with_tls() -> RpcDouble {
    let settings = ServedSettings {
        offers_tls: true,
        ..ServedSettings::default()
    };
    RpcDouble::new(Served::new(settings, 0))
}

fn client() -> Client {
    let mut client = Client::new(settings());
    client.end.machine.ask_for_tls();
    client
}

/// What a server answers to what the client sends.
fn answer(server: &mut RpcDouble, client: &mut Client) -> VecDeque<u8> {
    let mut sent = client.send();
    while server.receive(&mut sent, usize::MAX) {}
    let mut out = VecDeque::new();
    while server.end.machine.has_transmit() {
        server.end.transmit(&mut out, 3);
    }
    out
}

#[test]
fn calls_wait_for_tls_and_go_in_it() {
    for max in [1, 7, usize::MAX] {
        let (mut client, mut server) = (client(), server_with_tls());
        client.getattr();
        let mut told = answer(&mut server, &mut client);
        assert!(server.starts_tls && server.calls.is_empty());
        client.receive_all(&mut told, max);
        assert!(client.starts_tls && client.fatal.is_none());
        assert!(!client.end.machine.has_transmit(), "the call waits");
        assert_eq!(client.end.machine.recv_plan().stage_max, 0);
        client.end.machine.tls_begun();
        server.end.machine.tls_begun();
        answer(&mut server, &mut client);
        assert_eq!(server.calls.len(), 1);
        // On another stream it asks again before the call goes once more.
        client.restart();
        let mut server = server_with_tls();
        answer(&mut server, &mut client);
        assert!(server.starts_tls && server.calls.is_empty());
    }
}

#[test]
fn server_without_tls_gets_no_call() {
    let (mut client, mut server) = (client(), server());
    client.getattr();
    let mut told = answer(&mut server, &mut client);
    client.receive_all(&mut told, usize::MAX);
    assert_eq!(client.fatal, Some(RpcClientFatalError::NoTls));
    assert!(client.send().is_empty() && server.calls.is_empty());
}

/// Another on the way could else answer in place of the server.
#[test]
fn bytes_in_the_clear_behind_the_answer_end_the_connection() {
    let (mut client, mut server) = (client(), server_with_tls());
    let mut told = answer(&mut server, &mut client);
    told.push_back(0);
    client.receive_all(&mut told, usize::MAX);
    assert_eq!(client.fatal, Some(RpcClientFatalError::BehindProbe));
    assert!(!client.starts_tls);
}
