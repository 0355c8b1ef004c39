//! The initiator's end of iSER.

use std::convert::Infallible;

use iwarp::{Qp, QpOp, QpSettings, ReceivedSend, RegisteredMemory, RemoteAccess};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iscsi::{DataIn, ScsiCommand, ScsiResponse, TAG_NONE, U24, flags, opcode, padded};
use wire::iser::{ISER_HEADER_LEN, IserCm, IserHeader, iser_cm_flags, iser_first};
use wire::iwarp::TerminateCode;
use zerocopy::IntoBytes;

use super::feed::Feed;
use super::gather::{Gather, Gathered, GatheredBatch, PduData, control, send};
use super::{HEAD_LEN, IserError, RECEIVES, SentPdu, stream_settings};
use crate::carried::IserEnd;
use crate::initiator::{InitiatorConnection, InitiatorFatalError, InitiatorOp};
use crate::negotiated::LENGTH_MAX;

/// A command that the target may have.
#[derive(Clone, Copy, Debug, Default)]
struct SentCommand {
    /// The STag of its memory, if the target moves data of it.
    stag: Option<u32>,
    /// Bytes that the target may write.
    reads: u32,
    /// Its last byte was named.
    is_named: bool,
}

/// Data that RDMA Writes have brought for a command, and the response to it.
#[derive(Debug)]
struct Answered {
    response: ScsiResponse,
    /// Its sense data, with what else there is.
    segment: Vec<u8>,
    written: u32,
    /// As much of the data was told.
    told: u32,
    data_sn: u32,
}

/// The stream below an [`InitiatorConnection`].
#[derive(Debug)]
pub struct IserInitiator {
    qp: Qp,
    is_established: bool,
    feed: Feed,
    answer: Option<Answered>,
    /// By tag.
    commands: Vec<SentCommand>,
    gather: Gather,
}

impl IserInitiator {
    /// The stream of a connection made at `now`. STags follow from `seed`, which is random.
    pub(crate) fn new(stream: QpSettings, seed: u64, now: Nanos) -> IserInitiator {
        let stream = QpSettings {
            ord_max: 0,
            ..stream_settings(stream)
        };
        let cm = IserCm {
            flags: iser_cm_flags::NO_ZERO_BASED,
            ..IserCm::default()
        };
        IserInitiator {
            qp: Qp::initiator(stream, seed, cm.as_bytes(), now),
            is_established: false,
            feed: Feed::default(),
            answer: None,
            commands: Vec::new(),
            gather: Gather::default(),
        }
    }

    pub(crate) fn has_crc(&self) -> bool {
        self.qp.terms().crc
    }

    #[cold]
    fn end(&mut self, connection: &mut InitiatorConnection, why: IserError) -> InitiatorOp {
        self.qp.terminate(TerminateCode::UNSPECIFIED);
        connection.lose(InitiatorFatalError::Rdma(why))
    }

    /// What comes of what the stream tells.
    fn stream_op(&mut self, connection: &mut InitiatorConnection, op: QpOp) -> Option<InitiatorOp> {
        let taken = match op {
            QpOp::Established => {
                self.is_established = true;
                self.qp.post_receives(RECEIVES);
                Ok(())
            }
            QpOp::Body => self.body(connection),
            QpOp::Received(received) => self.received(&received, connection),
            QpOp::Rejected => Err(IserError::Rejected),
            QpOp::Fatal(why) => Err(why.into()),
            QpOp::Requested => unreachable!("of a responder"),
            QpOp::ReadDone(_) => unreachable!("an initiator reads nothing"),
        };
        taken.err().map(|why| self.end(connection, why))
    }

    /// Data follows a header: it is taken as bytes.
    fn body(&mut self, connection: &InitiatorConnection) -> Result<(), IserError> {
        let SentPdu { bhs, data_len, .. } = SentPdu::parse(self.qp.head())?;
        if bhs.ahs_len() > 0 || data_len > connection.recv_max() {
            return Err(IserError::Message("its data is longer than was agreed on"));
        }
        self.qp.body_into_head(padded(data_len));
        Ok(())
    }

