//! Keys for TLS: made, checked, and replaced while hosts are connected.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::reload::Load;
use crate::serving::{File, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

pub const NQN: &str = "nqn.2026-01.io.weft:a";
pub const HOST: &str = "nqn.2026-01.org.example:first";
const OTHER_HOST: &str = "nqn.2026-01.org.example:second";

/// What `weft key` says: with which code, and on which stream.
pub fn key(verb: &str, path: &Path, more: &[&str]) -> (Option<i32>, String) {
    let path = path.to_str().expect("UTF-8");
    let pair = ["--host", HOST, "--subsystem", NQN];
    let output = weft(&[&["key", verb, path], &pair[..], more].concat());
    let said = match output.status.success() {
        true => output.stdout,
        false => output.stderr,
    };
    (output.status.code(), text(&said))
}

/// A target that holds one host to keys, with a folder for them.
struct Keyed {
    serving: Serving,
    file: File,
    port: u16,
}

impl Keyed {
    /// With the key file `first.psk`, which is made.
    fn start() -> Keyed {
        Keyed::start_with("psk_file", &[])
    }

    /// With `first.psk` under the name of its kind, made with these options.
    fn start_with(name: &str, options: &[&str]) -> Keyed {
        let port = free_port();
        let file = file(&format!(
            "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nhosts = [\"{OTHER_HOST}\"]\nvolumes = [\"a\"]\n\
             [[nvme.subsystem.host]]\nnqn = \"{HOST}\"\n{name} = \"first.psk\"\n\
             [[listener]]\naddress = \"127.0.0.1:{port}\"\n[admin]\nsocket = \"admin.sock\"\n"
        ));
        let (code, said) = key("new", &file.path.with_file_name("first.psk"), options);
        assert_eq!(code, Some(0), "{said}");
        let serving = serve(&file.path);
        Keyed {
            serving,
            file,
            port,
        }
    }

    fn url(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{NQN}", self.port)
    }

    /// How many I/Os a host does by the first key of a file; why none.
    fn perf(&self, host: &str, keys: Option<&Path>) -> Result<(), String> {
        self.perf_by(host, "--psk-file", keys)
    }

    /// The same by a file of the kind that an option is for.
    fn perf_by(&self, host: &str, option: &str, keys: Option<&Path>) -> Result<(), String> {
        let url = self.url();
        let mut words = vec!["perf", &url, "-q", host, "--runtime", "200ms", "--json"];
        if let Some(keys) = keys {
            words.extend([option, keys.to_str().expect("UTF-8")]);
        }
        let output = weft(&words);
        match output.status.success() {
            true => Ok(()),
            false => Err(text(&output.stderr)),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.file.path.with_file_name(name)
    }
}

#[test]
fn key_is_made_for_its_owner_alone_and_both_sides_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.psk");
    let (code, said) = key("new", &path, &[]);
    assert_eq!(code, Some(0), "{said}");
    let about = fs::metadata(&path).expect("made");
    assert_eq!(about.mode() & 0o777, 0o600);
    let interchange = fs::read_to_string(&path).expect("text");
    assert!(interchange.starts_with("NVMeTLSkey-1:02:"), "{interchange}");
    assert!(
        !said.contains(interchange.trim()),
        "the key is shown: {said}"
    );
    for part in [
        "[[nvme.subsystem.host]]",
        "psk_file = ",
        "nvme check-tls-key --insert",
        "nvme keys insert-tls-psk",
        "nqn.2014-08.org.nvmexpress.discovery",
        "nvme connect -t tcp",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let odd = folder.path().join("the \"host's\" key");
    let (_, said) = key("new", &odd, &[]);
    let line = said.lines().find(|line| line.contains("psk_file"));
    let line: toml::Table = line.expect("told").trim().parse().expect("TOML");
    assert_eq!(line["psk_file"].as_str(), odd.to_str());
    let (code, said) = key("new", &path, &[]);
    assert!(
        code == Some(1) && said.contains("is there already"),
        "{said}"
    );
    let (code, said) = key("check", &path, &[]);
    assert_eq!(code, Some(0), "{said}");
    let identity = format!("NVMe1R02 {HOST} {NQN} ");
    assert_eq!(said.matches(&identity).count(), 2, "{said}");
    assert!(said.contains(&format!("NVMe0R02 {HOST} {NQN}\n")), "{said}");
    fs::write(&path, "NVMeTLSkey-1:02:AAAA:\n").expect("written");
    let (code, said) = key("check", &path, &[]);
    assert!(code == Some(1) && said.contains("line 1"), "{said}");
    let (code, said) = key("rotate", &path, &[]);
    assert!(code == Some(1) && said.contains("line 1"), "{said}");
    let output = weft(&[
        "key",
        "check",
        "x",
        "--host",
        "formless",
        "--subsystem",
        NQN,
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// As a service reads it, which is another user than the one who replaces it.
#[test]
fn rotation_keeps_owner_mode_and_links_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("host.psk"), folder.path().join("link"));
    let (code, said) = key("new", &path, &[]);
    assert_eq!(code, Some(0), "{said}");
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("ours");
    symlink(&path, &link).expect("a link");
    let about = fs::metadata(&path).expect("there");
    let (code, said) = key("rotate", &link, &[]);
    assert_eq!(code, Some(0), "{said}");
    let now = fs::metadata(&path).expect("there");
    let of = |about: &fs::Metadata| (about.uid(), about.gid(), about.mode());
    assert_eq!(of(&now), of(&about));
    let kept = fs::symlink_metadata(&link).expect("there");
    assert!(kept.is_symlink(), "the link is no file");
    let keys = fs::read_to_string(&path).expect("text");
    assert_eq!(keys.lines().count(), 2, "{keys}");
}

#[test]
fn file_that_others_may_read_or_that_a_rotation_has_left_is_told_with_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.psk");
    key("new", &path, &[]);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
    let (code, said) = key("check", &path, &[]);
    assert_eq!(code, Some(1), "{said}");
    let part = "(mode 0644); `chmod 600` it, and make another key";
    assert!(said.contains(part), "{said}");
    for mode in [0o600, 0o640] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        let is_roots = fs::metadata(&path).expect("there").uid() == 0;
        let (code, said) = key("check", &path, &[]);
        let (expected, part) = match (mode, is_roots) {
            (0o600, _) => (0, "key 1: SHA-384"),
            (_, true) => (0, "mode 0640: its group may read the key; "),
            (_, false) => (1, "error: its group may read "),
        };
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.starts_with(part), "{said}");
    }
    fs::write(folder.path().join("host.psk.new"), "").expect("room");
    let before = fs::read_to_string(&path).expect("text");
    let (code, said) = key("rotate", &path, &[]);
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "host.psk.new is left of a rotation",
        "remove it, and rotate again",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fs::read_to_string(&path).expect("text"), before);
}

