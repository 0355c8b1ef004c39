//! Peers that speak TLS by hand: what an operator is told of them, and what is counted.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Instant;

use auth::parse_keys;
use auth::psk::{Derivation, Psk, PskHash, TlsPsk};
use serde_json::Value;
use tls::psk_handshake::PskHandshake;
use tls::{HandshakeError, Secured};

use crate::serving::{File, PATIENCE, Serving, file, free_port, serve, text, weft};
use crate::told::end_in_order;

const NQN: &str = "nqn.2026-01.io.weft:a";
const HOST: &str = "nqn.2026-01.org.example:first";

/// A target with a plain listener and one that takes TLS alone.
struct Target {
    serving: Serving,
    file: File,
    plain: u16,
    tls: u16,
}

impl Target {
    /// One host has a key, or `None`.
    fn start(has_key: bool) -> Target {
        let [plain, tls] = [free_port(), free_port()];
        let host = match has_key {
            true => {
                format!("[[nvme.subsystem.host]]\nnqn = \"{HOST}\"\npsk_file = \"first.psk\"\n")
            }
            false => String::new(),
        };
        let file = file(&format!(
            "[[volume]]\nname = \"a\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\nvolumes = [\"a\"]\n{host}\
             [[listener]]\naddress = \"127.0.0.1:{plain}\"\n\
             [[listener]]\naddress = \"127.0.0.1:{tls}\"\ntls = \"required\"\n\
             [admin]\nsocket = \"admin.sock\"\n"
        ));
        let path = file.path.with_file_name("first.psk");
        let path = path.to_str().expect("UTF-8");
        let output = weft(&["key", "new", path, "--host", HOST, "--subsystem", NQN]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        Target {
            serving: serve(&file.path),
            file,
            plain,
            tls,
        }
    }

    fn key(&self) -> Psk {
        let keys = fs::read(self.file.path.with_file_name("first.psk")).expect("there");
        parse_keys(&keys).expect("keys").remove(0).key
    }

    fn socket(&self) -> PathBuf {
        self.file.path.with_file_name("admin.sock")
    }

    fn answer(&self, arguments: &[&str]) -> String {
        let socket = self.socket();
        let at = ["--at", socket.to_str().expect("UTF-8")];
        let output = weft(&[arguments, &at].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// What is told of refused peers, in each place, has a part.
    #[track_caller]
    fn expect_told(&self, part: &str) {
        for arguments in [
            &["refusals"][..],
            &["events"],
            &["doctor", "client", "127.0.0.1"],
        ] {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let told = self.answer(arguments);
                if told.contains(part) {
                    break;
                }
                assert!(Instant::now() < deadline, "{part}: {arguments:?}: {told}");
            }
        }
    }

    /// A figure, by its labels.
    fn figure(&self, name: &str) -> u64 {
        let request = b"GET /metrics HTTP/1.0\r\nHost: weft\r\n\r\n";
        let metrics = crate::admin::exchange(&self.socket(), request);
        let of = metrics.lines().find_map(|line| line.strip_prefix(name));
        let value = of.unwrap_or_else(|| panic!("{name}: {metrics}"));
        value.trim().parse().expect("a number")
    }
}

/// A handshake with a key.
fn shake(port: u16, psk: TlsPsk) -> Result<(Secured, TcpStream), HandshakeError> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut client = PskHandshake::client(psk);
    let mut step = client.step(&[]);
    loop {
        stream.write_all(&step.output).expect("it reads");
        if let Some(end) = step.end {
            return end.map(|secured| (secured, stream));
        }
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).expect("an answer");
        assert_ne!(len, 0, "it closes without an alert");
        step = client.step(&bytes[..len]);
    }
}

#[test]
fn operator_is_told_why_a_handshake_has_failed_in_words_of_the_host() {
    let target = Target::start(true);
    let other = Psk::new(PskHash::Sha384, |bytes| bytes.fill(7));
    let standard = Derivation::Standard;
    let right = target.key().tls_psk(HOST, NQN, standard);
    let by_sha_256 = TlsPsk {
        hash: PskHash::Sha256,
        ..right.clone()
    };
    let cases = [
        (
            other.tls_psk(HOST, NQN, standard),
            "no host has the TLS identity",
            "unknown-identity",
        ),
        (
            other.tls_psk_version_0(HOST, NQN, standard),
            "is another on the host than here",
            "wrong-key",
        ),
        (
            by_sha_256,
            "as GnuTLS before 3.8.11 and tlshd before 1.1",
            "other-binder",
        ),
    ];
    for (psk, part, reason) in cases {
        let failed = shake(target.tls, psk).err();
        assert!(
            matches!(failed, Some(HandshakeError::Alert(_))),
            "{failed:?}"
        );
        target.expect_told(part);
        let at = format!("127.0.0.1:{}", target.tls);
        let name =
            format!("weft_tls_handshake_failures_total{{listener=\"{at}\",reason=\"{reason}\"}}");
        assert_eq!(target.figure(&name), 1, "{reason}");
    }
    // No TLS where it is required.
    let mut plain = TcpStream::connect(("127.0.0.1", target.tls)).expect("it listens");
    plain.write_all(&[0; 128]).expect("it reads");
    target.expect_told("it speaks no TLS, which this listener wants");
    end_in_order(target.serving);
}

