//! What was refused, as an administrator asks for it, and the configuration that lets it in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serving::{File, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:cli";
const IQN: &str = "iqn.2026-01.io.weft:cli";
const CHAP_IQN: &str = "iqn.2026-01.io.weft:chap";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf7";
const INITIATOR: &str = "iqn.2026-01.io.weft:initiator";

/// How long a refusal may take until it is told, and a target until it says so.
const PATIENCE: Duration = Duration::from_secs(30);

/// A target with lists that name none of this test's hosts.
struct Closed {
    serving: Serving,
    file: File,
    text: String,
    nvme: u16,
    iscsi: u16,
    nfs: u16,
}

fn closed() -> Closed {
    let (nvme, iscsi, nfs) = (free_port(), free_port(), free_port());
    let text = format!(
        "[[volume]]\nname = \"disk{{0..1}}\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nvolumes = [\"disk0\"]\n\
         hosts = [\"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"]\n\
         [[iscsi.target]]\nname = \"{IQN}\"\nvolumes = [\"disk0\"]\n\
         initiators = [\"iqn.1993-08.org.debian:01:ab12cd34ef56\"]\n\
         [[iscsi.target]]\nname = \"{CHAP_IQN}\"\nvolumes = [\"disk1\"]\n\
         allow_any_initiator = true\nchap = {{ user = \"alice\", secret_file = \"alice\" }}\n\
         [[file_system]]\nname = \"m{{0..1}}\"\nkind = \"mem\"\nsize = \"4MiB\"\n\
         [[export]]\npath = \"/three\"\nfile_system = \"m0\"\nclients = [\"192.0.2.1\"]\n\
         [[export]]\npath = \"/four\"\nfile_system = \"m1\"\nclients = [\"192.0.2.1\"]\n\
         [[listener]]\naddress = \"127.0.0.1:{nvme}\"\n\
         [[listener]]\naddress = \"127.0.0.1:{iscsi}\"\nprotocol = \"iscsi\"\n\
         [[listener]]\naddress = \"127.0.0.1:{nfs}\"\nprotocol = \"nfs\"\n\
         [policy]\nmemory_max = \"1GiB\"\n[admin]\nsocket = \"admin.sock\"\n"
    );
    let file = file(&text);
    secret(&file, "alice", "correct horse\n");
    Closed {
        serving: serve(&file.path),
        file,
        text,
        nvme,
        iscsi,
        nfs,
    }
}

