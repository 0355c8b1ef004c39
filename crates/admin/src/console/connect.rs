//! How a client connects to what is served now.

use std::net::SocketAddr;

use api::{SelfTest, SelfTestRequest};
use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use control::{ClientSystem, NbdProof, NvmeProof, Reached, ReachedObject, reachable};
use server::Served as ServedNow;
use web_console::{ConnectPage, Page};

use super::{Pairs, page, page_of};
use crate::access::AdminCaller;
use crate::body::body_of;
use crate::off_thread::{Served, off_thread};
use crate::problem::Problem;
use crate::self_test::{self, of_exports, of_nbd_exports, of_subsystem, of_target};
use crate::served::ServedFile;

/// The commands for what was chosen.
pub(super) fn show(served: &ServedFile, page: &Page<'_>, pairs: &Pairs) -> Result<String, Problem> {
    Ok(shown(served, page, pairs, None))
}

/// Tries to connect, and shows what it came to above the commands.
pub(super) async fn test_by_form(
    State(served): Served,
    Extension(caller): Extension<AdminCaller>,
    request: Request,
) -> Response {
    let tested = async {
        let (_, body) = body_of(request).await?;
        let Json(html) = off_thread(move || {
            let pairs = Pairs::of(&body);
            let asked = asked(&served, &pairs)?;
            let tested = self_test::run(&served, &asked)?;
            let page = page_of("/connect", &caller);
            Ok::<_, Problem>(shown(&served, &page, &pairs, Some(tested)))
        })
        .await?;
        Ok::<_, Problem>(html)
    };
    match tested.await {
        Ok(html) => page(StatusCode::OK, html),
        Err(problem) => problem.page(),
    }
}

/// The test that a form asks for.
fn asked(served: &ServedFile, pairs: &Pairs) -> Result<SelfTestRequest, Problem> {
    let bad = |detail: &str| Problem::new(StatusCode::BAD_REQUEST, detail);
    let now = served.running().served();
    let all = all(&now, shows_nbd_certificate(served));
    let to = pairs.one("to");
    let (_, what, _) = all
        .iter()
        .find(|(name, ..)| Some(&**name) == to)
        .ok_or_else(|| bad("`to` is nothing that is served: choose again"))?;
    let listener = pairs.one("listener").map(str::parse).transpose();
    let mut asked = SelfTestRequest {
        listener: listener.map_err(|_| bad("`listener` is no address with a port"))?,
        host: pairs.one("host").map(|host| host.trim().to_owned()),
        ..SelfTestRequest::default()
    };
    match *what {
        ReachedObject::Subsystem { nqn, .. } => asked.subsystem = Some(nqn.to_owned()),
        ReachedObject::Unit { target, lun, .. } => {
            (asked.target, asked.lun) = (Some(target.to_owned()), Some(lun));
        }
        ReachedObject::Export(path) => asked.export = Some(path.to_owned()),
        ReachedObject::NbdExport(..) => {
            return Err(bad(
                "weft has no NBD client to try it with: run `nbdinfo` on the client",
            ));
        }
    }
    Ok(asked)
}

fn shown(served: &ServedFile, page: &Page<'_>, pairs: &Pairs, tested: Option<SelfTest>) -> String {
    let now = served.running().served();
    let all = all(&now, shows_nbd_certificate(served));
    let asked = pairs.one("to");
    let chosen = all.iter().find(|(name, ..)| Some(&**name) == asked);
    let Some((name, what, addresses)) = chosen.or(all.first()) else {
        return web_console::connect(page, &ConnectPage::default());
    };
    let address = addresses[0];
    let mut systems = ClientSystem::ALL.into_iter();
    let system = systems.find(|system| Some(system.name()) == pairs.one("system"));
    let system = system.unwrap_or(ClientSystem::Linux);
    let reached = Reached {
        what: *what,
        address: reachable(address),
        weft: "weft",
    };
    let steps = reached.steps(system).into_iter();
    let shown = ConnectPage {
        chosen: name.clone(),
        systems: ClientSystem::ALL.map(ClientSystem::name).to_vec(),
        system: system.name().to_owned(),
        steps: steps.map(|step| (step.title, step.lines)).collect(),
        is_own_address: address.ip().is_unspecified(),
        served: all.iter().map(|(name, ..)| name.clone()).collect(),
        listeners: addresses.iter().map(SocketAddr::to_string).collect(),
        host_is: match what {
            ReachedObject::Subsystem { .. } => Some("as host NQN"),
            ReachedObject::Unit { .. } => Some("as initiator"),
            ReachedObject::Export(_) | ReachedObject::NbdExport(..) => None,
        },
        host: pairs.one("host").unwrap_or_default().to_owned(),
        tested,
    };
    web_console::connect(page, &shown)
}

/// Whether NBD clients are shown a certificate.
fn shows_nbd_certificate(served: &ServedFile) -> bool {
    let tls = served.running().nbd_tls();
    tls.is_some_and(|tls| tls.certificates.is_some())
}

/// Everything that is served, with the addresses where it is reached: one or more.
fn all(
    served: &ServedNow,
    shows_nbd_certificate: bool,
) -> Vec<(String, ReachedObject<'_>, Vec<SocketAddr>)> {
    let mut all = Vec::new();
    for subsystem in &served.subsystems {
        let nqn = &subsystem.nqn;
        let addresses = of_subsystem(served, subsystem);
        let mut listeners = served.listeners.iter().map(|(_, spec)| spec);
        let first = listeners.find(|spec| Some(&spec.address) == addresses.first());
        let what = ReachedObject::Subsystem {
            nqn,
            proof: first.map_or_else(NvmeProof::default, |at| NvmeProof::of(subsystem, at)),
        };
        all.push((format!("NVMe {nqn}"), what, addresses));
    }
    for spec in &served.targets {
        let (target, luns) = (&spec.target, &spec.luns);
        let addresses = of_target(served, target);
        all.extend(luns.iter().map(|lun| {
            let unit = ReachedObject::Unit {
                target: &target.name,
                lun: lun.lun,
                user: target.auth.chap.as_ref().map(|chap| &*chap.user),
            };
            let name = format!("iSCSI {} LUN {} ({})", target.name, lun.lun, lun.volume);
            (name, unit, addresses.clone())
        }));
    }
    let addresses = of_exports(served);
    let exports = served.exports.iter();
    all.extend(exports.map(|export| {
        let path = &*export.path;
        let what = ReachedObject::Export(path);
        (format!("NFS {path}"), what, addresses.clone())
    }));
    let addresses = of_nbd_exports(served);
    let exports = served.nbd_exports.iter();
    all.extend(exports.map(|export| {
        let name = &*export.name;
        let mut listeners = served.listeners.iter().map(|(_, spec)| spec);
        let first = listeners.find(|spec| Some(&spec.address) == addresses.first());
        let proof = first.map(|at| NbdProof::of(export, at, shows_nbd_certificate));
        let what = ReachedObject::NbdExport(name, proof.unwrap_or_default());
        (format!("NBD {name}"), what, addresses.clone())
    }));
    all.retain(|(.., addresses)| !addresses.is_empty());
    all
}
