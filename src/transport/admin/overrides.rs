//! `SetOverride`, `EndOverride`, `ListOverrides`, `ListAudit`.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use prost::Message;
use prost_types::Timestamp;
use tonic::Code;
use tracing::warn;
use weir_core::{
    algorithm::{Bounds, message::micros},
    domain::{Key, Micros, time::SECOND},
};
use weir_policy::overrides::{ANY, Change, Effect, LimitChanges, Override};
use weir_store::{
    Failure,
    documents::{ChangeError, Changed, MAX_DOCUMENTS},
};
use weir_telemetry::{Causes, request};

use super::AdminService;
use crate::{
    limiter::{CheckError, Invalid, stored_keys::KeyQuery},
    overrides::{LAST_MOMENT, SetError, StoredOverride},
    proto::{
        self, AuditEvent, EndOverrideRequest, EndOverrideResponse, ListAuditRequest, ListAuditResponse,
        ListOverridesRequest, ListOverridesResponse, OverrideEffect, SetOverrideRequest, SetOverrideResponse,
        r#override::Change as ChangeMessage,
    },
    transport::{audit::Actor, status::Rejected},
};

/// Maximum number of overrides or changes in a page, and approximate number of keys in a page that is counted.
const MAX_PAGE: usize = 1_000;
/// Maximum size of the overrides or changes in a page before its last one, in bytes, so that the page is below the 4 MiB
/// that gRPC clients accept.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// Maximum number of changes per read of the store: each has a document before and after it, of up to hundreds of
/// kilobytes, and the replies of Redis are bounded.
const MAX_READ_CHANGES: usize = 20;
/// Time limit for counting keys in a dry run.
const COUNTING: Duration = Duration::from_secs(1);
/// Default number of changes in a page.
const AUDIT_PAGE: usize = 100;

impl AdminService {
    pub(crate) async fn set_override(
        &self,
        request: SetOverrideRequest,
        actor: &Actor,
    ) -> Result<SetOverrideResponse, Rejected> {
        let one = request.r#override.ok_or_else(|| invalid("override", "the override is missing"))?;
        let start = one.start.map(|at| moment(&at, "start")).transpose()?;
        let end = one.end.map(|at| moment(&at, "end")).transpose()?;
        let length = |ttl| {
            micros(ttl).ok_or_else(|| invalid("ttl", "ttl must be 1us to 2^53us (285 years), in whole microseconds"))
        };
        let ttl = request.ttl.as_ref().map(length).transpose()?;
        if end.is_some() && ttl.is_some() {
            return Err(invalid("ttl", "an override has an end or a ttl, not both").into());
        }
        let change = match one.change {
            None => {
                return Err(invalid("override.change", "an override must change something: see Override.change").into());
            }
            Some(ChangeMessage::Factor(factor)) => Change::Factor(factor),
            Some(ChangeMessage::Limits(limits)) => {
                let limits = LimitChanges::parse(&limits, self.overrides.bounds());
                Change::Limits(limits.map_err(|error| self.rejection(SetError::Invalid(error)))?)
            }
            Some(ChangeMessage::Unlimited(true)) => Change::Unlimited,
            Some(ChangeMessage::Shadow(true)) => Change::Shadow,
            Some(ChangeMessage::Ban(true)) => Change::Ban,
            Some(_) => return Err(invalid("override.change", "a change must be true, or left out").into()),
        };
        let make = |now| {
            let start = start.unwrap_or(now);
            Override {
                id: Box::default(),
                domain: one.domain.into(),
                pattern: one.key.into_iter().map(Into::into).collect(),
                change,
                reason: one.reason.into(),
                author: Box::default(),
                set_at: now,
                start,
                end: end.or_else(|| ttl.map(|ttl| start.saturating_add(ttl))),
            }
        };
        let outcome =
            self.overrides.set(&actor.name(), request.dry_run, make).await.map_err(|error| self.rejection(error))?;
        let counted = if request.dry_run { Some(self.keys_under(&outcome.value).await?) } else { None };
        let effect = |Effect { limit, before, after }| OverrideEffect { limit, before, after };
        Ok(SetOverrideResponse {
            r#override: Some(message(&outcome.value)),
            replaced: outcome.replaced.as_ref().map(stored),
            effects: outcome.effects.into_iter().map(effect).collect(),
            keys: counted.map(|(keys, _)| keys),
            more_keys: counted.is_some_and(|(_, more)| more),
        })
    }

