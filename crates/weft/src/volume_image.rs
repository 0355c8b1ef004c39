//! Disk images into volumes and out of them: `weft volume import` and `export`. `qemu-img` reads
//! and writes the formats; it reaches the volume by its NBD export, as any other client.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use admin::encoded;
use api::{ConfigObjects, Connections, Protocol, TargetStatus};
use clap::{Args, Subcommand, ValueEnum};
use control::format_size;
use serde_json::{Map, Value};

use crate::ask::{self, AskArgs};
use crate::{FAILURE, USAGE};

/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct VolumeArgs {
    #[command(subcommand)]
    command: VolumeCommand,
}

#[derive(Subcommand)]
enum VolumeCommand {
    /// Have a volume hold what a disk image holds, and zeros behind it: what it held is lost
    Import(ImageArgs),
    /// Write what a volume holds to a new disk image
    Export(ImageArgs),
}

#[derive(Args)]
struct ImageArgs {
    /// The volume: it has an export over NBD that lets this machine in
    volume: String,
    /// The disk image, a file of this machine
    image: PathBuf,
    /// Its format; default: what its name ends in (.raw and .img, .qcow2, .vhdx, .vmdk)
    #[arg(long)]
    format: Option<ImageFormat>,
    #[command(flatten)]
    ask: AskArgs,
}

/// A format of disk images.
#[derive(Clone, Copy, ValueEnum)]
enum ImageFormat {
    /// The bytes of the disk
    Raw,
    /// QEMU's
    Qcow2,
    /// Hyper-V's
    Vhdx,
    /// VMware's
    Vmdk,
}

impl ImageFormat {
    /// As `qemu-img` calls it.
    fn name(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Vhdx => "vhdx",
            ImageFormat::Vmdk => "vmdk",
        }
    }

    /// By the end of a name. The content is not asked: a guest that writes to a raw disk could
    /// make it look as another format, which names files of this machine.
    fn of(image: &Path) -> Option<ImageFormat> {
        match image.extension()?.to_str()? {
            "raw" | "img" => Some(ImageFormat::Raw),
            "qcow2" => Some(ImageFormat::Qcow2),
            "vhdx" => Some(ImageFormat::Vhdx),
            "vmdk" => Some(ImageFormat::Vmdk),
            _ => None,
        }
    }
}

/// Why nothing is done, or not all: the exit code, and what is told but has not been yet.
struct Stopped {
    code: u8,
    why: Option<String>,
}

impl From<u8> for Stopped {
    fn from(code: u8) -> Stopped {
        Stopped { code, why: None }
    }
}

fn failed(why: String) -> Stopped {
    Stopped {
        code: FAILURE,
        why: Some(why),
    }
}

/// Does what is asked for, until `stop` says otherwise.
pub fn run(arguments: &VolumeArgs, stop: &AtomicBool) -> io::Result<ExitCode> {
    let done = match &arguments.command {
        VolumeCommand::Import(image) => import(image, stop),
        VolumeCommand::Export(image) => export(image, stop),
    };
    Ok(done.map_or_else(
        |Stopped { code, why }| {
            if let Some(why) = why {
                ask::tell(&format!("weft: {why}"));
            }
            ExitCode::from(code)
        },
        |()| ExitCode::SUCCESS,
    ))
}

fn import(arguments: &ImageArgs, stop: &AtomicBool) -> Result<(), Stopped> {
    let volume = &arguments.volume;
    let image = &own_path(&arguments.image)?;
    let format = arguments.format()?;
    let image_bytes = size_of_image(image, format, stop)?;
    let url = arguments.url(true)?;
    arguments.refuse_if_used()?;
    let told = info(OsStr::new(&url), "raw", stop)?;
    let volume_bytes = size_told(&told, &url)?;
    if image_bytes > volume_bytes {
        let image_size = format_size(image_bytes);
        return Err(failed(format!(
            "{} has {image_size}, and volume {volume} {}: `weft set volume {volume} size={image_size}` \
             makes it large enough",
            image.display(),
            format_size(volume_bytes),
        )));
    }
    convert(
        (image.as_os_str(), format.name()),
        (OsStr::new(&url), "raw"),
        &["-n"],
        stop,
    )?;
    zero(&url, image_bytes..volume_bytes, stop)
}

/// Writes zeros, by a few pieces of each program: `qemu-io` takes less than 2 GiB at a time.
fn zero(url: &str, bytes: Range<u64>, stop: &AtomicBool) -> Result<(), Stopped> {
    const PIECE_BYTES: u64 = 1 << 30;
    let starts: Vec<u64> = (bytes.start..bytes.end)
        .step_by(PIECE_BYTES as usize)
        .collect();
    for some in starts.chunks(64) {
        let mut program = program("qemu-io");
        program.args(["-f", "raw"]);
        for at in some {
            let len = PIECE_BYTES.min(bytes.end - at);
            program.args(["-c", &format!("write -z -u {at} {len}")]);
        }
        // It says on standard output what is wrong.
        run_to_end(program.arg(url).stdout(Stdio::piped()), stop)?;
    }
    Ok(())
}

