//! The records of a connection after its handshake (RFC 8446, section 5): payload is
//! enciphered on its way from where it lies into what is sent, and deciphered on its way from
//! where it was received into where it belongs.

use auth::Secret;
use auth::psk::PskHash;
use faults::Fault;
use mem::{BufRange, Stage};

use crate::alert_received::AlertReceived;
use crate::cipher::{AesGcm, CipherSource, NONCE_BYTES, TAG_BYTES, Way};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 5;
/// Bytes of plaintext in a record, at most.
pub const PLAIN_BYTES_MAX: usize = 1 << 14;
/// What a record has beside its plaintext: header, content type, tag.
pub const EXTRA_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;
/// What follows the header of a record, at most (RFC 8446, section 5.2).
const BODY_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;
/// Records of full size that one key of AES-GCM seals, at most: below the 2^24.5 of RFC 8446,
/// section 5.5.
pub const RECORDS_OF_KEY_MAX: u64 = 1 << 24;
/// Bytes of a record at most.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;
/// Records without data, one behind the other, at most.
const EMPTY_MAX: u32 = 32;

/// What a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContentType {
    /// Two bytes that end a connection, or warn.
    Alert = 21,
    /// After a handshake: KeyUpdate and NewSessionTicket.
    Handshake = 22,
    /// Data.
    ApplicationData = 23,
}

impl ContentType {
    const fn bytes(self) -> &'static [u8] {
        match self {
            ContentType::Alert => &[ContentType::Alert as u8],
            ContentType::Handshake => &[ContentType::Handshake as u8],
            ContentType::ApplicationData => &[ContentType::ApplicationData as u8],
        }
    }
}

/// Alerts that weft sends (RFC 8446, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    /// The end of what is sent.
    CloseNotify = 0,
    /// A message where none of its kind may come.
    UnexpectedMessage = 10,
    /// A record that was changed on its way.
    BadRecordMac = 20,
    /// A record that is longer than allowed.
    RecordOverflow = 22,
    /// Nothing in common.
    HandshakeFailure = 40,
    /// A field of a message has a value that it may not.
    IllegalParameter = 47,
    /// A message of a wrong form.
    DecodeError = 50,
    /// A key that is not the one of its identity.
    DecryptError = 51,
    /// A version that is not spoken.
    ProtocolVersion = 70,
    /// An identity that is not known.
    UnknownPskIdentity = 115,
}

impl Alert {
    /// The record of it before there are keys.
    #[must_use]
    pub fn in_the_clear(self) -> [u8; HEADER_BYTES + 2] {
        [ContentType::Alert as u8, 3, 3, 0, 2, FATAL, self as u8]
    }
}

/// The level of alerts that end a connection.
const FATAL: u8 = 2;

/// Why no more is taken of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is none of the records that may come.
    #[error("it sends TLS records that may not come now")]
    Unexpected,
    /// It is too long.
    #[error("it sends a TLS record that is longer than TLS allows")]
    TooLong,
    /// It was changed on its way, or is of another key.
    #[error("it sends a TLS record that was changed on its way, or is of another key")]
    BadTag,
    /// Many records without data.
    #[error("it sends TLS records without data")]
    Empty,
    /// It is not all there, and nothing more comes.
    #[error("its connection ends within a TLS record: what it has sent was cut short")]
    Truncated,
    /// KeyUpdate asks for what it cannot (RFC 8446, section 4.6.3).
    #[error("it sends a KeyUpdate that asks for what there is not")]
    BadKeyUpdate,
    /// An alert is not two bytes long (RFC 8446, section 6).
    #[error("it sends an alert of TLS that is not two bytes long")]
    BadAlert,
    /// It says that something is wrong.
    #[error("it ends TLS with {}", AlertReceived(*.0))]
    Alert(u8),
}

impl RecordError {
    /// What it is told; nothing where it has ended the connection itself.
    #[must_use]
    pub fn alert(self) -> Option<Alert> {
        match self {
            RecordError::Unexpected | RecordError::Empty => Some(Alert::UnexpectedMessage),
            RecordError::TooLong => Some(Alert::RecordOverflow),
            RecordError::BadTag => Some(Alert::BadRecordMac),
            RecordError::BadKeyUpdate => Some(Alert::IllegalParameter),
            RecordError::BadAlert => Some(Alert::DecodeError),
            RecordError::Truncated | RecordError::Alert(_) => None,
        }
    }
}

