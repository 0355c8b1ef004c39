//! Memory of commands that wait for volumes and for others: a part of `memory_max`, as
//! their data is.

use mem::Pool;

/// Commands of each connection that are a part of what a connection costs: so many have
/// room, whatever there is.
const OWN: usize = 32;
/// Commands that room is made for at a time.
const LOT: usize = 64;
/// What a command takes in all its tables, at most: its slot, its job, its task, and its
/// places where it waits for a range and for a disk.
pub(crate) const COMMAND_BYTES: u64 = 1024;

const LOT_BYTES: u64 = LOT as u64 * COMMAND_BYTES;

/// Room for the commands of one connection.
pub(crate) struct CommandRoom {
    /// So many have some, whatever there is.
    own: usize,
    /// Whose share it is part of; there while there are lots.
    pool: Option<Pool>,
    lots: usize,
    /// There was none for a command.
    is_short: bool,
}

impl Default for CommandRoom {
    fn default() -> CommandRoom {
        CommandRoom {
            own: OWN,
            pool: None,
            lots: 0,
            is_short: false,
        }
    }
}

impl CommandRoom {
    /// So many commands have room, whatever there is.
    pub(crate) fn keep(&mut self, commands: usize) {
        self.own = self.own.max(commands);
    }

    /// Whether a command finds none; said of the last that came.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether there is room for one command beside those that are `open`.
    #[inline]
    pub(crate) fn has(&mut self, open: usize, pool: &Pool) -> bool {
        if open < self.own + self.lots * LOT {
            self.is_short = false;
            return true;
        }
        self.grow(pool)
    }

    #[cold]
    fn grow(&mut self, pool: &Pool) -> bool {
        let pool = self.pool.get_or_insert_with(|| pool.clone());
        self.is_short = !pool.try_reserve(LOT_BYTES);
        self.lots += usize::from(!self.is_short);
        !self.is_short
    }

    /// Gives back what those that are `open` do not need.
    pub(crate) fn trim(&mut self, open: usize) {
        let needed = open.saturating_sub(self.own).div_ceil(LOT);
        while self.lots > needed
            && let Some(pool) = &self.pool
        {
            pool.release(LOT_BYTES);
            self.lots -= 1;
        }
        if self.lots == 0 {
            self.pool = None;
        }
    }
}

impl Drop for CommandRoom {
    fn drop(&mut self) {
        self.trim(0);
    }
}

#[cfg(test)]
mod tests {
    use mem::{Budget, Share};

    use super::*;

    #[test]
    fn commands_have_room_as_far_as_the_share_of_their_host_goes_and_give_it_back() {
        let budget = Budget::new(64 << 20);
        let pool = Pool::new(budget.clone()).expect("address space");
        let share = Share::new(budget.clone());
        let of_host = pool.of(share.clone());
        let mut room = CommandRoom::default();
        let mut open = 0;
        while room.has(open, &of_host) {
            open += 1;
        }
        assert!(room.is_short());
        let held = share.held_bytes();
        assert_eq!(held, budget.used());
        assert_eq!((open - OWN) as u64 * COMMAND_BYTES, held);
        // One connection has a third of the memory for payload, which is 64 MiB less an
        // eighth and a sixteenth.
        assert_eq!(held, (52_u64 << 20).div_ceil(3).next_multiple_of(LOT_BYTES));
        let next = pool.of(Share::new(budget.clone()));
        assert!(
            CommandRoom::default().has(OWN, &next),
            "another host has some"
        );
        open -= LOT;
        room.trim(open);
        assert_eq!(share.held_bytes(), held - LOT_BYTES);
        assert!(room.has(open, &of_host) && !room.is_short());
        drop(room);
        assert_eq!((share.held_bytes(), budget.used()), (0, 0));
    }

    /// The host of a connection is known later than the connection.
    #[test]
    fn room_is_of_the_host_that_the_connection_has_now() {
        let budget = Budget::new(64 << 20);
        let pool = Pool::new(budget.clone()).expect("address space");
        let shares = [Share::new(budget.clone()), Share::new(budget)];
        let mut room = CommandRoom::default();
        for share in &shares {
            assert!(room.has(OWN, &pool.of(share.clone())));
            let held = shares.iter().map(|share| share.held_bytes());
            assert_eq!((share.held_bytes(), held.sum()), (LOT_BYTES, LOT_BYTES));
            room.trim(OWN);
            assert_eq!(share.held_bytes(), 0);
        }
    }

    #[test]
    fn first_commands_of_a_connection_have_room_where_there_is_no_memory() {
        let pool = Pool::new(Budget::new(0)).expect("address space");
        let mut room = CommandRoom::default();
        assert!((0..OWN).all(|open| room.has(open, &pool)));
        assert!(!room.has(OWN, &pool) && room.is_short());
        let mut of_queue = CommandRoom::default();
        of_queue.keep(2 * OWN);
        assert!(of_queue.has(2 * OWN - 1, &pool) && !of_queue.has(2 * OWN, &pool));
        assert!(
            room.has(OWN - 1, &pool) && !room.is_short(),
            "one has ended"
        );
    }
}
