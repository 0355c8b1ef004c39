//! What a completion belongs to, packed into the reactor's token.

use std::fmt;
use std::str::FromStr;

use link::StreamTokens;
use reactor::Token;

/// A connection of this reactor: its place in the table, and which of its
/// successive tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    /// Its place in the table.
    pub index: u32,
    /// Which of the successive tenants of that place.
    pub generation: u16,
}

/// A connection anywhere in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRef {
    /// The reactor that it lives on.
    pub shard: u32,
    /// Which of that reactor's connections.
    pub id: ConnectionId,
}

impl ConnectionRef {
    /// As one number, for code that keeps it without knowing what it is.
    pub fn pack(self) -> u64 {
        debug_assert!(self.shard < 1 << 16);
        (u64::from(self.shard) << 48)
            | (u64::from(self.id.generation) << 32)
            | u64::from(self.id.index)
    }

    /// The inverse of [`ConnectionRef::pack`].
    pub fn unpack(packed: u64) -> Self {
        ConnectionRef {
            shard: (packed >> 48) as u32,
            id: ConnectionId {
                generation: (packed >> 32) as u16,
                index: packed as u32,
            },
        }
    }
}

/// What administrators name it by: its reactor, its place there and its tenant.
impl fmt::Display for ConnectionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionId { index, generation } = self.id;
        write!(f, "{}-{index}-{generation}", self.shard)
    }
}

impl FromStr for ConnectionRef {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('-');
        let mut next = || parts.next()?.parse::<u32>().ok();
        let (shard, index, generation) = (next(), next(), next());
        let connection = || {
            Some(ConnectionRef {
                shard: shard.filter(|shard| *shard < 1 << 16)?,
                id: ConnectionId {
                    index: index?,
                    generation: generation?.try_into().ok()?,
                },
            })
        };
        connection().filter(|own| own.to_string() == text).ok_or(())
    }
}

impl ConnectionId {
    /// What completions of its stream carry.
    pub fn tokens(self) -> StreamTokens {
        StreamTokens {
            receive: Subject::Recv(self).token(),
            send: Subject::Send(self).token(),
            close: Subject::Close(self).token(),
        }
    }
}

/// A job of this reactor: its place, and which of the successive tenants of it.
/// Each protocol has a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId {
    /// The number of the table, then the place in it.
    pub index: u32,
    /// Which of the successive tenants of that place, of [`JobId::GENERATION_BITS`].
    pub generation: u32,
    /// In a completion what a volume has put there ([`store::LEG_BITS`]), else 0.
    pub leg: u8,
}

/// Tables of jobs that a reactor may have.
pub const JOB_TABLES_MAX: u32 = 16;
const PLACE_BITS: u32 = INDEX_BITS - JOB_TABLES_MAX.ilog2();
/// Jobs that one table may have.
pub const JOBS_MAX: u32 = 1 << PLACE_BITS;

impl JobId {
    /// Bits of a generation.
    pub const GENERATION_BITS: u32 = u32::BITS - store::LEG_BITS;

    /// The job at a place of a table.
    #[inline]
    pub fn new(table: u32, place: u32, generation: u32) -> JobId {
        debug_assert!(table < JOB_TABLES_MAX && place < JOBS_MAX);
        debug_assert!(generation >> JobId::GENERATION_BITS == 0);
        JobId {
            index: table << PLACE_BITS | place,
            generation,
            leg: 0,
        }
    }

    /// The generation after this one.
    #[inline]
    pub fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << JobId::GENERATION_BITS) - 1)
    }

    /// The job, whatever of it has completed.
    #[inline]
    pub fn whole(self) -> JobId {
        JobId { leg: 0, ..self }
    }

    /// The number of its table.
    #[inline]
    pub fn table(self) -> u32 {
        self.index >> PLACE_BITS
    }

    /// Its place there.
    #[inline]
    pub fn place(self) -> usize {
        (self.index & (JOBS_MAX - 1)) as usize
    }
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
    /// An I/O on a whole volume for no host, by its number, and what the volume has put into
    /// the token.
    Unasked(u32, u8),
    /// What a volume does by itself, likewise.
    Upkeep(u32, u8),
}

const INDEX_BITS: u32 = 28;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

impl Subject {
    /// kind:4 | index:28 | generation:32, from the top. Where volumes complete something, the
    /// last [`store::LEG_BITS`] of the generation are theirs.
    #[inline]
    pub fn token(self) -> Token {
        let (kind, index, generation) = match self {
            Subject::Listener(n) => (0, n, 0),
            Subject::Recv(c) => (1, c.index, c.generation.into()),
            Subject::Send(c) => (2, c.index, c.generation.into()),
            Subject::Close(c) => (3, c.index, c.generation.into()),
            Subject::File(job) => {
                let generation = job.generation << store::LEG_BITS;
                (4, job.index, generation | u32::from(job.leg))
            }
            Subject::Unasked(n, leg) => (5, n, leg.into()),
            Subject::Upkeep(n, leg) => (6, n, leg.into()),
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
                generation: token as u32 >> store::LEG_BITS,
                leg: token as u8,
            }),
            5 => Subject::Unasked(index, token as u8),
            6 => Subject::Upkeep(index, token as u8),
            kind => unreachable!("token of unknown kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_survives_packing() {
        let connection = ConnectionRef {
            shard: 513,
            id: ConnectionId {
                index: 70_000,
                generation: u16::MAX,
            },
        };
        assert_eq!(ConnectionRef::unpack(connection.pack()), connection);
    }

    #[test]
    fn a_connection_is_named_and_found_by_its_name() {
        let id = ConnectionId {
            index: 70_000,
            generation: 7,
        };
        let connection = ConnectionRef { shard: 3, id };
        assert_eq!(connection.to_string(), "3-70000-7");
        assert_eq!("3-70000-7".parse(), Ok(connection));
        for wrong in [
            "",
            "3",
            "3-1",
            "3-1-2-4",
            "03-1-2",
            "+3-1-2",
            "3-1-65536",
            "65536-1-1",
            "a-1-2",
        ] {
            assert_eq!(wrong.parse::<ConnectionRef>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_job_has_its_table_and_its_place() {
        let id = JobId::new(JOB_TABLES_MAX - 1, JOBS_MAX - 1, 7);
        assert_eq!(id.index, INDEX_MASK);
        assert_eq!(id.table(), JOB_TABLES_MAX - 1);
        assert_eq!(id.place(), JOBS_MAX as usize - 1);
    }

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
                generation: u32::MAX >> store::LEG_BITS,
                leg: u8::MAX,
            }),
            Subject::Unasked(7, 3),
            Subject::Upkeep(8, 2),
        ] {
            assert_eq!(Subject::of(subject.token()), subject);
        }
    }
}
