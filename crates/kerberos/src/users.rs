//! Which user of this machine a principal is.

use std::ffi::CString;

use auth::user::{AccountKind, Accounts, AccountsUnavailable, User};
use nix::errno::Errno;
use nix::unistd::{self, Gid, Group, Uid, getgrouplist};

/// Groups of one user at most; further ones are left out.
const GIDS_MAX: usize = 1024;

/// The users and groups of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserDatabase;

/// The users of one realm, by the user database of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    realm: String,
}

impl Users {
    /// The users `user@realm`.
    pub fn new(realm: &str) -> Users {
        let realm = realm.to_owned();
        Users { realm }
    }

    /// The user that `principal` is. It blocks: the database may be on the network.
    ///
    /// Principals of other realms, and of machines and services (`host/NAME`, `nfs/NAME`,
    /// `root/NAME`), are no users here: an export's anonymous user is what they are, as the
    /// kernel's server has it.
    ///
    /// # Errors
    /// The database cannot be asked, which does not make a user another one.
    pub fn user_of(&self, principal: &str) -> Result<Option<User>, Errno> {
        let Some(name) = self.name_of(principal) else {
            return Ok(None);
        };
        let Some(entry) = known(unistd::User::from_name(name))? else {
            return Ok(None);
        };
        Ok(Some(User {
            uid: entry.uid.as_raw(),
            gid: entry.gid.as_raw(),
            gids: groups_of(entry)?.into(),
        }))
    }

    /// The name in it, if it is of one part and of this realm. A backslash begins what a
    /// principal's text writes for a character that has another meaning there: no user's name
    /// has such characters.
    fn name_of<'p>(&self, principal: &'p str) -> Option<&'p str> {
        let (name, realm) = principal.rsplit_once('@')?;
        let is_plain = !name.is_empty() && !name.contains(['/', '@', '\\']);
        (is_plain && realm == self.realm).then_some(name)
    }
}

/// The groups of a user.
fn groups_of(user: unistd::User) -> Result<Vec<u32>, Errno> {
    let Ok(name) = CString::new(user.name) else {
        return Ok(Vec::new());
    };
    let gids = getgrouplist(&name, user.gid)?;
    Ok(gids.iter().take(GIDS_MAX).map(|gid| gid.as_raw()).collect())
}

/// What a database has said of a name or number.
fn known<T>(asked: Result<Option<T>, Errno>) -> Result<Option<T>, Errno> {
    match asked {
        // So too it says that it does not know it (getpwnam(3)).
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        asked => asked,
    }
}

impl Accounts for UserDatabase {
    fn name(&self, kind: AccountKind, id: u32) -> Result<Option<String>, AccountsUnavailable> {
        let name = match kind {
            AccountKind::User => {
                let entry = unistd::User::from_uid(Uid::from_raw(id));
                known(entry.map(|entry| entry.map(|entry| entry.name)))
            }
            AccountKind::Group => {
                let entry = Group::from_gid(Gid::from_raw(id));
                known(entry.map(|entry| entry.map(|entry| entry.name)))
            }
        };
        name.map_err(|_| AccountsUnavailable)
    }

    fn number(&self, kind: AccountKind, name: &str) -> Result<Option<u32>, AccountsUnavailable> {
        let number = match kind {
            AccountKind::User => {
                let entry = unistd::User::from_name(name);
                known(entry.map(|entry| entry.map(|entry| entry.uid.as_raw())))
            }
            AccountKind::Group => {
                let entry = Group::from_name(name);
                known(entry.map(|entry| entry.map(|entry| entry.gid.as_raw())))
            }
        };
        number.map_err(|_| AccountsUnavailable)
    }

    fn groups(&self, uid: u32) -> Result<Vec<u32>, AccountsUnavailable> {
        let entry = known(unistd::User::from_uid(Uid::from_raw(uid)));
        let gids = entry.and_then(|entry| entry.map_or(Ok(Vec::new()), groups_of));
        gids.map_err(|_| AccountsUnavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_of_the_realm_is_the_user_of_its_name() {
        let root = Users::new("TEST").user_of("root@TEST");
        let root = root.expect("the database").expect("a user");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.gids.contains(&0));
    }

    #[test]
    fn numbers_and_names_of_users_and_groups_lead_to_each_other() {
        let users = UserDatabase;
        assert!(users.groups(0).is_ok_and(|gids| gids.contains(&0)));
        assert_eq!(users.groups(4_000_000_000), Ok(Vec::new()));
        for kind in [AccountKind::User, AccountKind::Group] {
            assert_eq!(users.name(kind, 0), Ok(Some("root".to_owned())));
            assert_eq!(users.number(kind, "root"), Ok(Some(0)));
            assert_eq!(users.number(kind, "no-such-name-of-weft"), Ok(None));
            assert_eq!(users.name(kind, 4_000_000_000), Ok(None));
        }
    }

    #[test]
    fn principals_of_other_realms_machines_and_unknown_users_are_none() {
        let users = Users::new("TEST");
        let others = [
            "root@OTHER",
            "root@test",
            "root",
            "@TEST",
            "root/host@TEST",
            "nfs/host@TEST",
            "root\\@TEST@TEST",
            "no-such-user-of-weft@TEST",
        ];
        for principal in others {
            assert_eq!(users.user_of(principal), Ok(None), "{principal}");
        }
    }

    #[test]
    fn database_that_fails_does_not_say_that_it_knows_no_such_name() {
        for errno in [Errno::ENOENT, Errno::ESRCH, Errno::EBADF, Errno::EPERM] {
            assert_eq!(known::<()>(Err(errno)), Ok(None));
        }
        for errno in [Errno::EIO, Errno::EMFILE, Errno::ENOMEM, Errno::ETIMEDOUT] {
            assert_eq!(known::<()>(Err(errno)), Err(errno));
        }
        assert_eq!(known(Ok(Some(7))), Ok(Some(7)));
    }
}
