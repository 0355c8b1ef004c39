//! Users of this machine, as what authenticates a peer finds them.

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The number of the user's own group.
    pub gid: u32,
    /// The numbers of all groups that the user is in.
    pub gids: Box<[u32]>,
}

/// What an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccountKind {
    /// A user.
    User,
    /// A group.
    Group,
}

/// The database of users cannot be asked, which tells nothing of whom it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database of users cannot be asked")]
pub struct AccountsUnavailable;

/// Users and groups of this machine. What it is asked may block.
pub trait Accounts: Send + Sync {
    /// The name of a number, if it has one.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn name(&self, kind: AccountKind, id: u32) -> Result<Option<String>, AccountsUnavailable>;

    /// The number of a name, if there is one.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn number(&self, kind: AccountKind, name: &str) -> Result<Option<u32>, AccountsUnavailable>;

    /// The numbers of all groups that a user is in; none of one that is not known.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn groups(&self, uid: u32) -> Result<Vec<u32>, AccountsUnavailable>;
}
