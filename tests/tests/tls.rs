//! Other people's TLS speaks with weft: OpenSSL and GnuTLS, with weft's initiator, too, and
//! tlslite-ng where something is to be wrong. GnuTLS does so in guests, too, as tlshd.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use interop::child::{Owned, output, tail, tied};
use interop::python::Python;
use interop::weft::{NQN, WeftProcess, free_address, perf};
use interop::workspace_dir;
use needs::needs;
use tempfile::TempDir;

const HOST: &str = "nqn.2026-01.org.example:host";

/// A target whose listener takes TLS alone, with a key of each hash.
struct Secured {
    target: WeftProcess,
    address: SocketAddr,
    folder: TempDir,
    psks: [TlsPsk; 2],
}

impl Secured {
    fn start(name: &str) -> Secured {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = [(PskHash::Sha256, 3), (PskHash::Sha384, 4)];
        let keys = keys.map(|(hash, byte)| Psk::new(hash, |bytes| bytes.fill(byte)));
        let text: String = keys.iter().map(|key| key.interchange() + "\n").collect();
        let file = folder.path().join("host.psk");
        write_private(&file, &text);
        let address = free_address();
        let config = format!(
            r#"
[[volume]]
name = "v"
kind = "ram"
size = "64MiB"
[[nvme.subsystem]]
nqn = "{NQN}"
volumes = ["v"]
[[nvme.subsystem.host]]
nqn = "{HOST}"
psk_file = "{}"
[[listener]]
address = "{address}"
tls = "required"
[admin]
socket = "admin.sock"
"#,
            file.display()
        );
        Secured {
            target: WeftProcess::serve(name, &config, address),
            address,
            folder,
            psks: keys.map(|key| key.tls_psk(HOST, NQN, Derivation::Standard)),
        }
    }

    fn psk(&self, hash: PskHash) -> &TlsPsk {
        let mut psks = self.psks.iter();
        psks.find(|psk| psk.hash == hash).expect("one of each")
    }

    /// `openssl s_client` that ends with its input.
    fn s_client(&self, psk: &TlsPsk, more: &[&str]) -> Command {
        let mut command = tied(Path::new("openssl"));
        command.args(["s_client", "-quiet", "-no_ign_eof", "-connect"]);
        command.arg(self.address.to_string());
        command.args(["-psk_identity", &psk.identity]).args(more);
        command
    }

    /// `gnutls-cli` with this key, which keeps its own words from what it receives.
    fn gnutls_cli(&self, identity: &str, key: &[u8]) -> Command {
        let mut command = tied(Path::new("gnutls-cli"));
        let words = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:+PSK";
        command.args(["--priority", words, "--pskusername", identity]);
        command.args(["--pskkey", &hex(key), "--logfile"]);
        command.arg(self.folder.path().join("gnutls.log"));
        command.args(["--port", &self.address.port().to_string()]);
        command.arg(self.address.ip().to_string());
        command
    }

