//! Calls of the library that none but it and the handles here see the pointers of.

use std::ffi::{CString, c_int};
use std::ops::Range;
use std::ptr::null_mut;

use crate::library::{Buffer, Functions, KeyValue, KeyValueSet, Oid, OidSet, Opaque, Part};
use crate::words::{self, Failure};

/// Bits of a major status that are an error; the others tell something (RFC 2744, section 3.9.1).
const ERRORS: u32 = 0xffff_0000;
/// The context needs another token.
const CONTINUE_NEEDED: u32 = 1;

/// Use of a credential: to begin contexts, or to accept them.
const INITIATE: c_int = 1;
const ACCEPT: c_int = 2;

/// What an initiator asks of a context (RFC 2744, section 5.19): that the acceptor proves
/// itself, MIC and Wrap. RPCSEC_GSS has sequence numbers of its own, and its messages may be
/// lost or change their order: the mechanism must not look for that (RFC 2203, section 5.2.2).
const FLAGS: u32 = 2 | 16 | 32;

/// The Kerberos mechanism (RFC 1964, section 1).
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// A name `service@host` (RFC 2744, section 4.1).
const HOST_BASED: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];
/// A name `user@REALM` (RFC 1964, section 2.1.1).
const PRINCIPAL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01];

/// Kinds of parts of messages, of MIT's `gssapi_ext.h`.
const DATA: u32 = 1;
const HEADER: u32 = 2;
const TRAILER: u32 = 7;
const PADDING: u32 = 9;
const STREAM: u32 = 10;
const MIC_TOKEN: u32 = 12;

/// The parts of a token that encrypts, in their order.
const WRAPPED: [u32; 4] = [HEADER, DATA, PADDING, TRAILER];

fn oid(bytes: &'static [u8]) -> Oid {
    Oid {
        length: bytes.len() as u32,
        elements: bytes.as_ptr().cast(),
    }
}

/// Bytes that the library only reads.
fn lent(bytes: &[u8]) -> Buffer {
    Buffer {
        length: bytes.len(),
        value: bytes.as_ptr().cast_mut().cast(),
    }
}

fn part(kind: u32, bytes: &[u8]) -> Part {
    let buffer = lent(bytes);
    Part { kind, buffer }
}

/// A part that the library writes.
fn written(kind: u32, bytes: &mut [u8]) -> Part {
    let buffer = Buffer {
        length: bytes.len(),
        value: bytes.as_mut_ptr().cast(),
    };
    Part { kind, buffer }
}

