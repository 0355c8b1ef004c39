//! Who was connected with whom: drawn from what the sweeps asked for.

use super::letters::Letters;
use super::picture::{Anchor, Colour, GREY, INK, PAPER, Pen, Picture, TEXT, Words};
use crate::figures::catalogue::SweepSpec;
use crate::figures::load::{Load, Protocol, Subject};

const TARGET: Colour = (0xe6, 0xf1, 0xf8);
const CLIENT: Colour = (0xfd, 0xf1, 0xe3);
const KERNEL: Colour = (0xf1, 0xf1, 0xf1);
const EDGE: Colour = (0x77, 0x77, 0x77);

/// One kind of set-up.
#[derive(Clone, Debug, PartialEq)]
struct Setup {
    link: String,
    hosts: u16,
    target_cores: u16,
    /// What each host has to do with the target.
    each: String,
    devices: String,
}

/// A drawing for each set-up that the sweeps have, and which sweeps those are.
pub(super) fn draw(specs: &[&SweepSpec], letters: &Letters) -> Vec<(String, Picture)> {
    let loopback = specs
        .iter()
        .filter(|spec| of(spec).iter().any(|load| is_plain(load)));
    let mut drawings = Vec::new();
    if loopback.count() > 0 {
        let setup = Setup {
            link: "loopback (lo, MTU 65536), TCP".into(),
            hosts: 1,
            target_cores: 1,
            each: "1 to many connections".into(),
            devices: "1 volume or file system in memory".into(),
        };
        drawings.push((
            "All sweeps but the ones below.".to_owned(),
            picture(&setup, letters),
        ));
    }
    if let Some((spec, mtus)) = over_veth(specs) {
        let setup = Setup {
            link: format!("veth pair between two network namespaces, MTU {mtus}, TCP"),
            hosts: 1,
            target_cores: 1,
            each: format!("{} connections", spec.load.connections),
            devices: "1 volume or file system in memory".into(),
        };
        drawings.push((format!("{}.", spec.title), picture(&setup, letters)));
    }
    if let Some((spec, hosts, each)) = of_many(specs) {
        let setup = Setup {
            link: "loopback (lo, MTU 65536), TCP".into(),
            hosts,
            target_cores: 1,
            each,
            devices: "volumes in memory, a share for each host".into(),
        };
        drawings.push((format!("{}.", spec.title), picture(&setup, letters)));
    }
    drawings
}

/// Loads of the first point of each series.
fn of(spec: &SweepSpec) -> Vec<Load> {
    let x = spec.axis.full.first().copied().unwrap_or(0.0);
    let series = spec.series.iter();
    series.map(|series| spec.load_at(series, x)).collect()
}

fn is_plain(load: &Load) -> bool {
    load.mtu.is_none() && load.hosts == 1
}

fn over_veth<'a>(specs: &[&'a SweepSpec]) -> Option<(&'a SweepSpec, String)> {
    let spec = specs
        .iter()
        .find(|spec| of(spec).iter().any(|load| load.mtu.is_some()))?;
    let mtus = spec.axis.full.iter().map(f64::to_string);
    Some((spec, mtus.collect::<Vec<_>>().join(", ")))
}

fn of_many<'a>(specs: &[&'a SweepSpec]) -> Option<(&'a SweepSpec, u16, String)> {
    let is_many = |spec: &&&SweepSpec| of(spec).iter().any(|load| load.hosts > 1);
    let spec = specs.iter().find(is_many)?;
    let loads = spec.series.iter().zip(of(spec));
    let many: Vec<_> = loads.filter(|(_, load)| load.hosts > 1).collect();
    let each = many.iter().filter_map(|(series, load)| {
        let (what, protocol) = match series.subject {
            Subject::Weft(Protocol::NvmeTcp, _) => ("subsystems", "NVMe/TCP"),
            Subject::Weft(Protocol::Iscsi, _) => ("LUNs", "iSCSI"),
            Subject::Weft(Protocol::Nfs, _) => ("shares", "NFS"),
            _ => return None,
        };
        let share = load.devices / load.hosts;
        Some(format!(
            "{protocol}: {} {what}, {share} each × {}",
            load.devices, load.connections
        ))
    });
    let hosts = many.first().map_or(1, |(_, load)| load.hosts);
    Some((spec, hosts, each.collect::<Vec<_>>().join("; ")))
}

