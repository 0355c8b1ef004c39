//! Changes of where hosts reach the target.

use nvmf::transport::Transport;

use super::*;
use crate::config::Protocol;
use crate::state::{Gone, Listener};

impl Shared {
    pub(super) fn add_listener(self: &Arc<Self>, spec: ListenerSpec) -> Result<Left, ChangeError> {
        self.check_listener(&spec)?;
        let cannot = |error| ChangeError::Listen(spec.address, error);
        let bound = (self.bind)(spec.address).map_err(cannot)?;
        // The kernel chose a port only where none was asked for.
        let address = match spec.address.port() {
            0 => bound.address(),
            _ => spec.address,
        };
        let mut registry = self.nvme.registry();
        let mut targets = self.iscsi.registry();
        let mut state = self.state();
        let spec = ListenerSpec { address, ..spec };
        let number = state.keep_number(address, spec.protocol)?;
        let kept = state.gone.remove(&(address, spec.protocol));
        let groups = kept.map(|kept| kept.groups).unwrap_or_default();
        state.listeners.insert(number, Listener { spec });
        self.nvme.places().set_listeners(state.listener_numbers());
        self.nfs.set_ports(state.program_ports());
        for subsystem in registry.subsystems() {
            self.nvme.places().publish(subsystem);
        }
        let change = registry.set_listeners(state.listener_list());
        let (dismissed, edited) = Self::settle_portals(&mut targets, &state, number, &groups);
        drop(state);
        drop(targets);
        drop(registry);
        self.nvme.settle(change);
        self.publish_edited(dismissed, edited);
        Ok(Left::More(Box::new(move |shared, done| {
            let then = shared.clone();
            let heard: engine::post::AfterMail<io::Result<()>> = Box::new(move |result| {
                let shared = &then;
                if result.is_err() {
                    shared.drop_listener(number);
                }
                let error = |error| ChangeError::Listen(address, error);
                done(shared, result.map_err(error));
            });
            shared.send(0, ShardMail::Listen(number, bound, heard));
        })))
    }

    fn check_listener(&self, spec: &ListenerSpec) -> ChangeOutcome {
        if spec.discovery_only && spec.protocol == Protocol::Iscsi {
            let text = "a portal that only answers discovery is for NVMe/TCP alone";
            return Err(ChangeError::Invalid(text.to_owned()));
        }
        if spec.requires_tls && spec.rdma.transports.has(Transport::Rdma) {
            let text = "NVMe/RDMA does not go through TLS: a listener takes one or the other";
            return Err(ChangeError::Invalid(text.to_owned()));
        }
        if let Some(advertise) = &spec.advertise {
            check::host(&advertise.host).map_err(ChangeError::Invalid)?;
        }
        let state = self.state();
        if state.listeners.len() >= check::LISTENERS_MAX {
            let text = format!("there are {} listeners at most", check::LISTENERS_MAX);
            return Err(ChangeError::Invalid(text));
        }
        let known = state.listeners.values().map(|known| known.spec.address);
        match known
            .into_iter()
            .find(|known| check::clash(*known, spec.address))
        {
            Some(known) => Err(ChangeError::Exists("listener", known.to_string())),
            None => Ok(()),
        }
    }

    pub(super) fn remove_listener(&self, address: SocketAddr) -> Result<Left, ChangeError> {
        let number = self.listener(address)?;
        self.drop_listener(number);
        self.engine.send_all(|| ShardMail::Unlisten(number));
        Ok(Left::fence(Scope::Listener(number)))
    }

    /// Discovery does not name it any more, and no host can connect by it.
    fn drop_listener(&self, number: u16) {
        let mut registry = self.nvme.registry();
        let mut targets = self.iscsi.registry();
        let mut state = self.state();
        if let Some(Listener { spec }) = state.listeners.remove(&number) {
            let named = targets.targets().flat_map(|target| {
                let groups = target.portal_groups.iter();
                let of_it = groups.filter(|group| group.portals.contains(&number));
                of_it.map(|group| (target.name.clone(), group.tag))
            });
            let groups = named.collect();
            let gone = Gone { number, groups };
            state.gone.insert((spec.address, spec.protocol), gone);
        }
        self.nfs.set_ports(state.program_ports());
        let change = registry.set_listeners(state.listener_list());
        let (dismissed, edited) = Self::settle_portals(&mut targets, &state, number, &[]);
        drop(state);
        drop(targets);
        drop(registry);
        self.nvme.settle(change);
        self.publish_edited(dismissed, edited);
    }

    /// The number of the listener on an address.
    pub(super) fn listener(&self, address: SocketAddr) -> Result<u16, ChangeError> {
        let state = self.state();
        let mut listeners = state.listeners.iter();
        let found = listeners.find(|(_, listener)| listener.spec.address == address);
        let found = found.map(|(number, _)| *number);
        found.ok_or_else(|| ChangeError::Unknown("listener", address.to_string()))
    }

    pub(super) fn set_referrals(&self, referrals: Vec<Referral>) -> Result<Left, ChangeError> {
        for referral in &referrals {
            check::host(&referral.host).map_err(ChangeError::Invalid)?;
        }
        let change = self.nvme.registry().set_referrals(referrals);
        self.nvme.settle(change);
        Ok(Left::Nothing)
    }
}