    /// All of a Send has come.
    fn received(
        &mut self,
        received: &ReceivedSend,
        connection: &InitiatorConnection,
    ) -> Result<(), IserError> {
        self.qp.post_receives(1);
        let head = self.qp.head();
        let SentPdu { bhs, data_len, .. } = SentPdu::parse(head)?;
        let behind = &head[HEAD_LEN..];
        if received.body_len > 0 || !SentPdu::parse(head)?.has_len(behind.len()) {
            return Err(IserError::Message("its length is not that of its PDU"));
        }
        // Their data would be taken for bytes of the stream.
        if matches!(bhs.opcode(), opcode::DATA_IN | opcode::R2T) {
            return Err(IserError::Message("Data-In or R2T, which go by RDMA"));
        }
        let tag = match bhs.opcode() {
            opcode::SCSI_RESPONSE => connection.slot_of(bhs.itt.get()),
            _ => None,
        };
        let command = tag.and_then(|tag| self.commands.get(usize::from(tag)));
        if let Some(stag) = received.invalidated
            && command.and_then(|command| command.stag) != Some(stag)
        {
            return Err(IserError::Invalidation { stag });
        }
        let Some(command) = command.copied() else {
            self.feed.begin(&head[ISER_HEADER_LEN..]);
            let padding = padded(data_len) as usize - behind.len();
            self.feed.add_placed(padding as u32);
            return Ok(());
        };
        if !command.is_named {
            return Err(IserError::Message("it answers a command that was not sent"));
        }
        let written = command.stag.map_or(0, |stag| self.qp.written(stag));
        self.answer = Some(Answered {
            // No Data-In and no R2T could be missing: they are none.
            response: ScsiResponse {
                exp_data_sn: 0.into(),
                ..*bhs.cast()
            },
            segment: behind.to_vec(),
            written: written.min(command.reads.into()) as u32,
            told: 0,
            data_sn: 0,
        });
        Ok(())
    }

    /// Tells the connection of data that has come as Data-In, then of the response.
    fn feed_answer(&mut self) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        let response = &answer.response;
        let len = (answer.written - answer.told).min(LENGTH_MAX);
        if len == 0 {
            self.feed.begin(response.as_bytes());
            self.feed.append(&answer.segment);
            let padding = padded(response.data_segment_length.get()) as usize;
            self.feed
                .add_placed((padding - answer.segment.len()) as u32);
            self.answer = None;
            return;
        }
        let header = DataIn {
            flags: flags::FINAL,
            data_segment_length: U24::new(len),
            itt: response.itt,
            ttt: TAG_NONE.into(),
            exp_cmd_sn: response.exp_cmd_sn,
            max_cmd_sn: response.max_cmd_sn,
            data_sn: answer.data_sn.into(),
            buffer_offset: answer.told.into(),
            ..DataIn::new()
        };
        answer.told += len;
        answer.data_sn += 1;
        self.feed.begin(header.as_bytes());
        self.feed.add_placed(padded(len));
    }

    /// A command has ended: the target can name its memory no more.
    fn note(&mut self, step: &Step<InitiatorOp>) {
        if let Step::Op(InitiatorOp::Completed { tag, .. }) = step
            && let Some(command) = self.commands.get_mut(usize::from(*tag))
            && let Some(stag) = std::mem::take(command).stag
        {
            self.qp.invalidate(stag);
        }
    }

    /// Whether more may be handed to the stream: when all before is named.
    fn may_post(&self) -> bool {
        self.is_established && !self.qp.has_posted() && !self.qp.is_finished()
    }

    /// Posts what the connection has to send.
    fn post(&mut self, connection: &mut InitiatorConnection) {
        self.gather.clear();
        connection.poll_transmit(&mut self.gather);
        let all = std::mem::take(&mut self.gather.all);
        for thing in &all {
            let Gathered::Pdu { bhs, data } = thing else {
                continue;
            };
            let (header, tag) = match bhs.opcode() {
                opcode::SCSI_COMMAND => {
                    // The slot is in the low half: see `InitiatorConnection`.
                    let tag = bhs.itt.get() as Tag;
                    (self.name_memory(tag, bhs.cast(), data), Some(tag))
                }
                _ => (control(), None),
            };
            send(&mut self.qp, (&header, bhs), data, (None, tag));
        }
        self.gather.all = all;
    }

    /// Lets the target name the memory of a command.
    fn name_memory(&mut self, tag: Tag, command: &ScsiCommand, data: &PduData) -> IserHeader {
        let len = command.expected_data_transfer_length.get();
        let is_read = command.flags & flags::READ != 0;
        let is_write = command.flags & flags::WRITE != 0 && len > data.part().len;
        let (access, flag) = match (is_read && len > 0, is_write) {
            (true, _) => (RemoteAccess::WRITE, iser_first::READ_STAG),
            (false, true) => (RemoteAccess::READ, iser_first::WRITE_STAG),
            (false, false) => (RemoteAccess::READ, 0),
        };
        let memory = RegisteredMemory {
            tag,
            offset: 0,
            len,
            to: 0,
            access,
        };
        let stag = (flag != 0).then(|| {
            let stag = self.qp.register(memory);
            stag.expect("there are no more commands than regions")
        });
        let index = usize::from(tag);
        if index >= self.commands.len() {
            self.commands.resize(index + 1, SentCommand::default());
        }
        // One that is sent again has memory already.
        let before = std::mem::replace(
            &mut self.commands[index],
            SentCommand {
                stag,
                reads: if is_read { len } else { 0 },
                is_named: false,
            },
        );
        if let Some(stag) = before.stag {
            self.qp.invalidate(stag);
        }
        let of = |is_it: bool| stag.filter(|_| is_it).unwrap_or(0).into();
        IserHeader {
            first: iser_first::CONTROL | flag,
            write_stag: of(!is_read),
            read_stag: of(is_read),
            ..IserHeader::default()
        }
    }
}

