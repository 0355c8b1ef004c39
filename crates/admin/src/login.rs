//! Logins over TCP: an address that is good once, for a session of a browser.

use std::sync::Arc;

use api::{LoginAddress, LoginRequest};
use axum::Json;
use axum::extract::{Extension, Path, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use server::AdminRole;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{Access, AdminCaller, LOGIN_AGE_MAX, Peer, SESSION_AGE_MAX, cookie_name};
use crate::body::body_of;
use crate::problem::Problem;
use crate::served::ServedFile;

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    let alone = || async {
        let detail = "an address to log in by is opened by GET";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    OpenApiRouter::new()
        .routes(routes!(make))
        // What looks whether the address answers does not use it up.
        .route("/login/{secret}", get(open).head(alone))
}

/// Makes an address, for whoever asks at the Unix socket.
/// Makes an address to log in by, at the Unix socket alone.
#[utoipa::path(post, path = "/v1/logins", operation_id = "make_login",
    request_body = LoginRequest, responses((status = 200, body = LoginAddress)))]
async fn make(
    Extension(access): Extension<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Result<Json<LoginAddress>, Problem> {
    if let Peer::Address { .. } = peer {
        let detail = "logins are made at the Unix socket alone: `weft login`";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let (_, body) = body_of(request).await?;
    let asked: LoginRequest = serde_json::from_slice(&body).map_err(|why| {
        let detail = format!("the body is not {{\"role\": \"viewer\"}}: {why}");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let role = match asked.role.as_deref().map(AdminRole::of_name) {
        None => caller.role,
        Some(Some(role)) if role <= caller.role => role,
        Some(Some(role)) => {
            let detail = format!(
                "{} is {}, and lets nobody in as {}",
                caller.name,
                caller.role.name(),
                role.name()
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Some(None) => {
            let detail = "\"role\" is viewer, operator or admin";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
    };
    let places = access.served.places.get();
    let Some(url) = places.and_then(|places| places.told.url.as_ref()) else {
        let detail = "weft listens on no TCP address";
        let hint = "name one in `[admin] listen`, and restart weft";
        return Err(Problem::new(StatusCode::CONFLICT, detail).hint(hint));
    };
    let name = format!("session of {}", caller.name);
    let uid = caller.uid;
    let secret = access.make_login(AdminCaller { name, uid, role });
    let secret = secret.map_err(|error| {
        let detail = format!("the kernel gives no random bytes: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })?;
    Ok(Json(LoginAddress {
        address: format!("{url}/login/{secret}"),
        role: role.name().to_owned(),
        expires_s: LOGIN_AGE_MAX.as_secs(),
    }))
}

/// Opens a session, and shows where to go on.
async fn open(
    Extension(access): Extension<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    Path(secret): Path<String>,
) -> Result<Response, Problem> {
    let Peer::Address { here, ref tls, .. } = peer else {
        let detail = "sessions are for browsers, over TCP";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    // It never goes where others could read it.
    let secure = if tls.is_some() { "; Secure" } else { "" };
    let session = access.log_in(&secret, &peer)?;
    let (name, age_s) = (cookie_name(here), SESSION_AGE_MAX.as_secs());
    let cookie =
        format!("{name}={session}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::try_from(cookie).expect("hex and our own words");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response())
}
