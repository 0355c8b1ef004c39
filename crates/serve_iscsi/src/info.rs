//! What an administrator may want to know of a connection.

use iscsi::SessionKind;

use super::IscsiConnection;

/// The place of a connection in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPlace {
    /// Target Session Identifying Handle.
    pub tsih: u16,
    /// Connection ID.
    pub cid: u16,
    /// What the session is for.
    pub kind: SessionKind,
}

impl IscsiConnection {
    /// Its place in its session since its login.
    pub fn session_place(&self) -> Option<SessionPlace> {
        let bound = self.bound.as_ref()?;
        Some(SessionPlace {
            tsih: bound.tsih,
            cid: bound.cid,
            kind: bound.kind,
        })
    }
}
