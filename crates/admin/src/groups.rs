//! Users of this machine: what groups let them do, and how many connections one has.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use server::{AdminGroup, AdminRole};

use crate::served::locked;

/// Connections at the Unix socket of one user whom a group lets in, so that others have theirs.
pub(crate) const CONNECTIONS_OF_USER_MAX: u32 = 8;

/// The most that the groups of a user let it do; `None`: nothing. Reads the databases of users
/// and groups, and so may block.
pub(crate) fn role_of_user(uid: u32, groups: &[AdminGroup]) -> Option<AdminRole> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten()?;
    let name = CString::new(user.name).ok()?;
    let own = getgrouplist(&name, user.gid).ok()?;
    role_of_member(groups, |group| {
        gid_of(group).is_some_and(|gid| own.contains(&gid))
    })
}

/// The highest role of the groups that one is in.
fn role_of_member(groups: &[AdminGroup], is_in: impl Fn(&str) -> bool) -> Option<AdminRole> {
    let own = groups.iter().filter(|group| is_in(&group.name));
    own.map(|group| group.role).max()
}

fn gid_of(name: &str) -> Option<Gid> {
    Group::from_name(name).ok().flatten().map(|group| group.gid)
}

/// That this machine does not have some groups, and what to do.
#[must_use]
pub fn notes_of_groups(groups: &[AdminGroup]) -> Vec<String> {
    let names = groups.iter().map(|group| &*group.name);
    let unknown = names.filter(|name| gid_of(name).is_none());
    let note = |name| {
        format!(
            "[[admin.group]]: this machine has no group {name:?}, so it lets no user in: name one \
             that `getent group` lists, or make it with `groupadd`"
        )
    };
    unknown.map(note).collect()
}

/// Connections of users, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserConnections(Arc<Mutex<HashMap<u32, u32>>>);

/// One connection of a user, until it is dropped.
#[derive(Debug)]
pub(crate) struct UserConnection {
    all: UserConnections,
    uid: u32,
}

impl UserConnections {
    /// One more of a user; `None` where it has all that it may have.
    pub fn take(&self, uid: u32) -> Option<UserConnection> {
        let mut counts = locked(&self.0);
        let count = counts.entry(uid).or_default();
        if *count == CONNECTIONS_OF_USER_MAX {
            return None;
        }
        *count += 1;
        let all = self.clone();
        Some(UserConnection { all, uid })
    }
}

impl Drop for UserConnection {
    fn drop(&mut self) {
        let mut counts = locked(&self.all.0);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_role_of_the_groups_of_a_user_holds() {
        let group = |name: &str, role| AdminGroup {
            name: name.to_owned(),
            role,
        };
        let groups = [
            group("a", AdminRole::Operator),
            group("b", AdminRole::Viewer),
            group("c", AdminRole::Admin),
        ];
        let of = |own: &[&str]| role_of_member(&groups, |name| own.contains(&name));
        assert_eq!(of(&["b", "a"]), Some(AdminRole::Operator));
        assert_eq!(of(&["b"]), Some(AdminRole::Viewer));
        assert_eq!(of(&["d"]), None);
    }

    #[test]
    fn user_is_in_its_own_group_and_in_no_other_that_is_not_there() {
        let own = User::from_uid(Uid::effective()).expect("a database");
        let own = own.expect("whoever tests is a user");
        let group = Group::from_gid(own.gid)
            .expect("a database")
            .expect("its group");
        let groups = [
            AdminGroup {
                name: group.name,
                role: AdminRole::Viewer,
            },
            AdminGroup {
                name: "no such group".to_owned(),
                role: AdminRole::Admin,
            },
        ];
        let notes = notes_of_groups(&groups);
        assert!(
            notes.len() == 1 && notes[0].contains("\"no such group\""),
            "{notes:?}"
        );
        let role = role_of_user(own.uid.as_raw(), &groups);
        assert_eq!(role, Some(AdminRole::Viewer));
        assert_eq!(role_of_user(u32::MAX - 7, &groups), None);
    }

    #[test]
    fn user_has_no_more_connections_than_its_share_and_takes_none_of_others() {
        let all = UserConnections::default();
        let taken: Vec<_> = (0..CONNECTIONS_OF_USER_MAX)
            .map(|_| all.take(1).expect("its share"))
            .collect();
        assert!(all.take(1).is_none());
        let other = all.take(2);
        assert!(other.is_some());
        drop(taken);
        assert!(all.take(1).is_some());
        drop(other);
        assert!(locked(&all.0).is_empty());
    }
}
