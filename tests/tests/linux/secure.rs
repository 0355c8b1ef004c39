//! TLS and in-band authentication between the kernel's own host and target, so that the guest
//! and the steps in it are known to be right before they judge weft.

use interop::guest::{Config, Guest};
use interop::scripts::{KERNEL_TARGET, SECURE, SECURE_CHAP, SECURE_KERNEL, SECURE_PSK, script};
use interop::systems::FORKY;
use interop::weft::NQN;
use needs::needs;

fn run(name: &str, session: &str) {
    let settings = [("ADDR", "127.0.0.1"), ("PORT", "4420"), ("NQN", NQN)];
    let pieces = [KERNEL_TARGET, SECURE, SECURE_KERNEL, session];
    let mut config = Config::new(name, &script(&settings, &pieces));
    config.system = &FORKY;
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
}

#[needs(guest, system(forky))]
#[test]
fn kernels_host_and_target_speak_tls_with_a_psk_of_either_hash() {
    run("secure-psk", SECURE_PSK);
}

#[needs(guest, system(forky))]
#[test]
fn kernels_host_and_target_authenticate_each_other_and_concatenate_tls() {
    run("secure-chap", SECURE_CHAP);
}
