//! What will be run, in which order, and how long that takes.
//!
//! Point by point, and there round by round; in each round every series has its
//! turn, in one round from the first to the last, in the next from the last to
//! the first, so that none always follows the same one.

use std::time::Duration;

use super::catalogue::{CATALOGUE, Care, SeriesSpec, SweepSpec};
use super::journal::Reason;
use super::load::{Durations, Load, Subject};
use super::measured::{Effort, Skipped};

/// One run to be made.
#[derive(Clone, Copy, Debug)]
pub struct PlanItem {
    /// Of which sweep.
    pub sweep: &'static SweepSpec,
    /// Of which of its series.
    pub series: &'static SeriesSpec,
    /// Where on its axis.
    pub x: f64,
    /// In which round of that place.
    pub round: u32,
}

/// Why a subject cannot be measured here, in words with a remedy.
pub type Available<'a> = &'a dyn Fn(&Subject, &Load) -> Result<(), String>;

/// All runs, in order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How thorough.
    pub effort: Effort,
    /// Of which sweeps, in the catalogue's order.
    pub sweeps: Vec<&'static SweepSpec>,
    /// The runs.
    pub items: Vec<PlanItem>,
    /// What cannot be measured here, point by point.
    pub reasons: Vec<Reason>,
    /// The same as it is told.
    pub skipped: Vec<Skipped>,
}

/// How often and how long a point is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How often.
    pub rounds: u32,
    /// How long each time.
    pub durations: Durations,
}

impl Pace {
    /// Of a sweep that wants `care`.
    #[must_use]
    pub fn of(effort: Effort, care: Care) -> Pace {
        let (rounds, ramp_ms, runtime_ms, volume) = match (effort, care) {
            (Effort::Quick, Care::Rare) => (1, 50, 400, 64 << 20),
            (Effort::Quick, _) => (1, 50, 200, 64 << 20),
            (Effort::Normal, Care::Main) => (3, 50, 200, 256 << 20),
            (Effort::Normal, Care::Other) => (2, 50, 200, 256 << 20),
            (Effort::Normal, Care::Rare) => (2, 200, 2000, 256 << 20),
            (Effort::Full, Care::Main) => (5, 50, 200, 256 << 20),
            (Effort::Full, Care::Other) => (3, 50, 200, 128 << 20),
            (Effort::Full, Care::Rare) => (3, 200, 2000, 256 << 20),
        };
        Pace {
            rounds,
            durations: Durations {
                ramp: Duration::from_millis(ramp_ms),
                runtime: Duration::from_millis(runtime_ms),
                volume_bytes: volume,
            },
        }
    }
}

impl PlanItem {
    /// How long it runs.
    #[must_use]
    pub fn durations(&self, effort: Effort) -> Durations {
        Pace::of(effort, self.sweep.care).durations
    }

    /// What is asked.
    #[must_use]
    pub fn load(&self) -> Load {
        self.sweep.load_at(self.series, self.x)
    }

    /// How long it takes with what is around it.
    #[must_use]
    pub fn estimate(&self, effort: Effort) -> Duration {
        let Durations {
            ramp,
            runtime,
            mut volume_bytes,
        } = self.durations(effort);
        if !self.load().volume.has_memory() || self.load().rw.is_metadata() {
            volume_bytes = 0;
        }
        let (around_ms, bytes_per_ms) = match self.series.subject {
            Subject::Weft(..) => (220, 2_000_000),
            Subject::Ceiling(..) => (30, 4_000_000),
            Subject::Local(_) => (80, 4_000_000),
            Subject::Peer(name) | Subject::Client(name) if name.ends_with("guest") => {
                (30_000, 500_000)
            }
            Subject::Peer(_) | Subject::Client(_) => (1_500, 1_000_000),
        };
        ramp + runtime + Duration::from_millis(around_ms + volume_bytes / bytes_per_ms)
    }
}

/// Words for what is missing of a sweep, from the widest to the narrowest. `why` knows
/// it of each point that is.
pub fn told<'a>(
    sweep: &SweepSpec,
    effort: Effort,
    why: impl Fn(&SeriesSpec, f64) -> Option<&'a str>,
) -> Vec<Skipped> {
    let points = sweep.axis.points(effort);
    let skipped = |what: String, why: &str| Skipped {
        what,
        why: why.to_owned(),
    };
    let of = |series| -> Vec<_> { points.iter().map(|x| why(series, *x)).collect() };
    let whys: Vec<_> = sweep.series.iter().map(of).collect();
    if let Some(why) = one(whys.iter().flatten()) {
        return vec![skipped(sweep.name.to_owned(), why)];
    }
    let mut told = Vec::new();
    for (series, whys) in sweep.series.iter().zip(&whys) {
        let name = format!("{}/{}", sweep.name, series.name);
        if let Some(why) = one(whys.iter()) {
            told.push(skipped(name, why));
            continue;
        }
        for (x, why) in points.iter().zip(whys) {
            if let Some(why) = why {
                let label = sweep.axis.label_of(*x);
                told.push(skipped(format!("{name}/{label}"), why));
            }
        }
    }
    told
}

