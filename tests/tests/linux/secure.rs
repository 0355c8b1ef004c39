//! TLS and in-band authentication between the kernel's own two sides, so that the guest and the
//! steps in it are known to be right before they judge weft. `cargo xtask lab secure` runs it.

use interop::certificates;
use interop::guest::{Config, Guest, prepare};
use interop::scripts::{
    KERBEROS, KERNEL_TARGET, KNFSD, SECURE, SECURE_CHAP, SECURE_KERNEL, SECURE_NFS, SECURE_PSK,
    script,
};
use interop::systems::{FORKY, System, TRIXIE};
use interop::weft::NQN;

/// The interchange keys of the bytes 0 to 31, for SHA-256, and 0 to 47, for SHA-384.
const KEY_SHA256: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const KEY_SHA384: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

/// What one system's programs make of these keys.
struct Derived {
    /// The digests in the identities.
    digests: [&'static str; 2],
    /// The cipher of a PSK of SHA-384.
    cipher: &'static str,
}

/// As the standard has it.
const STANDARD: Derived = Derived {
    digests: [
        "dJLWt/x5voouifXQOxjfn3eh5Kri4/uOyd1Wksf7Kio=",
        "Si4sJ2P7mbUS0Yt6jwU9c/hDbZPWTARL373nPj0KyAJ4uILLo+wf6o+teTm7RJJX",
    ],
    cipher: "AES-256-GCM",
};

/// libnvme wrote the label for HKDF-Expand-Label without lengths and the output's length with
/// its bytes turned, and tlshd binds each PSK with SHA-256, of which one cipher of those that
/// it offers for SHA-384 is.
const EARLIER: Derived = Derived {
    digests: [
        "wOGAhn9Hy7ERkWDioeOkx1EkEQwv+BTTmSVseUfDKnQ=",
        "XpfhZz4OwqXBYJT0dtPjVkVcWEihPgQJutTQLELbnXP5Xo/XoPMr3KWJdEYBwXfX",
    ],
    cipher: "CHACHA20-POLY1305",
};

fn run(name: &str, system: &'static System, derived: &Derived, session: &str) {
    let [sha256, sha384] = derived.digests;
    let psk_sha256 = format!("{KEY_SHA256} {sha256} AES-128-GCM");
    let psk_sha384 = format!("{KEY_SHA384} {sha384} {}", derived.cipher);
    let settings = [
        ("ADDR", "127.0.0.1"),
        ("PORT", "4420"),
        ("NQN", NQN),
        ("PSK_SHA256", &psk_sha256),
        ("PSK_SHA384", &psk_sha384),
        ("CIPHER", derived.cipher),
    ];
    let pieces = [KERNEL_TARGET, SECURE, SECURE_KERNEL, session];
    finished(system, Config::new(name, &script(&settings, &pieces)));
}

/// Runs a script in a guest of `system` to its end.
fn finished(system: &'static System, mut config: Config) {
    config.system = system;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
}

/// The client of files and the server, over TLS in one guest.
fn files(name: &str, system: &'static System) {
    let folder = tempfile::tempdir().expect("a folder");
    let (packages, _) = prepare(system).expect("packages, as everything for a guest is there");
    certificates::make(&packages, folder.path()).expect("certificates");
    let settings = [
        ("ADDR", "127.0.0.1"),
        ("PORT", "2049"),
        ("SECURITY", "xprtsec=tls:mtls"),
    ];
    let mut config = Config::new(name, &script(&settings, &[SECURE, KNFSD, SECURE_NFS]));
    config.folders = vec![("tls", folder.path().to_path_buf())];
    finished(system, config);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn kernels_host_and_target_speak_tls_with_a_psk_of_either_hash() {
    run("secure-psk", &FORKY, &STANDARD, SECURE_PSK);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn kernels_host_and_target_authenticate_each_other_and_concatenate_tls() {
    run("secure-chap", &FORKY, &STANDARD, SECURE_CHAP);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn earlier_programs_speak_tls_with_psks_that_are_derived_in_another_way() {
    run("secure-psk-earlier", &TRIXIE, &EARLIER, SECURE_PSK);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn earlier_programs_authenticate_and_concatenate_tls() {
    run("secure-chap-earlier", &TRIXIE, &EARLIER, SECURE_CHAP);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn kernels_client_and_server_of_files_speak_tls_with_certificates_of_one_side_and_of_both() {
    files("secure-nfs", &FORKY);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn earlier_programs_serve_files_over_tls() {
    files("secure-nfs-earlier", &TRIXIE);
}

#[test]
#[ignore = "weft has no part in it: cargo xtask lab secure"]
fn kernels_client_and_server_of_files_speak_each_service_of_kerberos() {
    // By name: the server's key is that of a name.
    let settings = [
        ("ADDR", "localhost"),
        ("PORT", "2049"),
        ("SECURITY", "sec=krb5:krb5i:krb5p"),
    ];
    let pieces = [KNFSD, KERBEROS];
    let name = "kerberos";
    finished(&FORKY, Config::new(name, &script(&settings, &pieces)));
}
