//! What went wrong with a request, as problem details (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::Problems;
use serde_json::{Map, Value, json};

use crate::served::NotApplied;

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// What kind of problem it is, where the status does not say it.
    kind: Option<&'static str>,
    title: &'static str,
    detail: String,
    /// What else is told: members beside those of every problem.
    more: Map<String, Value>,
}

impl Problem {
    /// One that its status says all about but the detail.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            kind: None,
            title: status.canonical_reason().unwrap_or("error"),
            detail: detail.into(),
            more: Map::new(),
        }
    }

    fn of_kind(
        (status, kind, title): (StatusCode, &'static str, &'static str),
        detail: impl Into<String>,
        (member, value): (&str, Value),
    ) -> Problem {
        Problem {
            kind: Some(kind),
            title,
            more: Map::from_iter([(member.to_owned(), value)]),
            ..Problem::new(status, detail)
        }
    }
}

impl From<NotApplied> for Problem {
    fn from(refusal: NotApplied) -> Problem {
        let detail = refusal.to_string();
        let invalid = |problems| {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let kind = (status, "invalid-file", "the file has mistakes");
            Problem::of_kind(kind, detail.clone(), ("problems", problems))
        };
        let conflict = |kind, title, lines| {
            let kind = (StatusCode::CONFLICT, kind, title);
            Problem::of_kind(kind, detail.clone(), ("lines", lines))
        };
        match &refusal {
            NotApplied::Mistakes(Problems { list, .. }) => {
                let list = list.iter().map(|problem| {
                    json!({
                        "line": problem.line,
                        "column": problem.column,
                        "text": problem.text,
                    })
                });
                invalid(list.collect())
            }
            NotApplied::Fixed(lines) => {
                let title = "it cannot be changed while hosts are connected";
                conflict("needs-restart", title, json!(lines))
            }
            NotApplied::Disturbs(lines) => conflict("disturbs", "hosts would be cut", json!(lines)),
            NotApplied::Failed(lines) => {
                conflict("not-done", "a change could not be made", json!(lines))
            }
            NotApplied::Busy => Problem::new(StatusCode::CONFLICT, detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = match self.kind {
            // RFC 9457, section 4.2.1: the status says it all.
            None => "about:blank".to_owned(),
            Some(kind) => format!("tag:weft.io,2026-01:{kind}"),
        };
        let mut body = json!({
            "type": kind,
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if let Value::Object(members) = &mut body {
            members.extend(self.more);
        }
        let mut response = (self.status, Json(body)).into_response();
        let media_type = HeaderValue::from_static("application/problem+json");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
        response
    }
}
