//! Limits of what hosts read and write in a second, and whether they are kept.

use reactor::Nanos;
use server::{RateLimit, Rates};

use crate::changes::host_nqn;
use crate::plan::{LimitPlan, Plan};
use crate::target::{initiator_name, volume_name};
use crate::world::S;

/// What a limit lets go beyond its rate: what comes in a hundredth of a second, and one I/O.
const SLACK_PERCENT: u64 = 1;

impl LimitPlan {
    fn is_about(&self, io: &MovedIo) -> bool {
        self.volume.is_none_or(|volume| volume == io.volume)
            && self.host.is_none_or(|host| host == io.host)
    }

    /// As the target has it; `divisor` makes it smaller.
    fn as_served(&self, plan: &Plan, number: usize, divisor: u64) -> RateLimit {
        // Some plans have fewer hosts than they were made with.
        let speaks_iscsi = |host: usize| {
            plan.hosts
                .get(host)
                .is_some_and(|host| host.iscsi.is_some())
        };
        let name_of = |host: usize| match speaks_iscsi(host) {
            true => initiator_name(host),
            false => host_nqn(host),
        };
        RateLimit {
            name: format!("limit{number}"),
            volumes: self.volume.map(volume_name).into_iter().collect(),
            hosts: self.host.map(name_of).into_iter().collect(),
            rates: Rates {
                iops: Some(self.iops / divisor),
                bytes: Some(self.bytes / divisor),
                ..Rates::default()
            },
            ..RateLimit::default()
        }
    }
}

/// The limits of a plan, each a `divisor`th.
pub fn of_plan(plan: &Plan, divisor: u64) -> Vec<RateLimit> {
    let limits = plan.limits.iter().enumerate();
    let limits = limits.map(|(number, limit)| limit.as_served(plan, number, divisor));
    limits.collect()
}

/// A read or a write that has succeeded.
#[derive(Clone, Copy, Debug)]
pub struct MovedIo {
    /// The host that asked.
    pub host: usize,
    /// Of which volume.
    pub volume: usize,
    /// Bytes that it moved.
    pub bytes: u64,
    /// When its host sent it.
    pub begun: Nanos,
    /// When it had the answer.
    pub ended: Nanos,
}

/// What hosts have moved since a target has begun.
#[derive(Debug, Default)]
pub struct Moved {
    ios: Vec<MovedIo>,
    /// How long each took of a host that uses that volume alone, by volume.
    took: Vec<(usize, Nanos)>,
}

impl Moved {
    /// One more; `is_own` of a host that uses that volume alone.
    pub fn add(&mut self, io: MovedIo, is_own: bool) {
        if is_own {
            self.took.push((io.volume, io.ended - io.begun));
        }
        self.ios.push(io);
    }

    /// The time that so many of a hundred I/Os of a volume took at most, of hosts that use it
    /// alone.
    pub fn percentile(&self, volume: usize, percent: usize) -> Nanos {
        let own = self.took.iter().filter(|(other, _)| *other == volume);
        let mut own: Vec<Nanos> = own.map(|(_, took)| *took).collect();
        own.sort_unstable();
        let at = own.len() * percent / 100;
        own.get(at).copied().unwrap_or_default()
    }

    /// Whether each limit was kept since the last look: another target begins with full budgets.
    ///
    /// # Errors
    /// What went beyond a limit.
    pub fn check(&mut self, limits: &[LimitPlan]) -> Result<(), String> {
        let mut ios = std::mem::take(&mut self.ios);
        ios.sort_by_key(|io| io.ended);
        for limit in limits {
            let own: Vec<&MovedIo> = ios.iter().filter(|io| limit.is_about(io)).collect();
            for from in own.iter().map(|io| io.begun) {
                let within = own.iter().filter(|io| io.begun >= from);
                let (mut count, mut bytes, mut largest) = (0, 0, 0);
                for io in within {
                    // The last may cost what it likes: it is paid afterwards.
                    (count, bytes, largest) = (count + 1, bytes + io.bytes, largest.max(io.bytes));
                    let most = |rate: u64| {
                        let span = u128::from(io.ended - from);
                        let come = u128::from(rate) * span / u128::from(S);
                        come as u64 + rate * SLACK_PERCENT / 100 + 1
                    };
                    if count > most(limit.iops) + 1 || bytes > most(limit.bytes) + largest {
                        return Err(format!(
                            "{limit:?} has let {count} I/Os and {bytes} bytes go in {} ms",
                            (io.ended - from) / 1_000_000
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
