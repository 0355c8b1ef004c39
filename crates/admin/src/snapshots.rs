//! Snapshots of volumes: made, listed, renamed, removed, cloned.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{
    Snapshot, SnapshotClone, SnapshotName, SnapshotPart, SnapshotRequest, SnapshotRollback,
    Snapshots, SnapshotsDone,
};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use control::{Edit, ObjectPath, edit};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use server::{Running, check};
use store::snapshot::{self, SnapshotError, StreamError};
use store::{Errno, Volume};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::body::{NamedIn, body_of};
use crate::config::turn;
use crate::connections::unknown;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::refused::NotApplied;
use crate::rollback::roll_back;
use crate::served::{ChangeAsked, ServedFile};

/// Volumes that one request names at most.
const VOLUMES_MAX: usize = 1024;

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(rename, remove))
        .routes(routes!(rollback))
        .routes(routes!(clone))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct SnapshotQuery {
    /// Those of this volume alone.
    volume: Option<String>,
}

/// The snapshots of all volumes, or of one.
#[utoipa::path(get, path = "/v1/snapshots", operation_id = "list_snapshots", params(SnapshotQuery),
    responses((status = 200, body = Snapshots), (status = 404), (status = 503)))]
async fn list(
    State(served): Served,
    query: Result<Query<SnapshotQuery>, QueryRejection>,
) -> Result<Json<Snapshots>, Problem> {
    let query = query.map_err(|why| {
        let detail = format!("{}: ask with volume alone", why.body_text());
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    off_thread(move || list_of(served.running(), query.volume.as_deref())).await
}

/// Makes a snapshot of each of the volumes, all of one instant.
#[utoipa::path(post, path = "/v1/snapshots", operation_id = "create_snapshots",
    request_body = SnapshotRequest,
    responses((status = 200, body = SnapshotsDone), (status = 404), (status = 409),
        (status = 422), (status = 503), (status = 507)))]
async fn create(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Result<Json<SnapshotsDone>, Problem> {
    let asked: SnapshotRequest = asked(request).await?;
    off_thread(move || {
        let volumes = volumes(served.running(), &asked.volumes)?;
        snapshot::create(&volumes, &asked.name, now_unix_ms())?;
        let done = line_of_each(&asked.volumes, |volume| {
            format!("snapshot {} of volume {volume} is made", asked.name)
        });
        Ok::<_, Problem>(told(&served, &caller, "snapshot create", done))
    })
    .await
}

/// Gives a snapshot another name.
#[utoipa::path(patch, path = "/v1/snapshots/{volume}/{name}", operation_id = "rename_snapshot",
    params(("volume" = String, Path), ("name" = String, Path)), request_body = SnapshotName,
    responses((status = 200, body = SnapshotsDone), (status = 409), (status = 422),
        (status = 503), (status = 507)))]
async fn rename(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    NamedIn(volume, name): NamedIn,
    request: Request,
) -> Result<Json<SnapshotsDone>, Problem> {
    let asked: SnapshotName = asked(request).await?;
    off_thread(move || {
        let found = find(served.running(), &volume)?;
        snapshot::rename(&*found, &name, &asked.name)?;
        let done = format!(
            "snapshot {name} of volume {volume} is called {}",
            asked.name
        );
        Ok::<_, Problem>(told(&served, &caller, "snapshot rename", vec![done]))
    })
    .await
}

/// Removes a snapshot.
#[utoipa::path(delete, path = "/v1/snapshots/{volume}/{name}", operation_id = "remove_snapshot",
    params(("volume" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = SnapshotsDone), (status = 409), (status = 503)))]
async fn remove(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    NamedIn(volume, name): NamedIn,
) -> Result<Json<SnapshotsDone>, Problem> {
    off_thread(move || {
        let found = find(served.running(), &volume)?;
        snapshot::remove(&*found, &name)?;
        let done = format!("snapshot {name} of volume {volume} is removed");
        Ok::<_, Problem>(told(&served, &caller, "snapshot rm", vec![done]))
    })
    .await
}

/// Has volumes hold what they held when their snapshots of a name were made.
#[utoipa::path(post, path = "/v1/snapshots:rollback", operation_id = "roll_back_snapshots",
    request_body = SnapshotRollback,
    responses((status = 200, body = SnapshotsDone), (status = 404), (status = 409),
        (status = 422), (status = 503), (status = 507)))]
async fn rollback(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Result<Json<SnapshotsDone>, Problem> {
    let asked: SnapshotRollback = asked(request).await?;
    off_thread(move || {
        let done = roll_back(&served, &asked)?;
        Ok::<_, Problem>(told(&served, &caller, "snapshot rollback", done))
    })
    .await
}

/// Makes a volume of a snapshot, of which it is independent, and adds it to the configuration.
#[utoipa::path(post, path = "/v1/snapshots:clone", operation_id = "clone_snapshot",
    request_body = SnapshotClone,
    responses((status = 200, body = SnapshotsDone), (status = 404), (status = 409),
        (status = 422), (status = 503), (status = 507)))]
