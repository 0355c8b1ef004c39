//! What is said about a machine.

use std::fmt::Write;

use crate::machine::Machine;
use crate::obsolete::OBSOLETE;
use crate::plan::Plan;
use crate::setting::{Finding, Profile};

/// Everything, for a reader.
pub(crate) fn look(machine: &Machine, profile: Profile, findings: &[Finding]) -> String {
    let mut text = overview(machine);
    let is_open = |finding: &&Finding| finding.wanted.is_some();
    let (here, elsewhere): (Vec<_>, Vec<_>) = findings
        .iter()
        .filter(is_open)
        .partition(|finding| finding.path.is_some());
    let words = ["throughput", "latency"][profile as usize];
    section(
        &mut text,
        &format!("For {words}, `weft tune apply {words}` would set"),
        &here,
    );
    section(&mut text, "Set elsewhere", &elsewhere);
    let fine: Vec<_> = findings
        .iter()
        .filter(|finding| !is_open(finding))
        .collect();
    if !fine.is_empty() {
        line(&mut text, "\nFine as it is:");
        for finding in fine {
            line(&mut text, &format!("  {}: {}", finding.name, finding.now));
        }
    }
    line(&mut text, "\nIn many lists, and of no use to weft:");
    for obsolete in OBSOLETE {
        line(&mut text, &format!("  {}: {}", obsolete.name, obsolete.why));
    }
    text
}

fn overview(machine: &Machine) -> String {
    let mut text = format!("Linux {}; CPUs for weft: {}", machine.release, machine.cpus);
    let _ = match machine.memory_limit {
        Some(bytes) => write!(text, "; memory for weft: {} MiB", bytes >> 20),
        None => Ok(()),
    };
    let (handled, open) = machine.mitigations;
    line(
        &mut text,
        &format!("; CPU weaknesses: {handled} mitigated, {open} not"),
    );
    for nic in &machine.nics {
        let what = ["a piece of the kernel", "a device"][usize::from(nic.is_device)];
        let queues = (nic.rx_queues.len(), nic.tx_queues.len());
        let says = format!(
            "{}: {what}, MTU {}, {} receive and {} transmit queues, {} interrupts",
            nic.name,
            nic.mtu,
            queues.0,
            queues.1,
            nic.irqs.len()
        );
        line(&mut text, &says);
    }
    text
}

fn section(text: &mut String, title: &str, findings: &[&Finding]) {
    if findings.is_empty() {
        return;
    }
    line(text, &format!("\n{title}:"));
    for finding in findings {
        let wanted = finding.wanted.as_deref().unwrap_or_default();
        line(
            text,
            &format!("  {}: {} -> {wanted}", finding.name, finding.now),
        );
        line(text, &format!("      {}", finding.brings));
    }
}

/// A shell script that applies a plan, and one that undoes it.
pub(crate) fn script(plan: &Plan) -> String {
    let mut text = String::new();
    for change in &plan.changes {
        line(
            &mut text,
            &format!("echo '{}' > '/{}'", change.to, change.path),
        );
    }
    line(&mut text, "# To undo:");
    for change in plan.changes.iter().rev() {
        line(
            &mut text,
            &format!("# echo '{}' > '/{}'", change.from, change.path),
        );
    }
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::findings;
    use crate::testing::TestRoot;

    #[test]
    fn a_report_says_what_changes_and_what_it_brings() {
        let tree = TestRoot::new();
        tree.put("proc/sys/net/core/somaxconn", "128\n");
        tree.put("proc/sys/net/ipv4/tcp_slow_start_after_idle", "0\n");
        let machine = tree.machine();
        let found = findings(&machine, Profile::Latency);
        let text = look(&machine, Profile::Latency, &found);
        assert!(
            text.contains("net.core.somaxconn: 128 -> 4096\n      thousands of hosts"),
            "{text}"
        );
        assert!(
            text.contains("  net.ipv4.tcp_slow_start_after_idle: 0\n"),
            "{text}"
        );
        let script = script(&Plan::of(&found));
        let wanted = "echo '4096' > '/proc/sys/net/core/somaxconn'\n# To undo:\n\
                      # echo '128' > '/proc/sys/net/core/somaxconn'\n";
        assert_eq!(script, wanted);
    }
}
