//! A kernel module that the distribution's kernel is without, built from its source by the
//! machine's own compiler.

use crate::Unavailable;
use crate::child::output;
use crate::initramfs::kernel_version;
use crate::packages::Sysroot;
use crate::systems::BuiltModule;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds `module` below `work`, and puts it beside the kernel's modules in `sysroot`.
pub(crate) fn build(
    sysroot: &Sysroot,
    module: &BuiltModule,
    work: &Path,
) -> Result<(), Unavailable> {
    let version = kernel_version(sysroot)?;
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    fs::create_dir_all(work)?;
    unpack(sysroot, module, work)?;
    set_constants(module, work)?;
    let headers = sysroot.root.join("usr/src");
    let common = version.trim_end_matches("-amd64");
    let common = headers.join(format!("linux-headers-{common}-common/Makefile"));
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(headers.join(format!("linux-headers-{version}")));
    // The makefile of the headers names the common one where it would be installed.
    make.arg("-f").arg(common);
    make.arg(format!("M={}", work.display()));
    make.args(["CC=gcc", &format!("{}=m", module.option), "modules"]);
    output(&mut make).map_err(|why| Unavailable::wrap("building a kernel module", why))?;
    let folder = Path::new(module.folder).file_name().unwrap_or_default();
    let built = work.join(folder).with_extension("ko");
    let to = format!("lib/modules/{version}/extra/{}.ko", module.name);
    let to = sysroot.root.join(to);
    fs::create_dir_all(to.parent().unwrap_or(&to))?;
    fs::copy(&built, &to).map_err(|e| Unavailable::wrap(built.display(), e))?;
    Ok(())
}

/// Unpacks the module's folder of the kernel's source to `work`.
fn unpack(sysroot: &Sysroot, module: &BuiltModule, work: &Path) -> Result<(), Unavailable> {
    let mut xz = sysroot.command("usr/bin/xz");
    xz.arg("-dc").arg(source(sysroot)?).stdout(Stdio::piped());
    let mut xz = xz.spawn()?;
    let depth = Path::new(module.folder).components().count() + 1;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(work).arg("--wildcards");
    tar.arg(format!("--strip-components={depth}"));
    tar.arg(format!("*/{}/*", module.folder));
    if let Some(unpacked) = xz.stdout.take() {
        tar.stdin(unpacked);
    }
    output(&mut tar).map_err(Unavailable)?;
    xz.wait()?;
    Ok(())
}

/// The archive of the kernel's source.
fn source(sysroot: &Sysroot) -> Result<PathBuf, Unavailable> {
    let folder = sysroot.root.join("usr/src");
    let mut listed = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let found = listed.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("linux-source-") && name.ends_with(".tar.xz")
    });
    found.ok_or_else(|| Unavailable(format!("{}: no kernel source", folder.display())))
}

/// Makes the module's constants true.
fn set_constants(module: &BuiltModule, work: &Path) -> Result<(), Unavailable> {
    for constant in module.constants {
        let (said, set) = (
            format!("const bool {constant};"),
            format!("const bool {constant} = true;"),
        );
        let mut is_set = false;
        for entry in fs::read_dir(work)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "c") {
                let text = fs::read_to_string(&path)?;
                is_set |= text.contains(&said);
                fs::write(&path, text.replace(&said, &set))?;
            }
        }
        if !is_set {
            let text = format!("the source of {} has no constant {constant}", module.name);
            return Err(Unavailable(text));
        }
    }
    Ok(())
}
