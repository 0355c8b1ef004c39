//! What no single key decides: who may only read, where listeners cover each other, and what
//! is left without a listener.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use server::check;

use crate::model::{ListenerModel, Model, Notes, Spoken};
use crate::report::{Place, Report, Weight};
use crate::{Import, volumes};

const WHOLE: Place = Place { file: 0, line: 0 };

pub(crate) fn settle(import: &mut Import) {
    volumes::separate(import);
    let Import { model, report, .. } = import;
    if model.volumes.is_empty() && model.exports.is_empty() {
        let text = "there is nothing in it that weft could serve: no volume and no export";
        report.mistake(WHOLE, text);
        return;
    }
    read_only(model, report);
    cover(model, report);
    listen(model, report);
    unreached(model, report);
}

/// Of each volume: whether somebody reads and writes, and whether somebody only reads.
fn uses(model: &Model) -> HashMap<String, (bool, bool)> {
    let mut uses: HashMap<String, (bool, bool)> = HashMap::new();
    let mut see = |volume: &str, reads_only: bool| {
        let found = uses.entry(volume.to_owned()).or_default();
        match reads_only {
            true => found.1 = true,
            false => found.0 = true,
        }
    };
    for subsystem in &model.subsystems {
        for namespace in &subsystem.namespaces {
            see(&namespace.volume, false);
        }
    }
    for target in &model.targets {
        for lun in &target.luns {
            if target.any_initiator {
                see(&lun.volume, lun.read_only || target.any_reads_only);
            }
            for initiator in &target.initiators {
                let sees = initiator.luns.as_ref();
                if sees.is_none_or(|luns| luns.contains(&lun.lun)) {
                    let reads_only = lun.read_only || initiator.reads_only.contains(&lun.lun);
                    see(&lun.volume, reads_only);
                }
            }
            if !target.any_initiator && target.initiators.is_empty() {
                see(&lun.volume, lun.read_only);
            }
        }
    }
    uses
}

/// Weft lets all who see a volume write to it, or none.
fn read_only(model: &mut Model, report: &mut Report) {
    let uses = uses(model);
    let is_mixed = |volume: &str| uses.get(volume) == Some(&(true, true));
    for volume in &mut model.volumes {
        if uses.get(&volume.name) == Some(&(false, true)) && !volume.read_only {
            volume.read_only = true;
            volume
                .notes
                .set("read_only", "whoever sees it may only read it");
        }
    }
    const WHY: &str = "weft lets all who see a volume write, or none, and others write to it";
    let mut lose = |key: &str, why: String| report.add(WHOLE, key, Weight::Access, why);
    for target in &mut model.targets {
        let name = &target.name;
        target.luns.retain(|lun| {
            let stays = !(lun.read_only && is_mixed(&lun.volume));
            if !stays {
                lose(
                    "read-only",
                    format!("{name}, LUN {} is left out: {WHY}", lun.lun),
                );
            }
            stays
        });
        let mixed: Vec<u16> = target
            .luns
            .iter()
            .filter(|lun| is_mixed(&lun.volume))
            .map(|lun| lun.lun)
            .collect();
        if target.any_initiator && target.any_reads_only && !mixed.is_empty() {
            target.any_initiator = false;
            let why = format!("{name}: only initiators with a name are let in: {WHY}");
            lose("read-only", why);
        }
        let all: Vec<u16> = target.luns.iter().map(|lun| lun.lun).collect();
        for initiator in &mut target.initiators {
            let sees = initiator.luns.get_or_insert_with(|| all.clone());
            sees.retain(|lun| {
                let stays = !(initiator.reads_only.contains(lun) && mixed.contains(lun));
                if !stays {
                    let whose = initiator.name.as_deref().unwrap_or("all");
                    lose(
                        "read-only",
                        format!("{name}: {whose} does not see LUN {lun}: {WHY}"),
                    );
                }
                stays && all.contains(lun)
            });
            if *sees == all {
                initiator.luns = None;
            }
            initiator.reads_only.clear();
        }
        target.initiators.retain(|initiator| {
            let sees = initiator.luns.as_ref();
            sees.is_none_or(|luns| !luns.is_empty())
        });
    }
}

