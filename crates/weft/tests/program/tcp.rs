//! The admin socket over TCP: logins, roles, and who is not answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::serving::{File, Serving, file, free_port, good, serve, text, weft};
use crate::told::end_in_order;

/// A target that is asked over TCP, at an address of its own.
pub struct Tcp {
    serving: Serving,
    pub file: File,
    port: u16,
    address: SocketAddr,
    socket: PathBuf,
}

/// An answer: its status, its head in lower case, its body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.body))
    }
}

impl Tcp {
    pub fn start() -> Tcp {
        let (port, admin) = (free_port(), free_port());
        let address = SocketAddr::from(([127, 0, 0, 1], admin));
        let admin = format!(
            "\n[admin]\nsocket = \"admin.sock\"\nlisten = \"{address}\"\n\
             state = \"state\"\n"
        );
        let file = file(&(good(port) + &admin));
        let socket = file.path.with_file_name("admin.sock");
        let serving = serve(&file.path);
        Tcp {
            serving,
            file,
            port,
            address,
            socket,
        }
    }

    pub fn weft(&self, arguments: &[&str]) -> Output {
        let socket = self.socket.to_str().expect("UTF-8");
        weft(&[arguments, &["--at", socket]].concat())
    }

    /// The path of a new address to log in by.
    fn login(&self, role: &str) -> String {
        let output = self.weft(&["login", "--role", role]);
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let line = told.lines().next().expect("an address");
        let path = line.strip_prefix(&format!("http://{}", self.address));
        path.expect("where it listens").to_owned()
    }

    /// What a request of these bytes is answered.
    fn exchange(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        // A server that has heard enough closes.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => {}
        }
        let answer = text(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no answer: {answer}")),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// A request with these lines in its head.
    fn request(&self, line: &str, head: &str, body: &str) -> Answer {
        let len = body.len();
        let request = format!("{line} HTTP/1.1\r\n{head}Content-Length: {len}\r\n\r\n{body}");
        self.exchange(request.as_bytes())
    }

    /// By this machine's own name, with more lines in its head.
    pub fn ask(&self, line: &str, more: &str, body: &str) -> Answer {
        self.request(line, &format!("Host: {}\r\n{more}", self.address), body)
    }

    pub fn get(&self, path: &str, more: &str) -> Answer {
        self.ask(&format!("GET {path}"), more, "")
    }

    /// A form that is sent, with more lines in the head.
    pub fn post(&self, path: &str, pairs: &[(&str, &str)], more: &str) -> Answer {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let kind = "Content-Type: application/x-www-form-urlencoded";
        let head = format!("Host: {}\r\n{kind}\r\n{more}", self.address);
        self.request(&format!("POST {path}"), &head, &body)
    }

    /// The line of a session's cookie.
    pub fn session(&self, role: &str) -> String {
        let answer = self.get(&self.login(role), "");
        assert_eq!(answer.status, 303, "{}", answer.head);
        let mut lines = answer.head.lines();
        let cookie = lines.find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.and_then(|cookie| cookie.split(';').next());
        format!("Cookie: other=1; {}\r\n", cookie.expect("a session"))
    }

    /// A plan of a text, by a session and with more lines in the head.
    fn plan(&self, text: &str, head: &str) -> Answer {
        self.put("?dry_run=true", text, head)
    }

    fn put(&self, query: &str, text: &str, head: &str) -> Answer {
        let head = format!("Host: {}\r\n{head}", self.address);
        self.request(&format!("PUT /v1/config{query}"), &head, text)
    }

    /// What is served.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.file.path).expect("written")
    }
}

#[test]
fn nothing_is_answered_over_tcp_without_a_login_but_whether_it_is_alive() {
    let tcp = Tcp::start();
    let shown = &tcp.serving.shown;
    assert!(
        shown.contains(&format!("http://{}", tcp.address)),
        "{shown}"
    );
    let status = text(&tcp.weft(&["status"]).stdout);
    assert!(
        status.contains(&format!("admin address {}", tcp.address)),
        "{status}"
    );
    for path in ["/healthz", "/readyz"] {
        assert_eq!(tcp.get(path, "").status, 200, "{path}");
    }
    for path in ["/", "/v1/status", "/v1/refusals", "/v1/logins", "/nowhere"] {
        let answer = tcp.get(path, "");
        assert_eq!(answer.status, 401, "{path}");
        let problem = answer.json();
        assert!(
            problem["hint"]
                .as_str()
                .expect("a hint")
                .contains("`weft login`")
        );
        for line in [
            "www-authenticate: bearer",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "x-content-type-options: nosniff",
            "content-security-policy: default-src 'none'",
        ] {
            assert!(answer.head.contains(line), "{line}: {}", answer.head);
        }
    }
    let host = format!("Host: {}\r\n", tcp.address);
    let applied = tcp.request("PUT /v1/config", &host, "");
    assert_eq!(applied.status, 401);
    end_in_order(tcp.serving);
}

