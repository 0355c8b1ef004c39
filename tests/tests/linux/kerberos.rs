//! An unmodified Linux kernel's client of files proves its users to weft by Kerberos.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use interop::guest::{Config, Guest};
use interop::kdc::{Realm, client_config};
use interop::scripts::{KERBEROS_WEFT, MACHINE, script};
use interop::systems::FORKY;
use interop::weft::{WeftProcess, free_address};
use needs::needs;

/// What the guest calls the machine, and the name that weft has keys for.
const NAME: &str = "files.test";

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
