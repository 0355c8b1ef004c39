//! Administration over TLS: who is let in, who is told why not, and what that costs others.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use needs::needs;

use crate::serving::{Ends, File, Serving, end_of, file, free_port, good, serve, text, weft};
use crate::told::end_in_order;

/// Certificates of an authority, made by OpenSSL in a folder of their own.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority { folder };
        authority.run(&format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN={name} -keyout ca.key -out ca.pem; : > index; echo 01 > number; \
             printf '[ca]\ndefault_ca = it\n[it]\ndatabase = index\ncrlnumber = number\n\
             default_md = sha256\ndefault_crl_days = 30\n' > ca.cnf; \
             openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key -gencrl -out crl.pem",
        ));
        authority
    }

    fn run(&self, script: &str) {
        let mut shell = Command::new("sh");
        let output = shell.args(["-ec", script]).current_dir(&self.folder);
        let output = output.output().expect("a shell");
        assert!(
            output.status.success(),
            "{script}: {}",
            text(&output.stderr)
        );
    }

    /// A certificate and a key of this name, for some days from now on.
    fn sign(&self, name: &str, san: &str, days: &str) {
        self.run(&format!(
            "openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
             -subj /CN={name} -addext {san} -keyout {name}.key -out {name}.csr; \
             openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days {days} \
             -copy_extensions copy -out {name}.pem"
        ));
    }

    fn revoke(&self, name: &str) {
        self.run(&format!(
            "ca='openssl ca -config ca.cnf -cert ca.pem -keyfile ca.key'; \
             $ca -revoke {name}.pem; $ca -gencrl -out crl.pem"
        ));
    }

    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().expect("UTF-8").to_owned()
    }
}

/// A target that is asked over TLS, by the name localhost.
struct Tls {
    serving: Serving,
    authority: Authority,
    file: File,
    port: u16,
    url: String,
}

const CLIENTS: [(&str, &str); 3] = [
    ("URI:spiffe://example.org/watch", "viewer"),
    ("email:alice@example.org", "operator"),
    ("DNS:ops.example.org", "admin"),
];

impl Tls {
    /// With certificates of clients from those that `prepare` has made.
    fn start(prepare: impl FnOnce(&Authority)) -> Tls {
        let authority = Authority::new("ours");
        authority.sign("server", "subjectAltName=DNS:localhost", "2");
        prepare(&authority);
        let (port, admin) = (free_port(), free_port());
        let mut config = good(port)
            + &format!(
                "\n[admin]\nsocket = \"admin.sock\"\nlisten = \"127.0.0.1:{admin}\"\n\
                 state = \"state\"\n"
            );
        config += "[admin.tls]\n";
        for (key, name) in [
            ("certificate", "server.pem"),
            ("key", "server.key"),
            ("client_ca", "ca.pem"),
            ("client_crl", "crl.pem"),
        ] {
            config += &format!("{key} = \"{}\"\n", authority.path(name));
        }
        for (name, role) in CLIENTS {
            config += &format!("[[admin.client]]\nname = \"{name}\"\nrole = \"{role}\"\n");
        }
        let file = file(&config);
        Tls {
            serving: serve(&file.path),
            authority,
            file,
            port,
            url: format!("https://localhost:{admin}"),
        }
    }

    fn admin_port(&self) -> u16 {
        let port = self.url.rsplit(':').next().expect("a port");
        port.parse().expect("a number")
    }

    /// A command at the Unix socket.
    fn here(&self, arguments: &[&str]) -> Output {
        let socket = self.file.path.with_file_name("admin.sock");
        let socket = socket.to_str().expect("UTF-8");
        weft(&[arguments, &["--at", socket]].concat())
    }

    /// A command over TLS, with a certificate of `authority`, or none.
    fn ask_as(&self, authority: &Authority, who: Option<&str>, arguments: &[&str]) -> Output {
        let ca = self.authority.path("ca.pem");
        let mut all = [arguments, &["--at", &self.url, "--ca", &ca]].concat();
        let shown = who.map(|who| {
            let path = |end| authority.path(&format!("{who}.{end}"));
            (path("pem"), path("key"))
        });
        if let Some((certificate, key)) = &shown {
            all.extend(["--certificate", certificate, "--key", key]);
        }
        weft(&all)
    }

