//! What hosts and NFS clients connect by, and how NVMe hosts authenticate.

use auth::dhchap::{DhchapGroup, DhchapHash};
use auth::psk::PskHash;
use random::Random;

use super::{DhchapPlan, NfsRdmaPlan, Plan};

const TLS: u64 = 0x746c_735f_746c_735f;
const DHCHAP: u64 = 0x6468_6368_6170_6468;
const CONCAT: u64 = 0x636f_6e63_6174_2121;
const RDMA: u64 = 0x7264_6d61_7264_6d61;
const ISER: u64 = 0x6973_6572_7264_6d61;
const RPC_TLS: u64 = 0x7270_632d_746c_7321;
const RPC_RDMA: u64 = 0x7270_632d_7264_6d61;

impl Plan {
    /// Chance of its own for each, so that the rest of a seed is what it would be without.
    pub(super) fn choose_transports(&mut self, seed: u64) {
        self.some_speak_nbd(seed);
        self.speak_tls(&mut Random::new(seed ^ TLS));
        self.connect_by_rdma(&mut Random::new(seed ^ RDMA));
        self.connect_initiators_by_rdma(&mut Random::new(seed ^ ISER));
        self.secure_clients(&mut Random::new(seed ^ RPC_TLS));
        self.connect_clients_by_rdma(&mut Random::new(seed ^ RPC_RDMA));
        self.authenticate(&mut Random::new(seed ^ DHCHAP));
        self.concatenate(&mut Random::new(seed ^ CONCAT));
    }

    /// In some seeds NVMe hosts speak TLS, beside others that do not.
    fn speak_tls(&mut self, r: &mut Random) {
        if !r.one_in(4) {
            return;
        }
        let nvme = self.hosts.iter_mut().filter(|host| host.speaks_nvme());
        for host in nvme {
            host.tls = r.pick(&[None, Some(PskHash::Sha256), Some(PskHash::Sha384)]);
        }
        // Those that do not speak TLS have another way.
        if self.listeners > 1 && r.one_in(2) {
            self.tls_listener = Some(1);
        }
    }

    /// In some seeds NVMe hosts without TLS connect by RDMA, beside others that do not.
    fn connect_by_rdma(&mut self, r: &mut Random) {
        if r.one_in(3) {
            let all = self.hosts.iter_mut();
            for host in all.filter(|host| host.speaks_nvme() && host.tls.is_none()) {
                host.rdma = r.percent(60);
            }
        }
    }

    /// In some seeds iSCSI initiators connect by RDMA, beside others that do not.
    fn connect_initiators_by_rdma(&mut self, r: &mut Random) {
        if r.one_in(2) {
            for host in self.hosts.iter_mut().filter(|host| host.iscsi.is_some()) {
                host.rdma = r.percent(60);
            }
        }
    }

    /// In some seeds NFS clients speak TLS, beside others that do not.
    fn secure_clients(&mut self, r: &mut Random) {
        let Some(nfs) = self.nfs.as_mut().filter(|_| r.one_in(3)) else {
            return;
        };
        for client in &mut nfs.clients {
            client.tls = r.percent(60);
        }
    }

    /// In some seeds NFS clients without TLS connect by RDMA, beside others that do not.
    fn connect_clients_by_rdma(&mut self, r: &mut Random) {
        let Some(nfs) = self.nfs.as_mut().filter(|_| r.one_in(2)) else {
            return;
        };
        for client in nfs.clients.iter_mut().filter(|client| !client.tls) {
            client.rdma = r.percent(60).then(|| NfsRdmaPlan {
                crc: r.one_in(2),
                small_fpdus: r.one_in(2),
                ird_max: r.pick(&[1, 2, 128]),
            });
        }
    }

    /// In some seeds NVMe hosts authenticate, by TLS or without, beside others that do not.
    fn authenticate(&mut self, r: &mut Random) {
        if !r.one_in(4) {
            return;
        }
        let groups = [(7, DhchapGroup::Null), (1, DhchapGroup::Ffdhe2048)];
        self.dhchap_group = r.weighted(&groups);
        let nvme = self.hosts.iter_mut().filter(|host| host.speaks_nvme());
        for host in nvme {
            let dhchap = DhchapPlan {
                hash: r.pick(&DhchapHash::ALL),
                is_mutual: r.percent(50),
            };
            host.dhchap = (!r.one_in(3)).then_some(dhchap);
        }
    }

    /// In some seeds NVMe hosts make keys for TLS by authentication, beside others that do not.
    fn concatenate(&mut self, r: &mut Random) {
        if !r.one_in(8) {
            return;
        }
        let all = self.hosts.iter_mut();
        for host in all.filter(|host| host.speaks_nvme() && host.tls.is_none() && !host.rdma) {
            if r.percent(60) {
                host.concatenates = true;
                host.dhchap.get_or_insert(DhchapPlan {
                    hash: r.pick(&DhchapHash::ALL),
                    is_mutual: r.percent(50),
                });
                // A key is made of what Diffie-Hellman has made.
                self.dhchap_group = DhchapGroup::Ffdhe2048;
            }
        }
    }
}
