//! Keys in a keyring of the kernel: one that is taken back is good for nothing, whatever else is
//! wrong by then.

use auth::psk::{Psk, PskHash};
use auth::{HostPsk, key_lines};
use linux_keyutils::{Key, KeyRing, KeyRingIdentifier};
use needs::needs;

use super::*;

const HOST: &str = "nqn.2026-01.org.example:h";

/// A line of a key file.
fn line(byte: u8) -> String {
    let key = HostPsk {
        key: Psk::new(PskHash::Sha256, |bytes| bytes.fill(byte)),
        until: None,
    };
    String::from_utf8(key_lines(&[key]).bytes().to_vec()).expect("text")
}

/// A target whose host has its key in a keyring, and that has a certificate.
struct WithKey {
    target: Target,
    folder: tempfile::TempDir,
    ring: KeyRing,
    key: Key,
    description: String,
}

impl WithKey {
    fn start(of: &str) -> WithKey {
        let description = format!("weft test of {of} {}", std::process::id());
        let session = KeyRingIdentifier::Session;
        let ring = KeyRing::from_special_id(session, false).expect("a keyring");
        let key = ring.add_key(&*description, line(1).as_bytes());
        let (folder, file) = folder();
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/testdata");
        for name in ["server.pem", "server.key"] {
            let path = folder.path().join(name);
            fs::copy(testdata.join(name), &path).expect("test data");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
        }
        let of_host = format!(
            "[[nvme.subsystem.host]]\nnqn = \"{HOST}\"\npsk_file = \"keyring:{description}\"\n\
             [nfs.tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n\
             [[volume]]"
        );
        let text = text(&["a"]).replacen("[[volume]]", &of_host, 1);
        fs::write(&file, text).expect("room");
        WithKey {
            target: Target::start(Some(&file), ""),
            folder,
            ring,
            key: key.expect("room"),
            description,
        }
    }

    /// The keys that hosts are taken by, each with whether it is good.
    fn keys(&self) -> Vec<(Psk, bool)> {
        let served = self.target.running.served();
        let terms = served.subsystems.iter().flat_map(|one| &one.terms);
        let keys = terms.flat_map(|terms| &terms.psks);
        keys.map(|key| (key.key.clone(), key.until.is_none()))
            .collect()
    }

    fn expect(&self, byte: u8, is_good: bool) {
        let psk = Psk::new(PskHash::Sha256, |bytes| bytes.fill(byte));
        assert_eq!(self.keys(), [(psk, is_good)]);
    }
}

#[needs(keyring)]
#[test]
fn key_that_is_revoked_is_good_for_nothing_though_a_certificate_is_missing() {
    let with = WithKey::start("revocation");
    with.expect(1, true);
    fs::remove_file(with.folder.path().join("server.pem")).expect("ours");
    with.target.served.look_at_keyrings();
    with.expect(1, true);
    with.key.revoke().expect("ours");
    with.target.served.look_at_keyrings();
    with.expect(1, false);
    let status = with.target.served.status();
    let told = format!("{status:?}");
    assert!(told.contains("was revoked"), "{told}");
    with.target.end();
}

#[needs(keyring)]
#[test]
fn key_that_has_the_place_of_another_is_taken_though_the_file_of_the_document_is_wrong() {
    let with = WithKey::start("replacement");
    fs::write(with.folder.path().join("weft.toml"), "nonsense").expect("room");
    fs::remove_file(with.folder.path().join("server.key")).expect("ours");
    let of_new = line(2);
    let added = with.ring.add_key(&*with.description, of_new.as_bytes());
    added.expect("room");
    with.target.served.look_at_keyrings();
    with.expect(2, true);
    // What is no key leaves the last one.
    let added = with.ring.add_key(&*with.description, b"no key");
    let added = added.expect("room");
    with.target.served.look_at_keyrings();
    with.expect(2, true);
    added.revoke().expect("ours");
    with.target.served.look_at_keyrings();
    with.expect(2, false);
    with.target.end();
}
