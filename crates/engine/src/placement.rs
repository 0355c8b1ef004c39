//! Which reactor takes a new connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which reactor takes a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest connections.
    #[default]
    LeastLoaded,
    /// The one on the CPU where the kernel processes the connection's packets.
    IncomingCpu,
}

/// Connections of each reactor, kept by the reactors themselves.
pub type Load = Arc<Vec<AtomicU32>>;

/// Chooses a reactor for each new connection.
pub struct Placer {
    policy: Placement,
    cpus: Vec<usize>,
    load: Load,
    next: usize,
}

impl Placer {
    /// `cpus[i]` is the CPU of reactor `i`, `load[i]` its connections.
    pub fn new(policy: Placement, cpus: Vec<usize>, load: Load) -> Self {
        assert_eq!(cpus.len(), load.len());
        Placer {
            policy,
            cpus,
            load,
            next: 0,
        }
    }

    /// The reactor for a connection whose packets are processed on
    /// `incoming_cpu`, where the kernel says so. Reactors that are as good as
    /// each other take turns.
    pub fn place(&mut self, incoming_cpu: Option<usize>) -> usize {
        let turn = self.next;
        self.next = (turn + 1) % self.cpus.len();
        match self.policy {
            Placement::RoundRobin => turn,
            Placement::LeastLoaded => self.least_loaded(turn),
            Placement::IncomingCpu => incoming_cpu
                .and_then(|cpu| self.cpus.iter().position(|&c| c == cpu))
                .unwrap_or_else(|| self.least_loaded(turn)),
        }
    }

    fn least_loaded(&self, turn: usize) -> usize {
        let count = self.cpus.len();
        (0..count)
            .map(|i| (turn + i) % count)
            .min_by_key(|&i| self.load[i].load(Ordering::Relaxed))
            .expect("a target has at least one reactor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placer(policy: Placement, load: &[u32]) -> Placer {
        let cpus = (0..load.len()).map(|i| i + 4).collect();
        let load = load.iter().map(|&n| AtomicU32::new(n)).collect();
        Placer::new(policy, cpus, Arc::new(load))
    }

    #[test]
    fn round_robin_takes_turns() {
        let mut p = placer(Placement::RoundRobin, &[9, 0, 0]);
        let got: Vec<_> = (0..4).map(|_| p.place(None)).collect();
        assert_eq!(got, [0, 1, 2, 0]);
    }

    #[test]
    fn least_loaded_prefers_fewest_and_takes_turns_among_equals() {
        let mut p = placer(Placement::LeastLoaded, &[3, 1, 1]);
        assert_eq!(p.place(None), 1);
        assert_eq!(p.place(None), 1);
        assert_eq!(p.place(None), 2);
    }

    #[test]
    fn incoming_cpu_falls_back_when_no_reactor_has_that_cpu() {
        let mut p = placer(Placement::IncomingCpu, &[3, 1, 2]);
        assert_eq!(p.place(Some(6)), 2);
        assert_eq!(p.place(Some(0)), 1);
        assert_eq!(p.place(None), 1);
    }
}
