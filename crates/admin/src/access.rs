//! Who asks, and what that may.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use server::{AdminGroup, AdminRole, AdminSpec};
use tls::Certificate;

use crate::html::is_of_browser;
use crate::problem::Problem;
use crate::secrets::{Failures, Given, Window, are_same};
use crate::served::{ServedFile, locked};
use crate::state::sha256;
use crate::wrong_logins::WrongLogin;

/// How long an address to log in by is good.
pub(crate) const LOGIN_AGE_MAX: Duration = Duration::from_secs(300);
const LOGINS_MAX: usize = 16;

/// How long a session of a browser is good: a day's work.
pub(crate) const SESSION_AGE_MAX: Duration = Duration::from_secs(12 * 3600);
const SESSIONS_MAX: usize = 64;

/// Of one session, token or certificate, in a second.
const REQUESTS_MAX: u32 = 100;

/// Tokens and certificates whose requests are counted: as many as a configuration takes.
const CALLERS_MAX: usize = 512;

/// Names of a certificate that a refusal shows.
const NAMES_SHOWN_MAX: usize = 8;

/// Wrong secrets of one address, in a minute, that are told that they are wrong.
const FAILURES_MAX: u32 = 10;

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A process of this machine, by the Unix socket.
    User { uid: u32, role: Option<AdminRole> },
    /// Over TCP.
    Address {
        peer: SocketAddr,
        here: SocketAddr,
        /// `None`: in plain.
        tls: Option<Arc<TlsPeer>>,
    },
}

/// What a connection over TLS is known by.
#[derive(Debug)]
pub(crate) struct TlsPeer {
    /// The target's own.
    pub certificate: Certificate,
    /// The subject alternative names of the client's; `None`: it has shown none.
    pub client: Option<Vec<String>>,
}

/// Who asks, as far as that is known.
#[derive(Clone, Debug)]
pub(crate) struct AdminCaller {
    pub name: String,
    /// The user, or the one who has let it in.
    pub uid: u32,
    pub role: AdminRole,
}

impl AdminCaller {
    /// Who asks over TCP, whom the user has let in.
    pub fn by(&self) -> Option<String> {
        let is_user = self.name == user(self.uid);
        (!is_user).then(|| self.name.clone())
    }
}

fn user(uid: u32) -> String {
    format!("user {uid}")
}

/// Who may log in, or has.
#[derive(Clone, Debug)]
struct LetIn {
    caller: AdminCaller,
    /// The groups by which that was so; `None` of the user that weft runs as, and of root.
    groups: Option<Vec<AdminGroup>>,
}

impl LetIn {
    /// Whether it is so still: what has changed of the groups may have been its right.
    fn holds(&self, admin: &AdminSpec) -> bool {
        let mut groups = self.groups.iter();
        groups.all(|groups| *groups == admin.groups)
    }
}

/// Somebody who has logged in.
#[derive(Debug)]
pub(crate) struct BrowserSession {
    let_in: LetIn,
    requests: Window,
}

/// Who is let in.
pub(crate) struct Access {
    pub served: Arc<ServedFile>,
    logins: Mutex<Given<LetIn>>,
    sessions: Mutex<Given<BrowserSession>>,
    failures: Mutex<Failures>,
    /// How often each has asked that has a token or a certificate, by its name.
    requests: Mutex<HashMap<String, Window>>,
}

/// Paths whose answers show texts of configurations.
const TEXTS: [&str; 3] = ["/v1/config", "/configuration", "/history/"];

/// What a request needs: the one table of that. `None`: no login.
fn role_needed(method: &Method, path: &str) -> Option<AdminRole> {
    match (method, path) {
        (_, "/healthz" | "/readyz") => None,
        // The address itself is what lets in.
        (_, path) if path.starts_with("/login/") => None,
        // Each for its own role at most.
        (_, "/v1/logins") => Some(AdminRole::Viewer),
        (_, "/v1/config/history") => Some(AdminRole::Viewer),
        // A snapshot that is sent is what hosts have written; where one has changed tells none of
        // that.
        (_, path) if path.starts_with("/v1/snapshots/") && !path.ends_with("/changes") => {
            Some(AdminRole::Operator)
        }
        // There may be secrets in comments of the text.
        (_, path) if TEXTS.iter().any(|text| path.starts_with(text)) => Some(AdminRole::Operator),
        (&Method::GET | &Method::HEAD, _) => Some(AdminRole::Viewer),
        _ => Some(AdminRole::Operator),
    }
}

