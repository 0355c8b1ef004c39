//! A client of files in as few lines as it takes, on a blocking socket: for tests
//! that need many clients, or very much of one.

use machine::Machine;
use nfs::client::{
    Auth, CallData, Channels, ClientConnection, ClientOp, Compound, Results, RpcClientSettings,
    Sequenced, Slots, Wrong, create_session, exchange_id,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;
use testkit::End;
use wire::nfs4::{
    CREATE_SESSION4resok, EXCHANGE_ID4resok, RECLAIM_COMPLETE4args, SEQUENCE4resok, nfs_argop4,
    nfs_opnum4, sessionid4,
};

/// Slots, callbacks and sizes as Linux asks for them, for 1 MiB reads and writes;
/// of answers to keep as much as a server has, and operations for many files at once.
const CHANNELS: Channels = Channels {
    slots: 64,
    message_bytes_max: (1 << 20) + 4096,
    cached_bytes_max: 8192,
    ops_max: 64,
    callback_slots: 16,
    callback_program: CALLBACK_PROGRAM,
};
/// Any of the transient ones (RFC 5531, section 8.3).
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
const MINOR: u32 = 2;
/// Bytes of a record, at most: far more than is asked for here.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// One client with one session over one connection, as root by AUTH_SYS.
pub struct FilesClient {
    stream: TcpStream,
    end: End<ClientConnection>,
    clientid: u64,
    slots: Option<Slots>,
}

impl FilesClient {
    /// Connects from `local` and makes a session, for which the server may call
    /// back, and says that nothing is to be reclaimed.
    ///
    /// # Errors
    /// Where the connection fails or the server refuses.
    pub fn connect(local: IpAddr, to: SocketAddr, owner: &[u8]) -> io::Result<FilesClient> {
        let settings = RpcClientSettings {
            calls_max: 1,
            answer_bytes_max: CHANNELS.message_bytes_max,
            callback_program: CALLBACK_PROGRAM,
            auth: Auth::sys(0, 0, &[]),
        };
        let mut client = FilesClient {
            stream: connect_from(local, to)?,
            end: End::new(ClientConnection::new(settings)),
            clientid: 0,
            slots: None,
        };
        let op = nfs_argop4::OP_EXCHANGE_ID(exchange_id([7; 8], owner));
        let (clientid, sequence) = client.exchange(
            |compound| {
                compound.op(&op);
            },
            |results| {
                let known: EXCHANGE_ID4resok<'_> = results.take(nfs_opnum4::OP_EXCHANGE_ID)?;
                Ok((known.eir_clientid, known.eir_sequenceid))
            },
        )?;
        client.clientid = clientid;
        let op = nfs_argop4::OP_CREATE_SESSION(create_session(clientid, sequence, &CHANNELS));
        let slots = client.exchange(
            |compound| {
                compound.op(&op);
            },
            |results| {
                let made: CREATE_SESSION4resok<'_> = results.take(nfs_opnum4::OP_CREATE_SESSION)?;
                Ok(Slots::new(&made))
            },
        )?;
        client.slots = Some(slots);
        let op = nfs_argop4::OP_RECLAIM_COMPLETE(RECLAIM_COMPLETE4args { rca_one_fs: false });
        client.call(
            |compound| {
                compound.op(&op);
            },
            |results| results.done(nfs_opnum4::OP_RECLAIM_COMPLETE),
        )?;
        Ok(client)
    }

    /// What the server calls this client.
    #[must_use]
    pub fn clientid(&self) -> u64 {
        self.clientid
    }

    /// Its session.
    #[must_use]
    pub fn session(&self) -> sessionid4 {
        self.slots().session()
    }

    /// How many requests the session may have in flight.
    #[must_use]
    pub fn slots_max(&self) -> usize {
        self.slots().count()
    }

    fn slots(&self) -> &Slots {
        self.slots.as_ref().expect("it has a session")
    }

    /// A COMPOUND of what `write` writes behind SEQUENCE, and what `read` makes of
    /// its results behind that.
    ///
    /// # Errors
    /// Where the connection is lost or the server refuses.
    pub fn call<T>(
        &mut self,
        write: impl FnOnce(&mut Compound<'_>),
        read: impl FnOnce(&mut Results<'_>) -> Result<T, Wrong>,
    ) -> io::Result<T> {
        let mut slots = self.slots.take().expect("it has a session");
        let slot = slots.take().expect("one call at a time");
        let op = nfs_argop4::OP_SEQUENCE(slots.sequence(slot, false));
        let done = self.exchange(
            |compound| {
                compound.op(&op);
                write(compound);
            },
            |results| {
                let result = results.take::<SEQUENCE4resok>(nfs_opnum4::OP_SEQUENCE);
                match (slots.ended(slot, result.as_ref()), result) {
                    (Sequenced::Executed, _) => read(results),
                    (_, Err(wrong)) => Err(wrong),
                    (_, Ok(_)) => Err(Wrong::Answer),
                }
            },
        );
        self.slots = Some(slots);
        done
    }

    /// A COMPOUND, without a session.
    fn exchange<T>(
        &mut self,
        write: impl FnOnce(&mut Compound<'_>),
        read: impl FnOnce(&mut Results<'_>) -> Result<T, Wrong>,
    ) -> io::Result<T> {
        let tag = self.end.machine.compound(MINOR, CallData::None, write);
        tag.ok_or_else(|| other("one call at a time"))?;
        let mut incoming = VecDeque::new();
        loop {
            let mut outgoing = VecDeque::new();
            self.end.transmit(&mut outgoing, usize::MAX);
            self.stream.write_all(outgoing.make_contiguous())?;
            match self.end.next_op() {
                Some(ClientOp::Answered { .. }) => break,
                Some(what) => return Err(other(format!("{what:?}"))),
                // An answer to a CB_NULL waits.
                None if self.end.machine.has_transmit() => {}
                None => {
                    if self.end.receive(&mut incoming, usize::MAX) == 0 {
                        self.receive(&mut incoming)?;
                    }
                }
            }
        }
        let answer = self.end.machine.answer();
        let mut results = answer.results().map_err(other)?;
        read(&mut results).map_err(other)
    }

    /// One fragment of a record.
    fn receive(&mut self, into: &mut VecDeque<u8>) -> io::Result<()> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let len = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
        if len > RECORD_BYTES_MAX {
            return Err(other(format!("a record of {len} bytes")));
        }
        let mut fragment = vec![0; len];
        self.stream.read_exact(&mut fragment)?;
        into.extend(mark.iter().chain(&fragment));
        Ok(())
    }
}

fn connect_from(local: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = match local {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(local, 0))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

fn other(why: impl fmt::Display) -> io::Error {
    io::Error::other(why.to_string())
}
