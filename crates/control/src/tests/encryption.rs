//! Keys of encrypted volumes: where they lie, and what is made of them while weft runs.

use std::fs;

use auth::Secret;
use server::Change;
use store::{EncryptionSettings, WrappingKey};

use super::*;

const DIGITS: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// A volume with these lines, in a folder.
fn parsed(folder: &Path, lines: &str) -> Result<Config, String> {
    let text = format!(
        "[[volume]]\nname = \"a\"\nkind = \"file\"\npath = \"a.img\"\nsize = \"1GiB\"\n{lines}\n\
         [[nvme.subsystem]]\nnqn = \"nqn.2026-01.io.weft:a\"\nallow_any_host = true\n\
         [[listener]]\naddress = \"127.0.0.1:4420\"\n"
    );
    let text = FileText::of_own(text);
    let parsed = text.parse_again(&folder.join("weft.toml"), &SecretsRead::default());
    parsed
        .map(|(config, _)| config)
        .map_err(|told| told.to_string())
}

fn put(folder: &Path, name: &str, content: &str, mode: u32) {
    let path = folder.join(name);
    fs::write(&path, content).expect("room");
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
}

fn encryption(folder: &Path, lines: &str) -> Option<EncryptionSettings> {
    let config = parsed(folder, lines).expect(lines);
    config.volumes[0].encryption.clone()
}

fn seven() -> WrappingKey {
    WrappingKey::Key(Secret::new([7; 32]))
}

#[test]
fn volume_is_encrypted_by_what_its_files_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    assert_eq!(encryption(at, ""), None);
    put(at, "key", DIGITS, 0o600);
    put(at, "phrase", "correct horse\n", 0o600);
    let phrase = || WrappingKey::Passphrase(Secret::new(*b"correct horse"));
    let key = EncryptionSettings {
        key: Ok(seven()),
        former: None,
    };
    assert_eq!(encryption(at, "key_file = \"key\""), Some(key));
    let both = "passphrase_file = \"phrase\"\nformer_key_file = \"key\"";
    let both = encryption(at, both).expect("encrypted");
    assert_eq!((both.key, both.former), (Ok(phrase()), Some(Ok(seven()))));
}

/// Others are served.
#[test]
fn key_that_cannot_be_read_is_no_mistake_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let missing = || encryption(at, "key_file = \"key\"").expect("encrypted");
    let why = missing().key.expect_err("it is not there");
    assert!(
        why.starts_with("`key_file`: ") && why.contains("openssl rand -hex 32 > "),
        "{why}"
    );
    put(at, "key", DIGITS, 0o644);
    let why = missing().key.expect_err("all may read it");
    assert!(why.contains("`chmod 600` it"), "{why}");
}

#[test]
fn keys_that_are_none_are_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    put(at, "key", DIGITS, 0o600);
    put(at, "short", "0707", 0o600);
    let cases = [
        ("key_file = \"short\"", "a key is 64 hexadecimal digits"),
        (
            "passphrase_file = \"short\"",
            "a passphrase is one line of 8 to 1024",
        ),
        ("key_file = \"\"", "it is empty"),
        ("key_file = 7", "takes a text"),
        ("key_file = \"credential:\"", "is no name of a credential"),
        (
            "key_file = \"key\"\npassphrase_file = \"key\"",
            "contradict each other",
        ),
        (
            "former_key_file = \"key\"",
            "has a `key_file` or `passphrase_file` too",
        ),
    ];
    for (lines, part) in cases {
        let told = parsed(at, lines).expect_err(lines);
        assert!(told.contains(part), "{lines}: {told}");
    }
}

#[test]
fn key_changes_while_hosts_are_connected_and_encryption_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    put(at, "key", DIGITS, 0o600);
    put(at, "new", &DIGITS.replace('7', "8"), 0o600);
    let config = |lines: &str| parsed(at, lines).expect(lines);
    let (plain, locked) = (config(""), config("key_file = \"gone\""));
    let (old, new) = (
        config("key_file = \"key\""),
        config("key_file = \"new\"\nformer_key_file = \"key\""),
    );
    for (from, to) in [(&plain, &old), (&old, &plain), (&plain, &locked)] {
        let refused = plan(from, to).expect_err("not while it is served").concat();
        assert!(
            refused.contains("nothing but its size, keys and rates changes"),
            "{refused}"
        );
    }
    assert!(plan(&old, &old).expect("nothing").is_empty());
    let without_former = config("key_file = \"new\"");
    let steps = plan(&new, &without_former).expect("it may go");
    assert!(steps.is_empty(), "{steps:?}");
    assert!(plan(&old, &locked).expect("what was read stays").is_empty());
    let one = |from, to| {
        let steps = plan(from, to).expect("live");
        let [step] = <[_; 1]>::try_from(steps).expect("one change");
        assert!(!step.disturbs);
        (step.change, step.undo)
    };
    let set = |config: &Config| Change::SetEncryption {
        name: "a".to_owned(),
        settings: config.volumes[0].encryption.clone().expect("encrypted"),
    };
    // What is unlocked is not locked again.
    assert_eq!(one(&locked, &old), (set(&old), None));
    let (change, undo) = one(&old, &new);
    assert_eq!(change, set(&new));
    let back = EncryptionSettings {
        key: Ok(seven()),
        former: Some(new.volumes[0].encryption.clone().expect("encrypted").key),
    };
    let undone = Change::SetEncryption {
        name: "a".to_owned(),
        settings: back,
    };
    assert_eq!(undo, Some(undone));
}
