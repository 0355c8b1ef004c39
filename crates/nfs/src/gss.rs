//! Security contexts of RPCSEC_GSS (RFC 2203) that a server has, by handle. All its
//! connections share them: a client uses one context on several.

pub(crate) mod service;
mod table;
mod window;

pub(crate) use service::BEHIND_BYTES;
pub use table::{Context, Contexts, ContextsSettings, InitAnswer};

/// Calls that a client may have under way in a context, as it is told (RFC 2203, section
/// 5.2.3.1). More are remembered: calls of several connections overtake each other.
pub const WINDOW_TOLD: u32 = 128;

/// Major status codes of GSS-API (RFC 2744, section 3.9.1), as far as weft says them
/// itself.
pub mod major {
    /// The context is made.
    pub const COMPLETE: u32 = 0;
    /// A further token is wanted.
    pub const CONTINUE_NEEDED: u32 = 1;
    /// A failure that has no code of its own.
    pub const FAILURE: u32 = 13 << 16;
}
