//! A running target follows its document.

use iscsi::Target;
use nvmf::AnaGroup;
use server::{Ana, Change, Config, ListenerSpec, Running};

use crate::plan::{PlannedChange, places, plan};

/// What a running target serves, as a document says it.
#[derive(Debug)]
pub struct ServedDocument {
    config: Config,
    /// For each of its listeners the number that it has, once it is open.
    numbers: Vec<Option<u16>>,
    /// What could not be taken back: no document says what is served then.
    not_taken_back: Vec<String>,
}

impl ServedDocument {
    /// Of a target that was started with `loaded`, and has not changed since.
    #[must_use]
    pub fn new(loaded: &Config, running: &Running) -> ServedDocument {
        let numbers = running.served().listeners.into_iter();
        let config = Config {
            // A start bounds them by the descriptors that there are.
            limits: loaded.limits,
            ..running.config().clone()
        };
        ServedDocument {
            config,
            numbers: numbers.map(|(number, _)| Some(number)).collect(),
            not_taken_back: Vec::new(),
        }
    }

    /// Makes the target serve `desired`, while hosts use it: all of it or, where one
    /// change cannot be made, what it served before. A line for each change; blocks.
    ///
    /// # Errors
    /// Why not, a line each.
    pub fn apply(
        &mut self,
        desired: Config,
        running: &Running,
    ) -> Result<Vec<String>, Vec<String>> {
        if !self.not_taken_back.is_empty() {
            let why = "what is served is what no file says, since a change was made in part: \
                       restart weft, which serves then what the file says";
            let left = self.not_taken_back.iter().cloned();
            return Err(std::iter::once(why.to_owned()).chain(left).collect());
        }
        let steps = plan(&self.config, &desired)?;
        let mut next = ServedDocument {
            numbers: self.found_again(&desired),
            config: desired,
            not_taken_back: Vec::new(),
        };
        let (mut lines, mut made) = (Vec::new(), Vec::new());
        for step in &steps {
            match running.change(next.numbered(&step.change)) {
                Ok(()) => lines.push(step.text.clone()),
                Err(error) if error.is_of_one_made() => {
                    lines.push(format!("{}; but {error}", step.text));
                }
                Err(error) => {
                    let why = format!("not done: {}: {error}", step.text);
                    let left = self.take_back(made, running);
                    return Err(std::iter::once(why).chain(left).collect());
                }
            }
            if let Change::AddListener(spec) = &step.change {
                next.note_listener(spec, running);
            }
            made.push(step);
        }
        *self = next;
        Ok(lines)
    }

    /// The numbers of the listeners of `desired` that are open already.
    fn found_again(&self, desired: &Config) -> Vec<Option<u16>> {
        let mut found = vec![None; desired.listeners.len()];
        let places = places(&self.config.listeners, &desired.listeners);
        for (place, number) in places.into_iter().zip(&self.numbers) {
            if let Some(place) = place {
                found[usize::from(place)] = *number;
            }
        }
        found
    }

    /// A listener was opened.
    fn note_listener(&mut self, opened: &ListenerSpec, running: &Running) {
        let places = self.config.listeners.iter().zip(&mut self.numbers);
        for (_, number) in places.filter(|(spec, _)| *spec == opened) {
            let listeners = running.served().listeners.into_iter();
            let mut found = listeners.filter(|(_, spec)| spec.address == opened.address);
            *number = found.next().map(|(number, _)| number);
        }
    }

    /// Takes back what was made of a plan, last change first; what could not be.
    fn take_back(&mut self, made: Vec<&PlannedChange>, running: &Running) -> Vec<String> {
        let mut left = Vec::new();
        let mut undo = Vec::new();
        for step in made.into_iter().rev() {
            if let Change::ResizeVolume {
                name, size_bytes, ..
            } = &step.change
            {
                let mut volumes = self.config.volumes.iter_mut();
                if let Some(spec) = volumes.find(|spec| spec.name == *name) {
                    spec.size_bytes = *size_bytes;
                }
                left.push(format!("not taken back: {}", step.text));
            }
            undo.extend(
                step.undo
                    .iter()
                    .map(|undo| (self.numbered(undo), &step.text)),
            );
        }
        // What names a listener that comes back only later has a second turn.
        let fails = |change| match running.change(change) {
            Err(error) if !error.is_of_one_made() => Some(error),
            _ => None,
        };
        undo.retain(|(change, _)| fails(change.clone()).is_some());
        for (change, text) in undo {
            if let Some(error) = fails(change) {
                let text = format!("not taken back: {text}: {error}");
                self.not_taken_back.push(text);
            }
        }
        left.extend(self.not_taken_back.iter().cloned());
        left
    }

    /// A change with the numbers of listeners in place of their places in the document.
    fn numbered(&self, change: &Change) -> Change {
        let mut change = change.clone();
        match &mut change {
            Change::AddSubsystem(spec) => {
                spec.listeners.iter_mut().for_each(|list| self.number(list));
                self.number_groups(&mut spec.ana_groups);
            }
            Change::SetReach { listeners, .. } => {
                listeners.iter_mut().for_each(|list| self.number(list));
            }
            Change::AddTarget(spec) => {
                self.number_portals(&mut spec.target);
                if let Ana::Own(groups) = &mut spec.ana {
                    self.number_groups(groups);
                }
            }
            Change::SetTarget(target) => self.number_portals(target),
            Change::SetAnaGroups { groups, .. } => self.number_groups(groups),
            _ => {}
        }
        change
    }

    fn number(&self, places: &mut Vec<u16>) {
        let numbers = places
            .iter()
            .filter_map(|&at| self.numbers[usize::from(at)]);
        *places = numbers.collect();
    }

    fn number_groups(&self, groups: &mut [AnaGroup]) {
        for group in groups {
            let on = group.on.iter();
            let on = on.filter_map(|&(at, state)| Some((self.numbers[usize::from(at)]?, state)));
            group.on = on.collect();
        }
    }

    fn number_portals(&self, target: &mut Target) {
        let groups = target.portal_groups.iter_mut();
        groups.for_each(|group| self.number(&mut group.portals));
    }
}
