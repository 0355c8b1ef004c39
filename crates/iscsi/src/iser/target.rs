//! The target's end of iSER.

use std::collections::VecDeque;

use faults::Fault;
use iwarp::{DataPart, Qp, QpCounts, QpOp, QpSettings, ReceivedSend, Work};
use machine::{Machine, Nanos, RecvPlan, Step, Tag, Transmit};
use wire::iscsi::{Bhs, DataIn, DataOut, R2t, ScsiCommand, flags, opcode, padded};
use wire::iser::{
    ISER_HEADER_LEN, ISER_VERSION, IserCm, IserHeader, IserHello, iser_cm_flags, iser_first,
};
use wire::iwarp::{MPA_REQUEST_KEY, TerminateCode};
use zerocopy::{FromBytes, IntoBytes};

use super::feed::Feed;
use super::gather::{Gather, Gathered, GatheredBatch, PduData, control, send};
use super::{HEAD_LEN, IserError, RECEIVES, SentPdu, stream_settings};
use crate::carried::IserEnd;
use crate::carrier::Carrier;
use crate::login::LOGIN_TEXT_MAX;
use crate::target::{Connection, FatalError, TargetOp};

/// Staging until the full feature phase.
const STAGE_LOGIN: u32 = 2048;

/// What the connections of a listener may do that are carried by RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IserSettings {
    /// Their streams; how Sends are taken follows from iSER.
    pub stream: QpSettings,
    /// Connections by TCP are taken too.
    pub takes_tcp: bool,
}

/// What a stream of RDMA is made of, until the first byte has come.
#[derive(Debug)]
pub struct Undecided {
    pub(crate) settings: Option<IserSettings>,
    pub(crate) seed: u64,
    pub(crate) accepted: Nanos,
}

/// The memory of the initiator that belongs to a command.
#[derive(Clone, Copy, Debug, Default)]
struct Buffers {
    iser: IserHeader,
    /// Bytes of a write that are before the memory: they came with the command.
    unsolicited: u32,
}

/// An RDMA Read instead of an R2T.
#[derive(Clone, Copy, Debug)]
struct Solicited {
    tag: Tag,
    r2t: R2t,
}

/// The stream below a [`Connection`], the target's end.
#[derive(Debug)]
pub struct IserTarget {
    qp: Qp,
    refusal: Option<IserError>,
    feed: Feed,
    /// The header of a PDU is fed before its Send is all here.
    is_ahead: bool,
    /// It is, and the data of its Send has no place yet.
    has_body: bool,
    /// The command that is fed, by its Initiator Task Tag.
    command: Option<(u32, Buffers)>,
    /// By tag.
    buffers: Vec<Buffers>,
    /// In the order of their responses.
    solicited: VecDeque<Solicited>,
    gather: Gather,
    takes_invalidate: bool,
    has_hello: bool,
}

impl IserTarget {
    /// The stream of a connection accepted at `now`; with `refusal` it rejects the initiator.
    /// STags follow from `seed`, which is random.
    fn new(stream: QpSettings, refusal: Option<IserError>, seed: u64, now: Nanos) -> IserTarget {
        IserTarget {
            qp: Qp::responder(stream_settings(stream), seed, now),
            refusal,
            feed: Feed::default(),
            is_ahead: false,
            has_body: false,
            command: None,
            buffers: Vec::new(),
            solicited: VecDeque::new(),
            gather: Gather::default(),
            takes_invalidate: false,
            has_hello: false,
        }
    }

    pub(crate) fn counts(&self) -> QpCounts {
        self.qp.counts()
    }

    pub(crate) fn has_crc(&self) -> bool {
        self.qp.terms().crc
    }

    /// The initiator's request.
    fn requested(&mut self, connection: &mut Connection) -> Option<TargetOp> {
        let reads = self.qp.terms().ord;
        let refusal = self.refusal.or((reads == 0).then_some(IserError::NoReads));
        if let Some(why) = refusal {
            self.qp.reject(&[]);
            return self.end(connection, why);
        }
        // What says nothing takes nothing beyond RFC 5046.
        let cm = IserCm::read_from_prefix(self.qp.private_data());
        let takes = |(cm, _): (IserCm, _)| cm.flags & iser_cm_flags::NO_SEND_INVALIDATE == 0;
        self.takes_invalidate = cm.is_ok_and(takes);
        let accept = IserCm {
            flags: iser_cm_flags::NO_ZERO_BASED
                | if self.takes_invalidate {
                    0
                } else {
                    iser_cm_flags::NO_SEND_INVALIDATE
                },
            ..IserCm::default()
        };
        self.qp.accept(accept.as_bytes());
        self.qp.post_receives(RECEIVES);
        let has_crc = self.has_crc();
        connection.set_carrier(Carrier::Rdma { has_crc });
        None
    }

