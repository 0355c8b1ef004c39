//! Handshakes of TLS 1.3 with certificates, by rustls: those of RPC-with-TLS (RFC 9289) and
//! of NBD.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use crate::certificate::Certificate;
use crate::handshake::{HandshakeError, HandshakeStep, ProvenPeer, Secured};
use crate::records::{HEADER_BYTES, RECORD_BYTES_MAX};
use crate::traffic_secrets::TrafficSecrets;
use crate::words::{is_older_version, problem_of};

/// Bytes that a peer may send in a handshake: a chain of certificates has a few thousand.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// The first and the last content type of records (RFC 8446, section 5.1).
const CONTENT_TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// One handshake.
pub struct CertificateHandshake {
    connection: Connection,
    /// What was received of a record that is not whole, or behind the handshake.
    input: Vec<u8>,
    /// Bytes of the records that were whole.
    taken_bytes: usize,
    secrets: TrafficSecrets,
    is_server: bool,
}

impl CertificateHandshake {
    /// A server's. `side` is [`crate::ServerSide::for_rpc`]'s or
    /// [`crate::ServerSide::for_nbd`]'s.
    ///
    /// # Errors
    /// What of the side cannot be used.
    pub fn server(side: Arc<ServerConfig>) -> Result<CertificateHandshake, HandshakeError> {
        let connection = ServerConnection::new(side).map_err(failed)?;
        Ok(CertificateHandshake::new(connection.into(), true))
    }

    /// A client's, with a server whose certificate is for `name`: of DNS, or an address. `side`
    /// is [`crate::rpc_client_side`]'s. Its first step has no input.
    ///
    /// # Errors
    /// What of the side or the name cannot be used.
    pub fn client(
        side: Arc<ClientConfig>,
        name: &str,
    ) -> Result<CertificateHandshake, HandshakeError> {
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|error| HandshakeError::Failed(error.to_string()))?;
        let connection = ClientConnection::new(side, name).map_err(failed)?;
        Ok(CertificateHandshake::new(connection.into(), false))
    }

    fn new(connection: Connection, is_server: bool) -> CertificateHandshake {
        CertificateHandshake {
            connection,
            input: Vec::new(),
            taken_bytes: 0,
            secrets: TrafficSecrets::default(),
            is_server,
        }
    }

    /// Goes on with what was received.
    pub fn step(&mut self, input: &[u8]) -> HandshakeStep {
        self.input.extend_from_slice(input);
        let end = self.go_on().transpose();
        let mut output = Vec::new();
        while self.connection.wants_write() {
            let written = self.connection.write_tls(&mut output);
            written.expect("memory takes all of it");
        }
        if let (Some(Err(error)), true) = (&end, output.is_empty()) {
            output.extend(error.alert().in_the_clear());
        }
        HandshakeStep { output, end }
    }

    /// Hands the library one record after the other: what lies behind the last of the handshake
    /// is not its.
    fn go_on(&mut self) -> Result<Option<Secured>, HandshakeError> {
        while self.connection.is_handshaking() {
            let Some(len) = record_bytes(&self.input)? else {
                return Ok(None);
            };
            self.taken_bytes += len;
            if self.taken_bytes > HANDSHAKE_BYTES_MAX {
                let max_bytes = HANDSHAKE_BYTES_MAX;
                return Err(HandshakeError::TooLong { max_bytes });
            }
            let connection = &mut self.connection;
            let mut record = &self.input[..len];
            let processed = self.secrets.told_by(|| {
                while !record.is_empty() {
                    let read = connection.read_tls(&mut record);
                    if !read.is_ok_and(|read| read > 0) {
                        return Err(Error::General("a record finds no room".to_owned()));
                    }
                    connection.process_new_packets()?;
                }
                Ok(())
            });
            processed.map_err(failed)?;
            self.input.drain(..len);
        }
        let (sealer, opener) = self.secrets.keys(self.is_server)?;
        let shown = self.connection.peer_certificates().and_then(<[_]>::first);
        let shown = shown.map(Certificate::new).transpose();
        Ok(Some(Secured {
            sealer,
            opener,
            left: std::mem::take(&mut self.input),
            peer: ProvenPeer::Certificate(shown.map_err(HandshakeError::Certificate)?),
        }))
    }
}

