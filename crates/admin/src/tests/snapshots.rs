//! Snapshots of many volumes.

use super::*;
use crate::snapshots::list_of;

/// A document in which hosts have the volume "a", which lies in a file of the folder.
fn text_with_a_file(folder: &Path, volumes: &[&str]) -> String {
    let file = folder.join("disk");
    let kind = format!("kind = \"file\"\npath = \"{}\"", file.display());
    text(volumes)
        .replace(
            "name = \"a\"\nkind = \"null\"",
            &format!("name = \"a\"\n{kind}"),
        )
        .replace("volumes = [\"base\"]", "volumes = [\"base\", \"a\"]")
}

#[test]
fn snapshots_are_listed_of_all_volumes_but_those_whose_folder_cannot_be_read() {
    let (folder, file) = folder();
    fs::write(&file, text_with_a_file(folder.path(), &["a"])).expect("room");
    let target = Target::start(Some(&file), "");
    let all = list_of(&target.running, None).expect("listed");
    assert!(all.snapshots.is_empty() && all.unread.is_empty());
    let link = folder.path().join("disk.snapshots");
    symlink(&link, &link).expect("a link to itself");
    let all = list_of(&target.running, None).expect("the others");
    assert_eq!(all.unread.len(), 1);
    assert!(
        all.unread[0].contains("of volume \"a\""),
        "{:?}",
        all.unread
    );
    assert!(list_of(&target.running, Some("a")).is_err());
    assert!(list_of(&target.running, Some("base")).is_ok());
    target.end();
}