    fn ask(&self, who: &str, arguments: &[&str]) -> Output {
        self.ask_as(&self.authority, Some(who), arguments)
    }

    /// What curl is answered: head and body.
    fn curl(&self, arguments: &[&str]) -> String {
        let mut curl = Command::new("curl");
        let ca = self.authority.path("ca.pem");
        let curl = curl.args(["-s", "-i", "--cacert", &ca]).args(arguments);
        text(&curl.output().expect("curl").stdout)
    }

    /// How often somebody was refused, by a reason.
    fn refused(&self, reason: &str) -> u64 {
        let mut curl = Command::new("curl");
        let socket = self.file.path.with_file_name("admin.sock");
        let curl = curl.arg("-s").arg("--unix-socket").arg(socket);
        let metrics = curl.arg("http://localhost/metrics").output();
        let metrics = text(&metrics.expect("curl").stdout);
        let name = format!("weft_admin_logins_refused_total{{reason=\"{reason}\"}} ");
        let mut lines = metrics.lines();
        let count = lines.find_map(|line| line.strip_prefix(&name));
        count.expect(&metrics).parse().expect("a number")
    }
}

#[track_caller]
fn expect_refused(output: &Output, code: i32, parts: &[&str]) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} is not in: {told}");
    }
}

#[track_caller]
fn expect_done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn write_private(path: &Path, content: &str) {
    std::fs::write(path, content).expect("room");
    let mode = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("ours");
}

#[needs(program("openssl"), program("curl"))]
#[test]
fn certificate_lets_its_client_in_for_the_role_of_its_name_over_tls() {
    let tls = Tls::start(|authority| {
        authority.sign(
            "watch",
            "subjectAltName=URI:spiffe://example.org/watch",
            "2",
        );
        authority.sign("alice", "subjectAltName=email:alice@example.org", "2");
        let both = "subjectAltName=email:alice@example.org,DNS:OPS.example.org";
        authority.sign("ops", both, "2");
    });
    assert!(
        tls.serving.shown.contains(&tls.url),
        "{}",
        tls.serving.shown
    );
    let status = expect_done(&tls.ask("watch", &["status"]));
    assert!(
        status.contains(", TLS") && status.contains("connections"),
        "{status}"
    );
    let volume = ["set", "volume", "disk0", "size=9MiB"];
    expect_refused(
        &tls.ask("watch", &volume),
        1,
        &[
            "role operator",
            "certificate URI:spiffe://example.org/watch is viewer",
        ],
    );
    expect_done(&tls.ask("alice", &volume));
    let audit = expect_done(&tls.ask("watch", &["audit"]));
    let by = "set volume/disk0, by certificate email:alice@example.org";
    assert!(audit.contains(by), "{audit}");
    // Of a local file; the paths in it are the target's.
    let folder = tempfile::tempdir().expect("a folder");
    let local = folder.path().join("local.toml");
    let served = expect_done(&tls.ask("alice", &["dump"]));
    write_private(&local, &served.replace("9MiB", "10MiB"));
    let local = local.to_str().expect("UTF-8");
    expect_done(&tls.ask("alice", &["apply", "-c", local]));
    let served = std::fs::read_to_string(&tls.file.path).expect("there");
    assert!(
        served.contains("10MiB") && served.contains("\"disk0.img\""),
        "{served}"
    );
    // Who may do what is an admin's, who has the most of what its names may.
    let token = ["token", "add", "scrape", "--role", "viewer"];
    expect_refused(&tls.ask("alice", &token), 1, &["role admin"]);
    expect_done(&tls.ask("ops", &token));
    // A role that is taken is gone at once.
    let removed = ["rm", "admin_client", "email:alice@example.org"];
    expect_done(&tls.ask("ops", &removed));
    expect_refused(
        &tls.ask("alice", &["status"]),
        1,
        &[
            "no [[admin.client]] is of the certificate",
            "email:alice@example.org",
            "weft add admin_client",
        ],
    );
    assert_eq!(tls.refused("certificate"), 1);
    let events = expect_done(&tls.ask("watch", &["events"]));
    assert!(events.contains("login-refused"), "{events}");
    let ca = tls.authority.path("ca.pem");
    let [certificate, key] = ["pem", "key"].map(|end| tls.authority.path(&format!("watch.{end}")));
    let mut followed = Command::new(env!("CARGO_BIN_EXE_weft"));
    let place = ["--since", "0", "--at", &tls.url, "--ca", &ca];
    followed.args(["events", "--follow"]).args(place);
    followed.args(["--certificate", &certificate, "--key", &key]);
    let mut followed = Ends::start(followed.stdout(Stdio::piped()));
    let lines = BufReader::new(followed.0.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("login-refused")));
    drop(followed);
    // Addresses to log in by are given at the socket alone.
    expect_refused(&tls.ask("ops", &["login"]), 1, &["Unix socket alone"]);
    end_in_order(tls.serving);
}

