//! Numbers with bounds: limits of a connection, and how the process uses the machine.

use auth::psk::PskCompat;
use mem::POOL_BYTES_MIN;
use reactor::Choice;
use server::{Limits, Placement, Start};

use crate::source::choice;
use crate::source::{Section, Sink, hint};
use crate::value::{format_cpus, format_size};

/// How long a reactor looks for work before it sleeps where the file says
/// nothing, microseconds.
pub(crate) const SPIN_US_DEFAULT: u64 = 50;

/// The ceiling of all buffers where the file says nothing: 1 GiB, or more for
/// a machine with very many CPUs.
pub(crate) fn memory_default_bytes(reactors: usize) -> u64 {
    (1 << 30).max(memory_need_bytes(reactors))
}

fn memory_need_bytes(reactors: usize) -> u64 {
    POOL_BYTES_MIN * reactors as u64
}

/// One number of the file: its bounds are checked in one place.
pub(crate) struct Number {
    key: &'static str,
    min: u64,
    max: u64,
    /// Written with a unit.
    sized: bool,
    rule: Rule,
}

pub(crate) enum Rule {
    Any,
    PowerOfTwo,
    Multiple(u64),
}

const BUF_BYTES_MAX: u64 = mem::BUF_BYTES_MAX as u64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const IO_QUEUES_MAX: Number = count("io_queues_max", 1, 1024);
const QUEUE_ENTRIES_MAX: Number = count("queue_entries_max", 16, 4096);
const CONNECTIONS_MAX: Number = count("connections_max", 2, 1 << 18);
const CONNECTIONS_OF_ADDRESS_MAX: Number = count("connections_of_address_max", 2, 1 << 18);
const TLS_HANDSHAKES_MAX: Number = count("tls_handshakes_max", 1, 1 << 18);
const CONTROLLERS_OF_HOST_MAX: Number = count("controllers_of_host_max", 1, 65_519);
/// One buffer holds a command's data.
const IO_BYTES_MAX: Number = size("io_bytes_max", 4 * KIB, BUF_BYTES_MAX, Rule::PowerOfTwo);
/// IOCCSZ counts in 16 bytes (NVM Express Base 2.0, Identify Controller).
const IN_CAPSULE_BYTES: Number = size("in_capsule_bytes", 0, 64 * KIB, Rule::Multiple(16));
/// At least 4,096 and whole dwords (NVMe/TCP Transport 1.0, MAXH2CDATA).
const MAXH2CDATA_BYTES: Number = size("maxh2cdata_bytes", 4 * KIB, 4 * MIB, Rule::Multiple(4));
const SPIN_US_MAX: Number = count("spin_us_max", 0, 1_000_000);
const MEMORY_MAX: Number = size("memory_max", POOL_BYTES_MIN, 1 << 44, Rule::Any);
const ZERO_COPY_MIN: Number = size("zero_copy_min_bytes", 4 * KIB, 4 * MIB, Rule::Any);
const REGISTERED_MIN: Number = size("registered_min_bytes", 4 * KIB, BUF_BYTES_MAX, Rule::Any);

pub(crate) const fn count(key: &'static str, min: u64, max: u64) -> Number {
    let (sized, rule) = (false, Rule::Any);
    Number {
        key,
        min,
        max,
        sized,
        rule,
    }
}

pub(crate) const fn size(key: &'static str, min: u64, max: u64, rule: Rule) -> Number {
    let sized = true;
    Number {
        key,
        min,
        max,
        sized,
        rule,
    }
}

impl Number {
    pub fn show(&self, value: u64) -> String {
        match self.sized {
            true => format_size(value),
            false => value.to_string(),
        }
    }

