//! Whether a client gets through, tried by weft's own initiators at weft's own listeners.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use api::{RefusalSummary, SelfTest, SelfTestOutcome, SelfTestRequest};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use client::probe::{ProbeTo, Probed, probe};
use control::reachable;
use iscsi::Target;
use server::{Protocol, Served as ServedNow, SubsystemSpec, check};

use crate::body::body_of;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::served::ServedFile;

/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a refusal is looked for, and the time between two looks. NFS notes them every second.
const LOOK_MAX: Duration = Duration::from_millis(500);
const LOOK_MAX_NFS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a test is under way: one at a time, however long it takes.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// The turn of a test; it ends with the thread of it.
struct SelfTestTurn;

impl SelfTestTurn {
    fn take() -> Option<SelfTestTurn> {
        (!UNDER_WAY.swap(true, Ordering::AcqRel)).then_some(SelfTestTurn)
    }
}

impl Drop for SelfTestTurn {
    fn drop(&mut self) {
        UNDER_WAY.store(false, Ordering::Release);
    }
}

/// Connects to what is served as a client does, reads a block, disconnects.
#[utoipa::path(post, path = "/v1/self-test", operation_id = "self_test",
    request_body = SelfTestRequest,
    responses((status = 200, body = SelfTest), (status = 404), (status = 409), (status = 422),
        (status = 503)))]
pub(crate) async fn self_test(
    State(served): Served,
    request: Request,
) -> Result<Json<SelfTest>, Problem> {
    let (_, body) = body_of(request).await?;
    let asked: SelfTestRequest = serde_json::from_slice(&body).map_err(|why| {
        let detail = format!("the body does not say what is tried: {why}");
        let status = match why.is_data() {
            true => StatusCode::UNPROCESSABLE_ENTITY,
            false => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, detail).hint(
            "name one of subsystem, target and export, and a listener by its address and port",
        )
    })?;
    off_thread(move || run(&served, &asked)).await
}

/// The addresses of the listeners of a protocol that will do.
pub(crate) fn addresses(
    served: &ServedNow,
    protocol: Protocol,
    will_do: &dyn Fn(u16) -> bool,
) -> Vec<SocketAddr> {
    let all = served.listeners.iter();
    let fitting = all.filter(|(number, listener)| {
        // A test goes by TCP.
        let does = listener.protocol == protocol && !listener.rdma.is_only();
        does && !listener.discovery_only && will_do(*number)
    });
    fitting.map(|(_, listener)| listener.address).collect()
}

/// Those where a subsystem is reached.
pub(crate) fn of_subsystem(served: &ServedNow, subsystem: &SubsystemSpec) -> Vec<SocketAddr> {
    let on = subsystem.listeners.as_ref();
    addresses(served, Protocol::NvmeTcp, &|number| {
        on.is_none_or(|on| on.contains(&number))
    })
}

/// Those where a target is reached.
pub(crate) fn of_target(served: &ServedNow, target: &Target) -> Vec<SocketAddr> {
    let is_everywhere = target.portal_groups.is_empty();
    addresses(served, Protocol::Iscsi, &|number| {
        is_everywhere || target.portal_group_of(number).is_some()
    })
}

/// Those where every export is reached.
pub(crate) fn of_exports(served: &ServedNow) -> Vec<SocketAddr> {
    addresses(served, Protocol::Nfs, &|_| true)
}

/// Those where every NBD export is reached.
pub(crate) fn of_nbd_exports(served: &ServedNow) -> Vec<SocketAddr> {
    addresses(served, Protocol::Nbd, &|_| true)
}

/// What is asked for, and where it is served.
fn object(
    asked: &SelfTestRequest,
    served: &ServedNow,
) -> Result<(ProbeTo, Vec<SocketAddr>), Problem> {
    let missing = |kind: &str, name: &str, known: Vec<&str>| {
        let detail = format!(
            "no {kind} {name} is served{}",
            control::hint(name, known.into_iter())
        );
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    match (&asked.subsystem, &asked.target, &asked.export) {
        (Some(nqn), None, None) => {
            let all = &served.subsystems;
            let found = all.iter().find(|one| one.nqn == *nqn);
            let known = || all.iter().map(|one| &*one.nqn).collect();
            let found = found.ok_or_else(|| missing("subsystem", nqn, known()))?;
            let to = ProbeTo::Namespace(nqn.clone(), asked.nsid);
            Ok((to, of_subsystem(served, found)))
        }
        (None, Some(name), None) => {
            let all = served.targets.iter().map(|spec| &spec.target);
            let found = all.clone().find(|target| target.name == *name);
            let known = || all.map(|target| &*target.name).collect();
            let found = found.ok_or_else(|| missing("target", name, known()))?;
            let lun = check::lun(asked.lun.unwrap_or_default().into())
                .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why))?;
            Ok((ProbeTo::Unit(name.clone(), lun), of_target(served, found)))
        }
        (None, None, Some(path)) => {
            let all = &served.exports;
            let found = all.iter().find(|one| *one.path == **path);
            let known = || all.iter().map(|one| &*one.path).collect();
            found.ok_or_else(|| missing("export", path, known()))?;
            Ok((ProbeTo::Export(path.clone()), of_exports(served)))
        }
        _ => {
            let detail = "name one of subsystem, target and export";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
        }
    }
}

