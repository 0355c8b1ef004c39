//! Which reactor takes a new connection.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use reactor::ConnectedSocket;

use crate::hosts::HostPlace;

/// Receive queues that are known at most; connections by any other go where the fewest are.
const QUEUES_MAX: usize = 1024;

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
    /// All that come by one receive queue of a network card on one, the next queue's on that with the
    /// fewest connections.
    Napi,
    /// All of one client address on one, the next client's on that with the fewest connections.
    ClientIp,
}

/// Connections of each reactor, kept by the reactors themselves.
pub type Load = Arc<Vec<AtomicU32>>;

/// Chooses a reactor for each new connection.
pub struct Placer {
    policy: Placement,
    cpus: Vec<usize>,
    load: Load,
    next: usize,
    /// The reactor of each receive queue, by its NAPI ID.
    queues: Vec<(NonZeroU32, usize)>,
    /// That the kernel names no queue has been logged.
    is_told: bool,
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
            queues: Vec::new(),
            is_told: false,
        }
    }

    /// The reactor for a connection that has `place` among those of its address. Reactors that are as
    /// good as each other take turns.
    pub fn place(&mut self, connected: &ConnectedSocket, place: &HostPlace) -> usize {
        let turn = self.next;
        self.next = (turn + 1) % self.cpus.len();
        match self.policy {
            Placement::RoundRobin => turn,
            Placement::LeastLoaded => self.least_loaded(turn),
            Placement::IncomingCpu => self.of_cpu(connected.incoming_cpu(), turn),
            Placement::Napi => self.of_queue(connected.incoming_napi_id(), turn),
            Placement::ClientIp => place.reactor(|| self.least_loaded(turn)),
        }
    }

    fn of_cpu(&self, cpu: Option<usize>, turn: usize) -> usize {
        cpu.and_then(|cpu| self.cpus.iter().position(|&c| c == cpu))
            .unwrap_or_else(|| self.least_loaded(turn))
    }

    fn of_queue(&mut self, napi_id: Option<NonZeroU32>, turn: usize) -> usize {
        let Some(napi_id) = napi_id else {
            if !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!(
                    "placement = \"napi\": the kernel names no receive queue for a connection (it came \
                     by loopback, veth or a card without NAPI); it goes where the fewest are"
                );
            }
            return self.least_loaded(turn);
        };
        let known = self.queues.iter().find(|(id, _)| *id == napi_id);
        if let Some(&(_, reactor)) = known {
            return reactor;
        }
        let reactor = self.least_loaded(turn);
        if self.queues.len() < QUEUES_MAX {
            self.queues.push((napi_id, reactor));
        }
        reactor
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
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::hosts::Hosts;

    fn placer(policy: Placement, load: &[u32]) -> Placer {
        let cpus = (0..load.len()).map(|i| i + 4).collect();
        let load = load.iter().map(|&n| AtomicU32::new(n)).collect();
        Placer::new(policy, cpus, Arc::new(load))
    }

    /// Reactors of connections that come from these addresses (10.0.0.`of`) and stay.
    fn placed<const N: usize>(placer: &mut Placer, of: [u8; N]) -> [usize; N] {
        let hosts = Arc::new(Hosts::default());
        let socket = ConnectedSocket::numbered(1, ([10, 0, 0, 9], 4420).into());
        let mut places = Vec::new();
        of.map(|last| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let place = hosts.place(address, u32::MAX).expect("free");
            let reactor = placer.place(&socket, &place);
            placer.load[reactor].fetch_add(1, Ordering::Relaxed);
            places.push(place);
            reactor
        })
    }

    #[test]
    fn round_robin_takes_turns() {
        let mut p = placer(Placement::RoundRobin, &[9, 0, 0]);
        assert_eq!(placed(&mut p, [1; 4]), [0, 1, 2, 0]);
    }

    #[test]
    fn least_loaded_prefers_fewest_and_takes_turns_among_equals() {
        let mut p = placer(Placement::LeastLoaded, &[3, 1, 1]);
        assert_eq!(placed(&mut p, [1; 4]), [1, 2, 2, 1]);
    }

    #[test]
    fn incoming_cpu_falls_back_when_no_reactor_has_that_cpu() {
        let p = placer(Placement::IncomingCpu, &[3, 1, 2]);
        assert_eq!(p.of_cpu(Some(6), 0), 2);
        assert_eq!(p.of_cpu(Some(0), 0), 1);
        assert_eq!(p.of_cpu(None, 0), 1);
    }

    #[test]
    fn client_ip_keeps_a_client_on_one_reactor_and_spreads_clients() {
        let mut p = placer(Placement::ClientIp, &[0, 0]);
        assert_eq!(placed(&mut p, [1, 1, 1, 2, 2, 1]), [0, 0, 0, 1, 1, 0]);
    }

    #[test]
    fn napi_keeps_a_queue_on_one_reactor_and_spreads_queues() {
        let mut p = placer(Placement::Napi, &[3, 1, 2]);
        let id = NonZeroU32::new;
        assert_eq!(p.of_queue(id(70), 0), 1);
        p.load[1].store(9, Ordering::Relaxed);
        assert_eq!(p.of_queue(id(71), 0), 2);
        assert_eq!(p.of_queue(id(70), 0), 1);
        assert_eq!(p.of_queue(None, 0), 2);
    }

    #[test]
    fn napi_remembers_a_bounded_number_of_queues() {
        let mut p = placer(Placement::Napi, &[0, 1]);
        for id in 1..=2 * QUEUES_MAX as u32 {
            assert_eq!(p.of_queue(NonZeroU32::new(id), 0), 0);
        }
        assert_eq!(p.queues.len(), QUEUES_MAX);
    }
}
