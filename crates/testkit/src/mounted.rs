//! A file system of its own for a test, in a file that is mounted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As small as XFS lets one be.
const BYTES: u64 = 320 << 20;

/// A file system that is unmounted with the test.
pub struct Mounted {
    place: PathBuf,
}

impl Mounted {
    /// One that a program makes, as `mkfs.xfs`; the file and the place below `folder`, which
    /// is empty. Needs root and loop devices.
    ///
    /// # Panics
    /// It cannot be made or mounted.
    #[must_use]
    pub fn made_by(mkfs: &str, folder: &Path) -> Mounted {
        let (image, place) = (folder.join("image"), folder.join("place"));
        let file = File::create(&image).expect("a file");
        file.set_len(BYTES).expect("a sparse file");
        fs::create_dir(&place).expect("a folder");
        run(Command::new(mkfs).arg("-q").arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&place));
        Mounted { place }
    }

    /// Its root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("it is there");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What still has files open keeps it until then.
        let mut command = Command::new("umount");
        let _ = command.arg("--lazy").arg(&self.place).status();
    }
}
