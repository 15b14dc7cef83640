//! Prints the limits that a key meets.

use std::error::Error;

use weir_core::domain::Key;
use weir_policy::Rules;

const POLICY: &str = r#"
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 15, count: 30, period: 60s }, name: per-user }]
        children:
          trade: { limits: [{ fixed_window: { count: 5000, period: 1d } }] }
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = weir_policy::parse(POLICY, &Rules::default())?;
    let domain = policy.domain("").ok_or("no default domain")?;
    let key = Key::new("", &["user", "alex", "trade"])?;
    for level in domain.levels(&key, 1, 1.0)? {
        println!("{} covers {} segments: {}", level.limit.name, level.depth, level.params().describe());
    }
    Ok(())
}
