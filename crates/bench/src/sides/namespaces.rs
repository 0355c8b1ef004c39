//! A veth pair between two network namespaces that are made for one run. They
//! hang on processes of ours: when those end, however that comes, nothing is left.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::child::{Child, TempFile, Words};
use super::{Around, FigureError, Net};

/// How long one of them may take to begin, and a command in it to end.
const START_MAX: Duration = Duration::from_secs(5);
/// What both ends of the pair are called.
const LINK: &str = "weft0";
/// Addresses that stay inside.
const TARGET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Where a program lies that a user can start, or an administrator.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    let places = folders.map(|folder| PathBuf::from(folder).join(program));
    places.into_iter().find(|place| place.is_file())
}

/// How namespaces can be made here: by root as they are, by others with one for
/// users around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Root,
    User,
}

/// Whether they can be made here.
///
/// # Errors
/// What is missing, and how to get it.
pub fn available() -> Result<(), String> {
    way().map(drop)
}

fn way() -> Result<Way, String> {
    static WAY: OnceLock<Result<Way, String>> = OnceLock::new();
    WAY.get_or_init(probe).clone()
}

fn probe() -> Result<Way, String> {
    for (program, package) in [
        ("ip", "iproute2"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
    ] {
        if find(program).is_none() {
            return Err(format!(
                "network namespaces are made with the program `{program}`: install {package}"
            ));
        }
    }
    let works = |flags: &[&str]| {
        let tried = Command::new("unshare")
            .args(flags)
            .arg("true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    };
    match (works(&["-n"]), works(&["-U", "-r", "-n"])) {
        (true, _) => Ok(Way::Root),
        (false, true) => Ok(Way::User),
        (false, false) => Err(
            "network namespaces may not be made here: run as root, or allow user namespaces \
             (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0)"
                .into(),
        ),
    }
}

/// Two namespaces with a pair between them.
pub struct Namespaces {
    /// In this order: what is inside of the other ends first.
    client: Child,
    target: Child,
    way: Way,
    /// What the pair was made by.
    pub commands: Vec<String>,
}

impl Namespaces {
    /// Makes them, with packets of at most `mtu` bytes each.
    pub fn new(around: &Around, mtu: u32) -> Result<Namespaces, FigureError> {
        let way = way()?;
        let unshare = match way {
            Way::Root => vec!["unshare", "-n"],
            Way::User => vec!["unshare", "-U", "-r", "-n"],
        };
        let target = hold(around, unshare.into_iter().map(str::to_owned).collect())?;
        let mut within = inside(way, &target);
        // Of the same users, but with a network of its own.
        within.retain(|word| word != "-n");
        let client = match way {
            Way::Root => hold(around, vec!["unshare".into(), "-n".into()])?,
            Way::User => {
                within.extend(["unshare".into(), "-n".into()]);
                hold(around, within)?
            }
        };
        let mut pair = Namespaces {
            client,
            target,
            way,
            commands: Vec::new(),
        };
        let peer = pair.client.id();
        // One packet for each segment: a pair hands over up to 64 KiB at once
        // else, and no MTU would make a difference.
        let one_each = "gso_max_segs 1";
        let made = format!(
            "link add {LINK} mtu {mtu} type veth peer name {LINK} mtu {mtu} netns {peer}\n"
        );
        pair.ip(around, true, &(made + &up(TARGET, one_each)))?;
        pair.ip(around, false, &up(CLIENT, one_each))?;
        Ok(pair)
    }

    /// Runs lines of ip(8) in one of them.
    fn ip(&mut self, around: &Around, in_target: bool, lines: &str) -> Result<(), FigureError> {
        let file = TempFile::new("ip", lines)?;
        let child = if in_target {
            &self.target
        } else {
            &self.client
        };
        let path = file.0.to_string_lossy().into_owned();
        let words = Words {
            before: inside(self.way, child),
            words: vec!["ip".into(), "-batch".into(), path],
            ..around.weft(Vec::new())?
        };
        Child::start(&words)?.output(START_MAX, around.stop)?;
        let name = if in_target { "target" } else { "client" };
        let shown = lines.replace(&self.client.id().to_string(), "client");
        let lines = shown.lines().map(|line| format!("ip -n {name} {line}"));
        self.commands.extend(lines);
        Ok(())
    }

    /// How programs come to run in them.
    pub fn net(&self) -> Net {
        Net {
            target: inside(self.way, &self.target),
            client: inside(self.way, &self.client),
            target_net: Some(format!("/proc/{}/ns/net", self.target.id())),
            ip: IpAddr::V4(TARGET),
        }
    }
}

/// The lines of ip(8) that make an end of the pair usable.
fn up(address: Ipv4Addr, segments: &str) -> String {
    format!(
        "link set {LINK} {segments}\naddress add {address}/24 dev {LINK}\n\
         link set lo up\nlink set {LINK} up\n"
    )
}

/// A process that does nothing but hold a namespace.
fn hold(around: &Around, before: Vec<String>) -> Result<Child, FigureError> {
    let words = Words {
        before,
        words: vec!["cat".into()],
        ..around.weft(Vec::new())?
    };
    let mut child = Child::start(&words)?;
    // It is inside when it answers.
    child.write_line("inside")?;
    child.line(START_MAX, around.stop, |line| {
        (line == "inside").then_some(())
    })?;
    Ok(child)
}

/// Words before a command that is to run where `holder` is.
fn inside(way: Way, holder: &Child) -> Vec<String> {
    let id = holder.id().to_string();
    let words: &[&str] = match way {
        Way::Root => &["nsenter", "-t", &id, "-n"],
        Way::User => &["nsenter", "-t", &id, "-U", "--preserve-credentials", "-n"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}