/// What all are missing for, if that is one thing.
fn one<'a>(mut whys: impl Iterator<Item = &'a Option<&'a str>>) -> Option<&'a str> {
    let first = (*whys.next()?)?;
    whys.all(|why| *why == Some(first)).then_some(first)
}

impl Plan {
    /// All runs of `sweeps`.
    #[must_use]
    pub fn new(sweeps: &[&'static SweepSpec], effort: Effort, available: Available<'_>) -> Plan {
        let mut plan = Plan {
            effort,
            sweeps: sweeps.to_vec(),
            items: Vec::new(),
            reasons: Vec::new(),
            skipped: Vec::new(),
        };
        for sweep in sweeps {
            plan.add(sweep, available);
        }
        plan
    }

    fn add(&mut self, sweep: &'static SweepSpec, available: Available<'_>) {
        let points = sweep.axis.points(self.effort);
        let why =
            |series: &SeriesSpec, x| available(&series.subject, &sweep.load_at(series, x)).err();
        let whys: Vec<Vec<_>> = sweep
            .series
            .iter()
            .map(|series| points.iter().map(|x| why(series, *x)).collect())
            .collect();
        let rounds = Pace::of(self.effort, sweep.care).rounds;
        for (at, x) in points.iter().enumerate() {
            let here = sweep.series.iter().zip(&whys);
            let here = here.filter(|(_, whys)| whys[at].is_none());
            let here: Vec<_> = here.map(|(series, _)| series).collect();
            for round in 0..rounds {
                let item = |series: &&'static SeriesSpec| PlanItem {
                    sweep,
                    series,
                    x: *x,
                    round,
                };
                match round % 2 {
                    0 => self.items.extend(here.iter().map(item)),
                    _ => self.items.extend(here.iter().rev().map(item)),
                }
            }
        }
        let mut reasons = Vec::new();
        for (series, whys) in sweep.series.iter().zip(whys) {
            for (x, why) in points.iter().zip(whys) {
                reasons.extend(why.map(|why| Reason {
                    sweep: sweep.name.to_owned(),
                    series: series.name.to_owned(),
                    x: *x,
                    why,
                }));
            }
        }
        self.skipped.extend(told(sweep, self.effort, |series, x| {
            let mut all = reasons.iter();
            let found = all.find(|reason| reason.series == series.name && reason.x == x);
            found.map(|reason| reason.why.as_str())
        }));
        self.reasons.extend(reasons);
    }

    /// How long `items` take.
    #[must_use]
    pub fn estimate(&self, items: &[PlanItem]) -> Duration {
        items.iter().map(|item| item.estimate(self.effort)).sum()
    }
}