fn secret(file: &File, name: &str, text: &str) -> String {
    let path = file.path.with_file_name(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
    utf8(&path)
}

fn utf8(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

impl Closed {
    fn ask(&self, arguments: &[&str]) -> String {
        let socket = utf8(&self.file.path.with_file_name("admin.sock"));
        let output = weft(&[arguments, &["--at", &socket]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refusals(&self) -> Vec<Value> {
        let told = self.ask(&["refusals", "--json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        told["refusals"].as_array().expect("a list").clone()
    }

    /// The one about a target, when it has happened so often.
    fn refusal(&self, target: &str, count: u64) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = self.refusals();
            let about: Vec<_> = all.iter().filter(|one| one["target"] == target).collect();
            match about[..] {
                [one] if one["count"] == count => return one.clone(),
                _ => assert!(Instant::now() < deadline, "{target}: {all:#?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn perf(&self, url: &str, more: &[&str]) -> Output {
        let run = ["--runtime", "100ms", "--ramp-time", "0"];
        weft(&[&["perf", url][..], &run, more].concat())
    }

    fn connect(&self) -> Output {
        let url = format!("nvme-tcp://127.0.0.1:{}/{NQN}", self.nvme);
        self.perf(&url, &["--hostnqn", HOST])
    }

    fn log_in(&self, target: &str, more: &[&str]) -> Output {
        let url = format!("iscsi://127.0.0.1:{}/{target}/0", self.iscsi);
        self.perf(&url, &[&["--initiator", INITIATOR], more].concat())
    }

    fn mount_4(&self) -> Output {
        weft(&["discover", &format!("nfs://127.0.0.1:{}/four", self.nfs)])
    }

    /// What MNT of MOUNT 3 is answered (RFC 1813, section 5.2.1).
    fn mount_3(&self, path: &str) -> u32 {
        let word = |number: u32| number.to_be_bytes().to_vec();
        let string = |text: &str| {
            let mut bytes = [word(text.len() as u32), text.as_bytes().to_vec()].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        // xid, CALL, RPC 2, MOUNT 3, MNT.
        let head = [7, 0, 2, 100_005, 3, 1].map(word).concat();
        // AUTH_SYS: stamp, machine, user and groups of root.
        let sys = [word(0), string("test"), [0, 0, 0].map(word).concat()].concat();
        let credential = [word(1), word(sys.len() as u32), sys, word(0), word(0)].concat();
        let call = [head, credential, string(path)].concat();
        let mark = word(1 << 31 | call.len() as u32);
        let mut stream = TcpStream::connect(("127.0.0.1", self.nfs)).expect("it listens");
        stream.write_all(&[mark, call].concat()).expect("it reads");
        // Mark, xid, REPLY, accepted, no verifier, success, status.
        let mut answer = [0; 32];
        stream.read_exact(&mut answer).expect("an answer");
        u32::from_be_bytes(answer[28..].try_into().expect("four"))
    }

    /// Puts what `allow` says where its comment says.
    fn paste(&mut self, refused: &Value) {
        let allow = refused["allow"].as_str().expect("lines");
        let (comment, lines) = allow.split_once('\n').expect("a comment");
        let place = comment.split_once("]] ").expect("a table").1;
        let at = self.text.find(place.trim_end_matches(':')).expect(comment);
        let end = at + self.text[at..].find("\n[").expect("a table follows") + 1;
        let mut table = self.text[at..end].to_owned();
        if comment.starts_with("# in ") {
            let key = lines.split('[').next().expect("a key");
            let old = table.lines().find(|line| line.starts_with(key));
            table = table.replace(&format!("{}\n", old.expect(key)), "");
        }
        self.text
            .replace_range(at..end, &format!("{table}{allow}\n"));
    }

    /// Lets in what was refused, by what `allow` says and nothing else.
    fn let_in(&mut self, refused: &Value) {
        self.paste(refused);
        std::fs::write(&self.file.path, &self.text).expect("room");
        let told = self.ask(&["apply", "-c", &utf8(&self.file.path)]);
        assert!(told.contains("changes made: 1; generation "), "{told}");
        let now = self.refusal(refused["target"].as_str().expect("named"), 3);
        assert_eq!(now["allow"], Value::Null, "it is let in by now");
    }
}

const ACCESS_DENIED: u32 = 13;

#[test]
fn refusal_is_told_once_with_its_count_and_what_lets_the_peer_in() {
    let mut target = closed();
    let told = target.ask(&["refusals"]);
    assert_eq!(told, "nothing was refused since weft was started\n");
    let status = target.ask(&["status"]);
    assert!(!status.contains("refused "), "{status}");
    for _ in 0..3 {
        for output in [target.connect(), target.log_in(IQN, &[]), target.mount_4()] {
            assert_ne!(output.status.code(), Some(0), "{}", text(&output.stdout));
        }
        assert_eq!(target.mount_3("/three"), ACCESS_DENIED);
    }
    let shown = |refused: &Value| {
        let part = |key: &str| refused[key].as_str().unwrap_or("-").to_owned();
        (part("kind"), part("host"), part("address"))
    };
    let local = "127.0.0.1".to_owned();
    let connect = target.refusal(NQN, 3);
    let expected = ("Connect refused".to_owned(), HOST.to_owned(), local.clone());
    assert_eq!(shown(&connect), expected);
    let login = target.refusal(IQN, 3);
    let expected = (
        "login refused".to_owned(),
        INITIATOR.to_owned(),
        local.clone(),
    );
    assert_eq!(shown(&login), expected);
    // Of version 4, what no export lets in does not come to say what it wants.
    let (three, all) = (target.refusal("/three", 3), target.refusal("/", 3));
    let expected = ("NFS mount refused".to_owned(), "-".to_owned(), local);
    assert_eq!(shown(&three), expected);
    assert_eq!(shown(&all), expected);
    let allow = all["allow"].as_str().expect("lines");
    assert!(allow.contains("[[export]] that it is to mount"), "{allow}");
    let table = target.ask(&["refusals"]);
    for part in [HOST, INITIATOR, "/three", "[[export.client]]"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    for refused in [connect, login, three] {
        target.let_in(&refused);
    }
    for _ in 0..3 {
        assert_ne!(target.mount_4().status.code(), Some(0));
    }
    let four = target.refusal("/four", 3);
    assert_eq!(shown(&four), expected);
    target.let_in(&four);
    for output in [target.connect(), target.log_in(IQN, &[]), target.mount_4()] {
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(target.mount_3("/three"), 0);
    end_in_order(target.serving);
}

#[test]
fn refusal_of_a_wrong_secret_names_its_key_and_shows_no_secret() {
    let target = closed();
    let wrong = secret(&target.file, "wrong", "incorrect horse\n");
    let chap = ["--chap-user", "alice", "--chap-secret-file", &wrong];
    let output = target.log_in(CHAP_IQN, &chap);
    assert_ne!(output.status.code(), Some(0));
    let refused = target.refusal(CHAP_IQN, 1);
    let allow = refused["allow"].as_str().expect("a comment");
    for part in ["`secret_file`", "`chap`", "[[iscsi.target]]", CHAP_IQN] {
        assert!(allow.contains(part), "{part}: {allow}");
    }
    assert!(allow.lines().all(|line| line.starts_with('#')), "{allow}");
    let status = target.ask(&["status"]);
    let line = status.lines().find(|line| line.starts_with("refused "));
    let why = refused["reason"].as_str().expect("words");
    for part in [
        "in the last hour 1; most often (1): ",
        &format!("{INITIATOR} at 127.0.0.1, login refused: {why}; `weft refusals`"),
    ] {
        assert!(line.expect(&status).contains(part), "{part}: {status}");
    }
    for told in [
        status.clone(),
        target.ask(&["refusals"]),
        target.ask(&["refusals", "--json"]),
    ] {
        assert!(!told.contains("horse"), "{told}");
    }
    end_in_order(target.serving);
}

#[test]
fn hostile_words_of_a_peer_command_no_terminal_and_have_no_remedy() {
    let target = closed();
    assert_ne!(target.mount_3("/\x1b[31m\n\u{9b}2J"), 0);
    let refused = target.refusal("/\\u{1b}[31m\\n\\u{9b}2J", 1);
    assert_eq!(refused["allow"], Value::Null);
    assert_eq!(refused["reason"], "there is no such export");
    for told in [
        target.ask(&["refusals"]),
        target.ask(&["refusals", "--json"]),
    ] {
        assert!(
            !told.contains(['\x1b', '\u{9b}']),
            "{}",
            told.escape_debug()
        );
    }
    end_in_order(target.serving);
}