#[test]
fn login_opens_one_session_and_its_address_nothing_more() {
    let tcp = Tcp::start();
    let path = tcp.login("viewer");
    // What only looks at an address does not use it up.
    let host = format!("Host: {}\r\n", tcp.address);
    let looked = tcp.request(&format!("HEAD {path}"), &host, "");
    assert_eq!(looked.status, 405);
    let opened = tcp.get(&path, "");
    assert_eq!(opened.status, 303, "{}", opened.head);
    assert!(opened.head.contains("location: /\r\n"), "{}", opened.head);
    let mut lines = opened.head.lines();
    let cookie = lines
        .find(|line| line.starts_with("set-cookie: "))
        .expect("a session");
    for part in [
        "; path=/",
        "; httponly",
        "; samesite=strict",
        "; max-age=43200",
    ] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    let again = tcp.get(&path, "");
    assert_eq!(again.status, 401);
    let secret = path.strip_prefix("/login/").expect("our own");
    assert!(!again.body.contains(secret) && !again.head.contains("set-cookie"));
    let session = tcp.session("viewer");
    assert_eq!(tcp.get("/", &session).status, 200);
    let status = tcp.get("/v1/status", &session);
    assert_eq!(status.json()["admin"]["address"], tcp.address.to_string());
    // Nobody makes another login by a session.
    let head = format!("{host}{session}");
    assert_eq!(tcp.request("POST /v1/logins", &head, "{}").status, 403);
    assert_eq!(
        tcp.get("/v1/status", "Cookie: weft-session-1=00\r\n")
            .status,
        401
    );
    end_in_order(tcp.serving);
}

#[test]
fn role_bounds_what_a_session_may_and_is_named_where_it_does_not_do() {
    let mut tcp = Tcp::start();
    let served = tcp.text();
    let viewer = tcp.session("viewer");
    let refused = tcp.plan(&served, &viewer);
    assert_eq!(refused.status, 403);
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("role operator"), "{detail}");
    // Secrets may stand in comments of the text.
    for path in ["/v1/config", "/v1/config/history/1"] {
        assert_eq!(tcp.get(path, &viewer).status, 403, "{path}");
    }
    assert_eq!(tcp.get("/v1/config/history", &viewer).status, 200);
    let operator = tcp.session("operator");
    assert_eq!(tcp.get("/v1/config", &operator).body, served);
    assert_eq!(tcp.plan(&served, &operator).status, 200);
    let larger = served.replace("8MiB", "9MiB");
    assert_eq!(tcp.put("", &larger, &operator).status, 200);
    // Who may ask is an admin's, and changes while hosts are connected.
    let named = larger + "names = [\"storage.example.org\"]\n";
    let host = "Host: STORAGE.example.org:80\r\n";
    let by_name = |tcp: &Tcp| tcp.request("GET /healthz", host, "").status;
    for query in ["", "?dry_run=true"] {
        let refused = tcp.put(query, &named, &operator);
        assert_eq!(refused.status, 403, "{}", refused.body);
        assert!(refused.json()["detail"].to_string().contains("role admin"));
    }
    assert_eq!(by_name(&tcp), 421);
    let made = tcp.put("", &named, &tcp.session("admin"));
    assert_eq!(made.status, 200, "{}", made.body);
    let done = made.json()["done"].to_string();
    assert!(done.contains("[admin] changes who may ask"), "{done}");
    assert_eq!(by_name(&tcp), 200);
    assert_eq!(tcp.put("", &named, &operator).status, 200);
    // By hand and SIGHUP likewise.
    std::fs::write(&tcp.file.path, tcp.text().replace("storage.", "store.")).expect("room");
    tcp.serving.signal("HUP");
    tcp.serving.log_line("reloaded");
    assert_eq!(by_name(&tcp), 421);
    end_in_order(tcp.serving);
}

