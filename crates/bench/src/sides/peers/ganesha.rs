//! nfs-ganesha, an NFS server in user space, with files in its memory.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::super::child::{Child, TempFile, Words};
use super::super::{Around, FigureError, Options, check_not_stopped};
use super::{Peer, ServingPeer, program, version};

/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
const NAME: &str = "ganesha.nfsd";
const PACKAGES: &str = "nfs-ganesha and nfs-ganesha-mem";
/// Where its packages put what it loads, below their root.
const PLUGINS: &str = "usr/lib/x86_64-linux-gnu/ganesha";

pub const PEER: Peer = Peer { available, start };

fn available(_: &Options) -> Result<(), String> {
    let found = program(NAME, PACKAGES)?;
    let plugins = plugins(&found).unwrap_or(Path::new("/").join(PLUGINS));
    match plugins.is_dir() && !plugins.join("libfsalmem.so").is_file() {
        true => Err("nfs-ganesha has no files in memory here: install nfs-ganesha-mem".into()),
        false => Ok(()),
    }
}

/// Where the plugins of a package lie that is unpacked elsewhere than a
/// distribution puts it.
fn plugins(program: &str) -> Option<PathBuf> {
    let root = Path::new(program).parent()?.parent()?.parent()?;
    let plugins = root.join(PLUGINS);
    (root != Path::new("/") && plugins.is_dir()).then_some(plugins)
}

/// A folder that goes when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(around: &Around, _bytes: u64) -> Result<ServingPeer, FigureError> {
    let ganesha = program(NAME, PACKAGES)?;
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    let port = free.map_err(|error| error.to_string())?.port();
    let state = std::env::temp_dir().join(format!("weft-bench-{}-ganesha", std::process::id()));
    std::fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    let state = Folder(state);
    let plugins = match plugins(&ganesha) {
        Some(folder) => format!(" Plugins_Dir = \"{}\";", folder.display()),
        None => String::new(),
    };
    let config = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; NFS_Protocols = 4; Enable_NLM = false; \
         Enable_RQUOTA = false; Bind_addr = 127.0.0.1;{plugins} }}\n\
         NFSv4 {{ Graceless = true; Only_Numeric_Owners = true; UseGetpwnam = true; RecoveryBackend = fs; \
         RecoveryRoot = \"{}\"; Minor_Versions = 1, 2; }}\n\
         EXPORT {{ Export_Id = 1; Path = /files; Pseudo = /files; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Protocols = 4; FSAL {{ Name = MEM; }} }}\n",
        state.0.display()
    );
    let file = TempFile::new("ganesha.conf", &config)?;
    let (path, pid) = (file.0.to_string_lossy(), state.0.join("pid"));
    let pid = pid.to_string_lossy();
    let words = [&ganesha, "-F", "-L", "STDERR", "-f", &path, "-p", &pid];
    let words = Words {
        words: words.map(str::to_owned).into(),
        ..around.weft(Vec::new())?
    };
    let words = words.on(&around.cpus.target);
    let child = Child::start(&words)?;
    let give_up = Instant::now() + START_MAX;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        check_not_stopped(around.stop)?;
        if Instant::now() > give_up {
            return Err(child.error_with_output("it does not listen"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(ServingPeer {
        is_counted: true,
        url: format!("nfs://127.0.0.1:{port}/files/disk"),
        device_bytes: None,
        commands: vec![
            format!("# ganesha.conf\n{config}"),
            words.shown().replace(&*path, "ganesha.conf"),
        ],
        versions: vec![version("nfs-ganesha", &ganesha, &["-v"])],
        child: Some(child),
        _files: vec![Box::new(file), Box::new(state)],
    })
}
