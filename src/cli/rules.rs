//! The rules by which commands read policy files, with the meaning of the service's settings.

use clap::Args;
use weir_core::{algorithm::Bounds, domain::time::parse_duration};
use weir_policy::Rules;

use super::Failure;

/// How policy files are read.
#[derive(Args)]
pub(super) struct RulesArgs {
    /// Longest period that is allowed, as in the setting max_period
    #[arg(long, value_name = "TIME", default_value = "31d")]
    max_period: String,
    /// Allow several descriptor files for one domain, as the setting envoy.merge_domains does
    #[arg(long)]
    merge_domains: bool,
}

impl RulesArgs {
    /// Returns the rules.
    ///
    /// # Errors
    /// The longest period is not a duration.
    pub(super) fn rules(&self) -> Result<Rules, Failure> {
        let bounds = Bounds { max_period: parse_duration(&self.max_period).map_err(Failure)? };
        Ok(Rules { bounds, merge_domains: self.merge_domains, ..Rules::default() })
    }
}