impl IserEnd for IserInitiator {
    type Connection = InitiatorConnection;
    /// An initiator decides by itself.
    type Undecided = Infallible;

    fn decide(
        undecided: Infallible,
        _: u8,
        _: &mut InitiatorConnection,
    ) -> Result<Option<IserInitiator>, InitiatorOp> {
        match undecided {}
    }

    fn poll_step(
        &mut self,
        connection: &mut InitiatorConnection,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<InitiatorOp>> {
        loop {
            if !self.feed.is_open() {
                self.feed_answer();
            }
            if let Some(step) = self.feed.poll(connection, now) {
                self.note(&step);
                return Some(step);
            }
            if connection.is_finished() {
                *at = staged.len();
                return None;
            }
            if self.answer.is_some() {
                continue;
            }
            let step = self.qp.poll_step(now, staged, at)?;
            if let Some(step) = step.filter_map(|op| self.stream_op(connection, op)) {
                return Some(step);
            }
        }
    }

    fn has_step(&self, connection: &InitiatorConnection) -> bool {
        !connection.is_finished() && (connection.has_step() || self.qp.has_step())
    }

    fn recv_plan(&self, _: &InitiatorConnection) -> RecvPlan {
        self.qp.recv_plan()
    }

    fn on_direct(&mut self, _: &mut InitiatorConnection, len: u32) {
        self.qp.on_direct(len);
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.qp.deadline()
    }

    fn on_deadline(&mut self, now: Nanos) {
        self.qp.on_deadline(now);
    }

    fn is_finished(&self) -> bool {
        self.qp.is_finished()
    }

    fn has_transmit(&self, connection: &InitiatorConnection) -> bool {
        connection.has_transmit() && self.may_post() || self.qp.has_transmit()
    }

    /// Hands what the connection writes to the stream, so much at a time.
    fn transmit(&mut self, connection: &mut InitiatorConnection, out: &mut impl Transmit) {
        loop {
            if connection.has_transmit() && self.may_post() {
                self.post(connection);
            }
            let commands = &mut self.commands;
            self.qp.poll_transmit(&mut GatheredBatch {
                out,
                own: &self.gather.own,
                on_release: |tag| {
                    commands[usize::from(tag)].is_named = true;
                    false
                },
            });
            if !out.has_room() || !connection.has_transmit() || !self.may_post() {
                return;
            }
        }
    }
}