#[test]
fn key_is_replaced_and_old_and_new_are_good_while_a_load_goes_on() {
    let mut keyed = Keyed::start();
    let first = keyed.path("first.psk");
    let old = keyed.path("old.psk");
    fs::copy(&first, &old).expect("a copy with its mode");
    let load = Load::start_as(
        &keyed.url(),
        &["-q", HOST, "--psk-file", old.to_str().expect("UTF-8")],
    );
    let (code, said) = key("rotate", &first, &["--grace", "1h"]);
    assert!(code == Some(0) && said.contains("good until"), "{said}");
    let about = fs::metadata(&first).expect("there");
    assert_eq!(about.mode() & 0o777, 0o600);
    // Not before the file is read again.
    let told = keyed.perf(HOST, Some(&first)).expect_err("an unknown key");
    assert!(told.contains("TLS"), "{told}");
    keyed.serving.signal("HUP");
    keyed.serving.log_line("get other terms");
    keyed.perf(HOST, Some(&first)).expect("the new key");
    keyed.perf(HOST, Some(&old)).expect("the old key");
    // No time is left to the old one.
    let (code, said) = key("rotate", &first, &["--grace", "0s"]);
    assert_eq!(code, Some(0), "{said}");
    keyed.serving.signal("HUP");
    keyed.serving.log_line("get other terms");
    keyed.perf(HOST, Some(&first)).expect("the newest key");
    assert!(keyed.perf(HOST, Some(&old)).is_err());
    let (code, said) = key("check", &first, &[]);
    let counts = ["good\n", "expired 20"].map(|state| said.matches(state).count());
    assert!(code == Some(0) && counts == [1, 2], "{said}");
    // Who was connected stays.
    load.end();
    end_in_order(keyed.serving);
}

#[test]
fn secret_is_made_for_its_owner_alone_and_both_sides_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.dhchap");
    let (code, said) = key("new", &path, &["--dhchap", "--hash", "sha512"]);
    assert_eq!(code, Some(0), "{said}");
    let secret = fs::read_to_string(&path).expect("text");
    assert!(secret.starts_with("DHHC-1:03:"), "{secret}");
    assert!(!said.contains(secret.trim()), "the secret is shown: {said}");
    for part in [
        "dhchap_secret_file = ",
        "\"dhchap_key\": \"$(head -n1 'host.dhchap')\"",
        "kxchap-secret = $(head -n1 'host.dhchap')",
        "nvme connect --config host.conf",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, said) = key("rotate", &path, &["--grace", "1h"]);
    assert!(
        code == Some(0) && said.contains("has a new secret"),
        "{said}"
    );
    let (code, said) = key("check", &path, &[]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "secret 1: sha512, good");
    assert!(
        lines[1].starts_with("secret 2: sha512, good until 20"),
        "{said}"
    );
    assert_eq!(lines.len(), 2, "{said}");
    let psk = folder.path().join("host.psk");
    let (code, said) = key("new", &psk, &["--hash", "sha512"]);
    assert!(code == Some(1) && said.contains("--hash sha384"), "{said}");
    assert!(!psk.exists());
}

