//! Whether hosts see exactly what a plan says: which documents may have held when, which
//! of its changes were made, and who has to be told of them.

use std::net::SocketAddr;
use std::sync::Arc;

use control::PlannedChange;
use server::{Change, Config};

use crate::access::{Arrival, HostAccess};
use crate::checker::{Stamp, Verdict, Violation};
use crate::credentials::Credentials;
use crate::plan::Plan;
use crate::target::{lun, nsid, subnqn, target_name};

/// From this moment on one of these documents holds, or a part of each.
struct Span {
    since: Stamp,
    documents: Vec<Arc<Config>>,
}

/// A change that was made, or taken back.
struct MadeStep {
    change: Change,
    /// When its plan was at its end: what goes may come back then.
    ended: Stamp,
}

/// What a host has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// NVMe: attributes of the namespace of this number have changed.
    Namespace(u32),
    /// NVMe: the ANA log page has changed.
    Ana,
    /// SCSI: the capacity of this volume's unit has changed.
    Capacity(usize),
    /// SCSI: the states of the paths to this volume's unit have changed.
    Access(usize),
}

/// How a host comes in.
#[derive(Clone, Copy)]
struct Way {
    arrival: Arrival,
    /// When it began to connect.
    since: Stamp,
    /// When it began to connect by what it shows now.
    shown_at: Stamp,
    /// When it had all its connections.
    live_at: Option<Stamp>,
}

/// What plans said.
pub struct Announced {
    plan: Plan,
    spans: Vec<Span>,
    steps: Vec<MadeStep>,
    /// When the last plan was begun.
    begun: Stamp,
    ways: Vec<Option<Way>>,
    heard: Vec<(usize, Told, Stamp)>,
    owed: Vec<(usize, Told, Stamp)>,
}

