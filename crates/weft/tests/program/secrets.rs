//! Where keys and secrets come from, and what becomes of hosts when a place has none any more.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::admin::{Admin, with_socket};
use crate::serving::{File, Serving, file, free_port, good, serve, serve_by, text, weft};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:a";
const HOST: &str = "nqn.2026-01.org.example:first";
const OTHER_HOST: &str = "nqn.2026-01.org.example:second";

/// A configuration whose host has its key in `place`, at a port; `more` of the listener.
fn config(port: u16, place: &str, more: &str) -> File {
    file(&format!(
        "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nhosts = [\"{OTHER_HOST}\"]\nvolumes = [\"a\"]\n\
         [[nvme.subsystem.host]]\nnqn = \"{HOST}\"\npsk_file = \"{place}\"\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n{more}[admin]\nsocket = \"admin.sock\"\n"
    ))
}

fn make_key(path: &Path) {
    let path = path.to_str().expect("UTF-8");
    let output = weft(&["key", "new", path, "--host", HOST, "--subsystem", NQN]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A program with these credentials of a service manager, or without any.
fn with_credentials(folder: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    match folder {
        Some(folder) => command.env("CREDENTIALS_DIRECTORY", folder),
        None => command.env_remove("CREDENTIALS_DIRECTORY"),
    };
    command
}

fn check(config: &Path, credentials: Option<&Path>) -> Output {
    let mut command = with_credentials(credentials);
    let output = command.args(["check", "-c"]).arg(config).output();
    output.expect("weft starts")
}

fn ask(config: &Path, arguments: &[&str]) -> Output {
    let socket = config.with_file_name("admin.sock");
    weft(&[arguments, &["--at", socket.to_str().expect("UTF-8")]].concat())
}

#[track_caller]
fn expect_done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn expect_parts(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{part}: {told}");
    }
}

fn perf(port: u16, keys: &Path) -> Output {
    let url = format!("nvme-tcp://127.0.0.1:{port}/{NQN}");
    let keys = keys.to_str().expect("UTF-8");
    weft(&[
        "perf",
        &url,
        "-q",
        HOST,
        "--psk-file",
        keys,
        "--runtime",
        "200ms",
    ])
}

#[test]
fn key_file_that_is_missing_at_the_start_is_told_with_its_host_and_its_remedy() {
    let file = config(free_port(), "first.psk", "");
    let output = check(&file.path, None);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stdout) + &text(&output.stderr);
    let path = file.path.with_file_name("first.psk");
    let remedy = format!(
        "`weft key new {} --host {HOST} --subsystem {NQN}` makes one",
        path.display()
    );
    expect_parts(&told, &["first.psk cannot be read", &remedy]);
    assert_eq!(told.matches("`psk_file`").count(), 1, "{told}");
}

#[test]
fn key_file_that_is_gone_holds_up_no_change_and_its_key_stays_good() {
    let port = free_port();
    let file = config(port, "first.psk", "");
    let [path, old] = ["first.psk", "old.psk"].map(|name| file.path.with_file_name(name));
    make_key(&path);
    fs::copy(&path, &old).expect("a copy with its mode");
    let mut serving = serve_by(with_credentials(None), &file.path, Stdio::piped());
    expect_done(&perf(port, &old));
    fs::remove_file(&path).expect("ours");
    // A file of keys that has changed is told, though the document is as it was.
    let text_file = file.path.to_str().expect("UTF-8");
    for verb in ["diff", "apply"] {
        let told = expect_done(&ask(&file.path, &[verb, "-c", text_file]));
        let parts = ["NOT READ: ", "first.psk cannot be read", "nothing to do"];
        expect_parts(&told, &parts);
    }
    expect_done(&ask(&file.path, &["set", "volume", "a", "size=16MiB"]));
    serving.log_line("What was read before stays good");
    let status = expect_done(&ask(&file.path, &["status"]));
    expect_parts(&status, &["first.psk cannot be read", "`weft key new "]);
    expect_done(&perf(port, &old));
    // A change that names a file anew needs it.
    let set = ["set", "subsystem/host", NQN, HOST, "psk_file=none.psk"];
    let refused = ask(&file.path, &set);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    expect_parts(&told, &["none.psk cannot be read", "`weft key new "]);
    assert_eq!(told.matches("`psk_file`").count(), 1, "{told}");
    // The next look finds it again.
    fs::copy(&old, &path).expect("a copy");
    serving.signal("HUP");
    serving.log_line("reloaded");
    let status = expect_done(&ask(&file.path, &["status"]));
    assert!(!status.contains("cannot be read"), "{status}");
    expect_done(&perf(port, &old));
    end_in_order(serving);
}

