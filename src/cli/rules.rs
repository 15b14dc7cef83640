//! The rules by which commands read policy files: the rules of a service with the same settings.

use std::path::PathBuf;

use clap::Args;
use weir_core::domain::{Micros, time::parse_duration};
use weir_policy::Rules;

use super::{Failure, variables};
use crate::config::{Flags, Settings};

/// How policy files are read.
#[derive(Args)]
pub(super) struct RulesArgs {
    /// The settings file of the service, whose settings for policies apply, such as max_period, envoy.charge and
    /// envoy.quota_mode. WEIR_… variables override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Longest period that is allowed, as in the setting max_period. Default: 31d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_period: Option<Micros>,
    /// Allow several descriptor files for one domain, as the setting envoy.merge_domains does
    #[arg(long)]
    merge_domains: bool,
}

impl RulesArgs {
    /// Returns the rules.
    ///
    /// # Errors
    /// The settings are not valid.
    pub(super) fn rules(&self) -> Result<Rules, Failure> {
        let mut rules = match &self.config {
            Some(file) => Settings::load(Some(file), variables(), &Flags::default())?.policy_rules(),
            None => Rules::default(),
        };
        rules.bounds.max_period = self.max_period.unwrap_or(rules.bounds.max_period);
        rules.merge_domains |= self.merge_domains;
        Ok(rules)
    }
}
