//! `ListKeys`.

use weir_core::{algorithm::message::duration, domain::Key};
use weir_store::scan::MAX_PAGE;

use super::{AdminService, cursor, domain_and_prefix};
use crate::{
    limiter::{
        Invalid,
        stored_keys::{KeyQuery, StoredKey},
    },
    proto::{KeyUsage, ListKeysRequest, ListKeysResponse},
    transport::status::Rejected,
};

/// Default number of entries in a page.
const USUAL_PAGE: usize = 100;

impl AdminService {
    pub(crate) async fn list_keys(&self, request: &ListKeysRequest) -> Result<ListKeysResponse, Rejected> {
        let query = query(request)?;
        // In memory a cursor is a position in the shards of this process.
        let is_shared = self.limiter.store().shared().is_some();
        let scope = if is_shared { String::new() } else { self.replicas.id() };
        let from = cursor::read(request, &scope)?;
        let page = self.scan_schedule.run(is_shared, self.limiter.stored_keys(&query, from.as_deref())).await?;
        let (keys, next) = page?;
        Ok(ListKeysResponse {
            keys: keys.into_iter().map(usage).collect(),
            next_cursor: next.map(|next| cursor::write(request, &scope, &next)).unwrap_or_default(),
        })
    }
}

pub(super) fn query(request: &ListKeysRequest) -> Result<KeyQuery<'_>, Invalid> {
    let ListKeysRequest { domain, prefix, all_domains, page_size, .. } = request;
    let prefix = domain_and_prefix(domain, prefix, *all_domains)?;
    let count = match *page_size as usize {
        0 => USUAL_PAGE,
        count if count <= MAX_PAGE => count,
        _ => return Err(Invalid::field_error("page_size", format!("a page can have 1 to {MAX_PAGE} entries"))),
    };
    Ok(KeyQuery { domain: (!all_domains).then_some(domain), prefix, count })
}

fn usage(stored: StoredKey) -> KeyUsage {
    let StoredKey { domain, key, limit, usage } = stored;
    let ((hashed, key), domain) = (key_segments(&key), domain_text(domain, &key));
    let mut message = KeyUsage { domain, key, hashed, limit_name: limit.into(), ..KeyUsage::default() };
    if let Some(usage) = usage {
        message.known = true;
        (message.limit, message.remaining) = (usage.decision.limit, usage.decision.remaining);
        message.used = message.limit.saturating_sub(message.remaining);
        message.reset_after = Some(duration(usage.decision.reset_after));
        message.outstanding = usage.outstanding;
        message.at_limit = usage.decision.remaining == 0;
        message.shadow = usage.shadow;
    }
    message
}

/// Returns a key as in answers: the indexes of its hashed segments, and its segments.
pub fn key_segments(key: &Key) -> (Vec<u32>, Vec<String>) {
    let hashed = (0..key.depth()).filter(|index| key.is_hashed(*index)).map(|index| index as u32).collect();
    let segment = |index| match key.is_hashed(index) {
        true => hash(key.segment(index)),
        false => String::from_utf8_lossy(key.segment(index)).into_owned(),
    };
    (hashed, (0..key.depth()).map(segment).collect())
}

/// Returns the domain of a stored key as in answers.
pub(super) fn domain_text(domain: Option<Box<str>>, key: &Key) -> String {
    domain.map_or_else(|| hash(key.domain()), String::from)
}

fn hash(bytes: &[u8]) -> String {
    format!("hash:{}", data_encoding::HEXLOWER.encode(bytes))
}
