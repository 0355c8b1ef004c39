//! How NFS clients' users prove who they are.

use ::kerberos::{Acceptor, KerberosError, Users};
use auth::gss_acceptor::GssAcceptor;

use super::*;

impl Shared {
    pub(super) fn set_kerberos(
        &self,
        settings: Option<&KerberosSettings>,
    ) -> Result<Left, ChangeError> {
        let acceptor = settings.map(acceptor).transpose();
        self.nfs
            .set_acceptor(acceptor.map_err(ChangeError::Kerberos)?);
        Ok(Left::Nothing)
    }
}

/// What makes contexts by the keys that the settings name. It blocks.
pub(crate) fn acceptor(settings: &KerberosSettings) -> Result<Arc<dyn GssAcceptor>, KerberosError> {
    let users = Users::new(&settings.realm);
    let acceptor = Acceptor::open(&settings.keytab, &settings.service, users)?;
    Ok(Arc::new(acceptor))
}
