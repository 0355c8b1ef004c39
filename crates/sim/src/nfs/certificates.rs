//! Certificates of RPC-with-TLS. They are the same in each run, and all their signatures have one
//! length: when bytes come does not depend on random ones.

use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::LazyLock;

use host::nfs::RpcTls;
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};
use server::nfs::TlsFiles;

/// Whom the server's certificate is for.
const SERVER: &str = "server.sim";

/// Good from 2020 to 2099, by Ed25519, as all three.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBPzCB8qADAgECAgQRIjNEMAUGAytlcDAlMSMwIQYDVQQDDBphdXRob3JpdHkg
b2YgdGhlIHNpbXVsYXRvcjAgFw0yMDAxMDEwMDAwMDBaGA8yMDk5MTIzMTIzNTk1
OVowJTEjMCEGA1UEAwwaYXV0aG9yaXR5IG9mIHRoZSBzaW11bGF0b3IwKjAFBgMr
ZXADIQDMkz+a7i7yHN+cJjHhy2HuKwdtR3eUi4ivez2lKFP64aNCMEAwDwYDVR0T
AQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwHQYDVR0OBBYEFMtqUQbW/mlSo3NU
DX3AjEILPsZ4MAUGAytlcANBABY2Iiha1x17Bnb0Ui983K2wd+RdPenQBmGuoyXK
L2/zZ1eDLvbTH/cUGPiev+bFMLlgBOk9bFMQh2DkiOhvJwE=
-----END CERTIFICATE-----
";

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBajCCARygAwIBAgIEESIzRTAFBgMrZXAwJTEjMCEGA1UEAwwaYXV0aG9yaXR5
IG9mIHRoZSBzaW11bGF0b3IwIBcNMjAwMTAxMDAwMDAwWhgPMjA5OTEyMzEyMzU5
NTlaMBUxEzARBgNVBAMMCnNlcnZlci5zaW0wKjAFBgMrZXADIQD/guJPvcoMdhPq
sZj0Zb1dXTw45LKQVkn4dDADLz7OLaN8MHowDAYDVR0TAQH/BAIwADAVBgNVHREE
DjAMggpzZXJ2ZXIuc2ltMBMGA1UdJQQMMAoGCCsGAQUFBwMBMB0GA1UdDgQWBBRB
AvI4/Ax87disy74o/LdT8c4FKjAfBgNVHSMEGDAWgBTLalEG1v5pUqNzVA19wIxC
Cz7GeDAFBgMrZXADQQBFmHkqjjf+bjMZghvj0igON73tDYD4AAXPwRP+c7dQ6IFF
Feq0/QPfcQU1sKLs43ZdwWqmdsD22O8o6/LULr8I
-----END CERTIFICATE-----
";

/// It stands here for all to read: it guards nothing.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEII+OoRN49a48tm2d50nCbSko0ux46cEDFE+QmztHUCjO
-----END PRIVATE KEY-----
";

/// As the target and clients want them: in files, which go with the process.
static FILES: LazyLock<[OwnedFd; 3]> =
    LazyLock::new(|| [file(AUTHORITY), file(CERTIFICATE), file(KEY)]);

fn file(text: &str) -> OwnedFd {
    const NAME: &CStr = c"weft-sim";
    let fd = memfd_create(NAME, MemfdFlags::CLOEXEC).expect("descriptors are left");
    fchmod(&fd, Mode::RUSR).expect("it is our own");
    let mut file = std::fs::File::from(fd);
    file.write_all(text.as_bytes()).expect("memory is left");
    file.into()
}

fn path(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// What the target shows.
pub fn shown() -> TlsFiles {
    let [_, certificate, key] = &*FILES;
    TlsFiles {
        certificate: path(certificate),
        key: path(key).into(),
        client_ca: None,
        client_crl: None,
    }
}

/// What a client believes in.
pub fn believed() -> RpcTls {
    let [authority, ..] = &*FILES;
    RpcTls::read(SERVER, &path(authority), None).expect("the certificate is one")
}
