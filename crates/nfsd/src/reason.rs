//! Why an export is not for a client.

use crate::xprtsec::{Xprtsec, XprtsecModes};

/// Why an export is not for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No rule names its address.
    Address,
    /// No rule of any export does.
    AllExports,
    /// Its rule does not take the authentication flavor of its calls.
    Flavor,
    /// Its connection is not protected as its rule wants.
    Xprtsec {
        /// As it is.
        has: Xprtsec,
        /// As it may be.
        takes: XprtsecModes,
    },
    /// It comes from a port from 1024 on, which its rule does not take.
    Port,
    /// There is no such export.
    NoExport,
    /// It is a referral, which versions before 4 do not know.
    Referral,
    /// The server takes no client.
    Drained,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Address => {
                "neither its address nor a certificate of it is among the export's `clients`"
            }
            Reason::AllExports => {
                "neither its address nor a certificate of it is among the `clients` of any export"
            }
            Reason::Flavor => "its authentication flavor is not in the export's `security`",
            Reason::Xprtsec { has, takes } => {
                let best = takes.named().next().unwrap_or_default();
                // TLS is TCP's alone, and the client may have come by RDMA.
                let proto = if best == Xprtsec::None {
                    ""
                } else {
                    "proto=tcp,"
                };
                let (has, best) = (has.word(), best.word());
                return write!(
                    f,
                    "its connection has xprtsec={has}, and the export's `xprtsec` takes {takes}: \
                     mount it with `-o {proto}xprtsec={best}`"
                );
            }
            Reason::Port => {
                "it comes from a port from 1024 on, and the export is `secure`: mount it as root \
                 without `noresvport`"
            }
            Reason::NoExport => "there is no such export",
            Reason::Referral => {
                "it is a referral to another server, which version 3 has no words for: mount it with \
                 `-o vers=4.2`, or from that server"
            }
            Reason::Drained => "weft is drained: `weft drain --end` lets clients in again",
        })
    }
}
