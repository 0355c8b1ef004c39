//! libnfs as the client of files, in user space and without privileges.

use interop::child::output;
use interop::guest;
use interop::packages::Sysroot;
use interop::systems::RELEASE;
use interop::weft::{WeftProcess, free_address};
use needs::needs;
use std::net::SocketAddr;
use std::path::Path;

fn config(address: SocketAddr, dir: &Path) -> String {
    let rule = "allow_any_client = true\nsquash = \"none\"\n";
    format!(
        "[nfs]\nstate = \"state\"\n\
         [[file_system]]\nname = \"mem\"\nkind = \"mem\"\nsize = \"64MiB\"\n\
         [[file_system]]\nname = \"dir\"\nkind = \"dir\"\npath = \"{}\"\n\
         [[export]]\npath = \"/some/mem\"\nfile_system = \"mem\"\n{rule}\
         [[export]]\npath = \"/dir\"\nfile_system = \"dir\"\n{rule}\
         [[listener]]\naddress = \"{address}\"\nprotocol = \"nfs\"\n",
        dir.display()
    )
}

struct Client {
    sysroot: Sysroot,
    port: u16,
}

impl Client {
    fn url(&self, version: u32, path: &str) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1{path}?version={version}&nfsport={port}&mountport={port}")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = self.sysroot.command(&format!("usr/bin/{program}"));
        output(command.args(arguments))
    }
}

/// Files are written, listed and read by version 3 and by version 4, and each
/// sees what the other wrote. (libnfs up to 4.0 cannot send a WRITE of more than
/// 2 KiB by version 4.)
#[needs(guest)]
#[test]
fn libnfs_writes_lists_and_reads() {
    let name = "libnfs";
    let (sysroot, _) = guest::prepare(&RELEASE).expect("what libnfs is made of");
    let address = free_address();
    let folder = tempfile::tempdir().expect("a folder");
    let target = WeftProcess::serve(name, &config(address, folder.path()), address);
    let here = tempfile::tempdir().expect("a folder");
    let port = address.port();
    let client = Client { sysroot, port };
    let bytes = |len: u32| -> Vec<u8> { (0..len).map(|n| (n * 31 % 253) as u8).collect() };
    let files = [("small", bytes(1500), 4), ("large", bytes(5_000_000), 3)];
    for export in ["/some/mem", "/dir"] {
        for (file, content, version) in &files {
            let local = here.path().join(file);
            std::fs::write(&local, content).expect("a file");
            let local = local.to_str().expect("UTF-8");
            let url = client.url(*version, &format!("{export}/{file}"));
            client
                .run("nfs-cp", &[local, &url])
                .unwrap_or_else(|e| panic!("{url}: {e}"));
        }
        for version in [3, 4] {
            for (file, content, _) in &files {
                let url = client.url(version, &format!("{export}/{file}"));
                let read = client
                    .run("nfs-cat", &[&url])
                    .unwrap_or_else(|e| panic!("{url}: {e}"));
                assert!(read == *content, "{url}: {} bytes", read.len());
            }
            let listed = client
                .run("nfs-ls", &[&client.url(version, export)])
                .expect("a list");
            let listed = String::from_utf8_lossy(&listed);
            for (file, content, _) in &files {
                let size = content.len().to_string();
                let has = |line: &str| line.ends_with(file) && line.contains(&size);
                assert!(listed.lines().any(has), "{version} {export}: {listed}");
            }
            let nothing = client.url(version, &format!("{export}/nothing"));
            assert!(client.run("nfs-cat", &[&nothing]).is_err(), "{nothing}");
        }
    }
    let stored = std::fs::read(folder.path().join("large")).expect("a file of the directory");
    assert!(stored == files[1].1);
    target.expect_orderly_end();
}