    /// Counts the stored keys that an override matches. Also returns whether there are more than could be counted in
    /// time.
    async fn keys_under(&self, one: &Override) -> Result<(u64, bool), Rejected> {
        let exact: Vec<_> = one.pattern.iter().take_while(|segment| ***segment != *ANY).collect();
        let prefix = if exact.is_empty() { None } else { Some(Key::new(&one.domain, &exact).map_err(Invalid::from)?) };
        let query = KeyQuery { domain: Some(&one.domain), prefix, count: MAX_PAGE };
        let is_shared = self.limiter.store().shared().is_some();
        // A store lists the limits of a key in any order. Hashes of keys, which are smaller.
        let (mut keys, hasher) = (HashSet::new(), RandomState::new());
        let (mut cursor, until) = (None, Instant::now() + COUNTING);
        loop {
            let page = self.scan_schedule.run(is_shared, self.limiter.stored_keys(&query, cursor.as_deref())).await?;
            let (page, next) = page?;
            let matching = page.iter().map(|stored| &stored.key).filter(|key| one.matches(key));
            keys.extend(matching.map(|key| hasher.hash_one(key.prefix(key.depth()))));
            cursor = next;
            if cursor.is_none() || Instant::now() >= until {
                return Ok((keys.len() as u64, cursor.is_some()));
            }
        }
    }

    pub(crate) async fn end_override(
        &self,
        request: &EndOverrideRequest,
        actor: &Actor,
    ) -> Result<EndOverrideResponse, Rejected> {
        let ended = self
            .overrides
            .end(&request.domain, &request.key, &actor.name())
            .await
            .map_err(|error| self.rejection(error))?;
        Ok(EndOverrideResponse { ended: ended.as_ref().map(stored) })
    }

    pub(crate) async fn list_overrides(
        &self,
        request: ListOverridesRequest,
    ) -> Result<ListOverridesResponse, Rejected> {
        let ListOverridesRequest { domain, prefix, page_size, cursor } = request;
        // The last override of the page before, since others may have ended or been set meanwhile.
        let last = Some(&cursor).filter(|cursor| !cursor.is_empty()).map(|cursor| serde_json::from_str(cursor));
        let last: Option<(String, Vec<String>)> = last.transpose().map_err(|_| unknown_cursor())?;
        let most = page_of(page_size, MAX_PAGE);
        let all = self.overrides.list(domain.as_deref(), &prefix).await.map_err(away)?;
        let is_before = |one: &StoredOverride| {
            let (its_domain, its_pattern) = one.keys();
            let its_pattern = its_pattern.iter().map(|segment| &**segment);
            last.as_ref().is_some_and(|(domain, pattern)| {
                its_domain.cmp(domain).then_with(|| its_pattern.cmp(pattern.iter().map(String::as_str))).is_le()
            })
        };
        let left = &all[all.partition_point(is_before)..];
        let (mut overrides, mut bytes) = (Vec::new(), 0);
        for one in left.iter().take(most) {
            overrides.push(stored(one));
            bytes += overrides.last().map_or(0, Message::encoded_len);
            if bytes >= MAX_PAGE_BYTES {
                break;
            }
        }
        let next = left[..overrides.len()].last().filter(|_| overrides.len() < left.len());
        let place = next.map(|one| serde_json::json!(one.keys()).to_string());
        Ok(ListOverridesResponse { overrides, next_cursor: place.unwrap_or_default() })
    }

    pub(crate) async fn list_audit(&self, request: &ListAuditRequest) -> Result<ListAuditResponse, Rejected> {
        let cursor = Some(&request.cursor).filter(|cursor| !cursor.is_empty());
        let mut before = cursor.map(|cursor| cursor.parse()).transpose().map_err(|_| unknown_cursor())?;
        let most = page_of(request.page_size, AUDIT_PAGE);
        let (mut events, mut bytes) = (Vec::<AuditEvent>::new(), 0);
        loop {
            let wanted = MAX_READ_CHANGES.min(most - events.len());
            let read = self.overrides.audit(before, wanted).await.map_err(away)?;
            let is_end = read.len() < wanted;
            for changed in read {
                before = Some(changed.id);
                let event = event(changed, self.overrides.bounds());
                bytes += event.encoded_len();
                events.push(event);
                if events.len() == most || bytes >= MAX_PAGE_BYTES {
                    let next_cursor = events.last().map(|event| event.id.clone()).unwrap_or_default();
                    return Ok(ListAuditResponse { events, next_cursor });
                }
            }
            if is_end {
                return Ok(ListAuditResponse { events, next_cursor: String::new() });
            }
        }
    }

