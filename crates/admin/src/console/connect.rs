//! How a client connects to what is served now.

use std::net::SocketAddr;

use control::{ClientSystem, Reached, ReachedObject, reachable};
use server::{Protocol, Served};
use web_console::{ConnectPage, Page};

use super::Pairs;
use crate::problem::Problem;
use crate::served::ServedFile;

/// The commands for what was chosen.
pub(super) fn show(served: &ServedFile, page: &Page<'_>, pairs: &Pairs) -> Result<String, Problem> {
    let now = served.running().served();
    let all = all(&now);
    let asked = pairs.one("to");
    let chosen = all.iter().find(|(name, ..)| Some(&**name) == asked);
    let Some((name, what, address)) = chosen.or(all.first()) else {
        return Ok(web_console::connect(page, &ConnectPage::default()));
    };
    let mut systems = ClientSystem::ALL.into_iter();
    let system = systems.find(|system| Some(system.name()) == pairs.one("system"));
    let system = system.unwrap_or(ClientSystem::Linux);
    let reached = Reached {
        what: *what,
        address: reachable(*address),
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
    };
    Ok(web_console::connect(page, &shown))
}

/// Everything that is served, with the first address where it is reached.
fn all(served: &Served) -> Vec<(String, ReachedObject<'_>, SocketAddr)> {
    let first = |protocol, will_do: &dyn Fn(u16) -> bool| {
        let mut all = served.listeners.iter();
        let found = all.find(|(number, listener)| {
            listener.protocol == protocol && !listener.discovery_only && will_do(*number)
        });
        found.map(|(_, listener)| listener.address)
    };
    let mut all = Vec::new();
    for subsystem in &served.subsystems {
        let on = subsystem.listeners.as_ref();
        let is_on = |number| on.is_none_or(|on| on.contains(&number));
        if let Some(address) = first(Protocol::NvmeTcp, &is_on) {
            let nqn = &subsystem.nqn;
            all.push((
                format!("NVMe {nqn}"),
                ReachedObject::Subsystem(nqn),
                address,
            ));
        }
    }
    for spec in &served.targets {
        let (target, luns) = (&spec.target, &spec.luns);
        let is_on =
            |number| target.portal_groups.is_empty() || target.portal_group_of(number).is_some();
        let Some(address) = first(Protocol::Iscsi, &is_on) else {
            continue;
        };
        all.extend(luns.iter().map(|lun| {
            let unit = ReachedObject::Unit {
                target: &target.name,
                lun: lun.lun,
                user: target.auth.chap.as_ref().map(|chap| &*chap.user),
            };
            let name = format!("iSCSI {} LUN {} ({})", target.name, lun.lun, lun.volume);
            (name, unit, address)
        }));
    }
    if let Some(address) = first(Protocol::Nfs, &|_| true) {
        let exports = served.exports.iter();
        all.extend(exports.map(|export| {
            let path = &*export.path;
            (format!("NFS {path}"), ReachedObject::Export(path), address)
        }));
    }
    all
}
