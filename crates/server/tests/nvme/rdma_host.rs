//! Hosts that connect by RDMA, by hand: a stream of iWARP on a socket for each queue pair.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use iwarp::Work;
use iwarp::{CrcPolicy, DataPart, Qp, QpOp, QpSettings, RegisteredMemory, RemoteAccess};
use machine::Tag;
use testkit::End;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, Cqe, PropertySet, Sgl, Sqe, Status};
use wire::nvme_rdma::{CmRequest, KeyedSgl};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::common::{HOST, NQN, PATIENCE};

/// The memory of the command that is under way, and the data in its capsule.
const DATA: Tag = 1;
const CAPSULE: Tag = 2;
/// Tagged Offset of its first byte.
pub const TO: u64 = 0x7000_0000;
/// Entries of each queue, less one.
pub const HSQSIZE: u16 = 31;

/// Where the data of a command is.
pub enum Data<'a> {
    Nowhere,
    /// In the capsule.
    Capsule(&'a [u8]),
    /// In memory that the controller reads.
    Read(&'a [u8]),
    /// So many bytes in memory that the controller writes.
    Written(u32),
}

/// What a host asks for in its private data.
pub fn cm_request(qid: u16, cntlid: u16) -> CmRequest {
    CmRequest {
        qid: qid.into(),
        hrqsize: (HSQSIZE + 1).into(),
        hsqsize: HSQSIZE.into(),
        cntlid: cntlid.into(),
        ..CmRequest::new_zeroed()
    }
}

/// One queue pair by hand.
pub struct RdmaQueue {
    pub stream: TcpStream,
    pub end: End<Qp>,
    /// Sends so far.
    pub sent: u32,
    back: VecDeque<u8>,
    cid: u16,
}

impl RdmaQueue {
    /// A stream, of which the target has been sent a Request with `private_data`.
    pub fn open(address: SocketAddr, private_data: &[u8], crc: CrcPolicy) -> RdmaQueue {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("settable");
        stream.set_nodelay(true).expect("settable");
        let settings = QpSettings {
            crc,
            ulpdu_max: 1000,
            ..QpSettings::default()
        };
        let mut queue = RdmaQueue {
            stream,
            end: End::new(Qp::initiator(settings, 3, private_data, 0)),
            sent: 0,
            back: VecDeque::new(),
            cid: 0,
        };
        queue.end.machine.post_receives(10_000);
        queue.flush();
        queue
    }

    /// A queue that Connect has made, and its controller's ID; or why there is none.
    pub fn connect(address: SocketAddr, qid: u16, cntlid: u16) -> Result<(RdmaQueue, u16), Status> {
        RdmaQueue::connect_to(address, NQN, qid, cntlid)
    }

    /// The same of another subsystem.
    pub fn connect_to(
        address: SocketAddr,
        subnqn: &str,
        qid: u16,
        cntlid: u16,
    ) -> Result<(RdmaQueue, u16), Status> {
        let request = cm_request(qid, if qid == 0 { 0 } else { cntlid });
        let mut queue = RdmaQueue::open(address, request.as_bytes(), CrcPolicy::Prefer);
        assert_eq!(queue.op(), Some(QpOp::Established));
        let command = ConnectCommand {
            recfmt: 0,
            qid,
            sqsize: HSQSIZE,
            cattr: 0,
            kato_ms: 0,
        };
        let data = ConnectData::new([7; 16], cntlid, subnqn, HOST);
        let (status, result, _) = queue.command(command.encode(), Data::Read(data.as_bytes()));
        match status.is_success() {
            true => Ok((queue, result as u16)),
            false => Err(status),
        }
    }

    /// An Admin Queue of an enabled controller and an I/O queue.
    pub fn pair(address: SocketAddr) -> (RdmaQueue, RdmaQueue) {
        let (mut admin, cntlid) = RdmaQueue::connect(address, 0, 0xffff).expect("admitted");
        admin.enable();
        let (io, _) = RdmaQueue::connect(address, 1, cntlid).expect("admitted");
        (admin, io)
    }

    /// Enables the controller.
    pub fn enable(&mut self) {
        let enable = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value: 1 | 6 << 16 | 4 << 20,
        };
        let (status, ..) = self.command(enable.encode(), Data::Nowhere);
        assert_eq!(status, Status::SUCCESS);
    }

    /// What comes next of what the target sends; `None`: it closes the connection.
    pub fn op(&mut self) -> Option<QpOp> {
        loop {
            if let Some(op) = self.end.next_op() {
                return Some(op);
            }
            self.flush();
            if self.end.receive(&mut self.back, usize::MAX) > 0 {
                continue;
            }
            let mut bytes = [0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.back.extend(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn flush(&mut self) {
        let mut out = VecDeque::new();
        self.end.transmit(&mut out, usize::MAX);
        // Where the target has closed the connection, the next receive tells.
        let _ = self.stream.write_all(out.make_contiguous());
    }

    /// Sends a capsule.
    pub fn send(&mut self, sqe: &Sqe, data: &[u8]) {
        self.sent += 1;
        self.end.set_memory(CAPSULE, data.to_vec());
        self.end.machine.post(Work::Send {
            head: sqe.as_bytes(),
            body: DataPart {
                tag: CAPSULE,
                offset: 0,
                len: data.len() as u32,
            },
            invalidate: None,
            is_solicited: false,
            release: None,
        });
        self.flush();
    }

    /// Lets the target name memory with these bytes; the STag.
    pub fn register(&mut self, bytes: Vec<u8>, access: RemoteAccess) -> u32 {
        let memory = RegisteredMemory {
            tag: DATA,
            offset: 0,
            len: bytes.len() as u32,
            to: TO,
            access,
        };
        self.end.set_memory(DATA, bytes);
        self.end.machine.register(memory).expect("room")
    }

    /// Executes a command: its status, dwords 0 and 1, and the data that was written. An STag
    /// of the command is invalidated by its response, if that is a success.
    pub fn command(&mut self, mut sqe: Sqe, data: Data<'_>) -> (Status, u64, Vec<u8>) {
        self.cid += 1;
        sqe.cid = self.cid.into();
        let mut capsule: &[u8] = &[];
        let keyed = match data {
            Data::Nowhere => None,
            Data::Capsule(bytes) => {
                sqe.sgl = Sgl::new(Sgl::IN_CAPSULE, bytes.len() as u32);
                capsule = bytes;
                None
            }
            Data::Read(bytes) => Some((bytes.to_vec(), RemoteAccess::READ)),
            Data::Written(len) => Some((vec![0; len as usize], RemoteAccess::WRITE)),
        };
        let stag = keyed.map(|(bytes, access)| {
            let len = bytes.len() as u32;
            let stag = self.register(bytes, access);
            sqe.sgl = KeyedSgl::new(KeyedSgl::INVALIDATE, stag, TO, len).into();
            stag
        });
        self.send(&sqe, capsule);
        let op = self.op();
        let Some(QpOp::Received(received)) = op else {
            panic!("{op:?}");
        };
        let cqe = Cqe::ref_from_bytes(self.end.machine.head()).expect("16 bytes");
        assert_eq!(cqe.cid.get(), self.cid, "each response is its command's");
        let (status, result) = (cqe.status(), cqe.result.get());
        match (stag, received.invalidated) {
            // A command that was refused leaves that to the host.
            (Some(stag), None) if !status.is_success() => {
                assert!(self.end.machine.invalidate(stag));
            }
            invalidated => assert_eq!(invalidated.0, invalidated.1),
        }
        let written = self.end.memory.get(usize::from(DATA));
        (status, result, written.cloned().unwrap_or_default())
    }
}