    #[cold]
    fn end(&mut self, connection: &mut Connection, why: IserError) -> Option<TargetOp> {
        connection.lose();
        Some(TargetOp::Fatal(FatalError::Rdma(why)))
    }

    /// A message of the initiator breaks iSER.
    #[cold]
    fn refuse(&mut self, connection: &mut Connection, why: IserError) -> Option<TargetOp> {
        self.qp.terminate(TerminateCode::UNSPECIFIED);
        self.end(connection, why)
    }

    /// What comes of what the stream tells.
    fn stream_op(&mut self, connection: &mut Connection, op: QpOp) -> Option<TargetOp> {
        let taken = match op {
            QpOp::Requested => return self.requested(connection),
            QpOp::Body => self.body(connection),
            QpOp::Received(received) => self.received(&received, connection),
            QpOp::ReadDone(_) => {
                self.feed_data_out();
                Ok(())
            }
            // Told already.
            QpOp::Fatal(_) if connection.is_finished() => return None,
            QpOp::Fatal(why) => return self.end(connection, why.into()),
            QpOp::Established | QpOp::Rejected => unreachable!("of an initiator"),
        };
        match taken {
            Ok(()) => None,
            Err(why) => self.refuse(connection, why),
        }
    }

    /// Data follows a header that no CRC has proved. Data of a command finds its place by the
    /// header, as what the connection does of that waits for the data. Of all else the header
    /// waits for the data, of which only text is kept.
    fn body(&mut self, connection: &Connection) -> Result<(), IserError> {
        let SentPdu {
            iser,
            bhs,
            data_len,
        } = SentPdu::parse(self.qp.head())?;
        refuse_data_out(bhs)?;
        let is_too_long = data_len > connection.keys().max_recv_data_segment_length;
        if is_too_long && bhs.ahs_len() > 0 {
            // The connection would wait for the AHS before it looks at the data.
            return Err(IserError::Message(
                "its data is longer than the target takes",
            ));
        }
        if !is_too_long && !has_memory(bhs, data_len, connection) {
            let text_len = match bhs.opcode() {
                opcode::TEXT_REQUEST | opcode::LOGIN_REQUEST => padded(data_len),
                _ => 0,
            };
            let kept = bhs.ahs_len() as u32 + text_len.min(LOGIN_TEXT_MAX as u32);
            self.qp.body_into_head(kept);
            return Ok(());
        }
        let pdu = *bhs;
        self.command = command(&pdu, iser, data_len, connection)?;
        self.feed.begin(pdu.as_bytes());
        (self.is_ahead, self.has_body) = (true, true);
        Ok(())
    }

    /// All of a Send has come.
    fn received(
        &mut self,
        received: &ReceivedSend,
        connection: &Connection,
    ) -> Result<(), IserError> {
        self.qp.post_receives(1);
        let head = self.qp.head();
        if head
            .first()
            .is_some_and(|first| first & iser_first::OPCODE_MASK == iser_first::HELLO)
        {
            return self.hello();
        }
        let message = SentPdu::parse(head)?;
        refuse_data_out(message.bhs)?;
        let behind = &head[HEAD_LEN..];
        if !message.has_len(behind.len() + received.body_len as usize) {
            return Err(IserError::Message("its length is not that of its PDU"));
        }
        let whole = message.bhs.ahs_len() + padded(message.data_len) as usize;
        let left = whole.saturating_sub(behind.len());
        if !std::mem::take(&mut self.is_ahead) {
            let SentPdu { iser, bhs, .. } = message;
            self.command = command(bhs, iser, message.data_len, connection)?;
            self.feed.begin(&head[ISER_HEADER_LEN..]);
        }
        self.feed.add_placed(left as u32);
        Ok(())
    }

