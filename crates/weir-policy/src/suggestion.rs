//! Suggestions for a key that meets no limit, and for a domain that is not defined.

use std::collections::VecDeque;

use weir_settings::suggest;

use super::{
    Domain, Policy,
    tree::{Found, NodeId},
};

/// Maximum number of nodes and names that a search visits, so that it takes a few milliseconds at most.
const MAX_STEPS: usize = 2_000;
/// Maximum length of a name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of names that are tried in place of a segment.
const MAX_NAMES: usize = 3;
/// Maximum number of patterns in a suggestion.
const MAX_PATTERNS: usize = 5;
/// Maximum number of domains in a suggestion.
const MAX_DOMAINS: usize = 10;
/// Characters that users write between the segments of a key.
const SEPARATORS: [char; 3] = ['/', ':', ' '];

/// The limited keys near a key.
#[derive(Debug, Default, PartialEq)]
pub struct Suggestion {
    /// A key that meets a limit and is a few typing errors away; empty: none was found.
    pub key: Vec<String>,
    /// Keys that meet a limit, with `*` for any segment, from the node that shares the longest prefix with the key.
    pub patterns: Vec<Vec<String>>,
}

impl Policy {
    /// Returns at most ten domain names, those that are the fewest typing errors away from `name` first.
    pub fn suggest_domains(&self, name: &str) -> Vec<&str> {
        let mut names: Vec<_> = self.domains().map(|domain| &*domain.name).collect();
        names.sort_unstable();
        names.truncate(MAX_STEPS);
        names.sort_by_key(|known| distance(name, known).unwrap_or(usize::MAX));
        names.truncate(MAX_DOMAINS);
        names
    }
}

impl Domain {
    /// Returns the limited keys near a key that meets no limit.
    pub fn suggest<T: AsRef<str>>(&self, key: &[T]) -> Suggestion {
        let segments: Vec<_> = key.iter().map(AsRef::as_ref).collect();
        let split: Vec<_> =
            segments.iter().flat_map(|one| one.split(SEPARATORS)).filter(|one| !one.is_empty()).collect();
        let (mut search, was_split) = (Search { domain: self, steps: 0, best: None }, split != segments);
        search.visit(0, &split, &mut Vec::new(), 0);
        if was_split && search.best.is_none() {
            search.visit(0, &segments, &mut Vec::new(), 0);
        }
        let key = search.best.map(|(_, key)| key.into_iter().map(str::to_owned).collect()).unwrap_or_default();
        Suggestion { key, patterns: self.patterns(if was_split { &split } else { &segments }) }
    }

