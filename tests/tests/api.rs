//! The admin API as its description has it: a fuzzer, and a client that is made of it.

#![forbid(unsafe_code)]

use std::fs;
use std::net::{SocketAddr, TcpStream};

use interop::child::output;
use interop::python::Python;
use interop::weft::{Setup, WeftProcess, free_address};
use interop::workspace_dir;
use needs::needs;

/// How many requests the fuzzer makes up for each operation: `cargo xtask lab schemathesis`
/// asks for more.
const EXAMPLES: &str = "WEFT_API_EXAMPLES";
/// Repeats a run.
const SEED: &str = "WEFT_SEED";

/// A target that is asked over TCP, and hosts' address.
struct Asked {
    target: WeftProcess,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Asked {
    /// Without rights, so that nothing it is asked to write lands outside of its folder.
    fn start(name: &str) -> Asked {
        let (address, admin) = (free_address(), free_address());
        let config = format!(
            r#"
[admin]
socket = "admin.sock"
listen = "{admin}"
state = "state"

[[volume]]
name = "disk"
kind = "ram"
size = "64MiB"

[[nvme.subsystem]]
nqn = "nqn.2026-01.org.example:interop"
volumes = ["disk"]
allow_any_host = true

[[listener]]
protocol = "nvme-tcp"
address = "{address}"
"#
        );
        let setup = Setup {
            unprivileged: true,
            ..Setup::default()
        };
        Asked {
            target: WeftProcess::serve_in(name, setup, &config, address),
            address,
            admin,
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// A new token of an operator.
    fn token(&self) -> String {
        let add = ["token", "add", "test", "--role", "operator"];
        self.target.run(&add)
    }
}

#[needs(program("python3"))]
#[test]
fn schemathesis_finds_no_answer_that_the_description_does_not_have() {
    let python = Python::prepare().expect("Python's packages");
    let asked = Asked::start("schemathesis");
    let variable = |name: &str, usual: &str| std::env::var(name).unwrap_or(usual.to_owned());
    let seed = variable(SEED, "1");
    let folder = tempfile::tempdir().expect("a folder");
    let mut fuzzer = python.program("schemathesis");
    fuzzer.current_dir(folder.path());
    fuzzer.env(
        "SCHEMATHESIS_HOOKS",
        workspace_dir().join("tests/python/hooks.py"),
    );
    fuzzer.arg("--config-file");
    fuzzer.arg(workspace_dir().join("tests/python/schemathesis.toml"));
    fuzzer.arg("run").arg(asked.url() + "/v1/openapi.json");
    fuzzer.args(["--seed", &seed, "--max-examples", &variable(EXAMPLES, "2")]);
    if std::env::var_os(EXAMPLES).is_none() {
        // The others go through every value of every key.
        fuzzer.args(["--phases", "fuzzing"]);
    }
    fuzzer.args([
        "--header",
        &format!("Authorization: Bearer {}", asked.token()),
    ]);
    println!("{SEED}={seed}");
    let ended = fuzzer.output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{SEED}={seed}: {said}");
    println!("{said}");
    // Hosts are served as before once a drain that was asked for is ended, and it ends in order.
    asked.target.run(&["drain", "--end"]);
    interop::weft::perf(asked.address, &["--rw=randread", "--runtime=1s"]).expect("every read");
    asked.target.expect_orderly_end();
}

#[needs(program("python3"))]
#[test]
fn client_made_of_the_description_does_the_operators_day() {
    let python = Python::prepare().expect("Python's packages");
    let asked = Asked::start("client");
    let folder = tempfile::tempdir().expect("a folder");
    python.make_client(folder.path()).expect("a client");
    let example = workspace_dir().join("examples/python/operator_day.py");
    // Who has said nothing yet is connected, too.
    let host = TcpStream::connect(asked.address).expect("it listens");
    let mut day = python.program("python");
    day.arg(example)
        .arg(asked.url())
        .env("WEFT_TOKEN", asked.token());
    day.env("PYTHONPATH", folder.path());
    let printed = output(&mut day).unwrap_or_else(|why| panic!("{why}"));
    drop(host);
    let printed = String::from_utf8_lossy(&printed);
    for line in [
        "generation 3: volume \"noon\" is added",
        "grown to 16MiB",
        "connections: 1\n",
        "refused: another generation is served",
        "rolled back to generation 2",
    ] {
        assert!(printed.contains(line), "{line:?} is not in:\n{printed}");
    }
    let now = fs::read_to_string(asked.target.home().join("weft.toml")).expect("there");
    assert!(!now.contains("noon"), "{now}");
    asked.target.expect_orderly_end();
}
