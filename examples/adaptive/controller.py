#!/usr/bin/env python3
"""Adaptive limits: divides the limits of a domain while a measurement of Prometheus is above its target.

While it is above, a step allows 0.7 of the step before (down to --least); below, a tenth more of
the policy's limits (up to all of them): down fast, up slowly. The factor is an override that lasts
for three steps, so it expires if this controller, or Prometheus, stops. Python 3.10, nothing else.
"""

import argparse
import http.client
import json
import logging
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

DOWN, UP = 0.7, 0.1
TIMEOUT_SECONDS = 5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", required=True, help="PromQL with one number as its result, such as a latency in seconds")
    parser.add_argument("--target", required=True, type=float, help="what the number should not exceed")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="its URL")
    parser.add_argument("--weir", default="http://127.0.0.1:8080", help="the URL of Weir's HTTP port")
    parser.add_argument("--token-file", type=Path, help="a file with the token of a client with the role admin")
    parser.add_argument("--domain", default="", help="the domain whose limits are divided")
    parser.add_argument("--least", type=float, default=0.1, help="the least part of the limits that is allowed")
    parser.add_argument("--every", type=float, default=10, help="seconds between steps")
    return parser.parse_args()


def measured(args):
    """The number, or None where the query has no result."""
    query = urllib.parse.urlencode({"query": args.query})
    with urllib.request.urlopen(f"{args.prometheus}/api/v1/query?{query}", timeout=TIMEOUT_SECONDS) as answer:
        data = json.load(answer)["data"]
    result = data["result"]
    if data["resultType"] == "vector":
        result = result[0]["value"] if result else (0, "NaN")
    elif data["resultType"] != "scalar":
        raise ValueError(f"the query has a {data['resultType']} as its result, not one number")
    value = float(result[1])
    return None if math.isnan(value) else value


def call(args, page, body):
    headers = {"content-type": "application/json"}
    if args.token_file:
        headers["authorization"] = f"Bearer {args.token_file.read_text().strip()}"
    request = urllib.request.Request(f"{args.weir}/v1/admin/{page}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)


def step(args, allowed):
    """Measures, and sets the part of the policy's limits that is allowed from now on."""
    value = measured(args)
    if value is None:
        return allowed
    following = max(args.least, allowed * DOWN) if value > args.target else min(1.0, round(allowed + UP, 6))
    if following < 1:
        reason = f"{value:g} measured, {args.target:g} wanted: {following:.0%} of the limits"
        override = {"domain": args.domain, "factor": 1 / following, "reason": reason}
        call(args, "set_override", {"override": override, "ttl": f"{3 * args.every:g}s"})
        logging.info(reason)
    elif allowed < 1:
        call(args, "end_override", {"domain": args.domain})
        logging.info("%g measured: the limits are the policy's again", value)
    return following


def main():
    args = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    allowed = 1.0
    while True:
        try:
            allowed = step(args, allowed)
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            # The override expires.
            logging.warning("no step: %s", error)
        time.sleep(args.every)


if __name__ == "__main__":
    main()