    /// Hello: as many RDMA Reads as both ends can (RFC 7145, section 5.1.3).
    fn hello(&mut self) -> Result<(), IserError> {
        let Ok(hello) = IserHello::read_from_bytes(self.qp.head()) else {
            return Err(IserError::Message("a Hello has 28 bytes"));
        };
        let (highest, lowest) = (hello.versions >> 4, hello.versions & 0xf);
        if !(lowest..=highest).contains(&ISER_VERSION) {
            return Err(IserError::Message("its Hello is of other versions of iSER"));
        }
        if std::mem::replace(&mut self.has_hello, true) {
            return Err(IserError::Message("it is a second Hello"));
        }
        let reply = IserHello {
            first: iser_first::HELLO_REPLY,
            versions: ISER_VERSION << 4 | ISER_VERSION,
            reads: self.qp.terms().ord.min(hello.reads.get()).into(),
            ..IserHello::default()
        };
        self.qp.post(Work::Send {
            head: reply.as_bytes(),
            body: DataPart::default(),
            invalidate: None,
            is_solicited: true,
            release: None,
        });
        Ok(())
    }

    /// Data that an R2T would have asked for is where it belongs.
    fn feed_data_out(&mut self) {
        let solicited = match faults::is(Fault::OtherRead) {
            true => self.solicited.pop_back(),
            false => self.solicited.pop_front(),
        };
        let Solicited { r2t, .. } = solicited.expect("it was read for one");
        let len = r2t.desired_data_transfer_length.get();
        let header = DataOut {
            flags: flags::FINAL,
            data_segment_length: wire::iscsi::U24::new(len),
            lun: r2t.lun,
            itt: r2t.itt,
            ttt: r2t.ttt,
            buffer_offset: r2t.buffer_offset,
            ..DataOut::new()
        };
        self.feed.begin(header.as_bytes());
        self.feed.add_placed(padded(len));
    }

    /// The data behind a header that was taken goes where the connection wants it.
    fn place_body(&mut self, connection: &Connection) {
        if !self.has_body || self.feed.has_bytes() {
            return;
        }
        self.has_body = false;
        match connection.arriving_tag() {
            Some(tag) => self.qp.body_into(tag),
            None => self.qp.drop_body(),
        }
    }

    /// A command has got its tag.
    fn note(&mut self, step: &Step<TargetOp>) {
        let Step::Op(TargetOp::Prepare { tag, task, .. } | TargetOp::Execute { tag, task }) = step
        else {
            return;
        };
        if let Some((_, buffers)) = self.command.take_if(|(itt, _)| *itt == task.itt) {
            let index = usize::from(*tag);
            if index >= self.buffers.len() {
                self.buffers.resize(index + 1, Buffers::default());
            }
            self.buffers[index] = buffers;
        }
    }

    /// Data that stands before its memory goes on: `wanted` bytes of it are there.
    pub(crate) fn go_on(&mut self, tag: Tag, wanted: u32) {
        if self.qp.is_blocked_on(tag) {
            self.qp.prepared(tag, wanted);
        }
    }

    /// A task was aborted: its memory is free.
    pub(crate) fn abandon(&mut self, tag: Tag) {
        forget(&mut self.buffers, tag);
        self.solicited.retain(|solicited| solicited.tag != tag);
        self.qp.abandon(tag);
    }

    /// Whether more may be handed to the stream: when all before is named, and not before what
    /// is read for tasks that were aborted has come, as the initiator takes their memory back
    /// when it is told of that.
    fn may_post(&self) -> bool {
        let qp = &self.qp;
        let waits = qp.has_abandoned_reads() && !faults::is(Fault::ReadsGoOn);
        !qp.is_finished() && !qp.has_posted() && !waits
    }

    /// Posts what the connection has to send.
    fn post(&mut self, connection: &mut Connection, out: &mut impl Transmit) {
        self.gather.clear();
        connection.poll_transmit(&mut self.gather);
        let all = std::mem::take(&mut self.gather.all);
        for (at, thing) in all.iter().enumerate() {
            match thing {
                Gathered::Release(tag) => {
                    // Of one that no Send ends, nothing is named.
                    let is_ended = at > 0 && all[at - 1].is_send();
                    if !is_ended && connection.end_task(*tag) {
                        out.release(*tag);
                    }
                }
                Gathered::Pdu { bhs, data } => match bhs.opcode() {
                    opcode::R2T => self.read(connection, bhs.cast()),
                    opcode::DATA_IN => self.qp.post(self.write(bhs.cast(), data)),
                    _ => {
                        let ends = all.get(at + 1).and_then(Gathered::released);
                        self.send(bhs, data, ends);
                    }
                },
            }
        }
        self.gather.all = all;
    }

