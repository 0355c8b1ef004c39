//! Calls to clients of NFSv4.0 on connections to them: one for each client while some of its calls
//! are under way. A client that cannot be reached costs its own calls alone.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nfsd::callback::ClientCall;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use wire::rpc::{RecordMark, msg_type};
use wire::xdr::{Decode, Encode, Reader};

use crate::hosts::{header, new_xid};

/// How long an answer is waited for, the time that the connection takes included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an answer, its mark included.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Records that answer nothing, on one connection: a client that sends more is called no more on it.
const STRAY_RECORDS_MAX: usize = 16;

/// What a client has answered to the call of this number; `None` where it does not.
pub(crate) type ClientAnswer = (u64, Option<Vec<u8>>);

/// A connection to a client.
struct ClientConnection {
    to: SocketAddr,
    stream: TcpStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
    /// The calls that are not answered yet.
    under_way: Vec<CallUnderWay>,
    /// Records that have answered nothing.
    stray_records: usize,
}

struct CallUnderWay {
    xid: u32,
    /// [`ClientCall::id`].
    id: u64,
    /// It is not waited for any longer then.
    until: Instant,
}

/// Calls to clients that are under way: as many as the server makes at a time.
#[derive(Default)]
pub(crate) struct ClientCaller {
    connections: Vec<ClientConnection>,
}

impl ClientCaller {
    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty()
    }

    /// Until a client answers, or so long.
    pub(crate) fn wait(&self, most: Duration) {
        let mut sockets: Vec<_> = self
            .connections
            .iter()
            .map(ClientConnection::wanted)
            .collect();
        let most = Timespec::try_from(most).expect("a short time");
        // What goes wrong is seen when the connections go on.
        let _ = poll(&mut sockets, Some(&most));
    }

    /// Begins a call. `Some`: it cannot be made.
    pub(crate) fn begin(&mut self, call: ClientCall) -> Option<ClientAnswer> {
        let mut all = self.connections.iter_mut();
        if let Some(connection) = all.find(|connection| connection.to == call.to) {
            connection.put(&call);
            return None;
        }
        match connect(call.to, call.local) {
            Ok(stream) => {
                let mut connection = ClientConnection {
                    to: call.to,
                    stream,
                    to_send: Vec::new(),
                    received: Vec::new(),
                    under_way: Vec::new(),
                    stray_records: 0,
                };
                connection.put(&call);
                self.connections.push(connection);
                None
            }
            Err(error) => {
                tracing::debug!(client = %call.to, %error, "NFSv4.0 client cannot be called");
                Some((call.id, None))
            }
        }
    }

    /// Goes on with all connections: what clients have answered since.
    pub(crate) fn go_on(&mut self) -> Vec<ClientAnswer> {
        let mut answers = Vec::new();
        self.connections.retain_mut(|connection| {
            let is_over = connection.go_on(&mut answers).is_err();
            let now = Instant::now();
            let given_up =
                (connection.under_way).extract_if(.., |call| is_over || call.until <= now);
            answers.extend(given_up.map(|call| (call.id, None)));
            !connection.under_way.is_empty()
        });
        answers
    }
}

/// A connection that is being made.
fn connect(to: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Clients know the server by the address that they have reached.
    if let Some(local) = local.filter(|local| local.is_ipv4() == to.is_ipv4()) {
        net::bind(&socket, &SocketAddr::new(local, 0))?;
    }
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the connection is not there yet, or has no more for now.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted
    )
}