    /// The number in the file if it is there; its problems are reported.
    pub fn find(&self, sink: &mut Sink, section: Option<&Section>) -> Option<u64> {
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

    /// The number, in the type that holds its whole range, or `default`.
    pub fn read<T: TryFrom<u64>>(
        &self,
        sink: &mut Sink,
        section: Option<&Section>,
        default: T,
    ) -> T {
        let found = self.find(sink, section);
        found.map_or(default, |value| match T::try_from(value) {
            Ok(value) => value,
            Err(_) => unreachable!("the bounds of `{}` fit its type", self.key),
        })
    }
}

pub(crate) fn limits(sink: &mut Sink, section: Option<&Section>) -> Limits {
    let default = Limits::default();
    let (header_digest, data_digest) = digests(sink, section);
    let io_bytes_max = IO_BYTES_MAX.read(sink, section, default.io_bytes_max);
    let in_capsule = default.in_capsule_bytes_max.min(io_bytes_max);
    let in_capsule = IN_CAPSULE_BYTES.read(sink, section, in_capsule);
    if let Some(section) = section
        && in_capsule > io_bytes_max
    {
        let text = format!(
            "`in_capsule_bytes` ({}) is more than `io_bytes_max` ({}): no command could use it",
            format_size(in_capsule.into()),
            format_size(io_bytes_max.into())
        );
        sink.add(&section.span_of("in_capsule_bytes"), text);
    }
    Limits {
        io_queues_max: IO_QUEUES_MAX.read(sink, section, default.io_queues_max),
        queue_entries_max: QUEUE_ENTRIES_MAX.read(sink, section, default.queue_entries_max),
        io_bytes_max,
        in_capsule_bytes_max: in_capsule,
        h2c_data_bytes_max: MAXH2CDATA_BYTES.read(sink, section, default.h2c_data_bytes_max),
        connections_max: CONNECTIONS_MAX.read(sink, section, default.connections_max),
        connections_of_address_max: CONNECTIONS_OF_ADDRESS_MAX.read(
            sink,
            section,
            default.connections_of_address_max,
        ),
        tls_handshakes_max: TLS_HANDSHAKES_MAX.read(sink, section, default.tls_handshakes_max),
        controllers_of_host_max: CONTROLLERS_OF_HOST_MAX.read(
            sink,
            section,
            default.controllers_of_host_max,
        ),
        header_digest,
        data_digest,
        ..default
    }
}

fn digests(sink: &mut Sink, section: Option<&Section>) -> (bool, bool) {
    const WORDS: &[&str] = &["header", "data"];
    let Some(list) = section.and_then(|section| section.texts(sink, "digests")) else {
        return (true, true);
    };
    for item in &list {
        if !WORDS.contains(&item.value) {
            let hint = hint(item.value, WORDS.iter().copied());
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

/// How hosts may derive keys for TLS.
pub(crate) fn psk_compat(sink: &mut Sink, section: Option<&Section>) -> PskCompat {
    const WORDS: &[(&str, PskCompat)] = &[("auto", PskCompat::Auto), ("off", PskCompat::Off)];
    pick(sink, section, "psk_compat", WORDS).unwrap_or_default()
}

/// What it means, to people.
pub(crate) fn psk_compat_text(compat: PskCompat) -> &'static str {
    match compat {
        PskCompat::Auto => "hosts that derive TLS keys in the old way are let in",
        PskCompat::Off => {
            "hosts that derive TLS keys in the old way are refused; their connections stay"
        }
    }
}

/// The value that belongs to the word in the file.
pub(crate) fn pick<T: Copy>(
    sink: &mut Sink,
    section: Option<&Section>,
    key: &str,
    table: &[(&str, T)],
) -> Option<T> {
    let words: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
    let at = choice(sink, section?, key, &words)?;
    Some(table[at].1)
}

pub(crate) fn backend(sink: &mut Sink, section: Option<&Section>) -> Choice {
    const BACKENDS: &[(&str, Choice)] = &[
        ("auto", Choice::Auto),
        ("io_uring", Choice::Uring),
        ("epoll", Choice::Epoll),
    ];
    pick(sink, section, "io", BACKENDS).unwrap_or(Choice::Auto)
}

pub(crate) fn start(sink: &mut Sink, section: Option<&Section>) -> Start {
    const STARTS: &[(&str, Start)] = &[("strict", Start::Strict), ("degraded", Start::Degraded)];
    pick(sink, section, "start", STARTS).unwrap_or_default()
}

pub(crate) fn placement(sink: &mut Sink, section: Option<&Section>) -> Placement {
    const PLACEMENTS: &[(&str, Placement)] = &[
        ("round-robin", Placement::RoundRobin),
        ("least-loaded", Placement::LeastLoaded),
        ("incoming-cpu", Placement::IncomingCpu),
        ("napi", Placement::Napi),
        ("client-ip", Placement::ClientIp),
    ];
    pick(sink, section, "placement", PLACEMENTS).unwrap_or_default()
}

/// The CPUs in the file, which must be among `allowed`, or as many of those as
/// the cgroup's quota pays for.
pub(crate) fn cpus(sink: &mut Sink, section: Option<&Section>, allowed: &[usize]) -> Vec<usize> {
    let Some(list) = section.and_then(|section| section.text(sink, "cpus")) else {
        return reactor::available_cpus();
    };
    let cpus = reactor::parse_cpus(list.value).unwrap_or_else(|why| {
        sink.add(&list.span, format!("`cpus`: {why}"));
        Vec::new()
    });
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        let may = format_cpus(allowed);
        let text = format!("`cpus`: this process may not run on CPU {cpu}, only on {may}");
        sink.add(&list.span, text);
    }
    cpus
}

pub(crate) fn spin_us_max(sink: &mut Sink, section: Option<&Section>) -> u64 {
    const KEY: &str = "spin_us_max";
    match section.and_then(|section| Some((section, section.word(KEY)?))) {
        Some((_, "always")) => u64::MAX,
        Some((section, other)) => {
            let text = format!("`{KEY}` takes a whole number or \"always\", not \"{other}\"");
            sink.add(&section.span_of(KEY), text);
            SPIN_US_DEFAULT
        }
        None => SPIN_US_MAX.read(sink, section, SPIN_US_DEFAULT),
    }
}

pub(crate) fn zero_copy_min_bytes(sink: &mut Sink, section: Option<&Section>) -> Option<u32> {
    let found = ZERO_COPY_MIN.find(sink, section)?;
    Some(u32::try_from(found).expect("the bounds of `zero_copy_min_bytes` fit its type"))
}

pub(crate) fn registered_min_bytes(sink: &mut Sink, section: Option<&Section>) -> Option<u32> {
    let found = REGISTERED_MIN.find(sink, section)?;
    if let Some(section) = section
        && !section.has("zero_copy_min_bytes")
    {
        let text = "`registered_min_bytes` does nothing without `zero_copy_min_bytes`";
        sink.add(&section.span_of("registered_min_bytes"), text.to_owned());
    }
    Some(u32::try_from(found).expect("the bounds of `registered_min_bytes` fit its type"))
}

pub(crate) fn fast_path(sink: &mut Sink, section: Option<&Section>) -> bool {
    let found = section.and_then(|section| section.flag(sink, "fast_path"));
    found.unwrap_or(true)
}

pub(crate) fn memory_max(sink: &mut Sink, section: Option<&Section>, reactors: usize) -> u64 {
    let memory_max = MEMORY_MAX.read(sink, section, memory_default_bytes(reactors));
    let need = memory_need_bytes(reactors);
    if let Some(section) = section
        && memory_max < need
    {
        let text = format!(
            "`memory_max` ({}) is too small for {reactors} reactors, one a CPU: they need {}",
            format_size(memory_max),
            format_size(need)
        );
        sink.add(&section.span_of("memory_max"), text);
    }
    memory_max
}
