//! Memory of the drivers of a run.

use std::cell::RefCell;

use mem::{Budget, Pool};

use crate::plan::{DRIVERS, SHARDS_MAX};

/// What all buffers of one driver may take.
const POOL_BYTES: u64 = 256 << 20;
/// The same of one reactor where there is as little memory as may be configured.
const LITTLE_BYTES: u64 = 16 << 20;

thread_local! {
    /// Pools live on, so that a seed costs no mappings: their address space is
    /// not given back.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// The pools of the reactors, then those of the hosts, then of the NFS clients, and of users.
pub fn of_a_seed(little_memory: bool) -> Vec<Pool> {
    POOLS.with_borrow_mut(|pools| {
        let pool = |budget| Pool::new(budget).expect("address space is left");
        if pools.is_empty() {
            pools.resize_with(DRIVERS, || pool(Budget::new(POOL_BYTES)));
            pools.extend((0..SHARDS_MAX).map(|_| pool(Budget::new(LITTLE_BYTES))));
        }
        // Every seed finds the same: nothing reserved.
        for pool in pools.iter() {
            pool.trim();
        }
        let mut all = pools[..DRIVERS].to_vec();
        if little_memory {
            all[..SHARDS_MAX].clone_from_slice(&pools[DRIVERS..]);
        }
        all
    })
}

/// The next seed has pools of its own.
pub fn forget() {
    POOLS.with_borrow_mut(Vec::clear);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_finds_pools_that_own_nothing() {
        for little_memory in [false, true] {
            let of_the_seed_before = of_a_seed(little_memory);
            of_the_seed_before
                .iter()
                .for_each(|pool| drop(pool.get(4096)));
            for (number, pool) in of_a_seed(little_memory).iter().enumerate() {
                assert_eq!(pool.reserved_bytes(), 0, "pool {number}");
            }
        }
    }
}