/// Bytes of the record that `bytes` begin with; `None`: not all of them are there.
fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, HandshakeError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let [kind, major, _, high, low] = *header;
    let len = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if !CONTENT_TYPES.contains(&kind) || major != 3 || len > RECORD_BYTES_MAX {
        return Err(HandshakeError::Malformed);
    }
    Ok((bytes.len() >= len).then_some(len))
}

fn failed(error: Error) -> HandshakeError {
    let problem = problem_of(&error);
    match error {
        Error::InvalidCertificate(_) => HandshakeError::Certificate(problem),
        Error::PeerIncompatible(why) if is_older_version(&why) => HandshakeError::Version,
        _ => HandshakeError::Failed(problem),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use mem::{Budget, Pool};

    use super::*;
    use crate::records::{Alert, ContentType, EXTRA_BYTES, Opened, Plain, Sealed, Sealer};
    use crate::rpc_client_side;
    use crate::{ClientAuthorities, Identity, ServerSide, read_certificates, read_key};

    fn of(name: &str) -> PathBuf {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        data.join(name)
    }

    /// A certificate of the tests' data with its key, in a file that nobody else may read.
    fn identity(name: &str) -> Identity {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("key");
        std::fs::copy(of(&format!("{name}.key")), &key).expect("there");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&key, mode).expect("ours");
        let chain = read_certificates(&of(&format!("{name}.pem"))).expect("there");
        Identity::new(chain, read_key(&key.into()).expect("there")).expect("they fit")
    }

    fn server() -> CertificateHandshake {
        let clients = ClientAuthorities::read(&of("ca.pem"), None).expect("there");
        let side = ServerSide::for_rpc(identity("server"), Some(clients)).expect("good");
        CertificateHandshake::server(side.config).expect("good")
    }

    /// A client that believes in `ca`, and shows a certificate of this name.
    fn client(ca: &str, shows: Option<&str>) -> CertificateHandshake {
        let side = rpc_client_side(&of(ca), shows.map(identity)).expect("good");
        CertificateHandshake::client(side, "storage.example.org").expect("a name")
    }

    type End = Result<Secured, HandshakeError>;

    /// A record of data.
    fn sealed(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut record = vec![0; text.len() + EXTRA_BYTES];
        let pieces = [Plain::Bytes(text)].into_iter();
        let content = ContentType::ApplicationData;
        sealer.seal(content, pieces, text.len(), Sealed::Bytes(&mut record));
        record
    }

    fn opens(secured: &mut Secured, record: &[u8], text: &[u8]) {
        let mut stage = Pool::new(Budget::new(16 << 20)).unwrap().stage_of(32 << 10);
        let opened = secured.opener.open(record, None, &mut stage);
        assert_eq!(opened, Ok(Opened::Data { direct: 0 }));
        assert_eq!(stage.bytes(), text);
    }

    /// Both ends, with input in pieces of `piece` bytes. The client sends data right behind its
    /// handshake.
    fn shake(mut client: CertificateHandshake, piece: usize) -> (Option<End>, Option<End>) {
        let mut server = server();
        let (mut at_server, mut at_client): (Option<End>, Option<End>) = (None, None);
        let mut to_server = client.step(&[]).output;
        for _ in 0..4 {
            let mut to_client = Vec::new();
            let mut pieces = to_server.chunks(piece);
            while at_server.is_none()
                && let Some(piece) = pieces.next()
            {
                let step = server.step(piece);
                to_client.extend(step.output);
                at_server = step.end;
            }
            if let Some(Ok(secured)) = &mut at_server {
                secured.left.extend(pieces.flatten());
            }
            to_server = Vec::new();
            for piece in to_client.chunks(piece) {
                if at_client.is_some() {
                    break;
                }
                let step = client.step(piece);
                to_server.extend(step.output);
                at_client = step.end;
                if let Some(Ok(secured)) = &mut at_client {
                    to_server.extend(sealed(&mut secured.sealer, b"at once"));
                }
            }
        }
        (at_server, at_client)
    }

    fn names(secured: &Secured) -> Option<&[String]> {
        match &secured.peer {
            ProvenPeer::Certificate(shown) => shown.as_ref().map(|shown| &*shown.names),
            ProvenPeer::Psk(_) => panic!("there is no key"),
        }
    }

    #[test]
    fn both_sides_have_the_same_keys_and_what_follows_the_handshake_is_left() {
        for piece in [1, 7, 100_000] {
            for shows in [None, Some("server")] {
                let (server, client) = shake(client("ca.pem", shows), piece);
                let (mut server, mut client) = (server.unwrap().unwrap(), client.unwrap().unwrap());
                let name = names(&server).map(|names| &*names[0]);
                assert_eq!(name, shows.map(|_| "DNS:storage.example.org"));
                assert_eq!(names(&client).unwrap()[0], "DNS:storage.example.org");
                let left = std::mem::take(&mut server.left);
                opens(&mut server, &left, b"at once");
                let record = sealed(&mut server.sealer, b"an answer");
                opens(&mut client, &record, b"an answer");
            }
        }
    }

    #[test]
    fn certificate_that_is_not_good_is_refused_on_both_sides_in_words() {
        let (server, _) = shake(client("ca.pem", Some("old")), 1000);
        let error = server.unwrap().err().expect("its days are over");
        assert!(matches!(&error, HandshakeError::Certificate(why) if why.contains("expired")));
        // The client believes in an authority that has signed nothing.
        let (server, client) = shake(client("old.pem", None), 1000);
        let error = client.unwrap().err().expect("another authority");
        assert!(matches!(error, HandshakeError::Certificate(_)), "{error}");
        let error = server.unwrap().err().expect("it was told").to_string();
        assert!(error.contains("the other side has refused it"), "{error}");
    }

    #[test]
    fn handshake_without_end_is_ended_with_an_alert() {
        // A ClientHello of 65,535 bytes, in records of as many as they may have.
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.resize(HEADER_BYTES + (1 << 14), 0);
        let mut server = server();
        let mut end = None;
        for at in 0..5 {
            record[HEADER_BYTES..][..4].copy_from_slice(match at {
                0 => &[1, 0, 0xff, 0xff],
                _ => &[0; 4],
            });
            let step = server.step(&record);
            if let Some(Err(error)) = step.end {
                assert_eq!(step.output, Alert::DecodeError.in_the_clear());
                end = Some(error);
                break;
            }
        }
        let max_bytes = HANDSHAKE_BYTES_MAX;
        assert_eq!(end, Some(HandshakeError::TooLong { max_bytes }));
    }

    #[test]
    fn message_other_than_a_client_hello_of_tls_1_3_ends_with_an_alert() {
        let hello = client("ca.pem", None).step(&[]).output;
        let told = |bytes: &[u8]| {
            let step = server().step(bytes);
            (
                step.end.map(|end| end.err().expect("no connection")),
                step.output,
            )
        };
        assert_eq!(told(&hello[..hello.len() - 1]), (None, Vec::new()));
        let call = [0x80, 0, 0, 0x28, 0, 0, 0, 1, 0, 0, 0, 0];
        let (end, output) = told(&call);
        assert_eq!(end, Some(HandshakeError::Malformed));
        assert_eq!(output, Alert::DecodeError.in_the_clear());
        // Without supported_versions it is one of TLS 1.2 (RFC 8446, section 4.2.1).
        let mut older = hello.clone();
        let at = (older.windows(7)).position(|bytes| bytes == [0, 43, 0, 3, 2, 3, 4]);
        older[at.expect("an extension")] = 0xfa;
        let (end, output) = told(&older);
        assert_eq!(end, Some(HandshakeError::Version));
        assert_eq!(output, Alert::ProtocolVersion.in_the_clear());
        let words = HandshakeError::Version.to_string();
        assert!(words.contains("TLS 1.2 or older") && words.contains("update it"));
        // Behind the header of the record: the type and the length of the hello.
        for at in HEADER_BYTES..HEADER_BYTES + 4 {
            let mut changed = hello.clone();
            changed[at] ^= 0x55;
            let (end, output) = told(&changed);
            assert_eq!(end.is_none(), output.is_empty(), "{at}: {end:?}");
        }
    }
}
