//! `weft discover`: what a discovery controller, an iSCSI portal and an NFS
//! server know.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::Args;
use host::iscsi::{self, DiscoveredTarget};
use host::nfs::{self, Client, Entry};
use host::{DiscoveryEntry, QueueSettings, RdmaHostSettings, Settings, Transport, resolve};
use serde::Serialize;
use wire::nfs4::{nfs_ftype4, nfsstat4};

use crate::chap::ChapArgs;
use crate::nfs_client::{NfsClientArgs, no_path, takes};
use crate::nvme_host::NvmeHostArgs;
use crate::perf::admin_driver;

/// The discovery controller that is asked where none is named.
const NVME: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);
/// The iSCSI portal that is asked where nothing is named.
const ISCSI: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), wire::iscsi::PORT);

/// Arguments of `weft discover`.
#[derive(Args, Clone, Debug)]
pub struct DiscoverArgs {
    /// Discovery controller as address:port, over RDMA as rdma://address:port, iSCSI
    /// portal as iscsi://address:port, over RDMA as iser://address:port, or NFS server as
    /// nfs://address:port, over RDMA as nfs+rdma://address:port, whose exports and files are listed;
    /// without it, -a and -s, and without these discovery controller and portal
    /// of this machine
    #[arg(value_name = "ADDRESS", conflicts_with_all = ["traddr", "trsvcid"])]
    pub address: Option<String>,
    /// Address of the discovery controller [default: 127.0.0.1]
    #[arg(short = 'a', long)]
    pub traddr: Option<IpAddr>,
    /// Port of the discovery controller [default: 4420]
    #[arg(short = 's', long)]
    pub trsvcid: Option<u16>,
    /// Of NVMe
    #[command(flatten)]
    pub nvme_host: NvmeHostArgs,
    /// Of iSCSI
    #[command(flatten)]
    pub chap: ChapArgs,
    /// Of NFS
    #[command(flatten)]
    pub nfs_client: NfsClientArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// An address of an iSCSI target, in the words of iscsiadm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetRecord {
    /// TargetName.
    pub target: String,
    /// Address and port.
    pub portal: String,
    /// Target Portal Group Tag.
    pub tpgt: u16,
}

/// One record in the words of nvme-cli.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoveryRecord {
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

/// A name on an NFS server, in its root or where the URL said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileRecord {
    /// From the root of all exports on.
    pub path: String,
    /// What it is: `directory`, `file` or another kind, `referral` where another server has it; of
    /// what the server does not show to such calls `not shown`, and which it takes.
    pub kind: String,
    /// The identifier of what it names.
    pub fileid: Option<u64>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Listing {
    /// What a discovery controller knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<DiscoveryRecord>>,
    /// What an iSCSI portal knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<TargetRecord>>,
    /// What an NFS server has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRecord>>,
}

/// Runs `weft discover`.
///
/// # Errors
/// What was found cannot be printed.
pub fn run(args: &DiscoverArgs) -> io::Result<ExitCode> {
    let (listing, errors) = discover(args);
    for error in &errors {
        let _ = writeln!(io::stderr(), "weft discover: {error}");
    }
    if args.json {
        let text = serde_json::to_string_pretty(&listing).expect("records are JSON");
        writeln!(io::stdout(), "{text}")?;
    } else {
        write!(io::stdout(), "{}", text(&listing))?;
    }
    let Listing {
        records,
        targets,
        files,
    } = &listing;
    match records.is_none() && targets.is_none() && files.is_none() {
        false => Ok(ExitCode::SUCCESS),
        true => Ok(ExitCode::FAILURE),
    }
}

/// What those know that are to be asked, and what went wrong: sentences for the
/// user.
#[must_use]
pub fn discover(args: &DiscoverArgs) -> (Listing, Vec<String>) {
    let mut errors = Vec::new();
    let mut note = |error| errors.push(error);
    if let Some(url) = args
        .address
        .as_ref()
        .filter(|url| nfs::NfsAddress::is_url(url))
    {
        let listing = Listing {
            files: files(url, &args.nfs_client).map_err(&mut note).ok(),
            ..Listing::default()
        };
        return (listing, errors);
    }
    let (nvme, iscsi) = match discovery_addresses(args) {
        Ok(both) => both,
        Err(error) => return (Listing::default(), vec![error]),
    };
    let listing = Listing {
        records: nvme.and_then(|to| records(args, to).map_err(&mut note).ok()),
        targets: iscsi.and_then(|to| targets(args, to).map_err(&mut note).ok()),
        files: None,
    };
    (listing, errors)
}

/// A discovery controller that is asked, and over what.
type DiscoveryAddress = (Transport, SocketAddr);
/// A portal that is asked, and the stream of RDMA that it is asked by, if not by TCP.
type PortalAddress = (SocketAddr, Option<iscsi::QpSettings>);

