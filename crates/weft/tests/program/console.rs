//! The console: what a browser is shown.

use std::os::unix::fs::PermissionsExt;

use crate::serving::free_port;
use crate::tcp::Tcp;

const ACCEPT: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

const PATHS: [&str; 23] = [
    "/",
    "/volumes",
    "/nvme",
    "/iscsi",
    "/files",
    "/listeners",
    "/nvme/objects?kind=subsystem%2Fhost",
    "/connections",
    "/connections/hosts",
    "/connections/sessions",
    "/connections/nfs-clients",
    "/connections/drain",
    "/refusals",
    "/configuration",
    "/history",
    "/history/1",
    "/events",
    "/audit",
    "/performance",
    "/performance/volumes",
    "/performance/hosts",
    "/connect",
    "/connect?system=VMware%20ESXi",
];

#[test]
fn every_page_is_shown_to_a_session_and_to_nothing_else() {
    let tcp = Tcp::start();
    let session = tcp.session("operator");
    for path in PATHS {
        let answer = tcp.get(path, &format!("{ACCEPT}{session}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(
            answer
                .head
                .contains("content-type: text/html; charset=utf-8")
        );
        let policy = "content-security-policy: default-src 'none'; base-uri 'none'";
        assert!(answer.head.contains(policy), "{}", answer.head);
        assert!(!answer.head.contains("unsafe-inline"), "{}", answer.head);
        let title = answer.body.matches("<h1>").count();
        assert_eq!(title, 1, "{path}: {}", answer.body);
        // Each page is found from each other.
        assert!(answer.body.contains("aria-current=\"page\""), "{path}");
        let answer = tcp.get(path, ACCEPT);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.head.contains("content-type: text/html"), "{path}");
        assert!(answer.body.contains("weft login"), "{}", answer.body);
        assert!(!answer.body.contains("<nav"), "{}", answer.body);
    }
    for name in ["console.css", "console.js"] {
        let path = format!("/console/{name}");
        assert_eq!(tcp.get(&path, &session).status, 200, "{path}");
        assert_eq!(tcp.get(&path, "").status, 401, "{path}");
    }
    let answer = tcp.get("/console/..%2fconsole.css", &session);
    assert_eq!(answer.status, 404, "{}", answer.body);
    let answer = tcp.get("/nothing", &format!("{ACCEPT}{session}"));
    assert_eq!(answer.status, 404, "{}", answer.body);
}

#[test]
fn pages_tell_what_is_served_and_viewers_see_no_text_that_may_hold_a_secret() {
    let tcp = Tcp::start();
    let viewer = tcp.session("viewer");
    let page = |path: &str| tcp.get(path, &format!("{ACCEPT}{viewer}"));
    let served = tcp.text();
    let nqn = served.lines().find_map(|line| line.strip_prefix("nqn = "));
    let nqn = nqn.expect("a subsystem").trim_matches('"');
    assert!(page("/nvme").body.contains(nqn), "{}", page("/nvme").body);
    let answer = page("/configuration");
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert!(
        answer.body.contains("weft login --role operator"),
        "{}",
        answer.body
    );
    // Nor what hosts have written.
    let snapshot = |part: &str| {
        tcp.get(&format!("/v1/snapshots/a/b/{part}"), &viewer)
            .status
    };
    assert_eq!((snapshot("stream"), snapshot("strea%6d")), (403, 403));
    assert_eq!(snapshot("changes"), 404);
    // What is asked for is shown again as text alone.
    let hostile = "/connections?filter=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&sort=%3Cb%3E&page=x";
    let answer = page(hostile);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains("<script>alert"), "{}", answer.body);
}

const CHANGE: &str = "/configuration/change";

const ADD: [(&str, &str); 6] = [
    ("change", "add"),
    ("kind", "volume"),
    ("field.name", "more"),
    ("field.kind", "null"),
    ("field.size", "1MiB"),
    ("field.read_only", ""),
];

fn with<'a>(pairs: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [pairs, more].concat()
}

