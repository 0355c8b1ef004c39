//! SendTargets.

use std::net::SocketAddr;

use reactor::Driver;

use super::{Chap, Initiator, InitiatorSettings, Params, QpSettings, Session, SessionError};

/// A target and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredTarget {
    /// TargetName.
    pub name: String,
    /// TargetAddress values: `address:port` and the portal group tag.
    pub addresses: Vec<(String, u16)>,
}

/// Asks the portal at `to` for its targets, in a discovery session, which `rdma` carries if it
/// is there.
///
/// # Errors
/// Where the connection fails, the portal refuses or does not make sense.
pub fn discover<D: Driver>(
    driver: D,
    to: SocketAddr,
    initiator: &Initiator,
    chap: Option<Chap>,
    rdma: Option<QpSettings>,
) -> Result<Vec<DiscoveredTarget>, SessionError> {
    let settings = InitiatorSettings {
        chap,
        rdma,
        ..InitiatorSettings::discovery(&initiator.name)
    };
    let mut session = Session::open(driver, to, Params::new(settings, initiator, 0)?)?;
    let text = session.text(b"SendTargets=All\0")?;
    // The answer is here: a logout that fails takes nothing away.
    let _ = session.logout();
    targets(&text, to)
}

/// Reads the answer to SendTargets (RFC 7143, appendix C).
fn targets(text: &[u8], portal: SocketAddr) -> Result<Vec<DiscoveredTarget>, SessionError> {
    let unusable = || SessionError::Unusable("the answer to SendTargets makes no sense".into());
    let mut targets: Vec<DiscoveredTarget> = Vec::new();
    for pair in ::iscsi::text::pairs(text) {
        let (key, value) = pair.ok_or_else(unusable)?;
        match (key, targets.last_mut()) {
            ("TargetName", _) => targets.push(DiscoveredTarget {
                name: value.to_owned(),
                addresses: Vec::new(),
            }),
            ("TargetAddress", Some(target)) => {
                let (address, tag) = value.rsplit_once(',').unwrap_or((value, "1"));
                let tag = tag.parse().map_err(|_| unusable())?;
                target.addresses.push((address.to_owned(), tag));
            }
            _ => {}
        }
    }
    for target in &mut targets {
        // Without an address it is reached where it was asked for.
        if target.addresses.is_empty() {
            target.addresses.push((portal.to_string(), 1));
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_send_targets_is_read() {
        let portal = "127.0.0.1:3260".parse().expect("an address");
        let text = b"TargetName=iqn.a:1\0TargetAddress=10.0.0.1:3260,1\0\
            TargetAddress=[2001:db8::1]:3261,2\0TargetName=iqn.a:2\0X=1\0";
        let found = targets(text, portal).expect("an answer");
        assert_eq!(found.len(), 2);
        assert_eq!(
            found[0].addresses,
            [
                ("10.0.0.1:3260".to_owned(), 1),
                ("[2001:db8::1]:3261".to_owned(), 2)
            ]
        );
        assert_eq!(found[1].name, "iqn.a:2");
        assert_eq!(found[1].addresses, [("127.0.0.1:3260".to_owned(), 1)]);
        assert!(targets(b"", portal).expect("none").is_empty());
        for bad in [&b"TargetName\0"[..], b"TargetName=a\0TargetAddress=b,x\0"] {
            assert!(targets(bad, portal).is_err());
        }
    }
}
