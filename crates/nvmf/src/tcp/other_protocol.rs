//! What else speaks to a port of NVMe/TCP by mistake, as its first bytes tell.

/// How requests of HTTP begin (RFC 9112, section 3; RFC 9113, section 3.4).
const HTTP: [&[u8]; 8] = [
    b"GET /",
    b"HEAD /",
    b"POST /",
    b"PUT /",
    b"DELETE /",
    b"OPTIONS ",
    b"CONNECT ",
    b"PRI * HTTP/",
];

/// The MPA Request Frame (RFC 5044, section 7.1.1).
const MPA: &[u8] = b"MPA ID Req Frame";

/// The first byte of a Login Request, which is immediate (RFC 7143, section 11.12).
const LOGIN_REQUEST: u8 = 0x43;

/// The protocol whose first bytes these are, where it is one that is known.
pub(super) fn other_protocol(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [22, 3, ..] => Some("TLS"),
        [b'S', b'S', b'H', b'-', ..] => Some("SSH"),
        // The versions are 0.
        [LOGIN_REQUEST, _, 0, 0, ..] => Some("iSCSI"),
        // The record mark, the XID, CALL, and version 2 (RFC 5531, sections 9 and 11).
        [0x80..=0xff, _, _, _, _, _, _, _, 0, 0, 0, 0, 0, 0, 0, 2, ..] => {
            Some("ONC RPC, as NFS does")
        }
        _ if bytes.starts_with(MPA) => Some("MPA, as iWARP does"),
        _ if HTTP.iter().any(|start| bytes.starts_with(start)) => Some("HTTP"),
        _ => None,
    }
}