#[test]
fn key_comes_from_a_credential_of_the_service_manager() {
    let port = free_port();
    let file = config(port, "credential:first", "");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("first");
    let told = text(&check(&file.path, None).stderr);
    expect_parts(
        &told,
        &[
            "has no credential first",
            "to the service alone",
            "LoadCredential=first:FILE",
        ],
    );
    let told = text(&check(&file.path, Some(folder.path())).stderr);
    expect_parts(
        &told,
        &[
            "has no credential first",
            "LoadCredential=first:FILE",
            "weft key new",
        ],
    );
    make_key(&key);
    let command = with_credentials(Some(folder.path()));
    let serving = serve_by(command, &file.path, Stdio::piped());
    expect_done(&perf(port, &key));
    // The same text of another folder still means the credential.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let copy = elsewhere.path().join("copy.toml");
    fs::copy(&file.path, &copy).expect("a copy");
    expect_done(&ask(
        &file.path,
        &["apply", "-c", copy.to_str().expect("UTF-8")],
    ));
    let dumped = expect_done(&ask(&file.path, &["dump"]));
    expect_parts(&dumped, &["\"credential:first\""]);
    expect_unknown(&serving, &key, &dumped);
    end_in_order(serving);
}

/// No key is in the arguments of a process, in what it has shown or in `dumped`.
fn expect_unknown(serving: &Serving, key: &Path, dumped: &str) {
    let line = fs::read_to_string(key).expect("text");
    let key = line.trim();
    let of_process = |name: &str| {
        let path = format!("/proc/{}/{name}", serving.child.id());
        text(&fs::read(path).expect("our child"))
    };
    let words = of_process("cmdline");
    // Nothing of its memory is in a core dump: headers of its own files are.
    assert_eq!(of_process("coredump_filter").trim(), "00000010");
    for shown in [&*words, &serving.shown, dumped] {
        assert!(!shown.contains(key), "{shown}");
    }
}

#[test]
fn core_dump_of_an_initiator_has_nothing_of_its_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("first.psk");
    make_key(&key);
    let key = key.to_str().expect("UTF-8");
    // It waits for an answer that never comes.
    let target = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = target.local_addr().expect("bound").to_string();
    let url = format!("nvme-tcp://{address}/{NQN}");
    for (command, place) in [("perf", &url), ("discover", &address)] {
        let words = [command, place, "--hostnqn", HOST, "--psk-file", key];
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let mut weft = weft.spawn().expect("weft starts");
        let accepted = target.accept().expect("it connects");
        let filter = fs::read_to_string(format!("/proc/{}/coredump_filter", weft.id()));
        assert_eq!(filter.expect("our child").trim(), "00000010", "{command}");
        weft.kill().expect("our child");
        weft.wait().expect("our child");
        drop(accepted);
    }
}

#[test]
fn hosts_are_told_to_speak_tls_where_they_must_and_a_closed_listener_is_noted() {
    let required = "tls = \"required\"\n";
    let file = config(free_port(), "first.psk", required);
    make_key(&file.path.with_file_name("first.psk"));
    let serving = serve_by(with_credentials(None), &file.path, Stdio::piped());
    expect_parts(
        &serving.shown,
        &[
            "nvme discover -t tcp -a 127.0.0.1 -s",
            " --tls\n",
            "--psk-file host.psk",
        ],
    );
    assert!(
        !serving.shown.contains("no host can connect"),
        "{}",
        serving.shown
    );
    end_in_order(serving);
    let text_of = fs::read_to_string(&file.path).expect("text");
    fs::write(&file.path, text_of.replace("psk_file", "# psk_file")).expect("room");
    let told = expect_done(&check(&file.path, None));
    expect_parts(
        &told,
        &["note: no host can connect at 127.0.0.1:", "weft key new"],
    );
}

