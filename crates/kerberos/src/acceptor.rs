//! The side of a server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use auth::FileAccess;
use auth::gss::{ContextStep, Unfinished};
use auth::gss_acceptor::{AcceptError, GssAcceptor};

use crate::calls::{Context, Credential, Name};
use crate::established::Established;
use crate::library::library;
use crate::{Failure, KerberosError, Users};

/// Accepts contexts for a service with the keys of a keytab.
///
/// The keytab is read anew for each context: keys that are added to it need no more than that.
/// There is no replay cache: a token that is sent again makes a context whose key the sender does
/// not have, and RPCSEC_GSS takes nothing without it (RFC 2203, section 5.3.3.1). A cache would be
/// a file to write for each context, and would refuse two clients at one moment by mistake.
pub struct Acceptor {
    keytab: PathBuf,
    credential: Credential,
    users: Users,
}

impl Acceptor {
    /// Opens `keytab` for `service`: `nfs@HOST`, or `nfs` for whatever hosts it has keys of that
    /// service. It blocks.
    ///
    /// # Errors
    /// What is wrong with the library, the file or its keys.
    pub fn open(keytab: &Path, service: &str, users: Users) -> Result<Acceptor, KerberosError> {
        check_private(keytab).map_err(KerberosError::Keytab)?;
        let functions = library()?;
        let of_keys = |failure| KerberosError::Keys {
            file: keytab.to_owned(),
            failure,
        };
        let name = Name::of_service(functions, service).map_err(KerberosError::Failed)?;
        let place = format!("FILE:{}", keytab.display());
        let places = [("keytab", place.as_str()), ("rcache", "none:")];
        let credential = Credential::to_accept(&name, &places).map_err(of_keys)?;
        Ok(Acceptor {
            keytab: keytab.to_owned(),
            credential,
            users,
        })
    }

    fn establish(&self, context: Context) -> Result<Established, Failure> {
        Established::new(context, |client| {
            let user = self.users.user_of(client);
            user.map_err(|errno| Failure::of_users(client, errno))
        })
    }
}

impl GssAcceptor for Acceptor {
    fn step(
        &self,
        unfinished: Option<Unfinished>,
        token: &[u8],
    ) -> Result<ContextStep, AcceptError> {
        let failed = |failure: Failure, token| AcceptError {
            major: failure.major,
            minor: failure.minor,
            token,
            // The library does not say what to do about a file that is gone.
            why: check_private(&self.keytab)
                .err()
                .unwrap_or_else(|| failure.to_string()),
        };
        let mut context = match unfinished {
            None => Context::new(self.credential.functions()),
            Some(Unfinished(begun)) => *begun.downcast().expect("a context that began here"),
        };
        let step = context.accept(&self.credential, token);
        let token = step.token;
        match step.is_established {
            Err(failure) => Err(failed(failure, token)),
            Ok(false) => Ok(ContextStep::Continue {
                token,
                unfinished: Unfinished(Box::new(context)),
            }),
            Ok(true) => match self.establish(context) {
                Err(failure) => Err(failed(failure, Vec::new())),
                Ok(established) => Ok(ContextStep::Done {
                    token,
                    context: Box::new(established),
                }),
            },
        }
    }
}

/// A file of keys that other users may not read or write.
fn check_private(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| {
        format!("keytab {shown} cannot be read: {error}: `ktadd -k {shown} nfs/HOST` at the KDC makes one")
    })?;
    if !about.is_file() {
        return Err(format!("keytab {shown} is no file"));
    }
    let access = FileAccess {
        owner: about.uid(),
        mode: about.mode(),
    };
    access.check_private(&shown.to_string())
}
