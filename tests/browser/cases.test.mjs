/** Run by `node --test`: the committed cases, and any in the file that DPINDEX_CASES names. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { disagreements } from "./cases.mjs";
import { Encoder } from "../../examples/browser/encode.js";
import { CodeSearch } from "../../examples/browser/search.js";
import { InputError } from "../../examples/browser/spec.js";

const file = process.env.DPINDEX_CASES ?? new URL("cases.json", import.meta.url);
const cases = JSON.parse(await readFile(file, "utf8"));
const [first] = cases.encodings;
const bytes = (base64) => new Uint8Array(Buffer.from(base64, "base64")).buffer;
const encoder = await Encoder.open(first.spec, bytes(first.codebook), 64);
const dim = encoder.codebook.dim;

test("Python and JavaScript agree", async () => {
  assert.deepEqual(await disagreements(cases), []);
});

test("a spec of 64 KiB and more is refused", async () => {
  const long = first.spec + " ".repeat(1 << 16);
  await assert.rejects(Encoder.open(long, bytes(first.codebook), 64), InputError);
});

test("a codebook of another size than the spec says is refused", async () => {
  const spec = JSON.parse(first.spec);
  spec.codebook.size += 1;
  const opened = Encoder.open(JSON.stringify(spec), bytes(first.codebook), 64);
  await assert.rejects(opened, InputError);
});

test("vectors that cannot be encoded are refused", () => {
  const zeros = new Array(dim).fill(0);
  const wrong = [[], [...zeros, 0], null, "0".repeat(dim), [NaN, ...zeros.slice(1)],
    [Infinity, ...zeros.slice(1)], ["0", ...zeros.slice(1)], new Array(dim), 5, { length: dim }];
  for (const vector of wrong) assert.throws(() => encoder.encode(vector), InputError);
  assert.ok(encoder.encode(zeros) < encoder.law.size);
});

test("codes beyond the codebook are refused", async () => {
  for (const symbols of [[encoder.law.size], [-1], [0.5]]) {
    await assert.rejects(encoder.toBytes(symbols), InputError);
  }
  const codes = new Uint16Array([0, encoder.law.size]).buffer;
  assert.throws(() => new CodeSearch(encoder.codebook, codes), InputError);
  assert.throws(() => new CodeSearch(encoder.codebook, new ArrayBuffer(3)), InputError);
});

test("a search finds every row once, those of the nearest codewords first", async () => {
  const { size } = encoder.law;
  const symbols = Uint16Array.from({ length: 500 }, (_, row) => (row * 7) % (size - 1));
  const search = new CodeSearch(encoder.codebook, symbols.buffer);
  const query = Array.from({ length: dim }, (_, i) => Math.sin(i));
  const similarities = encoder.codebook.similarities(query);
  const found = search.candidates(query, 1000);
  assert.deepEqual([...found].sort((a, b) => a - b), Array.from(symbols, (_, row) => row));
  const seen = Array.from(found, (row) => similarities[symbols[row]]);
  assert.deepEqual(seen, seen.toSorted((a, b) => b - a));
  assert.deepEqual(search.candidates(query, 20), found.slice(0, 20));
  const hits = await search.search(query, { count: 3, candidates: 50, rerank: (rows) => rows });
  const best = found.slice(0, 50).sort().reverse().subarray(0, 3);
  assert.deepEqual(hits.map((hit) => hit.row), [...best]);
});