#[test]
fn names_that_lead_here_and_pages_of_elsewhere_are_not_answered() {
    let tcp = Tcp::start();
    let port = tcp.address.port();
    for (host, status) in [
        (format!("Host: 127.0.0.1:{port}\r\n"), 200),
        ("Host: localhost\r\n".to_owned(), 200),
        ("Host: LocalHost:1\r\n".to_owned(), 200),
        ("Host: evil.example\r\n".to_owned(), 421),
        (format!("Host: evil.example:{port}\r\n"), 421),
        ("Host: 127.0.0.2\r\n".to_owned(), 421),
        ("Host: [::1]\r\n".to_owned(), 421),
        ("Host: localhost.evil.example\r\n".to_owned(), 421),
        ("Host: localhost@evil.example\r\n".to_owned(), 421),
        ("Host: \r\n".to_owned(), 421),
        ("Host: \u{e9}\r\n".to_owned(), 421),
        (String::new(), 400),
        ("Host: localhost\r\nHost: localhost\r\n".to_owned(), 400),
    ] {
        let answer = tcp.request("GET /healthz", &host, "");
        assert_eq!(answer.status, status, "{host}");
    }
    // RFC 9112, section 3.2.2: the name in the target counts.
    let whole = "GET http://evil.example/healthz";
    assert_eq!(tcp.request(whole, "Host: localhost\r\n", "").status, 421);
    let session = tcp.session("admin");
    let served = tcp.text();
    let own = format!("Origin: http://127.0.0.1:{port}\r\n");
    for (head, status) in [
        ("", 200),
        (&*own, 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: http://127.0.0.1\r\n", 403),
        (&format!("{own}Origin: http://evil.example\r\n"), 403),
    ] {
        let answer = tcp.plan(&served, &format!("{session}{head}"));
        assert_eq!(answer.status, status, "{head}: {}", answer.body);
    }
    end_in_order(tcp.serving);
}

#[test]
fn wrong_secrets_fill_no_log_and_lock_nobody_out() {
    let mut tcp = Tcp::start();
    let session = tcp.session("viewer");
    let wrong = format!("Cookie: weft-session-{}={:064}\r\n", tcp.address.port(), 0);
    let statuses: Vec<u16> = (0..1_000)
        .map(|number| match number % 2 {
            0 => tcp.get("/v1/status", &wrong).status,
            _ => tcp.get(&format!("/login/{number}"), "").status,
        })
        .collect();
    let told = |status| statuses.iter().filter(|told| **told == status).count();
    assert!(told(401) >= 10, "{}", told(401));
    assert_eq!(told(401) + told(429), 1_000);
    assert!(told(429) > 500, "{}", told(429));
    assert_eq!(tcp.get("/v1/status", &session).status, 200);
    assert_eq!(tcp.get(&tcp.login("viewer"), "").status, 303);
    tcp.serving.signal("TERM");
    let log = tcp.serving.rest_of_log();
    let lines = log.lines().filter(|line| line.contains("login refused"));
    // A minute may begin meanwhile.
    assert!((1..10).contains(&lines.count()), "{log}");
    assert_eq!(tcp.serving.end().0, Some(0));
}

#[test]
fn hostile_peers_over_tcp_cost_neither_commands_nor_io() {
    let tcp = Tcp::start();
    let session = tcp.session("viewer");
    let cookie = format!("Cookie: {}\r\n", "a=b; ".repeat(40_000));
    assert_eq!(tcp.get("/healthz", &cookie).status, 431);
    let many = "X-A: 1\r\n".repeat(5_000);
    assert_eq!(tcp.get("/healthz", &many).status, 431);
    // One answer to a connection: what hides behind a body is not read as a request.
    let hidden = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for head in [
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 9\r\n",
        "Content-Length: +5\r\n",
        "",
    ] {
        let request =
            format!("POST /v1/config:rollback HTTP/1.1\r\nHost: localhost\r\n{session}{head}\r\n");
        let answer = tcp.exchange(format!("{request}0\r\n\r\n{hidden}").as_bytes());
        assert!(
            (400..500).contains(&answer.status),
            "{head}: {}",
            answer.status
        );
        assert!(!answer.body.contains("HTTP/1.1"), "{head}: {}", answer.body);
    }
    // More than may connect at a time, each with less than a request.
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(tcp.address).expect("it listens");
            stream.write_all(b"GET /heal").expect("room");
            stream
        })
        .collect();
    // Nobody waits for them: those that say nothing give way.
    assert_eq!(tcp.weft(&["status"]).status.code(), Some(0));
    let url = format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.weft:cli", tcp.port);
    let output = weft(&["perf", &url, "--runtime", "200ms", "--ramp-time", "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(tcp.get("/v1/status", &session).status, 200);
    drop(slow);
    end_in_order(tcp.serving);
}

#[test]
fn address_that_is_taken_is_told_and_one_that_is_not_named_is_the_next_free() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound");
    let admin = format!("\n[admin]\nsocket = \"off\"\nlisten = \"{address}\"\n");
    let named = file(&(good(free_port()) + &admin));
    let mut serving = serve(&named.path);
    let line = serving.log_line("no administration over TCP");
    assert!(
        line.contains(&address.to_string()) && line.contains("[admin] listen"),
        "{line}"
    );
    end_in_order(serving);
    let two: Vec<(File, Serving)> = (0..2)
        .map(|_| {
            let file = file(&(good(free_port()) + "\n[admin]\nsocket = \"off\"\n"));
            let serving = serve(&file.path);
            (file, serving)
        })
        .collect();
    let places = two.iter().map(|(_, serving)| {
        let shown = serving.shown.split("http://127.0.0.1:").nth(1);
        let digits = shown
            .and_then(|shown| shown.split(',').next())
            .expect(&serving.shown);
        digits.parse::<u16>().expect(&serving.shown)
    });
    let places: Vec<u16> = places.collect();
    assert!(
        places.iter().all(|port| *port >= 4480) && places[0] != places[1],
        "{places:?}"
    );
    two.into_iter()
        .for_each(|(_, serving)| end_in_order(serving));
}

