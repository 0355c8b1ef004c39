//! A real Prometheus, and promtool: Debian's package, unpacked into the cache.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::child::{Owned, output, tail, tied};
use crate::packages::cache_dir;
use crate::weft::free_address;
use crate::{Unavailable, child};

/// How long Prometheus may take to have what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where Prometheus and promtool are.
#[derive(Debug)]
pub struct PrometheusTools {
    folder: PathBuf,
}

impl PrometheusTools {
    /// Fetches the package unless the cache has it.
    ///
    /// # Errors
    /// What is not to be had.
    pub fn fetch() -> Result<PrometheusTools, Unavailable> {
        let root = cache_dir().join("prometheus");
        let folder = root.join("usr/bin");
        if !folder.exists() {
            // Renamed when complete; another test may have done the same meanwhile.
            fs::create_dir_all(cache_dir()).map_err(|e| Unavailable::wrap(root.display(), e))?;
            let work = tempfile::tempdir_in(cache_dir());
            let work = work.map_err(|e| Unavailable::wrap(root.display(), e))?;
            let mut download = Command::new("apt-get");
            download.args(["-q", "-o", "APT::Sandbox::User=", "download", "prometheus"]);
            output(download.current_dir(&work)).map_err(Unavailable)?;
            let unpack = "dpkg-deb -x prometheus_*.deb root";
            let mut shell = Command::new("sh");
            output(shell.args(["-c", unpack]).current_dir(&work)).map_err(Unavailable)?;
            let renamed = fs::rename(work.path().join("root"), &root);
            if !folder.exists() {
                renamed.map_err(|e| Unavailable::wrap(root.display(), e))?;
            }
        }
        Ok(PrometheusTools { folder })
    }

    /// Runs promtool with `input`; what it said, and whether it was content.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn promtool(&self, arguments: &[&str], input: &str) -> io::Result<(bool, String)> {
        let mut child = Command::new(self.folder.join("promtool"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child
            .stdin
            .take()
            .map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()))?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.success(), said))
    }

    /// Starts Prometheus in `folder` with a configuration that lies there.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start(&self, folder: &Path, config: &str) -> io::Result<Prometheus> {
        let address = free_address();
        let (file, log) = (folder.join("prometheus.yml"), folder.join("prometheus.log"));
        fs::write(&file, config)?;
        let mut command = tied(&self.folder.join("prometheus"));
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        let _process = Owned::spawn(&mut command)?;
        Ok(Prometheus {
            _process,
            address,
            log,
        })
    }
}

/// A Prometheus that runs.
#[derive(Debug)]
pub struct Prometheus {
    _process: child::Owned,
    address: SocketAddr,
    log: PathBuf,
}

impl Prometheus {
    /// `data` of what its API answers: a path below `/api/v1/`.
    ///
    /// # Errors
    /// What it answers else.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let path = format!("/api/v1/{path}");
        let (_, body) = get(self.address, &path, "").map_err(|e| e.to_string())?;
        let mut answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        match answer["status"] == "success" {
            true => Ok(answer["data"].take()),
            false => Err(body),
        }
    }

    /// The series that an expression has now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let mut data = self.get(&format!("query?query={encoded}"))?;
        match data["result"].take() {
            Value::Array(series) => Ok(series),
            other => Err(format!("no series: {other}")),
        }
    }

    /// Waits until an expression has a series. Panics with the end of the log.
    pub fn wait_for(&self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.query(expression);
            match &found {
                Ok(series) if !series.is_empty() => return,
                _ => {
                    let log = fs::read_to_string(&self.log).unwrap_or_default();
                    let log = tail(&log, 10);
                    assert!(Instant::now() < end, "{expression}: {found:?}\n{log}");
                }
            }
            sleep(Duration::from_millis(200));
        }
    }
}

/// Head and body of an answer to a request over TCP, with `head` in its own: lines that end in
/// CR LF.
///
/// # Errors
/// Where nothing is answered.
pub fn get(address: SocketAddr, path: &str, head: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{head}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok((head.to_owned(), body.to_owned()))
}
