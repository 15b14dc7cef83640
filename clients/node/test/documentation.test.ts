import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

test("the README shows the examples that are tested", () => {
  const readme = readFileSync("README.md", "utf8");
  for (const name of readdirSync("examples").filter((name) => !["service.ts", "leased.ts"].includes(name))) {
    assert.ok(readme.includes(`\`\`\`ts\n${readFileSync(`examples/${name}`, "utf8")}\`\`\``), `examples/${name} is not in README.md`);
  }
});
