//! TLS between a machine and its socket: handshakes that are made elsewhere, and records.

#[cfg(test)]
mod tests;

use machine::work;
use mem::{Buf, BufRange, Pool, STAGE_BYTES, Stage};
use reactor::{Batch, BatchPiece, Driver, Received};
use tls::records::{
    Alert, ContentType, EXTRA_BYTES, HEADER_BYTES, Opened, Opener, PLAIN_BYTES_MAX, Plain,
    RECORDS_OF_KEY_MAX, RecordError, Sealed, Sealer,
};
use tls::{Handshake, HandshakeError, HandshakeStep, ProvenPeer, Secured};

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 22;
/// Bytes of a handshake that are asked for at once, and that wait for a step.
const HANDSHAKE_BYTES_MAX: u32 = 20 << 10;
/// Bytes of a buffer with records, at most.
const SEALED_BYTES_MAX: u32 = 256 << 10;
/// Buffers with records in one send, at most: room for a batch of many PDUs.
const SEALED_BUFS_MAX: usize = 5;
/// Room for a few records, where a buffer for all there are is not to be had.
const FEW_RECORDS_BYTES: u32 = 64 << 10;

/// Why TLS, or what is no TLS, ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamProblem {
    /// Of its records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Of its handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Its first byte is none of TLS, and nothing else is spoken here.
    #[error("it speaks no TLS, which this listener wants (`tls = \"required\"`)")]
    Plain,
    /// The peer has closed the connection before its handshake was over.
    #[error("it has closed the connection amid the TLS handshake: its own log says why")]
    Left,
    /// There are more handshakes than there may be.
    #[error(
        "its TLS handshake gave way: `tls_handshakes_max` = {0} are under way, and no address has \
         more of them than its own"
    )]
    TooMany(u32),
    /// The connection ends before its handshake is over, and not by the peer.
    #[error("its TLS handshake was not over when weft closed the connection")]
    Unfinished,
}

impl StreamProblem {
    /// All words of [`StreamProblem::reason`].
    pub const REASONS: [&str; HandshakeError::REASONS.len() + 4] = {
        const OWN: [&str; 4] = ["plain", "left", "too-many", "unfinished"];
        let mut all = [""; HandshakeError::REASONS.len() + OWN.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = match at < OWN.len() {
                true => OWN[at],
                false => HandshakeError::REASONS[at - OWN.len()],
            };
            at += 1;
        }
        all
    };

    /// A word for why there is no connection that is encrypted; `None`: there was one.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            StreamProblem::Record(_) => None,
            StreamProblem::Handshake(error) => Some(error.reason()),
            StreamProblem::Plain => Some("plain"),
            StreamProblem::Left => Some("left"),
            StreamProblem::TooMany(_) => Some("too-many"),
            StreamProblem::Unfinished => Some("unfinished"),
        }
    }

    /// The identity that the peer has said, if it has.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        match self {
            StreamProblem::Handshake(error) => error.identity(),
            _ => None,
        }
    }
}

/// Bytes of plaintext that a connection has had in records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsBytes {
    /// In those that came.
    pub opened: u64,
    /// In those that were sent.
    pub sealed: u64,
}

/// What a step of a handshake costs, in units of [`machine::work`]: about half a millisecond.
pub const HANDSHAKE_UNITS: u64 = 16 << 10;

/// A handshake on its way to be made elsewhere.
pub struct HandshakeWork {
    handshake: Handshake,
    input: Vec<u8>,
}

impl HandshakeWork {
    /// Makes a step, which costs [`HANDSHAKE_UNITS`].
    #[must_use]
    pub fn step(mut self) -> HandshakeDone {
        work::spend(HANDSHAKE_UNITS);
        let step = self.handshake.step(&self.input);
        HandshakeDone {
            handshake: self.handshake,
            step,
        }
    }
}

/// A handshake that comes back.
pub struct HandshakeDone {
    handshake: Handshake,
    step: HandshakeStep,
}

