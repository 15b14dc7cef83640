//! The headers that Envoy adds to the response to its client.

use weir_envoy::envoy::config::core::v3::HeaderValue;

use super::settings::EnvoySettings;
use crate::{
    limiter::status::{DescriptorAnswer, DescriptorAnswers, DisplayedLimit},
    transport::headers::{HeaderStyle, Quota, whole_seconds},
};

/// Returns the headers of an answer; none if no limit applies.
pub fn of(statuses: &DescriptorAnswers<'_>, settings: &EnvoySettings) -> Vec<HeaderValue> {
    let Some((status, displayed)) = source(statuses) else { return Vec::new() };
    let mut headers = Vec::new();
    if let Some(names) = settings.three() {
        let seconds = whole_seconds(displayed.until_reset);
        let numbers = [displayed.requests_per_unit.into(), displayed.remaining.into(), seconds];
        headers.extend(names.into_iter().zip(numbers).map(|(name, number)| header(name, number.to_string())));
    }
    if settings.headers.draft11()
        && let Some(level) = status.summary.binding.map(|index| &status.levels[index])
    {
        let name = if displayed.name.is_empty() { &*level.limit.name } else { displayed.name };
        let quota = Quota { name, window: level.window, decision: &level.decision };
        headers.extend(quota.headers(HeaderStyle::Draft11).into_iter().map(|(name, value)| header(name, value)));
    }
    headers
}

/// Returns the limit that the headers describe: the last one that is over and not a quota, which with `quota_mode`
/// every limit is; else the first one with the least remaining.
fn source<'s, 'a>(
    DescriptorAnswers { statuses, quota_mode, .. }: &'s DescriptorAnswers<'a>,
) -> Option<(&'s DescriptorAnswer<'a>, &'s DisplayedLimit<'a>)> {
    let displayed = || statuses.iter().filter_map(|status| Some((status, status.displayed.as_ref()?)));
    let over = displayed().rfind(|(status, _)| status.over && !status.quota && !*quota_mode);
    over.or_else(|| displayed().min_by_key(|(_, displayed)| displayed.remaining))
}

fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value, ..HeaderValue::default() }
}

#[cfg(test)]
mod tests;
