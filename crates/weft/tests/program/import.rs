//! `weft import`: what it prints, where secrets go, and its exit codes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::serving::{text as text_of, weft};

/// A target with CHAP, for an initiator of that secret.
fn saved(secret: &str) -> String {
    format!(
        r#"{{
  "storage_objects": [
    {{"name": "ram", "plugin": "ramdisk", "size": 1048576,
      "attributes": {{"block_size": 512}}, "wwn": "ab123456-7012-3456-789a-bcdef0123456"}}
  ],
  "targets": [{{"fabric": "iscsi", "wwn": "iqn.2026-01.org.example:ram", "tpgs": [{{
    "enable": true, "attributes": {{"authentication": 1}},
    "luns": [{{"index": 0, "storage_object": "/backstores/ramdisk/ram"}}],
    "node_acls": [{{"node_wwn": "iqn.2026-01.org.example:host", "chap_userid": "alice",
                    "chap_password": "{secret}",
                    "mapped_luns": [{{"index": 0, "tpg_lun": 0, "write_protect": false}}]}}],
    "portals": [{{"ip_address": "127.0.0.1", "port": 3260}}]}}]}}]
}}"#
    )
}

#[test]
fn an_imported_configuration_passes_the_check_and_shows_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("saveconfig.json");
    fs::write(&source, saved("alice-secret-1")).expect("written");
    let source = source.to_str().expect("UTF-8");
    let told = weft(&["import", "targetcli", source]);
    assert_eq!(told.status.code(), Some(0), "{}", text_of(&told.stderr));
    assert!(text_of(&told.stderr).contains("the secret of alice is not written"));
    let secrets = folder.path().join("weft");
    let shown = secrets.to_str().expect("UTF-8");
    let made = weft(&["import", "targetcli", source, "--secrets", shown]);
    assert_eq!(made.status.code(), Some(0), "{}", text_of(&made.stderr));
    let (document, report) = (text_of(&made.stdout), text_of(&made.stderr));
    assert!(!document.contains("alice-secret-1") && !report.contains("alice-secret-1"));
    let file = secrets.join("iqn.2026-01.org.example-ram-iqn.2026-01.org.example-host.chap.secret");
    let about = fs::metadata(&file).unwrap_or_else(|error| panic!("{error}: {document}"));
    assert_eq!(about.mode() & 0o777, 0o600);
    let config = secrets.join("weft.toml");
    fs::write(&config, &document).expect("written");
    let checked = weft(&["check", "-c", config.to_str().expect("UTF-8")]);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{}",
        text_of(&checked.stderr)
    );
    // A secret that is there is not written over.
    let again = weft(&["import", "targetcli", source, "--secrets", shown]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text_of(&again.stderr).contains("cannot be written"));
}

#[test]
fn the_exit_code_says_that_rights_are_others_or_the_file_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("saveconfig.json");
    fs::write(&source, saved("short")).expect("written");
    let shown = source.to_str().expect("UTF-8");
    let told = weft(&["import", "targetcli", shown]);
    assert_eq!(told.status.code(), Some(4));
    assert!(
        text_of(&told.stderr).contains("ACCESS: secret:"),
        "{}",
        text_of(&told.stderr)
    );
    let told = weft(&["import", "nvmetcli", shown]);
    assert_eq!((told.status.code(), told.stdout.len()), (Some(2), 0));
    assert!(text_of(&told.stderr).contains("this is no file of nvmetcli"));
    let told = weft(&["import", "ini", shown]);
    assert_eq!(told.status.code(), Some(2));
    assert!(
        text_of(&told.stderr).contains("nvmetcli"),
        "the formats are named"
    );
    let told = weft(&["import", "nvmetcli", "/no/such/file"]);
    assert_eq!(told.status.code(), Some(2));
    let told = weft(&["import", "nvmetcli", "/dev/zero"]);
    assert!(text_of(&told.stderr).contains("it is no file"));
    // A file of 1 GiB, of which nothing is stored.
    let large = File::create(&source).expect("a file");
    large.set_len(1 << 30).expect("sparse");
    let told = weft(&["import", "targetcli", shown]);
    assert_eq!(told.status.code(), Some(2));
    assert!(
        text_of(&told.stderr).contains("more than 16 MiB"),
        "{}",
        text_of(&told.stderr)
    );
}

#[test]
fn there_is_a_way_back_and_a_live_kernel_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, config) = (
        folder.path().join("a.json"),
        folder.path().join("weft.toml"),
    );
    let text = saved("alice-secret-1").replace(r#""authentication": 1"#, r#""authentication": 0"#);
    fs::write(&source, &text).expect("written");
    let made = weft(&["import", "targetcli", source.to_str().expect("UTF-8")]);
    assert_eq!(made.status.code(), Some(0), "{}", text_of(&made.stderr));
    fs::write(&config, &made.stdout).expect("written");
    let config = config.to_str().expect("UTF-8");
    let back = weft(&["import", "--back", "targetcli", config]);
    assert_eq!(back.status.code(), Some(0), "{}", text_of(&back.stderr));
    assert!(text_of(&back.stdout).contains("ab123456-7012-3456-789a-bcdef0123456"));
    fs::write(&source, &back.stdout).expect("written");
    let again = weft(&["import", "targetcli", source.to_str().expect("UTF-8")]);
    let plain = |text: String| -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or("").to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(plain(text_of(&again.stdout)), plain(text_of(&made.stdout)));
    assert_eq!(
        weft(&["import", "--back", "tgt", config]).status.code(),
        Some(2)
    );
    // configfs below a folder.
    let nvmet = folder.path().join("nvmet");
    let subsystem = nvmet.join("subsystems/nqn.2026-01.org.example:live");
    let (namespace, port) = (subsystem.join("namespaces/1"), nvmet.join("ports/1"));
    for made in [
        &namespace,
        &port.join("subsystems/nqn.2026-01.org.example:live"),
    ] {
        fs::create_dir_all(made).expect("a folder");
    }
    let disk = folder.path().join("disk.img");
    File::create(&disk)
        .and_then(|file| file.set_len(1 << 20))
        .expect("a file");
    for (path, text) in [
        (subsystem.join("attr_allow_any_host"), "1"),
        (subsystem.join("attr_serial"), "live"),
        (namespace.join("device_path"), disk.to_str().expect("UTF-8")),
        (namespace.join("enable"), "1"),
        (port.join("addr_traddr"), "127.0.0.1"),
        (port.join("addr_trsvcid"), "4420"),
        (port.join("addr_trtype"), "tcp"),
    ] {
        fs::write(path, format!("{text}\n")).expect("written");
    }
    let below = folder.path().to_str().expect("UTF-8");
    let live = weft(&["import", "--live", "nvmet", "--configfs", below]);
    assert_eq!(live.status.code(), Some(0), "{}", text_of(&live.stderr));
    let document = text_of(&live.stdout);
    assert!(
        document.contains("size = \"1MiB\"  # as long as the file is now"),
        "{document}"
    );
    let gone = weft(&["import", "--live", "nvmet", "--configfs", "/no/such/folder"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(text_of(&gone.stderr).contains("is configfs mounted"));
}
