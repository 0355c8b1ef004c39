//! An initiator by hand, PDU by PDU.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use wire::iscsi::{BHS_LEN, TaskFunction, TaskResponse, flags, opcode, padded};
use wire::scsi::{key, status};

use crate::common::{PATIENCE, TARGET};

/// A PDU that came.
#[derive(Clone, Debug)]
pub struct Pdu {
    pub bhs: [u8; BHS_LEN],
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn opcode(&self) -> u8 {
        self.bhs[0] & 0x3f
    }

    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.bhs[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn itt(&self) -> u32 {
        self.word(16)
    }
}

/// How a SCSI command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub status: u8,
    /// Sense key, and additional sense code with its qualifier.
    pub sense: Option<(u8, u16)>,
    /// INFORMATION of sense data in fixed format.
    pub information: u32,
    pub data: Vec<u8>,
    /// Residual flags and count.
    pub residual: (u8, u32),
}

impl Ended {
    pub fn is_good(&self) -> bool {
        self.status == status::GOOD
    }

    /// UNIT ATTENTION with this code.
    pub fn is_attention(&self, code: u16) -> bool {
        self.sense == Some((key::UNIT_ATTENTION, code))
    }
}

/// The initiator port that logs in, and how.
#[derive(Clone)]
pub struct InitiatorPort {
    pub name: String,
    pub isid: [u8; 6],
    pub tsih: u16,
    pub cid: u16,
    pub cmd_sn: u32,
    /// Keys beyond the usual ones.
    pub keys: Vec<(&'static str, String)>,
    pub target: Option<String>,
}

impl InitiatorPort {
    /// The initiator of this number, in a session of its own.
    pub fn new(number: u8) -> InitiatorPort {
        InitiatorPort {
            name: format!("iqn.2026-01.io.weft:initiator{number}"),
            isid: [0x80, 0, 0, 0, 0, number],
            tsih: 0,
            cid: 0,
            cmd_sn: 1,
            keys: Vec::new(),
            target: Some(TARGET.to_owned()),
        }
    }