/// Keys of one direction, and how many records they have been used for.
struct Traffic {
    hash: PskHash,
    secret: Secret,
    key: AesGcm,
    iv: [u8; NONCE_BYTES],
    records: u64,
    way: Way,
}

impl Traffic {
    /// Of an application traffic secret (RFC 8446, section 7.3).
    fn new(hash: PskHash, secret: Secret, way: Way) -> Traffic {
        let key_bytes = match hash {
            PskHash::Sha256 => 16,
            PskHash::Sha384 => 32,
        };
        let key = hash.expand_label(&secret, "key", &[], key_bytes);
        let iv = hash.expand_label(&secret, "iv", &[], NONCE_BYTES);
        Traffic {
            key: AesGcm::new(key.bytes(), way),
            iv: iv.bytes().try_into().expect("as long as was asked for"),
            hash,
            secret,
            records: 0,
            way,
        }
    }

    /// Begins the next record.
    fn begin(&mut self, header: &[u8]) {
        let mut nonce = self.iv;
        let number = match faults::is(Fault::SameNonce) {
            true => 0,
            false => self.records,
        };
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        self.records += 1;
        self.key.begin(&nonce, header);
    }

    /// The keys after these (RFC 8446, section 7.2).
    fn update(&mut self) {
        let len = self.hash.digest_bytes();
        let next = (self.hash).expand_label(&self.secret, "traffic upd", &[], len);
        *self = Traffic::new(self.hash, next, self.way);
    }
}

/// Bytes to be sealed.
#[derive(Clone, Copy)]
pub enum Plain<'p> {
    /// That nothing else names.
    Bytes(&'p [u8]),
    /// In a region.
    Range(BufRange),
}

impl Plain<'_> {
    fn source(self) -> CipherSource {
        match self {
            Plain::Bytes(bytes) => CipherSource {
                at: bytes.as_ptr(),
                len: bytes.len(),
            },
            Plain::Range(range) => CipherSource {
                at: range.as_ptr().cast_const(),
                len: range.len() as usize,
            },
        }
    }
}

/// Where a sealed record goes.
pub enum Sealed<'s> {
    /// Bytes that nothing else names.
    Bytes(&'s mut [u8]),
    /// In a buffer.
    Range(BufRange),
}

impl Sealed<'_> {
    fn target(self) -> (*mut u8, usize) {
        match self {
            Sealed::Bytes(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            Sealed::Range(range) => (range.as_ptr(), range.len() as usize),
        }
    }
}

/// What is sent.
pub struct Sealer {
    traffic: Traffic,
}

impl Sealer {
    /// By an application traffic secret.
    #[must_use]
    pub fn new(hash: PskHash, secret: Secret) -> Sealer {
        Sealer {
            traffic: Traffic::new(hash, secret, Way::Seal),
        }
    }

    /// The hash of the cipher suite.
    #[must_use]
    pub fn hash(&self) -> PskHash {
        self.traffic.hash
    }

    /// Puts a record of `len` bytes, which are `plain`, to the start of `to`; bytes of the
    /// record. Panics where they do not fit, or are more than a record has.
    pub fn seal<'p>(
        &mut self,
        content: ContentType,
        plain: impl Iterator<Item = Plain<'p>>,
        len: usize,
        to: Sealed<'_>,
    ) -> usize {
        let (to, room) = to.target();
        let whole = len + EXTRA_BYTES;
        assert!(len <= PLAIN_BYTES_MAX && whole <= room, "room for a record");
        let header = header_of(whole - HEADER_BYTES);
        self.traffic.begin(&header);
        let mut at = HEADER_BYTES;
        for plain in plain.chain([Plain::Bytes(content.bytes())]) {
            let from = plain.source();
            assert!(at + from.len <= whole - TAG_BYTES, "as much as was said");
            // SAFETY: bytes that are borrowed or lie in a region can be read; `to` has room
            // for the whole record, which was looked at.
            unsafe { self.traffic.key.update(from, to.add(at)) };
            at += from.len;
        }
        assert!(at == whole - TAG_BYTES, "as much as was said");
        let tag = self.traffic.key.tag();
        // SAFETY: as above; header and tag are ours alone.
        unsafe {
            std::ptr::copy_nonoverlapping(header.as_ptr(), to, HEADER_BYTES);
            std::ptr::copy_nonoverlapping(tag.as_ptr(), to.add(at), TAG_BYTES);
        }
        whole
    }

    /// Records that its key has sealed: [`RECORDS_OF_KEY_MAX`] are enough.
    #[must_use]
    pub fn records_of_key(&self) -> u64 {
        self.traffic.records
    }

    /// A record that tells the peer of other keys, under which all that follows is sealed.
    #[must_use]
    pub fn update(&mut self) -> Vec<u8> {
        let record = self.small(ContentType::Handshake, &KEY_UPDATE);
        self.traffic.update();
        record
    }

    /// A record of an alert.
    #[must_use]
    pub fn alert(&mut self, alert: Alert) -> Vec<u8> {
        let level = if alert == Alert::CloseNotify {
            1
        } else {
            FATAL
        };
        self.small(ContentType::Alert, &[level, alert as u8])
    }

    fn small(&mut self, content: ContentType, bytes: &[u8]) -> Vec<u8> {
        let mut record = vec![0; bytes.len() + EXTRA_BYTES];
        let plain = [Plain::Bytes(bytes)].into_iter();
        self.seal(content, plain, bytes.len(), Sealed::Bytes(&mut record));
        record
    }
}