    /// What weft says of those that it has refused, on one line.
    fn refusals(&self) -> String {
        let told = self.target.run(&["refusals"]);
        told.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// A session that OpenSSL takes a key of: it knows no other way to one for SHA-384.
fn openssl_session(psk: &TlsPsk, folder: &Path) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let cipher = match psk.hash {
        PskHash::Sha256 => "1301",
        PskHash::Sha384 => "1302",
    };
    let description = format!(
        "asn1=SEQUENCE:session\n[session]\nversion=INTEGER:1\nprotocol=INTEGER:0x0304\n\
         cipher=FORMAT:HEX,OCT:{cipher}\nid=FORMAT:HEX,OCT:00\nkey=FORMAT:HEX,OCT:{}\n\
         time=EXP:1,INTEGER:{}\ntimeout=EXP:2,INTEGER:100000\nearly=EXP:15,INTEGER:16384\n",
        hex(psk.secret.bytes()),
        now.expect("after 1970").as_secs(),
    );
    let script = "openssl asn1parse -genconf /dev/stdin -noout -out session.der; \
         echo '-----BEGIN SSL SESSION PARAMETERS-----'; openssl base64 -in session.der; \
         echo '-----END SSL SESSION PARAMETERS-----'";
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("a shell");
    let mut input = shell.stdin.take().expect("a pipe");
    input.write_all(description.as_bytes()).expect("it reads");
    drop(input);
    let session = shell.wait_with_output().expect("a shell").stdout;
    let path = folder.join("session.pem");
    write_private(&path, &String::from_utf8(session).expect("text"));
    path.display().to_string()
}

fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new();
    let file = file.write(true).create(true).truncate(true).mode(0o600);
    let mut file = file.open(path).expect("room");
    file.write_all(text.as_bytes()).expect("room");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// ICReq, by the fewest bytes that are not zero.
fn icreq() -> [u8; 128] {
    let mut pdu = [0; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu
}

/// Sends ICReq through a program and ends its input: the type of the PDU that is answered, and
/// what the program said.
fn exchange(command: &mut Command, folder: &Path) -> (Option<u8>, String) {
    let said = folder.join("said");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(std::fs::File::create(&said).expect("room"));
    let mut child = command.spawn().expect("the program");
    let (mut input, mut out) = (child.stdin.take(), child.stdout.take());
    // It may have ended already.
    let _ = input.as_mut().expect("a pipe").write_all(&icreq());
    let mut answer = [0; 128];
    let came = out.as_mut().expect("a pipe").read_exact(&mut answer);
    drop(input);
    let ended = child.wait().expect("our child");
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    let is_good = came.is_ok() && ended.success();
    (is_good.then_some(answer[0]), said)
}

/// The type of ICResp.
const ICRESP: u8 = 1;

#[needs(program("openssl"))]
#[test]
fn openssl_connects_by_keys_of_both_hashes() {
    let secured = Secured::start("tls-openssl");
    let folder = secured.folder.path();
    let psk = secured.psk(PskHash::Sha256);
    let key = hex(psk.secret.bytes());
    let mut plain_key = secured.s_client(psk, &["-tls1_3", "-psk", &key]);
    let (answer, said) = exchange(&mut plain_key, folder);
    assert_eq!(answer, Some(ICRESP), "{said}");
    for hash in PskHash::ALL {
        let psk = secured.psk(hash);
        let session = openssl_session(psk, folder);
        // After a HelloRetryRequest it would offer the session no more.
        let words = ["-tls1_3", "-psk_session", &session, "-groups", "P-256"];
        let (answer, said) = exchange(&mut secured.s_client(psk, &words), folder);
        assert_eq!(answer, Some(ICRESP), "{hash:?}: {said}");
    }
    secured.target.expect_orderly_end();
}

#[needs(program("openssl"))]
#[test]
fn openssl_exchanges_keys_by_each_group_that_nvme_hosts_have() {
    let secured = Secured::start("tls-openssl-groups");
    let folder = secured.folder.path();
    let psk = secured.psk(PskHash::Sha256);
    let key = hex(psk.secret.bytes());
    let suite = "-ciphersuites";
    for (groups, suites) in [
        ("X25519", "TLS_AES_128_GCM_SHA256"),
        ("P-256", "TLS_AES_128_GCM_SHA256"),
        ("P-384", "TLS_AES_128_GCM_SHA256"),
        // NVMe/TCP does not allow the first of them.
        (
            "P-521",
            "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
        ),
    ] {
        let words = ["-tls1_3", "-psk", &key, "-groups", groups, suite, suites];
        let (answer, said) = exchange(&mut secured.s_client(psk, &words), folder);
        assert_eq!(answer, Some(ICRESP), "{groups}: {said}");
    }
    secured.target.expect_orderly_end();
}

#[needs(program("openssl"))]
#[test]
fn openssl_is_told_why_it_is_refused() {
    let secured = Secured::start("tls-openssl-refused");
    let folder = secured.folder.path();
    let psk = secured.psk(PskHash::Sha256);
    let key = hex(psk.secret.bytes());
    let wrong = hex(&[9; 32]);
    for (words, alert, reason) in [
        (
            &["-tls1_2", "-psk", &key][..],
            "protocol version",
            "speaks TLS 1.2 or older",
        ),
        (
            &["-tls1_3", "-psk", &wrong],
            "decrypt error",
            "is another on the host than here",
        ),
        (
            &["-tls1_3"],
            "handshake failure",
            "offers no pre-shared key",
        ),
        (
            &["-tls1_3", "-psk", &key, "-groups", "X448"],
            "handshake failure",
            "the TLS handshake failed",
        ),
    ] {
        let (answer, said) = exchange(&mut secured.s_client(psk, words), folder);
        assert_eq!(answer, None, "{words:?}");
        assert!(
            said.contains(&format!("alert {alert}")),
            "{words:?}: {said}"
        );
        let refusals = secured.refusals();
        assert!(refusals.contains(reason), "{words:?}: {refusals}");
    }
    secured.target.expect_orderly_end();
}

#[needs(program("gnutls-cli"))]
#[test]
fn gnutls_connects_by_its_key_and_is_told_why_it_is_refused() {
    let secured = Secured::start("tls-gnutls");
    let folder = secured.folder.path();
    let ask = |identity: &str, key: &[u8]| {
        let (answer, _) = exchange(&mut secured.gnutls_cli(identity, key), folder);
        let said = std::fs::read_to_string(folder.join("gnutls.log")).unwrap_or_default();
        (answer, said)
    };
    let psk = secured.psk(PskHash::Sha256);
    let key = psk.secret.bytes();
    let (answer, said) = ask(&psk.identity, key);
    assert_eq!(answer, Some(ICRESP), "{said}");
    assert!(said.contains("PSK") && said.contains("TLS1.3"), "{said}");
    let unknown = psk.identity.replace(HOST, "nqn.2026-01.org.example:other");
    for (identity, key, alert, reason) in [
        (
            &psk.identity,
            &[9; 32][..],
            "[51]",
            "is another on the host than here",
        ),
        (&unknown, key, "[115]", "nqn.2026-01.org.example:other"),
    ] {
        let (answer, said) = ask(identity, key);
        assert_eq!(answer, None, "{identity}: {said}");
        assert!(said.contains(alert), "{identity}: {said}");
        let refusals = secured.refusals();
        assert!(refusals.contains(reason), "{identity}: {refusals}");
    }
    // The program has no way to say that a key is for SHA-384.
    let psk = secured.psk(PskHash::Sha384);
    let (answer, said) = ask(&psk.identity, psk.secret.bytes());
    assert_eq!(answer, None, "{said}");
    let refusals = secured.refusals();
    let remedy = "update gnutls and ktls-utils there, or give it a key for SHA-256";
    assert!(refusals.contains(remedy), "{refusals}");
    secured.target.expect_orderly_end();
}

/// The key of a host with an identity of version 1, and of version 0.
fn key_of_host(hash: PskHash) -> (Psk, [TlsPsk; 2]) {
    let key = Psk::new(hash, |bytes| bytes.fill(5));
    let psks = [
        key.tls_psk(HOST, NQN, Derivation::Standard),
        key.tls_psk_version_0(HOST, NQN, Derivation::Standard),
    ];
    (key, psks)
}

/// `openssl s_server` that knows one identity, and writes what it receives.
fn s_server(at: SocketAddr, identity: &str, session: &str, group: &str) -> Command {
    let mut command = tied(Path::new("openssl"));
    command.args(["s_server", "-quiet", "-nocert", "-tls1_3", "-accept"]);
    command
        .arg(at.to_string())
        .args(["-psk_identity", identity]);
    command.args(["-psk_session", session, "-groups", group]);
    command
}

/// `gnutls-serv` that knows one identity, and says so when it was proved.
fn gnutls_serv(at: SocketAddr, identity: &str, key: &[u8], folder: &Path) -> Command {
    let passwords = folder.join("passwords");
    // NQNs have colons, as what separates a name from its key: names are in hexadecimal digits.
    let line = format!("#{}:{}\n", hex(identity.as_bytes()), hex(key));
    write_private(&passwords, &line);
    let mut command = tied(Path::new("gnutls-serv"));
    let words = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:+PSK";
    command.args(["--priority", words, "--pskpasswd"]);
    command
        .arg(passwords)
        .args(["--port", &at.port().to_string()]);
    command
}

/// How a server shows that a handshake is over.
const ICREQ_COMES: [u8; 8] = [0, 0, 128, 0, 128, 0, 0, 0];
const GNUTLS_SAYS: &[u8] = b"PSK authentication. Connected as";

/// What weft's initiator says of a server that speaks TLS and no NVMe, and whether a handshake
/// was over before.
fn initiate(
    mut server: Command,
    at: SocketAddr,
    shows: &[u8],
    key: &Psk,
    folder: &Path,
) -> (bool, String) {
    let file = folder.join("host.psk");
    write_private(&file, &key.interchange());
    let written = folder.join("written");
    server.stdin(Stdio::piped()).stderr(Stdio::null());
    server.stdout(File::create(&written).expect("room"));
    let mut server = Owned::spawn(&mut server).expect("the server");
    while TcpStream::connect(at).is_err() {
        assert!(server.try_wait().expect("our child").is_none());
        thread::sleep(Duration::from_millis(10));
    }
    let load = thread::spawn(move || {
        let file = file.display().to_string();
        perf(at, &["--hostnqn", HOST, "--psk-file", &file])
    });
    let is_over = || {
        let written = fs::read(&written).expect("made above");
        written.windows(shows.len()).any(|part| part == shows)
    };
    while !load.is_finished() && !is_over() {
        thread::sleep(Duration::from_millis(10));
    }
    server.kill().expect("our child");
    let told = load.join().expect("it does not panic");
    (is_over(), told.expect_err("a server without NVMe"))
}

#[needs(program("openssl"))]
#[test]
fn initiator_connects_to_openssl_by_identities_of_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for hash in PskHash::ALL {
        let (key, psks) = key_of_host(hash);
        for psk in psks {
            let session = openssl_session(&psk, folder);
            // The second wants another key share, by a HelloRetryRequest.
            for group in ["P-256", "P-384"] {
                let at = free_address();
                let server = s_server(at, &psk.identity, &session, group);
                let (is_over, told) = initiate(server, at, &ICREQ_COMES, &key, folder);
                assert!(is_over, "{} {group}: {told}", psk.identity);
            }
        }
    }
}

#[needs(program("openssl"))]
#[test]
fn initiator_tells_the_alert_by_which_openssl_refuses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for hash in PskHash::ALL {
        let (key, [psk, _]) = key_of_host(hash);
        let other = Psk::new(hash, |bytes| bytes.fill(6));
        let wrong = TlsPsk {
            secret: other.tls_psk(HOST, NQN, Derivation::Standard).secret,
            ..psk.clone()
        };
        let session = openssl_session(&wrong, folder);
        // Younger releases say decrypt_error of a wrong key.
        for (identity, meaning) in [
            (&*psk.identity, "is another there"),
            ("another", "alert 40, handshake_failure"),
        ] {
            let at = free_address();
            let server = s_server(at, identity, &session, "P-256");
            let (is_over, told) = initiate(server, at, &ICREQ_COMES, &key, folder);
            let is_told = told.contains("with alert ") && told.contains(meaning);
            assert!(!is_over && is_told, "{identity}: {told}");
        }
    }
}

