//! What goes wrong in a run, one thing at a time.

use super::{BURY, RESTART, SeedRun};
use crate::checker::Verdict;
use crate::plan::SHARDS_MAX;
use crate::world::{MS, S, US, World, WorldEvent};

impl SeedRun {
    /// Something goes wrong.
    pub(super) fn fault(&mut self) -> Verdict {
        #[derive(Clone, Copy)]
        enum Fault {
            Reset,
            Stall,
            Vanish,
            Slow,
            StandStill,
            Kill,
            PowerCut,
            Change,
            Cut,
        }
        let faults = self.plan.faults;
        let choices = [
            (faults.resets, Fault::Reset),
            (faults.stalls, Fault::Stall),
            (faults.vanishes, Fault::Vanish),
            (faults.slow, Fault::Slow),
            (faults.standstills, Fault::StandStill),
            (faults.kills, Fault::Kill),
            (faults.power_cuts, Fault::PowerCut),
            (faults.changes, Fault::Change),
            (faults.cuts, Fault::Cut),
        ];
        if choices.iter().all(|(weight, _)| *weight == 0) {
            return Ok(());
        }
        self.faults += 1;
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let fault = world.random.weighted(&choices);
        match fault {
            Fault::Reset | Fault::Stall => {
                disturb(&mut world, matches!(fault, Fault::Reset));
            }
            Fault::Vanish => {
                drop(world);
                self.vanish()?;
            }
            Fault::Slow => {
                let actors = SHARDS_MAX + self.hosts.len();
                let driver = world.random.below(actors as u64) as usize;
                let until = world.now + world.random.around(MS);
                world.net.driver(driver).busy_until = until;
            }
            Fault::StandStill => {
                drop(world);
                self.pause_target();
            }
            Fault::Change => {
                drop(world);
                self.change();
            }
            Fault::Cut => {
                drop(world);
                self.cut_leg();
            }
            Fault::Kill | Fault::PowerCut => {
                drop(world);
                self.crash(matches!(fault, Fault::PowerCut))?;
            }
        }
        Ok(())
    }

    /// The target's process ends where it stands, or the power fails; it starts again
    /// soon.
    pub(super) fn crash(&mut self, power: bool) -> Verdict {
        if self.target.is_some() {
            self.stop_target(power)?;
            let pause = self.world.borrow_mut().random.around(5 * MS);
            self.script_after(pause, RESTART);
        }
        Ok(())
    }

    /// The target's machine is paused.
    fn pause_target(&mut self) {
        let mut world = self.world.borrow_mut();
        let time = world.random.between(MS, 4 * S);
        let until = world.now + time;
        world.trace(|| format!("the target stands still for {} ms", time / MS));
        for connection in world.net.live_connections() {
            // What was sent meanwhile comes right after.
            let late = world.random.below(50 * US);
            world.hold_arrivals(connection, until + late);
        }
        for shard in 0..self.plan.shards {
            world.net.driver(shard).busy_until = until;
        }
        self.stood_still += time;
    }

    /// A host is gone from one moment to the next; it returns.
    fn vanish(&mut self) -> Verdict {
        let (host, back) = {
            let mut world = self.world.borrow_mut();
            let all = self.hosts.len() + self.clients.len();
            let host = world.random.below(all as u64) as usize;
            let back = world.now + world.random.around(20 * MS);
            if world.random.percent(70) {
                world.at(back, WorldEvent::Script(BURY));
            }
            world.trace(|| format!("host {host} vanishes"));
            (host, back)
        };
        match (host.checked_sub(self.hosts.len()), &mut self.nfs) {
            (Some(client), Some(nfs)) => {
                self.clients[client].vanish(&self.world, back, &mut nfs.common);
                Ok(())
            }
            _ => self.hosts[host].vanish(&self.world, back, &mut self.work),
        }
    }
}

/// A connection is reset, or stands still for a while.
fn disturb(world: &mut World, resets: bool) {
    let connections = world.net.live_connections();
    if connections.is_empty() {
        return;
    }
    let connection = world.random.pick(&connections);
    let time = world.random.around(MS);
    match resets {
        true => world.reset(connection),
        false => world.stall(connection, time),
    }
}
