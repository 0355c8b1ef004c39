//! By what a volume's keys are wrapped, as its description says.

use crypt::WrappingKey;

/// By what the data key of a volume is wrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionSettings {
    /// By this; or why it could not be read, and what to do: the volume is locked then.
    pub key: Result<WrappingKey, String>,
    /// By this before, likewise. What is wrapped by it still is wrapped anew by `key`.
    pub former: Option<Result<WrappingKey, String>>,
}

impl EncryptionSettings {
    /// Why one of the two could not be read, and what to do.
    #[must_use]
    pub fn unread(&self) -> Option<&String> {
        let former = self
            .former
            .as_ref()
            .and_then(|former| former.as_ref().err());
        self.key.as_ref().err().or(former)
    }
}
