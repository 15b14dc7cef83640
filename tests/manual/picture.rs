//! A picture of a trace: its requests and their outcomes, the starts so far, and the remaining units.

use std::fmt::Write;

use weir_core::{
    algorithm::Entry,
    domain::{Micros, time::SECOND},
};

use super::trace::{END, MAX_WAIT, Replay, Request};

// All lengths are in pixels. Colours contrast with white and black, and never carry meaning alone.
const WIDTH: i64 = 760;
const LEFT: i64 = 66;
const RIGHT: i64 = 744;
const INK: &str = "#767e87";
const GREEN: &str = "#2c9c4b";
const BLUE: &str = "#3b82f6";
const RED: &str = "#dc4f4a";
const VIOLET: &str = "#8f6fdc";

/// Maximum of the upper curve's axis, in units.
const MOST_UNITS: u64 = 90;
/// Length of the window by which pictures are compared.
const WINDOW: Micros = 10 * SECOND;

/// Draws the picture of an algorithm's first example.
pub fn draw(entry: &Entry, replay: &Replay) -> String {
    let mut picture = Picture { body: String::new(), y: 62 };
    picture.lanes(replay);
    picture.curves(replay);
    picture.remaining(replay);
    picture.seconds();
    picture.framed(entry, replay)
}

struct Picture {
    body: String,
    /// The vertical position of the next part.
    y: i64,
}

/// Formats a coordinate in tenths of a pixel, as short as possible.
fn short(tenths: i64) -> String {
    match (tenths / 10, tenths % 10) {
        (whole, 0) => whole.to_string(),
        (whole, part) => format!("{whole}.{part}"),
    }
}

/// Returns the horizontal position of a time.
fn x(at: Micros) -> String {
    short(LEFT * 10 + at.min(END) * (RIGHT - LEFT) * 10 / END)
}

/// A band of the picture with its own axis.
struct Panel {
    top: i64,
    height: i64,
    most: u64,
}

impl Panel {
    fn y(&self, units: u64) -> String {
        short(self.top * 10 + (self.most - units.min(self.most)) as i64 * self.height * 10 / self.most as i64)
    }

    /// Returns a path that keeps each value until the time of the next one.
    fn steps(&self, values: impl Iterator<Item = (Micros, u64)>) -> String {
        let mut path = String::new();
        for (at, value) in values {
            let (x, y) = (x(at), self.y(value));
            let _ = if path.is_empty() { write!(path, "M{x} {y}") } else { write!(path, "H{x}V{y}") };
        }
        path + &format!("H{}", x(END))
    }
}

impl Picture {
    fn add(&mut self, element: impl AsRef<str>) {
        self.body.push_str(element.as_ref());
        self.body.push('\n');
    }

