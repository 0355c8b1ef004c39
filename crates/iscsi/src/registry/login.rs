//! Login requests, from the first to the last.

use std::sync::Arc;

use wire::iscsi::{LoginRequest, LoginStatus, Stage, VERSION};

use super::{
    AfterLogin, InitiatorPort, LoginOutcome, Nexus, Registry, SessionChange, SessionKind, Via,
};
use crate::config::{Auth, InitiatorAcl, Target};
use crate::keys::Negotiation;
use crate::login::{
    LoginAnswer, LoginBegun, LoginIdentity, LoginRefused, LoginState, LoginStep, Stages, proceed,
};
use crate::security::Security;
use crate::text;
use crate::{check_initiator_name, normalize};

impl Registry {
    /// A Login Request. `state` is the connection's, new with its first request;
    /// `random` fills in unpredictable bytes. The outcome says what to
    /// answer and what to close before.
    pub fn login(
        &mut self,
        state: &mut LoginState,
        step: &LoginStep,
        via: &Via,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> LoginOutcome {
        match self.step(state, step, via, random) {
            Ok(outcome) => outcome,
            Err(refused) => {
                let mut answer = LoginAnswer::new(&step.request, refused.status);
                answer.text = refused.text;
                LoginOutcome {
                    answer,
                    then: AfterLogin::Close(refused.reason),
                    change: SessionChange::default(),
                }
            }
        }
    }

    fn step(
        &mut self,
        state: &mut LoginState,
        step: &LoginStep,
        via: &Via,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<LoginOutcome, LoginRefused> {
        state.count()?;
        let request = &step.request;
        // There is one version (section 11.12.4).
        if request.version_min > VERSION {
            return Err(LoginStatus::UnsupportedVersion.into());
        }
        let stages = Stages::of(request)?;
        let pairs = text::parse(&step.text);
        let pairs = pairs.ok_or_else(|| LoginRefused::error(text::fault(&step.text)))?;
        let identity = LoginIdentity::of(&pairs);
        state.note(&identity);
        let begun = match &mut state.begun {
            Some(begun) => {
                begun.check_header(request)?;
                begun.check_identity(&identity)?;
                self.check_target(begun)?;
                self.check_drained(begun.kind)?;
                begun
            }
            none => {
                let mut begun = self.begin(request, stages.current, &identity, via)?;
                begun.negotiation.set_carrier(step.carrier)?;
                none.insert(begun)
            }
        };
        let mut out = Vec::new();
        let next = begun.step(stages, &pairs, random, &mut out)?;
        if next != Some(Stage::FullFeature) {
            return Ok(LoginOutcome {
                answer: proceed(request, next, None, out),
                then: AfterLogin::Continue,
                change: SessionChange::default(),
            });
        }
        let (joined, change) = self.join(begun, via)?;
        Ok(LoginOutcome {
            answer: proceed(request, next, Some(joined.tsih), out),
            then: AfterLogin::FullFeature(Box::new(joined)),
            change,
        })
    }

    /// The first request of a login: what the initiator wants, and whether it may.
    fn begin(
        &self,
        request: &LoginRequest,
        stage: Stage,
        identity: &LoginIdentity<'_>,
        via: &Via,
    ) -> Result<LoginBegun, LoginRefused> {
        let name = identity.initiator.ok_or_else(|| {
            LoginRefused::missing(
                "its first request has no InitiatorName: give the initiator a name",
            )
        })?;
        let name = check_initiator_name(name).map_err(|error| {
            let name = text::quoted(name.as_bytes());
            LoginRefused::error(format!("InitiatorName is {name}: {error}"))
        })?;
        let initiator = InitiatorPort {
            name,
            isid: request.isid,
        };
        let kind = identity.kind()?;
        self.check_drained(kind)?;
        let mut begun = LoginBegun {
            request: *request,
            stage,
            initiator,
            alias: identity.alias.map(str::to_owned),
            kind,
            target: None,
            portal_group_tag: 0,
            luns: None,
            joining: None,
            security: Security::new(self.discovery.clone()),
            negotiation: Negotiation::leading(None),
            has_introduced: false,
        };
        match kind {
            SessionKind::Normal => self.find_target(&mut begun, identity, via)?,
            SessionKind::Discovery if request.tsih.get() != 0 => {
                return Err(LoginRefused::because(
                    LoginStatus::NoSession,
                    "a discovery session has one connection, and this is to join one (TSIH): \
                     let it begin a session of its own",
                ));
            }
            SessionKind::Discovery => {}
        }
        // Without the security stage nothing is proved (section 6.3.2).
        if stage != Stage::Security && !begun.security.is_proved() {
            return Err(LoginRefused::without_chap());
        }
        Ok(begun)
    }

    /// The target of a normal session and, with a TSIH, the session itself.
    fn find_target(
        &self,
        begun: &mut LoginBegun,
        identity: &LoginIdentity<'_>,
        via: &Via,
    ) -> Result<(), LoginRefused> {
        let name = normalize(identity.target.ok_or_else(|| {
            LoginRefused::missing(
                "its first request has no TargetName: name the target, or ask with \
                 SessionType=Discovery which there are",
            )
        })?);
        let Some(target) = self.targets.get(&name) else {
            let name_shown = text::quoted(name.as_bytes());
            let (status, what) = match self.removed.contains(&name) {
                true => (LoginStatus::TargetRemoved, "was removed"),
                false => (LoginStatus::NotFound, "there is not"),
            };
            return Err(LoginRefused {
                reason: format!(
                    "TargetName is {name_shown}, a target that {what}: correct the name in the \
                     initiator, or add the target to the configuration"
                )
                .into(),
                ..status.into()
            });
        };
        let group = target.portal_group_of(via.listener);
        let group = group.ok_or_else(|| LoginRefused {
            reason: "the target is not reached by this portal: its `portal_groups` say where"
                .into(),
            ..LoginStatus::NotFound.into()
        })?;
        let entry = target.entry_of(&begun.initiator.name, via.peer.ip(), group.tag);
        let entry = entry.ok_or_else(|| LoginRefused {
            reason: "neither its name nor its address is among the target's `initiators` and \
                     `networks`"
                .into(),
            ..LoginStatus::AuthorizationFailure.into()
        })?;
        if let Some(redirected) = redirect(target) {
            return Err(redirected);
        }
        begun.portal_group_tag = group.tag;
        begun.luns = entry.luns.clone();
        begun.security = Security::new(auth_of(target, entry));
        begun.negotiation = Negotiation::leading(Some((target, group)));
        begun.target = Some(target.clone());
        if begun.request.tsih.get() != 0 {
            let id = self.find_session(begun)?;
            begun.negotiation =
                Negotiation::joining((target, group), &self.sessions[&id].negotiated);
            begun.joining = Some(id);
        }
        Ok(())
    }

    /// What was checked in the first request holds as long as the target is the
    /// same. After a change the initiator logs in anew.
    fn check_target(&self, begun: &LoginBegun) -> Result<(), LoginStatus> {
        let Some(target) = &begun.target else {
            return Ok(());
        };
        match self.targets.get(&target.name) {
            Some(now) if Arc::ptr_eq(now, target) => Ok(()),
            Some(_) => Err(LoginStatus::ServiceUnavailable),
            None => Err(LoginStatus::TargetRemoved),
        }
    }

    /// Which targets there are is answered all the same.
    fn check_drained(&self, kind: SessionKind) -> Result<(), LoginRefused> {
        match self.is_drained && kind == SessionKind::Normal {
            true => Err(LoginRefused {
                reason: "weft is drained: `weft drain --end` lets initiators in again".into(),
                ..LoginStatus::ServiceUnavailable.into()
            }),
            false => Ok(()),
        }
    }

    pub(super) fn nexus(&self, begun: &LoginBegun) -> Option<Nexus> {
        let target = begun.target.as_ref()?;
        Some(Nexus {
            target: target.name.clone(),
            portal_group_tag: begun.portal_group_tag,
            initiator: begun.initiator.clone(),
        })
    }
}

fn auth_of(target: &Target, entry: &InitiatorAcl) -> Auth {
    target.auth_of(entry).clone()
}

/// The redirection of a target that is elsewhere (section 11.13.5).
fn redirect(target: &Target) -> Option<LoginRefused> {
    let redirect = target.redirect.as_ref()?;
    let status = match redirect.permanent {
        true => LoginStatus::MovedPermanently,
        false => LoginStatus::MovedTemporarily,
    };
    let mut text = Vec::new();
    text::push(&mut text, "TargetAddress", &redirect.to_string());
    Some(LoginRefused {
        text,
        ..status.into()
    })
}
