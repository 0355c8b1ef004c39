//! What a client is told of requests that fail, and why a connection ends.

use wire::nbd::nbd_error;

/// Why a request failed, as its reply says it (section "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdError {
    /// Its number on the wire.
    pub code: u32,
    /// The same for people, where the reply has room for it.
    pub text: &'static str,
}

impl NbdError {
    /// The export is not to be written.
    pub const READ_ONLY: NbdError = NbdError::new(nbd_error::EPERM, "the export is read-only");
    /// Another host has reserved the volume.
    pub const RESERVATION: NbdError =
        NbdError::new(nbd_error::EPERM, "another host has reserved the volume");
    /// The volume is encrypted, and its key is missing.
    pub const LOCKED: NbdError = NbdError::new(nbd_error::EIO, "the volume is locked");
    /// Data could not be read or written.
    pub const IO: NbdError = NbdError::new(nbd_error::EIO, "the volume failed");
    /// There is no memory for it now.
    pub const NO_MEMORY: NbdError = NbdError::new(nbd_error::ENOMEM, "no memory: try again");
    /// Nothing is asked for.
    pub const EMPTY: NbdError = NbdError::new(nbd_error::EINVAL, "the length is 0");
    /// It begins or ends inside a block.
    pub const UNALIGNED: NbdError = NbdError::new(
        nbd_error::EINVAL,
        "offset or length is no multiple of the minimum block size",
    );
    /// It ends behind the export.
    pub const BEYOND: NbdError = NbdError::new(nbd_error::EINVAL, "it ends behind the export");
    /// The same of what writes.
    pub const NO_SPACE_BEYOND: NbdError =
        NbdError::new(nbd_error::ENOSPC, "it ends behind the export");
    /// What lies below the volume is full.
    pub const NO_SPACE: NbdError = NbdError::new(nbd_error::ENOSPC, "no space is left");
    /// A flag that the request may not have.
    pub const FLAGS: NbdError =
        NbdError::new(nbd_error::EINVAL, "the request may not have these flags");
    /// A request that there is not.
    pub const UNKNOWN: NbdError = NbdError::new(nbd_error::EINVAL, "there is no such request");
    /// Offset and length are reserved.
    pub const RESERVED: NbdError =
        NbdError::new(nbd_error::EINVAL, "a flush has offset 0 and length 0");
    /// No context was chosen in the handshake.
    pub const NO_CONTEXT: NbdError =
        NbdError::new(nbd_error::EINVAL, "no metadata context was selected");
    /// A payload where none belongs, or of a wrong form.
    pub const PAYLOAD: NbdError = NbdError::new(nbd_error::EINVAL, "the payload is wrong");
    /// More than one reply has.
    pub const TOO_LONG: NbdError = NbdError::new(
        nbd_error::EOVERFLOW,
        "it is longer than the maximum payload",
    );
    /// It is not faster than a write.
    pub const NOT_FAST: NbdError =
        NbdError::new(nbd_error::ENOTSUP, "it is no faster than a write");
    /// The server, or what it serves here, ends.
    pub const SHUTDOWN: NbdError =
        NbdError::new(nbd_error::ESHUTDOWN, "the export is being closed");

    const fn new(code: u32, text: &'static str) -> NbdError {
        NbdError { code, text }
    }
}

/// Why a connection ends before its client says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatalError {
    /// Client flags that were not offered (section "Newstyle negotiation").
    #[error("the client sets flags that there are not: {0:#x}")]
    ClientFlags(u32),
    /// An option without its magic.
    #[error("the client does not speak NBD: an option has no magic")]
    OptionMagic,
    /// An option longer than any that there is.
    #[error("an option has {0} bytes of data")]
    OptionTooLong(u32),
    /// The handshake goes on and on.
    #[error("more options than a handshake needs")]
    TooManyOptions,
    /// The client said nothing for too long, or all that it said was no choice of an export.
    #[error("no export was chosen in time")]
    HandshakeTimeout,
    /// NBD_OPT_EXPORT_NAME of no export that the client may have: no error can be told.
    #[error("there is no such export")]
    NoExport,
    /// No client is let in for now.
    #[error("weft is drained, and lets no client in: `weft drain --end` ends that")]
    Drained,
    /// NBD_OPT_EXPORT_NAME with extended headers, or with a name that is none.
    #[error("NBD_OPT_EXPORT_NAME is malformed, or has no place after NBD_OPT_EXTENDED_HEADERS")]
    ExportName,
    /// NBD_OPT_EXPORT_NAME in the clear where TLS is required: no error can be told.
    #[error(
        "NBD_OPT_EXPORT_NAME in the clear, and this listener wants TLS (`tls = \"required\"`): \
         connect by nbds://"
    )]
    TlsRequired,
    /// NBD_OPT_STARTTLS where TLS is required, and not spoken yet.
    #[error(
        "it begins with TLS, which this listener requires (`tls = \"required\"`), and [nbd.tls] holds \
         from the next start of weft on: restart weft"
    )]
    TlsAwaited,
    /// Bytes in the clear between NBD_OPT_STARTTLS and the handshake of TLS: another than the
    /// client may have put them there.
    #[error("bytes in the clear behind NBD_OPT_STARTTLS, before it has an answer")]
    BehindStartTls,
    /// A request without its magic.
    #[error("a request has no magic")]
    RequestMagic,
    /// A payload that is longer than the maximum.
    #[error("a payload of {0} bytes is longer than the maximum")]
    PayloadTooLong(u64),
}
