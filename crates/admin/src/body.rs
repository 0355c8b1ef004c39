//! The body of a request.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::{StatusCode, request};
use tokio::time::timeout;

use crate::problem::Problem;

/// How long the body of a request may take.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// The body of a request, and what stands before it.
pub(crate) async fn body_of(request: Request) -> Result<(request::Parts, Bytes), Problem> {
    let (head, body) = request.into_parts();
    let limited = Request::from_parts(head.clone(), body);
    let body = timeout(BODY_PATIENCE, Bytes::from_request(limited, &())).await;
    let body = body.map_err(|_| {
        let detail = format!("no whole body in {} s", BODY_PATIENCE.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })?;
    let body = body.map_err(|why| Problem::new(why.status(), why.body_text()))?;
    Ok((head, body))
}

/// Two names in the path of a request, of which the second is within the first.
pub(crate) struct NamedIn(pub String, pub String);

impl<S: Send + Sync> FromRequestParts<S> for NamedIn {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut request::Parts, state: &S) -> Result<NamedIn, Problem> {
        let names = Path::<(String, String)>::from_request_parts(head, state).await;
        match names {
            Ok(Path((outer, inner))) => Ok(NamedIn(outer, inner)),
            Err(why) => Err(Problem::new(why.status(), why.body_text())),
        }
    }
}

/// The one name in the path of a request.
pub(crate) struct Named(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut request::Parts, state: &S) -> Result<Named, Problem> {
        let name = Path::<String>::from_request_parts(head, state).await;
        match name {
            Ok(Path(name)) => Ok(Named(name)),
            Err(why) => Err(Problem::new(why.status(), why.body_text())),
        }
    }
}
