//! Scrubs of volumes with checksums: begun, paused, ended, listed.

use std::sync::Arc;

use api::{ScrubRequest, ScrubVerb, ScrubsDone, VolumeScrub, VolumeScrubs};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use store::{ScrubAction, Volume, scrubbed};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::AdminCaller;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;
use crate::snapshots::{asked, volumes};

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new().routes(routes!(list, act))
}

/// The scrubs of all volumes that have checksums.
#[utoipa::path(get, path = "/v1/scrubs", operation_id = "list_scrubs",
    responses((status = 200, body = VolumeScrubs)))]
async fn list(State(served): Served) -> Json<VolumeScrubs> {
    let volumes = served.running().volumes();
    let scrubs = volumes.iter().filter_map(|volume| scrub_of(&**volume));
    Json(VolumeScrubs {
        scrubs: scrubs.collect(),
    })
}

/// Begins scrubs of volumes, or has them pause, go on, or end.
#[utoipa::path(post, path = "/v1/scrubs", operation_id = "act_on_scrubs",
    request_body = ScrubRequest,
    responses((status = 200, body = ScrubsDone), (status = 404), (status = 409), (status = 422),
        (status = 503)))]
async fn act(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Result<Json<ScrubsDone>, Problem> {
    let asked: ScrubRequest = asked(request).await?;
    off_thread(move || act_on(&served, &caller, &asked)).await
}

fn scrub_of(volume: &dyn Volume) -> Option<VolumeScrub> {
    let status = volume.scrub()?.status();
    Some(VolumeScrub {
        volume: volume.info().name.clone(),
        state: status.state.word().to_owned(),
        position_bytes: status.position_bytes,
        size_bytes: volume.size_bytes(),
        bad_blocks: status.bad_blocks,
        repaired_blocks: status.repaired_blocks,
        bad_lbas: status.bad_lbas,
        rate: status.rate,
    })
}

/// The volumes that are scrubbed where these are named.
fn scrubbed_of(named: &[Arc<dyn Volume>]) -> Result<Vec<Arc<dyn Volume>>, Problem> {
    let mut all: Vec<Arc<dyn Volume>> = Vec::new();
    for volume in named {
        let found = scrubbed(volume);
        if found.is_empty() {
            let name = &volume.info().name;
            let detail = format!(
                "volume \"{name}\" has no checksums to compare its blocks with: name a volume with \
                 `checksum = true`, or a mirror of such"
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        let is_new = |volume: &Arc<dyn Volume>| !all.iter().any(|other| Arc::ptr_eq(other, volume));
        let found: Vec<_> = found.into_iter().filter(is_new).collect();
        all.extend(found);
    }
    Ok(all)
}

fn act_on(
    served: &ServedFile,
    caller: &AdminCaller,
    asked: &ScrubRequest,
) -> Result<ScrubsDone, Problem> {
    let (action, verb, does) = match asked.action {
        ScrubVerb::Start => (ScrubAction::Start, "scrub start", "begins"),
        ScrubVerb::Pause => (ScrubAction::Pause, "scrub pause", "pauses"),
        ScrubVerb::Resume => (ScrubAction::Resume, "scrub resume", "goes on"),
        ScrubVerb::Stop => (ScrubAction::Stop, "scrub stop", "ends"),
    };
    let all = scrubbed_of(&volumes(served.running(), &asked.volumes)?)?;
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for volume in &all {
        let (name, scrub) = (&volume.info().name, volume.scrub().expect("it has one"));
        match scrub.act(action) {
            true => done.push(format!("the scrub of volume {name} {does}")),
            false => {
                let is = scrub.status().state.word();
                refused.push(format!("the scrub of volume {name} stays as it is: {is}"));
            }
        }
    }
    if done.is_empty() {
        return Err(Problem::new(StatusCode::CONFLICT, refused.join("; ")));
    }
    if let Err(why) = served.record(verb, (caller.uid, caller.by()), &done) {
        done.push(format!("this is not in the audit: {why}"));
    }
    done.extend(refused);
    Ok(ScrubsDone { done })
}