/// Bytes that the library made, released with it.
struct Made(&'static Functions, Buffer);

impl Made {
    fn new(functions: &'static Functions) -> Made {
        let (length, value) = (0, null_mut());
        Made(functions, Buffer { length, value })
    }

    fn bytes(&self) -> Vec<u8> {
        if self.1.value.is_null() {
            return Vec::new();
        }
        // SAFETY: the library gave as many bytes there, which are released with `self`.
        unsafe { std::slice::from_raw_parts(self.1.value.cast(), self.1.length) }.to_vec()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: a buffer of the library's, or an empty one, which it leaves alone.
        unsafe { (self.0.gss_release_buffer)(&mut 0, &mut self.1) };
    }
}

/// Whether a call did what it should; else what the library says of it on this thread.
fn check(functions: &'static Functions, major: u32, minor: u32) -> Result<(), Failure> {
    match major & ERRORS {
        0 => Ok(()),
        _ => Err(words::failure(major, minor, |status, is_minor| {
            display_status(functions, status, is_minor)
        })),
    }
}

/// The library's own words for a status: the first message of those that it has.
fn display_status(functions: &'static Functions, status: u32, is_minor: bool) -> String {
    let (mut minor, mut more, mut made) = (0, 0, Made::new(functions));
    let (kind, mechanism) = (1 + c_int::from(is_minor), oid(KERBEROS));
    // SAFETY: all that is pointed to lives as long as the call.
    unsafe {
        (functions.gss_display_status)(&mut minor, status, kind, &mechanism, &mut more, &mut made.1)
    };
    String::from_utf8_lossy(&made.bytes()).into_owned()
}

/// A name.
pub(crate) struct Name(&'static Functions, Opaque);

// SAFETY: no call changes a name, and the library locks what it adds to one.
unsafe impl Send for Name {}
// SAFETY: as above.
unsafe impl Sync for Name {}

impl Name {
    /// None: the library takes whatever it finds.
    pub fn none(functions: &'static Functions) -> Name {
        Name(functions, null_mut())
    }

    /// `service@host`, or `service` of any host.
    pub fn of_service(functions: &'static Functions, name: &str) -> Result<Name, Failure> {
        Name::import(functions, name, &oid(HOST_BASED))
    }

    /// `user@REALM`.
    pub fn of_principal(functions: &'static Functions, name: &str) -> Result<Name, Failure> {
        Name::import(functions, name, &oid(PRINCIPAL))
    }

    fn import(functions: &'static Functions, name: &str, kind: &Oid) -> Result<Name, Failure> {
        let (mut minor, mut made) = (0, Name(functions, null_mut()));
        let bytes = lent(name.as_bytes());
        // SAFETY: all that is pointed to lives as long as the call, which keeps a copy.
        let major = unsafe { (functions.gss_import_name)(&mut minor, &bytes, kind, &mut made.1) };
        check(functions, major, minor).map(|()| made)
    }

    /// As `user@REALM`.
    fn display(&self) -> Result<String, Failure> {
        let (mut minor, mut made) = (0, Made::new(self.0));
        // SAFETY: the name is there until `self` goes; the buffer lives as long as the call.
        let major =
            unsafe { (self.0.gss_display_name)(&mut minor, self.1, &mut made.1, null_mut()) };
        check(self.0, major, minor)?;
        Ok(String::from_utf8_lossy(&made.bytes()).into_owned())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: a name of the library's, or none, which it leaves alone.
        unsafe { (self.0.gss_release_name)(&mut 0, &mut self.1) };
    }
}

/// What proves whom this process acts for.
pub(crate) struct Credential(&'static Functions, Opaque);

// SAFETY: the library locks a credential while it uses it, so that threads may share it.
unsafe impl Send for Credential {}
// SAFETY: as above.
unsafe impl Sync for Credential {}

impl Credential {
    /// The library that it is of.
    pub fn functions(&self) -> &'static Functions {
        self.0
    }

    /// Of an acceptor: keys of a service, from places that the library knows by these keys.
    pub fn to_accept(name: &Name, places: &[(&str, &str)]) -> Result<Credential, Failure> {
        Credential::acquire(name, ACCEPT, places)
    }

    /// Of an initiator.
    pub fn to_initiate(name: &Name, places: &[(&str, &str)]) -> Result<Credential, Failure> {
        Credential::acquire(name, INITIATE, places)
    }

    fn acquire(name: &Name, usage: c_int, places: &[(&str, &str)]) -> Result<Credential, Failure> {
        let functions = name.0;
        let text = |text: &str| CString::new(text).map_err(|_| Failure::default());
        let mut texts = Vec::new();
        for (key, value) in places {
            texts.push((text(key)?, text(value)?));
        }
        let pointers = texts.iter().map(|(key, value)| KeyValue {
            key: key.as_ptr(),
            value: value.as_ptr(),
        });
        let pointers: Vec<KeyValue> = pointers.collect();
        let places = KeyValueSet {
            count: pointers.len() as u32,
            elements: pointers.as_ptr(),
        };
        // A set of none is an error; without a set the library looks where it always does.
        let places = match pointers.is_empty() {
            true => std::ptr::null(),
            false => &raw const places,
        };
        let mechanism = oid(KERBEROS);
        let mechanisms = OidSet {
            count: 1,
            elements: &mechanism,
        };
        let (mut minor, mut made) = (0, Credential(functions, null_mut()));
        // SAFETY: all that is pointed to lives as long as the call.
        let major = unsafe {
            (functions.gss_acquire_cred_from)(
                &mut minor,
                name.1,
                0,
                &mechanisms,
                usage,
                places,
                &mut made.1,
                null_mut(),
                null_mut(),
            )
        };
        check(functions, major, minor).map(|()| made)
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        // SAFETY: a credential of the library's, or none, which it leaves alone.
        unsafe { (self.0.gss_release_cred)(&mut 0, &mut self.1) };
    }
}

/// A security context, established or not.
pub(crate) struct Context(&'static Functions, Opaque);

// SAFETY: the library ties no context to a thread; none is shared, as its calls take `&mut`.
unsafe impl Send for Context {}

/// A token for the other side, and how the context stands.
pub(crate) struct Step {
    pub token: Vec<u8>,
    /// Whether it is established, or needs another token; or what is wrong.
    pub is_established: Result<bool, Failure>,
}

/// What is known of an established context.
pub(crate) struct About {
    /// The initiator, as `user@REALM`.
    pub initiator: String,
    /// Seconds that it is good for.
    pub lifetime_s: u32,
}

impl Context {
    pub fn new(functions: &'static Functions) -> Context {
        Context(functions, null_mut())
    }

    /// The acceptor takes a token.
    pub fn accept(&mut self, credential: &Credential, token: &[u8]) -> Step {
        let (mut minor, mut made) = (0, Made::new(self.0));
        let token = lent(token);
        // SAFETY: all that is pointed to lives as long as the call; a null pointer is for what
        // is not wanted, and for no channel bindings.
        let major = unsafe {
            (self.0.gss_accept_sec_context)(
                &mut minor,
                &mut self.1,
                credential.1,
                &token,
                null_mut(),
                null_mut(),
                null_mut(),
                &mut made.1,
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        self.step(major, minor, &made)
    }

    /// The initiator takes a token; the first is empty.
    pub fn initiate(&mut self, credential: &Credential, target: &Name, token: &[u8]) -> Step {
        let (mut minor, mut made) = (0, Made::new(self.0));
        let (token, mechanism) = (lent(token), oid(KERBEROS));
        // SAFETY: as above.
        let major = unsafe {
            (self.0.gss_init_sec_context)(
                &mut minor,
                credential.1,
                &mut self.1,
                target.1,
                &mechanism,
                FLAGS,
                0,
                null_mut(),
                &token,
                null_mut(),
                &mut made.1,
                null_mut(),
                null_mut(),
            )
        };
        self.step(major, minor, &made)
    }

    fn step(&self, major: u32, minor: u32, made: &Made) -> Step {
        Step {
            token: made.bytes(),
            is_established: check(self.0, major, minor).map(|()| major & CONTINUE_NEEDED == 0),
        }
    }

    /// About an established one.
    pub fn about(&self) -> Result<About, Failure> {
        let (mut minor, mut lifetime_s) = (0, 0);
        let mut initiator = Name(self.0, null_mut());
        // SAFETY: all that is pointed to lives as long as the call; a null pointer is for what
        // is not wanted.
        let major = unsafe {
            (self.0.gss_inquire_context)(
                &mut minor,
                self.1,
                &mut initiator.1,
                null_mut(),
                &mut lifetime_s,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        check(self.0, major, minor)?;
        let initiator = initiator.display()?;
        Ok(About {
            initiator,
            lifetime_s,
        })
    }

    /// Appends a MIC of `message` to `out`.
    pub fn mic(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let mut minor = 0;
        let mut parts = [part(DATA, message), part(MIC_TOKEN, &[])];
        // SAFETY: all that is pointed to lives as long as the call, which writes lengths alone.
        let major = unsafe {
            (self.0.gss_get_mic_iov_length)(&mut minor, self.1, 0, parts.as_mut_ptr(), 2)
        };
        check(self.0, major, minor)?;
        let start = out.len();
        out.resize(start + parts[1].buffer.length, 0);
        parts[1] = written(MIC_TOKEN, &mut out[start..]);
        // SAFETY: as above; the MIC is written to its part of `out`, as long as was asked for.
        let major =
            unsafe { (self.0.gss_get_mic_iov)(&mut minor, self.1, 0, parts.as_mut_ptr(), 2) };
        check(self.0, major, minor)
    }

    /// Checks a MIC.
    pub fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Failure> {
        let mut minor = 0;
        let mut parts = [part(DATA, message), part(MIC_TOKEN, mic)];
        // SAFETY: all that is pointed to lives as long as the call, which only reads it.
        let major = unsafe {
            (self.0.gss_verify_mic_iov)(&mut minor, self.1, null_mut(), parts.as_mut_ptr(), 2)
        };
        check(self.0, major, minor)
    }

    /// Bytes that a token has before what it encrypts: by the ciphers of RFC 3961 for AES and
    /// Camellia before a message of any length.
    pub fn wrap_ahead(&mut self) -> Result<usize, Failure> {
        Ok(self.wrap_lengths(&[])?[0])
    }

    /// Bytes of each part of the token of a message.
    fn wrap_lengths(&mut self, message: &[u8]) -> Result<[usize; 4], Failure> {
        let (mut minor, mut is_encrypted) = (0, 0);
        let mut parts = WRAPPED.map(|kind| part(kind, &[]));
        parts[1] = part(DATA, message);
        // SAFETY: all that is pointed to lives as long as the call, which writes lengths alone.
        let major = unsafe {
            (self.0.gss_wrap_iov_length)(
                &mut minor,
                self.1,
                1,
                0,
                &mut is_encrypted,
                parts.as_mut_ptr(),
                4,
            )
        };
        check(self.0, major, minor)?;
        Ok(parts.each_ref().map(|part| part.buffer.length))
    }

    /// Encrypts what ends `bytes` behind `room` in place: the token begins where `room` did.
    /// Whether it was encrypted.
    pub fn wrap(&mut self, bytes: &mut Vec<u8>, room: Range<usize>) -> Result<bool, Failure> {
        let lengths = self.wrap_lengths(&bytes[room.end..])?;
        let start = room.start;
        if room.len() != lengths[0] {
            // An old cipher says in its header how long the message is, in as many bytes as that
            // takes.
            bytes.splice(room, std::iter::repeat_n(0, lengths[0]));
        }
        bytes.resize(start + lengths.iter().sum::<usize>(), 0);
        let (mut minor, mut is_encrypted) = (0, 0);
        let mut parts = WRAPPED.map(|kind| part(kind, &[]));
        let mut rest = &mut bytes[start..];
        for (at, length) in lengths.into_iter().enumerate() {
            let (own, after) = rest.split_at_mut(length);
            parts[at] = written(WRAPPED[at], own);
            rest = after;
        }
        // SAFETY: as above; the parts are apart from each other in `bytes`, as long as was asked
        // for.
        let major = unsafe {
            (self.0.gss_wrap_iov)(
                &mut minor,
                self.1,
                1,
                0,
                &mut is_encrypted,
                parts.as_mut_ptr(),
                4,
            )
        };
        check(self.0, major, minor).map(|()| is_encrypted != 0)
    }

    /// Decrypts a token in place: where the message is in it, and whether it was encrypted.
    pub fn unwrap(&mut self, token: &mut [u8]) -> Result<(Range<usize>, bool), Failure> {
        let (mut minor, mut is_encrypted) = (0, 0);
        let mut parts = [written(STREAM, token), part(DATA, &[])];
        parts[1].buffer.value = null_mut();
        let start = parts[0].buffer.value as usize;
        // SAFETY: all that is pointed to lives as long as the call, which writes within the
        // token and makes the second part one of the first.
        let major = unsafe {
            (self.0.gss_unwrap_iov)(
                &mut minor,
                self.1,
                &mut is_encrypted,
                null_mut(),
                parts.as_mut_ptr(),
                2,
            )
        };
        check(self.0, major, minor)?;
        let data = &parts[1].buffer;
        let at = (data.value as usize).checked_sub(start);
        let range = at.map(|at| at..at.saturating_add(data.length));
        let range = match range.filter(|range| range.end <= token.len()) {
            Some(range) => range,
            None if data.length == 0 => 0..0,
            None => return Err(Failure::default()),
        };
        Ok((range, is_encrypted != 0))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: a context of the library's, or none, which it leaves alone; no token is wanted.
        unsafe { (self.0.gss_delete_sec_context)(&mut 0, &mut self.1, null_mut()) };
    }
}
