//! Snapshots of a volume as dirty bitmaps of its export.

use std::slice;
use std::sync::Arc;

use needs::each_driver;
use reactor::Choice;
use store::{Kind, Spec, Volume, snapshot};
use testkit::Mounted;
use wire::nbd::{command_flags as flags, nbd_option as option, option_reply as reply};

use crate::client::{Client, Form, Outcome};
use crate::content::pattern;
use crate::disks::BLOCK;
use crate::running::stop;
use crate::{config, export, portal};

const SIZE: u64 = 256 << 10;
const A: &str = "qemu:dirty-bitmap:a";
const B: &str = "qemu:dirty-bitmap:b";

#[each_driver(loop_device, mount, program("mkfs.xfs"))]
fn changed_blocks_are_told_since_each_snapshot(backend: Choice) {
    let folder = tempfile::tempdir().expect("a folder");
    let mounted = Mounted::made_by("mkfs.xfs", folder.path());
    let mut config = config(backend);
    let kind = Kind::file(mounted.path().join("disk"));
    config.volumes.push(Spec::new("disk", kind, SIZE, 4096));
    config.nbd_exports.push(export("disk"));
    let running = server::start(config).expect("starts");
    let mut volumes = running.volumes().into_iter();
    let volume = volumes.find(|volume| volume.info().name == "disk");
    let volume: Arc<dyn Volume> = volume.expect("it is served");
    let take = |name| snapshot::create(slice::from_ref(&volume), name, 7).expect("a snapshot");
    let mut writer = Client::open(portal(&running), Form::Structured, "disk");
    let mut write = |block: u64| {
        let data = pattern(block as u8, BLOCK);
        let written = writer.write(0, block * BLOCK as u64, &data);
        assert_eq!(written, Outcome::Done(vec![]));
    };
    write(0);
    take("a");
    write(1);
    take("b");
    write(2);
    for form in [Form::Structured, Form::Extended] {
        let mut client = Client::greeted(portal(&running), form);
        let listed = client.contexts(option::LIST_META_CONTEXT, "disk", &["qemu:"]);
        assert_eq!(listed, [A, B]);
        let none = client.contexts(option::LIST_META_CONTEXT, "ram", &["qemu:"]);
        assert_eq!(none, [""; 0]);
        let queries = ["base:allocation", A, B, "qemu:dirty-bitmap:c"];
        let set = client.contexts(option::SET_META_CONTEXT, "disk", &queries);
        assert_eq!(set, ["base:allocation", A, B]);
        assert_eq!(client.go("disk"), reply::ACK);
        let (block, size) = (BLOCK as u64, SIZE);
        let told = client.block_statuses(0, size, 0);
        let rest = size - 3 * block;
        let wanted = [
            vec![(3 * block, 0), (rest, 3)],
            vec![(block, 0), (2 * block, 1), (rest, 0)],
            vec![(2 * block, 0), (block, 1), (rest, 0)],
        ];
        assert_eq!(told, wanted, "{form:?}");
        let one = client.block_statuses(0, size, flags::REQ_ONE);
        assert_eq!(one, [[(3 * block, 0)], [(block, 0)], [(2 * block, 0)]]);
        // What is called so now is another snapshot: nothing is known of that which was selected.
        snapshot::remove(&*volume, "b").expect("it is there");
        take("b");
        let told = client.block_statuses(0, size, 0);
        let [allocated, since_a, _] = wanted;
        assert_eq!(told, [allocated, since_a, vec![(size, 1)]], "{form:?}");
        snapshot::remove(&*volume, "b").expect("it is there");
        take("b");
        // As it was for the other form.
        write(2);
    }
    drop((volume, volumes));
    stop(running);
}