/// Where discovery asks: a discovery controller, a portal, or both.
fn discovery_addresses(
    args: &DiscoverArgs,
) -> Result<(Option<DiscoveryAddress>, Option<PortalAddress>), String> {
    let tcp = |to| Some((Transport::Tcp, to));
    match &args.address {
        Some(text) => match text.split_once("://") {
            Some((by @ ("iscsi" | "iser"), portal)) => {
                let portal = resolve(portal.trim_end_matches('/'), ISCSI.port())?;
                let rdma = (by == "iser").then(iscsi::QpSettings::default);
                Ok((None, Some((portal, rdma))))
            }
            Some(("rdma", to)) => {
                let to = resolve(to.trim_end_matches('/'), NVME.port())?;
                Ok((Some((Transport::Rdma, to)), None))
            }
            _ => Ok((tcp(resolve(text, NVME.port())?), None)),
        },
        None if args.traddr.is_none() && args.trsvcid.is_none() => {
            Ok((tcp(NVME), Some((ISCSI, None))))
        }
        None => {
            let address = args.traddr.unwrap_or(NVME.ip());
            let port = args.trsvcid.unwrap_or(NVME.port());
            Ok((tcp(SocketAddr::new(address, port)), None))
        }
    }
}

/// The records of the discovery log.
///
/// # Errors
/// A sentence for the user.
pub fn records(
    args: &DiscoverArgs,
    (transport, to): (Transport, SocketAddr),
) -> Result<Vec<DiscoveryRecord>, String> {
    let host = args.nvme_host.identity()?;
    let driver = admin_driver().map_err(|e| e.to_string())?;
    let settings: QueueSettings = match transport {
        Transport::Tcp => Settings::default().into(),
        Transport::Rdma => RdmaHostSettings::default().into(),
    };
    let entries = host::discover(driver, to, &host, settings);
    let entries = entries.map_err(|error| format!("{to}: {error}"))?;
    Ok(entries.iter().map(DiscoveryRecord::new).collect())
}

/// The answer to SendTargets.
fn targets(args: &DiscoverArgs, (to, rdma): PortalAddress) -> Result<Vec<TargetRecord>, String> {
    let initiator = args.chap.identity()?;
    let driver = admin_driver().map_err(|e| e.to_string())?;
    let found = iscsi::discover(driver, to, &initiator, args.chap.chap()?, rdma);
    let by = if rdma.is_some() { "iser" } else { "iscsi" };
    let found = found.map_err(|error| format!("{by}://{to}: {error}"))?;
    Ok(found.iter().flat_map(TargetRecord::of).collect())
}

/// What lies in a directory of an NFS server.
pub(crate) fn files(url: &str, args: &NfsClientArgs) -> Result<Vec<FileRecord>, String> {
    let address = nfs::NfsAddress::parse(url)?;
    let params = args.params(&address)?;
    let listed = || -> Result<Vec<FileRecord>, String> {
        let driver = admin_driver().map_err(|error| error.to_string())?;
        let client = Client::connect(driver, address.socket, params);
        let mut client = client.map_err(|error| args.no_client(&address, &error))?;
        let directory = client.lookup(address.path.iter().map(String::as_str));
        let entries = directory.and_then(|directory| client.entries(&directory));
        let entries = entries.map_err(|error| no_path(&mut client, &address.path, &error))?;
        let above: String = address.path.iter().map(|name| format!("/{name}")).collect();
        let mut found: Vec<_> = entries.iter().map(|e| FileRecord::of(&above, e)).collect();
        for (entry, record) in entries.iter().zip(&mut found) {
            if entry.attributes.error == Some(nfsstat4::NFS4ERR_MOVED) {
                record.kind = "referral".to_owned();
            } else if let Some(status) = entry.attributes.error {
                let mut path = address.path.clone();
                path.push(String::from_utf8_lossy(&entry.name).into_owned());
                let takes = takes(&mut client, &path).unwrap_or_else(|| format!("{status:?}"));
                record.kind = format!("not shown: {takes}");
            }
        }
        // What was found stays found where the server is gone.
        let _ = client.disconnect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    };
    listed().map_err(|error| format!("{}: {error}", address.server_url()))
}

impl FileRecord {
    fn of(above: &str, entry: &Entry) -> FileRecord {
        let kind = match entry.attributes.kind {
            Some(nfs_ftype4::NF4REG) => "file",
            Some(nfs_ftype4::NF4DIR) => "directory",
            Some(nfs_ftype4::NF4LNK) => "symbolic link",
            Some(nfs_ftype4::NF4BLK | nfs_ftype4::NF4CHR) => "device",
            Some(nfs_ftype4::NF4SOCK) => "socket",
            Some(nfs_ftype4::NF4FIFO) => "fifo",
            Some(nfs_ftype4::NF4ATTRDIR | nfs_ftype4::NF4NAMEDATTR) | None => "other",
        };
        FileRecord {
            path: format!("{above}/{}", entry.name.escape_ascii()),
            kind: kind.to_owned(),
            fileid: entry.attributes.fileid,
        }
    }
}

