//! The runner: what is planned and not yet in the journal is measured, one after
//! the other, and what the journal holds then becomes `results.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::catalogue::{CATALOGUE, SeriesSpec, SweepSpec};
use super::journal::{Journal, JournalError, Measurement, Reason};
use super::limit::{Ceilings, limit, median};
use super::load::{Durations, Load, Payload, Subject};
use super::measured::{
    Effort, FORMAT, Limit, Measured, Point, Provenance, Quantity, Sample, Series, Skipped, Sweep,
};
use super::plan::{Plan, PlanItem, told};
use super::progress::{RunProgress, show};
use super::sides;
use client::units::show_count;

/// Makes one run.
pub type Measure<'a> =
    &'a mut dyn FnMut(&Subject, &Load, &Durations) -> Result<sides::SideRun, sides::FigureError>;

/// How a run of a plan came to its end.
#[derive(Debug, Default)]
pub struct PlanOutcome {
    /// It was interrupted: there is more to do.
    pub is_interrupted: bool,
    /// What failed, by what and why.
    pub failed: Vec<Skipped>,
    /// What could not run here after all, likewise.
    pub skipped: Vec<Skipped>,
}

/// Measures what is planned and not in the journal.
///
/// # Errors
/// Where the journal cannot be written. What fails to be measured is no error.
pub fn run(
    plan: &Plan,
    journal: &mut Journal,
    measure: Measure<'_>,
) -> Result<PlanOutcome, JournalError> {
    let is_open = |item: &&PlanItem| {
        let PlanItem {
            sweep, series, x, ..
        } = item;
        !journal.has(sweep.name, series.name, *x, item.round)
    };
    let open: Vec<PlanItem> = plan.items.iter().filter(is_open).copied().collect();
    for reason in &plan.reasons {
        journal.tell(reason.clone())?;
    }
    let mut runner = Runner {
        progress: RunProgress::new(plan.estimate(&open)),
        effort: plan.effort,
        journal,
        measure,
        outcome: PlanOutcome::default(),
        not_here: Vec::new(),
    };
    for point in open.chunk_by(is_one_point) {
        runner.point(point)?;
        if runner.outcome.is_interrupted {
            break;
        }
    }
    runner.progress.end();
    Ok(runner.outcome)
}

fn is_one_point(a: &PlanItem, b: &PlanItem) -> bool {
    a.sweep.name == b.sweep.name && a.x == b.x
}

/// `sweep/series/label`.
fn name(item: &PlanItem) -> String {
    let label = item.sweep.axis.label_of(item.x);
    format!("{}/{}/{label}", item.sweep.name, item.series.name)
}

/// A run may fail because something else had the machine for all of its time.
const TRIES: u32 = 3;

struct Runner<'a> {
    effort: Effort,
    journal: &'a mut Journal,
    measure: Measure<'a>,
    progress: RunProgress,
    outcome: PlanOutcome,
    /// Subjects that do not run here, and why.
    not_here: Vec<(Subject, String)>,
}

