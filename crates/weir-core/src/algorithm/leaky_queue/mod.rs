#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod facts;
pub mod wire;

use super::{
    Algorithm, Bounds, ParamError,
    params::{MAX_COUNT, check_count, check_max_wait, check_period, check_span, scale_count},
    span::{Rate, Span},
    tat::{Meter, Tat},
};
use crate::domain::{Ask, Decision, Micros, time::format_duration};

/// A queue that lets `count` per `period` through, evenly; `burst` may stand in it, `delay` of them need not wait.
#[derive(Clone, Debug, PartialEq)]
pub struct LeakyQueue {
    count: u64,
    period: Micros,
    burst: u64,
    delay: u64,
    max_wait: Option<Micros>,
    /// How far the key may run ahead for callers who do not say how long they wait.
    meter: Meter,
    /// How far it may without anybody waiting.
    free: Span,
}

impl LeakyQueue {
    /// A limit with these parameters.
    ///
    /// # Errors
    /// [`ParamError`] for a count outside 1 to 2^32, a period outside 1 µs to the bound, a burst over 2^32 or one that this
    /// rate cannot express exactly, a delay over the burst, or a longest wait over a day.
    pub fn new(
        count: u64,
        period: Micros,
        burst: u64,
        delay: u64,
        max_wait: Option<Micros>,
        bounds: &Bounds,
    ) -> Result<Self, ParamError> {
        check_count("count", count)?;
        check_period("period", period, bounds)?;
        if burst > MAX_COUNT {
            return Err(ParamError::new("burst", format!("burst is 0 to 2^32, not {burst}")));
        }
        let rate = Rate::new(count, period);
        check_span("burst", burst + 1, rate)?;
        if delay > burst {
            return Err(ParamError::new("delay", format!("delay is 0 to the burst of {burst}, not {delay}")));
        }
        check_max_wait(max_wait)?;
        let whole = Meter::new(burst + 1, rate);
        let free = rate.span(delay + 1);
        let meter = max_wait.map_or(whole, |max_wait| cut(whole, free, max_wait));
        Ok(Self { count, period, burst, delay, max_wait, meter, free })
    }
}

/// The meter for those who wait at most so long: whoever would have to wait longer finds it full.
fn cut(meter: Meter, free: Span, max_wait: Micros) -> Meter {
    let depth = meter.rate.add(free, Span::whole(max_wait));
    if depth >= meter.depth {
        return meter;
    }
    Meter { most: meter.rate.units_within(depth, meter.most), depth, ..meter }
}

impl Algorithm for LeakyQueue {
    type State = Tat;

    #[inline]
    fn step(&self, state: Option<&Tat>, ask: &Ask) -> (Decision, Option<Tat>) {
        let meter = ask.max_wait.map_or(self.meter, |max_wait| cut(self.meter, self.free, max_wait));
        let (decision, next) = meter.step(state, ask);
        let decision = Decision { limit: self.burst + 1, ..decision };
        if ask.cost < 0 || (ask.cost > 0 && !decision.allowed) {
            return (decision, next);
        }
        let (rate, now) = (meter.rate, Span::whole(ask.now));
        let at = next.as_ref().or(state).map_or(now, |tat| tat.read(rate));
        let wait = rate.sub(rate.sub(at, self.free), now).ceil().max(0);
        (Decision { allowed: true, retry_after: None, wait, ..decision }, next)
    }

    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let [burst, delay] = [self.burst, self.delay].map(|units| scale_count(units, factor, 0));
        let bounds = Bounds { max_period: self.period };
        Self::new(scale_count(self.count, factor, 1), self.period, burst, delay, self.max_wait, &bounds)
    }

    fn describe(&self) -> String {
        let Self { count, period, burst, delay, max_wait, .. } = self;
        let mut text = format!("{{ count: {count}, period: {}, burst: {burst}", format_duration(*period));
        if *delay > 0 {
            text.push_str(&format!(", delay: {delay}"));
        }
        if let Some(max_wait) = max_wait {
            text.push_str(&format!(", max_wait: {}", format_duration(*max_wait)));
        }
        text + " }"
    }

    fn window(&self) -> Micros {
        self.meter.rate.span(self.burst + 1).ceil().max(1)
    }

    /// The meter's, for callers who do not say how long they wait, then the most units and what need not wait in micros
    /// and parts.
    fn lua_params(&self) -> Vec<f64> {
        let own = [self.burst as i64 + 1, self.free.micros, self.free.num].map(|word| word as f64);
        [self.meter.lua_params(), own.to_vec()].concat()
    }
}