    /// The only request of a login: its header and text.
    pub fn login_request(&self) -> ([u8; BHS_LEN], String) {
        let mut text = format!("InitiatorName={}\0", self.name);
        match &self.target {
            Some(target) => text += &format!("SessionType=Normal\0TargetName={target}\0"),
            None => text += "SessionType=Discovery\0",
        }
        text += "HeaderDigest=None\0DataDigest=None\0MaxRecvDataSegmentLength=262144\0";
        for (key, value) in &self.keys {
            text += &format!("{key}={value}\0");
        }
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::LOGIN_REQUEST | 0x40;
        // From LoginOperationalNegotiation to FullFeaturePhase.
        bhs[1] = flags::TRANSIT | 1 << 2 | 3;
        bhs[8..14].copy_from_slice(&self.isid);
        bhs[14..16].copy_from_slice(&self.tsih.to_be_bytes());
        bhs[20..22].copy_from_slice(&self.cid.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        (bhs, text)
    }

    pub fn with(mut self, key: &'static str, value: &str) -> InitiatorPort {
        self.keys.push((key, value.to_owned()));
        self
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    pub itt: u32,
    pub tsih: u16,
    /// Text of the login answers.
    pub answers: String,
}

/// Why a login failed: status class and detail.
pub type Refused = (u8, u8);

impl Client {
    /// Connects, and says nothing.
    pub fn open(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client {
            stream,
            cmd_sn: 1,
            exp_stat_sn: 0,
            itt: 1,
            tsih: 0,
            answers: String::new(),
        }
    }

    /// Connects and logs in, in one step.
    pub fn login(address: SocketAddr, initiator: &InitiatorPort) -> Result<Client, Refused> {
        let mut client = Client::open(address);
        client.send_login(initiator);
        client.finish_login()?;
        Ok(client)
    }

    /// The only request of a login.
    pub fn send_login(&mut self, initiator: &InitiatorPort) {
        let (bhs, text) = initiator.login_request();
        self.cmd_sn = initiator.cmd_sn;
        self.send(bhs, text.as_bytes());
    }

    pub fn finish_login(&mut self) -> Result<(), Refused> {
        let answer = self.receive().expect("an answer to the login");
        assert_eq!(answer.opcode(), opcode::LOGIN_RESPONSE);
        self.tsih = u16::from_be_bytes([answer.bhs[14], answer.bhs[15]]);
        self.exp_stat_sn = answer.word(24).wrapping_add(1);
        self.answers = String::from_utf8_lossy(&answer.data).into_owned();
        match (answer.bhs[36], answer.bhs[37]) {
            (0, 0) => Ok(()),
            refused => Err(refused),
        }
    }

    /// Sends a PDU with its data segment.
    pub fn send(&mut self, bhs: [u8; BHS_LEN], data: &[u8]) {
        self.try_send(bhs, data).expect("the target takes it");
    }

    pub fn try_send(&mut self, mut bhs: [u8; BHS_LEN], data: &[u8]) -> std::io::Result<()> {
        bhs[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = bhs.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(BHS_LEN + padded(data.len() as u32) as usize, 0);
        self.stream.write_all(&bytes)
    }

    /// The next PDU; `None` at the end of the connection.
    pub fn receive(&mut self) -> Option<Pdu> {
        let mut bhs = [0; BHS_LEN];
        if let Err(error) = self.stream.read_exact(&mut bhs) {
            assert!(
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "nothing came"
            );
            return None;
        }
        let len = u32::from_be_bytes([0, bhs[5], bhs[6], bhs[7]]);
        let mut data = vec![0; padded(len) as usize];
        self.stream.read_exact(&mut data).expect("the whole PDU");
        data.truncate(len as usize);
        Some(Pdu { bhs, data })
    }

    /// The header of a SCSI command, and its Initiator Task Tag; CmdSN is used up.
    pub fn command_header(
        &mut self,
        lun: u16,
        cdb: &[u8],
        (direction, edtl): (u8, u32),
        attribute: u8,
    ) -> ([u8; BHS_LEN], u32) {
        let itt = self.itt;
        self.itt += 1;
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::SCSI_COMMAND;
        bhs[1] = flags::FINAL | direction | attribute;
        bhs[8..16].copy_from_slice(&scsi::lun::Lun::field(lun).to_be_bytes());
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[20..24].copy_from_slice(&edtl.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        (bhs, itt)
    }

    /// Sends a command that has no data for the target.
    pub fn start_read(&mut self, lun: u16, cdb: &[u8], edtl: u32) -> u32 {
        let direction = if edtl > 0 { flags::READ } else { 0 };
        let (bhs, itt) = self.command_header(lun, cdb, (direction, edtl), 1);
        self.send(bhs, &[]);
        itt
    }

    /// Sends a command with all of its data, at once as far as it may: the rest
    /// when it is asked for, see [`Client::end_of`].
    pub fn start_write(&mut self, lun: u16, cdb: &[u8], data: &[u8], immediate: usize) -> u32 {
        let edtl = data.len() as u32;
        let (bhs, itt) = self.command_header(lun, cdb, (flags::WRITE, edtl), 1);
        self.send(bhs, &data[..immediate.min(data.len())]);
        itt
    }

    /// Sends what an R2T asks for.
    pub fn answer_r2t(&mut self, r2t: &Pdu, data: &[u8]) {
        let (offset, len) = (r2t.word(40) as usize, r2t.word(44) as usize);
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::DATA_OUT;
        bhs[1] = flags::FINAL;
        bhs[8..16].copy_from_slice(&r2t.bhs[8..16]);
        bhs[16..20].copy_from_slice(&r2t.bhs[16..20]);
        bhs[20..24].copy_from_slice(&r2t.bhs[20..24]);
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        bhs[40..44].copy_from_slice(&(offset as u32).to_be_bytes());
        self.send(bhs, &data[offset..offset + len]);
    }

    /// Waits for the end of a command; other answers are not expected.
    pub fn end_of(&mut self, itt: u32, data: &[u8]) -> Ended {
        let mut came = Vec::new();
        loop {
            let pdu = self.receive().expect("an answer");
            let (opcode, itt_found) = (pdu.opcode(), pdu.itt());
            match opcode {
                opcode::R2T if itt_found == itt => self.answer_r2t(&pdu, data),
                opcode::DATA_IN if itt_found == itt => {
                    let at = pdu.word(40) as usize;
                    assert_eq!(at, came.len(), "in order");
                    came.extend(&pdu.data);
                    if pdu.bhs[1] & flags::STATUS != 0 {
                        return self.ended(&pdu, came);
                    }
                }
                opcode::SCSI_RESPONSE if itt_found == itt => return self.ended(&pdu, came),
                _ => panic!("opcode {opcode:#x} of {itt_found}, awaiting {itt}"),
            }
        }
    }

    fn ended(&mut self, pdu: &Pdu, data: Vec<u8>) -> Ended {
        self.exp_stat_sn = pdu.word(24).wrapping_add(1);
        let is_data = pdu.opcode() == opcode::DATA_IN;
        let sense = (!is_data && pdu.data.len() > 2).then(|| {
            let sense = &pdu.data[2..];
            match sense[0] & 0x7f {
                0x72 => (sense[1], u16::from_be_bytes([sense[2], sense[3]])),
                _ => (sense[2], u16::from_be_bytes([sense[12], sense[13]])),
            }
        });
        let count = pdu.word(44);
        let information = pdu.data.get(5..9).filter(|_| !is_data);
        let information = information.map_or(0, |bytes| {
            u32::from_be_bytes(bytes.try_into().expect("four bytes"))
        });
        Ended {
            status: pdu.bhs[3],
            sense,
            data,
            information,
            residual: (pdu.bhs[1] & (flags::OVERFLOW | flags::UNDERFLOW), count),
        }
    }

    /// A command without data for the target, to its end.
    pub fn command(&mut self, lun: u16, cdb: &[u8], edtl: u32) -> Ended {
        let itt = self.start_read(lun, cdb, edtl);
        self.end_of(itt, &[])
    }

    /// A command with data for the target, to its end.
    pub fn command_out(&mut self, lun: u16, cdb: &[u8], data: &[u8]) -> Ended {
        let itt = self.start_write(lun, cdb, data, data.len().min(8192));
        self.end_of(itt, data)
    }

    pub fn test_unit_ready(&mut self, lun: u16) -> Ended {
        self.command(lun, &[0; 6], 0)
    }

    /// Takes unit attentions until there is none.
    pub fn calm(mut self, luns: &[u16]) -> Client {
        for lun in luns {
            let ready = (0..16).any(|_| self.test_unit_ready(*lun).is_good());
            assert!(ready, "LUN {lun} becomes ready");
        }
        self
    }

    pub fn start_function(&mut self, function: TaskFunction, lun: u16, referenced: u32) -> u32 {
        let itt = self.itt;
        self.itt += 1;
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::TASK_MANAGEMENT_REQUEST | 0x40;
        bhs[1] = flags::FINAL | function as u8;
        bhs[8..16].copy_from_slice(&scsi::lun::Lun::field(lun).to_be_bytes());
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[20..24].copy_from_slice(&referenced.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        bhs[32..36].copy_from_slice(&self.cmd_sn.wrapping_sub(1).to_be_bytes());
        self.send(bhs, &[]);
        itt
    }

    /// A task management function, to its end: nothing else comes before.
    pub fn function(&mut self, function: TaskFunction, lun: u16, referenced: u32) -> TaskResponse {
        let itt = self.start_function(function, lun, referenced);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
        assert_eq!(answer.itt(), itt);
        self.exp_stat_sn = answer.word(24).wrapping_add(1);
        TaskResponse::from_value(answer.bhs[2]).expect("a response that there is")
    }

    /// Says that it is there, as a NOP-In asks.
    pub fn answer_nop(&mut self, asked: &Pdu) {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::NOP_OUT | 0x40;
        bhs[1] = flags::FINAL;
        bhs[16..20].fill(0xff);
        // Target Transfer Tag, as it came.
        bhs[20..24].copy_from_slice(&asked.bhs[20..24]);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(bhs, &[]);
    }

    /// NOP-Out, which asks for an answer.
    pub fn start_ping(&mut self, data: &[u8]) -> u32 {
        let itt = self.itt;
        self.itt += 1;
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::NOP_OUT | 0x40;
        bhs[1] = flags::FINAL;
        bhs[16..20].copy_from_slice(&itt.to_be_bytes());
        bhs[20..24].fill(0xff);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(bhs, data);
        itt
    }

    /// NOP-Out, answered.
    pub fn ping(&mut self, data: &[u8]) -> Vec<u8> {
        let itt = self.start_ping(data);
        let answer = self.receive().expect("an answer");
        assert_eq!((answer.opcode(), answer.itt()), (opcode::NOP_IN, itt));
        self.exp_stat_sn = answer.word(24).wrapping_add(1);
        answer.data
    }

    /// Asks to be logged out, for a reason.
    pub fn start_logout(&mut self, reason: u8, cid: u16) {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::LOGOUT_REQUEST | 0x40;
        bhs[1] = flags::FINAL | reason;
        bhs[16..20].copy_from_slice(&self.itt.to_be_bytes());
        self.itt += 1;
        bhs[20..22].copy_from_slice(&cid.to_be_bytes());
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(bhs, &[]);
    }

    /// Logs out: reason, and the response.
    pub fn logout(&mut self, reason: u8, cid: u16) -> u8 {
        self.start_logout(reason, cid);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.opcode(), opcode::LOGOUT_RESPONSE);
        answer.bhs[2]
    }

    /// A text request, answered in one PDU.
    pub fn text(&mut self, text: &str) -> String {
        let mut bhs = [0; BHS_LEN];
        bhs[0] = opcode::TEXT_REQUEST | 0x40;
        bhs[1] = flags::FINAL;
        bhs[16..20].copy_from_slice(&self.itt.to_be_bytes());
        self.itt += 1;
        bhs[20..24].fill(0xff);
        bhs[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        bhs[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.send(bhs, text.as_bytes());
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.opcode(), opcode::TEXT_RESPONSE);
        self.exp_stat_sn = answer.word(24).wrapping_add(1);
        String::from_utf8(answer.data).expect("text")
    }

    /// The target closes the connection; what comes before is dropped.
    pub fn expect_end(mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let reset = matches!(
                        error.kind(),
                        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                    );
                    assert!(reset, "the connection stays: {error}");
                    return;
                }
            }
        }
    }
}

/// READ(16) of blocks.
pub fn read_16(lba: u64, blocks: u32) -> [u8; 16] {
    transfer_16(0x88, lba, blocks)
}

/// WRITE(16) of blocks.
pub fn write_16(lba: u64, blocks: u32) -> [u8; 16] {
    transfer_16(0x8a, lba, blocks)
}

fn transfer_16(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
