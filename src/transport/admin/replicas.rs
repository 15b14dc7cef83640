//! `ListReplicas` and `ListHotKeys`.

use std::collections::HashMap;

use super::{AdminService, domain_and_prefix};
use crate::{
    limiter::Invalid,
    proto::{HotKey, HotKeyOrder, ListHotKeysRequest, ListHotKeysResponse, ListReplicasRequest, ListReplicasResponse},
    transport::status::Rejected,
};

/// Default and maximum number of hot keys in an answer.
const HOT_KEYS: (usize, usize) = (20, 100);

impl AdminService {
    pub(crate) async fn list_replicas(&self, _: &ListReplicasRequest) -> ListReplicasResponse {
        let reports = self.replicas.reports().await;
        let mut replicas: Vec<_> = reports.into_iter().filter_map(|report| report.replica).collect();
        replicas.sort_by(|one, other| one.id.cmp(&other.id));
        ListReplicasResponse { replicas }
    }

    pub(crate) async fn list_hot_keys(&self, request: &ListHotKeysRequest) -> Result<ListHotKeysResponse, Rejected> {
        let ListHotKeysRequest { domain, prefix, all_domains, count, .. } = request;
        domain_and_prefix(domain, prefix, *all_domains)?;
        let count = match *count as usize {
            0 => HOT_KEYS.0,
            count if count <= HOT_KEYS.1 => count,
            _ => return Err(Invalid::field_error("count", format!("1 to {} hot keys", HOT_KEYS.1)).into()),
        };
        let reports = self.replicas.reports().await;
        let samples =
            |report: &&crate::proto::ReplicaReport| report.replica.as_ref().is_some_and(|it| it.samples_hot_keys);
        let replicas = reports.iter().filter(samples).count() as u32;
        let wanted = |key: &HotKey| *all_domains || key.domain == *domain && key.key.starts_with(prefix);
        let sampled = reports.into_iter().flat_map(|report| report.hot_keys).filter(wanted);
        let rate = match request.order() {
            HotKeyOrder::Checked => |key: &HotKey| key.per_second,
            // A limit in shadow mode refuses nothing.
            HotKeyOrder::Refused | HotKeyOrder::Unspecified => {
                |key: &HotKey| if key.shadow { 0.0 } else { key.refused_per_second }
            }
        };
        let mut keys = merged(sampled);
        keys.retain(|key| rate(key) > 0.0);
        keys.sort_by(|one, other| rate(other).total_cmp(&rate(one)).then_with(|| one.key.cmp(&other.key)));
        keys.truncate(count);
        Ok(ListHotKeysResponse { keys, replicas })
    }
}

/// Merges the samples of all replicas: one entry for each key and limit, with rates added up.
fn merged(sampled: impl Iterator<Item = HotKey>) -> Vec<HotKey> {
    let mut merged = HashMap::<_, (f64, HotKey)>::new();
    for key in sampled {
        let name = (key.domain.clone(), key.key.clone(), key.limit_name.clone());
        match merged.get_mut(&name) {
            None => drop(merged.insert(name, (key.per_second, key))),
            Some((most, sum)) => {
                sum.per_second += key.per_second;
                sum.error_per_second += key.error_per_second;
                sum.refused_per_second += key.refused_per_second;
                if key.per_second > *most {
                    *most = key.per_second;
                    (sum.limit, sum.remaining, sum.shadow) = (key.limit, key.remaining, key.shadow);
                }
            }
        }
    }
    merged.into_values().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_key_are_added_up() {
        let key = |name: &str, per_second, remaining| HotKey {
            key: vec![name.to_owned()],
            per_second,
            refused_per_second: per_second / 2.0,
            remaining,
            ..HotKey::default()
        };
        let mut found = merged([key("a", 2.0, 7), key("b", 1.0, 1), key("a", 4.0, 3), key("a", 1.0, 9)].into_iter());
        found.sort_by(|one, other| one.key.cmp(&other.key));
        assert_eq!((found.len(), found[0].per_second, found[0].refused_per_second), (2, 7.0, 3.5));
        assert_eq!(found[0].remaining, 3, "of the replica that checked it most");
    }
}
