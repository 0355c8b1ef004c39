//! Secure channel concatenation: the kernel's host with weft, and weft's initiator with the
//! kernel's target.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{
    MACHINE, SECURE, SECURE_CONCAT_SERVE, SECURE_CONCAT_WEFT, SECURE_KERNEL, script,
};
use interop::systems::FORKY;
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;

use crate::authentication::secret_file;
use crate::kernel_target::{KernelTarget, LOAD};

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

#[needs(guest, system(forky))]
#[test]
fn initiator_makes_its_keys_for_tls_with_the_kernels_own_target() {
    let ways = [
        "sha256:ffdhe2048:AES-128-GCM",
        "sha384:ffdhe3072:AES-256-GCM",
    ];
    let (own, back) = (secret(1), secret(2));
    let settings = [
        ("SECRET", &*own),
        ("BACK", &back),
        ("WAYS", &ways.join(" ")),
    ];
    let pieces = [SECURE, SECURE_KERNEL, SECURE_CONCAT_SERVE];
    let name = "concatenation-kernel-target";
    let mut target = KernelTarget::start(name, &settings, &pieces, [4421, 4422]);
    let folder = tempfile::tempdir().expect("a folder");
    let [own, back] = [("host", &own), ("controller", &back)]
        .map(|(name, secret)| secret_file(folder.path(), name, secret));
    for way in ways {
        target = target.until(&format!("MARK {way}"));
        let perf = |words: &[&str]| {
            let concat = ["--concat", "--dhchap-secret-file"];
            target.perf(&[&LOAD[..], &concat, words].concat())
        };
        if let Err(error) = perf(&[&own]) {
            panic!("{way}: {error}\n--- guest\n{}", target.output());
        }
        // Told by the target, or guessed where it has closed the connection before its answer.
        let why = perf(&[&back]).expect_err("another secret");
        assert!(why.contains("the controller refuses the host"), "{why}");
        // The kernel's target has no key to go on by once it has proven itself.
        let mutual = [&*own, "--dhchap-ctrl-secret-file", &back];
        let why = perf(&mutual).expect_err("no key");
        assert!(why.contains("a target of Linux makes no key"), "{why}");
        target.go_on();
    }
    target.finish();
}
