//! A mechanism of GSS-API whose tokens are easy to make: what it does follows from a name
//! alone. It proves nothing to anybody. [`GssClient`] speaks RPCSEC_GSS with it.

use std::ops::Range;

use auth::gss::{ContextStep, GssContext, GssError, Unfinished};
use auth::gss_acceptor::{AcceptError, GssAcceptor};
use auth::user::User;
use hmac::{Hmac, KeyInit as _, Mac as _};
use machine::Tag;
use nfs::connection::Connection;
use nfs::gss::{Contexts, InitAnswer, major};
use sha2::Sha256;
use testkit::nfs::call::call_header;
use wire::rpc::{
    AUTH_NONE, RPCSEC_GSS, RPCSEC_GSS_VERS_1, accept_stat, accepted_body, auth_stat, call_body,
    msg_type, opaque_auth, reply_body, reply_stat, rpc_gss_cred_vers_1_t, rpc_gss_init_arg,
    rpc_gss_init_res, rpc_gss_proc_t, rpc_gss_service_t,
};
use wire::xdr::{Decode, Encode, Opaque, Reader, pad};

/// Bytes of a checksum.
const MIC_BYTES: usize = 16;

/// Both ends of a context of the user with this name.
#[derive(Clone, Debug)]
pub struct FakeContext {
    name: String,
    user: Option<User>,
    expires_at_s: u64,
}

impl FakeContext {
    /// That is good until then. `user7` is the user of that number, `user7:8:9` with these
    /// groups; others are no user.
    pub fn new(name: &str, expires_at_s: u64) -> FakeContext {
        let numbers = name.strip_prefix("user").and_then(|text| {
            let numbers = text.split('@').next()?.split(':');
            numbers.map(|number| number.parse().ok()).collect()
        });
        let numbers: Vec<u32> = numbers.unwrap_or_default();
        let user = numbers.first().map(|&uid| User {
            uid,
            gid: numbers.get(1).copied().unwrap_or(uid),
            gids: numbers.iter().skip(2).copied().collect(),
        });
        FakeContext {
            name: name.to_owned(),
            user,
            expires_at_s,
        }
    }

    fn hash(&self, what: &[u8], message: &[u8]) -> [u8; 32] {
        let mac = Hmac::<Sha256>::new_from_slice(self.name.as_bytes());
        let mut mac = mac.expect("a key may have any length");
        mac.update(what);
        mac.update(message);
        mac.finalize().into_bytes().into()
    }

    /// The same again undoes it.
    fn encrypt(&self, tag: &[u8], message: &mut [u8]) {
        for (block, number) in message.chunks_mut(32).zip(0u64..) {
            let key = self.hash(tag, &number.to_be_bytes());
            block
                .iter_mut()
                .zip(key)
                .for_each(|(byte, key)| *byte ^= key);
        }
    }

    fn tag(&self, what: &[u8], message: &[u8]) -> [u8; MIC_BYTES] {
        let hash = self.hash(what, message);
        *hash.first_chunk().expect("it is longer")
    }
}

impl GssContext for FakeContext {
    fn mic(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), GssError> {
        out.extend_from_slice(&self.tag(b"mic", message));
        Ok(())
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        match self.tag(b"mic", message) == mic {
            true => Ok(()),
            false => Err(GssError::BadMessage),
        }
    }

    fn wrap_ahead(&self) -> usize {
        MIC_BYTES
    }

    fn wrap(&mut self, bytes: &mut Vec<u8>, room: Range<usize>) -> Result<(), GssError> {
        let (room, message) = bytes[room.start..].split_at_mut(room.len());
        let tag = self.tag(b"wrap", message);
        room.copy_from_slice(&tag);
        self.encrypt(&tag, message);
        Ok(())
    }

    fn unwrap(&mut self, token: &mut [u8]) -> Result<Range<usize>, GssError> {
        let len = token.len();
        let parts = token.split_at_mut_checked(MIC_BYTES);
        let (tag, message) = parts.ok_or(GssError::BadMessage)?;
        self.encrypt(tag, message);
        match self.tag(b"wrap", message) == tag {
            true => Ok(MIC_BYTES..len),
            false => Err(GssError::BadMessage),
        }
    }

    fn client_name(&self) -> &str {
        &self.name
    }

    fn expires_at_s(&self) -> u64 {
        self.expires_at_s
    }

    fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}

/// Makes a context of a token that is a name, and the number of the second from which on it
/// is good no more: [`token_of`]. A name that begins with `slow` is asked for once more; one
/// with `bad` gets no context.
#[derive(Clone, Copy, Debug, Default)]
pub struct FakeAcceptor;