#[needs(program("openssl"), program("curl"))]
#[test]
fn certificate_that_is_not_good_is_refused_in_words_and_counted() {
    let tls = Tls::start(|authority| {
        authority.sign("alice", "subjectAltName=email:alice@example.org", "2");
        authority.sign("old", "subjectAltName=email:alice@example.org", "-1");
        authority.sign("gone", "subjectAltName=email:alice@example.org", "2");
        authority.revoke("gone");
        authority.sign("nameless", "keyUsage=digitalSignature", "2");
    });
    let [other, namesake] = ["other", "ours"].map(Authority::new);
    namesake.sign("alice", "subjectAltName=email:alice@example.org", "2");
    other.sign("alice", "subjectAltName=email:alice@example.org", "2");
    expect_done(&tls.ask("alice", &["status"]));
    for (authority, who, part) in [
        (&tls.authority, "old", "expired"),
        (&tls.authority, "gone", "revoked"),
        (&other, "alice", "knows no authority"),
        (&namesake, "alice", "the same name"),
    ] {
        for _ in 0..5 {
            let refused = tls.ask_as(authority, Some(who), &["status"]);
            expect_refused(&refused, 1, &[&tls.url, part]);
        }
    }
    assert_eq!(tls.refused("handshake"), 20);
    expect_refused(
        &tls.ask("nameless", &["status"]),
        1,
        &["no DNS, URI or email name"],
    );
    expect_refused(
        &tls.ask_as(&other, None, &["status"]),
        1,
        &["needs a login"],
    );
    // What a command does not take of the target.
    let other_ca = other.path("ca.pem");
    let ask = |url: &str, ca: &str| weft(&["status", "--at", url, "--ca", ca]);
    expect_refused(&ask(&tls.url, &other_ca), 1, &["none of the authorities"]);
    let ca = tls.authority.path("ca.pem");
    let by_address = tls.url.replace("localhost", "127.0.0.1");
    expect_refused(
        &ask(&by_address, &ca),
        1,
        &["not of that name: it names localhost:"],
    );
    for (at, more, part) in [
        (&*tls.url, &[][..], "--ca"),
        ("https://localhost", &["--ca", &ca], "no port"),
        ("https://localhost:http", &["--ca", &ca], "its port is none"),
        ("https://localhost:65536", &["--ca", &ca], "1 to 65535"),
        ("https://localhost:1/v1", &["--ca", &ca], "more than a name"),
        ("http://192.0.2.1:4480", &[], "https://"),
        ("ftp://localhost:1", &[], "neither https://"),
        ("ftp://localhost", &[], "neither https://"),
        ("/run/admin.sock", &["--ca", &ca], "for https://"),
    ] {
        let output = weft(&[&["status", "--at", at], more].concat());
        expect_refused(&output, 2, &[part]);
    }
    let nothing = format!("https://localhost:{}", free_port());
    expect_refused(&ask(&nothing, &ca), 1, &["nothing listens there"]);
    let plain = format!("https://localhost:{}", tls.port);
    expect_refused(&ask(&plain, &ca), 1, &[&plain]);
    end_in_order(tls.serving);
}

