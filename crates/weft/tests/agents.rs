//! `weft bench agent`: machines that run the loads of a `weft bench run`, in network namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::measured::Measured;
use needs::needs;

/// Makes four namespaces on a bridge with an agent in each, and runs the words behind it. Everything
/// hangs on it and ends with it.
const FOUR_AGENTS: &str = r#"
set -e
ip link set lo up
ip link add bridge0 type bridge
ip address add 192.0.2.1/24 dev bridge0
ip link set bridge0 up
for n in 1 2 3 4; do
    unshare --net sleep 600 &
    holder=$!
    while [ "$(readlink /proc/$holder/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    ip link add host$n type veth peer name weft0 netns $holder
    ip link set host$n master bridge0 up
    nsenter --target $holder --net sh -c "
        ip address add 192.0.2.1$n/24 dev weft0 && ip link set weft0 up && ip link set lo up
        exec '$WEFT' bench agent --secret-file secret >agent$n.log 2>&1" &
done
for n in 1 2 3 4; do
    tries=0
    until grep -q 'loads are taken' agent$n.log; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { cat agent$n.log >&2; exit 90; }
        sleep 0.05
    done
done
"$@"
"#;

/// The script with these words, in namespaces of its own.
fn among_agents(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["timeout", "300", "sh", "-c", FOUR_AGENTS, "sh"]);
    command.args(words).current_dir(folder);
    command.env("WEFT", env!("CARGO_BIN_EXE_weft"));
    command.stdin(Stdio::null()).output().expect("unshare")
}

fn secret(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[needs(network_namespace, program("nsenter"))]
#[test]
fn four_agents_run_the_four_hosts_of_a_figure() {
    let folder = tempfile::tempdir().expect("a folder");
    secret(
        folder.path(),
        "secret",
        "a secret of sixteen bytes and more\n",
    );
    let weft = env!("CARGO_BIN_EXE_weft");
    let agents = "192.0.2.11,192.0.2.12:4481,192.0.2.13,192.0.2.14";
    let words = ["bench", "run", "hosts-read", "--quick", "--out", "out"];
    let words = [
        &[weft],
        &words[..],
        &["--secret-file", "secret", "--agents", agents],
    ]
    .concat();
    let output = among_agents(folder.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read(folder.path().join("out/results.json")).expect("results");
    let measured: Measured = serde_json::from_slice(&text).expect("results of this version");
    assert!(measured.provenance.has_agents());
    let series = &measured.sweeps[0].series;
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let four = [
        "NVMe/TCP, 4 hosts, 8 subsystems",
        "iSCSI, 4 hosts, 32 LUNs",
        "NFS, 4 clients, 4 shares",
    ];
    assert_eq!(names, [&["NVMe/TCP"], &four[..]].concat());
    for of_four in &series[1..] {
        let commands = of_four.points[0].commands.join("\n");
        for n in 1..=4 {
            let agent = format!("# at the agent 192.0.2.1{n}:4481");
            assert_eq!(commands.matches(&agent).count(), 1, "{commands}");
        }
        assert!(commands.contains("192.0.2.1:"), "{commands}");
    }
    let skipped = measured.skipped.iter().map(|skipped| skipped.why.as_str());
    assert_eq!(
        skipped.collect::<Vec<_>>(),
        ["agents run `weft perf`, not `weft ceiling`"]
    );
    let page = fs::read_to_string(folder.path().join("out/index.html")).expect("a page");
    assert!(page.contains("network to the agents"));
}

#[needs(network_namespace, program("nsenter"))]
#[test]
fn agent_with_another_secret_is_told_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    secret(
        folder.path(),
        "secret",
        "a secret of sixteen bytes and more\n",
    );
    secret(
        folder.path(),
        "other",
        "another secret of as many bytes...\n",
    );
    let weft = env!("CARGO_BIN_EXE_weft");
    for (secret, agents, why) in [
        (
            "other",
            "192.0.2.11",
            "agent 192.0.2.11:4481: the secret is not the agent's",
        ),
        (
            "secret",
            "192.0.2.11,192.0.2.1:4490",
            "agent 192.0.2.1:4490: Connection refused",
        ),
        (
            "secret",
            "127.0.0.1:4490",
            "agent 127.0.0.1:4490: Connection refused",
        ),
    ] {
        let words = [
            weft,
            "bench",
            "run",
            "hosts-read",
            "--quick",
            "--out",
            "out",
        ];
        let words = [&words[..], &["--secret-file", secret, "--agents", agents]].concat();
        let output = among_agents(folder.path(), &words);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
        assert!(!folder.path().join("out/journal.jsonl").exists());
    }
}