/// A token for [`FakeAcceptor`].
pub fn token_of(name: &str, expires_at_s: u64) -> Vec<u8> {
    format!("{expires_at_s} {name}").into_bytes()
}

impl GssAcceptor for FakeAcceptor {
    fn step(
        &self,
        unfinished: Option<Unfinished>,
        token: &[u8],
    ) -> Result<ContextStep, AcceptError> {
        let text = str::from_utf8(token).ok();
        let said = text.and_then(|text| text.split_once(' '));
        let said = said.and_then(|(until, name)| Some((until.parse().ok()?, name)));
        let Some((expires_at_s, name)) = said.filter(|(_, name)| !name.starts_with("bad")) else {
            return Err(AcceptError {
                major: major::FAILURE,
                minor: 77,
                token: b"no".to_vec(),
                why: "the name is bad".into(),
            });
        };
        if name.starts_with("slow") && unfinished.is_none() {
            return Ok(ContextStep::Continue {
                token: b"again".to_vec(),
                unfinished: Unfinished(Box::new(())),
            });
        }
        Ok(ContextStep::Done {
            token: b"welcome".to_vec(),
            context: Box::new(FakeContext::new(name, expires_at_s)),
        })
    }
}

/// What a server with [`FakeAcceptor`] does with a call that makes a context, of a client on
/// `host` at the time `now`, in nanoseconds since 1970; `None`: it has no such handle.
pub fn accept(
    contexts: &Contexts,
    (handle, token): (Option<&[u8]>, &[u8]),
    (host, now): (u64, u64),
) -> Option<InitAnswer> {
    let unfinished = contexts.take_unfinished(handle)?;
    let step = FakeAcceptor.step(unfinished, token);
    Some(contexts.on_step(step, host, (now, now / 1_000_000_000)))
}

/// Answers a call that makes a context, as [`accept`] does. It is denied where there are no
/// contexts, or no such handle.
pub fn answer_init(
    machine: &mut Connection,
    tag: Tag,
    contexts: Option<&Contexts>,
    at: (u64, u64),
) {
    match contexts.and_then(|contexts| accept(contexts, machine.init(tag), at)) {
        Some(answer) => machine.send_init(tag, &answer),
        None => machine.send_denied(tag, auth_stat::RPCSEC_GSS_CREDPROBLEM),
    }
}

/// The other side of a context: what it says on any connection.
#[derive(Clone, Debug)]
pub struct GssClient {
    /// Its end of the context.
    pub context: FakeContext,
    /// As its server calls the context.
    pub handle: Vec<u8>,
    /// Of the next call.
    pub number: u32,
}

/// The service that protects nothing, and those that do.
pub const SERVICES: [rpc_gss_service_t; 3] = [
    rpc_gss_service_t::rpc_gss_svc_none,
    rpc_gss_service_t::rpc_gss_svc_integrity,
    rpc_gss_service_t::rpc_gss_svc_privacy,
];

impl GssClient {
    /// Before it has a context.
    pub fn new(name: &str, expires_at_s: u64) -> GssClient {
        GssClient {
            context: FakeContext::new(name, expires_at_s),
            handle: Vec::new(),
            number: 1,
        }
    }

    /// The body of the next call's credential.
    pub fn credential(&self, procedure: rpc_gss_proc_t, service: rpc_gss_service_t) -> Vec<u8> {
        let mut bytes = Vec::new();
        RPCSEC_GSS_VERS_1.encode(&mut bytes);
        rpc_gss_cred_vers_1_t {
            gss_proc: procedure,
            seq_num: self.number,
            service,
            handle: Opaque(&self.handle),
        }
        .encode(&mut bytes);
        bytes
    }

    /// A record, without its mark, that asks for a context, or goes on with it.
    pub fn init(&self, xid: u32) -> Vec<u8> {
        let procedure = match self.handle.is_empty() {
            true => rpc_gss_proc_t::RPCSEC_GSS_INIT,
            false => rpc_gss_proc_t::RPCSEC_GSS_CONTINUE_INIT,
        };
        let credential = self.credential(procedure, SERVICES[0]);
        let mut bytes = call_header(xid, |call| {
            call.proc = 0;
            call.cred = opaque_auth {
                flavor: RPCSEC_GSS,
                body: Opaque(&[]),
            };
        });
        put_credential(&mut bytes, &credential);
        none().encode(&mut bytes);
        let token = token_of(&self.context.name, self.context.expires_at_s);
        rpc_gss_init_arg {
            gss_token: Opaque(&token),
        }
        .encode(&mut bytes);
        bytes
    }

