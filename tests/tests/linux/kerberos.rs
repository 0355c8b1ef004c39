//! Kerberos between weft and an unmodified Linux kernel: the kernel's client of files proves its
//! users to weft, and weft's client its user to the kernel's server.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use interop::child::output;
use interop::guest::{Config, Guest};
use interop::kdc::{Realm, client_config};
use interop::scripts::{KERBEROS_SERVE, KERBEROS_WEFT, KNFSD, MACHINE, script};
use interop::systems::FORKY;
use interop::weft::{WeftProcess, binary, free_address};
use needs::needs;

/// What the guest calls the machine, and the name that weft has keys for.
const NAME: &str = "files.test";

/// What the kernel's server serves by each service: with krb5i, answers to many READs of whole pages
/// at a time have the checksum of another answer (docs/nfs.md says why).
const LOADS: [&[&str]; 6] = [
    &["--sec=krb5", "--bs=4k", "--iodepth=32"],
    &["--sec=krb5i", "--bs=2k", "--iodepth=32"],
    &["--sec=krb5i", "--bs=4k", "--iodepth=1"],
    &["--sec=krb5i", "--bs=64k", "--iodepth=1"],
    &["--sec=krb5p", "--bs=4k", "--iodepth=32"],
    &["--sec=krb5p", "--bs=64k", "--iodepth=4"],
];

/// Keys of weft, which stay here, and what the guest gets.
fn keys(realm: &Realm, guest: &Path) -> Result<(), String> {
    for (principal, keytab) in [
        ("nfs/files.test", "weft.keytab"),
        ("host/guest.test", "guest.keytab"),
        ("root", "root.keytab"),
        ("daemon", "daemon.keytab"),
        ("bin", "bin.keytab"),
    ] {
        realm.add(principal)?;
        let path = realm.add_keys(principal, keytab)?;
        if keytab != "weft.keytab" {
            fs::copy(path, guest.join(keytab)).map_err(|error| error.to_string())?;
        }
    }
    let kdc = SocketAddr::new(MACHINE.parse().expect("an address"), realm.address().port());
    fs::write(guest.join("krb5.conf"), client_config(kdc, "")).map_err(|e| e.to_string())
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn users_with_tickets_read_and_write_what_is_theirs_by_each_version_and_service() {
    let realm = Realm::start("").expect("a KDC, as everything for it is there");
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    keys(&realm, folder.path()).expect("principals and keys");
    let address = free_address();
    let config = format!(
        "[nfs]\nlease_ms = 10000\ngrace_ms = 10000\n\
         [nfs.kerberos]\nkeytab = \"{}\"\ndomain = \"test\"\n\
         [[file_system]]\nname = \"f\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
         [[export]]\npath = \"/\"\nfile_system = \"f\"\nallow_any_client = true\n\
         squash = \"none\"\nsecurity = [\"krb5p\", \"krb5i\", \"krb5\", \"sys\"]\n\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n\
         [admin]\nsocket = \"off\"\nlisten = \"off\"\n",
        realm.folder().join("weft.keytab").display()
    );
    let target = WeftProcess::serve("kerberos-weft", &config, address);
    let port = address.port().to_string();
    let settings = [("ADDR", NAME), ("PORT", &port)];
    let mut config = Config::new("kerberos-weft", &script(&settings, &[KERBEROS_WEFT]));
    config.system = &FORKY;
    config.folders = vec![("kerberos", folder.path().to_path_buf())];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
    let log = target.log();
    assert!(log.contains("KRB5KRB_AP_ERR_SKEW"), "{log}");
    target.expect_orderly_end();
}

#[needs(guest, system(forky), library("libgssapi_krb5.so.2"))]
#[test]
fn loads_of_the_kernels_own_server_by_each_service_read_what_they_have_written() {
    let realm = Realm::start("").expect("a KDC, as everything for it is there");
    let folder = tempfile::tempdir().expect("a folder");
    let client_keytab = realm.folder().join("root.keytab");
    for (principal, keytab) in [("nfs/localhost", "nfs.keytab"), ("root", "root.keytab")] {
        realm.add(principal).expect("a principal");
        realm.add_keys(principal, keytab).expect("its keys");
    }
    for file in ["krb5.conf", "nfs.keytab"] {
        fs::copy(realm.folder().join(file), folder.path().join(file)).expect("a file of ours");
    }
    let tickets = realm.get_tickets("root@TEST", &client_keytab, "tickets", &[]);
    let tickets = tickets.expect("tickets");
    let (address, next) = (free_address(), free_address());
    let settings = [
        ("ADDR", "10.0.2.15"),
        ("PORT", "2049"),
        ("SECURITY", "sec=krb5:krb5i:krb5p"),
    ];
    let name = "kerberos-kernel-server";
    let mut config = Config::new(name, &script(&settings, &[KNFSD, KERBEROS_SERVE]));
    config.system = &FORKY;
    config.folders = vec![("kerberos", folder.path().to_path_buf())];
    config.forwards = vec![(address.port(), 2049), (next.port(), 2050)];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let guest = guest.until("MARK served");
    let url = format!("nfs://localhost:{}/file", address.port());
    for words in LOADS {
        let mut perf = Command::new(binary());
        perf.args(["perf", &url, "--rw=randrw", "--size=4MiB", "--verify"]);
        perf.args(["--runtime=1s", "--ramp-time=0s"]).args(words);
        perf.env("KRB5_CONFIG", realm.folder().join("krb5.conf"));
        let said = output(perf.env("KRB5CCNAME", &tickets));
        let said = said.unwrap_or_else(|why| panic!("{words:?}: {why}"));
        let said = String::from_utf8_lossy(&said).into_owned();
        let is_checked = !said.contains(" 0 blocks checked") && said.contains(", 0 wrong");
        assert!(is_checked, "{words:?}: {said}");
    }
    drop(TcpStream::connect(next).expect("the guest still runs"));
    guest.finish().expect_success();
}
