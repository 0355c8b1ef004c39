//! The side of a client.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use auth::gss::{ContextStep, Unfinished};
use auth::gss_initiator::GssInitiator;

use crate::calls::{Context, Credential, Name};
use crate::established::Established;
use crate::library::library;
use crate::{Failure, KerberosError};

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

    /// As the user of this process, by the tickets that `kinit` has left for it (in the cache
    /// that `KRB5CCNAME` or krb5.conf names), with the service `target`. It blocks.
    ///
    /// # Errors
    /// What is wrong with the library, or that there are no tickets.
    pub fn of_user(target: &str) -> Result<Initiator, KerberosError> {
        let functions = library()?;
        let credential = Credential::to_initiate(&Name::none(functions), &[]);
        let credential = credential.map_err(KerberosError::NoTickets)?;
        let target = Name::of_service(functions, target).map_err(KerberosError::Failed)?;
        Ok(Initiator { credential, target })
    }
}

impl GssInitiator for Initiator {
    fn step(&self, unfinished: Option<Unfinished>, token: &[u8]) -> Result<ContextStep, String> {
        let mut context = match unfinished {
            None => Context::new(self.credential.functions()),
            Some(Unfinished(begun)) => *begun.downcast().expect("a context that began here"),
        };
        let step = context.initiate(&self.credential, &self.target, token);
        let token = step.token;
        let in_words = |failure: Failure| failure.to_string();
        Ok(match step.is_established.map_err(in_words)? {
            false => ContextStep::Continue {
                token,
                unfinished: Unfinished(Box::new(context)),
            },
            true => {
                let established = Established::new(context, |_| Ok(None));
                ContextStep::Done {
                    token,
                    context: Box::new(established.map_err(in_words)?),
                }
            }
        })
    }
}
