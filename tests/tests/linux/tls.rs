//! An unmodified Linux kernel speaks TLS with weft: the programs of two suites, which derive
//! keys in two ways, as hosts, and the kernel's target with weft's initiator.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use auth::psk::{Psk, PskHash};
use interop::guest::{Config, Guest};
use interop::initramfs::HOST_NQN;
use interop::scripts::{MACHINE, SECURE, SECURE_KERNEL, SECURE_TLS_SERVE, SECURE_WEFT, script};
use interop::systems::{FORKY, System, TRIXIE};
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;

use crate::authentication::secret_file;
use crate::kernel_target::KernelTarget;

/// A target that holds the guest to a key, and a session with it.
fn session(name: &str, system: &'static System, hash: PskHash, cipher: &str) {
    let key = |first: u8| {
        let psk = Psk::new(hash, |bytes| {
            (first..).zip(bytes).for_each(|(n, byte)| *byte = n);
        });
        psk.interchange()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host.psk");
    fs::write(&file, key(0)).expect("written");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    let address = free_address();
    let config = format!(
        "[[volume]]\nname = \"v\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"v\"]\n\
         [[nvme.subsystem.host]]\nnqn = \"{HOST_NQN}\"\npsk_file = \"{}\"\n\
         [[listener]]\naddress = \"{address}\"\nadvertise = \"{MACHINE}\"\n\
         [admin]\nsocket = \"admin.sock\"\nlisten = \"off\"\n",
        file.display()
    );
    let target = WeftProcess::serve(name, &config, address);
    let port = address.port().to_string();
    let (right, next) = (key(0), key(9));
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("KEY", &right),
        ("CIPHER", cipher),
    ];
    let mut config = Config::new(name, &script(&settings, &[SECURE, SECURE_WEFT]));
    config.system = system;
    let mut guest = Guest::start(&config).expect("a guest, as everything for it is there");
    guest = guest.until("MARK version 0");
    let connections = target.run(&["get", "connections"]);
    let says_0 = connections.contains(&format!("PSK 0 {}", hash.name()));
    assert!(says_0 && !connections.contains("PSK 1"), "{connections}");
    target.run(&["evict", "host", HOST_NQN]);
    let expired = format!("{next}\n{right} until 2026-01-01T00:00:00Z\n");
    for (mark, keys) in [
        ("MARK rotation", format!("{next}\n{right}\n")),
        ("MARK expired key", expired),
        ("MARK the key again", right.clone()),
        ("MARK another key", key(7)),
    ] {
        guest = guest.until(mark);
        fs::write(&file, keys).expect("written");
        target.reload();
    }
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
    let log = target.log();
    assert!(
        log.contains("the host has a key for TLS, and connects without"),
        "{log}"
    );
    assert!(
        log.contains("no host has the TLS identity that it says"),
        "{log}"
    );
    assert!(
        log.contains("has expired or was revoked: give the host one"),
        "{log}"
    );
    let is_old = log.contains("derives its TLS key as libnvme up to 1.13 does");
    assert_eq!(is_old, std::ptr::eq(system, &TRIXIE), "{log}");
    target.expect_orderly_end();
}

#[needs(guest, system(forky))]
#[test]
fn host_speaks_tls_by_a_key_of_sha_384() {
    session("tls-sha384", &FORKY, PskHash::Sha384, "AES-256-GCM");
}

#[needs(guest, system(forky), ci)]
#[test]
#[ignore = "another test has one such guest: cargo xtask lab guests"]
fn host_speaks_tls_by_a_key_of_sha_256() {
    session("tls-sha256", &FORKY, PskHash::Sha256, "AES-128-GCM");
}

#[needs(guest, system(trixie), ci)]
#[test]
fn host_that_derives_keys_in_the_old_way_speaks_tls() {
    session("tls-old", &TRIXIE, PskHash::Sha256, "AES-128-GCM");
}

/// Verified loads: small and large, each kind of reactor.
const LOADS: [&str; 3] = [
    "--rw=randwrite --bs=4k --iodepth=32 --size=8MiB",
    "--rw=randrw --bs=64k --iodepth=8 --numjobs=2 --size=16MiB --hdr-digest --data-digest",
    "--rw=write --bs=1m --iodepth=4 --size=16MiB --io-backend=epoll",
];

#[needs(guest, system(forky))]
#[test]
fn initiator_speaks_tls_with_the_kernels_own_target() {
    let keys = [
        ("SHA-256", PskHash::Sha256, 5, "AES-128-GCM"),
        ("SHA-384", PskHash::Sha384, 5, "AES-256-GCM"),
        ("version-0", PskHash::Sha384, 4, "AES-256-GCM"),
    ]
    .map(|(name, hash, byte, cipher)| {
        let key = Psk::new(hash, |bytes| bytes.fill(byte)).interchange();
        (name, format!("{key} {cipher}"), key)
    });
    let settings = [
        ("PSK_SHA256", &*keys[0].1),
        ("PSK_SHA384", &keys[1].1),
        ("PSK_VERSION_0", &keys[2].1),
    ];
    let pieces = [SECURE, SECURE_KERNEL, SECURE_TLS_SERVE];
    let mut target = KernelTarget::start("tls-kernel-target", &settings, &pieces, [4421, 4422]);
    let folder = tempfile::tempdir().expect("a folder");
    let other = Psk::new(PskHash::Sha256, |bytes| bytes.fill(6)).interchange();
    let other = secret_file(folder.path(), "other", &other);
    for (name, _, key) in &keys {
        target = target.until(&format!("MARK {name}"));
        let key = secret_file(folder.path(), name, key);
        let perf = |load: &str, words: &[&str]| {
            let words = load.split(' ').chain(words.iter().copied());
            target.perf(&words.collect::<Vec<_>>())
        };
        for load in LOADS {
            if let Err(error) = perf(load, &["--psk-file", &key]) {
                panic!("{name}: {load}: {error}\n--- guest\n{}", target.output());
            }
        }
        let why = perf(LOADS[0], &["--psk-file", &other]).expect_err("another key");
        assert!(why.contains("closed amid the handshake"), "{why}");
        let why = perf(LOADS[0], &[]).expect_err("without TLS");
        assert!(why.contains("closed the connection"), "{why}");
        target.go_on();
    }
    target.finish();
}
