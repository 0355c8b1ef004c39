//! The side of a client.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use auth::gss::GssContext;

use crate::KerberosError;
use crate::calls::{Context, Credential, Name};
use crate::established::Established;
use crate::library::library;

/// Where a client's tickets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A file of tickets, as `kinit` writes it.
    Cache(PathBuf),
    /// A file of keys: the tickets are asked for, and kept in memory.
    Keytab(PathBuf),
}

/// Begins contexts with one service.
pub struct Initiator {
    credential: Credential,
    target: Name,
}

/// How a context that was begun stands.
pub enum InitiateStep {
    /// The acceptor is to get this token, and its answer belongs to the next step.
    Continue {
        /// For the acceptor.
        token: Vec<u8>,
        /// The context so far.
        unfinished: Begun,
    },
    /// The context is established.
    Done {
        /// For the acceptor, if it is not empty.
        token: Vec<u8>,
        /// For the messages to come.
        context: Box<dyn GssContext>,
    },
}

/// A context that is not established yet.
pub struct Begun(Context);

impl Initiator {
    /// As `principal`, `user@REALM`, with the service `target`, `nfs@HOST`. It blocks.
    ///
    /// # Errors
    /// What is wrong with the library, or with what the tickets come from.
    pub fn open(keys: &Keys, principal: &str, target: &str) -> Result<Initiator, KerberosError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let functions = library()?;
        let name = Name::of_principal(functions, principal).map_err(KerberosError::Failed)?;
        let (Keys::Cache(path) | Keys::Keytab(path)) = keys;
        let place = format!("FILE:{}", path.display());
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = format!("MEMORY:weft-{number}");
        let places: &[(&str, &str)] = match keys {
            Keys::Cache(_) => &[("ccache", &place)],
            Keys::Keytab(_) => &[("client_keytab", &place), ("ccache", &memory)],
        };
        let credential = Credential::to_initiate(&name, places);
        let credential = credential.map_err(|failure| KerberosError::Keys {
            file: path.clone(),
            failure,
        })?;
        let target = Name::of_service(functions, target).map_err(KerberosError::Failed)?;
        Ok(Initiator { credential, target })
    }

    /// The next step of a context, with what the acceptor answered; nothing begins one. It
    /// blocks.
    ///
    /// # Errors
    /// What the KDC, the acceptor or the library refuses.
    pub fn step(
        &self,
        unfinished: Option<Begun>,
        token: &[u8],
    ) -> Result<InitiateStep, KerberosError> {
        let new = || Context::new(self.credential.functions());
        let mut context = unfinished.map_or_else(new, |begun| begun.0);
        let step = context.initiate(&self.credential, &self.target, token);
        let token = step.token;
        Ok(match step.is_established.map_err(KerberosError::Failed)? {
            false => InitiateStep::Continue {
                token,
                unfinished: Begun(context),
            },
            true => {
                let established = Established::new(context, |_| Ok(None));
                InitiateStep::Done {
                    token,
                    context: Box::new(established.map_err(KerberosError::Failed)?),
                }
            }
        })
    }
}
