//! Changes of a machine, and the way back.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use crate::setting::Finding;

/// One value that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingChange {
    /// Its file, below the root.
    pub path: String,
    /// As it was.
    pub from: String,
    /// As it is to be.
    pub to: String,
}

/// Changes in the order in which they are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// All of them.
    pub changes: Vec<SettingChange>,
}

impl Plan {
    /// What findings ask for, as far as it is set by files.
    pub fn of(findings: &[Finding]) -> Plan {
        let change = |finding: &Finding| {
            Some(SettingChange {
                path: finding.path.clone()?,
                from: finding.now.clone(),
                to: finding.wanted.clone()?,
            })
        };
        Plan {
            changes: findings.iter().filter_map(change).collect(),
        }
    }
}

/// A value that could not be set.
#[derive(Debug)]
pub struct SettingFailed {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub error: io::Error,
}

impl fmt::Display for SettingFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)?;
        match self.error.kind() {
            io::ErrorKind::PermissionDenied => f.write_str(" (run it as root)"),
            _ => Ok(()),
        }
    }
}

fn set(root: &Path, path: &str, value: &str) -> Result<(), SettingFailed> {
    let path = root.join(path);
    fs::write(&path, value).map_err(|error| SettingFailed { path, error })
}

/// Makes all changes, having written the way back to `undo_file`. What was
/// applied before stays there: undoing goes back to how the machine was before
/// the first.
///
/// # Errors
/// What could not be set; what was set until then is as it was before.
pub fn apply(root: &Path, plan: &Plan, undo_file: &Path) -> Result<(), SettingFailed> {
    let failed = |error| SettingFailed {
        path: undo_file.to_owned(),
        error,
    };
    let before = load(undo_file).map_err(failed)?;
    let mut all = before.clone();
    for change in &plan.changes {
        match all.changes.iter_mut().find(|old| old.path == change.path) {
            Some(old) => old.to.clone_from(&change.to),
            None => all.changes.push(change.clone()),
        }
    }
    store(undo_file, &all).map_err(failed)?;
    for (done, change) in plan.changes.iter().enumerate() {
        let Err(error) = set(root, &change.path, &change.to) else {
            continue;
        };
        for change in plan.changes[..done].iter().rev() {
            // The first error is the one to tell.
            let _ = set(root, &change.path, &change.from);
        }
        store(undo_file, &before).map_err(failed)?;
        return Err(error);
    }
    Ok(())
}

/// What came of undoing one change.
#[derive(Debug)]
pub enum Undone {
    /// It is as it was.
    Back,
    /// It was changed since, to this, and stays.
    Changed(String),
    /// It could not be set.
    Failed(SettingFailed),
}

/// Takes back what was applied, the last first; what failed may be tried again.
///
/// # Errors
/// The file cannot be read or written, or is none of ours.
pub fn undo(root: &Path, undo_file: &Path) -> io::Result<Vec<(SettingChange, Undone)>> {
    let plan = load(undo_file)?;
    let mut outcome = Vec::new();
    for change in plan.changes.into_iter().rev() {
        let now = fs::read_to_string(root.join(&change.path)).unwrap_or_default();
        let undone = match is_now(&now, &change.to) {
            false => Undone::Changed(now.trim().to_owned()),
            true => match set(root, &change.path, &change.from) {
                Ok(()) => Undone::Back,
                Err(failed) => Undone::Failed(failed),
            },
        };
        outcome.push((change, undone));
    }
    let left = outcome.iter().rev();
    let left = left.filter(|(_, undone)| matches!(undone, Undone::Failed(_)));
    let changes = left.map(|(change, _)| change.clone()).collect();
    store(undo_file, &Plan { changes })?;
    Ok(outcome)
}

/// Whether a file shows a value: some show all there are, with the one that
/// holds in brackets, masks come with zeros before them, and numbers with tabs
/// between them.
fn is_now(shown: &str, value: &str) -> bool {
    let shown: Vec<_> = shown.split_whitespace().collect();
    let chosen = shown.iter().find_map(|word| word.strip_prefix('['));
    let shown = match chosen.and_then(|word| word.strip_suffix(']')) {
        Some(chosen) => chosen.to_owned(),
        None => shown.join(" "),
    };
    let bare = |text: &str| text.trim_start_matches(['0', ',']).to_owned();
    shown == value || bare(&shown) == bare(value)
}

