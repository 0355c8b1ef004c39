//! Handshakes of TLS 1.3 with pre-shared keys, by s2n-tls.

use std::os::raw::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use auth::Secret;
use auth::psk::{PskCompat, PskHash, TlsPsk};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, Mode, PskHmac};
use s2n_tls::psk::Psk;
use s2n_tls::security::Policy;

use crate::alert_received::AlertReceived;
use crate::handshake::{HandshakeError, HandshakeStep, ProvenPeer, Secured};
use crate::hello;
use crate::records::Alert;
use crate::traffic_secrets::{TrafficSecrets, note};

/// Of the library's policies one that exchanges keys by x25519 and by the curves of NIST, and by
/// nothing else. It knows ChaCha20, too, as all of these do, after the suites of AES-GCM:
/// NVMe/TCP does not allow it, and [`hello::chosen_psk`] and [`PskHandshake::secured`] refuse it.
const POLICY: &str = "20240503";

/// One that offers TLS_AES_256_GCM_SHA384 first, for clients with keys for SHA-384: servers of
/// OpenSSL choose the first suite that they know, and then take no key of another hash.
const POLICY_OF_SHA_384: &str = "20251113";

/// The keys that a server has.
pub trait KnownPsks: Send + Sync {
    /// Those of an identity that a client says: several where it does not tell which is meant.
    fn psks_of(&self, identity: &str) -> Vec<TlsPsk>;

    /// Whether there is any.
    fn has_any(&self) -> bool;

    /// Whether the identity had a key that is good no longer; asked where it has no other. The
    /// client is told no more than of one that no host has.
    fn has_expired(&self, _identity: &str) -> bool {
        false
    }

    /// Why there is no connection, in the words of the protocol.
    fn in_words(&self, error: HandshakeError) -> HandshakeError {
        error
    }

    /// Which derivations clients may have.
    fn compat(&self) -> PskCompat {
        PskCompat::Auto
    }
}

/// One handshake.
pub struct PskHandshake {
    /// Before its bytes, to which it points.
    connection: Option<Connection>,
    bytes: Box<HandshakeBytes>,
    known: Option<Arc<dyn KnownPsks>>,
    psk: Option<TlsPsk>,
    mode: Mode,
    secrets: TrafficSecrets,
}

#[derive(Default)]
struct HandshakeBytes {
    input: Vec<u8>,
    /// So many bytes of it were taken.
    taken: usize,
    output: Vec<u8>,
}

impl PskHandshake {
    /// A server's, with the keys that it has.
    #[must_use]
    pub fn server(known: Arc<dyn KnownPsks>) -> PskHandshake {
        PskHandshake {
            connection: None,
            bytes: Box::default(),
            known: Some(known),
            psk: None,
            mode: Mode::Server,
            secrets: TrafficSecrets::default(),
        }
    }

    /// A client's, with the key that it offers. Its first step has no input.
    #[must_use]
    pub fn client(psk: TlsPsk) -> PskHandshake {
        PskHandshake {
            connection: None,
            bytes: Box::default(),
            known: None,
            psk: Some(psk),
            mode: Mode::Client,
            secrets: TrafficSecrets::default(),
        }
    }

    /// Goes on with what was received.
    pub fn step(&mut self, input: &[u8]) -> HandshakeStep {
        self.bytes.input.extend_from_slice(input);
        let end = self.go_on().transpose();
        if end.is_some() {
            // Here, where steps are made: a reactor would serve many I/Os meanwhile.
            self.connection = None;
        }
        let mut output = std::mem::take(&mut self.bytes.output);
        if let (Some(Err(error)), true) = (&end, output.is_empty() && self.mode == Mode::Server) {
            output.extend(self.alert(error.alert()));
        }
        HandshakeStep { output, end }
    }

    /// The record of a server's alert. Behind its Finished a server seals all that it sends (RFC
    /// 8446, section 4.4.4): the library itself sends close_notify alone.
    fn alert(&self, alert: Alert) -> Vec<u8> {
        match self.secrets.keys(true) {
            Ok((mut sealer, _)) => sealer.alert(alert),
            Err(_) => alert.in_the_clear().to_vec(),
        }
    }

