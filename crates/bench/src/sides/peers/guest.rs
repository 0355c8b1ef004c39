//! The Linux kernel's own targets and clients, in an emulated machine: right in
//! what they do and slow as the emulation is, which no figure makes up for.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use super::super::super::load::{Load, LoadProtocol};
use super::super::child::{Child, TempFile, Words};
use super::super::target::ServingTarget;
use super::super::{Around, FigureError, Options};
use super::{END_MAX, Peer, PeerClient, Planned, ServingPeer, fio};

/// What a script says when its target serves, or its load begins.
const MARK: &str = "MARK";
/// The guest has little memory.
const DEVICE_BYTES_MAX: u64 = 64 << 20;
/// An emulated machine takes its time to be steady.
const RUNTIME_MIN: Duration = Duration::from_secs(2);
/// Names of what it serves.
const NQN: &str = "nqn.2026-01.io.weft:guest";
const IQN: &str = "iqn.2026-01.io.weft:guest";

pub const NVMET: Peer = Peer {
    available,
    start: |around, bytes| {
        serve(around, (4420, NVMET_SCRIPT), bytes, |port| {
            format!("nvme-tcp://127.0.0.1:{port}/{NQN}")
        })
    },
};
pub const LIO: Peer = Peer {
    available,
    start: |around, bytes| {
        serve(around, (3260, LIO_SCRIPT), bytes, |port| {
            format!("iscsi://127.0.0.1:{port}/{IQN}/0")
        })
    },
};
pub const KNFSD: Peer = Peer {
    available,
    start: |around, bytes| {
        serve(around, (2049, KNFSD_SCRIPT), bytes, |port| {
            format!("nfs://127.0.0.1:{port}/disk")
        })
    },
};
pub const NVME_HOST: PeerClient = PeerClient {
    available: client_available,
    plan: |around, target, protocol| plan(around, target, protocol, NVME_HOST_SCRIPT),
};
pub const INITIATOR: PeerClient = PeerClient {
    available: client_available,
    plan: |around, target, protocol| plan(around, target, protocol, INITIATOR_SCRIPT),
};
pub const NFS_CLIENT: PeerClient = PeerClient {
    available: client_available,
    plan: |around, target, protocol| plan(around, target, protocol, NFS_CLIENT_SCRIPT),
};

/// Each line before ends with an error where it fails.
const PRELUDE: &str = "set -eu\n";

const NVMET_SCRIPT: &str = r#"
modprobe -a configfs null_blk nvmet nvmet_tcp
mount -t configfs none /sys/kernel/config
disk=/sys/kernel/config/nullb/disk
mkdir -p $disk
echo 1 >$disk/memory_backed
echo 4096 >$disk/blocksize
echo $MIB >$disk/size
echo 1 >$disk/power
nvmet=/sys/kernel/config/nvmet
mkdir $nvmet/subsystems/$NAME
echo 1 >$nvmet/subsystems/$NAME/attr_allow_any_host
mkdir $nvmet/subsystems/$NAME/namespaces/1
[ -e /dev/disk ] && device=/dev/disk || device=/dev/nullb0
echo -n $device >$nvmet/subsystems/$NAME/namespaces/1/device_path
echo 1 >$nvmet/subsystems/$NAME/namespaces/1/enable
mkdir $nvmet/ports/1
echo ipv4 >$nvmet/ports/1/addr_adrfam
echo tcp >$nvmet/ports/1/addr_trtype
echo 10.0.2.15 >$nvmet/ports/1/addr_traddr
echo 4420 >$nvmet/ports/1/addr_trsvcid
ln -s $nvmet/subsystems/$NAME $nvmet/ports/1/subsystems/$NAME
"#;

const LIO_SCRIPT: &str = r#"
modprobe -a configfs target_core_mod iscsi_target_mod
mount -t configfs none /sys/kernel/config
core=/sys/kernel/config/target/core/rd_mcp_0/disk
mkdir -p $core
echo rd_pages=$((MIB * 256)) >$core/control
echo 1 >$core/enable
tpg=/sys/kernel/config/target/iscsi/$NAME/tpgt_1
mkdir -p $tpg/lun/lun_0
ln -s $core $tpg/lun/lun_0/disk
mkdir -p $tpg/np/0.0.0.0:3260
echo 0 >$tpg/attrib/authentication
echo 0 >$tpg/attrib/demo_mode_write_protect
echo 1 >$tpg/attrib/generate_node_acls
echo 1 >$tpg/attrib/cache_dynamic_acls
echo 1 >$tpg/enable
"#;

/// The export's answers are written by hand, where mountd would be asked: flags
/// are read-write, any port, root is root, asynchronous, no subtree check, and
/// there is a file system id, 0.
const KNFSD_SCRIPT: &str = r#"
modprobe nfsd
mkdir -p /export /var/lib/nfs/v4recovery
mount -t tmpfs -o size=$((MIB * 3))m files /export
mount -t nfsd nfsd /proc/fs/nfsd
never=4000000000
echo "nfsd 10.0.2.2 $never *" >/proc/net/rpc/auth.unix.ip/channel
echo "* /export $never 9234 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
printf '%s\n' "* 1 \\x00000000 $never /export" >/proc/net/rpc/nfsd.fh/channel
echo 1048576 >/proc/fs/nfsd/max_block_size
echo "-2 -3 +4 +4.1 +4.2" >/proc/fs/nfsd/versions
echo "tcp 2049" >/proc/fs/nfsd/portlist
echo 8 >/proc/fs/nfsd/threads
echo Y >/proc/fs/nfsd/v4_end_grace
"#;