/// The header of a record with so many bytes behind it, under keys.
fn header_of(body: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (body as u16).to_be_bytes();
    [ContentType::ApplicationData as u8, 3, 3, high, low]
}

/// KeyUpdate, update_not_requested.
const KEY_UPDATE: [u8; 5] = [KEY_UPDATE_TYPE, 0, 0, 1, 0];
const KEY_UPDATE_TYPE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;

/// What a record was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Data: so many bytes in the direct part, others in the stage.
    Data {
        /// Bytes of the direct part.
        direct: u32,
    },
    /// The peer has other keys from now on; whether it wants us to have other ones, too.
    KeyUpdate {
        /// [`Sealer::update`] is due.
        is_wanted: bool,
    },
    /// Nothing that concerns us.
    Nothing,
    /// The peer sends no more.
    End,
}

/// What is received.
pub struct Opener {
    traffic: Traffic,
    /// The peer is a server, which may send tickets for a next connection.
    takes_tickets: bool,
    /// Records without data, one behind the other.
    empty: u32,
}

impl Opener {
    /// By an application traffic secret.
    #[must_use]
    pub fn new(hash: PskHash, secret: Secret) -> Opener {
        Opener {
            traffic: Traffic::new(hash, secret, Way::Open),
            takes_tickets: false,
            empty: 0,
        }
    }

    /// The same of a client: servers alone send NewSessionTicket (RFC 8446, section 4.6.1). It
    /// has no use for them.
    #[must_use]
    pub fn taking_tickets(self) -> Opener {
        Opener {
            takes_tickets: true,
            ..self
        }
    }

