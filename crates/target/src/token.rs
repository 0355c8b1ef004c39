//! What a completion belongs to, packed into the reactor's token.

use reactor::Token;

use crate::job::JobId;

/// A connection of this reactor: its place in the table, and which of its
/// successive tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    /// Its place in the table.
    pub index: u32,
    /// Which of the successive tenants of that place.
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
    /// File work of a job.
    File(JobId),
    /// The sync of a volume at the end, by the volume's number.
    Sync(u32),
}

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

impl Subject {
    /// kind:4 | index:28 | generation:32, from the top.
    #[inline]
    pub fn token(self) -> Token {
        let (kind, index, generation) = match self {
            Subject::Listener(n) => (0, n, 0),
            Subject::Recv(c) => (1, c.index, c.generation.into()),
            Subject::Send(c) => (2, c.index, c.generation.into()),
            Subject::Close(c) => (3, c.index, c.generation.into()),
            Subject::File(job) => (4, job.index, job.generation),
            Subject::Sync(n) => (5, n, 0),
        };
        debug_assert!(index <= INDEX_MASK);
        (kind << 60) | (u64::from(index) << 32) | u64::from(generation)
    }

    /// The inverse of [`Subject::token`].
    #[inline]
    pub fn of(token: Token) -> Self {
        let index = (token >> 32) as u32 & INDEX_MASK;
        let connection = ConnectionId {
            index,
            generation: token as u16,
        };
        match token >> 60 {
            0 => Subject::Listener(index),
            1 => Subject::Recv(connection),
            2 => Subject::Send(connection),
            3 => Subject::Close(connection),
            4 => Subject::File(JobId {
                index,
                generation: token as u32,
            }),
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
            index: INDEX_MASK,
            generation: u16::MAX,
        };
        for subject in [
            Subject::Listener(3),
            Subject::Recv(id),
            Subject::Send(id),
            Subject::Close(id),
            Subject::File(JobId {
                index: INDEX_MASK,
                generation: u32::MAX,
            }),
            Subject::Sync(7),
        ] {
            assert_eq!(Subject::of(subject.token()), subject);
        }
    }
}