/// The sweeps that are named, each once and in the catalogue's order; "all" names
/// every one.
///
/// # Errors
/// A sentence with the nearest name where there is none that is called so.
pub fn chosen(names: &[String]) -> Result<Vec<&'static SweepSpec>, String> {
    let is_there = |name: &str| name == "all" || SweepSpec::named(name).is_some();
    if let Some(wrong) = names.iter().find(|name| !is_there(name)) {
        let distance = |name: &&str| strsim::damerau_levenshtein(wrong, name);
        let nearest = CATALOGUE
            .iter()
            .map(|sweep| sweep.name)
            .min_by_key(distance);
        // Farther than half of it no longer looks alike.
        let near = nearest.filter(|name| distance(name) * 2 <= name.len());
        let guess = near.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
        return Err(format!(
            "there is no figure `{wrong}`{guess}: `weft bench list` names all"
        ));
    }
    let wants = |sweep: &&SweepSpec| {
        let mut names = names.iter();
        names.any(|name| name == "all" || name == sweep.name)
    };
    Ok(CATALOGUE.iter().filter(wants).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadProtocol;

    const EFFORTS: [Effort; 3] = [Effort::Quick, Effort::Normal, Effort::Full];

    fn all(effort: Effort) -> Plan {
        let sweeps = chosen(&["all".into()]).expect("all");
        // What a user without guests, privileges and others' programs has.
        let available = |subject: &Subject, _: &Load| match subject {
            Subject::Peer(name) | Subject::Client(name) => Err(format!("no {name}")),
            _ => Ok(()),
        };
        Plan::new(&sweeps, effort, &available)
    }

    #[test]
    fn every_run_that_the_catalogue_wants_is_there_once() {
        for effort in EFFORTS {
            let plan = all(effort);
            for sweep in CATALOGUE {
                let rounds = Pace::of(effort, sweep.care).rounds;
                for series in sweep.series {
                    let of = plan.items.iter().filter(|item| {
                        item.sweep.name == sweep.name && item.series.name == series.name
                    });
                    let mut of: Vec<_> = of.map(|item| (item.x, item.round)).collect();
                    of.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
                    let skipped = format!("{}/{}", sweep.name, series.name);
                    if plan.skipped.iter().any(|skipped_| skipped_.what == skipped) {
                        assert!(of.is_empty(), "{skipped} is skipped and run");
                        continue;
                    }
                    let mut points = sweep.axis.points(effort).to_vec();
                    points.sort_by(f64::total_cmp);
                    let wanted: Vec<_> = points
                        .iter()
                        .flat_map(|x| (0..rounds).map(|round| (*x, round)))
                        .collect();
                    assert_eq!(of, wanted, "{skipped}");
                }
            }
        }
    }

    #[test]
    fn series_take_turns_and_turn_round() {
        let sweeps = chosen(&["depth-read".into()]).expect("there");
        let plan = Plan::new(&sweeps, Effort::Full, &|_, _| Ok(()));
        let series = sweeps[0].series.len();
        let names: Vec<_> = sweeps[0].series.iter().map(|series| series.name).collect();
        for (at, round) in plan.items.chunks(series).enumerate() {
            let alike = |item: &PlanItem| item.x == round[0].x && item.round == round[0].round;
            assert!(round.iter().all(alike), "all of a round are neighbours");
            let mut order: Vec<_> = round.iter().map(|item| item.series.name).collect();
            if round[0].round % 2 == 1 {
                order.reverse();
            }
            assert_eq!(order, names, "round {at}");
        }
        let rounds = Pace::of(Effort::Full, sweeps[0].care).rounds as usize;
        let points = sweeps[0].axis.full.len();
        assert_eq!(plan.items.len(), series * rounds * points);
    }

    #[test]
    fn skip_of_a_whole_series_or_sweep_is_told_once() {
        let sweeps = chosen(&["cores-read".into(), "mtu-read".into(), "mixed".into()]);
        let available = |subject: &Subject, load: &Load| match (subject, load) {
            (_, load) if load.mtu.is_some() => Err("no namespaces".to_owned()),
            (Subject::Weft(..), load) if load.target_cores > 2 => Err("2 cores".to_owned()),
            (Subject::Weft(LoadProtocol::Nfs, _), _) => Err("no NFS".to_owned()),
            _ => Ok(()),
        };
        let plan = Plan::new(&sweeps.expect("there"), Effort::Normal, &available);
        let told: Vec<_> = plan
            .skipped
            .iter()
            .map(|skipped| skipped.what.as_str())
            .collect();
        let wanted = [
            "cores-read/least-loaded/4",
            "cores-read/round-robin/4",
            "cores-read/incoming-cpu/4",
            "mtu-read",
            "mixed/NFS",
        ];
        assert_eq!(told, wanted);
        assert!(plan.items.iter().all(|item| item.load().mtu.is_none()));
    }

    #[test]
    fn estimates_are_within_the_promised_minutes() {
        let minutes = |effort| {
            let plan = all(effort);
            plan.estimate(&plan.items).as_secs_f64() / 60.0
        };
        let [quick, normal, full] = EFFORTS.map(minutes);
        assert!(quick < 4.0, "quick: {quick} minutes");
        assert!(normal > quick && normal < 15.0, "normal: {normal} minutes");
        assert!(full > normal && full < 30.5, "full: {full} minutes");
    }

    #[test]
    fn the_main_figures_have_rounds_enough() {
        assert!(Pace::of(Effort::Full, Care::Main).rounds >= 5);
        for effort in EFFORTS {
            let rounds = |care| Pace::of(effort, care).rounds;
            assert!(rounds(Care::Main) >= rounds(Care::Other));
        }
    }

    #[test]
    fn names_are_found_or_guessed() {
        let names = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            chosen(&words).map(|sweeps| sweeps.iter().map(|sweep| sweep.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["all"]).expect("all").len(), CATALOGUE.len());
        assert_eq!(
            names(&["tail", "nvme-read", "tail"]).expect("two"),
            ["nvme-read", "tail"]
        );
        let wrong = names(&["nvme-raed"]).expect_err("wrong");
        assert!(wrong.contains("`nvme-raed`") && wrong.contains("did you mean `nvme-read`?"));
        let strange = names(&["xyzzy"]).expect_err("strange");
        assert!(!strange.contains("did you mean"), "{strange}");
    }
}
