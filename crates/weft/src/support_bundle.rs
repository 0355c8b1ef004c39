//! `weft support-bundle`: one file with what a person needs who is to help.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use api::{ConfigText, ProblemDetails, TargetStatus};
use clap::Args;
use control::Problems;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde_json::json;
use tables::Cell;
use tar::{Builder, Header};

use crate::ask::{self, AskArgs};
use crate::{FAILURE, machine};

/// The folder in the archive.
const FOLDER: &str = "weft-support";
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between both looks at the figures.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct BundleArgs {
    /// The archive to make; default: weft-support-TIME.tar.gz here
    file: Option<PathBuf>,
    /// The configuration to look at, where no weft answers that says which it serves
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    ask: AskArgs,
}

/// What is asked of a weft that runs: the name in the archive, the path, and what it is.
const ASKED: &[(&str, &str, &str)] = &[
    (
        "status.json",
        "/v1/status",
        "what is served, since when, by which driver",
    ),
    ("figures-1.json", "/v1/figures", "what is measured"),
    (
        "history.json",
        "/v1/config/history",
        "when the configuration changed, and how",
    ),
    ("audit.json", "/v1/audit", "who asked for which change"),
    ("events.json", "/v1/events", "what has happened"),
    ("refusals.json", "/v1/refusals", "who was refused, and why"),
    ("connections.json", "/v1/connections", "who is connected"),
    ("hosts.json", "/v1/hosts", "the same by host"),
    ("sessions.json", "/v1/iscsi/sessions", "iSCSI sessions"),
    ("nfs-clients.json", "/v1/nfs/clients", "NFS clients"),
    ("metrics.txt", "/metrics", "the metrics"),
    (
        "config.toml",
        "/v1/config",
        "the configuration, without secrets and comments",
    ),
    (
        LAST_ASKED,
        "/v1/figures",
        "what is measured, a second or more after the first",
    ),
];

/// The second look at what is measured.
const LAST_ASKED: &str = "figures-2.json";

/// Why there is nothing of a file.
const NO_FILE: &str = "no weft that serves a file answers: name the file with -c";

/// One file of the archive.
struct Part {
    name: &'static str,
    /// What it is.
    about: &'static str,
    /// Or why there is none.
    content: Result<Vec<u8>, String>,
}

/// What goes into the archive, and what does not.
#[derive(Default)]
struct Bundle(Vec<Part>);

/// Makes the archive, and says what is not in it.
pub fn run(arguments: &BundleArgs) -> io::Result<ExitCode> {
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs();
    let time = Cell::Time(now).to_string();
    let usual = || {
        PathBuf::from(format!(
            "weft-support-{}.tar.gz",
            time.replace([':', '-'], "")
        ))
    };
    let path = arguments.file.clone().unwrap_or_else(usual);
    let made = create(&path).and_then(|file| {
        let bundle = Bundle::collect(arguments);
        let written = bundle.write(file, (&time, now));
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
        Ok((written?, bundle))
    });
    let (size, bundle) = match made {
        Ok(made) => made,
        Err(error) => {
            ask::tell(&format!(
                "weft: {}: {error}: name a file that is not there yet, in a folder that you may \
                 write in",
                path.display()
            ));
            return Ok(ExitCode::from(FAILURE));
        }
    };
    bundle.tell(&path, size, arguments.ask.json)?;
    Ok(ExitCode::SUCCESS)
}

/// A file that no one else reads, and that was not there.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

impl Bundle {
    fn collect(BundleArgs { config, ask, .. }: &BundleArgs) -> Bundle {
        let mut bundle = Bundle::default();
        let version = concat!(env!("WEFT_VERSION"), "\n").to_owned();
        bundle.add("version.txt", "the weft that made this", Ok(version));
        bundle.ask_all(ask);
        let status: Option<TargetStatus> = bundle.answer("status.json");
        let served = status.as_ref().and_then(|of| of.document.file.as_ref());
        let file = config.clone().or(served.map(PathBuf::from));
        let text = match (bundle.answer("config.toml"), &file) {
            (Some(ConfigText { text, .. }), _) => Ok(text),
            (None, Some(file)) => fs::read_to_string(file).map_err(|error| error.to_string()),
            (None, None) => Err(NO_FILE.to_owned()),
        };
        let text = text.and_then(|text| {
            let without = control::without_secrets(&text);
            without.ok_or_else(|| "it is no TOML, and any part of it may be a secret".to_owned())
        });
        bundle.part("config.toml").content = text.map(String::into_bytes);
        let check = |file| crate::check_file(file, Problems::without_secrets).text;
        let checked = file.as_deref().map(check);
        let checked = checked.ok_or_else(|| NO_FILE.to_owned());
        bundle.add("check.txt", "what weft check says of the file", checked);
        let machine = machine::told(status.map(|of| of.pid));
        let about = "kernel, processors, memory, limits, control group and settings";
        bundle.add("machine.txt", about, Ok(machine));
        bundle
    }

