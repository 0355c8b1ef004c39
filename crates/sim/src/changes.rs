//! Live changes: what is served changes while hosts use it, one change at a
//! time, each made and later taken back.

use std::sync::{Arc, Mutex};

use nvmf::command::AnaState;
use target::parts::Outcome;
use target::{Change, ChangeError, NamespaceSpec};

use crate::checker::Violation;
use crate::random::Random;
use crate::target::{SUBNQN, SimTarget, volume_name};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A volume grows to so many blocks.
    Grow {
        /// Which.
        volume: usize,
        /// Its new size.
        blocks: u64,
    },
    /// A namespace is taken away.
    Gone {
        /// Its volume.
        volume: usize,
    },
    /// The ANA group of everything becomes inaccessible.
    Inaccessible,
    /// A host may not connect.
    Denied {
        /// Which.
        host: usize,
    },
}

/// How far the change under way has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Making,
    Made,
    TakingBack,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The change is made; whether nothing that began before is left.
    Made(What, bool),
    /// It is taken back, or is one that stays.
    Over(What),
}

/// The change under way.
#[derive(Default)]
pub struct Changes {
    active: Option<(What, Stage)>,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl Changes {
    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.active.is_none()
    }

    /// Whether one is made that can be taken back.
    pub fn is_made(&self) -> bool {
        matches!(self.active, Some((_, Stage::Made)))
    }

    /// Whether the target is at it.
    pub fn is_under_way(&self) -> bool {
        matches!(self.active, Some((_, Stage::Making | Stage::TakingBack)))
    }

    /// The target has ended: its successor begins as the first did.
    pub fn forget(&mut self) {
        *self = Changes::default();
    }

    /// What comes next: a new change, or the last one taken back (true).
    pub fn next(
        &self,
        sizes: &[(u64, u32)],
        hosts: usize,
        random: &mut Random,
    ) -> Option<(What, bool)> {
        match self.active {
            None => Some((choose(sizes, hosts, random), false)),
            Some((what, Stage::Made)) => Some((what, true)),
            Some(_) => None,
        }
    }

    /// Has the target make a change, or take it back.
    pub fn make(&mut self, target: &SimTarget, what: What, is_back: bool, sizes: &[(u64, u32)]) {
        let stage = if is_back {
            Stage::TakingBack
        } else {
            Stage::Making
        };
        self.active = Some((what, stage));
        self.outcome = Arc::default();
        let outcome = self.outcome.clone();
        let done = Box::new(move |_: &_, result| {
            *outcome.lock().expect("one thread") = Some(result);
        });
        target.shared.change(change(what, is_back, sizes), done);
    }

    /// What has come of it meanwhile.
    pub fn take(&mut self) -> Result<Option<Step>, Violation> {
        let Some((what, stage)) = self.active else {
            return Ok(None);
        };
        let Some(outcome) = self.outcome.lock().expect("one thread").take() else {
            return Ok(None);
        };
        let is_finished = match outcome {
            Ok(()) => true,
            Err(ChangeError::Unfinished) => false,
            Err(error) => return Err(Violation(format!("{what:?}: {error}"))),
        };
        let stays = matches!(what, What::Grow { .. });
        if stage == Stage::TakingBack || stays {
            self.active = None;
            return Ok(Some(Step::Over(what)));
        }
        self.active = Some((what, Stage::Made));
        Ok(Some(Step::Made(what, is_finished)))
    }
}

fn choose(sizes: &[(u64, u32)], hosts: usize, random: &mut Random) -> What {
    let volume = random.below(sizes.len() as u64) as usize;
    match random.below(4) {
        0 => What::Grow {
            volume,
            blocks: sizes[volume].0 + random.between(1, 64),
        },
        1 => What::Gone { volume },
        2 => What::Inaccessible,
        _ => What::Denied {
            host: random.below(hosts as u64) as usize,
        },
    }
}

/// NQN of a host.
pub fn host_nqn(host: usize) -> String {
    format!("nqn.2026-01.io.weft:host{host}")
}

fn change(what: What, is_back: bool, sizes: &[(u64, u32)]) -> Change {
    let nqn = SUBNQN.to_owned();
    match (what, is_back) {
        (What::Grow { volume, blocks }, _) => Change::ResizeVolume {
            name: volume_name(volume),
            size_bytes: blocks * u64::from(sizes[volume].1),
            allow_shrink: false,
        },
        (What::Gone { volume }, false) => Change::RemoveNamespace {
            nqn,
            nsid: volume as u32 + 1,
        },
        (What::Gone { volume }, true) => Change::AddNamespace {
            nqn,
            namespace: NamespaceSpec {
                nsid: volume as u32 + 1,
                volume: volume_name(volume),
                ..NamespaceSpec::default()
            },
        },
        (What::Inaccessible, _) => Change::SetAna {
            nqn,
            listener: None,
            group: 1,
            state: match is_back {
                true => AnaState::Optimized,
                false => AnaState::Inaccessible,
            },
        },
        (What::Denied { host }, false) => Change::SetHosts {
            nqn,
            hosts: Some(
                (0..8)
                    .filter(|&other| other != host)
                    .map(host_nqn)
                    .collect(),
            ),
        },
        (What::Denied { .. }, true) => Change::SetHosts { nqn, hosts: None },
    }
}
