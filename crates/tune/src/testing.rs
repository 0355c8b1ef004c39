//! Machines made of files.

use std::fs;

use crate::machine::Machine;

/// A directory that stands for `/`.
pub(crate) struct TestRoot(tempfile::TempDir);

impl TestRoot {
    /// With nothing in it.
    pub(crate) fn new() -> TestRoot {
        TestRoot(tempfile::tempdir().expect("a directory"))
    }

    /// Writes a file.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        fs::write(path, text).expect("a file");
    }

    /// What is in a file.
    pub(crate) fn get(&self, path: &str) -> String {
        let text = fs::read_to_string(self.0.path().join(path)).expect("a file");
        text.trim_end().to_owned()
    }

    /// An interface with a device.
    pub(crate) fn nic(
        &self,
        name: &str,
        state: &str,
        mtu: u32,
        (rx, tx): (usize, usize),
        irqs: &[u32],
    ) {
        let dir = format!("sys/class/net/{name}");
        self.put(&format!("{dir}/operstate"), &format!("{state}\n"));
        self.put(&format!("{dir}/mtu"), &format!("{mtu}\n"));
        for queue in 0..rx {
            self.put(&format!("{dir}/queues/rx-{queue}/rps_cpus"), "0\n");
        }
        for queue in 0..tx {
            self.put(&format!("{dir}/queues/tx-{queue}/xps_cpus"), "0\n");
        }
        for irq in irqs {
            self.put(&format!("{dir}/device/msi_irqs/{irq}"), "msix\n");
            self.put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
    }

    /// As it is now.
    pub(crate) fn machine(&self) -> Machine {
        Machine::look(self.0.path())
    }
}
