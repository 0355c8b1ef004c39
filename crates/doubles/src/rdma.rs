//! A client of RPC-over-RDMA, made of a stream, against a server of nothing.

use std::collections::VecDeque;

use iwarp::{
    DataPart, Qp, QpError, QpOp, QpSettings, RegisteredMemory, RemoteAccess, SendHead, Work,
};
use machine::{Machine as _, Tag};
use nfs::connection::{Connection, RdmaSettings, RpcServerSettings};
use testkit::End;
use testkit::rpc_rdma::{Message, Segment, segment};

use crate::nfs::RpcDouble;

/// Where each region of the client begins, as Tagged Offset.
const TO: u64 = 0x1000;
/// The tag of what the client sends; those of its regions follow.
const SEND: Tag = 0;
/// Regions of a client.
pub const REGIONS_MAX: Tag = 64;

/// Both ends, and what the client has got.
#[derive(Debug)]
pub struct RdmaPair {
    /// The client's end of the stream.
    pub client: End<Qp>,
    /// The server.
    pub server: RpcDouble,
    /// Messages of the server, and the handle that each invalidated.
    pub received: Vec<(Vec<u8>, Option<u32>)>,
    /// Why the client's stream ended.
    pub fatal: Option<QpError>,
    /// So many bytes are received at a time.
    pub step: usize,
    there: VecDeque<u8>,
    back: VecDeque<u8>,
    regions: Tag,
}

impl RdmaPair {
    /// Both ends, of which the client has sent its Request with `private_data`.
    pub fn new(
        settings: (RpcServerSettings, RdmaSettings),
        client: QpSettings,
        private_data: &[u8],
        step: usize,
    ) -> RdmaPair {
        let client = QpSettings {
            head_max: u16::MAX,
            send_max: u16::MAX.into(),
            tags_max: usize::from(REGIONS_MAX),
            ..client
        };
        let server = Connection::new(settings.0, 0).with_rdma(settings.1, 4);
        let mut pair = RdmaPair {
            client: End::new(Qp::initiator(client, 3, private_data, 0)),
            server: RpcDouble::new(server),
            received: Vec::new(),
            fatal: None,
            step,
            there: VecDeque::new(),
            back: VecDeque::new(),
            regions: SEND + 1,
        };
        pair.client.machine.post_receives(1 << 20);
        pair.exchange();
        pair
    }

    /// Memory of the client which the server may read, and all of it as a segment.
    pub fn readable(&mut self, bytes: &[u8]) -> Segment {
        self.region(bytes.to_vec(), RemoteAccess::READ)
    }

    /// Memory of the client that the server may write.
    pub fn writable(&mut self, len: u32) -> Segment {
        self.region(vec![0xdd; len as usize], RemoteAccess::WRITE)
    }

    fn region(&mut self, bytes: Vec<u8>, access: RemoteAccess) -> Segment {
        let (tag, len) = (self.regions, bytes.len() as u32);
        self.regions += 1;
        assert!(self.regions <= REGIONS_MAX, "no more regions");
        self.client.set_memory(tag, bytes);
        let memory = RegisteredMemory {
            tag,
            offset: 0,
            len,
            to: TO,
            access,
        };
        let handle = self.client.machine.register(memory).expect("room");
        segment(handle, TO, len)
    }

    /// What lies in the last region but `back` now.
    pub fn memory(&self, back: u16) -> &[u8] {
        &self.client.memory[usize::from(self.regions - 1 - back)]
    }

    /// Sends a message, and lets both ends go on.
    pub fn send(&mut self, message: &Message) {
        self.send_bytes(message.encode());
    }

    /// The same of any bytes.
    pub fn send_bytes(&mut self, bytes: Vec<u8>) {
        let len = bytes.len() as u32;
        self.client.set_memory(SEND, bytes);
        self.client.machine.post(Work::Send {
            head: SendHead::new(&[]),
            body: DataPart {
                tag: SEND,
                offset: 0,
                len,
            },
            invalidate: None,
            is_solicited: false,
            release: None,
        });
        self.exchange();
    }

    /// Both ends go on until neither has anything to say.
    pub fn exchange(&mut self) {
        loop {
            let mut is_quiet = true;
            while self.client.machine.has_transmit() {
                self.client.transmit(&mut self.there, 3);
                is_quiet = false;
            }
            while self.server.end.machine.has_transmit() {
                self.server.end.transmit(&mut self.back, 3);
                is_quiet = false;
            }
            is_quiet &= !self.server.receive(&mut self.there, self.step);
            is_quiet &= self.client.receive(&mut self.back, self.step) == 0;
            self.take_client_ops();
            if is_quiet {
                return;
            }
        }
    }

    fn take_client_ops(&mut self) {
        while let Some(op) = self.client.next_op() {
            match op {
                QpOp::Established => {}
                QpOp::Received(send) => {
                    let bytes = self.client.machine.head().to_vec();
                    self.received.push((bytes, send.invalidated));
                }
                QpOp::Fatal(why) => self.fatal = Some(why),
                other => panic!("{other:?}"),
            }
        }
    }
}