    fn go_on(&mut self) -> Result<Option<Secured>, HandshakeError> {
        if self.connection.is_none() {
            if let Some(known) = &self.known {
                let Some(message) = hello::client_hello(&self.bytes.input)? else {
                    return Ok(None);
                };
                let chosen = hello::chosen_psk(&message, &**known);
                self.psk = Some(chosen.map_err(|error| match error {
                    HandshakeError::UnknownIdentity(_) if !known.has_any() => {
                        HandshakeError::NoKeys
                    }
                    error => known.in_words(error),
                })?);
            }
            let psk = self
                .psk
                .as_ref()
                .expect("a client has it, a server chose it");
            self.connection = Some(connect(self.mode, psk, &mut self.bytes).map_err(failed)?);
        }
        let connection = self.connection.as_mut().expect("made above");
        let told = self
            .secrets
            .told_by(|| connection.poll_negotiate().map_ok(drop));
        let alert = connection.alert().map(AlertReceived);
        let told = told.map_err(|error| alert.map_or_else(|| failed(error), HandshakeError::Alert));
        match told {
            Poll::Pending => {
                self.bytes.input.drain(..self.bytes.taken);
                self.bytes.taken = 0;
                Ok(None)
            }
            Poll::Ready(told) => told.and_then(|()| self.secured()).map(Some),
        }
    }

    fn secured(&mut self) -> Result<Secured, HandshakeError> {
        let connection = self.connection.as_ref().expect("it has negotiated");
        // A client may leave its key out of a second ClientHello.
        if connection
            .negotiated_psk_identity_length()
            .map_err(failed)?
            == 0
        {
            return Err(HandshakeError::NoPsk);
        }
        let psk = self.psk.take().expect("chosen before");
        let suite = connection.cipher_suite().map_err(failed)?;
        if suite != psk.hash.cipher_suite() {
            let why = format!("the other side has chosen {suite}, which NVMe/TCP does not allow");
            return Err(HandshakeError::Failed(why));
        }
        let (sealer, opener) = self.secrets.keys(self.mode == Mode::Server)?;
        Ok(Secured {
            sealer,
            opener,
            left: self.bytes.input.split_off(self.bytes.taken),
            peer: ProvenPeer::Psk(psk),
        })
    }
}

fn failed(error: s2n_tls::error::Error) -> HandshakeError {
    match error.name() {
        "S2N_ERR_DECRYPT" => HandshakeError::BadRecord,
        "S2N_ERR_BAD_FINISHED" => HandshakeError::BadFinished,
        _ => HandshakeError::Failed(error.message().to_owned()),
    }
}

/// A connection of the library over bytes.
fn connect(
    mode: Mode,
    psk: &TlsPsk,
    bytes: &mut HandshakeBytes,
) -> Result<Connection, s2n_tls::error::Error> {
    let mut builder = Psk::builder()?;
    builder.set_identity(psk.identity.as_bytes())?;
    builder.set_secret(psk.secret.bytes())?;
    builder.set_hmac(match psk.hash {
        PskHash::Sha256 => PskHmac::SHA256,
        PskHash::Sha384 => PskHmac::SHA384,
    })?;
    let mut connection = Connection::new(mode);
    connection.set_config(config())?;
    if mode == Mode::Client && psk.hash == PskHash::Sha384 {
        let policy = Policy::from_version(POLICY_OF_SHA_384).expect("a name");
        connection.set_security_policy(&policy)?;
    }
    // A failure is told at once: nothing is decided by how long it takes.
    connection.set_blinding(Blinding::SelfService)?;
    connection.append_psk(&builder.build()?)?;
    connection.set_receive_callback(Some(receive))?;
    connection.set_send_callback(Some(send))?;
    let context: *mut c_void = std::ptr::from_mut(bytes).cast();
    // SAFETY: the bytes have an address of their own, and stay for as long as the connection,
    // which is dropped before them; both are used under one `&mut`.
    unsafe {
        connection.set_receive_context(context)?;
        connection.set_send_context(context)?;
    }
    Ok(connection)
}