const NVME_HOST_SCRIPT: &str = r#"
nvme connect -t tcp -a 10.0.2.2 -s $PORT -n $NAME -i $CONNECTIONS >/dev/null
device=/dev/nvme0n1
"#;

const INITIATOR_SCRIPT: &str = r#"
mkdir -p /run/lock/iscsi /var/lib/iscsi /etc/iscsi
ln -sf /run/lock /var/lock
echo "InitiatorName=iqn.2026-01.io.weft:kernel" >/etc/iscsi/initiatorname.iscsi
echo "root:x:0:0:root:/:/bin/sh" >/etc/passwd
modprobe -a iscsi_tcp sd_mod
iscsid
iscsiadm -m node -o new -T $NAME -p 10.0.2.2:$PORT >/dev/null
iscsiadm -m node -T $NAME -p 10.0.2.2:$PORT --login >/dev/null
device=/dev/sda
"#;

const NFS_CLIENT_SCRIPT: &str = r#"
echo 'tcp 6 TCP' >/etc/protocols
modprobe nfsv4
mount.nfs 10.0.2.2:$NAME /mnt -o vers=4.2,proto=tcp,port=$PORT,nconnect=$CONNECTIONS
device=/mnt/disk
"#;

fn available(options: &Options) -> Result<(), String> {
    match &options.guest {
        None => Err(
            "name the program that runs a script in a Linux guest: --guest PROGRAM, or \
             WEFT_GUEST; in weft's sources `cargo build -p interop --bin guest` makes it"
                .into(),
        ),
        Some(guest) if !guest.is_file() => Err(format!("{} is not there", guest.display())),
        Some(_) => Ok(()),
    }
}

fn client_available(load: &Load, options: &Options) -> Result<(), String> {
    available(options)?;
    match load.header_digest || load.data_digest {
        true => Err("the kernel's clients are only measured without digests".into()),
        false => Ok(()),
    }
}

/// The program that runs a script, with a port of ours that leads to one of the
/// guest's.
fn guest(
    around: &Around,
    script: &str,
    forward: Option<(u16, u16)>,
) -> Result<(Words, TempFile), FigureError> {
    let file = TempFile::new("script.sh", script)?;
    let program: &PathBuf = around.options.guest.as_ref().expect("it was looked at");
    let mut words = Vec::new();
    if let Some((here, there)) = forward {
        words.extend(["env".into(), format!("WEFT_GUEST_FORWARD={here}:{there}")]);
    }
    words.push(program.to_string_lossy().into_owned());
    words.push(file.0.to_string_lossy().into_owned());
    let words = Words {
        words,
        ..around.weft(Vec::new())?
    };
    Ok((words, file))
}

fn versions() -> Vec<(String, String)> {
    let what = "Linux in an emulated machine (QEMU's TCG): figures of it are the emulation's";
    vec![("guest".into(), what.into())]
}

/// A target in a guest that serves until its program is ended.
fn serve(
    around: &Around,
    (there, script): (u16, &str),
    bytes: u64,
    url: impl Fn(u16) -> String,
) -> Result<ServingPeer, FigureError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    let here = free.map_err(|error| error.to_string())?.port();
    let name = if there == 3260 { IQN } else { NQN };
    let bytes = bytes.min(DEVICE_BYTES_MAX);
    let mib = bytes >> 20;
    let script = format!("{PRELUDE}NAME={name} MIB={mib}\n{script}echo {MARK} serves\nsleep 600\n");
    let (words, file) = guest(around, &script, Some((here, there)))?;
    let words = words.on(&around.cpus.target);
    let mut child = Child::start(&words)?;
    child.line(END_MAX, around.stop, |line| {
        line.starts_with(MARK).then_some(())
    })?;
    Ok(ServingPeer {
        child: Some(child),
        is_counted: false,
        url: url(here),
        device_bytes: Some(bytes),
        commands: vec![format!("# script.sh\n{script}"), words.shown()],
        versions: versions(),
        _files: vec![Box::new(file)],
    })
}

/// A client in a guest: fio on what its kernel makes of our target.
fn plan(
    around: &Around,
    target: &ServingTarget,
    protocol: LoadProtocol,
    script: &str,
) -> Result<Planned, FigureError> {
    let port = target.address(protocol).port();
    let name = target.name(protocol);
    let connections = around.load.connections;
    let mut fio = fio::words(around, "libaio", RUNTIME_MIN);
    if protocol.has_files() {
        fio.push(format!("--size={}", around.how_long.volume_bytes));
    }
    let fio = fio.join(" ");
    let script = format!(
        "{PRELUDE}NAME={name} PORT={port} CONNECTIONS={connections}\n{script}\
         tries=0\nuntil [ -e $device ]; do tries=$((tries + 1)); [ $tries -lt 300 ]; sleep 0.1; \
         done\necho {MARK} begins\nfio --filename=$device {fio}\n"
    );
    let (words, file) = guest(around, &script, None)?;
    Ok(Planned {
        words: words.on(&around.cpus.client),
        begins: Some(MARK),
        read: fio::read,
        versions: versions(),
        _undo: Some(Box::new(file)),
    })
}
