//! Answers to browsers.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// Pages fetch what lies beside them, and nothing else.
pub(crate) const POLICY: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; img-src data:; script-src 'self'; style-src 'self'",
);

/// A form of a page says which page it is of: `Origin` follows this (Fetch, "append a request
/// Origin header").
pub(crate) const REFERRER: (HeaderName, &str) = (header::REFERRER_POLICY, "same-origin");

/// The kind of a page.
pub(crate) const HTML: (HeaderName, &str) = (header::CONTENT_TYPE, "text/html; charset=utf-8");

/// Whether a request is a browser's, which shows a page of its answer.
pub(crate) fn is_of_browser(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    [Method::GET, Method::POST].contains(method)
        && !uri.path().starts_with("/v1/")
        && accepted.is_some_and(|accepted| accepted.contains("text/html"))
}

impl Problem {
    /// As a page.
    pub(crate) fn page(self) -> Response {
        let html = web_console::problem(self.told());
        let mut response = self.into_response();
        *response.body_mut() = html.into();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        for (name, value) in [HTML, POLICY, REFERRER] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
