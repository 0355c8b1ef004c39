//! Files in, sides of a connection or problems out.

mod vectors;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::CertificateError;

use super::*;

/// A file of the tests' data.
fn of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

/// A file of its own, with its mode.
fn file(folder: &Path, text: &str, mode: u32) -> PathBuf {
    let path = folder.join("file.pem");
    fs::write(&path, text).expect("room");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
    path
}

/// A key of the tests' data that nobody else may read, whatever the checkout has made of it.
fn key_of(folder: &Path, name: &str) -> SecretPlace {
    file(folder, &fs::read_to_string(of(name)).expect("there"), 0o600).into()
}

#[test]
fn both_sides_are_made_of_files_that_belong_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = key_of(folder.path(), "server.key");
    let identity = || Identity::read(&of("server.pem"), &key).expect("it fits");
    let clients = ClientAuthorities::read(&of("ca.pem"), Some(&of("crl.pem")));
    let side = ServerSide::new(identity(), Some(clients.expect("an authority")));
    let certificate = side.expect("a server").certificate;
    assert_eq!(
        certificate.names,
        ["DNS:storage.example.org", "DNS:*.lab.example.org"]
    );
    assert_eq!(certificate.dns_name(), Some("storage.example.org"));
    for (name, is_its) in [
        ("storage.example.org", true),
        ("STORAGE.example.org", true),
        ("a.lab.example.org", true),
        ("192.0.2.1", true),
        ("example.org", false),
        ("192.0.2.2", false),
        ("", false),
        ("a b", false),
    ] {
        assert_eq!(certificate.is_for(name), is_its, "{name}");
    }
    assert_eq!(certificate.is_out_of_time(SystemTime::now()), None);
    let early = certificate.is_out_of_time(SystemTime::UNIX_EPOCH);
    assert!(early.expect("too early").contains("not valid yet"));
    assert!(ServerSide::new(identity(), None).is_ok());
    assert!(client_side(&of("ca.pem"), Some(identity())).is_ok());
    assert!(client_side(&of("ca.pem"), None).is_ok());
    let old = read_certificates(&of("old.pem")).expect("one");
    let old = Certificate::new(&old[0]).expect("one");
    assert_eq!(old.names, ["email:alice@example.org"]);
    let late = old.is_out_of_time(SystemTime::now());
    assert!(late.expect("too late").contains("has expired"));
}

#[test]
fn file_that_does_not_do_is_told_with_its_name_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let key = key_of(folder, "old.key");
    let why = Identity::read(&of("server.pem"), &key).expect_err("another's");
    assert!(why.contains("not that of the certificate"), "{why}");
    let open = file(folder, "", 0o644);
    let why = read_key(&open.into()).expect_err("everybody may read it");
    assert!(
        why.contains("chmod 600") && why.contains("file.pem"),
        "{why}"
    );
    for (text, part) in [
        ("", "no private key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "not PEM"),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "openssl pkey",
        ),
    ] {
        let why = read_key(&file(folder, text, 0o600).into()).expect_err(text);
        assert!(why.contains(part), "{text}: {why}");
    }
    let why = read_key(&folder.to_owned().into()).expect_err("a folder");
    assert!(why.contains("is no file"), "{why}");
    let why = read_certificates(Path::new("/no/such.pem")).expect_err("none");
    assert!(why.contains("/no/such.pem cannot be read"), "{why}");
    let why = read_crls(&of("ca.pem")).expect_err("no list");
    assert!(why.contains("no certificate revocation list"), "{why}");
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let nonsense = file(folder, nonsense, 0o644);
    let why = ClientAuthorities::read(&nonsense, None).expect_err("no certificate");
    assert!(why.contains("file.pem"), "{why}");
}

#[test]
fn failure_is_found_behind_what_libraries_have_put_around_it() {
    let failure = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let once = std::io::Error::other(failure());
    let twice = std::io::Error::other(std::io::Error::other(failure()));
    for error in [once, twice] {
        let found = failure_of(&error).map(problem_of).expect("one of TLS");
        assert!(found.contains("none of the authorities"), "{found}");
    }
    assert!(failure_of(&std::io::Error::from_raw_os_error(2)).is_none());
}
