//! `weft login`: an address to open in a browser.

use std::io::{self, Write};
use std::process::ExitCode;

use admin::Request;
use api::{LoginAddress, LoginRequest};
use clap::Args;
use serde_json::json;
use server::AdminRole;

use crate::ask::{AskArgs, ask, end};

#[derive(Args)]
pub struct LoginArgs {
    /// What the browser may do: viewer asks, operator changes what is served, admin also says who
    /// may do what; default: all that you may
    #[arg(long, value_parser = AdminRole::ALL.map(AdminRole::name))]
    role: Option<String>,
    #[command(flatten)]
    ask: AskArgs,
}

/// Prints an address that is good once.
pub fn run(arguments: &LoginArgs) -> io::Result<ExitCode> {
    let role = arguments.role.clone();
    let request = Request {
        method: "POST".parse().expect("a method"),
        target: "/v1/logins".to_owned(),
        body: json!(LoginRequest { role }).to_string(),
        ..Request::default()
    };
    let asked = ask(&arguments.ask, &request, None);
    end(&arguments.ask, asked, show)
}

fn show(out: &mut dyn Write, answer: &LoginAddress) -> io::Result<()> {
    writeln!(out, "{}", answer.address)?;
    writeln!(
        out,
        "opens once, in the next {} minutes, for the role {}",
        answer.expires_s / 60,
        answer.role
    )
}