    /// Returns patterns of limited keys below the deepest node on the path of `key` that has any.
    fn patterns(&self, key: &[&str]) -> Vec<Vec<String>> {
        let steps: Vec<_> = self.walk_along(key.iter().map(|segment| segment.as_bytes())).collect();
        let below = |depth: usize, node| self.limited_below(node, &key[..depth]);
        let nearest_first = steps.iter().rev().map(|(depth, _, node)| below(*depth, *node));
        nearest_first.chain([below(0, 0)]).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn limited_below(&self, start: NodeId, beginning: &[&str]) -> Vec<Vec<String>> {
        let (mut found, mut steps) = (Vec::new(), 0);
        let beginning = beginning.iter().map(|segment| (*segment).to_owned()).collect::<Vec<_>>();
        let mut open = VecDeque::from([(start, beginning)]);
        while let Some((node, path)) = open.pop_front() {
            let mut children: Vec<_> = self.children(node).take(MAX_STEPS - steps).collect();
            steps += children.len();
            children.sort_unstable();
            for (name, child) in children {
                let path = [&path[..], &[name.to_owned()]].concat();
                if !self.limits_at(child).is_empty() {
                    found.push(path.clone());
                    if found.len() == MAX_PATTERNS {
                        return found;
                    }
                }
                open.push_back((child, path));
            }
        }
        found
    }
}

/// A search for the limited key that is the fewest typing errors away.
struct Search<'d> {
    domain: &'d Domain,
    steps: usize,
    best: Option<(usize, Vec<&'d str>)>,
}

impl<'d> Search<'d> {
    fn visit(&mut self, node: NodeId, rest: &[&'d str], key: &mut Vec<&'d str>, errors: usize) {
        self.steps += 1;
        let is_best = self.best.as_ref().is_none_or(|(fewest, _)| errors < *fewest);
        if self.steps > MAX_STEPS || !is_best {
            return;
        }
        let Some((segment, below)) = rest.split_first() else { return self.offer(key, errors) };
        let depth = key.len();
        let child = self.domain.child(node, segment.as_bytes());
        match child {
            Some((_, child)) => {
                key.push(segment);
                self.visit(child, below, key, errors);
            }
            None => {
                key.extend(rest);
                self.offer(key, errors);
            }
        }
        key.truncate(depth);
        if child.is_some_and(|(found, _)| found == Found::Exact) {
            return;
        }
        for (more, name, child) in self.similar_names(node, segment) {
            key.push(name);
            self.visit(child, below, key, errors + more);
            key.pop();
        }
    }

    fn offer(&mut self, key: &[&'d str], errors: usize) {
        let is_best = self.best.as_ref().is_none_or(|(fewest, _)| errors < *fewest);
        if is_best && self.domain.are_matched(key.iter().map(|segment| segment.as_bytes()), key.len()) {
            self.best = Some((errors, key.to_vec()));
        }
    }

    /// Returns the children whose names are a few typing errors away from `segment`.
    fn similar_names(&mut self, node: NodeId, segment: &str) -> Vec<(usize, &'d str, NodeId)> {
        let mut similar = Vec::new();
        for (name, child) in self.domain.children(node).take(MAX_STEPS.saturating_sub(self.steps)) {
            self.steps += 1;
            if let Some(errors) = distance(segment, name).filter(|_| !name.contains('*')) {
                similar.push((errors, name, child));
            }
        }
        similar.sort_unstable();
        similar.truncate(MAX_NAMES);
        similar
    }
}

fn distance(word: &str, known: &str) -> Option<usize> {
    if word.len().max(known.len()) > MAX_NAME_BYTES { None } else { suggest::distance(word, known) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "
        schema:
          user: { children: { '*': { limits: [1, 1, 1], children: { trade: { limits: [1, 1, 1] } } } } }
          group: { children: { admin: { limits: [1, 1, 1] } } }
          free: {}
          ours: { factor: 0, children: { '*': { limits: [1, 1, 1] } } }";

    fn policy(text: &str) -> Policy {
        crate::parse(text, &crate::Rules::default()).unwrap()
    }

    fn is_matched<T: AsRef<str>>(domain: &Domain, key: &[T]) -> bool {
        domain.are_matched(key.iter().map(|segment| segment.as_ref().as_bytes()), key.len())
    }

    fn suggested(domain: &Domain, key: &[&str]) -> (String, String) {
        assert!(!is_matched(domain, key), "{key:?}");
        let Suggestion { key, patterns } = domain.suggest(key);
        assert!(key.is_empty() || is_matched(domain, &key), "{key:?}");
        (key.join(" "), patterns.into_iter().map(|pattern| pattern.join(" ")).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn a_similar_key_is_suggested_or_else_limited_patterns() {
        let policy = policy(POLICY);
        let domain = policy.domain("").unwrap();
        let all = "group admin, user *, user * trade";
        for (key, corrected, patterns) in [
            (&["usr", "alex", "trade"][..], "user alex trade", all),
            (&["user/alex/trade"], "user alex trade", "user alex trade"),
            (&["user:alex"], "user alex", "user alex trade"),
            (&["usr", "alex", "trad"], "user alex trad", all),
            (&["group", "amdin"], "group admin", "group admin"),
            (&["user"], "", "user *, user * trade"),
            (&["free", "of", "limits"], "", all),
            (&["alex"], "", all),
            (&["a/b"], "", all),
        ] {
            assert_eq!(suggested(domain, key), (corrected.to_owned(), patterns.to_owned()), "{key:?}");
        }
        assert!(is_matched(domain, &["user", "alex", "else"]));
        assert!(is_matched(domain, &["ours", "any"]), "a factor of 0 is not a mistake");
    }

    #[test]
    fn descriptors_are_matched_by_the_whole_key() {
        let policy = policy(
            "domain: d\ndescriptors: [{ key: user, descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 3 } }] },
               { key: plan, value: free, rate_limit: { unlimited: true } }]",
        );
        let domain = policy.domain("d").unwrap();
        assert!(is_matched(domain, &["plan", "free"]) && is_matched(domain, &["user", "u", "path", "p"]));
        assert_eq!(suggested(domain, &["user", "u"]), (String::new(), "user u path *".to_owned()));
        assert_eq!(suggested(domain, &["plan", "fre"]).0, "plan free");
    }

    #[test]
    fn a_search_of_a_large_policy_is_bounded() {
        let names: String = (0..20_000).map(|n| format!("    {:x<60}{n}: {{ limits: [1, 1, 1] }}\n", "")).collect();
        let policy = policy(&format!("schema:\n  a:\n   children:\n{names}"));
        let domain = policy.domain("").unwrap();
        let unlike = "y".repeat(MAX_NAME_BYTES);
        assert_eq!(domain.suggest(&["a", &unlike]).patterns.len(), MAX_PATTERNS);
        let mut search = Search { domain, steps: 0, best: None };
        search.visit(0, &["b", &unlike], &mut Vec::new(), 0);
        assert!(search.steps <= MAX_STEPS + 1, "{}", search.steps);
    }

    #[test]
    fn the_nearest_domain_comes_first() {
        let many = (0..20).map(|n| Domain::new(&format!("d{n:02}")));
        let policy = Policy::new(many.chain([Domain::new("web"), Domain::new("")]));
        let nearest = policy.suggest_domains("wbe");
        assert_eq!((nearest.len(), nearest[..3].to_vec()), (MAX_DOMAINS, vec!["web", "", "d00"]));
    }
}
