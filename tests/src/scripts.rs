//! The guest's scripts, put together from the files in `tests/guest`.

/// The pieces of scripts; each says in its first lines what it needs set.
pub const CLIENT: &str = include_str!("../guest/client.sh");
/// The kernel's own target, in the guest.
pub const KERNEL_TARGET: &str = include_str!("../guest/kernel-target.sh");
/// A host whose target dies and comes again.
pub const CRASH: &str = include_str!("../guest/crash.sh");

/// Every nvme subcommand for what weft serves.
pub const ADMINISTRATOR: &str = include_str!("../guest/administrator.sh");
/// A host whose target is changed under it.
pub const LIVE: &str = include_str!("../guest/live.sh");

/// Where the machine's 127.0.0.1 is, seen from a guest.
pub const MACHINE: &str = "10.0.2.2";

/// One script: the settings as variables, then the pieces in their order.
pub fn script(settings: &[(&str, &str)], pieces: &[&str]) -> String {
    let mut script = String::new();
    for (name, value) in settings {
        assert!(!value.contains('\''), "{name}: {value}");
        script += &format!("{name}='{value}'\n");
    }
    script += include_str!("../guest/prelude.sh");
    for piece in pieces {
        script += piece;
    }
    script
}