#[needs(program("openssl"))]
#[test]
fn initiator_refuses_a_suite_that_is_none_of_its_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (key, [psk, _]) = key_of_host(PskHash::Sha256);
    let session = openssl_session(&psk, folder);
    let at = free_address();
    let mut server = s_server(at, &psk.identity, &session, "P-256");
    server.args(["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]);
    let (is_over, told) = initiate(server, at, &ICREQ_COMES, &key, folder);
    let why = "TLS_CHACHA20_POLY1305_SHA256, which NVMe/TCP does not allow";
    assert!(!is_over && told.contains(why), "{told}");
}

#[needs(program("gnutls-serv"))]
#[test]
fn initiator_connects_to_gnutls_and_tells_the_alert_by_which_it_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (key, psks) = key_of_host(PskHash::Sha256);
    for psk in &psks {
        let ask = |secret: &[u8]| {
            let at = free_address();
            let server = gnutls_serv(at, &psk.identity, secret, folder);
            initiate(server, at, GNUTLS_SAYS, &key, folder)
        };
        let (is_over, told) = ask(psk.secret.bytes());
        assert!(is_over, "{}: {told}", psk.identity);
        let (is_over, told) = ask(&[9; 32]);
        let is_told = told.contains("with alert ") && told.contains("is another there");
        assert!(!is_over && is_told, "{}: {told}", psk.identity);
    }
}

