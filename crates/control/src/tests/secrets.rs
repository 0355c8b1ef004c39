//! Places of secrets: what is there arrives, and what is gone was there before.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use auth::dhchap::{DhchapHash, DhchapKey};
use auth::psk::{Psk, PskHash};
use auth::{HostPsk, key_lines};
use linux_keyutils::{KeyRing, KeyRingIdentifier};
use needs::needs;
use tls::{Renewed as _, RenewedTls, ServerSide};

use super::*;

/// A line of a key file.
fn key() -> String {
    let key = HostPsk {
        key: Psk::new(PskHash::Sha256, |bytes| bytes.fill(9)),
        until: None,
    };
    String::from_utf8(key_lines(&[key]).bytes().to_vec()).expect("text")
}

/// A configuration in a folder, one host of which has its key in `place`.
struct InFolder {
    folder: tempfile::TempDir,
    text: FileText,
}

impl InFolder {
    fn new(place: &str) -> InFolder {
        InFolder::with(&format!("psk_file = \"{place}\""))
    }

    fn with(lines: &str) -> InFolder {
        let host = format!("[[nvme.subsystem.host]]\nnqn = \"nqn.2026-01.io.weft:i\"\n{lines}");
        InFolder {
            folder: tempfile::tempdir().expect("a folder"),
            text: FileText::of_own(file(SIZE, "", &host, LOCAL, "")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn parse(&self, before: &SecretsRead) -> Result<(Config, SecretsRead), Problems> {
        self.text.parse_again(&self.path("weft.toml"), before)
    }
}

#[test]
fn key_whose_file_is_gone_or_damaged_is_what_it_was_and_told() {
    let of = InFolder::new("i.psk");
    let path = of.path("i.psk");
    let write = |text: &str, mode| {
        fs::write(&path, text).expect("room");
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
    };
    write(&key(), 0o600);
    let none = SecretsRead::default();
    let (config, first) = of.parse(&none).expect("a key");
    assert_eq!(first.kept(), [] as [&str; 0]);
    let spoilt: [(&str, &dyn Fn()); 3] = [
        ("line 1: it is no TLS key", &|| write("nonsense\n", 0o600)),
        ("chmod 600", &|| write(&key(), 0o644)),
        ("weft key new", &|| fs::remove_file(&path).expect("ours")),
    ];
    let mut before = first;
    for (part, spoil) in spoilt {
        spoil();
        let (now, read) = of.parse(&before).expect(part);
        assert_eq!(now.subsystems, config.subsystems, "{part}");
        let [told] = read.kept() else {
            panic!("{part}: {:?}", read.kept());
        };
        assert!(told.contains("i.psk") && told.contains(part), "{told}");
        // Without what was read before it is a mistake.
        let told = of.parse(&none).expect_err(part).to_string();
        assert!(told.contains("i.psk") && told.contains(part), "{told}");
        before = read;
    }
    write(&key(), 0o600);
    let (_, read) = of.parse(&before).expect("a key");
    assert_eq!(read.kept(), [] as [&str; 0]);
}

/// CONFIG_KEYS, and no container that keeps keyrings from its processes.
#[needs(keyring)]
#[test]
fn key_comes_from_a_keyring_of_the_kernel() {
    let description = format!("weft test {}", std::process::id());
    let of = InFolder::new(&format!("keyring:{description}"));
    let none = SecretsRead::default();
    let told = of.parse(&none).expect_err("no such key").to_string();
    assert!(told.contains("no keyring of weft has it"), "{told}");
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let added = ring.add_key(&*description, key().as_bytes()).expect("room");
    let (config, _) = of.parse(&none).expect("a key");
    assert!(config.subsystems[0].terms[0].needs_tls());
    added.invalidate().expect("ours");
    assert!(of.parse(&none).is_err());
}

#[needs(keyring)]
#[test]
fn key_that_the_kernel_takes_back_is_good_for_nothing_and_its_host_still_needs_tls() {
    let description = format!("weft test of withdrawal {}", std::process::id());
    let of = InFolder::new(&format!("keyring:{description}"));
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let added = ring.add_key(&*description, key().as_bytes()).expect("room");
    let (config, mut before) = of.parse(&SecretsRead::default()).expect("a key");
    assert_eq!(config.subsystems[0].terms[0].psks[0].until, None);
    assert!(!before.has_other_keys());
    added.revoke().expect("ours");
    assert!(before.has_other_keys());
    // The kernel forgets revoked keys in the end: that brings none back.
    for part in ["was revoked", "no keyring of weft has it"] {
        let (config, now) = of.parse(&before).expect(part);
        let terms = &config.subsystems[0].terms[0];
        assert!(terms.needs_tls());
        assert_eq!(terms.psks[0].until, Some(Duration::ZERO), "{part}");
        let noted = notes(&config).concat();
        assert!(noted.contains("was revoked in its keyring"), "{noted}");
        let [told] = now.kept() else {
            panic!("{part}: {:?}", now.kept());
        };
        assert!(
            told.contains(part) && told.contains("good for nothing"),
            "{told}"
        );
        assert!(!now.has_other_keys(), "it is known");
        before = now;
        let _ = ring.unlink_key(added);
    }
    ring.add_key(&*description, b"no key").expect("room");
    assert!(before.has_other_keys());
    let (config, before) = of.parse(&before).expect("the host still needs TLS");
    assert_eq!(
        config.subsystems[0].terms[0].psks[0].until,
        Some(Duration::ZERO)
    );
    assert!(!before.has_other_keys(), "it is known");
    ring.add_key(&*description, key().as_bytes()).expect("room");
    assert!(before.has_other_keys());
    let (config, read) = of.parse(&before).expect("a key again");
    assert_eq!(config.subsystems[0].terms[0].psks[0].until, None);
    assert_eq!(read.kept(), [] as [&str; 0]);
    // Another key in its place is taken, too.
    ring.add_key(&*description, b"another").expect("room");
    assert!(read.has_other_keys());
}

#[needs(keyring)]
#[test]
fn key_of_a_remote_volume_that_the_kernel_takes_back_is_used_no_more() {
    let description = format!("weft test of a remote key {}", std::process::id());
    let keys = format!(
        "urls = [\"{}\"]\npsk_file = \"keyring:{description}\"",
        remote::URL
    );
    let of = InFolder {
        folder: tempfile::tempdir().expect("a folder"),
        text: FileText::of_own(remote::remote(&keys)),
    };
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let added = ring.add_key(&*description, key().as_bytes()).expect("room");
    let place = |config: &Config| config.volumes[0].kind.place().expect("remote").clone();
    let (first, before) = of.parse(&SecretsRead::default()).expect("a key");
    added.revoke().expect("ours");
    let (gone, before) = of.parse(&before).expect("it is told");
    let without = read(&remote::remote(&format!("urls = [\"{}\"]", remote::URL)));
    for other in [&first, &without.expect("no key")] {
        assert_ne!(
            place(&gone),
            place(other),
            "nor does it connect without TLS"
        );
    }
    assert!(place(&gone).equals_but_for_credentials(&*place(&first)));
    let (still, _) = of.parse(&before).expect("nothing is new");
    assert_eq!(
        place(&still),
        place(&gone),
        "the same for as long as it is gone"
    );
    let _ = ring.unlink_key(added);
}

/// As a file has them that was rotated: a controller has no second.
#[needs(keyring)]
#[test]
fn second_secret_of_a_controller_is_told_and_takes_no_proof_from_it() {
    let description = format!("weft test of a controller {}", std::process::id());
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let secret = |byte| DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(byte));
    let add = |text: &str| ring.add_key(&*description, text.as_bytes()).expect("room");
    let folder = tempfile::tempdir().expect("a folder");
    secret_file(folder.path(), "own", &secret(1).interchange(), 0o600);
    let keys = format!(
        "urls = [\"{}\"]\ndhchap_secret_file = {:?}\ndhchap_ctrl_secret_file = \
         \"keyring:{description}\"",
        remote::URL,
        folder.path().join("own.secret"),
    );
    let text = FileText::of_own(remote::remote(&keys));
    let of = InFolder { folder, text };
    let place = |config: &Config| config.volumes[0].kind.place().expect("remote").clone();
    let [one, other] = [2, 3].map(|byte| secret(byte).interchange());
    add(&one);
    let (first, before) = of.parse(&SecretsRead::default()).expect("a secret");
    for text in [
        format!("{other}\n{one}"),
        format!("{other} until 2027-01-01T00:00:00Z"),
    ] {
        add(&text);
        let path = of.folder.path().join("weft.toml");
        let (again, read) = of.text.secrets_again(&path, &before);
        assert_eq!(place(&again), place(&first));
        let [told] = read.kept() else {
            panic!("{:?}", read.kept());
        };
        assert!(told.contains("proves itself by one secret"), "{told}");
    }
    let added = add(&other);
    let (again, _) = of.parse(&before).expect("a secret");
    assert_ne!(place(&again), place(&first));
    ring.unlink_key(added).expect("ours");
}

#[needs(keyring)]
#[test]
fn text_that_is_no_key_is_known_by_all_of_it() {
    let description = format!("weft test of a cut key {}", std::process::id());
    let of = InFolder::new(&format!("keyring:{description}"));
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let add = |text: &str| ring.add_key(&*description, text.as_bytes()).expect("room");
    let whole = key();
    add(&whole.replace("\n", " until 2027-01-01T00:00:00Z\n"));
    let (_, mut before) = of.parse(&SecretsRead::default()).expect("a key");
    let long = "x".repeat(20_000);
    let mut added = None;
    // As far as it is read the long one is what it was.
    for text in [&whole[..20], &long] {
        added = Some(add(text));
        assert!(before.has_other_keys());
        (_, before) = of.parse(&before).expect("the one before");
        assert!(!before.has_other_keys(), "it is known");
    }
    (_, before) = {
        add(&whole[..20]);
        of.parse(&before).expect("the one before")
    };
    add(&whole);
    assert!(before.has_other_keys(), "it begins with what is known");
    ring.unlink_key(added.expect("added")).expect("ours");
}

#[needs(keyring)]
#[test]
fn secrets_of_both_sides_that_the_kernel_takes_back_are_no_one_secret() {
    let description = |side| format!("weft test of {side} {}", std::process::id());
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let added = [("host", 1), ("controller", 2)].map(|(side, byte)| {
        let secret = DhchapKey::new(DhchapHash::Sha256, &mut |bytes| bytes.fill(byte));
        let added = ring.add_key(&description(side), secret.interchange().as_bytes());
        added.expect("room")
    });
    let of = InFolder::with(&format!(
        "dhchap_secret_file = \"keyring:{}\"\ndhchap_ctrl_secret_file = \"keyring:{}\"",
        description("host"),
        description("controller")
    ));
    let keys = |config: &Config| config.subsystems[0].terms[0].dhchap.clone();
    let (config, before) = of.parse(&SecretsRead::default()).expect("two secrets");
    let first = keys(&config);
    for key in added {
        key.revoke().expect("ours");
    }
    assert!(before.has_other_keys());
    let (config, before) = of.parse(&before).expect("the host still needs secrets");
    let none = keys(&config);
    assert!(none.is_some() && none != first);
    assert!(
        none.as_ref()
            .is_some_and(|keys| keys.host[0].key.is_withdrawn())
    );
    let (config, _) = of.parse(&before).expect("nothing is new");
    assert_eq!(
        keys(&config),
        none,
        "each is the same for as long as it is gone"
    );
}

#[needs(keyring)]
#[test]
fn private_key_of_a_certificate_comes_from_a_keyring_and_is_replaced_there() {
    let description = format!("weft test of a certificate {}", std::process::id());
    let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).expect("a keyring");
    let folder = tempfile::tempdir().expect("a folder");
    tls_files(folder.path());
    let of = |name: &str| fs::read(folder.path().join(name)).expect("there");
    let config = format!(
        "{}[nfs]\nstate = \"st\"\n[nfs.tls]\ncertificate = \"server.pem\"\n\
         key = \"keyring:{description}\"\n",
        file(SIZE, "", ANY, LOCAL, "")
    );
    let origin = origin(folder.path().to_str().expect("a path"));
    let told = parse(&config, &origin, &[0]).expect_err("no such key");
    let told = told
        .iter()
        .map(|problem| &*problem.text)
        .collect::<String>();
    assert!(
        told.contains("`key`: ") && told.contains("no keyring of weft has it"),
        "{told}"
    );
    let put = |name: &str| {
        ring.add_key(&*description, of(name).as_slice())
            .expect("room")
    };
    put("server.key");
    let config = parse(&config, &origin, &[0]).expect("a key");
    let files = config.nfs.tls.expect("it is there");
    let renewed = RenewedTls::read(&files, ServerSide::for_rpc).expect("they fit");
    assert_eq!(renewed.look(), None);
    put("old.key");
    let why = renewed.look().expect("another key").expect_err("another's");
    assert!(why.contains("not that of the certificate"), "{why}");
    let added = put("server.key");
    assert_eq!(renewed.look(), Some(Ok(())));
    added.invalidate().expect("ours");
}

#[test]
fn key_of_hosts_without_a_table_arrives_where_any_host_may_connect() {
    let folder = tempfile::tempdir().unwrap();
    let psk = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    secret_file(folder.path(), "any", psk, 0o600);
    let table = "psk_file = \"any.secret\"\n\
                 [[nvme.subsystem.host]]\nnqn = \"nqn.2026-01.io.weft:i\"";
    let with = |hosts: &str| file(SIZE, "", &format!("{hosts}\n{table}"), LOCAL, "");
    let origin = origin(folder.path().to_str().unwrap());
    let config = parse(&with(ANY), &origin, &[0]).unwrap();
    let terms = &config.subsystems[0].terms;
    let names: Vec<&str> = terms.iter().map(|terms| &*terms.nqn).collect();
    assert_eq!(names, ["nqn.2026-01.io.weft:i", HostTerms::ANY_HOST]);
    let needs_tls: Vec<bool> = terms.iter().map(HostTerms::needs_tls).collect();
    assert_eq!(needs_tls, [false, true]);
    let told = parse(&with(""), &origin, &[0]).unwrap_err();
    assert!(told[0].text.contains("`allow_any_host = true`"), "{told:?}");
    // Hosts that have none of it yet are cut.
    let plain = read(&with(ANY).replace("psk_file = \"any.secret\"\n", "")).unwrap();
    let plan = plan(&plain, &config).expect("it may change");
    assert!(plan[0].disturbs);
    assert!(
        plan[0].text.contains("hosts without a table"),
        "{}",
        plan[0].text
    );
}
