//! Live changes: what is served changes while hosts use it, one change at a
//! time, each made and later taken back.

use std::sync::{Arc, Mutex};

use nvmf::command::AnaState;
use random::Random;
use server::parts::ChangeOutcome;
use server::{Change, ChangeError};
use store::ResizeError;

use crate::checker::Violation;
use crate::limits;
use crate::plan::Plan;
use crate::target::{self, SimTarget, address, namespace, nsid, subnqn, volume_name};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhatChanges {
    /// A volume grows or shrinks to so many blocks.
    Resize {
        /// Which.
        volume: usize,
        /// Its new size.
        blocks: u64,
    },
    /// A namespace is taken away.
    Gone {
        /// Its subsystem.
        subsystem: usize,
        /// Its volume.
        volume: usize,
    },
    /// The ANA group of everything in a subsystem becomes inaccessible.
    Inaccessible {
        /// Which.
        subsystem: usize,
    },
    /// A host may not connect.
    Denied {
        /// Which.
        host: usize,
    },
    /// Limits let half as much go.
    Limited,
    /// A listener is taken away, and with it its connections.
    Unlistened {
        /// Which.
        listener: usize,
    },
}

/// How far the change under way has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeStage {
    Making,
    Made,
    TakingBack,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStep {
    /// The change is made; whether nothing that began before is left.
    Made(WhatChanges, bool),
    /// It is taken back, or is one that stays.
    Over(WhatChanges),
    /// It was not made, for a reason of which the target may speak.
    Refused(WhatChanges),
}

/// The change under way.
#[derive(Default)]
pub struct Changes {
    active: Option<(WhatChanges, ChangeStage)>,
    /// The volume that was made smaller last: it grows again, which shows what
    /// was left behind its end.
    smaller: Option<usize>,
    outcome: Arc<Mutex<Option<ChangeOutcome>>>,
}

impl Changes {
    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.active.is_none()
    }

    /// Whether one is made that can be taken back.
    pub fn is_made(&self) -> bool {
        matches!(self.active, Some((_, ChangeStage::Made)))
    }

    /// Whether the target is at it.
    pub fn is_under_way(&self) -> bool {
        matches!(
            self.active,
            Some((_, ChangeStage::Making | ChangeStage::TakingBack))
        )
    }

    /// The target has ended: its successor begins as the first did.
    pub fn forget(&mut self) {
        *self = Changes::default();
    }

    /// What comes next: a new change, or the last one taken back (true).
    pub fn next(
        &mut self,
        plan: &Plan,
        sizes: &[u64],
        random: &mut Random,
    ) -> Option<(WhatChanges, bool)> {
        match self.active {
            None => {
                let what = match self.smaller.take() {
                    Some(volume) if random.one_in(2) => larger(volume, sizes, random),
                    _ => choose(plan, sizes, random),
                };
                if let WhatChanges::Resize { volume, blocks } = what
                    && blocks < sizes[volume]
                {
                    self.smaller = Some(volume);
                }
                Some((what, false))
            }
            Some((what, ChangeStage::Made)) => Some((what, true)),
            Some(_) => None,
        }
    }

    /// Has the target make a change, or take it back.
    pub fn make(&mut self, target: &SimTarget, plan: &Plan, (what, is_back): (WhatChanges, bool)) {
        let stage = if is_back {
            ChangeStage::TakingBack
        } else {
            ChangeStage::Making
        };
        self.active = Some((what, stage));
        self.outcome = Arc::default();
        let outcome = self.outcome.clone();
        let done = Box::new(move |_: &_, result| {
            *outcome.lock().expect("one thread") = Some(result);
        });
        target.shared.change(change(plan, what, is_back), done);
    }

    /// Whether a volume is being cut off, perhaps.
    pub fn is_resizing(&self) -> bool {
        matches!(self.active, Some((WhatChanges::Resize { .. }, _)))
    }

    /// What has come of it meanwhile.
    pub fn take(&mut self) -> Result<Option<ChangeStep>, Violation> {
        let Some((what, stage)) = self.active else {
            return Ok(None);
        };
        let Some(outcome) = self.outcome.lock().expect("one thread").take() else {
            return Ok(None);
        };
        let is_finished = match outcome {
            Ok(()) => true,
            Err(ChangeError::Unfinished) => false,
            // What is under way behind the new end does not end.
            Err(ChangeError::Resize(ResizeError::Busy)) => {
                self.active = None;
                return Ok(Some(ChangeStep::Refused(what)));
            }
            Err(error) => return Err(Violation(format!("{what:?}: {error}"))),
        };
        let stays = matches!(what, WhatChanges::Resize { .. });
        if stage == ChangeStage::TakingBack || stays {
            self.active = None;
            return Ok(Some(match is_finished {
                false if stays => ChangeStep::Made(what, false),
                _ => ChangeStep::Over(what),
            }));
        }
        self.active = Some((what, ChangeStage::Made));
        Ok(Some(ChangeStep::Made(what, is_finished)))
    }
}

