//! Both sides of a connection, as rustls wants them.

use std::path::Path;
use std::sync::Arc;

use auth::Secret;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, KeyLog, ServerConfig};

use crate::certificate::Certificate;
use crate::pem::{ClientAuthorities, Identity, roots};
use crate::traffic_secrets::note;
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
        ServerSide::of(identity, clients, TlsUse::Administration)
    }

    /// The same of RPC-with-TLS (RFC 9289), whose records are weft's own.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub fn for_rpc(
        identity: Identity,
        clients: Option<ClientAuthorities>,
    ) -> Result<ServerSide, String> {
        ServerSide::of(identity, clients, TlsUse::Rpc)
    }

    /// The same of NBD (NBD_OPT_STARTTLS), which has no protocol of its own in TLS.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub fn for_nbd(
        identity: Identity,
        clients: Option<ClientAuthorities>,
    ) -> Result<ServerSide, String> {
        ServerSide::of(identity, clients, TlsUse::Nbd)
    }

    fn of(
        identity: Identity,
        clients: Option<ClientAuthorities>,
        tls_use: TlsUse,
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
        let builder = ServerConfig::builder_with_provider(tls_use.provider());
        let builder = builder.with_protocol_versions(&[&TLS13]);
        let mut config = builder
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .map_err(|error| problem_of(&error))?;
        // A session that goes on later would look at no certificate.
        config.send_tls13_tickets = 0;
        if let TlsUse::Rpc = tls_use {
            config.alpn_protocols = alpn_of_rpc();
        }
        if let TlsUse::Rpc | TlsUse::Nbd = tls_use {
            config.key_log = Arc::new(NotedSecrets);
        }
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
    client_of(ca, identity, TlsUse::Administration).map(Arc::new)
}

/// The same of RPC-with-TLS (RFC 9289), whose records are weft's own.
///
/// # Errors
/// What of it cannot be used.
pub fn rpc_client_side(ca: &Path, identity: Option<Identity>) -> Result<Arc<ClientConfig>, String> {
    let mut config = client_of(ca, identity, TlsUse::Rpc)?;
    config.alpn_protocols = alpn_of_rpc();
    config.key_log = Arc::new(NotedSecrets);
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn client_of(
    ca: &Path,
    identity: Option<Identity>,
    tls_use: TlsUse,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(tls_use.provider());
    let builder = builder.with_protocol_versions(&[&TLS13]);
    let builder = builder
        .expect("the provider has suites of TLS 1.3")
        .with_root_certificates(roots(ca)?);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(Identity { chain, key }) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| problem_of(&error)),
    }
}

/// What TLS is spoken for.
#[derive(Clone, Copy)]
enum TlsUse {
    Administration,
    Rpc,
    Nbd,
}

impl TlsUse {
    /// Of RPC and NBD as far as [`crate::records`] have its ciphers.
    fn provider(self) -> Arc<CryptoProvider> {
        match self {
            TlsUse::Administration => provider(),
            TlsUse::Rpc | TlsUse::Nbd => Arc::new(CryptoProvider {
                cipher_suites: vec![
                    cipher_suite::TLS13_AES_256_GCM_SHA384,
                    cipher_suite::TLS13_AES_128_GCM_SHA256,
                ],
                ..aws_lc_rs::default_provider()
            }),
        }
    }
}

/// The protocol of RPC in TLS (RFC 9289, section 8.2).
fn alpn_of_rpc() -> Vec<Vec<u8>> {
    vec![b"sunrpc".to_vec()]
}

/// Takes the secrets of handshakes.
#[derive(Debug)]
struct NotedSecrets;

impl KeyLog for NotedSecrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        note(label.as_bytes(), || Some(Secret::new(secret)));
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
