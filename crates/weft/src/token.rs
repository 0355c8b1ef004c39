//! `weft token`: what a program shows to ask over TCP.

use std::io::{self, Write};
use std::process::ExitCode;

use admin::{Request, encoded, make_secret, sha256};
use clap::{Args, Subcommand};
use serde_json::json;
use server::AdminRole;

use crate::ask::{AskArgs, ask};

#[derive(Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Make a token and print it: it is shown once, and the configuration keeps its digest
    Add {
        /// What the token is called
        name: String,
        /// What a program with it may do: viewer asks, operator changes what is served, admin also
        /// says who may do what
        #[arg(long, value_parser = AdminRole::ALL.map(AdminRole::name))]
        role: String,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Remove a token: what shows it is refused from then on
    Rm {
        /// What the token is called
        name: String,
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Adds or removes one.
pub fn run(arguments: &TokenArgs) -> io::Result<ExitCode> {
    let changed = match &arguments.command {
        TokenCommand::Add { name, role, ask } => {
            let token = format!("weft_{}", make_secret()?);
            let fields = json!({ "role": role, "sha256": sha256(token.as_bytes()) });
            change(ask, "POST", name, fields.to_string()).map(|()| token)
        }
        TokenCommand::Rm { name, ask } => {
            let removed = change(ask, "DELETE", name, String::new());
            removed.map(|()| format!("token {name} is removed"))
        }
    };
    match changed {
        Ok(told) => {
            writeln!(io::stdout(), "{told}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(code) => Ok(ExitCode::from(code)),
    }
}

/// Has one object of the document added or removed.
fn change(arguments: &AskArgs, method: &str, name: &str, body: String) -> Result<(), u8> {
    let request = Request {
        method: method.parse().expect("a method"),
        target: format!("/v1/objects/token/{}", encoded(name)),
        body,
        ..Request::default()
    };
    ask(arguments, &request, None).map(drop)
}