/// Blocks that a volume keeps whatever becomes of it.
const BLOCKS_MIN: u64 = 12;

fn larger(volume: usize, sizes: &[u64], random: &mut Random) -> WhatChanges {
    WhatChanges::Resize {
        volume,
        blocks: sizes[volume] + random.between(1, 64),
    }
}

fn choose(plan: &Plan, sizes: &[u64], random: &mut Random) -> WhatChanges {
    if !plan.limits.is_empty() && random.one_in(3) {
        return WhatChanges::Limited;
    }
    let volume = random.below(sizes.len() as u64) as usize;
    let subsystem = random.below(plan.subsystems as u64) as usize;
    match random.below(6) {
        0 => larger(volume, sizes, random),
        1 => WhatChanges::Resize {
            volume,
            blocks: random.between(sizes[volume].div_ceil(2).max(BLOCKS_MIN), sizes[volume]),
        },
        2 => WhatChanges::Gone { subsystem, volume },
        3 => WhatChanges::Inaccessible { subsystem },
        4 => WhatChanges::Unlistened {
            listener: random.below(plan.listeners as u64) as usize,
        },
        _ => WhatChanges::Denied {
            host: random.below(plan.hosts.len() as u64) as usize,
        },
    }
}

/// NQN of a host.
pub fn host_nqn(host: usize) -> String {
    format!("nqn.2026-01.io.weft:host{host}")
}

fn change(plan: &Plan, what: WhatChanges, is_back: bool) -> Change {
    match (what, is_back) {
        (WhatChanges::Resize { volume, blocks }, _) => Change::ResizeVolume {
            name: volume_name(volume),
            size_bytes: blocks * u64::from(plan.volumes[volume].block_bytes),
            allow_shrink: true,
        },
        (WhatChanges::Gone { subsystem, volume }, false) => Change::RemoveNamespace {
            nqn: subnqn(subsystem),
            nsid: nsid(subsystem, volume),
        },
        (WhatChanges::Gone { subsystem, volume }, true) => Change::AddNamespace {
            nqn: subnqn(subsystem),
            namespace: namespace(subsystem, volume),
        },
        (WhatChanges::Inaccessible { subsystem }, _) => Change::SetAna {
            nqn: subnqn(subsystem),
            listener: None,
            group: 1,
            state: match is_back {
                true => AnaState::Optimized,
                false => AnaState::Inaccessible,
            },
        },
        (WhatChanges::Unlistened { listener }, false) => Change::RemoveListener {
            address: address(listener),
        },
        (WhatChanges::Unlistened { listener }, true) => {
            Change::AddListener(target::listener(plan, listener))
        }
        (WhatChanges::Limited, is_back) => {
            let divisor = if is_back { 1 } else { 2 };
            Change::SetRateLimits(limits::of_plan(plan, divisor))
        }
        (WhatChanges::Denied { host }, _) => {
            let others = (0..8).filter(|&other| other != host).map(host_nqn);
            Change::SetHosts {
                // Denied to an NVMe host, even where the number is an initiator's.
                nqn: subnqn(plan.hosts[host].subsystem.min(plan.subsystems - 1)),
                hosts: (!is_back).then(|| others.collect()),
            }
        }
    }
}
