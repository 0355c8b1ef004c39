//! What a certificate says.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The kinds of subject alternative names that clients are known by, as OpenSSL writes them.
pub const SAN_KINDS: [&str; 3] = ["DNS", "URI", "email"];

/// What is known of one.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its subject alternative names of [`SAN_KINDS`], such as `DNS:storage.example.org`.
    pub names: Vec<String>,
    /// What tells its owner from others: the first of `names`; else its subject, as
    /// `CN=storage,O=Example`, and the alternative names of other kinds; its key where it names
    /// nothing.
    pub owner: String,
    not_before: SystemTime,
    not_after: SystemTime,
    der: CertificateDer<'static>,
}

impl Certificate {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(der: &CertificateDer<'_>) -> Result<Certificate, String> {
        let read = x509_cert::Certificate::from_der(der);
        let read = read.map_err(|error| format!("no certificate of X.509: {error}"))?;
        let read = read.tbs_certificate();
        let names = read.get_extension::<SubjectAltName>();
        let names = names.map_err(|error| format!("its subject alternative names: {error}"))?;
        let alternatives = names.map_or_else(Vec::new, |(_, SubjectAltName(names))| names);
        let key = read.subject_public_key_info().to_der();
        let key = key.map_err(|error| format!("its key: {error}"))?;
        Ok(Certificate {
            names: alternatives.iter().filter_map(name_of).collect(),
            owner: owner_of(&alternatives, &read.subject().to_string(), &key),
            not_before: read.validity().not_before.to_system_time(),
            not_after: read.validity().not_after.to_system_time(),
            der: der.clone().into_owned(),
        })
    }

    /// Whether a client that asks for this name or address takes it.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(parsed), Ok(name)) = (
            ParsedCertificate::try_from(&self.der),
            ServerName::try_from(name),
        ) else {
            return false;
        };
        rustls::client::verify_server_name(&parsed, &name).is_ok()
    }

    /// The first DNS name that is none of many.
    #[must_use]
    pub fn dns_name(&self) -> Option<&str> {
        let mut names = self.names.iter();
        names.find_map(|name| name.strip_prefix("DNS:").filter(|name| !name.contains('*')))
    }

    /// Why nobody takes it at a time: its days are over, or have not come.
    #[must_use]
    pub fn is_out_of_time(&self, now: SystemTime) -> Option<String> {
        let days = |long: Duration| long.as_secs() / 86_400;
        if let Ok(ago) = now.duration_since(self.not_after)
            && !ago.is_zero()
        {
            return Some(format!("has expired, {} days ago", days(ago)));
        }
        let early = self.not_before.duration_since(now).ok();
        let early = early.filter(|early| !early.is_zero())?;
        Some(format!("is not valid yet, for {} days", days(early)))
    }
}

/// A name as OpenSSL writes it. Names of DNS mean the same in lower case.
fn name_of(name: &GeneralName) -> Option<String> {
    let [dns, uri, email] = SAN_KINDS;
    match name {
        GeneralName::DnsName(name) => Some(format!("{dns}:{}", name.as_str().to_ascii_lowercase())),
        GeneralName::UniformResourceIdentifier(name) => Some(format!("{uri}:{}", name.as_str())),
        GeneralName::Rfc822Name(name) => Some(format!("{email}:{}", name.as_str())),
        _ => None,
    }
}

/// As [`Certificate::owner`].
fn owner_of(alternatives: &[GeneralName], subject: &str, key: &[u8]) -> String {
    if let Some(name) = alternatives.iter().find_map(name_of) {
        return name;
    }
    let subject = (!subject.is_empty()).then(|| subject.to_owned());
    let parts: Vec<_> = subject
        .into_iter()
        .chain(alternatives.iter().map(other_name_of))
        .collect();
    match parts.is_empty() {
        true => format!("key:{}", hexadecimal(key)),
        false => parts.join(","),
    }
}

/// A name of a kind that is not of [`SAN_KINDS`].
fn other_name_of(name: &GeneralName) -> String {
    let address = match name {
        GeneralName::IpAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from))
                .ok()
        }
        _ => None,
    };
    match address {
        Some(address) => format!("IP:{address}"),
        None => format!("SAN:{}", hexadecimal(&name.to_der().unwrap_or_default())),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use x509_cert::der::asn1::{Ia5String, ObjectIdentifier, OctetString};

    use super::*;

    /// Two machines whose certificates differ in nothing that clients are allowed by are two.
    #[test]
    fn owners_differ_wherever_certificates_name_different_things() {
        let ip = |bytes: &[u8]| GeneralName::IpAddress(OctetString::new(bytes).expect("short"));
        let dns = GeneralName::DnsName(Ia5String::new("A.example").expect("ASCII"));
        let registered = |id| GeneralName::RegisteredId(ObjectIdentifier::new_unwrap(id));
        let owners = [
            (vec![ip(&[10, 0, 0, 5]), dns], "CN=x", "DNS:a.example"),
            (vec![ip(&[10, 0, 0, 5])], "CN=x", "CN=x,IP:10.0.0.5"),
            (vec![ip(&[10, 0, 0, 6])], "CN=x", "CN=x,IP:10.0.0.6"),
            (vec![ip(&[10, 0, 0, 6])], "", "IP:10.0.0.6"),
            (vec![ip(&[1; 16])], "", "IP:101:101:101:101:101:101:101:101"),
            (vec![ip(&[1])], "", "SAN:870101"),
            (vec![registered("1.2.3")], "", "SAN:88022a03"),
            (vec![registered("1.2.4")], "", "SAN:88022a04"),
            (vec![], "CN=x", "CN=x"),
            (vec![], "", "key:0102"),
        ];
        for (alternatives, subject, owner) in owners {
            assert_eq!(owner_of(&alternatives, subject, &[1, 2]), owner);
        }
    }
}
