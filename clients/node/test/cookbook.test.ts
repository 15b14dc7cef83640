// Each JavaScript block of docs/cookbook-code.md runs with the cookbook's policies, and prints the text below it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { scratch } from "./support/process.js";
import { startWeir } from "./support/weir.js";

const RECIPES = 14;
const CLIENT = 'new Client("127.0.0.1:8081")';

function sections(page: string): string[] {
  return readFileSync(join("docs", page), "utf8").split("\n## ");
}

function blocks(text: string, language: string): string[] {
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(([, block]) => block as string);
}

test("each recipe prints what the page says", async (t) => {
  const policies = scratch(t);
  for (const [number, policy] of blocks(sections("cookbook.md").slice(1).join(""), "yaml").entries()) {
    writeFileSync(join(policies, `${number}.yaml`), policy);
  }
  const { address } = await startWeir(t, {}, null, policies);
  const [introduction = "", ...recipes] = sections("cookbook-code.md");
  assert.equal(recipes.length, RECIPES);
  const [start = ""] = blocks(introduction, "js");
  assert.ok(start.includes(CLIENT));
  for (const recipe of recipes) {
    const [code = "", ...others] = blocks(recipe, "js");
    const [printed] = blocks(recipe, "text");
    assert.equal(others.length, 0);
    // A busy machine misses the default deadline.
    const program = `${start.replace(CLIENT, `new Client("${address}", { deadlineMs: 20_000 })`)}${code}await client.close();\n`;
    const [title] = recipe.split("\n");
    assert.equal(execFileSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8" }), printed, title);
  }
});
