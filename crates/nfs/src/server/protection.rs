//! Protection of a client's state by the credential of its machine (SP4_MACH_CRED: RFC
//! 8881, section 18.35.3): what only that principal may do, and what it may do although the
//! file wants another flavor.

use wire::nfs4::nfs_opnum4;

use nfs_opnum4::*;

/// Operations, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u128);

/// Words of a bitmap that hold all numbers of operations.
const WORDS: usize = 4;

impl Operations {
    /// Of these numbers.
    pub const fn of(list: &[nfs_opnum4]) -> Operations {
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u32;
            at += 1;
        }
        Operations(bits)
    }

    /// Of a `bitmap4`; numbers beyond all operations are left out.
    pub fn of_bitmap(words: impl IntoIterator<Item = u32>) -> Operations {
        let words = words.into_iter().take(WORDS).zip(0..);
        Operations(words.fold(0, |bits, (word, at)| bits | u128::from(word) << (32 * at)))
    }

    /// The words of a `bitmap4`, without empty ones at its end.
    pub fn bitmap(self) -> Vec<u32> {
        let words = (0..WORDS).map(|at| (self.0 >> (32 * at)) as u32);
        let len = WORDS - self.0.leading_zeros() as usize / 32;
        words.take(len).collect()
    }

    /// Whether an operation is among them.
    #[inline]
    pub fn has(self, number: nfs_opnum4) -> bool {
        // OP_ILLEGAL is beyond all others.
        1u128
            .checked_shl(number as u32)
            .is_some_and(|bit| self.0 & bit != 0)
    }

    /// Those that are in both.
    pub fn and(self, other: Operations) -> Operations {
        Operations(self.0 & other.0)
    }

    /// Those that are in one or both.
    pub fn or(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }
}

/// What only the machine's principal may do, with integrity: who else could, could take the
/// client's state away.
const ENFORCED: Operations = Operations::of(&[
    OP_BIND_CONN_TO_SESSION,
    OP_EXCHANGE_ID,
    OP_CREATE_SESSION,
    OP_DESTROY_SESSION,
    OP_DESTROY_CLIENTID,
]);

/// What is for the machine's principal where the client wants that: it needs no file handle, so
/// that no export wants another principal for it.
const ENFORCEABLE: Operations =
    Operations::of(&[OP_DELEGPURGE, OP_BACKCHANNEL_CTL, OP_RECLAIM_COMPLETE]);

/// What the machine's principal may be let do for users: it gives state back, and asks.
const ALLOWED: Operations = Operations::of(&[
    OP_CLOSE,
    OP_OPEN_DOWNGRADE,
    OP_LOCKU,
    OP_DELEGRETURN,
    OP_SECINFO,
    OP_SECINFO_NO_NAME,
    OP_TEST_STATEID,
    OP_FREE_STATEID,
]);

/// How the state of one client is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// `spo_must_enforce`.
    pub enforced: Operations,
    /// `spo_must_allow`.
    pub allowed: Operations,
}

impl Protection {
    /// With as much as may be of what a client wants to be enforced and allowed.
    pub fn new(enforced: Operations, allowed: Operations) -> Protection {
        Protection {
            enforced: enforced.and(ENFORCEABLE).or(ENFORCED),
            allowed: allowed.and(ALLOWED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_bits_of_words() {
        let operations = Operations::of(&[OP_CLOSE, OP_EXCHANGE_ID, OP_CLONE]);
        assert_eq!(operations.bitmap(), [1 << 4, 1 << 10, 1 << 7]);
        assert_eq!(Operations::of_bitmap(operations.bitmap()), operations);
        assert!(operations.has(OP_CLOSE) && !operations.has(OP_OPEN));
        assert!(!operations.has(OP_ILLEGAL));
        assert!(Operations::default().bitmap().is_empty());
        let all = Operations::of_bitmap([u32::MAX; 64]);
        assert_eq!(all.bitmap(), [u32::MAX; 4]);
        let protection = Protection::new(all, all);
        assert!(protection.allowed.has(OP_LOCKU) && !protection.allowed.has(OP_WRITE));
        assert!(protection.enforced.has(OP_DELEGPURGE) && !protection.enforced.has(OP_CLOSE));
        let none = Operations::default();
        assert_eq!(Protection::new(none, none).enforced, ENFORCED);
    }
}
