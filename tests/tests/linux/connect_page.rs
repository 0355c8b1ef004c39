//! The lines for Linux on the console's page "Connect a client", run as they stand there.

use std::net::SocketAddr;

use control::{ClientSystem, NvmeProof, Reached, ReachedObject};
use interop::guest::{Config, Guest, prepare};
use interop::scripts::{CONNECT_PAGE, ISCSI, LAB, MACHINE, script};
use interop::systems::RELEASE;
use interop::weft::{NQN, WeftProcess, free_address};
use needs::needs;

const IQN: &str = "iqn.2026-01.org.example:interop";

/// The lines of each step for a client that reaches weft at a port.
fn steps<const N: usize>(what: ReachedObject<'_>, listener: SocketAddr) -> [String; N] {
    let address = SocketAddr::new(MACHINE.parse().expect("an address"), listener.port());
    let reached = Reached {
        what,
        address,
        weft: "weft",
    };
    let steps = reached.steps(ClientSystem::Linux).into_iter();
    let steps: Vec<String> = steps.map(|step| step.lines.join("\n")).collect();
    steps.try_into().expect("as many steps as the test runs")
}

#[needs(guest)]
#[test]
fn lines_of_the_connect_page_for_linux_do_what_they_say() {
    let (folder, no_weft) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, no_weft) = (folder.expect("a folder"), no_weft.expect("a folder"));
    let [nvme, second, iscsi, nfs] = [(); 4].map(|()| free_address());
    let files = folder.path().display();
    let config = format!(
        "[[volume]]\nname = \"n\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
         [[volume]]\nname = \"i\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\nvolumes = [\"n\"]\n\
         [[iscsi.target]]\nname = \"{IQN}\"\nallow_any_initiator = true\nvolumes = [\"i\"]\n\
         [[file_system]]\nname = \"files\"\nkind = \"mem\"\nsize = \"16MiB\"\n\
         [[export]]\npath = \"/files\"\nfile_system = \"files\"\nallow_any_client = true\n\
         squash = \"none\"\n\
         [nfs]\nstate = \"{files}/nfs\"\n\
         [[listener]]\naddress = \"{nvme}\"\nadvertise = \"{MACHINE}\"\n\
         [[listener]]\naddress = \"{second}\"\nadvertise = \"{MACHINE}\"\n\
         [[listener]]\naddress = \"{iscsi}\"\nprotocol = \"iscsi\"\nadvertise = \"{MACHINE}\"\n\
         [[listener]]\naddress = \"{nfs}\"\nprotocol = \"nfs\"\n\
         [admin]\nsocket = \"off\"\nlisten = \"off\"\n",
    );
    let _target = WeftProcess::serve("connect-page", &config, nvme);
    let subsystem = ReachedObject::Subsystem {
        nqn: NQN,
        proof: NvmeProof::default(),
    };
    let [connect, every_start, udev, fstab] = steps(subsystem, nvme);
    let unit = ReachedObject::Unit {
        target: IQN,
        lun: 0,
        user: None,
    };
    let [login, automatic, multipath, _] = steps(unit, iscsi);
    let [mounts, nfs_fstab] = steps(ReachedObject::Export("/files"), nfs);
    let port = iscsi.port().to_string();
    let settings = [
        ("ADDR", MACHINE),
        ("PORT", &port),
        ("NQN", NQN),
        ("IQN", IQN),
        ("CONNECT", &connect),
        ("EVERY_START", &every_start),
        ("UDEV", &udev),
        ("FSTAB", &fstab),
        ("LOGIN", &login),
        ("AUTOMATIC", &automatic),
        ("MULTIPATH", &multipath),
        ("MOUNTS", &mounts),
        ("NFS_FSTAB", &nfs_fstab),
    ];
    let pieces = [LAB, ISCSI, CONNECT_PAGE];
    let (packages, _) = prepare(&RELEASE).expect("packages, as everything for a guest is there");
    let mut config = Config::new("connect-page", &script(&settings, &pieces));
    config.folders = vec![
        ("packages", packages.root),
        ("weft", no_weft.path().to_path_buf()),
    ];
    let guest = Guest::start(&config).expect("a guest, as everything for it is there");
    let said = guest.finish().expect_success();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("STEP") && last.ends_with(" end"), "{said}");
}