#[needs(program("openssl"), program("curl"))]
#[test]
fn renewed_files_hold_without_a_restart_and_wrong_ones_leave_the_old() {
    let mut tls = Tls::start(|authority| {
        authority.sign("alice", "subjectAltName=email:alice@example.org", "2");
    });
    let ca = tls.authority.path("ca.pem");
    let by_address = tls.url.replace("localhost", "127.0.0.1");
    let ask = || weft(&["status", "--at", &by_address, "--ca", &ca]);
    let warnings = |tls: &Tls| expect_done(&tls.here(&["status", "--json"]));
    expect_refused(&ask(), 1, &["not of that name"]);
    expect_done(&tls.ask("alice", &["status"]));
    // Another certificate, of one name more.
    let both = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    tls.authority.sign("server", both, "2");
    tls.serving.signal("HUP");
    tls.serving.log_line("renewed files hold");
    expect_refused(&ask(), 1, &["needs a login"]);
    // A certificate without its key, and then no certificate: each is told.
    let certificate = tls.authority.path("server.pem");
    let good = std::fs::read(&certificate).expect("there");
    std::fs::copy(tls.authority.path("alice.pem"), &certificate).expect("room");
    tls.serving.signal("HUP");
    tls.serving.log_line("what was read before holds still");
    assert!(
        warnings(&tls).contains("[admin.tls]: the key is not that"),
        "{}",
        warnings(&tls)
    );
    expect_done(&tls.ask("alice", &["status"]));
    std::fs::write(&certificate, good).expect("room");
    // A client that was revoked meanwhile.
    tls.authority.revoke("alice");
    let apply = ["apply", "-c", tls.file.path.to_str().expect("UTF-8")];
    expect_done(&tls.here(&apply));
    expect_refused(&tls.ask("alice", &["status"]), 1, &["revoked"]);
    assert!(
        warnings(&tls).contains("\"warnings\":[]"),
        "{}",
        warnings(&tls)
    );
    end_in_order(tls.serving);
}

#[needs(program("openssl"), program("curl"))]
#[test]
fn token_and_login_go_encrypted_and_what_is_no_tls_1_3_is_told_so() {
    let tls = Tls::start(|_| ());
    let token = expect_done(&tls.here(&["token", "add", "scrape", "--role", "viewer"]));
    let token_file = tls.file.path.with_file_name("token");
    write_private(&token_file, &token);
    let token_path = token_file.to_str().expect("UTF-8");
    let ca = tls.authority.path("ca.pem");
    let ask = ["status", "--at", &tls.url, "--ca", &ca];
    expect_done(&weft(&[&ask[..], &["--token-file", token_path]].concat()));
    let by_variable = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        end_of(
            command
                .args(ask)
                .env("WEFT_TOKEN_FILE", file)
                .stdout(Stdio::piped()),
        )
    };
    expect_done(&by_variable(token_path));
    expect_refused(&by_variable("/no/such"), 2, &["/no/such"]);
    write_private(&token_file, "weft_wrong");
    expect_refused(&by_variable(token_path), 1, &["no such token"]);
    assert_eq!(tls.refused("secret"), 1);
    // Others than weft: curl over TLS, and without.
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let metrics = format!("{}/metrics", tls.url);
    let answer = tls.curl(&["-H", &bearer, &metrics]);
    assert!(answer.contains("weft_build_info"), "{answer}");
    let login = expect_done(&tls.here(&["login", "--role", "viewer"]));
    let address = login.lines().next().expect("an address");
    assert!(
        address.starts_with(&format!("{}/login/", tls.url)),
        "{login}"
    );
    let opened = tls.curl(&[address]).to_ascii_lowercase();
    let mut lines = opened.lines();
    let cookie = lines.find(|line| line.starts_with("set-cookie: "));
    assert!(cookie.expect(&opened).contains("; secure"), "{opened}");
    // By a name that is not the certificate's, and by none that is this weft's.
    let host = "Host: evil.example";
    let misdirected = tls.curl(&["-H", &bearer, "-H", host, &metrics]);
    assert!(misdirected.starts_with("HTTP/1.1 421"), "{misdirected}");
    let plain = tls.curl(&[&metrics.replace("https", "http")]);
    assert!(
        plain.starts_with("HTTP/1.1 400") && plain.contains("https://"),
        "{plain}"
    );
    let plain = tls.url.replace("https", "http");
    expect_refused(
        &weft(&["status", "--at", &plain]),
        1,
        &["speaks TLS", "https://"],
    );
    let shake = |version: &str| {
        let mut client = Command::new("openssl");
        let port = format!("localhost:{}", tls.admin_port());
        client.args([
            "s_client", "-connect", &port, "-CAfile", &ca, version, "-brief",
        ]);
        client.stdin(Stdio::null()).output().expect("openssl")
    };
    let newer = shake("-tls1_3");
    let told = text(&newer.stderr);
    assert!(
        newer.status.success() && told.contains("Verification: OK"),
        "{told}"
    );
    let older = shake("-tls1_2");
    assert!(!older.status.success(), "{}", text(&older.stderr));
    assert_eq!(tls.refused("handshake"), 3);
    end_in_order(tls.serving);
}