#[needs(program("openssl"))]
#[test]
fn early_data_is_dropped_and_the_handshake_goes_on() {
    let secured = Secured::start("tls-early");
    let folder = secured.folder.path();
    let psk = secured.psk(PskHash::Sha384);
    let session = openssl_session(psk, folder);
    let early = folder.join("early");
    std::fs::write(&early, icreq()).expect("room");
    let early = early.display().to_string();
    let words = [
        "-tls1_3",
        "-psk_session",
        &session,
        "-groups",
        "P-256",
        "-early_data",
        &early,
    ];
    // Had it been taken, the second ICReq would be a mistake.
    let (answer, said) = exchange(&mut secured.s_client(psk, &words), folder);
    assert_eq!(answer, Some(ICRESP), "{said}");
    let refusals = secured.refusals();
    assert!(refusals.contains("nothing was refused"), "{refusals}");
    secured.target.expect_orderly_end();
}

/// Cases of `hostile_tls.py`, and how each ends. `closed` is where there is nobody to be told.
const ENDS: &[(&str, &str)] = &[
    ("good", "answered"),
    ("wrong key", "refused: decrypt_error"),
    ("unknown identity", "refused: unknown_psk_identity"),
    ("no key", "refused: handshake_failure"),
    ("no key exchange", "refused: handshake_failure"),
    ("old version", "refused: protocol_version"),
    ("key updates", "close_notify"),
    ("flood of key updates", "unexpected_message"),
    ("flood of empty records", "unexpected_message"),
    ("record over its length", "record_overflow"),
    ("plaintext over its length", "record_overflow"),
    ("record of another number", "bad_record_mac"),
    ("data in the clear", "unexpected_message"),
    ("change of cipher", "unexpected_message"),
    ("handshake again", "unexpected_message"),
    ("request for a certificate", "unexpected_message"),
    ("key update of a wrong form", "illegal_parameter"),
    ("content of no type", "unexpected_message"),
    ("fatal alert", "closed"),
    ("close notify", "close_notify"),
    ("data in single bytes", "close_notify"),
    ("truncated", "closed"),
];