/// What all connections of the library share.
fn config() -> Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        let mut builder = Config::builder();
        let policy = Policy::from_version(POLICY).expect("a name");
        // SAFETY: the callback uses no context.
        let logs = unsafe { builder.set_key_log_callback(Some(note_secret), std::ptr::null_mut()) };
        logs.and_then(|builder| builder.with_system_certs(false))
            .and_then(|builder| builder.set_security_policy(&policy))
            .expect("settings that the library has");
        builder.build().expect("memory")
    });
    made.clone()
}

/// Takes the secrets of a connection from a line of its key log.
///
/// # Safety
/// The line is as long as is said.
unsafe extern "C" fn note_secret(
    _: *mut c_void,
    _: *mut s2n_tls_sys::s2n_connection,
    line: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: the library's promise.
    let line = unsafe { std::slice::from_raw_parts(line, len) };
    let mut words = line.split(|byte| *byte == b' ');
    let (label, secret) = (words.next(), words.nth(1));
    let hex = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    note(label.unwrap_or_default(), || {
        let digits = secret.unwrap_or_default();
        // Of the whole size at once: what grows leaves copies behind.
        let mut bytes = vec![0; digits.len() / 2];
        let mut both = bytes.iter_mut().zip(digits.chunks_exact(2));
        let is_hex = both.all(|(byte, pair)| hex(pair).map(|read| *byte = read).is_some());
        let secret = Secret::new(bytes);
        is_hex.then_some(secret)
    });
    0
}

/// Gives the library what was received.
///
/// # Safety
/// As [`connect`] says, and `to` has room for `len` bytes.
unsafe extern "C" fn receive(context: *mut c_void, to: *mut u8, len: u32) -> c_int {
    // SAFETY: nothing else uses the bytes while the library is called.
    let bytes = unsafe { &mut *context.cast::<HandshakeBytes>() };
    let left = &bytes.input[bytes.taken..];
    if left.is_empty() {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
        return -1;
    }
    let len = left.len().min(len as usize);
    // SAFETY: the library's promise.
    unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), to, len) };
    bytes.taken += len;
    len as c_int
}

/// Takes what the library sends.
///
/// # Safety
/// As [`connect`] says, and `from` has `len` bytes.
unsafe extern "C" fn send(context: *mut c_void, from: *const u8, len: u32) -> c_int {
    // SAFETY: as above.
    let bytes = unsafe { &mut *context.cast::<HandshakeBytes>() };
    // SAFETY: the library's promise.
    let sent = unsafe { std::slice::from_raw_parts(from, len as usize) };
    bytes.output.extend_from_slice(sent);
    len as c_int
}

#[cfg(test)]
mod tests {
    use auth::psk::{Derivation, Psk as ConfiguredPsk};
    use mem::{Budget, Pool};

    use super::*;
    use crate::records::{
        ContentType, EXTRA_BYTES, HEADER_BYTES, Opened, Plain, RecordError, Sealed, Sealer,
    };
    use crate::traffic_secrets::KEEPS_HANDSHAKE_SECRET;

    struct Known(Vec<TlsPsk>);

    impl KnownPsks for Known {
        fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
            let fits = |psk: &&TlsPsk| psk.identity == identity;
            self.0.iter().filter(fits).cloned().collect()
        }

