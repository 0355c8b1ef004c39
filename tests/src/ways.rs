//! What an operator does to a target, and the ways to do it: commands, a program over the API,
//! the console in a browser. Each says what would be cut before it is done.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::child::output;
use crate::default_target::{ADMIN, DefaultTarget};
use crate::python::Python;
use crate::workspace_dir;

/// Something that an operator does.
#[derive(Clone, Debug)]
pub struct Deed {
    /// `add`, `set`, `rm`, `evict`, `drain`, `end-drain` or `rollback`.
    pub verb: &'static str,
    /// Of an object.
    pub kind: &'static str,
    /// Of an object, a host, a generation.
    pub name: String,
    /// Keys and values of an object; `null` takes a key out.
    pub fields: Value,
}

/// What an operator was told.
#[derive(Clone, Debug, Default)]
pub struct DeedTold {
    /// Before: what would be cut.
    pub cuts: Vec<String>,
    /// After: what was done.
    pub done: Vec<String>,
}

/// A way to do it.
pub trait OperatorWay {
    /// Asks what would be cut, where that can be asked, and does it, with leave to cut that.
    /// Panics with what was said where it is not done.
    fn act(&self, deed: &Deed) -> DeedTold;
}

/// By the commands of `weft`.
#[derive(Debug)]
pub struct Commands<'a>(pub &'a DefaultTarget);

impl OperatorWay for Commands<'_> {
    fn act(&self, deed: &Deed) -> DeedTold {
        let name = &*deed.name;
        let fields = deed.fields.as_object().into_iter().flatten();
        let fields = fields.map(|(key, value)| match value {
            Value::Null => format!("{key}="),
            Value::String(text) => format!("{key}={text}"),
            value => format!("{key}={value}"),
        });
        let fields: Vec<String> = fields.collect();
        let mut words = match deed.verb {
            "evict" => vec!["evict", "host", name],
            "drain" => vec!["drain"],
            "end-drain" => vec!["drain", "--end"],
            "rollback" => vec!["rollback", name],
            verb => vec![verb, deed.kind, name],
        };
        words.extend(fields.iter().map(String::as_str));
        let mut told = DeedTold::default();
        if !matches!(deed.verb, "evict" | "end-drain") {
            let said = self.0.run(&[&words[..], &["--dry-run"]].concat());
            let cuts = said.lines().filter_map(|line| line.strip_prefix("! "));
            told.cuts = cuts.map(str::to_owned).collect();
        }
        if !told.cuts.is_empty() {
            // Not without leave.
            self.0.refused(&words);
            words.push("--disconnect");
        }
        told.done = self.0.run(&words).lines().map(str::to_owned).collect();
        told
    }
}

/// By a program of Python, with a client made of the API's description.
#[derive(Debug)]
pub struct Program<'a> {
    target: &'a DefaultTarget,
    python: Python,
    client: TempDir,
    token: String,
}

impl Program<'_> {
    /// With a token of its own. Panics where the client cannot be made.
    pub fn of(target: &DefaultTarget) -> Program<'_> {
        let python = Python::prepare().expect("Python's packages");
        let client = tempfile::tempdir().expect("a folder");
        python.make_client(client.path()).expect("a client");
        let said = target.run(&["token", "add", "story", "--role", "operator"]);
        let token = said.lines().next().expect("a token").to_owned();
        Program {
            target,
            python,
            client,
            token,
        }
    }
}

impl OperatorWay for Program<'_> {
    fn act(&self, deed: &Deed) -> DeedTold {
        let mut program = self.python.program("python");
        program.arg(workspace_dir().join("tests/python/story.py"));
        program.arg(format!("http://{ADMIN}"));
        program.env("PYTHONPATH", self.client.path());
        program.env("WEFT_TOKEN", &self.token);
        told_by(self.target, program, deed)
    }
}

/// By the console.
#[derive(Debug)]
pub struct Console<'a> {
    target: &'a DefaultTarget,
    browser: Browser,
}

impl Console<'_> {
    /// Panics where there is no browser.
    pub fn of(target: &DefaultTarget) -> Console<'_> {
        let browser = Browser::prepare().expect("a browser");
        Console { target, browser }
    }
}

impl OperatorWay for Console<'_> {
    fn act(&self, deed: &Deed) -> DeedTold {
        let said = self.target.run(&["login", "--role", "operator"]);
        let login = said.lines().next().expect("an address");
        let mut script = self.browser.script("story.mjs").expect("a script");
        script.arg(login);
        told_by(self.target, script, deed)
    }
}

/// What a program says that is given a deed, in the network of the target.
fn told_by(target: &DefaultTarget, mut program: Command, deed: &Deed) -> DeedTold {
    let Deed {
        verb,
        kind,
        name,
        fields,
    } = deed;
    let deed = json!({"verb": verb, "kind": kind, "name": name, "fields": fields}).to_string();
    program.arg(&deed);
    let said = output(&mut target.inside(&program)).unwrap_or_else(|why| panic!("{deed}: {why}"));
    let said = String::from_utf8_lossy(&said);
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    let lines = |key: &str| {
        let lines = told[key].as_array().into_iter().flatten();
        lines.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    DeedTold {
        cuts: lines("cuts"),
        done: lines("done"),
    }
}
