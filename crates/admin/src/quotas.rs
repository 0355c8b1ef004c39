//! What users, groups and trees have in file systems, and may have.

use std::sync::Arc;

use api::{QuotaList, QuotaStatus};
use axum::Json;
use axum::extract::State;
use store::fs::{QuotaLimits, QuotaUsage};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::off_thread::Served;
use crate::served::ServedFile;

/// Of one answer.
const QUOTAS_MAX: usize = 4096;

pub(crate) fn routes() -> OpenApiRouter<Arc<ServedFile>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// What users, groups and trees have in file systems that keep quotas, and may have.
#[utoipa::path(get, path = "/v1/quotas", operation_id = "list_quotas",
    responses((status = 200, body = QuotaList)))]
async fn list(State(served): Served) -> Json<QuotaList> {
    let (mut all, mut counting) = (Vec::new(), Vec::new());
    for fs in served.running().file_systems() {
        if let Some(quotas) = fs.quotas() {
            if quotas.is_counting() {
                counting.push(fs.info().name.clone());
            }
            let usage = quotas.usage().into_iter();
            all.extend(usage.map(|usage| (fs.info().name.clone(), usage)));
        }
    }
    let left_out = all.len().saturating_sub(QUOTAS_MAX);
    if left_out > 0 {
        all.sort_by_key(|(_, usage)| usage.limits == QuotaLimits::default());
        all.truncate(QUOTAS_MAX);
    }
    Json(QuotaList {
        quotas: all.into_iter().map(status).collect(),
        left_out: left_out as u64,
        counting,
    })
}

fn status((file_system, usage): (String, QuotaUsage)) -> QuotaStatus {
    let unix = |until: Option<i64>| until.map(|until| u64::try_from(until).unwrap_or(0));
    QuotaStatus {
        file_system,
        subject: usage.subject.to_string(),
        used_bytes: usage.bytes,
        soft_bytes: usage.limits.soft_bytes,
        hard_bytes: usage.limits.hard_bytes,
        bytes_until_unix_s: unix(usage.bytes_until_s),
        used_objects: usage.objects,
        soft_objects: usage.limits.soft_objects,
        hard_objects: usage.limits.hard_objects,
        objects_until_unix_s: unix(usage.objects_until_s),
    }
}