    /// Data-In: an RDMA Write.
    fn write(&self, header: &DataIn, data: &PduData) -> Work<'static> {
        let data = data.part();
        let iser = &self.buffers[usize::from(data.tag)].iser;
        let offset = u64::from(header.buffer_offset.get());
        Work::Write {
            data,
            stag: iser.read_stag.get(),
            to: iser.read_base.get().wrapping_add(offset),
            release: None,
        }
    }

    /// Any other PDU: a Send. The response to a command, which `ends` it, invalidates the
    /// memory of it where the initiator takes that.
    fn send(&mut self, bhs: &Bhs, data: &PduData, ends: Option<Tag>) {
        let of_command = ends.filter(|_| bhs.opcode() == opcode::SCSI_RESPONSE);
        let buffers = of_command.and_then(|tag| self.buffers.get(usize::from(tag)));
        let invalidate = buffers
            .filter(|_| self.takes_invalidate)
            .and_then(invalidated);
        let headers = (&control(), bhs);
        send(&mut self.qp, headers, data, (invalidate, ends));
    }

    /// R2T: an RDMA Read.
    fn read(&mut self, connection: &Connection, r2t: &R2t) {
        let tag = connection
            .tag_of(r2t.itt.get())
            .expect("a task that is under way");
        let Buffers { iser, unsolicited } = &self.buffers[usize::from(tag)];
        let offset = r2t.buffer_offset.get();
        let sink = DataPart {
            tag,
            offset,
            len: r2t.desired_data_transfer_length.get(),
        };
        let from = match faults::is(Fault::FirstBurst) {
            true => 0,
            false => offset - unsolicited,
        };
        let to = iser.write_base.get().wrapping_add(from.into());
        let asked = self.qp.read(sink, iser.write_stag.get(), to);
        asked.expect("initiators that take no reads are rejected");
        self.solicited.push_back(Solicited { tag, r2t: *r2t });
    }
}

impl IserEnd for IserTarget {
    type Connection = Connection;
    type Undecided = Undecided;

    #[cold]
    fn decide(
        undecided: Undecided,
        first: u8,
        connection: &mut Connection,
    ) -> Result<Option<IserTarget>, TargetOp> {
        let Undecided {
            settings,
            seed,
            accepted,
        } = undecided;
        if first == MPA_REQUEST_KEY[0] {
            let refusal = settings.is_none().then_some(IserError::NotServed);
            let stream = settings.map(|settings| settings.stream).unwrap_or_default();
            return Ok(Some(IserTarget::new(stream, refusal, seed, accepted)));
        }
        if settings.is_some_and(|settings| !settings.takes_tcp) {
            connection.lose();
            return Err(TargetOp::Fatal(FatalError::TcpNotServed));
        }
        Ok(None)
    }

    fn poll_step(
        &mut self,
        connection: &mut Connection,
        now: Nanos,
        staged: &[u8],
        at: &mut usize,
    ) -> Option<Step<TargetOp>> {
        loop {
            let step = self.feed.poll(connection, now);
            self.place_body(connection);
            if let Some(step) = step {
                self.note(&step);
                return Some(step);
            }
            if connection.is_finished() {
                *at = staged.len();
                return None;
            }
            if self.feed.is_open() {
                return None;
            }
            let step = self.qp.poll_step(now, staged, at)?;
            if let Some(step) = step.filter_map(|op| self.stream_op(connection, op)) {
                return Some(step);
            }
        }
    }

    fn has_step(&self, connection: &Connection) -> bool {
        connection.has_step() || !connection.is_finished() && self.qp.has_step()
    }

    fn recv_plan(&self, connection: &Connection) -> RecvPlan {
        const NOTHING: RecvPlan = RecvPlan {
            direct: None,
            stage_max: 0,
        };
        // A connection that takes nothing now may go to another core.
        if self.feed.is_open() || connection.recv_plan() == NOTHING {
            return NOTHING;
        }
        let plan = self.qp.recv_plan();
        match connection.session() {
            Some(_) => plan,
            None => RecvPlan {
                stage_max: plan.stage_max.min(STAGE_LOGIN),
                ..plan
            },
        }
    }

