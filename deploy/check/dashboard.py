"""Reads a dashboard by Grafana's own types and writes it again: what it has lost has no meaning to Grafana."""

import json
import sys

from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard

# Of the annotations of a Prometheus, which the types do not know.
UNKNOWN = {"titleFormat", "textFormat", "step"}


def lost(before, after, path=""):
    """The paths of what stands in one document and not in the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from lost(value, after[key], f"{path}.{key}")
            elif value not in (None, "", [], {}) and key not in UNKNOWN:
                yield f"{path}.{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}[{index}]")
    elif before != after:
        yield path


plugins.register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    written = json.load(file)
read = json.loads(encoder.JSONEncoder().encode(dashboard.Dashboard.from_json(written)))
ids = [panel["id"] for panel in written["panels"]]
problems = [f"{path} means nothing to Grafana" for path in lost(written, read)]
# The variable `job` has the jobs of Weir; a value of its own for "All" would be every target of Prometheus.
problems += [f"the variable {v['name']} is not limited to Weir" for v in written["templating"]["list"] if v["name"] == "job" and v.get("allValue")]
targets = [target["expr"] for panel in written["panels"] for target in panel.get("targets", [])]
queries = targets + [annotation["expr"] for annotation in written["annotations"]["list"]]
queries += [v["query"]["query"] for v in written["templating"]["list"] if v["name"] in ("instance", "domain")]
problems += [f"another namespace is not left out: {q}" for q in queries if q.count('{job=~"$job",namespace=~"$namespace"') != q.count("{")]
problems += ["two panels have one id"] if len(set(ids)) != len(ids) else []
print(f"{len(ids)} panels" if not problems else "\n".join(problems))
sys.exit(bool(problems))