        fn has_any(&self) -> bool {
            !self.0.is_empty()
        }
    }

    const HOST: &str = "nqn.2026-01.io.weft:host";
    const SUBSYSTEM: &str = "nqn.2026-01.io.weft:disk";

    fn key(hash: PskHash, byte: u8) -> ConfiguredPsk {
        ConfiguredPsk::new(hash, |bytes| bytes.fill(byte))
    }

    /// A handshake with input in pieces of `piece` bytes.
    fn shake(
        client: TlsPsk,
        known: Vec<TlsPsk>,
        piece: usize,
    ) -> (
        Result<Secured, HandshakeError>,
        Result<Secured, HandshakeError>,
    ) {
        let mut client = PskHandshake::client(client);
        let mut server = PskHandshake::server(Arc::new(Known(known)));
        let (mut ended, mut at_client) = (None, None);
        let mut to_server = client.step(&[]).output;
        for _ in 0..4 {
            let mut to_client = Vec::new();
            for piece in to_server.chunks(piece) {
                let step = server.step(piece);
                to_client.extend(step.output);
                if let Some(end) = step.end {
                    ended = Some(end);
                    break;
                }
            }
            to_server = Vec::new();
            for piece in to_client.chunks(piece) {
                let step = client.step(piece);
                to_server.extend(step.output);
                if let Some(end) = step.end {
                    at_client = Some(end);
                    break;
                }
            }
            if to_server.is_empty() {
                break;
            }
        }
        (ended.expect("an end"), at_client.expect("an end"))
    }

    fn psk_of(secured: &Secured) -> &TlsPsk {
        match &secured.peer {
            ProvenPeer::Psk(psk) => psk,
            ProvenPeer::Certificate(_) => panic!("no certificate is asked for"),
        }
    }

    fn passes(from: &mut Secured, to: &mut Secured, text: &[u8]) {
        let mut record = vec![0; text.len() + EXTRA_BYTES];
        let content = ContentType::ApplicationData;
        let pieces = [Plain::Bytes(text)].into_iter();
        from.sealer
            .seal(content, pieces, text.len(), Sealed::Bytes(&mut record));
        let mut stage = Pool::new(Budget::new(16 << 20)).unwrap().stage_of(32 << 10);
        let opened = to.opener.open(&record, None, &mut stage);
        assert_eq!(opened, Ok(Opened::Data { direct: 0 }));
        assert_eq!(stage.bytes(), text);
    }

    #[test]
    fn both_sides_have_the_same_keys() {
        for hash in PskHash::ALL {
            for piece in [1, 7, 100_000] {
                let psk = key(hash, 3).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
                let (server, client) = shake(psk.clone(), vec![psk.clone()], piece);
                let (mut server, mut client) = (server.unwrap(), client.unwrap());
                assert_eq!(psk_of(&server), &psk);
                passes(&mut client, &mut server, b"from the client");
                passes(&mut server, &mut client, b"from the server");
                assert!(server.left.is_empty() && client.left.is_empty());
            }
        }
    }

    #[test]
    fn client_offers_the_cipher_suite_of_its_key_first() {
        for (hash, suite) in [(PskHash::Sha256, 0x1301), (PskHash::Sha384, 0x1302)] {
            let psk = key(hash, 3).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
            let hello = PskHandshake::client(psk).step(&[]).output;
            // Behind the headers of record and message, a version, a random number, a session's
            // identifier, and the length of the list.
            let at = 5 + 4 + 2 + 32;
            let at = at + 1 + usize::from(hello[at]) + 2;
            assert_eq!(u16::from_be_bytes([hello[at], hello[at + 1]]), suite);
        }
    }

    #[test]
    fn of_keys_with_one_identity_the_one_is_taken_that_the_client_proves() {
        let key = key(PskHash::Sha384, 3);
        let psk = |derivation| key.tls_psk_version_0(HOST, SUBSYSTEM, derivation);
        let known = vec![psk(Derivation::Standard), psk(Derivation::Old)];
        for derivation in [Derivation::Standard, Derivation::Old] {
            let (server, client) = shake(psk(derivation), known.clone(), 1000);
            let server = server.unwrap();
            assert_eq!(psk_of(&server).derivation, derivation);
            assert!(client.is_ok());
        }
    }

    /// Keys of hosts that derive them as the standard says.
    struct Standard(Known);

    impl KnownPsks for Standard {
        fn psks_of(&self, identity: &str) -> Vec<TlsPsk> {
            self.0.psks_of(identity)
        }

        fn has_any(&self) -> bool {
            true
        }

        fn compat(&self) -> PskCompat {
            PskCompat::Off
        }
    }

    #[test]
    fn client_of_the_old_derivation_is_refused_where_that_is_off_and_told_why() {
        let key = key(PskHash::Sha384, 3);
        for version_1 in [false, true] {
            let psk = |derivation| match version_1 {
                true => key.tls_psk(HOST, SUBSYSTEM, derivation),
                false => key.tls_psk_version_0(HOST, SUBSYSTEM, derivation),
            };
            let both = [Derivation::Standard, Derivation::Old].map(psk);
            let known: Arc<dyn KnownPsks> = Arc::new(Standard(Known(both.to_vec())));
            let [standard, old] = both.map(|psk| {
                let hello = PskHandshake::client(psk).step(&[]).output;
                PskHandshake::server(known.clone()).step(&hello)
            });
            assert!(standard.end.is_none(), "it goes on");
            let why = old.end.expect("an end").err().expect("refused");
            let identity = psk(Derivation::Old).identity;
            assert_eq!(why, HandshakeError::OldDerivation(identity));
            assert_eq!(old.output, Alert::UnknownPskIdentity.in_the_clear());
        }
    }

    #[test]
    fn client_without_the_right_key_is_told_so_and_gets_nothing() {
        let psk = |byte| {
            key(PskHash::Sha256, byte).tls_psk_version_0(HOST, SUBSYSTEM, Derivation::Standard)
        };
        let identity = psk(1).identity;
        let received = |alert| Some(HandshakeError::Alert(AlertReceived(alert as u8)));
        let (server, client) = shake(psk(1), vec![psk(2)], 1000);
        assert_eq!(
            server.err(),
            Some(HandshakeError::WrongKey(identity.clone()))
        );
        assert_eq!(client.err(), received(Alert::DecryptError));
        let other = key(PskHash::Sha256, 1).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let (server, client) = shake(psk(1), vec![other], 1000);
        assert_eq!(
            server.err(),
            Some(HandshakeError::UnknownIdentity(identity))
        );
        assert_eq!(client.err(), received(Alert::UnknownPskIdentity));
        let (server, client) = shake(psk(1), Vec::new(), 1000);
        assert_eq!(server.err(), Some(HandshakeError::NoKeys));
        assert_eq!(client.err(), received(Alert::UnknownPskIdentity));
        // A key for SHA-384 under a binder of SHA-256.
        let right = key(PskHash::Sha384, 1).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let wrong = TlsPsk {
            hash: PskHash::Sha256,
            ..right.clone()
        };
        let (server, _) = shake(wrong, vec![right.clone()], 1000);
        assert_eq!(
            server.err(),
            Some(HandshakeError::OtherBinder(right.identity))
        );
    }

    /// The client's hello has other bytes in the place of some, and a binder that is right.
    #[track_caller]
    fn expect_refused(known: &[u8], other: &[u8], wanted: &str) {
        let psk = key(PskHash::Sha256, 3).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let mut hello = PskHandshake::client(psk.clone()).step(&[]).output;
        let at = hello.windows(known.len()).position(|bytes| bytes == known);
        hello[at.expect("offered")..][..other.len()].copy_from_slice(other);
        let message = &hello[HEADER_BYTES..];
        let truncated = hello::Offer::read(message).expect("a hello").truncated;
        let binder = hello::binder_of(&psk, truncated);
        let end = hello.len() - binder.len();
        hello[end..].copy_from_slice(&binder);
        let told = PskHandshake::server(Arc::new(Known(vec![psk]))).step(&hello);
        let why = told.end.expect("an end").err().expect("no connection");
        assert_eq!(why, HandshakeError::Failed(wanted.to_owned()));
        assert_eq!(told.output, Alert::HandshakeFailure.in_the_clear());
    }

    #[test]
    fn client_that_offers_no_suite_of_aes_gcm_is_refused() {
        let wanted = "it does not offer TLS_AES_128_GCM_SHA256, the cipher suite of its key";
        expect_refused(&[0x13, 0x01], &[0x13, 0x7f], wanted);
    }

    #[test]
    fn client_that_offers_no_group_that_weft_takes_is_refused_in_words_of_its_own() {
        // The list of the extension supported_groups: x448 and groups of finite fields.
        let known = [0, 8, 0, 0x17, 0, 0x1d, 0, 0x18, 0, 0x19];
        let other = [0, 8, 0, 0x1e, 1, 0, 1, 1, 1, 2];
        let wanted = "it offers none of the groups x25519, P-256, P-384 and P-521";
        expect_refused(&known, &other, wanted);
    }

    #[test]
    fn client_offers_x25519_and_the_curves_of_nist() {
        let psk = key(PskHash::Sha256, 3).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let hello = PskHandshake::client(psk).step(&[]).output;
        // The extension supported_groups (RFC 8446, section 4.2.7).
        let groups = [0, 10, 0, 10, 0, 8, 0, 0x17, 0, 0x1d, 0, 0x18, 0, 0x19];
        assert!(hello.windows(groups.len()).any(|bytes| bytes == groups));
    }

    /// What a server makes of the last bytes of a client, which `change` has changed and may seal
    /// anew by the key of the handshake: its error, and the alert that the client gets under keys.
    fn end_by(change: impl FnOnce(&mut Vec<u8>, &mut Sealer)) -> (HandshakeError, u8) {
        let psk = key(PskHash::Sha256, 3).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let mut server = PskHandshake::server(Arc::new(Known(vec![psk.clone()])));
        let mut client = PskHandshake::client(psk);
        let flight = server.step(&client.step(&[]).output);
        assert!(flight.end.is_none());
        KEEPS_HANDSHAKE_SECRET.set(true);
        let last = client.step(&flight.output);
        KEEPS_HANDSHAKE_SECRET.set(false);
        let mut client = last.end.expect("its last step").expect("the right key");
        let mut bytes = last.output;
        change(&mut bytes, &mut client.sealer);
        let told = server.step(&bytes);
        let error = told.end.expect("an end").err().expect("no connection");
        let mut stage = Pool::new(Budget::new(16 << 20)).unwrap().stage_of(32 << 10);
        match client.opener.open(&told.output, None, &mut stage) {
            Err(RecordError::Alert(alert)) => (error, alert),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn client_whose_last_record_is_spoilt_is_told_so_under_keys() {
        let (error, alert) = end_by(|bytes, _| *bytes.last_mut().expect("a record") ^= 1);
        assert_eq!(error, HandshakeError::BadRecord);
        assert_eq!(alert, Alert::BadRecordMac as u8);
    }

    #[test]
    fn client_whose_finished_does_not_verify_is_told_so_under_keys() {
        let (error, alert) = end_by(|bytes, sealer| {
            // Of 32 bytes (RFC 8446, section 4.4.4).
            let mut finished = [7; 36];
            finished[..4].copy_from_slice(&[20, 0, 0, 32]);
            *bytes = vec![0; finished.len() + EXTRA_BYTES];
            let pieces = [Plain::Bytes(&finished)].into_iter();
            let to = Sealed::Bytes(bytes);
            sealer.seal(ContentType::Handshake, pieces, finished.len(), to);
        });
        assert_eq!(error, HandshakeError::BadFinished);
        assert_eq!(alert, Alert::DecryptError as u8);
    }

    #[test]
    fn message_other_than_a_client_hello_of_tls_1_3_ends_with_an_alert() {
        let psk = key(PskHash::Sha256, 1).tls_psk(HOST, SUBSYSTEM, Derivation::Standard);
        let hello = PskHandshake::client(psk.clone()).step(&[]).output;
        let told = |bytes: &[u8]| {
            let mut server = PskHandshake::server(Arc::new(Known(vec![psk.clone()])));
            let step = server.step(bytes);
            let end = step.end.map(|end| end.err().expect("no connection"));
            (end, step.output)
        };
        assert_eq!(told(&hello[..hello.len() - 1]), (None, Vec::new()));
        let (end, output) = told(&[0; 128]);
        assert_eq!(end, Some(HandshakeError::Malformed));
        assert_eq!(output, Alert::DecodeError.in_the_clear());
        // Behind the header of the record, which no key covers.
        for at in 5..hello.len() {
            let mut changed = hello.clone();
            changed[at] ^= 0x55;
            // It waits for more, or ends; and gets no further with a changed hello.
            let (end, output) = told(&changed);
            assert_eq!(end.is_none(), output.is_empty(), "{at}: {end:?}");
            assert!(
                end.is_none_or(|end| output == end.alert().in_the_clear()),
                "{at}"
            );
        }
    }
}