    /// Bytes of the record that `bytes` begin with, as far as they say; `None`: too few are
    /// there to tell.
    ///
    /// # Errors
    /// No record begins so.
    pub fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, major, _, high, low] = *header;
        let body = usize::from(u16::from_be_bytes([high, low]));
        if kind != ContentType::ApplicationData as u8 || major != 3 {
            return Err(RecordError::Unexpected);
        }
        match body {
            ..=TAG_BYTES => Err(RecordError::BadTag),
            BODY_BYTES_OVER.. => Err(RecordError::TooLong),
            body => Ok(Some(HEADER_BYTES + body)),
        }
    }

    /// Opens a whole record: data goes to `direct` first and to the end of `stage` behind it,
    /// which has room for all that the record may have. Where it is no data, or nothing that
    /// the peer has sealed, what lies in `direct` is anything.
    ///
    /// # Errors
    /// The connection has to end. Nothing of the record is in the stage.
    pub fn open(
        &mut self,
        record: &[u8],
        direct: Option<BufRange>,
        stage: &mut Stage,
    ) -> Result<Opened, RecordError> {
        let (header, body) = record.split_at(HEADER_BYTES);
        let (body, tag) = body.split_last_chunk().ok_or(RecordError::BadTag)?;
        let (body, last) = body.split_last_chunk::<1>().ok_or(RecordError::BadTag)?;
        let direct_bytes = direct.map_or(0, |direct| body.len().min(direct.len() as usize));
        let rest = body.len() - direct_bytes;
        assert!(rest <= stage.room(), "room for a record");
        self.traffic.begin(header);
        let mut kind = [0; 1];
        let of = |bytes: &[u8]| CipherSource {
            at: bytes.as_ptr(),
            len: bytes.len(),
        };
        // SAFETY: the record is borrowed; a range of a region can be written, the stage has
        // the room that was looked at, and neither lies where the record does.
        unsafe {
            if let Some(direct) = direct.filter(|_| direct_bytes > 0) {
                let to = direct.as_ptr();
                self.traffic.key.update(of(&body[..direct_bytes]), to);
            }
            if rest > 0 {
                let to = stage.spare_ptr();
                self.traffic.key.update(of(&body[direct_bytes..]), to);
            }
            self.traffic.key.update(of(last), kind.as_mut_ptr());
        }
        if !self.traffic.key.is_authentic(tag) && !faults::is(Fault::AnyTag) {
            return Err(RecordError::BadTag);
        }
        // Padding counts too (RFC 8446, section 5.4).
        if body.len() > PLAIN_BYTES_MAX {
            return Err(RecordError::TooLong);
        }
        if kind[0] == ContentType::ApplicationData as u8 {
            self.count_empty(body.len())?;
            stage.advance(rest);
            return Ok(Opened::Data {
                direct: direct_bytes as u32,
            });
        }
        self.open_other(record, direct, stage)
    }

    fn count_empty(&mut self, len: usize) -> Result<(), RecordError> {
        self.empty = if len > 0 { 0 } else { self.empty + 1 };
        match self.empty {
            EMPTY_OVER.. => Err(RecordError::Empty),
            _ => Ok(()),
        }
    }

    /// A record that is no data, or has padding behind it: it is opened once more, apart.
    #[cold]
    fn open_other(
        &mut self,
        record: &[u8],
        direct: Option<BufRange>,
        stage: &mut Stage,
    ) -> Result<Opened, RecordError> {
        let (header, body) = record.split_at(HEADER_BYTES);
        let mut plain = body[..body.len() - TAG_BYTES].to_vec();
        let from = CipherSource {
            at: plain.as_ptr(),
            len: plain.len(),
        };
        self.traffic.records -= 1;
        self.traffic.begin(header);
        // SAFETY: the copy is ours, and opened where it lies.
        unsafe { self.traffic.key.update(from, plain.as_mut_ptr()) };
        let end = plain.iter().rposition(|byte| *byte != 0);
        let kind = plain.split_off(end.ok_or(RecordError::Unexpected)?)[0];
        const APPLICATION_DATA: u8 = ContentType::ApplicationData as u8;
        const HANDSHAKE: u8 = ContentType::Handshake as u8;
        const ALERT: u8 = ContentType::Alert as u8;
        match (kind, &plain[..]) {
            (APPLICATION_DATA, data) => {
                self.count_empty(data.len())?;
                let len = direct.map_or(0, |direct| data.len().min(direct.len() as usize));
                let (first, rest) = data.split_at(len);
                if let Some(direct) = direct {
                    mem::copy_in(direct.slice(0, len as u32), first);
                }
                stage.append(rest);
                Ok(Opened::Data { direct: len as u32 })
            }
            (HANDSHAKE, [KEY_UPDATE_TYPE, 0, 0, 1, wanted @ 0..=1]) => {
                self.count_empty(0)?;
                self.traffic.update();
                let is_wanted = *wanted == 1;
                Ok(Opened::KeyUpdate { is_wanted })
            }
            (HANDSHAKE, [KEY_UPDATE_TYPE, 0, 0, 1, _]) => Err(RecordError::BadKeyUpdate),
            (HANDSHAKE, [NEW_SESSION_TICKET, ..]) if self.takes_tickets => {
                self.count_empty(0)?;
                Ok(Opened::Nothing)
            }
            (ALERT, [_, 0]) => Ok(Opened::End),
            (ALERT, [_, alert]) => Err(RecordError::Alert(*alert)),
            // One without any byte may not come at all (section 5.4).
            (ALERT, [_, ..]) => Err(RecordError::BadAlert),
            _ => Err(RecordError::Unexpected),
        }
    }
}

const BODY_BYTES_OVER: usize = BODY_BYTES_MAX + 1;
const EMPTY_OVER: u32 = EMPTY_MAX + 1;

