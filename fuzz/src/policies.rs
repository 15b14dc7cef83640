//! Policy files, in the native format and that of envoyproxy/ratelimit.

use weir_core::{algorithm::Bounds, domain::request::MAX_COST};
use weir_policy::{
    Domain, Policy, descriptors, file,
    lint::{self, Changes, PolicyNode},
};
use weir_settings::{
    Problems,
    document::{self, Node},
};

use futures_util::FutureExt;
use weir::limiter::{CheckError, Descriptor, DescriptorsRequest, Invalid, Request};

use super::fixture::{self, NOW};

/// Maximum number of nodes of a policy that are checked.
const MAX_NODES: usize = 32;
/// The checks of each node: cost, and the factor of the request.
const TERMS: [(i64, f64); 5] = [(1, 1.0), (0, 0.5), (-MAX_COST, 1e-9), (MAX_COST, 1e9), (1, 0.0)];

/// A file of the native format is rejected with positions, or its limits decide every check.
pub fn native(bytes: &[u8]) {
    let Some(domain) = read(bytes, file::read) else { return };
    let policy = Policy::new([domain]);
    lint::warnings(&policy);
    let Changes { forgotten, moved } = Changes::between(&policy, &policy);
    assert!(forgotten.is_empty() && moved.is_empty(), "nothing has changed: {forgotten:?} {moved:?}");
    let limiter = fixture::limiter(fixture::store(NOW), policy);
    let handle = limiter.policy();
    for domain in handle.policy.domains() {
        for (policy_node, (cost, factor)) in
            policy_nodes(domain).iter().flat_map(|policy_node| TERMS.map(|terms| (policy_node, terms)))
        {
            let mut request = Request::new(&domain.name, &policy_node.pattern).expect("a key");
            request.set_terms(cost, None, factor).expect("terms");
            // Only a factor may take a limit beyond its bounds; any other error is a failure.
            let answer = limiter.check(&handle, &request).now_or_never().expect("memory does not wait");
            let is_too_far = matches!(&answer, Err(CheckError::Invalid(Invalid::Factor(..))));
            assert!(answer.is_ok() || factor != 1.0 && is_too_far, "{:?}", answer.as_ref().err());
            for level in answer.into_iter().flat_map(|answer| answer.levels) {
                let decision = level.decision;
                assert!(
                    decision.reset_after >= 0
                        && decision.wait >= 0
                        && decision.retry_after.is_none_or(|after| after > 0)
                );
                assert!(decision.next_after.is_none_or(|after| after > 0 && decision.remaining == 0));
            }
        }
    }
}

/// A file in the format of envoyproxy/ratelimit is rejected with positions, or each of its descriptors gets a status.
pub fn descriptors(bytes: &[u8]) {
    let Some(domain) = read(bytes, |document, bounds| descriptors::file::read(document, &fixture::rules(bounds)))
    else {
        return;
    };
    // The same file again, as a second file of the domain.
    let _ = read(bytes, |document, bounds| descriptors::file::add(domain.clone(), document, &fixture::rules(bounds)));
    let policy = Policy::new([domain]);
    lint::warnings(&policy);
    Changes::between(&policy, &policy);
    let limiter = fixture::limiter(fixture::store(NOW), policy);
    let handle = limiter.policy();
    for domain in handle.policy.domains() {
        for (hits, _) in TERMS {
            let descriptors: Vec<_> =
                policy_nodes(domain).iter().map(|policy_node| descriptor(policy_node, hits)).collect();
            let asked = DescriptorsRequest { domain: domain.name.to_string(), descriptors };
            let resolved = asked.resolve(&handle.policy).expect("not too many");
            let statuses = limiter.check_descriptors(&handle, &resolved).outcome(&handle).now_or_never();
            let statuses = statuses.expect("memory answers at once").expect("statuses");
            assert_eq!(statuses.statuses.len(), asked.descriptors.len());
        }
    }
}

fn descriptor(policy_node: &PolicyNode<'_>, hits: i64) -> Descriptor {
    let pairs = policy_node.pattern.chunks(2);
    let entries = pairs.map(|pair| (pair[0].to_owned(), pair.last().copied().unwrap_or_default().to_owned()));
    Descriptor { entries: entries.collect(), hits, over: None }
}

fn policy_nodes(domain: &Domain) -> Vec<PolicyNode<'_>> {
    let mut nodes = lint::policy_nodes(domain);
    nodes.truncate(MAX_NODES);
    nodes
}

fn read(bytes: &[u8], as_domain: impl Fn(&Node, &Bounds) -> Result<Domain, Problems>) -> Option<Domain> {
    let text = std::str::from_utf8(bytes).ok()?;
    match document::parse(text).and_then(|document| document.map(|it| as_domain(&it, &Bounds::default())).transpose()) {
        Ok(domain) => domain,
        Err(problems) => {
            check_positions(text, &problems);
            None
        }
    }
}

/// Problems have a message and a position within the text.
pub fn check_positions(text: &str, problems: &Problems) {
    let lines = 1 + text.matches(['\n', '\r']).count();
    assert!(!problems.0.is_empty());
    for problem in &problems.0 {
        assert!(!problem.message.is_empty() && problem.mark.line <= lines + 1, "{problem:?}");
    }
}
