//! Rust for the protocols that are described in the XDR language. The descriptions
//! `xdr/GROUP/*.x` of a group may use each other's names and become one file,
//! `GROUP.rs`.

mod parse;
mod rust;

use std::fs;
use std::path::{Path, PathBuf};

use rust::Group;

/// Writes a file for each group of `descriptions` into `out`.
///
/// # Errors
/// What is wrong with a description and where, or a file that cannot be read or
/// written.
pub fn generate(descriptions: &Path, out: &Path) -> Result<(), String> {
    for group in entries(descriptions)? {
        let mut files = Vec::new();
        for file in entries(&group)? {
            let text = fs::read_to_string(&file).map_err(|why| in_file(&file, &why))?;
            let items = parse::parse(&text).map_err(|why| in_file(&file, &why))?;
            files.push((file, items));
        }
        let all: Vec<_> = files.iter().flat_map(|(_, items)| items.clone()).collect();
        let described = Group::new(&all);
        let mut text = String::new();
        for (file, items) in &files {
            text += &described.write(items).map_err(|why| in_file(file, &why))?;
        }
        let name = group.file_name().expect("an entry of a folder");
        let path = out.join(name).with_extension("rs");
        fs::write(&path, text).map_err(|why| in_file(&path, &why))?;
    }
    Ok(())
}

/// What lies in a folder, in a fixed order.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = fs::read_dir(folder).map_err(|why| in_file(folder, &why))?;
    let mut paths: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn in_file(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