#[cfg(test)]
mod tests {
    use mem::{Budget, Pool, Region};
    use proptest::prelude::*;

    use super::*;

    /// Room of a stage for what the largest record may have.
    const ROOM: u32 = 64 << 10;

    fn both(hash: PskHash) -> (Sealer, Opener) {
        let secret = Secret::new(vec![7; hash.digest_bytes()]);
        (Sealer::new(hash, secret.clone()), Opener::new(hash, secret))
    }

    fn pool() -> Pool {
        Pool::new(Budget::new(64 << 20)).expect("room")
    }

    fn sealed(sealer: &mut Sealer, content: ContentType, plain: &[u8]) -> Vec<u8> {
        let mut record = vec![0; plain.len() + EXTRA_BYTES];
        let pieces = [Plain::Bytes(plain)].into_iter();
        let len = sealer.seal(content, pieces, plain.len(), Sealed::Bytes(&mut record));
        assert_eq!(len, record.len());
        assert_eq!(Opener::record_bytes(&record), Ok(Some(len)));
        record
    }

    /// As [`sealed`], with zeros behind the content type.
    fn padded(sealer: &mut Sealer, content: ContentType, plain: &[u8], zeros: usize) -> Vec<u8> {
        let mut inner = plain.to_vec();
        inner.push(content as u8);
        inner.resize(inner.len() + zeros, 0);
        // The last of the padding stands where the content type does otherwise.
        let mut record = vec![0; inner.len() - 1 + EXTRA_BYTES];
        let whole = record.len();
        let header = header_of(whole - HEADER_BYTES);
        sealer.traffic.begin(&header);
        let from = Plain::Bytes(&inner).source();
        record[..HEADER_BYTES].copy_from_slice(&header);
        // SAFETY: both are borrowed, and as long as is said.
        unsafe {
            sealer
                .traffic
                .key
                .update(from, record[HEADER_BYTES..].as_mut_ptr())
        };
        let tag = sealer.traffic.key.tag();
        record[whole - TAG_BYTES..].copy_from_slice(&tag);
        record
    }

    fn open(opener: &mut Opener, record: &[u8]) -> (Result<Opened, RecordError>, Vec<u8>) {
        let mut stage = pool().stage_of(ROOM);
        let opened = opener.open(record, None, &mut stage);
        (opened, stage.bytes().to_vec())
    }

    const DATA: Result<Opened, RecordError> = Ok(Opened::Data { direct: 0 });

    #[test]
    fn record_in_pieces_is_opened_into_pieces() {
        let (pool, region) = (pool(), Region::anonymous(64 << 10).expect("room"));
        for hash in [PskHash::Sha256, PskHash::Sha384] {
            let (mut sealer, mut opener) = both(hash);
            let plain: Vec<u8> = (0..9000u32).map(|n| (n * 7) as u8).collect();
            let (from, to) = (region.range(0, 5000), region.range(32 << 10, 4000));
            mem::copy_in(from, &plain[24..5024]);
            let pieces = [
                Plain::Bytes(&plain[..24]),
                Plain::Range(from),
                Plain::Bytes(&plain[5024..]),
            ];
            let buf = pool.get(16 << 10).expect("room");
            let whole = sealer.seal(
                ContentType::ApplicationData,
                pieces.into_iter(),
                plain.len(),
                Sealed::Range(buf.range()),
            );
            let mut record = vec![0; whole];
            mem::copy_out(buf.range().slice(0, whole as u32), &mut record);
            let mut stage = pool.stage_of(ROOM);
            stage.append(b"before");
            let opened = opener.open(&record, Some(to), &mut stage);
            assert_eq!(opened, Ok(Opened::Data { direct: 4000 }));
            let mut first = vec![0; 4000];
            mem::copy_out(to, &mut first);
            assert_eq!(first, &plain[..4000]);
            assert_eq!(stage.bytes(), [b"before", &plain[4000..]].concat());
        }
    }

