//! Both sides of a connection, as rustls wants them.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::certificate::Certificate;
use crate::pem::{ClientAuthorities, Identity, roots};
use crate::words::problem_of;

/// What a server shows, and asks of its clients.
#[derive(Clone, Debug)]
pub struct ServerSide {
    /// For rustls.
    pub config: Arc<ServerConfig>,
    /// What it shows.
    pub certificate: Certificate,
}

impl ServerSide {
    /// With `clients`, a client may show a certificate that they have signed; one that shows
    /// another is refused, and one that shows none is let in without a name.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub fn new(
        identity: Identity,
        clients: Option<ClientAuthorities>,
    ) -> Result<ServerSide, String> {
        let certificate = Certificate::new(&identity.chain[0])?;
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(ClientAuthorities { roots, crls }) => {
                WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .with_crls(crls)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| format!("clients cannot be verified: {error}"))?
            }
        };
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_protocol_versions(&[&TLS13]);
        let mut config = builder
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|error| problem_of(&error))?;
        // A session that goes on later would look at no certificate.
        config.send_tls13_tickets = 0;
        Ok(ServerSide {
            config: Arc::new(config),
            certificate,
        })
    }
}

/// What a client takes of a server, and shows.
///
/// # Errors
/// What of it cannot be used.
pub fn client_side(ca: &Path, identity: Option<Identity>) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&TLS13]);
    let builder = builder
        .expect("the provider has suites of TLS 1.3")
        .with_root_certificates(roots(ca)?);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { chain, key }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| problem_of(&error))?,
    };
    Ok(Arc::new(config))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