/// What is to be undone; nothing where there is no file.
fn load(path: &Path) -> io::Result<Plan> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Plan::default()),
        Err(error) => Err(error),
    }
}

/// Replaces the file whole; without changes there is none.
fn store(path: &Path, plan: &Plan) -> io::Result<()> {
    if plan.changes.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_string_pretty(plan)?)?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::{Profile, findings};
    use crate::testing::TestRoot;

    fn tree() -> TestRoot {
        let tree = TestRoot::new();
        tree.put("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n");
        tree.put("proc/sys/net/core/somaxconn", "128\n");
        tree
    }

    fn plan(tree: &TestRoot) -> Plan {
        Plan::of(&findings(&tree.machine(), Profile::Throughput))
    }

    #[test]
    fn undo_restores_all_that_was_applied() {
        let tree = tree();
        let machine = tree.machine();
        let undo_file = machine.root().join("undo/tune.json");
        let first = plan(&tree);
        assert_eq!(first.changes.len(), 2);
        apply(machine.root(), &first, &undo_file).expect("applied");
        assert_eq!(tree.get("proc/sys/net/core/somaxconn"), "4096");
        assert_eq!(plan(&tree), Plan::default(), "nothing left to do");
        // Once more changes nothing of the way back.
        apply(machine.root(), &plan(&tree), &undo_file).expect("applied");
        let outcome = undo(machine.root(), &undo_file).expect("undone");
        assert!(
            outcome
                .iter()
                .all(|(_, undone)| matches!(undone, Undone::Back))
        );
        assert_eq!(outcome.len(), 2);
        assert_eq!(tree.get("proc/sys/net/core/somaxconn"), "128");
        assert_eq!(tree.get("proc/sys/net/ipv4/tcp_slow_start_after_idle"), "1");
        assert!(!undo_file.exists());
        assert_eq!(undo(machine.root(), &undo_file).expect("nothing").len(), 0);
    }

    #[test]
    fn a_setting_that_was_changed_since_is_not_undone() {
        let tree = tree();
        let machine = tree.machine();
        let undo_file = machine.root().join("tune.json");
        apply(machine.root(), &plan(&tree), &undo_file).expect("applied");
        tree.put("proc/sys/net/core/somaxconn", "9999\n");
        let outcome = undo(machine.root(), &undo_file).expect("undone");
        let stays = |(change, undone): &(SettingChange, Undone)| {
            change.path.ends_with("somaxconn")
                && matches!(undone, Undone::Changed(v) if v == "9999")
        };
        assert_eq!(outcome.iter().filter(|one| stays(one)).count(), 1);
        assert_eq!(tree.get("proc/sys/net/core/somaxconn"), "9999");
    }

    #[test]
    fn where_one_setting_fails_none_is_left_changed() {
        let tree = tree();
        let machine = tree.machine();
        let undo_file = machine.root().join("tune.json");
        let mut plan = plan(&tree);
        plan.changes.push(SettingChange {
            path: "proc/sys/no/such/setting".into(),
            from: "0".into(),
            to: "1".into(),
        });
        let failed = apply(machine.root(), &plan, &undo_file).expect_err("cannot be");
        assert!(failed.to_string().contains("no/such/setting"), "{failed}");
        assert_eq!(tree.get("proc/sys/net/core/somaxconn"), "128");
        assert_eq!(tree.get("proc/sys/net/ipv4/tcp_slow_start_after_idle"), "1");
        assert!(!undo_file.exists());
    }

    #[test]
    fn an_undo_file_of_another_format_is_refused() {
        let tree = tree();
        let machine = tree.machine();
        tree.put("tune.json", "{\"changes\": [{\"path\": 1}]}");
        let undo_file = machine.root().join("tune.json");
        assert!(apply(machine.root(), &plan(&tree), &undo_file).is_err());
        assert!(undo(machine.root(), &undo_file).is_err());
        assert_eq!(tree.get("proc/sys/net/core/somaxconn"), "128");
    }

    #[test]
    fn a_value_is_known_in_whichever_form_it_is_shown() {
        assert!(is_now("always [madvise] never\n", "madvise"));
        assert!(is_now("4096\t16384\t16777216\n", "4096 16384 16777216"));
        assert!(is_now("00000000,0000000f\n", "f"));
        assert!(!is_now("always madvise [never]\n", "madvise"));
        assert!(!is_now("10\n", "1"));
        assert!(is_now("0\n", "0"));
    }
}