fn export(arguments: &ImageArgs, stop: &AtomicBool) -> Result<(), Stopped> {
    let image = &own_path(&arguments.image)?;
    let format = arguments.format()?;
    let url = arguments.url(false)?;
    // The name is this command's own from here on, and no other file is written over.
    let made = fs::File::options().write(true).create_new(true).open(image);
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => failed(format!(
            "{} is there: remove it or choose another name",
            image.display()
        )),
        _ => failed(format!("{} cannot be made: {error}", image.display())),
    })?;
    let done = convert(
        (OsStr::new(&url), "raw"),
        (image.as_os_str(), format.name()),
        &[],
        stop,
    );
    if done.is_err() {
        let _ = fs::remove_file(image);
    }
    done
}

impl ImageArgs {
    fn format(&self) -> Result<ImageFormat, Stopped> {
        let format = self.format.or_else(|| ImageFormat::of(&self.image));
        format.ok_or_else(|| Stopped {
            code: USAGE,
            why: Some(format!(
                "{} does not end in .raw, .img, .qcow2, .vhdx or .vmdk: say the format with --format",
                self.image.display()
            )),
        })
    }

    /// Where the volume is by NBD; `writes`: not an export that may only be read.
    fn url(&self, writes: bool) -> Result<String, Stopped> {
        let (volume, ask) = (&self.volume, &self.ask);
        if ask.is_remote() {
            return Err(failed(
                "disk images are read and written on the machine that weft runs on: run this there, by \
                 its admin socket"
                    .to_owned(),
            ));
        }
        let exports = ask::get(ask, "/v1/objects/nbd_export")?;
        let exports: ConfigObjects = ask::decoded(&exports)?;
        let exports = exports.objects.iter().map(|object| &object.fields);
        let its = |fields: &&_| Map::get(fields, "volume") == Some(&volume.as_str().into());
        let its: Vec<_> = exports.filter(its).collect();
        let export = its.iter().find(|fields| {
            let is_read_only = fields.get("read_only") == Some(&true.into());
            !(writes && is_read_only) && is_reached_in_the_clear(fields)
        });
        let kind = if writes { " that may be written" } else { "" };
        let own_name = match its.is_empty() {
            true => String::new(),
            false => format!("name={volume}-here "),
        };
        let export = export.ok_or_else(|| {
            failed(format!(
                "volume {volume} has no export over NBD{kind} for clients without TLS: `weft add \
                 nbd_export {own_name}volume={volume} clients=127.0.0.1` makes one"
            ))
        })?;
        let name = export.get("name").and_then(Value::as_str);
        let name = name.unwrap_or(volume);
        let status: TargetStatus = ask::decoded(&ask::get(ask, "/v1/status")?)?;
        let configured = ask::get(ask, "/v1/objects/listener")?;
        let configured: ConfigObjects = ask::decoded(&configured)?;
        let requires_tls = |address: SocketAddr| {
            let mut all = configured.objects.iter().map(|object| &object.fields);
            all.any(|fields| {
                let own = fields.get("address").and_then(Value::as_str);
                let is_it = own.is_some_and(|own| own.parse() == Ok(address));
                is_it && fields.get("tls") == Some(&"required".into())
            })
        };
        let mut listeners: Vec<_> = status.listeners.iter().collect();
        listeners.retain(|listener| {
            listener.protocol == Protocol::Nbd && !requires_tls(listener.address)
        });
        // The address of this machine alone is in the clear on no network.
        listeners.sort_by_key(|listener| !listener.address.ip().is_loopback());
        let address = listeners.first().map(|listener| reached(listener.address));
        let address = address.ok_or_else(|| {
            failed(
                "weft listens for no NBD without TLS: `weft add listener \
                 address=127.0.0.1:10809 protocol=nbd`, or another port, has it do so"
                    .to_owned(),
            )
        })?;
        Ok(format!("nbd://{address}/{}", encoded(name)))
    }

    /// Hosts that have the volume would find other data under what they know of it.
    fn refuse_if_used(&self) -> Result<(), Stopped> {
        let volume = &self.volume;
        let target = format!("/v1/connections?volume={}", encoded(volume));
        let used: Connections = ask::decoded(&ask::get(&self.ask, &target)?)?;
        match used.connections.is_empty() && used.silent_reactors == 0 {
            true => Ok(()),
            false => Err(failed(format!(
                "hosts are connected to volume {volume}: `weft get connections --volume {volume}` lists \
                 them; have them disconnect first"
            ))),
        }
    }
}

