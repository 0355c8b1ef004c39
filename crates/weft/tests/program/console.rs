//! The console: what a browser is shown.

use crate::tcp::Tcp;

const ACCEPT: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

const PATHS: [&str; 13] = [
    "/",
    "/volumes",
    "/nvme",
    "/iscsi",
    "/files",
    "/connections",
    "/connections/hosts",
    "/connections/sessions",
    "/connections/nfs-clients",
    "/refusals",
    "/configuration",
    "/history",
    "/audit",
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
    // What is asked for is shown again as text alone.
    let hostile = "/connections?filter=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&sort=%3Cb%3E&page=x";
    let answer = page(hostile);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains("<script>alert"), "{}", answer.body);
}
