//! Snapshots of volumes: `weft snapshot`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::{Method, Request, encoded};
use api::{
    SnapshotClone, SnapshotName, SnapshotRequest, SnapshotRollback, Snapshots, SnapshotsDone,
};
use clap::{Args, Subcommand};
use serde::Serialize;
use tables::{SNAPSHOT_PARTS, SNAPSHOTS};

use crate::ask::{self, AskArgs};
use crate::{USAGE, snapshot_stream, table};

#[derive(Args)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Make a snapshot of each of the volumes, all of one instant
    Create {
        /// What each snapshot is called
        name: String,
        /// The volumes
        #[arg(required = true)]
        volumes: Vec<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// List snapshots: when they were made, and what goes with each when it is removed
    List {
        /// Those of this volume alone
        volume: Option<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Remove the snapshots of a name, in any order
    Rm {
        /// What each snapshot is called
        name: String,
        /// The volumes
        #[arg(required = true)]
        volumes: Vec<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Give the snapshots of a name another one
    Rename {
        /// What each snapshot is called
        name: String,
        /// What it is called from then on
        to: String,
        /// The volumes
        #[arg(required = true)]
        volumes: Vec<String>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Make a volume of a snapshot, which may be written and needs neither the snapshot nor its
    /// volume, and add it to the configuration
    Clone {
        /// The snapshot
        name: String,
        /// The volume that it is of
        volume: String,
        /// What the new volume is called
        to: String,
        /// Its file; default: beside that of the volume, with the name of the new one
        #[arg(long, value_name = "FILE")]
        path: Option<PathBuf>,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Have volumes hold what they held when their snapshots of a name were made: what was
    /// written since is lost
    Rollback {
        /// What each snapshot is called
        name: String,
        /// The volumes
        #[arg(required = true)]
        volumes: Vec<String>,
        /// Do it although hosts that have them lose them for a moment
        #[arg(long)]
        disconnect: bool,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Write a snapshot to standard output, for `weft snapshot receive`
    Send {
        /// The snapshot
        name: String,
        /// The volume that it is of
        volume: String,
        /// Only what has changed since this snapshot, which the receiver has
        #[arg(long, value_name = "NAME")]
        since: Option<String>,
        /// Nothing before this byte of the volume: the receiver has it
        #[arg(long, value_name = "BYTE", default_value_t)]
        from: u64,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Make a snapshot of what `weft snapshot send` has written, from standard input
    Receive {
        /// What the snapshot is called here
        name: String,
        /// The volume that it becomes one of
        volume: String,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// List the ranges in which a snapshot may hold what an earlier one does not
    Diff {
        /// The earlier one
        since: String,
        /// The snapshot
        name: String,
        /// The volume that both are of
        volume: String,
        #[command(flatten)]
        ask: AskArgs,
    },
}

impl SnapshotArgs {
    /// Whether a stream is brought to weft.
    pub fn receives(&self) -> bool {
        matches!(self.command, SnapshotCommand::Receive { .. })
    }
}

/// Does what is asked for.
pub fn run(arguments: &SnapshotArgs) -> io::Result<ExitCode> {
    match &arguments.command {
        SnapshotCommand::Create { name, volumes, ask } => {
            let body = SnapshotRequest {
                name: name.clone(),
                volumes: volumes.clone(),
            };
            change(ask, Method::POST, "/v1/snapshots".to_owned(), Some(&body))
        }
        SnapshotCommand::List { volume, ask } => list(ask, volume.as_deref()),
        SnapshotCommand::Rm { name, volumes, ask } => {
            each(ask, &Method::DELETE, (name, volumes), None::<&()>)
        }
        SnapshotCommand::Rename {
            name,
            to,
            volumes,
            ask,
        } => {
            let body = SnapshotName { name: to.clone() };
            each(ask, &Method::PATCH, (name, volumes), Some(&body))
        }
        SnapshotCommand::Clone {
            name,
            volume,
            to,
            path,
            ask,
        } => clone(ask, (name, volume, to), path.as_deref()),
        SnapshotCommand::Rollback {
            name,
            volumes,
            disconnect,
            ask,
        } => {
            let body = SnapshotRollback {
                name: name.clone(),
                volumes: volumes.clone(),
                disconnect: *disconnect,
            };
            let target = "/v1/snapshots:rollback".to_owned();
            change(ask, Method::POST, target, Some(&body))
        }
        SnapshotCommand::Send {
            name,
            volume,
            since,
            from,
            ask,
        } => snapshot_stream::send(ask, &place_of(volume, name), (since.as_deref(), *from)),
        SnapshotCommand::Receive { name, volume, ask } => {
            snapshot_stream::receive(ask, &place_of(volume, name))
        }
        SnapshotCommand::Diff {
            since,
            name,
            volume,
            ask,
        } => snapshot_stream::diff(ask, &place_of(volume, name), since),
    }
}

/// Makes a volume of a snapshot of another one.
fn clone(
    ask: &AskArgs,
    (name, volume, to): (&str, &str, &str),
    path: Option<&Path>,
) -> io::Result<ExitCode> {
    let path = match path.map(|path| place(ask, path)).transpose() {
        Ok(path) => path,
        Err(why) => {
            ask::tell(&format!("weft: --path: {why}"));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let body = SnapshotClone {
        volume: volume.to_owned(),
        name: name.to_owned(),
        to: to.to_owned(),
        path,
    };
    let target = "/v1/snapshots:clone".to_owned();
    change(ask, Method::POST, target, Some(&body))
}

/// Where a snapshot is asked for.
fn place_of(volume: &str, name: &str) -> String {
    format!("/v1/snapshots/{}/{}", encoded(volume), encoded(name))
}

/// Where a file is to lie on the machine that is asked.
fn place(ask: &AskArgs, path: &Path) -> Result<String, String> {
    let shown = path.display();
    if ask.is_remote() && path.is_relative() {
        return Err(format!(
            "{shown}: give an absolute path where another machine is asked"
        ));
    }
    let path = std::path::absolute(path).map_err(|error| format!("{shown}: {error}"))?;
    let text = path.into_os_string().into_string();
    text.map_err(|_| format!("{shown}: the configuration is UTF-8, and this path is not"))
}

fn list(ask: &AskArgs, volume: Option<&str>) -> io::Result<ExitCode> {
    let mut target = "/v1/snapshots".to_owned();
    if let Some(volume) = volume {
        target += &format!("?volume={}", encoded(volume));
    }
    ask::end(ask, ask::get(ask, &target), |out, all: &Snapshots| {
        match all.snapshots.is_empty() {
            true if all.unread.is_empty() => writeln!(out, "there is no snapshot")?,
            true => {}
            false => table::show(out, SNAPSHOTS, &all.snapshots)?,
        }
        if !all.parts.is_empty() {
            writeln!(out, "of which a part was received:")?;
            table::show(out, SNAPSHOT_PARTS, &all.parts)?;
        }
        let mut unread = all.unread.iter();
        unread.try_for_each(|why| writeln!(out, "NOT LISTED: {why}"))
    })
}

/// Changes the snapshot of that name of one volume after another, up to one that is refused.
fn each(
    ask: &AskArgs,
    method: &Method,
    (name, volumes): (&str, &[String]),
    body: Option<&impl Serialize>,
) -> io::Result<ExitCode> {
    for volume in volumes {
        let code = change(ask, method.clone(), place_of(volume, name), body)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn change(
    ask: &AskArgs,
    method: Method,
    target: String,
    body: Option<&impl Serialize>,
) -> io::Result<ExitCode> {
    let request = Request {
        method,
        target,
        body: body.map_or(String::new(), |body| {
            serde_json::to_string(body).expect("texts and a yes or no")
        }),
        ..Request::default()
    };
    let asked = ask::ask(ask, &request, None);
    ask::end(ask, asked, |out, answer: &SnapshotsDone| {
        let mut lines = answer.done.iter();
        lines.try_for_each(|line| writeln!(out, "{line}"))
    })
}
