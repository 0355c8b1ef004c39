//! A context that is established, as RPCSEC_GSS uses it.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use auth::gss::{GssContext, GssError};
use auth::user::User;

use crate::calls::Context;
use crate::words::Failure;

/// Of either side.
pub(crate) struct Established {
    context: Context,
    client: String,
    expires_at_s: u64,
    user: Option<User>,
    wrap_ahead: usize,
}

impl Established {
    /// With the user that the client is on this machine, by `user_of`.
    pub fn new(
        mut context: Context,
        user_of: impl FnOnce(&str) -> Result<Option<User>, Failure>,
    ) -> Result<Established, Failure> {
        let about = context.about()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.unwrap_or(Duration::ZERO).as_secs();
        let user = user_of(&about.initiator)?;
        Ok(Established {
            wrap_ahead: context.wrap_ahead()?,
            context,
            client: about.initiator,
            expires_at_s: now_s + u64::from(about.lifetime_s),
            user,
        })
    }
}

fn error(failure: &Failure) -> GssError {
    match failure.is_of_context() {
        true => GssError::NoContext,
        false => GssError::BadMessage,
    }
}

impl GssContext for Established {
    fn mic(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), GssError> {
        let made = self.context.mic(message, out);
        made.map_err(|failure| error(&failure))
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        let verified = self.context.verify_mic(message, mic);
        verified.map_err(|failure| error(&failure))
    }

    fn wrap_ahead(&self) -> usize {
        self.wrap_ahead
    }

    fn wrap(&mut self, bytes: &mut Vec<u8>, room: Range<usize>) -> Result<(), GssError> {
        match self.context.wrap(bytes, room) {
            Ok(true) => Ok(()),
            // A context without encryption can send nothing that is private.
            Ok(false) => Err(GssError::NoContext),
            Err(failure) => Err(error(&failure)),
        }
    }

    fn unwrap(&mut self, token: &mut [u8]) -> Result<Range<usize>, GssError> {
        match self.context.unwrap(token) {
            Ok((range, true)) => Ok(range),
            Ok((_, false)) => Err(GssError::BadMessage),
            Err(failure) => Err(error(&failure)),
        }
    }

    fn client_name(&self) -> &str {
        &self.client
    }

    fn expires_at_s(&self) -> u64 {
        self.expires_at_s
    }

    fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}
