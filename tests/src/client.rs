//! A host in as few lines as it takes, on blocking sockets: for tests that
//! need many connections and little of each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use wire::nvme::fabrics::ConnectData;
use wire::nvme::property::offset;
use wire::nvme::{ConnectCommand, Cqe, PropertySet, Sgl, Sqe, io as opcode};
use wire::nvme_tcp::{CapsuleCmd, CapsuleResp, CommonHeader, Data, IcReq, IcResp, flags, pdu_type};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// CC of an enabled controller: EN, 4 KiB pages, entries of 64 and 16 bytes
/// (Base 2.0, figure 46).
const CC_ENABLED: u64 = 1 | 6 << 16 | 4 << 20;

/// Who connects unless a test says so.
const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d1f0a5e-5f0c-4a2b-9c57-3f2f6f6b7e02";

/// One queue pair of one controller.
#[derive(Debug)]
pub struct QueuePair {
    /// The namespace of its reads and writes.
    pub nsid: u32,
    stream: TcpStream,
    hostnqn: String,
    cntlid: u16,
    cid: u16,
}

impl QueuePair {
    /// An Admin Queue of a new controller for `nqn`, without keep-alive,
    /// enabled.
    pub fn admin(address: SocketAddr, nqn: &str) -> io::Result<QueuePair> {
        QueuePair::admin_as(HOSTNQN, address, nqn)
    }

    /// The same, of a host by name.
    pub fn admin_as(hostnqn: &str, address: SocketAddr, nqn: &str) -> io::Result<QueuePair> {
        let mut queue = QueuePair::connect(hostnqn, address, nqn, 0, 0xffff)?;
        let set = PropertySet {
            offset: offset::CC,
            is_8_bytes: false,
            value: CC_ENABLED,
        };
        queue.command(set.encode(), &[])?;
        Ok(queue)
    }

    /// I/O queue `qid` of the controller whose Admin Queue this is.
    pub fn io(&self, nqn: &str, qid: u16) -> io::Result<QueuePair> {
        QueuePair::connect(
            &self.hostnqn,
            self.stream.peer_addr()?,
            nqn,
            qid,
            self.cntlid,
        )
    }

    /// Reads `buf.len()` bytes, a multiple of `block_bytes`, from block `slba`.
    pub fn read(&mut self, slba: u64, block_bytes: u32, buf: &mut [u8]) -> io::Result<()> {
        let mut sqe = self.blocks(opcode::READ, slba, block_bytes, buf.len())?;
        sqe.sgl = Sgl::new(
            Sgl::TRANSPORT,
            u32::try_from(buf.len()).map_err(io::Error::other)?,
        );
        self.send(sqe, &[])?;
        let mut at = 0;
        while at < buf.len() {
            let data: Data = self.receive()?;
            let len = data.datal.get() as usize;
            let end = at + len;
            if data.ch.pdu_type != pdu_type::C2H_DATA || end > buf.len() {
                return Err(unexpected(&data.ch));
            }
            let mut skipped = vec![0; usize::from(data.ch.pdo) - usize::from(data.ch.hlen)];
            self.stream.read_exact(&mut skipped)?;
            self.stream.read_exact(&mut buf[at..end])?;
            at = end;
            if at == buf.len() && data.ch.flags & flags::SUCCESS != 0 {
                return Ok(());
            }
        }
        self.response().map(drop)
    }

    /// Writes `data`, which fits in a capsule, from block `slba`.
    pub fn write(&mut self, slba: u64, block_bytes: u32, data: &[u8]) -> io::Result<()> {
        let sqe = self.blocks(opcode::WRITE, slba, block_bytes, data.len())?;
        self.command(sqe, data).map(drop)
    }

    /// A Flush of the namespace.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut sqe = Sqe::new(opcode::FLUSH);
        sqe.nsid = self.nsid.into();
        self.command(sqe, &[]).map(drop)
    }

    fn blocks(&self, op: u8, slba: u64, block_bytes: u32, len: usize) -> io::Result<Sqe> {
        let mut sqe = Sqe::new(op);
        sqe.nsid = self.nsid.into();
        let len = u32::try_from(len).map_err(io::Error::other)?;
        sqe.set_blocks(slba, len / block_bytes);
        Ok(sqe)
    }

    fn connect(
        hostnqn: &str,
        address: SocketAddr,
        nqn: &str,
        qid: u16,
        cntlid: u16,
    ) -> io::Result<QueuePair> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut request = IcReq::new_zeroed();
        request.ch = CommonHeader::new(pdu_type::IC_REQ, IcReq::HLEN);
        stream.write_all(request.as_bytes())?;
        let mut queue = QueuePair {
            nsid: 1,
            stream,
            hostnqn: hostnqn.to_owned(),
            cntlid,
            cid: 0,
        };
        let answer: IcResp = queue.receive()?;
        if answer.ch.pdu_type != pdu_type::IC_RESP {
            return Err(unexpected(&answer.ch));
        }
        let command = ConnectCommand {
            recfmt: 0,
            qid,
            sqsize: 31,
            cattr: 0,
            kato_ms: 0,
        };
        let mut hostid = [7; 16];
        let end_of_name = hostnqn.bytes().rev();
        hostid
            .iter_mut()
            .zip(end_of_name)
            .for_each(|(to, from)| *to = from);
        let data = ConnectData::new(hostid, cntlid, nqn, hostnqn);
        let answer = queue.command(command.encode(), data.as_bytes())?;
        queue.cntlid = answer.result.get() as u16;
        Ok(queue)
    }

    /// Sends a command with its data in the capsule and takes its response.
    fn command(&mut self, mut sqe: Sqe, data: &[u8]) -> io::Result<Cqe> {
        if !data.is_empty() {
            let len = u32::try_from(data.len()).map_err(io::Error::other)?;
            sqe.sgl = Sgl::new(Sgl::IN_CAPSULE, len);
        }
        self.send(sqe, data)?;
        self.response()
    }

    fn send(&mut self, mut sqe: Sqe, data: &[u8]) -> io::Result<()> {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid.into();
        let mut ch = CommonHeader::new(pdu_type::CAPSULE_CMD, CapsuleCmd::HLEN);
        if !data.is_empty() {
            ch.pdo = CapsuleCmd::HLEN;
            ch.plen = (u32::from(CapsuleCmd::HLEN) + data.len() as u32).into();
        }
        let capsule = CapsuleCmd { ch, sqe };
        self.stream.write_all(&[capsule.as_bytes(), data].concat())
    }

    fn response(&mut self) -> io::Result<Cqe> {
        let response: CapsuleResp = self.receive()?;
        let cqe = response.cqe;
        if response.ch.pdu_type != pdu_type::CAPSULE_RESP || cqe.cid.get() != self.cid {
            return Err(unexpected(&response.ch));
        }
        if !cqe.status().is_success() {
            return Err(io::Error::other(format!("{:?}", cqe.status())));
        }
        Ok(cqe)
    }

    fn receive<T: FromBytes + FromZeros + IntoBytes>(&mut self) -> io::Result<T> {
        let mut pdu = T::new_zeroed();
        self.stream.read_exact(pdu.as_mut_bytes())?;
        Ok(pdu)
    }
}

fn unexpected(ch: &CommonHeader) -> io::Error {
    io::Error::other(format!("unexpected PDU: {ch:?}"))
}

/// Lets this process have as many files open as its hard limit allows.
pub fn raise_open_files() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(())
}
