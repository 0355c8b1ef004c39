//! A certificate authority of a test's own, certificates of it, and another authority.

use crate::child::output;
use crate::packages::Sysroot;
use std::path::Path;
use std::process::Command;

const NEW: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc";
/// Good since long ago, as a guest's clock may be behind.
const LONG: &str = "-not_before 20200101000000Z -not_after 20991231235959Z";
/// Good from now on.
const SHORT: &str = "-days 2";
const AUTHORITY: &str = "-keyout ca.key -out ca.pem -addext keyUsage=critical,keyCertSign";
const OTHER: &str = "-keyout other.key -out other.pem -addext keyUsage=critical,keyCertSign";
/// Of the same authority, a client's.
const CLIENT: &str = "-keyout client.key -out client.pem -CA ca.pem -CAkey ca.key \
    -addext basicConstraints=critical,CA:false -addext subjectAltName=DNS:client.example.org";
/// Of the same authority, for days that are over.
const EXPIRED: &str = "-keyout expired.key -out expired.pem -CA ca.pem -CAkey ca.key \
    -not_before 20200101000000Z -not_after 20200201000000Z \
    -addext basicConstraints=critical,CA:false -addext subjectAltName=DNS:localhost";
/// With the addresses by which guest and machine reach each other, and themselves.
const SIGNED: &str = "-keyout key.pem -out cert.pem -CA ca.pem -CAkey ca.key \
    -addext basicConstraints=critical,CA:false \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:machine,IP:10.0.2.2";

/// Makes `ca.pem`, and `cert.pem` with `key.pem`, in `folder` by the openssl of `packages`.
///
/// # Errors
/// What openssl says.
pub fn make(packages: &Sysroot, folder: &Path) -> Result<(), String> {
    run(packages, folder, &[("/CN=CA of a test", AUTHORITY)])?;
    renew(packages, folder)
}

/// Makes `cert.pem` and `key.pem` anew, of the authority that is there.
///
/// # Errors
/// What openssl says.
pub fn renew(packages: &Sysroot, folder: &Path) -> Result<(), String> {
    run(packages, folder, &[("/CN=localhost", SIGNED)])
}

/// Makes what nobody is to take beside those: `expired.pem` with `expired.key`, of the same
/// authority, and `other.pem`, another authority.
///
/// # Errors
/// What openssl says.
pub fn make_bad(packages: &Sysroot, folder: &Path) -> Result<(), String> {
    let bad = [("/CN=localhost", EXPIRED), ("/CN=another CA", OTHER)];
    run(packages, folder, &bad)
}

/// Makes `ca.pem`, `cert.pem` with `key.pem`, `client.pem` with `client.key`, for the DNS name
/// `client.example.org`, and `other.pem`, another authority, by this machine's openssl.
///
/// # Errors
/// What openssl says.
pub fn make_here(folder: &Path) -> Result<(), String> {
    for (subject, more) in [
        ("/CN=CA of a test", AUTHORITY),
        ("/CN=localhost", SIGNED),
        ("/CN=client", CLIENT),
        ("/CN=another CA", OTHER),
    ] {
        make_one(Command::new("openssl"), folder, SHORT, subject, more)?;
    }
    Ok(())
}

fn run(packages: &Sysroot, folder: &Path, made: &[(&str, &str)]) -> Result<(), String> {
    for (subject, more) in made {
        let mut openssl = packages.command("usr/bin/openssl");
        openssl.env("OPENSSL_CONF", packages.root.join("etc/ssl/openssl.cnf"));
        // The last that is said of its days counts.
        make_one(openssl, folder, LONG, subject, more)?;
    }
    Ok(())
}

fn make_one(
    mut openssl: Command,
    folder: &Path,
    days: &str,
    subject: &str,
    more: &str,
) -> Result<(), String> {
    let new = NEW.split_whitespace().chain(days.split_whitespace());
    openssl.args(new).args(["-subj", subject]);
    openssl.args(more.split_whitespace());
    output(openssl.current_dir(folder)).map(drop)
}
