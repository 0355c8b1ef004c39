//! What went wrong with a request, as problem details (RFC 9457).

use api::{FileProblem, ObjectProblem, ServedGeneration};
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::Problems;

use crate::refused::NotApplied;

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Problem {
    /// What is told.
    told: Box<api::ProblemDetails>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// One that its status says all about but the detail (RFC 9457, section 4.2.1).
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            told: Box::new(api::ProblemDetails {
                kind: "about:blank".to_owned(),
                title: status.canonical_reason().unwrap_or("error").to_owned(),
                status: status.as_u16(),
                detail: detail.into(),
                ..api::ProblemDetails::default()
            }),
            headers: Vec::new(),
        }
    }

    /// What is told.
    pub fn told(&self) -> &api::ProblemDetails {
        &self.told
    }

    /// As an answer of HTTP/1.1 where no request is read.
    pub fn unasked(&self) -> String {
        let body = serde_json::to_string(self.told()).expect("texts and numbers");
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.told.status,
            self.told.title,
            body.len()
        )
    }

    /// With what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.told.hint = Some(hint.into());
        self
    }

    /// With a header that belongs to its status.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }
}

impl From<NotApplied> for Problem {
    fn from(refusal: NotApplied) -> Problem {
        use StatusCode as Status;
        let (status, title) = match &refusal {
            NotApplied::Mistakes(_) => (Status::UNPROCESSABLE_ENTITY, "the file has mistakes"),
            NotApplied::Edit(_) => (Status::UNPROCESSABLE_ENTITY, "the object has mistakes"),
            NotApplied::Fixed(_) => {
                let title = "it cannot be changed while hosts are connected";
                (Status::CONFLICT, title)
            }
            NotApplied::Disturbs(_) => (Status::CONFLICT, "hosts would be cut"),
            NotApplied::Failed(_) => (Status::CONFLICT, "a change could not be made"),
            NotApplied::Conflict(_) => (Status::CONFLICT, "another generation is served"),
            NotApplied::FileChanged(..) => (Status::CONFLICT, "the file was changed by hand"),
            NotApplied::NotKept(_) => (Status::INSUFFICIENT_STORAGE, "the change cannot be kept"),
            NotApplied::NoGeneration(_) => (Status::NOT_FOUND, "there is no such generation"),
            NotApplied::KeyReused(_) => {
                (Status::UNPROCESSABLE_ENTITY, "another request had this key")
            }
            NotApplied::Denied => (Status::FORBIDDEN, "this needs another role"),
            NotApplied::Busy => (Status::SERVICE_UNAVAILABLE, "other changes are being made"),
        };
        let kind = format!("tag:weft.io,2026-01:{}", refusal.kind());
        let mut told = api::ProblemDetails {
            kind,
            title: title.to_owned(),
            status: status.as_u16(),
            detail: refusal.to_string(),
            ..api::ProblemDetails::default()
        };
        tell(&mut told, refusal);
        Problem {
            told: Box::new(told),
            headers: Vec::new(),
        }
    }
}

/// Tells what else there is to a refusal.
fn tell(told: &mut api::ProblemDetails, refusal: NotApplied) {
    match refusal {
        NotApplied::Mistakes(Problems { list, .. }) => {
            let list = list.into_iter().map(|mistake| FileProblem {
                line: mistake.line,
                column: mistake.column,
                text: mistake.text,
                excerpt: mistake.excerpt,
            });
            told.problems = list.collect();
        }
        NotApplied::Edit(mistakes) => {
            let list = mistakes.into_iter().map(|mistake| ObjectProblem {
                object: mistake.object.to_string(),
                field: mistake.field,
                reason: mistake.reason,
                hint: mistake.hint,
            });
            told.objects = list.collect();
        }
        NotApplied::Fixed(lines) | NotApplied::Failed(lines) | NotApplied::NotKept(lines) => {
            told.lines = lines;
        }
        NotApplied::Disturbs(plan) => told.plan = plan,
        NotApplied::Conflict(now) => {
            told.served = Some(ServedGeneration {
                generation: now.generation,
                unix_s: now.unix_s,
                uid: now.uid,
                verb: now.verb,
            });
        }
        NotApplied::FileChanged(file, _) => told.file = Some(file.display().to_string()),
        NotApplied::NoGeneration(number) | NotApplied::KeyReused(number) => {
            told.generation = Some(number);
        }
        NotApplied::Denied => {
            let hint = "`weft login --role admin`, by somebody who has that role";
            told.hint = Some(hint.to_owned());
        }
        NotApplied::Busy => {}
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.told.status).expect("it was one");
        let mut response = (status, Json(self.told)).into_response();
        let media_type = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, media_type);
        headers.extend(self.headers);
        response
    }
}