impl Runner<'_> {
    fn point(&mut self, items: &[PlanItem]) -> Result<(), JournalError> {
        for item in items {
            let estimate = item.estimate(self.effort);
            let name = name(item);
            // What failed once here is not waited for again.
            let PlanOutcome {
                failed, skipped, ..
            } = &self.outcome;
            if !failed.iter().chain(skipped).any(|it| it.what == name) {
                self.progress.at(name.clone());
                self.item(item, name)?;
            }
            if self.outcome.is_interrupted {
                return Ok(());
            }
            self.progress.done(estimate);
        }
        if let Some(item) = items.first() {
            self.progress.line(&self.shown(item));
        }
        Ok(())
    }

    fn item(&mut self, item: &PlanItem, name: String) -> Result<(), JournalError> {
        match self.tried(item, &name) {
            Ok(run) => {
                let sample = kept(run.sample, item.round);
                self.journal.add(Measurement {
                    sweep: item.sweep.name.to_owned(),
                    series: item.series.name.to_owned(),
                    x: item.x,
                    sample,
                    commands: run.commands,
                    versions: run.versions,
                })
            }
            Err(sides::FigureError::Stopped) => {
                self.outcome.is_interrupted = true;
                Ok(())
            }
            Err(sides::FigureError::NotHere(why)) => {
                self.progress.line(&format!("{name}: NOT MEASURED: {why}"));
                self.not_here.push((item.series.subject, why.clone()));
                let what = Skipped { what: name, why };
                self.outcome.skipped.push(what.clone());
                self.tell(item, what.why)
            }
            Err(sides::FigureError::Failed(why)) => {
                self.progress.line(&format!("{name}: FAILED: {why}"));
                let why = format!("failed: {why}");
                let what = Skipped { what: name, why };
                self.outcome.failed.push(what.clone());
                self.tell(item, what.why)
            }
        }
    }

    /// The journal keeps why there is nothing.
    fn tell(&mut self, item: &PlanItem, why: String) -> Result<(), JournalError> {
        self.journal.tell(Reason {
            sweep: item.sweep.name.to_owned(),
            series: item.series.name.to_owned(),
            x: item.x,
            why,
        })
    }

    /// What came of it, at last.
    fn tried(&mut self, item: &PlanItem, name: &str) -> Result<sides::SideRun, sides::FigureError> {
        let (load, how_long) = (item.load(), item.durations(self.effort));
        let mut known = self.not_here.iter();
        if let Some((_, why)) = known.find(|(subject, _)| *subject == item.series.subject) {
            return Err(sides::FigureError::NotHere(why.clone()));
        }
        let mut tried = 1;
        loop {
            match (self.measure)(&item.series.subject, &load, &how_long) {
                Err(sides::FigureError::Failed(why)) if tried < TRIES => {
                    self.progress
                        .line(&format!("{name}: failed, once more: {why}"));
                    tried += 1;
                }
                came => return came,
            }
        }
    }

    /// A point that is done, in one line: medians of rates.
    fn shown(&self, item: &PlanItem) -> String {
        let sweep = item.sweep;
        let rates = sweep.series.iter().filter_map(|series| {
            let point = point(self.journal, sweep, series.name, item.x)?;
            let rate = show_count(median(&point, Quantity::Iops)?);
            Some(format!("{} {rate}", series.name))
        });
        let rates: Vec<_> = rates.collect();
        let label = sweep.axis.label_of(item.x);
        format!("{} {label}: {} a second", sweep.name, rates.join(", "))
    }
}

/// A sample as it is kept: six digits of each number, more than any of them is
/// good for.
fn kept(mut sample: Sample, round: u32) -> Sample {
    sample.round = round;
    let pairs = sample.distribution.iter_mut();
    let numbers = pairs.flat_map(|(share, us)| [share, us]);
    let numbers = numbers.chain(sample.values.values_mut());
    for number in numbers.chain(&mut sample.tenths) {
        // Shares of a distribution tell 0.99999 from 1 by what they lack.
        let digits = if *number < 1.0 && *number > 0.5 { 9 } else { 5 };
        *number = format!("{number:.digits$e}").parse().unwrap_or(*number);
    }
    sample
}

