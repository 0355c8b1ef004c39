//! Connections by RDMA, of which cases know nothing: data and long calls lie in chunks, and
//! so do data and long answers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use doubles::nfsd::NfsdDouble;
use doubles::rdma::RdmaClient;
use testkit::nfs::compound::Transport;
use testkit::rpc_rdma::Message;
use wire::nfs3::{READ3args, READ3res, WRITE3args, nfs_proc3};
use wire::nfs4::*;
use wire::rpc::{
    RPCSEC_GSS, call_body, msg_type, reply_body, rpc_gss_cred_vers_1_t, rpc_gss_proc_t,
    rpc_gss_service_t,
};
use wire::rpc_rdma::RpcRdmaPrivateData;
use wire::xdr::{Decode, Reader, pad};

/// Longer calls lie in a chunk.
const SHORT_BYTES: usize = 3500;
/// Room for an answer.
const ANSWER_BYTES: u32 = 2 << 20;

thread_local! {
    static USED: Cell<ChunksUsed> = const { Cell::new([0; 4]) };
}

/// How often data of a call, a call, data of an answer and an answer were in chunks.
pub type ChunksUsed = [u32; 4];

/// What was used since this was asked last.
pub fn take_used() -> ChunksUsed {
    USED.take()
}

fn note_use(index: usize) {
    let mut used = USED.get();
    used[index] += 1;
    USED.set(used);
}

/// Data within a call or an answer: where it stands, and how long it is.
type Place = (usize, usize);

/// A call as far as chunks are concerned.
#[derive(Default)]
struct Chunked {
    /// Data of WRITEs.
    writes: Vec<Place>,
    /// The longest data of the only READ, or of READLINK as the last operation.
    result: Option<(u32, ResultPlace)>,
}

/// Where in the answer data stands that has come to a chunk.
#[derive(Clone, Copy)]
enum ResultPlace {
    /// In the result of READ.
    Read,
    /// The same of NFSv3.
    Read3,
    /// At the end.
    End,
}

/// What of a call has chunks; of one that cannot be read nothing.
fn chunked(call: &[u8]) -> Chunked {
    let mut found = Chunked::default();
    // What is found before the first mistake stays.
    let _ = find(call, &mut found);
    found
}

fn find(call: &[u8], found: &mut Chunked) -> Option<()> {
    let from = &mut Reader::new(call);
    from.take(4).ok()?;
    msg_type::decode(from)
        .ok()
        .filter(|kind| *kind == msg_type::CALL)?;
    let header = call_body::decode(from).ok()?;
    if header.cred.flavor == RPCSEC_GSS && !is_readable(header.cred.body.0)? {
        return None;
    }
    match (header.prog, header.vers, header.proc) {
        (NFS4_PROGRAM, 4, NFSPROC4_COMPOUND) => {}
        (NFS4_PROGRAM, 3, proc) if proc == nfs_proc3::NFSPROC3_WRITE as u32 => {
            let args = WRITE3args::decode(from).ok()?;
            found.writes.push((from.position(), args.data.len as usize));
            return None;
        }
        (NFS4_PROGRAM, 3, proc) if proc == nfs_proc3::NFSPROC3_READ as u32 => {
            let count = READ3args::decode(from).ok()?.count;
            found.result = Some((count, ResultPlace::Read3));
            return None;
        }
        (NFS4_PROGRAM, 3, proc) if proc == nfs_proc3::NFSPROC3_READLINK as u32 => {
            found.result = Some((4096, ResultPlace::End));
            return None;
        }
        _ => return None,
    }
    let head = compound_head::decode(from).ok()?;
    let mut reads = 0;
    for index in 0..head.ops {
        match nfs_argop4::decode(from).ok()? {
            nfs_argop4::OP_WRITE(args) => {
                let len = args.data.len as usize;
                found.writes.push((from.position(), len));
                from.opaque(len).ok()?;
            }
            nfs_argop4::OP_READ(args) => {
                reads += 1;
                found.result = Some((args.count, ResultPlace::Read)).filter(|_| reads == 1);
            }
            nfs_argop4::OP_READLINK if reads == 0 && index + 1 == head.ops => {
                found.result = Some((4096, ResultPlace::End));
            }
            _ => {}
        }
    }
    Some(())
}

/// Whether arguments stand as they are behind a credential of RPCSEC_GSS.
fn is_readable(credential: &[u8]) -> Option<bool> {
    let from = &mut Reader::new(credential);
    from.take(4).ok()?;
    let credential = rpc_gss_cred_vers_1_t::decode(from).ok()?;
    let is_data = credential.gss_proc == rpc_gss_proc_t::RPCSEC_GSS_DATA;
    Some(is_data && credential.service == rpc_gss_service_t::rpc_gss_svc_none)
}

/// Where data stands in an answer without it.
fn place_of(answer: &[u8], place: ResultPlace) -> usize {
    let from = &mut Reader::new(answer);
    from.take(8).expect("xid and type");
    reply_body::decode(from).expect("the header of RPC");
    match place {
        ResultPlace::End => answer.len(),
        ResultPlace::Read3 => {
            READ3res::decode(from).expect("a result");
            from.position()
        }
        ResultPlace::Read => {
            let head = compound_res_head::decode(from).expect("a COMPOUND's head");
            (0..head.results)
                .find_map(|_| match nfs_resop4::decode(from).expect("a result") {
                    nfs_resop4::OP_READ(_) => Some(from.position()),
                    _ => None,
                })
                .expect("the result of READ")
        }
    }
}

/// What carries the bytes of a stream.
trait Carrier {
    /// Hands bytes to the server: what it has sent meanwhile.
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8>;
    /// What the server sends next; nothing where it has ended, or has nothing to say.
    fn wait(&mut self) -> Vec<u8>;
}