impl Access {
    pub fn new(served: Arc<ServedFile>) -> Access {
        Access {
            served,
            logins: Mutex::new(Given::new(LOGINS_MAX, LOGIN_AGE_MAX)),
            sessions: Mutex::new(Given::new(SESSIONS_MAX, SESSION_AGE_MAX)),
            failures: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// A secret that opens a session once.
    pub fn make_login(&self, caller: AdminCaller) -> std::io::Result<String> {
        let is_in_charge = is_in_charge(caller.uid);
        let groups = (!is_in_charge).then(|| self.served.admin().groups);
        let uid = caller.uid;
        locked(&self.logins).give(LetIn { caller, groups }, uid, Instant::now())
    }

    /// The secret of a new session, for that of a login.
    pub fn log_in(&self, secret: &str, peer: &Peer) -> Result<String, Problem> {
        let now = Instant::now();
        let let_in = locked(&self.logins).take(secret, now);
        let admin = self.served.admin();
        let Some(let_in) = let_in.filter(|let_in| let_in.holds(&admin)) else {
            let wrong = "this address to log in by was used, has expired, or never was";
            return Err(self.refused(peer, wrong, now));
        };
        let AdminCaller { name, uid, role } = &let_in.caller;
        tracing::info!(name, role = role.name(), "logged in");
        let (uid, requests) = (*uid, Window::new(now));
        let session = BrowserSession { let_in, requests };
        let session = locked(&self.sessions).give(session, uid, now);
        session.map_err(|error| {
            let detail = format!("no session: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })
    }

    /// Lets a request in, with its caller, or says why not.
    fn admit(&self, request: &mut Request) -> Result<(), Problem> {
        let peer: Option<&Peer> = request.extensions().get();
        let peer = peer.expect("every connection has it").clone();
        if let Peer::Address { here, tls, .. } = &peer {
            self.check_host(request, *here, tls.as_deref())?;
        }
        check_origin(request)?;
        let Some(needed) = role_needed(request.method(), request.uri().path()) else {
            return Ok(());
        };
        let caller = self.caller(&peer, request.headers())?;
        if caller.role < needed {
            let (needed, role) = (needed.name(), caller.role.name());
            let detail = format!("this needs the role {needed}; {} is {role}", caller.name);
            let hint = format!(
                "`weft login --role {needed}`, or `weft token add` with that role, by somebody who \
                 has it"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).hint(hint));
        }
        request.extensions_mut().insert(caller);
        Ok(())
    }

    fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<AdminCaller, Problem> {
        let (here, tls) = match peer {
            Peer::User { uid, role } => return caller_of_user(*uid, *role),
            Peer::Address { here, tls, .. } => (*here, tls),
        };
        let now = Instant::now();
        if let Some(token) = bearer(headers) {
            return match self.caller_of_token(token) {
                Some(caller) => self.within_rate(caller, now),
                None => Err(self.refused(peer, "there is no such token", now)),
            };
        }
        let client = tls.as_ref().and_then(|tls| tls.client.as_ref());
        if let Some(caller) = client.and_then(|names| self.caller_of_certificate(names)) {
            return self.within_rate(caller, now);
        }
        let Some(secret) = cookie(headers, &cookie_name(here)) else {
            return Err(match client {
                Some(names) => self.unknown_client(peer, names, now),
                None => unknown("this needs a login"),
            });
        };
        let admin = self.served.admin();
        let mut sessions = locked(&self.sessions);
        let session = sessions.find(secret, now);
        let Some(session) = session.filter(|session| session.let_in.holds(&admin)) else {
            return Err(self.refused(peer, "this session has ended", now));
        };
        check_rate(&mut session.requests, now)?;
        Ok(session.let_in.caller.clone())
    }

    fn caller_of_token(&self, token: &str) -> Option<AdminCaller> {
        let shown = sha256(token.as_bytes());
        let mut known = self.served.admin().tokens.into_iter();
        let known = known.find(|known| are_same(&known.sha256, &shown))?;
        Some(AdminCaller {
            name: format!("token {}", known.name),
            uid: rustix::process::geteuid().as_raw(),
            role: known.role,
        })
    }

    /// The client whose certificate has these names, with the most that one of them may.
    fn caller_of_certificate(&self, names: &[String]) -> Option<AdminCaller> {
        let known = self.served.admin().clients.into_iter();
        let known = known.filter(|known| names.contains(&known.name));
        let known = known.max_by_key(|known| known.role)?;
        Some(AdminCaller {
            name: format!("certificate {}", known.name),
            uid: rustix::process::geteuid().as_raw(),
            role: known.role,
        })
    }

    fn unknown_client(&self, peer: &Peer, names: &[String], now: Instant) -> Problem {
        let names = match names {
            [] => "no DNS, URI or email name (subjectAltName)".to_owned(),
            names => {
                let shown = names.iter().take(NAMES_SHOWN_MAX);
                let shown: Vec<_> = shown
                    .map(|name| name.escape_default().to_string())
                    .collect();
                shown.join(", ")
            }
        };
        let wrong = format!("no [[admin.client]] is of the certificate, which has {names}");
        if let Peer::Address { peer, .. } = peer {
            self.count_wrong(WrongLogin::Certificate, peer.ip(), &wrong, now);
        }
        Problem::new(StatusCode::FORBIDDEN, wrong)
            .hint("an admin names it in [[admin.client]], with a role: `weft add admin_client`")
    }

    /// A caller that has not asked too often.
    fn within_rate(&self, caller: AdminCaller, now: Instant) -> Result<AdminCaller, Problem> {
        let mut all = locked(&self.requests);
        if all.len() > CALLERS_MAX {
            all.clear();
        }
        let requests = all.entry(caller.name.clone());
        check_rate(requests.or_insert_with(|| Window::new(now)), now)?;
        Ok(caller)
    }

    /// Counts somebody that is not let in, and tells it once a minute: wrong logins fill no
    /// log. How often it was in that minute.
    pub fn count_wrong(&self, kind: WrongLogin, address: IpAddr, wrong: &str, now: Instant) -> u32 {
        self.served.wrong_logins.count(kind);
        let count = locked(&self.failures).count(address, now);
        if count == 1 {
            tracing::warn!(event = "login-refused", %address,
                "login refused: {wrong}; more of it in a minute is not told");
        }
        count
    }

    /// A secret was wrong. Right ones are never refused for that, so nobody locks another
    /// out.
    fn refused(&self, peer: &Peer, wrong: &str, now: Instant) -> Problem {
        let Peer::Address { peer, .. } = peer else {
            return unknown(wrong);
        };
        let address = peer.ip();
        let count = self.count_wrong(WrongLogin::Secret, address, wrong, now);
        if count <= FAILURES_MAX {
            return unknown(wrong);
        }
        let detail = format!("more than {FAILURES_MAX} logins of {address} failed in a minute");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .header(header::RETRY_AFTER, HeaderValue::from_static("60"))
            .hint(HOW_TO_LOG_IN)
    }

    /// A page of elsewhere, under a name that leads here, is not answered.
    fn check_host(
        &self,
        request: &Request,
        here: SocketAddr,
        tls: Option<&TlsPeer>,
    ) -> Result<(), Problem> {
        let mut named = request.headers().get_all(header::HOST).iter();
        // RFC 9112, section 3.2: one, and the target's own before it.
        let (Some(host), None) = (named.next(), named.next()) else {
            let detail = "a request has one Host";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        };
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => host.to_str().unwrap_or_default(),
        };
        let name = without_port(host);
        let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_of_certificate = || {
            let name = name.trim_matches(['[', ']']);
            tls.is_some_and(|tls| tls.certificate.is_for(name))
        };
        let is_ours = match address {
            Ok(address) => address.to_canonical() == here.ip().to_canonical(),
            Err(_) => {
                let mut names = self.served.admin().names.into_iter();
                name.eq_ignore_ascii_case("localhost")
                    || names.any(|known| known.eq_ignore_ascii_case(name))
            }
        };
        match is_ours || is_of_certificate() {
            true => Ok(()),
            false => {
                // RFC 9110, section 15.5.20.
                let status = StatusCode::MISDIRECTED_REQUEST;
                let detail = "this weft is not asked by that name";
                let hint = format!("ask {here} or localhost, or add the name to `[admin] names`");
                Err(Problem::new(status, detail).hint(hint))
            }
        }
    }
}

/// Whether it is the user that weft runs as, or root.
pub(crate) fn is_in_charge(uid: u32) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&uid)
}

fn caller_of_user(uid: u32, role: Option<AdminRole>) -> Result<AdminCaller, Problem> {
    match role {
        Some(role) => Ok(AdminCaller {
            name: user(uid),
            uid,
            role,
        }),
        None => {
            let detail = format!(
                "user {uid} may not ask: the user that weft runs as, root, and members of the \
                 groups of [[admin.group]] may"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
    }
}

const HOW_TO_LOG_IN: &str = "`weft login`, as the user that weft runs as or root, prints an \
                             address to open in a browser; `weft token add` makes a token for a \
                             program";

fn check_rate(requests: &mut Window, now: Instant) -> Result<(), Problem> {
    if requests.count(Duration::from_secs(1), now) <= REQUESTS_MAX {
        return Ok(());
    }
    let detail =
        format!("a session, token or certificate asks at most {REQUESTS_MAX} times a second");
    let retry = (header::RETRY_AFTER, HeaderValue::from_static("1"));
    Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).header(retry.0, retry.1))
}

/// The token of a request (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(header::AUTHORIZATION)?;
    // What is no token is a wrong one.
    let (scheme, token) = shown.to_str().ok()?.split_once(' ').unwrap_or_default();
    Some(match scheme.eq_ignore_ascii_case("bearer") {
        true => token.trim(),
        false => "",
    })
}

