//! The Asymmetric Namespace Access log as a host reads it.

use nvmf::command::AnaState;
use wire::nvme::log::{AnaGroup, AnaHeader};
use zerocopy::FromBytes;

/// What a controller says about ANA in Identify Controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaInfo {
    /// ANATT: seconds that a transition takes at most.
    pub transition_s: u8,
    /// Bytes that the whole log can take.
    pub log_bytes: u32,
}

/// The whole log is asked for with one command, which is as long at most.
const LOG_BYTES_MAX: u64 = 256 << 10;

/// The bytes of a log of `groups` groups and `namespaces` namespaces (Base 2.0,
/// section 5.16.1.13), as far as they are asked for.
pub(crate) fn log_bytes(groups: u32, namespaces: u32) -> u32 {
    let bytes = size_of::<AnaHeader>() as u64
        + u64::from(groups) * size_of::<AnaGroup>() as u64
        + u64::from(namespaces) * 4;
    bytes.min(LOG_BYTES_MAX) as u32
}

/// The state of the group that `nsid` belongs to, by a log of which the part
/// that is there is read; `None` where it does not name the namespace, or
/// gives it a state that no standard knows.
pub(crate) fn state_of(log: &[u8], nsid: u32) -> Option<AnaState> {
    let (header, mut rest) = AnaHeader::read_from_prefix(log).ok()?;
    for _ in 0..header.ngrps.get() {
        let (group, after) = AnaGroup::read_from_prefix(rest).ok()?;
        let len = usize::try_from(group.nnsids.get()).ok()?.checked_mul(4)?;
        let nsids = after.get(..len)?;
        if nsids.chunks_exact(4).any(|b| b == nsid.to_le_bytes()) {
            return state(group.state & 15);
        }
        rest = &after[len..];
    }
    None
}

fn state(value: u8) -> Option<AnaState> {
    use AnaState as S;
    let all = [
        S::Optimized,
        S::NonOptimized,
        S::Inaccessible,
        S::PersistentLoss,
        S::Change,
    ];
    all.into_iter().find(|state| *state as u8 == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of groups: identifier, state, namespaces.
    fn log(groups: &[(u32, u8, &[u32])]) -> Vec<u8> {
        let mut log = vec![0; 16];
        log[8..10].copy_from_slice(&(groups.len() as u16).to_le_bytes());
        for (agid, state, nsids) in groups {
            let mut group = [0; 32];
            group[..4].copy_from_slice(&agid.to_le_bytes());
            group[4..8].copy_from_slice(&(nsids.len() as u32).to_le_bytes());
            group[16] = *state;
            log.extend(group);
            log.extend(nsids.iter().flat_map(|n| n.to_le_bytes()));
        }
        log
    }

    #[test]
    fn a_namespace_has_the_state_of_its_group() {
        let log = log(&[(1, 1, &[1, 2]), (2, 3, &[]), (7, 0xf2, &[9, 0x0201])]);
        assert_eq!(state_of(&log, 2), Some(AnaState::Optimized));
        assert_eq!(state_of(&log, 9), Some(AnaState::NonOptimized));
        assert_eq!(state_of(&log, 3), None);
        assert_eq!(state_of(&log, 0x0102), None, "numbers are not bytes");
    }

    #[test]
    fn a_log_that_lies_about_its_length_is_read_as_far_as_it_goes() {
        let mut log = log(&[(1, 1, &[1]), (2, 2, &[2])]);
        log[8] = 200;
        assert_eq!(state_of(&log, 2), Some(AnaState::NonOptimized));
        assert_eq!(state_of(&log, 3), None);
        log[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(state_of(&log, 1), None);
        assert_eq!(state_of(&log[..15], 1), None);
        assert_eq!(state(0), None);
        assert_eq!(state(0xf), Some(AnaState::Change));
    }

    #[test]
    fn a_log_is_asked_for_within_bounds() {
        assert_eq!(log_bytes(2, 3), 16 + 64 + 12);
        assert_eq!(u64::from(log_bytes(u32::MAX, u32::MAX)), LOG_BYTES_MAX);
    }
}
