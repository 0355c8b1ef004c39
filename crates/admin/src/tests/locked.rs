//! Volumes whose key cannot be read.

use super::*;

const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

#[test]
fn volume_that_is_locked_is_told_until_its_key_is_there() {
    let (folder, file) = folder();
    let text = text(&["a"]).replace("name = \"a\"", "name = \"a\"\nkey_file = \"key\"");
    fs::write(&file, &text).expect("room");
    let target = Target::start(Some(&file), "");
    let warnings = || target.served.status().warnings.join("\n");
    let unread = "volume \"a\": `key_file`: ";
    for text in [
        warnings(),
        target.put(&text).expect("it may").not_read.concat(),
    ] {
        assert!(
            text.contains(unread) && text.contains("openssl rand"),
            "{text}"
        );
    }
    assert!(
        warnings().contains("volume \"a\" is locked"),
        "{}",
        warnings()
    );
    let key = folder.path().join("key");
    fs::write(&key, KEY).expect("room");
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("ours");
    target.served.reload();
    assert_eq!(warnings(), "");
    // It goes by the key that was read until weft ends.
    fs::remove_file(&key).expect("ours");
    target.served.reload();
    assert!(warnings().contains(unread), "{}", warnings());
    assert!(!warnings().contains("is locked"), "{}", warnings());
    target.end();
}