/// Tries it, in a thread of its own for as long as there is patience.
pub(crate) fn run(served: &ServedFile, asked: &SelfTestRequest) -> Result<SelfTest, Problem> {
    let now = served.running().served();
    let (to, known) = object(asked, &now)?;
    let listener = match asked.listener {
        None => known.first().copied(),
        Some(asked) => known.into_iter().find(|known| *known == asked),
    };
    let Some(listener) = listener else {
        let detail = "it is served at no such listener by TCP, which a test goes by";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    let address = reachable(listener);
    let Some(turn) = SelfTestTurn::take() else {
        let detail = "another self-test is under way: ask again when it has ended";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    };
    let host = asked.host.clone().filter(|host| !host.is_empty());
    let (end, ended) = mpsc::channel();
    let thread = thread::Builder::new().name("weft-self-test".into());
    let thread = thread.spawn(move || {
        let probed = probe(address, &to, host.as_deref());
        // The next may be asked for as soon as this one is answered.
        drop(turn);
        // The asker may have given up.
        let _ = end.send(probed);
    });
    thread.map_err(|error| {
        let detail = format!("no thread for a self-test: {error}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let probed = ended.recv_timeout(PATIENCE).unwrap_or_else(|why| Probed {
        error: Some(match why {
            RecvTimeoutError::Timeout => format!("no end after {} s", PATIENCE.as_secs()),
            RecvTimeoutError::Disconnected => {
                "a part of weft has failed: its log says more; report this".to_owned()
            }
        }),
        ..Probed::default()
    });
    Ok(told(served, asked, address, probed))
}

/// The lines that let in what was refused just now.
fn allowed(
    served: &ServedFile,
    asked: &SelfTestRequest,
    address: SocketAddr,
    probed: &Probed,
) -> Option<String> {
    probed.error.as_ref()?;
    let all = [&asked.subsystem, &asked.target, &asked.export];
    let target = all.into_iter().flatten().next();
    let is_it = |refused: &RefusalSummary| {
        let is_asker = match &probed.name {
            Some(name) => {
                let host = refused.host.as_ref();
                host.is_some_and(|host| host.eq_ignore_ascii_case(name))
            }
            None => refused.address == Some(address.ip()),
        };
        is_asker && refused.target.as_ref() == target
    };
    // A refusal is answered before it is noted.
    let give_up = Instant::now()
        + match asked.export {
            Some(_) => LOOK_MAX_NFS,
            None => LOOK_MAX,
        };
    loop {
        let all = served.refusals().refusals.into_iter();
        let last = all.filter(is_it).max_by_key(|refused| refused.last_unix_s);
        match last {
            Some(refused) => return refused.allow,
            None if Instant::now() >= give_up => return None,
            None => thread::sleep(PAUSE),
        }
    }
}

fn told(
    served: &ServedFile,
    asked: &SelfTestRequest,
    address: SocketAddr,
    probed: Probed,
) -> SelfTest {
    let allow = allowed(served, asked, address, &probed);
    let outcome = match (&probed.error, probed.asks_for_secret, &allow) {
        (None, ..) => SelfTestOutcome::Passed,
        (_, true, _) => SelfTestOutcome::Unproven,
        (_, _, Some(_)) => SelfTestOutcome::Refused,
        _ => SelfTestOutcome::Failed,
    };
    let mut unproven = vec![
        "the network between a client and this machine, and its firewalls: the test connects from \
         here"
            .to_owned(),
    ];
    if probed.asks_for_secret {
        unproven.push("that the initiator and this target have the same secret".to_owned());
    }
    if asked.export.is_some() {
        unproven.push("what a client at another address, or another user, may do".to_owned());
    }
    SelfTest {
        address,
        host: probed.name,
        outcome,
        steps: probed.steps,
        why: probed.error,
        allow,
        unproven,
    }
}
