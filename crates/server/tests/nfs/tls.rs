//! RPC-with-TLS (RFC 9289): exports that want it, clients that have it, and those that have not.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ::tls::records::{ContentType, EXTRA_BYTES, Opener, Plain, Sealed};
use ::tls::{CertificateHandshake, Renewed as _, Secured, TlsFiles, rpc_client_side};
use host::nfs::{Client, ClientError, Params, RpcTls};
use mem::{Budget, Pool};
use needs::each_driver;
use reactor::Choice;
use server::nfs::{ClientName, Clients, NfsSettings, Xprtsec, XprtsecModes};
use server::{Config, Remedy, Running};
use wire::nfs4::nfsstat4;

use crate::common::{
    Caller, PATIENCE, address, config, connect, drain, driver, fill, make, params, pattern, stop,
    until,
};
use crate::large_calls::{LARGE, large_params, move_all};
use crate::raw;

/// What the certificate of the tests' data is for.
const NAME: &str = "storage.example.org";

fn data(name: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
    data.join(name)
}

/// A server's files, which serve as a client's too, in `folder`.
fn files(folder: &Path) -> TlsFiles {
    let [certificate, key] = ["server.pem", "server.key"].map(|name| {
        let path = folder.join(name);
        fs::copy(data(name), &path).expect("test data");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        path
    });
    TlsFiles {
        certificate,
        key: key.into(),
        client_ca: Some(data("ca.pem")),
        client_crl: None,
    }
}

/// `/mem` for TLS, `/dir` for clients whose certificate names them.
fn with_tls(backend: Choice, folder: &Path) -> Config {
    let mut config = config(backend, folder);
    config.nfs = NfsSettings {
        tls: Some(files(folder)),
        ..config.nfs
    };
    config.exports[0].rules[0].xprtsec = XprtsecModes::new(&[Xprtsec::Tls]);
    let named = ClientName::Certificate(format!("DNS:{NAME}"));
    config.exports[1].rules[0].clients = Clients::Named(vec![named]);
    config
}

/// A client that speaks TLS, and shows the certificate in `folder`.
fn secured(folder: &Path, ca: &str, shows: bool) -> Params {
    let files = files(folder);
    let key = files.key.file().expect("a file");
    let shown = shows.then_some((&*files.certificate, &*key));
    Params {
        tls: Some(RpcTls::read(NAME, &data(ca), shown).expect("good files")),
        ..params()
    }
}

fn status(client: &mut Caller, name: &str) -> Option<nfsstat4> {
    let found = client.lookup([name]);
    found.err().and_then(|error| error.status())
}

/// Waits until a refusal has this reason, and says what would let the peer in.
fn refused(running: &Running, reason: &str) -> Remedy {
    let mut found = None;
    until("it is refused", || {
        let all = running.refusals();
        found = all.into_iter().find(|one| one.reason.contains(reason));
        found.is_some()
    });
    found.expect("it was waited for").remedy
}

#[each_driver]
fn exports_take_connections_that_are_protected_as_they_want(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_tls(backend, folder.path())).expect("starts");
    let plain = Client::connect(driver(), address(&running), params());
    let status_of = |error: ClientError| error.status();
    let wants_other = Some(nfsstat4::NFS4ERR_WRONGSEC);
    assert_eq!(plain.err().and_then(status_of), wants_other);
    let remedy = refused(&running, "its connection has xprtsec=none");
    assert_eq!(remedy, Remedy::Protection { has_tls: false });
    let mut nameless = connect(&running, secured(folder.path(), "ca.pem", false));
    assert_eq!(status(&mut nameless, "dir"), Some(nfsstat4::NFS4ERR_NOENT));
    // Several connections of one session.
    let several = Params {
        connections: 3,
        ..secured(folder.path(), "ca.pem", true)
    };
    let mut named = connect(&running, several);
    for (client, export) in [(&mut nameless, "mem"), (&mut named, "dir")] {
        let root = client.lookup([export]).expect("exported");
        let open = make(client, &root, "file");
        let bytes = pattern(7, 3 << 20);
        fill(client, &open, &bytes, 1 << 20);
        assert!(drain(client, &open, 700_000) == bytes, "as it was written");
    }
    stop(running);
}

#[each_driver]
fn call_of_8_mib_moves_all_of_its_data_in_tls(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = with_tls(backend, folder.path());
    config.nfs.io_bytes_max = LARGE as u32;
    let running = server::start(config).expect("starts");
    let params = large_params(secured(folder.path(), "ca.pem", true));
    let mut client = connect(&running, params);
    for export in ["mem", "dir"] {
        move_all(&running, &mut client, export);
    }
    drop(client);
    stop(running);
}

#[each_driver]
fn client_and_server_that_do_not_believe_each_other_are_told_why(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_tls(backend, folder.path())).expect("starts");
    let without_patience = Params {
        patience: std::time::Duration::ZERO,
        ..secured(folder.path(), "old.pem", false)
    };
    let error = Client::connect(driver(), address(&running), without_patience);
    let error = error.err().expect("another authority").to_string();
    assert!(error.contains("its TLS certificate is refused"), "{error}");
    refused(&running, "the other side has refused it");
    stop(running);
    // A server without TLS.
    let running = server::start(config(backend, folder.path())).expect("starts");
    let error = Client::connect(
        driver(),
        address(&running),
        Params {
            patience: std::time::Duration::ZERO,
            ..secured(folder.path(), "ca.pem", false)
        },
    );
    let error = error.err().expect("nothing goes in the clear");
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    assert!(error.to_string().contains("STARTTLS"), "{error}");
    stop(running);
}

