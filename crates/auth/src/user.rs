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
