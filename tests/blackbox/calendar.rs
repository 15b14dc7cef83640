//! Calendar windows, in every place where a limit can be written.

use serde_json::json;
use tonic::Code;
use weir::proto::{Calendar, FixedWindow, limit::Algorithm};

use crate::support::{
    Folder, Server,
    http::Client,
    requests::{check, limit, refusal, seconds_long, with_limits},
    run, run_with,
    server::Setup,
};

const POLICY: &str = "schema:
  user:
    children:
      '*':
        limits:
          - fixed_window: { count: 10, calendar: month, zone: europe/berlin, anchor: 15 }
            name: billing
          - fixed_window: { count: 9, calendar: week, anchor: sunday }
            name: weekly
";

fn window(zone: Option<&str>, anchor: Option<&str>, calendar: Calendar) -> FixedWindow {
    let [zone, anchor] = [zone, anchor].map(|text| text.map(str::to_owned));
    FixedWindow { count: 5, calendar: calendar.into(), zone, anchor, ..FixedWindow::default() }
}

#[tokio::test]
async fn clients_write_calendars_in_messages_and_as_json() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let own = |window| with_limits(check(&["own"]), vec![limit(Algorithm::FixedWindow(window))]);
    let asked = client.check(own(window(Some("America/New_York"), Some("31"), Calendar::Month))).await;
    let answer = asked.expect("valid").into_inner();
    let reset = answer.reset_after.expect("in use").seconds;
    assert_eq!((answer.limit, answer.remaining), (5, 4));
    assert!((0..=31 * 86_400 + 3_600).contains(&reset), "{reset}");
    let limits = json!({ "limits": [{ "fixedWindow": { "count": 5, "calendar": "CALENDAR_MONTH", "zone": "America/New_York", "anchor": "31" } }] });
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let answer = http.post("/v1/check", &json!({ "key": ["own"], "limitSpec": limits })).json();
    assert_eq!(answer["remaining"], "3", "the same count: {answer}");
    for (window, field) in [
        (window(Some("Berlin"), None, Calendar::Day), "zone"),
        (window(None, Some("monday"), Calendar::Month), "anchor"),
        (window(None, None, Calendar::Year), "calendar"),
        (window(None, None, Calendar::Unspecified), "period"),
        (FixedWindow { period: Some(seconds_long(9)), ..window(None, None, Calendar::Day) }, "period"),
        (FixedWindow { calendar: 9, ..window(None, None, Calendar::Day) }, "calendar"),
    ] {
        let status = client.check(own(window.clone())).await.expect_err("invalid");
        let field = format!("limit_spec.limits[0].fixed_window.{field}");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field)), "{window:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_restart_keeps_the_counts_of_a_calendar() {
    let dir = Folder::of(&[("limits.yaml", POLICY)]);
    let (limits, snapshot) = (dir.path("limits.yaml"), dir.path("weir.snapshot"));
    let start = || Setup::new().limits(limits.clone().into()).snapshot(&snapshot).start();
    for left in [[9, 8], [8, 7]] {
        let mut server = start();
        let answer = server.check(check(&["user", "alex"])).await;
        assert_eq!(answer.levels.iter().map(|level| level.remaining).collect::<Vec<_>>(), left);
        server.stop();
        // The current window keeps its end when zone and anchor change.
        dir.write("limits.yaml", POLICY.replace("europe/berlin, anchor: 15", "Asia/Tokyo"));
    }
}

#[test]
fn lint_and_explain_know_calendars() {
    let dir = Folder::new();
    let file = &dir.write("limits.yaml", POLICY);
    let explained = run(&["limits", "explain", file, "user", "alex"]);
    let shown = "billing: fixed_window { count: 10, calendar: month, zone: Europe/Berlin, anchor: 15 }; counted as \
                 `pfixed_windowmonth=billing`";
    assert!(explained.out.contains(shown), "{}", explained.out);
    assert!(run(&["limits", "lint", file]).out.contains("valid; domains: 1, limits: 2"));
    for (instead, message) in [
        (
            "zone: Berlin",
            ":6:63: fixed_window: zone must be a name of the IANA time zone database such as Europe/Berlin, not `Berlin`",
        ),
        ("period: 1d", "fixed_window: period cannot be combined with calendar"),
    ] {
        dir.write("limits.yaml", POLICY.replace("zone: europe/berlin", instead));
        let linted = run(&["limits", "lint", file]);
        assert_eq!(linted.code, 2);
        assert!(linted.err.contains(message), "{}", linted.err);
    }
    dir.write("limits.yaml", POLICY.replace("month, zone: europe/berlin, anchor: 15", "year"));
    assert!(
        run(&["limits", "lint", file]).err.contains("calendar must be a unit of at most 31d (the setting max_period)")
    );
    assert_eq!(run(&["limits", "lint", file, "--max-period", "366d"]).code, 0);
}

/// Replays a trace with limits in the requests, before and after a month's end in three zones.
#[test]
fn a_months_end_in_three_zones() {
    let month = |zone: &str| json!([{ "fixed_window": { "count": 1, "calendar": "month", "zone": zone } }]);
    let at = |seconds: i64, zone: &str, of_key: &str| json!({ "at_us": seconds * 1_000_000, "key": [of_key], "limits": month(zone) });
    // 31 October 2026, noon UTC. The months start at 15:00 UTC, at 23:00 UTC, and at 4:00 UTC the next day, before the
    // clocks are set back.
    let noon = 1_793_448_000;
    let zones = [("Asia/Tokyo", 3), ("Europe/Berlin", 11), ("America/New_York", 16)];
    let lines = zones.iter().flat_map(|(zone, hours)| {
        let begins = noon + hours * 3_600;
        [noon, noon, begins].map(|seconds| at(seconds, zone, zone).to_string() + "\n")
    });
    let said = run_with(&["simulate"], &lines.collect::<String>());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let said = said.json_lines();
    let november = [30 * 24, 30 * 24, 30 * 24 + 1];
    for (answers, ((zone, hours), november)) in said.chunks(3).zip(zones.iter().zip(november)) {
        assert_eq!(answers[0]["reset_after_us"], hours * 3_600_000_000, "{zone}");
        assert_eq!(answers[1]["retry_after_us"], hours * 3_600_000_000, "{zone}");
        assert_eq!(
            (&answers[2]["allowed"], &answers[2]["reset_after_us"]),
            (&json!(true), &json!(november * 3_600_000_000_i64)),
            "{zone}"
        );
    }
}
