//! Files over TLS (RFC 9289): weft's server with the kernel's client, and weft's client with the
//! kernel's server.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use interop::certificates;
use interop::child::output;
use interop::guest::{Config, Guest, prepare};
use interop::scripts::{KNFSD, MACHINE, SECURE, SECURE_NFS_SERVE, SECURE_NFS_WEFT, script};
use interop::systems::FORKY;
use interop::weft::{WeftProcess, binary, free_address};
use needs::needs;

/// Three exports of a directory each, which want different clients.
fn config(address: SocketAddr, tls: &Path) -> String {
    let tls = tls.display();
    let export = |name: &str, terms: &str| {
        format!(
            "[[file_system]]\nname = \"{name}\"\nkind = \"dir\"\npath = \"{tls}/{name}\"\n\
             [[export]]\npath = \"/{name}\"\nfile_system = \"{name}\"\nsquash = \"none\"\n{terms}\n"
        )
    };
    let exports = [
        export("tls", "allow_any_client = true\nxprtsec = [\"tls\"]"),
        export("mtls", "allow_any_client = true\nxprtsec = [\"mtls\"]"),
        export("named", "clients = [\"DNS:localhost\"]"),
    ];
    format!(
        "[nfs]\nstate = \"state\"\nlease_ms = 10000\ngrace_ms = 10000\n\
         [nfs.tls]\ncertificate = \"{tls}/cert.pem\"\nkey = \"{tls}/key.pem\"\n\
         client_ca = \"{tls}/ca.pem\"\n{}\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [admin]\nsocket = \"off\"\nlisten = \"off\"\n",
        exports.concat()
    )
}

#[needs(guest, system(forky))]
#[test]
fn kernels_client_mounts_by_tls_what_wants_it_and_is_told_why_else() {
    let name = "tls-files";
    let folder = tempfile::tempdir().expect("a folder");
    let (packages, _) = prepare(&FORKY).expect("packages, as everything for a guest is there");
    certificates::make(&packages, folder.path()).expect("certificates");
    certificates::make_bad(&packages, folder.path()).expect("certificates");
    let address = free_address();
    for name in ["tls", "mtls", "named"] {
        fs::create_dir(folder.path().join(name)).expect("a folder of ours");
    }
    let mut target = WeftProcess::serve(name, &config(address, folder.path()), address);
    let port = address.port().to_string();
    let settings = [("ADDR", MACHINE), ("PORT", &*port)];
    let mut guest = Config::new(name, &script(&settings, &[SECURE, SECURE_NFS_WEFT]));
    guest.system = &FORKY;
    guest.folders = vec![("tls", folder.path().to_path_buf())];
    let guest = Guest::start(&guest).expect("a guest, as everything for it is there");
    let pause = Duration::from_millis(500);
    let guest = target.dies_at(guest, &["MARK starts again"], pause);
    let guest = guest.until("MARK renewed");
    certificates::renew(&packages, folder.path()).expect("a certificate");
    target.reload();
    fs::write(folder.path().join("renewed"), "").expect("room");
    let said = guest.finish().expect_success();
    assert!(
        said.lines()
            .last()
            .is_some_and(|line| line.ends_with(" end")),
        "{said}"
    );
    let log = target.log();
    for told in [
        "its connection has xprtsec=none, and the export's `xprtsec` takes tls",
        "its connection has xprtsec=tls, and the export's `xprtsec` takes mtls",
        "[nfs.tls]: renewed files hold",
        "its TLS certificate is refused: the certificate has expired",
    ] {
        assert!(log.contains(told), "no {told:?} in {log}");
    }
    target.expect_orderly_end();
}

#[needs(guest, system(forky))]
#[test]
fn client_loads_the_kernels_own_server_by_tls_and_shows_a_certificate() {
    let name = "tls-files-kernel-server";
    let folder = tempfile::tempdir().expect("a folder");
    let (packages, _) = prepare(&FORKY).expect("packages, as everything for a guest is there");
    certificates::make(&packages, folder.path()).expect("certificates");
    certificates::make_bad(&packages, folder.path()).expect("certificates");
    let (address, next) = (free_address(), free_address());
    let settings = [
        ("ADDR", "10.0.2.15"),
        ("PORT", "2049"),
        ("SECURITY", "xprtsec=tls:mtls"),
    ];
    let pieces = [SECURE, KNFSD, SECURE_NFS_SERVE];
    let mut config = Config::new(name, &script(&settings, &pieces));
    config.system = &FORKY;
    config.folders = vec![("tls", folder.path().to_path_buf())];
    config.forwards = vec![(address.port(), 2049), (next.port(), 2050)];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = guest.until("MARK served");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let url = format!("nfs://{address}/file");
    let perf = |words: &[&str]| {
        let mut perf = Command::new(binary());
        perf.args(["perf", &url, "--rw=randwrite", "--size=4MiB", "--verify"]);
        perf.args(["--runtime=1s", "--ramp-time=0s"]).args(words);
        output(&mut perf)
    };
    let (ca, certificate, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
    perf(&["--ca", &ca]).expect("served by TLS");
    perf(&["--ca", &ca, "--certificate", &certificate, "--key", &key]).expect("and with both");
    let why = perf(&[]).expect_err("the export wants TLS");
    assert!(why.contains("WRONGSEC"), "{why}");
    let why = perf(&["--ca", &file("other.pem")]).expect_err("another authority");
    assert!(why.contains("TLS certificate is refused"), "{why}");
    drop(TcpStream::connect(next).expect("the guest still runs"));
    guest.finish().expect_success();
}