/// `[::]` takes every address, `0.0.0.0` every one of IPv4.
fn cover(model: &mut Model, report: &mut Report) {
    let mut kept: Vec<ListenerModel> = Vec::new();
    let mut moved: HashMap<SocketAddr, SocketAddr> = HashMap::new();
    // The wider first.
    let mut all = std::mem::take(&mut model.listeners);
    all.sort_by_key(|listener| match listener.address.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => 0,
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => 1,
        _ => 2,
    });
    for listener in all {
        let address = listener.address;
        let clash = kept.iter().find(|wide| check::clash(wide.address, address));
        let Some(wide) = clash else {
            kept.push(listener);
            continue;
        };
        let (by, spoken) = (wide.address, wide.spoken);
        if by == address && spoken == listener.spoken {
            continue;
        }
        if spoken != listener.spoken {
            let (word, _) = listener.spoken.word();
            let why = format!("{by} is taken by another protocol: {word} is not served there");
            report.add(WHOLE, &address.to_string(), Weight::Access, why);
            continue;
        }
        let is_same = address.ip().is_unspecified();
        let weight = if is_same {
            Weight::Default
        } else {
            Weight::Access
        };
        let why = format!("{by} takes this address too: what was reached here is reached there");
        report.add(WHOLE, &address.to_string(), weight, why);
        moved.insert(address, by);
    }
    model.listeners = kept;
    let place = |address: &mut SocketAddr| {
        if let Some(by) = moved.get(address) {
            *address = *by;
        }
    };
    let places = |list: &mut Option<Vec<SocketAddr>>| {
        let Some(list) = list else { return };
        list.iter_mut().for_each(place);
        list.sort();
        list.dedup();
    };
    for subsystem in &mut model.subsystems {
        places(&mut subsystem.listeners);
        subsystem.ana.iter_mut().for_each(|ana| {
            ana.at.as_mut().into_iter().for_each(place);
        });
    }
    for target in &mut model.targets {
        places(&mut target.portals);
    }
}

/// Every protocol has a listener.
fn listen(model: &mut Model, report: &mut Report) {
    let needs = [
        (Spoken::NvmeTcp, !model.subsystems.is_empty()),
        (Spoken::Iscsi, !model.targets.is_empty()),
        (Spoken::Nfs, !model.exports.is_empty()),
    ];
    for (spoken, is_needed) in needs {
        let mut listeners = model.listeners.iter();
        if !is_needed || listeners.any(|known| known.spoken == spoken && !known.discovery_only) {
            continue;
        }
        let (word, port) = spoken.word();
        let mut notes = Notes::default();
        notes.set(
            "address",
            "default: the source names no address that weft could take",
        );
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if spoken != Spoken::Nfs {
            let why = format!("there is no address for {word}: {address} is only for this machine");
            report.add(WHOLE, "listener", Weight::Access, why);
        }
        model.listeners.push(ListenerModel {
            address,
            spoken,
            discovery_only: false,
            notes,
        });
    }
    // In short where it says nothing.
    let of = |spoken: Spoken| {
        let all = model.listeners.iter();
        let all = all.filter(|known| known.spoken == spoken && !known.discovery_only);
        let mut all: Vec<SocketAddr> = all.map(|known| known.address).collect();
        all.sort();
        all
    };
    let (nvme, iscsi) = (of(Spoken::NvmeTcp), of(Spoken::Iscsi));
    for subsystem in &mut model.subsystems {
        subsystem.listeners.take_if(|list| *list == nvme);
    }
    for target in &mut model.targets {
        target.portals.take_if(|list| *list == iscsi);
    }
}

/// A target without a portal is reached nowhere, which weft has no word for.
fn unreached(model: &mut Model, report: &mut Report) {
    model.targets.retain(|target| {
        let is_reached = target.portals.as_ref().is_none_or(|list| !list.is_empty());
        if !is_reached {
            let why = "no portal reaches it: it is left out";
            report.add(WHOLE, &target.name, Weight::Access, why);
        }
        is_reached
    });
}
