//! What a completion belongs to, packed into the reactor's token.

use machine::Tag;
use reactor::Token;

/// A connection of this reactor: its place in the table, and which of its
/// successive tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    pub index: u32,
    pub generation: u16,
}

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A listener, by its number.
    Listener(u32),
    /// The receive of a connection.
    Recv(ConnectionId),
    /// The send of a connection.
    Send(ConnectionId),
    /// The end of a connection's socket.
    Close(ConnectionId),
    /// File work for a command of a connection.
    File(ConnectionId, Tag),
    /// The sync of a volume at the end, by the volume's number.
    Sync(u32),
}

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

impl Subject {
    /// kind:4 | generation:16 | index:28 | tag:16, from the top.
    #[inline]
    pub fn token(self) -> Token {
        let (kind, index, generation, tag) = match self {
            Subject::Listener(n) => (0, n, 0, 0),
            Subject::Recv(c) => (1, c.index, c.generation, 0),
            Subject::Send(c) => (2, c.index, c.generation, 0),
            Subject::Close(c) => (3, c.index, c.generation, 0),
            Subject::File(c, tag) => (4, c.index, c.generation, tag),
            Subject::Sync(n) => (5, n, 0, 0),
        };
        debug_assert!(u64::from(index) <= INDEX_MASK);
        (kind << 60) | (u64::from(generation) << 44) | (u64::from(index) << 16) | u64::from(tag)
    }

    /// The inverse of [`Subject::token`].
    #[inline]
    pub fn of(token: Token) -> Self {
        let index = ((token >> 16) & INDEX_MASK) as u32;
        let connection = ConnectionId {
            index,
            generation: (token >> 44) as u16,
        };
        match token >> 60 {
            0 => Subject::Listener(index),
            1 => Subject::Recv(connection),
            2 => Subject::Send(connection),
            3 => Subject::Close(connection),
            4 => Subject::File(connection, token as u16),
            5 => Subject::Sync(index),
            kind => unreachable!("token of unknown kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_survives_its_token() {
        let id = ConnectionId {
            index: (1 << INDEX_BITS) - 1,
            generation: u16::MAX,
        };
        for subject in [
            Subject::Listener(3),
            Subject::Recv(id),
            Subject::Send(id),
            Subject::Close(id),
            Subject::File(id, u16::MAX),
            Subject::Sync(7),
        ] {
            assert_eq!(Subject::of(subject.token()), subject);
        }
    }
}