#[needs(program("openssl"), program("curl"))]
#[test]
fn handshakes_that_do_not_end_keep_neither_commands_nor_io_waiting() {
    let tls = Tls::start(|authority| {
        authority.sign("alice", "subjectAltName=email:alice@example.org", "2");
    });
    // More than may be under way at a time: the head of a record, and a part of a hello.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let stream = TcpStream::connect(("127.0.0.1", tls.admin_port()));
            let mut stream = stream.expect("it listens");
            stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("room");
            stream
        })
        .collect();
    expect_done(&tls.ask("alice", &["status"]));
    expect_done(&tls.here(&["status"]));
    let url = format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:cli", tls.port);
    expect_done(&weft(&[
        "perf",
        &url,
        "--runtime",
        "200ms",
        "--ramp-time",
        "0",
    ]));
    // What is no handshake at all ends with an alert.
    for garbage in [
        &[22, 3, 1, 0, 0][..],
        &[22, 3, 1, 255, 255, 1],
        &[22, 3, 1, 0, 4, 1, 255, 255, 255],
        &[22; 4096],
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", tls.admin_port())).expect("it listens");
        stream.write_all(garbage).expect("room");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => assert_ne!(rest.first(), Some(&22), "no hello of its own"),
        }
    }
    expect_done(&tls.ask("alice", &["status"]));
    drop(slow);
    end_in_order(tls.serving);
}

/// The steps of docs/admin.md, with a name that leads here.
#[needs(program("openssl"))]
#[test]
fn page_says_what_lets_another_machine_in() {
    let page = include_str!("../../../../docs/admin.md");
    let page = page.replace("storage.example.org", "localhost");
    let block = |kind: &str, with: &str| {
        let fence = format!("```{kind}\n");
        let blocks = page.split(&fence).skip(1);
        let mut blocks = blocks.filter_map(|block| block.split("```").next());
        let block = blocks.find(|block| block.contains(with));
        block.expect(with).to_owned()
    };
    let admin = free_port();
    let toml = block("toml", "[admin.tls]").replace("4480", &admin.to_string());
    let toml = toml.replace("0.0.0.0", "127.0.0.1").replace(
        "[admin]\n",
        "[admin]\nsocket = \"admin.sock\"\nstate = \"state\"\n",
    );
    let file = file(&(good(free_port()) + &toml));
    let folder = file.path.parent().expect("a folder");
    let made = Command::new("sh")
        .args(["-ec", &block("sh", "openssl req")])
        .current_dir(folder)
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let serving = serve(&file.path);
    let commands = block("console", "--certificate").replace("4480", &admin.to_string());
    let weft = format!("weft() {{ {} \"$@\"; }}", env!("CARGO_BIN_EXE_weft"));
    let commands: Vec<_> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    assert!(commands.len() > 1, "{commands:?}");
    for command in commands {
        let mut shell = Command::new("sh");
        let script = format!("{weft}\n{command}");
        let output = shell.args(["-ec", &script]).current_dir(folder).output();
        expect_done(&output.expect("a shell"));
    }
    end_in_order(serving);
}