#[test]
fn long_identity_is_told_in_part_and_with_the_host_that_it_names() {
    let target = Target::start(true);
    let right = target.key().tls_psk(HOST, NQN, Derivation::Standard);
    let identity = format!(
        "NVMe1R02 {HOST} {NQN} {} {}",
        "x".repeat(6000),
        "y".repeat(6000)
    );
    let part = format!("xxx… of {} bytes", identity.len());
    let psk = TlsPsk { identity, ..right };
    assert!(shake(target.plain, psk).is_err());
    target.expect_told(&part);
    for name in [HOST, "::ffff:127.0.0.1"] {
        let told = target.answer(&["doctor", "client", name]);
        assert!(told.contains(&part), "{name}: {told}");
    }
    end_in_order(target.serving);
}

#[test]
fn host_that_speaks_tls_where_no_host_has_a_key_is_told_so() {
    let target = Target::start(false);
    let psk = target.key().tls_psk(HOST, NQN, Derivation::Standard);
    assert!(shake(target.plain, psk).is_err());
    target.expect_told("it speaks TLS, and no host has a key here: connect without --tls");
    end_in_order(target.serving);
}

#[test]
fn host_of_the_old_derivation_is_refused_as_long_as_psk_compat_is_off() {
    let target = Target::start(true);
    let key = target.key();
    let document = fs::read_to_string(&target.file.path).expect("there");
    let apply = |text: &str| {
        fs::write(&target.file.path, text).expect("room");
        target.answer(&["apply", "-c", target.file.path.to_str().expect("UTF-8")])
    };
    let told = apply(&format!("{document}[nvme]\npsk_compat = \"off\"\n"));
    assert!(
        told.contains("in the old way are refused; their connections stay"),
        "{told}"
    );
    let old = [
        key.tls_psk(HOST, NQN, Derivation::Old),
        key.tls_psk_version_0(HOST, NQN, Derivation::Old),
    ];
    for psk in old.clone() {
        let failed = shake(target.tls, psk).err();
        assert!(
            matches!(failed, Some(HandshakeError::Alert(_))),
            "{failed:?}"
        );
    }
    target.expect_told("its TLS key in the old way");
    let at = format!("127.0.0.1:{}", target.tls);
    let labels = format!("{{listener=\"{at}\",reason=\"old-derivation\"}}");
    let name = format!("weft_tls_handshake_failures_total{labels}");
    assert_eq!(target.figure(&name), 2);
    let standard = key.tls_psk(HOST, NQN, Derivation::Standard);
    assert!(shake(target.tls, standard).is_ok());
    apply(&document);
    for psk in old {
        assert!(shake(target.tls, psk).is_ok());
    }
    end_in_order(target.serving);
}

#[test]
fn encrypted_connections_are_shown_with_cipher_and_key_and_counted() {
    let target = Target::start(true);
    let key = target.key();
    let (_one, _held) =
        shake(target.plain, key.tls_psk(HOST, NQN, Derivation::Standard)).expect("the right key");
    let (_two, _kept) = shake(
        target.tls,
        key.tls_psk_version_0(HOST, NQN, Derivation::Old),
    )
    .expect("the right key");
    let _plain = TcpStream::connect(("127.0.0.1", target.plain)).expect("it listens");
    let deadline = Instant::now() + PATIENCE;
    let list = loop {
        let told: Value =
            serde_json::from_str(&target.answer(&["get", "connections", "--json"])).expect("JSON");
        let list = told["connections"].as_array().expect("a list").clone();
        let encrypted = list.iter().filter(|one| !one["tls"].is_null());
        if list.len() == 3 && encrypted.count() == 2 {
            break list;
        }
        assert!(Instant::now() < deadline, "{told:#}");
    };
    let tls_at = |port: u16| {
        let local = format!("127.0.0.1:{port}");
        let mut own = list.iter().filter(|one| one["local"] == local.as_str());
        own.find(|one| !one["tls"].is_null()).expect("there")["tls"].clone()
    };
    let standard = tls_at(target.plain);
    assert_eq!(standard["cipher"], "TLS_AES_256_GCM_SHA384");
    assert_eq!(standard["psk_version"], 1);
    assert_eq!(standard["psk_hash"], "SHA-384");
    assert_eq!(standard["psk_derivation_is_old"], false);
    let old = tls_at(target.tls);
    assert_eq!(old["psk_version"], 0);
    assert_eq!(old["psk_derivation_is_old"], true);
    let table = target.answer(&["get", "connections"]);
    for part in [
        "ENCRYPTED",
        "plain",
        "TLS_AES_256_GCM_SHA384, PSK 1 SHA-384",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    for port in [target.plain, target.tls] {
        let at = format!("{{listener=\"127.0.0.1:{port}\"}}");
        assert_eq!(target.figure(&format!("weft_tls_handshakes_total{at}")), 1);
        assert_eq!(target.figure(&format!("weft_tls_connections{at}")), 1);
    }
    end_in_order(target.serving);
}