/// All measurements of a series at a place, its bottleneck not yet named.
fn point(journal: &Journal, sweep: &SweepSpec, series: &str, x: f64) -> Option<Point> {
    let entries = journal.held.entries.iter().filter(|entry| {
        (entry.sweep.as_str(), entry.series.as_str()) == (sweep.name, series) && entry.x == x
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.sample.round);
    Some(Point {
        x,
        label: sweep.axis.label_of(x),
        commands: entries.first()?.commands.clone(),
        samples: entries.iter().map(|entry| entry.sample.clone()).collect(),
        limit: Limit::Unknown,
    })
}

/// All that the journal holds, of whichever runs.
#[must_use]
pub fn measured(journal: &Journal, provenance: Provenance) -> Measured {
    let (held, effort) = (&journal.held, journal.header.settings.effort);
    let known: Vec<_> = CATALOGUE
        .iter()
        .filter(|sweep| held.knows(sweep.name))
        .collect();
    let sweeps = known.iter().map(|sweep| swept(sweep, effort, journal));
    let skipped = known.iter().flat_map(|sweep| {
        told(sweep, effort, |series, x| {
            held.why(sweep.name, series.name, x)
        })
    });
    let entries = held.entries.iter();
    let versions: BTreeMap<_, _> = entries.flat_map(|entry| entry.versions.clone()).collect();
    Measured {
        format: FORMAT,
        effort,
        provenance: Provenance {
            commands: held.commands(),
            versions: versions.into_iter().collect(),
            ..provenance
        },
        sweeps: sweeps.filter(|sweep| !sweep.series.is_empty()).collect(),
        skipped: skipped.collect(),
    }
}

fn swept(sweep: &'static SweepSpec, effort: Effort, journal: &Journal) -> Sweep {
    let points = sweep.axis.points(effort);
    let at = |series: &str, x: f64| point(journal, sweep, series, x);
    let ceiling = |protocol, payload, x| {
        let subject = Subject::Ceiling(protocol, payload);
        let series = sweep
            .series
            .iter()
            .find(|series| series.subject == subject)?;
        at(series.name, x)
    };
    let judged = |mut point: Point, of: &'static SeriesSpec| {
        // What touches no memory is not held up by it.
        let has_memory = sweep.load_at(of, point.x).volume.has_memory();
        let [hot, cold] = [Payload::Hot, Payload::Cold].map(|payload| {
            let found = has_memory.then(|| ceiling(of.protocol(), payload, point.x));
            found.flatten()
        });
        point.limit = limit(
            &point,
            Ceilings {
                hot: hot.as_ref(),
                cold: cold.as_ref(),
            },
        );
        point
    };
    let series = sweep.series.iter().filter_map(|series| {
        let points = points.iter().filter_map(|x| at(series.name, *x));
        let points: Vec<_> = points.map(|point| judged(point, series)).collect();
        (!points.is_empty()).then(|| Series {
            name: series.name.to_owned(),
            role: series.role(),
            points,
        })
    });
    Sweep {
        name: sweep.name.to_owned(),
        series: series.collect(),
    }
}