#[test]
fn change_by_a_form_is_shown_first_and_served_once() {
    let tcp = Tcp::start();
    let session = tcp.session("operator");
    let before = tcp.text();
    let form = tcp.get(
        &format!("{CHANGE}?change=add&kind=volume&step=form"),
        &session,
    );
    assert_eq!(form.status, 200, "{}", form.body);
    assert!(form.body.contains("name=\"field.size\""), "{}", form.body);
    let plan = tcp.post(CHANGE, &with(&ADD, &[("step", "plan")]), &session);
    assert_eq!(plan.status, 200, "{}", plan.body);
    for part in [
        "Serve it",
        "+ name = &quot;more&quot;",
        "name=\"generation\" value=\"1\"",
    ] {
        assert!(plan.body.contains(part), "{part}: {}", plan.body);
    }
    assert_eq!(tcp.text(), before);
    let serve = with(&ADD, &[("step", "serve"), ("generation", "1")]);
    let made = tcp.post(CHANGE, &serve, &session);
    assert_eq!(made.status, 303, "{}", made.body);
    assert!(
        made.head.contains("location: /history/2\r\n"),
        "{}",
        made.head
    );
    let shown = tcp.get("/history/2", &session).body;
    assert!(shown.contains("add volume/more"), "{shown}");
    assert!(shown.contains("+ name = &quot;more&quot;"), "{shown}");
    // What was shown is not what is served any more.
    let again = tcp.post(CHANGE, &serve, &session);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(
        again.body.contains("generation 2 is served"),
        "{}",
        again.body
    );
    assert!(again.body.contains("value=\"more\""), "{}", again.body);
    let back = [
        ("change", "rollback"),
        ("to", "1"),
        ("step", "serve"),
        ("generation", "2"),
        ("disconnect", "true"),
    ];
    let back = tcp.post(CHANGE, &back, &session);
    assert!(
        back.head.contains("location: /history/3\r\n"),
        "{}",
        back.body
    );
    assert_eq!(tcp.text(), before);
}

