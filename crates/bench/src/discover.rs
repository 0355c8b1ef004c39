//! `weft discover`: what a discovery controller knows.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use clap::Args;
use host::{DiscoveryEntry, HostIdentity};
use serde::Serialize;

use crate::perf::admin_driver;

/// Arguments of `weft discover`.
#[derive(Args, Clone, Debug)]
pub struct DiscoverArgs {
    /// Discovery controller as address:port; without it, -a and -s
    #[arg(value_name = "ADDRESS", conflicts_with_all = ["traddr", "trsvcid"])]
    pub address: Option<String>,
    /// Address of the discovery controller
    #[arg(short = 'a', long, default_value = "127.0.0.1")]
    pub traddr: IpAddr,
    /// Port of the discovery controller
    #[arg(short = 's', long, default_value_t = 4420)]
    pub trsvcid: u16,
    /// Host NQN [default: a new one]
    #[arg(short = 'q', long)]
    pub hostnqn: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// One record in the words of nvme-cli.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    trtype: String,
    adrfam: String,
    subtype: String,
    treq: String,
    portid: u16,
    trsvcid: String,
    subnqn: String,
    traddr: String,
    eflags: String,
    sectype: String,
}

#[derive(Serialize)]
struct Listing {
    records: Vec<Record>,
}

/// Runs `weft discover`.
#[must_use]
pub fn run(args: &DiscoverArgs) -> ExitCode {
    match records(args) {
        Ok(records) if args.json => {
            let listing = Listing { records };
            let text = serde_json::to_string_pretty(&listing).expect("records are JSON");
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok(records) => {
            print!("{}", text(&records));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("weft discover: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The records of the discovery log.
///
/// # Errors
/// A sentence for the user.
pub fn records(args: &DiscoverArgs) -> Result<Vec<Record>, String> {
    let to = match &args.address {
        None => SocketAddr::new(args.traddr, args.trsvcid),
        Some(text) => text
            .to_socket_addrs()
            .map_err(|error| format!("`{text}`: {error}"))?
            .next()
            .ok_or_else(|| format!("`{text}` has no address"))?,
    };
    let host = HostIdentity::new(args.hostnqn.as_deref()).map_err(|e| e.to_string())?;
    let driver = admin_driver().map_err(|e| e.to_string())?;
    let entries = host::discover(driver, to, &host).map_err(|e| format!("{to}: {e}"))?;
    Ok(entries.iter().map(Record::new).collect())
}

/// A code's name, or the code itself (Base 2.0, figure 264).
fn name(names: &[(u8, &str)], code: u8) -> String {
    let found = names.iter().find(|(known, _)| *known == code);
    found.map_or_else(|| code.to_string(), |(_, name)| (*name).to_owned())
}

impl Record {
    fn new(e: &DiscoveryEntry) -> Self {
        let treq = match e.treq & 3 {
            1 => "required",
            2 => "not required",
            _ => "not specified",
        };
        // Bit 2: the host may turn SQ flow control off.
        let flow = if e.treq & 4 != 0 {
            ", sq flow control disable supported"
        } else {
            ""
        };
        Record {
            trtype: name(
                &[(1, "rdma"), (2, "fc"), (3, "tcp"), (254, "loop")],
                e.trtype,
            ),
            adrfam: name(&[(1, "ipv4"), (2, "ipv6"), (3, "ib"), (4, "fc")], e.adrfam),
            subtype: name(
                &[
                    (1, "discovery subsystem referral"),
                    (2, "nvme subsystem"),
                    (3, "current discovery subsystem"),
                ],
                e.subtype,
            ),
            treq: format!("{treq}{flow}"),
            portid: e.portid,
            trsvcid: e.trsvcid.clone(),
            subnqn: e.subnqn.clone(),
            traddr: e.traddr.clone(),
            eflags: match e.eflags {
                0 => "none".to_owned(),
                flags => format!("{flags:#06x}"),
            },
            sectype: name(&[(0, "none"), (1, "tls"), (2, "tls13")], e.sectype),
        }
    }
}

/// The records as nvme-cli prints them.
fn text(records: &[Record]) -> String {
    let mut out = format!("\nDiscovery Log Number of Records {}\n", records.len());
    for (i, r) in records.iter().enumerate() {
        out += &format!("=====Discovery Log Entry {i}======\n");
        let portid = r.portid.to_string();
        for (key, value) in [
            ("trtype", &r.trtype),
            ("adrfam", &r.adrfam),
            ("subtype", &r.subtype),
            ("treq", &r.treq),
            ("portid", &portid),
            ("trsvcid", &r.trsvcid),
            ("subnqn", &r.subnqn),
            ("traddr", &r.traddr),
            ("eflags", &r.eflags),
            ("sectype", &r.sectype),
        ] {
            out += &format!("{:<8} {value}\n", format!("{key}:"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_speak_nvme_clis_words() {
        let entry = DiscoveryEntry {
            trtype: 3,
            adrfam: 2,
            subtype: 2,
            treq: 6,
            portid: 1,
            cntlid: 0xffff,
            asqsz: 32,
            eflags: 0,
            trsvcid: "4420".into(),
            traddr: "::1".into(),
            subnqn: "nqn.a".into(),
            sectype: 0,
        };
        let record = Record::new(&entry);
        assert_eq!(
            (record.trtype.as_str(), record.adrfam.as_str()),
            ("tcp", "ipv6")
        );
        assert_eq!(
            record.treq,
            "not required, sq flow control disable supported"
        );
        let text = text(std::slice::from_ref(&record));
        assert!(
            text.contains("Discovery Log Number of Records 1\n"),
            "{text}"
        );
        assert!(text.contains("\nsubtype: nvme subsystem\n"), "{text}");
        assert!(text.contains("\ntraddr:  ::1\n"), "{text}");
        let json = serde_json::to_value(Listing {
            records: vec![record],
        })
        .expect("JSON");
        assert_eq!(json["records"][0]["trsvcid"], "4420");
    }
}