/// A connection before its records.
pub(crate) struct OpeningLayer {
    /// Not here while a step of it is made elsewhere.
    handshake: Option<Handshake>,
    /// The first byte has told that TLS is spoken.
    is_tls: bool,
    allows_plain: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// What came of bytes before there are records.
pub(crate) enum Opening {
    /// They are a handshake's.
    Handshake,
    /// They are no TLS, and may be none.
    Plain,
}

impl OpeningLayer {
    /// A server's, whose peer may begin with something else.
    pub fn looking(handshake: Handshake, allows_plain: bool) -> OpeningLayer {
        OpeningLayer {
            handshake: Some(handshake),
            is_tls: false,
            allows_plain,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Of a handshake that nothing but TLS is taken for. A client's first step is made.
    pub fn begun(mut handshake: Handshake) -> OpeningLayer {
        let output = handshake.step(&[]).output;
        OpeningLayer {
            handshake: Some(handshake),
            is_tls: true,
            allows_plain: false,
            input: Vec::new(),
            output,
        }
    }

    /// Bytes that may be received now.
    pub fn wanted_bytes(&self) -> u32 {
        match self.handshake {
            Some(_) => HANDSHAKE_BYTES_MAX,
            None => 0,
        }
    }

    pub fn on_received(&mut self, received: &Received) -> Result<Opening, StreamProblem> {
        let bytes = received.stage.as_ref().map_or(&[][..], Stage::bytes);
        if let Some(first) = bytes.first().filter(|_| !self.is_tls) {
            match *first == TLS_HANDSHAKE {
                true => self.is_tls = true,
                false if self.allows_plain => return Ok(Opening::Plain),
                false => return Err(StreamProblem::Plain),
            }
        }
        work::spend_bytes(bytes.len() as u64);
        self.input.extend_from_slice(bytes);
        Ok(Opening::Handshake)
    }

    /// Whether nothing that came is still to be looked at.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty() && self.handshake.is_some()
    }

    /// The next step, if there is something to make it of.
    pub fn take_work(&mut self) -> Option<HandshakeWork> {
        if self.input.is_empty() {
            return None;
        }
        let input = std::mem::take(&mut self.input);
        let handshake = self.handshake.take()?;
        Some(HandshakeWork { handshake, input })
    }

    /// A step was made; the end of the handshake, if that was the last.
    pub fn on_step(&mut self, done: HandshakeDone) -> Option<Result<Secured, HandshakeError>> {
        self.handshake = Some(done.handshake);
        self.output.extend(done.step.output);
        done.step.end
    }

    /// Whether a handshake has begun, and is not over.
    pub fn is_begun(&self) -> bool {
        self.is_tls
    }

    /// What is to be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

/// A connection with keys.
pub(crate) struct RecordLayer {
    peer: ProvenPeer,
    opener: Opener,
    sealer: Sealer,
    pool: Pool,
    /// What all but the first buffer of a send are taken of; `None`: a send has one.
    share: Option<Pool>,
    /// What was received of a record that is not whole.
    cipher: Option<Stage>,
    /// Where the plaintext of the receive under way goes.
    direct: Option<BufRange>,
    stage: Option<Stage>,
    /// Sealed already, before what is to be sent.
    ahead: Vec<u8>,
    /// What is left to be sealed of a batch.
    unsealed: Option<Box<Batch>>,
    /// The peer is told of the end behind all that is sent.
    says_end: bool,
    has_said_end: bool,
    /// The peer sends no more.
    has_ended: bool,
    /// The peer has sent KeyUpdate, so it takes one.
    takes_key_update: bool,
    /// It was told that the key of what is sent is used up.
    has_told_of_key: bool,
    records_of_key_max: u64,
    bytes: TlsBytes,
}

impl RecordLayer {
    /// Behind a handshake, with what is left of it to be sent.
    pub fn new(secured: Secured, ahead: Vec<u8>, pool: Pool) -> RecordLayer {
        RecordLayer {
            peer: secured.peer,
            opener: secured.opener,
            sealer: secured.sealer,
            pool,
            share: None,
            cipher: None,
            direct: None,
            stage: None,
            ahead,
            unsealed: None,
            says_end: false,
            has_said_end: false,
            has_ended: false,
            takes_key_update: false,
            has_told_of_key: false,
            records_of_key_max: RECORDS_OF_KEY_MAX,
            bytes: TlsBytes::default(),
        }
    }

    /// What was in its records so far.
    pub fn bytes(&self) -> TlsBytes {
        self.bytes
    }

    /// The cipher suite, as TLS calls it.
    pub fn cipher_suite(&self) -> &'static str {
        self.sealer.hash().cipher_suite()
    }

    pub fn peer(&self) -> &ProvenPeer {
        &self.peer
    }

    /// Takes where plaintext is to go; where ciphertext is received, and how much.
    pub fn begin_receive(
        &mut self,
        direct: Option<BufRange>,
        stage: Option<Stage>,
        stage_max: u32,
    ) -> (Option<Stage>, u32) {
        let plain = direct.map_or(0, BufRange::len) + stage_max;
        self.direct = direct;
        self.stage = stage;
        let records = plain / PLAIN_BYTES_MAX as u32 + 1;
        let all = plain + records * EXTRA_BYTES as u32;
        let mut cipher = self.cipher.take();
        let bytes = cipher.as_ref().map_or(&[][..], Stage::bytes);
        let first = Opener::record_bytes(bytes).ok().flatten();
        let first = first.unwrap_or(HEADER_BYTES).saturating_sub(bytes.len()) as u32;
        let room = STAGE_BYTES - bytes.len() as u32;
        let more = all.saturating_sub(bytes.len() as u32).max(first).min(room);
        if let Some(cipher) = &mut cipher {
            cipher.fit(&self.pool, more);
            cipher.make_room(&self.pool, first);
        }
        (cipher, more)
    }

    /// Opens what has come.
    pub fn on_received(&mut self, received: Received) -> Result<Received, RecordError> {
        let mut out = Received {
            direct: 0,
            stage: self.stage.take(),
            ..received
        };
        let mut direct = self.direct.take();
        let staged_before = out.stage.as_ref().map_or(0, Stage::len);
        if let Some(mut cipher) = received.stage {
            let mut at = 0;
            while let Some(len) = Opener::record_bytes(&cipher.bytes()[at..])?
                && len <= cipher.len() - at
                && !self.has_ended
            {
                work::spend(1);
                work::spend_bytes(len as u64);
                let record = &cipher.bytes()[at..at + len];
                let opened = self.open(record, direct, cipher.len() - at, &mut out)?;
                direct = direct.map(|direct| direct.slice(opened, direct.len() - opened));
                direct = direct.filter(|direct| !direct.is_empty());
                at += len;
            }
            cipher.keep_from(at);
            self.cipher = (!cipher.is_empty() && !self.has_ended).then_some(cipher);
        }
        let staged = out.stage.as_ref().map_or(0, Stage::len);
        self.bytes.opened += u64::from(out.direct) + (staged - staged_before) as u64;
        match out.eof && self.cipher.is_some() {
            true => Err(RecordError::Truncated),
            false => Ok(out),
        }
    }

    /// Opens a record; how much of the direct part it has filled. `left` bytes of records are
    /// there with it.
    fn open(
        &mut self,
        record: &[u8],
        direct: Option<BufRange>,
        left: usize,
        out: &mut Received,
    ) -> Result<u32, RecordError> {
        let body = (record.len() - HEADER_BYTES) as u32;
        let staged = body.saturating_sub(direct.map_or(0, BufRange::len));
        // Room for what is behind it, too, so that it is found once.
        let direct_bytes = direct.map_or(0, BufRange::len) as usize;
        let wanted = (left.saturating_sub(direct_bytes) as u32).min(STAGE_BYTES);
        let stage = (out.stage).get_or_insert_with(|| self.pool.stage_of(wanted));
        if stage.room() < staged as usize {
            stage.fit(&self.pool, wanted);
            stage.make_room(&self.pool, staged);
        }
        match self.opener.open(record, direct, stage)? {
            Opened::Data { direct } => {
                out.direct += direct;
                return Ok(direct);
            }
            Opened::KeyUpdate { is_wanted } => {
                self.takes_key_update = true;
                // One answer to several is enough (RFC 8446, section 4.6.3).
                if is_wanted && self.ahead.is_empty() {
                    self.ahead = self.sealer.update();
                }
            }
            Opened::Nothing => {}
            Opened::End => self.has_ended = true,
        }
        Ok(0)
    }

    /// As [`Stream::count_to`](crate::Stream::count_to).
    pub fn count_to(&mut self, share: &Pool) {
        self.share = Some(share.clone());
    }

    /// Takes a batch to be sealed and sent.
    pub fn take(&mut self, batch: Box<Batch>) {
        assert!(self.unsealed.is_none(), "one batch at a time");
        self.bytes.sealed += batch.len_bytes();
        self.unsealed = Some(batch);
    }

    /// The peer is told that nothing more comes.
    pub fn end(&mut self) {
        self.says_end |= !self.has_said_end;
        self.has_said_end = true;
    }

    /// The peer is told why the connection ends, and nothing else any more.
    pub fn fail(&mut self, alert: Option<Alert>) {
        self.unsealed = None;
        self.says_end = false;
        if let Some(alert) = alert {
            self.ahead.extend(self.sealer.alert(alert));
        }
    }

    pub fn peer_has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn has_output(&self) -> bool {
        !self.ahead.is_empty() || self.unsealed.is_some() || self.says_end
    }

    pub fn has_unsealed(&self) -> bool {
        self.unsealed.is_some()
    }

    /// Whether the key of what is sent has become used up, which is told once, where the peer
    /// is not known to take another.
    pub fn take_key_used_up(&mut self) -> bool {
        let is_new = !self.has_told_of_key && !self.takes_key_update && self.key_is_used_up();
        self.has_told_of_key |= is_new;
        is_new
    }

    fn key_is_used_up(&self) -> bool {
        self.sealer.records_of_key() >= self.records_of_key_max
    }

    /// A batch of records of what is to be sent: of all, as far as there is memory.
    pub fn seal<D: Driver>(&mut self, driver: &mut D) -> Box<Batch> {
        if self.takes_key_update && self.key_is_used_up() {
            self.ahead.extend(self.sealer.update());
        }
        let mut out = None;
        let mut sealed = [const { None }; SEALED_BUFS_MAX];
        if let Some(mut plain) = self.unsealed.take() {
            self.seal_into_buffers(&mut plain, &mut sealed);
            if plain.is_empty() {
                plain.clear();
                out = Some(plain);
            } else {
                self.unsealed = Some(plain);
            }
        }
        let mut out = out.unwrap_or_else(|| driver.batch());
        out.header(&std::mem::take(&mut self.ahead));
        for (buf, bytes) in sealed.into_iter().flatten() {
            out.payload(buf.range().slice(0, bytes));
            out.hold(buf);
        }
        // Without memory one record goes at a time.
        if let Some(plain) = self.unsealed.as_mut().filter(|_| out.is_empty()) {
            let len = PLAIN_BYTES_MAX.min(plain.len_bytes() as usize);
            let mut record = vec![0; len + EXTRA_BYTES];
            seal_record(&mut self.sealer, plain, len, Sealed::Bytes(&mut record));
            out.header(&record);
            if plain.is_empty() {
                self.unsealed = None;
            }
        }
        if self.says_end && self.unsealed.is_none() {
            self.says_end = false;
            out.header(&self.sealer.alert(Alert::CloseNotify));
        }
        out
    }

    /// Seals a batch as far as there are buffers and the turn has a share: one in any case.
    fn seal_into_buffers(&mut self, plain: &mut Batch, bufs: &mut [Option<(Buf, u32)>]) {
        let pools = std::iter::once(&self.pool).chain(self.share.iter().cycle());
        for (buf, pool) in bufs.iter_mut().zip(pools) {
            *buf = seal_into_buffer(&mut self.sealer, plain, pool);
            if buf.is_none() || plain.is_empty() || work::is_used_up() {
                break;
            }
        }
    }

    pub fn held_bytes(&self) -> u64 {
        self.cipher.as_ref().map_or(0, Stage::capacity) as u64
    }
}

/// Seals as much of a batch as goes into one buffer.
fn seal_into_buffer(sealer: &mut Sealer, plain: &mut Batch, pool: &Pool) -> Option<(Buf, u32)> {
    let left = plain.len_bytes();
    let records = left.div_ceil(PLAIN_BYTES_MAX as u64);
    let all = left + records * EXTRA_BYTES as u64;
    let all = all.min(SEALED_BYTES_MAX.into()) as u32;
    let buf = pool.get(all);
    let buf = buf.or_else(|| pool.get(all.min(FEW_RECORDS_BYTES)))?;
    let mut at = 0;
    while !plain.is_empty() {
        let len = (PLAIN_BYTES_MAX as u64).min(plain.len_bytes()) as u32;
        let whole = len + EXTRA_BYTES as u32;
        if at + whole > buf.len() {
            break;
        }
        let to = Sealed::Range(buf.range().slice(at, whole));
        seal_record(sealer, plain, len as usize, to);
        at += whole;
    }
    Some((buf, at))
}

/// Seals the next bytes of a batch.
fn seal_record(sealer: &mut Sealer, plain: &mut Batch, len: usize, to: Sealed<'_>) {
    work::spend_bytes(len as u64);
    let mut left = len;
    let pieces = plain.pieces_left().map_while(|piece| {
        let taken = left.min(piece.len());
        left -= taken;
        (taken > 0).then(|| match piece {
            BatchPiece::Header(bytes) => Plain::Bytes(&bytes[..taken]),
            BatchPiece::Payload(range) => Plain::Range(range.slice(0, taken as u32)),
        })
    });
    sealer.seal(ContentType::ApplicationData, pieces, len, to);
    plain.advance(len as u64);
}