/// Target on the left, clients on the right, the kernel between them.
fn picture(setup: &Setup, letters: &Letters) -> Picture {
    let rows = f64::from(setup.hosts.max(2));
    let height = 96.0 + 46.0 * rows;
    let mut picture = Picture {
        width: 980.0,
        height,
        title: format!("Topology: {}", setup.link),
        shapes: Vec::new(),
    };
    let edge = Some(Pen::solid(EDGE, 1.2));
    let (top, bottom) = (44.0, height - 16.0);
    picture.rect((8.0, 8.0), (972.0, height - 4.0), PAPER, edge);
    let title = Words::new("one machine", (20.0, 29.0), TEXT, Anchor::Start);
    picture.words(Words {
        colour: GREY,
        ..title
    });
    target(&mut picture, setup, (top, bottom));
    let middle = (top + bottom) / 2.0;
    // Clients, and the line from each of them.
    let room = (bottom - top) / f64::from(setup.hosts);
    for host in 0..setup.hosts {
        let y = top + room * f64::from(host);
        picture.rect((690.0, y + 3.0), (958.0, y + room - 3.0), CLIENT, edge);
        let name = match setup.hosts {
            1 => "client: weft perf".to_owned(),
            _ => format!("host {}: weft perf", host + 1),
        };
        let line = y + room / 2.0 + 4.0;
        let rest = match setup.hosts {
            1 => "the other CPUs",
            _ => "the other CPUs, shared",
        };
        bold(&mut picture, &name, (704.0, line - 9.0));
        let words = Words::new(rest, (704.0, line + 8.0), TEXT, Anchor::Start);
        picture.words(words);
        let pen = Pen::solid(INK, 1.6);
        picture.line(
            &[
                (330.0, middle),
                (410.0, y + room / 2.0),
                (690.0, y + room / 2.0),
            ],
            pen,
        );
    }
    picture.rect((400.0, top + 3.0), (640.0, bottom - 3.0), KERNEL, edge);
    bold(&mut picture, "kernel", (414.0, top + 24.0));
    let words = [&setup.link, &setup.each]
        .map(|text| super::chart::wrap(text, 214.0, |text| letters.width(text) * TEXT * 1.12));
    for (at, line) in words.concat().into_iter().enumerate() {
        let place = (414.0, top + 44.0 + 16.0 * at as f64);
        picture.words(Words::new(line, place, TEXT, Anchor::Start));
    }
    picture
}

fn target(picture: &mut Picture, setup: &Setup, (top, bottom): (f64, f64)) {
    let edge = Some(Pen::solid(EDGE, 1.2));
    picture.rect((22.0, top + 3.0), (330.0, bottom - 3.0), TARGET, edge);
    bold(picture, "target: weft serve", (36.0, top + 24.0));
    let middle = (top + bottom) / 2.0;
    let reactor = match setup.target_cores {
        1 => "1 reactor on its own CPU".to_owned(),
        cores => format!("{cores} reactors, a CPU each"),
    };
    picture.rect((190.0, middle - 18.0), (316.0, middle + 30.0), PAPER, edge);
    let name = Words::new("reactor", (253.0, middle + 2.0), TEXT, Anchor::Middle);
    picture.words(name);
    let cpu = Words::new(
        "CPU of its own",
        (253.0, middle + 19.0),
        TEXT,
        Anchor::Middle,
    );
    picture.words(cpu);
    picture.rect((36.0, middle - 18.0), (150.0, middle + 30.0), PAPER, edge);
    let store = Words::new("store", (93.0, middle + 2.0), TEXT, Anchor::Middle);
    picture.words(store);
    let memory = Words::new("in memory", (93.0, middle + 19.0), TEXT, Anchor::Middle);
    picture.words(memory);
    picture.line(
        &[(150.0, middle + 6.0), (190.0, middle + 6.0)],
        Pen::solid(INK, 1.6),
    );
    for (at, line) in [reactor, setup.devices.clone()].into_iter().enumerate() {
        let place = (36.0, bottom - 30.0 + 16.0 * at as f64);
        picture.words(Words::new(line, place, TEXT, Anchor::Start));
    }
}

fn bold(picture: &mut Picture, text: &str, at: (f64, f64)) {
    picture.words(Words {
        is_bold: true,
        ..Words::new(text, at, TEXT, Anchor::Start)
    });
}