    /// Takes the answer to that, and the context if it is made: the two status codes.
    pub fn take_init(&mut self, answer: &[u8]) -> (u32, u32) {
        let from = &mut Reader::new(answer);
        let mic = accepted(from).expect("it was let in").1;
        let results = rpc_gss_init_res::decode(from).expect("results of RPCSEC_GSS_INIT");
        self.handle = results.handle.0.to_vec();
        if results.gss_major == major::COMPLETE {
            let window = results.seq_window.to_be_bytes();
            let checked = self.context.verify_mic(&window, &mic);
            checked.expect("the server has the same context");
        }
        (results.gss_major, results.gss_minor)
    }

    /// A call without its record mark: `called` is its header as another flavor would have
    /// it, up to the credential; what follows are its arguments. The sequence number goes
    /// on.
    pub fn call(
        &mut self,
        (xid, program, version, procedure): (u32, u32, u32, u32),
        args: &[u8],
        service: rpc_gss_service_t,
    ) -> Vec<u8> {
        let data = rpc_gss_proc_t::RPCSEC_GSS_DATA;
        self.record((xid, program, version, procedure), args, (data, service))
    }

    /// A call that ends the context.
    pub fn destroy(&mut self, xid: u32) -> Vec<u8> {
        let (program, version) = (wire::nfs4::NFS4_PROGRAM, wire::nfs4::NFS_V4);
        let destroy = rpc_gss_proc_t::RPCSEC_GSS_DESTROY;
        let by = (destroy, SERVICES[0]);
        self.record((xid, program, version, 0), &[], by)
    }

    /// The header of a call with this body of a credential, and the checksum of it.
    pub fn header(
        &mut self,
        (xid, program, version, procedure): (u32, u32, u32, u32),
        credential: &[u8],
    ) -> Vec<u8> {
        let mut bytes = call_header(xid, |call| {
            (call.prog, call.vers, call.proc) = (program, version, procedure);
            call.cred = opaque_auth {
                flavor: RPCSEC_GSS,
                body: Opaque(&[]),
            };
        });
        put_credential(&mut bytes, credential);
        let mut mic = Vec::new();
        self.context.mic(&bytes, &mut mic).expect("it always can");
        opaque_auth {
            flavor: RPCSEC_GSS,
            body: Opaque(&mic),
        }
        .encode(&mut bytes);
        bytes
    }

    fn record(
        &mut self,
        (xid, program, version, procedure): (u32, u32, u32, u32),
        args: &[u8],
        (gss_proc, service): (rpc_gss_proc_t, rpc_gss_service_t),
    ) -> Vec<u8> {
        let credential = self.credential(gss_proc, service);
        let mut bytes = self.header((xid, program, version, procedure), &credential);
        self.put_protected(&mut bytes, args, (service, self.number));
        self.number = self.number.wrapping_add(1);
        bytes
    }

    /// Appends arguments or results as they are protected for the call of this number.
    fn put_protected(
        &mut self,
        bytes: &mut Vec<u8>,
        content: &[u8],
        (service, number): (rpc_gss_service_t, u32),
    ) {
        let mut data = number.to_be_bytes().to_vec();
        data.extend_from_slice(content);
        match service {
            rpc_gss_service_t::rpc_gss_svc_none => bytes.extend_from_slice(content),
            rpc_gss_service_t::rpc_gss_svc_integrity => {
                put_opaque(bytes, &data);
                let mut mic = Vec::new();
                self.context.mic(&data, &mut mic).expect("it always can");
                put_opaque(bytes, &mic);
            }
            rpc_gss_service_t::rpc_gss_svc_privacy => {
                let mut token = [&[0; MIC_BYTES], &data[..]].concat();
                let wrapped = self.context.wrap(&mut token, 0..MIC_BYTES);
                wrapped.expect("it always can");
                put_opaque(bytes, &token);
            }
        }
    }

    /// What is protected for the call of this number.
    fn opened(&mut self, body: &[u8], (service, number): (rpc_gss_service_t, u32)) -> Vec<u8> {
        let from = &mut Reader::new(body);
        let data = match service {
            rpc_gss_service_t::rpc_gss_svc_none => return body.to_vec(),
            rpc_gss_service_t::rpc_gss_svc_integrity => {
                let (data, mic) = (take_opaque(from), take_opaque(from));
                let checked = self.context.verify_mic(&data, &mic);
                checked.expect("the checksum is of it");
                data
            }
            rpc_gss_service_t::rpc_gss_svc_privacy => {
                let mut token = take_opaque(from);
                let range = self.context.unwrap(&mut token);
                token[range.expect("it is the server's")].to_vec()
            }
        };
        assert!(from.rest().is_empty(), "nothing follows");
        assert_eq!(data[..4], number.to_be_bytes(), "it is of this call");
        data[4..].to_vec()
    }