#[needs(program("python3"))]
#[test]
fn hostile_peer_is_told_by_alerts_and_others_go_on() {
    let python = Python::prepare_of("tls.txt").expect("Python's packages");
    let secured = Secured::start("tls-hostile");
    // Others, meanwhile: one host with each key, whose data is compared.
    let keys = secured.folder.path().join("host.psk").display().to_string();
    let address = secured.address;
    let load = thread::spawn(move || {
        let words = [
            "--hostnqn",
            HOST,
            "--psk-file",
            &keys,
            "--rw=randrw",
            "--verify",
            "--numjobs=2",
            "--runtime=8s",
        ];
        perf(address, &words)
    });
    for psk in &secured.psks {
        let digest = match psk.hash {
            PskHash::Sha256 => "sha256",
            PskHash::Sha384 => "sha384",
        };
        let mut script = python.program("python");
        script.arg(workspace_dir().join("tests/python/hostile_tls.py"));
        script.arg(secured.address.port().to_string());
        script.args([&psk.identity, &hex(psk.secret.bytes()), digest]);
        script.args(ENDS.iter().map(|(case, _)| case));
        let told = output(&mut script).unwrap_or_else(|why| panic!("{why}"));
        let told = String::from_utf8(told).expect("text");
        let wanted = ENDS.iter().map(|(case, end)| format!("{case}: {end}\n"));
        assert_eq!(told, wanted.collect::<String>(), "{digest}");
    }
    let load = load.join().expect("it does not panic");
    load.unwrap_or_else(|why| panic!("{why}: {}", tail(&secured.target.log(), 20)));
    let refusals = secured.refusals();
    assert!(refusals.contains("within a TLS record"), "{refusals}");
    secured.target.expect_orderly_end();
}
