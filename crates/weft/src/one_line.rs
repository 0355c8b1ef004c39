//! What `weft serve` serves without a file: `--ram`, `--file`, `--export`, `--listen`.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf, absolute};

use clap::{ArgGroup, Args};
use control::{OneLine, OneLineFile};
use server::check;

/// Blocks of volumes that a command line makes.
const RAM_BLOCK_BYTES: u64 = 4096;
const FILE_BLOCK_BYTES: u64 = 512;

#[derive(Args)]
#[command(group = ArgGroup::new("served").args(["ram", "file", "export"]).multiple(true))]
pub struct OneLineArgs {
    /// Serve a volume in memory, for every host; as often as there are to be volumes
    #[arg(long, value_name = "[NAME=]SIZE", value_parser = ram, conflicts_with = "config")]
    ram: Vec<(Option<String>, u64)>,
    /// Serve a file or a block device as a volume, for every host; likewise
    #[arg(long, value_name = "PATH", value_parser = file, conflicts_with = "config")]
    file: Vec<OneLineFile>,
    /// Serve a folder over NFS, for every client, under its own name; likewise
    #[arg(long, value_name = "PATH", value_parser = folder, conflicts_with = "config")]
    export: Vec<PathBuf>,
    /// Where hosts connect, to the usual ports of all protocols; likewise. Default: 127.0.0.1
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "served")]
    listen: Vec<IpAddr>,
}

impl OneLineArgs {
    /// What is asked for, if anything is; `nfs_port`: where NFS can be had on this machine.
    /// Makes the folder that keeps what NFS needs.
    ///
    /// # Errors
    /// There can be no such folder, and what to do.
    pub fn asked(self, nfs_port: impl FnOnce() -> u16) -> Result<Option<OneLine>, String> {
        if self.ram.is_empty() && self.file.is_empty() && self.export.is_empty() {
            return Ok(None);
        }
        let mut asked = OneLine {
            ram: self.ram,
            files: self.file,
            exports: self.export,
            listen: self.listen,
            ..OneLine::default()
        };
        if !asked.exports.is_empty() {
            asked.nfs_port = asked.listen.is_empty().then(nfs_port);
            let folder = admin::usual_folder().and_then(made);
            let folder = folder.map_err(|why| {
                format!("no folder keeps what NFS's file handles mean: {why}: set XDG_STATE_HOME")
            })?;
            asked.nfs_state = folder.join("nfs");
        }
        Ok(Some(asked))
    }
}

fn made(folder: PathBuf) -> Result<PathBuf, String> {
    let told = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(told)?;
    absolute(&folder).map_err(told)
}

fn ram(text: &str) -> Result<(Option<String>, u64), String> {
    let (name, size) = match text.split_once('=') {
        Some((name, size)) => (Some(name.to_owned()), size),
        None => (None, text),
    };
    name.as_deref().map_or(Ok(()), check::volume_name)?;
    match control::parse_size(size)? {
        0 => Err("it has no block: name a size, as in --ram 10GiB".to_owned()),
        size if size % RAM_BLOCK_BYTES != 0 => Err(format!(
            "it is no multiple of {RAM_BLOCK_BYTES} bytes, its blocks: name one, as 10GiB is"
        )),
        size => Ok((name, size)),
    }
}

fn file(text: &str) -> Result<OneLineFile, String> {
    let there = fs::metadata(text)
        .map_err(|error| format!("{error}: `truncate -s 10GiB {text}` makes a sparse file"))?;
    let path = named(text)?;
    let size_bytes = match there.file_type() {
        kind if kind.is_block_device() => None,
        kind if kind.is_dir() => {
            return Err("it is a folder: --export serves that over NFS".to_owned());
        }
        kind if !kind.is_file() => {
            return Err("it is no file and no block device: name one of these".to_owned());
        }
        _ => Some(there.len()),
    };
    match size_bytes {
        Some(0) => Err(format!(
            "it is empty: `truncate -s 10GiB {text}` gives it a size"
        )),
        Some(size) if size % FILE_BLOCK_BYTES != 0 => Err(format!(
            "its {size} bytes are no multiple of {FILE_BLOCK_BYTES}, its blocks: `truncate -s \
             %{FILE_BLOCK_BYTES} {text}` rounds them up"
        )),
        size_bytes => Ok(OneLineFile { path, size_bytes }),
    }
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let there = fs::metadata(text).map_err(|error| format!("{error}: `mkdir {text}` makes it"))?;
    match there.is_dir() {
        true => named(text),
        false => Err("it is no folder: --file serves a file as a volume".to_owned()),
    }
}

/// A path as a configuration of any folder has it.
fn named(text: &str) -> Result<PathBuf, String> {
    absolute(Path::new(text)).map_err(|error| error.to_string())
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "it is no IP address: 0.0.0.0 is every one of this machine, 127.0.0.1 this machine alone; \
         ports are the usual ones, others need a file (-c)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_cannot_be_served_is_told_with_a_remedy() {
        let folder_there = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder_there.path().join(name).display().to_string();
        fs::write(path("empty"), b"").expect("room");
        fs::write(path("odd"), [0; 513]).expect("room");
        fs::write(path("disk"), [0; 1024]).expect("room");
        for (told, part) in [
            (ram("0").map(drop), "--ram 10GiB"),
            (ram("513").map(drop), "multiple of 4096"),
            (ram("a/b=1GiB").map(drop), "a volume's name is"),
            (ram("much").map(drop), "much"),
            (file(&path("none")).map(drop), "truncate -s 10GiB"),
            (file(&path("")).map(drop), "--export"),
            (file(&path("empty")).map(drop), "it is empty"),
            (file(&path("odd")).map(drop), "rounds them up"),
            (file("/dev/null").map(drop), "no block device"),
            (folder(&path("none")).map(drop), "mkdir"),
            (folder(&path("disk")).map(drop), "--file"),
            (address("localhost").map(drop), "127.0.0.1 this machine"),
            (address("0.0.0.0:4420").map(drop), "others need a file"),
        ] {
            let told = told.expect_err(part);
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(ram("fast=1MiB"), Ok((Some("fast".to_owned()), 1 << 20)));
        let disk = file(&path("disk")).expect("a file");
        assert_eq!(
            (disk.path, disk.size_bytes),
            (path("disk").into(), Some(1024))
        );
    }
}