/// Of the server without sockets, by the number of the connection.
struct Memory(Rc<RefCell<NfsdDouble>>, usize);

impl Carrier for Memory {
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut server = self.0.borrow_mut();
        if !bytes.is_empty() {
            server.receive(self.1, bytes);
        }
        server.sent(self.1)
    }

    fn wait(&mut self) -> Vec<u8> {
        self.pass(&[])
    }
}

/// Of a server elsewhere.
impl Carrier for TcpStream {
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        // One that has ended says so when it is read.
        let _ = self.write_all(bytes);
        self.set_nonblocking(true).expect("a socket");
        let read = self.wait();
        self.set_nonblocking(false).expect("a socket");
        read
    }

    fn wait(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 << 10];
        let len = self.read(&mut bytes).unwrap_or(0);
        bytes.truncate(len);
        bytes
    }
}

/// A client that comes by RDMA.
pub struct RdmaConnection {
    carrier: Box<dyn Carrier>,
    client: RdmaClient,
    /// Calls that are not answered, by xid: where their data goes, and their last region.
    calls: BTreeMap<u32, (Option<ResultPlace>, usize)>,
    answers: VecDeque<Vec<u8>>,
}

impl RdmaConnection {
    /// One that the server without sockets has accepted.
    pub fn new(server: &Rc<RefCell<NfsdDouble>>, number: usize) -> RdmaConnection {
        RdmaConnection::by(Box::new(Memory(server.clone(), number)))
    }

    /// One to a server elsewhere.
    pub fn connect(address: SocketAddr) -> RdmaConnection {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let timeout = Some(Duration::from_secs(30));
        stream.set_read_timeout(timeout).expect("a socket");
        RdmaConnection::by(Box::new(stream))
    }

    fn by(carrier: Box<dyn Carrier>) -> RdmaConnection {
        let data = RpcRdmaPrivateData {
            takes_invalidate: true,
            send_bytes_max: 4096,
            receive_bytes_max: 4096,
        };
        let mut connection = RdmaConnection {
            carrier,
            client: RdmaClient::new(Default::default(), &data.encode()),
            calls: BTreeMap::new(),
            answers: VecDeque::new(),
        };
        connection.exchange();
        connection
    }

    fn exchange(&mut self) {
        loop {
            let mut bytes = VecDeque::new();
            self.client.transmit(&mut bytes);
            let sent = self.carrier.pass(bytes.make_contiguous());
            if sent.is_empty() {
                return;
            }
            self.take(sent.into());
        }
    }

    /// Takes what the server has sent.
    fn take(&mut self, mut stream: VecDeque<u8>) {
        while !stream.is_empty() {
            while self.client.receive(&mut stream, usize::MAX) {}
            for (message, _) in std::mem::take(&mut self.client.received) {
                // An error is no answer.
                if let Ok(message) = Message::decode(&message) {
                    let answer = self.record_of(message);
                    self.answers.push_back(answer);
                }
            }
        }
    }

    /// The record that a message stands for.
    fn record_of(&mut self, message: Message) -> Vec<u8> {
        let Some((place, last)) = self.calls.remove(&message.xid) else {
            return message.body;
        };
        // The last region is for all of an answer, the one before it for data.
        let mut record = match message.is_long {
            false => message.body,
            true => {
                note_use(3);
                let len = message.reply.expect("a chunk")[0].length as usize;
                self.client.region(last)[..len].to_vec()
            }
        };
        let used = message
            .writes
            .first()
            .map_or(0, |chunk| chunk[0].length as usize);
        if let Some(place) = place.filter(|_| used > 0) {
            note_use(2);
            let at = place_of(&record, place);
            let mut data = self.client.region(last - 1)[..used].to_vec();
            data.resize(used + pad(used), 0);
            record.splice(at..at, data);
        }
        record
    }
}

impl Transport for RdmaConnection {
    fn send(&mut self, record: &[u8]) {
        let xid = record
            .first_chunk()
            .map_or(0, |xid| u32::from_be_bytes(*xid));
        if self.calls.is_empty() {
            self.client.take_regions_back();
        }
        let Chunked { writes, result } = chunked(record);
        let (mut body, mut reads) = (record.to_vec(), Vec::new());
        for (at, len) in writes.into_iter().rev() {
            let end = at + len + pad(len);
            // Small data has a chunk too, now and then.
            if end > body.len() || len < 4096 && (len < 8 || len % 3 == 0) {
                continue;
            }
            note_use(0);
            reads.insert(0, (at as u32, self.client.readable(&record[at..at + len])));
            body.drain(at..end);
        }
        let is_long = body.len() > SHORT_BYTES;
        if is_long {
            note_use(1);
            reads.push((0, self.client.readable(&body)));
            body.clear();
        }
        let writes = result.map(|(max, _)| vec![self.client.writable(max.clamp(1, ANSWER_BYTES))]);
        let is_call = record.get(4..8) == Some(&[0; 4]);
        let reply = is_call.then(|| vec![self.client.writable(ANSWER_BYTES)]);
        if is_call {
            let last = self.client.regions() - 1;
            self.calls
                .insert(xid, (result.map(|(_, place)| place), last));
        }
        let message = Message {
            xid,
            credits: 8,
            is_long,
            reads,
            writes: writes.into_iter().collect(),
            reply,
            body,
        };
        self.client.post(message.encode());
        self.exchange();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(answer) = self.poll() {
                return Some(answer);
            }
            let sent = self.carrier.wait();
            if sent.is_empty() {
                return None;
            }
            self.take(sent.into());
        }
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        self.exchange();
        self.answers.pop_front()
    }
}
