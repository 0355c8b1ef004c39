//! A certificate authority of a test's own, and a certificate of it.

use crate::child::output;
use crate::packages::Sysroot;
use std::path::Path;

const NEW: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30";
const AUTHORITY: &str = "-keyout ca.key -out ca.pem -addext keyUsage=critical,keyCertSign";
/// With the addresses by which guest and machine reach each other, and themselves.
const SIGNED: &str = "-keyout key.pem -out cert.pem -CA ca.pem -CAkey ca.key \
    -addext basicConstraints=critical,CA:false \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:machine,IP:10.0.2.2";

/// Makes `ca.pem`, and `cert.pem` with `key.pem`, in `folder` by the openssl of `packages`.
///
/// # Errors
/// What openssl says.
pub fn make(packages: &Sysroot, folder: &Path) -> Result<(), String> {
    for (subject, more) in [("/CN=CA of a test", AUTHORITY), ("/CN=localhost", SIGNED)] {
        let mut openssl = packages.command("usr/bin/openssl");
        openssl
            .args(NEW.split_whitespace())
            .args(["-subj", subject]);
        openssl.args(more.split_whitespace());
        openssl.env("OPENSSL_CONF", packages.root.join("etc/ssl/openssl.cnf"));
        output(openssl.current_dir(folder))?;
    }
    Ok(())
}