/// A secret in the form of DH-HMAC-CHAP, and one of CHAP.
const DHCHAP: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CHAP: &str = "what finders know";

/// A weft whose configuration holds secrets and the digest of a token itself.
fn with_secrets_inside() -> (Admin, String) {
    let port = free_port();
    let good = good(port);
    let text = format!(
        "{good}[[nvme.subsystem.host]]\nnqn = \"{HOST}\"\ndhchap_secret = \"{DHCHAP}\" # by hand\n\
         [iscsi.discovery]\nchap = {{ user = \"finder\", secret = '{CHAP}' }}\n\
         [[admin.token]]\nname = \"ci\"\nrole = \"viewer\"\nsha256 = \"{}\"\n",
        "a".repeat(64)
    );
    let (served, private) = (with_socket(&text), PermissionsExt::from_mode(0o600));
    let file = file(&served);
    fs::set_permissions(&file.path, private).expect("ours");
    (Admin::of(serve(&file.path), file, port), served)
}

#[test]
fn configuration_is_shown_without_the_secrets_in_it_and_is_applied_with_them() {
    let (admin, served) = with_secrets_inside();
    let shown = |arguments: &[&str]| {
        let told = expect_done(&admin.ask(arguments));
        for secret in [DHCHAP, CHAP, &"a".repeat(64)] {
            assert!(!told.contains(secret), "{arguments:?}: {told}");
        }
        told
    };
    let dumped = shown(&["dump"]);
    let secrets = [DHCHAP, &"a".repeat(64)].map(|secret| format!("\"{secret}\""));
    let left = [&*secrets[0], &secrets[1], &format!("'{CHAP}'")];
    let expected = left.iter().fold(served.clone(), |text, secret| {
        text.replace(secret, "\"(set)\"")
    });
    assert_eq!(dumped, expected);
    assert_eq!(shown(&["history", "1"]), dumped);
    shown(&["dump", "--json"]);
    shown(&["get"]);
    for path in ["/v1/config", "/v1/config/history/1"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: weft\r\n\r\n");
        let answer = admin.exchange(request.as_bytes());
        assert!(
            answer.contains("(set)") && !answer.contains(CHAP),
            "{answer}"
        );
    }
    // What is shown comes back, changed elsewhere, and the file keeps its secrets.
    let copy = admin.file.path.with_file_name("copy.toml");
    let copied = copy.to_str().expect("UTF-8");
    fs::write(&copy, &dumped).expect("room");
    let same = expect_done(&admin.ask(&["diff", "-c", copied]));
    assert_eq!(same, "nothing to do\n");
    fs::write(&copy, dumped + "# more\n").expect("room");
    expect_done(&admin.ask(&["apply", "-c", copied]));
    let now = fs::read_to_string(&admin.file.path).expect("text");
    assert_eq!(now, served + "# more\n");
    // A secret of an earlier generation that is another now is no secret of this one.
    fs::write(&copy, now.replace(CHAP, "what finders know now")).expect("room");
    expect_done(&admin.ask(&["apply", "-c", copied]));
    fs::write(&copy, shown(&["history", "1"])).expect("room");
    let refused = admin.ask(&["diff", "-c", copied]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    expect_parts(
        &told,
        &["`secret`: \"(set, another)\"", "write the secret itself"],
    );
    end_in_order(admin.serving);
}

#[test]
fn file_that_was_written_by_a_dump_does_not_load_and_gets_its_secrets_by_apply() {
    let (admin, served) = with_secrets_inside();
    let path = admin.file.path.to_str().expect("UTF-8");
    fs::write(path, expect_done(&admin.ask(&["dump"]))).expect("room");
    let told = text(&check(&admin.file.path, None).stderr);
    for key in ["dhchap_secret", "secret", "sha256"] {
        expect_parts(&told, &[&format!("`{key}`: \"(set)\" is what weft shows")]);
    }
    expect_done(&admin.ask(&["apply", "-c", path]));
    assert_eq!(fs::read_to_string(path).expect("text"), served);
    let told = check(&admin.file.path, None);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    end_in_order(admin.serving);
}