impl Announced {
    /// Before the first target.
    pub fn new(plan: &Plan) -> Announced {
        Announced {
            plan: plan.clone(),
            spans: Vec::new(),
            steps: Vec::new(),
            begun: 0,
            ways: vec![None; plan.hosts.len()],
            heard: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// One of these holds from now on.
    pub fn holds(&mut self, documents: &[&Config], now: Stamp) {
        for step in &mut self.steps {
            step.ended = step.ended.min(now);
        }
        let documents = documents
            .iter()
            .map(|document| Arc::new((*document).clone()));
        self.spans.push(Span {
            since: now,
            documents: documents.collect(),
        });
    }

    /// A plan is begun.
    pub fn plan_begins(&mut self, documents: &[&Config], now: Stamp) {
        self.holds(documents, now);
        self.begun = now;
    }

    /// A change of it is begun, or taken back.
    pub fn step_begins(&mut self, change: &Change) {
        let plan = &self.plan;
        // A unit that comes back is new.
        self.owed.retain(|(host, told, _)| match told {
            Told::Capacity(volume) => !takes(change, plan, *host, *volume),
            _ => true,
        });
        self.steps.push(MadeStep {
            change: change.clone(),
            ended: Stamp::MAX,
        });
    }

    /// A host begins to connect.
    pub fn connects(&mut self, host: usize, arrival: Arrival, now: Stamp) {
        self.ways[host] = Some(Way {
            arrival,
            since: now,
            shown_at: now,
            live_at: None,
        });
    }

    /// It connects again by the key that it has made meanwhile.
    pub fn comes_back(&mut self, host: usize, shown: Credentials, now: Stamp) {
        if let Some(way) = &mut self.ways[host] {
            (way.arrival.shown, way.shown_at) = (shown, now);
        }
    }

    /// It has all its connections.
    pub fn is_live(&mut self, host: usize, now: Stamp) {
        if let Some(way) = &mut self.ways[host] {
            way.live_at = Some(now);
        }
    }

    /// It has none any more.
    pub fn lost(&mut self, host: usize) {
        self.ways[host] = None;
        self.owed.retain(|(owed, ..)| *owed != host);
    }

    fn documents(&self, from: Stamp) -> impl Iterator<Item = &Config> {
        let ends = self.spans.iter().skip(1).map(|next| next.since);
        let spans = self.spans.iter().zip(ends.chain([Stamp::MAX]));
        let spans = spans.filter(move |(_, end)| *end >= from);
        spans.flat_map(|(span, _)| span.documents.iter().map(|document| &**document))
    }

    fn steps(&self, from: Stamp) -> impl Iterator<Item = &Change> {
        let steps = self.steps.iter().filter(move |step| step.ended >= from);
        steps.map(|step| &step.change)
    }

    fn access<'a>(&'a self, document: &'a Config, host: usize, way: Way) -> HostAccess<'a> {
        HostAccess::new(&self.plan, document, (host, way.arrival))
    }

    /// Whether a host may be kept out, or cut, since it began to connect.
    pub fn may_be_cut(&self, host: usize) -> bool {
        let Some(way) = self.ways[host] else {
            return true;
        };
        let mut documents = self.documents(way.since);
        let mut steps = self.steps(way.since);
        let may_be = |document| {
            let access = self.access(document, host, way);
            match way.live_at {
                // Connections by keys and secrets that are gone stay.
                Some(_) => access.may_stay(),
                None => access.may_connect(),
            }
        };
        documents.any(|document| !may_be(document))
            || steps.any(|change| cuts(change, &self.plan, host, way.arrival.listener))
    }

    /// A host was let in: its key, its secret and the rest fit a document, which may be one for
    /// each, as they are looked at one after another.
    pub fn let_in(&self, host: usize) -> Verdict {
        let Some(way) = self.ways[host] else {
            return Ok(());
        };
        let any = |fits: &dyn Fn(&HostAccess<'_>) -> bool| {
            let mut documents = self.documents(way.shown_at);
            documents.any(|document| fits(&self.access(document, host, way)))
        };
        let shown = way.arrival.shown;
        match () {
            () if !any(&|access| access.may_stay()) => Err(Violation(format!(
                "host {host} was let in, which no document says"
            ))),
            () if !any(&|access| access.has_key()) => Err(Violation(format!(
                "host {host} was let in with {shown:?}, and no document has its key"
            ))),
            () if !any(&|access| access.has_secret()) => Err(Violation(format!(
                "host {host} was let in with {shown:?}, and no document has its secret"
            ))),
            () => Ok(()),
        }
    }

    /// Whether a host might use a volume at some time since.
    pub fn might_use(&self, host: usize, volume: usize, since: Stamp) -> bool {
        let Some(way) = self.ways[host] else {
            return true;
        };
        let mut documents = self.documents(since);
        documents.any(|document| self.access(document, host, way).may_use(volume))
    }

    /// Whether a volume might be kept from a host at some time since.
    pub fn might_lack(&self, host: usize, volume: usize, since: Stamp) -> bool {
        let Some(way) = self.ways[host] else {
            return true;
        };
        let mut documents = self.documents(since);
        documents.any(|document| !self.access(document, host, way).may_use(volume))
            || self.steps(since).any(|change| {
                cuts(change, &self.plan, host, way.arrival.listener)
                    || takes(change, &self.plan, host, volume)
            })
    }

    /// A host was told of something: was there a cause, as far as plans go?
    pub fn heard(&mut self, host: usize, told: Told, now: Stamp) -> Verdict {
        self.heard.push((host, told, now));
        self.owed
            .retain(|(owed, what, _)| (*owed, *what) != (host, told));
        let Some(way) = self.ways[host] else {
            return Ok(());
        };
        // A unit attention waits for the next command, and who has just come for all of it.
        let is_prompt = matches!(told, Told::Namespace(_) | Told::Ana)
            && self.plan.applies.is_some_and(|applies| applies.is_exact)
            && way.live_at.is_some_and(|at| at < self.begun);
        let since = match is_prompt {
            true => self.begun,
            false => way.since,
        };
        let documents = self.documents(since);
        let mut views = documents.map(|document| self.view(document, host, way, told));
        let first = views.next();
        let differ = views.any(|view| Some(view) != first);
        let is_moved = |change: &Change| match told {
            Told::Namespace(number) => {
                matches!(change, Change::RemoveNamespace { nsid, .. } if *nsid == number)
            }
            Told::Capacity(volume) => takes(change, &self.plan, host, volume),
            // A portal that goes leaves its group without one: the session hears of it before
            // its connections end, also where the new document has the portal again.
            Told::Access(volume) => {
                takes(change, &self.plan, host, volume)
                    || cuts(change, &self.plan, host, way.arrival.listener)
            }
            Told::Ana => false,
        };
        match differ || self.steps(since).any(is_moved) {
            true => Ok(()),
            false => Err(Violation(format!(
                "host {host} was told of {told:?}, which no plan changes for it"
            ))),
        }
    }

    /// What a host that is told looks at.
    fn view(&self, document: &Config, host: usize, way: Way, told: Told) -> String {
        let access = self.access(document, host, way);
        match told {
            Told::Namespace(nsid) => format!("{:?}", access.attributes().get(&nsid)),
            Told::Ana => format!("{:?}", access.paths()),
            Told::Capacity(volume) => format!("{:?}", access.size_bytes(volume)),
            Told::Access(volume) => format!("{:?}", access.path(volume)),
        }
    }

    /// A plan is made: hosts that were there all the time must be told what is other for
    /// them.
    pub fn plan_is_made(&mut self, old: &Config, new: &Config, now: Stamp) {
        self.holds(&[new], now);
        let (ways, plan) = (&self.ways, &self.plan);
        self.owed
            .retain(|(host, told, _)| match (told, ways[*host]) {
                (Told::Capacity(volume), Some(way)) => {
                    HostAccess::new(plan, new, (*host, way.arrival)).may_use(*volume)
                }
                _ => true,
            });
        for host in 0..self.ways.len() {
            let Some(way) =
                self.ways[host].filter(|way| way.live_at.is_some_and(|at| at < self.begun))
            else {
                continue;
            };
            let (before, after) = (self.access(old, host, way), self.access(new, host, way));
            if !before.may_stay() || !after.may_stay() {
                continue;
            }
            let mut all = Vec::new();
            match self.plan.hosts[host].iscsi {
                // NBD has no way to tell a client anything.
                None if self.plan.hosts[host].nbd.is_some() => {}
                None => {
                    let (old, new) = (before.attributes(), after.attributes());
                    let numbers = old.keys().chain(new.keys());
                    let other = numbers.filter(|nsid| old.get(nsid) != new.get(nsid));
                    all.extend(other.map(|nsid| Told::Namespace(*nsid)));
                    let (old, new) = (before.paths(), after.paths());
                    let mut both = old.iter().filter(|(nsid, _)| new.contains_key(nsid));
                    if both.any(|(nsid, path)| new[nsid] != *path) {
                        all.push(Told::Ana);
                    }
                }
                Some(_) => {
                    for volume in 0..self.plan.volumes.len() {
                        let mut steps = self.steps(self.begun);
                        let stays = before.may_use(volume)
                            && after.may_use(volume)
                            && !steps.any(|change| takes(change, &self.plan, host, volume));
                        if stays && before.size_bytes(volume) != after.size_bytes(volume) {
                            all.push(Told::Capacity(volume));
                        }
                    }
                }
            }
            let is_unheard = |told: &Told| {
                let mut heard = self.heard.iter();
                !heard.any(|(of, what, at)| (*of, what) == (host, told) && *at > self.begun)
            };
            let all: Vec<Told> = all.into_iter().filter(is_unheard).collect();
            self.owed
                .extend(all.into_iter().map(|told| (host, told, now)));
        }
    }

    /// Nobody is owed anything any more: other things go wrong.
    pub fn forget_owed(&mut self) {
        self.owed.clear();
    }

    /// NVMe hosts that have to be told something, and were not so far.
    pub fn is_owed(&self) -> bool {
        let mut owed = self.owed.iter();
        owed.any(|(_, told, _)| matches!(told, Told::Namespace(_) | Told::Ana))
    }

    /// A unit has executed a command that began then: it has told all that it had to before.
    pub fn executed(&self, host: usize, volume: usize, begun: Stamp) -> Verdict {
        let mut owed = self.owed.iter();
        match owed.find(|(of, told, since)| {
            *of == host && *told == Told::Capacity(volume) && *since < begun
        }) {
            None => Ok(()),
            Some(_) => Err(Violation(format!(
                "host {host} was not told that volume {volume} has another size"
            ))),
        }
    }

    /// Whether a host is connected that may not be, as `document` has it.
    pub fn is_left(&self, document: &Config) -> bool {
        let mut ways = self.ways.iter().enumerate();
        ways.any(|(host, way)| {
            way.is_some_and(|way| {
                way.live_at.is_some() && !self.access(document, host, way).may_stay()
            })
        })
    }

    /// Each host that loses something is named by a line that says so.
    pub fn check_plan(&self, steps: &[PlannedChange], old: &Config, new: &Config) -> Verdict {
        for (host, way) in self.ways.iter().enumerate() {
            let Some(way) = *way else { continue };
            let (before, after) = (self.access(old, host, way), self.access(new, host, way));
            let lost = (0..self.plan.volumes.len())
                .filter(|volume| before.may_use(*volume) && !after.may_use(*volume));
            let is_cut = before.may_stay() && !after.may_stay();
            let mut said = steps.iter().filter(|step| step.disturbs);
            if (is_cut || lost.count() > 0)
                && !said.any(|step| concerns(&step.change, &self.plan, host, way.arrival.listener))
            {
                let text = format!("host {host} loses what it has, which no line of the plan says");
                return Err(Violation(text));
            }
        }
        Ok(())
    }
}

/// Whether a change ends all connections of a host, whatever the documents say.
fn cuts(change: &Change, plan: &Plan, host: usize, way: SocketAddr) -> bool {
    match change {
        Change::RemoveListener { address } => *address == way,
        Change::RemoveSubsystem { nqn } => *nqn == nqn_of(plan, host),
        Change::RemoveTarget { .. } => plan.hosts[host].iscsi.is_some(),
        _ => false,
    }
}

/// Whether a change takes a volume from a host, whatever the documents say.
fn takes(change: &Change, plan: &Plan, host: usize, volume: usize) -> bool {
    match change {
        Change::RemoveNamespace { nqn, nsid: number } => {
            *nqn == nqn_of(plan, host) && *number == nsid(plan.hosts[host].subsystem, volume)
        }
        Change::RemoveLun { lun: number, .. } => {
            plan.hosts[host].iscsi.is_some() && *number == lun(volume)
        }
        _ => false,
    }
}

/// Whether a change is of what a host uses.
fn concerns(change: &Change, plan: &Plan, host: usize, way: SocketAddr) -> bool {
    match change {
        Change::RemoveListener { address } => *address == way,
        Change::RemoveSubsystem { nqn }
        | Change::RemoveNamespace { nqn, .. }
        | Change::SetAna { nqn, .. } => *nqn == nqn_of(plan, host),
        Change::SetSubsystem { spec, .. } => spec.nqn == nqn_of(plan, host),
        Change::RemoveTarget { name }
        | Change::RemoveLun { name, .. }
        | Change::SetTargetAna { name, .. } => *name == nqn_of(plan, host),
        Change::SetTarget(target) => target.name == nqn_of(plan, host),
        _ => false,
    }
}

/// The name of the subsystem that a host uses, or of its target.
fn nqn_of(plan: &Plan, host: usize) -> String {
    match plan.hosts[host].iscsi {
        None => subnqn(plan.hosts[host].subsystem),
        Some(_) => target_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents;
    use crate::target::portal;

    /// An initiator that is live when a plan begins which ends where it has begun.
    fn live_initiator() -> Announced {
        let mut plan = (0..)
            .map(Plan::new)
            .find(|plan| plan.hosts[0].iscsi.is_some());
        let mut announced = Announced::new(&plan.take().expect("seeds have initiators"));
        let document = documents::base(&announced.plan, &[]);
        announced.holds(&[&document], 1);
        let arrival = Arrival {
            listener: portal(),
            shown: Credentials::default(),
        };
        announced.connects(0, arrival, 2);
        announced.is_live(0, 3);
        announced.plan_begins(&[&document, &document], 4);
        announced
    }

    #[test]
    fn initiator_whose_portal_goes_for_a_moment_may_hear_of_its_path() {
        let mut announced = live_initiator();
        let told = Told::Access(0);
        assert!(announced.heard(0, told, 5).is_err(), "no change so far");
        let address = portal();
        announced.step_begins(&Change::RemoveListener { address });
        assert!(announced.heard(0, told, 6).is_ok());
        assert!(announced.heard(0, Told::Capacity(0), 7).is_err());
    }

    #[test]
    fn initiator_hears_nothing_of_a_portal_that_it_does_not_use() {
        let mut announced = live_initiator();
        let address = SocketAddr::from(([10, 0, 0, 1], 3261));
        announced.step_begins(&Change::RemoveListener { address });
        assert!(announced.heard(0, Told::Access(0), 5).is_err());
    }
}