    #[test]
    fn keys_change_where_the_peer_says_so() {
        let (mut sealer, mut opener) = both(PskHash::Sha384);
        for round in 0..3u8 {
            let record = sealed(&mut sealer, ContentType::ApplicationData, &[round]);
            assert_eq!(open(&mut opener, &record), (DATA, vec![round]));
            let record = sealer.update();
            let (opened, rest) = open(&mut opener, &record);
            assert_eq!(opened, Ok(Opened::KeyUpdate { is_wanted: false }));
            assert!(rest.is_empty());
        }
        let record = sealed(&mut sealer, ContentType::Handshake, &[24, 0, 0, 1, 1]);
        let (opened, _) = open(&mut opener, &record);
        assert_eq!(opened, Ok(Opened::KeyUpdate { is_wanted: true }));
        let late = sealed(&mut sealer, ContentType::ApplicationData, b"old key");
        assert_eq!(open(&mut opener, &late).0, Err(RecordError::BadTag));
    }

    #[test]
    fn records_are_counted_for_each_key() {
        let (mut sealer, _) = both(PskHash::Sha256);
        for count in 1..=3 {
            sealed(&mut sealer, ContentType::ApplicationData, b"data");
            assert_eq!(sealer.records_of_key(), count);
        }
        let _ = sealer.update();
        assert_eq!(sealer.records_of_key(), 0);
    }

    #[test]
    fn padding_is_taken_off() {
        let (mut sealer, mut opener) = both(PskHash::Sha256);
        let region = Region::anonymous(4096).expect("room");
        for zeros in [1, 2, 300] {
            let record = padded(&mut sealer, ContentType::ApplicationData, b"data", zeros);
            assert_eq!(open(&mut opener, &record), (DATA, b"data".to_vec()));
            let record = padded(&mut sealer, ContentType::ApplicationData, b"data", zeros);
            let mut stage = pool().stage_of(ROOM);
            let to = region.range(0, 3);
            let opened = opener.open(&record, Some(to), &mut stage);
            assert_eq!(opened, Ok(Opened::Data { direct: 3 }));
            let mut first = [0; 3];
            mem::copy_out(to, &mut first);
            assert_eq!((&first, stage.bytes()), (b"dat", &b"a"[..]));
        }
        let record = padded(&mut sealer, ContentType::Alert, &[1, 0], 5);
        assert_eq!(open(&mut opener, &record).0, Ok(Opened::End));
        let nothing = sealed(&mut sealer, ContentType::ApplicationData, &[]);
        assert_eq!(open(&mut opener, &nothing), (DATA, Vec::new()));
    }

    #[test]
    fn header_of_no_record_is_refused_before_its_bytes_are_there() {
        let bytes = Opener::record_bytes;
        assert_eq!(bytes(&[]), Ok(None));
        assert_eq!(bytes(&[23, 3, 3, 0]), Ok(None));
        assert_eq!(bytes(&[23, 3, 3, 0, 17]), Ok(Some(22)));
        assert_eq!(bytes(&[23, 3, 3, 0x41, 0]), Ok(Some(5 + 16640)));
        assert_eq!(bytes(&[23, 3, 3, 0x41, 1]), Err(RecordError::TooLong));
        assert_eq!(bytes(&[23, 3, 3, 0, 16]), Err(RecordError::BadTag));
        for first in [0, 1, 20, 21, 22, 24, 0x16, 0xff] {
            let told = bytes(&[first, 3, 3, 0, 64]);
            assert_eq!(told, Err(RecordError::Unexpected), "{first}");
        }
        assert_eq!(bytes(&[23, 2, 3, 0, 64]), Err(RecordError::Unexpected));
    }