#[test]
fn rotation_drops_what_has_expired_gives_nothing_more_time_and_overfills_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.key");
    let read = || fs::read_to_string(&path).expect("text");
    let soon = SystemTime::now() + Duration::from_secs(3600);
    let soon = humantime::format_rfc3339_seconds(soon);
    for options in [&[][..], &["--dhchap"]] {
        let (code, said) = key("new", &path, options);
        assert_eq!(code, Some(0), "{said}");
        let line = read().trim().to_owned();
        let over = format!("  {line} until 2026-01-01T00:00:00Z\n");
        let good = format!("{line} until {soon}\n");
        fs::write(&path, format!("{over}  {good}")).expect("written");
        let (code, said) = key("rotate", &path, &["--grace", "2d"]);
        assert_eq!(code, Some(0), "{said}");
        let lines = read();
        let (new, kept) = lines.split_once('\n').expect("two lines");
        assert!(!new.contains("until") && kept == good, "{said}");
        let full = good.repeat(8);
        fs::write(&path, &full).expect("written");
        let (code, said) = key("rotate", &path, &[]);
        assert!(code == Some(1) && said.contains("it has 9 keys"), "{said}");
        assert_eq!(read(), full);
        fs::remove_file(&path).expect("there");
    }
}

#[test]
fn secret_is_replaced_and_old_and_new_are_good_while_a_load_goes_on() {
    const OPTION: &str = "--dhchap-secret-file";
    let mut keyed = Keyed::start_with("dhchap_secret_file", &["--dhchap"]);
    let first = keyed.path("first.psk");
    let old = keyed.path("old.psk");
    fs::copy(&first, &old).expect("a copy with its mode");
    let load = Load::start_as(
        &keyed.url(),
        &["-q", HOST, OPTION, old.to_str().expect("UTF-8")],
    );
    for (grace, old_is_good) in [("1h", true), ("0s", false)] {
        let (code, said) = key("rotate", &first, &["--grace", grace]);
        assert_eq!(code, Some(0), "{said}");
        let told = keyed.perf_by(HOST, OPTION, Some(&first));
        assert!(told.is_err(), "not before the file is read again");
        keyed.serving.signal("HUP");
        keyed.serving.log_line("get other terms");
        keyed
            .perf_by(HOST, OPTION, Some(&first))
            .expect("the newest secret");
        let told = keyed.perf_by(HOST, OPTION, Some(&old));
        assert_eq!(told.is_ok(), old_is_good, "{told:?}");
    }
    let socket = keyed.path("admin.sock");
    let output = weft(&["refusals", "--at", socket.to_str().expect("UTF-8")]);
    let told = text(&output.stdout);
    assert!(told.contains("has expired: give the host"), "{told}");
    // Of this one, and of those that were not read yet.
    assert_eq!(told.matches("# the secrets are").count(), 2, "{told}");
    load.end();
    end_in_order(keyed.serving);
}

#[test]
fn host_without_its_key_is_told_why_it_is_refused() {
    let keyed = Keyed::start();
    keyed.perf(OTHER_HOST, None).expect("no key is asked of it");
    assert!(keyed.perf(HOST, None).is_err());
    let wrong = keyed.path("wrong.psk");
    let (code, said) = key("new", &wrong, &["--hash", "sha256"]);
    assert_eq!(code, Some(0), "{said}");
    let told = keyed.perf(HOST, Some(&wrong)).expect_err("another key");
    assert!(
        told.contains("alert 115, unknown_psk_identity: it knows no such"),
        "{told}"
    );
    let socket = keyed.path("admin.sock");
    let output = weft(&["refusals", "--at", socket.to_str().expect("UTF-8")]);
    let told = text(&output.stdout);
    for part in ["nvme connect --tls", "no host has the TLS identity", HOST] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let output = weft(&["dump", "--at", socket.to_str().expect("UTF-8")]);
    let interchange = fs::read_to_string(keyed.path("first.psk")).expect("text");
    let dumped = text(&output.stdout);
    assert!(
        dumped.contains("psk_file") && !dumped.contains(interchange.trim()),
        "{dumped}"
    );
    end_in_order(keyed.serving);
}