/// Whether an export is for clients by their address, too: what they prove themselves by over TLS
/// is not here.
fn is_reached_in_the_clear(export: &Map<String, Value>) -> bool {
    let Some(clients) = export.get("clients").and_then(Value::as_array) else {
        return true;
    };
    let mut names = clients.iter().filter_map(Value::as_str);
    names.any(|name| name.parse::<auth::Network>().is_ok())
}

/// An address that reaches a listener from this machine.
fn reached(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        // [::] takes IPv4 too, by which `clients` more often name this machine.
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// The size of the disk that an image is of. One that is made of several files is refused: it could
/// name any file that its reader may read.
fn size_of_image(image: &Path, format: ImageFormat, stop: &AtomicBool) -> Result<u64, Stopped> {
    let info = info(image.as_os_str(), format.name(), stop)?;
    let data = &info["format-specific"]["data"];
    let own = image.to_str();
    let extents = data["extents"].as_array().map_or(&[][..], Vec::as_slice);
    let mut others = extents.iter().map(|extent| &extent["filename"]);
    let other = others.find(|name| name.as_str() != own);
    let named = [&info["backing-filename"], &data["data-file"]];
    let named = named.into_iter().chain(other).find_map(Value::as_str);
    match named {
        None => size_told(&info, &image.display().to_string()),
        Some(named) => Err(failed(format!(
            "{} needs another file, {named}: `qemu-img convert` makes one image of both, if you trust it",
            image.display()
        ))),
    }
}

fn size_told(info: &Value, of: &str) -> Result<u64, Stopped> {
    let size = info["virtual-size"].as_u64();
    size.ok_or_else(|| failed(format!("qemu-img does not tell the size of {of}")))
}

fn info(of: &OsStr, format: &str, stop: &AtomicBool) -> Result<Value, Stopped> {
    let mut program = program("qemu-img");
    program
        .args(["info", "--output=json", "-f", format])
        .arg(of);
    let said = run_to_end(program.stdout(Stdio::piped()), stop)?;
    serde_json::from_slice(&said)
        .map_err(|error| failed(format!("qemu-img info says what is no JSON: {error}")))
}

/// Copies one disk to another, each with its format. Progress is shown on a terminal.
fn convert(
    (from, from_format): (&OsStr, &str),
    (to, to_format): (&OsStr, &str),
    options: &[&str],
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    let mut program = program("qemu-img");
    // Without a cache mode nothing would be flushed at the end.
    program
        .args(["convert", "-W", "-t", "writeback"])
        .args(options);
    if io::stdout().is_terminal() {
        program.arg("-p");
    }
    program
        .args(["-f", from_format, "-O", to_format])
        .arg(from)
        .arg(to);
    run_to_end(&mut program, stop).map(drop)
}

fn program(name: &str) -> Command {
    let mut program = Command::new(name);
    program.stdin(Stdio::null());
    program
}

/// An absolute path, which QEMU takes for no option (`-a`) and no protocol (`a:b`).
fn own_path(image: &Path) -> Result<PathBuf, Stopped> {
    std::path::absolute(image).map_err(|error| failed(format!("{}: {error}", image.display())))
}

/// Waits for a program of QEMU's, which says itself what is wrong; what it has written where that is
/// taken. It is ended when `stop` says so.
fn run_to_end(program: &mut Command, stop: &AtomicBool) -> Result<Vec<u8>, Stopped> {
    let name = program.get_program().to_string_lossy().into_owned();
    let fail = |error: io::Error| failed(format!("{name}: {error}"));
    let mut child = program.spawn().map_err(|error| {
        failed(format!(
            "{name} cannot be run: {error}: install it (`qemu-utils` of Debian, `qemu-img` of Fedora)"
        ))
    })?;
    let said = child.stdout.take().map(|mut out| {
        thread::spawn(move || {
            let mut said = Vec::new();
            out.read_to_end(&mut said).map(|_| said)
        })
    });
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            // It may have ended by itself: Ctrl-C at a terminal is for both.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("ended by a signal: not all was done".to_owned()));
        }
        thread::sleep(POLL);
    };
    let said = said.map_or(Ok(Vec::new()), |said| said.join().expect("it only reads"));
    let said = said.map_err(fail)?;
    match status.success() {
        true => Ok(said),
        false => Err(failed(format!(
            "{name} ended with {status}{}",
            told_by(&said)
        ))),
    }
}

/// What a program has said on standard output, if anything.
fn told_by(said: &[u8]) -> String {
    match String::from_utf8_lossy(said).trim() {
        "" => String::new(),
        said => format!(": {said}"),
    }
}
