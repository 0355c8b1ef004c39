//! Secure channel concatenation: the kernel's host with weft.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{MACHINE, SECURE, SECURE_CONCAT_WEFT, script};
use interop::systems::FORKY;
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;

use crate::authentication::secret_file;

fn secret(byte: u8) -> String {
    DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(byte)).interchange()
}

/// Two subsystems for the guest's host; the second is for TLS alone.
fn config(folder: &Path, address: SocketAddr) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    let subsystem = |name: &str, more: &str| {
        format!(
            "[[volume]]\nname = \"{name}\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}{more}\"\nvolumes = [\"{name}\"]\n\
             [[nvme.subsystem.host]]\nnqn = \"{HOST_NQN}\"\n\
             dhchap_secret_file = \"{}\"\ndhchap_ctrl_secret_file = \"{}\"\n",
            file("host"),
            file("controller")
        )
    };
    format!(
        "{}{}psk_file = \"{}\"\n[[listener]]\naddress = \"{address}\"\nadvertise = \"{MACHINE}\"\n\
         [admin]\nsocket = \"off\"\nlisten = \"off\"\n",
        subsystem("open", ""),
        subsystem("alone", "-alone"),
        file("psk"),
    )
}

#[needs(guest, system(forky))]
#[test]
fn host_makes_its_keys_for_tls_by_authentication() {
    let name = "concatenation";
    let folder = tempfile::tempdir().expect("a folder");
    let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(9));
    for (name, secret) in [
        ("host", secret(1)),
        ("controller", secret(2)),
        ("psk", psk.interchange()),
    ] {
        secret_file(folder.path(), name, &secret);
    }
    let address = free_address();
    let document = config(folder.path(), address);
    let mut target = WeftProcess::serve(name, &document, address);
    let (port, secrets) = (address.port().to_string(), [1, 2, 3].map(secret));
    let [own, back, other] = &secrets;
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("SECRET", own),
        ("BACK", back),
        ("OTHER", other),
        ("CIPHER", "AES-256-GCM"),
    ];
    let mut config = Config::new(name, &script(&settings, &[SECURE, SECURE_CONCAT_WEFT]));
    config.system = &FORKY;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let pause = Duration::from_secs(1);
    let mut guest = target.dies_at(guest, &["MARK restart"], pause);
    for (mark, secret) in [
        ("MARK another secret", other),
        ("MARK the secret that was", own),
    ] {
        guest = guest.until(mark);
        secret_file(folder.path(), "host", secret);
        target.reload();
    }
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
    let log = target.log();
    let why = "(`--dhchap-secret`) is not the one";
    assert!(log.contains(why), "{log}");
    assert!(!log.contains("DHHC"), "a secret is told");
    target.expect_orderly_end();
}
