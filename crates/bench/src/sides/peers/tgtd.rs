//! tgtd, a target for iSCSI in user space, with a file in memory behind it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::super::child::{Child, TempFile, Words};
use super::super::{Around, FigureError, Options, check_not_stopped};
use super::{Peer, ServingPeer, program, said, version};

/// How long it may take to answer its administrator.
const START_MAX: Duration = Duration::from_secs(10);
const IQN: &str = "iqn.2026-01.io.weft:tgtd";
const PACKAGE: &str = "tgt";

pub const PEER: Peer = Peer { available, start };

fn available(_: &Options) -> Result<(), String> {
    program("tgtd", PACKAGE)?;
    program("tgtadm", PACKAGE)?;
    match Path::new("/dev/shm").is_dir() {
        true => Ok(()),
        false => Err("tgtd is measured on a file in /dev/shm, which is not there".into()),
    }
}

fn start(around: &Around, bytes: u64) -> Result<ServingPeer, FigureError> {
    let (tgtd, tgtadm) = (program("tgtd", PACKAGE)?, program("tgtadm", PACKAGE)?);
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    let port = free.map_err(|error| error.to_string())?.port();
    let name = format!("/dev/shm/weft-bench-{}-tgtd.img", std::process::id());
    let image = TempFile(name.clone().into());
    let made = fs::File::create(&image.0).and_then(|file| file.set_len(bytes));
    made.map_err(|error| format!("{name}: {error}"))?;
    // Its administrator's socket, apart from that of one that runs already.
    let control = (u32::from(port) % 30_000 + 1).to_string();
    let portal = format!("portal=127.0.0.1:{port}");
    let words = [&tgtd, "-f", "-C", &control, "--iscsi", &portal];
    let words = Words {
        words: words.map(str::to_owned).into(),
        ..around.weft(Vec::new())?
    };
    let words = words.on(&around.cpus.target);
    let mut commands = vec![words.shown()];
    let child = Child::start(&words)?;
    let steps = [
        format!("--op new --mode target --tid 1 -T {IQN}"),
        format!("--op new --mode logicalunit --tid 1 --lun 1 -b {name} --bstype rdwr"),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
    ];
    let give_up = Instant::now() + START_MAX;
    for step in steps {
        let line = format!("-C {control} --lld iscsi {step}");
        let words: Vec<&str> = line.split(' ').collect();
        loop {
            check_not_stopped(around.stop)?;
            match said(&tgtadm, &words) {
                Ok(_) => break,
                Err(why) if Instant::now() > give_up => return Err(child.error_with_output(&why)),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
        commands.push(format!("tgtadm {line}"));
    }
    Ok(ServingPeer {
        child: Some(child),
        is_counted: true,
        url: format!("iscsi://127.0.0.1:{port}/{IQN}/1"),
        device_bytes: None,
        commands,
        versions: vec![version("tgtd", &tgtd, &["--version"])],
        _files: vec![Box::new(image)],
    })
}
