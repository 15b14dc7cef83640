use crate::proto::ResetRequest;

/// A key to reset. A key alone converts into one.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a reset does nothing until a client sends it"]
pub struct Reset {
    pub(crate) request: ResetRequest,
}

impl<K: IntoIterator<Item: Into<String>>> From<K> for Reset {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

impl Reset {
    /// Resets this key of the default domain.
    pub fn new(key: impl IntoIterator<Item: Into<String>>) -> Self {
        let key = key.into_iter().map(Into::into).collect();
        Self { request: ResetRequest { key, ..ResetRequest::default() } }
    }

    /// Sets the domain.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.request.domain = domain.into();
        self
    }

    /// Includes all keys below it.
    pub fn subtree(mut self) -> Self {
        self.request.subtree = true;
        self
    }
}
