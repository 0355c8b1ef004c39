//! Single objects of the document, added, changed and removed.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::admin::Admin;
use crate::serving::{free_port, text};
use crate::told::{end_in_order, is_served};

const NQN: &str = "nqn.2026-01.io.weft:cli";

/// A command that ends well; what it prints.
#[track_caller]
fn done(admin: &Admin, arguments: &[&str]) -> String {
    let output = admin.ask(arguments);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
    text(&output.stdout)
}

/// One that is refused, with these parts of what it says.
#[track_caller]
fn refused(admin: &Admin, arguments: &[&str], code: i32, parts: &[&str]) {
    let output = admin.ask(arguments);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
    for part in parts {
        assert!(
            told.contains(part),
            "{arguments:?}: {part:?} is not in:\n{told}"
        );
    }
}

#[test]
fn objects_are_added_changed_and_removed_in_the_file_with_its_comments() {
    let admin = Admin::start();
    let path = admin.file.path.clone();
    let first = format!(
        "# The first line.\n{}",
        fs::read_to_string(&path).expect("there")
    );
    fs::write(&path, &first).expect("ours");
    done(&admin, &["apply", "-c", path.to_str().expect("UTF-8")]);
    let disk = ["kind=file", "path=disk1.img", "size=8MiB"];
    let add = [&["add", "volume", "disk1"][..], &disk].concat();
    let shown = done(&admin, &[&add[..], &["--dry-run"]].concat());
    assert!(shown.contains("  volume \"disk1\" is added\n"), "{shown}");
    assert_eq!(fs::read_to_string(&path).expect("there"), first);
    let shown = done(&admin, &add);
    assert!(
        shown.contains("changes made: 1; generation 3, in "),
        "{shown}"
    );
    assert!(path.with_file_name("disk1.img").exists());
    done(
        &admin,
        &["add", "subsystem/namespace", NQN, "2", "volume=disk1"],
    );
    done(
        &admin,
        &[
            "set",
            "volume",
            "disk1",
            "size=9MiB",
            "--if-generation",
            "4",
        ],
    );
    let shown = done(&admin, &["get", "volume", "disk1"]);
    assert_eq!(shown.lines().next(), Some("volume/disk1"));
    assert!(shown.contains("  size = \"9MiB\"\n"), "{shown}");
    let shown = done(&admin, &["get", "subsystem/namespace", NQN, "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["objects"][1]["fields"]["volume"], "disk1");
    assert_eq!(shown["objects"][1]["names"][1], "2");
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    done(&admin, &["add", "listener", &address]);
    assert!(is_served(&crate::admin::connect(port).expect("it listens")));
    refused(
        &admin,
        &["rm", "listener", &address],
        1,
        &["--disconnect does it"],
    );
    done(&admin, &["rm", "listener", &address, "--disconnect"]);
    refused(
        &admin,
        &["rm", "volume", "disk1"],
        2,
        &["volume/disk1", "namespace/2"],
    );
    done(
        &admin,
        &["rm", "subsystem/namespace", NQN, "2", "--disconnect"],
    );
    done(&admin, &["rm", "volume", "disk1"]);
    assert_eq!(fs::read_to_string(&path).expect("there"), first);
    let shown = done(&admin, &["audit"]);
    assert!(shown.contains(" set volume/disk1\n"), "{shown}");
    end_in_order(admin.serving);
}

#[test]
fn subsystem_and_target_without_volumes_are_served_and_get_theirs_later() {
    let admin = Admin::start();
    let (nqn, iqn) = ("nqn.2026-01.io.weft:empty", "iqn.2026-01.io.weft:empty");
    let address = format!("127.0.0.1:{}", free_port());
    done(&admin, &["add", "listener", &address, "protocol=iscsi"]);
    done(&admin, &["add", "subsystem", nqn, "allow_any_host=true"]);
    done(&admin, &["add", "target", iqn, "allow_any_initiator=true"]);
    assert_eq!(admin.status()["subsystems"], 2);
    assert_eq!(admin.status()["targets"], 1);
    done(
        &admin,
        &["add", "subsystem/namespace", nqn, "1", "volume=disk0"],
    );
    done(&admin, &["add", "target/lun", iqn, "0", "volume=disk0"]);
    let shown = done(&admin, &["get", "target/lun", iqn]);
    assert!(shown.contains("volume = \"disk0\""), "{shown}");
    refused(
        &admin,
        &["add", "subsystem", "nqn.2026-01.io.weft:none"],
        2,
        &["allow_any_host"],
    );
    end_in_order(admin.serving);
}

#[test]
fn mistake_in_an_object_is_told_with_object_and_field() {
    let admin = Admin::start();
    let before = fs::read(&admin.file.path).expect("there");
    for (words, parts) in [
        (&["add", "volum", "a"][..], &["volum", "`volume`"][..]),
        (
            &["set", "volume", "disk9", "size=1MiB"],
            &["disk9", "disk0"],
        ),
        (
            &["add", "volume", "disk0", "kind=null", "size=1MiB"],
            &["volume/disk0"],
        ),
        (&["set", "volume", "disk0", "siz=1MiB"], &["`siz`", "size"]),
        (
            &["set", "volume", "disk0", "size=much"],
            &["volume/disk0", "size", "much"],
        ),
        (
            &["set", "volume", "disk0", "block_bytes=3"],
            &["volume/disk0", "block_bytes"],
        ),
        (
            &["set", "volume", "disk0", "size=true"],
            &["volume/disk0", "size"],
        ),
        (&["add", "volume", "a", "kind=null"], &["volume/a", "size"]),
        (
            &["add", "subsystem/namespace", NQN, "x", "volume=disk0"],
            &["nsid"],
        ),
        (
            &["add", "subsystem/namespace", NQN, "2", "volume=none"],
            &["none"],
        ),
        (&["rm", "volume"], &["names"]),
        (
            &["set", "volume", "disk0", "size=1MiB", "size=2MiB"],
            &["given twice"],
        ),
        (
            &["set", "volume", "disk0", "size=1MiB", "late"],
            &["late is no KEY=VALUE"],
        ),
    ] {
        refused(&admin, words, 2, parts);
    }
    refused(&admin, &["get", "volum"], 1, &["there is no kind volum"]);
    refused(
        &admin,
        &["get", "volume", "disk9"],
        1,
        &["there is no volume/disk9"],
    );
    refused(
        &admin,
        &["set", "volume", "disk0", "read_only=true"],
        1,
        &["nothing but its size, keys and rates changes while it is served"],
    );
    for (request, body, status) in [
        ("POST /v1/objects/volume/a", "[]", 400),
        (
            "POST /v1/objects/volume/a",
            "{\"kind\":\"null\",\"size\":\"1MiB\",\"size\":\"2MiB\"}",
            400,
        ),
        ("POST /v1/objects/volume/%zz", "{}", 400),
        ("POST /v1/objects/volume/%+1", "{}", 400),
        ("POST /v1/objects/volume/%ff", "{}", 400),
        (
            "POST /v1/objects/volume/..%2f..%2fetc",
            "{\"kind\":\"file\"}",
            422,
        ),
        (
            "POST /v1/objects/volume/a%00",
            "{\"kind\":\"null\",\"size\":1}",
            422,
        ),
        (
            "POST /v1/objects/volume/",
            "{\"kind\":\"null\",\"size\":\"1MiB\"}",
            422,
        ),
        ("POST /v1/objects", "{}", 405),
        ("PUT /v1/objects/volume/a", "{}", 405),
        ("DELETE /v1/objects/volume/disk0", "", 422),
        ("PATCH /v1/objects/volume/disk0?force=1", "{}", 400),
    ] {
        let answer = admin.send(request, "", body.as_bytes());
        let status = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&status), "{request} {body}: {answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    assert_eq!(fs::read(&admin.file.path).expect("there"), before);
    assert_eq!(admin.status()["document"]["generation"], 1);
    end_in_order(admin.serving);
}

/// A secret in the form of DH-HMAC-CHAP.
const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

#[test]
fn secret_among_the_arguments_is_refused_and_one_of_standard_input_is_set() {
    let admin = Admin::start();
    fs::set_permissions(&admin.file.path, Permissions::from_mode(0o600)).expect("ours");
    let host = "nqn.2026-01.org.example:h";
    let add = ["add", "subsystem/host", NQN, host];
    let shown = format!("dhchap_secret={SECRET}");
    let parts = [
        "sees the arguments",
        "`dhchap_secret=-`",
        "`dhchap_secret_file=PATH`",
    ];
    refused(&admin, &[&add[..], &[&shown]].concat(), 2, &parts);
    let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
    weft.args(add).args(["dhchap_secret=-", "--at"]);
    weft.arg(admin.file.path.with_file_name("admin.sock"));
    weft.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut weft = weft.spawn().expect("it starts");
    let mut input = weft.stdin.take().expect("piped");
    input
        .write_all(format!("{SECRET}\n").as_bytes())
        .expect("it reads");
    drop(input);
    assert!(weft.wait().expect("our child").success());
    let now = fs::read_to_string(&admin.file.path).expect("there");
    assert!(
        now.contains(&format!("dhchap_secret = \"{SECRET}\"")),
        "{now}"
    );
    end_in_order(admin.serving);
}
