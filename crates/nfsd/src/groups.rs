//! The groups of users, as this machine knows them: AUTH_SYS carries 16 at most (RFC 5531,
//! appendix A), and whatever a client likes.
//!
//! The database of users may block. A call whose user is not known yet waits until it has
//! answered, and no other call does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use auth::user::{Accounts, AccountsUnavailable};
use machine::{Nanos, locked};

/// For how long what is known counts.
const FRESH: Nanos = 600 * 1_000_000_000;
/// For how long where the database could not be asked.
const RETRY: Nanos = 10 * 1_000_000_000;
/// Users that are known at most; where there are more, all are asked for anew.
const KNOWN_MAX: usize = 16 * 1024;

/// The groups of a user.
struct KnownGroups {
    gids: Arc<[u32]>,
    /// When they were found.
    at: Nanos,
    until: Nanos,
}

/// The users whose groups are known.
#[derive(Default)]
pub struct UserGroups {
    known: Mutex<HashMap<u32, KnownGroups>>,
}

impl UserGroups {
    /// The groups of a user, for a call that has asked for them since then; `None`: they are to be
    /// looked up. A user that the database does not know has none.
    pub(crate) fn find(&self, uid: u32, (since, now): (Nanos, Nanos)) -> Option<Arc<[u32]>> {
        let known = locked(&self.known);
        let of = known.get(&uid)?;
        (now < of.until || since <= of.at).then(|| of.gids.clone())
    }

    /// Asks the database, unless that was done since then. It blocks. One that cannot be asked
    /// leaves what was known, and else the user has no groups for a while.
    pub fn look_up(
        &self,
        uid: u32,
        accounts: &dyn Accounts,
        (since, clock): (Nanos, &dyn Fn() -> Nanos),
    ) {
        if self.find(uid, (since, clock())).is_some() {
            return;
        }
        let asked = accounts.groups(uid);
        let at = clock();
        let mut known = locked(&self.known);
        let (gids, time) = match asked {
            Ok(gids) => (gids.into(), FRESH),
            Err(AccountsUnavailable) => {
                let before = known.get(&uid).map(|before| before.gids.clone());
                (before.unwrap_or_default(), RETRY)
            }
        };
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let until = at.saturating_add(time);
        known.insert(uid, KnownGroups { gids, at, until });
    }
}

#[cfg(test)]
mod tests {
    use auth::user::AccountKind;

    use super::*;

    /// What the database says of each user, and those that were asked for.
    struct Said(Result<Vec<u32>, AccountsUnavailable>, Mutex<Vec<u32>>);

    impl Said {
        fn new(gids: Result<Vec<u32>, AccountsUnavailable>) -> Said {
            Said(gids, Mutex::default())
        }

        fn asked(&self) -> usize {
            locked(&self.1).len()
        }
    }

    impl Accounts for Said {
        fn name(&self, _: AccountKind, _: u32) -> Result<Option<String>, AccountsUnavailable> {
            Ok(None)
        }

        fn number(&self, _: AccountKind, _: &str) -> Result<Option<u32>, AccountsUnavailable> {
            Ok(None)
        }

        fn groups(&self, uid: u32) -> Result<Vec<u32>, AccountsUnavailable> {
            locked(&self.1).push(uid);
            self.0.clone()
        }
    }

    #[test]
    fn groups_are_asked_for_once_in_their_time_also_where_there_are_none() {
        let groups = UserGroups::default();
        let (some, none) = (Said::new(Ok(vec![5, 6])), Said::new(Ok(vec![])));
        for (uid, said) in [(1, &some), (2, &none)] {
            assert_eq!(groups.find(uid, (0, 0)), None);
            for (now, asked) in [(0, 1), (FRESH - 1, 1), (FRESH, 2)] {
                groups.look_up(uid, said, (now, &|| now));
                let gids = groups.find(uid, (now, now)).map(|gids| gids.to_vec());
                assert_eq!(gids, said.0.clone().ok());
                assert_eq!(said.asked(), asked);
            }
        }
    }

    #[test]
    fn database_that_fails_leaves_what_was_known_and_is_asked_again_soon() {
        let groups = UserGroups::default();
        let (said, fails) = (Said::new(Ok(vec![5])), Said::new(Err(AccountsUnavailable)));
        groups.look_up(1, &said, (0, &|| 0));
        groups.look_up(1, &fails, (FRESH, &|| FRESH));
        groups.look_up(2, &fails, (FRESH, &|| FRESH));
        let find = |uid, now| groups.find(uid, (now, now)).map(|gids| gids.to_vec());
        assert_eq!(find(1, FRESH + RETRY - 1), Some(vec![5]));
        assert_eq!(find(2, FRESH + RETRY - 1), Some(vec![]));
        assert_eq!(
            (find(1, FRESH + RETRY), find(2, FRESH + RETRY)),
            (None, None)
        );
    }

    #[test]
    fn database_that_is_slow_to_fail_answers_calls_that_wait_and_those_of_a_while_after() {
        let groups = UserGroups::default();
        let fails = Said::new(Err(AccountsUnavailable));
        let time = std::cell::Cell::new(0);
        let clock = || time.replace(time.get() + 2 * RETRY);
        groups.look_up(1, &fails, (0, &clock));
        let at = 2 * RETRY;
        groups.look_up(1, &fails, (at - 1, &|| 9 * RETRY));
        assert_eq!(fails.asked(), 1);
        let find = |since, now| groups.find(1, (since, now)).is_some();
        assert!(find(0, 9 * RETRY), "it has waited since before");
        assert!(find(at + RETRY - 1, at + RETRY - 1));
        assert!(!find(at + RETRY, at + RETRY));
    }

    #[test]
    fn users_that_are_known_have_a_bound() {
        let groups = UserGroups::default();
        let said = Said::new(Ok(vec![]));
        for uid in 0..2 * KNOWN_MAX as u32 {
            groups.look_up(uid, &said, (0, &|| 0));
            assert!(locked(&groups.known).len() <= KNOWN_MAX);
        }
    }
}