    fn add(&mut self, name: &'static str, about: &'static str, content: Result<String, String>) {
        let content = content.map(String::into_bytes);
        self.0.push(Part {
            name,
            about,
            content,
        });
    }

    /// Asks for all that there is. A weft that does not answer is not asked again.
    fn ask_all(&mut self, ask: &AskArgs) {
        let at = ask::address(ask).map_err(|_| "no admin socket is known".to_owned());
        let (mut gone, began) = (at.as_ref().err().cloned(), Instant::now());
        for &(name, path, about) in ASKED {
            if name == LAST_ASKED && gone.is_none() {
                thread::sleep(BETWEEN_LOOKS.saturating_sub(began.elapsed()));
            }
            let content = match (&at, &gone) {
                (Ok(at), None) => match admin::fetch(at, path, PATIENCE) {
                    Ok((true, body)) => Ok(body),
                    Ok((false, body)) => Err(refusal(&body)),
                    Err(error) => {
                        let why = format!("{at}: {error}");
                        gone = Some(why.clone());
                        Err(why)
                    }
                },
                (_, why) => Err(why.clone().unwrap_or_default()),
            };
            self.0.push(Part {
                name,
                about,
                content,
            });
        }
    }

    fn part(&mut self, name: &str) -> &mut Part {
        let mut parts = self.0.iter_mut();
        parts
            .find(|part| part.name == name)
            .expect("it was asked for")
    }

    /// What weft has answered, if it has.
    fn answer<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let content = self.part(name).content.as_ref().ok()?;
        serde_json::from_slice(content).ok()
    }

    fn missing_parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let parts = self.0.iter();
        parts.filter_map(|part| Some((part.name, part.content.as_ref().err()?.as_str())))
    }

    /// Says what is in it, file by file.
    fn readme(&self, time: &str) -> String {
        let mut text = format!(
            "What `weft support-bundle` found at {time}. It names hosts, addresses,\nfiles and \
             users. It has no secret of the configuration, and nothing that hosts\nhave stored.\n\n"
        );
        for Part {
            name,
            about,
            content,
        } in &self.0
        {
            text += &match content {
                Ok(_) => format!("{name:<18}{about}\n"),
                Err(why) => format!("{name:<18}NOT HERE ({about}): {why}\n"),
            };
        }
        text
    }

    /// Writes the archive; its size.
    fn write(&self, file: File, (time, unix_s): (&str, u64)) -> io::Result<u64> {
        let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
        let mut add = |name: &str, content: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(unix_s);
            archive.append_data(&mut header, format!("{FOLDER}/{name}"), content)
        };
        add("README.txt", self.readme(time).as_bytes())?;
        for part in &self.0 {
            if let Ok(content) = &part.content {
                add(part.name, content)?;
            }
        }
        let file = archive.into_inner()?.finish()?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }

    fn tell(&self, path: &Path, size: u64, is_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if is_json {
            let left_out: BTreeMap<_, _> = self.missing_parts().collect();
            let told = json!({ "file": path, "bytes": size, "left_out": left_out });
            return writeln!(out, "{told}");
        }
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, why) in self.missing_parts() {
            by_reason.entry(why).or_default().push(name);
        }
        for (why, names) in by_reason {
            writeln!(out, "not in it: {}: {why}", names.join(", "))?;
        }
        writeln!(
            out,
            "made {}\nLook through it before you give it away: it names hosts, addresses and files.",
            path.display()
        )
    }
}

/// Why a request was not answered.
fn refusal(body: &[u8]) -> String {
    let problem: Result<ProblemDetails, _> = serde_json::from_slice(body);
    problem.map_or_else(|error| error.to_string(), |problem| problem.detail)
}
