//! Numbers with bounds: limits of a connection, and how the process uses the machine.

use crate::parse::choice;
use crate::source::{Section, Sink};
use crate::value::{format_size, parse_cpus};

/// Limits of every NVMe/TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queue pairs that one controller grants (Number of Queues, NVM
    /// Express Base 2.1, 5.1.25.1.5).
    pub io_queues_max: u16,
    /// Entries of one queue (CAP.MQES + 1).
    pub queue_entries_max: u16,
    /// Bytes that one command may move (MDTS); a power of two.
    pub io_bytes_max: u32,
    /// Write data that a command capsule may carry (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// Bytes of one H2CData PDU (MAXH2CDATA, NVMe/TCP Transport 1.1, 3.6.2.3).
    pub maxh2cdata_bytes: u32,
    /// Whether a host may ask for header digests.
    pub header_digest: bool,
    /// Whether a host may ask for data digests.
    pub data_digest: bool,
}

/// How the process uses the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// One reactor on each; `None`: the CPUs that affinity and cgroup allow.
    pub cpus: Option<Vec<usize>>,
    /// How reactors talk to the kernel.
    pub backend: Backend,
    /// Which reactor gets a new connection.
    pub placement: Placement,
    /// Longest time that a reactor looks for work before it sleeps.
    pub spin_us_max: u32,
    /// Ceiling of all buffers together; the blocks of RAM volumes are not in it.
    pub memory_max_bytes: u64,
    /// Payload from this length on is sent with SEND_ZC; `None`: never.
    pub zero_copy_min_bytes: Option<u32>,
}

/// How reactors talk to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the kernel gives it, epoll otherwise.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// Which reactor gets a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest connections.
    LeastLoaded,
    /// The one on the CPU that received the connection's packets.
    IncomingCpu,
}

/// One number of the file: its bounds are checked in one place.
struct Number {
    key: &'static str,
    default: u64,
    min: u64,
    max: u64,
    /// Written with a unit.
    sized: bool,
    rule: Rule,
}

enum Rule {
    Any,
    PowerOfTwo,
    Multiple(u64),
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const IO_QUEUES_MAX: Number = count("io_queues_max", 128, 1, 1024);
const QUEUE_ENTRIES_MAX: Number = count("queue_entries_max", 1024, 16, 4096);
const IO_BYTES_MAX: Number = size("io_bytes_max", MIB, 4 * KIB, 4 * MIB, Rule::PowerOfTwo);
/// IOCCSZ counts in 16 bytes (NVM Express Base 2.1, 5.1.13.2.1).
const IN_CAPSULE_BYTES: Number = size("in_capsule_bytes", 8 * KIB, 0, 64 * KIB, Rule::Multiple(16));
/// At least 4,096 and whole dwords (NVMe/TCP Transport 1.1, 3.6.2.3).
const MAXH2CDATA_BYTES: Number = size("maxh2cdata_bytes", MIB, 4 * KIB, 4 * MIB, Rule::Multiple(4));
const SPIN_US_MAX: Number = count("spin_us_max", 50, 0, 1_000_000);
const MEMORY_MAX: Number = size("memory_max", 1 << 30, 16 * MIB, 1 << 44, Rule::Any);
const ZERO_COPY_MIN: Number = size("zero_copy_min_bytes", 0, 4 * KIB, 4 * MIB, Rule::Any);

/// Commands of the largest size that must fit into `memory_max` at once, or the
/// target would stall rather than slow down.
const LARGEST_IOS_MIN: u64 = 8;

const fn count(key: &'static str, default: u64, min: u64, max: u64) -> Number {
    let (sized, rule) = (false, Rule::Any);
    Number {
        key,
        default,
        min,
        max,
        sized,
        rule,
    }
}

const fn size(key: &'static str, default: u64, min: u64, max: u64, rule: Rule) -> Number {
    let sized = true;
    Number {
        key,
        default,
        min,
        max,
        sized,
        rule,
    }
}

impl Number {
    fn show(&self, value: u64) -> String {
        match self.sized {
            true => format_size(value),
            false => value.to_string(),
        }
    }

    /// The number in the file if it is there; its problems are reported.
    fn find(&self, sink: &mut Sink, section: Option<&Section>) -> Option<u64> {
        let found = section?.number(sink, self.key, self.sized)?;
        let Self { key, min, max, .. } = *self;
        let value = found.value;
        if value < min || value > max {
            let (min, max, value) = (self.show(min), self.show(max), self.show(value));
            sink.add(
                &found.span,
                format!("`{key}` is from {min} to {max}, not {value}"),
            );
            return None;
        }
        let wrong = match self.rule {
            Rule::PowerOfTwo if !value.is_power_of_two() => {
                let (below, above) = (1 << value.ilog2(), value.next_power_of_two());
                let (below, above) = (self.show(below), self.show(above));
                format!("a power of two: {below} or {above}")
            }
            Rule::Multiple(of) if !value.is_multiple_of(of) => format!("a multiple of {of}"),
            _ => return Some(value),
        };
        sink.add(&found.span, format!("`{key}` is {wrong}, not {value}"));
        None
    }

