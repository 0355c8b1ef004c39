//! `weft token`: what a program shows to ask over TCP.

use std::io::{self, Write};
use std::process::ExitCode;

use admin::{Request, make_secret, sha256};
use api::ConfigText;
use clap::{Args, Subcommand};
use control::{Edit, ObjectPath, edit};
use serde_json::json;
use server::AdminRole;

use crate::FAILURE;
use crate::ask::{AskArgs, ask, decoded, get, tell};

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
            let edit = Edit::Add {
                object: ObjectPath::new("token", &[name]),
                fields: fields.as_object().cloned().unwrap_or_default(),
            };
            change(ask, edit).map(|()| token)
        }
        TokenCommand::Rm { name, ask } => {
            let object = ObjectPath::new("token", &[name]);
            change(ask, Edit::Remove { object }).map(|()| format!("token {name} is removed"))
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

/// Has the document served with one change, if no other comes between.
fn change(arguments: &AskArgs, change: Edit) -> Result<(), u8> {
    let served: ConfigText = decoded(&get(arguments, "/v1/config")?)?;
    let edited = edit(&served.text, &[change]).map_err(|problems| {
        for problem in problems {
            tell(&format!("weft: {problem}"));
        }
        FAILURE
    })?;
    let request = Request {
        method: "PUT".parse().expect("a method"),
        target: "/v1/config".to_owned(),
        headers: vec![("if-match", format!("\"{}\"", served.document.generation))],
        body: edited,
    };
    ask(arguments, &request, None).map(drop)
}
