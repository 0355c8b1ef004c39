//! Owners and modes of files that hold secrets.

/// What everybody may do with a file so that it holds no secret: read or write it.
const OPEN_TO_ALL: u32 = 0o006;
/// The same of its group.
const WRITTEN_BY_GROUP: u32 = 0o020;
const READ_BY_GROUP: u32 = 0o040;
/// root gives a file to the group of a service on purpose.
const ROOT: u32 = 0;

/// Whose a file is, and what others may do with it (stat(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// The user that it belongs to.
    pub owner: u32,
    /// Its mode.
    pub mode: u32,
}

impl FileAccess {
    /// Of what nobody else can read.
    pub const OWN: FileAccess = FileAccess {
        owner: ROOT,
        mode: 0o600,
    };

    /// Whether `file`, as it is shown, may hold a secret: its owner alone may read and write it or,
    /// of a file of root's, its group may read it, too.
    ///
    /// # Errors
    /// What others may do with it, and what to do.
    pub fn check_private(self, file: &str) -> Result<(), String> {
        let FileAccess { owner, mode } = self;
        let told = |who: &str, remedy: &str| {
            let shown = mode & 0o7777;
            Err(format!("{who} {file} (mode {shown:04o}); {remedy}"))
        };
        if mode & OPEN_TO_ALL != 0 {
            told(
                "everybody on this machine may read or write",
                "`chmod 600` it",
            )
        } else if mode & WRITTEN_BY_GROUP != 0 {
            told("its group may write", "`chmod 600` it")
        } else if mode & READ_BY_GROUP != 0 && owner != ROOT {
            let remedy = "`chmod 600` it, or `chown root` it where weft reads it by its group";
            told("its group may read", remedy)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_a_secret_is_its_owners_alone_or_roots_and_read_by_its_group() {
        const USER: u32 = 1000;
        let everybody = "everybody on this machine may read or write a.psk";
        for (owner, mode, why) in [
            (USER, 0o100_600, None),
            (USER, 0o100_400, None),
            (USER, 0o100_700, None),
            (ROOT, 0o100_600, None),
            (ROOT, 0o100_640, None),
            (ROOT, 0o100_440, None),
            (USER, 0o100_640, Some("its group may read a.psk")),
            (USER, 0o100_440, Some("its group may read a.psk")),
            (USER, 0o100_660, Some("its group may write a.psk")),
            (ROOT, 0o100_660, Some("its group may write a.psk")),
            (ROOT, 0o100_620, Some("its group may write a.psk")),
            (USER, 0o100_644, Some(everybody)),
            (ROOT, 0o100_644, Some(everybody)),
            (ROOT, 0o100_602, Some(everybody)),
            (ROOT, 0o100_666, Some(everybody)),
        ] {
            let told = FileAccess { owner, mode }.check_private("a.psk");
            let expected =
                why.map(|why| format!("{why} (mode {:04o}); `chmod 600` it", mode & 0o777));
            match (told, expected) {
                (Ok(()), None) => {}
                (Err(told), Some(expected)) => assert!(told.starts_with(&expected), "{told}"),
                (told, _) => panic!("{owner} {mode:o}: {told:?}"),
            }
        }
    }
}