    /// The status and the results in the answer to the call of this number: what the server
    /// has not protected for it is no answer.
    ///
    /// # Errors
    /// The call was not let in: what follows the type of the answer.
    pub fn open(
        &mut self,
        answer: &[u8],
        number: u32,
        service: rpc_gss_service_t,
    ) -> Result<(accepted_body, Vec<u8>), Vec<u8>> {
        let from = &mut Reader::new(answer);
        let Some((body, mic)) = accepted(from) else {
            return Err(answer[8..].to_vec());
        };
        let checked = self.context.verify_mic(&number.to_be_bytes(), &mic);
        checked.expect("the verifier is of the call");
        let rest = from.rest();
        if body != accepted_body::default(accept_stat::SUCCESS) {
            assert!(rest.is_empty(), "errors have no results");
            return Ok((body, Vec::new()));
        }
        Ok((body, self.opened(rest, (service, number))))
    }
}

/// A call of the server to its client, in their context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCall {
    /// Of its answer too.
    pub xid: u32,
    /// Of its credential.
    pub number: u32,
    /// Of its credential.
    pub service: rpc_gss_service_t,
    /// As the client calls the context.
    pub handle: Vec<u8>,
    /// What it protects.
    pub args: Vec<u8>,
}

impl GssClient {
    /// Takes a call of the server.
    pub fn called(&mut self, record: &[u8]) -> ServerCall {
        let from = &mut Reader::new(record);
        let xid = u32::decode(from).expect("an identifier");
        assert_eq!(msg_type::decode(from), Ok(msg_type::CALL));
        let call = call_body::decode(from).expect("a call");
        assert_eq!(
            (call.cred.flavor, call.verf.flavor),
            (RPCSEC_GSS, RPCSEC_GSS)
        );
        let mic = call.verf.body.0;
        let verifier = 8 + mic.len() + pad(mic.len());
        let checked = self
            .context
            .verify_mic(&record[..from.position() - verifier], mic);
        checked.expect("the verifier is of the header");
        let credential = &mut Reader::new(call.cred.body.0);
        assert_eq!(u32::decode(credential), Ok(RPCSEC_GSS_VERS_1));
        let credential = rpc_gss_cred_vers_1_t::decode(credential).expect("a credential");
        assert_eq!(credential.gss_proc, rpc_gss_proc_t::RPCSEC_GSS_DATA);
        let by = (credential.service, credential.seq_num);
        ServerCall {
            xid,
            number: credential.seq_num,
            service: credential.service,
            handle: credential.handle.0.to_vec(),
            args: self.opened(from.rest(), by),
        }
    }

    /// The answer to a call of the server, with these results.
    pub fn answer_called(&mut self, call: &ServerCall, results: &[u8]) -> Vec<u8> {
        let mut mic = Vec::new();
        let number = call.number.to_be_bytes();
        self.context.mic(&number, &mut mic).expect("it always can");
        let mut bytes = Vec::new();
        call.xid.encode(&mut bytes);
        msg_type::REPLY.encode(&mut bytes);
        reply_stat::MSG_ACCEPTED.encode(&mut bytes);
        let verifier = opaque_auth {
            flavor: RPCSEC_GSS,
            body: Opaque(&mic),
        };
        verifier.encode(&mut bytes);
        accept_stat::SUCCESS.encode(&mut bytes);
        self.put_protected(&mut bytes, results, (call.service, call.number));
        bytes
    }
}

/// Writes a credential over the empty one, and no verifier yet.
fn put_credential(header: &mut Vec<u8>, credential: &[u8]) {
    // An empty credential's length and an empty verifier stand at its end.
    header.truncate(header.len() - 12);
    put_opaque(header, credential);
}

fn put_opaque(to: &mut Vec<u8>, bytes: &[u8]) {
    (bytes.len() as u32).encode(to);
    to.extend_from_slice(bytes);
    to.extend_from_slice(&[0; 3][..pad(bytes.len())]);
}

fn take_opaque(from: &mut Reader<'_>) -> Vec<u8> {
    let len = u32::decode(from).expect("a length");
    from.opaque(len as usize).expect("as many bytes").to_vec()
}

fn none() -> opaque_auth<'static> {
    opaque_auth {
        flavor: AUTH_NONE,
        body: Opaque(&[]),
    }
}

/// The status of an answer and its verifier; `None` if its call was not let in.
fn accepted(from: &mut Reader<'_>) -> Option<(accepted_body, Vec<u8>)> {
    from.take(8).expect("identifier and type");
    match reply_body::decode(from).expect("an answer") {
        reply_body::MSG_ACCEPTED(accepted) => Some((accepted.body, accepted.verf.body.0.to_vec())),
        reply_body::MSG_DENIED(_) => None,
    }
}