    fn read(&self, sink: &mut Sink, section: Option<&Section>) -> u64 {
        self.find(sink, section).unwrap_or(self.default)
    }
}

impl Default for Limits {
    fn default() -> Self {
        parse_limits(&mut Sink::new(""), None)
    }
}

impl Default for Policy {
    fn default() -> Self {
        parse_policy(&mut Sink::new(""), None, &Limits::default())
    }
}

// Every bound of the table fits the narrower type it is stored in.
const _: () = assert!(IO_QUEUES_MAX.max <= u16::MAX as u64);
const _: () = assert!(QUEUE_ENTRIES_MAX.max <= u16::MAX as u64);
const _: () = assert!(IO_BYTES_MAX.max <= u32::MAX as u64);
const _: () = assert!(SPIN_US_MAX.max <= u32::MAX as u64);

pub(crate) fn parse_limits(sink: &mut Sink, section: Option<&Section>) -> Limits {
    let io_bytes_max = IO_BYTES_MAX.read(sink, section);
    let in_capsule_bytes = IN_CAPSULE_BYTES.read(sink, section);
    if let Some(section) = section
        && in_capsule_bytes > io_bytes_max
    {
        let text = format!(
            "`in_capsule_bytes` ({}) is more than `io_bytes_max` ({}): no command could use it",
            format_size(in_capsule_bytes),
            format_size(io_bytes_max)
        );
        sink.add(&section.span_of("in_capsule_bytes"), text);
    }
    let (header_digest, data_digest) = digests(sink, section);
    Limits {
        io_queues_max: IO_QUEUES_MAX.read(sink, section) as u16,
        queue_entries_max: QUEUE_ENTRIES_MAX.read(sink, section) as u16,
        io_bytes_max: io_bytes_max as u32,
        in_capsule_bytes: in_capsule_bytes as u32,
        maxh2cdata_bytes: MAXH2CDATA_BYTES.read(sink, section) as u32,
        header_digest,
        data_digest,
    }
}

fn digests(sink: &mut Sink, section: Option<&Section>) -> (bool, bool) {
    const WORDS: &[&str] = &["header", "data"];
    let Some(list) = section.and_then(|section| section.texts(sink, "digests")) else {
        return (true, true);
    };
    for item in &list {
        if !WORDS.contains(&item.value) {
            let hint = crate::source::hint(item.value, WORDS.iter().copied());
            let text = format!(
                "`digests` holds \"header\" and \"data\", not \"{}\"{hint}",
                item.value
            );
            sink.add(&item.span, text);
        }
    }
    let has = |word: &str| list.iter().any(|item| item.value == word);
    (has("header"), has("data"))
}

pub(crate) fn parse_policy(sink: &mut Sink, section: Option<&Section>, limits: &Limits) -> Policy {
    const BACKENDS: &[Backend] = &[Backend::Auto, Backend::Uring, Backend::Epoll];
    const PLACEMENTS: &[Placement] = &[
        Placement::RoundRobin,
        Placement::LeastLoaded,
        Placement::IncomingCpu,
    ];
    let mut pick = |key, words: &[&str]| {
        let section = section?;
        choice(sink, section, key, words)
    };
    let backend = pick("io", &["auto", "io_uring", "epoll"]).unwrap_or(0);
    let placement = pick(
        "placement",
        &["round-robin", "least-loaded", "incoming-cpu"],
    )
    .unwrap_or(0);
    let cpus = section.and_then(|section| {
        let text = section.text(sink, "cpus")?;
        let cpus = parse_cpus(text.value);
        cpus.map_err(|why| sink.add(&text.span, format!("`cpus`: {why}")))
            .ok()
    });
    let memory_max = MEMORY_MAX.read(sink, section);
    let need = LARGEST_IOS_MIN * u64::from(limits.io_bytes_max);
    if let Some(section) = section
        && memory_max < need
    {
        let text = format!(
            "`memory_max` ({}) is less than {LARGEST_IOS_MIN} commands of `io_bytes_max` need ({})",
            format_size(memory_max),
            format_size(need)
        );
        sink.add(&section.span_of("memory_max"), text);
    }
    Policy {
        cpus,
        backend: BACKENDS[backend],
        placement: PLACEMENTS[placement],
        spin_us_max: SPIN_US_MAX.read(sink, section) as u32,
        memory_max_bytes: memory_max,
        zero_copy_min_bytes: ZERO_COPY_MIN.find(sink, section).map(|bytes| bytes as u32),
    }
}
