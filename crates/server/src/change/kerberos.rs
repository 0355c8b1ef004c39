//! How NFS clients' users prove who they are.

use ::kerberos::{Acceptor, KerberosError, UserDatabase, Users};
use serve_nfs::Service;

use super::*;

impl Shared {
    pub(super) fn set_kerberos(
        &self,
        settings: Option<&KerberosSettings>,
    ) -> Result<Left, ChangeError> {
        set(&self.nfs, settings).map_err(ChangeError::Kerberos)?;
        Ok(Left::Nothing)
    }
}

/// Has NFS take contexts by the keys that the settings name, and tell owners by the names of
/// their domain. It blocks.
pub(crate) fn set(nfs: &Service, settings: Option<&KerberosSettings>) -> Result<(), KerberosError> {
    let Some(settings) = settings else {
        nfs.set_acceptor(None);
        nfs.set_accounts(None, Arc::new(UserDatabase));
        return Ok(());
    };
    let acceptor = acceptor(settings)?;
    nfs.set_accounts(settings.domain.as_deref(), Arc::new(UserDatabase));
    nfs.set_acceptor(Some(Arc::new(acceptor)));
    Ok(())
}

/// What makes contexts by the keys that the settings name. It blocks.
pub(crate) fn acceptor(settings: &KerberosSettings) -> Result<Acceptor, KerberosError> {
    let users = Users::new(&settings.realm);
    Acceptor::open(&settings.keytab, &settings.service, users)
}