/// The text at the end of a run.
#[must_use]
pub fn summary(plan: &Plan, outcome: &PlanOutcome, took: Duration) -> String {
    let mut text = match outcome.is_interrupted {
        true => format!("ended after {}; the same command goes on\n", show(took)),
        false => format!("done in {}\n", show(took)),
    };
    let all = plan.skipped.iter().chain(&outcome.skipped);
    for Skipped { what, why } in all.chain(&outcome.failed) {
        text.push_str(&format!("NOT MEASURED: {what}: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::journal::{JournalRun, JournalSettings};
    use super::super::load::LoadProtocol;
    use super::super::plan::chosen;
    use super::*;

    fn plan(names: &[&str]) -> Plan {
        plan_where(names, false)
    }

    fn plan_where(names: &[&str], has_files: bool) -> Plan {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let available = |subject: &Subject, _: &Load| match subject {
            Subject::Weft(LoadProtocol::Nfs, _) if !has_files => Err("no files here".to_owned()),
            _ => Ok(()),
        };
        Plan::new(&chosen(&names).expect("there"), Effort::Full, &available)
    }

    fn journal(folder: &Path) -> Journal {
        journal_of(folder, "weft bench")
    }

    fn journal_of(folder: &Path, command: &str) -> Journal {
        let settings = JournalSettings {
            effort: Effort::Full,
            program: "00".into(),
            peer: None,
            guest: None,
            agents: Vec::new(),
        };
        let run = JournalRun {
            command: command.into(),
            began: "then".into(),
        };
        Journal::open(folder, settings, run, false).expect("a journal")
    }

    /// A side whose rate tells what was asked.
    fn side(load: &Load) -> sides::SideRun {
        let rate = f64::from(load.iodepth) * 1000.0;
        sides::SideRun {
            sample: Sample {
                values: [(Quantity::Iops, rate)].into(),
                ..Sample::default()
            },
            commands: vec![format!("perf --iodepth {}", load.iodepth)],
            versions: vec![("peer".into(), "1.0".into())],
        }
    }

    #[test]
    fn an_ended_run_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(&["depth-read", "mixed"]);
        let mut asked = Vec::new();
        for ends_after in [7, 20, usize::MAX] {
            let mut journal = journal(folder.path());
            let before = asked.len();
            let mut measure = |subject: &Subject, load: &Load, _: &Durations| {
                if asked.len() - before >= ends_after {
                    return Err(sides::FigureError::Stopped);
                }
                asked.push((*subject, *load));
                Ok(side(load))
            };
            let outcome = run(&plan, &mut journal, &mut measure).expect("room");
            assert_eq!(outcome.is_interrupted, ends_after != usize::MAX);
            assert_eq!(journal.held.entries.len(), asked.len());
        }
        // Each once, in the plan's order, whatever ended in between.
        let planned = plan.items.iter();
        let planned: Vec<_> = planned
            .map(|item| (item.series.subject, item.load()))
            .collect();
        assert_eq!(asked, planned);
        let mut never = |_: &Subject, _: &Load, _: &Durations| panic!("all is measured");
        let outcome = run(&plan, &mut journal(folder.path()), &mut never).expect("nothing to do");
        assert!(!outcome.is_interrupted && outcome.failed.is_empty());
    }

    #[test]
    fn samples_keep_six_digits() {
        let sample = Sample {
            values: [(Quantity::Iops, 1_234_567.89), (Quantity::P50Us, 1e6 / 3.0)].into(),
            tenths: vec![1000.0, 0.0],
            distribution: vec![(0.999_990_234, 20.000_001)],
            ..Sample::default()
        };
        let kept = kept(sample, 4);
        assert_eq!(kept.values[&Quantity::Iops], 1_234_570.0);
        assert_eq!(kept.values[&Quantity::P50Us], 333_333.0);
        assert_eq!(kept.tenths, [1000.0, 0.0]);
        assert_eq!(kept.distribution, [(0.999_990_234, 20.0)]);
        assert_eq!(kept.round, 4);
    }

    #[test]
    fn every_sample_arrives_at_its_point() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(&["depth-read", "mixed"]);
        let mut journal = journal(folder.path());
        let mut measure = |_: &Subject, load: &Load, _: &Durations| Ok(side(load));
        let outcome = run(&plan, &mut journal, &mut measure).expect("room");
        assert!(outcome.failed.is_empty());
        let measured = measured(&journal, Provenance::default());
        let names: Vec<_> = measured
            .sweeps
            .iter()
            .map(|sweep| sweep.name.as_str())
            .collect();
        assert_eq!(names, ["depth-read", "mixed"]);
        assert_eq!(
            measured.provenance.versions,
            [("peer".into(), "1.0".into())]
        );
        let depth = &measured.sweeps[0];
        let spec = SweepSpec::named("depth-read").expect("there");
        assert_eq!(depth.series.len(), spec.series.len());
        for series in &depth.series {
            let x: Vec<_> = series.points.iter().map(|point| point.x).collect();
            assert_eq!(x, spec.axis.full);
            for point in &series.points {
                let rounds: Vec<_> = point.samples.iter().map(|sample| sample.round).collect();
                assert_eq!(rounds, [0, 1, 2]);
                assert_eq!(median(point, Quantity::Iops), Some(point.x * 1000.0));
                assert_eq!(point.commands, [format!("perf --iodepth {}", point.x)]);
            }
        }
        // The series that is not there stands among what was skipped.
        assert_eq!(measured.skipped[0].what, "mixed/NFS");
        assert_eq!(measured.sweeps[1].series.len(), 3);
    }

    #[test]
    fn measurement_that_fails_costs_its_point_alone_and_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(&["depth-read"]);
        let fails = |load: &Load, subject: &Subject| {
            load.iodepth == 8 && matches!(subject, Subject::Ceiling(_, Payload::Cold))
        };
        let mut tries = 0;
        let mut measure = |subject: &Subject, load: &Load, _: &Durations| match fails(load, subject)
        {
            true => {
                tries += 1;
                Err(sides::FigureError::Failed("it is broken".into()))
            }
            false => Ok(side(load)),
        };
        let mut journal_ = journal(folder.path());
        let outcome = run(&plan, &mut journal_, &mut measure).expect("room");
        assert_eq!(tries, TRIES, "not waited for in later rounds");
        assert_eq!(outcome.failed.len(), 1);
        assert_eq!(outcome.failed[0].what, "depth-read/ceiling, cold/8");
        assert!(outcome.failed[0].why.contains("it is broken"));
        let result = measured(&journal_, Provenance::default());
        assert_eq!(result.skipped, outcome.failed);
        assert!(summary(&plan, &outcome, Duration::ZERO).contains("NOT MEASURED: depth-read"));
        // The same command tries again what failed, and nothing else.
        let mut again = 0;
        let mut measure = |_: &Subject, load: &Load, _: &Durations| {
            again += 1;
            Ok(side(load))
        };
        let outcome = run(&plan, &mut journal_, &mut measure).expect("room");
        assert_eq!((again, outcome.failed.len()), (3, 0));
    }

    /// It is asked once, told at each of its points, and no failure of the run.
    #[test]
    fn program_of_others_that_does_not_start_is_skipped() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = plan(&["depth-read"]);
        let of_cold = |subject: &Subject| matches!(subject, Subject::Ceiling(_, Payload::Cold));
        let mut asked = 0;
        let mut measure = |subject: &Subject, load: &Load, _: &Durations| match of_cold(subject) {
            true => {
                asked += 1;
                Err(sides::FigureError::NotHere("it does not listen".into()))
            }
            false => Ok(side(load)),
        };
        let mut journal_ = journal(folder.path());
        let outcome = run(&plan, &mut journal_, &mut measure).expect("room");
        assert_eq!(asked, 1);
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let points = SweepSpec::named("depth-read").expect("there").axis.full;
        assert_eq!(outcome.skipped.len(), points.len());
        let told = summary(&plan, &outcome, Duration::ZERO);
        assert!(told.contains("NOT MEASURED: depth-read"), "{told}");
        let result = measured(&journal_, Provenance::default());
        assert_eq!(result.skipped.len(), 1);
        assert_eq!(result.skipped[0].why, "it does not listen");
    }

    /// What reports say of runs into one folder, each opening the journal anew.
    #[test]
    fn later_runs_forget_nothing_of_earlier_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = |command: &str, plan: &Plan, is_broken: bool| {
            let mut journal = journal_of(folder.path(), command);
            let mut measure = |subject: &Subject, load: &Load, _: &Durations| {
                let is_cold = matches!(subject, Subject::Ceiling(_, Payload::Cold));
                match is_broken && is_cold {
                    true => Err(sides::FigureError::Failed("it is broken".into())),
                    false => Ok(side(load)),
                }
            };
            run(plan, &mut journal, &mut measure).expect("room");
            measured(
                &journal_of(folder.path(), "weft bench report"),
                Provenance::default(),
            )
        };
        let whys = |measured: &Measured| {
            let skipped = measured.skipped.iter().cloned();
            skipped.map(|one| (one.what, one.why)).collect::<Vec<_>>()
        };
        let pair = |what: &str, why: &str| (what.to_owned(), why.to_owned());
        let broken = |sweep: &str| {
            let what = format!("{sweep}/ceiling, cold");
            pair(&what, "failed: it is broken")
        };
        let no_files = |what: &str| pair(what, "no files here");
        let of_others = [
            no_files("mixed/NFS"),
            broken("mixed"),
            no_files("nfs-names"),
        ];
        let of_all = [&[broken("depth-read")], &of_others[..]].concat();
        // Some fail at every point, others are not there.
        let first = made("first", &plan(&["depth-read", "mixed", "nfs-names"]), true);
        assert_eq!(whys(&first), of_all);
        // A run of something else knows of neither.
        let second = made("second", &plan_where(&["nvme-read"], true), false);
        assert_eq!(whys(&second), of_all);
        assert_eq!(second.sweeps.len(), 3);
        // What then succeeds loses its old failure, and nothing else does.
        let third = made("third", &plan(&["depth-read"]), false);
        assert_eq!(whys(&third), of_others);
        assert_eq!(third.provenance.commands, ["first", "second", "third"]);
        let fourth = made("fourth", &plan_where(&["mixed", "nfs-names"], true), false);
        assert_eq!(whys(&fourth), []);
        // Nothing was left to do.
        let fifth = made("fifth", &plan(&["mixed", "depth-read"]), true);
        assert_eq!(fifth, fourth);
        assert_eq!(fifth.provenance.commands.len(), 4);
    }
}