    fn text(&mut self, x: i64, y: i64, anchor: &str, text: &str) {
        self.add(format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"));
    }

    /// Draws the requests, in a lane for each outcome: allowed, their starts if some wait, refused.
    fn lanes(&mut self, replay: &Replay) {
        let bars = |y: i64, moments: &mut dyn Iterator<Item = Micros>| -> String {
            moments.map(|at| format!("M{} {y}v10", x(at))).collect()
        };
        let allowed = |request: &Request| request.start.map(|_| request.at);
        let y = self.lane("allowed");
        let path = bars(y, &mut replay.requests.iter().filter_map(allowed));
        self.add(format!("<path stroke=\"{GREEN}\" stroke-width=\"1.2\" d=\"{path}\"/>"));
        if replay.has_waits() {
            let below = self.lane("starts");
            let ways = replay.requests.iter().filter_map(|request| Some((request.at, request.start?)));
            let ways: String =
                ways.map(|(at, start)| format!("M{} {}L{} {}", x(at), y + 11, x(start), below - 1)).collect();
            self.add(format!("<path stroke=\"{BLUE}\" stroke-width=\".7\" opacity=\".7\" d=\"{ways}\"/>"));
            let path = bars(below, &mut replay.requests.iter().filter_map(|request| request.start));
            self.add(format!("<path stroke=\"{BLUE}\" stroke-width=\"1.2\" d=\"{path}\"/>"));
        }
        let y = self.lane("refused");
        let refused = replay.requests.iter().filter(|request| request.start.is_none());
        let path: String = refused.map(|request| format!("M{} {y}m-3 2l6 6m0-6l-6 6", x(request.at))).collect();
        self.add(format!("<path stroke=\"{RED}\" stroke-width=\"1.1\" d=\"{path}\"/>"));
    }

    /// Adds the name of the next lane, and returns the lane's top.
    fn lane(&mut self, name: &str) -> i64 {
        let top = self.y;
        self.text(LEFT - 8, top + 9, "end", name);
        self.y = top + if name == "allowed" { 26 } else { 18 };
        top
    }

    /// Draws the number of requests so far, and of those that have started.
    fn curves(&mut self, replay: &Replay) {
        let started = if replay.has_waits() { "started so far" } else { "allowed so far" };
        let panel = self.panel(130, MOST_UNITS, &[0, 30, 60, 90]);
        let so_far = |moments: Vec<Micros>| panel.steps([(0, 0)].into_iter().chain(moments.into_iter().zip(1..)));
        let asked = so_far(replay.requests.iter().map(|request| request.at).collect());
        self.add(format!("<path stroke=\"{INK}\" stroke-width=\"1.2\" stroke-dasharray=\"4 3\" d=\"{asked}\"/>"));
        let colour = if replay.has_waits() { BLUE } else { GREEN };
        self.add(format!("<path stroke=\"{colour}\" stroke-width=\"1.8\" d=\"{}\"/>", so_far(replay.starts())));
        let y = panel.top - 10;
        self.swatch(LEFT, y, INK, " stroke-dasharray=\"4 3\"", "asked so far");
        self.swatch(LEFT + 122, y, colour, "", started);
    }

    /// Draws the largest cost that would have passed.
    fn remaining(&mut self, replay: &Replay) {
        let panel = self.panel(70, replay.limit, &[0, replay.limit]);
        let path = panel.steps(replay.remaining.iter().copied());
        self.add(format!("<path stroke=\"{VIOLET}\" stroke-width=\"1.5\" d=\"{path}\"/>"));
        self.swatch(LEFT, panel.top - 10, VIOLET, "", "remaining");
    }

    /// Draws an entry of a legend.
    fn swatch(&mut self, x: i64, y: i64, colour: &str, more: &str, text: &str) {
        self.add(format!("<path stroke=\"{colour}\" stroke-width=\"1.8\"{more} d=\"M{x} {y}h22\"/>"));
        self.text(x + 28, y + 4, "start", text);
    }

    /// Adds a panel, with grid lines at some units and every five seconds.
    fn panel(&mut self, height: i64, most: u64, units: &[u64]) -> Panel {
        let panel = Panel { top: self.y + 28, height, most };
        self.y = panel.top + height;
        let mut grid = String::new();
        for unit in units {
            let y = panel.y(*unit);
            let _ = write!(grid, "M{LEFT} {y}H{RIGHT}");
            self.add(format!("<text x=\"{}\" y=\"{y}\" dy=\"4\" text-anchor=\"end\">{unit}</text>", LEFT - 8));
        }
        for second in (0..=END / SECOND).step_by(5) {
            let _ = write!(grid, "M{} {}v{height}", x(second * SECOND), panel.top);
        }
        self.add(format!("<path stroke=\"{INK}\" stroke-width=\".6\" opacity=\".4\" d=\"{grid}\"/>"));
        panel
    }

    /// Draws the time axis, below all panels.
    fn seconds(&mut self) {
        self.y += 16;
        for second in (0..=END / SECOND).step_by(5) {
            let text = if second == END / SECOND { format!("{second} s") } else { second.to_string() };
            self.add(format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                x(second * SECOND),
                self.y
            ));
        }
        self.y += 10;
    }

    fn framed(self, entry: &Entry, replay: &Replay) -> String {
        let fields: Vec<_> = entry.examples[0].iter().map(|(field, text)| format!("{field}: {text}")).collect();
        let limit = format!("{}: {{ {} }}", entry.name, fields.join(", "));
        let result = format!(
            "{} of {} allowed; at most {} in any {} s",
            replay.starts().len(),
            replay.requests.len(),
            replay.most_within(WINDOW),
            WINDOW / SECOND
        );
        let wait = match replay.has_waits() {
            true => format!("; clients accept a wait of {} s", MAX_WAIT / SECOND),
            false => String::new(),
        };
        let height = self.y;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" fill=\"none\">\n\
             <title>{limit}</title>\n\
             <desc>{result}{wait}</desc>\n\
             <g fill=\"{INK}\" font-family=\"system-ui, sans-serif\">\n\
             <text x=\"{LEFT}\" y=\"20\" font-size=\"15\" font-weight=\"600\">{limit}</text>\n\
             <text x=\"{LEFT}\" y=\"40\" font-size=\"13\">{result}{wait}</text>\n\
             </g>\n\
             <g font-family=\"system-ui, sans-serif\" font-size=\"12\">\n{}</g>\n</svg>\n",
            self.body.replace("<text ", &format!("<text fill=\"{INK}\" "))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(wait: Micros) -> Replay {
        let request = |number: Micros| {
            let at = number * SECOND / 2;
            Request { at, start: (number % 3 != 2).then_some(at + wait * (number % 4)) }
        };
        Replay { requests: (0..60).map(request).collect(), remaining: vec![(0, 10), (5 * SECOND, 3)], limit: 10 }
    }

    #[test]
    fn a_waiting_request_shows_its_arrival_and_its_start() {
        let entry = &weir_core::algorithm::LIST[0];
        let (at_once, later) = (draw(entry, &replay(0)), draw(entry, &replay(SECOND / 2)));
        assert!(at_once.contains(">allowed so far<") && !at_once.contains(">starts<"), "{at_once}");
        assert!(later.contains(">started so far<") && later.contains(">starts<"), "{later}");
        // From the request, half a second in, to its start, half a second later.
        let (x0, x1) = (x(SECOND / 2), x(SECOND));
        assert!(later.contains(&format!("M{x0} 73L{x1} 87")), "{later}");
    }
}