impl TargetRecord {
    fn of(found: &DiscoveredTarget) -> impl Iterator<Item = TargetRecord> {
        found.addresses.iter().map(|(portal, tpgt)| TargetRecord {
            target: found.name.clone(),
            portal: portal.clone(),
            tpgt: *tpgt,
        })
    }
}

/// A code's name, or the code itself (Base 2.0, figure 264).
fn name(names: &[(u8, &str)], code: u8) -> String {
    let found = names.iter().find(|(known, _)| *known == code);
    found.map_or_else(|| code.to_string(), |(_, name)| (*name).to_owned())
}

impl DiscoveryRecord {
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
        DiscoveryRecord {
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

/// What was found as nvme-cli and iscsiadm print it; what would command a terminal is written
/// out.
fn text(listing: &Listing) -> String {
    let mut out = String::new();
    if let Some(records) = &listing.records {
        out += &text_of_records(records);
    }
    if let Some(targets) = &listing.targets {
        out += &format!("\niSCSI targets: {}\n", targets.len());
        for t in targets {
            let (portal, target) = (t.portal.escape_debug(), t.target.escape_debug());
            out += &format!("{portal},{} {target}\n", t.tpgt);
        }
    }
    if let Some(files) = &listing.files {
        out += &format!("\nNFS names: {}\n", files.len());
        for f in files {
            out += &format!("{:<13} {}\n", f.kind, f.path);
        }
    }
    out
}

/// The records as nvme-cli prints them.
fn text_of_records(records: &[DiscoveryRecord]) -> String {
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
            out += &format!("{:<8} {}\n", format!("{key}:"), value.escape_debug());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DiscoverArgs,
    }

    #[test]
    fn discovery_has_no_key_made_for_it() {
        let words = "discover -q nqn.h --dhchap-secret-file f";
        let parse = |line: &str| Line::try_parse_from(line.split(' ')).map(|line| line.args);
        assert!(parse(words).expect("parses").nvme_host.psk_file.is_none());
        assert!(parse(&format!("{words} --concat")).is_err());
    }

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
        let record = DiscoveryRecord::new(&entry);
        assert_eq!(
            (record.trtype.as_str(), record.adrfam.as_str()),
            ("tcp", "ipv6")
        );
        assert_eq!(
            record.treq,
            "not required, sq flow control disable supported"
        );
        let targets = vec![TargetRecord {
            target: "iqn.a:b".into(),
            portal: "[::1]:3260".into(),
            tpgt: 2,
        }];
        let mut listing = Listing {
            records: Some(vec![record]),
            targets: Some(targets),
            files: None,
        };
        let text = text(&listing);
        assert!(
            text.contains("Discovery Log Number of Records 1\n"),
            "{text}"
        );
        assert!(text.contains("\nsubtype: nvme subsystem\n"), "{text}");
        assert!(text.contains("\ntraddr:  ::1\n"), "{text}");
        assert!(text.ends_with("\n[::1]:3260,2 iqn.a:b\n"), "{text}");
        let json = serde_json::to_value(&listing).expect("JSON");
        assert_eq!(json["records"][0]["trsvcid"], "4420");
        assert_eq!(json["targets"][0]["tpgt"], 2);
        listing.targets = None;
        let json = serde_json::to_value(&listing).expect("JSON");
        assert!(json.get("targets").is_none(), "no portal was asked");
    }

    #[test]
    fn address_decides_whether_a_controller_or_a_portal_is_asked() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: DiscoverArgs,
        }
        let found = |line: &str| {
            let words = std::iter::once("discover").chain(line.split_whitespace());
            discovery_addresses(&Line::parse_from(words).args).map(|(nvme, iscsi)| {
                let text = |to: Option<SocketAddr>| to.map_or("-".into(), |to| to.to_string());
                let is_rdma = nvme.is_some_and(|(transport, _)| transport == Transport::Rdma);
                assert_eq!(is_rdma, line.starts_with("rdma://"), "{line}");
                let is_iser = iscsi.is_some_and(|(_, rdma)| rdma.is_some());
                assert_eq!(is_iser, line.starts_with("iser://"), "{line}");
                (text(nvme.map(|(_, to)| to)), text(iscsi.map(|(to, _)| to)))
            })
        };
        let both = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(found(""), both("127.0.0.1:4420", "127.0.0.1:3260"));
        assert_eq!(found("-s 4421"), both("127.0.0.1:4421", "-"));
        assert_eq!(found("127.0.0.2:9"), both("127.0.0.2:9", "-"));
        assert_eq!(found("rdma://127.0.0.2"), both("127.0.0.2:4420", "-"));
        assert_eq!(found("rdma://[::1]:9/"), both("[::1]:9", "-"));
        assert_eq!(found("iscsi://127.0.0.2"), both("-", "127.0.0.2:3260"));
        assert_eq!(found("iscsi://[::1]:9/"), both("-", "[::1]:9"));
        assert_eq!(found("iser://127.0.0.2"), both("-", "127.0.0.2:3260"));
        assert!(found("nowhere").is_err());
    }
}
