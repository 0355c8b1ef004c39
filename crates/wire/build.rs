//! Generates Rust from `xdr/`, see [`xdr::generate`].

#[path = "build/xdr.rs"]
mod xdr;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=xdr");
    println!("cargo::rerun-if-changed=build");
    let out = std::env::var_os("OUT_DIR").expect("cargo names the folder");
    match xdr::generate(Path::new("xdr"), Path::new(&out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}
