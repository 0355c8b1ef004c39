//! How the numbers came about, in words.

use super::markup::Markup;

/// What the marks in charts and tables mean.
pub(super) fn how_to_read(to: &mut Markup) {
    to.begin("ul");
    for line in [
        "Points are medians over the rounds; whiskers are the interval that holds the true median \
         with 95 % confidence, or with as much as so few rounds give (see Method).",
        "Grey dashed lines are ceilings: bare sockets that move as many bytes as the protocol \
         does, measured in the same rounds. They are a bound, not a result of weft.",
        "A hollow point or bar: a run of it had not settled. A small cross: a run far from the \
         others. Both count like any other.",
        "In tables: the median, in bold; least and most of all runs; half the interval's width as \
         a share of the median (±); and, in blue, the ratio to the first series, made round by \
         round.",
        "\u{201c}Not measured\u{201d} is never zero. Printed numbers of papers are of their own \
         hardware and stand apart.",
        "Units are decimal: 1 Gbit/s is 10⁹ bits of payload a second. I/O sizes are binary: 4K is \
         4,096 bytes.",
    ] {
        to.leaf("li", line);
    }
    to.end();
    to.classed(
        "p",
        "print",
        "On paper there are the charts. Tables of every number, bottlenecks at each point and all \
         commands are on the page itself, on a screen, and in data/ beside it.",
    );
}

/// The section "Method".
pub(super) fn write(to: &mut Markup) {
    to.begin("h2").attr("id", "method").text("Method").end();
    for (heading, text) in PARTS {
        to.leaf("h3", heading).leaf("p", text);
    }
}

const PARTS: &[(&str, &str)] = &[
    (
        "Runs",
        "At each point of a sweep every series has its turn in every round, in one round from the \
         first to the last and in the next from the last to the first: what is compared was \
         measured side by side, and none always follows the same one. Each run starts a target of \
         its own with the settings shown under Commands, lets the load run for a while before \
         anything counts, and ends both. Modes are settings of one binary.",
    ),
    (
        "Medians and intervals",
        "Shared machines are noisy, and not by a normal distribution. So everything goes by ranks. \
         The interval around a median comes from the binomial distribution of how many \
         measurements lie below it; it holds whatever the distribution is. With fewer than six \
         rounds no interval reaches 95 %: then it spans all runs, and five rounds give 93.75 %, \
         three 75 %, one none. The data tables state the confidence of each.",
    ),
    (
        "Ratios",
        "A ratio is made of two runs of the same round, then the median of these is taken. What \
         slows a whole round slows both and falls out.",
    ),
    (
        "Outliers and steadiness",
        "A run more than five times the median distance from the median is marked as an outlier. A \
         run has settled when every tenth of it is within 20 % of its mean and a straight line \
         through the tenths moves less than 10 % of the mean from the first to the last. What is \
         marked stays in every median, range and interval.",
    ),
    (
        "Ceilings",
        "The same number of bytes each way, in messages of the same size, over as many sockets and \
         with as much outstanding, without any protocol: once with the payload in one small buffer \
         that stays in the cache, once spread over as much memory as the volume has. Both are \
         measured in the rounds of the modes.",
    ),
    (
        "Bottlenecks",
        "A side that worked at least 90 % of the time had no more to give; spinning without work \
         does not count as work. Where bare sockets are slower by more than 15 % with payload from \
         all over memory and weft is within 10 % of that, it is memory. Where neither side was \
         full, it is what was outstanding.",
    ),
    (
        "CPU",
        "CPU time of the target's and of the client's process, kernel work on their behalf \
         included, for each gigabit of payload. \u{201c}% of a core\u{201d} for 1 Gbit/s is the \
         papers' %CPU/Gbps of one core, whatever the number of cores. A side that spins uses its \
         core always: compare CPU where both were busy, or at equal rates.",
    ),
    (
        "What loopback hides",
        "Target and client share the machine, its memory and caches; there is no wire, no adapter \
         and no switch. Numbers compare modes of one binary and bare sockets on this machine. They \
         do not compare with line rates or with latencies over a wire.",
    ),
];