async fn clone(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Result<Json<SnapshotsDone>, Problem> {
    let asked: SnapshotClone = asked(request).await?;
    let turn = turn(&served).await?;
    off_thread(move || {
        let _turn = turn;
        clone_of(&served, &caller, &asked)
    })
    .await
}

pub(crate) async fn asked<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let (_, body) = body_of(request).await?;
    serde_json::from_slice(&body).map_err(|why| {
        let detail = format!("the body does not say what is asked for: {why}");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

pub(crate) fn line_of_each(volumes: &[String], line: impl Fn(&str) -> String) -> Vec<String> {
    volumes.iter().map(|volume| line(volume)).collect()
}

/// Tells what was done: to the log, the audit and whoever has asked.
pub(crate) fn told(
    served: &ServedFile,
    caller: &AdminCaller,
    verb: &str,
    mut done: Vec<String>,
) -> SnapshotsDone {
    for line in &done {
        tracing::info!(event = "snapshot", by = caller.name, "{line}");
    }
    if let Err(why) = served.record(verb, (caller.uid, caller.by()), &done) {
        done.push(format!("this is not in the audit: {why}"));
    }
    SnapshotsDone { done }
}

pub(crate) fn find(running: &Running, name: &str) -> Result<Arc<dyn Volume>, Problem> {
    let all = running.volumes();
    let found = all.iter().find(|volume| volume.info().name == name);
    found.cloned().ok_or_else(|| {
        let names = all.iter().map(|volume| volume.info().name.clone());
        unknown("volume", name, names.collect())
    })
}

pub(crate) fn volumes(
    running: &Running,
    names: &[String],
) -> Result<Vec<Arc<dyn Volume>>, Problem> {
    if names.is_empty() || names.len() > VOLUMES_MAX {
        let detail = format!("a request names 1 to {VOLUMES_MAX} volumes");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    names.iter().map(|name| find(running, name)).collect()
}

/// Those of one volume, or of all whose snapshots can be listed.
pub(crate) fn list_of(running: &Running, volume: Option<&str>) -> Result<Snapshots, Problem> {
    if let Some(name) = volume {
        let mut snapshots = Snapshots::default();
        add_those_of(&*find(running, name)?, &mut snapshots)?;
        return Ok(snapshots);
    }
    let mut all = Snapshots::default();
    for volume in running.volumes() {
        let added = add_those_of(&*volume, &mut all);
        all.unread.extend(added.err().map(|why| why.to_string()));
    }
    Ok(all)
}

fn add_those_of(volume: &dyn Volume, all: &mut Snapshots) -> Result<(), SnapshotError> {
    let found = snapshot::list(volume)?.into_iter();
    all.snapshots.extend(found.map(|found| Snapshot {
        volume: volume.info().name.clone(),
        name: found.name,
        taken_unix_ms: found.taken_unix_ms,
        size_bytes: found.size_bytes,
        unique_bytes: found.unique_bytes,
        damage: found.damage,
    }));
    let parts = snapshot::received_parts(volume)?.into_iter();
    all.parts.extend(parts.map(|part| SnapshotPart {
        volume: volume.info().name.clone(),
        name: part.name,
        size_bytes: part.size_bytes,
        received_bytes: part.received_bytes,
    }));
    Ok(())
}

fn clone_of(
    served: &ServedFile,
    caller: &AdminCaller,
    asked: &SnapshotClone,
) -> Result<SnapshotsDone, Problem> {
    let wrong = |why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    check::volume_name(&asked.to).map_err(wrong)?;
    let volume = find(served.running(), &asked.volume)?;
    let beside = snapshot::beside(&*volume, &asked.to);
    let path = match asked.path.as_ref().map(PathBuf::from).or(beside) {
        // What leads there may have any bytes in its name, the configuration has text.
        Some(path) if path.is_absolute() && path.to_str().is_some() => path,
        _ => {
            return Err(wrong(
                "`path` is an absolute path of a file, in UTF-8".to_owned(),
            ));
        }
    };
    let cloned = snapshot::clone_to(&*volume, &asked.name, &path)?;
    let fields = json!({
        "kind": "file",
        "path": path,
        "size": cloned.size_bytes,
        "block_bytes": cloned.block_bytes,
    });
    let added = Edit::Add {
        object: ObjectPath::new("volume", &[&asked.to]),
        fields: fields.as_object().cloned().unwrap_or_default(),
    };
    let change = ChangeAsked {
        verb: format!("snapshot clone {} of {}", asked.name, asked.volume),
        uid: caller.uid,
        by: caller.by(),
        role: caller.role,
        ..ChangeAsked::default()
    };
    let changed = served.change(&change, |document| {
        edit(&document.text, &[added]).map_err(NotApplied::Edit)
    });
    match changed {
        Ok(changed) => Ok(SnapshotsDone { done: changed.done }),
        Err(refusal) => {
            snapshot::discard_clone(&path);
            Err(refusal.into())
        }
    }
}

impl From<SnapshotError> for Problem {
    fn from(error: SnapshotError) -> Problem {
        let is_full = |source: &std::io::Error| {
            let errno = Errno::from_io_error(source);
            matches!(errno, Some(Errno::NOSPC | Errno::DQUOT))
        };
        let status = match &error {
            SnapshotError::Name(_) | SnapshotError::Stream(..) => StatusCode::UNPROCESSABLE_ENTITY,
            SnapshotError::Cut(.., StreamError::Write(source)) if is_full(source) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            SnapshotError::Unknown(..) => StatusCode::NOT_FOUND,
            SnapshotError::System { source, .. } | SnapshotError::HalfRolledBack(_, _, source) => {
                match is_full(source) {
                    true => StatusCode::INSUFFICIENT_STORAGE,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                }
            }
            SnapshotError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string())
    }
}
