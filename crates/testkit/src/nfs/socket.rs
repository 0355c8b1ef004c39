//! Connections to a server at an address.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::rpc::RecordMark;

use super::compound::Transport;

/// Long enough for a machine with much else to do.
const WAIT_MAX: Duration = Duration::from_secs(30);

pub struct Socket(TcpStream);

pub fn connect(address: SocketAddr) -> Box<dyn Transport> {
    over(TcpStream::connect(address).expect("a connection"))
}

/// A connection that is there.
pub fn over(stream: TcpStream) -> Box<dyn Transport> {
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("an option");
    Box::new(Socket(stream))
}

impl Transport for Socket {
    fn send(&mut self, record: &[u8]) {
        let mark = RecordMark {
            is_last: true,
            len: record.len() as u32,
        };
        // If the server has ended the connection, the answer is missed.
        let _ = self.0.write_all(&[&mark.encode()[..], record].concat());
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; RecordMark::LEN];
            match self.0.read_exact(&mut mark) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => panic!("no answer"),
                Err(_) => return None,
                Ok(()) => {}
            }
            let mark = RecordMark::decode(mark);
            let at = record.len();
            record.resize(at + mark.len as usize, 0);
            self.0
                .read_exact(&mut record[at..])
                .expect("a whole record");
            if mark.is_last {
                return Some(record);
            }
        }
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        self.0.set_nonblocking(true).expect("an option");
        let found = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).expect("an option");
        match found {
            Ok(1..) => self.receive(),
            _ => None,
        }
    }
}