    fn on_direct(&mut self, connection: &mut Connection, len: u32) {
        connection.note_alive();
        self.qp.on_direct(len);
    }

    fn on_digest(&mut self, tag: Tag, crc: u32) {
        self.qp.on_digest(tag, crc);
    }

    fn has_transmit(&self, connection: &Connection) -> bool {
        connection.has_transmit() && self.may_post() || self.qp.has_transmit()
    }

    /// Hands what the connection writes to the stream, so much at a time. A tag is free only
    /// when its last byte was named.
    fn transmit(&mut self, connection: &mut Connection, out: &mut impl Transmit) {
        loop {
            if connection.has_transmit() && self.may_post() {
                self.post(connection, out);
            }
            let buffers = &mut self.buffers;
            self.qp.poll_transmit(&mut GatheredBatch {
                out,
                own: &self.gather.own,
                on_release: |tag| {
                    forget(buffers, tag);
                    connection.end_task(tag)
                },
            });
            if !out.has_room() || !connection.has_transmit() || !self.may_post() {
                return;
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.qp.is_finished()
    }
}

/// Data-Out is for data that nothing asks for, which no initiator may send (InitialR2T).
fn refuse_data_out(bhs: &Bhs) -> Result<(), IserError> {
    match bhs.opcode() {
        opcode::DATA_OUT => Err(IserError::Message("Data-Out, where InitialR2T is Yes")),
        _ => Ok(()),
    }
}

/// Whether the data behind `bhs` goes to the memory of a task: of a write, or a NOP-Out.
fn has_memory(bhs: &Bhs, data_len: u32, connection: &Connection) -> bool {
    const BOTH: u8 = flags::READ | flags::WRITE;
    let keys = connection.keys();
    match bhs.opcode() {
        _ if bhs.ahs_len() > 0 || connection.session().is_none() => false,
        opcode::NOP_OUT => data_len > 0,
        opcode::SCSI_COMMAND => {
            let edtl = bhs.cast::<ScsiCommand>().expected_data_transfer_length;
            let may_be = data_len > 0 && keys.immediate_data;
            let is_write = bhs.flags & BOTH == flags::WRITE;
            may_be && is_write && data_len <= keys.first_burst_length.min(edtl.get())
        }
        _ => false,
    }
}

/// The memory that comes with a command: what the direction of its data needs.
fn command(
    bhs: &Bhs,
    iser: &IserHeader,
    data_len: u32,
    connection: &Connection,
) -> Result<Option<(u32, Buffers)>, IserError> {
    if bhs.opcode() != opcode::SCSI_COMMAND {
        return Ok(None);
    }
    let command: &ScsiCommand = bhs.cast();
    let len = command.expected_data_transfer_length.get();
    let has = |flag| iser.first & flag != 0;
    let solicited_only = connection.keys().solicited_only;
    if bhs.flags & flags::READ != 0 && len > 0 && !has(iser_first::READ_STAG) {
        return Err(IserError::Message("a command that reads has no Read STag"));
    }
    if bhs.flags & flags::WRITE != 0 && len > data_len {
        if !has(iser_first::WRITE_STAG) {
            return Err(IserError::Message(
                "a command that writes has no Write STag",
            ));
        }
        if data_len > 0 && solicited_only.is_none() {
            return Err(IserError::Message(
                "a command brings part of its data, and TaggedBufferForSolicitedDataOnly was \
                 not declared",
            ));
        }
    }
    let unsolicited = if solicited_only == Some(true) {
        data_len
    } else {
        0
    };
    let buffers = Buffers {
        iser: *iser,
        unsolicited,
    };
    Ok(Some((command.itt.get(), buffers)))
}

/// No command has `tag` any more.
fn forget(buffers: &mut [Buffers], tag: Tag) {
    if let Some(buffers) = buffers.get_mut(usize::from(tag)) {
        *buffers = Buffers::default();
    }
}

/// The STag that the response to a command invalidates: of what it reads, else of what it
/// writes.
fn invalidated(buffers: &Buffers) -> Option<u32> {
    let iser = &buffers.iser;
    let has = |flag| iser.first & flag != 0;
    let read = has(iser_first::READ_STAG).then(|| iser.read_stag.get());
    read.or(has(iser_first::WRITE_STAG).then(|| iser.write_stag.get()))
}