    /// Returns the error for an override that cannot be set or ended. A failure of the store or the disk is logged.
    fn rejection(&self, error: SetError) -> Rejected {
        let is_failure = match &error {
            SetError::Store(ChangeError::Store(failure)) => !failure.is_overload(),
            SetError::Store(ChangeError::File(_)) => true,
            _ => false,
        };
        if is_failure && self.override_warnings.allows(Instant::now()) {
            warn!(
                request_id = request::request_id(),
                trace_id = request::trace_id(),
                error = %Causes(&error),
                "an override cannot be stored; such warnings come once a minute at most"
            );
        }
        error.into()
    }
}

impl From<SetError> for Rejected {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Invalid(error) => {
                CheckError::from(Invalid::field_error(format!("override.{}", error.field()), error.to_string())).into()
            }
            SetError::Store(ChangeError::Store(error)) | SetError::Read(error) => away(error),
            // A retry fails again until some have ended.
            SetError::Store(ChangeError::Full) => {
                Self::new(Code::FailedPrecondition, format!("there are {MAX_DOCUMENTS} overrides, the maximum"))
            }
            SetError::Store(error @ ChangeError::File(_)) => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}

fn page_of(wanted: u32, usual: usize) -> usize {
    if wanted == 0 { usual } else { (wanted as usize).min(MAX_PAGE) }
}

fn invalid(field: &str, message: impl Into<String>) -> CheckError {
    Invalid::field_error(field, message).into()
}

fn unknown_cursor() -> Rejected {
    invalid("cursor", "not a cursor of an earlier response").into()
}

fn away(error: Failure) -> Rejected {
    match error {
        Failure::Rejected { text, .. } | Failure::Server(text) | Failure::Corrupt(text) => {
            Rejected::new(Code::Unavailable, format!("the store answers with an error: {text}"))
        }
        error => CheckError::Store(error).into(),
    }
}

/// Converts an override into a message; of one that cannot be read, without a change.
fn stored(one: &StoredOverride) -> proto::Override {
    match one {
        StoredOverride::Readable(one) => message(one),
        StoredOverride::Unreadable { id, domain, pattern } => proto::Override {
            id: id.clone(),
            domain: domain.to_string(),
            key: pattern.iter().map(ToString::to_string).collect(),
            ..Default::default()
        },
    }
}

/// Converts an override into a message.
pub(super) fn message(one: &Override) -> proto::Override {
    proto::Override {
        id: one.id.to_string(),
        domain: one.domain.to_string(),
        key: one.pattern.iter().map(ToString::to_string).collect(),
        change: Some(match &one.change {
            Change::Factor(factor) => ChangeMessage::Factor(*factor),
            Change::Limits(limits) => ChangeMessage::Limits(limits.text().to_owned()),
            Change::Unlimited => ChangeMessage::Unlimited(true),
            Change::Shadow => ChangeMessage::Shadow(true),
            Change::Ban => ChangeMessage::Ban(true),
        }),
        reason: one.reason.to_string(),
        author: one.author.to_string(),
        set_at: Some(timestamp(one.set_at)),
        start: Some(timestamp(one.start)),
        end: one.end.map(timestamp),
    }
}

fn event(changed: Changed, bounds: &Bounds) -> AuditEvent {
    let Changed { id, name, before, after, actor, .. } = changed;
    let [before, after] =
        [before, after].map(|text| text.map(|text| stored(&StoredOverride::parse(&name, &text, bounds))));
    AuditEvent { id: id.to_string(), at: Some(timestamp(id.millis as Micros * 1_000)), actor, before, after }
}

fn timestamp(at: Micros) -> Timestamp {
    Timestamp { seconds: at.div_euclid(SECOND), nanos: (at.rem_euclid(SECOND) * 1_000) as i32 }
}

/// Converts a timestamp of an override, its start or end, into whole microseconds.
fn moment(at: &Timestamp, name: &str) -> Result<Micros, CheckError> {
    let is_valid = (0..1_000_000_000).contains(&at.nanos) && (0..=LAST_MOMENT / SECOND).contains(&at.seconds);
    let moment = || at.seconds * SECOND + Micros::from(at.nanos / 1_000);
    let rule = || format!("the {name} must be a timestamp between 1970 and 9999");
    is_valid.then(moment).ok_or_else(|| invalid(&format!("override.{name}"), rule()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_beyond_the_maximum_is_not_retried() {
        let rejected = Rejected::from(SetError::Store(ChangeError::Full));
        assert_eq!((rejected.code, rejected.http_status().as_u16()), (Code::FailedPrecondition, 400));
        assert_eq!(rejected.message, "there are 200000 overrides, the maximum");
    }
}
