//! Who was connected with whom: drawn from what the sweeps asked for.

use super::figure::Source;
use super::letters::Letters;
use super::picture::{Anchor, Colour, GREY, INK, PAPER, Pen, Picture, TEXT, Words};
use crate::figures::load::{Load, Protocol, Subject};

const TARGET: Colour = (0xe6, 0xf1, 0xf8);
const CLIENT: Colour = (0xfd, 0xf1, 0xe3);
const KERNEL: Colour = (0xf1, 0xf1, 0xf1);
const EDGE: Colour = (0x77, 0x77, 0x77);
const WIDTH: f64 = 980.0;
const LINE: f64 = 17.0;

/// One kind of set-up.
#[derive(Clone, Debug, PartialEq)]
struct Setup {
    /// What is between target and clients.
    link: String,
    /// Clients.
    hosts: u16,
    /// What the target does where.
    target: Vec<String>,
    /// Whose connections there are.
    connections: Vec<String>,
}

/// A drawing for each set-up that the sweeps have, and which sweeps those are.
pub(super) fn draw(sources: &[&Source<'_>], letters: &Letters) -> Vec<(String, Picture)> {
    let setups = [alone(sources), over_veth(sources), of_many(sources)];
    let drawn = setups.into_iter().flatten();
    drawn
        .map(|(what, setup)| (what, picture(&setup, letters)))
        .collect()
}

/// Target and client on the loopback interface.
fn alone(sources: &[&Source<'_>]) -> Option<(String, Setup)> {
    let is_plain = |load: &Load| load.mtu.is_none() && load.hosts == 1;
    let loads = sources
        .iter()
        .flat_map(|source| loads(source))
        .filter(is_plain);
    let loads: Vec<_> = loads.collect();
    let cores = loads.iter().map(|load| load.target_cores).max()?;
    let connections = loads.iter().map(|load| load.connections).max()?;
    let reactors = match cores {
        1 => "1 reactor on a CPU of its own".to_owned(),
        cores => format!("1 reactor on a CPU of its own; over cores, up to {cores}"),
    };
    let setup = Setup {
        link: "loopback interface".into(),
        hosts: 1,
        target: vec![reactors, "1 volume or file system in memory".into()],
        connections: vec![format!("TCP, 1 to {connections} connections")],
    };
    Some(("All figures but those of the drawings below.".into(), setup))
}

fn over_veth(sources: &[&Source<'_>]) -> Option<(String, Setup)> {
    let has_mtu = |source: &&&Source<'_>| loads(source).iter().any(|load| load.mtu.is_some());
    let all: Vec<_> = sources.iter().filter(has_mtu).collect();
    let loads = all.iter().flat_map(|source| loads(source));
    let mut mtus: Vec<_> = loads.filter_map(|load| load.mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    let mtus: Vec<_> = mtus.iter().map(u32::to_string).collect();
    let first = all.first()?;
    let setup = Setup {
        link: "veth pair".into(),
        hosts: 1,
        target: vec![
            "1 reactor on a CPU of its own".into(),
            "1 volume or file system in memory".into(),
            "in a network namespace of its own".into(),
        ],
        connections: vec![
            format!("MTU {}", mtus.join(", ")),
            format!("TCP, {} connections", first.spec.load.connections),
        ],
    };
    Some((titles(&all), setup))
}

fn of_many(sources: &[&Source<'_>]) -> Option<(String, Setup)> {
    let is_many = |source: &&&Source<'_>| loads(source).iter().any(|load| load.hosts > 1);
    let all: Vec<_> = sources.iter().filter(is_many).collect();
    let spec = all.first()?.spec;
    let x = spec.axis.full.first()?;
    let loads = spec
        .series
        .iter()
        .map(|series| (series, spec.load_at(series, *x)));
    let many: Vec<_> = loads.filter(|(_, load)| load.hosts > 1).collect();
    let each = many.iter().filter_map(|(series, load)| {
        let (what, protocol) = match series.subject {
            Subject::Weft(Protocol::NvmeTcp, _) => ("subsystems", "NVMe/TCP"),
            Subject::Weft(Protocol::Iscsi, _) => ("LUNs", "iSCSI"),
            Subject::Weft(Protocol::Nfs, _) => ("shares", "NFS"),
            _ => return None,
        };
        let (share, connections) = (load.devices / load.hosts, load.connections);
        let devices = load.devices;
        Some(format!(
            "{protocol}: {devices} {what}, {share} a host, {connections} connections each"
        ))
    });
    let setup = Setup {
        link: "loopback interface".into(),
        hosts: many.first()?.1.hosts,
        target: vec![
            "1 reactor on a CPU of its own".into(),
            "volumes in memory, a share for each host".into(),
        ],
        connections: each.collect(),
    };
    Some((titles(&all), setup))
}

/// Of every series at every point where it was measured.
fn loads(source: &Source<'_>) -> Vec<Load> {
    let measured = source.sweep.series.iter().flat_map(|series| {
        let spec = source.spec.series_named(&series.name);
        let points = series
            .points
            .iter()
            .filter(|point| !point.samples.is_empty());
        points.filter_map(move |point| Some(source.spec.load_at(spec?, point.x)))
    });
    measured.collect()
}

fn titles(sources: &[&&Source<'_>]) -> String {
    let titles: Vec<_> = sources.iter().map(|source| source.spec.title).collect();
    format!("{}.", titles.join("; "))
}

/// Target on the left, clients on the right, the kernel between them.
fn picture(setup: &Setup, letters: &Letters) -> Picture {
    let width = |text: &str| letters.width(text) * TEXT * 1.12;
    let between = setup.connections.iter();
    let between = between.flat_map(|text| super::chart::wrap(text, 226.0, width));
    let between: Vec<_> = between.collect();
    let rows = (f64::from(setup.hosts) * 48.0)
        .max(50.0 + LINE * between.len() as f64)
        .max(96.0 + LINE * setup.target.len() as f64);
    let (top, bottom) = (40.0, 40.0 + rows);
    let mut picture = Picture {
        width: WIDTH,
        height: bottom + 16.0,
        title: format!("Topology: {}", setup.link),
        shapes: Vec::new(),
    };
    let edge = Some(Pen::solid(EDGE, 1.2));
    picture.rect((4.0, 4.0), (WIDTH - 4.0, bottom + 12.0), PAPER, edge);
    let title = Words::new("one machine", (18.0, 26.0), TEXT, Anchor::Start);
    picture.words(Words {
        colour: GREY,
        ..title
    });
    let middle = (top + bottom) / 2.0;
    let room = rows / f64::from(setup.hosts);
    let ways = (0..setup.hosts).map(|host| {
        let y = top + room * (f64::from(host) + 0.5);
        vec![(346.0, middle), (404.0, y), (690.0, y)]
    });
    picture.lines(ways.collect(), Pen::solid(INK, 1.6));
    target(&mut picture, setup, (top, bottom));
    picture.rect((404.0, top), (648.0, bottom), KERNEL, edge);
    bold(
        &mut picture,
        &format!("kernel: {}", setup.link),
        (416.0, top + 22.0),
    );
    lines(&mut picture, &between, (416.0, top + 42.0));
    for host in 0..setup.hosts {
        let y = top + room * f64::from(host);
        picture.rect((690.0, y + 2.0), (962.0, y + room - 2.0), CLIENT, edge);
        let (name, cpus) = match setup.hosts {
            1 => (
                "client: weft perf".to_owned(),
                "1 thread on another CPU, where there is one",
            ),
            _ => (
                format!("host {}: weft perf", host + 1),
                "on the CPUs that the target leaves",
            ),
        };
        let line = y + room / 2.0 + 4.0;
        bold(&mut picture, &name, (704.0, line - 8.0));
        lines(&mut picture, &[cpus.to_owned()], (704.0, line + 9.0));
    }
    picture
}

fn target(picture: &mut Picture, setup: &Setup, (top, bottom): (f64, f64)) {
    let edge = Some(Pen::solid(EDGE, 1.2));
    picture.rect((18.0, top), (346.0, bottom), TARGET, edge);
    bold(picture, "target: weft serve", (32.0, top + 22.0));
    let (from, to) = (top + 34.0, top + 68.0);
    for (name, left, right) in [("store", 32.0, 150.0), ("reactor", 206.0, 332.0)] {
        picture.rect((left, from), (right, to), PAPER, edge);
        let at = ((left + right) / 2.0, from + 21.0);
        picture.words(Words::new(name, at, TEXT, Anchor::Middle));
    }
    let middle = (from + to) / 2.0;
    picture.line(&[(150.0, middle), (206.0, middle)], Pen::solid(INK, 1.6));
    lines(picture, &setup.target, (32.0, to + 20.0));
}

fn lines(picture: &mut Picture, lines: &[String], (x, y): (f64, f64)) {
    for (at, line) in lines.iter().enumerate() {
        let place = (x, y + LINE * at as f64);
        picture.words(Words::new(line, place, TEXT, Anchor::Start));
    }
}

fn bold(picture: &mut Picture, text: &str, at: (f64, f64)) {
    picture.words(Words {
        is_bold: true,
        ..Words::new(text, at, TEXT, Anchor::Start)
    });
}
