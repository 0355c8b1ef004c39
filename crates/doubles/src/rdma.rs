//! The initiating end of a stream, by hand; and one against a server of RPC of nothing.

use std::collections::VecDeque;

use iwarp::{DataPart, Qp, QpError, QpOp, QpSettings, RegisteredMemory, RemoteAccess, Work};
use machine::{Machine as _, Tag};
use nfs::connection::{Connection, RdmaSettings, RpcServerSettings};
use testkit::End;
use testkit::rpc_rdma::{Message, Segment, segment};

use crate::nfs::RpcDouble;

/// Where each region of a client begins, as Tagged Offset.
const TO: u64 = 0x1000;
/// The tag of what a client sends; those of its regions follow.
const SEND: Tag = 0;
/// Regions of a client at a time.
const REGIONS_MAX: Tag = 64;

/// The end of a stream that has connected, with memory that the other may be told of.
#[derive(Debug)]
pub struct RdmaClient {
    /// The stream.
    pub end: End<Qp>,
    /// Messages of the server, and the handle that each invalidated.
    pub received: Vec<(Vec<u8>, Option<u32>)>,
    /// Why the stream ended.
    pub fatal: Option<QpError>,
    /// The other end has rejected it.
    pub is_rejected: bool,
    /// Handles of its regions.
    regions: Vec<u32>,
}

impl RdmaClient {
    /// One that sends its Request with `private_data`.
    pub fn new(stream: QpSettings, private_data: &[u8]) -> RdmaClient {
        let stream = QpSettings {
            head_max: u16::MAX,
            send_max: u16::MAX.into(),
            tags_max: usize::from(REGIONS_MAX) + 1,
            ..stream
        };
        let mut end = End::new(Qp::initiator(stream, 3, private_data, 0));
        end.machine.post_receives(1 << 20);
        RdmaClient {
            end,
            received: Vec::new(),
            fatal: None,
            is_rejected: false,
            regions: Vec::new(),
        }
    }

    /// Memory that the server may read, and all of it as a segment.
    pub fn readable(&mut self, bytes: &[u8]) -> Segment {
        self.add(bytes.to_vec(), RemoteAccess::READ)
    }

    /// Memory that the server may write.
    pub fn writable(&mut self, len: u32) -> Segment {
        self.add(vec![0xdd; len as usize], RemoteAccess::WRITE)
    }

    fn add(&mut self, bytes: Vec<u8>, access: RemoteAccess) -> Segment {
        let len = bytes.len() as u32;
        let tag = self.regions.len() as Tag + SEND + 1;
        assert!(tag <= REGIONS_MAX, "no more regions");
        self.end.set_memory(tag, bytes);
        let memory = RegisteredMemory {
            tag,
            offset: 0,
            len,
            to: TO,
            access,
        };
        let handle = self.end.machine.register(memory).expect("room");
        self.regions.push(handle);
        segment(handle, TO, len)
    }

    /// What lies in the last region but `back` now.
    pub fn memory(&self, back: u16) -> &[u8] {
        self.region(self.regions.len() - 1 - usize::from(back))
    }

    /// What lies in a region now, of those that were not taken back.
    pub fn region(&self, index: usize) -> &[u8] {
        &self.end.memory[index + usize::from(SEND) + 1]
    }

    /// How many regions there are.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// The server can name no region any more.
    pub fn take_regions_back(&mut self) {
        for handle in self.regions.drain(..) {
            // The server may have invalidated it already.
            self.end.machine.invalidate(handle);
        }
    }

    /// Posts a Send.
    pub fn post(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u32;
        self.end.set_memory(SEND, bytes);
        self.end.machine.post(Work::Send {
            head: &[],
            body: DataPart {
                tag: SEND,
                offset: 0,
                len,
            },
            invalidate: None,
            is_solicited: false,
            release: None,
        });
    }

    /// Sends what it has to send: whether that was anything.
    pub fn transmit(&mut self, to: &mut VecDeque<u8>) -> bool {
        let has_transmit = self.end.machine.has_transmit();
        while self.end.machine.has_transmit() {
            self.end.transmit(to, 3);
        }
        has_transmit
    }

    /// Receives at most `max` bytes: whether there were any.
    pub fn receive(&mut self, from: &mut VecDeque<u8>, max: usize) -> bool {
        let has_taken = self.end.receive(from, max) > 0;
        while let Some(op) = self.end.next_op() {
            match op {
                QpOp::Established => {}
                QpOp::Received(send) => {
                    let bytes = self.end.machine.head().to_vec();
                    self.received.push((bytes, send.invalidated));
                }
                QpOp::Fatal(why) => self.fatal = Some(why),
                QpOp::Rejected => self.is_rejected = true,
                other => panic!("{other:?}"),
            }
        }
        has_taken
    }
}

/// A client and a server of nothing.
#[derive(Debug)]
pub struct RdmaPair {
    /// The client.
    pub client: RdmaClient,
    /// The server.
    pub server: RpcDouble,
    /// So many bytes are received at a time.
    pub step: usize,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
}

impl RdmaPair {
    /// Both ends, of which the client has sent its Request with `private_data`.
    pub fn new(
        settings: (RpcServerSettings, RdmaSettings),
        client: QpSettings,
        private_data: &[u8],
        step: usize,
    ) -> RdmaPair {
        let server = Connection::new(settings.0, 0).with_rdma(settings.1, 4);
        let mut pair = RdmaPair {
            client: RdmaClient::new(client, private_data),
            server: RpcDouble::new(server),
            step,
            there: VecDeque::new(),
            back: VecDeque::new(),
        };
        pair.exchange();
        pair
    }

    /// Sends a message, and lets both ends go on.
    pub fn send(&mut self, message: &Message) {
        self.send_bytes(message.encode());
    }

    /// The same of any bytes.
    pub fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.client.post(bytes);
        self.exchange();
    }

    /// Both ends go on until neither has anything to say.
    pub fn exchange(&mut self) {
        loop {
            let mut is_quiet = !self.client.transmit(&mut self.there);
            while self.server.end.machine.has_transmit() {
                self.server.end.transmit(&mut self.back, 3);
                is_quiet = false;
            }
            is_quiet &= !self.server.receive(&mut self.there, self.step);
            is_quiet &= !self.client.receive(&mut self.back, self.step);
            if is_quiet {
                return;
            }
        }
    }
}