    #[test]
    fn messages_after_the_handshake_are_those_that_may_come() {
        let ticket = &[4, 0, 0, 1, 9][..];
        let (mut sealer, opener) = both(PskHash::Sha256);
        let record = sealed(&mut sealer, ContentType::Handshake, ticket);
        let told = open(&mut opener.taking_tickets(), &record);
        assert_eq!(told, (Ok(Opened::Nothing), Vec::new()), "of a server");
        for (content, plain, wanted) in [
            (ContentType::Handshake, ticket, Err(RecordError::Unexpected)),
            (
                ContentType::Handshake,
                &[24, 0, 0, 1, 2],
                Err(RecordError::BadKeyUpdate),
            ),
            (
                ContentType::Handshake,
                &[24, 0, 0, 1],
                Err(RecordError::Unexpected),
            ),
            (
                ContentType::Handshake,
                &[1, 0, 0, 0],
                Err(RecordError::Unexpected),
            ),
            (ContentType::Handshake, &[], Err(RecordError::Unexpected)),
            (ContentType::Alert, &[1, 0], Ok(Opened::End)),
            (ContentType::Alert, &[2, 20], Err(RecordError::Alert(20))),
            (ContentType::Alert, &[], Err(RecordError::Unexpected)),
            (ContentType::Alert, &[2], Err(RecordError::BadAlert)),
            (ContentType::Alert, &[1, 0, 0], Err(RecordError::BadAlert)),
        ] {
            let (mut sealer, mut opener) = both(PskHash::Sha256);
            let record = sealed(&mut sealer, content, plain);
            let (told, staged) = open(&mut opener, &record);
            assert_eq!(told, wanted, "{content:?} {plain:?}");
            assert!(staged.is_empty());
        }
        assert_eq!(
            RecordError::BadKeyUpdate.alert(),
            Some(Alert::IllegalParameter)
        );
        assert_eq!(RecordError::BadAlert.alert(), Some(Alert::DecodeError));
        let (mut sealer, mut opener) = both(PskHash::Sha256);
        let record = sealer.alert(Alert::BadRecordMac);
        assert_eq!(open(&mut opener, &record).0, Err(RecordError::Alert(20)));
    }

    #[test]
    fn padding_counts_against_the_length_of_a_record() {
        for content in [ContentType::ApplicationData, ContentType::Alert] {
            for (zeros, is_fine) in [(PLAIN_BYTES_MAX - 2, true), (PLAIN_BYTES_MAX - 1, false)] {
                let (mut sealer, mut opener) = both(PskHash::Sha256);
                let record = padded(&mut sealer, content, &[1, 0], zeros);
                assert_eq!(Opener::record_bytes(&record), Ok(Some(record.len())));
                let told = open(&mut opener, &record).0;
                match is_fine {
                    true => assert!(told.is_ok(), "{told:?}"),
                    false => assert_eq!(told, Err(RecordError::TooLong)),
                }
            }
        }
    }

    #[test]
    fn records_without_data_have_a_bound() {
        let (mut sealer, opener) = both(PskHash::Sha256);
        let mut opener = opener.taking_tickets();
        let mut send = |content, plain: &[u8]| {
            let record = sealed(&mut sealer, content, plain);
            open(&mut opener, &record).0
        };
        for _ in 0..3 {
            for _ in 0..EMPTY_MAX / 2 {
                assert_eq!(send(ContentType::ApplicationData, &[]), DATA);
                let told = send(ContentType::Handshake, &[4, 0, 0, 1, 9]);
                assert_eq!(told, Ok(Opened::Nothing));
            }
            assert_eq!(send(ContentType::ApplicationData, b"x"), DATA);
        }
        for _ in 0..EMPTY_MAX {
            assert_eq!(send(ContentType::ApplicationData, &[]), DATA);
        }
        let told = send(ContentType::ApplicationData, &[]);
        assert_eq!(told, Err(RecordError::Empty));
    }

    proptest! {
        #[test]
        fn record_that_was_changed_yields_nothing(
            plain in prop::collection::vec(any::<u8>(), 0..300),
            bit in any::<prop::sample::Index>(),
            hash in prop::sample::select(&PskHash::ALL),
        ) {
            let (mut sealer, mut opener) = both(hash);
            let mut record = sealed(&mut sealer, ContentType::ApplicationData, &plain);
            let bit = bit.index(record.len() * 8);
            record[bit / 8] ^= 1 << (bit % 8);
            let len = Opener::record_bytes(&record);
            // A header that says another length waits for more, or is none.
            if len == Ok(Some(record.len())) {
                let (told, staged) = open(&mut opener, &record);
                prop_assert_eq!(told, Err(RecordError::BadTag));
                prop_assert!(staged.is_empty());
            } else {
                prop_assert!(bit / 8 < HEADER_BYTES);
            }
        }

        #[test]
        fn record_that_comes_twice_or_out_of_order_yields_nothing(swap in any::<bool>()) {
            let (mut sealer, mut opener) = both(PskHash::Sha256);
            let mut send = |plain: &[u8]| sealed(&mut sealer, ContentType::ApplicationData, plain);
            let (one, two) = (send(b"one"), send(b"two"));
            let order = if swap { [&two, &one] } else { [&one, &one] };
            let told = order.map(|record| open(&mut opener, record).0);
            prop_assert!(told.contains(&Err(RecordError::BadTag)));
        }
    }
}
