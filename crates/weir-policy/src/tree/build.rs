//! Builds the tree of a domain.

use weir_core::{
    domain::{Charge, OnStoreFailure, key::MAX_PLAIN_BYTES},
    plan::{Limit, identify},
};

use super::{DEFAULT_ANCHOR, Domain, Node, NodeId, Pattern};

impl Domain {
    /// Makes a domain without limits.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            index: 0,
            charge: Charge::default(),
            on_store_failure: OnStoreFailure::default(),
            allows_spec: None,
            anchor: DEFAULT_ANCHOR,
            shadow: false,
            retry_jitter: 0.0,
            descriptors: None,
            nodes: vec![Node::default()],
            limits: Vec::new(),
        }
    }

    /// Adds the child for a name, or for `*` the one for all other names. Returns an existing child unchanged.
    pub(crate) fn add_child(&mut self, parent: NodeId, segment: &str) -> NodeId {
        match segment {
            "*" => self.add_any(parent),
            _ => self.add_exact(parent, segment),
        }
    }

    /// Adds the child for all names without their own child or a matching pattern. Returns an
    /// existing child unchanged.
    pub(crate) fn add_any(&mut self, parent: NodeId) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let id = *self.nodes[parent as usize].any.get_or_insert(next);
        self.grow_to(id)
    }

    /// Adds the child for exactly this name, also for `*`. Returns an existing child unchanged.
    pub(crate) fn add_exact(&mut self, parent: NodeId, segment: &str) -> NodeId {
        let next = self.nodes.len() as NodeId;
        let node = &mut self.nodes[parent as usize];
        node.has_long_names |= segment.len() > MAX_PLAIN_BYTES;
        let id = *node.children.entry(segment.as_bytes().into()).or_insert(next);
        self.grow_to(id)
    }

    fn grow_to(&mut self, id: NodeId) -> NodeId {
        if id as usize == self.nodes.len() {
            self.nodes.push(Node::default());
        }
        id
    }

    /// Adds a child for the segments that match a pattern. Patterns are tried in the order in which they were added,
    /// after exact names and before `*`.
    pub(crate) fn add_pattern(&mut self, parent: NodeId, pattern: Pattern) -> NodeId {
        let next = self.nodes.len() as NodeId;
        self.nodes[parent as usize].patterns.push((pattern, next));
        self.nodes.push(Node::default());
        next
    }

    /// Whether a node has a child for this pattern.
    pub(crate) fn has_pattern(&self, parent: NodeId, text: &str) -> bool {
        self.nodes[parent as usize].patterns.iter().any(|(pattern, _)| &*pattern.0 == text)
    }

    /// Sets the limits of a node.
    pub(crate) fn set_limits(&mut self, node: NodeId, limits: impl IntoIterator<Item = Limit>) {
        let start = self.limits.len() as u32;
        self.limits.extend(limits);
        identify(&mut self.limits[start as usize..]);
        self.nodes[node as usize].limits = start..self.limits.len() as u32;
    }

    /// Marks the limits of a node as lifted by a factor of 0.
    pub(crate) fn lift(&mut self, node: NodeId) {
        self.nodes[node as usize].is_lifted = true;
    }

    /// Marks a node that has a factor other than 0 and 1.
    pub(crate) fn divide(&mut self, node: NodeId) {
        self.nodes[node as usize].is_divided = true;
    }

    pub(crate) fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.limits.iter_mut()
    }
}
