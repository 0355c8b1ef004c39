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

/// Users and groups of this machine. What it is asked may block.
pub trait Accounts: Send + Sync {
    /// The name of a number, if it has one.
    fn name(&self, kind: AccountKind, id: u32) -> Option<String>;

    /// The number of a name, if there is one.
    fn number(&self, kind: AccountKind, name: &str) -> Option<u32>;
}