fn unknown(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
        .hint(HOW_TO_LOG_IN)
        .header(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"weft\""),
        )
}

/// What changes something is asked by pages of weft's own alone.
fn check_origin(request: &Request) -> Result<(), Problem> {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return Ok(());
    }
    let headers = request.headers();
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    let host = headers.get(header::HOST).map(text).unwrap_or_default();
    let is_own = |origin: &HeaderValue| {
        let origin = text(origin);
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority == Some(&host)
    };
    let is_of_own_page = |site: &HeaderValue| site == "same-origin" || site == "none";
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match origins.all(is_own) && sites.all(is_of_own_page) {
        true => Ok(()),
        false => {
            let detail = "a page of another origin changes nothing here";
            Err(Problem::new(StatusCode::FORBIDDEN, detail))
        }
    }
}

/// `name`, `192.0.2.1` and `[2001:db8::1]` of what may have `:port` behind.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Cookies of a name are those of all ports.
pub(crate) fn cookie_name(here: SocketAddr) -> String {
    format!("weft-session-{}", here.port())
}

/// The value of a cookie.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(header::COOKIE).iter();
    let all = all.filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// What browsers are told of every answer.
const HEADERS: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// Lets a request in, or answers why not.
pub(crate) async fn admit(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_of_browser = is_of_browser(request.method(), request.uri(), request.headers());
    let mut response = match access.admit(&mut request) {
        Ok(()) => next.run(request).await,
        Err(problem) if is_of_browser => problem.page(),
        Err(problem) => problem.into_response(),
    };
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}
