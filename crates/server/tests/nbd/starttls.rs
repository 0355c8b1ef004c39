//! STARTTLS where there is nothing to speak TLS by yet, and from clients that go at once.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use needs::each_driver;
use reactor::Choice;
use server::{Config, NbdTlsSpec};
use wire::nbd::{
    OPTION_MAGIC, OptionHeader, nbd_option as option, option_reply as reply,
    request_type as request,
};
use zerocopy::IntoBytes;

use crate::client::{Client, Form, Outcome};
use crate::content::until;
use crate::running::stop;
use crate::{config, portal};

/// The same by the certificate among the test data of `tls`; its key is copied to a folder.
fn with_certificate(backend: Choice, folder: &Path) -> Config {
    let data = |name: &str| -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tls/testdata")
            .join(name)
    };
    let key = folder.join("server.key");
    std::fs::copy(data("server.key"), &key).expect("test data");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&key, mode).expect("ours");
    let mut config = config(backend);
    config.nbd_tls = Some(NbdTlsSpec {
        certificates: Some(tls::TlsFiles {
            certificate: data("server.pem"),
            key: key.into(),
            client_ca: None,
            client_crl: None,
        }),
        psk_file: None,
    });
    config
}

#[each_driver]
fn client_is_told_that_tls_which_is_required_is_spoken_from_the_next_start_on(backend: Choice) {
    let mut config = config(backend);
    config.listeners[0].requires_tls = true;
    let running = server::start(config).expect("starts");
    let mut client = Client::greeted(portal(&running), Form::Simple);
    assert_eq!(client.go("ram"), reply::ERR_TLS_REQD);
    assert_eq!(client.option(option::STARTTLS, b"").0, reply::ERR_POLICY);
    let told = running.refusals();
    let words = "[nbd.tls] holds from the next start of weft on";
    assert!(told[0].reason.contains(words), "{told:?}");
    assert_eq!(client.go("ram"), reply::ERR_TLS_REQD);
    stop(running);
}

#[each_driver]
fn clients_that_go_as_tls_begins_disturb_no_other(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_certificate(backend, folder.path())).expect("starts");
    let mut other = Client::open(portal(&running), Form::Simple, "ram");
    for round in 0..300 {
        let mut client = Client::greeted(portal(&running), Form::Simple);
        let header = OptionHeader {
            magic: OPTION_MAGIC.into(),
            option: option::STARTTLS.into(),
            len: 0.into(),
        };
        client.put(header.as_bytes());
        // With a reset, so that the answer finds no socket.
        let linger = std::time::Duration::ZERO;
        rustix::net::sockopt::set_socket_linger(&client.stream, Some(linger)).expect("a socket");
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        drop(client);
        let flush = other.request(request::FLUSH, 0, 0, 0);
        assert_eq!(flush, Outcome::Done(vec![]), "{round}");
    }
    until("they are gone", || {
        let open = running.metrics().connections;
        open.contains(&("nbd", 1))
    });
    stop(running);
}
