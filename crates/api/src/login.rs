//! Logins over TCP.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request for an address to log in by.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The role of the session: viewer, operator or admin. `None`: that of the caller.
    #[serde(default)]
    pub role: Option<String>,
}

/// An address that opens a session once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoginAddress {
    /// To be opened in a browser.
    pub address: String,
    /// The role of its session.
    pub role: String,
    /// How long it is good.
    pub expires_s: u64,
}