impl ClientConnection {
    fn wanted(&self) -> PollFd<'_> {
        let flags = match self.to_send.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        PollFd::new(&self.stream, flags)
    }

    fn put(&mut self, call: &ClientCall) {
        let xid = new_xid();
        let mut record = Vec::with_capacity(256);
        xid.encode(&mut record);
        msg_type::CALL.encode(&mut record);
        header(call.called, &mut record);
        record.extend(&call.args);
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        self.to_send.extend(mark.encode());
        self.to_send.extend(record);
        self.under_way.push(CallUnderWay {
            xid,
            id: call.id,
            until: Instant::now() + PATIENCE,
        });
    }

    fn go_on(&mut self, answers: &mut Vec<ClientAnswer>) -> io::Result<()> {
        match self.send() {
            Err(error) if !is_not_yet(&error) => return Err(error),
            _ => {}
        }
        // No more at a time: a client may send without end.
        let mut buf = [0; 4096];
        match self.stream.read(&mut buf) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.received.extend(&buf[..len]),
            Err(error) if is_not_yet(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        while let Some(record) = take_record(&mut self.received)? {
            match self.answer(&record) {
                Some(answer) => answers.push(answer),
                None => self.stray_records += 1,
            }
        }
        match self.stray_records {
            0..=STRAY_RECORDS_MAX => Ok(()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.to_send.is_empty() {
            let sent = self.stream.write(&self.to_send)?;
            self.to_send.drain(..sent);
        }
        Ok(())
    }

    /// What a record answers; `None`: no call that is under way.
    fn answer(&mut self, record: &[u8]) -> Option<ClientAnswer> {
        let from = &mut Reader::new(record);
        let xid = u32::decode(from).ok()?;
        if msg_type::decode(from) != Ok(msg_type::REPLY) {
            return None;
        }
        let at = self.under_way.iter().position(|call| call.xid == xid)?;
        let CallUnderWay { id, .. } = self.under_way.swap_remove(at);
        Some((id, Some(from.rest().to_vec())))
    }
}

/// The next record, which is of one fragment.
fn take_record(received: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some((mark, rest)) = received.split_first_chunk() else {
        return Ok(None);
    };
    let mark = RecordMark::decode(*mark);
    let len = mark.len as usize;
    if !mark.is_last || len > ANSWER_BYTES_MAX - RecordMark::LEN {
        return Err(ErrorKind::InvalidData.into());
    }
    let Some(record) = rest.get(..len) else {
        return Ok(None);
    };
    let record = record.to_vec();
    received.drain(..RecordMark::LEN + len);
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").expect("a listener")
    }

    fn call(id: u64, to: SocketAddr) -> ClientCall {
        ClientCall {
            id,
            to,
            local: Some("127.0.0.1".parse().expect("an address")),
            called: (0x4000_0000, 1, 1),
            args: vec![0, 0, 0, 9],
        }
    }

    fn all_answers(caller: &mut ClientCaller) -> Vec<ClientAnswer> {
        let mut answers = Vec::new();
        while !caller.is_idle() {
            answers.extend(caller.go_on());
            thread::sleep(Duration::from_millis(1));
        }
        answers
    }

    #[test]
    fn calls_to_one_client_go_by_one_connection_and_are_answered_in_any_order() {
        let (client, mut caller) = (listener(), ClientCaller::default());
        let to = client.local_addr().expect("bound");
        for id in [1, 2] {
            assert_eq!(caller.begin(call(id, to)), None);
        }
        let answering = thread::spawn(move || {
            let (mut stream, _) = client.accept().expect("a connection");
            let mut records = Vec::new();
            for _ in 0..2 {
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).expect("a mark");
                let mut record = vec![0; RecordMark::decode(mark).len as usize];
                stream.read_exact(&mut record).expect("a call");
                assert_eq!(record[4..8], [0; 4], "it is a call");
                assert_eq!(record[12..16], [0x40, 0, 0, 0], "of the client's program");
                assert!(record.ends_with(&[0, 0, 0, 9]));
                records.push(record);
            }
            // An answer to nothing, then both.
            let mut bytes = vec![0x80, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1];
            for record in records.iter().rev() {
                bytes.extend([0x80, 0, 0, 9]);
                bytes.extend(&record[..4]);
                bytes.extend([0, 0, 0, 1, record[3]]);
            }
            stream.write_all(&bytes).expect("sent");
            records.iter().map(|record| record[3]).collect::<Vec<_>>()
        });
        let answers = all_answers(&mut caller);
        let last_bytes = answering.join().expect("it has answered");
        let expected = [
            (2, Some(vec![last_bytes[1]])),
            (1, Some(vec![last_bytes[0]])),
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn client_that_is_not_there_ends_or_answers_no_record_has_not_answered() {
        let gone = {
            let listener = listener();
            listener.local_addr().expect("bound")
        };
        let mut caller = ClientCaller::default();
        let refused: Vec<_> = caller.begin(call(1, gone)).into_iter().collect();
        let refused = [refused, all_answers(&mut caller)].concat();
        assert_eq!(refused, [(1, None)]);
        for bytes in [&b""[..], &[0, 0, 0, 4, 0, 0, 0, 1], &[0xff; 4]] {
            let client = listener();
            let to = client.local_addr().expect("bound");
            assert_eq!(caller.begin(call(2, to)), None);
            let (mut stream, _) = client.accept().expect("a connection");
            stream.write_all(bytes).expect("sent");
            drop(stream);
            assert_eq!(all_answers(&mut caller), [(2, None)], "{bytes:?}");
        }
    }

    #[test]
    fn client_that_sends_no_answers_without_end_has_not_answered() {
        let client = listener();
        let mut caller = ClientCaller::default();
        let to = client.local_addr().expect("bound");
        assert_eq!(caller.begin(call(1, to)), None);
        let (mut stream, _) = client.accept().expect("a connection");
        let strays = [0x80, 0, 0, 4, 0, 0, 0, 0].repeat(STRAY_RECORDS_MAX + 1);
        stream.write_all(&strays).expect("sent");
        // Fewer looks than the answer is waited for.
        let mut looks = (0..1000).map(|_| {
            thread::sleep(Duration::from_millis(1));
            caller.go_on()
        });
        let answers = looks.find(|answers| !answers.is_empty());
        assert_eq!(answers, Some(vec![(1, None)]));
    }
}