#[test]
fn login_where_nothing_listens_on_tcp_says_what_to_do() {
    let socket = "\n[admin]\nsocket = \"admin.sock\"\nlisten = \"off\"\n";
    let file = file(&(good(free_port()) + socket));
    let serving = serve(&file.path);
    let path = file.path.with_file_name("admin.sock");
    let output = weft(&["login", "--at", path.to_str().expect("UTF-8")]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("no TCP address") && told.contains("[admin] listen"),
        "{told}"
    );
    end_in_order(serving);
}

#[test]
fn token_lets_a_program_in_for_its_role_until_it_is_removed() {
    let tcp = Tcp::start();
    let add = |name: &str, role: &str| {
        let output = tcp.weft(&["token", "add", name, "--role", role]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let head = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let [viewer, admin] = [("metrics", "viewer"), ("deploy", "admin")].map(|(n, r)| add(n, r));
    for path in ["/v1/status", "/metrics"] {
        assert_eq!(tcp.get(path, &head(&viewer)).status, 200, "{path}");
    }
    let written = tcp.text();
    assert!(written.contains("[[admin.token]]") && written.contains("name = \"metrics\""));
    assert!(
        !written.contains(&viewer) && !written.contains(&admin),
        "{written}"
    );
    assert_eq!(tcp.plan(&written, &head(&viewer)).status, 403);
    assert_eq!(tcp.plan(&written, &head(&admin)).status, 200);
    // A session of the same request does not make up for a wrong token.
    let session = tcp.session("admin");
    for wrong in ["", "x", "weft_", &viewer[..68], &format!("{viewer}0")] {
        let answer = tcp.get("/v1/status", &format!("{session}{}", head(wrong)));
        assert_eq!(answer.status, 401, "{wrong}");
    }
    let basic = tcp.get("/v1/status", "Authorization: Basic eDp5\r\n");
    assert_eq!(basic.status, 401);
    let again = tcp.weft(&["token", "add", "metrics", "--role", "admin"]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stdout));
    assert!(text(&again.stdout).is_empty());
    let removed = tcp.weft(&["token", "rm", "metrics"]);
    assert_eq!(removed.status.code(), Some(0), "{}", text(&removed.stderr));
    assert_eq!(tcp.get("/v1/status", &head(&viewer)).status, 401);
    assert_eq!(tcp.get("/v1/status", &head(&admin)).status, 200);
    assert!(!tcp.text().contains("metrics"));
    let none = tcp.weft(&["token", "rm", "metrics"]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none.stdout));
    end_in_order(tcp.serving);
}

/// A text as a part of a form.
fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}
