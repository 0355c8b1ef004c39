//! How hosts connect by RDMA at a listener.

use nvmf::rdma::CrcPolicy;
use nvmf::transport::Transports;
use server::nfs::Xprtsec;
use server::{Config, ListenerSpec, Protocol, RdmaSpec, SubsystemSpec};

use crate::nvme::host_name;
use crate::policy::{Number, Rule, count, pick, size};
use crate::schema::RDMA_ONLY;
use crate::source::{FlagOr, Section, Sink};

const MPA_CRC: &[(&str, CrcPolicy)] = &[
    ("require", CrcPolicy::Require),
    ("prefer", CrcPolicy::Prefer),
    ("off", CrcPolicy::Off),
];

const FPDU_BYTES_MAX: Number = size("fpdu_bytes_max", 256, 64 << 10, Rule::Any);
const RDMA_READS_MAX: Number = count("rdma_reads_max", 1, 1024);
/// What is of no use without `rdma`.
const TERMS: [&str; 3] = ["mpa_crc", "fpdu_bytes_max", "rdma_reads_max"];

/// What a listener says of RDMA; `requires_tls`: hosts speak TLS alone there.
pub(crate) fn rdma(sink: &mut Sink, section: &Section, requires_tls: bool) -> RdmaSpec {
    let default = RdmaSpec::default();
    let transports = match section.flag_or(sink, "rdma", RDMA_ONLY) {
        Some(FlagOr::Word) => Transports::Rdma,
        Some(FlagOr::Flag(true)) => Transports::Both,
        Some(FlagOr::Flag(false)) | None => default.transports,
    };
    let is_served = transports != Transports::Tcp;
    if is_served && requires_tls {
        let text = "`rdma` cannot stand beside `tls = \"required\"`: NVMe/RDMA does not go \
                    through TLS; give it a [[listener]] of its own";
        sink.add(&section.span_of("rdma"), text);
    }
    // One that is set off keeps what it had.
    if !section.has("rdma") {
        for key in TERMS.iter().filter(|key| section.has(key)) {
            let text = format!("`{key}` does nothing without `rdma = true`");
            sink.add(&section.span_of(key), text);
        }
    }
    RdmaSpec {
        transports,
        crc: pick(sink, Some(section), "mpa_crc", MPA_CRC).unwrap_or(default.crc),
        fpdu_bytes_max: FPDU_BYTES_MAX.read(sink, Some(section), default.fpdu_bytes_max),
        reads_max: RDMA_READS_MAX.read(sink, Some(section), default.reads_max),
    }
}

/// Hosts and exports that are for TLS alone where hosts come by RDMA alone, a line each.
pub(crate) fn closed(config: &Config) -> impl Iterator<Item = String> {
    const REMEDY: &str = "is for TLS alone, and every listener there takes RDMA alone \
                          (`rdma = \"only\"`), which has no TLS: set `rdma = true` at one of them";
    let is_closed = move |spec: &&SubsystemSpec| {
        by_rdma_alone(config, Protocol::NvmeTcp, |number| {
            spec.listeners
                .as_ref()
                .is_none_or(|on| on.contains(&number))
        })
    };
    let closed = config.subsystems.iter().filter(is_closed);
    let hosts = closed.flat_map(|spec| {
        let terms = spec.terms.iter().filter(|terms| terms.needs_tls());
        terms.map(|terms| format!("subsystem {}: {} {REMEDY}", spec.nqn, host_name(terms)))
    });
    let is_without = by_rdma_alone(config, Protocol::Nfs, |_| true);
    let exports = config.exports.iter().filter(move |export| {
        let mut rules = export.rules.iter();
        is_without && rules.any(|rule| !rule.xprtsec.take(Xprtsec::None))
    });
    hosts.chain(exports.map(|export| format!("the export {} {REMEDY}", export.path)))
}

/// Whether a protocol has listeners among those that `is_of` says, all by RDMA alone.
fn by_rdma_alone(config: &Config, protocol: Protocol, is_of: impl Fn(u16) -> bool) -> bool {
    let all = (0..).zip(&config.listeners);
    let here = all.filter(|(number, spec)| {
        spec.protocol == protocol && !spec.discovery_only && is_of(*number)
    });
    let only: Vec<bool> = here.map(|(_, spec)| spec.rdma.is_only()).collect();
    !only.is_empty() && only.iter().all(|only| *only)
}

/// Listeners that say how hosts connect by RDMA where none do, a line each. It is no mistake: RDMA
/// that is set off keeps what it had.
pub(crate) fn idle_terms(config: &Config) -> impl Iterator<Item = String> {
    let is_idle = |listener: &&ListenerSpec| {
        let rdma = listener.rdma;
        rdma.transports == Transports::Tcp && rdma != RdmaSpec::default()
    };
    let idle = config.listeners.iter().filter(is_idle);
    idle.map(|listener| {
        let terms = TERMS.map(|term| format!("`{term}`")).join(", ");
        format!(
            "listener {}: RDMA is off (`rdma = false`), so {terms} do nothing",
            listener.address
        )
    })
}