/// A probe, with its record mark.
fn probe(xid: u32) -> Vec<u8> {
    let words = [1 << 31 | 40, xid, 0, 2, raw::NFS, 4, 0, 7, 0, 0, 0];
    words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect()
}

/// NULL of NFSv4.
fn null(xid: u32) -> Vec<u8> {
    raw::call(xid, (raw::NFS, 4, 0), &[])
}

fn peer(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(address(running)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// What the answer to a probe has, its mark included.
const STARTTLS_BYTES: usize = 4 + 32;

/// Asks for TLS and makes a handshake, in segments of `piece` bytes; the last of the client's
/// flight with a call right behind it.
fn shake(stream: &mut TcpStream, piece: usize) -> Secured {
    let write = |mut stream: &TcpStream, bytes: &[u8]| {
        for piece in bytes.chunks(piece) {
            stream.write_all(piece).expect("taken");
        }
    };
    stream.set_nodelay(true).expect("a socket");
    write(stream, &probe(7));
    let mut answer = [0; STARTTLS_BYTES];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[4 + 16 + 4..][..8], *b"STARTTLS", "{answer:?}");
    let side = rpc_client_side(&data("ca.pem"), None).expect("good");
    let mut client = CertificateHandshake::client(side, NAME).expect("a name");
    write(stream, &client.step(&[]).output);
    let mut bytes = vec![0; 64 << 10];
    loop {
        let len = stream.read(&mut bytes).expect("the handshake goes on");
        let step = client.step(&bytes[..len]);
        let Some(end) = step.end else {
            write(stream, &step.output);
            continue;
        };
        let mut secured = end.expect("a good one");
        let call = null(8);
        let mut record = vec![0; call.len() + EXTRA_BYTES];
        let content = ContentType::ApplicationData;
        let pieces = [Plain::Bytes(&call)].into_iter();
        let to = Sealed::Bytes(&mut record);
        secured.sealer.seal(content, pieces, call.len(), to);
        write(stream, &[step.output, record].concat());
        return secured;
    }
}

#[each_driver]
fn call_right_behind_the_handshake_is_answered_however_bytes_are_split(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_tls(backend, folder.path())).expect("starts");
    for piece in [1, 100, usize::MAX] {
        let mut stream = peer(&running);
        let mut secured = shake(&mut stream, piece);
        let mut record = vec![0; 5];
        stream.read_exact(&mut record).expect("an answer");
        let len = Opener::record_bytes(&record).expect("data").expect("whole");
        record.resize(len, 0);
        stream.read_exact(&mut record[5..]).expect("all of it");
        let mut stage = Pool::new(Budget::new(16 << 20)).unwrap().stage_of(32 << 10);
        secured
            .opener
            .open(&record, None, &mut stage)
            .expect("the server's");
        let answer = stage.bytes();
        assert_eq!(
            answer[4..8],
            8u32.to_be_bytes(),
            "NULL in TLS, in pieces of {piece}"
        );
    }
    stop(running);
}

/// What another on the way puts behind a probe must not pass for the client's.
#[each_driver]
fn call_in_the_clear_behind_a_probe_ends_the_connection_without_an_answer(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let running = server::start(with_tls(backend, folder.path())).expect("starts");
    let mut stream = peer(&running);
    stream
        .write_all(&[probe(1), null(2)].concat())
        .expect("taken");
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("it is closed");
    assert!(
        answers.len() <= STARTTLS_BYTES,
        "no answer to the call: {answers:?}"
    );
    refused(&running, "bytes in the clear behind its AUTH_TLS probe");
    // And what comes later in place of a handshake is none.
    let mut stream = peer(&running);
    stream.write_all(&probe(1)).expect("taken");
    let mut answer = [0; STARTTLS_BYTES];
    stream.read_exact(&mut answer).expect("an answer");
    stream.write_all(&null(2)).expect("taken");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("it is closed");
    assert!(rest.len() <= 7, "an alert at most: {rest:?}");
    stop(running);
}

#[each_driver]
fn renewed_files_hold_from_the_next_connection_on(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = with_tls(backend, folder.path());
    let certificate = config.nfs.tls.as_ref().expect("above").certificate.clone();
    let running = server::start(config).expect("starts");
    let tls = running.nfs_tls().expect("offered").clone();
    let own = tempfile::tempdir().expect("a folder");
    let mut client = connect(&running, secured(own.path(), "ca.pem", false));
    let first = tls.side();
    let good = fs::read_to_string(&certificate).expect("there");
    fs::write(&certificate, format!("{good}\n")).expect("room");
    assert_eq!(tls.look(), Some(Ok(())));
    assert!(!std::sync::Arc::ptr_eq(&first, &tls.side()));
    client.lookup(["mem"]).expect("what is connected stays");
    connect(&running, secured(own.path(), "ca.pem", false));
    fs::write(&certificate, "none").expect("room");
    assert!(tls.look().is_some_and(|read| read.is_err()));
    connect(&running, secured(own.path(), "ca.pem", false));
    stop(running);
}