#[test]
fn credentials_are_set_by_a_form_and_their_secret_is_on_no_page() {
    const SECRET: &str = "a-secret-of-16-b";
    let tcp = Tcp::start();
    let private = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&tcp.file.path, private).expect("ours");
    let session = tcp.session("operator");
    let iqn = "iqn.2026-01.io.weft:c";
    let address = format!("127.0.0.1:{}", free_port());
    for arguments in [
        &["add", "listener", &address, "protocol=iscsi"][..],
        &["add", "target", iqn, "allow_any_initiator=true"],
    ] {
        let output = tcp.weft(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let form = format!("{CHANGE}?change=set&kind=target&name={iqn}&step=form");
    let shown = tcp.get(&form, &session).body;
    for part in [
        "name=\"field.chap.user\"",
        "type=\"password\" id=\"field-chap.secret\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let set = [("change", "set"), ("kind", "target"), ("name", iqn)];
    let chap = with(
        &set,
        &[
            ("field.chap.user", "alice"),
            ("field.chap.secret", SECRET),
            ("field.chap.secret_file", ""),
            ("field.mutual_chap.user", ""),
            ("generation", "3"),
        ],
    );
    let plan = tcp.post(CHANGE, &with(&chap, &[("step", "plan")]), &session);
    let lines = plan.body.split("<form").next().expect("a page");
    assert!(
        lines.contains("(set, another)") && !lines.contains(SECRET),
        "{lines}"
    );
    let serve = with(&chap, &[("step", "serve"), ("disconnect", "true")]);
    let made = tcp.post(CHANGE, &serve, &session);
    assert_eq!(made.status, 303, "{}", made.body);
    assert!(tcp.text().contains(SECRET), "{}", tcp.text());
    // The text has it neither, and is the same one when it comes back.
    for path in ["/configuration", "/history/4"] {
        let page = tcp.get(path, &session).body;
        assert!(page.contains("(set)") && !page.contains(SECRET), "{page}");
    }
    let shown = tcp.text().replace(SECRET, "(set)");
    let text = [("change", "text"), ("text", &*shown), ("step", "plan")];
    let plan = tcp.post(CHANGE, &text, &session);
    assert!(plan.body.contains("It stays as it is"), "{}", plan.body);
    // The form has the user and not the secret, which stays with another user.
    let shown = tcp.get(&form, &session).body;
    assert!(shown.contains("value=\"alice\"") && !shown.contains(SECRET));
    assert!(shown.contains("which stays if this is empty"), "{shown}");
    let other = with(
        &set,
        &[
            ("field.chap.user", "bob"),
            ("field.chap.secret", ""),
            ("generation", "4"),
            ("disconnect", "true"),
            ("step", "serve"),
        ],
    );
    assert_eq!(tcp.post(CHANGE, &other, &session).status, 303);
    let served = tcp.text();
    assert!(
        served.contains("\"bob\"") && served.contains(SECRET),
        "{served}"
    );
    // Nothing said of them takes them away.
    let none = with(
        &other[..3],
        &[("field.chap.user", ""), ("field.chap.secret", "")],
    );
    let none = with(
        &none,
        &[
            ("generation", "5"),
            ("step", "serve"),
            ("disconnect", "true"),
        ],
    );
    assert_eq!(tcp.post(CHANGE, &none, &session).status, 303);
    assert!(!tcp.text().contains("chap"), "{}", tcp.text());
}

#[test]
fn change_that_disturbs_is_served_with_its_tick_alone() {
    let tcp = Tcp::start();
    let session = tcp.session("operator");
    let text = tcp.text();
    let kept = text.replace("nsid = 1", "nsid = 2");
    let moved = [("change", "text"), ("text", &*kept)];
    let plan = tcp.post(CHANGE, &moved, &session);
    assert!(plan.body.contains("Disturbs: "), "{}", plan.body);
    assert!(
        plan.body
            .contains("name=\"disconnect\" value=\"true\" required")
    );
    let serve = with(&moved, &[("step", "serve"), ("generation", "1")]);
    let refused = tcp.post(CHANGE, &serve, &session);
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert_eq!(tcp.text(), text);
    let ticked = with(&serve, &[("disconnect", "true")]);
    assert_eq!(tcp.post(CHANGE, &ticked, &session).status, 303);
    assert_eq!(tcp.text(), kept);
}

#[test]
fn text_with_mistakes_is_shown_again_with_their_lines() {
    let tcp = Tcp::start();
    let session = tcp.session("operator");
    let before = tcp.text();
    let wrong = format!("# </textarea><script>alert(1)</script>\n{before}\nvolumee = 1\n");
    let typed = wrong.replace('\n', "\r\n");
    let pairs = [
        ("change", "text"),
        ("text", &*typed),
        ("step", "plan"),
        ("generation", "1"),
    ];
    let answer = tcp.post(CHANGE, &pairs, &session);
    assert_eq!(answer.status, 422, "{}", answer.body);
    let line = wrong.lines().count();
    for part in [
        format!("data-line=\"{line}\""),
        "volumee = 1".to_owned(),
        "# &lt;/textarea&gt;&lt;script&gt;".to_owned(),
    ] {
        assert!(answer.body.contains(&part), "{part}: {}", answer.body);
    }
    assert!(!answer.body.contains("<script>alert"), "{}", answer.body);
    assert!(!answer.body.contains('\r'), "lines end as those before do");
    let field = with(
        &ADD[..2],
        &[
            ("field.name", "x"),
            ("field.kind", "ram"),
            ("field.size", "huge"),
        ],
    );
    let answer = tcp.post(CHANGE, &field, &session);
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(
        answer.body.contains("aria-invalid=\"true\""),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("value=\"huge\""), "{}", answer.body);
    assert_eq!(tcp.text(), before);
}

#[test]
fn change_of_a_viewer_or_of_another_origin_or_by_a_link_is_not_made() {
    let tcp = Tcp::start();
    let (viewer, operator) = (tcp.session("viewer"), tcp.session("operator"));
    let before = tcp.text();
    let serve = with(&ADD, &[("step", "serve"), ("generation", "1")]);
    let evict = [("kind", "connection"), ("id", "1")];
    for (path, pairs) in [(CHANGE, &serve[..]), ("/connections/evict", &evict)] {
        let answer = tcp.post(path, pairs, &format!("{ACCEPT}{viewer}"));
        assert_eq!(answer.status, 403, "{}", answer.body);
        assert!(
            answer.head.contains("content-type: text/html"),
            "{}",
            answer.head
        );
        for origin in [
            "Origin: http://evil.example\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Origin: null\r\n",
        ] {
            let answer = tcp.post(path, pairs, &format!("{origin}{operator}"));
            assert_eq!(answer.status, 403, "{origin}: {}", answer.body);
        }
    }
    assert_eq!(tcp.get("/history/1", &viewer).status, 403);
    let link = "change=add&kind=volume&field.name=more&field.kind=null&field.size=1MiB";
    let answer = tcp.get(
        &format!("{CHANGE}?{link}&step=serve&generation=1"),
        &operator,
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    for bad in [
        "change=boil",
        "change=add&kind=kettle",
        "change=rollback&to=x",
        "",
        "change=rm&kind=volume&name=none",
    ] {
        let answer = tcp.get(&format!("{CHANGE}?{bad}"), &operator);
        assert!(
            (400..500).contains(&answer.status),
            "{bad}: {}",
            answer.body
        );
    }
    assert_eq!(tcp.text(), before);
    let answer = tcp.get("/connections/evict?kind=connection&id=%3Cb%3E", &operator);
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert!(!answer.body.contains("<b>"), "{}", answer.body);
}

#[test]
fn drain_by_a_form_is_asked_for_first_and_ended_by_one() {
    let tcp = Tcp::start();
    let (operator, viewer) = (tcp.session("operator"), tcp.session("viewer"));
    let path = "/connections/drain";
    assert!(tcp.get(path, &operator).body.contains("value=\"begin\""));
    let seen = tcp.get(path, &viewer);
    assert!(!seen.body.contains("<form"), "{}", seen.body);
    assert_eq!(tcp.post(path, &[("step", "begin")], &viewer).status, 403);
    assert_eq!(tcp.get("/readyz", "").status, 200);
    assert_eq!(tcp.post(path, &[("step", "x")], &operator).status, 400);
    let begun = tcp.post(path, &[("step", "begin")], &operator);
    assert_eq!(begun.status, 200, "{}", begun.body);
    assert!(
        begun.body.contains("no host is let in any more"),
        "{}",
        begun.body
    );
    assert!(begun.body.contains("value=\"end\""), "{}", begun.body);
    assert_eq!(tcp.get("/readyz", "").status, 503);
    assert!(tcp.get("/", &operator).body.contains(path));
    let ended = tcp.post(path, &[("step", "end")], &operator);
    assert!(
        ended.body.contains("hosts are let in again"),
        "{}",
        ended.body
    );
    assert_eq!(tcp.get("/readyz", "").status, 200);
}

/// A key that has other objects in short is in the form of an object that has none of them: an
/// open subsystem is closed by one change.
#[test]
fn subsystem_that_is_open_is_closed_by_its_form() {
    let tcp = Tcp::start();
    let session = tcp.session("operator");
    let nqn = "nqn.2026-01.io.weft:cli";
    let form = format!("{CHANGE}?change=set&kind=subsystem&step=form&name={nqn}");
    let shown = tcp.get(&form, &session).body;
    assert!(shown.contains("name=\"field.hosts\""), "{shown}");
    assert!(!shown.contains("name=\"field.volumes\""), "{shown}");
    let close = [
        ("change", "set"),
        ("kind", "subsystem"),
        ("name", nqn),
        ("generation", "1"),
        ("field.allow_any_host", ""),
        ("field.hosts", "nqn.2026-01.io.weft:host"),
        ("disconnect", "true"),
        ("step", "serve"),
    ];
    let served = tcp.post(CHANGE, &close, &session);
    assert_eq!(served.status, 303, "{}", served.body);
    assert!(
        tcp.text()
            .contains("hosts = [\"nqn.2026-01.io.weft:host\"]"),
        "{}",
        tcp.text()
    );
    assert!(!tcp.text().contains("allow_any_host"), "{}", tcp.text());
    // Now each host is an object of its own.
    assert!(
        !tcp.get(&form, &session)
            .body
            .contains("name=\"field.hosts\"")
    );
}
